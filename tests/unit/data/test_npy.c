#include "data/npy.h"

#include "tests/unit/data/helper.h"

/* An NPY file with a dictionary as it is given, and elements behind it. */
static size_t make_npy(uint8_t *bytes, unsigned version, const char *dict, const void *elements,
                       size_t size)
{
    size_t start = version == 1 ? 10 : 12;
    size_t length = strlen(dict);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[7] = 0;
    bytes[8] = (uint8_t)length;
    bytes[9] = (uint8_t)(length >> 8);
    bytes[10] = bytes[11] = 0;
    memcpy(bytes + start, dict, length);
    memcpy(bytes + start + length, elements, size);
    return start + length + size;
}

static int parse_dict(const char *dict, size_t size, struct npy *npy, struct err *err)
{
    uint8_t bytes[1024];
    static const uint8_t zeros[256];
    size_t total = make_npy(bytes, 1, dict, zeros, size);
    return npy_parse(bytes, total, total, npy, err);
}

START_TEST(headers_of_all_versions_and_spellings_are_read)
{
    static const char *const dicts[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
        "{'shape': (2, 3), 'descr': '<f4', 'fortran_order': False}\n",
        "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(2,3)}",
    };
    for (size_t i = 0; i < 9; i++) {
        uint8_t bytes[512];
        float elements[6] = {0};
        struct npy npy;
        struct err err = {0};
        size_t size = make_npy(bytes, (unsigned)(i / 3) + 1, dicts[i % 3], elements, 24);
        ck_assert_msg(npy_parse(bytes, size, size, &npy, &err) == 0, "%s", err.text);
        ck_assert(npy.kind == 'f' && npy.item == 4 && !npy.fortran && npy.dims == 2);
        ck_assert(npy.shape[0] == 2 && npy.shape[1] == 3 && npy.offset == size - 24);
    }
}
END_TEST

START_TEST(what_is_written_is_read)
{
    uint8_t bytes[NPY_HEADER_SIZE];
    struct npy npy;
    struct err err = {0};
    npy_header(bytes, "<f8", true, UINT64_C(1) << 40, UINT64_C(1) << 20);
    ck_assert_int_eq(
        npy_parse(bytes, sizeof(bytes), NPY_HEADER_SIZE + (UINT64_C(1) << 63), &npy, &err), 0);
    ck_assert(npy.fortran && npy.dims == 2 && npy.shape[1] == UINT64_C(1) << 20);
    npy_header(bytes, "<i8", false, 7, 0);
    ck_assert_int_eq(npy_parse(bytes, sizeof(bytes), NPY_HEADER_SIZE + 56, &npy, &err), 0);
    ck_assert(!npy.fortran && npy.dims == 1 && npy.shape[0] == 7 && npy.shape[1] == 1);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_with_what_to_do)
{
    static const struct {
        const char *dict;
        size_t size;
        const char *text;
    } cases[] = {
        {"{'descr': '>f8', 'fortran_order': False, 'shape': (1,)}", 8, "big-endian"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, "type '|O'"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (1,)}", 2, "type '<f2'"},
        {"{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}", 16, "type '<U4'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, "structured"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1)}", 4, "3 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, "0 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 8, "is the file whole?"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 8, "is the file whole?"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 0,
         "is the file whole?"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 0,
         "dictionary"},
        {"{'descr': '<f4', 'fortran_order': False}", 4, "dictionary"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4,
         "dictionary"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}", 4, "dictionary"},
        {"{'descr': '<f4", 0, "dictionary"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct npy npy;
        struct err err = {0};
        ck_assert_msg(parse_dict(cases[i].dict, cases[i].size, &npy, &err) != 0, "%s",
                      cases[i].dict);
        ck_assert_msg(strstr(err.text, cases[i].text) != NULL, "%s: %s", cases[i].dict, err.text);
    }
}
END_TEST

static struct data_settings npy_settings(void)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = DATA_FORMAT_NPY;
    return settings;
}

static void load_all(const char *name, float *x, double *y)
{
    struct dataset *dataset = NULL;
    struct err err = {0};
    struct dataset_view view = {.test = 0};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct dataset_targets targets = {.train = NULL};
    ck_assert_int_eq(dataset_open(in_scratch(name), &dataset, &err), 0);
    uint64_t features = dataset_info_of(dataset)->features;
    ck_assert_int_eq(dataset_load(dataset, &view, 0, features, NULL, &block, &err), 0);
    ck_assert_int_eq(dataset_load_targets(dataset, &view, &targets, &err), 0);
    for (uint64_t i = 0; i < block.train.rows; i++) {
        for (uint64_t j = 0; j < features; j++) {
            x[i * features + j] = matrix_at(&block.train, i, j);
        }
        y[i] = targets.train[i];
    }
    dataset_targets_done(&targets);
    dataset_block_done(&block);
    dataset_close(dataset);
}

