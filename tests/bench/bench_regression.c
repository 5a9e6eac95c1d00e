/* One regression step beside OpenBLAS' two matrix-vector products on the same matrix, same threads,
 * one process. Prints milliseconds, bytes of the matrix a second, and the ratio (issue: at most
 * 1.25).
 *
 *     bench_regression [--rows N] [--columns N] [--threads N] [--seconds S] [--isa NAME] [--chunks]
 *
 * --chunks measures the step in parts, as between nodes (twice through the matrix), without a
 * network. The two take turns, and the fastest of their rounds count, so that other load on the
 * machine hits both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef BENCH_OPENBLAS
#include <cblas.h>
#endif

#include "base/assert.h"
#include "base/clock.h"
#include "base/rand.h"
#include "gpu/gpu.h"
#include "numerics/lane.h"

struct options {
    uint64_t rows;
    uint64_t columns;
    unsigned threads;
    double seconds;
    const char *isa;
    bool chunks;
};

static void parse(struct options *options, int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        if (strcmp(arguments[i], "--chunks") == 0) {
            options->chunks = true;
            continue;
        }
        if (strcmp(arguments[i], "--rows") == 0) {
            options->rows = strtoull(value, NULL, 10);
        } else if (strcmp(arguments[i], "--columns") == 0) {
            options->columns = strtoull(value, NULL, 10);
        } else if (strcmp(arguments[i], "--threads") == 0) {
            options->threads = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(arguments[i], "--seconds") == 0) {
            options->seconds = strtod(value, NULL);
        } else if (strcmp(arguments[i], "--isa") == 0) {
            options->isa = value;
        } else {
            (void)fprintf(stderr, "unknown option '%s'\n", arguments[i]);
            exit(2);
        }
        i++;
    }
}

static const struct session_hyper hyper = {.rate = 1e-6, .decay = 0.9, .l2 = 0.0};

static struct session *open_session(const struct options *options, const float *x,
                                    const double *targets)
{
    struct session_settings settings = {
        .device = "cpu", .threads = options->threads, .isa = options->isa};
    struct session_plan plan = {.coordinate_end = options->columns + 1,
                                .intercept = true,
                                .whole = !options->chunks,
                                .rows = options->rows,
                                .entries = options->rows * options->columns,
                                .batch_rows = options->rows,
                                .chunk_rows = 16 * PANEL_ROWS,
                                .issues_max = 1U << 30};
    struct session_matrix matrix = {
        .rows = options->rows, .columns = options->columns, .dense = x, .stride = options->rows};
    struct session_seed seed = {.matrix = &matrix, .targets = options->chunks ? NULL : targets};
    struct session *session = NULL;
    struct err err = {0};
    int code = session_new(&settings, NULL, &session, &err);
    code = code != 0 ? code : session_admit(session, &plan, &err);
    code = code != 0 ? code : session_bind(session, &err);
    code = code != 0 ? code : session_load(session, &err);
    code = code != 0 ? code : session_certify(session, &err);
    code = code != 0 ? code : session_seed(session, &seed, &err);
    if (code != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return session;
}

static double now_ms(void)
{
    return (double)clock_now_ns() / 1e6;
}

/* The step in parts; the residual is made up, as the fold is another room's. */
static void step_in_parts(struct session *session, const struct options *options,
                          const float *residual, uint64_t step, double *split)
{
    struct session_batch batch = {.step = step, .rows_count = options->rows};
    uint32_t chunks = (uint32_t)((options->rows + 16 * PANEL_ROWS - 1) / (16 * PANEL_ROWS));
    ASSERT(session_step_begin(session, &batch, NULL) == 0);
    double begin = now_ms();
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        const double *values = NULL;
        ASSERT(session_forward(session, chunk, NULL) == 0);
        ASSERT(session_forward_wait(session, chunk, &values, NULL) == 0);
    }
    double middle = now_ms();
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        ASSERT(session_backward(session, chunk, residual + (size_t)chunk * 16 * PANEL_ROWS, NULL) ==
               0);
    }
    ASSERT(session_update(session, &hyper, NULL) == 0);
    ASSERT(session_step_end(session, NULL) == 0);
    double end = now_ms();
    split[0] = middle - begin < split[0] ? middle - begin : split[0];
    split[1] = end - middle < split[1] ? end - middle : split[1];
}

