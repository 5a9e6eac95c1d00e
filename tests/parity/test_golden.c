/* Every golden case, for 1 to 4 nodes, dense and sparse, 1, 2 and 4 threads, each instruction set
 * that the machine has. The quick form takes, for each case, number of nodes and storage, one
 * pair of threads and instruction set in turn (wide sparse data as dense only for 1 and 3 nodes);
 * COPPELIUS_LONG=1 takes them all. An argument selects
 * the cases whose name contains it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "tests/lib/golden.h"

static unsigned failures;
static unsigned runs;

static bool machine_has(const char *isa)
{
#ifdef __x86_64__
    if (strcmp(isa, "avx512") == 0) {
        return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
               __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512bw") != 0;
    }
    if (strcmp(isa, "avx2") == 0) {
        return __builtin_cpu_supports("avx2") != 0;
    }
#endif
    return strcmp(isa, "plain") == 0;
}

static bool is_digest(const double *vector, size_t count, const char *hex)
{
    uint8_t digest[SHA256_SIZE];
    char text[SHA256_HEX_SIZE];
    sha256_of(vector, count * sizeof(double), digest);
    sha256_hex(digest, text);
    return strcmp(text, hex) == 0;
}

static void check_run(const struct golden_case *golden, const struct cluster_job *job)
{
    size_t coordinates = (size_t)golden->features + 1;
    struct cluster_result result = {
        .parameter = calloc(coordinates, sizeof(double)),
        .accumulator = calloc(coordinates, sizeof(double)),
        .losses = calloc((size_t)golden->steps, sizeof(double)),
    };
    ASSERT(result.parameter != NULL);
    ASSERT(result.accumulator != NULL);
    ASSERT(result.losses != NULL);
    struct err err = {0};
    int code = cluster_run(job, &result, &err);
    const char *fault = code != 0 ? err.text : NULL;
    if (fault == NULL && !is_digest(result.parameter, coordinates, golden->parameter_sha256)) {
        fault = "parameters differ";
    }
    if (fault == NULL && !is_digest(result.accumulator, coordinates, golden->accumulator_sha256)) {
        fault = "accumulators differ";
    }
    if (fault == NULL &&
        (memcmp(&result.losses[0], &golden->first_loss, sizeof(double)) != 0 ||
         memcmp(&result.losses[golden->steps - 1], &golden->last_loss, sizeof(double)) != 0)) {
        fault = "losses differ";
    }
    runs++;
    if (fault != NULL) {
        failures++;
        printf("DIFFERS %s: %u nodes, %s, %u threads, %s: %s\n", golden->name, job->nodes,
               job->storage == SESSION_DENSE ? "dense" : "csc", job->threads, job->isa, fault);
    }
    free(result.parameter);
    free(result.accumulator);
    free(result.losses);
}

/* All ways of one case; `turn` moves through the pairs of threads and instruction set. */
static void check_case(const struct golden_case *golden, struct cluster_job *job, bool all,
                       unsigned *turn)
{
    static const unsigned threads[] = {1, 2, 4};
    static const char *const isas[] = {"avx512", "avx2", "plain"};
    for (uint32_t nodes = 1; nodes <= 4 && nodes <= golden->features + 1; nodes++) {
        for (unsigned storage = 0; storage < 2; storage++) {
            bool heavy = storage == 0 && golden->features > 10000; /* minutes, when sanitized */
            unsigned ways = all ? 9 : heavy && nodes % 2 == 0 ? 0 : 1;
            for (unsigned way = 0; way < ways; way++) {
                unsigned pair = *turn % (heavy && !all ? 6 : 9); /* 6: vectors only */
                *turn += 1;
                job->nodes = nodes;
                job->storage = storage == 0 ? SESSION_DENSE : SESSION_CSC;
                job->threads = threads[pair % 3];
                job->isa = machine_has(isas[pair / 3]) ? isas[pair / 3] : "plain";
                job->jitter = *turn;
                check_run(golden, job);
            }
        }
    }
}

int main(int count, char **arguments)
{
    const char *shared = getenv("COPPELIUS_SHARED");
    if (shared == NULL || access(shared, R_OK) != 0) {
        printf("skipped: parity/golden: COPPELIUS_SHARED names no folder\n");
        return 77;
    }
    const char *form = getenv("COPPELIUS_LONG");
    bool all = form != NULL && strcmp(form, "1") == 0;
    static struct golden_case cases[GOLDEN_CASES_MAX];
    size_t cases_count = golden_open(shared, cases);
    ASSERT(cases_count > 0);
    char folder[] = "/tmp/coppelius-golden-XXXXXX";
    ASSERT(mkdtemp(folder) != NULL);
    struct fs *fs = NULL;
    ASSERT(fs_posix_open(folder, &fs, NULL) == 0);
    unsigned turn = 0;
    for (size_t i = 0; i < cases_count; i++) {
        if (count > 1 && strstr(cases[i].name, arguments[1]) == NULL) {
            continue;
        }
        uint64_t begin = clock_now_ms();
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/data", folder);
        struct golden_data data;
        struct cluster_job job;
        golden_load(&cases[i], path, &data, &job);
        uint64_t loaded = clock_now_ms();
        unsigned failed = failures;
        check_case(&cases[i], &job, all, &turn);
        golden_done(&data);
        (void)fs_remove_tree(fs, "data", NULL);
        printf("%s %s (load %llu ms, runs %llu ms)\n", failed == failures ? "same" : "DIFFERS",
               cases[i].name, (unsigned long long)(loaded - begin),
               (unsigned long long)(clock_now_ms() - loaded));
        (void)fflush(stdout);
    }
    fs_posix_close(fs);
    (void)rmdir(folder);
    printf("%u runs, %u differ\n", runs, failures);
    return failures == 0 && runs > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
