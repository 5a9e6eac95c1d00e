/* The control room's door: what the cluster has agreed on.
 *
 *   group.h     who votes and who only listens, as one value
 *   raft.h      the consensus core: a pure step function, no I/O, no clock, no threads
 *   message.h   what cores tell each other, as fixed little-endian bytes
 *   wal.h       the write-ahead log and snapshot files over struct fs
 *   control.h   composes the three with a state machine, behind one table of the environment
 *   env_uv.h    the real environment: a writer thread, a uv timer
 *   tests/sim/  the simulated one
 *
 * The core's files are named after what the paper calls them: raft_log.c election.c replication.c
 * install.c membership.c.
 *
 * A struct control belongs to one thread (the loop; in the simulator the world). Only
 * control_write_run() runs elsewhere: on the log writer's thread.
 *
 * A life:   control_open -> { control_tick | control_receive | control_propose |
 *                             control_persisted }* -> control_free
 *
 * Durability: nothing leaves a node that its disk does not hold. Votes and answers wait until the
 * write that they speak of is reported by control_persisted(); an entry is applied when it is
 * committed and on this node's disk. What env->persist() is given must be run in that order, one at
 * a time. Where control_write_run() fails, THE PROCESS MUST END (after a failed fsync nothing about
 * the file is known; a restart reads what is really there): say control_fail(). */
#ifndef COPPELIUS_CONTROL_CONTROL_H
#define COPPELIUS_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/mailbox.h"
#include "control/group.h"

#define CONTROL_COMMAND_SIZE  262144U   /* the most bytes of one command */
#define CONTROL_SNAPSHOT_SIZE 16777216U /* the most bytes of a state machine's snapshot */
#define CONTROL_MESSAGE_SIZE  524288U   /* no message to a peer is larger */

struct control;
struct control_write;

/* The replicated state machine. Called on control's thread, from inside control_open(),
 * control_tick(), control_receive(), control_persisted(); must not call back into control. */
struct control_fsm {
    void *context;
    /* A committed command: in log order, every index once an incarnation, the same on every node.
     * Must be a pure function of state and bytes. `index` is the entry's place in the log, `term`
     * that of its leader. No-ops of the core are not shown: indexes may skip. */
    void (*apply)(void *context, uint64_t index, uint64_t term, const uint8_t *command,
                  size_t size);
    /* Appends the whole state to `bytes`, at most CONTROL_SNAPSHOT_SIZE; byte-deterministic. */
    void (*snapshot_write)(void *context, struct buf *bytes);
    /* Replaces the whole state. An error (bytes of another version, say) ends the node: control
     * reports it from control_open(), or by env->failed(). */
    int (*snapshot_load)(void *context, uint64_t index, const uint8_t *bytes, size_t size,
                         struct err *err);
};

/* What control needs from the world. Every function returns at once. */
struct control_env {
    void *context;
    uint64_t (*now_ms)(void *context); /* monotonic; decides no safety, only when to try */
    uint64_t (*random)(void *context); /* 64 bits, for election timeouts */
    /* Best effort, unordered, may be lost or doubled. The bytes are borrowed for the call. */
    void (*send)(void *context, uint32_t to, const uint8_t *bytes, size_t size);
    /* Takes the write: run control_write_run() on it elsewhere, in order, then hand each back to
     * control_persisted() on control's thread. Never from inside this call. */
    void (*persist)(void *context, struct control_write *write);
    /* After new entries were applied or a snapshot was loaded: the state machine is now at
     * `index`. May call control_propose(); the proposal is then taken when the current call ends.
     */
    void (*applied)(void *context, uint64_t index);
    /* The node cannot go on (see control_fsm.snapshot_load): end the process with this sentence.
     * Called from inside a call of control: do not free it in here. */
    void (*failed)(void *context, const struct err *err);
};

