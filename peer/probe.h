/* peer: what the line from this node to another one is like, looked at before a job relies on it. A
 * connection of class probe of its own for each look, made as the exchange makes its own: to the
 * other's advertised address, over TLS where that is on. The other direction is the other's look.
 *
 *   asking                               asked
 *   HELLO (class probe)            ──>
 *                                  <──   WELCOME, or REFUSAL (BUSY: too many, too often)
 *   PING u64                       ──>   one after the other, up to PROBE_PINGS_MAX
 *                                  <──   PONG, the same
 *   BEGIN u32 bytes, u32 ms        ──>
 *   DATA                           ──>   frames of 1, 2, 4 … 64, 64, … KiB
 *                                  <──   GOT u64 bytes, u64 ns, and of the later part the same:
 *                                        once all bytes are there, or the time is over
 *   (closes)
 *
 *   step        what it has shown when it is over
 *   CONNECT     the port answers
 *   GREET       the node that is meant answers, as a member, over TLS where that is on
 *   PING        the round trip (median)
 *   PUT         packets of full size get through; how many bytes a second, by the other's clock
 *   DONE
 *
 * Limits: whoever is asked sends never more than it gets, takes at most PROBE_BYTES_MAX bytes, has
 * one look of a node at a time (a newer one replaces it), PROBE_BURST and one a second of each
 * node, PROBE_SERVED_MAX in all, PROBE_SERVE_MS each, one buffer of 64 KiB each. Frames are
 * proto/frame.h's, of generation 0.
 *
 * Both sides block with deadlines, off the loop. */
#ifndef COPPELIUS_PEER_PROBE_H
#define COPPELIUS_PEER_PROBE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "peer/peer.h"

#define PROBE_BYTES_MAX      (32U << 20) /* of one look */
#define PROBE_BYTES_LOOPBACK (4U << 20)  /* ... at an address of this machine's loopback */
#define PROBE_MS_MAX         500U        /* and how long they may come */
#define PROBE_PINGS_MAX      32U         /* that are answered; PROBE_PINGS are sent */
#define PROBE_PINGS          9U
#define PROBE_CONNECT_MS     3000U /* to be let in */
#define PROBE_SLOW_MS        2000U /* for the first PROBE_LEAST bytes */
#define PROBE_LEAST          (63U << 10)
#define PROBE_ROUND_MS       9000U /* all looks of a round together */
#define PROBE_SERVED_MAX     64U
#define PROBE_SERVE_MS       12000U
#define PROBE_BURST          8U

/* --------------------------------------------------------------- who is asked */

struct probe_server;

struct probe_server_stats {
    uint64_t accepted, refused, failed; /* connections */
    uint64_t bytes_in;                  /* of data; frames apart */
    uint32_t serving;                   /* now */
};

int probe_server_new(struct probe_server **ret_server, struct err *err);
/* Ends all connections and waits for their threads, a tenth of a second. NULL is fine. */
void probe_server_free(struct probe_server *server);
/* Takes incoming->transport, a connection of class probe that the mesh handed over; never blocks.
 * The thread that made the server. */
void probe_server_take(struct probe_server *server, const struct peer_incoming *incoming);
/* Any thread. */
void probe_server_stats(struct probe_server *server, struct probe_server_stats *ret_stats);

/* ---------------------------------------------------------------- who asks */

enum probe_step { PROBE_CONNECT, PROBE_GREET, PROBE_PING, PROBE_PUT, PROBE_DONE };

struct probe_result {
    enum probe_step step; /* that it came to; DONE: err.code is 0 */
    bool late;            /* of CONNECT, GREET: nothing came until the deadline */
    bool holes;           /* of PUT: small packets arrive, those of full size do not */
    bool sealed;          /* over TLS */
    struct err err;
    uint64_t round_trip_ns; /* 0: not known */
    uint64_t bytes_per_s;   /* from this node to the other; 0: not known */
    uint64_t bytes;         /* that arrived for it */
};

struct probe_target { /* copied */
    uint32_t node_id;
    uint32_t life; /* of its identity */
    const char *name;
    const char *address; /* "IP:PORT" of its mesh, as it advertises it */
};

struct probe_settings { /* copied, but for trust, which outlives the round */
    const char *cluster;
    const char *node; /* this one's name, id, identity and process */
    uint32_t node_id;
    uint32_t life;
    uint64_t incarnation;
    struct trust *trust; /* NULL: plain text */
    uint32_t patience;   /* all deadlines are so many times as long; 0: once (tests) */
    void *context;
    /* Once for each target, in any order, on a thread of the round. */
    void (*on_result)(void *context, size_t index, const struct probe_result *result);
};

/* Looks at several nodes at once: all are dialled together, then one after the other has the line
 * for itself, each for at most its share of 4 s, so that the whole ends within PROBE_ROUND_MS. A
 * thread for each target. */
struct probe_round;

/* count: 1 .. PEER_NODES_MAX. ERR_NOMEM; ERR_BUSY: no threads. on_result is then not called. */
int probe_round_new(const struct probe_settings *settings, const struct probe_target *targets,
                    size_t count, struct probe_round **ret_round, struct err *err);
/* What is not done is given up (ERR_CANCELED); waits for the threads, a tenth of a second. NULL is
 * fine. */
void probe_round_free(struct probe_round *round);

#endif
