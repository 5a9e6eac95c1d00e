/* A dataset that is on another node: blocks, ranges, the partial copy. The network is left out: the
 * pieces go from a share to a copy by hand. */
#include "base/hash.h"
#include "data/npy.h"
#include "data/share.h"

#include "tests/unit/data/helper.h"

#define ROWS     300000U /* a column of 1.2 MB */
#define FEATURES 6U

static void put_npy(const char *name, const char *descr, bool fortran, uint64_t rows,
                    uint64_t columns, const void *elements, size_t size)
{
    uint8_t header[NPY_HEADER_SIZE];
    FILE *file = fopen(in_scratch(name), "wb");
    ck_assert_ptr_nonnull(file);
    npy_header(header, descr, fortran, rows, columns);
    ck_assert_uint_eq(fwrite(header, 1, sizeof(header), file), sizeof(header));
    ck_assert_uint_eq(fwrite(elements, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

static void put_targets(const char *name, double first)
{
    double *y = malloc(ROWS * sizeof(*y));
    ck_assert_ptr_nonnull(y);
    for (size_t i = 0; i < ROWS; i++) {
        y[i] = first + (double)i;
    }
    put_npy(name, "<f8", false, ROWS, 0, y, ROWS * sizeof(*y));
    free(y);
}

static void put_dense(const char *folder, double first)
{
    char name[64];
    float *x = malloc((size_t)ROWS * FEATURES * sizeof(*x));
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < (size_t)ROWS * FEATURES; i++) {
        x[i] = (float)(i * 2654435761U % 100003U);
    }
    ck_assert_int_eq(mkdir(in_scratch(folder), 0755), 0);
    (void)snprintf(name, sizeof(name), "%s/x.npy", folder);
    put_npy(name, "<f4", true, ROWS, FEATURES, x, (size_t)ROWS * FEATURES * sizeof(*x));
    (void)snprintf(name, sizeof(name), "%s/y.npy", folder);
    put_targets(name, first);
    free(x);
}

/* Every row has an entry in every other column. */
static void put_sparse(const char *folder)
{
    char name[64];
    size_t count = (size_t)ROWS / 2 * FEATURES;
    float *values = malloc(count * sizeof(*values));
    int64_t *rows = malloc(count * sizeof(*rows));
    int64_t ends[FEATURES + 1];
    ck_assert_ptr_nonnull(values);
    ck_assert_ptr_nonnull(rows);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(i % 1009U) + 1.0F;
        rows[i] = (int64_t)(i % (ROWS / 2) * 2 + i / (ROWS / 2) % 2);
    }
    for (size_t j = 0; j <= FEATURES; j++) {
        ends[j] = (int64_t)(j * (ROWS / 2));
    }
    ck_assert_int_eq(mkdir(in_scratch(folder), 0755), 0);
    (void)snprintf(name, sizeof(name), "%s/data.npy", folder);
    put_npy(name, "<f4", false, count, 0, values, count * sizeof(*values));
    (void)snprintf(name, sizeof(name), "%s/indices.npy", folder);
    put_npy(name, "<i8", false, count, 0, rows, count * sizeof(*rows));
    (void)snprintf(name, sizeof(name), "%s/indptr.npy", folder);
    put_npy(name, "<i8", false, FEATURES + 1, 0, ends, sizeof(ends));
    (void)snprintf(name, sizeof(name), "%s/y.npy", folder);
    put_targets(name, 0.0);
    free(values);
    free(rows);
}

struct told {
    struct buf manifest, table;
    uint8_t digest[SHA256_SIZE];
};

static struct dataset_share *share_of(const char *folder, struct told *told)
{
    struct dataset_share *share = NULL;
    struct err err = {0};
    int code = dataset_share_open(in_scratch(folder), NULL, &share, &err);
    ck_assert_msg(code == 0, "%s", err.text);
    *told = (struct told){BUF_NONE, BUF_NONE, {0}};
    buf_reserve(&told->manifest, (size_t)dataset_share_manifest_size(share));
    buf_reserve(&told->table, (size_t)dataset_share_table_size(share));
    told->manifest.size = (size_t)dataset_share_manifest_size(share);
    told->table.size = (size_t)dataset_share_table_size(share);
    ck_assert_int_eq(dataset_share_read(share, SHARE_MANIFEST, 0, told->manifest.bytes,
                                        told->manifest.size, &err),
                     0);
    ck_assert_int_eq(
        dataset_share_read(share, SHARE_TABLE, 0, told->table.bytes, told->table.size, &err), 0);
    memcpy(told->digest, dataset_share_digest(share), SHA256_SIZE);
    return share;
}

static void told_done(struct told *told)
{
    buf_done(&told->manifest);
    buf_done(&told->table);
}

static struct dataset_copy *copy_of(const char *folder, const struct told *told)
{
    struct dataset_copy *copy = NULL;
    struct err err = {0};
    int code =
        dataset_copy_make(in_scratch(folder), told->digest, told->manifest.bytes,
                          told->manifest.size, told->table.bytes, told->table.size, &copy, &err);
    ck_assert_msg(code == 0, "%s", err.text);
    return copy;
}

/* Fetches what the columns need, at most `most` bytes; the bytes fetched. */
static uint64_t fill(struct dataset_copy *copy, const struct dataset_share *share, uint64_t first,
                     uint64_t end, uint64_t most)
{
    static uint8_t bytes[SHARE_BLOCK_SIZE];
    uint64_t total = 0;
    for (;;) {
        struct dataset_piece *pieces = NULL;
        size_t count = 0;
        struct err err = {0};
        ck_assert_msg(dataset_copy_plan(copy, first, end, &pieces, &count, &err) == 0, "%s",
                      err.text);
        for (size_t i = 0; i < count && total < most; i++) {
            ck_assert_int_eq(dataset_share_read(share, pieces[i].part, pieces[i].offset, bytes,
                                                pieces[i].size, &err),
                             0);
            ck_assert_msg(dataset_copy_put(copy, &pieces[i], bytes, &err) == 0, "%s", err.text);
            total += pieces[i].size;
        }
        free(pieces);
        if (count == 0 || total >= most) {
            ck_assert_int_eq(dataset_copy_save(copy, &err), 0);
            return total;
        }
    }
}

static void same_columns(const char *whole, const char *partial, uint64_t first, uint64_t end)
{
    struct dataset *a = NULL;
    struct dataset *b = NULL;
    struct dataset_view view = {.test = 0.1, .shuffle = true, .shuffle_seed = 3};
    struct dataset_block x = DATASET_BLOCK_NONE;
    struct dataset_block y = DATASET_BLOCK_NONE;
    struct dataset_targets s = {.train = NULL};
    struct dataset_targets t = {.train = NULL};
    struct err err = {0};
    uint8_t digests[2][SHA256_SIZE];
    ck_assert_int_eq(dataset_open(in_scratch(whole), &a, &err), 0);
    ck_assert_msg(dataset_open(in_scratch(partial), &b, &err) == 0, "%s", err.text);
    ck_assert_int_eq(dataset_digest(a, digests[0], &err), 0);
    ck_assert_int_eq(dataset_digest(b, digests[1], &err), 0);
    ck_assert_mem_eq(digests[0], digests[1], SHA256_SIZE);
    ck_assert_int_eq(dataset_load(a, &view, first, end, NULL, &x, &err), 0);
    ck_assert_msg(dataset_load(b, &view, first, end, NULL, &y, &err) == 0, "%s", err.text);
    for (uint64_t j = 0; j < end - first; j++) {
        for (uint64_t i = 0; i < x.train.rows; i += 997) {
            ck_assert(x.train.sparse || matrix_at(&x.train, i, j) == matrix_at(&y.train, i, j));
        }
    }
    if (x.train.sparse) {
        ck_assert_uint_eq(x.train.nonzeros, y.train.nonzeros);
        ck_assert_mem_eq(x.train.values, y.train.values, x.train.nonzeros * sizeof(float));
        ck_assert_mem_eq(x.train.row32, y.train.row32, x.train.nonzeros * sizeof(uint32_t));
    }
    ck_assert_int_eq(dataset_load_targets(a, &view, &s, &err), 0);
    ck_assert_int_eq(dataset_load_targets(b, &view, &t, &err), 0);
    ck_assert_mem_eq(s.train, t.train, s.train_rows * sizeof(double));
    dataset_block_done(&x);
    dataset_block_done(&y);
    dataset_targets_done(&s);
    dataset_targets_done(&t);
    dataset_close(a);
    dataset_close(b);
}

static void lacks_columns(const char *folder, uint64_t first, uint64_t end)
{
    struct dataset *dataset = NULL;
    struct dataset_view view = {.test = 0};
    struct dataset_block block = DATASET_BLOCK_NONE;
    struct err err = {0};
    ck_assert_int_eq(dataset_open(in_scratch(folder), &dataset, &err), 0);
    ck_assert_int_eq(dataset_load(dataset, &view, first, end, NULL, &block, &err), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.text, "not in this partial copy"));
    ck_assert_int_eq(dataset_verify(dataset, NULL, &err), ERR_STATE);
    dataset_block_done(&block);
    dataset_close(dataset);
}

