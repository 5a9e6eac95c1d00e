/* Who works on a job: a pure function of the agreed state and of whom the leader hears.
 *
 *   elastic       all live trainers that are not drained, spares in place of those that are away;
 *                 any set of them gives the same bits
 *   not elastic   once it has a checkpoint, the nodes that made it, one that was removed replaced
 *                 by another; before that all trainers, or as many as it wants
 *
 * A node whose device has failed is not used before its self-test has passed; its copies are.
 * Either way every shard of the checkpoint that it goes on from must lie on a node that is heard.
 */
#ifndef COPPELIUS_CONTROL_ROSTER_H
#define COPPELIUS_CONTROL_ROSTER_H

#include "control/coordinator.h"

#define ROSTER_GRACE_MS  4000 /* an elastic job waits so long for a node that is away */
#define ROSTER_SETTLE_MS 3000 /* a node that came is used when it was there so long */

struct roster {
    uint32_t count; /* 0 with missing_count 0: the cluster has too few */
    uint32_t nodes[STATE_NODES_MAX];
    uint32_t missing_count;
    uint32_t missing[STATE_NODES_MAX];
    bool drained; /* all that are missing are drained */
};

/* waited_ms: since the job could have been placed. */
void roster_choose(const struct state *state, const struct coordinator_view *view,
                   const struct state_job *job, uint64_t waited_ms, struct roster *ret_roster);

/* Whether every line between two of them was found to work, since then; true where nobody looks. */
bool roster_lines_work(const struct roster *roster, const struct coordinator_view *view,
                       uint64_t since_ms);

/* The active job would be better off with other participants: more of them (whose lines work),
 * or without one that is drained. The reason for people; false: leave it. */
bool roster_regroup(const struct state *state, const struct coordinator_view *view,
                    const struct state_job *job, char *text, size_t capacity);

/* A participant that is drained, 0: none. */
uint32_t roster_drained(const struct state *state, const struct state_job *job);

/* Registered with the incarnation that it has now, in the cluster, and heard lately. */
bool roster_alive(const struct state *state, const struct coordinator_view *view, uint32_t node);

#endif
