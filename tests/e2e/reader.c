/* An independent reader of published checkpoints; nothing of ours is linked, only jansson and
 * OpenSSL.
 *
 *   reader [--may-forget] STATE [LOOKS_A_SECOND]   STATE: a node's state folder; 1250 looks unless
 * told
 *
 * --may-forget: the disk below may lose what was not synced (tests/lib/fault_shim.c): CURRENT may
 * go back to an older whole epoch, and the very first one may be lost again.
 *
 * A look goes over every job below STATE/jobs: CURRENT must name an epoch that is there and whole,
 * not older than before, and must not vanish once it was there, nor may its job. At an epoch that
 * is seen for the first time everything is checked: the manifest, every line of SHA256SUMS by the
 * file's bytes, and that both say the same of the shards. At each further look the files must be
 * those of then by inode, size and time. Ends on SIGTERM with status 0, or at once with
 * status 1 and a sentence. It says "looking" after the first look; the last line is JSON: what was
 * seen, how often, the longest gap. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX  1024
#define FILES_MAX 16
#define NAME_SIZE 128
#define TEXT_MAX  (1U << 20)
#define BEHIND_NS 1000000000LL /* looks that were missed are made up for, but not older ones */

struct seen_file {
    char name[NAME_SIZE];
    char sha256[65];
    struct stat status;
};

struct job {
    char name[NAME_SIZE];
    int fd;
    char current[NAME_SIZE]; /* the epoch's folder; "": none yet */
    uint64_t epoch;
    uint64_t epochs; /* times that it named another one */
    size_t files_count;
    struct seen_file files[FILES_MAX]; /* SHA256SUMS itself is the first */
};

static struct job *jobs[JOBS_MAX];
static size_t jobs_count;
static uint64_t epochs_seen;
static bool may_forget;
static volatile sig_atomic_t ended;

static void on_term(int number)
{
    (void)number;
    ended = 1;
}

static _Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vprintf(format, list);
    va_end(list);
    (void)printf("\n");
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Nanoseconds that this process was ready to run and had no processor. */
static int64_t starved_ns(void)
{
    int64_t ran = 0;
    int64_t waited = 0;
    FILE *file = fopen("/proc/self/schedstat", "re");
    if (file != NULL) {
        if (fscanf(file, "%" SCNd64 " %" SCNd64, &ran, &waited) != 2) {
            waited = 0;
        }
        (void)fclose(file);
    }
    return waited;
}

/* The whole file into text, with a zero behind it; -1 where it is not there. */
static ssize_t read_text(int folder, const char *path, char *text, size_t size)
{
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT) {
            fail("%s: %s", path, strerror(errno));
        }
        return -1;
    }
    size_t have = 0;
    ssize_t got = 0;
    while (have < size - 1 && (got = read(fd, text + have, size - 1 - have)) > 0) {
        have += (size_t)got;
    }
    (void)close(fd);
    if (got < 0 || have == size - 1) {
        fail("%s cannot be read, or is longer than %zu bytes", path, size);
    }
    text[have] = '\0';
    return (ssize_t)have;
}

/* SHA-256 of the file as 64 digits, and what fstat says of it; false where it is not there. */
static bool hash_file(int folder, const char *path, char hex[65], struct stat *status)
{
    static unsigned char bytes[1U << 16];
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned digest_size = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = fstat(fd, status) == 0 && context != NULL &&
                EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    ssize_t got = 0;
    while (good && (got = read(fd, bytes, sizeof(bytes))) > 0) {
        good = EVP_DigestUpdate(context, bytes, (size_t)got) == 1;
    }
    good = good && got == 0 && EVP_DigestFinal_ex(context, digest, &digest_size) == 1;
    EVP_MD_CTX_free(context);
    (void)close(fd);
    if (!good || digest_size != 32) {
        fail("%s cannot be read", path);
    }
    for (size_t i = 0; i < digest_size; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    return true;
}

static uint64_t number_of(const json_t *object, const char *key, const char *path)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        fail("%s: '%s' is no count", path, key);
    }
    return (uint64_t)json_integer_value(value);
}

static const struct seen_file *file_named(const struct job *job, const char *name)
{
    for (size_t i = 0; i < job->files_count; i++) {
        if (strcmp(job->files[i].name, name) == 0) {
            return &job->files[i];
        }
    }
    return NULL;
}

/* The manifest's shards cover all coordinates once; those that lie here are what SHA256SUMS says.
 */
