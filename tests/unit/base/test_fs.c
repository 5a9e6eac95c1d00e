#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/direct.h"
#include "base/fs.h"
#include "tests/lib/unit.h"

static char root[64];
static struct fs *fs;

static void make_root(void)
{
    strcpy(root, "/tmp/coppelius-fs-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    struct err err = {0};
    ck_assert_int_eq(fs_posix_open(root, &fs, &err), 0);
}

static void drop_root(void)
{
    struct err err = {0};
    ck_assert_int_eq(fs_remove_tree(fs, "all", &err), 0);
    fs_posix_close(fs);
    ck_assert_int_eq(rmdir(root), 0);
}

START_TEST(replaced_files_hold_the_new_bytes_and_leave_nothing_behind)
{
    struct err err = {0};
    struct buf bytes = BUF_NONE;
    ck_assert_int_eq(fs_mkdir_all(fs, "all/deep", &err), 0);
    ck_assert_int_eq(fs_replace(fs, "all/deep/CURRENT", "old", 3, &err), 0);
    ck_assert_int_eq(fs_replace(fs, "all/deep/CURRENT", "newer", 5, &err), 0);
    ck_assert_int_eq(fs_read_all(fs, "all/deep/CURRENT", 100, &bytes, &err), 0);
    ck_assert_uint_eq(bytes.size, 5);
    ck_assert_int_eq(memcmp(bytes.bytes, "newer", 5), 0);
    bool exists = true;
    ck_assert_int_eq(fs->ops->exists(fs, "all/deep/CURRENT.new", &exists, &err), 0);
    ck_assert(!exists);
    buf_done(&bytes);
}
END_TEST

START_TEST(a_file_that_exists_is_not_created_again)
{
    struct err err = {0};
    ck_assert_int_eq(fs_mkdir_all(fs, "all", &err), 0);
    ck_assert_int_eq(fs_create(fs, "all/one", "1", 1, &err), 0);
    ck_assert_int_eq(fs_create(fs, "all/one", "2", 1, &err), ERR_DISK);
    ck_assert_str_eq(err.text, "create 'all/one': File exists");
}
END_TEST

START_TEST(what_is_no_plain_file_is_refused_at_once)
{
    static const char *const names[] = {"all/link", "all/fifo", "all/folder"};
    struct err err = {0};
    struct buf bytes = BUF_NONE;
    char path[128];
    ck_assert_int_eq(fs_mkdir_all(fs, "all/folder", &err), 0);
    (void)snprintf(path, sizeof(path), "%s/all/link", root);
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    (void)snprintf(path, sizeof(path), "%s/all/fifo", root);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    for (size_t i = 0; i < 3; i++) { /* Nobody writes into the FIFO: opening it must not wait. */
        ck_assert_int_eq(fs_read_all(fs, names[i], 100, &bytes, &err), ERR_DAMAGED);
        ck_assert_ptr_nonnull(strstr(err.text, "it is no plain file"));
        ck_assert_ptr_nonnull(strstr(err.text, names[i]));
    }
}
END_TEST

START_TEST(absent_files_are_named_and_too_large_ones_refused_before_reading)
{
    struct err err = {0};
    struct buf bytes = BUF_NONE;
    ck_assert_int_eq(fs_read_all(fs, "none", 10, &bytes, &err), ERR_NOT_FOUND);
    ck_assert_str_eq(err.text, "open 'none': no such file");
    ck_assert_int_eq(fs_mkdir_all(fs, "all", &err), 0);
    ck_assert_int_eq(fs_create(fs, "all/big", "0123456789", 10, &err), 0);
    ck_assert_int_eq(fs_read_all(fs, "all/big", 9, &bytes, &err), ERR_DAMAGED);
    ck_assert_str_eq(err.text, "'all/big' has 10 bytes; the most is 9");
    ck_assert_ptr_null(bytes.bytes);
}
END_TEST

/* ---- long files ---- */

#define PIECE (1000003U) /* never aligned */

static uint8_t *made_bytes(size_t size)
{
    uint8_t *bytes = malloc(size);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 2654435761U >> 13);
    }
    return bytes;
}

