/* A dataset that is on another node: what the holder serves, and the copy that grows elsewhere.
 *
 *   holder:   dataset_share_open ── manifest, table, bytes of files ──> (peer/fetch.h)
 *   fetcher:  (peer/fetch.h) ──> dataset_copy_make ── plan ── put* ── save ──> dataset_open
 *
 * Files are cut in blocks of SHARE_BLOCK_SIZE bytes (the last one of a file is shorter). The table
 * has the SHA-256 of each, files in the order of `manifest_file_names`. It is written at import
 * (blocks.bin) and made by the holder where it is absent. A copy is a native folder whose files
 * have their sizes and holes where nothing came yet, beside the record partial.bin of the blocks
 * that are there and right; dataset_open takes it, and loading columns that are not there is
 * ERR_DAMAGED. The manifest is the whole dataset's, so its digest is too.
 *
 * What is trusted: the dataset's digest (agreed by the cluster) names the whole files; a manifest
 * that does not give it is refused. The table comes from the holder: a block that is not as the
 * table says is refused, and a file that is wholly there must have the manifest's SHA-256.
 *
 * Threads: calls block on disk; an object belongs to one thread at a time, but
 * dataset_share_read may be called from several. */
#ifndef COPPELIUS_DATA_SHARE_H
#define COPPELIUS_DATA_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/data.h"

#define SHARE_BLOCK_SIZE        (1U << 20)
#define SHARE_MANIFEST_SIZE_MAX (256U << 10)
#define SHARE_TABLE_SIZE_MAX    (UINT64_C(256) << 20) /* 8 Ti bytes of data */

static inline uint64_t share_blocks_of(uint64_t bytes)
{
    return bytes / SHARE_BLOCK_SIZE + (bytes % SHARE_BLOCK_SIZE != 0 ? 1 : 0);
}

/* What is read of a share, by number: manifest, table, then the dataset's files in table order. */
enum share_part { SHARE_MANIFEST, SHARE_TABLE, SHARE_FILES };

/* ---- The holder's side. ---- */
struct dataset_share;

/* Opens the folder (whole: a partial copy is ERR_STATE) and its table; where there is none every
 * file is read once (progress "digest"), and files that are not as their manifest says are
 * ERR_DAMAGED. Errors of dataset_open. */
int dataset_share_open(const char *folder, const struct data_progress *progress,
                       struct dataset_share **ret_share, struct err *err);
void dataset_share_close(struct dataset_share *share); /* NULL is fine */
const uint8_t *dataset_share_digest(const struct dataset_share *share);
uint64_t dataset_share_manifest_size(const struct dataset_share *share);
uint64_t dataset_share_table_size(const struct dataset_share *share);
/* Exactly size bytes at offset of the part; ERR_PROTO where the part does not exist or is shorter,
 * ERR_DAMAGED where the file has shrunk. Any thread. */
int dataset_share_read(const struct dataset_share *share, uint32_t part, uint64_t offset,
                       void *bytes, size_t size, struct err *err);

/* ---- The fetcher's side. ---- */
struct dataset_copy;

struct dataset_piece { /* one block that is missing */
    uint32_t part;     /* SHARE_FILES + the file's number */
    uint32_t size;     /* bytes */
    uint64_t offset;   /* in the file */
    uint64_t block;    /* in the table */
};

/* A copy that an earlier run began; ERR_NOT_FOUND where there is none, ERR_DAMAGED where it is not
 * of this digest or broken (remove it, begin anew). */
int dataset_copy_open(const char *folder, const uint8_t digest[SHA256_SIZE],
                      struct dataset_copy **ret_copy, struct err *err);
/* Makes the folder (which must not exist; its parent must) with holes only. ERR_DAMAGED where the
 * manifest does not give the digest, or the table is not the manifest's. */
int dataset_copy_make(const char *folder, const uint8_t digest[SHA256_SIZE], const void *manifest,
                      size_t manifest_size, const void *table, size_t table_size,
                      struct dataset_copy **ret_copy, struct err *err);
void dataset_copy_close(struct dataset_copy *copy); /* NULL is fine; saves nothing */
/* Size of the table by the manifest's word; 0 or ERR_DAMAGED. Before the table is asked for. */
int dataset_copy_table_size(const void *manifest, size_t manifest_size,
                            const uint8_t digest[SHA256_SIZE], uint64_t *ret_size, struct err *err);
/* The blocks that are missing to load the columns first .. end-1 and the targets: at first those of
 * headers, targets and names, which tell where the columns are, then sparse columns' bounds, then
 * the columns. Repeat until there are none (*ret_count 0). first == end: targets only. *ret_pieces
 * is freed with free(). Clamped to the features; ERR_DAMAGED where what came is no dataset. */
int dataset_copy_plan(struct dataset_copy *copy, uint64_t first, uint64_t end,
                      struct dataset_piece **ret_pieces, size_t *ret_count, struct err *err);
/* Bytes of the piece: ERR_DAMAGED (nothing is written) where their SHA-256 is not the table's. */
int dataset_copy_put(struct dataset_copy *copy, const struct dataset_piece *piece,
                     const void *bytes, struct err *err);
/* Makes what came durable and writes the record: a run that is killed resumes from here. */
int dataset_copy_save(struct dataset_copy *copy, struct err *err);
/* Compares the whole files that are complete with the manifest's SHA-256 (those alone that were
 * not compared before by this object). ERR_DAMAGED: the table was wrong; remove the copy. */
int dataset_copy_check(struct dataset_copy *copy, struct err *err);

/* ---- Byte ranges of columns. ---- */
#define DATASET_RANGES_MAX 3

struct dataset_range {
    char name[32]; /* of the file */
    uint64_t offset;
    uint64_t size;
};

/* Which bytes dataset_load reads for the columns first .. end-1: of x.npy, or of indptr.npy,
 * data.npy and indices.npy. Sparse: reads indptr. ranges[DATASET_RANGES_MAX]. */
int dataset_ranges(const struct dataset *dataset, uint64_t first, uint64_t end,
                   struct dataset_range *ret_ranges, size_t *ret_count, struct err *err);

#endif
