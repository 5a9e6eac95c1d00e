/* The golden digests on the GPU: every case of shared/numerics/golden.json, dense and CSC, on one
 * to four nodes that share the GPU, and on clusters that mix a CPU node with GPU nodes. An argument
 * selects the cases whose name contains it; a second one repeats each run so many times. Exits 77,
 * saying why, without COPPELIUS_SHARED, a GPU or kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fs.h"
#include "tests/lib/golden.h"

static unsigned failures;
static unsigned runs;

static bool is_digest(const double *vector, size_t count, const char *hex)
{
    uint8_t digest[SHA256_SIZE];
    char text[SHA256_HEX_SIZE];
    sha256_of(vector, count * sizeof(double), digest);
    sha256_hex(digest, text);
    return strcmp(text, hex) == 0;
}

static void check_run(const struct golden_case *golden, struct cluster_job *job, unsigned cpu_mask)
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
    job->device = "auto";
    job->threads = 4;
    for (uint32_t n = 0; n < job->nodes; n++) {
        job->backend[n] = (cpu_mask >> n & 1) != 0 ? session_backend_cpu() : session_backend_cuda();
    }
    struct err err = {0};
    int code = cluster_run(job, &result, &err);
    bool good = code == 0 && is_digest(result.parameter, coordinates, golden->parameter_sha256) &&
                is_digest(result.accumulator, coordinates, golden->accumulator_sha256) &&
                memcmp(&result.losses[0], &golden->first_loss, sizeof(double)) == 0 &&
                memcmp(&result.losses[golden->steps - 1], &golden->last_loss, sizeof(double)) == 0;
    runs++;
    if (!good) {
        failures++;
        printf("DIFFERS %s: %u nodes (cpu mask %x), %s: %s\n", golden->name, job->nodes, cpu_mask,
               job->storage == SESSION_DENSE ? "dense" : "csc", err.text);
    }
    free(result.parameter);
    free(result.accumulator);
    free(result.losses);
}

/* Binds once and keeps the GPU's context over all runs. */
static struct session *hold(void)
{
    struct session_settings settings = {.device = "auto", .share = true};
    struct session_plan plan = {
        .coordinate_end = 1, .intercept = true, .rows = 1, .batch_rows = 1, .chunk_rows = 2048};
    struct session *session = NULL;
    struct err err = {0};
    int code = session_new(&settings, NULL, &session, &err);
    code = code != 0 ? code : session_admit(session, &plan, &err);
    code = code != 0 ? code : session_bind(session, &err);
    if (code != 0) {
        printf("skipped: %s\n", err.text);
        exit(77);
    }
    printf("%s\n", session_binding(session)->device);
    return session;
}

int main(int count, char **arguments)
{
    const char *shared = getenv("COPPELIUS_SHARED");
    if (shared == NULL || access(shared, R_OK) != 0) {
        printf("skipped: parity/gpu_golden: COPPELIUS_SHARED names no folder\n");
        return 77;
    }
    struct session *holder = hold();
    unsigned long repeats = count > 2 ? strtoul(arguments[2], NULL, 10) : 1;
    static struct golden_case cases[GOLDEN_CASES_MAX];
    size_t cases_count = golden_open(shared, cases);
    char folder[] = "/tmp/coppelius-golden-XXXXXX";
    ASSERT(mkdtemp(folder) != NULL);
    struct fs *fs = NULL;
    ASSERT(fs_posix_open(folder, &fs, NULL) == 0);
    for (size_t i = 0; i < cases_count; i++) {
        if (count > 1 && strstr(cases[i].name, arguments[1]) == NULL) {
            continue;
        }
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/data", folder);
        struct golden_data data;
        struct cluster_job job;
        golden_load(&cases[i], path, &data, &job);
        unsigned failed = failures;
        for (unsigned long turn = 0; turn < repeats; turn++) {
            for (unsigned storage = 0; storage < 2; storage++) {
                job.storage = storage == 0 ? SESSION_DENSE : SESSION_CSC;
                for (uint32_t nodes = 1; nodes <= 4 && nodes <= cases[i].features + 1; nodes++) {
                    job.nodes = nodes;
                    job.jitter = turn * 8 + nodes;
                    check_run(&cases[i], &job, 0);
                    if (nodes > 1) {
                        check_run(&cases[i], &job, 1U << (turn + storage) % nodes);
                    }
                }
            }
        }
        golden_done(&data);
        (void)fs_remove_tree(fs, "data", NULL);
        printf("%s %s\n", failed == failures ? "same" : "DIFFERS", cases[i].name);
        (void)fflush(stdout);
    }
    fs_posix_close(fs);
    (void)rmdir(folder);
    session_free(holder);
    printf("%u runs, %u differ\n", runs, failures);
    return failures == 0 && runs > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
