#include "daemon/histogram.h"
#include "tests/lib/unit.h"

START_TEST(a_value_at_the_bound_is_within)
{
    struct histogram histogram = HISTOGRAM_LATENCY;
    histogram_observe(&histogram, 0.0005);
    histogram_observe(&histogram, 0.00050001);
    histogram_observe(&histogram, -1);
    ck_assert_uint_eq(histogram.counts[0], 2);
    ck_assert_uint_eq(histogram.counts[1], 1);
}
END_TEST

START_TEST(what_is_above_all_bounds_is_counted_last)
{
    struct histogram histogram = HISTOGRAM_STEP;
    ck_assert_double_eq_tol(histogram_bound(&histogram, HISTOGRAM_BUCKETS - 1), 163.84, 1e-9);
    histogram_observe(&histogram, 1000);
    ck_assert_uint_eq(histogram.counts[HISTOGRAM_BUCKETS], 1);
    ck_assert_double_eq_tol(histogram.sum, 1000, 1e-9);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("histogram");
    TCase *tcase = tcase_create("buckets");
    tcase_add_test(tcase, a_value_at_the_bound_is_within);
    tcase_add_test(tcase, what_is_above_all_bounds_is_counted_last);
    suite_add_tcase(suite, tcase);
    return suite;
}
