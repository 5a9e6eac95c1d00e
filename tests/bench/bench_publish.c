/* What a publication costs: how fast a shard becomes durable beside the plain writing of as many
 * bytes, and by how much the training beside it is late.
 *
 *   bench_publish DIR [MB [ROWS]]      state of MB (400) in DIR, a step over ROWS (2) rows; 0: no
 * stall
 *
 * Throughput: a shard of that size is staged as the agent does it (written, hashed, fsynced,
 * renamed, folders fsynced), then copied as a holder does it, in turns with what `dd bs=1M
 * conv=fsync` does: writes of 1 MiB and an fsync. Ratios of medians of seven turns; the disk is
 * shared with whoever else works on the machine, so each turn has all three. Stall: a session
 * trains on the CPU; every few steps a capture is taken, then staged, and the whole vectors hashed,
 * by threads beside the steps. The stall is the time by which these steps are longer than as many
 * without a publication: of one publication, and as a share of a minute. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "daemon/capture.h"
#include "gpu/gpu.h"

#define TURNS       7
#define STALL_TURNS 5

static struct fs *disk;
static struct shard_content content;
static uint64_t shard_size;
static uint8_t shard_sha256[SHA256_SIZE];
static double processor_used; /* seconds of it, by what was measured last */
static bool rooted;           /* as after the first publication of a job: its folder is durable */

static void die(const struct err *err)
{
    (void)fprintf(stderr, "bench_publish: %s\n", err->text);
    exit(err_exit_status(err->code));
}

