/* What an open dataset is asked: counts, digests, the model's columns. */
#include "data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/digest.h"
#include "data/faults.h"

#define PATH_SIZE    4160
#define INDPTR_PIECE 65536U

int dataset_indptr(const struct dataset *dataset, uint64_t first, uint64_t count, uint64_t *values,
                   struct err *err)
{
    const struct dataset_file *file = &dataset->indptr;
    uint8_t *bytes = malloc((size_t)INDPTR_PIECE * 8);
    ASSERT(bytes != NULL);
    int code = 0;
    uint64_t before = 0;
    for (uint64_t at = 0; at < count && code == 0;) {
        uint64_t piece = count - at < INDPTR_PIECE ? count - at : INDPTR_PIECE;
        code = dataset_pread(dataset, file, file->npy.offset + (first + at) * file->npy.item, bytes,
                             (size_t)(piece * file->npy.item), err);
        for (uint64_t i = 0; i < piece && code == 0; i++) {
            int64_t value = 0;
            if (file->npy.item == 8) {
                memcpy(&value, bytes + i * 8, sizeof(value));
            } else {
                int32_t narrow = 0;
                memcpy(&narrow, bytes + i * 4, sizeof(narrow));
                value = narrow;
            }
            uint64_t feature = first + at + i;
            bool good =
                value >= 0 && (uint64_t)value >= before &&
                (uint64_t)value <= dataset->info.nonzeros && (feature > 0 || value == 0) &&
                (feature < dataset->info.features || (uint64_t)value == dataset->info.nonzeros);
            if (!good) {
                code = err_set(err, ERR_DAMAGED,
                               "%s: element %llu is %lld: the elements ascend from 0 to the number "
                               "of values, %llu",
                               file->path, (unsigned long long)feature, (long long)value,
                               (unsigned long long)dataset->info.nonzeros);
                break;
            }
            before = (uint64_t)value;
            values[at + i] = before;
        }
        at += piece;
    }
    free(bytes);
    return code;
}

int dataset_counts(const struct dataset *dataset, uint64_t first, uint64_t end, uint64_t *counts,
                   struct err *err)
{
    ASSERT(first <= end);
    ASSERT(end <= dataset->info.features);
    if (!dataset->info.sparse) {
        for (uint64_t j = first; j < end; j++) {
            counts[j - first] = dataset->info.rows;
        }
        return 0;
    }
    uint64_t *ends = malloc((size_t)(end - first + 1) * sizeof(*ends));
    if (ends == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the counts of %llu features",
                       (unsigned long long)(end - first));
    }
    int code = dataset_indptr(dataset, first, end - first + 1, ends, err);
    for (uint64_t j = 0; j < end - first && code == 0; j++) {
        counts[j] = ends[j + 1] - ends[j];
    }
    free(ends);
    return code;
}

int dataset_digest(struct dataset *dataset, uint8_t ret_digest[SHA256_SIZE], struct err *err)
{
    struct manifest manifest;
    int code = dataset_manifest(dataset, NULL, &manifest, NULL, err);
    if (code == 0) {
        manifest_digest(&manifest, ret_digest);
    }
    return code;
}

int dataset_verify(const struct dataset *dataset, const struct data_progress *progress,
                   struct err *err)
{
    if (!dataset->info.has_manifest) {
        return err_set(err, ERR_DATA, "%s: there is no manifest.json to verify against",
                       dataset->folder);
    }
    if (dataset->partial.have != NULL) {
        return err_set(err, ERR_STATE, "%s: is a partial copy, verified block by block as it came",
                       dataset->folder);
    }
    struct meter meter;
    meter_start(&meter, progress, "digest", dataset->info.bytes);
    for (size_t i = 0; i < dataset->manifest.files_count; i++) {
        const struct manifest_file *file = &dataset->manifest.files[i];
        char path[PATH_SIZE];
        uint8_t digest[SHA256_SIZE];
        uint64_t size = 0;
        (void)snprintf(path, sizeof(path), "%s/%s", dataset->folder, file->name);
        int code = digest_file(path, &meter, digest, NULL, &size, err);
        if (code != 0) {
            return code;
        }
        if (size != file->bytes || memcmp(digest, file->digest, sizeof(digest)) != 0) {
            return err_set(err, ERR_DAMAGED, "%s: its SHA-256 is not the manifest's; import again",
                           path);
        }
    }
    return 0;
}

int dataset_expect(const struct dataset *dataset, uint64_t features, const char *const *names,
                   struct err *err)
{
    if (dataset->info.features != features) {
        return err_set(err, ERR_DATA, "%s: has %llu feature columns; the model has %llu",
                       dataset->folder, (unsigned long long)dataset->info.features,
                       (unsigned long long)features);
    }
    for (uint64_t j = 0; names != NULL && dataset->named && j < features; j++) {
        if (strcmp(dataset_name(dataset, j), names[j]) != 0) {
            return err_set(err, ERR_DATA,
                           "%s: feature %llu is '%.64s' here and '%.64s' in the "
                           "model",
                           dataset->folder, (unsigned long long)j + 1, dataset_name(dataset, j),
                           names[j]);
        }
    }
    return 0;
}