static void check_manifest(const struct job *job, const char *path, const char *text,
                           uint64_t epoch)
{
    json_error_t error;
    json_t *manifest = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (manifest == NULL) {
        fail("%s:%d: %s", path, error.line, error.text);
    }
    if (number_of(manifest, "epoch", path) != epoch) {
        fail("%s is of epoch %" PRIu64, path, number_of(manifest, "epoch", path));
    }
    if (number_of(manifest, "job", path) != strtoull(job->name, NULL, 10)) {
        fail("%s is of job %" PRIu64, path, number_of(manifest, "job", path));
    }
    uint64_t end = 0;
    size_t here = 0;
    size_t index = 0;
    json_t *shard = NULL;
    json_array_foreach(json_object_get(manifest, "shards"), index, shard)
    {
        const char *name = json_string_value(json_object_get(shard, "file"));
        const char *sha256 = json_string_value(json_object_get(shard, "sha256"));
        if (name == NULL || sha256 == NULL || number_of(shard, "first", path) != end) {
            fail("%s: shard %zu has no file or digest, or does not begin at %" PRIu64, path, index,
                 end);
        }
        end = number_of(shard, "end", path);
        const struct seen_file *file = file_named(job, name);
        if (file == NULL) {
            continue; /* another node's */
        }
        here++;
        if (strcmp(file->sha256, sha256) != 0 ||
            (uint64_t)file->status.st_size != number_of(shard, "size", path)) {
            fail("%s and SHA256SUMS differ on %s", path, name);
        }
    }
    if (end == 0 || end != number_of(manifest, "coordinates", path)) {
        fail("%s: its shards end at coordinate %" PRIu64, path, end);
    }
    if (here == 0 || here + 2 != job->files_count) {
        fail("%s: %zu of its shards lie here, beside %zu files", path, here, job->files_count);
    }
    json_decref(manifest);
}

/* All of an epoch that is new here, into job->files; false where a file is not there. */
static bool check_whole(struct job *job, const char *folder, uint64_t epoch)
{
    static char sums[TEXT_MAX];
    static char manifest[TEXT_MAX];
    char path[2 * NAME_SIZE + 2];
    char *rest = NULL;
    struct seen_file *file = job->files;
    (void)snprintf(file->name, sizeof(file->name), "SHA256SUMS");
    (void)snprintf(path, sizeof(path), "%s/SHA256SUMS", folder);
    if (!hash_file(job->fd, path, file->sha256, &file->status) ||
        read_text(job->fd, path, sums, sizeof(sums)) < 0) {
        return false;
    }
    job->files_count = 1;
    for (char *line = strtok_r(sums, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        file = &job->files[job->files_count];
        if (job->files_count++ == FILES_MAX || strlen(line) < 67 ||
            memcmp(line + 64, "  ", 2) != 0 || strlen(line + 66) >= NAME_SIZE ||
            strchr(line + 66, '/') != NULL) {
            fail("jobs/%s/%s: the line '%s'", job->name, path, line);
        }
        (void)snprintf(file->name, sizeof(file->name), "%s", line + 66);
        char name[2 * NAME_SIZE + 2];
        (void)snprintf(name, sizeof(name), "%s/%s", folder, file->name);
        if (!hash_file(job->fd, name, file->sha256, &file->status)) {
            return false;
        }
        if (strncmp(file->sha256, line, 64) != 0) {
            fail("jobs/%s/%s has another digest than SHA256SUMS says", job->name, name);
        }
    }
    (void)snprintf(path, sizeof(path), "%s/manifest.json", folder);
    if (file_named(job, "manifest.json") == NULL) {
        fail("jobs/%s/%s is not in SHA256SUMS", job->name, path);
    }
    if (read_text(job->fd, path, manifest, sizeof(manifest)) < 0) {
        return false;
    }
    check_manifest(job, path, manifest, epoch);
    epochs_seen++;
    return true;
}

/* The files are still those that were checked; false where one is not there. */
static bool check_same(const struct job *job, const char *folder)
{
    for (size_t i = 0; i < job->files_count; i++) {
        const struct seen_file *file = &job->files[i];
        char path[2 * NAME_SIZE + 2];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, file->name);
        struct stat now;
        if (fstatat(job->fd, path, &now, AT_SYMLINK_NOFOLLOW) != 0) {
            return false;
        }
        if (now.st_ino != file->status.st_ino || now.st_size != file->status.st_size ||
            now.st_mtim.tv_sec != file->status.st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != file->status.st_mtim.tv_nsec) {
            fail("jobs/%s/%s changed after it was published", job->name, path);
        }
    }
    return true;
}

/* What CURRENT says, without its line feed; false where there is none. */
static bool read_current(const struct job *job, char name[NAME_SIZE])
{
    ssize_t size = read_text(job->fd, "CURRENT", name, NAME_SIZE);
    if (size < 0) {
        if (job->current[0] != '\0' && !(may_forget && job->epochs == 1)) {
            fail("jobs/%s/CURRENT has vanished", job->name);
        }
        return false;
    }
    if (size < 8 || name[size - 1] != '\n' || strncmp(name, "epoch-", 6) != 0 ||
        strspn(name + 6, "0123456789") != (size_t)size - 7) {
        fail("jobs/%s/CURRENT is '%s'", job->name, name);
    }
    name[size - 1] = '\0';
    return true;
}

