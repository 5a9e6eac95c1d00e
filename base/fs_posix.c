/* The real file system below one folder, by openat and its kin. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/direct.h"
#include "base/fs.h"
#include "base/room.h"

#define LONG_SIZE (UINT64_C(2) * DIRECT_PIECE_SIZE)

struct posix_fs {
    struct fs fs; /* first: a struct fs * is a struct posix_fs * */
    int root;
};

struct fs_file {
    int fd;
    struct direct direct; /* long files */
    char name[256];       /* the end of the path, for sentences */
};

static int disk_error(struct err *err, const char *what, const char *path)
{
    int number = errno;
    if (number == ENOENT) {
        return err_set(err, ERR_NOT_FOUND, "%s '%s': no such file", what, path);
    }
    return err_set(err, ERR_DISK, "%s '%s': %s", what, path, err_errno(number));
}

static int not_a_file(struct err *err, const char *path)
{
    return err_set(err, ERR_DAMAGED,
                   "open '%s': it is no plain file; symbolic links, folders, FIFOs and devices are "
                   "not read",
                   path);
}

static int root_of(struct fs *fs)
{
    return OWNER_OF(fs, struct posix_fs, fs)->root;
}

static int posix_open(struct fs *fs, const char *path, enum fs_mode mode, struct fs_file **ret_file,
                      struct err *err)
{
    static const int flags[] = {[FS_READ] = O_RDONLY,
                                [FS_CREATE] = O_WRONLY | O_CREAT | O_EXCL,
                                [FS_APPEND] = O_RDWR | O_CREAT | O_APPEND};
    struct fs_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        return err_set(err, ERR_NOMEM, "open '%s': no memory", path);
    }
    /* O_NONBLOCK: whoever put a FIFO there does not make us wait for its writer. */
    file->fd = openat(root_of(fs), path, flags[mode] | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);
    struct stat status;
    if (file->fd < 0) {
        free(file);
        if (errno == ELOOP || errno == ENXIO) {
            return not_a_file(err, path);
        }
        return disk_error(err, mode == FS_CREATE ? "create" : "open", path);
    }
    if (fstat(file->fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        (void)close(file->fd);
        free(file);
        return not_a_file(err, path);
    }
    size_t size = strlen(path);
    size_t skip = size >= sizeof(file->name) ? size - sizeof(file->name) + 1 : 0;
    memcpy(file->name, path + skip, size - skip + 1);
    *ret_file = file;
    return 0;
}

static void posix_expect(struct fs_file *file, uint64_t size)
{
    if (size >= LONG_SIZE) {
        direct_begin(&file->direct, file->fd);
    }
}

/* All that was written is in the file, for whoever looks. */
static int settle(struct fs_file *file, struct err *err)
{
    int number = direct_end(&file->direct, file->fd);
    if (number != 0) {
        errno = number;
        return disk_error(err, "write", file->name);
    }
    return 0;
}

static int posix_reserve(struct fs_file *file, uint64_t size, struct err *err)
{
    int code = settle(file, err);
    return code != 0 ? code : room_reserve(file->fd, file->name, size, err);
}

static int posix_write(struct fs_file *file, const void *bytes, size_t size, struct err *err)
{
    int number = direct_write(&file->direct, file->fd, bytes, size);
    if (number != 0) {
        errno = number;
        return disk_error(err, "write", file->name);
    }
    return 0;
}

