#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define PATH_SIZE 4096

void fs_folder_of(const char *path, char *folder, size_t capacity)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        (void)snprintf(folder, capacity, ".");
        return;
    }
    size_t size = (size_t)(slash - path);
    ASSERT(size < capacity);
    memcpy(folder, path, size);
    folder[size] = '\0';
}

int fs_read_all(struct fs *fs, const char *path, uint64_t size_max, struct buf *bytes,
                struct err *err)
{
    struct fs_file *file = NULL;
    if (fs_open(fs, path, FS_READ, &file, err) != 0) {
        return err != NULL ? err->code : ERR_DISK;
    }
    uint64_t size = 0;
    int code = fs->ops->size(file, &size, err);
    if (code == 0 && size > size_max) {
        code = err_set(err, ERR_DAMAGED, "'%s' has %llu bytes; the most is %llu", path,
                       (unsigned long long)size, (unsigned long long)size_max);
    }
    if (code == 0 && size > 0) {
        buf_reserve(bytes, (size_t)size);
        code = fs->ops->read(file, 0, bytes->bytes + bytes->size, (size_t)size, err);
        bytes->size += code == 0 ? (size_t)size : 0;
    }
    (void)fs->ops->close(file, NULL); /* Only read: nothing can be lost. */
    return code;
}

int fs_create(struct fs *fs, const char *path, const void *bytes, size_t size, struct err *err)
{
    struct fs_file *file = NULL;
    int code = fs_open(fs, path, FS_CREATE, &file, err);
    if (code != 0) {
        return code;
    }
    code = fs->ops->write(file, bytes, size, err);
    if (code == 0) {
        code = fs->ops->sync(file, err);
    }
    int close_code = fs->ops->close(file, code == 0 ? err : NULL);
    return code != 0 ? code : close_code;
}

int fs_replace(struct fs *fs, const char *path, const void *bytes, size_t size, struct err *err)
{
    char fresh[PATH_SIZE];
    char folder[PATH_SIZE];
    int length = snprintf(fresh, sizeof(fresh), "%s.new", path);
    ASSERT(length > 0 && (size_t)length < sizeof(fresh));
    fs_folder_of(path, folder, sizeof(folder));
    int code = fs->ops->unlink(fs, fresh, err); /* A crash may have left one. */
    if (code == 0) {
        code = fs_create(fs, fresh, bytes, size, err);
    }
    if (code == 0) {
        code = fs->ops->rename(fs, fresh, path, err);
    }
    if (code == 0) {
        code = fs->ops->sync_folder(fs, folder, err);
    }
    return code;
}

int fs_mkdir_all(struct fs *fs, const char *path, struct err *err)
{
    char part[PATH_SIZE];
    size_t size = strlen(path);
    ASSERT(size < sizeof(part));
    for (size_t i = 1; i <= size; i++) {
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(part, path, i);
            part[i] = '\0';
            int code = fs->ops->mkdir(fs, part, err);
            if (code != 0) {
                return code;
            }
        }
    }
    return 0;
}

struct names {
    struct buf text; /* each: 'f' or 'd', the name, a zero */
};

static void on_name(void *context, const char *name, bool is_folder)
{
    struct names *names = context;
    buf_put_u8(&names->text, is_folder ? 'd' : 'f');
    buf_put(&names->text, name, strlen(name) + 1);
}

/* Recursion is as deep as the tree; what the project writes is three folders deep. */
int fs_remove_tree(struct fs *fs, const char *path, struct err *err)
{
    struct names names = {BUF_NONE};
    struct err own = {0}; /* Absent is no error, and leaves none. */
    int code = fs->ops->list(fs, path, on_name, &names, &own);
    if (code == ERR_NOT_FOUND) {
        buf_done(&names.text);
        return 0;
    }
    if (code != 0 && err != NULL) {
        *err = own;
    }
    for (size_t at = 0; code == 0 && at < names.text.size;) {
        const char *entry = (const char *)names.text.bytes + at;
        char child[PATH_SIZE];
        int length = snprintf(child, sizeof(child), "%s/%s", path, entry + 1);
        if (length < 0 || (size_t)length >= sizeof(child)) {
            code = err_set(err, ERR_DISK, "'%s/%s': the path is too long", path, entry + 1);
            break;
        }
        code = entry[0] == 'd' ? fs_remove_tree(fs, child, err) : fs->ops->unlink(fs, child, err);
        at += strlen(entry) + 1;
    }
    buf_done(&names.text);
    return code != 0 ? code : fs->ops->rmdir(fs, path, err);
}
