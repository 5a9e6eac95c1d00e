/* What the fuzz targets of data share: a folder in memory, an import of the input, and what a whole
 * import promises. */
#ifndef COPPELIUS_TESTS_FUZZ_DATA_FUZZ_H
#define COPPELIUS_TESTS_FUZZ_DATA_FUZZ_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "data/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char fuzz_folder[64];

static inline void fuzz_leave(void)
{
    (void)rmdir(fuzz_folder);
}

/* The folder of this process; made at the first call, gone at exit. */
static inline const char *fuzz_path(char path[128], const char *name)
{
    if (fuzz_folder[0] == '\0') {
        struct stat status;
        const char *parent = stat("/dev/shm", &status) == 0 ? "/dev/shm" : "/tmp";
        (void)snprintf(fuzz_folder, sizeof(fuzz_folder), "%s/coppelius-fuzz-XXXXXX", parent);
        ASSERT(mkdtemp(fuzz_folder) != NULL);
        ASSERT(atexit(fuzz_leave) == 0);
    }
    (void)snprintf(path, 128, "%s/%s", fuzz_folder, name);
    return path;
}

static inline void fuzz_write(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    ASSERT(file != NULL);
    ASSERT(fwrite(bytes, 1, size, file) == size);
    ASSERT(fclose(file) == 0);
}

/* Deletes a flat folder. */
static inline void fuzz_remove(const char *folder)
{
    DIR *list = opendir(folder);
    ASSERT(list != NULL);
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        (void)unlinkat(dirfd(list), entry->d_name, 0);
    }
    (void)closedir(list);
    ASSERT(rmdir(folder) == 0);
}

/* Loads everything of an open dataset in two ways; what loads is finite and ascends. */
static inline void fuzz_load(const struct dataset *dataset)
{
    const struct dataset_info *info = dataset_info_of(dataset);
    if (info->rows * info->features > 1U << 20) {
        return;
    }
    for (unsigned way = 0; way < 3; way++) {
        struct dataset_view view = {.test = way == 1 ? 0.3 : 0.0,
                                    .shuffle = way > 0,
                                    .shuffle_seed = 7,
                                    .standardize = way == 2};
        struct dataset_block block = DATASET_BLOCK_NONE;
        struct err err = {0};
        uint64_t first = way == 1 ? info->features / 2 : 0;
        if (dataset_load(dataset, &view, first, info->features, NULL, &block, &err) != 0) {
            ASSERT(err.text[0] != '\0');
            continue;
        }
        ASSERT(block.train.rows + block.test.rows == info->rows);
        for (uint64_t j = 0; j < block.train.columns && block.train.sparse; j++) {
            for (uint64_t k = block.train.indptr[j]; k < block.train.indptr[j + 1]; k++) {
                ASSERT(block.train.row32[k] < block.train.rows);
                ASSERT(k == block.train.indptr[j] ||
                       block.train.row32[k - 1] < block.train.row32[k]);
            }
        }
        for (uint64_t i = 0; !block.train.sparse && i < block.train.ld * block.train.columns; i++) {
            ASSERT(block.train.dense[i] - block.train.dense[i] == 0.0F);
        }
        dataset_block_done(&block);
        struct dataset_targets targets = {.train = NULL};
        if (info->has_target && dataset_load_targets(dataset, &view, &targets, &err) == 0) {
            dataset_targets_done(&targets);
        }
    }
}

/* Imports the file: either it is refused with faults and nothing is written, or the folder opens,
 * verifies, loads, and is as the report says. */
static inline void fuzz_import(struct data_settings settings, const char *path)
{
    char output[128];
    const char *paths[] = {path};
    struct data_faults faults = {0};
    struct data_report report = {0};
    struct err err = {0};
    struct stat status;
    settings.paths = paths;
    settings.paths_count = 1;
    settings.memory = 1U << 20;
    (void)fuzz_path(output, "out");
    int code = data_import(&settings, output, NULL, &report, &faults, &err);
    ASSERT(code == err.code);
    if (code != 0) {
        ASSERT(err.text[0] != '\0');
        ASSERT(code != ERR_DATA || faults.count > 0);
        ASSERT(stat(output, &status) != 0);
        for (size_t i = 0; i < faults.count; i++) {
            ASSERT(strncmp(faults.list[i].text, path, strlen(path)) == 0);
            ASSERT(strlen(faults.list[i].text) < ERR_TEXT_SIZE);
        }
        return;
    }
    struct dataset *dataset = NULL;
    ASSERT(faults.count == 0);
    ASSERT(dataset_open(output, &dataset, &err) == 0);
    const struct dataset_info *info = dataset_info_of(dataset);
    ASSERT(info->rows == report.rows);
    ASSERT(info->features == report.features);
    ASSERT(info->sparse == report.sparse);
    ASSERT(dataset_verify(dataset, NULL, &err) == 0);
    fuzz_load(dataset);
    dataset_close(dataset);
    fuzz_remove(output);
}

#endif