static int posix_read(struct fs_file *file, uint64_t offset, void *bytes, size_t size,
                      struct err *err)
{
    char *at = bytes;
    int code = settle(file, err);
    if (code != 0) {
        return code;
    }
    while (size > 0) {
        ssize_t got = pread(file->fd, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return disk_error(err, "read", file->name);
        }
        if (got == 0) {
            return err_set(err, ERR_DAMAGED, "read '%s': it ends %zu bytes early", file->name,
                           size);
        }
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}

static int posix_size(struct fs_file *file, uint64_t *ret_size, struct err *err)
{
    struct stat status;
    int code = settle(file, err);
    if (code != 0) {
        return code;
    }
    if (fstat(file->fd, &status) != 0) {
        return disk_error(err, "stat", file->name);
    }
    *ret_size = (uint64_t)status.st_size;
    return 0;
}

static int posix_truncate(struct fs_file *file, uint64_t size, struct err *err)
{
    int code = settle(file, err);
    if (code != 0) {
        return code;
    }
    return ftruncate(file->fd, (off_t)size) == 0 ? 0 : disk_error(err, "truncate", file->name);
}

static int posix_sync(struct fs_file *file, struct err *err)
{
    int code = settle(file, err);
    if (code != 0) {
        return code;
    }
    return fsync(file->fd) == 0 ? 0 : disk_error(err, "fsync", file->name);
}

static int posix_close(struct fs_file *file, struct err *err)
{
    int code = settle(file, err);
    direct_drop(&file->direct);
    if (close(file->fd) != 0 && code == 0) {
        code = disk_error(err, "close", file->name);
    }
    free(file);
    return code;
}

static int posix_rename(struct fs *fs, const char *from, const char *to, struct err *err)
{
    return renameat(root_of(fs), from, root_of(fs), to) == 0 ? 0 : disk_error(err, "rename to", to);
}

static int posix_unlink(struct fs *fs, const char *path, struct err *err)
{
    return unlinkat(root_of(fs), path, 0) == 0 || errno == ENOENT ? 0
                                                                  : disk_error(err, "delete", path);
}

static int posix_mkdir(struct fs *fs, const char *path, struct err *err)
{
    return mkdirat(root_of(fs), path, 0750) == 0 || errno == EEXIST
               ? 0
               : disk_error(err, "create folder", path);
}

static int posix_rmdir(struct fs *fs, const char *path, struct err *err)
{
    return unlinkat(root_of(fs), path, AT_REMOVEDIR) == 0 || errno == ENOENT
               ? 0
               : disk_error(err, "delete folder", path);
}

static int posix_sync_folder(struct fs *fs, const char *path, struct err *err)
{
    int fd = openat(root_of(fs), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return disk_error(err, "open folder", path);
    }
    int code = fsync(fd) == 0 ? 0 : disk_error(err, "fsync folder", path);
    (void)close(fd);
    return code;
}

static int posix_list(struct fs *fs, const char *path, fs_list_fn *on_entry, void *context,
                      struct err *err)
{
    int fd = openat(root_of(fs), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL) {
        int code = disk_error(err, "list folder", path);
        if (fd >= 0) {
            (void)close(fd);
        }
        return code;
    }
    errno = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        struct stat status;
        if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
            continue; /* It went away meanwhile. */
        }
        on_entry(context, entry->d_name, S_ISDIR(status.st_mode));
        errno = 0;
    }
    int code = errno == 0 ? 0 : disk_error(err, "list folder", path);
    (void)closedir(folder);
    return code;
}

static int posix_exists(struct fs *fs, const char *path, bool *ret_exists, struct err *err)
{
    struct stat status;
    if (fstatat(root_of(fs), path, &status, AT_SYMLINK_NOFOLLOW) == 0) {
        *ret_exists = true;
        return 0;
    }
    if (errno == ENOENT || errno == ENOTDIR) {
        *ret_exists = false;
        return 0;
    }
    return disk_error(err, "stat", path);
}

static const struct fs_ops posix_ops = {
    .open = posix_open,
    .expect = posix_expect,
    .reserve = posix_reserve,
    .write = posix_write,
    .read = posix_read,
    .size = posix_size,
    .truncate = posix_truncate,
    .sync = posix_sync,
    .close = posix_close,
    .rename = posix_rename,
    .unlink = posix_unlink,
    .mkdir = posix_mkdir,
    .rmdir = posix_rmdir,
    .sync_folder = posix_sync_folder,
    .list = posix_list,
    .exists = posix_exists,
};

int fs_posix_open(const char *root, struct fs **ret_fs, struct err *err)
{
    struct posix_fs *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return err_set(err, ERR_NOMEM, "open folder '%s': no memory", root);
    }
    made->fs.ops = &posix_ops;
    made->root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (made->root < 0) {
        free(made);
        return disk_error(err, "open folder", root);
    }
    *ret_fs = &made->fs;
    return 0;
}

void fs_posix_close(struct fs *fs)
{
    if (fs == NULL) {
        return;
    }
    struct posix_fs *made = OWNER_OF(fs, struct posix_fs, fs);
    (void)close(made->root);
    free(made);
}
