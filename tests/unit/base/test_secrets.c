/* A secret is taken from a file that nobody else can read or put in another's place. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/secrets.h"
#include "tests/lib/unit.h"

static char folder[] = "/tmp/coppelius-test-XXXXXX";
static char path[64];
static struct err err;

static void setup(void)
{
    static const char text[] = "the secret\n";
    (void)strcpy(folder + sizeof(folder) - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/key", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
    (void)close(fd);
    err = (struct err){0};
}

static void teardown(void)
{
    char other[64];
    (void)snprintf(other, sizeof(other), "%s/link", folder);
    (void)unlink(other);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static int read_it(const char *from)
{
    struct buf bytes = BUF_NONE;
    int code = secrets_read("tls.key", from, 100, &bytes, &err);
    ck_assert_uint_eq(bytes.size, code == 0 ? 11 : 0);
    buf_done(&bytes);
    return code;
}

#define SAYS(wanted) ck_assert_msg(strstr(err.text, (wanted)) != NULL, "said: '%s'", err.text)

START_TEST(its_owner_alone_may_read_and_change_it)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0660, 0644};
    ck_assert_int_eq(read_it(path), 0);
    ck_assert_int_eq(chmod(path, 0400), 0);
    ck_assert_int_eq(read_it(path), 0);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        ck_assert_int_eq(chmod(path, modes[i]), 0);
        ck_assert_int_eq(read_it(path), ERR_CONFIG);
        SAYS("tls.key '");
        SAYS("may be read or changed by others (mode 6");
        SAYS("`chmod 600 ");
    }
}
END_TEST

START_TEST(of_another_user_it_is_refused)
{
    if (geteuid() != 0) {
        return; /* Only root can give a file away. */
    }
    ck_assert_int_eq(chown(path, 12345, 0), 0);
    ck_assert_int_eq(read_it(path), ERR_CONFIG);
    SAYS("is of user 12345, and this program runs as user 0");
    ck_assert_int_eq(chown(path, 0, 0), 0);
    ck_assert_int_eq(chown(folder, 12345, 0), 0);
    ck_assert_int_eq(read_it(path), ERR_CONFIG);
    SAYS("the folder is of user 12345");
    ck_assert_int_eq(chmod(folder, 01777), 0); /* Its owner may remove files whatever the bits. */
    ck_assert_int_eq(read_it(path), ERR_CONFIG);
    ck_assert_int_eq(chown(folder, 0, 0), 0);
    ck_assert_int_eq(read_it(path), 0);
}
END_TEST

START_TEST(in_a_folder_that_others_may_write_to_it_is_refused)
{
    static const mode_t modes[] = {0777, 0770, 0702, 0722};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        ck_assert_int_eq(chmod(folder, modes[i]), 0);
        ck_assert_int_eq(read_it(path), ERR_CONFIG);
        SAYS("others may write to the folder (mode 7");
        SAYS("`chmod go-w`");
    }
    ck_assert_int_eq(chmod(folder, 01777), 0); /* as /tmp: nobody may replace what is another's */
    ck_assert_int_eq(read_it(path), 0);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    ck_assert_int_eq(read_it(path), 0);
}
END_TEST

START_TEST(links_folders_large_files_and_nothing_are_told_apart)
{
    char other[64];
    (void)snprintf(other, sizeof(other), "%s/link", folder);
    ck_assert_int_eq(read_it(other), ERR_NOT_FOUND);
    SAYS("No such file");
    ck_assert_int_eq(read_it("/nowhere/key"), ERR_NOT_FOUND);
    ck_assert_int_eq(symlink(path, other), 0);
    ck_assert_int_eq(read_it(other), ERR_CONFIG);
    SAYS("is a symbolic link, which is not followed");
    (void)unlink(other);
    ck_assert_int_eq(mkfifo(other, 0600), 0);
    ck_assert_int_eq(read_it(other), ERR_CONFIG); /* and does not wait for a writer */
    SAYS("is no file");
    ck_assert_int_eq(read_it(folder), ERR_CONFIG);
    SAYS("is no file");
    ck_assert_int_eq(truncate(path, 101), 0);
    struct buf bytes = BUF_NONE;
    ck_assert_int_eq(secrets_read("tls.key", path, 100, &bytes, &err), ERR_CONFIG);
    SAYS("is larger than 100 bytes");
    buf_done(&bytes);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("secrets");
    TCase *claims = tcase_create("claims");
    tcase_add_checked_fixture(claims, setup, teardown);
    tcase_add_test(claims, its_owner_alone_may_read_and_change_it);
    tcase_add_test(claims, of_another_user_it_is_refused);
    tcase_add_test(claims, in_a_folder_that_others_may_write_to_it_is_refused);
    tcase_add_test(claims, links_folders_large_files_and_nothing_are_told_apart);
    suite_add_tcase(suite, claims);
    return suite;
}
