/* What the cluster has agreed on: nodes, jobs, generations, publications.
 *
 * The replicated state machine: pure and deterministic. state_apply() takes one entry of the log
 * (control/command.h) and changes the state by nothing but it; the same entries give the same state
 * and the same snapshot bytes everywhere. Every entry is idempotent: late, doubled or mismatching
 * (another generation, epoch or incarnation) it changes nothing and says why.
 *
 * Thread: the loop. A struct state owns all below it; const pointers that queries return are
 * borrowed and stay true until the next state_apply or state_load. Read fields freely; only
 * state*.c writes them.
 *
 * A job's life:
 *
 *   SUBMITTED -> PLACED -> LOADING -> RUNNING -> FINISHING -> SUCCEEDED
 *       ^          |          |          |           |
 *       |          +----------+----------+-----------+--> PAUSED   (reason; may be placed again
 *       |                                                    |      unless it is held)
 *       +---- PAUSED -> PLACED <-----------------------------+
 *   any but the ended ones -> FAILED, CANCELLED
 *
 *   SUBMITTED, PAUSED -> PLACED     [on_place]      a new generation with its participants
 *   PLACED -> LOADING               [on_partition]  the cuts are known
 *   LOADING -> RUNNING              [on_running]    all bulk links are up
 *   RUNNING -> FINISHING            [on_begin]      the capture of the last step is being published
 *   LOADING, RUNNING, FINISHING -> SUCCEEDED  [on_finish]  last step committed (LOADING: it was so
 *                                                   before this generation)
 *   PLACED .. FINISHING -> PAUSED   [on_interrupt, on_node, on_stop, decide]
 *   SUBMITTED -> PAUSED             [on_stop]       a person pauses a waiting job
 *   any not ended -> CANCELLED      [on_stop]       how = drop
 *   any not ended -> FAILED         [on_finish, on_partition (another dataset than before)]
 *
 * A publication's life, at most one open a job:
 *
 *   none -> OPEN [on_begin] -> COMMITTED [on_prepared: the last vote's entry decides]
 *                OPEN -> none  [on_abort, on_node: no vote of the restarted node, on_stop: dropped]
 *   COMMITTED -> none          [on_collect; on_copy: the last copy of a shard is lost]
 *
 * An open publication outlives its generation's interruption: the captured participants may still
 * vote. While one is open the job is not placed; PLACE records the newest committed epoch, so that
 * all participants seed from the same one.
 *
 * Copies. BEGIN places them (control/placement.h): `holders` of a shard that is not prepared are
 * the nodes that must hold it before its vote; of a prepared one those that do, as far as they
 * said: DROPPED takes one out, ASSIGN asks another node for a copy, REPLICATED puts it in. A
 * committed epoch of which a shard has no holder left is lost: it goes, and a job that was to go on
 * from it goes back to the one before, or fails where there is none. */
#ifndef COPPELIUS_CONTROL_STATE_H
#define COPPELIUS_CONTROL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "control/command.h"
#include "control/group.h"

#define STATE_NODES_MAX  COMMAND_NODES_MAX
#define STATE_JOBS_MAX   256 /* when a new one comes, the oldest ended one is forgotten */
#define STATE_EPOCHS_MAX 40  /* committed, not yet collected epochs of a job; above keep's limit */
#define STATE_SIZE_MAX \
    (12U << 20) /* of a snapshot, about: before it is more, ended jobs are forgotten */

/* value, label: the labels are what people and JSON see. */
#define STATE_JOB_MAP(X)             \
    X(JOB_SUBMITTED, 1, "submitted") \
    X(JOB_PLACED, 2, "placed")       \
    X(JOB_LOADING, 3, "loading")     \
    X(JOB_RUNNING, 4, "running")     \
    X(JOB_FINISHING, 5, "finishing") \
    X(JOB_SUCCEEDED, 6, "succeeded") \
    X(JOB_FAILED, 7, "failed")       \
    X(JOB_CANCELLED, 8, "cancelled") \
    X(JOB_PAUSED, 9, "paused")

#define STATE_JOB_ENUM(name, value, label) name = (value),
enum state_job_state { STATE_JOB_MAP(STATE_JOB_ENUM) };
#undef STATE_JOB_ENUM

/* Who must let a paused job go on. */
enum state_hold {
    HOLD_NONE = 0, /* the coordinator places it when all participants are alive */
    HOLD_USER = 1, /* a person's RESUME */
    HOLD_NODE = 2, /* hold_node's return with another incarnation than hold_incarnation */
};

/* EXPECTED -> IN [on_member, JOIN] -> REMOVED [on_remove, on_member of the same name, on_recover];
 * a first node is IN with its first entry. A removed identity never comes back: its place may go to
 * another one. */
enum state_standing { STANDING_EXPECTED = 1, STANDING_IN = 2, STANDING_REMOVED = 3 };

