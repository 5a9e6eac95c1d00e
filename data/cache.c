#include "data/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "data/folder.h"

#define PATH_SIZE 4160
#define NAME_SIZE 160
#define SPARE     (UINT64_C(64) << 20) /* of the disk, for the log and the shards */

struct hold {
    struct hold *next;
    unsigned count;
    char name[NAME_SIZE];
};

struct entry {
    char name[NAME_SIZE];
    uint64_t bytes;
    struct timespec used;
};

struct data_cache {
    pthread_mutex_t lock;
    char folder[PATH_SIZE - NAME_SIZE];
    uint64_t size_max;
    struct hold *holds;
    uint64_t evicted, evicted_bytes;
};

/* Being made or used by who made it, under a name of its own. */
static bool is_transient(const char *name)
{
    return strstr(name, ".importing-") != NULL || strncmp(name, "predict-", 8) == 0;
}

static void path_of(const struct data_cache *cache, const char *name, char path[PATH_SIZE])
{
    (void)snprintf(path, PATH_SIZE, "%s/%s", cache->folder, name);
}

/* Bytes that a flat folder takes on the disk. */
static uint64_t folder_bytes(const char *path)
{
    uint64_t bytes = 0;
    DIR *list = opendir(path);
    if (list == NULL) {
        return 0;
    }
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        struct stat status;
        if (fstatat(dirfd(list), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode)) {
            bytes += (uint64_t)status.st_blocks * 512;
        }
    }
    (void)closedir(list);
    return bytes;
}

/* All folders in the cache; the caller frees. */
static struct entry *list_entries(const struct data_cache *cache, size_t *ret_count)
{
    struct entry *entries = NULL;
    size_t count = 0;
    DIR *list = opendir(cache->folder);
    *ret_count = 0;
    if (list == NULL) {
        return NULL;
    }
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        struct stat status;
        char path[PATH_SIZE];
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= NAME_SIZE) {
            continue;
        }
        path_of(cache, entry->d_name, path);
        if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
            continue;
        }
        entries = realloc(entries, (count + 1) * sizeof(*entries));
        ASSERT(entries != NULL);
        (void)snprintf(entries[count].name, NAME_SIZE, "%s", entry->d_name);
        entries[count].bytes = folder_bytes(path);
        entries[count].used = status.st_mtim;
        count++;
    }
    (void)closedir(list);
    *ret_count = count;
    return entries;
}

int data_cache_open(const char *folder, uint64_t size_max, struct data_cache **ret_cache,
                    struct err *err)
{
    if (strlen(folder) >= PATH_SIZE - NAME_SIZE) {
        return err_set(err, ERR_USAGE, "the cache's path is too long");
    }
    if (mkdir(folder, 0750) != 0 && errno != EEXIST) {
        return err_set(err, ERR_DISK, "create folder '%s': %s", folder, err_errno(errno));
    }
    struct data_cache *made = calloc(1, sizeof(*made));
    ASSERT(made != NULL);
    ASSERT(pthread_mutex_init(&made->lock, NULL) == 0);
    (void)snprintf(made->folder, sizeof(made->folder), "%s", folder);
    made->size_max = size_max != 0 ? size_max : DATA_CACHE_DEFAULT;
    size_t count = 0;
    struct entry *entries = list_entries(made, &count);
    for (size_t i = 0; i < count; i++) {
        if (is_transient(entries[i].name)) {
            data_cache_drop(made, entries[i].name);
            log_info("cache.collect", "name=%s bytes=%llu reason=\"a dead import left it\"",
                     entries[i].name, (unsigned long long)entries[i].bytes);
        }
    }
    free(entries);
    *ret_cache = made;
    return 0;
}

void data_cache_close(struct data_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    ASSERT(cache->holds == NULL);
    ASSERT(pthread_mutex_destroy(&cache->lock) == 0);
    free(cache);
}

const char *data_cache_folder(const struct data_cache *cache)
{
    return cache->folder;
}

static struct hold **find_hold(struct data_cache *cache, const char *name)
{
    struct hold **at = &cache->holds;
    while (*at != NULL && strcmp((*at)->name, name) != 0) {
        at = &(*at)->next;
    }
    return at;
}

void data_cache_hold(struct data_cache *cache, const char *name)
{
    char path[PATH_SIZE];
    ASSERT(strlen(name) < NAME_SIZE);
    ASSERT(pthread_mutex_lock(&cache->lock) == 0);
    struct hold **at = find_hold(cache, name);
    if (*at == NULL) {
        *at = calloc(1, sizeof(**at));
        ASSERT(*at != NULL);
        (void)snprintf((*at)->name, NAME_SIZE, "%s", name);
    }
    (*at)->count++;
    path_of(cache, name, path);
    (void)utimensat(AT_FDCWD, path, NULL, 0); /* It may not be there yet. */
    ASSERT(pthread_mutex_unlock(&cache->lock) == 0);
}