static void put_bytes(struct fs_file *file, const uint8_t *bytes, size_t size)
{
    struct err err = {0};
    for (size_t at = 0; at < size; at += PIECE) {
        size_t step = size - at < PIECE ? size - at : PIECE;
        ck_assert_int_eq(fs->ops->write(file, bytes + at, step, &err), 0);
    }
}

static void check_bytes(const char *path, const uint8_t *bytes, size_t size)
{
    struct err err = {0};
    struct buf read = BUF_NONE;
    ck_assert_int_eq(fs_read_all(fs, path, size + 1, &read, &err), 0);
    ck_assert_uint_eq(read.size, size);
    ck_assert(size == 0 || memcmp(read.bytes, bytes, size) == 0);
    buf_done(&read);
}

START_TEST(a_long_file_has_the_bytes_that_were_written)
{
    static const size_t sizes[] = {0,
                                   1,
                                   DIRECT_PIECE_SIZE - 1,
                                   DIRECT_PIECE_SIZE,
                                   3 * DIRECT_PIECE_SIZE,
                                   5 * DIRECT_PIECE_SIZE + 4097};
    struct err err = {0};
    struct fs_file *file = NULL;
    ck_assert_int_eq(fs_mkdir_all(fs, "all", &err), 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint8_t *bytes = made_bytes(sizes[i] + 1);
        uint64_t size = 1;
        ck_assert_int_eq(fs->ops->unlink(fs, "all/long", &err), 0);
        ck_assert_int_eq(fs_open(fs, "all/long", FS_CREATE, &file, &err), 0);
        fs_expect(fs, file, UINT64_C(1) << 30); /* More than comes. */
        put_bytes(file, bytes, sizes[i]);
        if (i % 2 == 0) {
            ck_assert_int_eq(fs->ops->sync(file, &err), 0);
            check_bytes("all/long", bytes, sizes[i]);
        }
        ck_assert_int_eq(fs->ops->size(file, &size, &err), 0);
        ck_assert_uint_eq(size, sizes[i]);
        ck_assert_int_eq(fs->ops->close(file, &err), 0);
        check_bytes("all/long", bytes, sizes[i]);
        free(bytes);
    }
}
END_TEST

START_TEST(a_long_file_is_gone_on_with_wherever_it_ends)
{
    static const size_t ends[] = {0, 4096, 4097, DIRECT_PIECE_SIZE, DIRECT_PIECE_SIZE + 1};
    const size_t size = 4 * DIRECT_PIECE_SIZE + 77;
    struct err err = {0};
    struct fs_file *file = NULL;
    uint8_t *bytes = made_bytes(size);
    ck_assert_int_eq(fs_mkdir_all(fs, "all", &err), 0);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        ck_assert_int_eq(fs->ops->unlink(fs, "all/part", &err), 0);
        for (size_t half = 0; half < 2; half++) {
            ck_assert_int_eq(fs_open(fs, "all/part", FS_APPEND, &file, &err), 0);
            fs_expect(fs, file, size);
            if (half == 0) {
                put_bytes(file, bytes, ends[i]);
            } else {
                put_bytes(file, bytes + ends[i], size - ends[i]);
            }
            ck_assert_int_eq(fs->ops->close(file, &err), 0);
        }
        check_bytes("all/part", bytes, size);
    }
    free(bytes);
}
END_TEST

START_TEST(a_long_file_that_finds_no_room_is_an_error)
{
    const size_t size = 3 * DIRECT_PIECE_SIZE;
    struct rlimit old;
    struct rlimit most;
    struct err err = {0};
    struct fs_file *file = NULL;
    uint8_t *bytes = made_bytes(size);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(fs_mkdir_all(fs, "all", &err), 0);
    ck_assert_int_eq(fs_open(fs, "all/full", FS_CREATE, &file, &err), 0);
    fs_expect(fs, file, size);
    (void)signal(SIGXFSZ, SIG_IGN);
    most = old;
    most.rlim_cur = DIRECT_PIECE_SIZE + 12345; /* A piece is done in part, then none of it. */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &most), 0);
    int code = fs->ops->write(file, bytes, size, &err);
    int close_code = fs->ops->close(file, NULL);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(code, ERR_DISK);
    ck_assert_str_eq(err.text, "write 'all/full': File too large");
    ck_assert_int_eq(close_code, 0); /* It was given up. */
    free(bytes);
}
END_TEST

