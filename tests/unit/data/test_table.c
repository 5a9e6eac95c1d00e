#include "tests/unit/data/helper.h"

static struct data_settings with_header(void)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.header = true;
    return settings;
}

static void refuses(const char *text, struct data_settings settings, const char *sentence)
{
    struct data_faults faults = {0};
    struct stat status;
    int code = import_path(put_text("input", text), settings, "refused", NULL, &faults);
    ck_assert_msg(code == ERR_DATA, "'%s' gives %d", text, code);
    ck_assert_msg(strstr(faults.list[0].text, sentence) != NULL, "%s", faults.list[0].text);
    ck_assert_int_ne(stat(in_scratch("refused"), &status), 0);
}

static void is_matrix(struct dataset *dataset, uint64_t rows, uint64_t features,
                      const float *values, const double *wanted_targets)
{
    struct dataset_view view = {.test = 0};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct dataset_targets targets = {.train = NULL};
    struct err err = {0};
    ck_assert_uint_eq(dataset_info_of(dataset)->rows, rows);
    ck_assert_uint_eq(dataset_info_of(dataset)->features, features);
    ck_assert_int_eq(dataset_load(dataset, &view, 0, features, NULL, &block, &err), 0);
    ck_assert_int_eq(dataset_load_targets(dataset, &view, &targets, &err), 0);
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t j = 0; j < features; j++) {
            float value = matrix_at(&block.train, i, j);
            ck_assert_msg(value == values[i * features + j], "(%llu, %llu) is %g",
                          (unsigned long long)i, (unsigned long long)j, (double)value);
        }
        ck_assert(targets.train[i] == wanted_targets[i]);
    }
    dataset_targets_done(&targets);
    dataset_block_done(&block);
    dataset_close(dataset);
}

START_TEST(reads_quotes_crlf_bom_and_blank_lines)
{
    static const char text[] = "\xEF\xBB\xBF\"a\",b,\"y \"\"z\"\"\"\r\n\r\n"
                               "1,\" 2 \",3\r\n+4 , -.5e1,6.";
    struct dataset *dataset = open_text(text, with_header());
    ck_assert_str_eq(dataset_name(dataset, 0), "a");
    ck_assert_str_eq(dataset_name(dataset, 1), "b");
    ck_assert_str_eq(dataset_info_of(dataset)->target_name, "y \"z\"");
    is_matrix(dataset, 2, 2, (float[]){1, 2, 4, -5}, (double[]){3, 6});
}
END_TEST

START_TEST(a_quoted_field_may_span_lines_and_hold_anything)
{
    struct data_settings settings = with_header();
    const char *drop[] = {"note"};
    settings.drop = drop;
    settings.drop_count = 1;
    static const char text[] = "x,note,y\n1,\"one, \"\"two\"\"\r\nthree\n\",2\n3,plain \"q\",4\n";
    is_matrix(open_text(text, settings), 2, 1, (float[]){1, 3}, (double[]){2, 4});
}
END_TEST

START_TEST(faults_behind_a_spanning_field_have_their_own_line)
{
    struct data_settings settings = with_header();
    const char *drop[] = {"note"};
    settings.drop = drop;
    settings.drop_count = 1;
    refuses("x,note,y\n1,\"a\nb\",bad\n", settings, ":3:4: 'bad' is not a number (column 'y')");
}
END_TEST

START_TEST(targets_and_drops_are_found_by_every_rule)
{
    struct data_settings settings = with_header();
    static const char text[] = "a,b,c,d\n1,2,3,4\n";
    const char *drop[] = {"b", "4"}; /* a name, and the number of a column of another name */
    settings.drop = drop;
    settings.drop_count = 2;
    is_matrix(open_text(text, settings), 1, 1, (float[]){1}, (double[]){3}); /* last after drop */
    struct data_settings first = settings;
    first.target = DATA_TARGET_FIRST;
    is_matrix(import_and_open(put_text("input", text), first, "first"), 1, 1, (float[]){3},
              (double[]){1});
    struct data_settings name = settings;
    name.target = DATA_TARGET_NAME;
    name.target_name = "a";
    is_matrix(import_and_open(put_text("input", text), name, "name"), 1, 1, (float[]){3},
              (double[]){1});
    struct data_settings column = settings;
    column.target = DATA_TARGET_COLUMN;
    column.target_column = 3;
    is_matrix(import_and_open(put_text("input", text), column, "column"), 1, 1, (float[]){1},
              (double[]){3});
    column.target_column = 2;
    refuses("a,b,c,d\n1,2,3,4\n", column, "the target, column 2, is dropped");
}
END_TEST

