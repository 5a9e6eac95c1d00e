/* Which GPU a daemon binds, among those that a made-up driver shows: by index, UUID (a whole GPU's
 * or a MIG instance's), PCI id, auto; too old, held, not there. The locks are real. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/device_lock.h"
#include "gpu/gpu.h"
#include "tests/lib/unit.h"

#ifdef COPPELIUS_HAVE_CUDA
#include "gpu/cuda.h"

/* -- the made-up driver ----------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint8_t uuid[16];
    const char *pci;
    int major;
    int minor;
} gpus[] = {
    {"Old GPU", {1}, "0000:01:00.0", 7, 0},
    {"GPU one",
     {0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
     "0000:41:00.0",
     9,
     0},
    {"GPU two",
     {0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13},
     "0001:C1:00.0",
     8,
     6},
    {"GPU MIG 1g.18gb",
     {0x0f, 0x1e, 0x2d, 0x3c, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
     "0000:E1:00.0",
     9,
     0},
};
#define GPUS_COUNT 4

static cu_result count_result;

static cu_result device_count(int *count)
{
    *count = GPUS_COUNT;
    return count_result;
}

static cu_result device_get(cu_device *device, int ordinal)
{
    *device = 100 + ordinal;
    return 0;
}

static cu_result device_name(char *name, int size, cu_device device)
{
    (void)snprintf(name, (size_t)size, "%s", gpus[device - 100].name);
    return 0;
}

static cu_result device_uuid(struct cu_uuid *uuid, cu_device device)
{
    memcpy(uuid->bytes, gpus[device - 100].uuid, sizeof(uuid->bytes));
    return 0;
}

static cu_result device_pci(char *text, int size, cu_device device)
{
    (void)snprintf(text, (size_t)size, "%s", gpus[device - 100].pci);
    return 0;
}

static cu_result device_attribute(int *value, int attribute, cu_device device)
{
    *value = attribute == CU_ATTRIBUTE_CAPABILITY_MAJOR ? gpus[device - 100].major
                                                        : gpus[device - 100].minor;
    return 0;
}

static cu_result error_name(cu_result result, const char **name)
{
    *name = "CUDA_ERROR_MADE_UP";
    return result == 0;
}

static cu_result error_text(cu_result result, const char **text)
{
    *text = "made up";
    return result == 0;
}

static const struct cuda_driver driver = {
    .cuDeviceGetCount = device_count,
    .cuDeviceGet = device_get,
    .cuDeviceGetName = device_name,
    .cuDeviceGetUuid_v2 = device_uuid,
    .cuDeviceGetPCIBusId = device_pci,
    .cuDeviceGetAttribute = device_attribute,
    .cuGetErrorName = error_name,
    .cuGetErrorString = error_text,
};

/* -- a folder of its own for the locks, and a process of its own for each try --------------------
 */

static char folder[64];

static void set_up(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/coppelius-bind-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("COPPELIUS_RUN_DIR", folder, 1), 0);
}

static void tear_down(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* In a child, since a process keeps what it locked: "ORDINAL name uuid", or "CODE sentence". */
static void try(const char *device, bool share, char answer[ERR_TEXT_SIZE + 16])
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct session_settings settings = {.device = device, .share = share};
        struct cuda_candidate chosen;
        struct err err = {0};
        char text[ERR_TEXT_SIZE + 16];
        int code = cuda_choose(&driver, &settings, &chosen, &err);
        int size = code != 0 ? snprintf(text, sizeof(text), "%s", err.text)
                             : snprintf(text, sizeof(text), "%d %s %s", chosen.ordinal, chosen.name,
                                        chosen.uuid_text);
        _exit(write(ends[1], text, (size_t)size + 1) == size + 1 ? 0 : 1);
    }
    (void)close(ends[1]);
    ssize_t size = read(ends[0], answer, ERR_TEXT_SIZE + 16);
    ck_assert_int_gt(size, 0);
    (void)close(ends[0]);
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

/* A process that holds a GPU until it is let go. */
static pid_t hold(const char *device, bool share)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct session_settings settings = {.device = device, .share = share};
        struct cuda_candidate chosen;
        struct err err = {0};
        char good = cuda_choose(&driver, &settings, &chosen, &err) == 0 ? 'y' : 'n';
        if (write(ends[1], &good, 1) == 1) {
            (void)pause();
        }
        _exit(1);
    }
    char good = 0;
    (void)close(ends[1]);
    ck_assert_int_eq(read(ends[0], &good, 1), 1);
    ck_assert_int_eq(good, 'y');
    (void)close(ends[0]);
    return pid;
}

