/* The log in memory: entries first..last behind a base that a snapshot covers.
 *
 *   base          first                                last
 *   (index,term)  base+1 ...                           base+count
 *
 * Owns the entries' bytes. An entry's `write` is the number of the write that puts it on the disk;
 * it never falls along the log, since a truncated place is written again later. */
#ifndef COPPELIUS_CONTROL_RAFT_LOG_H
#define COPPELIUS_CONTROL_RAFT_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "control/message.h"

struct raft_entry {
    uint64_t term;
    uint64_t write;
    enum entry_kind kind;
    uint32_t size;
    uint8_t *bytes;
};

struct raft_log {
    struct raft_entry *items; /* the first is items[head] */
    size_t head;
    size_t count;
    size_t capacity;
    uint64_t base_index;
    uint64_t base_term;
    uint64_t size; /* bytes, each entry's header included */
};

void raft_log_done(struct raft_log *log);
/* Empties it; what follows will be base_index + 1. */
void raft_log_reset(struct raft_log *log, uint64_t base_index, uint64_t base_term);
uint64_t raft_log_last(const struct raft_log *log);
uint64_t raft_log_last_term(const struct raft_log *log);
/* base_index <= index <= last */
uint64_t raft_log_term(const struct raft_log *log, uint64_t index);
/* base_index < index <= last */
const struct raft_entry *raft_log_at(const struct raft_log *log, uint64_t index);
/* Copies the bytes. */
void raft_log_append(struct raft_log *log, const struct message_entry *entry, uint64_t write);
/* Drops index and all behind it. */
void raft_log_truncate(struct raft_log *log, uint64_t index);
/* Drops index and all before it. */
void raft_log_compact(struct raft_log *log, uint64_t index);

#endif