/* A copy came to the folder, or a damaged one left it: SHA256SUMS says other files then, and names
 * none that is not there. */
static bool sums_changed(const struct job *job, const char *folder)
{
    char path[2 * NAME_SIZE + 2];
    struct stat now;
    (void)snprintf(path, sizeof(path), "%s/SHA256SUMS", folder);
    return fstatat(job->fd, path, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           now.st_ino != job->files[0].status.st_ino;
}

static void look_at(struct job *job)
{
    char name[NAME_SIZE];
    char again[NAME_SIZE];
    if (!read_current(job, name)) {
        return;
    }
    for (;;) {
        bool known = strcmp(name, job->current) == 0;
        bool same = known && !sums_changed(job, name);
        uint64_t epoch = strtoull(name + 6, NULL, 10);
        if (epoch < job->epoch && !may_forget) {
            fail("jobs/%s: CURRENT went back from epoch %" PRIu64 " to %" PRIu64, job->name,
                 job->epoch, epoch);
        }
        if (same ? check_same(job, name) : check_whole(job, name, epoch)) {
            job->epochs += known ? 0 : 1;
            job->epoch = epoch;
            memcpy(job->current, name, sizeof(name));
            return;
        }
        /* It may have been collected meanwhile: then CURRENT names a newer one by now. */
        if (!read_current(job, again) || (strcmp(again, name) == 0 && !sums_changed(job, name))) {
            fail("jobs/%s: CURRENT names %s, and that is not whole", job->name, name);
        }
        memcpy(name, again, sizeof(again));
    }
}

/* Jobs that are new below STATE/jobs. */
static void find_jobs(int state)
{
    int fd = openat(state, "jobs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL) {
        if (jobs_count > 0) {
            fail("the folder of jobs has vanished");
        }
        return;
    }
    size_t known = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        size_t i = 0;
        while (i < jobs_count && strcmp(jobs[i]->name, entry->d_name) != 0) {
            i++;
        }
        known += i < jobs_count;
        if (i < jobs_count || entry->d_name[0] == '.' || strlen(entry->d_name) >= NAME_SIZE) {
            continue;
        }
        if (jobs_count == JOBS_MAX || (jobs[i] = calloc(1, sizeof(**jobs))) == NULL) {
            fail("no room for job %s", entry->d_name);
        }
        (void)snprintf(jobs[i]->name, NAME_SIZE, "%s", entry->d_name);
        jobs[i]->fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (jobs[i]->fd < 0) {
            fail("jobs/%s: %s", entry->d_name, strerror(errno));
        }
        jobs_count++;
        known++;
    }
    (void)closedir(folder);
    if (known < jobs_count) {
        fail("the folder of a job has vanished");
    }
}

int main(int arguments_count, char **arguments)
{
    if (arguments_count > 1 && strcmp(arguments[1], "--may-forget") == 0) {
        may_forget = true;
        arguments_count--;
        arguments++;
    }
    int state = arguments_count > 1 ? open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    long rate = arguments_count > 2 ? strtol(arguments[2], NULL, 10) : 1250;
    if (state < 0 || rate < 1 || rate > 100000) {
        fail("use: reader STATE [LOOKS_A_SECOND]");
    }
    const struct sigaction action = {.sa_handler = on_term};
    (void)sigaction(SIGTERM, &action, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* It does not outlive the test. */
    const int64_t period_ns = 1000000000 / rate;
    const int64_t begin_ns = now_ns();
    int64_t due_ns = begin_ns;
    int64_t last_ns = begin_ns;
    int64_t gap_ns = 0;
    uint64_t looks = 0;
    while (!ended) {
        find_jobs(state);
        for (size_t i = 0; i < jobs_count; i++) {
            look_at(jobs[i]);
        }
        if (looks++ == 0) {
            (void)printf("looking\n");
            (void)fflush(stdout);
        }
        int64_t at_ns = now_ns();
        gap_ns = at_ns - last_ns > gap_ns ? at_ns - last_ns : gap_ns;
        last_ns = at_ns;
        due_ns += period_ns;
        due_ns = due_ns < at_ns - BEHIND_NS ? at_ns - BEHIND_NS : due_ns;
        const struct timespec due = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
    }
    double seconds = (double)(last_ns - begin_ns) / 1e9;
    (void)printf(
        "{\"looks\": %" PRIu64 ", \"seconds\": %.3f, \"looks_a_second\": %.1f, "
        "\"longest_gap_ms\": %.2f, \"starved_s\": %.3f, \"jobs\": %zu, \"epochs\": %" PRIu64 "}\n",
        looks, seconds, (double)looks / seconds, (double)gap_ns / 1e6, (double)starved_ns() / 1e9,
        jobs_count, epochs_seen);
    for (size_t i = 0; i < jobs_count; i++) {
        (void)close(jobs[i]->fd);
        free(jobs[i]);
    }
    (void)close(state);
    return 0;
}
