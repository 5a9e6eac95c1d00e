/* The folder of imported and fetched datasets, within a limit: when a new one needs room, the ones
 * that were not used for the longest are deleted, never one in use.
 *
 * An entry is a flat folder; its time of use is its modification time, set when it is held, so that
 * it outlives the daemon. A reader that has opened a dataset keeps its files also when the entry
 * goes. Threads: any; one lock, held while entries are deleted. */
#ifndef COPPELIUS_DATA_CACHE_H
#define COPPELIUS_DATA_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct data_cache;

struct data_cache_stats {
    uint64_t bytes; /* on the disk; holes take none */
    uint64_t size_max;
    uint64_t entries;
    uint64_t held;
    uint64_t evicted, evicted_bytes; /* since open */
};

#define DATA_CACHE_DEFAULT (UINT64_C(64) << 30)

/* Makes the folder where it is absent (its parent must exist) and deletes what dead imports left
 * (*.importing-*, predict-*): nobody else may be importing there. size_max in bytes; 0:
 * DATA_CACHE_DEFAULT. ERR_DISK. */
int data_cache_open(const char *folder, uint64_t size_max, struct data_cache **ret_cache,
                    struct err *err);
void data_cache_close(struct data_cache *cache); /* NULL is fine; nothing may be held */
const char *data_cache_folder(const struct data_cache *cache);

/* The entry `name` is in use (or about to be made) until as many releases. */
void data_cache_hold(struct data_cache *cache, const char *name);
void data_cache_release(struct data_cache *cache, const char *name);

/* Makes room for `bytes` more: evicts the oldest until the limit bears them, or nothing unused is
 * left: then they are allowed all the same while the disk has room, for a job is not refused
 * because of what a cache should keep. ERR_DISK with the numbers where the disk has none. */
int data_cache_room(struct data_cache *cache, uint64_t bytes, struct err *err);
/* Deletes a damaged entry, held or not. */
void data_cache_drop(struct data_cache *cache, const char *name);
void data_cache_stats(struct data_cache *cache, struct data_cache_stats *ret_stats);

#endif