void data_cache_release(struct data_cache *cache, const char *name)
{
    char path[PATH_SIZE];
    ASSERT(pthread_mutex_lock(&cache->lock) == 0);
    struct hold **at = find_hold(cache, name);
    ASSERT(*at != NULL);
    ASSERT((*at)->count > 0);
    if (--(*at)->count == 0) {
        struct hold *gone = *at;
        *at = gone->next;
        free(gone);
    }
    path_of(cache, name, path);
    (void)utimensat(AT_FDCWD, path, NULL, 0);
    ASSERT(pthread_mutex_unlock(&cache->lock) == 0);
}

static int compare_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct entry *)a)->used;
    const struct timespec *y = &((const struct entry *)b)->used;
    if (x->tv_sec != y->tv_sec) {
        return x->tv_sec < y->tv_sec ? -1 : 1;
    }
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static uint64_t disk_free(const struct data_cache *cache)
{
    struct statvfs status;
    return statvfs(cache->folder, &status) == 0
               ? (uint64_t)status.f_bavail * (uint64_t)status.f_frsize
               : UINT64_MAX;
}

/* Whole or not at all for who looks at its name: first renamed, then deleted. */
static void remove_entry(const struct data_cache *cache, const char *name)
{
    char from[PATH_SIZE];
    char to[PATH_SIZE + 24];
    path_of(cache, name, from);
    (void)snprintf(to, sizeof(to), "%s.importing-gone", from);
    folder_remove(to);
    folder_remove(rename(from, to) == 0 ? to : from);
}

int data_cache_room(struct data_cache *cache, uint64_t bytes, struct err *err)
{
    int code = 0;
    size_t count = 0;
    uint64_t used = 0;
    ASSERT(pthread_mutex_lock(&cache->lock) == 0);
    struct entry *entries = list_entries(cache, &count);
    for (size_t i = 0; i < count; i++) {
        used += entries[i].bytes;
    }
    if (count > 1) {
        qsort(entries, count, sizeof(*entries), compare_use);
    }
    for (size_t i = 0; i < count; i++) {
        bool fits = used <= cache->size_max && bytes <= cache->size_max - used;
        uint64_t free_bytes = disk_free(cache);
        bool room = free_bytes >= SPARE && bytes <= free_bytes - SPARE;
        if (fits && room) {
            break;
        }
        if (*find_hold(cache, entries[i].name) != NULL || is_transient(entries[i].name)) {
            continue;
        }
        remove_entry(cache, entries[i].name);
        used -= entries[i].bytes;
        cache->evicted++;
        cache->evicted_bytes += entries[i].bytes;
        log_info("cache.evict", "name=%s bytes=%llu limit=%llu", entries[i].name,
                 (unsigned long long)entries[i].bytes, (unsigned long long)cache->size_max);
    }
    uint64_t free_bytes = disk_free(cache);
    if (free_bytes < SPARE || bytes > free_bytes - SPARE) {
        code = err_set(err, ERR_DISK,
                       "the data need %llu more bytes in %s and its disk has %llu free (of which "
                       "%llu are kept): free some, or put state_dir on another disk",
                       (unsigned long long)bytes, cache->folder, (unsigned long long)free_bytes,
                       (unsigned long long)SPARE);
    } else if (used > cache->size_max || bytes > cache->size_max - used) {
        log_warning("cache.limit",
                    "bytes=%llu more=%llu limit=%llu next=\"goes on: all that is there is in use\"",
                    (unsigned long long)used, (unsigned long long)bytes,
                    (unsigned long long)cache->size_max);
    }
    free(entries);
    ASSERT(pthread_mutex_unlock(&cache->lock) == 0);
    return code;
}

void data_cache_drop(struct data_cache *cache, const char *name)
{
    ASSERT(pthread_mutex_lock(&cache->lock) == 0);
    remove_entry(cache, name);
    ASSERT(pthread_mutex_unlock(&cache->lock) == 0);
}

void data_cache_stats(struct data_cache *cache, struct data_cache_stats *ret_stats)
{
    size_t count = 0;
    ASSERT(pthread_mutex_lock(&cache->lock) == 0);
    struct entry *entries = list_entries(cache, &count);
    *ret_stats = (struct data_cache_stats){.size_max = cache->size_max,
                                           .entries = count,
                                           .evicted = cache->evicted,
                                           .evicted_bytes = cache->evicted_bytes};
    for (size_t i = 0; i < count; i++) {
        ret_stats->bytes += entries[i].bytes;
    }
    for (const struct hold *at = cache->holds; at != NULL; at = at->next) {
        ret_stats->held++;
    }
    free(entries);
    ASSERT(pthread_mutex_unlock(&cache->lock) == 0);
}
