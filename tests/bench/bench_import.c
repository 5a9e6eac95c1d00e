/* Import of CSV in MB/s of one core: parsing, validation, the transposed write, digests and syncs.
 *
 *     bench_import [MB [columns [decimals]]]     writes a CSV in the current folder, imports it
 *     bench_import FILE csv|space|svm|npy        imports a file without a header
 * BENCH_MEMORY_MB is the import's budget. Prints the rates of the whole import, of its reading
 * alone, and of loading all columns. Values are uniform in -1000 .. 1000 with `decimals` digits
 * behind the point (2 unless told), as measurements have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "data/data.h"

/* What else runs on the machine counts in wall time, not here. */
static double cpu_seconds(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

struct phases {
    uint64_t reading_ended_ns;
    double reading_cpu;
};

static bool on_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct phases *phases = context;
    if (strcmp(phase, "reading") == 0 && done == total) {
        phases->reading_ended_ns = clock_now_ns();
        phases->reading_cpu = cpu_seconds();
    }
    return true;
}

static int write_csv(const char *path, uint64_t bytes, unsigned columns, unsigned decimals)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    struct rand rand = {7};
    uint64_t written = 0;
    for (unsigned j = 0; j < columns; j++) {
        (void)fprintf(file, "%sc%u", j > 0 ? "," : "", j);
    }
    (void)fputc('\n', file);
    while (written < bytes) {
        for (unsigned j = 0; j < columns; j++) {
            double value = ((double)(rand_next(&rand) >> 11) * 0x1p-53 - 0.5) * 2000.0;
            int size = fprintf(file, "%s%.*f", j > 0 ? "," : "", (int)decimals, value);
            written += size > 0 ? (uint64_t)size : 0;
        }
        (void)fputc('\n', file);
        written++;
    }
    return fclose(file);
}

/* All columns of the import, shuffled (and standardised where dense), one tenth for testing. */
static int load(const char *folder)
{
    struct dataset *dataset = NULL;
    struct err err = {0};
    if (dataset_open(folder, &dataset, &err) != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    const struct dataset_info *info = dataset_info_of(dataset);
    struct dataset_view view = {
        .test = 0.1, .shuffle = true, .shuffle_seed = 7, .standardize = !info->sparse};
    struct dataset_block block = DATASET_BLOCK_NONE;
    uint64_t start = clock_now_ns();
    double cpu = cpu_seconds();
    int code = dataset_load(dataset, &view, 0, info->features, NULL, &block, &err);
    double seconds = (double)(clock_now_ns() - start) / 1e9;
    if (code != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
    } else {
        printf("load %s, shuffled%s: %.1f MB/s, %.1f MB in a CPU second\n",
               info->sparse ? "sparse" : "dense", info->sparse ? "" : ", standardised",
               (double)info->bytes / 1e6 / seconds,
               (double)info->bytes / 1e6 / (cpu_seconds() - cpu));
    }
    dataset_block_done(&block);
    dataset_close(dataset);
    return code;
}

static void clean(const char *folder)
{
    static const char *const files[] = {"x.npy",      "y.npy",       "data.npy",   "indices.npy",
                                        "indptr.npy", "columns.txt", "blocks.bin", "manifest.json"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

int main(int argc, char **argv)
{
    static const char csv[] = "bench_import.csv";
    static const char folder[] = "bench_import.out";
    int format = argc > 2 ? data_format_from_text(argv[2]) : -1;
    const char *paths[] = {format >= 0 ? argv[1] : csv};
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.paths = paths;
    settings.paths_count = 1;
    settings.header = format < 0;
    settings.format = format >= 0 ? (enum data_format)format : DATA_FORMAT_CSV;
    const char *budget = getenv("BENCH_MEMORY_MB");
    settings.memory = budget != NULL ? strtoull(budget, NULL, 10) << 20 : 0;
    uint64_t megabytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    unsigned columns = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 20;
    unsigned decimals = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 2;
    if (format < 0 && write_csv(csv, megabytes * 1000000, columns, decimals) != 0) {
        return 1;
    }
    struct phases phases = {0};
    struct data_progress progress = {on_progress, &phases};
    struct data_report report = {0};
    struct err err = {0};
    uint64_t start = clock_now_ns();
    double cpu = cpu_seconds();
    int code = data_import(&settings, folder, &progress, &report, NULL, &err);
    double seconds = (double)(clock_now_ns() - start) / 1e9;
    double reading = (double)(phases.reading_ended_ns - start) / 1e9;
    double cpu_reading = phases.reading_cpu - cpu;
    cpu = cpu_seconds() - cpu;
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    if (code != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
    } else {
        double size = (double)report.source_bytes / 1e6;
        printf("import %.0f MB, %llu x %llu: %.1f MB/s (reading %.1f); in a CPU second %.1f MB "
               "(reading "
               "%.1f); %ld MiB resident at most\n",
               size, (unsigned long long)report.rows, (unsigned long long)report.features,
               size / seconds, size / reading, size / cpu, size / cpu_reading,
               usage.ru_maxrss / 1024);
        code = load(folder);
    }
    clean(folder);
    if (format < 0) {
        (void)unlink(csv);
    }
    return code != 0 ? 1 : 0;
}
