/* How far a long piece of work has come, told by the thread that does it and read by the loop.
 * phase is a text of static storage; NULL: nothing to tell. */
#ifndef COPPELIUS_DAEMON_METER_H
#define COPPELIUS_DAEMON_METER_H

#include <stdatomic.h>
#include <stdint.h>

struct work_meter {
    const char *_Atomic phase;
    atomic_ullong done_bytes;
    atomic_ullong total_bytes; /* 0: not known */
};

/* The three are stored one by one: a reader may see a new phase with the numbers of the old one for
 * a moment, which a progress bar can bear. */
static inline void work_meter_set(struct work_meter *meter, const char *phase, uint64_t done_bytes,
                                  uint64_t total_bytes)
{
    atomic_store_explicit(&meter->done_bytes, done_bytes, memory_order_relaxed);
    atomic_store_explicit(&meter->total_bytes, total_bytes, memory_order_relaxed);
    atomic_store_explicit(&meter->phase, phase, memory_order_relaxed);
}

#endif
