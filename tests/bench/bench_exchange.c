/* The exchange between processes of this machine, over 127.0.0.1.
 *
 *   bench_exchange [--processes N] [--streams S] [--threads T] [--chunk-rows R] [--seconds T]
 *                  [--tls yes] [SIZE …]
 *
 * A step is one ordered fold of SIZE bytes of binary64 (64K, 1M …): each process pushes the values
 * of its one canonical node for SIZE/8 rows and pulls the answers, a binary32 residual for each
 * row. Prints, for each size, the median and the best time of a step and GB/s = SIZE / median time,
 * and the bytes that a process sent for each byte of SIZE. bench_gloo.py beside it does the same
 * with Gloo's all-reduce (whose answer is binary64) and prints the same columns.
 *
 * --pumps yes or no: whether a TLS connection has a thread of its own; else as the daemon decides.
 * --tls yes does all of it twice, in plain text and over mutual TLS, measures what AES-GCM itself
 * costs in the same run, and prints beside each other: the throughput that TLS keeps, and the
 * processor time that it adds for a GB sealed and opened. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/peer.h"
#include "tests/bench/aes_gcm.h"
#include "tests/lib/ports.h"
#include "tests/lib/trust_files.h"

#define PROCESSES_MAX 16
#define SIZES_MAX     16
#define PANEL_ROWS    2048
#define TIMES_MAX     100000
#define REPEATS_MIN   5

struct bench {
    uint32_t processes, rank, streams, threads, chunk_rows;
    double seconds;
    uint16_t ports[PROCESSES_MAX];
    uint64_t rows[SIZES_MAX];
    size_t sizes_count;
    struct mesh *mesh;
    struct exchange *exchange;
    pthread_t thread;
    uv_async_t done;
    bool ready;
    bool secure;
    enum exchange_pumps pumps;
    struct test_folder folder; /* of the certificates */
    struct result *results;    /* shared with rank 0: by size, plain text, then TLS */
};

struct result {
    double median_ms, processor_s_gb, sent;
};

static struct bench bench = {.processes = 2, .streams = 4, .seconds = 1.0};

static void check(int code, const struct err *err)
{
    if (code != 0) {
        (void)fprintf(stderr, "bench_exchange: process %u: %s\n", bench.rank, err->text);
        _exit(1);
    }
}

