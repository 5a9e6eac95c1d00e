/* A shard is read: header, then the tensors in the order of the file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/shard_format.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "vectors are written as they lie in memory");

void shard_done(struct shard *shard)
{
    if (shard->columns != NULL) {
        for (uint64_t i = 0; i < shard->about.end - shard->about.first; i++) {
            free(shard->columns[i]);
        }
    }
    free(shard->columns);
    free(shard->parameter);
    free(shard->accumulator);
    free(shard->mean);
    free(shard->scale);
    free(shard->losses);
    *shard = (struct shard)SHARD_NONE;
}

static int read_hashed(struct fs *fs, struct fs_file *file, struct sha256 *sha, uint64_t offset,
                       void *bytes, uint64_t size, struct err *err)
{
    uint8_t *at = bytes;
    while (size > 0) {
        size_t piece = size < SHARD_PIECE_SIZE ? (size_t)size : SHARD_PIECE_SIZE;
        int code = fs->ops->read(file, offset, at, piece, err);
        if (code != 0) {
            return code;
        }
        if (sha != NULL) {
            sha256_update(sha, at, piece);
        }
        at += piece;
        offset += piece;
        size -= piece;
    }
    return 0;
}

void shard_losses_digest(const struct losses *losses, uint8_t ret_sha256[SHA256_SIZE])
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_update(&sha, losses->steps, losses->count * sizeof(losses->steps[0]));
    sha256_update(&sha, losses->values, losses->count * sizeof(losses->values[0]));
    sha256_finish(&sha, ret_sha256);
    sha256_done(&sha);
}

static struct losses *losses_new(const struct shard_layout *layout, struct err *err)
{
    struct losses *losses = calloc(1, sizeof(*losses));
    if (losses == NULL) {
        (void)err_set(err, ERR_NOMEM, "no memory for the losses of its steps");
        return NULL;
    }
    losses->count = (size_t)layout->losses_count; /* At most LOSSES_MAX. */
    return losses;
}

/* What was read of them, before it is used. */
static int settle(struct losses *losses, const struct shard_layout *layout, uint64_t step,
                  struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    shard_losses_digest(losses, digest);
    if (memcmp(digest, layout->losses_sha256, SHA256_SIZE) != 0) {
        return err_set(err, ERR_DAMAGED, "the losses of its steps are not those of its header");
    }
    const char *wrong = losses_settle(losses, step);
    return wrong == NULL
               ? 0
               : err_set(err, ERR_DAMAGED, "the losses of its steps are wrong: %s", wrong);
}

/* The tensors in the order of the file, so that one pass reads and hashes. */
static int read_tensors(struct fs *fs, struct fs_file *file, const struct shard_layout *layout,
                        struct sha256 *sha, struct shard *shard, struct err *err)
{
    uint64_t count = shard->about.end;
    int64_t range[2] = {0, 0};
    struct {
        uint64_t offset;
        void *bytes;
        uint64_t size;
    } parts[SHARD_TENSORS_MAX] = {{layout->parameter, NULL, 8 * count},
                                  {layout->accumulator, NULL, 8 * count},
                                  {layout->mean, NULL, 8 * count},
                                  {layout->scale, NULL, 8 * count},
                                  {layout->coordinates, range, sizeof(range)},
                                  {layout->loss_steps, NULL, 8 * layout->losses_count},
                                  {layout->losses, NULL, 8 * layout->losses_count}};
    double **const vectors[4] = {&shard->parameter, &shard->accumulator, &shard->mean,
                                 &shard->scale};
    for (int i = 0; i < 4; i++) {
        if (parts[i].offset != 0) {
            *vectors[i] = calloc(count, sizeof(double)); /* at most the file's size */
            parts[i].bytes = *vectors[i];
            if (*vectors[i] == NULL) {
                return err_set(err, ERR_NOMEM, "no memory for %" PRIu64 " coordinates", count);
            }
        }
    }
    if (layout->losses != 0) {
        shard->losses = losses_new(layout, err);
        if (shard->losses == NULL) {
            return err->code;
        }
        parts[5].bytes = shard->losses->steps;
        parts[6].bytes = shard->losses->values;
    }
    uint64_t last = 0;
    for (int turn = 0; turn < SHARD_TENSORS_MAX; turn++) {
        int next = -1;
        for (int i = 0; i < SHARD_TENSORS_MAX; i++) {
            if (parts[i].offset > last && (next < 0 || parts[i].offset < parts[next].offset)) {
                next = i;
            }
        }
        if (next < 0) {
            break;
        }
        last = parts[next].offset;
        int code = read_hashed(fs, file, sha, last, parts[next].bytes, parts[next].size, err);
        if (code != 0) {
            return code;
        }
    }
    if (range[0] < 0 || range[1] <= range[0] || (uint64_t)range[1] > shard->about.coordinates ||
        (uint64_t)(range[1] - range[0]) != count) {
        return err_set(err, ERR_DAMAGED, "its coordinates [%" PRId64 ", %" PRId64 ") are wrong",
                       range[0], range[1]);
    }
    shard->about.first = (uint64_t)range[0];
    shard->about.end = (uint64_t)range[1];
    return shard->losses == NULL ? 0 : settle(shard->losses, layout, shard->about.step, err);
}

