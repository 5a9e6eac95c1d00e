/* The exchange between processes of this machine, over 127.0.0.1.
 *
 *   bench_exchange [--processes N] [--streams S] [--threads T] [--chunk-rows R] [--seconds T]
 *                  [--rounds R] [--tls yes] [SIZE …]
 *
 * A step is one ordered fold of SIZE bytes of binary64 (64K, 1M …): each process pushes the values
 * of its one canonical node for SIZE/8 rows and pulls the answers, a binary32 residual for each
 * row. Prints, for each size, the median and the best time of a step, GB/s = SIZE / median time,
 * the processor time of a process for a GB of SIZE, and the bytes that it sent for each byte.
 * bench_gloo.py beside it does the same with Gloo's all-reduce (whose answer is binary64) and
 * prints the same columns. Streams and threads that are not given (or 0) are what the exchange
 * takes by itself.
 *
 * --tls yes does it in plain text and over mutual TLS in turns, in rounds, so that other programs
 * and the machine's drift hit both alike, and in each round measures what AES-GCM itself costs
 * (tests/bench/aes_gcm.h). Of the rounds' ratios the median is printed, with the quartiles: the
 * throughput that TLS keeps, and the processor time that it adds for a GB sealed and opened.
 * --pumps yes or no: whether a TLS connection has a thread of its own; else as the exchange
 * decides. */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "tests/bench/aes_gcm.h"
#include "tests/bench/exchange_report.h"
#include "tests/bench/exchange_side.h"
#include "tests/lib/trust_files.h"

#define TIMES_MAX 100000
#define STEPS_MIN 3 /* of a block */
#define AES_S     0.01

struct bench {
    struct side_settings settings;
    double seconds;
    struct report *report; /* shared by the processes */
    struct side sides[REPORT_SIDES];
    uint32_t sides_count; /* 1: plain text alone */
    uint32_t ready;
    struct test_folder folder; /* of the certificates */
    double *values;
    pthread_t thread;
    uv_async_t done;
};

static struct bench bench = {.settings = {.processes = 2}, .seconds = 1.0};
static double times_ms[REPORT_SIDES][TIMES_MAX];

static uint32_t chunk_rows_of(uint64_t rows)
{
    uint32_t processes = bench.settings.processes;
    uint64_t even = (rows + processes - 1) / processes;
    even = (even + SIDE_PANEL_ROWS - 1) / SIDE_PANEL_ROWS * SIDE_PANEL_ROWS;
    return even < bench.settings.chunk_rows_max ? (uint32_t)even : bench.settings.chunk_rows_max;
}

