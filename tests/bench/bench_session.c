/* Time of a training step by the session's own doors (what a job waits for), local steps in flight.
 *
 *   bench_session DEVICE ROWS COLUMNS DENSITY STEPS [BATCH]     DENSITY 1: dense
 *
 * Prints one line: shape, time of loading, time a step (the median of seven runs), bytes of the
 * matrix a step. Values are random; the rate keeps them small. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rand.h"
#include "gpu/gpu.h"

static void die(const struct err *err)
{
    (void)fprintf(stderr, "bench_session: %s\n", err->text);
    exit(err_exit_status(err->code));
}

static void *room(size_t count, size_t size)
{
    void *memory = malloc(count * size + 1);
    if (memory == NULL) {
        (void)fprintf(stderr, "bench_session: no memory\n");
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

static uint64_t entries_of(struct session_matrix *matrix, double density, struct rand *rand)
{
    uint64_t rows = matrix->rows;
    uint64_t columns = matrix->columns;
    if (density >= 1.0) {
        float *x = room(rows * columns, sizeof(float));
        uint32_t state = (uint32_t)rand_next(rand);
        for (uint64_t i = 0; i < rows * columns; i++) {
            state = state * 1664525U + 1013904223U;
            x[i] = (float)(int32_t)(state & 0xffffff00U) * 0x1p-31F;
        }
        matrix->dense = x;
        matrix->stride = rows;
        return rows * columns;
    }
    matrix->storage = SESSION_CSC;
    uint64_t gap = (uint64_t)(2.0 / density) - 1;
    uint64_t most = (uint64_t)((double)(rows * columns) * density * 1.2) + 1000;
    uint64_t *starts = room(columns + 1, sizeof(*starts));
    uint32_t *row = room(most, sizeof(*row));
    float *value = room(most, sizeof(*value));
    uint64_t entries = 0;
    for (uint64_t j = 0; j < columns; j++) {
        starts[j] = entries;
        for (uint64_t i = rand_below(rand, gap); i < rows && entries < most;
             i += 1 + rand_below(rand, gap)) {
            row[entries] = (uint32_t)i;
            value[entries] = (float)(rand_next(rand) >> 40) * 0x1p-24F - 0.5F;
            entries++;
        }
    }
    starts[columns] = entries;
    matrix->starts = starts;
    matrix->row = row;
    matrix->value = value;
    return entries;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        (void)fprintf(stderr, "bench_session DEVICE ROWS COLUMNS DENSITY STEPS [BATCH]\n");
        return 2;
    }
    struct err err = {0};
    struct rand rand = {42};
    struct session_matrix matrix = {.rows = strtoull(argv[2], NULL, 10),
                                    .columns = strtoull(argv[3], NULL, 10)};
    double density = strtod(argv[4], NULL);
    uint64_t steps = strtoull(argv[5], NULL, 10);
    uint64_t entries = entries_of(&matrix, density, &rand);
    double *targets = room(matrix.rows, sizeof(*targets));
    for (uint64_t i = 0; i < matrix.rows; i++) {
        targets[i] = (double)(i % 97) * 0.01;
    }
    struct session_settings settings = {.device = argv[1]};
    struct session_plan plan = {
        .coordinate_end = matrix.columns + 1,
        .intercept = true,
        .whole = true,
        .storage = matrix.storage,
        .rows = matrix.rows,
        .entries = entries,
        .batch_rows = argc > 6 ? strtoull(argv[6], NULL, 10) : matrix.rows,
        .chunk_rows = 32768,
        .issues_max = (uint64_t)1 << 40,
    };
    struct session_seed seed = {.matrix = &matrix, .targets = targets};
    struct session_hyper hyper = {.rate = 1e-4, .decay = 0.9, .l2 = 1e-3};
    struct session *session = NULL;
    int code = session_new(&settings, NULL, &session, &err);
    code = code != 0 ? code : session_admit(session, &plan, &err);
    code = code != 0 ? code : session_bind(session, &err);
    code = code != 0 ? code : session_load(session, &err);
    code = code != 0 ? code : session_certify(session, &err);
    uint64_t begin_ns = clock_now_ns();
    code = code != 0 ? code : session_seed(session, &seed, &err);
    double load_s = (double)(clock_now_ns() - begin_ns) * 1e-9;
    if (code != 0) {
        die(&err);
    }
    uint64_t batches = (matrix.rows + plan.batch_rows - 1) / plan.batch_rows;
    double times[7];
    double loss = 0.0;
    uint64_t step = 0;
    for (int run = -1; run < 7; run++) { /* run -1 warms up */
        uint64_t done = 0;
        uint64_t in_flight = 0;
        begin_ns = clock_now_ns();
        for (uint64_t s = 0; done < steps;) {
            while (s < steps && in_flight < session_local_depth(session)) {
                uint64_t first = step % batches * plan.batch_rows;
                uint64_t left = matrix.rows - first;
                struct session_batch batch = {.step = step,
                                              .row_first = first,
                                              .rows_count =
                                                  left < plan.batch_rows ? left : plan.batch_rows};
                if (session_local_step(session, &batch, &hyper, &err) != 0) {
                    die(&err);
                }
                s++;
                step++;
                in_flight++;
            }
            const double *losses = NULL;
            size_t panels = 0;
            if (session_local_wait(session, &losses, &panels, &err) != 0) {
                die(&err);
            }
            loss = losses[0];
            in_flight--;
            done++;
        }
        if (run >= 0) {
            times[run] = (double)(clock_now_ns() - begin_ns) * 1e-3 / (double)steps;
        }
    }
    qsort(times, 7, sizeof(times[0]), compare);
    (void)printf(
        "%s: %llu x %llu, density %g (%llu entries), batch %llu: load %.2f s, step %.2f us "
        "(%.2f to %.2f), %.2f ns a thousand entries, first panel's loss %a\n",
        session_binding(session)->device, (unsigned long long)matrix.rows,
        (unsigned long long)matrix.columns, density, (unsigned long long)entries,
        (unsigned long long)plan.batch_rows, load_s, times[3], times[0], times[6],
        times[3] * 1e6 / (double)entries, loss);
    session_free(session);
    return 0;
}
