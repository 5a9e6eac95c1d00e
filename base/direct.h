/* Long files written past the page cache.
 *
 * A shard of hundreds of megabytes that goes through the page cache costs the processor a page to
 * be found, filled, written back and forgotten for each 4 KiB of it, time that the training beside
 * it loses, and all of it waits for the fsync at the end. Here the bytes go to the disk (O_DIRECT)
 * in pieces of DIRECT_PIECE_SIZE out of one aligned buffer, the rest of the file's end by the page
 * cache. Nothing is durable before the file's fsync, as ever. Where the file system cannot, the
 * whole goes by the page cache, asked to begin early.
 *
 * A struct direct belongs to one open file and one thread at a time. Errors are numbers of errno:
 * who knows the file's name makes the sentence. */
#ifndef COPPELIUS_BASE_DIRECT_H
#define COPPELIUS_BASE_DIRECT_H

#include <stddef.h>
#include <stdint.h>

#define DIRECT_PIECE_SIZE (UINT64_C(4) << 20) /* bytes of a write; a multiple of DIRECT_ALIGN */
#define DIRECT_ALIGN      4096U               /* of offsets, sizes and memory */

struct direct {
    uint8_t *buffer; /* DIRECT_PIECE_SIZE; NULL: by the page cache */
    size_t filled;   /* bytes in it that are not written yet */
    uint64_t early;  /* by the page cache: what was written since it was last asked to begin */
};

/* From here on, where the file's end is aligned and its file system can. Nothing is done else. */
void direct_begin(struct direct *direct, int fd);
/* All bytes, or errno. */
int direct_write(struct direct *direct, int fd, const uint8_t *bytes, size_t size);
/* What is in the buffer goes to the file, and what follows by the page cache; 0 or errno. */
int direct_end(struct direct *direct, int fd);
/* Without writing. */
void direct_drop(struct direct *direct);

#endif
