/* What both sides of a look share, and the fuzz target drives. Private to the room. */
#ifndef COPPELIUS_PEER_PROBE_ROOM_H
#define COPPELIUS_PEER_PROBE_ROOM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "peer/handshake.h"
#include "peer/probe.h"
#include "peer/wire.h"

#define PROBE_PIECE_SIZE  (64U << 10) /* of data, at most */
#define PROBE_PIECE_FIRST 1024U
#define PROBE_PING_SIZE   8U
#define PROBE_BEGIN_SIZE  8U
#define PROBE_GOT_SIZE    32U

/* What arrived, and when, since BEGIN; the later part leaves out how a connection gets going. */
struct probe_count {
    uint64_t bytes, ns;
    uint64_t late_bytes, late_ns;
};

/* Whoever is asked, after WELCOME, until the other closes (0), or an error. buffer:
 * PROBE_PIECE_SIZE bytes. bytes_in is counted up. */
int probe_serve(struct wire *wire, uint8_t *buffer, _Atomic uint64_t *bytes_in, struct err *err);

/* Whoever asks, after WELCOME. ret_result->step says how far it came. */
int probe_pings(struct wire *wire, uint64_t until_ms, uint64_t deadline_ms,
                struct probe_result *result, struct err *err);
/* bytes, ms: how much and how long at most; deadline_ms: of all of it. pattern: PROBE_PIECE_SIZE
 * bytes. */
int probe_put(struct wire *wire, const uint8_t *pattern, uint32_t bytes, uint32_t ms,
              uint64_t deadline_ms, struct probe_result *result, struct err *err);

/* Whose turn it is to have the line: the first of those that wait; for slot_ms at most. */
struct probe_turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t free_ms; /* the line is free from then on; 0: it is */
    size_t holder;    /* whose slot it is until then */
    bool waits[PEER_NODES_MAX];
};
void probe_turn_take(struct probe_turns *turns, size_t index, uint32_t slot_ms,
                     uint64_t deadline_ms);
void probe_turn_give(struct probe_turns *turns, size_t index); /* nothing where it is over */

#endif
