/* Flat folders of files that appear whole. */
#include "data/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/writer.h"

#define PATH_SIZE 4160

void folder_remove(const char *folder)
{
    DIR *list = opendir(folder);
    if (list == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        (void)unlinkat(dirfd(list), entry->d_name, 0); /* "." and ".." fail, which is fine. */
    }
    (void)closedir(list);
    (void)rmdir(folder);
}

int folder_write(const char *folder, const char *name, const struct buf *bytes, struct err *err)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        return err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
    }
    int code = spill_write(fd, 0, bytes->bytes, bytes->size, err);
    if (code == 0 && fsync(fd) != 0) {
        code = err_set(err, ERR_DISK, "syncing %s: %s", path, err_errno(errno));
    }
    if (close(fd) != 0 && code == 0) {
        code = err_set(err, ERR_DISK, "closing %s: %s", path, err_errno(errno));
    }
    return code;
}

int folder_publish(const char *fresh, const char *output, struct err *err)
{
    char parent[PATH_SIZE];
    (void)snprintf(parent, sizeof(parent), "%s", output);
    char *slash = strrchr(parent, '/');
    if (slash == NULL) {
        (void)snprintf(parent, sizeof(parent), ".");
    } else {
        slash[slash == parent ? 1 : 0] = '\0';
    }
    int fresh_fd = open(fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = 0;
    struct stat status;
    if (lstat(output, &status) == 0) { /* Somebody else was faster. */
        code = err_set(err, ERR_USAGE, "%s exists already", output);
    } else if (fresh_fd < 0 || parent_fd < 0 || fsync(fresh_fd) != 0 ||
               rename(fresh, output) != 0 || fsync(parent_fd) != 0) {
        code = err_set(err, ERR_DISK, "renaming to %s: %s", output, err_errno(errno));
    }
    if (fresh_fd >= 0) {
        (void)close(fresh_fd);
    }
    if (parent_fd >= 0) {
        (void)close(parent_fd);
    }
    return code;
}