static void grows(const char *whole, const char *partial)
{
    struct told told;
    struct err err = {0};
    struct dataset_share *share = share_of(whole, &told);
    struct dataset_copy *copy = copy_of(partial, &told);
    uint64_t all = told.table.size / SHA256_SIZE * SHARE_BLOCK_SIZE;
    uint64_t some = fill(copy, share, 2, 4, UINT64_MAX);
    ck_assert_uint_lt(some, all * 3 / 4);
    ck_assert_int_eq(dataset_copy_check(copy, &err), 0);
    same_columns(whole, partial, 2, 4);
    lacks_columns(partial, 0, 1);
    dataset_copy_close(copy);
    ck_assert_msg(dataset_copy_open(in_scratch(partial), told.digest, &copy, &err) == 0, "%s",
                  err.text);
    ck_assert_uint_eq(fill(copy, share, 2, 4, UINT64_MAX), 0);
    uint64_t rest = fill(copy, share, 0, FEATURES, UINT64_MAX);
    ck_assert_uint_le(some + rest, all);
    ck_assert_int_eq(dataset_copy_check(copy, &err), 0);
    same_columns(whole, partial, 0, FEATURES);
    struct dataset_share *again = NULL;
    ck_assert_int_eq(dataset_share_open(in_scratch(partial), NULL, &again, &err), ERR_STATE);
    dataset_copy_close(copy);
    dataset_share_close(share);
    told_done(&told);
}

