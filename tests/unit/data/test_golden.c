/* The matrices of the golden cases, as numerics/reference.py's read, shuffle_order and standardize
 * make them: SHA-256 of the training matrix (binary32, column by column, -0 as +0), of training and
 * test targets, and of means and scales. From dense and from sparse storage, loaded in two parts.
 */
#include "tests/unit/data/helper.h"

#include "base/hash.h"

struct golden {
    const char *path;
    enum data_format format;
    enum data_target target;
    const char *target_name;
    const char *drop;
    double test;
    int64_t shuffle; /* -1: none */
    bool header;
    bool standardize;
    uint64_t rows;
    uint64_t features;
    const char *x;
    const char *train;
    const char *test_targets; /* "": no test rows */
    const char *transform;
};

static const struct golden golden[] = {
    {"tables/ccpp/ccpp.txt", DATA_FORMAT_SPACE, DATA_TARGET_LAST, NULL, NULL, 0, -1, false, true,
     9568, 4, "27996677cfb439bd2f10158de0426f760bb97d48db499274954a36eca5d38e5f",
     "b84c1488b08e6ec560bbabfc57013ca515259eaa0abc7dafec26b31a2c484424", "",
     "4493b34368490c1b9259fccd81302ba67d1943bd2757df0756b820d0853d5cdf"},
    {"tables/california/california.csv", DATA_FORMAT_CSV, DATA_TARGET_NAME, "median_house_value",
     "ocean_proximity", 0.2, 7, true, true, 16347, 8,
     "91f4932bd10f1b2b9eb37059560687724073f451deb6584747e151f27c4c5e6b",
     "43b1afaa8d246e2678cd41eb4e8bfdb3957b78cdfc1a8cf8db6e39e3ba199e4b",
     "6687f0b5eaf503293b0cc1145cb9050612d1691ef40a030f93b5e5d378496ec4",
     "59c267111db8e15cfc3a20932f8d2b34159794e0f68a95b4ecc5a43ed9a7d212"},
    {"tables/diabetes/diabetes.csv", DATA_FORMAT_CSV, DATA_TARGET_LAST, NULL, NULL, 0.2, -1, true,
     false, 354, 10, "764b790b8ff334b68059ec56a4456db7b10ea444c5581d98823d1944f4e069e8",
     "ddca5c694e408f9229c3f6a5baa8cfe431361ecc742175fb4fa09e9754b3a5ab",
     "773f30a555db6c028d4c327e914ab59d6e868f7d70b4eb44baa1f3073a39d6d3", ""},
    {"tables/casp/casp.txt", DATA_FORMAT_SPACE, DATA_TARGET_FIRST, NULL, NULL, 0, 1, false, true,
     45730, 9, "b2fb83a1ba0e58af713375c408115d13709b355ab36c57fc595a72d32dcdc40f",
     "dbeaabf7264da2aa6fd6c15610164ebb1618c80e5e6755e8f031a17971be939e", "",
     "c6d70daab10288923bd66abcef95050b1d13abc30bf8c279deedfff1b7ea7a0a"},
    {"tables/naval/naval.txt", DATA_FORMAT_SPACE, DATA_TARGET_LAST, NULL, NULL, 0, -1, false, true,
     11934, 17, "5231369b6fbae32d1e1ca60ffb1bb342704aa75980e346414b5ffed96e91e25d",
     "4ce8d877326e89c34428215d54e02a49dd260929e93c4a5f6c121d3de6c5c0ed", "",
     "8ef48832526be881e97a17454aa6b24032d220ed8d256442b2e7cb21543b6bef"},
    {"sparse/cpusmall/cpusmall", DATA_FORMAT_SVM, DATA_TARGET_LAST, NULL, NULL, 0.2, 9, false, true,
     6554, 12, "74f61b99d1a7d3237d22f7155e3b6d03b63c0a19fab33354bf234427cdee23a9",
     "0e017ce908bc9ad4dc0b3927b4d278dda9f89ca3b8e5697120f68dd123f26a75",
     "3f6bc979692802ee0449037ffab272c3efbe422c311bcacdbe641e9158dca2de",
     "0dbf45df898152038e185ddac495144f90282809c918c7e2d05d9ac8ef8b7d9a"},
    {"sparse/a9a/a9a", DATA_FORMAT_SVM, DATA_TARGET_LAST, NULL, NULL, 0, -1, false, false, 32561,
     123, "4079c9331ebfee820d0543d5f2b1fe270e7d2bf2b9c434360f44c593d390b23e",
     "161e0e0c1ff200043bfadf9b78d0a8afc0fe52356547811b82ef38121b98155b", "", ""},
    {"sparse/rcv1_small/rcv1_small.train", DATA_FORMAT_SVM, DATA_TARGET_LAST, NULL, NULL, 0, -1,
     false, false, 1000, 47117, "0c23931a937bd52bbea8de9f6202c7cce443603409e369ca0db5e47bcf0cce18",
     "86d599adcab1c8515bcb5dc9a165f8e484e386cba54ed1df459faa95d55e6149", "", ""},
    {"tables/hflights/hflights.csv", DATA_FORMAT_CSV, DATA_TARGET_FIRST, NULL, NULL, 0, 3, true,
     true, 223874, 8, "1342c91785e43bec26161342586e0232c733a4c8b0739bb5e7d801d4020a7ac4",
     "8180f74e3793c4411e89c37819b12e03ec2da1109aa6424de7d4b69799600e15", "",
     "098b160b831c2dde255950651f92201c50de7495e0ab0c92cadaa3d024fe34c1"},
};

