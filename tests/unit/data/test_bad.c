/* Every file of shared/data/bad gets the verdict of its EXPECT.tsv, at the line and column there.
 */
#include "tests/unit/data/helper.h"

static char expect[16384];

static int import_bad(const char *name, struct data_faults *faults)
{
    char path[TEST_PATH_SIZE];
    char relative[128];
    (void)snprintf(relative, sizeof(relative), "data/bad/%s", name);
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.header = true;
    settings.format = strstr(name, ".svm") != NULL ? DATA_FORMAT_SVM : DATA_FORMAT_CSV;
    static const char *const text_columns[] = {"name"};
    if (strcmp(name, "csv_unclosed_quote.csv") == 0) {
        settings.drop = text_columns;
        settings.drop_count = 1;
    }
    struct stat status;
    int code = import_path(shared_path(path, relative), settings, "out", NULL, faults);
    ck_assert_msg((stat(in_scratch("out"), &status) == 0) == (code == 0),
                  "%s: nothing is written where data is refused", name);
    return code;
}

static int open_tokens(const char *name, char text[ERR_TEXT_SIZE])
{
    char path[TEST_PATH_SIZE];
    char relative[128];
    (void)snprintf(relative, sizeof(relative), "data/bad/%s", name);
    struct tokens_file tokens = TOKENS_FILE_NONE;
    struct err err = {0};
    int code = tokens_open(shared_path(path, relative), 12288, &tokens, &err);
    if (code == 0) {
        code = tokens_verify(&tokens, NULL, &err);
    }
    tokens_close(&tokens);
    memcpy(text, err.text, ERR_TEXT_SIZE);
    return code;
}

/* One line of EXPECT.tsv: file, bytes, verdict, line:column or line or "-", text. */
static void check_line(char *line)
{
    char *rest = NULL;
    const char *name = strtok_r(line, "\t", &rest);
    (void)strtok_r(NULL, "\t", &rest);
    const char *verdict = strtok_r(NULL, "\t", &rest);
    const char *position = strtok_r(NULL, "\t", &rest);
    ck_assert_ptr_nonnull(position);
    if (strstr(name, ".bin") != NULL) {
        char text[ERR_TEXT_SIZE];
        ck_assert_msg(open_tokens(name, text) == ERR_DATA, "%s", name);
        return;
    }
    struct data_faults faults = {0};
    int code = import_bad(name, &faults);
    if (strcmp(verdict, "accept") == 0) {
        ck_assert_msg(code == 0, "%s: %s", name, faults.list[0].text);
    } else if (strcmp(verdict, "refuse") == 0) {
        ck_assert_msg(code == ERR_DATA && faults.count > 0, "%s is read", name);
    }
    if (code == 0) {
        struct fs *fs = NULL;
        ck_assert_int_eq(fs_posix_open(scratch, &fs, NULL), 0);
        ck_assert_int_eq(fs_remove_tree(fs, "out", NULL), 0);
        fs_posix_close(fs);
        return;
    }
    ck_assert_msg(strstr(faults.list[0].text, name) != NULL, "%s", faults.list[0].text);
    ck_assert_msg(strlen(faults.list[0].text) < 400, "%s", faults.list[0].text);
    if (position[0] != '-' && strcmp(verdict, "refuse") == 0) {
        char wanted[64];
        (void)snprintf(wanted, sizeof(wanted), "%s:%s:", name, position);
        ck_assert_msg(strstr(faults.list[0].text, wanted) != NULL, "%s: not %s",
                      faults.list[0].text, wanted);
    }
}

START_TEST(every_bad_file_gets_its_verdict_at_its_place)
{
    char path[TEST_PATH_SIZE];
    size_t size =
        get_bytes(shared_path(path, "data/bad/EXPECT.tsv"), (uint8_t *)expect, sizeof(expect) - 1);
    expect[size] = '\0';
    char *rest = NULL;
    char *line = strtok_r(expect, "\n", &rest); /* the heading */
    unsigned count = 0;
    for (line = strtok_r(NULL, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        check_line(line);
        count++;
    }
    ck_assert_uint_eq(count, 20);
}
END_TEST

START_TEST(the_sentences_say_what_is_wrong)
{
    static const struct {
        const char *name;
        size_t fault;
        const char *text;
    } cases[] = {
        {"svm_truncated.svm", 0, "the pair '7:' has no value"},
        {"svm_duplicate_index.svm", 0, "index 3 twice"},
        {"svm_descending_index.svm", 0, "index 4 after index 7"},
        {"svm_index_zero.svm", 0, "index 0"},
        {"svm_nan_inf.svm", 1, ":2:3:"}, /* each of the three lines */
        {"svm_nan_inf.svm", 2, ":3:1:"},
        {"svm_overflow.svm", 1, ":2:1:"},
        {"empty.csv", 0, "no data"},
        {"only_header.csv", 0, "no data rows"},
        {"csv_ragged.csv", 0, "expected 4 fields, found 3"},
        {"csv_ragged.csv", 1, "expected 4 fields, found 5"},
        {"csv_latin1_header.csv", 0, ":1:3: the column name is not UTF-8"},
        {"csv_target_missing.csv", 0, "column 'y' is empty"},
        {"csv_target_missing.csv", 1, ":5:5:"},
        {"csv_no_features.csv", 0, "no feature columns"},
        {"csv_unclosed_quote.csv", 0, "closes at line 4 column 3, but 'x' follows"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct data_faults faults = {0};
        ck_assert_int_eq(import_bad(cases[i].name, &faults), ERR_DATA);
        ck_assert_msg(faults.count > cases[i].fault, "%s", cases[i].name);
        const char *text = faults.list[cases[i].fault].text;
        ck_assert_msg(strstr(text, cases[i].text) != NULL, "%s", text);
    }
    struct data_faults faults = {0};
    ck_assert_int_eq(import_bad("csv_one_row.csv", &faults), 0);
    char text[ERR_TEXT_SIZE];
    (void)open_tokens("bin_odd.bin", text);
    ck_assert_ptr_nonnull(strstr(text, "odd size 7"));
    (void)open_tokens("bin_empty.bin", text);
    ck_assert_ptr_nonnull(strstr(text, "no tokens"));
    (void)open_tokens("bin_out_of_vocab.bin", text);
    ck_assert_ptr_nonnull(strstr(text, "token 3 (byte offset 6) is 12288"));
}
END_TEST

Suite *unit_suite(void)
{
    need_shared("data/bad");
    TCase *tests = NULL;
    Suite *suite = data_suite("bad", &tests);
    tcase_add_test(tests, every_bad_file_gets_its_verdict_at_its_place);
    tcase_add_test(tests, the_sentences_say_what_is_wrong);
    return suite;
}
