/* A connection of frames for a thread that may block: one frame after the other, each with a
 * deadline. Over the room's transport, so that TLS serves here as on links. Private to the room. */
#ifndef COPPELIUS_PEER_WIRE_H
#define COPPELIUS_PEER_WIRE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "peer/transport.h"
#include "proto/frame.h"

struct wire {
    struct transport transport; /* its fd is the wire's, non-blocking */
    uint64_t generation;        /* of every frame but the handshake's */
    uint32_t silence_ms;        /* nothing moves for so long: ERR_TIMEOUT */
    atomic_bool *cancel;        /* NULL: none */
    atomic_ullong *ticks;       /* NULL: none */
};

/* A connected, non-blocking socket to "IP:PORT"; cancel may be NULL. */
int wire_connect(const char *address, atomic_bool *cancel, uint64_t deadline_ms, int *ret_fd,
                 struct err *err);
/* Sends the frame whole by the deadline (clock_now_ms). */
int wire_send(struct wire *wire, uint16_t kind, uint64_t sequence, const void *body, size_t size,
              uint64_t deadline_ms, struct err *err);
/* The next frame: its header, and its body (at most size_max bytes) in `body`. ERR_PROTO: too
 * large, a wrong check, another generation. ERR_PEER: the end; *ret_begun (may be NULL) says
 * whether bytes of a frame had come. */
int wire_receive(struct wire *wire, void *body, size_t size_max, uint64_t deadline_ms,
                 struct frame_header *ret_header, bool *ret_begun, struct err *err);
/* Says HELLO and reads the answer of that node: 0 where it is WELCOME. What it refused with;
 * *ret_again: the same may be welcome later. ERR_AUTH: another node, or another identity of its
 * id, answers there. */
struct peer_hello;
struct wire_node {
    const char *name;
    uint32_t id, life;
};
int wire_greet(struct wire *wire, const struct peer_hello *hello, const struct wire_node *node,
               uint64_t deadline_ms, bool *ret_again, struct err *err);
void wire_done(struct wire *wire); /* closes */

#endif
