/* Whole imports: memory budgets, compression, names, cancellation, keys. */
#include <signal.h>
#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>

#include "base/buf.h"
#include "base/rand.h"
#include "tests/unit/data/helper.h"

static void digest_of(const char *name, uint8_t digest[SHA256_SIZE])
{
    struct dataset *dataset = NULL;
    struct err err = {0};
    ck_assert_msg(dataset_open(in_scratch(name), &dataset, &err) == 0, "%s", err.text);
    ck_assert_msg(dataset_verify(dataset, NULL, &err) == 0, "%s", err.text);
    ck_assert_int_eq(dataset_digest(dataset, digest, &err), 0);
    dataset_close(dataset);
}

static void same_digest(const char *one, const char *other)
{
    uint8_t a[SHA256_SIZE];
    uint8_t b[SHA256_SIZE];
    digest_of(one, a);
    digest_of(other, b);
    ck_assert_msg(memcmp(a, b, sizeof(a)) == 0, "%s and %s differ", one, other);
}

static void make_csv(struct buf *text, unsigned rows, unsigned columns, bool sparse)
{
    struct rand rand = {3};
    for (unsigned i = 0; i < rows; i++) {
        for (unsigned j = 0; j < columns; j++) {
            uint64_t value = rand_below(&rand, 1000);
            bool zero = sparse && j + 1 < columns && j != 3 && value % 10 != 0;
            buf_print(text, "%s%llu", j > 0 ? "," : "",
                      zero ? 0ULL : (unsigned long long)value + 1);
        }
        buf_print(text, "\n");
    }
}

START_TEST(a_small_budget_spills_and_gives_the_same_files)
{
    static const enum data_storage storages[] = {DATA_STORAGE_DENSE, DATA_STORAGE_SPARSE};
    struct buf text = BUF_NONE;
    make_csv(&text, 30000, 12, true);
    char input[TEST_PATH_SIZE];
    (void)snprintf(input, sizeof(input), "%s", put_bytes("big.csv", text.bytes, text.size));
    buf_done(&text);
    for (size_t s = 0; s < 2; s++) {
        struct data_settings settings = DATA_SETTINGS_DEFAULT;
        settings.storage = storages[s];
        ck_assert_int_eq(import_path(input, settings, s == 0 ? "d0" : "s0", NULL, NULL), 0);
        settings.memory =
            256 << 10; /* A column of its own (the fourth) does not fit: 30000 * 16. */
        ck_assert_int_eq(import_path(input, settings, s == 0 ? "d1" : "s1", NULL, NULL), 0);
        same_digest(s == 0 ? "d0" : "s0", s == 0 ? "d1" : "s1");
    }
}
END_TEST

START_TEST(sparse_entries_spread_over_ranges_become_dense_too)
{
    struct buf text = BUF_NONE;
    struct rand rand = {5};
    for (unsigned i = 0; i < 5000; i++) {
        buf_print(&text, "%u", i);
        for (unsigned j = 1; j <= 40; j++) {
            if (rand_below(&rand, 2) == 0 || j == 7) {
                buf_print(&text, " %u:%llu", j, (unsigned long long)rand_below(&rand, 9) + 1);
            }
        }
        buf_print(&text, "\n");
    }
    char input[TEST_PATH_SIZE];
    (void)snprintf(input, sizeof(input), "%s", put_bytes("big.svm", text.bytes, text.size));
    buf_done(&text);
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = DATA_FORMAT_SVM;
    settings.storage = DATA_STORAGE_DENSE;
    ck_assert_int_eq(import_path(input, settings, "one", NULL, NULL), 0);
    settings.memory = 128 << 10;
    ck_assert_int_eq(import_path(input, settings, "two", NULL, NULL), 0);
    same_digest("one", "two");
}
END_TEST

