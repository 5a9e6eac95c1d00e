/* Files that survive a crash, behind a table of functions.
 *
 * All that the project must find again after a crash (log, shards, manifests, CURRENT) is written
 * through a struct fs: the real one is fs_posix_open() below a folder, the simulated one lives with
 * the simulator and forgets what was not synced. Calls block: never call them on a loop. A path is
 * relative to the file system's root, "/" between names, no "..". One thread at a time for each
 * struct fs_file; the struct fs itself may be used from several threads. */
#ifndef COPPELIUS_BASE_FS_H
#define COPPELIUS_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct fs;
struct fs_file;

enum fs_mode {
    FS_READ,   /* must exist */
    FS_CREATE, /* must not exist; exclusive */
    FS_APPEND, /* opened or created; writes go to the end */
};

typedef void fs_list_fn(void *context, const char *name, bool is_folder);

struct fs_ops {
    int (*open)(struct fs *fs, const char *path, enum fs_mode mode, struct fs_file **ret_file,
                struct err *err);
    /* So many bytes are to be written to the end, and not read back soon: a hint, may be NULL. Some
     * of what was written may then be in memory until a sync, a close, a size or a read. */
    void (*expect)(struct fs_file *file, uint64_t size);
    /* Keeps room on the disk for so many bytes that are to be written to the end, the file's size
     * unchanged; a close or truncate may give back what is not used. ERR_DISK with the numbers
     * where there is no such room, and nothing is kept then. Where the file system cannot: 0. May
     * be NULL.
     */
    int (*reserve)(struct fs_file *file, uint64_t size, struct err *err);
    /* All bytes or an error; what was written of them is then unknown. */
    int (*write)(struct fs_file *file, const void *bytes, size_t size, struct err *err);
    /* Exactly size bytes at offset, or an error (end of file included). */
    int (*read)(struct fs_file *file, uint64_t offset, void *bytes, size_t size, struct err *err);
    int (*size)(struct fs_file *file, uint64_t *ret_size, struct err *err);
    int (*truncate)(struct fs_file *file, uint64_t size, struct err *err);
    /* After a failed sync nothing about the file is known: never sync again, give the file up. */
    int (*sync)(struct fs_file *file, struct err *err);
    int (*close)(struct fs_file *file, struct err *err); /* the object is gone either way */

    int (*rename)(struct fs *fs, const char *from, const char *to, struct err *err);
    int (*unlink)(struct fs *fs, const char *path, struct err *err); /* absent is no error */
    int (*mkdir)(struct fs *fs, const char *path, struct err *err);  /* existing is no error */
    int (*rmdir)(struct fs *fs, const char *path, struct err *err);  /* absent is no error */
    int (*sync_folder)(struct fs *fs, const char *path, struct err *err);
    int (*list)(struct fs *fs, const char *path, fs_list_fn *on_entry, void *context,
                struct err *err); /* ERR_NOT_FOUND where the folder is absent */
    int (*exists)(struct fs *fs, const char *path, bool *ret_exists, struct err *err);
};

struct fs {
    const struct fs_ops *ops;
};

/* The real one, below an existing folder. */
int fs_posix_open(const char *root, struct fs **ret_fs, struct err *err);
void fs_posix_close(struct fs *fs); /* NULL is fine */

static inline int fs_open(struct fs *fs, const char *path, enum fs_mode mode,
                          struct fs_file **ret_file, struct err *err)
{
    return fs->ops->open(fs, path, mode, ret_file, err);
}

static inline void fs_expect(struct fs *fs, struct fs_file *file, uint64_t size)
{
    if (fs->ops->expect != NULL) {
        fs->ops->expect(file, size);
    }
}

static inline int fs_reserve(struct fs *fs, struct fs_file *file, uint64_t size, struct err *err)
{
    return fs->ops->reserve != NULL ? fs->ops->reserve(file, size, err) : 0;
}

/* Whole small files. fs_read_all refuses more than size_max bytes before it allocates and appends
 * to `bytes`. fs_replace writes `path`.new, syncs it, renames it over path and syncs the folder: a
 * reader sees the old bytes or the new ones. */
int fs_read_all(struct fs *fs, const char *path, uint64_t size_max, struct buf *bytes,
                struct err *err);
int fs_replace(struct fs *fs, const char *path, const void *bytes, size_t size, struct err *err);
/* Creates path (exclusively), writes, syncs, closes. The folder is not synced. */
int fs_create(struct fs *fs, const char *path, const void *bytes, size_t size, struct err *err);
/* Every folder on the way to path, and path itself. */
int fs_mkdir_all(struct fs *fs, const char *path, struct err *err);
/* Deletes a folder with all that is in it; absent is no error. */
int fs_remove_tree(struct fs *fs, const char *path, struct err *err);
/* The folder part of a path into `folder` ("." when there is none). */
void fs_folder_of(const char *path, char *folder, size_t capacity);

#endif
