#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "tests/lib/cluster.h"
#include "tests/lib/reference.h"
#include "tests/lib/unit.h"

/* One random job and its result by the slow transcription. */
struct random_case {
    struct reference_job reference;
    struct cluster_job job;
    float *x; /* rows first */
    double *y;
    float *dense; /* columns first */
    uint64_t *starts;
    uint32_t *row;
    float *value;
    double *w, *acc, *losses; /* the transcription's */
    double *parameter, *accumulator, *told;
    size_t done;
};

static double uniform(struct rand *rand)
{
    return (double)(rand_next(rand) >> 11) / 9007199254740992.0 * 2.0 - 1.0;
}

/* Values of every kind that a file can hold. */
static float draw_value(struct rand *rand, unsigned kind)
{
    switch (kind) {
    case 0:
        return rand_below(rand, 10) < 9 ? 0.0F : (float)uniform(rand); /* sparse */
    case 1:
        return (float)(uniform(rand) * 0x1p-130); /* subnormal or nearly so */
    case 2:
        return (float)(uniform(rand) * 0x1p60); /* huge */
    case 3:
        return 0.0F; /* a column of zeros */
    case 4:
        return 1.5F; /* a constant one */
    default:
        return (float)uniform(rand);
    }
}

static void make_matrix(struct random_case *c, struct rand *rand, unsigned kinds)
{
    size_t rows = c->reference.rows;
    size_t columns = c->reference.features;
    c->x = calloc(rows * columns, sizeof(float));
    c->y = calloc(rows, sizeof(double));
    size_t stride = rows + (size_t)rand_below(rand, 5);
    c->dense = calloc(stride * columns, sizeof(float));
    c->starts = calloc(columns + 1, sizeof(uint64_t));
    c->row = calloc(rows * columns + 1, sizeof(uint32_t));
    c->value = calloc(rows * columns + 1, sizeof(float));
    uint64_t entries = 0;
    for (size_t j = 0; j < columns; j++) {
        unsigned kind = kinds == 0 ? 5 : (unsigned)rand_below(rand, kinds);
        c->starts[j] = entries;
        for (size_t i = 0; i < rows; i++) {
            float value = draw_value(rand, kind);
            c->x[i * columns + j] = value;
            c->dense[j * stride + i] = value;
            if (value != 0.0F) {
                c->row[entries] = (uint32_t)i;
                c->value[entries] = value;
                entries++;
            }
        }
    }
    c->starts[columns] = entries;
    for (size_t i = 0; i < rows; i++) {
        c->y[i] = uniform(rand) * 3.0;
    }
    c->job.dense = (struct session_matrix){.storage = SESSION_DENSE,
                                           .rows = rows,
                                           .columns = columns,
                                           .dense = c->dense,
                                           .stride = stride};
    c->job.csc = (struct session_matrix){.storage = SESSION_CSC,
                                         .rows = rows,
                                         .columns = columns,
                                         .starts = c->starts,
                                         .row = c->row,
                                         .value = c->value};
}

static void make_case(struct random_case *c, struct rand *rand, size_t rows, size_t columns,
                      unsigned kinds)
{
    memset(c, 0, sizeof(*c));
    c->reference = (struct reference_job){
        .rows = rows,
        .features = columns,
        .intercept = rand_below(rand, 4) != 0,
        .rate = 0.05,
        .decay = 0.9,
        .l2 = rand_below(rand, 2) == 0 ? 0.0 : 0.01,
        .batch = (size_t)rand_below(rand, rows + 1),
        .steps = 1 + (size_t)rand_below(rand, 6),
    };
    if (kinds > 2) { /* huge values need a small rate to stay in range */
        c->reference.rate = 0x1p-130;
    }
    make_matrix(c, rand, kinds);
    c->reference.x = c->x;
    c->reference.y = c->y;
    size_t coordinates = columns + 1;
    c->w = calloc(coordinates, sizeof(double));
    c->acc = calloc(coordinates, sizeof(double));
    c->losses = calloc(c->reference.steps, sizeof(double));
    c->parameter = calloc(coordinates, sizeof(double));
    c->accumulator = calloc(coordinates, sizeof(double));
    c->told = calloc(c->reference.steps, sizeof(double));
    c->job.targets = c->y;
    c->job.intercept = c->reference.intercept;
    c->job.rate = c->reference.rate;
    c->job.decay = c->reference.decay;
    c->job.l2 = c->reference.l2;
    c->job.batch = c->reference.batch;
    c->job.steps = c->reference.steps;
    c->done = reference_train(&c->reference, c->w, c->acc, c->losses);
}