START_TEST(a_copy_has_the_columns_that_were_asked_for_and_the_datasets_digest)
{
    put_dense("d", 0.0);
    grows("d", "copy");
}
END_TEST

START_TEST(sparse_columns_are_found_by_their_bounds)
{
    put_sparse("s");
    grows("s", "copy");
}
END_TEST

START_TEST(what_was_saved_before_a_kill_is_not_fetched_again)
{
    put_dense("d", 0.0);
    struct told told;
    struct err err = {0};
    struct dataset_share *share = share_of("d", &told);
    struct dataset_copy *copy = copy_of("copy", &told);
    uint64_t before = fill(copy, share, 0, FEATURES, 5U << 20);
    static uint8_t bytes[SHARE_BLOCK_SIZE];
    struct dataset_piece *pieces = NULL;
    size_t count = 0;
    ck_assert_int_eq(dataset_copy_plan(copy, 0, FEATURES, &pieces, &count, &err), 0);
    ck_assert_int_eq(
        dataset_share_read(share, pieces[0].part, pieces[0].offset, bytes, pieces[0].size, &err),
        0);
    ck_assert_int_eq(dataset_copy_put(copy, &pieces[0], bytes, &err), 0);
    free(pieces);
    dataset_copy_close(copy); /* As a kill: the last piece is in the file, not in the record. */
    ck_assert_int_eq(dataset_copy_open(in_scratch("copy"), told.digest, &copy, &err), 0);
    uint64_t after = fill(copy, share, 0, FEATURES, UINT64_MAX);
    uint64_t plain = 0;
    struct dataset *dataset = NULL;
    ck_assert_int_eq(dataset_open(in_scratch("d"), &dataset, &err), 0);
    plain = dataset_info_of(dataset)->bytes;
    dataset_close(dataset);
    ck_assert_uint_eq(before + after, plain);
    same_columns("d", "copy", 0, FEATURES);
    dataset_copy_close(copy);
    dataset_share_close(share);
    told_done(&told);
}
END_TEST

