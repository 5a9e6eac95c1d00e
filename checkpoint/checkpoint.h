/* A run's state as files that survive a crash: the room's door.
 *
 *   shard.h     one node's coordinates as a safetensors file: write, read, check
 *   losses.h    the losses of a run's steps, bounded, as each shard has them
 *   manifest.h  manifest.json and SHA256SUMS of an epoch, made from the agreed state
 *   folder.h    the layout of a job's folder, CURRENT, and what is found there
 *   agent.h     state and folder in, next action out (pure); the executor that does it
 *   whole.h     verify a checkpoint folder, assemble one from several nodes', read all of it
 *
 * jobs/<id>-<name>/                    checkpoint_job_folder()
 *   staging/epoch-00000012/            being written: shard-00001-of-00003.safetensors
 *   epoch-00000012/                    published: shard, manifest.json, SHA256SUMS
 *   CURRENT                            "epoch-00000012\n"
 *   latest -> epoch-00000012           a convenience
 *
 * Everything that touches files blocks (write, fsync, digests): the libuv pool's or another
 * worker's thread, never the loop. Paths are relative to the struct fs given. Whatever is read
 * is bounded by the file's size before anything is allocated, and no path in a file is trusted. */
#ifndef COPPELIUS_CHECKPOINT_CHECKPOINT_H
#define COPPELIUS_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/agent.h"
#include "checkpoint/folder.h"
#include "checkpoint/losses.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"
#include "checkpoint/whole.h"

#endif
