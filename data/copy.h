/* What copy.c and the dataset share: which blocks of a partial copy are there. Private to data. */
#ifndef COPPELIUS_DATA_COPY_H
#define COPPELIUS_DATA_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "data/manifest.h"

#define COPY_RECORD "partial.bin"

/* The record: "coppelius copy 1\n", the dataset's digest, u64 blocks, a bit a block from the low
 * end of each byte, u64 XXH3-64 of all before. */
struct copy_record {
    uint64_t blocks;
    uint8_t *have; /* (blocks + 7) / 8 bytes; NULL: no record */
};

/* Of the folder. ERR_NOT_FOUND: none (the folder is whole). ERR_DAMAGED: of another dataset, or
 * broken. */
int copy_record_read(const char *folder, const struct manifest *manifest,
                     struct copy_record *ret_record, struct err *err);
void copy_record_done(struct copy_record *record); /* zeroed and twice is fine */

static inline bool copy_record_has(const struct copy_record *record, uint64_t block)
{
    return (record->have[block / 8] >> (block % 8) & 1) != 0;
}

/* Where the file's blocks begin in the table; UINT64_MAX where the manifest has no such file. */
uint64_t copy_first_block(const struct manifest *manifest, const char *name);
/* The manifest with all that it may leave out, and the table; blocks NULL: no table is made. Files
 * of which the manifest does not say the digest are read; with a table that is not there, all. */
struct dataset;
int dataset_manifest(const struct dataset *dataset, const struct data_progress *progress,
                     struct manifest *ret_manifest, struct buf *blocks, struct err *err);

#endif
