/* The manifest of an epoch: a function of the agreed state, so the same bytes on every node.
 *
 * manifest.json names the shards (files, digests, sizes, ranges, nodes), the job's identity and
 * the digests of the whole vectors. SHA256SUMS lists the files that lie beside it, in the form that
 * `sha256sum --strict -c` reads. No file name in either is trusted: checkpoint_name_is_plain(). */
#ifndef COPPELIUS_CHECKPOINT_MANIFEST_H
#define COPPELIUS_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "control/state.h"

#define MANIFEST_SCHEMA     1
#define MANIFEST_SIZE_MAX   (1U << 20)
#define MANIFEST_TEXT_SIZE  64
#define MANIFEST_SHARDS_MAX STATE_NODES_MAX

struct manifest_shard {
    char file[MANIFEST_TEXT_SIZE]; /* shard-00001-of-00003.safetensors */
    char node[MANIFEST_TEXT_SIZE]; /* its name */
    uint32_t node_id;
    uint64_t first, end;
    uint64_t size;
    uint8_t sha256[SHA256_SIZE];
};

struct manifest {
    uint64_t job;
    char name[MANIFEST_TEXT_SIZE];
    char policy[MANIFEST_TEXT_SIZE];
    uint8_t identity[SHA256_SIZE];
    uint8_t dataset[SHA256_SIZE];
    uint64_t epoch;
    uint64_t step;
    uint64_t steps;
    uint64_t generation;
    uint64_t coordinates;
    uint64_t decided_index; /* log index of the last vote */
    uint64_t decided_ms;    /* wall time of it */
    uint64_t loss_bits;     /* data loss of the step's batch; in JSON as number and as %a */
    uint8_t parameter_sha256[SHA256_SIZE];
    uint8_t accumulator_sha256[SHA256_SIZE];
    uint32_t shards_count;
    struct manifest_shard shards[MANIFEST_SHARDS_MAX]; /* by rank: contiguous from 0 */
};

/* "epoch-00000012", "shard-00001-of-00003.safetensors" (rank counts from 0 here). */
void checkpoint_epoch_name(uint64_t epoch, char name[MANIFEST_TEXT_SIZE]);
/* 0 where the text is no such name. */
uint64_t checkpoint_epoch_of_name(const char *name);
void checkpoint_shard_name(uint32_t rank, uint32_t ranks, char name[MANIFEST_TEXT_SIZE]);
/* The rank, or -1 where the text is no such name. */
int checkpoint_shard_of_name(const char *name);
/* A file name and nothing more: no '/', no leading '.', only letters, digits, '.', '-', '_'. */
bool checkpoint_name_is_plain(const char *name);

/* Of a committed epoch. */
void manifest_of_state(const struct state *state, const struct state_job *job,
                       const struct state_epoch *epoch, struct manifest *ret_manifest);
void manifest_write(const struct manifest *manifest, struct buf *bytes);
/* Strict; ERR_DAMAGED names the key. */
int manifest_parse(const uint8_t *bytes, size_t size, struct manifest *ret_manifest,
                   struct err *err);

/* SHA256SUMS: "<64 digits>  <name>\n" each. */
struct sums_line {
    char name[MANIFEST_TEXT_SIZE];
    uint8_t sha256[SHA256_SIZE];
};
void sums_put(struct buf *bytes, const char *name, const uint8_t sha256[SHA256_SIZE]);
/* At most lines_max lines; ERR_DAMAGED names the line. */
int sums_parse(const uint8_t *bytes, size_t size, struct sums_line *ret_lines, size_t lines_max,
               size_t *ret_count, struct err *err);

#endif
