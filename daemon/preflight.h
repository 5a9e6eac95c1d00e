/* The pre-flight: every line between two nodes, both directions, is looked at before a job relies
 * on it (peer/probe.h), and what was found is told.
 *
 *   the leader  orders a look (ProbeAsk): of a line that nobody has looked at yet, as soon as both
 *               nodes are there; of the lines of the job that is placed next, where the last look
 *               is too old (coordinator.h) or failed 2 s ago; of others that failed, each 15 s
 *
 *   a node      looks, at most once a second at each other, one round at a time, and tells
 *               everybody its row (ProbeRow): all that it has found. Whoever connects gets it too
 *
 *   every node  keeps all rows, so that a new leader need not look again
 *
 * What was found counts for the two incarnations and the address only. An order is taken from the
 * leader alone, and leads to members alone. preflight.c keeps, preflight_ask.c is the leader's
 * part, preflight_look.c the node's, tell_pairs.c tells. Thread: the loop. */
#ifndef COPPELIUS_DAEMON_PREFLIGHT_H
#define COPPELIUS_DAEMON_PREFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mailbox.h"
#include "control/coordinator.h"
#include "daemon/core.h"
#include "peer/probe.h"

#define PREFLIGHT_TEXT_SIZE    400
#define PREFLIGHT_AGAIN_MS     2000U  /* a line that a job waits for and that does not work */
#define PREFLIGHT_FAILED_MS    15000U /* ... that none waits for */
#define PREFLIGHT_ANSWER_MS    11000U /* for a node to answer an order; a round takes 9 s at most */
#define PREFLIGHT_LEAST_MS     1000U  /* between two looks at the same node */
#define PREFLIGHT_TELL_MS      250U   /* between two rows while a round goes on */
#define PREFLIGHT_SLOW_BYTES_S 12500000U /* 100 Mbit/s: below it a line is slow */
#define PREFLIGHT_FAST_BYTES_S                                                          \
    125000000U                  /* 1 Gbit/s: from here on it is not, whatever others do \
                                 */
#define PREFLIGHT_SLOW_SHARE 4U /* between: slow below this part of all lines' median */

/* What one node found of the line to another one. */
struct preflight_pair {
    uint64_t from_incarnation, to_incarnation; /* 0: it never looked */
    char address[FACTS_NAME_SIZE];             /* that it dialled */
    uint64_t at_ms;                            /* clock_now_ms() */
    int code;                                  /* 0: it works */
    bool sealed;
    uint64_t round_trip_ns, bytes_per_s, bytes;
    char text[PREFLIGHT_TEXT_SIZE]; /* what is wrong, and what to do */
};

struct preflight {
    struct preflight_pair *rows[STATE_NODES_MAX]; /* of each node, one for each; NULL: none yet */
    struct coordinator_reach reach;
    uint64_t version; /* changes with the rows */
    uint64_t median_version, median_bytes_s;
    /* The leader's: lines (bit id - 1 of the other) that each node was asked for. */
    uint64_t asked[STATE_NODES_MAX];
    uint64_t asked_ms[STATE_NODES_MAX];
    /* The node's. */
    struct probe_server *server;
    struct probe_round *round; /* NULL: none */
    uint64_t ordered; /* bit id - 1: what ordered_by wants; it counts once that one leads */
    uint32_t ordered_by;
    uint64_t wished; /* to be looked at next */
    uint64_t under_way;
    uint32_t targets[STATE_NODES_MAX]; /* of the round, and as they were when it began: */
    struct preflight_pair begun[STATE_NODES_MAX];
    size_t targets_count, results_count;
    bool untold; /* the row has news */
    uint64_t told_ms;
    struct mailbox results;
    struct daemon *daemon;
    void (*on_closed)(void *context);
};

/* Opens a handle on the daemon's loop, which preflight_close() closes. */
void preflight_open(struct daemon *daemon);
void preflight_close(struct daemon *daemon, void (*on_closed)(void *context));
void preflight_free(struct daemon *daemon); /* NULL inside is fine */
void preflight_turn(struct daemon *daemon);

/* A connection of another node's look. */
void preflight_take(struct daemon *daemon, const struct peer_incoming *incoming);
void preflight_on_up(struct daemon *daemon, uint32_t node);
void preflight_on_ask(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size);
void preflight_on_row(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size);

/* What the coordinator decides on; true until the next call. */
const struct coordinator_reach *preflight_reach(struct daemon *daemon);
/* What is known of the line, as both nodes are now; NULL: nothing. */
const struct preflight_pair *preflight_pair(struct daemon *daemon, uint32_t from, uint32_t to);
bool preflight_slow(struct daemon *daemon, const struct preflight_pair *pair);
/* Why the job is not placed yet, where the pre-flight is why; false: it is not. */
bool preflight_hold_text(struct daemon *daemon, const struct state_job *job, char *text,
                         size_t capacity);
size_t tell_pairs(void *daemon, uint32_t from, struct facts_pair *ret_pairs, size_t pairs_max);

/* Between the files: takes what a node found; sends this node's row. */
void preflight_put(struct daemon *daemon, uint32_t from, uint32_t to,
                   const struct preflight_pair *found);
void preflight_tell(struct daemon *daemon);
/* The leader's turn; the node's turn, and what it is to look at. */
void preflight_ask_turn(struct daemon *daemon);
void preflight_wish(struct daemon *daemon, uint64_t nodes);
void preflight_look_turn(struct daemon *daemon);
void preflight_on_results(struct mailbox *results);

#endif
