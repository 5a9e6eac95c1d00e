/* SHA-256 of a file, and of its blocks. Private to data. */
#ifndef COPPELIUS_DATA_DIGEST_H
#define COPPELIUS_DATA_DIGEST_H

#include "base/buf.h"
#include "base/hash.h"
#include "data/source.h"

/* meter may be NULL. blocks: the SHA-256 of each SHARE_BLOCK_SIZE bytes are appended, or NULL.
 * ERR_NOT_FOUND, ERR_DATA (no regular file), ERR_DISK, ERR_CANCELED. */
int digest_file(const char *path, struct meter *meter, uint8_t ret_digest[SHA256_SIZE],
                struct buf *blocks, uint64_t *ret_bytes, struct err *err);

#endif
