#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/selftest.h"
#include "tests/lib/unit.h"

static const char *const isas[] = {"plain", "avx2", "avx512"};

START_TEST(gives_its_bits_on_every_cpu_path_and_thread_count)
{
    for (unsigned threads = 1; threads <= 4; threads *= 2) {
        struct err err = {0};
        char sentence[256] = "";
        struct session_settings settings = {.device = "cpu", .threads = threads, .isa = isas[_i]};
        int status = selftest_run(&settings, NULL, sentence, sizeof(sentence), NULL, &err);
        if (status == ERR_DEVICE || status == ERR_USAGE || status == ERR_CONFIG) {
            (void)fprintf(stderr, "skipped: the golden step on %s (%s)\n", isas[_i], err.text);
            return;
        }
        ck_assert_msg(status == 0, "%s", err.text);
        ck_assert_ptr_nonnull(strstr(sentence, "the golden step gave its bits on "));
    }
}
END_TEST

START_TEST(a_device_that_is_not_here_is_a_sentence)
{
    struct err err = {0};
    char sentence[256];
    struct session_settings settings = {.device = "GPU-00000000-0000-0000-0000-000000000000"};
    ck_assert_int_ne(selftest_run(&settings, NULL, sentence, sizeof(sentence), NULL, &err), 0);
    ck_assert_uint_gt(strlen(err.text), 20);
}
END_TEST

/* The golden digests in selftest.c are what the independent reference prints for these numbers. */
START_TEST(the_reference_agrees)
{
    const char *shared = getenv("COPPELIUS_SHARED");
    char command[1024];
    (void)snprintf(command, sizeof(command),
                   "python3 -c 'import numpy' 2>/dev/null && test -r '%s/numerics/reference.py'",
                   shared != NULL ? shared : "");
    if (system(command) != 0) {
        (void)fprintf(stderr,
                      "skipped: the_reference_agrees (no numpy, or no shared/numerics here)\n");
        return;
    }
    char path[] = "golden-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    ck_assert_ptr_nonnull(file);
    for (uint32_t row = 0; row < 2100; row++) {
        for (uint32_t column = 0; column < 5; column++) {
            (void)fprintf(file, "%.17g,", (double)selftest_feature(row, column));
        }
        (void)fprintf(file, "%.17g\n", selftest_target(row));
    }
    ck_assert_int_eq(fclose(file), 0);
    (void)snprintf(
        command, sizeof(command),
        "python3 '%s/numerics/reference.py' %s --format csv --target last --rate 0.05 --decay "
        "0.9 --batch 2100 --l2 0.01 --steps 3",
        shared, path);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    char text[4096] = "";
    size_t size = fread(text, 1, sizeof(text) - 1, pipe);
    text[size] = '\0';
    (void)pclose(pipe);
    (void)unlink(path);
    ck_assert_ptr_nonnull(
        strstr(text, "d4f025424ac76e4af405a8fac8afec8de1ee8be7c217c44f6c7da0bc6ea76705"));
    ck_assert_ptr_nonnull(
        strstr(text, "5d0ed572ecd86f904374006e129dac5349c132a5f7e1fc865684698d8ecfadb5"));
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("selftest");
    TCase *tcase = tcase_create("golden step");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, gives_its_bits_on_every_cpu_path_and_thread_count, 0, 3);
    tcase_add_test(tcase, a_device_that_is_not_here_is_a_sentence);
    tcase_add_test(tcase, the_reference_agrees);
    suite_add_tcase(suite, tcase);
    return suite;
}
