/* How much of a step between two nodes runs side by side: kernels, transfers and the exchange.
 *
 *   bench_overlap DEVICE ROWS COLUMNS STEPS        COLUMNS: a power of two
 *
 * Two sessions on one device each own half of the columns; this program is the wire and the fold
 * between them (values of each row's nodes in, residuals out), on one thread, so that the exchange
 * takes the time of the host's memory alone. First each part by itself, nothing beside it: a
 * chunk's forward and its values on the host, chunk after chunk; the folds; residuals up, backwards
 * and updates. Then the step as a run has it: forwards ahead of the first wait, a chunk folded as
 * soon as its values are there. Prints medians of STEPS and what is saved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rand.h"
#include "gpu/gpu.h"
#include "numerics/lane.h"
#include "numerics/nodes.h"
#include "numerics/squared.h"

#define CHUNK_ROWS 32768U
#define NODES      2
#define STEPS_MAX  1000

struct bench {
    uint64_t rows;
    uint64_t columns;
    struct session *sessions[NODES];
    uint64_t bounds[NODES + 1];
    double *targets;
    float *residual;
    uint32_t chunks;
    uint64_t step;
};

static void check(int code, const struct err *err)
{
    if (code != 0) {
        (void)fprintf(stderr, "bench_overlap: %s\n", err->text);
        exit(err_exit_status(err->code));
    }
}

static void *room(uint64_t count, size_t size)
{
    void *memory = malloc(count * size + 1);
    if (memory == NULL) {
        (void)fprintf(stderr, "bench_overlap: no memory\n");
        exit(1);
    }
    return memory;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint32_t rows_of(const struct bench *b, uint32_t chunk)
{
    uint64_t left = b->rows - (uint64_t)chunk * CHUNK_ROWS;
    return left < CHUNK_ROWS ? (uint32_t)left : CHUNK_ROWS;
}

static void open_sessions(struct bench *b, const char *device, const float *x)
{
    for (int n = 0; n < NODES; n++) {
        struct err err = {0};
        struct session_settings settings = {.device = device, .share = true};
        uint64_t columns = b->bounds[n + 1] - b->bounds[n];
        struct session_plan plan = {
            .coordinate_first = b->bounds[n],
            .coordinate_end = b->bounds[n + 1],
            .storage = SESSION_DENSE,
            .rows = b->rows,
            .entries = b->rows * columns,
            .batch_rows = b->rows,
            .chunk_rows = CHUNK_ROWS,
            .issues_max = (uint64_t)1 << 40,
        };
        struct session_matrix matrix = {.rows = b->rows,
                                        .columns = columns,
                                        .dense = x + b->bounds[n] * b->rows,
                                        .stride = b->rows};
        struct session_seed seed = {.matrix = &matrix};
        check(session_new(&settings, NULL, &b->sessions[n], &err), &err);
        check(session_admit(b->sessions[n], &plan, &err), &err);
        check(session_bind(b->sessions[n], &err), &err);
        check(session_load(b->sessions[n], &err), &err);
        check(session_certify(b->sessions[n], &err), &err);
        check(session_seed(b->sessions[n], &seed, &err), &err);
    }
}

/* -- parts of a step ----------------------------------------------------------------------------
 */

static void begin(struct bench *b)
{
    struct err err = {0};
    struct session_batch batch = {.step = b->step++, .rows_count = b->rows};
    for (int n = 0; n < NODES; n++) {
        check(session_step_begin(b->sessions[n], &batch, &err), &err);
    }
}

static void forward(struct bench *b, uint32_t chunk)
{
    struct err err = {0};
    for (int n = 0; n < NODES; n++) {
        check(session_forward(b->sessions[n], chunk, &err), &err);
    }
}

static void wait(struct bench *b, uint32_t chunk, const double *values[NODES])
{
    struct err err = {0};
    for (int n = 0; n < NODES; n++) {
        check(session_forward_wait(b->sessions[n], chunk, &values[n], &err), &err);
    }
}

/* Both halves are one node each, side by side: their sum is the root. */
static void fold(struct bench *b, uint32_t chunk, const double *const values[NODES])
{
    uint64_t first = (uint64_t)chunk * CHUNK_ROWS;
    for (uint32_t i = 0; i < rows_of(b, chunk); i++) {
        double z = canon(values[0][i] + values[1][i]);
        b->residual[first + i] = rn32(squared_residual(z, b->targets[first + i]));
    }
}

static void backward(struct bench *b, uint32_t chunk)
{
    struct err err = {0};
    for (int n = 0; n < NODES; n++) {
        check(session_backward(b->sessions[n], chunk, b->residual + (uint64_t)chunk * CHUNK_ROWS,
                               &err),
              &err);
    }
}

