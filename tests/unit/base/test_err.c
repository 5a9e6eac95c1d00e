#include <string.h>

#include "base/err.h"
#include "tests/lib/unit.h"

START_TEST(prefix_reads_outermost_first)
{
    struct err err = {0};
    ck_assert_int_eq(err_set(&err, ERR_DATA, "line %u: not a number: '%s'", 17U, "x"), ERR_DATA);
    ck_assert_int_eq(err_prefix(&err, "shard %u: ", 3U), ERR_DATA);
    ck_assert_str_eq(err.text, "shard 3: line 17: not a number: 'x'");
}
END_TEST

START_TEST(the_prefix_gives_way_never_the_cause)
{
    struct err err = {0};
    char cause[ERR_TEXT_SIZE - 4];
    memset(cause, 'c', sizeof(cause) - 1);
    cause[sizeof(cause) - 1] = '\0';
    (void)err_set(&err, ERR_DISK, "%s", cause);
    (void)err_prefix(&err, "a long prefix: ");
    ck_assert_uint_eq(strlen(err.text), ERR_TEXT_SIZE - 1);
    ck_assert_str_eq(err.text + 4, cause);
}
END_TEST

START_TEST(every_code_has_a_label_and_a_status)
{
#define HAS_BOTH(name, value, label, status)                                                       \
    ck_assert_str_eq(err_label(name), label);                                                      \
    ck_assert_int_eq(err_exit_status(name), status);
    ERR_MAP(HAS_BOTH)
    ck_assert_str_eq(err_label(-999), "unknown");
    ck_assert_int_eq(err_exit_status(-999), 1);
    ck_assert_int_eq(err_exit_status(0), 0);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("err");
    TCase *tcase = tcase_create("err");
    tcase_add_test(tcase, prefix_reads_outermost_first);
    tcase_add_test(tcase, the_prefix_gives_way_never_the_cause);
    tcase_add_test(tcase, every_code_has_a_label_and_a_status);
    suite_add_tcase(suite, tcase);
    return suite;
}
