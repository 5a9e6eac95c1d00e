#include "daemon/fitness.h"

#include "tests/lib/unit.h"

START_TEST(the_wait_doubles_and_ends_at_its_most)
{
    ck_assert_uint_eq(fitness_wait_ms(1), 5000);
    ck_assert_uint_eq(fitness_wait_ms(2), 10000);
    ck_assert_uint_eq(fitness_wait_ms(3), 20000);
    ck_assert_uint_eq(fitness_wait_ms(7), 320000);
    ck_assert_uint_eq(fitness_wait_ms(8), FITNESS_WAIT_MS_MAX);
    ck_assert_uint_eq(fitness_wait_ms(4000000000U), FITNESS_WAIT_MS_MAX);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("fitness");
    TCase *tests = tcase_create("fitness");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_wait_doubles_and_ends_at_its_most);
    suite_add_tcase(suite, tests);
    return suite;
}
