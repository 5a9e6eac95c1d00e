#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "learn/learn.h"
#include "numerics/nodes.h"
#include "tests/lib/unit.h"

/* Each range is within 12 % of the mean weight or within one coordinate of it, none is empty. */
static void check_balance(const struct partition_settings *settings, const uint64_t *bounds)
{
    uint64_t total = 0;
    uint64_t heaviest = 1;
    for (uint64_t j = 0; j < settings->columns; j++) {
        uint64_t weight = settings->weights != NULL ? settings->weights[j] : 1;
        total += weight;
        heaviest = weight > heaviest ? weight : heaviest;
    }
    double mean = (double)total / settings->participants;
    double slack = 0.12 * mean > (double)heaviest ? 0.12 * mean : (double)heaviest;
    ck_assert_uint_eq(bounds[0], 0);
    ck_assert_uint_eq(bounds[settings->participants],
                      settings->columns + (settings->intercept ? 1 : 0));
    for (uint32_t p = 0; p < settings->participants; p++) {
        ck_assert_uint_lt(bounds[p], bounds[p + 1]);
        double weight = 0.0;
        for (uint64_t j = bounds[p]; j < bounds[p + 1] && j < settings->columns; j++) {
            weight += settings->weights != NULL ? (double)settings->weights[j] : 1.0;
        }
        ck_assert(weight <= mean + slack + 1e-6);
        ck_assert(weight >= mean - slack - 1e-6);
    }
}

START_TEST(dense_ranges_are_balanced_for_every_size)
{
    uint64_t bounds[LEARN_PARTICIPANTS_MAX + 1];
    for (uint32_t participants = 1; participants <= 9; participants++) {
        for (uint64_t columns = participants; columns < 700; columns++) {
            struct partition_settings settings = {
                .columns = columns, .intercept = columns % 2 == 0, .participants = participants};
            ck_assert_int_eq(partition_cut(&settings, bounds, NULL), 0);
            check_balance(&settings, bounds);
        }
    }
}
END_TEST

START_TEST(sparse_ranges_are_balanced_by_non_zeros)
{
    struct rand rand = {7};
    uint64_t weights[900];
    uint64_t bounds[9];
    for (unsigned round = 0; round < 300; round++) {
        struct partition_settings settings = {.columns = 300 + rand_below(&rand, 600),
                                              .intercept = true,
                                              .participants = 1 + (uint32_t)rand_below(&rand, 8),
                                              .weights = weights};
        uint64_t bound = 1 + rand_below(&rand, 50);
        for (uint64_t j = 0; j < settings.columns; j++) {
            weights[j] = rand_below(&rand, bound);
        }
        weights[0] = 1;
        ck_assert_int_eq(partition_cut(&settings, bounds, NULL), 0);
        check_balance(&settings, bounds);
    }
}
END_TEST

START_TEST(cuts_are_aligned_where_the_balance_allows)
{
    uint64_t bounds[5];
    struct partition_settings settings = {.columns = 1000, .intercept = true, .participants = 4};
    ck_assert_int_eq(partition_cut(&settings, bounds, NULL), 0);
    ck_assert_uint_eq(bounds[1], 256);
    ck_assert_uint_eq(bounds[2], 512);
    ck_assert_uint_eq(bounds[3], 736); /* 768 would be 7 % of a range off */
    struct node nodes[NODES_MAX];
    ck_assert_uint_eq(nodes_cover(bounds[0], bounds[1], nodes), 1);
    ck_assert_uint_eq(nodes_cover(bounds[1], bounds[2], nodes), 1);
    settings.participants = 2;
    ck_assert_int_eq(partition_cut(&settings, bounds, NULL), 0);
    ck_assert_uint_eq(bounds[1], 512);
}
END_TEST

START_TEST(the_intercept_belongs_to_the_last_range_and_may_be_alone_there)
{
    uint64_t bounds[5];
    struct partition_settings settings = {.columns = 3, .intercept = true, .participants = 4};
    ck_assert_int_eq(partition_cut(&settings, bounds, NULL), 0);
    for (uint64_t p = 0; p <= 4; p++) {
        ck_assert_uint_eq(bounds[p], p);
    }
}
END_TEST

