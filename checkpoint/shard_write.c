/* A shard is written: header, tensors, digest, in one pass. */
#include <inttypes.h>
#include <pthread.h>
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

static bool losses_known(const struct shard_content *content)
{
    return content->losses != NULL && content->losses->count > 0;
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
    if (losses_known(content)) {
        uint8_t digest[SHA256_SIZE];
        shard_losses_digest(content->losses, digest);
        sha256_hex(digest, hex);
        put_metadata(&text, "losses_sha256", hex);
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
    if (losses_known(content)) {
        put_tensor(&text, "loss_steps", "I64", content->losses->count, &offset);
        put_tensor(&text, "losses", "F64", content->losses->count, &offset);
    }
    buf_print(&text, "}");
    while (text.size % 8 != 0) {
        buf_put_u8(&text, ' ');
    }
    buf_put_u64(out, text.size);
    buf_put(out, text.bytes, text.size);
    buf_done(&text);
}

/* The file's bytes as they lie in memory, in order. */
struct parts {
    struct {
        const void *bytes;
        uint64_t size;
    } part[8];
    unsigned count;
    uint64_t size;
    uint8_t sha256[SHA256_SIZE];
};

static void put_part(struct parts *parts, const void *bytes, uint64_t size)
{
    ASSERT(parts->count < sizeof(parts->part) / sizeof(parts->part[0]));
    parts->part[parts->count].bytes = bytes;
    parts->part[parts->count].size = size;
    parts->count++;
    parts->size += size;
}

static void *hash_parts(void *context)
{
    struct parts *parts = context;
    struct sha256 sha;
    sha256_init(&sha);
    for (unsigned i = 0; i < parts->count; i++) {
        sha256_update(&sha, parts->part[i].bytes, parts->part[i].size);
    }
    sha256_finish(&sha, parts->sha256);
    sha256_done(&sha);
    return NULL;
}

static int write_parts(struct fs *fs, struct fs_file *file, const struct parts *parts,
                       struct err *err)
{
    int code = 0;
    for (unsigned i = 0; i < parts->count; i++) {
        const uint8_t *at = parts->part[i].bytes;
        for (uint64_t left = parts->part[i].size; code == 0 && left > 0;) {
            size_t piece = left < SHARD_PIECE_SIZE ? (size_t)left : SHARD_PIECE_SIZE;
            code = fs->ops->write(file, at, piece, err);
            at += piece;
            left -= piece;
        }
    }
    return code;
}

/* Hashed by a thread of its own beside the writing: both only read what was captured. */
static int write_hashed(struct fs *fs, struct fs_file *file, struct parts *parts, struct err *err)
{
    pthread_t thread;
    bool beside =
        parts->size >= SHARD_BESIDE_SIZE && pthread_create(&thread, NULL, hash_parts, parts) == 0;
    int code = write_parts(fs, file, parts, err);
    code = code != 0 ? code : fs->ops->sync(file, err);
    if (beside) {
        ASSERT(pthread_join(thread, NULL) == 0);
    } else if (code == 0) {
        (void)hash_parts(parts);
    }
    return code;
}

int shard_write(struct fs *fs, const char *path, const struct shard_content *content,
                uint8_t ret_sha256[SHA256_SIZE], uint64_t *ret_size, struct err *err)
{
    const struct shard_about *about = &content->about;
    const uint64_t bytes = 8 * (about->end - about->first);
    const int64_t range[2] = {(int64_t)about->first, (int64_t)about->end};
    struct buf header = BUF_NONE;
    struct parts parts = {.count = 0};
    struct fs_file *file = NULL;
    ASSERT(about->first < about->end);
    ASSERT(about->end <= about->coordinates);
    ASSERT(about->rank < about->ranks);
    ASSERT((content->mean == NULL) == (content->scale == NULL));
    put_header(&header, content);
    put_part(&parts, header.bytes, header.size);
    put_part(&parts, content->parameter, bytes);
    put_part(&parts, content->accumulator, bytes);
    if (content->mean != NULL) {
        put_part(&parts, content->mean, bytes);
        put_part(&parts, content->scale, bytes);
    }
    put_part(&parts, range, sizeof(range));
    if (losses_known(content)) {
        const struct losses *losses = content->losses;
        ASSERT(losses_newest(losses) <= about->step);
        put_part(&parts, losses->steps, losses->count * sizeof(losses->steps[0]));
        put_part(&parts, losses->values, losses->count * sizeof(losses->values[0]));
    }
    int code = fs_open(fs, path, FS_CREATE, &file, err);
    if (code == 0) {
        code = header.size <= SHARD_HEADER_SIZE_MAX
                   ? fs_reserve(fs, file, parts.size, err)
                   : err_set(err, ERR_DISK, "the column names take %zu bytes; the most is %u",
                             header.size, SHARD_HEADER_SIZE_MAX);
        if (code == 0) {
            fs_expect(fs, file, parts.size);
            code = write_hashed(fs, file, &parts, err);
        }
        int close_code = fs->ops->close(file, code == 0 ? err : NULL);
        code = code != 0 ? code : close_code;
    }
    buf_done(&header);
    if (code == 0) {
        memcpy(ret_sha256, parts.sha256, SHA256_SIZE);
        *ret_size = parts.size;
    }
    return code;
}
