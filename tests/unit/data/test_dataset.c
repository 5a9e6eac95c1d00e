/* Opening, checking and loading native folders. */
#include "data/npy.h"

#include "tests/unit/data/helper.h"

static void put_npy(const char *name, const char *descr, bool fortran, uint64_t rows,
                    uint64_t columns, const void *elements, size_t size)
{
    uint8_t bytes[2048];
    npy_header(bytes, descr, fortran, rows, columns);
    memcpy(bytes + NPY_HEADER_SIZE, elements, size);
    (void)put_bytes(name, bytes, NPY_HEADER_SIZE + size);
}

static const double y3[3] = {7, 8, 9};

/* A sparse 3 x 3 matrix: rows {0: 1, 2: 2}, {}, {1: 3}. */
static void put_sparse(const int32_t *rows, const int32_t *ends)
{
    static const float values[3] = {1, 2, 3};
    ck_assert_int_eq(mkdir(in_scratch("s"), 0755), 0);
    put_npy("s/data.npy", "<f4", false, 3, 0, values, sizeof(values));
    put_npy("s/indices.npy", "<i4", false, 3, 0, rows, 12);
    put_npy("s/indptr.npy", "<i4", false, 4, 0, ends, 16);
    put_npy("s/y.npy", "<f8", false, 3, 0, y3, sizeof(y3));
}

static int open_and_load(const char *name, struct err *err)
{
    struct dataset *dataset = NULL;
    struct dataset_view view = {.test = 0};
    struct dataset_block block = DATASET_BLOCK_NONE;
    int code = dataset_open(in_scratch(name), &dataset, err);
    if (code == 0) {
        code =
            dataset_load(dataset, &view, 0, dataset_info_of(dataset)->features, NULL, &block, err);
    }
    dataset_block_done(&block);
    dataset_close(dataset);
    return code;
}

