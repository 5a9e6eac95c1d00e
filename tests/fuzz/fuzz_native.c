/* A native folder in one input: files as (number of the name, size in 2 bytes little endian,
 * bytes). Opening it must refuse or give a dataset whose every question has an answer or a
 * sentence. */
#include "tests/fuzz/data_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"manifest.json", "x.npy", "data.npy",   "indices.npy",
                                        "indptr.npy",    "y.npy", "columns.txt"};
    char folder[128];
    char path[256];
    ASSERT(mkdir(fuzz_path(folder, "native"), 0755) == 0);
    while (size >= 3) {
        const char *name = names[data[0] % (sizeof(names) / sizeof(names[0]))];
        size_t file_size = (size_t)data[1] | (size_t)data[2] << 8;
        file_size = file_size < size - 3 ? file_size : size - 3;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
        fuzz_write(path, data + 3, file_size);
        data += 3 + file_size;
        size -= 3 + file_size;
    }
    struct dataset *dataset = NULL;
    struct err err = {0};
    if (dataset_open(folder, &dataset, &err) == 0) {
        const struct dataset_info *info = dataset_info_of(dataset);
        uint64_t *counts = malloc((size_t)info->features * sizeof(*counts));
        uint8_t digest[SHA256_SIZE];
        ASSERT(counts != NULL);
        for (uint64_t j = 0; j < info->features; j++) {
            ASSERT(strlen(dataset_name(dataset, j)) <= DATA_NAME_SIZE_MAX);
        }
        (void)dataset_counts(dataset, 0, info->features, counts, &err);
        ASSERT(dataset_digest(dataset, digest, &err) == 0);
        (void)dataset_verify(dataset, NULL, &err);
        fuzz_load(dataset);
        free(counts);
        dataset_close(dataset);
    } else {
        ASSERT(err.text[0] != '\0');
    }
    fuzz_remove(folder);
    return 0;
}
