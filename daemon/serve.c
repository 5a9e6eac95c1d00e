#include "daemon/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "data/share.h"

#define FOLDER_SIZE   4224
#define LOOK_AGAIN_MS 500L

/*  CLOSED -> OPENING -> OPEN     the first fetcher's thread opens, others wait   [on_open]
 *  OPENING -> CLOSED             it failed                                       [on_open] */
enum share_state { SHARE_CLOSED, SHARE_OPENING, SHARE_OPEN };

struct entry {
    struct entry *next;
    uint8_t digest[SHA256_SIZE];
    char folder[FOLDER_SIZE];
    enum share_state state;
    struct dataset_share *share;
    unsigned users; /* connections, and who waits; it is freed by the last one once it is dropped */
    bool dropped;   /* no longer in the list */
};

struct shard_file {
    struct shard_file *next;
    uint64_t job;
    struct serve_file file;
};

struct serve {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    struct shard_file *files; /* under lock */
    struct entry *entries;    /* under lock; newest first */
    struct fetch_server *server;
    _Atomic uint64_t traffic[2][PEER_NODES_MAX]; /* to and from each node, by id */
};

struct served { /* to a connection */
    struct serve *serve;
    struct entry *entry; /* NULL: a shard's file */
    uint32_t node_id;
    int fd;
    uint64_t size;
};

static void free_entry(struct entry *entry)
{
    dataset_share_close(entry->share);
    free(entry);
}

/* Under lock. */
static void release(struct entry *entry)
{
    ASSERT(entry->users > 0);
    entry->users--;
    if (entry->users == 0 && entry->dropped) {
        free_entry(entry);
    }
}

/* Under lock. */
static void drop(struct serve *serve, struct entry **at)
{
    struct entry *entry = *at;
    (void)serve;
    *at = entry->next;
    entry->dropped = true;
    if (entry->users == 0) {
        free_entry(entry);
    }
}

void serve_put(struct serve *serve, const uint8_t digest[SHA256_SIZE], const char *folder)
{
    struct entry *made = calloc(1, sizeof(*made));
    unsigned count = 0;
    ASSERT(made != NULL);
    ASSERT(strlen(folder) < sizeof(made->folder));
    memcpy(made->digest, digest, SHA256_SIZE);
    (void)snprintf(made->folder, sizeof(made->folder), "%s", folder);
    ASSERT(pthread_mutex_lock(&serve->lock) == 0);
    /* A folder that is named again is opened anew: it may have been made again. */
    made->next = serve->entries;
    serve->entries = made;
    for (struct entry **at = &made->next; *at != NULL;) {
        count++;
        if (count >= SERVE_MAX || memcmp((*at)->digest, digest, SHA256_SIZE) == 0) {
            drop(serve, at);
        } else {
            at = &(*at)->next;
        }
    }
    ASSERT(pthread_mutex_unlock(&serve->lock) == 0);
}

/* ---- shards ---- */

/* Under lock. */
static void drop_files(struct serve *serve, uint64_t job)
{
    for (struct shard_file **at = &serve->files; *at != NULL;) {
        struct shard_file *file = *at;
        if (job == 0 || file->job == job) {
            *at = file->next;
            free(file);
        } else {
            at = &file->next;
        }
    }
}

void serve_put_files(struct serve *serve, uint64_t job, const struct serve_file *files,
                     size_t count)
{
    ASSERT(pthread_mutex_lock(&serve->lock) == 0);
    drop_files(serve, job);
    for (size_t i = 0; i < count; i++) {
        struct shard_file *made = calloc(1, sizeof(*made));
        ASSERT(made != NULL);
        *made = (struct shard_file){serve->files, job, files[i]};
        serve->files = made;
    }
    ASSERT(pthread_mutex_unlock(&serve->lock) == 0);
}