static void refuses(const char *name, int code, const char *text)
{
    struct err err = {0};
    int got = open_and_load(name, &err);
    ck_assert_msg(got == code, "%d, not %d: %s", got, code, err.text);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

START_TEST(a_bare_folder_of_numpy_files_is_a_dataset)
{
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    ck_assert_int_eq(mkdir(in_scratch("d"), 0755), 0);
    put_npy("d/x.npy", "<f4", true, 3, 2, x, sizeof(x));
    put_npy("d/y.npy", "<f8", false, 3, 0, y3, sizeof(y3));
    struct dataset *dataset = NULL;
    struct err err = {0};
    uint8_t digest[SHA256_SIZE];
    ck_assert_msg(dataset_open(in_scratch("d"), &dataset, &err) == 0, "%s", err.text);
    ck_assert(!dataset_info_of(dataset)->has_manifest);
    ck_assert_str_eq(dataset_name(dataset, 1), "2");
    ck_assert_int_eq(dataset_digest(dataset, digest, &err), 0);
    ck_assert_int_eq(dataset_verify(dataset, NULL, &err), ERR_DATA);
    dataset_close(dataset);
    (void)put_text("d/columns.txt", "width\nheight");
    ck_assert_int_eq(dataset_open(in_scratch("d"), &dataset, &err), 0);
    ck_assert_str_eq(dataset_name(dataset, 1), "height");
    static const char *const names[] = {"width", "depth"};
    ck_assert_int_eq(dataset_expect(dataset, 2, NULL, &err), 0);
    ck_assert_int_eq(dataset_expect(dataset, 3, NULL, &err), ERR_DATA);
    ck_assert_int_eq(dataset_expect(dataset, 2, names, &err), ERR_DATA);
    ck_assert_ptr_nonnull(strstr(err.text, "feature 2 is 'height' here and 'depth'"));
    dataset_close(dataset);
    (void)put_text("d/columns.txt", "width\n");
    refuses("d", ERR_DAMAGED, "1 names for 2 features");
}
END_TEST

START_TEST(dense_files_of_another_make_are_refused_with_what_to_do)
{
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    static const double wide[6] = {1, 2, 3, 4, 5, 6};
    ck_assert_int_eq(mkdir(in_scratch("d"), 0755), 0);
    refuses("d", ERR_DATA, "is not a native dataset");
    refuses("absent", ERR_NOT_FOUND, "absent");
    put_npy("d/x.npy", "<f4", false, 3, 2, x, sizeof(x));
    refuses("d", ERR_DATA, "np.asfortranarray");
    put_npy("d/x.npy", "<f8", true, 3, 2, wide, sizeof(wide));
    refuses("d", ERR_DATA, "is not binary32");
    put_npy("d/x.npy", "<f4", true, 3, 2, x, sizeof(x) - 4);
    refuses("d", ERR_DAMAGED, "is the file whole?");
    put_npy("d/x.npy", "<f4", true, 3, 2, x, sizeof(x));
    put_npy("d/y.npy", "<f8", false, 2, 0, y3, 16);
    refuses("d", ERR_DAMAGED, "2 x 1 targets for 3 rows");
    float bad[6] = {1, 2, 3, 4, __builtin_nanf(""), 6};
    put_npy("d/y.npy", "<f8", false, 3, 0, y3, sizeof(y3));
    put_npy("d/x.npy", "<f4", true, 3, 2, bad, sizeof(bad));
    refuses("d", ERR_DATA, "row 2 of column 2 is not finite");
    struct dataset *dataset = NULL;
    struct dataset_view view = {.test = 0};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct err err = {0};
    ck_assert_int_eq(dataset_open(in_scratch("d"), &dataset, &err), 0);
    ck_assert_int_eq(dataset_load(dataset, &view, 0, 1, NULL, &block, &err),
                     0); /* not its column */
    dataset_block_done(&block);
    dataset_close(dataset);
    put_npy("d/x.npy", "<f4", false, 3, 1, x, 12); /* One column is in both orders. */
    ck_assert_int_eq(open_and_load("d", &err), 0);
}
END_TEST

START_TEST(sparse_files_are_checked_before_they_are_believed)
{
    static const int32_t rows[3] = {0, 2, 0};
    static const int32_t ends[4] = {0, 1, 2, 3};
    put_sparse(rows, ends);
    struct err err = {0};
    ck_assert_msg(open_and_load("s", &err) == 0, "%s", err.text);
    put_npy("s/indices.npy", "<i4", false, 3, 0, (int32_t[]){0, 3, 0}, 12);
    refuses("s", ERR_DAMAGED, "element 1 is no row of 3");
    put_npy("s/indices.npy", "<i4", false, 3, 0, (int32_t[]){0, -1, 0}, 12);
    refuses("s", ERR_DAMAGED, "element 1 is no row of 3");
    put_npy("s/indices.npy", "<i4", false, 3, 0, (int32_t[]){2, 2, 0}, 12);
    put_npy("s/indptr.npy", "<i4", false, 4, 0, (int32_t[]){0, 2, 2, 3}, 16);
    refuses("s", ERR_DATA, "sum_duplicates()");
    put_npy("s/indptr.npy", "<i4", false, 4, 0, (int32_t[]){0, 2, 1, 3}, 16);
    refuses("s", ERR_DAMAGED, "element 2 is 1: the elements ascend");
    put_npy("s/indptr.npy", "<i4", false, 4, 0, (int32_t[]){0, 1, 2, 2}, 16);
    refuses("s", ERR_DAMAGED, "element 3 is 2");
    put_npy("s/indptr.npy", "<i4", false, 4, 0, (int32_t[]){1, 1, 2, 3}, 16);
    refuses("s", ERR_DAMAGED, "element 0 is 1");
    put_npy("s/indices.npy", "<i4", false, 2, 0, rows, 8);
    refuses("s", ERR_DAMAGED, "2 row indices for 3 values");
}
END_TEST

START_TEST(a_changed_file_is_named)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    struct dataset *dataset = open_text("1,2\n3,4\n", settings);
    struct err err = {0};
    uint8_t bytes[512];
    ck_assert_int_eq(dataset_verify(dataset, NULL, &err), 0);
    size_t size = get_bytes(in_scratch("out/x.npy"), bytes, sizeof(bytes));
    bytes[size - 1] ^= 1;
    (void)put_bytes("out/x.npy", bytes, size);
    ck_assert_int_eq(dataset_verify(dataset, NULL, &err), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.text, "out/x.npy: its SHA-256 is not the manifest's"));
    dataset_close(dataset);
    (void)put_text("out/columns.txt", "longer\n");
    refuses("out", ERR_DAMAGED, "columns.txt: has 7 bytes, the manifest says 2");
    ck_assert_int_eq(unlink(in_scratch("out/columns.txt")), 0);
    refuses("out", ERR_DAMAGED, "columns.txt: is in the manifest, but");
    (void)put_text("out/manifest.json", "{\"format\": \"coppelius-dataset\", \"schema\": 2}");
    refuses("out", ERR_DATA, "has another schema");
    (void)put_text("out/manifest.json", "{]");
    refuses("out", ERR_DAMAGED, "is not JSON: line 1");
    (void)put_text("out/manifest.json",
                   "{\"format\": \"coppelius-dataset\", \"schema\": 1, \"rows\": 9,"
                   " \"files\": {}}");
    refuses("out", ERR_DAMAGED, "the manifest says 9 x");
}
END_TEST