static void free_case(struct random_case *c)
{
    free(c->x);
    free(c->y);
    free(c->dense);
    free(c->starts);
    free(c->row);
    free(c->value);
    free(c->w);
    free(c->acc);
    free(c->losses);
    free(c->parameter);
    free(c->accumulator);
    free(c->told);
}

/* Runs the job as it is set and compares every bit. */
static void check_case(struct random_case *c, uint64_t seed)
{
    struct cluster_result result = {
        .parameter = c->parameter, .accumulator = c->accumulator, .losses = c->told};
    struct err err = {0};
    int code = cluster_run(&c->job, &result, &err);
    char what[1024];
    (void)snprintf(what, sizeof(what),
                   "seed %llu: %zu x %zu, intercept %d, batch %zu, steps %zu, %s, %u nodes, %u "
                   "threads, %s: %s",
                   (unsigned long long)seed, c->reference.rows, c->reference.features,
                   c->reference.intercept, c->reference.batch, c->reference.steps,
                   c->job.storage == SESSION_DENSE ? "dense" : "csc", c->job.nodes, c->job.threads,
                   c->job.isa, err.text);
    if (c->done < c->reference.steps) {
        ck_assert_msg(code == ERR_DIVERGED, "%s", what);
        return;
    }
    size_t vector = (c->reference.features + (c->reference.intercept ? 1 : 0)) * sizeof(double);
    ck_assert_msg(code == 0, "%s", what);
    ck_assert_msg(memcmp(c->told, c->losses, c->reference.steps * sizeof(double)) == 0,
                  "%s: losses differ", what);
    ck_assert_msg(memcmp(c->parameter, c->w, vector) == 0, "%s: parameters differ", what);
    ck_assert_msg(memcmp(c->accumulator, c->acc, vector) == 0, "%s: accumulators differ", what);
}

static const char *const isas[] = {"plain", "avx2", "avx512"};

/* The ways to compute that this machine has, drawn. */
static void draw_way(struct random_case *c, struct rand *rand)
{
    size_t coordinates = c->reference.features + (c->reference.intercept ? 1 : 0);
    uint64_t most = coordinates < 4 ? coordinates : 4;
    c->job.nodes = 1 + (uint32_t)rand_below(rand, most);
    static const unsigned threads[] = {1, 2, 4};
    c->job.threads = threads[rand_below(rand, 3)];
    c->job.storage = rand_below(rand, 2) == 0 ? SESSION_DENSE : SESSION_CSC;
    c->job.jitter = rand_below(rand, 2) == 0 ? 0 : 1 + rand_below(rand, 1000);
    struct session_settings settings = {.device = "cpu", .threads = 1};
    for (;;) {
        c->job.isa = isas[rand_below(rand, 3)];
        settings.isa = c->job.isa;
        struct session_plan plan = {
            .coordinate_end = 1, .intercept = true, .rows = 1, .batch_rows = 1, .chunk_rows = 2048};
        struct session *session = NULL;
        ck_assert_int_eq(session_new(&settings, NULL, &session, NULL), 0);
        ck_assert_int_eq(session_admit(session, &plan, NULL), 0);
        int code = session_bind(session, NULL);
        session_free(session);
        if (code == 0) {
            return;
        }
    }
}

static void check_shapes(uint64_t first_seed, unsigned count, size_t rows_max, size_t columns_max,
                         unsigned kinds)
{
    for (unsigned i = 0; i < count; i++) {
        struct rand rand = {first_seed + i};
        struct random_case c;
        size_t rows = 1 + (size_t)rand_below(&rand, rows_max);
        size_t columns = 1 + (size_t)rand_below(&rand, columns_max);
        make_case(&c, &rand, rows, columns, kinds);
        for (unsigned way = 0; way < 4; way++) {
            draw_way(&c, &rand);
            check_case(&c, first_seed + i);
        }
        free_case(&c);
    }
}

