#include "ctl/part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

#define PART_NAME_SIZE 512

static int refuse(struct part *part, const char *path, struct problem *problem)
{
    int code = problem_set(problem, ERR_DISK, "'%s': %s", path, err_errno(errno));
    part_done(part);
    return code;
}

/* The descriptor's file still has that name: it was not renamed or removed before the lock came. */
static bool still_named(int fd, const char *path)
{
    struct stat held;
    struct stat named;
    return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

/* 0: locked and named so; 1: it went away meanwhile, again; else an error's code. */
static int take(struct part *part, const char *output, int flags, struct problem *problem)
{
    part->lock = open(part->path, flags | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (part->lock < 0) {
        return errno == ENOENT ? 1 : refuse(part, part->path, problem);
    }
    if (flock(part->lock, LOCK_EX | LOCK_NB) != 0) {
        bool busy = errno == EWOULDBLOCK;
        int code = refuse(part, output, problem);
        if (busy) {
            code = problem_set(problem, ERR_BUSY, "'%s' is being made by another process", output);
            problem_hint(problem, "wait for it, or give another --output");
        }
        return code;
    }
    if (!still_named(part->lock, part->path)) {
        (void)close(part->lock);
        part->lock = -1;
        return 1;
    }
    return 0;
}

static int name_part(const char *output, struct part *ret_part, struct problem *problem)
{
    *ret_part = PART_NONE;
    if (asprintf(&ret_part->path, "%s.part", output) < 0) {
        ret_part->path = NULL;
        return problem_set(problem, ERR_NOMEM, "no memory");
    }
    return 0;
}

int part_file(const char *output, struct part *ret_part, FILE **ret_file, struct problem *problem)
{
    int code = name_part(output, ret_part, problem);
    if (code != 0) {
        return code;
    }
    do {
        code = take(ret_part, output, O_RDWR | O_CREAT, problem);
    } while (code == 1);
    if (code != 0) {
        return code;
    }
    int fd = fcntl(ret_part->lock, F_DUPFD_CLOEXEC, 0);
    *ret_file = fd >= 0 && ftruncate(fd, 0) == 0 ? fdopen(fd, "wb") : NULL;
    if (*ret_file == NULL) {
        code = refuse(ret_part, output, problem);
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return code;
}

int part_end(struct part *part, const char *output, FILE *file, int code, struct problem *problem)
{
    bool good = fflush(file) == 0 && fsync(fileno(file)) == 0;
    good = fclose(file) == 0 && good;
    if (code == 0 && (!good || rename(part->path, output) != 0)) {
        code = problem_set(problem, ERR_DISK, "'%s': %s", output, err_errno(errno));
    }
    if (code != 0) {
        (void)unlink(part->path);
    }
    part_done(part);
    return code;
}

/* A folder that a dead process has left is removed under its lock, and made anew. */
int part_folder(const struct folder *folder, struct part *ret_part, struct problem *problem)
{
    char name[PART_NAME_SIZE];
    int code = name_part(folder->path, ret_part, problem);
    (void)snprintf(name, sizeof(name), "%.480s.part", folder->name);
    while (code == 0) {
        bool made = mkdir(ret_part->path, 0777) == 0;
        if (!made && errno != EEXIST) {
            return refuse(ret_part, ret_part->path, problem);
        }
        code = take(ret_part, folder->path, O_RDONLY | O_DIRECTORY, problem);
        if (code == 0 && made) {
            return 0;
        }
        if (code == 0) {
            code = fs_remove_tree(folder->fs, name, &problem->err);
            (void)close(ret_part->lock);
            ret_part->lock = -1;
        }
        code = code == 1 ? 0 : code;
    }
    part_done(ret_part);
    return code;
}

void part_done(struct part *part)
{
    if (part->lock >= 0) {
        (void)close(part->lock);
    }
    free(part->path);
    *part = PART_NONE;
}
