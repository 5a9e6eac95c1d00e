/* HELLO, WELCOME and REFUSAL: peer.proto's messages as plain structs, and back. Any thread. Private
 * to the room. */
#ifndef COPPELIUS_PEER_HANDSHAKE_H
#define COPPELIUS_PEER_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "peer/peer.h"

#define HANDSHAKE_LIMIT       4096 /* bytes of a body before the other side is known */
#define HANDSHAKE_DEADLINE_MS 5000

/* The room's own frame kinds, below MESH_KIND_FIRST. */
enum peer_kind {
    PEER_PING = 16,   /* u64: the sender's clock; control */
    PEER_PONG = 17,   /* the same back */
    PEER_ALIVE = 18,  /* empty: an idle bulk link */
    PEER_VALUES = 19, /* node values of a chunk; sequence = step << 24 | chunk, as below */
    PEER_WORD = 20,   /* u32: the directive, before chunk 0's answer */
    PEER_RESULT = 21, /* panel losses, then residuals, of a chunk */
    PEER_GATHER = 22, /* a node's slice of both vectors; sequence = step */
    PEER_BYE = 23,    /* i32 code (0: finished), then the sentence; the last frame */
    /* Class data (fetch.h): */
    PEER_FETCH_ABOUT = 24, /* u64 bytes of the manifest, u64 of the table */
    PEER_FETCH_READ = 25,  /* u32 part, u32 size, u64 offset; sequence counts them from 0 */
    PEER_FETCH_DATA = 26,  /* the bytes; sequence of the request */
    PEER_FETCH_WAIT = 27,  /* u64 done, u64 total: the holder reads its data before ABOUT */
    /* Class probe (probe.h): */
    PEER_PROBE_PING = 28,  /* u64 */
    PEER_PROBE_PONG = 29,  /* the same back */
    PEER_PROBE_BEGIN = 30, /* u32 bytes that will come, u32 ms after which it is enough */
    PEER_PROBE_DATA = 31,  /* some of them */
    PEER_PROBE_GOT = 32,   /* u64 bytes, u64 ns; and of the later part: u64 bytes, u64 ns */
};

struct handshake_refusal {
    int code;
    bool retry;
    char text[ERR_TEXT_SIZE];
};

/* Bodies, to be sent as FRAME_HELLO, FRAME_WELCOME, FRAME_REFUSAL. */
void handshake_put_hello(struct buf *body, const struct peer_hello *hello);
void handshake_put_welcome(struct buf *body, const struct peer_hello *self);
void handshake_put_refusal(struct buf *body, const struct handshake_refusal *refusal);

/* ERR_PROTO where the bytes are not one, or a field is out of its bounds. */
int handshake_get_hello(const uint8_t *body, size_t size, struct peer_hello *ret_hello,
                        struct err *err);
/* Fills cluster, node, node_id, incarnation, protocol. */
int handshake_get_welcome(const uint8_t *body, size_t size, struct peer_hello *ret_welcome,
                          struct err *err);
int handshake_get_refusal(const uint8_t *body, size_t size, struct handshake_refusal *ret_refusal,
                          struct err *err);

#endif