START_TEST(names_that_are_not_there_are_refused_with_a_suggestion)
{
    struct data_settings settings = with_header();
    settings.target = DATA_TARGET_NAME;
    settings.target_name = "Price";
    refuses("a,price\n1,2\n", settings, "no column 'Price' for the target; did you mean 'price'?");
    refuses("a,b\n1,2\n", settings, "the columns are 'a', 'b'");
    refuses("Price,Price,a\n1,2,3\n", settings, "two columns are named 'Price'");
    settings = with_header();
    const char *drop[] = {"7"};
    settings.drop = drop;
    settings.drop_count = 1;
    refuses("a,b\n1,2\n", settings, "no column '7' to drop");
}
END_TEST

START_TEST(missing_fields_are_refused_or_drop_their_row)
{
    struct data_settings settings = with_header();
    const char *missing[] = {"NA", "-200"};
    settings.missing_values = missing;
    settings.missing_values_count = 2;
    static const char text[] = "a,b,y\n1,2,3\n4,,6\n7,8, NA \n,x,1\n-200,1,1\n-200.0,5,9\n";
    refuses(text, settings, ":3:3: column 'b' is empty");
    settings.missing = DATA_MISSING_DROP_ROW;
    struct data_report report;
    ck_assert_int_eq(import_text(text, settings, &report, NULL), 0);
    ck_assert_uint_eq(report.rows, 2);
    ck_assert_uint_eq(report.rows_dropped, 4); /* the text in the fourth did not matter */
    settings.missing_values_count = 0;
    struct data_faults faults = {0};
    ck_assert_int_eq(import_path(put_text("input", text), settings, "second", NULL, &faults),
                     ERR_DATA);
    ck_assert_ptr_nonnull(strstr(faults.list[0].text, ":4:5: 'NA' is not a number"));
}
END_TEST

START_TEST(a_dropped_column_is_never_missing)
{
    struct data_settings settings = with_header();
    const char *drop[] = {"t"};
    settings.drop = drop;
    settings.drop_count = 1;
    is_matrix(open_text("a,t,y\n1,,3\n", settings), 1, 1, (float[]){1}, (double[]){3});
}
END_TEST

START_TEST(all_rows_dropped_is_no_data)
{
    struct data_settings settings = with_header();
    settings.missing = DATA_MISSING_DROP_ROW;
    refuses("a,y\n,1\n2,\n", settings, "no data rows: all 2 were dropped");
}
END_TEST

START_TEST(decimal_commas_need_another_separator)
{
    struct data_settings settings = with_header();
    settings.decimal = ',';
    settings.separator = ';';
    is_matrix(open_text("a;y\n-1,5;2\n3;4,25e1\n", settings), 2, 1, (float[]){-1.5F, 3},
              (double[]){2, 42.5});
    refuses("a;y\n1.5;2\n", settings, ":2:1: '1.5' is not a number");
    settings.separator = ',';
    const char *paths[] = {"x"};
    settings.paths = paths;
    settings.paths_count = 1;
    struct err err = {0};
    ck_assert_int_eq(data_settings_check(&settings, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "both ','"));
}
END_TEST