struct control_settings {
    uint32_t self; /* this identity (group.h) */
    /* Who the cluster begins with, ascending: used where the folder holds no log yet, and then kept
     * with the log, which says every change. 0 of them: this node joins; it follows nobody before
     * a leader adds it. */
    uint32_t voters[CONTROL_VOTERS_MAX];
    size_t voters_count;
    uint32_t election_ms_min; /* a follower campaigns after min..max without a leader */
    uint32_t election_ms_max;
    uint32_t heartbeat_ms;
    uint32_t snapshot_entries; /* a snapshot is taken when that many are applied since the last */
    uint32_t trailing_entries; /* and that many stay in memory for slow followers */
    uint32_t append_size;      /* bytes of entries in a message (one entry may be larger) */
    uint32_t chunk_size;       /* bytes of snapshot in a message */
    uint32_t inflight_max;     /* unanswered appends for a follower */
    uint32_t log_size_max;     /* bytes of entries in memory; proposals beyond are refused (busy) */
    uint32_t segment_size;     /* bytes after which a new log file begins */
    const char *folder;        /* of the log, below the fs root; borrowed for control_open() */
};
/* 500..1000 ms, 80 ms, 4096, 1024, 64 KiB, 64 KiB, 16, 64 MiB, 8 MiB, "log". self and voters are
 * the caller's. */
void control_settings_default(struct control_settings *settings);

/* Recovers from the folder (made where absent) and starts as a follower. Blocks on the disk.
 * Reads snapshot and log: fsm->snapshot_load() may be called in here, apply() not yet (what is
 * committed is learnt from the cluster). fsm and env are copied; fs is borrowed until
 * control_free(). *ret_fresh (may be NULL): the folder held no log, so this node knows nothing; the
 * caller decides whether that is a first start or a wiped disk. Errors: ERR_DAMAGED (damage that is
 * not a torn tail, a missing hard state, a log that was removed, another format version, another
 * node's or other voters' log), ERR_DISK. */
int control_open(const struct control_settings *settings, const struct control_fsm *fsm,
                 const struct control_env *env, struct fs *fs, struct control **ret_control,
                 bool *ret_fresh, struct err *err);
/* Frees; writes not yet handed back must be freed with control_write_free() by who holds them, and
 * none may be running. NULL is fine. */
void control_free(struct control *control);
/* The node cannot go on: from here on calls do nothing, or answer ERR_STATE; looking is still fine.
 * For an environment whose write failed. */
void control_fail(struct control *control);

/* Call every 10 to 20 ms, and it looks at the time. */
void control_tick(struct control *control);

/* A message of env->send() of the identity `from` (who that is, the caller has checked). Anything
 * else than well-formed bytes is ERR_PROTO and changes nothing; what was meant for another identity
 * of this place is ERR_PEER. */
int control_receive(struct control *control, uint32_t from, const uint8_t *bytes, size_t size,
                    struct err *err);

/* A new connection to that member: it may be another process, and what the one before acknowledged
 * may be gone (damage to the last batch of its log cannot be told from a torn tail). */
void control_reconnected(struct control *control, uint32_t node);

/* Puts a command (1..CONTROL_COMMAND_SIZE bytes) on its way: into the log on the leader, in a
 * message to the leader elsewhere. 0 means "sent", not "will be applied": the proposer repeats it
 * until it sees its effect in the state machine, whose commands are idempotent; a repetition with
 * the same bytes is not written again while the first is on its way. ERR_UNHEALTHY: no
 * leader is known now. ERR_BUSY: too much is waiting. ERR_USAGE: size. */
int control_propose(struct control *control, const uint8_t *command, size_t size, struct err *err);

/* --- who is in the group ---------------------------------------------------------------------- */
/* On the leader: one step, as raft_may_change() has it. ERR_UNHEALTHY: it does not lead now, or has
 * committed nothing of its term yet, or the change before is under way, or a majority would not be
 * there. Try again. */
int control_change(struct control *control, const struct control_group *next, struct err *err);
/* On the leader, again and again: at most one step towards `wanted`: who is new comes as a learner,
 * who is gone leaves, who has caught up becomes a voter, the leader itself leaves last. True: a
 * step was taken. Elsewhere, and when nothing can be done now: false. */