START_TEST(more_nodes_than_coordinates_are_refused_with_the_numbers)
{
    uint64_t bounds[9];
    struct err err = {0};
    struct partition_settings settings = {.columns = 3, .intercept = true, .participants = 5};
    ck_assert_int_eq(partition_cut(&settings, bounds, &err), ERR_JOB);
    ck_assert_str_eq(err.text, "4 coordinates cannot be given to 5 nodes; give 1 to 4 nodes");
    settings.participants = 0;
    ck_assert_int_eq(partition_cut(&settings, bounds, &err), ERR_JOB);
    settings.columns = 0;
    ck_assert_int_eq(partition_cut(&settings, bounds, &err), ERR_JOB);
    uint64_t weights[] = {UINT64_MAX, 1, 1};
    settings = (struct partition_settings){.columns = 3, .participants = 2, .weights = weights};
    ck_assert_int_eq(partition_cut(&settings, bounds, &err), ERR_JOB);
}
END_TEST

START_TEST(a_matrix_of_zeros_is_cut_by_columns)
{
    uint64_t bounds[3];
    uint64_t weights[8] = {0};
    struct partition_settings settings = {.columns = 8, .participants = 2, .weights = weights};
    ck_assert_int_eq(partition_cut(&settings, bounds, NULL), 0);
    ck_assert_uint_eq(bounds[1], 4);
}
END_TEST

START_TEST(steps_go_round_the_batches_and_the_short_one_is_used)
{
    struct learn_schedule schedule;
    ck_assert_int_eq(learn_schedule_init(&schedule, 10000, 3000, 9, 2, NULL), 0);
    static const uint64_t first[] = {0, 3000, 6000, 9000, 0};
    static const uint64_t count[] = {3000, 3000, 3000, 1000, 3000};
    for (uint64_t step = 0; step < 5; step++) {
        struct session_batch batch;
        learn_batch(&schedule, step, &batch);
        ck_assert_uint_eq(batch.row_first, first[step]);
        ck_assert_uint_eq(batch.rows_count, count[step]);
        ck_assert(!batch.evaluate);
    }
    ck_assert_uint_eq(learn_steps_of_passes(10000, 3000, 3), 12);
    ck_assert_uint_eq(learn_steps_of_passes(10000, 0, 3), 3);
    ck_assert_uint_eq(learn_steps_of_passes(10000, 1, UINT64_MAX / 2), 0);
}
END_TEST

START_TEST(chunks_cover_every_step_and_window_exactly)
{
    struct rand rand = {11};
    for (unsigned round = 0; round < 2000; round++) {
        struct learn_schedule schedule;
        uint64_t rows = 1 + rand_below(&rand, 300000);
        uint64_t batch_rows = rand_below(&rand, rows + 1);
        uint32_t participants = 1 + (uint32_t)rand_below(&rand, 8);
        ck_assert_int_eq(learn_schedule_init(&schedule, rows, batch_rows, 3, participants, NULL),
                         0);
        ck_assert_uint_eq(schedule.chunk_rows % 2048, 0);
        uint64_t evaluated = 0;
        for (uint64_t step = 0; step < 3 + schedule.windows_count; step++) {
            struct session_batch batch;
            learn_batch(&schedule, step, &batch);
            uint32_t chunks = learn_chunks_count(&schedule, step);
            ck_assert_uint_le(chunks, schedule.chunks_max);
            uint64_t sum = 0;
            for (uint32_t chunk = 0; chunk < chunks; chunk++) {
                uint32_t size = learn_chunk_rows(&schedule, step, chunk);
                ck_assert_uint_gt(size, 0);
                ck_assert(chunk + 1 == chunks || size == schedule.chunk_rows);
                sum += size;
            }
            ck_assert_uint_eq(sum, batch.rows_count);
            evaluated += step >= 3 ? batch.rows_count : 0;
        }
        ck_assert_uint_eq(evaluated, rows);
    }
}
END_TEST