static uint32_t chunk_rows_of(uint64_t rows)
{
    uint64_t even = (rows + bench.processes - 1) / bench.processes;
    even = (even + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
    return even < bench.chunk_rows ? (uint32_t)even : bench.chunk_rows;
}

static int finish(void *context, uint64_t step, uint32_t chunk, uint32_t rows, const double *z,
                  float *residual, double *panel_losses, struct err *err)
{
    (void)context;
    (void)step;
    (void)chunk;
    (void)err;
    for (uint32_t i = 0; i < rows; i++) {
        residual[i] = (float)z[i];
    }
    for (uint32_t p = 0; p < (rows + PANEL_ROWS - 1) / PANEL_ROWS; p++) {
        panel_losses[p] = z[p * PANEL_ROWS];
    }
    return 0;
}

static void run_step(uint64_t step, uint64_t rows, const double *values, bool verify)
{
    struct err err = {0};
    uint32_t chunk_rows = chunk_rows_of(rows);
    uint32_t chunks = (uint32_t)((rows + chunk_rows - 1) / chunk_rows);
    check(exchange_begin(bench.exchange, step, rows, chunk_rows, &err), &err);
    for (uint32_t c = 0; c < chunks; c++) {
        check(exchange_push(bench.exchange, step, c, values + (uint64_t)c * chunk_rows, &err),
              &err);
    }
    for (uint32_t c = 0; c < chunks; c++) {
        const float *residual = NULL;
        const double *losses = NULL;
        check(exchange_pull(bench.exchange, step, c, &residual, &losses, NULL, &err), &err);
        uint64_t first = (uint64_t)c * chunk_rows;
        uint64_t count = rows - first < chunk_rows ? rows - first : chunk_rows;
        for (uint64_t i = 0; verify && i < count; i++) {
            ASSERT(residual[i] == (float)(bench.processes * (double)((first + i) % 1024)));
        }
    }
}

/* Seconds of processor time of this process: less disturbed by others than the time of a step. */
static double processor_s(void)
{
    struct rusage usage;
    ASSERT(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static void print_size(uint64_t size)
{
    if (size % (1U << 20) == 0) {
        (void)printf("%6" PRIu64 " MiB", size >> 20);
    } else {
        (void)printf("%6.0f KiB", (double)size / 1024.0);
    }
}

static void *compute(void *context)
{
    static double times[TIMES_MAX];
    uint64_t rows_max = 0;
    uint64_t step = 1;
    for (size_t s = 0; s < bench.sizes_count; s++) {
        rows_max = bench.rows[s] > rows_max ? bench.rows[s] : rows_max;
    }
    double *values = malloc(rows_max * sizeof(*values));
    ASSERT(values != NULL);
    for (uint64_t i = 0; i < rows_max; i++) {
        values[i] = (double)(i % 1024);
    }
    for (size_t s = 0; s < bench.sizes_count; s++) {
        /* Every process must do the same number of steps: rank 0 cannot tell the others to stop but
         * by the step's own word, which is what the word is for. */
        struct exchange_stats before;
        struct exchange_stats after;
        uint64_t rows = bench.rows[s];
        size_t count = 0;
        run_step(step++, rows, values, true);
        exchange_stats(bench.exchange, &before);
        double start_s = processor_s();
        uint64_t start_ns = clock_now_ns();
        for (bool stop = false; !stop && count < TIMES_MAX;) {
            struct err err = {0};
            uint64_t begin_ns = clock_now_ns();
            run_step(step, rows, values, false);
            times[count++] = (double)(clock_now_ns() - begin_ns) * 1e-6;
            if (bench.rank == 0 && count >= REPEATS_MIN &&
                (double)(clock_now_ns() - start_ns) * 1e-9 > bench.seconds) {
                exchange_direct(bench.exchange, 1);
            }
            const float *residual = NULL;
            const double *losses = NULL;
            uint32_t word = 0;
            step++;
            /* A step of one row carries it, untimed. */
            check(exchange_begin(bench.exchange, step, 1, 1, &err), &err);
            check(exchange_push(bench.exchange, step, 0, values, &err), &err);
            check(exchange_pull(bench.exchange, step, 0, &residual, &losses, &word, &err), &err);
            step++;
            stop = word != 0;
        }
        double spent_s = processor_s() - start_s;
        exchange_stats(bench.exchange, &after);
        qsort(times, count, sizeof(times[0]), compare);
        if (bench.rank == 0) {
            double gb = (double)count * (double)rows * 8e-9;
            uint64_t sent =
                after.values_out - before.values_out + after.results_out - before.results_out;
            print_size(rows * 8);
            (void)printf("  %9.3f ms median  %9.3f ms best  %6.2f GB/s  %5.2f CPU s/GB  "
                         "%5.2f bytes sent a byte  %zu steps\n",
                         times[count / 2], times[0], (double)rows * 8e-6 / times[count / 2],
                         spent_s * 1e9 / ((double)count * (double)rows * 8.0),
                         (double)sent / ((double)count * (double)rows * 8.0), count);
            (void)fflush(stdout);
            bench.results[s + (bench.secure ? SIZES_MAX : 0)] =
                (struct result){times[count / 2], spent_s / gb, (double)sent * 1e-9 / gb};
        }
    }
    free(values);
    ASSERT(uv_async_send(&bench.done) == 0);
    return context;
}

static void on_ready(void *context)
{
    (void)context;
    ASSERT(pthread_create(&bench.thread, NULL, compute, NULL) == 0);
}

static void on_failed(void *context, uint32_t culprit, const struct err *err)
{
    (void)context;
    (void)culprit;
    check(err->code, err);
}

static void on_bulk(void *context, const struct peer_incoming *incoming)
{
    struct peer_incoming copy = *incoming;
    (void)context;
    if (bench.exchange == NULL) {
        peer_refuse(&copy, ERR_BUSY, "not yet");
    } else {
        exchange_adopt(bench.exchange, &copy);
    }
}

static void on_up(void *context, uint32_t node_id, uint64_t incarnation)
{
    (void)context;
    (void)node_id;
    (void)incarnation;
}

static void on_down(void *context, uint32_t node_id, const char *reason)
{
    (void)context;
    (void)node_id;
    (void)reason;
}

static void on_message(void *context, uint32_t node_id, uint16_t kind, const uint8_t *bytes,
                       size_t size)
{
    (void)context;
    (void)node_id;
    (void)kind;
    (void)bytes;
    (void)size;
}

static void on_exchange_closed(void *context)
{
    (void)context;
    mesh_close(bench.mesh, NULL, NULL);
}

static void on_done(uv_async_t *async)
{
    ASSERT(pthread_join(bench.thread, NULL) == 0);
    uv_close((uv_handle_t *)async, NULL);
    exchange_close(bench.exchange, on_exchange_closed, NULL);
}

static int run_process(void)
{
    uv_loop_t loop;
    struct err err = {0};
    static char names[PROCESSES_MAX][8];
    static char addresses[PROCESSES_MAX][32];
    struct mesh_peer peers[PROCESSES_MAX];
    struct exchange_participant participants[PROCESSES_MAX];
    uint32_t chunks_max = 1;
    uint32_t chunk_rows_max = 1;
    for (uint32_t p = 0; p < bench.processes; p++) {
        (void)snprintf(names[p], sizeof(names[p]), "p%u", p % PROCESSES_MAX);
        (void)snprintf(addresses[p], sizeof(addresses[p]), "127.0.0.1:%u", bench.ports[p]);
        peers[p] = (struct mesh_peer){.node_id = p + 1, .name = names[p], .address = addresses[p]};
        participants[p] = (struct exchange_participant){
            .node_id = p + 1, .name = names[p], .address = addresses[p], .first = p, .end = p + 1};
    }
    for (size_t s = 0; s < bench.sizes_count; s++) {
        uint32_t chunk_rows = chunk_rows_of(bench.rows[s]);
        uint32_t chunks = (uint32_t)((bench.rows[s] + chunk_rows - 1) / chunk_rows);
        chunks_max = chunks > chunks_max ? chunks : chunks_max;
        chunk_rows_max = chunk_rows > chunk_rows_max ? chunk_rows : chunk_rows_max;
    }
    struct mesh_settings mesh = {.cluster = "bench",
                                 .name = names[bench.rank],
                                 .node_id = bench.rank + 1,
                                 .incarnation = 1,
                                 .listen = addresses[bench.rank],
                                 .peers = peers,
                                 .peers_count = bench.processes,
                                 .on_up = on_up,
                                 .on_down = on_down,
                                 .on_message = on_message,
                                 .on_bulk = on_bulk};
    struct exchange_settings exchange = {.cluster = "bench",
                                         .incarnation = 1,
                                         .job = 1,
                                         .generation = 1,
                                         .policy = "f32-products-f64-accumulation-v1",
                                         .participants = participants,
                                         .participants_count = bench.processes,
                                         .rank = bench.rank,
                                         .streams = bench.streams,
                                         .threads = bench.threads,
                                         .chunk_rows_max = chunk_rows_max,
                                         .chunks_max = chunks_max,
                                         .panel_rows = PANEL_ROWS,
                                         .finish = finish,
                                         .on_ready = on_ready,
                                         .on_failed = on_failed};
    struct trust *trust = NULL;
    char bundle[32];
    (void)snprintf(bundle, sizeof(bundle), "ca-%s", names[bench.rank]);
    if (bench.secure) {
        check(trust_open_bundle(&bench.folder, bundle, 0, &trust, &err), &err);
    }
    mesh.trust = trust;
    exchange.trust = trust;
    exchange.pumps = bench.pumps;
    ASSERT(uv_loop_init(&loop) == 0);
    ASSERT(uv_async_init(&loop, &bench.done, on_done) == 0);
    check(mesh_open(&mesh, &loop, &bench.mesh, &err), &err);
    check(exchange_open(&exchange, &loop, &bench.exchange, &err), &err);
    ASSERT(uv_run(&loop, UV_RUN_DEFAULT) == 0);
    ASSERT(uv_loop_close(&loop) == 0);
    trust_free(trust);
    return 0;
}

static int run_all(void)
{
    pid_t children[PROCESSES_MAX];
    int failed = 0;
    for (uint32_t p = 0; p < bench.processes; p++) {
        children[p] = fork();
        if (children[p] == 0) {
            bench.rank = p;
            exit(run_process());
        }
    }
    for (uint32_t p = 0; p < bench.processes; p++) {
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
    for (uint32_t p = 0; p < bench.processes; p++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "p%u", p % PROCESSES_MAX);
        trust_make_bundle(&bench.folder, "ca", "bench", TRUST_NODE, name);
    }
}

/* What TLS keeps and costs; a process seals and opens as many bytes as it sends. */
static void compare_tls(double aes_s_gb)
{
    (void)printf("AES-128-GCM alone: %.3f CPU s/GB sealed and opened\n", aes_s_gb);
    for (size_t s = 0; s < bench.sizes_count; s++) {
        const struct result *plain = &bench.results[s];
        const struct result *secure = &bench.results[s + SIZES_MAX];
        double added = (secure->processor_s_gb - plain->processor_s_gb) / plain->sent;
        print_size(bench.rows[s] * 8);
        (void)printf(
            "  TLS keeps %5.1f %% of the throughput; adds %.3f CPU s/GB sealed and opened, "
            "%+.0f %% of AES-GCM's\n",
            100.0 * plain->median_ms / secure->median_ms, added, 100.0 * (added / aes_s_gb - 1.0));
    }
}

static void find_ports(void)
{
    for (uint32_t p = 0; p < bench.processes; p++) {
        bench.ports[p] = test_port();
    }
}

static void add_size(const char *text)
{
    char *unit = NULL;
    double value = strtod(text, &unit);
    double scale = *unit == 'K' ? 1024.0 : *unit == 'M' ? 1048576.0 : 1.0;
    ASSERT(bench.sizes_count < SIZES_MAX);
    bench.rows[bench.sizes_count] = (uint64_t)(value * scale / 8.0);
    if (bench.rows[bench.sizes_count] < 1) {
        (void)fprintf(stderr, "bench_exchange: '%s' is no size; give 64K, 16M …\n", text);
        exit(2);
    }
    bench.sizes_count++;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"64K", "256K", "1M", "4M", "16M", "64M"};
    bool tls = false;
    bench.chunk_rows = 32768; /* the learner's largest */
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            add_size(argv[i]);
        } else if (i + 1 == argc) {
            (void)fprintf(stderr, "bench_exchange: %s needs a value\n", argv[i]);
            return 2;
        } else if (strcmp(argv[i], "--processes") == 0) {
            bench.processes = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--streams") == 0) {
            bench.streams = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--threads") == 0) {
            bench.threads = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--chunk-rows") == 0) {
            bench.chunk_rows = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--tls") == 0) {
            tls = strcmp(argv[++i], "yes") == 0;
        } else if (strcmp(argv[i], "--pumps") == 0) {
            bench.pumps = strcmp(argv[++i], "yes") == 0 ? EXCHANGE_PUMPS_YES : EXCHANGE_PUMPS_NO;
        } else if (strcmp(argv[i], "--seconds") == 0) {
            bench.seconds = strtod(argv[++i], NULL);
        } else {
            (void)fprintf(stderr, "bench_exchange: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    if (bench.processes < 1 || bench.processes > PROCESSES_MAX || bench.chunk_rows < 1) {
        (void)fprintf(stderr, "bench_exchange: 1 to %d processes, 1 or more rows\n", PROCESSES_MAX);
        return 2;
    }
    bool default_sizes = bench.sizes_count == 0;
    for (size_t u = 0; default_sizes && u < sizeof(usual) / sizeof(usual[0]); u++) {
        add_size(usual[u]);
    }
    (void)printf("exchange: %u processes, %u streams a pair, chunks of at most %u rows\n",
                 bench.processes, bench.streams, bench.chunk_rows);
    (void)fflush(stdout);
    bench.results = mmap(NULL, 2 * SIZES_MAX * sizeof(*bench.results), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(bench.results != MAP_FAILED);
    find_ports();
    int failed = run_all();
    if (tls && failed == 0) {
        double aes_s_gb = aes_gcm_cost(1.0);
        make_certificates();
        bench.secure = true;
        (void)printf("over TLS 1.3\n");
        (void)fflush(stdout);
        find_ports();
        failed = run_all();
        test_folder_close(&bench.folder);
        compare_tls(aes_s_gb);
    }
    return failed == 0 ? 0 : 1;
}