/* The header, hashed where sha is not NULL. */
static int read_header(struct fs *fs, struct fs_file *file, struct sha256 *sha, struct shard *shard,
                       struct shard_layout *layout, struct err *err)
{
    uint8_t prefix[8];
    uint64_t size = 0;
    int code = fs->ops->size(file, &size, err);
    if (code != 0) {
        return code;
    }
    if (size < sizeof(prefix)) {
        return err_set(err, ERR_DAMAGED, "it has only %" PRIu64 " bytes", size);
    }
    code = fs->ops->read(file, 0, prefix, sizeof(prefix), err);
    if (code != 0) {
        return code;
    }
    struct reader in = {prefix, sizeof(prefix), false};
    uint64_t header_size = read_u64(&in);
    if (header_size > SHARD_HEADER_SIZE_MAX || header_size > size - sizeof(prefix)) {
        return err_set(err, ERR_DAMAGED,
                       "its header would have %" PRIu64 " bytes, the file has %" PRIu64,
                       header_size, size);
    }
    struct buf header = BUF_NONE;
    buf_reserve(&header, sizeof(prefix) + (size_t)header_size);
    code = read_hashed(fs, file, sha, 0, header.bytes, sizeof(prefix) + header_size, err);
    header.size = sizeof(prefix) + (size_t)header_size;
    if (code == 0) {
        code = shard_parse_header(header.bytes, header.size, size, shard, layout, err);
    }
    shard->size = size;
    buf_done(&header);
    return code;
}

static int read_file(struct fs *fs, struct fs_file *file, struct sha256 *sha, struct shard *shard,
                     struct err *err)
{
    struct shard_layout layout = {0};
    int code = read_header(fs, file, sha, shard, &layout, err);
    return code != 0 ? code : read_tensors(fs, file, &layout, sha, shard, err);
}

int shard_read(struct fs *fs, const char *path, const uint8_t *sha256, struct shard *ret_shard,
               struct err *err)
{
    struct fs_file *file = NULL;
    int code = fs_open(fs, path, FS_READ, &file, err);
    if (code != 0) {
        return code;
    }
    struct shard made = SHARD_NONE;
    struct sha256 sha;
    sha256_init(&sha);
    code = read_file(fs, file, &sha, &made, err);
    (void)fs->ops->close(file, NULL); /* Only read: nothing can be lost. */
    if (code == 0) {
        sha256_finish(&sha, made.sha256);
        if (sha256 != NULL && memcmp(made.sha256, sha256, SHA256_SIZE) != 0) {
            code = err_set(err, ERR_DAMAGED, "its SHA-256 is not the one that was published");
        }
    }
    sha256_done(&sha);
    if (code != 0) {
        shard_done(&made);
        (void)err_prefix(err, "shard '%s': ", path);
        return code;
    }
    *ret_shard = made;
    return 0;
}

static int read_losses(struct fs *fs, struct fs_file *file, const struct shard_layout *layout,
                       struct shard *shard, struct err *err)
{
    const size_t size = 8 * (size_t)layout->losses_count;
    struct losses *losses = losses_new(layout, err);
    if (losses == NULL) {
        return err->code;
    }
    shard->losses = losses;
    int code = fs->ops->read(file, layout->loss_steps, losses->steps, size, err);
    code = code != 0 ? code : fs->ops->read(file, layout->losses, losses->values, size, err);
    return code != 0 ? code : settle(losses, layout, shard->about.step, err);
}

int shard_read_losses(struct fs *fs, const char *path, struct losses **ret_losses, struct err *err)
{
    struct fs_file *file = NULL;
    struct shard made = SHARD_NONE;
    struct shard_layout layout = {0};
    int code = fs_open(fs, path, FS_READ, &file, err);
    if (code != 0) {
        return code;
    }
    code = read_header(fs, file, /* sha= */ NULL, &made, &layout, err);
    if (code == 0 && layout.losses != 0) {
        code = read_losses(fs, file, &layout, &made, err);
    }
    (void)fs->ops->close(file, NULL); /* Only read: nothing can be lost. */
    if (code == 0) {
        *ret_losses = made.losses;
        made.losses = NULL;
    } else {
        (void)err_prefix(err, "shard '%s': ", path);
    }
    shard_done(&made);
    return code;
}
