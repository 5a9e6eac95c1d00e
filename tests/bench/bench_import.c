/* Import of CSV in MB/s of one core: parsing, validation, the transposed write, digests and syncs.
 *
 *     bench_import [MB [columns [decimals]]]     writes a CSV below the current folder, imports it
 * Prints the rates of the whole import, and of its reading alone. Values are uniform in -1000 ..
 * 1000 with `decimals` digits behind the point (2 unless told), as measurements have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "data/data.h"

struct phases {
    uint64_t reading_ended_ns;
};

static bool on_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct phases *phases = context;
    if (strcmp(phase, "reading") == 0 && done == total) {
        phases->reading_ended_ns = clock_now_ns();
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

int main(int argc, char **argv)
{
    uint64_t megabytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    unsigned columns = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 20;
    unsigned decimals = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 2;
    static const char csv[] = "bench_import.csv";
    static const char folder[] = "bench_import.out";
    if (write_csv(csv, megabytes * 1000000, columns, decimals) != 0) {
        return 1;
    }
    const char *paths[] = {csv};
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.paths = paths;
    settings.paths_count = 1;
    settings.header = true;
    struct phases phases = {0};
    struct data_progress progress = {on_progress, &phases};
    struct data_report report = {0};
    struct err err = {0};
    uint64_t start = clock_now_ns();
    int code = data_import(&settings, folder, &progress, &report, NULL, &err);
    double seconds = (double)(clock_now_ns() - start) / 1e9;
    double reading = (double)(phases.reading_ended_ns - start) / 1e9;
    if (code != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
    } else {
        double size = (double)report.source_bytes / 1e6;
        printf("import %.0f MB, %llu x %llu: %.1f MB/s whole, %.1f MB/s reading\n", size,
               (unsigned long long)report.rows, (unsigned long long)report.features, size / seconds,
               size / reading);
    }
    static const char *const files[] = {"x.npy", "y.npy", "columns.txt", "manifest.json"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
    (void)unlink(csv);
    return code != 0 ? 1 : 0;
}