START_TEST(another_separator_or_decimal_mark_is_advised)
{
    struct data_settings settings = with_header();
    static const char separator[] = "set data.separator: \";\" (--separator ';')";
    settings.target = DATA_TARGET_NAME;
    settings.target_name = "y";
    refuses("a;y\n1,5;2\n", settings,
            ":1:1: the line is one field, 'a;y'; set data.separator: \";\"");
    refuses("a\ty\n1\t2\n", settings, "set data.separator: \"\\t\" (--separator '\\t')");
    refuses("a y\n1 2\n", settings, "set data.format: space (--format space)");
    settings = (struct data_settings)DATA_SETTINGS_DEFAULT;
    refuses("1.5;2\n3;4\n", settings, separator);
    refuses("1,5;2,5\n3,5;4,5\n", settings, separator); /* three fields of a kind */
    settings.separator = ';';
    refuses("1;2\n3;4,25e1\n", settings,
            ":2:3: '4,25e1' is not a number (column '2'); where the comma is the decimal mark set "
            "data.decimal: \",\" (--decimal ,)");
    refuses("1;2\n3;4,2,5\n", settings,
            "'4,2,5' is not a number (column '2'); set data.separator: \",\"");
    refuses("1;2\n3;x,5\n", settings, "'x,5' is not a number (column '2'); drop the column");
    settings.decimal = ',';
    refuses("1;2\n3;4.5\n", settings,
            "where the point is the decimal mark set data.decimal: \".\"");
    settings = (struct data_settings)DATA_SETTINGS_DEFAULT;
    refuses("1,2\n\"3,5\",4\n", settings, "a decimal comma needs another separator");
    settings.format = DATA_FORMAT_SPACE;
    refuses("1,2\n3,4\n", settings, "set data.format: csv (--format csv)");
    refuses("1,5 2\n3 4\n", settings, "data.decimal: \",\" (--decimal ,)");
}
END_TEST

START_TEST(carriage_returns_alone_end_no_line)
{
    refuses("a,y\r1,2\r3,4\r", with_header(), ":1:4: a carriage return inside a line");
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    refuses("a,\"y\rz\"\n1,2\n", with_header(), ":1:5: a control character in a column name");
    refuses("1,2\r3,4\n", settings, ":1:4: a carriage return inside a line");
}
END_TEST

START_TEST(text_in_line_one_asks_about_a_header)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    refuses("a,y\n1,2\n", settings, ":1:1: 'a' is not a number (column '1')");
    struct data_faults faults = {0};
    (void)import_text("a,y\n1,2\n", settings, NULL, &faults);
    ck_assert_ptr_nonnull(strstr(faults.list[0].text, "header: yes"));
    ck_assert_uint_eq(faults.count, 2);
}
END_TEST

START_TEST(ten_bad_places_are_told_and_no_more)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    struct data_faults faults = {0};
    char text[400] = "";
    for (unsigned i = 0; i < 30; i++) {
        strcat(text, "1,x,2\n");
    }
    ck_assert_int_eq(import_text(text, settings, NULL, &faults), ERR_DATA);
    ck_assert_uint_eq(faults.count, DATA_FAULTS_MAX);
    ck_assert_uint_eq(faults.list[9].line, 10);
    ck_assert_uint_eq(faults.list[9].column, 3);
}
END_TEST

START_TEST(nan_infinity_hexadecimal_and_overflow_are_no_numbers)
{
    static const char *const fields[] = {"nan", "NaN", "inf", "-Infinity", "0x10",
                                         "1e",  "1_0", "1 2", "--1",       "'1'"};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        char text[64];
        struct data_settings settings = DATA_SETTINGS_DEFAULT;
        (void)snprintf(text, sizeof(text), "1,%s,2\n", fields[i]);
        refuses(text, settings, ":1:3: '");
    }
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    refuses("1,1e400\n", settings, "beyond the range of binary64");
    refuses("1e39,1\n", settings, "beyond the range of binary32");
    is_matrix(open_text("1e-50,1e300\n", settings), 1, 1, (float[]){0}, (double[]){1e300});
}
END_TEST

START_TEST(whitespace_tables_take_runs_of_blanks_and_tabs)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = DATA_FORMAT_SPACE;
    const char *drop[] = {"3"};
    settings.drop = drop;
    settings.drop_count = 1;
    static const char text[] = "  1.5 \t 2. \"a \"\"b\"\" c\"\t3 \r\n \n4 5 word 6";
    is_matrix(open_text(text, settings), 2, 2, (float[]){1.5F, 2, 4, 5}, (double[]){3, 6});
    refuses("1 2 \"open 3\n", settings, ":1:5: the quoted field that opens here is never closed");
    refuses("1 2 3 4\n1 2 3\n", settings, "expected 4 fields, found 3");
}
END_TEST

