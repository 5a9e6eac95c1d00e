/* What Raft cores tell each other, as fixed little-endian bytes; decoding is strict and bounded.
 *
 * Layout (all integers little endian):
 *   u8 version (1), u8 kind, u32 from, u32 to, u64 term, then by kind
 *   pre-vote, vote       u64 last index, u64 last term
 *   their answers        u8 granted
 *   append               u64 previous index, u64 previous term, u64 commit, u32 count, entries
 *   append answer        u8 ok, u64 match (durable), u64 verified;
 *                        not ok: u64 hint index, u64 hint term, u64 rejected previous index
 *   snapshot             u64 index, u64 term of it, u16 size, the group then (group.h),
 *                        u64 total, u64 XXH3 of the whole, u64 offset, u32 size, bytes
 *   snapshot answer      u64 index, u64 wanted offset
 *   forward              u32 size, command
 *   an entry             u64 term, u8 kind, u32 size, bytes
 * Nothing may follow. */
#ifndef COPPELIUS_CONTROL_MESSAGE_H
#define COPPELIUS_CONTROL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "control/control.h"

enum message_kind {
    MESSAGE_PREVOTE = 1,
    MESSAGE_PREVOTE_ANSWER,
    MESSAGE_VOTE,
    MESSAGE_VOTE_ANSWER,
    MESSAGE_APPEND,
    MESSAGE_APPEND_ANSWER,
    MESSAGE_SNAPSHOT,
    MESSAGE_SNAPSHOT_ANSWER,
    MESSAGE_FORWARD, /* a proposal, for whoever leads */
};

enum entry_kind {
    ENTRY_NOOP = 0, /* the first of a leader's term; no bytes */
    ENTRY_COMMAND = 1,
    ENTRY_GROUP = 2, /* the group from here on (group.h); no command */
};

#define ENTRY_HEADER_SIZE   13U
#define MESSAGE_ENTRIES_MAX 4096U

/* The members are used as the kind's layout above says. */
struct raft_message {
    enum message_kind kind;
    uint32_t from;
    uint32_t to;
    uint64_t term;
    bool ok;           /* granted, or appended */
    uint64_t index;    /* last, previous, match, snapshot's */
    uint64_t log_term; /* of index */
    uint64_t commit;
    uint64_t verified;
    uint64_t hint_index;
    uint64_t hint_term;
    uint64_t rejected;
    uint64_t total;
    uint64_t hash;
    uint64_t offset;
    const uint8_t *group; /* borrowed */
    size_t group_size;
    uint32_t entries_count;
    const uint8_t *bytes; /* entries, chunk, command: borrowed */
    size_t size;
};

struct message_entry {
    uint64_t term;
    enum entry_kind kind;
    const uint8_t *bytes;
    uint32_t size;
};

void message_encode(const struct raft_message *message, struct buf *bytes);
/* ret_message->bytes points into `bytes`. Every entry is looked at. ERR_PROTO with a sentence. */
int message_decode(const uint8_t *bytes, size_t size, struct raft_message *ret_message,
                   struct err *err);

/* Is there such an entry? Wherever one comes from. */
bool message_entry_is_well_formed(uint64_t term, uint32_t kind, const uint8_t *bytes,
                                  uint32_t size);
/* The bytes of an entry, appended. */
void message_put_entry(struct buf *bytes, const struct message_entry *entry);
/* The next entry off a reader; ERR_PROTO when it is none. The terms in a run never fall and none is
 * 0; that the caller checks. */
int message_read_entry(struct reader *reader, struct message_entry *ret_entry, struct err *err);

#endif
