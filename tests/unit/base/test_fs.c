#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

Suite *unit_suite(void)
{
    Suite *suite = suite_create("fs");
    TCase *tcase = tcase_create("fs");
    tcase_add_checked_fixture(tcase, make_root, drop_root);
    tcase_add_test(tcase, replaced_files_hold_the_new_bytes_and_leave_nothing_behind);
    tcase_add_test(tcase, a_file_that_exists_is_not_created_again);
    tcase_add_test(tcase, what_is_no_plain_file_is_refused_at_once);
    tcase_add_test(tcase, absent_files_are_named_and_too_large_ones_refused_before_reading);
    suite_add_tcase(suite, tcase);
    return suite;
}
