/* NumPy and SciPy read what we wrote, and we read what they wrote. Skipped by name without them. */
#include "tests/unit/data/helper.h"

static const char *python;

/* Runs a script in the scratch folder; the exit status. */
static int run_python(const char *script)
{
    char command[TEST_PATH_SIZE * 2];
    (void)put_text("script.py", script);
    (void)snprintf(command, sizeof(command), "cd %s && %s script.py", scratch, python);
    return system(command);
}

static void find_python(void)
{
    static const char *const candidates[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < 2; i++) {
        char command[128];
        (void)snprintf(command, sizeof(command), "%s -c 'import numpy, scipy.sparse' 2>/dev/null",
                       candidates[i]);
        if (system(command) == 0) {
            python = candidates[i];
            return;
        }
    }
    printf("skipped: no python3 with numpy and scipy is here\n");
    exit(77);
}

START_TEST(numpy_and_scipy_read_an_import)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.header = true;
    ck_assert_int_eq(import_path(put_text("input", "a,b,y\n1,2,0.1\n3,4,0.2\n5,0,0.3\n"), settings,
                                 "dense", NULL, NULL),
                     0);
    settings.storage = DATA_STORAGE_SPARSE;
    ck_assert_int_eq(import_path(in_scratch("input"), settings, "sparse", NULL, NULL), 0);
    ck_assert_int_eq(
        run_python("import hashlib, json, numpy as np, scipy.sparse as sp\n"
                   "want = np.array([[1, 2], [3, 4], [5, 0]], 'f4')\n"
                   "x, y = np.load('dense/x.npy'), np.load('dense/y.npy')\n"
                   "assert x.dtype == '<f4' and x.flags.f_contiguous and (x == want).all()\n"
                   "assert y.dtype == '<f8' and (y == np.array([0.1, 0.2, 0.3])).all()\n"
                   "part = [np.load(f'sparse/{n}.npy') for n in ('data', 'indices', 'indptr')]\n"
                   "s = sp.csc_matrix(tuple(part), shape=(3, 2))\n"
                   "s.check_format()\n"
                   "assert s.has_sorted_indices and (s.toarray() == want).all()\n"
                   "for folder in ('dense', 'sparse'):\n"
                   "    m = json.load(open(f'{folder}/manifest.json'))\n"
                   "    assert m['rows'] == 3 and m['features'] == 2 and m['target'] == 'y'\n"
                   "    for name, file in m['files'].items():\n"
                   "        b = open(f'{folder}/{name}', 'rb').read()\n"
                   "        assert len(b) == file['bytes']\n"
                   "        assert hashlib.sha256(b).hexdigest() == file['sha256']\n"
                   "    assert open(f'{folder}/columns.txt').read() == 'a\\nb\\n'\n"),
        0);
}
END_TEST

static void same_values(const char *name, bool sparse)
{
    struct dataset *dataset = NULL;
    struct err err = {0};
    struct dataset_view view = {.test = 0.25, .shuffle = true, .shuffle_seed = 1};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct dataset_targets targets = {.train = NULL};
    ck_assert_msg(dataset_open(in_scratch(name), &dataset, &err) == 0, "%s", err.text);
    ck_assert_int_eq(dataset_info_of(dataset)->sparse, sparse);
    ck_assert_uint_eq(dataset_info_of(dataset)->rows, 40);
    ck_assert_uint_eq(dataset_info_of(dataset)->features, 7);
    ck_assert_msg(dataset_load(dataset, &view, 1, 7, NULL, &block, &err) == 0, "%s", err.text);
    ck_assert_int_eq(dataset_load_targets(dataset, &view, &targets, &err), 0);
    for (uint64_t i = 0; i < 40; i++) {
        double y = i < 30 ? targets.train[i] : targets.test[i - 30];
        for (uint64_t j = 1; j < 7; j++) {
            float value =
                i < 30 ? matrix_at(&block.train, i, j - 1) : matrix_at(&block.test, i - 30, j - 1);
            double cell = y * 7 + (double)j; /* x[i, j] = i * 7 + j where that is odd */
            ck_assert(value == (((uint64_t)cell & 1) != 0 ? (float)cell : 0.0F));
        }
    }
    dataset_targets_done(&targets);
    dataset_block_done(&block);
    dataset_close(dataset);
}

START_TEST(a_folder_from_numpy_or_scipy_is_a_dataset)
{
    ck_assert_int_eq(
        run_python("import os, numpy as np, scipy.sparse as sp\n"
                   "x = np.arange(280).reshape(40, 7).astype('f4')\n"
                   "x[x % 2 == 0] = 0\n"
                   "y = np.arange(40)\n"
                   "def save(folder, **files):\n"
                   "    os.mkdir(folder)\n"
                   "    for name, a in files.items(): np.save(f'{folder}/{name}.npy', a)\n"
                   "save('n', x=np.asfortranarray(x), y=y.astype('f8'))\n"
                   "save('i', x=np.asfortranarray(x), y=y)\n"
                   "s = sp.csc_matrix(x)\n"
                   "save('s', data=s.data, indices=s.indices, indptr=s.indptr, y=y.astype('f8'))\n"
                   "save('w', data=s.data, indices=s.indices.astype('i8'),\n"
                   "     indptr=s.indptr.astype('i8'), y=y.astype('f4').reshape(-1, 1))\n"
                   "save('c', x=x, y=y)\n"),
        0);
    same_values("n", false);
    same_values("i", false); /* integer targets */
    same_values("s", true);
    same_values("w", true);
    struct dataset *dataset = NULL;
    struct err err = {0};
    ck_assert_int_eq(dataset_open(in_scratch("c"), &dataset, &err), ERR_DATA);
    /* In C order it is imported. */
    char x[TEST_PATH_SIZE];
    char y[TEST_PATH_SIZE];
    (void)snprintf(x, sizeof(x), "%s", in_scratch("c/x.npy"));
    (void)snprintf(y, sizeof(y), "%s", in_scratch("c/y.npy"));
    const char *paths[] = {x, y};
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = DATA_FORMAT_NPY;
    settings.paths = paths;
    settings.paths_count = 2;
    ck_assert_msg(data_import(&settings, in_scratch("imported"), NULL, NULL, NULL, &err) == 0, "%s",
                  err.text);
    same_values("imported", false);
}
END_TEST

Suite *unit_suite(void)
{
    find_python();
    TCase *tests = NULL;
    Suite *suite = data_suite("numpy", &tests);
    tcase_add_test(tests, numpy_and_scipy_read_an_import);
    tcase_add_test(tests, a_folder_from_numpy_or_scipy_is_a_dataset);
    return suite;
}