bool control_converge(struct control *control, const struct control_group *wanted);
/* The newest group in this node's log; *ret_settled (may be NULL): it is committed. */
const struct control_group *control_group(const struct control *control, bool *ret_settled);

/* --- writes ---------------------------------------------------------------------------------- */
struct control_write {
    struct message message;     /* for the environment's mailbox */
    struct control_write *next; /* for the environment's chain; NULL when handed over */
    uint64_t spent_ns;          /* for the environment: how long the sync took */
    struct wal *wal;            /* the rest is control's */
    uint64_t number;
    bool hard; /* term and vote change */
    uint64_t term;
    uint32_t vote;
    uint64_t append_first; /* index of the first of `entries`; what the log has from there on is
                            * replaced. 0: none */
    size_t entries_count;
    struct buf entries; /* {u64 term, u8 kind, u32 size, bytes} each */
    bool snapshot;      /* write this snapshot first */
    bool install;       /* ... and begin the log anew behind it */
    uint64_t snapshot_index;
    uint64_t snapshot_term;
    uint64_t release_before; /* log files wholly below this index may go */
    struct buf snapshot_group;
    struct buf snapshot_bytes;
};
/* Writes and syncs it and all that are chained to it by `next` (in the order of persist(); several
 * then share a sync). Blocks; the writer's thread. After an error the process must end. */
int control_write_run(struct control_write *write, struct err *err);
/* The write is durable: on control's thread, in the order of persist(). Takes it. */
void control_persisted(struct control *control, struct control_write *write);
void control_write_free(struct control_write *write); /* NULL is fine */

/* --- looking --------------------------------------------------------------------------------- */
uint32_t control_self(const struct control *control);   /* this identity */
uint32_t control_leader(const struct control *control); /* its place (group.h); 0: none known */
bool control_is_leader(const struct control *control);
/* Leads, and has applied an entry of its own term: only then does it know all that was decided
 * before, and may decide for the cluster (the coordinator's `leading`). */
bool control_leads(const struct control *control);
uint64_t control_term(const struct control *control);
uint64_t control_commit_index(const struct control *control);
uint64_t control_applied_index(const struct control *control);
/* The state machine has, since this start, applied all that a leader in office knew as committed
 * (the leader itself: its term's first entry). Before that, act on no local file (CONSENSUS 4.3):
 * "presumed abort" holds only against a caught-up log. Never false again once true. */
bool control_caught_up(const struct control *control);
/* When the last message of that member came, on env->now_ms()'s clock; 0: never in this life. On
 * the leader followers answer each heartbeat; elsewhere only the leader is heard regularly. */
uint64_t control_last_heard_ms(const struct control *control, uint32_t node);

struct control_stats {
    uint64_t term;
    uint64_t commit_index;
    uint64_t applied_index;
    uint64_t last_index;
    uint64_t stable_index; /* on this node's disk */
    uint64_t snapshot_index;
    uint64_t log_size;  /* bytes of entries in memory */
    uint64_t elections; /* that this node began, pre-votes not counted */
    uint64_t leaderships;
    uint64_t leader_changes; /* seen */
    uint64_t step_downs;     /* for want of a quorum */
    uint64_t messages_sent;
    uint64_t messages_received;
    uint64_t messages_refused;    /* malformed, or for another identity */
    uint64_t proposals;           /* entries made of them, here */
    uint64_t proposals_under_way; /* repetitions of one that was in the log already */
    uint64_t proposals_forwarded;
    uint64_t proposals_refused;
    uint64_t writes;
    uint64_t snapshots_taken;
    uint64_t snapshots_sent; /* whole ones, to followers */
    uint64_t snapshots_installed;
};
void control_stats(const struct control *control, struct control_stats *ret_stats);

/* For tests and the simulator's oracles: the core inside. */
struct raft;
const struct raft *control_raft(const struct control *control);

#endif
