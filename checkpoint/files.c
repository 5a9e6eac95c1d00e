#include "checkpoint/files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define PIECE_SIZE (1U << 20)

int files_sync_folder(struct fs *fs, const char *path, bool *ret_fatal, struct err *err)
{
    int code = fs->ops->sync_folder(fs, path, err);
    if (code != 0) {
        *ret_fatal = true;
    }
    return code;
}

/* Reads a file of that size, hashes it, and writes it to `to` unless that is NULL. One of another
 * size is damaged as it stands: it may claim more than there is time or room for. */
static int stream(struct fs *fs, const char *path, uint64_t size_due, struct fs *to_fs,
                  struct fs_file *to, uint8_t ret_sha256[SHA256_SIZE], struct err *err)
{
    struct fs_file *file = NULL;
    uint64_t size = 0;
    int code = fs_open(fs, path, FS_READ, &file, err);
    if (code != 0) {
        return code;
    }
    struct sha256 sha;
    sha256_init(&sha);
    uint8_t *piece = malloc(PIECE_SIZE);
    ASSERT(piece != NULL);
    code = fs->ops->size(file, &size, err);
    if (code == 0 && size != size_due) {
        code = err_set(err, ERR_DAMAGED, "'%s' has %" PRIu64 " bytes instead of %" PRIu64, path,
                       size, size_due);
    }
    code = code != 0 || to == NULL ? code : fs_reserve(to_fs, to, size, err);
    for (uint64_t at = 0; code == 0 && at < size;) {
        size_t step = size - at < PIECE_SIZE ? (size_t)(size - at) : PIECE_SIZE;
        code = fs->ops->read(file, at, piece, step, err);
        if (code == 0) {
            sha256_update(&sha, piece, step);
            code = to == NULL ? 0 : to_fs->ops->write(to, piece, step, err);
        }
        at += step;
    }
    (void)fs->ops->close(file, NULL); /* Only read: nothing can be lost. */
    if (code == 0) {
        sha256_finish(&sha, ret_sha256);
    }
    sha256_done(&sha);
    free(piece);
    return code;
}

int files_check(struct fs *fs, const char *path, const uint8_t sha256[SHA256_SIZE], uint64_t size,
                struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    int code = stream(fs, path, size, NULL, NULL, digest, err);
    if (code == 0 && memcmp(digest, sha256, SHA256_SIZE) != 0) {
        code =
            err_set(err, ERR_DAMAGED, "'%s': its SHA-256 is not the one that was published", path);
    }
    return code;
}

int files_copy(struct fs *from_fs, const char *from, uint64_t size, struct fs *to_fs,
               const char *to, uint8_t ret_sha256[SHA256_SIZE], struct err *err)
{
    struct fs_file *file = NULL;
    int code = fs_open(to_fs, to, FS_CREATE, &file, err);
    if (code != 0) {
        return code;
    }
    code = stream(from_fs, from, size, to_fs, file, ret_sha256, err);
    if (code == 0) {
        code = to_fs->ops->sync(file, err);
    }
    int close_code = to_fs->ops->close(file, code == 0 ? err : NULL);
    return code != 0 ? code : close_code;
}