static void update(struct bench *b)
{
    struct err err = {0};
    struct session_hyper hyper = {.rate = 1e-4, .decay = 0.9, .l2 = 1e-3};
    for (int n = 0; n < NODES; n++) {
        check(session_update(b->sessions[n], &hyper, &err), &err);
    }
    for (int n = 0; n < NODES; n++) {
        check(session_step_end(b->sessions[n], &err), &err);
    }
}

static double since(uint64_t *at)
{
    uint64_t now = clock_now_ns();
    double ms = (double)(now - *at) * 1e-6;
    *at = now;
    return ms;
}

enum part { FORWARD, FOLD, BACKWARD, PARTS };

static void in_turn(struct bench *b, double times[PARTS])
{
    const double *values[NODES];
    begin(b);
    uint64_t at = clock_now_ns();
    for (uint32_t chunk = 0; chunk < b->chunks; chunk++) {
        forward(b, chunk);
        wait(b, chunk, values);
    }
    times[FORWARD] = since(&at);
    for (uint32_t chunk = 0; chunk < b->chunks; chunk++) {
        wait(b, chunk, values); /* they are there */
        fold(b, chunk, values);
    }
    times[FOLD] = since(&at);
    for (uint32_t chunk = 0; chunk < b->chunks; chunk++) {
        backward(b, chunk);
    }
    update(b);
    times[BACKWARD] = since(&at);
}

static double together(struct bench *b)
{
    const double *values[NODES];
    uint32_t ahead = session_lookahead(b->sessions[0]);
    uint32_t submitted = 0;
    begin(b);
    uint64_t at = clock_now_ns();
    for (uint32_t chunk = 0; chunk < b->chunks; chunk++) {
        while (submitted < b->chunks && submitted - chunk <= ahead) {
            forward(b, submitted++);
        }
        wait(b, chunk, values);
        fold(b, chunk, values);
    }
    for (uint32_t chunk = 0; chunk < b->chunks; chunk++) {
        backward(b, chunk);
    }
    update(b);
    return since(&at);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

int main(int argc, char **argv)
{
    static double parts[PARTS][STEPS_MAX];
    static double walls[STEPS_MAX];
    static const char *const names[PARTS] = {"forward, values down", "fold on the host",
                                             "residuals up, backward, update"};
    if (argc != 5) {
        (void)fprintf(stderr, "bench_overlap DEVICE ROWS COLUMNS STEPS\n");
        return 2;
    }
    struct bench b = {.rows = strtoull(argv[2], NULL, 10), .columns = strtoull(argv[3], NULL, 10)};
    unsigned steps = (unsigned)strtoul(argv[4], NULL, 10);
    steps = steps < 1 ? 1 : steps > STEPS_MAX ? STEPS_MAX : steps;
    struct rand rand = {7};
    float *x = room(b.rows * b.columns, sizeof(*x));
    uint32_t state = (uint32_t)rand_next(&rand);
    for (uint64_t i = 0; i < b.rows * b.columns; i++) {
        state = state * 1664525U + 1013904223U;
        x[i] = (float)(int32_t)(state & 0xffffff00U) * 0x1p-31F;
    }
    b.targets = room(b.rows, sizeof(*b.targets));
    b.residual = room(b.rows, sizeof(*b.residual));
    for (uint64_t i = 0; i < b.rows; i++) {
        b.targets[i] = (double)(i % 97) * 0.01;
    }
    b.chunks = (uint32_t)((b.rows + CHUNK_ROWS - 1) / CHUNK_ROWS);
    b.bounds[1] = b.columns / 2;
    b.bounds[2] = b.columns;
    open_sessions(&b, argv[1], x);
    for (unsigned warm = 0; warm < 3; warm++) {
        (void)together(&b);
    }
    for (unsigned s = 0; s < steps; s++) {
        double times[PARTS];
        in_turn(&b, times);
        for (int p = 0; p < PARTS; p++) {
            parts[p][s] = times[p];
        }
        walls[s] = together(&b);
    }
    (void)printf("%s: %llu x %llu on %d sessions, %u chunks\n",
                 session_binding(b.sessions[0])->device, (unsigned long long)b.rows,
                 (unsigned long long)b.columns, NODES, b.chunks);
    double sum = 0.0;
    for (int p = 0; p < PARTS; p++) {
        double ms = median(parts[p], steps);
        sum += ms;
        (void)printf("%-32s %8.3f ms\n", names[p], ms);
    }
    double wall = median(walls, steps);
    (void)printf("%-32s %8.3f ms\n%-32s %8.3f ms\n%-32s %8.2f\n", "sum of the parts", sum,
                 "the step", wall, "step / sum", wall / sum);
    for (int n = 0; n < NODES; n++) {
        session_free(b.sessions[n]);
    }
    free(x);
    free(b.targets);
    free(b.residual);
    return 0;
}
