#include "ctl/table.h"
#include "tests/lib/unit.h"

static const struct table_column columns[] = {
    {"JOB", true, false}, {"NAME", false, false}, {"LOSS", true, false}, {"REASON", false, true}};

static void fill(struct table *table, bool wide)
{
    table_init(table, columns, 4, wide);
    table_cell(table, "%d", 1);
    table_cell(table, "iris");
    table_cell(table, "%.3g", 0.25);
    table_cell(table, "node b is gone");
    table_cell(table, "%d", 12);
    table_cell(table, "käfer");
    table_cell(table, "%s", "");
    table_cell(table, "%s", "x\033[2Jy");
}

START_TEST(columns_are_aligned_and_nothing_trails)
{
    struct table table;
    struct buf out = BUF_NONE;
    fill(&table, false);
    table_print(&table, &out);
    ck_assert_str_eq((const char *)out.bytes, "JOB  NAME   LOSS\n"
                                              "  1  iris   0.25\n"
                                              " 12  käfer     -\n");
    table_done(&table);
    buf_done(&out);
}
END_TEST

START_TEST(wide_adds_columns_and_escapes_are_disarmed)
{
    struct table table;
    struct buf out = BUF_NONE;
    fill(&table, true);
    table_print(&table, &out);
    ck_assert_str_eq((const char *)out.bytes, "JOB  NAME   LOSS  REASON\n"
                                              "  1  iris   0.25  node b is gone\n"
                                              " 12  käfer     -  x?[2Jy\n");
    table_done(&table);
    buf_done(&out);
}
END_TEST

static void expect_duration(double seconds, const char *expected)
{
    char text[32];
    text_duration(seconds, text, sizeof(text));
    ck_assert_str_eq(text, expected);
}

START_TEST(durations_sizes_and_counts_read_well)
{
    char text[32];
    expect_duration(0.42, "0.4s");
    expect_duration(9.96, "10s");
    expect_duration(59.4, "59s");
    expect_duration(59.7, "1m00s");
    expect_duration(192, "3m12s");
    expect_duration(7500, "2h05m");
    expect_duration(4 * 86400.0 + 3 * 3600, "4d03h");
    expect_duration(-1, "-");
    text_bytes(512, text, sizeof(text));
    ck_assert_str_eq(text, "512 B");
    text_bytes(1.5 * 1024 * 1024, text, sizeof(text));
    ck_assert_str_eq(text, "1.5 MiB");
    text_count(1234567, text, sizeof(text));
    ck_assert_str_eq(text, "1.23M");
    text_count(340, text, sizeof(text));
    ck_assert_str_eq(text, "340");
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("table");
    TCase *tcase = tcase_create("table");
    tcase_add_test(tcase, columns_are_aligned_and_nothing_trails);
    tcase_add_test(tcase, wide_adds_columns_and_escapes_are_disarmed);
    tcase_add_test(tcase, durations_sizes_and_counts_read_well);
    suite_add_tcase(suite, tcase);
    return suite;
}