START_TEST(a_block_that_is_not_the_tables_is_refused)
{
    put_dense("d", 0.0);
    struct told told;
    struct err err = {0};
    static uint8_t bytes[SHARE_BLOCK_SIZE];
    struct dataset_share *share = share_of("d", &told);
    struct dataset_copy *copy = copy_of("copy", &told);
    struct dataset_piece *pieces = NULL;
    size_t count = 0;
    ck_assert_int_eq(dataset_copy_plan(copy, 0, 1, &pieces, &count, &err), 0);
    ck_assert_uint_gt(count, 0);
    ck_assert_int_eq(
        dataset_share_read(share, pieces[0].part, pieces[0].offset, bytes, pieces[0].size, &err),
        0);
    bytes[77] ^= 1;
    ck_assert_int_eq(dataset_copy_put(copy, &pieces[0], bytes, &err), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.text, "do not have the SHA-256"));
    size_t again = 0;
    free(pieces);
    ck_assert_int_eq(dataset_copy_plan(copy, 0, 1, &pieces, &again, &err), 0);
    ck_assert_uint_eq(again, count);
    free(pieces);
    dataset_copy_close(copy);
    ck_assert_int_eq(dataset_share_read(share, 99, 0, bytes, 1, &err), ERR_PROTO);
    ck_assert_int_eq(dataset_share_read(share, SHARE_FILES, UINT64_MAX, bytes, 2, &err), ERR_PROTO);
    ck_assert_int_eq(dataset_share_read(share, SHARE_TABLE, told.table.size - 1, bytes, 2, &err),
                     ERR_PROTO);
    dataset_share_close(share);
    told_done(&told);
}
END_TEST

static void refuses(const struct told *told, const uint8_t digest[SHA256_SIZE], const char *text)
{
    struct dataset_copy *copy = NULL;
    struct err err = {0};
    int code =
        dataset_copy_make(in_scratch("copy"), digest, told->manifest.bytes, told->manifest.size,
                          told->table.bytes, told->table.size, &copy, &err);
    ck_assert_int_eq(code, ERR_DAMAGED);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert_int_ne(access(in_scratch("copy"), F_OK), 0);
}

/* The manifest with another table's digest in it. */
static void mix(struct told *told, const struct told *other)
{
    char hex[2][SHA256_HEX_SIZE];
    uint8_t digest[SHA256_SIZE];
    sha256_of(told->table.bytes, told->table.size, digest);
    sha256_hex(digest, hex[0]);
    sha256_of(other->table.bytes, other->table.size, digest);
    sha256_hex(digest, hex[1]);
    buf_put_u8(&told->manifest, 0);
    char *at = strstr((char *)told->manifest.bytes, hex[0]);
    ck_assert_ptr_nonnull(at);
    memcpy(at, hex[1], SHA256_HEX_SIZE - 1);
    told->manifest.size--;
    ck_assert_uint_eq(told->table.size, other->table.size);
    memcpy(told->table.bytes, other->table.bytes, other->table.size);
}

START_TEST(a_manifest_or_table_of_other_data_is_refused)
{
    put_dense("d", 0.0);
    put_dense("e", 1.0);
    struct told told;
    struct told other;
    struct err err = {0};
    struct dataset_share *share = share_of("d", &told);
    struct dataset_share *e = share_of("e", &other);
    refuses(&told, other.digest, "not that of the dataset that was asked for");
    told.table.bytes[5] ^= 1;
    refuses(&told, told.digest, "the table of 10 blocks that came is not its manifest's");
    told.table.bytes[5] ^= 1;
    told.table.size -= SHA256_SIZE;
    refuses(&told, told.digest, "is not its manifest's");
    told.table.size += SHA256_SIZE;
    uint64_t size = 0;
    ck_assert_int_eq(
        dataset_copy_table_size(told.manifest.bytes, told.manifest.size, told.digest, &size, &err),
        0);
    ck_assert_uint_eq(size, told.table.size);
    /* A holder whose table is of other bytes than its manifest's digests: seen when a file is
     * whole. */
    mix(&told, &other);
    struct dataset_copy *copy = copy_of("copy", &told);
    (void)fill(copy, e, 0, 1, UINT64_MAX);
    ck_assert_int_eq(dataset_copy_check(copy, &err), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.text, "y.npy is whole and does not have the SHA-256"));
    dataset_copy_close(copy);
    dataset_share_close(share);
    dataset_share_close(e);
    told_done(&told);
    told_done(&other);
}
END_TEST