/* Under lock: the file of that digest, open. It may lie in staging, or just have left it. */
static int open_file(const struct serve *serve, const uint8_t digest[SHA256_SIZE],
                     uint64_t *ret_size)
{
    for (const struct shard_file *at = serve->files; at != NULL; at = at->next) {
        if (memcmp(at->file.digest, digest, SHA256_SIZE) != 0) {
            continue;
        }
        int fd =
            open(at->file.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* a pipe: no */
        struct stat about;
        if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
            *ret_size = (uint64_t)about.st_size;
            return fd;
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return -1;
}

static int serve_shard(struct serve *serve, uint32_t node_id, const uint8_t digest[SHA256_SIZE],
                       void **ret_served, uint64_t *ret_manifest_size, struct err *err)
{
    uint64_t size = 0;
    int fd = open_file(serve, digest, &size);
    if (fd < 0) {
        return err_set(err, ERR_NOT_FOUND, "the data of that digest are not here (any more)");
    }
    struct served *served = calloc(1, sizeof(*served));
    ASSERT(served != NULL);
    *served = (struct served){serve, NULL, node_id, fd, size};
    *ret_served = served;
    *ret_manifest_size = 1; /* There is none; the protocol wants one. */
    return 0;
}

static int read_file(const struct served *from, uint32_t part, uint64_t offset, void *bytes,
                     size_t size, struct err *err)
{
    if (part != 0) {
        return err_set(err, ERR_PROTO, "a shard has no part %u", part);
    }
    if (offset > from->size || size > from->size - offset) {
        return err_set(err, ERR_DAMAGED, "the shard has %llu bytes here; %zu at %llu are asked for",
                       (unsigned long long)from->size, size, (unsigned long long)offset);
    }
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(from->fd, (uint8_t *)bytes + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return err_set(err, ERR_DISK, "read of a shard at %llu: %s",
                           (unsigned long long)(offset + done),
                           got == 0 ? "it has become shorter" : err_errno(errno));
        }
        done += (size_t)got;
    }
    return 0;
}

/* ---- datasets ---- */

static bool on_share_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct fetch_wait *wait = context;
    (void)phase;
    return wait->on_wait(wait->context, done, total);
}

/* Under lock: waits for another thread that opens it. false: given up. */
static bool wait_opened(struct serve *serve, struct entry *entry, const struct fetch_wait *wait)
{
    bool goes_on = true;
    while (goes_on && entry->state == SHARE_OPENING) {
        struct timespec until = clock_deadline(clock_now_ms(), LOOK_AGAIN_MS);
        (void)pthread_cond_timedwait(&serve->opened, &serve->lock, &until);
        ASSERT(pthread_mutex_unlock(&serve->lock) == 0);
        goes_on = wait->on_wait(wait->context, 0, 0);
        ASSERT(pthread_mutex_lock(&serve->lock) == 0);
    }
    return goes_on;
}

/* Not under lock, state OPENING: the share of the entry's folder. */
static int open_share(const struct entry *entry, const struct fetch_wait *wait,
                      struct dataset_share **ret_share, struct err *err)
{
    struct fetch_wait copy = *wait;
    struct data_progress progress = {on_share_progress, &copy};
    struct dataset_share *share = NULL;
    if (dataset_share_open(entry->folder, &progress, &share, err) != 0) {
        return err->code;
    }
    if (memcmp(dataset_share_digest(share), entry->digest, SHA256_SIZE) != 0) {
        dataset_share_close(share);
        return err_set(err, ERR_DAMAGED, "%s: its data changed since the job began", entry->folder);
    }
    *ret_share = share;
    return 0;
}

