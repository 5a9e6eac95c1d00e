/* What the leader proposes: a pure function of the agreed state and of what it hears.
 *
 * The leader calls coordinator_next() after each applied entry, at each message of a node, and at
 * least every 100 ms; while it returns true, the command is to be proposed and the call repeated.
 * A proposal is not given again before COORDINATOR_REPEAT_MS unless the state has moved, so a lost
 * one needs no case of its own. It decides nothing on its own: an entry that comes too late changes
 * nothing (control/state.h).
 *
 *   condition, in this order                                     proposal
 *   a participant is silent > suspect_ms, or has restarted       INTERRUPT (names it)
 *   an open publication lacks the vote of a node that is         ABORT
 *     silent or restarted, or a holder of it is silent, or it is
 *     older than its deadline
 *   all participants report the same captured step, not yet      BEGIN
 *     tried (a capture that ends the run: tried again, slower and slower)
 *   more than keep published epochs with all their copies        COLLECT the oldest
 *   a committed shard lacks a copy                               ASSIGN one to a live node
 *   a job is held for a node that is back                        RESUME
 *   a participant is drained, or an elastic job could have       STOP (regroup)
 *     more nodes, for a while
 *   no job is active, no publication open, all nodes of the      PLACE: at once, then after
 *     next one were heard since it was interrupted, and every      1, 2, 4, 8 s (attempts)
 *     line between two of them was found to work within
 *     COORDINATOR_FRESH_MS (after two interruptions in a row:
 *     since the last one)
 *
 * A job's nodes: control/roster.h.
 *
 * Thread: the loop. struct coordinator is the caller's; coordinator_reset() when leadership begins.
 * Times are milliseconds of the monotonic clock, except wall_ms, which only goes into entries. */
#ifndef COPPELIUS_CONTROL_COORDINATOR_H
#define COPPELIUS_CONTROL_COORDINATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/command.h"
#include "control/state.h"

#define COORDINATOR_SUSPECT_MS 3000
#define COORDINATOR_FRESH_MS   600000 /* a look at a line counts so long */
#define COORDINATOR_PREPARE_MS \
    60000 /* or 10 times the last publication's time, if longer; twice as long after each abort */
#define COORDINATOR_REPEAT_MS  1000
#define COORDINATOR_BACKOFF_MS 1000
#define COORDINATOR_BACKOFF_MS_MAX \
    8000 /* a new leader counts anew: where leaders die often, more is for ever */

/* What a node says of itself in its heartbeats. Participants report a capture until its epoch is
 * decided: ABORTED lets go of it unless it ends the run; COMMITTED lets go of it. */
struct coordinator_report {
    uint64_t job; /* 0: nothing captured */
    uint64_t generation;
    uint64_t step;
    bool ends;
};

/* One for each configured node, this one included. */
struct coordinator_node {
    uint32_t id;
    uint8_t role; /* of the configuration: enum command_role */
    const char *name;
    bool heard;           /* ever, by this process */
    uint64_t heard_ms;    /* last time; now for this node itself */
    uint64_t incarnation; /* as it says; 0: not known */
    struct coordinator_report captured;
    const char *unfit; /* why its device cannot be worked with; NULL or "": it can */
};

/* good_ms[a - 1][b - 1]: when node a looked at the line to node b last and found that it works, as
 * both are now (their incarnations, their addresses); 0: not yet, or it does not. */
struct coordinator_reach {
    uint64_t good_ms[STATE_NODES_MAX][STATE_NODES_MAX];
};

struct coordinator_view {
    uint64_t now_ms;
    uint64_t wall_ms;
    bool leading; /* leader, and an entry of its own term has been applied: else nothing is said */
    uint32_t nodes_count;
    struct coordinator_node nodes[STATE_NODES_MAX];
    uint64_t suspect_ms;                   /* 0: COORDINATOR_SUSPECT_MS */
    uint64_t prepare_ms;                   /* 0: COORDINATOR_PREPARE_MS */
    const struct coordinator_reach *reach; /* NULL: nobody looks at lines, and all work */
};

#define COORDINATOR_SAID_MAX     32
#define COORDINATOR_ASSIGNED_MAX 64 /* copies asked for within COORDINATOR_REPEAT_MS */

struct coordinator_said {
    uint8_t kind; /* enum command_kind, 0: none */
    uint64_t job, number;
    uint64_t ms;
};

/* The leader's timers; they decide when something is said, never what is true. */
struct coordinator {
    uint64_t since_ms; /* the leadership's begin; 0: not yet */
    uint64_t open_job; /* publication whose time runs */
    uint64_t open_epoch;
    uint64_t open_ms;
    uint64_t publication_ms; /* how long the last committed one took */
    uint64_t paused_job;     /* whose backoff runs */
    uint64_t paused_generation;
    uint64_t paused_ms;
    uint64_t regroup_generation; /* that others could work on, since */
    uint64_t regroup_ms;
    uint64_t aborted_job; /* whose retry waits */
    uint64_t aborted_epoch;
    uint64_t aborted_ms;
    /* The nodes (bit id - 1) of the job that is placed next, whose lines must have been found to
     * work since then; 0: none waits for that. */
    uint64_t wanted;
    uint64_t wanted_since_ms;
    /* What was proposed within COORDINATOR_REPEAT_MS, to not repeat it: one of a kind and job, the
     * newest; of ASSIGN each shard's. Where all places are taken the next proposal waits. */
    struct coordinator_said said[COORDINATOR_SAID_MAX];
    struct coordinator_said assigned[COORDINATOR_ASSIGNED_MAX];
};

void coordinator_reset(struct coordinator *coordinator);

/* True: *ret_command is to be proposed. With the same view it is false after at most
 * COORDINATOR_SAID_MAX + COORDINATOR_ASSIGNED_MAX calls, whatever is to be done. */
bool coordinator_next(struct coordinator *coordinator, const struct state *state,
                      const struct coordinator_view *view, struct command *ret_command);

/* The nodes (bit id - 1) that the job would be placed on now; 0: it cannot be, or it is another
 * one's turn. */
uint64_t coordinator_roster(const struct state *state, const struct coordinator_view *view,
                            const struct state_job *job);

/* Why the job is not running yet, for people: "2 jobs before it", "waits for node c",
 * "held until 'job resume'"; "" where nothing is to be said. Any node may ask; one that is not the
 * leader knows less about who is alive. */
void coordinator_wait_text(const struct state *state, const struct coordinator_view *view,
                           const struct state_job *job, char *text, size_t capacity);

#endif
