/* manifest.json of a native folder. Private to data.
 *
 * {"format": "coppelius-dataset", "schema": 1, "storage": "dense" | "sparse", "rows": n,
 * "features": d, "nonzeros": k, "target": "name" | null, "names": "header" | "numbers",
 * "rows_dropped": n, "files": {"x.npy": {"bytes": n, "sha256": "…"}, …},
 * "blocks": {"bytes": 1048576, "sha256": "…"}} Only format, schema and files are required: the rest
 * is checked against the files where it is there. blocks.bin is the SHA-256 of each block of each
 * file, files in the order of manifest_file_names; "blocks" has the digest of that table. The
 * dataset's own digest (dataset_digest) is over shape, storage and the whole files' digests:
 * neither the table nor its absence changes it. */
#ifndef COPPELIUS_DATA_MANIFEST_H
#define COPPELIUS_DATA_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "data/data.h"

#define MANIFEST_SIZE_MAX  (256U << 10)
#define MANIFEST_FILES_MAX 8U
#define MANIFEST_UNKNOWN   UINT64_MAX /* a number that is not said */

struct manifest_file {
    char name[32];
    uint64_t bytes;
    uint8_t digest[SHA256_SIZE];
};

struct manifest {
    int sparse;    /* 0, 1; -1 unknown */
    uint64_t rows; /* or MANIFEST_UNKNOWN, as the next two */
    uint64_t features;
    uint64_t nonzeros;
    uint64_t rows_dropped;
    bool named;                          /* the names are from a header */
    char target[DATA_NAME_SIZE_MAX + 1]; /* "" where there is none or it has no name */
    struct manifest_file files[MANIFEST_FILES_MAX];
    size_t files_count;
    bool has_blocks;
    uint8_t blocks_digest[SHA256_SIZE]; /* of the table */
};

/* The names of the files that a native folder may have, but for manifest.json; NULL at the end. */
extern const char *const manifest_file_names[];

/* ERR_DAMAGED or (another format or schema) ERR_DATA. */
int data_manifest_parse(const uint8_t *bytes, size_t size, struct manifest *ret_manifest,
                        struct err *err);
void data_manifest_write(const struct manifest *manifest, struct buf *bytes);
const struct manifest_file *manifest_find(const struct manifest *manifest, const char *name);
/* What names a dataset: over rows, features, storage and the files' digests, all of which must be
 * in the manifest. */
void manifest_digest(const struct manifest *manifest, uint8_t ret_digest[SHA256_SIZE]);
/* Blocks of all its files; files are counted in the order of manifest_file_names. */
uint64_t manifest_blocks(const struct manifest *manifest);

#endif