START_TEST(several_files_are_one_after_the_other)
{
    char one[TEST_PATH_SIZE];
    char two[TEST_PATH_SIZE];
    (void)snprintf(one, sizeof(one), "%s", put_text("one", "a,y\n1,2"));
    (void)snprintf(two, sizeof(two), "%s", put_text("two", "a,y\n3,4\n"));
    const char *paths[] = {one, two};
    struct data_settings settings = with_header();
    settings.paths = paths;
    settings.paths_count = 2;
    struct err err = {0};
    struct data_report report;
    ck_assert_int_eq(data_import(&settings, in_scratch("out"), NULL, &report, NULL, &err), 0);
    ck_assert_uint_eq(report.rows, 2);
    (void)put_text("two", "b,y\n3,4\n");
    ck_assert_int_eq(data_import(&settings, in_scratch("more"), NULL, &report, NULL, &err),
                     ERR_DATA);
    ck_assert_ptr_nonnull(strstr(err.text, "two:1:1: another header than in"));
}
END_TEST

START_TEST(a_file_to_predict_has_the_models_columns)
{
    struct data_settings settings = with_header();
    const char *names[] = {"a", "b"};
    settings.expect_features = 2;
    settings.expect_names = names;
    settings.target = DATA_TARGET_NAME;
    settings.target_name = "y";
    struct data_report report;
    ck_assert_int_eq(import_text("a,b\n1,2\n", settings, &report, NULL), 0);
    ck_assert(!report.has_target);
    ck_assert_int_eq(
        import_path(put_text("input", "a,y,b\n1,3,2\n"), settings, "with", &report, NULL), 0);
    ck_assert(report.has_target);
    struct data_faults faults = {0};
    ck_assert_int_eq(
        import_path(put_text("input", "a,c,y\n1,3,2\n"), settings, "other", &report, &faults),
        ERR_DATA);
    ck_assert_ptr_nonnull(
        strstr(faults.list[0].text, "feature 2 is 'c' here and 'b' in the model"));
    ck_assert_int_eq(
        import_path(put_text("input", "a,b,c,y\n1,3,2,1\n"), settings, "wide", &report, &faults),
        ERR_DATA);
    ck_assert_ptr_nonnull(
        strstr(faults.list[0].text, "3 feature columns are kept; the model has 2"));
    settings.target =
        DATA_TARGET_LAST; /* Without names the width tells whether there is a target. */
    settings.header = false;
    ck_assert_int_eq(import_path(put_text("input", "1,2\n"), settings, "bare", &report, NULL), 0);
    ck_assert(!report.has_target);
    ck_assert_int_eq(import_path(put_text("input", "1,2,3\n"), settings, "full", &report, NULL), 0);
    ck_assert(report.has_target);
}
END_TEST

Suite *unit_suite(void)
{
    TCase *tests = NULL;
    Suite *suite = data_suite("table", &tests);
    tcase_add_test(tests, reads_quotes_crlf_bom_and_blank_lines);
    tcase_add_test(tests, a_quoted_field_may_span_lines_and_hold_anything);
    tcase_add_test(tests, faults_behind_a_spanning_field_have_their_own_line);
    tcase_add_test(tests, targets_and_drops_are_found_by_every_rule);
    tcase_add_test(tests, names_that_are_not_there_are_refused_with_a_suggestion);
    tcase_add_test(tests, missing_fields_are_refused_or_drop_their_row);
    tcase_add_test(tests, a_dropped_column_is_never_missing);
    tcase_add_test(tests, all_rows_dropped_is_no_data);
    tcase_add_test(tests, decimal_commas_need_another_separator);
    tcase_add_test(tests, another_separator_or_decimal_mark_is_advised);
    tcase_add_test(tests, carriage_returns_alone_end_no_line);
    tcase_add_test(tests, text_in_line_one_asks_about_a_header);
    tcase_add_test(tests, ten_bad_places_are_told_and_no_more);
    tcase_add_test(tests, nan_infinity_hexadecimal_and_overflow_are_no_numbers);
    tcase_add_test(tests, whitespace_tables_take_runs_of_blanks_and_tabs);
    tcase_add_test(tests, several_files_are_one_after_the_other);
    tcase_add_test(tests, a_file_to_predict_has_the_models_columns);
    return suite;
}
