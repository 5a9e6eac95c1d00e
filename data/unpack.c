#include "data/unpack.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define STORED_SIZE (256U << 10)

enum unpack_kind {
    UNPACK_PLAIN,
    UNPACK_GZIP,
    UNPACK_ZSTD,
};

struct unpack {
    enum unpack_kind kind;
    int fd;
    const char *path;
    uint8_t *stored; /* bytes of the file not yet taken: at .. size-1 */
    size_t at;
    size_t size;
    bool stored_ended;
    bool between; /* gzip: between members; zstd: between frames */
    z_stream gzip;
    ZSTD_DCtx *zstd;
};

/* Reads the next stored bytes when all are taken. */
static int refill(struct unpack *unpack, uint64_t *stored, struct err *err)
{
    if (unpack->at < unpack->size || unpack->stored_ended) {
        return 0;
    }
    ssize_t got = 0;
    do {
        got = read(unpack->fd, unpack->stored, STORED_SIZE);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return err_set(err, ERR_DISK, "%s: %s", unpack->path, err_errno(errno));
    }
    unpack->at = 0;
    unpack->size = (size_t)got;
    unpack->stored_ended = got == 0;
    *stored += (uint64_t)got;
    return 0;
}

int unpack_new(int fd, const char *path, struct unpack **ret_unpack, struct err *err)
{
    static const uint8_t gzip_magic[] = {0x1F, 0x8B};
    static const uint8_t zstd_magic[] = {0x28, 0xB5, 0x2F, 0xFD};
    struct unpack *made = calloc(1, sizeof(*made));
    if (made == NULL || (made->stored = malloc(STORED_SIZE)) == NULL) {
        free(made);
        return err_set(err, ERR_NOMEM, "%s: no memory for a buffer", path);
    }
    made->fd = fd;
    made->path = path;
    made->between = true;
    uint8_t magic[4] = {0};
    ssize_t got = pread(fd, magic, sizeof(magic), 0);
    if (got < 0) {
        int code = err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
        unpack_free(made);
        return code;
    }
    bool ready = true;
    if (got >= 2 && memcmp(magic, gzip_magic, sizeof(gzip_magic)) == 0) {
        made->kind = UNPACK_GZIP;
        ready = inflateInit2(&made->gzip, 16 + MAX_WBITS) == Z_OK;
    } else if (got == 4 && memcmp(magic, zstd_magic, sizeof(zstd_magic)) == 0) {
        made->kind = UNPACK_ZSTD;
        made->zstd = ZSTD_createDCtx();
        ready = made->zstd != NULL;
    }
    if (!ready) {
        made->kind = UNPACK_PLAIN;
        unpack_free(made);
        return err_set(err, ERR_NOMEM, "%s: no memory to decompress", path);
    }
    *ret_unpack = made;
    return 0;
}

void unpack_free(struct unpack *unpack)
{
    if (unpack == NULL) {
        return;
    }
    if (unpack->kind == UNPACK_GZIP) {
        (void)inflateEnd(&unpack->gzip);
    }
    (void)ZSTD_freeDCtx(unpack->zstd);
    free(unpack->stored);
    free(unpack);
}

static int cut_off(const struct unpack *unpack, const char *what, struct err *err)
{
    return err_set(err, ERR_DATA, "%s: the %s data ends in the middle; was the file copied whole?",
                   unpack->path, what);
}

/* One call of zlib; *ret_size bytes came out. */
static int gzip_step(struct unpack *unpack, uint8_t *bytes, size_t capacity, size_t *ret_size,
                     struct err *err)
{
    z_stream *gzip = &unpack->gzip;
    if (unpack->stored_ended) {
        return unpack->between ? 0 : cut_off(unpack, "gzip", err);
    }
    if (unpack->between) {
        (void)inflateReset(gzip);
        unpack->between = false;
    }
    gzip->next_in = unpack->stored + unpack->at;
    gzip->avail_in = (unsigned)(unpack->size - unpack->at);
    gzip->next_out = bytes;
    gzip->avail_out = capacity > UINT_MAX ? UINT_MAX : (unsigned)capacity;
    unsigned room = gzip->avail_out;
    int status = inflate(gzip, Z_NO_FLUSH);
    unpack->at = unpack->size - gzip->avail_in;
    *ret_size = room - gzip->avail_out;
    if (status == Z_STREAM_END) {
        unpack->between = true;
        return 0;
    }
    if (status != Z_OK && status != Z_BUF_ERROR) {
        return err_set(err, ERR_DATA, "%s: the gzip data is damaged (%s)", unpack->path,
                       gzip->msg != NULL ? gzip->msg : "no memory or an unknown method");
    }
    return 0;
}

static int zstd_step(struct unpack *unpack, uint8_t *bytes, size_t capacity, size_t *ret_size,
                     struct err *err)
{
    ZSTD_inBuffer in = {unpack->stored, unpack->size, unpack->at};
    ZSTD_outBuffer out = {bytes, capacity, 0};
    if (unpack->stored_ended && unpack->between) {
        return 0;
    }
    size_t status = ZSTD_decompressStream(unpack->zstd, &out, &in);
    unpack->at = in.pos;
    *ret_size = out.pos;
    if (ZSTD_isError(status)) {
        return err_set(err, ERR_DATA, "%s: the zstd data is damaged (%s)", unpack->path,
                       ZSTD_getErrorName(status));
    }
    unpack->between = status == 0;
    if (unpack->stored_ended && status != 0 && out.pos == 0) {
        return cut_off(unpack, "zstd", err);
    }
    return 0;
}

int unpack_read(struct unpack *unpack, uint8_t *bytes, size_t capacity, size_t *ret_size,
                uint64_t *ret_stored, struct err *err)
{
    *ret_size = 0;
    *ret_stored = 0;
    if (unpack->kind == UNPACK_PLAIN) { /* Straight into the caller's window. */
        ssize_t got = 0;
        do {
            got = read(unpack->fd, bytes, capacity);
        } while (got < 0 && errno == EINTR);
        if (got < 0) {
            return err_set(err, ERR_DISK, "%s: %s", unpack->path, err_errno(errno));
        }
        *ret_size = (size_t)got;
        *ret_stored = (uint64_t)got;
        return 0;
    }
    while (*ret_size == 0) {
        int code = refill(unpack, ret_stored, err);
        if (code != 0) {
            return code;
        }
        if (unpack->stored_ended && unpack->between) {
            return 0;
        }
        code = unpack->kind == UNPACK_GZIP ? gzip_step(unpack, bytes, capacity, ret_size, err)
                                           : zstd_step(unpack, bytes, capacity, ret_size, err);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}
