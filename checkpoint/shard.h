/* A shard: one node's coordinates of one epoch, as a safetensors file.
 *
 * Layout (safetensors): u64 little-endian length of the header, the header (JSON, padded with
 * spaces to a multiple of 8), the tensors' bytes, contiguous and in the order of their offsets.
 * Tensors, n = end - first:
 *   parameter (n) F64 · accumulator (n) F64 · mean (n) F64, scale (n) F64 where standardised ·
 *   coordinates (2) I64 [first, end) · loss_steps (m) I64, losses (m) F64 where known, m <=
 * LOSSES_MAX
 * "__metadata__" has texts only: format, job, identity, policy, epoch, step, generation, partition
 * ("2 of 3"), node, coordinates (of the whole vector), columns (a JSON array of the range's names,
 * absent where unknown), losses_sha256 (of the bytes of loss_steps and losses, where they are).
 *
 * Functions block. Digests are SHA-256 of the file's bytes, taken while they stream. */
#ifndef COPPELIUS_CHECKPOINT_SHARD_H
#define COPPELIUS_CHECKPOINT_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/hash.h"
#include "checkpoint/losses.h"

#define SHARD_TEXT_SIZE       64
#define SHARD_HEADER_SIZE_MAX 100000000U /* as safetensors; also bounded by the file */

struct shard_about {
    char job[SHARD_TEXT_SIZE]; /* its name */
    char node[SHARD_TEXT_SIZE];
    char policy[SHARD_TEXT_SIZE];
    uint8_t identity[SHA256_SIZE];
    uint64_t epoch;
    uint64_t step;
    uint64_t generation;
    uint32_t rank;        /* 0 .. ranks - 1 */
    uint32_t ranks;       /* how many shards the epoch has */
    uint64_t first, end;  /* coordinates [first, end) */
    uint64_t coordinates; /* of the whole vector */
};

/* What is written; all borrowed. columns is NULL or has end - first names. mean and scale are both
 * NULL or both there. */
struct shard_content {
    struct shard_about about;
    const double *parameter;
    const double *accumulator;
    const double *mean;
    const double *scale;
    const char *const *columns;
    const struct losses *losses; /* up to about.step; NULL or empty: not known */
};

/* What was read; owned. */
struct shard {
    struct shard_about about;
    double *parameter;
    double *accumulator;
    double *mean; /* NULL: not standardised */
    double *scale;
    char **columns;        /* NULL: not known */
    struct losses *losses; /* NULL: not known */
    uint8_t sha256[SHA256_SIZE];
    uint64_t size;
};

#define SHARD_NONE                         \
    {                                      \
        .parameter = NULL, .columns = NULL \
    }

/* Creates the file (exclusively), reserves its whole size before the first byte (fs.h), writes,
 * fsyncs, closes. The folder is not fsynced. After an error
 * the file may be there in part: the caller deletes it. */
int shard_write(struct fs *fs, const char *path, const struct shard_content *content,
                uint8_t ret_sha256[SHA256_SIZE], uint64_t *ret_size, struct err *err);

/* Strict: duplicate keys, gaps, overlaps, other types, sizes beyond the file's are ERR_DAMAGED, and
 * so is a digest other than `sha256` (NULL: not compared). Never follows a symbolic link. */
int shard_read(struct fs *fs, const char *path, const uint8_t *sha256, struct shard *ret_shard,
               struct err *err);
void shard_done(struct shard *shard); /* twice is fine */

/* The losses alone, without the vectors; compared with the digest that the header has of them.
 * *ret_losses is for free(), or NULL: the shard has none. ERR_DAMAGED as for shard_read(). */
int shard_read_losses(struct fs *fs, const char *path, struct losses **ret_losses, struct err *err);

/* Header alone: bytes from the file's begin (8 + header), file_size the whole file's. For the fuzz
 * target and the reader. *ret_layout has absolute offsets of the tensors; 0 where absent. columns
 * are filled into *ret_shard. */
struct shard_layout {
    uint64_t parameter, accumulator, mean, scale, coordinates, loss_steps, losses;
    uint64_t losses_count; /* at most LOSSES_MAX */
    uint8_t losses_sha256[SHA256_SIZE];
};
int shard_parse_header(const uint8_t *bytes, size_t size, uint64_t file_size,
                       struct shard *ret_shard, struct shard_layout *ret_layout, struct err *err);

#endif
