/* Token files: uint16 little endian, plain or behind llm.c's header. */
#include "data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "data/npy.h"
#include "data/source.h"

#define LLMC_MAGIC       20240520U
#define LLMC_HEADER_SIZE 1024U
#define VERIFY_TOKENS    (1U << 19)

/* llm.c: int32 magic, version 1, tokens, … 256 of them; taken for that where the count agrees too.
 */
static void know_header(struct tokens_file *tokens, uint64_t size, const uint8_t *bytes)
{
    struct reader reader = {.bytes = bytes, .size = 12};
    uint32_t magic = read_u32(&reader);
    uint32_t version = read_u32(&reader);
    uint32_t count = read_u32(&reader);
    if (magic == LLMC_MAGIC && version == 1 && size - LLMC_HEADER_SIZE == (uint64_t)count * 2) {
        tokens->offset = LLMC_HEADER_SIZE;
        tokens->count = count;
    }
}

int tokens_open(const char *path, uint32_t vocabulary, struct tokens_file *ret_tokens,
                struct err *err)
{
    if (vocabulary < 1 || vocabulary > 65536) {
        return err_set(err, ERR_USAGE, "vocabulary %u; tokens of 16 bits need 1 to 65536",
                       vocabulary);
    }
    struct tokens_file made = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK),
                               .vocabulary = vocabulary};
    if (made.fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK, "%s: %s", path,
                       err_errno(errno));
    }
    struct stat status;
    int code = 0;
    if (fstat(made.fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        code = err_set(err, ERR_DATA, "%s: is not a regular file", path);
    } else if (status.st_size == 0) {
        code = err_set(err, ERR_DATA, "%s: no tokens: the file is empty", path);
    } else if (status.st_size % 2 != 0) {
        code = err_set(err, ERR_DATA, "%s: odd size %lld: tokens have two bytes each", path,
                       (long long)status.st_size);
    } else {
        made.count = (uint64_t)status.st_size / 2;
        if ((uint64_t)status.st_size >= LLMC_HEADER_SIZE) {
            uint8_t front[12];
            code = npy_pread(made.fd, path, 0, front, sizeof(front), err);
            if (code == 0) {
                know_header(&made, (uint64_t)status.st_size, front);
            }
        }
    }
    if (code == 0 && made.count == 0) {
        code = err_set(err, ERR_DATA, "%s: no tokens behind the header", path);
    }
    if (code != 0) {
        (void)close(made.fd);
        return code;
    }
    *ret_tokens = made;
    return 0;
}

void tokens_close(struct tokens_file *tokens)
{
    if (tokens->fd >= 0) {
        (void)close(tokens->fd);
        tokens->fd = -1;
    }
}

int tokens_read(const struct tokens_file *tokens, uint64_t first, size_t count, uint16_t *ret_ids,
                struct err *err)
{
    ASSERT(first <= tokens->count);
    ASSERT(count <= tokens->count - first);
    uint64_t offset = tokens->offset + first * 2;
    int code = npy_pread(tokens->fd, "tokens", offset, ret_ids, count * 2, err);
    for (size_t i = 0; i < count && code == 0; i++) {
        if (ret_ids[i] >= tokens->vocabulary) {
            code =
                err_set(err, ERR_DATA, "token %llu (byte offset %llu) is %u; the vocabulary has %u",
                        (unsigned long long)first + i, (unsigned long long)offset + i * 2,
                        ret_ids[i], tokens->vocabulary);
        }
    }
    return code;
}

int tokens_verify(const struct tokens_file *tokens, const struct data_progress *progress,
                  struct err *err)
{
    uint16_t *ids = malloc(VERIFY_TOKENS * sizeof(*ids));
    ASSERT(ids != NULL);
    struct meter meter;
    meter_start(&meter, progress, "reading", tokens->count * 2);
    int code = 0;
    for (uint64_t at = 0; at < tokens->count && code == 0;) {
        uint64_t left = tokens->count - at;
        size_t count = left < VERIFY_TOKENS ? (size_t)left : VERIFY_TOKENS;
        code = tokens_read(tokens, at, count, ids, err);
        code = code == 0 ? meter_add(&meter, count * 2, err) : code;
        at += count;
    }
    free(ids);
    return code;
}