struct state_node {
    uint32_t id;                     /* its place: 1 .. 64 */
    uint32_t life;                   /* of the identity that has it (group.h) */
    uint64_t incarnation;            /* 0: not yet started */
    uint8_t role;                    /* enum command_role */
    uint8_t standing;                /* enum state_standing */
    bool drained;                    /* is given no work */
    uint8_t uuid[COMMAND_UUID_SIZE]; /* of its state folder; zeros: not known yet */
    uint64_t seen_ms;                /* wall time of its NODE entry */
    char name[COMMAND_NAME_SIZE];
    char address[COMMAND_ADDRESS_SIZE];
    char device[COMMAND_DEVICE_SIZE];
    uint8_t binding[16];
};

struct state_participant {
    uint32_t node;
    uint64_t incarnation; /* when it was placed; another one now: it has restarted */
};

/* A participant's part of an epoch. File name: checkpoint_shard_name(rank, count). */
struct state_shard {
    uint32_t node;
    uint64_t incarnation;
    uint64_t first, end; /* coordinates */
    bool prepared;       /* has voted: the rest is true */
    bool published;
    uint64_t size;
    uint8_t sha256[SHA256_SIZE];
    uint32_t copies; /* on other nodes that it must have */
    uint32_t wanted; /* the node that the leader asked for one more copy, 0: none */
    uint32_t holders_count;
    uint32_t holders[COMMAND_HOLDERS_MAX];
};

/* A publication, open or committed. */
struct state_epoch {
    uint64_t epoch; /* 1, 2, …; an aborted number is not used again */
    uint64_t step;
    uint64_t generation;
    bool ends; /* the run stopped here */
    uint64_t begun_ms;
    uint64_t decided_ms;                   /* wall time of the last vote; 0 while open */
    uint64_t decided_index;                /* log index of the last vote; 0 while open */
    uint8_t parameter_sha256[SHA256_SIZE]; /* whole vectors in coordinate order */
    uint8_t accumulator_sha256[SHA256_SIZE];
    uint64_t loss_bits;
    uint32_t shards_count;
    struct state_shard *shards; /* by rank */
};

/* Filled when the job ends; digests are those of the newest committed epoch (0: none). */
struct state_result {
    uint64_t epoch;
    uint64_t step;
    bool has_loss;
    uint64_t loss_bits;
    bool has_objective;
    uint64_t objective_bits;
    uint8_t parameter_sha256[SHA256_SIZE];
    uint8_t accumulator_sha256[SHA256_SIZE];
};

struct state_job {
    uint64_t id; /* 1, 2, … */
    uint8_t uuid[COMMAND_UUID_SIZE];
    char name[COMMAND_NAME_SIZE];
    char client[COMMAND_NAME_SIZE];
    char policy[COMMAND_POLICY_SIZE];
    uint8_t identity_inputs[SHA256_SIZE];
    uint32_t keep;
    uint32_t replicas;
    uint32_t nodes_wanted;
    bool elastic;
    char *text; /* terminated; text_size without the zero */
    uint32_t text_size;

    enum state_job_state state;
    char reason[COMMAND_REASON_SIZE]; /* of paused, failed, cancelled; else "" */
    uint64_t submitted_ms;
    uint64_t changed_ms; /* the last change of state */
    uint64_t started_ms; /* first RUNNING, 0: never */
    uint64_t ended_ms;   /* 0: not ended */

    /* This generation, or the last one when the job is not placed; 0: never placed. */
    uint64_t generation;
    uint64_t seed_epoch; /* that its participants start from; 0: from zeros */
    uint32_t participants_count;
    struct state_participant participants[STATE_NODES_MAX]; /* by rank; those without a range are
                                                               left out at PARTITION */
    uint32_t attempts; /* interruptions since the last committed epoch */

    bool partitioned; /* what follows is the same in all generations, ranges are this one's */
    uint8_t dataset[SHA256_SIZE];
    uint8_t identity[SHA256_SIZE];
    uint64_t rows;
    uint64_t features;
    uint64_t steps;
    uint64_t coordinates;
    uint32_t ranges_count; /* 0 until this generation's PARTITION, then participants_count */
    uint64_t bounds[STATE_NODES_MAX + 1];

    /* Asked to stop after a capture: rank 0 sets CAPTURE and STOP in its next directive. */
    uint64_t turn; /* counts the accepted STOPs and RESUMEs; both name the turn that they saw */
    bool stopping;
    bool regrouping;    /* ... to go on at once with other participants */
    uint32_t stop_node; /* 0: a person asked */
    uint64_t stop_incarnation;
    char stop_reason[COMMAND_REASON_SIZE];

    enum state_hold hold; /* of PAUSED */
    uint32_t hold_node;
    uint64_t hold_incarnation;

