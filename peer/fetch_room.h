/* What both sides of a fetch share, and the fuzz target drives. Private to the room. */
#ifndef COPPELIUS_PEER_FETCH_ROOM_H
#define COPPELIUS_PEER_FETCH_ROOM_H

#include <stdatomic.h>
#include <stdint.h>

#include "peer/fetch.h"
#include "peer/handshake.h"
#include "peer/wire.h"

#define FETCH_READ_SIZE 16 /* bodies of READ, WAIT and ABOUT */

struct fetch_request {
    uint32_t part;
    uint32_t size;
    uint64_t offset;
};

struct fetch_counters {
    _Atomic uint64_t answers, bytes_out;
};

/* ERR_PROTO: not READ, or a size of 0 or too large. */
int fetch_request_get(const struct frame_header *header, const uint8_t *body,
                      struct fetch_request *ret_request, struct err *err);

/* The holder's side after WELCOME, until the fetcher closes (0), or an error. buffer:
 * FETCH_SIZE_MAX bytes. */
int fetch_serve(struct wire *wire, const struct fetch_source *source, uint32_t node_id,
                const uint8_t digest[FETCH_DIGEST_SIZE], uint32_t idle_ms, uint8_t *buffer,
                struct fetch_counters *counters, struct err *err);

struct fetch {
    const struct fetch_settings *settings;
    struct wire wire;
    uint64_t manifest_size, table_size, bytes_in;
    uint64_t asked, taken; /* sequences */
    uint32_t sizes[FETCH_WINDOW];
    uint64_t turn_ms; /* since when the oldest answer is awaited */
    uint8_t *buffer;  /* FETCH_SIZE_MAX */
};

/* The fetcher's side after WELCOME: waits for ABOUT. */
int fetch_begin(struct fetch *fetch, struct err *err);

#endif
