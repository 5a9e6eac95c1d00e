#include <stdlib.h>

#include "daemon/core.h"
#include "tests/lib/unit.h"

static struct daemon *daemon_new(void)
{
    struct daemon *made = calloc(1, sizeof(*made));
    ck_assert_ptr_nonnull(made);
    return made;
}

START_TEST(a_run_that_starts_anew_takes_back_what_came_after_its_checkpoint)
{
    struct daemon *daemon = daemon_new();
    struct history *history = history_of(daemon, 7);
    struct facts_point points[8];
    static struct losses before;
    ck_assert_ptr_null(history_find(daemon, 8));
    for (uint64_t step = 1; step <= 5; step++) {
        history_put(history, &(struct facts_point){step, (double)step}, 0);
        if (step <= 2) {
            losses_put(&before, step, (double)step);
        }
    }
    ck_assert(history->has_first);
    uint64_t version = history->version;
    history_take(history, &before);
    ck_assert_uint_ne(history->version, version);
    ck_assert(history->has_first);
    ck_assert_double_eq(history->first_loss, 1.0);
    history_put(history, &(struct facts_point){3, 33.0}, 0);
    ck_assert_uint_eq(history_get(history, 0, points, 8), 3);
    ck_assert_uint_eq(points[2].step, 3);
    ck_assert_double_eq(points[2].loss, 33.0);
    ck_assert_uint_eq(history_get(history, 2, points, 8), 1);
    ck_assert_uint_eq(history_get(history, 3, points, 8), 0);
    history_free(daemon);
    free(daemon);
}
END_TEST

START_TEST(what_was_left_out_between_two_reports_comes_with_the_capture)
{
    struct daemon *daemon = daemon_new();
    struct history *history = history_of(daemon, 7);
    struct facts_point points[16];
    static struct losses all;
    history_put(history, &(struct facts_point){4, 4.0}, 0);
    history_put(history, &(struct facts_point){8, 8.0}, 0);
    ck_assert(!history->has_first);
    for (uint64_t step = 1; step <= 10; step++) {
        losses_put(&all, step, (double)step);
    }
    history_take(history, &all);
    ck_assert(history->has_first);
    history_put(history, &(struct facts_point){9, -1.0}, 0); /* Said again, late. */
    ck_assert_uint_eq(history_get(history, 0, points, 16), 10);
    ck_assert_double_eq(points[8].loss, 9.0);
    ck_assert_uint_eq(history_get(history, 0, points, 4), 4);
    ck_assert_uint_eq(points[0].step, 1);
    ck_assert_uint_eq(points[3].step, 10); /* The newest, always. */
    history_free(daemon);
    free(daemon);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("history");
    TCase *tests = tcase_create("history");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_run_that_starts_anew_takes_back_what_came_after_its_checkpoint);
    tcase_add_test(tests, what_was_left_out_between_two_reports_comes_with_the_capture);
    suite_add_tcase(suite, tests);
    return suite;
}