START_TEST(gzip_and_zstd_are_known_by_their_first_bytes)
{
    struct buf text = BUF_NONE;
    make_csv(&text, 3000, 5, false);
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    ck_assert_int_eq(
        import_path(put_bytes("plain.csv", text.bytes, text.size), settings, "plain", NULL, NULL),
        0);
    /* Two members, cut within a line. */
    const char *path = in_scratch("data.csv.gz");
    for (unsigned part = 0; part < 2; part++) {
        gzFile file = gzopen(path, part == 0 ? "wb" : "ab");
        size_t from = part == 0 ? 0 : 1001;
        size_t end = part == 0 ? 1001 : text.size;
        ck_assert_int_eq(gzwrite(file, text.bytes + from, (unsigned)(end - from)),
                         (int)(end - from));
        ck_assert_int_eq(gzclose(file), Z_OK);
    }
    ck_assert_int_eq(import_path(path, settings, "gzip", NULL, NULL), 0);
    same_digest("plain", "gzip");

    uint8_t *packed = malloc(2 * ZSTD_compressBound(text.size));
    size_t first = ZSTD_compress(packed, ZSTD_compressBound(text.size), text.bytes, 777, 3);
    size_t second = ZSTD_compress(packed + first, ZSTD_compressBound(text.size), text.bytes + 777,
                                  text.size - 777, 3);
    path = put_bytes("data.csv.zst", packed, first + second);
    ck_assert_int_eq(import_path(path, settings, "zstd", NULL, NULL), 0);
    same_digest("plain", "zstd");
    for (unsigned cut = 0; cut < 2; cut++) { /* in the middle of a frame, and of its end */
        struct data_faults faults = {0};
        path = put_bytes("cut.zst", packed, cut == 0 ? first + second / 2 : first + second - 1);
        ck_assert_int_eq(import_path(path, settings, "cut", NULL, &faults), ERR_DATA);
        ck_assert_ptr_nonnull(
            strstr(faults.list[0].text, "cut.zst: the zstd data ends in the middle"));
    }
    free(packed);
    buf_done(&text);

    uint8_t bytes[65536];
    size_t size = get_bytes(in_scratch("data.csv.gz"), bytes, sizeof(bytes));
    struct data_faults faults = {0};
    path = put_bytes("cut.gz", bytes, size - 5);
    ck_assert_int_eq(import_path(path, settings, "cut", NULL, &faults), ERR_DATA);
    ck_assert_ptr_nonnull(strstr(faults.list[0].text, "cut.gz: the gzip data ends in the middle"));
    bytes[size / 2] ^= 0x55;
    path = put_bytes("damaged.gz", bytes, size);
    ck_assert_int_eq(import_path(path, settings, "cut", NULL, &faults), ERR_DATA);
}
END_TEST

START_TEST(lines_cross_every_edge_of_the_window)
{
    /* Lines of 1 to 3000 bytes over several windows of 1 MiB, in a file without a last line feed.
     */
    struct buf text = BUF_NONE;
    struct rand rand = {11};
    uint64_t rows = 0;
    double sum = 0;
    while (text.size < 5U << 19) {
        uint64_t value = rand_below(&rand, 100000);
        buf_print(&text, "%s%llu,%0*d", rows > 0 ? "\n" : "", (unsigned long long)value,
                  (int)rand_below(&rand, 3000) + 1, 1);
        sum += (double)value;
        rows++;
    }
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    struct dataset *dataset =
        import_and_open(put_bytes("long", text.bytes, text.size), settings, "out");
    buf_done(&text);
    struct dataset_view view = {.test = 0};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct err err = {0};
    ck_assert_uint_eq(dataset_info_of(dataset)->rows, rows);
    ck_assert_int_eq(dataset_load(dataset, &view, 0, 1, NULL, &block, &err), 0);
    for (uint64_t i = 0; i < rows; i++) {
        sum -= (double)matrix_at(&block.train, i, 0);
    }
    ck_assert(sum == 0.0);
    dataset_block_done(&block);
    dataset_close(dataset);
}
END_TEST

START_TEST(an_output_that_exists_is_not_touched)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    const char *path = put_text("input", "1,2\n");
    ck_assert_int_eq(import_path(path, settings, "out", NULL, NULL), 0);
    ck_assert_int_eq(import_path(path, settings, "out", NULL, NULL), ERR_USAGE);
    ck_assert_int_eq(import_path(path, settings, "input", NULL, NULL), ERR_USAGE);
    ck_assert_int_eq(import_path(path, settings, "slashed//", NULL, NULL), 0);
    ck_assert_int_eq(import_path(in_scratch("absent"), settings, "new", NULL, NULL), ERR_NOT_FOUND);
    ck_assert_int_eq(import_path(scratch, settings, "new", NULL, NULL), ERR_DATA);
    ck_assert_int_eq(import_path(path, settings, "no/such/parent", NULL, NULL), ERR_DISK);
}
END_TEST