    uint64_t epoch_next;      /* the number that the next BEGIN has */
    uint64_t begun_step;      /* of the last BEGIN in this generation, 0: none */
    uint32_t aborted_in_turn; /* publications aborted since the last committed one */
    uint64_t aborted_epoch;   /* the last one, 0: none */
    char aborted_reason[COMMAND_REASON_SIZE];
    uint64_t lost_epoch;      /* the last committed one that could be had from no copy, 0: none */
    struct state_epoch *open; /* NULL: none */
    uint32_t epochs_count;
    struct state_epoch *epochs[STATE_EPOCHS_MAX]; /* committed, oldest first */

    struct state_result result;
};

struct state {
    uint64_t applied_index;
    uint64_t generation; /* the greatest of any job */
    uint64_t job_next;
    uint32_t nodes_count;
    struct state_node nodes[STATE_NODES_MAX]; /* in order of id */
    uint32_t jobs_count;
    struct state_job *jobs[STATE_JOBS_MAX]; /* in order of id */
    uint64_t
        changes; /* counts entries that changed something: the daemon compares it; in snapshots */
};

void state_init(struct state *state);
void state_done(struct state *state); /* twice is fine */

enum state_outcome {
    STATE_CHANGED,
    STATE_IGNORED, /* late, doubled or mismatching: `why` says it; nothing is wrong */
    STATE_REFUSED, /* no entry of this version, or no room: `why` says it */
};

/* Applies the entry at `index`, which is greater than any before (no-ops of Raft are not given to
 * it, or with size 0: ignored). `why` may be NULL. */
enum state_outcome state_apply(struct state *state, uint64_t index, const uint8_t *bytes,
                               size_t size, struct err *why);

/* Snapshot: the whole state, open votes included. state_load replaces the state, or fails and
 * leaves it alone: ERR_DAMAGED for anything that state_write does not write. */
void state_write(const struct state *state, struct buf *out);
int state_load(struct state *state, const uint8_t *bytes, size_t size, struct err *err);

/* ---- queries; NULL or 0 where there is none ---- */

const char *state_job_label(enum state_job_state job_state);
/* succeeded, failed, cancelled: changes no more. */
bool state_job_ended(const struct state_job *job);
/* placed, loading, running, finishing: its generation is under way. */
bool state_job_active(const struct state_job *job);

const struct state_node *state_node(const struct state *state, uint32_t node);
/* In the cluster now: neither only expected nor removed. */
bool state_node_in(const struct state_node *node); /* NULL is fine: no */
/* That identity (group.h) was removed: agreed on, and for good. Whoever says so is right, however
 * old its state is; one that is not known here is not said to be out. */
bool state_is_removed(const struct state *state, uint32_t place, uint32_t life);
/* The node of that name that is in or expected, else the newest removed one; NULL: none. */
const struct state_node *state_node_named(const struct state *state, const char *name);
/* The place for one more node, and which identity of it that would be; `taken` (bit id - 1) are
 * places that others have whom the state does not know yet. False: all 64 are in use. */
bool state_free_place(const struct state *state, uint64_t taken, uint32_t *ret_node,
                      uint32_t *ret_life);
/* The consensus group that the state asks for: who is in votes (spares listen), who was removed is
 * out, whom it does not know stays as it is. */
void state_wanted_group(const struct state *state, const struct control_group *now,
                        struct control_group *ret_wanted);
const char *state_node_name(const struct state *state, uint32_t node); /* "node 7" if unknown:
                                                                          static, per thread */
const struct state_job *state_job(const struct state *state, uint64_t id);
const struct state_job *state_job_by_uuid(const struct state *state,
                                          const uint8_t uuid[COMMAND_UUID_SIZE]);
/* "12" is an id, else the newest job of that name; ERR_NOT_FOUND says so. */
int state_find_job(const struct state *state, const char *name_or_id,
                   const struct state_job **ret_job, struct err *err);
const struct state_job *state_active_job(const struct state *state); /* the one that is placed */
/* The job that is to be placed next: the oldest submitted or paused and not held. */
const struct state_job *state_next_job(const struct state *state);

/* The node's rank in the job's generation; -1: takes no part. */
int state_rank(const struct state_job *job, uint32_t node);
/* The open publication or the committed epoch of that number. */
const struct state_epoch *state_epoch(const struct state_job *job, uint64_t epoch);
const struct state_epoch *state_newest_epoch(const struct state_job *job); /* committed */
bool state_epoch_committed(const struct state_epoch *epoch);
/* The node's part, NULL: none. */
const struct state_shard *state_shard(const struct state_epoch *epoch, uint32_t node);
uint32_t state_votes(const struct state_epoch *epoch);       /* so far */
bool state_epoch_published(const struct state_epoch *epoch); /* by all its participants */
/* Published by all its participants, and every shard has all its copies: what `keep` counts. */
bool state_epoch_safe(const struct state_epoch *epoch);
/* Whether the node is among the shard's holders. */
bool state_shard_held(const struct state_shard *shard, uint32_t node);

#endif