START_TEST(the_issues_of_a_run_are_those_of_its_steps)
{
    struct rand rand = {13};
    double targets[1] = {0.0};
    for (unsigned round = 0; round < 500; round++) {
        struct learn_settings settings = {.columns = 5,
                                          .rate = 0.1,
                                          .participants = 1 + (uint32_t)rand_below(&rand, 3),
                                          .targets = targets};
        uint64_t bounds[] = {0, 1, 2, 3};
        bounds[settings.participants] = 5;
        settings.bounds = bounds;
        uint64_t rows = 1 + rand_below(&rand, 90000);
        ck_assert_int_eq(learn_schedule_init(&settings.schedule, rows, rand_below(&rand, rows + 1),
                                             40, settings.participants, NULL),
                         0);
        double *all = calloc((size_t)rows, sizeof(double));
        settings.targets = all;
        struct learner *learner = NULL;
        ck_assert_int_eq(learner_regression.make(&settings, &learner, NULL), 0);
        uint64_t first = rand_below(&rand, 40);
        uint64_t end = first + rand_below(&rand, 41 - first);
        uint64_t issues = 0;
        for (uint64_t step = first; step < end; step++) {
            issues += settings.participants == 1
                          ? 1
                          : 2 * (uint64_t)learn_chunks_count(&settings.schedule, step) + 1;
        }
        ck_assert_uint_eq(learner_regression.issues(learner, first, end, false), issues);
        for (uint64_t w = 0; w < settings.schedule.windows_count; w++) {
            issues +=
                settings.participants == 1 ? 1 : learn_chunks_count(&settings.schedule, 40 + w);
        }
        ck_assert_uint_eq(learner_regression.issues(learner, first, end, true), issues);
        learner_regression.free(learner);
        free(all);
    }
}
END_TEST

START_TEST(settings_that_make_no_sense_are_refused)
{
    double targets[2] = {0.0, 0.0};
    uint64_t bounds[] = {0, 2, 4};
    struct learn_settings good = {.columns = 3,
                                  .intercept = true,
                                  .rate = 0.1,
                                  .participants = 2,
                                  .bounds = bounds,
                                  .targets = targets};
    ck_assert_int_eq(learn_schedule_init(&good.schedule, 2, 0, 1, 2, NULL), 0);
    struct learner *learner = NULL;
    struct err err = {0};
    ck_assert_int_eq(learner_regression.make(&good, &learner, &err), 0);
    learner_regression.free(learner);
    struct learn_settings bad = good;
    bad.rate = -1.0;
    ck_assert_int_eq(learner_regression.make(&bad, &learner, &err), ERR_JOB);
    ck_assert(strstr(err.text, "rate = -1") != NULL);
    bad = good;
    bad.columns = 4;
    ck_assert_int_eq(learner_regression.make(&bad, &learner, &err), ERR_JOB);
    bad = good;
    bad.rank = 2;
    ck_assert_int_eq(learner_regression.make(&bad, &learner, &err), ERR_JOB);
    targets[1] = (double)INFINITY;
    ck_assert_int_eq(learner_regression.make(&good, &learner, &err), ERR_DATA);
    ck_assert_str_eq(err.text, "the target of training row 1 is not finite");
    ck_assert(learner_find("regression") == &learner_regression);
    ck_assert(learner_find("regressions") == NULL);
    struct learn_schedule schedule;
    ck_assert_int_eq(learn_schedule_init(&schedule, 0, 0, 1, 1, &err), ERR_JOB);
    ck_assert_int_eq(learn_schedule_init(&schedule, 1, 0, 0, 1, &err), ERR_JOB);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("partition");
    TCase *tcase = tcase_create("partition and schedule");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, dense_ranges_are_balanced_for_every_size);
    tcase_add_test(tcase, sparse_ranges_are_balanced_by_non_zeros);
    tcase_add_test(tcase, cuts_are_aligned_where_the_balance_allows);
    tcase_add_test(tcase, the_intercept_belongs_to_the_last_range_and_may_be_alone_there);
    tcase_add_test(tcase, more_nodes_than_coordinates_are_refused_with_the_numbers);
    tcase_add_test(tcase, a_matrix_of_zeros_is_cut_by_columns);
    tcase_add_test(tcase, steps_go_round_the_batches_and_the_short_one_is_used);
    tcase_add_test(tcase, chunks_cover_every_step_and_window_exactly);
    tcase_add_test(tcase, the_issues_of_a_run_are_those_of_its_steps);
    tcase_add_test(tcase, settings_that_make_no_sense_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