/* A CSV of 50 rows: column j is 100 * j + row where (row + j) % 3 == 0, else 0; y is the row. */
static struct dataset *open_striped(enum data_storage storage, const char *name)
{
    char text[8192] = "";
    size_t used = 0;
    for (unsigned i = 0; i < 50; i++) {
        for (unsigned j = 1; j <= 6; j++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%u,",
                                     (i + j) % 3 == 0 ? 100 * j + i : 0);
        }
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%u\n", i);
    }
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.storage = storage;
    return import_and_open(put_text("striped", text), settings, name);
}

START_TEST(a_block_has_its_columns_split_then_shuffled_in_both_storages)
{
    for (unsigned s = 0; s < 2; s++) {
        struct dataset *dataset = open_striped(s == 0 ? DATA_STORAGE_DENSE : DATA_STORAGE_SPARSE,
                                               s == 0 ? "dense" : "sparse");
        struct dataset_view view = {.test = 0.2, .shuffle = true, .shuffle_seed = 5};
        struct dataset_block block = DATASET_BLOCK_NONE;
        struct dataset_targets targets = {.train = NULL};
        struct err err = {0};
        uint64_t bytes = 0;
        ck_assert_int_eq(dataset_load(dataset, &view, 2, 5, NULL, &block, &err), 0);
        ck_assert_int_eq(dataset_load_targets(dataset, &view, &targets, &err), 0);
        ck_assert_int_eq(dataset_block_bytes(dataset, &view, 2, 5, &bytes, &err), 0);
        ck_assert_uint_eq(bytes, s == 0 ? (48 + 16) * 3 * 4
                                        : (block.train.nonzeros + block.test.nonzeros) * 8 + 64);
        ck_assert_uint_eq(block.train.rows, 40);
        ck_assert_uint_eq(block.test.rows, 10);
        ck_assert_int_eq(block.train.sparse, s == 1);
        unsigned moved = 0;
        for (uint64_t i = 0; i < 50; i++) {
            const struct dataset_matrix *matrix = i < 40 ? &block.train : &block.test;
            uint64_t row = i < 40 ? (uint64_t)targets.train[i] : i;
            ck_assert(i < 40 ? row < 40 : targets.test[i - 40] == (double)i);
            moved += row != i ? 1 : 0;
            for (uint64_t j = 0; j < 3; j++) {
                uint64_t column = j + 3; /* from 1 in the file */
                float wanted = (row + column) % 3 == 0 ? (float)(100 * column + row) : 0.0F;
                ck_assert(matrix_at(matrix, i < 40 ? i : i - 40, j) == wanted);
            }
        }
        ck_assert_uint_gt(moved, 20);
        if (s == 0) {
            ck_assert_uint_eq(block.train.ld, 48);
            ck_assert_uint_eq((uintptr_t)block.train.dense % 64, 0);
            ck_assert(block.train.dense[47] == 0.0F);
        }
        dataset_targets_done(&targets);
        dataset_block_done(&block);
        dataset_close(dataset);
    }
}
END_TEST

START_TEST(a_given_transform_is_applied_to_all_rows)
{
    struct dataset *dataset = open_striped(DATA_STORAGE_SPARSE, "sparse");
    struct dataset_view view = {.test = 0.2, .standardize = true};
    struct dataset_block fitted = DATASET_BLOCK_NONE;
    struct dataset_block given = DATASET_BLOCK_NONE;
    struct err err = {0};
    ck_assert_int_eq(dataset_load(dataset, &view, 0, 6, NULL, &fitted, &err), 0);
    ck_assert(!fitted.train.sparse);
    struct dataset_view predict = {.test = 0, .mean = fitted.mean, .scale = fitted.scale};
    ck_assert_int_eq(dataset_load(dataset, &predict, 4, 6, NULL, &given, &err), 0);
    ck_assert_uint_eq(given.train.rows, 50);
    for (uint64_t i = 0; i < 50; i++) {
        float wanted = i < 40 ? matrix_at(&fitted.train, i, 4) : matrix_at(&fitted.test, i - 40, 4);
        ck_assert(matrix_at(&given.train, i, 0) == wanted);
    }
    ck_assert(given.mean[0] == fitted.mean[4] && given.scale[1] == fitted.scale[5]);
    dataset_block_done(&fitted);
    dataset_block_done(&given);
    dataset_close(dataset);
}
END_TEST