START_TEST(a_full_disk_is_said_and_nothing_is_left)
{
    struct buf text = BUF_NONE;
    make_csv(&text, 20000, 8, false);
    const char *path = put_bytes("big.csv", text.bytes, text.size);
    buf_done(&text);
    struct rlimit whole;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &whole), 0);
    (void)signal(SIGXFSZ, SIG_IGN); /* Writing past the limit fails, as on a full disk. */
    struct rlimit small = {.rlim_cur = 100000, .rlim_max = whole.rlim_max};
    const char *paths[] = {path};
    for (unsigned way = 0; way < 4; way++) {
        struct data_settings settings = DATA_SETTINGS_DEFAULT;
        settings.paths = paths;
        settings.paths_count = 1;
        settings.storage = way % 2 == 0 ? DATA_STORAGE_DENSE : DATA_STORAGE_SPARSE;
        settings.memory = way < 2 ? 0 : 256 << 10; /* The spill fails in the second two. */
        struct err err = {0};
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        int code = data_import(&settings, in_scratch("out"), NULL, NULL, NULL, &err);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &whole), 0);
        ck_assert_int_eq(code, ERR_DISK);
        ck_assert_ptr_nonnull(strstr(err.text, "out: writing"));
        ck_assert_ptr_nonnull(strstr(err.text, "File too large"));
    }
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(scratch), 0);
    ck_assert_int_eq(mkdir(scratch, 0700), 0);
}
END_TEST

static bool stop_at_once(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const char **told = context;
    *told = phase;
    ck_assert(done <= total);
    return false;
}

START_TEST(progress_can_stop_the_import_and_nothing_is_left)
{
    const char *path = put_text("input", "1,2\n");
    const char *paths[] = {path};
    const char *told = NULL;
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.paths = paths;
    settings.paths_count = 1;
    struct data_progress progress = {stop_at_once, &told};
    struct err err = {0};
    ck_assert_int_eq(data_import(&settings, in_scratch("out"), &progress, NULL, NULL, &err),
                     ERR_CANCELED);
    ck_assert_str_eq(told, "reading");
    struct fs *fs = NULL;
    bool exists = true;
    ck_assert_int_eq(fs_posix_open(scratch, &fs, &err), 0);
    ck_assert_int_eq(fs->ops->unlink(fs, "input", &err), 0);
    ck_assert_int_eq(fs->ops->exists(fs, "out", &exists, &err), 0);
    ck_assert(!exists);
    fs_posix_close(fs);
    ck_assert_int_eq(rmdir(scratch), 0); /* It is empty: the half-made folder is gone too. */
    ck_assert_int_eq(mkdir(scratch, 0700), 0);
}
END_TEST

START_TEST(the_cache_key_tells_sources_and_settings_apart)
{
    uint8_t keys[5][SHA256_SIZE];
    struct err err = {0};
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    char path[TEST_PATH_SIZE];
    (void)snprintf(path, sizeof(path), "%s", put_text("input", "1,2\n"));
    const char *paths[] = {path};
    settings.paths = paths;
    settings.paths_count = 1;
    ck_assert_int_eq(data_cache_key(&settings, NULL, keys[0], &err), 0);
    settings.memory = 12345678;
    ck_assert_int_eq(data_cache_key(&settings, NULL, keys[1], &err), 0);
    ck_assert_mem_eq(keys[0], keys[1], SHA256_SIZE);
    settings.header = true;
    ck_assert_int_eq(data_cache_key(&settings, NULL, keys[1], &err), 0);
    settings.header = false;
    const char *drop[] = {"1"};
    settings.drop = drop;
    settings.drop_count = 1;
    ck_assert_int_eq(data_cache_key(&settings, NULL, keys[2], &err), 0);
    settings.missing_values = drop; /* The same text as another list. */
    settings.missing_values_count = 1;
    settings.drop_count = 0;
    ck_assert_int_eq(data_cache_key(&settings, NULL, keys[3], &err), 0);
    settings.missing_values_count = 0;
    (void)put_text("input", "1,3\n");
    ck_assert_int_eq(data_cache_key(&settings, NULL, keys[4], &err), 0);
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned j = 0; j < i; j++) {
            ck_assert(memcmp(keys[i], keys[j], SHA256_SIZE) != 0);
        }
    }
}
END_TEST

Suite *unit_suite(void)
{
    TCase *tests = NULL;
    Suite *suite = data_suite("import", &tests);
    tcase_add_test(tests, a_small_budget_spills_and_gives_the_same_files);
    tcase_add_test(tests, sparse_entries_spread_over_ranges_become_dense_too);
    tcase_add_test(tests, gzip_and_zstd_are_known_by_their_first_bytes);
    tcase_add_test(tests, lines_cross_every_edge_of_the_window);
    tcase_add_test(tests, an_output_that_exists_is_not_touched);
    tcase_add_test(tests, a_full_disk_is_said_and_nothing_is_left);
    tcase_add_test(tests, progress_can_stop_the_import_and_nothing_is_left);
    tcase_add_test(tests, the_cache_key_tells_sources_and_settings_apart);
    return suite;
}