static void let_go(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static void answers(const char *device, const char *want)
{
    char answer[ERR_TEXT_SIZE + 16];
    try(device, /* share= */ false, answer);
    ck_assert_msg(strcmp(answer, want) == 0, "device '%s': '%s', not '%s'", device, answer, want);
}

#define ONE "1 GPU one GPU-aabbccdd-0102-0304-0506-0708090a0b0c"
#define TWO "2 GPU two GPU-aabbccdd-0102-0304-0506-0708090a0b0d"
#define MIG "3 GPU MIG 1g.18gb GPU-0f1e2d3c-0405-0607-0809-0a0b0c0d0e0f"

START_TEST(a_gpu_is_found_by_index_uuid_and_pci_id)
{
    answers("1", ONE);
    answers("2", TWO);
    answers("02", TWO);
    answers("GPU-aabbccdd-0102-0304-0506-0708090a0b0d", TWO);
    answers("gpu-AABBCCDD-0102-0304-0506-0708090A0B0D", TWO);
    answers("MIG-0f1e2d3c-0405-0607-0809-0a0b0c0d0e0f", MIG);
    answers("0000:41:00.0", ONE);
    answers("00000000:41:00.0", ONE); /* as nvidia-smi writes it */
    answers("41:00.0", ONE);
    answers("0001:c1:00.0", TWO);
}
END_TEST

START_TEST(auto_takes_the_first_that_is_new_enough_and_free)
{
    answers("auto", ONE);
    pid_t pid = hold("1", /* share= */ false);
    answers("auto", TWO);
    answers("1", "device '1': GPU-aabbccdd-0102-0304-0506-0708090a0b0c is held by another daemon; "
                 "stop that daemon, name another GPU, or set device_share: yes on both");
    struct session_settings settings = {.device = "auto"}; /* this process stays with what it has */
    struct cuda_candidate chosen;
    struct err err = {0};
    ck_assert_int_eq(cuda_choose(&driver, &settings, &chosen, &err), 0);
    ck_assert_int_eq(chosen.ordinal, 2);
    let_go(pid);
    ck_assert_int_eq(cuda_choose(&driver, &settings, &chosen, &err), 0);
    ck_assert_int_eq(chosen.ordinal, 2);
}
END_TEST

START_TEST(a_gpu_that_is_not_there_or_too_old_is_one_line_with_what_to_do)
{
    answers("4", "device '4': no such GPU among the 4 that the driver shows; nvidia-smi -L lists "
                 "them, CUDA_VISIBLE_DEVICES may hide them");
    answers("99999999999999999999",
            "device '99999999999999999999': no such GPU among the 4 that the "
            "driver shows; nvidia-smi -L lists them, CUDA_VISIBLE_DEVICES "
            "may hide them");
    answers("MIG-0f1e2d3c-0405-0607-0809-0a0b0c0d0e0e",
            "device 'MIG-0f1e2d3c-0405-0607-0809-0a0b0c0d0e0e': no such GPU among the 4 that the "
            "driver shows; nvidia-smi -L lists them, CUDA_VISIBLE_DEVICES may hide them");
    answers("0000:41:00.1", "device '0000:41:00.1': no such GPU among the 4 that the driver shows; "
                            "nvidia-smi -L lists them, CUDA_VISIBLE_DEVICES may hide them");
    answers("0", "device '0': GPU 0 (Old GPU) has compute capability 7.0, 7.5 is needed: use a "
                 "Turing or newer GPU, or set device: cpu");
    answers("GPU one", "device 'GPU one': give auto, cpu, a GPU's index, GPU-uuid, MIG-uuid or PCI "
                       "id");
    answers("", "device '': give auto, cpu, a GPU's index, GPU-uuid, MIG-uuid or PCI id");
    answers("1x", "device '1x': give auto, cpu, a GPU's index, GPU-uuid, MIG-uuid or PCI id");
    count_result = 999;
    answers("auto", "counting GPUs: made up (CUDA_ERROR_MADE_UP, 999)");
    count_result = 0;
}
END_TEST

START_TEST(daemons_share_a_gpu_only_where_both_say_so)
{
    char answer[ERR_TEXT_SIZE + 16];
    pid_t pid = hold("2", /* share= */ true);
    try("2", /* share= */ true, answer);
    ck_assert_str_eq(answer, TWO);
    try("2", /* share= */ false, answer);
    ck_assert_ptr_nonnull(strstr(answer, "is held by another daemon; stop that daemon"));
    let_go(pid);
    pid = hold("2", /* share= */ false);
    try("2", /* share= */ true, answer);
    ck_assert_ptr_nonnull(strstr(answer, "is held by another daemon that does not share it; stop"));
    let_go(pid);
}
END_TEST

START_TEST(a_daemon_that_is_killed_leaves_no_lock)
{
    char answer[ERR_TEXT_SIZE + 16];
    pid_t pid = hold("1", /* share= */ false);
    try("1", /* share= */ false, answer);
    ck_assert_ptr_nonnull(strstr(answer, "is held by another daemon"));
    let_go(pid);
    answers("1", ONE);
}
END_TEST
#endif

Suite *unit_suite(void)
{
    Suite *suite = suite_create("cuda_bind");
    TCase *tcase = tcase_create("cuda_bind");
#ifdef COPPELIUS_HAVE_CUDA
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_gpu_is_found_by_index_uuid_and_pci_id);
    tcase_add_test(tcase, auto_takes_the_first_that_is_new_enough_and_free);
    tcase_add_test(tcase, a_gpu_that_is_not_there_or_too_old_is_one_line_with_what_to_do);
    tcase_add_test(tcase, daemons_share_a_gpu_only_where_both_say_so);
    tcase_add_test(tcase, a_daemon_that_is_killed_leaves_no_lock);
#else
    (void)fprintf(stderr, "skipped: this build has no GPU kernels\n");
    exit(77); /* NOLINT(concurrency-mt-unsafe): before any test. */
#endif
    suite_add_tcase(suite, tcase);
    return suite;
}