START_TEST(what_does_not_fit_the_memory_is_refused_with_the_numbers)
{
    struct dataset *dataset = open_striped(DATA_STORAGE_SPARSE, "sparse");
    struct dataset_view view = {.standardize = true, .memory_max = 1000};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct err err = {0};
    ck_assert_int_eq(dataset_load(dataset, &view, 0, 6, NULL, &block, &err), ERR_NOMEM);
    ck_assert_ptr_nonnull(strstr(err.text,
                                 "take 1632 bytes once standardize has made the sparse "
                                 "ones dense; this node has room for 1000: leave "
                                 "standardize out, or about 2 times as many nodes would do"));
    view.standardize = false;
    ck_assert_int_eq(dataset_load(dataset, &view, 0, 6, NULL, &block, &err), 0);
    dataset_block_done(&block);
    dataset_close(dataset);
}
END_TEST

START_TEST(the_split_keeps_a_training_row)
{
    struct dataset_split split;
    struct err err = {0};
    ck_assert_int_eq(dataset_split_rows(10, 0.3, &split, &err), 0);
    ck_assert_uint_eq(split.test_rows, 3);
    ck_assert_int_eq(dataset_split_rows(20433, 0.2, &split, &err), 0);
    ck_assert_uint_eq(split.train_rows, 16347);
    ck_assert_int_eq(dataset_split_rows(1, 0.99, &split, &err), 0);
    ck_assert_uint_eq(split.train_rows, 1);
    ck_assert_int_eq(dataset_split_rows(10, 1.0, &split, &err), ERR_USAGE);
    ck_assert_int_eq(dataset_split_rows(10, -0.1, &split, &err), ERR_USAGE);
    ck_assert_int_eq(dataset_split_rows(10, __builtin_nan(""), &split, &err), ERR_USAGE);
}
END_TEST

START_TEST(llmc_headers_are_known_and_tokens_stay_in_the_vocabulary)
{
    uint8_t bytes[1024 + 8] = {0};
    static const uint32_t header[3] = {20240520, 1, 4};
    static const uint16_t ids[4] = {1, 2, 65535, 4};
    memcpy(bytes, header, sizeof(header));
    memcpy(bytes + 1024, ids, sizeof(ids));
    struct tokens_file tokens = TOKENS_FILE_NONE;
    struct err err = {0};
    uint16_t got[2];
    ck_assert_int_eq(tokens_open(put_bytes("t", bytes, sizeof(bytes)), 65536, &tokens, &err), 0);
    ck_assert_uint_eq(tokens.count, 4);
    ck_assert_int_eq(tokens_read(&tokens, 2, 2, got, &err), 0);
    ck_assert_uint_eq(got[0], 65535);
    ck_assert_int_eq(tokens_verify(&tokens, NULL, &err), 0);
    tokens_close(&tokens);
    ck_assert_int_eq(tokens_open(in_scratch("t"), 65535, &tokens, &err), 0);
    ck_assert_int_eq(tokens_verify(&tokens, NULL, &err), ERR_DATA);
    ck_assert_ptr_nonnull(strstr(err.text, "token 2 (byte offset 1028) is 65535"));
    tokens_close(&tokens);
    bytes[8] = 5; /* Another count: plain tokens. */
    ck_assert_int_eq(tokens_open(put_bytes("t", bytes, sizeof(bytes)), 65536, &tokens, &err), 0);
    ck_assert_uint_eq(tokens.count, 516);
    tokens_close(&tokens);
}
END_TEST

Suite *unit_suite(void)
{
    TCase *tests = NULL;
    Suite *suite = data_suite("dataset", &tests);
    tcase_add_test(tests, a_bare_folder_of_numpy_files_is_a_dataset);
    tcase_add_test(tests, dense_files_of_another_make_are_refused_with_what_to_do);
    tcase_add_test(tests, sparse_files_are_checked_before_they_are_believed);
    tcase_add_test(tests, a_changed_file_is_named);
    tcase_add_test(tests, a_block_has_its_columns_split_then_shuffled_in_both_storages);
    tcase_add_test(tests, a_given_transform_is_applied_to_all_rows);
    tcase_add_test(tests, what_does_not_fit_the_memory_is_refused_with_the_numbers);
    tcase_add_test(tests, the_split_keeps_a_training_row);
    tcase_add_test(tests, llmc_headers_are_known_and_tokens_stay_in_the_vocabulary);
    return suite;
}