static double processor_now(void)
{
    struct timespec now;
    ASSERT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double since(uint64_t begin_ns)
{
    return (double)(clock_now_ns() - begin_ns) * 1e-9;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

/* ---- throughput ---- */

static double plain_write(const char *folder)
{
    char path[4300];
    (void)snprintf(path, sizeof(path), "%s/plain", folder);
    double processor = processor_now();
    uint64_t begin = clock_now_ns();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const uint8_t *bytes = (const uint8_t *)content.parameter; /* Bytes of the same kind. */
    for (uint64_t at = 0; at < shard_size; at += 1U << 20) {
        ASSERT(write(fd, bytes + at % (shard_size / 4), 1U << 20) == (ssize_t)(1U << 20));
    }
    ASSERT(fsync(fd) == 0);
    ASSERT(close(fd) == 0);
    double seconds = since(begin);
    processor_used = processor_now() - processor;
    (void)unlink(path);
    return seconds;
}

static void action_of(struct agent_action *action, enum agent_kind kind, const char *folder)
{
    *action = (struct agent_action){.kind = kind, .job = 1, .epoch = 1, .rooted = rooted};
    (void)snprintf(action->folder, sizeof(action->folder), "%s", folder);
    checkpoint_shard_name(0, 1, action->shard);
}

static double stage(const char *folder)
{
    struct agent_action *action = calloc(1, sizeof(*action));
    struct agent_result *result = calloc(1, sizeof(*result));
    ASSERT(action != NULL);
    ASSERT(result != NULL);
    action_of(action, AGENT_STAGE, folder);
    double processor = processor_now();
    uint64_t begin = clock_now_ns();
    agent_execute(disk, action, &content, result);
    double seconds = since(begin);
    processor_used = processor_now() - processor;
    if (result->code != 0) {
        die(&result->err);
    }
    shard_size = result->size;
    memcpy(shard_sha256, result->sha256, SHA256_SIZE);
    free(action);
    free(result);
    return seconds;
}

/* The shard's bytes, as they come from a connection. */
static int on_read(void *context, uint64_t offset, void *bytes, size_t size, struct err *err)
{
    (void)err;
    memcpy(bytes, (const uint8_t *)context + offset, size);
    return 0;
}

static double copy(const char *folder, const char *from)
{
    struct agent_action *action = calloc(1, sizeof(*action));
    struct agent_result *result = calloc(1, sizeof(*result));
    struct fs_file *file = NULL;
    char path[600];
    ASSERT(action != NULL);
    ASSERT(result != NULL);
    action_of(action, AGENT_COPY, folder);
    (void)snprintf(path, sizeof(path), "%s/staging/epoch-00000001/%s", from, action->shard);
    action->size = shard_size;
    memcpy(action->sha256, shard_sha256, SHA256_SIZE);
    static uint8_t *received;
    received = received != NULL ? received : malloc(shard_size);
    ASSERT(received != NULL);
    if (fs_open(disk, path, FS_READ, &file, &result->err) != 0 ||
        disk->ops->read(file, 0, received, shard_size, &result->err) != 0) {
        die(&result->err);
    }
    (void)disk->ops->close(file, NULL); /* Only read: nothing can be lost. */
    struct agent_source source = {received, on_read};
    double processor = processor_now();
    uint64_t begin = clock_now_ns();
    agent_execute_copy(disk, action, &source, result);
    double seconds = since(begin);
    processor_used = processor_now() - processor;
    if (result->code != 0) {
        die(&result->err);
    }
    free(action);
    free(result);
    return seconds;
}

static void remove_jobs(void)
{
    struct err err = {0};
    if (rooted) {
        (void)fs_remove_tree(disk, "jobs/1-own/staging/epoch-00000001", &err);
        (void)fs_remove_tree(disk, "jobs/2-copy/staging/epoch-00000001", &err);
    } else {
        (void)fs_remove_tree(disk, "jobs", &err);
    }
    sync();
}

/* ---- what is measured of each ---- */

enum kind { PLAIN, STAGED, COPIED, KINDS };

struct turn {
    double seconds[KINDS];
    double processor[KINDS]; /* seconds of it, of this process */
};

static void measure(enum kind kind, const char *folder, struct turn *turn)
{
    sync();
    turn->seconds[kind] = kind == PLAIN    ? plain_write(folder)
                          : kind == STAGED ? stage("jobs/1-own")
                                           : copy("jobs/2-copy", "jobs/1-own");
    turn->processor[kind] = processor_used;
}

static void throughput(const char *folder)
{
    static const char *const names[KINDS] = {"written and fsynced", "shard durable",
                                             "copy durable"};
    struct turn turns[TURNS];
    struct turn warm;
    double values[TURNS];
    double mb = 0;
    for (int i = -1; i < TURNS; i++) {
        struct turn *turn = i < 0 ? &warm : &turns[i];
        remove_jobs();
        if (i % 2 == 0) {
            measure(PLAIN, folder, turn);
        }
        measure(STAGED, folder, turn);
        measure(COPIED, folder, turn);
        if (i % 2 != 0) { /* What a disk has saved up for a burst goes to each in turn. */
            measure(PLAIN, folder, turn);
        }
        rooted = true;
    }
    remove_jobs();
    mb = (double)shard_size * 1e-6;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < TURNS; i++) {
            values[i] = turns[i].seconds[kind];
        }
        double seconds = median(values, TURNS);
        double best = values[0]; /* median() has sorted them. */
        for (int i = 0; i < TURNS; i++) {
            values[i] = turns[i].processor[kind];
        }
        (void)printf("%-20s %4.0f MB in %.3f s (%.0f MB/s; best %.0f), %.3f s of processor",
                     names[kind], mb, seconds, mb / seconds, mb / best, median(values, TURNS));
        for (int i = 0; kind != PLAIN && i < TURNS; i++) {
            values[i] = turns[i].seconds[PLAIN] / turns[i].seconds[kind];
        }
        if (kind != PLAIN) {
            double ratio = median(values, TURNS);
            (void)printf("; %.2f of the plain rate (turns %.2f to %.2f)", ratio, values[0],
                         values[TURNS - 1]);
        }
        (void)printf("\n");
    }
}

/* ---- stall ---- */

static struct session *session;
static uint64_t step;
static uint64_t rows;

static void steps_of(unsigned count)
{
    struct session_hyper hyper = {.rate = 1e-9, .decay = 0.9};
    struct err err = {0};
    for (unsigned i = 0; i < count; i++) {
        struct session_batch batch = {.step = step++, .row_first = 0, .rows_count = rows};
        const double *losses = NULL;
        size_t panels = 0;
        if (session_local_step(session, &batch, &hyper, &err) != 0 ||
            session_local_wait(session, &losses, &panels, &err) != 0) {
            die(&err);
        }
    }
}

static void *write_beside(void *context)
{
    (void)context;
    (void)stage("jobs/1-own");
    return NULL;
}

static void *digest_beside(void *context)
{
    uint8_t digest[SHA256_SIZE];
    uint64_t count = content.about.end;
    (void)context;
    sha256_of(content.parameter, count * sizeof(double), digest);
    sha256_of(content.accumulator, count * sizeof(double), digest);
    return NULL;
}