START_TEST(small_shapes_have_the_transcriptions_bits)
{
    check_shapes(1000, 120, 40, 20, 0);
}
END_TEST

START_TEST(wide_shapes_have_the_transcriptions_bits)
{
    check_shapes(2000, 20, 300, 700, 0);
}
END_TEST

START_TEST(tall_shapes_have_the_transcriptions_bits)
{
    check_shapes(3000, 16, 20000, 12, 0);
}
END_TEST

START_TEST(subnormal_and_sparse_values_have_the_transcriptions_bits)
{
    check_shapes(4000, 60, 300, 40, 2);
}
END_TEST

START_TEST(huge_zero_and_constant_columns_have_the_transcriptions_bits)
{
    check_shapes(5000, 60, 300, 40, 6);
}
END_TEST

START_TEST(every_batch_remainder_of_a_strip_and_a_lane_has_the_same_bits)
{
    for (size_t batch = 1; batch <= 260; batch += batch < 40 ? 1 : 13) {
        struct rand rand = {batch};
        struct random_case c;
        make_case(&c, &rand, 261, 5, 0);
        c.reference.batch = batch;
        c.reference.steps = 3;
        c.job.batch = batch;
        c.job.steps = 3;
        free(c.losses);
        free(c.told);
        c.losses = calloc(3, sizeof(double));
        c.told = calloc(3, sizeof(double));
        memset(c.w, 0, 6 * sizeof(double));
        memset(c.acc, 0, 6 * sizeof(double));
        c.done = reference_train(&c.reference, c.w, c.acc, c.losses);
        draw_way(&c, &rand);
        check_case(&c, batch);
        free_case(&c);
    }
}
END_TEST

START_TEST(any_cuts_give_the_same_bits)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rand rand = {seed};
        struct random_case c;
        make_case(&c, &rand, 50, 33, 0);
        draw_way(&c, &rand);
        uint64_t coordinates = 33 + (c.reference.intercept ? 1 : 0);
        uint64_t bounds[5] = {0};
        c.job.nodes = 2 + (uint32_t)rand_below(&rand, 3);
        for (uint32_t p = 1; p < c.job.nodes; p++) { /* strictly ascending */
            uint64_t room = coordinates - bounds[p - 1] - (c.job.nodes - p);
            bounds[p] = bounds[p - 1] + 1 + rand_below(&rand, room);
        }
        bounds[c.job.nodes] = coordinates;
        c.job.bounds = bounds;
        check_case(&c, seed);
        free_case(&c);
    }
}
END_TEST

START_TEST(stopping_and_going_on_gives_the_bits_of_going_through)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct rand rand = {seed};
        struct random_case c;
        make_case(&c, &rand, 300, 9, 0);
        c.job.steps = c.reference.steps = 12;
        c.job.batch = c.reference.batch = 70;
        free(c.losses);
        free(c.told);
        c.losses = calloc(12, sizeof(double));
        c.told = calloc(12, sizeof(double));
        memset(c.w, 0, 10 * sizeof(double));
        memset(c.acc, 0, 10 * sizeof(double));
        c.done = reference_train(&c.reference, c.w, c.acc, c.losses);
        double parameter[10];
        double accumulator[10];
        uint64_t stop = 1 + rand_below(&rand, 11);
        draw_way(&c, &rand);
        struct cluster_result half = {
            .parameter = parameter, .accumulator = accumulator, .losses = c.told};
        struct err err = {0};
        c.job.end_step = stop;
        ck_assert_msg(cluster_run(&c.job, &half, &err) == 0, "%s", err.text);
        ck_assert_uint_eq(half.done, stop);
        draw_way(&c, &rand); /* at another number of nodes, another way */
        c.job.end_step = 0;
        c.job.first_step = stop;
        c.job.parameter = parameter;
        c.job.accumulator = accumulator;
        struct cluster_result rest = {
            .parameter = c.parameter, .accumulator = c.accumulator, .losses = c.told + stop};
        ck_assert_msg(cluster_run(&c.job, &rest, &err) == 0, "%s", err.text);
        size_t vector = (9 + (c.reference.intercept ? 1U : 0U)) * sizeof(double);
        ck_assert(memcmp(c.told, c.losses, 12 * sizeof(double)) == 0);
        ck_assert(memcmp(c.parameter, c.w, vector) == 0);
        ck_assert(memcmp(c.accumulator, c.acc, vector) == 0);
        free_case(&c);
    }
}
END_TEST

