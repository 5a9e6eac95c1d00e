#include "gpu/device_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

#define DEVICES_MAX 64

/* The folder of the locks: COPPELIUS_RUN_DIR, else /run/coppelius where this process may write,
 * else the user's own folder in /tmp. */
static int lock_folder(char *path, size_t size, struct err *err)
{
    const char *given = getenv("COPPELIUS_RUN_DIR");
    if (given != NULL && given[0] != '\0') {
        (void)snprintf(path, size, "%s", given);
    } else if (access("/run/coppelius", W_OK) == 0) {
        (void)snprintf(path, size, "/run/coppelius");
    } else {
        (void)snprintf(path, size, "/tmp/coppelius-%u", (unsigned)getuid());
    }
    struct stat status;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return err_set(err, ERR_DEVICE, "folder '%s' for the GPU's lock: %s", path,
                       err_errno(errno));
    }
    if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
        return err_set(err, ERR_DEVICE,
                       "'%s' is no folder: it should hold the GPU's lock; remove it, or set "
                       "COPPELIUS_RUN_DIR",
                       path);
    }
    return 0;
}

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct held {
    char uuid[64];
    int fd;
    bool shared;
} table[DEVICES_MAX]; /* under table_lock */
static size_t table_count;

static struct held *find(const char *uuid)
{
    for (size_t i = 0; i < table_count; i++) {
        if (strcmp(table[i].uuid, uuid) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static int lock_file(int fd, const char *path, const char *uuid, bool share, struct err *err)
{
    if (flock(fd, (share ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) {
        return 0;
    }
    if (errno == EWOULDBLOCK) {
        return err_set(err, ERR_BUSY, "%s is held by another daemon%s", uuid,
                       share ? " that does not share it" : "");
    }
    return err_set(err, ERR_DEVICE, "locking '%s': %s", path, err_errno(errno));
}

static int take(const char *uuid, bool share, struct err *err)
{
    struct held *held = find(uuid);
    if (held != NULL) {
        if (!held->shared || share) {
            return 0;
        }
        int code = lock_file(held->fd, uuid, uuid, /* share= */ false, err);
        held->shared = code != 0;
        return code;
    }
    char folder[256];
    char path[384];
    if (table_count == DEVICES_MAX) {
        return err_set(err, ERR_DEVICE, "one process holds %d GPUs already", DEVICES_MAX);
    }
    int code = lock_folder(folder, sizeof(folder), err);
    if (code != 0) {
        return code;
    }
    (void)snprintf(path, sizeof(path), "%s/%s.lock", folder, uuid);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return err_set(err, ERR_DEVICE, "the GPU's lock '%s': %s", path, err_errno(errno));
    }
    code = lock_file(fd, path, uuid, share, err);
    if (code != 0) {
        (void)close(fd);
        return code;
    }
    held = &table[table_count++];
    (void)snprintf(held->uuid, sizeof(held->uuid), "%s", uuid);
    held->fd = fd;
    held->shared = share;
    return 0;
}

int device_lock_take(const char *uuid, bool share, struct err *err)
{
    ASSERT(pthread_mutex_lock(&table_lock) == 0);
    int code = take(uuid, share, err);
    ASSERT(pthread_mutex_unlock(&table_lock) == 0);
    return code;
}

bool device_lock_held(const char *uuid)
{
    ASSERT(pthread_mutex_lock(&table_lock) == 0);
    bool held = find(uuid) != NULL;
    ASSERT(pthread_mutex_unlock(&table_lock) == 0);
    return held;
}

bool device_lock_any(void)
{
    ASSERT(pthread_mutex_lock(&table_lock) == 0);
    bool any = table_count > 0;
    ASSERT(pthread_mutex_unlock(&table_lock) == 0);
    return any;
}