/* Steps for about `seconds` of them, with or without a publication at their begin. */
static double span(unsigned count, bool publish, double *ret_capture)
{
    pthread_t threads[2];
    struct err err = {0};
    remove_jobs();
    uint64_t begin = clock_now_ns();
    if (publish) {
        uint64_t bytes = content.about.end * sizeof(double);
        double *parameter = capture_vector(bytes / sizeof(double)); /* As a run does: new memory. */
        double *accumulator = capture_vector(bytes / sizeof(double));
        if (session_capture(session, &err) != 0 ||
            session_capture_read(session, parameter, accumulator, &err) != 0) {
            die(&err);
        }
        *ret_capture = since(begin);
        content.parameter = parameter;
        content.accumulator = accumulator;
        ASSERT(pthread_create(&threads[0], NULL, write_beside, NULL) == 0);
        ASSERT(pthread_create(&threads[1], NULL, digest_beside, NULL) == 0);
    }
    steps_of(count);
    double seconds = since(begin);
    if (publish) {
        ASSERT(pthread_join(threads[0], NULL) == 0);
        ASSERT(pthread_join(threads[1], NULL) == 0);
        free((void *)(uintptr_t)content.parameter);
        free((void *)(uintptr_t)content.accumulator);
    }
    return seconds;
}

static void stall(uint64_t coordinates)
{
    struct err err = {0};
    float *x = malloc(rows * coordinates * sizeof(float));
    double *targets = malloc(rows * sizeof(double));
    ASSERT(x != NULL);
    ASSERT(targets != NULL);
    for (uint64_t i = 0; i < rows * coordinates; i++) {
        x[i] = (float)(i % 1021) * 0x1p-10F;
    }
    for (uint64_t i = 0; i < rows; i++) {
        targets[i] = (double)i;
    }
    struct session_matrix matrix = {
        .rows = rows, .columns = coordinates, .dense = x, .stride = rows};
    struct session_settings settings = {.device = "cpu"};
    struct session_plan plan = {.coordinate_end = coordinates,
                                .whole = true,
                                .rows = rows,
                                .entries = rows * coordinates,
                                .batch_rows = rows,
                                .chunk_rows = 32768,
                                .issues_max = (uint64_t)1 << 40};
    struct session_seed seed = {.matrix = &matrix, .targets = targets};
    int code = session_new(&settings, NULL, &session, &err);
    code = code != 0 ? code : session_admit(session, &plan, &err);
    code = code != 0 ? code : session_bind(session, &err);
    code = code != 0 ? code : session_load(session, &err);
    code = code != 0 ? code : session_certify(session, &err);
    code = code != 0 ? code : session_seed(session, &seed, &err);
    if (code != 0) {
        die(&err);
    }
    steps_of(2);
    uint64_t begin = clock_now_ns();
    steps_of(5);
    double one = since(begin) / 5;
    unsigned count = (unsigned)(2.0 / one) + 1; /* Longer than the writing takes. */
    double added[STALL_TURNS];
    double captures[STALL_TURNS];
    for (int i = 0; i < STALL_TURNS; i++) {
        double without = span(count, false, NULL);
        added[i] = span(count, true, &captures[i]) - without;
    }
    double late = median(added, STALL_TURNS);
    (void)printf(
        "step %.3f s; a publication makes the run %.3f s later (capture %.3f s of it): %.2f %% "
        "of a minute\n",
        one, late, median(captures, STALL_TURNS), late / 60 * 100);
    session_free(session);
    free(x);
    free(targets);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fprintf(stderr, "bench_publish DIR [MB [ROWS]]\n");
        return 2;
    }
    uint64_t coordinates = (argc > 2 ? strtoull(argv[2], NULL, 10) : 400) * 1000000 / 16;
    struct err err = {0};
    rows = argc > 3 ? strtoull(argv[3], NULL, 10) : 2;
    double *vectors = malloc(2 * coordinates * sizeof(double));
    ASSERT(vectors != NULL);
    for (uint64_t i = 0; i < 2 * coordinates; i++) {
        vectors[i] = (double)i * 1.000001;
    }
    content = (struct shard_content){.parameter = vectors, .accumulator = vectors + coordinates};
    content.about.ranks = 1;
    content.about.end = coordinates;
    content.about.coordinates = coordinates;
    shard_size = 16 * coordinates;
    if (fs_posix_open(argv[1], &disk, &err) != 0) {
        die(&err);
    }
    throughput(argv[1]);
    if (rows > 0) {
        stall(coordinates);
    }
    rooted = false;
    remove_jobs();
    fs_posix_close(disk);
    free(vectors);
    return 0;
}