/* Of all threads of this process: less disturbed by others than the time of a step. */
static double processor_s(void)
{
    struct timespec now;
    ASSERT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- the compute thread */

/* Steps of one side until rank 0 says that it was long enough; all do as many. */
static void run_block(uint32_t which, size_t size, struct report_block *block, size_t *count)
{
    struct side *side = &bench.sides[which];
    uint64_t rows = bench.report->rows[size];
    double block_s = bench.seconds / bench.report->rounds_count;
    struct exchange_stats before;
    struct exchange_stats after;
    size_t first = *count;
    bool last = false;
    exchange_stats(side->exchange, &before);
    double start_s = processor_s();
    uint64_t start_ns = clock_now_ns();
    while (!last && *count < TIMES_MAX) {
        uint64_t begin_ns = clock_now_ns();
        bool enough =
            *count - first + 1 >= STEPS_MIN && (double)(begin_ns - start_ns) * 1e-9 > block_s;
        last = side_step(side, rows, chunk_rows_of(rows), bench.values,
                         enough && bench.settings.rank == 0, false);
        times_ms[which][(*count)++] = (double)(clock_now_ns() - begin_ns) * 1e-6;
    }
    block->processor_s = processor_s() - start_s;
    exchange_stats(side->exchange, &after);
    block->steps = *count - first;
    block->sent = after.values_out - before.values_out + after.results_out - before.results_out;
    block->median_ms = report_median(times_ms[which] + first, block->steps);
}

static void run_size(size_t size, struct aes_gcm *aes)
{
    struct report *report = bench.report;
    size_t counts[REPORT_SIDES] = {0};
    for (uint32_t which = 0; which < bench.sides_count; which++) {
        (void)side_step(&bench.sides[which], report->rows[size], chunk_rows_of(report->rows[size]),
                        bench.values, false, true);
    }
    for (uint32_t round = 0; round < report->rounds_count; round++) {
        struct report_round *at = &report->at[bench.settings.rank][size][round];
        for (uint32_t k = 0; k < bench.sides_count; k++) { /* which is first changes, too */
            uint32_t which = (k + round) % bench.sides_count;
            run_block(which, size, &at->blocks[which], &counts[which]);
        }
        if (aes != NULL) {
            at->aes_near_s_gb = aes_gcm_cost(aes, AES_GCM_NEAR, AES_S);
            at->aes_far_s_gb = aes_gcm_cost(aes, AES_GCM_FAR, AES_S);
        }
    }
    for (uint32_t which = 0; which < bench.sides_count && bench.settings.rank == 0; which++) {
        report->steps[which][size] = counts[which];
        report->median_ms[which][size] = report_median(times_ms[which], counts[which]);
        report->best_ms[which][size] = times_ms[which][0]; /* They are in order now. */
    }
}

static void *compute(void *context)
{
    struct report *report = bench.report;
    struct aes_gcm *aes = bench.sides_count > 1 ? aes_gcm_new() : NULL;
    uint64_t rows_max = 0;
    for (size_t s = 0; s < report->sizes_count; s++) {
        rows_max = report->rows[s] > rows_max ? report->rows[s] : rows_max;
    }
    bench.values = malloc(rows_max * sizeof(*bench.values));
    ASSERT(bench.values != NULL);
    for (uint64_t i = 0; i < rows_max; i++) {
        bench.values[i] = (double)(i % 1024);
    }
    for (uint32_t which = 0; which < bench.sides_count && bench.settings.rank == 0; which++) {
        struct exchange_stats stats;
        exchange_stats(bench.sides[which].exchange, &stats);
        report->threads[which] = (uint32_t)stats.threads;
        report->streams[which] = bench.settings.processes > 1
                                     ? (uint32_t)stats.links_count / (bench.settings.processes - 1)
                                     : 0;
    }
    for (size_t s = 0; s < report->sizes_count; s++) {
        run_size(s, aes);
    }
    free(bench.values);
    aes_gcm_free(aes);
    ASSERT(uv_async_send(&bench.done) == 0);
    return context;
}

/* ---------------------------------------------------------------- a process */

static void on_ready(struct side *side)
{
    (void)side;
    if (++bench.ready == bench.sides_count) {
        ASSERT(pthread_create(&bench.thread, NULL, compute, NULL) == 0);
    }
}

static void on_done(uv_async_t *async)
{
    ASSERT(pthread_join(bench.thread, NULL) == 0);
    uv_close((uv_handle_t *)async, NULL);
    for (uint32_t which = 0; which < bench.sides_count; which++) {
        side_close(&bench.sides[which]);
    }
}

static int run_process(void)
{
    uv_loop_t loop;
    struct err err = {0};
    ASSERT(uv_loop_init(&loop) == 0);
    ASSERT(uv_async_init(&loop, &bench.done, on_done) == 0);
    for (uint32_t which = 0; which < bench.sides_count; which++) {
        struct side *side = &bench.sides[which];
        char bundle[32];
        (void)snprintf(bundle, sizeof(bundle), "ca-p%u", bench.settings.rank % SIDE_PROCESSES_MAX);
        if (which == REPORT_TLS &&
            trust_open_bundle(&bench.folder, bundle, 0, &side->trust, &err) != 0) {
            (void)fprintf(stderr, "bench_exchange: %s\n", err.text);
            return 1;
        }
        side_open(side, &bench.settings, &loop, on_ready);
    }
    ASSERT(uv_run(&loop, UV_RUN_DEFAULT) == 0);
    ASSERT(uv_loop_close(&loop) == 0);
    for (uint32_t which = 0; which < bench.sides_count; which++) {
        side_done(&bench.sides[which]);
    }
    return 0;
}

static int run_all(void)
{
    pid_t children[SIDE_PROCESSES_MAX];
    int failed = 0;
    for (uint32_t p = 0; p < bench.settings.processes; p++) {
        children[p] = fork();
        if (children[p] == 0) {
            bench.settings.rank = p;
            exit(run_process());
        }
    }
    for (uint32_t p = 0; p < bench.settings.processes; p++) {
        int status = 0;
        (void)waitpid(children[p], &status, 0);
        failed |= status;
    }
    return failed;
}

static void make_certificates(void)
{
    test_folder_open(&bench.folder);
    trust_make_authority(&bench.folder, "ca", "bench");
    for (uint32_t p = 0; p < bench.settings.processes; p++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "p%u", p % SIDE_PROCESSES_MAX);
        trust_make_bundle(&bench.folder, "ca", "bench", TRUST_NODE, name);
    }
}

/* ---------------------------------------------------------------- options */

