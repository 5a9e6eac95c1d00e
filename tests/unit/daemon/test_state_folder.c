#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/state_folder.h"
#include "tests/lib/unit.h"

static char base[64];
static char path[96];
static char want[1024];
static struct err err;

static void start(void)
{
    (void)snprintf(base, sizeof(base), "state-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(base));
    (void)snprintf(path, sizeof(path), "%s/s", base);
    err = (struct err){0};
}

static void stop(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -r '%s'", base);
    ck_assert_int_eq(system(command), 0);
}

static void put(const char *name, const char *text)
{
    char file[160];
    (void)snprintf(file, sizeof(file), "%s/%s", path, name);
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

START_TEST(each_start_has_a_greater_incarnation)
{
    start();
    struct state_folder folder = STATE_FOLDER_NONE;
    uint64_t last = 0;
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_int_eq(state_folder_open(path, "home", "a", &folder, &err), 0);
        ck_assert_uint_gt(folder.incarnation, last);
        last = folder.incarnation;
        state_folder_close(&folder);
        state_folder_close(&folder);
    }
    stop();
}
END_TEST

START_TEST(two_daemons_cannot_share_it)
{
    start();
    struct state_folder first = STATE_FOLDER_NONE;
    struct state_folder second = STATE_FOLDER_NONE;
    ck_assert_int_eq(state_folder_open(path, "home", "a", &first, &err), 0);
    ck_assert_int_eq(state_folder_open(path, "home", "a", &second, &err), ERR_BUSY);
    (void)snprintf(
        want, sizeof(want),
        "state_dir '%s' is in use by another daemon (pid %d); stop that one or set another "
        "state_dir",
        path, (int)getpid());
    ck_assert_str_eq(err.text, want);
    state_folder_close(&first);
    ck_assert_int_eq(state_folder_open(path, "home", "a", &second, &err), 0);
    state_folder_close(&second);
    stop();
}
END_TEST

static const struct {
    const char *node_json;
    int code;
    const char *sentence; /* behind the path */
} refused[] = {
    {"{\"format\":1,\"cluster\":\"home\",\"name\":\"b\",\"incarnation\":1}", ERR_STATE,
     "state_dir '%s' belongs to node 'b' of cluster 'home', not to 'a' of 'home'; set the right "
     "state_dir, or name"},
    {"{\"format\":1,\"cluster\":\"away\",\"name\":\"a\",\"incarnation\":1}", ERR_STATE,
     "state_dir '%s' belongs to node 'a' of cluster 'away', not to 'a' of 'home'; set the right "
     "state_dir, or name"},
    {"{\"format\":2,\"cluster\":\"home\",\"name\":\"a\",\"incarnation\":1}", ERR_STATE,
     "state_dir '%s' has format 2, this version knows 1; use the version that wrote it, or an "
     "empty "
     "state_dir"},
    {"{\"format\":1,\"cluster\":\"home\"", ERR_DAMAGED, NULL},
    {"", ERR_DAMAGED, NULL},
    {"[]", ERR_DAMAGED, NULL},
    {"{\"format\":1,\"cluster\":\"home\",\"name\":\"a\",\"incarnation\":-1}", ERR_DAMAGED,
     "'%s/node.json': incarnation is negative; restore the file"},
};

START_TEST(what_is_not_ours_is_refused_and_left_alone)
{
    start();
    struct state_folder folder = STATE_FOLDER_NONE;
    ck_assert_int_eq(mkdir(path, 0700), 0);
    put("node.json", refused[_i].node_json);
    ck_assert_int_eq(state_folder_open(path, "home", "a", &folder, &err), refused[_i].code);
    if (refused[_i].sentence != NULL) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(want, sizeof(want), refused[_i].sentence, path);
#pragma GCC diagnostic pop
        ck_assert_str_eq(err.text, want);
    }
    ck_assert_int_eq(folder.lock_fd, -1);
    char file[160];
    char text[256] = "";
    (void)snprintf(file, sizeof(file), "%s/node.json", path);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(read(fd, text, sizeof(text) - 1), 0);
    (void)close(fd);
    ck_assert_str_eq(text, refused[_i].node_json);
    stop();
}
END_TEST

START_TEST(a_log_of_nobody_is_refused)
{
    start();
    struct state_folder folder = STATE_FOLDER_NONE;
    char log[128];
    (void)snprintf(log, sizeof(log), "%s/log", path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(mkdir(log, 0700), 0);
    ck_assert_int_eq(state_folder_open(path, "home", "a", &folder, &err), ERR_STATE);
    (void)snprintf(
        want, sizeof(want),
        "state_dir '%s' has a log but no node.json: nobody can say whose it is; restore it, "
        "or start with an empty state_dir",
        path);
    ck_assert_str_eq(err.text, want);
    stop();
}
END_TEST

START_TEST(a_folder_without_parents_is_not_made)
{
    start();
    struct state_folder folder = STATE_FOLDER_NONE;
    char deep[128];
    (void)snprintf(deep, sizeof(deep), "%s/x/y", base);
    ck_assert_int_eq(state_folder_open(deep, "home", "a", &folder, &err), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "its parent folder is not there"));
    stop();
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("state_folder");
    TCase *tcase = tcase_create("folder");
    tcase_add_test(tcase, each_start_has_a_greater_incarnation);
    tcase_add_test(tcase, two_daemons_cannot_share_it);
    tcase_add_loop_test(tcase, what_is_not_ours_is_refused_and_left_alone, 0,
                        (int)(sizeof(refused) / sizeof(refused[0])));
    tcase_add_test(tcase, a_log_of_nobody_is_refused);
    tcase_add_test(tcase, a_folder_without_parents_is_not_made);
    suite_add_tcase(suite, tcase);
    return suite;
}
