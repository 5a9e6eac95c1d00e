#include "ctl/folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

/* Takes path, absolute and without a slash at its end. */
static int split(char *path, struct folder *ret_folder, struct problem *problem)
{
    char *slash = strrchr(path, '/');
    char parent[PATH_MAX];
    ASSERT(slash != NULL);
    size_t size = slash == path ? 1 : (size_t)(slash - path);
    ASSERT(size < sizeof(parent));
    memcpy(parent, path, size);
    parent[size] = '\0';
    int code = fs_posix_open(parent, &ret_folder->fs, &problem->err);
    if (code != 0) {
        free(path);
        return code;
    }
    ret_folder->path = path;
    ret_folder->name = slash + 1;
    return 0;
}

int folder_open(const char *path, struct folder *ret_folder, struct problem *problem)
{
    struct stat about;
    char *absolute = realpath(path, NULL);
    if (absolute == NULL || stat(absolute, &about) != 0) {
        int number = errno;
        free(absolute);
        return problem_set(problem,
                           number == ENOENT || number == ENOTDIR ? ERR_NOT_FOUND : ERR_DISK,
                           "'%s': %s", path, err_errno(number));
    }
    if (!S_ISDIR(about.st_mode) || strcmp(absolute, "/") == 0) {
        free(absolute);
        return problem_set(problem, ERR_NOT_FOUND, "'%s' is not a checkpoint folder", path);
    }
    return split(absolute, ret_folder, problem);
}

int folder_make(const char *path, struct folder *ret_folder, struct problem *problem)
{
    char parent[PATH_MAX];
    struct stat about;
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') {
        size--;
    }
    if (size == 0 || size >= sizeof(parent)) {
        return problem_set(problem, ERR_USAGE, "'%s' is not a path", path);
    }
    memcpy(parent, path, size);
    parent[size] = '\0';
    char *slash = strrchr(parent, '/');
    const char *name = slash != NULL ? path + (slash - parent) + 1 : path;
    int name_size = (int)(path + size - name);
    if (lstat(path, &about) == 0) {
        problem_hint(problem, "give a path that does not exist yet");
        return problem_set(problem, ERR_USAGE, "'%s' exists", path);
    }
    if (slash != NULL) {
        slash[slash == parent ? 1 : 0] = '\0';
    }
    char *absolute = realpath(slash != NULL ? parent : ".", NULL);
    if (absolute == NULL) {
        return problem_set(problem, errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK, "'%s': %s", parent,
                           err_errno(errno));
    }
    struct buf whole = BUF_NONE;
    buf_print(&whole, "%s%s%.*s", absolute, strcmp(absolute, "/") == 0 ? "" : "/", name_size, name);
    free(absolute);
    char *copy = strdup((const char *)whole.bytes);
    buf_done(&whole);
    ASSERT(copy != NULL);
    return split(copy, ret_folder, problem);
}

/* The newest epoch-… below path; false where there is none. */
static bool newest_epoch(const char *path, char name[NAME_MAX + 1])
{
    DIR *listed = opendir(path);
    struct dirent *entry = NULL;
    name[0] = '\0';
    while (listed != NULL && (entry = readdir(listed)) != NULL) {
        if (strncmp(entry->d_name, "epoch-", 6) == 0 && strcmp(entry->d_name, name) > 0) {
            (void)snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
        }
    }
    if (listed != NULL) {
        (void)closedir(listed);
    }
    return name[0] != '\0';
}

int folder_hint(const char *path, int code, struct problem *problem)
{
    char name[NAME_MAX + 1];
    if (code == ERR_NOT_FOUND && newest_epoch(path, name)) {
        size_t size = strlen(path);
        problem_hint(problem, "'%s' has checkpoints in it; name one, such as %s%s%s", path, path,
                     size > 0 && path[size - 1] == '/' ? "" : "/", name);
    } else if (code == ERR_NOT_FOUND) {
        problem_hint(problem, "name a checkpoint's folder, such as out/checkpoint/epoch-00000004, "
                              "or a job's 'latest'");
    }
    return code;
}

void folder_close(struct folder *folder)
{
    fs_posix_close(folder->fs);
    free(folder->path);
    *folder = (struct folder){NULL, NULL, NULL};
}
