/* A shard is written: header, tensors, digest, in one pass. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/json_text.h"
#include "checkpoint/shard_format.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "vectors are written as they lie in memory");

static void put_metadata(struct buf *out, const char *key, const char *value)
{
    buf_print(out, ",\"%s\":", key);
    json_put_text(out, value, strlen(value));
}

static void put_metadata_u64(struct buf *out, const char *key, uint64_t value)
{
    buf_print(out, ",\"%s\":\"%" PRIu64 "\"", key, value);
}

static void put_columns(struct buf *out, const char *const *columns, uint64_t count)
{
    struct buf array = BUF_NONE; /* itself JSON, in a text */
    buf_put_u8(&array, '[');
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0) {
            buf_put_u8(&array, ',');
        }
        json_put_text(&array, columns[i], strlen(columns[i]));
    }
    buf_put_u8(&array, ']');
    buf_print(out, ",\"columns\":");
    json_put_text(out, (const char *)array.bytes, array.size);
    buf_done(&array);
}

static void put_tensor(struct buf *out, const char *name, const char *type, uint64_t count,
                       uint64_t *offset)
{
    buf_print(out,
              ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 "],\"data_offsets\":[%" PRIu64
              ",%" PRIu64 "]}",
              name, type, count, *offset, *offset + 8 * count);
    *offset += 8 * count;
}

/* u64 length and the header, a multiple of 8 bytes. */
static void put_header(struct buf *out, const struct shard_content *content)
{
    const struct shard_about *about = &content->about;
    uint64_t count = about->end - about->first;
    struct buf text = BUF_NONE;
    char hex[SHA256_HEX_SIZE];
    sha256_hex(about->identity, hex);
    buf_print(&text, "{\"__metadata__\":{\"format\":\"%s\"", SHARD_FORMAT);
    put_metadata(&text, "job", about->job);
    put_metadata(&text, "identity", hex);
    put_metadata(&text, "policy", about->policy);
    put_metadata_u64(&text, "epoch", about->epoch);
    put_metadata_u64(&text, "step", about->step);
    put_metadata_u64(&text, "generation", about->generation);
    buf_print(&text, ",\"partition\":\"%" PRIu32 " of %" PRIu32 "\"", about->rank + 1,
              about->ranks);
    put_metadata(&text, "node", about->node);
    put_metadata_u64(&text, "coordinates", about->coordinates);
    if (content->columns != NULL) {
        put_columns(&text, content->columns, count);
    }
    buf_print(&text, "}");
    uint64_t offset = 0;
    put_tensor(&text, "parameter", "F64", count, &offset);
    put_tensor(&text, "accumulator", "F64", count, &offset);
    if (content->mean != NULL) {
        put_tensor(&text, "mean", "F64", count, &offset);
        put_tensor(&text, "scale", "F64", count, &offset);
    }
    put_tensor(&text, "coordinates", "I64", 2, &offset);
    buf_print(&text, "}");
    while (text.size % 8 != 0) {
        buf_put_u8(&text, ' ');
    }
    buf_put_u64(out, text.size);
    buf_put(out, text.bytes, text.size);
    buf_done(&text);
}

struct writer {
    struct fs *fs;
    struct fs_file *file;
    struct sha256 sha;
    uint64_t size;
};

static int write_hashed(struct writer *w, const void *bytes, uint64_t size, struct err *err)
{
    const uint8_t *at = bytes;
    while (size > 0) {
        size_t piece = size < SHARD_PIECE_SIZE ? (size_t)size : SHARD_PIECE_SIZE;
        int code = w->fs->ops->write(w->file, at, piece, err);
        if (code != 0) {
            return code;
        }
        sha256_update(&w->sha, at, piece);
        at += piece;
        size -= piece;
        w->size += piece;
    }
    return 0;
}

static int write_all(struct writer *w, const struct shard_content *content, struct err *err)
{
    const struct shard_about *about = &content->about;
    uint64_t bytes = 8 * (about->end - about->first);
    int64_t range[2] = {(int64_t)about->first, (int64_t)about->end};
    struct buf header = BUF_NONE;
    put_header(&header, content);
    int code = 0;
    if (header.size > SHARD_HEADER_SIZE_MAX) {
        code = err_set(err, ERR_DISK, "the column names take %zu bytes; the most is %u",
                       header.size, SHARD_HEADER_SIZE_MAX);
    }
    code = code != 0 ? code : write_hashed(w, header.bytes, header.size, err);
    code = code != 0 ? code : write_hashed(w, content->parameter, bytes, err);
    code = code != 0 ? code : write_hashed(w, content->accumulator, bytes, err);
    if (content->mean != NULL) {
        code = code != 0 ? code : write_hashed(w, content->mean, bytes, err);
        code = code != 0 ? code : write_hashed(w, content->scale, bytes, err);
    }
    code = code != 0 ? code : write_hashed(w, range, sizeof(range), err);
    buf_done(&header);
    return code;
}

int shard_write(struct fs *fs, const char *path, const struct shard_content *content,
                uint8_t ret_sha256[SHA256_SIZE], uint64_t *ret_size, struct err *err)
{
    ASSERT(content->about.first < content->about.end);
    ASSERT(content->about.end <= content->about.coordinates);
    ASSERT(content->about.rank < content->about.ranks);
    ASSERT((content->mean == NULL) == (content->scale == NULL));
    struct writer w = {.fs = fs};
    int code = fs_open(fs, path, FS_CREATE, &w.file, err);
    if (code != 0) {
        return code;
    }
    sha256_init(&w.sha);
    code = write_all(&w, content, err);
    if (code == 0) {
        code = fs->ops->sync(w.file, err);
    }
    int close_code = fs->ops->close(w.file, code == 0 ? err : NULL);
    code = code != 0 ? code : close_code;
    if (code == 0) {
        sha256_finish(&w.sha, ret_sha256);
        *ret_size = w.size;
    }
    sha256_done(&w.sha);
    return code;
}