START_TEST(a_broken_copy_is_said_to_be_damaged)
{
    put_dense("d", 0.0);
    struct told told;
    struct err err = {0};
    struct dataset_share *share = share_of("d", &told);
    struct dataset_copy *copy = NULL;
    ck_assert_int_eq(dataset_copy_open(in_scratch("copy"), told.digest, &copy, &err),
                     ERR_NOT_FOUND);
    copy = copy_of("copy", &told);
    dataset_copy_close(copy);
    uint8_t record[4096];
    size_t size = get_bytes(in_scratch("copy/partial.bin"), record, sizeof(record));
    record[size - 9] ^= 1;
    (void)put_bytes("copy/partial.bin", record, size);
    ck_assert_int_eq(dataset_copy_open(in_scratch("copy"), told.digest, &copy, &err), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.text, "is broken or of another dataset"));
    ck_assert_int_eq(unlink(in_scratch("copy/partial.bin")), 0);
    ck_assert_int_eq(dataset_copy_open(in_scratch("copy"), told.digest, &copy, &err), ERR_DAMAGED);
    dataset_share_close(share);
    told_done(&told);
}
END_TEST

static bool on_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    unsigned *calls = context;
    (void)phase;
    (void)done;
    (void)total;
    (*calls)++;
    return true;
}

START_TEST(an_import_writes_the_table_so_that_serving_reads_nothing)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    struct dataset *dataset = open_text("1,2,3\n4,5,6\n", settings);
    struct dataset_share *share = NULL;
    struct err err = {0};
    unsigned calls = 0;
    struct data_progress progress = {on_progress, &calls};
    uint8_t digest[SHA256_SIZE];
    ck_assert_int_eq(dataset_digest(dataset, digest, &err), 0);
    ck_assert_msg(dataset_share_open(in_scratch("out"), &progress, &share, &err) == 0, "%s",
                  err.text);
    ck_assert_uint_eq(calls, 0);
    ck_assert_mem_eq(digest, dataset_share_digest(share), SHA256_SIZE);
    dataset_share_close(share);
    dataset_close(dataset);
    /* Without the table it is made; then files that are not the manifest's are seen. */
    ck_assert_int_eq(unlink(in_scratch("out/blocks.bin")), 0);
    ck_assert_int_eq(dataset_share_open(in_scratch("out"), NULL, &share, &err), 0);
    ck_assert_mem_eq(digest, dataset_share_digest(share), SHA256_SIZE);
    dataset_share_close(share);
    uint8_t bytes[1024];
    size_t size = get_bytes(in_scratch("out/x.npy"), bytes, sizeof(bytes));
    bytes[size - 1] ^= 1;
    (void)put_bytes("out/x.npy", bytes, size);
    ck_assert_int_eq(dataset_share_open(in_scratch("out"), NULL, &share, &err), ERR_DAMAGED);
}
END_TEST

Suite *unit_suite(void);

Suite *unit_suite(void)
{
    TCase *tests = NULL;
    Suite *suite = data_suite("share", &tests);
    tcase_add_test(tests, a_copy_has_the_columns_that_were_asked_for_and_the_datasets_digest);
    tcase_add_test(tests, sparse_columns_are_found_by_their_bounds);
    tcase_add_test(tests, what_was_saved_before_a_kill_is_not_fetched_again);
    tcase_add_test(tests, a_block_that_is_not_the_tables_is_refused);
    tcase_add_test(tests, a_manifest_or_table_of_other_data_is_refused);
    tcase_add_test(tests, a_broken_copy_is_said_to_be_damaged);
    tcase_add_test(tests, an_import_writes_the_table_so_that_serving_reads_nothing);
    return suite;
}
