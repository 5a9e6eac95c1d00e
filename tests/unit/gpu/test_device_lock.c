#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "gpu/device_lock.h"
#include "tests/lib/unit.h"

/* What a fresh process gets when it asks. */
static int ask_elsewhere(const char *uuid, bool share)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct err err = {0};
        /* The child inherits this process' table: it stands for another one by its own name. */
        _exit(-device_lock_take(uuid, share, &err));
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return -WEXITSTATUS(status);
}

static pid_t hold_elsewhere(const char *uuid, bool share)
{
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct err err = {0};
        char answer = device_lock_take(uuid, share, &err) == 0 ? 'y' : 'n';
        (void)!write(ready[1], &answer, 1);
        (void)pause();
        _exit(0);
    }
    char answer = 0;
    ck_assert_int_eq(read(ready[0], &answer, 1), 1);
    ck_assert_int_eq(answer, 'y');
    (void)close(ready[0]);
    (void)close(ready[1]);
    return child;
}

static void end(pid_t child)
{
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

static void own_folder(void)
{
    static char folder[] = "/tmp/coppelius-lock-XXXXXX";
    if (strstr(folder, "XXXXXX") != NULL) {
        ck_assert_ptr_nonnull(mkdtemp(folder));
    }
    ck_assert_int_eq(setenv("COPPELIUS_RUN_DIR", folder, 1), 0);
}

START_TEST(a_dead_process_leaves_no_lock)
{
    own_folder();
    pid_t holder = hold_elsewhere("GPU-1", false);
    ck_assert_int_eq(ask_elsewhere("GPU-1", false), ERR_BUSY);
    ck_assert_int_eq(ask_elsewhere("GPU-1", true), ERR_BUSY);
    ck_assert_int_eq(ask_elsewhere("GPU-2", false), 0);
    end(holder);
    ck_assert_int_eq(ask_elsewhere("GPU-1", false), 0);
}
END_TEST

START_TEST(sharers_share_and_keep_an_exclusive_one_out)
{
    own_folder();
    pid_t one = hold_elsewhere("GPU-3", true);
    pid_t two = hold_elsewhere("GPU-3", true);
    ck_assert_int_eq(ask_elsewhere("GPU-3", false), ERR_BUSY);
    ck_assert_int_eq(ask_elsewhere("GPU-3", true), 0);
    end(one);
    end(two);
    ck_assert_int_eq(ask_elsewhere("GPU-3", false), 0);
}
END_TEST

START_TEST(a_process_takes_its_gpu_again_and_again)
{
    struct err err = {0};
    own_folder();
    ck_assert(!device_lock_any());
    ck_assert_int_eq(device_lock_take("GPU-4", false, &err), 0);
    ck_assert_int_eq(device_lock_take("GPU-4", true, &err), 0);
    ck_assert_int_eq(device_lock_take("GPU-4", false, &err), 0);
    ck_assert(device_lock_any());
    ck_assert(device_lock_held("GPU-4"));
    ck_assert(!device_lock_held("GPU-5"));
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("device_lock");
    TCase *tcase = tcase_create("device_lock");
    tcase_add_test(tcase, a_dead_process_leaves_no_lock);
    tcase_add_test(tcase, sharers_share_and_keep_an_exclusive_one_out);
    tcase_add_test(tcase, a_process_takes_its_gpu_again_and_again);
    suite_add_tcase(suite, tcase);
    return suite;
}