START_TEST(both_orders_and_every_element_type_give_the_same_rows)
{
    static const int64_t i8[6] = {1, 2, 3, 4, 5, 6};
    static const float f4[6] = {1, 4, 2, 5, 3, 6}; /* Fortran order */
    static const uint8_t u1[6] = {1, 2, 3, 4, 5, 6};
    static const struct {
        const char *dict;
        const void *elements;
        size_t size;
    } cases[] = {
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3)}", i8, sizeof(i8)},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", f4, sizeof(f4)},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)}", u1, sizeof(u1)},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[512];
        char name[16];
        float x[4];
        double y[2];
        size_t size = make_npy(bytes, 1, cases[i].dict, cases[i].elements, cases[i].size);
        (void)snprintf(name, sizeof(name), "out%zu", i);
        ck_assert_int_eq(
            import_path(put_bytes("x.npy", bytes, size), npy_settings(), name, NULL, NULL), 0);
        load_all(name, x, y);
        ck_assert(x[0] == 1 && x[1] == 2 && x[2] == 4 && x[3] == 5 && y[0] == 3 && y[1] == 6);
    }
}
END_TEST

START_TEST(targets_may_be_a_file_of_their_own)
{
    static const double x_values[4] = {1, 2, 3, 4};
    static const double y_values[2] = {0.1, 0.2};
    uint8_t bytes[512];
    char x_path[TEST_PATH_SIZE];
    char y_path[TEST_PATH_SIZE];
    size_t size = make_npy(bytes, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2)}",
                           x_values, sizeof(x_values));
    (void)snprintf(x_path, sizeof(x_path), "%s", put_bytes("x.npy", bytes, size));
    size = make_npy(bytes, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", y_values,
                    sizeof(y_values));
    (void)snprintf(y_path, sizeof(y_path), "%s", put_bytes("y.npy", bytes, size));
    const char *paths[] = {x_path, y_path};
    struct data_settings settings = npy_settings();
    settings.paths = paths;
    settings.paths_count = 2;
    struct err err = {0};
    float x[4];
    double y[2];
    ck_assert_msg(data_import(&settings, in_scratch("out"), NULL, NULL, NULL, &err) == 0, "%s",
                  err.text);
    load_all("out", x, y);
    ck_assert(x[1] == 2 && x[3] == 4 && y[0] == 0.1 && y[1] == 0.2);
    size =
        make_npy(bytes, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", y_values, 8);
    (void)put_bytes("y.npy", bytes, size);
    ck_assert_int_eq(data_import(&settings, in_scratch("other"), NULL, NULL, NULL, &err), ERR_DATA);
    ck_assert_ptr_nonnull(strstr(err.text, "1 x 1 targets for 2 rows"));
}
END_TEST

START_TEST(nan_is_missing_and_infinity_is_refused)
{
    float values[6] = {1, 2, 3, 4, 5, 6};
    uint8_t bytes[512];
    static const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}";
    values[2] = __builtin_nanf("");
    size_t size = make_npy(bytes, 1, dict, values, sizeof(values));
    struct data_settings settings = npy_settings();
    struct data_faults faults = {0};
    struct data_report report;
    const char *path = put_bytes("x.npy", bytes, size);
    ck_assert_int_eq(import_path(path, settings, "out", NULL, &faults), ERR_DATA);
    ck_assert_ptr_nonnull(strstr(faults.list[0].text, "x.npy: row 2, column 1 is NaN"));
    settings.missing = DATA_MISSING_DROP_ROW;
    ck_assert_int_eq(import_path(path, settings, "out", &report, &faults), 0);
    ck_assert_uint_eq(report.rows, 2);
    values[3] = __builtin_inff();
    values[2] = 0;
    size = make_npy(bytes, 1, dict, values, sizeof(values));
    path = put_bytes("x.npy", bytes, size);
    ck_assert_int_eq(import_path(path, settings, "more", NULL, &faults), ERR_DATA);
    ck_assert_ptr_nonnull(strstr(faults.list[0].text, "row 2, column 2 is infinite"));
}
END_TEST

Suite *unit_suite(void)
{
    TCase *tests = NULL;
    Suite *suite = data_suite("npy", &tests);
    tcase_add_test(tests, headers_of_all_versions_and_spellings_are_read);
    tcase_add_test(tests, what_is_written_is_read);
    tcase_add_test(tests, what_does_not_fit_is_refused_with_what_to_do);
    tcase_add_test(tests, both_orders_and_every_element_type_give_the_same_rows);
    tcase_add_test(tests, targets_may_be_a_file_of_their_own);
    tcase_add_test(tests, nan_is_missing_and_infinity_is_refused);
    return suite;
}