static void local_step(struct session *session, const struct options *options, uint64_t step)
{
    struct session_batch batch = {.step = step, .rows_count = options->rows};
    const double *losses = NULL;
    size_t panels = 0;
    struct err err = {0};
    int code = session_local_step(session, &batch, &hyper, &err);
    code = code != 0 ? code : session_local_wait(session, &losses, &panels, &err);
    if (code != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

int main(int count, char **arguments)
{
    struct options options = {.rows = 400000, .columns = 512, .threads = 2, .seconds = 10.0};
    parse(&options, count, arguments);
    size_t rows = (size_t)options.rows;
    size_t entries = rows * (size_t)options.columns;
    float *x = malloc(entries * sizeof(float));
    double *targets = calloc(rows, sizeof(double));
    float *z = calloc(rows, sizeof(float));
    float *w = calloc((size_t)options.columns, sizeof(float));
    ASSERT(x != NULL);
    ASSERT(targets != NULL);
    ASSERT(z != NULL);
    ASSERT(w != NULL);
    struct rand rand = {1};
    for (size_t i = 0; i < entries; i++) {
        x[i] = (float)(rand_next(&rand) >> 40) / 8388608.0F - 1.0F;
    }
    for (size_t i = 0; i < rows; i++) {
        targets[i] = (double)(i % 7) - 3.0;
    }
    struct session *session = open_session(&options, x, targets);
    (void)printf("%zu x %llu f32 (%.2f GB), %s\n", rows, (unsigned long long)options.columns,
                 (double)entries * 4e-9, session_binding(session)->device);
    double ours = 1e300;
    double blas = 1e300;
    double split[2] = {1e300, 1e300};
    uint64_t step = 0;
    for (double begin = now_ms(); now_ms() - begin < options.seconds * 1e3 || step < 3; step++) {
        double at = now_ms();
        if (options.chunks) {
            step_in_parts(session, &options, z, step, split);
        } else {
            local_step(session, &options, step);
        }
        double took = now_ms() - at;
        ours = took < ours ? took : ours;
#ifdef BENCH_OPENBLAS
        openblas_set_num_threads((int)options.threads);
        at = now_ms();
        cblas_sgemv(CblasColMajor, CblasNoTrans, (int)rows, (int)options.columns, 1.0F, x,
                    (int)rows, w, 1, 0.0F, z, 1);
        cblas_sgemv(CblasColMajor, CblasTrans, (int)rows, (int)options.columns, 1.0F, x, (int)rows,
                    z, 1, 0.0F, w, 1);
        took = now_ms() - at;
        blas = took < blas ? took : blas;
#endif
    }
    double bytes = (double)entries * 4.0;
    (void)printf("our step     %9.3f ms   %7.2f GB/s of matrix, %llu rounds\n", ours,
                 bytes / ours / 1e6, (unsigned long long)step);
    if (options.chunks) {
        (void)printf("  forward    %9.3f ms   %7.2f GB/s\n  backward   %9.3f ms   %7.2f GB/s\n",
                     split[0], bytes / split[0] / 1e6, split[1], bytes / split[1] / 1e6);
    }
#ifdef BENCH_OPENBLAS
    (void)printf("2 sgemv      %9.3f ms   %7.2f GB/s a pass\nratio        %9.3f\n", blas,
                 2.0 * bytes / blas / 1e6, ours / blas);
#else
    (void)blas;
    (void)printf("built without OpenBLAS: no ratio\n");
#endif
    session_free(session);
    free(x);
    free(targets);
    free(z);
    free(w);
    return 0;
}