static void add_size(const char *text)
{
    struct report *report = bench.report;
    char *unit = NULL;
    double value = strtod(text, &unit);
    double scale = *unit == 'K' ? 1024.0 : *unit == 'M' ? 1048576.0 : 1.0;
    if (value * scale < 8.0 || report->sizes_count == REPORT_SIZES_MAX) {
        (void)fprintf(stderr, "bench_exchange: '%s' is no size, or one too many; give 64K, 16M …\n",
                      text);
        exit(2);
    }
    report->rows[report->sizes_count++] = (uint64_t)(value * scale / 8.0);
}

static void set_option(const char *name, const char *value)
{
    struct side_settings *settings = &bench.settings;
    uint32_t number = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(name, "--processes") == 0) {
        settings->processes = number;
    } else if (strcmp(name, "--streams") == 0) {
        settings->streams = number;
    } else if (strcmp(name, "--threads") == 0) {
        settings->threads = number;
    } else if (strcmp(name, "--chunk-rows") == 0) {
        settings->chunk_rows_max = number;
    } else if (strcmp(name, "--rounds") == 0) {
        bench.report->rounds_count = number;
    } else if (strcmp(name, "--tls") == 0) {
        bench.sides_count = strcmp(value, "yes") == 0 ? 2 : 1;
    } else if (strcmp(name, "--pumps") == 0) {
        settings->pumps = strcmp(value, "yes") == 0 ? EXCHANGE_PUMPS_YES : EXCHANGE_PUMPS_NO;
    } else if (strcmp(name, "--seconds") == 0) {
        bench.seconds = strtod(value, NULL);
    } else {
        (void)fprintf(stderr, "bench_exchange: unknown option %s\n", name);
        exit(2);
    }
}

static void read_options(int argc, char **argv)
{
    static const char *const usual[] = {"64K", "256K", "1M", "4M", "16M", "64M"};
    struct side_settings *settings = &bench.settings;
    struct report *report = bench.report;
    settings->chunk_rows_max = 32768; /* the learner's largest */
    bench.sides_count = 1;
    report->rounds_count = 9;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            add_size(argv[i]);
        } else if (i + 1 == argc) {
            (void)fprintf(stderr, "bench_exchange: %s needs a value\n", argv[i]);
            exit(2);
        } else {
            set_option(argv[i], argv[i + 1]);
            i++;
        }
    }
    bool default_sizes = report->sizes_count == 0;
    for (size_t u = 0; default_sizes && u < sizeof(usual) / sizeof(usual[0]); u++) {
        add_size(usual[u]);
    }
    if (settings->processes < 1 || settings->processes > SIDE_PROCESSES_MAX ||
        settings->chunk_rows_max < 1 || report->rounds_count < 1 ||
        report->rounds_count > REPORT_ROUNDS_MAX) {
        (void)fprintf(stderr, "bench_exchange: 1 to %d processes, 1 or more rows, 1 to %d rounds\n",
                      SIDE_PROCESSES_MAX, REPORT_ROUNDS_MAX);
        exit(2);
    }
    report->processes = settings->processes;
    uint32_t chunk_rows_max = 1;
    for (size_t s = 0; s < report->sizes_count; s++) {
        uint32_t chunk_rows = chunk_rows_of(report->rows[s]);
        uint32_t chunks = (uint32_t)((report->rows[s] + chunk_rows - 1) / chunk_rows);
        settings->chunks_max = chunks > settings->chunks_max ? chunks : settings->chunks_max;
        chunk_rows_max = chunk_rows > chunk_rows_max ? chunk_rows : chunk_rows_max;
    }
    settings->chunk_rows_max = chunk_rows_max;
}

int main(int argc, char **argv)
{
    bench.report = mmap(NULL, sizeof(*bench.report), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(bench.report != MAP_FAILED);
    read_options(argc, argv);
    if (bench.sides_count > 1) {
        make_certificates();
    }
    for (uint32_t which = 0; which < bench.sides_count; which++) {
        side_find_ports(&bench.sides[which], bench.settings.processes);
    }
    (void)printf("exchange: %u processes, chunks of at most %u rows\n", bench.settings.processes,
                 bench.settings.chunk_rows_max);
    (void)fflush(stdout);
    int failed = run_all();
    for (uint32_t which = 0; which < bench.sides_count && failed == 0; which++) {
        report_print_side(bench.report, which);
    }
    if (bench.sides_count > 1) {
        test_folder_close(&bench.folder);
        if (failed == 0) {
            report_print_tls(bench.report);
        }
    }
    return failed == 0 ? 0 : 1;
}
