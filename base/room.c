#include "base/room.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK_SIZE UINT64_C(512) /* of st_blocks */

/* Bytes that this process may still take; false: the file system does not say. */
static bool free_bytes(int fd, uint64_t *ret_free)
{
    struct statvfs status;
    if (fstatvfs(fd, &status) != 0 || status.f_blocks == 0) {
        return false;
    }
    *ret_free = (geteuid() == 0 ? status.f_bfree : status.f_bavail) * (uint64_t)status.f_frsize;
    return true;
}

/* The file's folder as people know it. */
static void folder_of(int fd, char *folder, size_t capacity)
{
    char link[64];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, folder, capacity - 1);
    folder[size > 0 ? size : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

static int no_room(int fd, const char *name, uint64_t size, int number, struct err *err)
{
    char folder[256];
    uint64_t free = 0;
    const char *file = strrchr(name, '/');
    folder_of(fd, folder, sizeof(folder));
    if (number != ENOSPC || !free_bytes(fd, &free)) {
        return err_set(err, ERR_DISK, "no room for '%s': %" PRIu64 " bytes in '%s': %s",
                       file != NULL ? file + 1 : name, size, folder, err_errno(number));
    }
    return err_set(err, ERR_DISK,
                   "no room for '%s': it needs %" PRIu64 " bytes, %" PRIu64
                   " are free on the disk of '%s'; free some there, or keep fewer checkpoints",
                   file != NULL ? file + 1 : name, size, free, folder);
}

int room_reserve(int fd, const char *name, uint64_t size, struct err *err)
{
    struct stat status;
    uint64_t free = 0;
    if (size == 0 || fstat(fd, &status) != 0 || size > INT64_MAX - (uint64_t)status.st_size) {
        return 0; /* The write will tell. */
    }
    uint64_t kept = (uint64_t)status.st_blocks * BLOCK_SIZE;
    kept = kept > (uint64_t)status.st_size ? kept - (uint64_t)status.st_size : 0;
    if (kept < size && free_bytes(fd, &free) && free < size - kept) {
        return no_room(fd, name, size - kept, ENOSPC, err);
    }
    int result = 0;
    do {
        result = fallocate(fd, FALLOC_FL_KEEP_SIZE, status.st_size, (off_t)size);
    } while (result != 0 && errno == EINTR);
    if (result == 0 || (errno != ENOSPC && errno != EDQUOT && errno != EIO)) {
        return 0; /* Where it cannot, or may not, be kept. */
    }
    int code = no_room(fd, name, size, errno, err);
    (void)!ftruncate(fd, status.st_size); /* A part of it may have been taken. */
    return code;
}