static void check_digest(struct sha256 *sha, const char *wanted, const char *what, const char *path)
{
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];
    sha256_finish(sha, digest);
    sha256_hex(digest, hex);
    ck_assert_msg(wanted[0] == '\0' || strcmp(hex, wanted) == 0, "%s: %s differs", path, what);
}

static void hash_columns(struct sha256 *sha, const struct dataset_matrix *matrix)
{
    float *column = malloc(matrix->rows * sizeof(float));
    ck_assert_ptr_nonnull(column);
    for (uint64_t j = 0; j < matrix->columns; j++) {
        memset(column, 0, matrix->rows * sizeof(float));
        for (uint64_t i = 0; !matrix->sparse && i < matrix->rows; i++) {
            column[i] = matrix->dense[j * matrix->ld + i] + 0.0F;
        }
        for (uint64_t k = matrix->sparse ? matrix->indptr[j] : 0;
             matrix->sparse && k < matrix->indptr[j + 1]; k++) {
            ck_assert(k == matrix->indptr[j] || matrix->row32[k] > matrix->row32[k - 1]);
            column[matrix->row32[k]] = matrix->values[k];
        }
        sha256_update(sha, column, matrix->rows * sizeof(float));
    }
    free(column);
}

static void check_targets(const struct dataset *dataset, const struct dataset_view *view,
                          const struct golden *wanted)
{
    struct dataset_targets targets = {.train = NULL};
    struct err err = {0};
    ck_assert_int_eq(dataset_load_targets(dataset, view, &targets, &err), 0);
    ck_assert_uint_eq(targets.train_rows, wanted->rows);
    struct sha256 sha;
    sha256_init(&sha);
    sha256_update(&sha, targets.train, targets.train_rows * sizeof(double));
    check_digest(&sha, wanted->train, "y of training", wanted->path);
    sha256_init(&sha);
    sha256_update(&sha, targets.test, targets.test_rows * sizeof(double));
    check_digest(&sha, wanted->test_targets, "y of testing", wanted->path);
    dataset_targets_done(&targets);
}

static void check_storage(const struct golden *wanted, enum data_storage storage)
{
    char path[TEST_PATH_SIZE];
    char relative[TEST_PATH_SIZE / 2];
    (void)snprintf(relative, sizeof(relative), "data/%s", wanted->path);
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = wanted->format;
    settings.header = wanted->header;
    settings.target = wanted->target;
    settings.target_name = wanted->target_name;
    settings.drop = &wanted->drop;
    settings.drop_count = wanted->drop != NULL ? 1 : 0;
    settings.missing = DATA_MISSING_DROP_ROW;
    settings.storage = storage;
    const char *name = storage == DATA_STORAGE_DENSE ? "dense" : "sparse";
    struct dataset *dataset = import_and_open(shared_path(path, relative), settings, name);
    ck_assert_uint_eq(dataset_info_of(dataset)->features, wanted->features);
    ck_assert_int_eq(dataset_info_of(dataset)->sparse, storage == DATA_STORAGE_SPARSE);

    struct dataset_view view = {.test = wanted->test,
                                .shuffle = wanted->shuffle >= 0,
                                .shuffle_seed = (uint64_t)wanted->shuffle,
                                .standardize = wanted->standardize};
    uint64_t bounds[] = {0, wanted->features / 3, wanted->features};
    struct dataset_block blocks[2] = {DATASET_BLOCK_NONE, DATASET_BLOCK_NONE};
    struct sha256 x;
    struct sha256 transform;
    sha256_init(&x);
    sha256_init(&transform);
    for (size_t b = 0; b < 2; b++) {
        struct err err = {0};
        ck_assert_msg(
            dataset_load(dataset, &view, bounds[b], bounds[b + 1], NULL, &blocks[b], &err) == 0,
            "%s", err.text);
        ck_assert_uint_eq(blocks[b].train.rows, wanted->rows);
        hash_columns(&x, &blocks[b].train);
    }
    check_digest(&x, wanted->x, "x", wanted->path);
    for (size_t b = 0; b < 2 && wanted->standardize; b++) {
        sha256_update(&transform, blocks[b].mean, (bounds[b + 1] - bounds[b]) * sizeof(double));
    }
    for (size_t b = 0; b < 2 && wanted->standardize; b++) {
        sha256_update(&transform, blocks[b].scale, (bounds[b + 1] - bounds[b]) * sizeof(double));
    }
    check_digest(&transform, wanted->transform, "mean and scale", wanted->path);
    check_targets(dataset, &view, wanted);
    dataset_block_done(&blocks[0]);
    dataset_block_done(&blocks[1]);
    dataset_close(dataset);
}

START_TEST(gives_the_reference_matrix_from_dense_storage)
{
    check_storage(&golden[_i], DATA_STORAGE_DENSE);
}
END_TEST

START_TEST(gives_the_reference_matrix_from_sparse_storage)
{
    check_storage(&golden[_i], DATA_STORAGE_SPARSE);
}
END_TEST

Suite *unit_suite(void)
{
    need_shared("data/tables");
    TCase *tests = NULL;
    Suite *suite = data_suite("golden", &tests);
    int count = (int)(sizeof(golden) / sizeof(golden[0]));
    tcase_add_loop_test(tests, gives_the_reference_matrix_from_dense_storage, 0, count);
    tcase_add_loop_test(tests, gives_the_reference_matrix_from_sparse_storage, 0, count);
    return suite;
}