static int on_open(void *context, uint32_t node_id, const uint8_t digest[FETCH_DIGEST_SIZE],
                   const struct fetch_wait *wait, void **ret_served, uint64_t *ret_manifest_size,
                   uint64_t *ret_table_size, struct err *err)
{
    struct serve *serve = context;
    int code = 0;
    ASSERT(pthread_mutex_lock(&serve->lock) == 0);
    struct entry *entry = serve->entries;
    while (entry != NULL && memcmp(entry->digest, digest, SHA256_SIZE) != 0) {
        entry = entry->next;
    }
    if (entry == NULL) {
        code = serve_shard(serve, node_id, digest, ret_served, ret_manifest_size, err);
        *ret_table_size = 0;
        ASSERT(pthread_mutex_unlock(&serve->lock) == 0);
        return code;
    }
    entry->users++;
    if (!wait_opened(serve, entry, wait)) {
        code = err_set(err, ERR_CANCELED, "the daemon stops, or the fetcher is gone");
    } else if (entry->state == SHARE_CLOSED) {
        struct dataset_share *share = NULL;
        entry->state = SHARE_OPENING;
        ASSERT(pthread_mutex_unlock(&serve->lock) == 0);
        code = open_share(entry, wait, &share, err);
        ASSERT(pthread_mutex_lock(&serve->lock) == 0);
        entry->share = share;
        entry->state = code == 0 ? SHARE_OPEN : SHARE_CLOSED;
        ASSERT(pthread_cond_broadcast(&serve->opened) == 0);
    }
    if (code == 0) {
        struct served *served = calloc(1, sizeof(*served));
        ASSERT(served != NULL);
        *served = (struct served){serve, entry, node_id, -1, 0};
        *ret_served = served;
        *ret_manifest_size = dataset_share_manifest_size(entry->share);
        *ret_table_size = dataset_share_table_size(entry->share);
    } else {
        release(entry);
    }
    ASSERT(pthread_mutex_unlock(&serve->lock) == 0);
    return code;
}

static int on_read(void *served, uint32_t part, uint64_t offset, void *bytes, size_t size,
                   struct err *err)
{
    const struct served *to = served;
    /* The share is immutable while the entry is used. */
    int code = to->entry == NULL
                   ? read_file(to, part, offset, bytes, size, err)
                   : dataset_share_read(to->entry->share, part, offset, bytes, size, err);
    if (code == 0) {
        atomic_fetch_add(&to->serve->traffic[0][to->node_id], size);
    }
    return code;
}

static void on_close(void *context, void *served)
{
    struct serve *serve = context;
    if (((struct served *)served)->entry == NULL) {
        (void)close(((struct served *)served)->fd); /* Only read: nothing can be lost. */
        free(served);
        return;
    }
    ASSERT(pthread_mutex_lock(&serve->lock) == 0);
    release(((struct served *)served)->entry);
    ASSERT(pthread_mutex_unlock(&serve->lock) == 0);
    free(served);
}

int serve_open(struct serve **ret_serve, struct err *err)
{
    struct serve *made = calloc(1, sizeof(*made));
    ASSERT(made != NULL);
    ASSERT(pthread_mutex_init(&made->lock, NULL) == 0);
    clock_condition_init(&made->opened);
    struct fetch_server_settings settings = {.source = {made, on_open, on_read, on_close}};
    if (fetch_server_new(&settings, &made->server, err) != 0) {
        serve_close(made);
        return err->code;
    }
    *ret_serve = made;
    return 0;
}

void serve_close(struct serve *serve)
{
    if (serve == NULL) {
        return;
    }
    fetch_server_free(serve->server);
    while (serve->entries != NULL) {
        ASSERT(serve->entries->users == 0);
        drop(serve, &serve->entries);
    }
    drop_files(serve, 0);
    ASSERT(pthread_cond_destroy(&serve->opened) == 0);
    ASSERT(pthread_mutex_destroy(&serve->lock) == 0);
    free(serve);
}

void serve_take(struct serve *serve, const struct peer_incoming *incoming)
{
    fetch_server_take(serve->server, incoming);
}

void serve_count_in(struct serve *serve, uint32_t node_id, uint64_t bytes)
{
    ASSERT(node_id < PEER_NODES_MAX);
    atomic_fetch_add(&serve->traffic[1][node_id], bytes);
}

void serve_traffic(struct serve *serve, uint32_t node_id, uint64_t ret_bytes[2])
{
    ASSERT(node_id < PEER_NODES_MAX);
    ret_bytes[0] = atomic_load(&serve->traffic[0][node_id]);
    ret_bytes[1] = atomic_load(&serve->traffic[1][node_id]);
}
