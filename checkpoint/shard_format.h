/* What the files of the shard share: shard.c (read), shard_header.c, shard_write.c. Private to the
 * room. */
#ifndef COPPELIUS_CHECKPOINT_SHARD_FORMAT_H
#define COPPELIUS_CHECKPOINT_SHARD_FORMAT_H

#include "checkpoint/shard.h"

#define SHARD_FORMAT      "coppelius-shard-1"
#define SHARD_PIECE_SIZE  (1U << 20) /* bytes of a write or read */
#define SHARD_BESIDE_SIZE (4U << 20) /* from here on it is hashed beside the writing */
#define SHARD_TENSORS_MAX 7

/* shard.c: of the bytes of loss_steps and losses. */
void shard_losses_digest(const struct losses *losses, uint8_t ret_sha256[SHA256_SIZE]);

#endif
