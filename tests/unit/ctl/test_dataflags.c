#include <string.h>

#include "ctl/dataflags.h"
#include "tests/lib/unit.h"

static int read_flags(struct args *args, struct job_data *data)
{
    struct problem problem = {.hint = ""};
    return dataflags_read(args, "csv", data, &problem);
}

START_TEST(lists_are_cut_at_commas_that_are_not_escaped)
{
    struct args args = {.value = {NULL}};
    struct job_data data;
    args.value[FLAG_MISSING_VALUES] = "-200,-200\\,0,?";
    args.value[FLAG_DROP] = "Date,a \"b\" \\c,";
    ck_assert_int_eq(read_flags(&args, &data), 0);
    ck_assert_uint_eq(data.missing_values.count, 3);
    ck_assert_str_eq(data.missing_values.items[1], "-200,0");
    ck_assert_str_eq(data.missing_values.items[2], "?");
    ck_assert_uint_eq(data.drop.count, 3);
    ck_assert_str_eq(data.drop.items[1], "a \"b\" \\c");
    ck_assert_str_eq(data.drop.items[2], "");
    job_data_done(&data);
}
END_TEST

START_TEST(a_tab_may_be_written_as_one)
{
    struct args args = {.value = {NULL}};
    struct job_data data;
    args.value[FLAG_SEPARATOR] = "\\t";
    ck_assert_int_eq(read_flags(&args, &data), 0);
    ck_assert_str_eq(data.separator, "\t");
    job_data_done(&data);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("dataflags");
    TCase *tests = tcase_create("lists");
    tcase_add_test(tests, lists_are_cut_at_commas_that_are_not_escaped);
    tcase_add_test(tests, a_tab_may_be_written_as_one);
    suite_add_tcase(suite, tests);
    return suite;
}