START_TEST(the_objective_does_not_depend_on_the_nodes_and_is_what_the_formula_says)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct rand rand = {seed};
        struct random_case c;
        make_case(&c, &rand, 5000, 9, 0);
        double first = 0.0;
        for (unsigned way = 0; way < 5; way++) {
            draw_way(&c, &rand);
            struct cluster_result result = {
                .parameter = c.parameter, .accumulator = c.accumulator, .losses = c.told};
            struct err err = {0};
            ck_assert_msg(cluster_run(&c.job, &result, &err) == 0, "%s", err.text);
            if (way == 0) {
                first = result.objective;
            }
            ck_assert(memcmp(&first, &result.objective, sizeof(double)) == 0);
        }
        double *z = calloc(5000, sizeof(double));
        reference_forward(&c.reference, c.w, 0, 5000, z);
        double objective = 0.0;
        for (size_t i = 0; i < 5000; i++) {
            objective += 0.5 * (z[i] - c.y[i]) * (z[i] - c.y[i]) / 5000.0;
        }
        for (size_t j = 0; j < 9; j++) {
            objective += 0.5 * c.reference.l2 * c.w[j] * c.w[j];
        }
        ck_assert(fabs(objective - first) <= 1e-12 * fabs(objective));
        free(z);
        free_case(&c);
    }
}
END_TEST

START_TEST(predictions_have_the_transcriptions_bits)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rand rand = {seed};
        struct random_case c;
        make_case(&c, &rand, 1 + (size_t)rand_below(&rand, 3000), 1 + (size_t)rand_below(&rand, 50),
                  0);
        draw_way(&c, &rand);
        size_t rows = c.reference.rows;
        double *z = calloc(rows, sizeof(double));
        double *prediction = calloc(rows, sizeof(double));
        reference_forward(&c.reference, c.w, 0, rows, z);
        struct session_settings settings = {
            .device = "cpu", .threads = c.job.threads, .isa = c.job.isa};
        struct err err = {0};
        const struct session_matrix *forms[] = {&c.job.dense, &c.job.csc};
        for (unsigned form = 0; form < 2; form++) {
            memset(prediction, 0xff, rows * sizeof(double));
            int code =
                learn_predict(&settings, forms[form], c.reference.intercept, c.w, prediction, &err);
            ck_assert_msg(code == 0, "%s", err.text);
            ck_assert(memcmp(z, prediction, rows * sizeof(double)) == 0);
        }
        free(z);
        free(prediction);
        free_case(&c);
    }
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("random");
    TCase *tcase = tcase_create("random");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, small_shapes_have_the_transcriptions_bits);
    tcase_add_test(tcase, wide_shapes_have_the_transcriptions_bits);
    tcase_add_test(tcase, tall_shapes_have_the_transcriptions_bits);
    tcase_add_test(tcase, subnormal_and_sparse_values_have_the_transcriptions_bits);
    tcase_add_test(tcase, huge_zero_and_constant_columns_have_the_transcriptions_bits);
    tcase_add_test(tcase, every_batch_remainder_of_a_strip_and_a_lane_has_the_same_bits);
    tcase_add_test(tcase, any_cuts_give_the_same_bits);
    tcase_add_test(tcase, stopping_and_going_on_gives_the_bits_of_going_through);
    tcase_add_test(tcase, the_objective_does_not_depend_on_the_nodes_and_is_what_the_formula_says);
    tcase_add_test(tcase, predictions_have_the_transcriptions_bits);
    suite_add_tcase(suite, tcase);
    return suite;
}
