/* A shard opens with the tools that a user has: Python (COPPELIUS_PYTHON or python3). */
#include <unistd.h>

#include "checkpoint/shard.h"
#include "tests/lib/folder.h"
#include "tests/lib/unit.h"

static const char *python(void)
{
    const char *named = getenv("COPPELIUS_PYTHON");
    return named != NULL ? named : "python3";
}

/* What the script prints; the process' status. */
static int read_by_python(const char *path, char *text, size_t capacity)
{
    char command[1024];
    ck_assert_ptr_nonnull(getenv("COPPELIUS_TESTS")); /* ctest sets it: the folder tests/ */
    (void)snprintf(command, sizeof(command), "%s %s/lib/read_shard.py %s 2>&1", python(),
                   getenv("COPPELIUS_TESTS"), path);
    FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c): our own script. */
    ck_assert_ptr_nonnull(pipe);
    size_t size = fread(text, 1, capacity - 1, pipe);
    text[size] = '\0';
    return pclose(pipe);
}

START_TEST(python_reads_every_tensor_and_text)
{
    static const double parameter[2] = {1.5, -2.0};
    static const double accumulator[2] = {0.25, 4.0};
    static const double mean[2] = {8.0, 1.0};
    static const double scale[2] = {1.0, 2.0};
    static const char *const columns[2] = {"lat", "\"quoted\" \xc3\xbc\x01"};
    static const struct losses losses = {
        .stride = 1, .count = 2, .steps = {33, 34}, .values = {2.0, 1.0}};
    struct test_folder folder;
    struct err err = {0};
    uint8_t digest[SHA256_SIZE];
    uint64_t size = 0;
    struct shard_content content = {.parameter = parameter,
                                    .accumulator = accumulator,
                                    .mean = mean,
                                    .scale = scale,
                                    .columns = columns,
                                    .losses = &losses};
    test_folder_open(&folder);
    (void)snprintf(content.about.job, sizeof(content.about.job), "test");
    (void)snprintf(content.about.node, sizeof(content.about.node), "a");
    (void)snprintf(content.about.policy, sizeof(content.about.policy), "p-v1");
    content.about.epoch = 12;
    content.about.step = 34;
    content.about.generation = 5;
    content.about.ranks = 2;
    content.about.rank = 1;
    content.about.first = 3;
    content.about.end = 5;
    content.about.coordinates = 5;
    ck_assert_int_eq(shard_write(folder.fs, "s.safetensors", &content, digest, &size, &err), 0);
    char path[128];
    char text[4096];
    (void)snprintf(path, sizeof(path), "%s/s.safetensors", folder.path);
    int status = read_by_python(path, text, sizeof(text));
    ck_assert_msg(status == 0, "%s", text);
    (void)printf("%.*s\n", (int)strcspn(text, "\n"), text);
    static const char *const lines[] = {
        "\nparameter F64 2 000000000000f83f00000000000000c0\n",
        "\naccumulator F64 2 000000000000d03f0000000000001040\n",
        "\nmean F64 2 0000000000002040000000000000f03f\n",
        "\nscale F64 2 000000000000f03f0000000000000040\n",
        "\ncoordinates I64 2 03000000000000000500000000000000\n",
        "\nloss_steps I64 2 21000000000000002200000000000000\n",
        "\nlosses F64 2 0000000000000040000000000000f03f\n",
        "\nepoch = 12\n",
        "\npartition = 2 of 2\n",
        "\ncolumns = [\"lat\",\"\\\"quoted\\\" \xc3\xbc\\u0001\"]\n",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        ck_assert_msg(strstr(text, lines[i]) != NULL, "missing%sin%s", lines[i], text);
    }
    test_folder_close(&folder);
}
END_TEST

Suite *unit_suite(void)
{
    char command[512];
    (void)snprintf(command, sizeof(command), "%s -c 'import json' >/dev/null 2>&1", python());
    if (system(command) != 0) { /* NOLINT(cert-env33-c) */
        (void)fprintf(stderr, "skipped: python_reads_every_tensor_and_text: no python3\n");
        exit(77); /* NOLINT(concurrency-mt-unsafe): before any test. */
    }
    Suite *suite = suite_create("safetensors");
    TCase *tests = tcase_create("safetensors");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, python_reads_every_tensor_and_text);
    suite_add_tcase(suite, tests);
    return suite;
}
