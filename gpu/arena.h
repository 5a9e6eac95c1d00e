/* The arena: one device allocation, and the table of named regions in it.
 *
 * A backend names what it keeps resident (arena_add lays the regions out one behind the other); the
 * session core then proves, from the table alone, that every region is in bounds, aligned and apart
 * from all others (arena_certify) before anything is allocated or runs. The table is immutable
 * after that, and any thread may print it. */
#ifndef COPPELIUS_GPU_ARENA_H
#define COPPELIUS_GPU_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define ARENA_REGIONS_MAX 48
#define ARENA_NAME_SIZE   32
/* No region is larger, so that no sum of sizes overflows. */
#define ARENA_BYTES_MAX ((uint64_t)1 << 56)

struct arena_region {
    char name[ARENA_NAME_SIZE];
    uint64_t offset; /* bytes from the arena's base */
    uint64_t bytes;
    uint64_t alignment; /* a power of two */
};

struct arena {
    struct arena_region regions[ARENA_REGIONS_MAX];
    size_t regions_count;
    uint64_t bytes; /* the whole allocation */
    bool certified;
};

#define ARENA_BASE_ALIGNMENT 4096 /* what a backend's allocation has at least */

/* Adds a region behind the last one; its index is the answer (>= 0) or an ERR_*. bytes may be 0. */
int arena_add(struct arena *arena, const char *name, uint64_t bytes, uint64_t alignment,
              struct err *err);
/* The region of that name, or NULL. */
const struct arena_region *arena_find(const struct arena *arena, const char *name);
/* Proves the table: names present and unique, alignment a power of two that the base keeps, offset
 * aligned, region in bounds, no two overlap. ERR_STATE names the region that fails; on success the
 * table is marked certified. */
int arena_certify(struct arena *arena, struct err *err);
/* A table for people: name, offset, bytes, alignment, one a line, and the sum. */
void arena_print(const struct arena *arena, struct buf *text);

#endif