/* Bytes on the disk, in whatever blocks. */
static uint64_t held(const char *name)
{
    char path[512];
    struct stat status;
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    ck_assert_int_eq(stat(path, &status), 0);
    return (uint64_t)status.st_blocks * 512;
}

START_TEST(room_is_kept_before_a_long_file_is_written)
{
    const size_t size = 3 * DIRECT_PIECE_SIZE + 77;
    struct err err = {0};
    struct fs_file *file = NULL;
    uint64_t seen = 1;
    uint8_t *bytes = made_bytes(size);
    ck_assert_int_eq(fs_mkdir_all(fs, "all", &err), 0);
    for (int turn = 0; turn < 2; turn++) { /* A part is gone on with, what it had kept too. */
        ck_assert_int_eq(fs_open(fs, "all/part", FS_APPEND, &file, &err), 0);
        ck_assert_int_eq(fs_reserve(fs, file, turn == 0 ? size : size - 4096, &err), 0);
        ck_assert_int_eq(fs->ops->size(file, &seen, &err), 0);
        ck_assert_uint_eq(seen, turn == 0 ? 0 : 4096);
        fs_expect(fs, file, size);
        put_bytes(file, turn == 0 ? bytes : bytes + 4096, turn == 0 ? 4096 : size - 4096);
        ck_assert_int_eq(fs->ops->close(file, &err), 0);
        /* Nothing is held where the file system cannot keep room. */
        ck_assert(turn == 1 || held("all/part") == 4096 || held("all/part") >= size);
    }
    check_bytes("all/part", bytes, size);
    ck_assert_uint_lt(held("all/part"), size + (1U << 20));
    free(bytes);
}
END_TEST

START_TEST(a_file_for_which_there_is_no_room_is_refused_with_the_numbers)
{
    const uint64_t size = UINT64_C(1) << 60;
    char wanted[128];
    struct err err = {0};
    struct fs_file *file = NULL;
    uint64_t seen = 0;
    ck_assert_int_eq(fs_mkdir_all(fs, "all", &err), 0);
    ck_assert_int_eq(fs_open(fs, "all/shard", FS_CREATE, &file, &err), 0);
    put_bytes(file, (const uint8_t *)"begun", 5);
    ck_assert_int_eq(fs_reserve(fs, file, size, &err), ERR_DISK);
    static const char begin[] = "no room for 'shard': it needs 115292150460684"; /* 2^60, about */
    ck_assert_int_eq(strncmp(err.text, begin, sizeof(begin) - 1), 0);
    (void)snprintf(wanted, sizeof(wanted), " are free on the disk of '%s/all'; free some", root);
    ck_assert_ptr_nonnull(strstr(err.text, wanted));
    ck_assert_int_eq(fs->ops->size(file, &seen, &err), 0);
    ck_assert_uint_eq(seen, 5);
    ck_assert_int_eq(fs->ops->close(file, &err), 0);
    ck_assert_uint_lt(held("all/shard"), 1U << 20);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("fs");
    TCase *tcase = tcase_create("fs");
    tcase_add_checked_fixture(tcase, make_root, drop_root);
    tcase_add_test(tcase, replaced_files_hold_the_new_bytes_and_leave_nothing_behind);
    tcase_add_test(tcase, a_file_that_exists_is_not_created_again);
    tcase_add_test(tcase, what_is_no_plain_file_is_refused_at_once);
    tcase_add_test(tcase, absent_files_are_named_and_too_large_ones_refused_before_reading);
    tcase_add_test(tcase, a_long_file_has_the_bytes_that_were_written);
    tcase_add_test(tcase, a_long_file_is_gone_on_with_wherever_it_ends);
    tcase_add_test(tcase, a_long_file_that_finds_no_room_is_an_error);
    tcase_add_test(tcase, room_is_kept_before_a_long_file_is_written);
    tcase_add_test(tcase, a_file_for_which_there_is_no_room_is_refused_with_the_numbers);
    suite_add_tcase(suite, tcase);
    return suite;
}
