#include "tests/unit/data/helper.h"

static struct data_settings svm_settings(enum data_storage storage)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = DATA_FORMAT_SVM;
    settings.storage = storage;
    return settings;
}

static void refuses(const char *text, const char *sentence)
{
    struct data_faults faults = {0};
    ck_assert_msg(import_text(text, svm_settings(DATA_STORAGE_AUTO), NULL, &faults) == ERR_DATA,
                  "'%s' is read", text);
    ck_assert_msg(strstr(faults.list[0].text, sentence) != NULL, "%s", faults.list[0].text);
}

START_TEST(reads_comments_blank_lines_and_rows_without_entries)
{
    static const char text[] = "# made by hand\n+1 2:0.5 4:-1e1 # tail\n\n-1\r\n  2.5 1:3#x\n";
    struct data_report report;
    ck_assert_int_eq(import_text(text, svm_settings(DATA_STORAGE_SPARSE), &report, NULL), 0);
    ck_assert_uint_eq(report.rows, 3);
    ck_assert_uint_eq(report.features, 4);
    ck_assert_uint_eq(report.nonzeros, 3);
    ck_assert(report.sparse);
    struct err err = {0};
    struct dataset *dataset = NULL;
    ck_assert_int_eq(dataset_open(in_scratch("out"), &dataset, &err), 0);
    uint64_t counts[4];
    ck_assert_int_eq(dataset_counts(dataset, 0, 4, counts, &err), 0);
    ck_assert_uint_eq(counts[0] + 10 * counts[1] + 100 * counts[2] + 1000 * counts[3], 1011);
    dataset_close(dataset);
}
END_TEST

START_TEST(zeros_written_out_are_not_stored)
{
    struct data_report report;
    ck_assert_int_eq(
        import_text("1 1:0 2:1 3:-0 9:0\n", svm_settings(DATA_STORAGE_SPARSE), &report, NULL), 0);
    ck_assert_uint_eq(report.nonzeros, 1);
    ck_assert_uint_eq(report.features, 9); /* The width counts them all the same. */
}
END_TEST

START_TEST(auto_takes_the_smaller_storage)
{
    struct data_report report;
    ck_assert_int_eq(
        import_text("1 1:1 2:2\n1 1:3 2:4\n", svm_settings(DATA_STORAGE_AUTO), &report, NULL), 0);
    ck_assert(!report.sparse);
    ck_assert_int_eq(import_path(put_text("input", "1 1:1\n1 900:3\n1\n1\n1\n1\n"),
                                 svm_settings(DATA_STORAGE_AUTO), "wide", &report, NULL),
                     0);
    ck_assert(report.sparse);
}
END_TEST

START_TEST(a_declared_width_is_kept_and_is_a_limit)
{
    struct data_settings settings = svm_settings(DATA_STORAGE_SPARSE);
    settings.features = 7;
    struct data_report report;
    ck_assert_int_eq(import_text("1 2:1\n", settings, &report, NULL), 0);
    ck_assert_uint_eq(report.features, 7);
    struct data_faults faults = {0};
    ck_assert_int_eq(import_path(put_text("input", "1 2:1 8:1\n"), settings, "more", NULL, &faults),
                     ERR_DATA);
    ck_assert_ptr_nonnull(strstr(faults.list[0].text, ":1:7: the index of '8:1' is past"));
}
END_TEST

START_TEST(every_malformed_pair_is_named_where_it_begins)
{
    refuses("1 qid:3 1:1\n", ":1:3: 'qid:3' is for ranking");
    refuses("1 a:1\n", ":1:3: 'a:1' is not index:value");
    refuses("1 1\n", "'1' is not index:value");
    refuses("1 1: 2:3\n", "the pair '1:' has no value");
    refuses("1 1:2x\n", "the value of '1:2x' is not a number");
    refuses("1 1:1e39\n", "beyond the range of binary32");
    refuses("1 -1:1\n", "'-1:1' is not index:value");
    refuses("1 99999999999999999999:1\n", "is past the last feature");
    refuses("one 1:1\n", ":1:1: the label 'one' is not a number");
    refuses("1,2 1:1\n", "the label '1,2'");
    refuses("1 1:1\r1 2:1\n", "carriage return");
    refuses("# nothing\n", "no data rows");
    refuses("1\n2\n", "no features");
}
END_TEST

START_TEST(the_last_line_needs_no_line_feed)
{
    struct data_report report;
    ck_assert_int_eq(import_text("1 1:1\n2 1:25", svm_settings(DATA_STORAGE_DENSE), &report, NULL),
                     0);
    ck_assert_uint_eq(report.rows, 2);
}
END_TEST

START_TEST(very_wide_data_has_names_and_loads_a_few_columns)
{
    struct data_settings settings = svm_settings(DATA_STORAGE_AUTO);
    struct dataset *dataset = open_text("1 5:1 1048581:2\n2 1048581:3\n", settings);
    struct dataset_view view = {.test = 0};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct err err = {0};
    ck_assert_str_eq(dataset_name(dataset, 1048580), "1048581");
    ck_assert_int_eq(dataset_load(dataset, &view, 1048580, 1048581, NULL, &block, &err), 0);
    ck_assert(matrix_at(&block.train, 0, 0) == 2 && matrix_at(&block.train, 1, 0) == 3);
    dataset_block_done(&block);
    dataset_close(dataset);
}
END_TEST

Suite *unit_suite(void)
{
    TCase *tests = NULL;
    Suite *suite = data_suite("svm", &tests);
    tcase_add_test(tests, reads_comments_blank_lines_and_rows_without_entries);
    tcase_add_test(tests, zeros_written_out_are_not_stored);
    tcase_add_test(tests, auto_takes_the_smaller_storage);
    tcase_add_test(tests, a_declared_width_is_kept_and_is_a_limit);
    tcase_add_test(tests, every_malformed_pair_is_named_where_it_begins);
    tcase_add_test(tests, the_last_line_needs_no_line_feed);
    tcase_add_test(tests, very_wide_data_has_names_and_loads_a_few_columns);
    return suite;
}
