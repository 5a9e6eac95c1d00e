/* Whole checkpoints: a folder with a manifest and some or all of its shards.
 *
 * A node's published folder has that node's shards; an assembled one has all of them. Every
 * function blocks. ERR_DAMAGED names the file that is wrong, ERR_NOT_FOUND what is missing. */
#ifndef COPPELIUS_CHECKPOINT_WHOLE_H
#define COPPELIUS_CHECKPOINT_WHOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"

/* Reads and checks manifest.json alone. */
int checkpoint_read_manifest(struct fs *fs, const char *folder, struct manifest *ret_manifest,
                             struct err *err);

struct checkpoint_verdict {
    uint32_t files;  /* that SHA256SUMS names and that are right */
    uint32_t shards; /* of them */
    bool whole;      /* all shards are here, and the whole vectors' digests are right */
};

/* Manifest, SHA256SUMS, each file's digest and size, each shard's header against the manifest;
 * where all shards are here, the whole vectors' digests too. */
int checkpoint_verify(struct fs *fs, const char *folder, struct manifest *ret_manifest,
                      struct checkpoint_verdict *ret_verdict, struct err *err);

/* The digests of the whole vectors alone, where all shards are here; 0 too where they are not. What
 * is read of a folder that nobody agreed on is held against this. One shard in memory at a time. */
int checkpoint_check_whole(struct fs *fs, const char *folder, struct err *err);

struct checkpoint_source {
    struct fs *fs;
    const char *folder; /* of one epoch */
};

/* Copies every shard from the first source that has it right into `folder` of fs (must not exist),
 * which appears whole or not at all: it is written as <folder>.part and renamed. Sources whose
 * manifests differ are refused. */
int checkpoint_assemble(const struct checkpoint_source *sources, size_t sources_count,
                        struct fs *fs, const char *folder, struct err *err);
/* The same end for files that the caller has put into `part` itself (manifest.json and all shards,
 * each closed): checks them, writes SHA256SUMS, fsyncs, renames to `folder`. */
int checkpoint_seal(struct fs *fs, const char *part, const char *folder, struct err *err);

/* A whole checkpoint in memory; vectors have `coordinates` elements. */
struct checkpoint_whole {
    struct manifest manifest;
    double *parameter;
    double *accumulator;
    double *mean; /* NULL: not standardised */
    double *scale;
    char **columns; /* NULL: not known */
    uint64_t columns_count;
    struct losses *losses; /* NULL: not known */
};

int checkpoint_read_whole(struct fs *fs, const char *folder, struct checkpoint_whole *ret_whole,
                          struct err *err);
void checkpoint_whole_done(struct checkpoint_whole *whole); /* twice is fine */

/* Coordinates [first, end) from the shards that lie in `folder`, each checked against the manifest:
 * what a participant seeds from. mean and scale too where they are. */
int checkpoint_read_range(struct fs *fs, const char *folder, uint64_t first, uint64_t end,
                          struct shard *ret_shard, struct err *err);

#endif
