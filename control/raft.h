/* The consensus core: Raft (Ongaro and Ousterhout 2014; Ongaro's dissertation) as a pure step.
 *
 * No I/O, no clock, no threads: raft_step() takes one input and says in a raft_output what is to be
 * done. The caller gives time, carries messages and keeps the log on a disk. Memory that the core
 * needs is bounded by its configuration; where the system has none the process ends (base/buf.h).
 *
 *   FOLLOWER -> PRE_CANDIDATE        no leader for an election timeout     [election_begin]
 *   PRE_CANDIDATE -> CANDIDATE       a majority would vote (9.6)           [election_campaign]
 *   PRE_CANDIDATE -> PRE_CANDIDATE   another timeout                       [election_begin]
 *   CANDIDATE -> LEADER              a majority voted, own vote durable    [election_win]
 *   CANDIDATE -> PRE_CANDIDATE       another timeout                       [election_begin]
 *   LEADER -> FOLLOWER               no majority heard (6.2), higher term  [election_follow]
 *   any -> FOLLOWER                  higher term; this term's leader       [election_follow]
 *
 * Durability is by numbered writes. A step that changes what must be durable has output.write, the
 * next number; the caller makes writes durable in that order and reports each with RAFT_PERSISTED.
 * The group (who votes, who only listens) changes by entries of the log, a member at a time
 * (dissertation 4.1 to 4.3, and Ongaro's correction of 2015): the newest one in the log counts from
 * the moment that it is appended, on every node by itself, and no more when it is cut off again;
 * the next is not appended before it is committed, nor before an entry of the leader's own term is
 * (membership.c). The first leader of a cluster begins the log with the group.
 *
 * A letter says after which write it may leave. The core counts an entry as this node's own only
 * when its write was reported: an index in the log that was overwritten since carries the later
 * number, so nothing is mistaken for durable. */
#ifndef COPPELIUS_CONTROL_RAFT_H
#define COPPELIUS_CONTROL_RAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "control/group.h"
#include "control/message.h"
#include "control/raft_log.h"

#define RAFT_INFLIGHT_MAX 64U

enum raft_role { RAFT_FOLLOWER, RAFT_PRE_CANDIDATE, RAFT_CANDIDATE, RAFT_LEADER };

/* One unit (dissertation 5.1): where it ends, its term, the group then, the state's bytes. */
struct raft_snapshot {
    uint64_t index; /* 0: none */
    uint64_t term;
    struct control_group group;
    struct buf bytes;
    uint64_t hash; /* XXH3 of bytes */
};

/* What the disk gave back; raft_new() takes snapshot.bytes and log (moved out). */
struct raft_recovered {
    uint64_t term;
    uint32_t vote;
    struct control_group first; /* that the cluster began with; empty: this node joined it */
    struct raft_snapshot snapshot;
    struct raft_log log; /* based at the snapshot; each entry's write is 0 */
};

enum raft_input_kind {
    RAFT_TICK,           /* now_ms */
    RAFT_RECEIVE,        /* message */
    RAFT_PERSISTED,      /* write: it and all before are durable */
    RAFT_PROPOSE,        /* bytes, size; only on the leader, and where raft_may_propose() */
    RAFT_RECONNECTED,    /* from: that member may be a new process, whose log may be shorter */
    RAFT_CHANGE,         /* group; only where raft_may_change() */
    RAFT_SNAPSHOT_TAKEN, /* index (applied), bytes moved out of `snapshot`; raft_may_snapshot() */
};

struct raft_input {
    enum raft_input_kind kind;
    uint64_t now_ms;
    const struct raft_message *message;
    uint64_t write;
    uint32_t from;
    const uint8_t *bytes;
    size_t size;
    uint64_t index;
    struct buf *snapshot;
    const struct control_group *group;
};

struct raft_letter {
    uint32_t to;
    uint64_t term;  /* the sender's, when written: a letter of an older term need not leave */
    uint64_t after; /* the write that must be durable before; 0: none */
    struct buf bytes;
};

struct raft_output {
    uint64_t write; /* 0: nothing to make durable */
    bool hard;      /* term and vote are part of it */
    uint64_t term;
    uint32_t vote;
    uint64_t append_first; /* 0: none; what the disk has from here on is replaced by */
    uint64_t append_last;  /* ... the log's entries up to here */
    const struct raft_snapshot *snapshot; /* to be written before the rest */
    bool install;                         /* ... and the log begins anew behind it */
    uint64_t release_before;              /* with a snapshot: entries below are not needed */
    bool load;                            /* load the state machine from raft_snapshot() now */
    struct raft_letter *letters;
    size_t letters_count;
    size_t letters_capacity;
};
void raft_output_clear(struct raft_output *output); /* frees the letters, keeps the array */
void raft_output_done(struct raft_output *output);

struct raft;
/* `seed` feeds the election timeouts. */
struct raft *raft_new(const struct control_settings *settings, struct raft_recovered *recovered,
                      uint64_t seed, uint64_t now_ms);
void raft_free(struct raft *raft);

/* output must be cleared; it borrows from raft until the next step. */
void raft_step(struct raft *raft, const struct raft_input *input, struct raft_output *output);

bool raft_may_propose(const struct raft *raft); /* leads, and the log has room */
/* Leads, an entry of its term and the group's are committed, it is one step, who becomes a voter
 * has the log, and the others can go on without who is dropped. */
bool raft_may_change(const struct raft *raft, const struct control_group *next);
bool raft_may_snapshot(const struct raft *raft); /* none is being taken or installed */

enum raft_role raft_role(const struct raft *raft);
uint64_t raft_term(const struct raft *raft);
uint32_t raft_vote(const struct raft *raft);
uint32_t raft_leader(const struct raft *raft);
uint64_t raft_commit(const struct raft *raft);
uint64_t raft_stable(const struct raft *raft); /* entries up to here are on this disk */
/* An index that a leader in office knew as committed by its own term's entry; 0: none yet. */
uint64_t raft_confirmed(const struct raft *raft);
bool raft_installing(const struct raft *raft); /* apply nothing */
const struct raft_log *raft_log(const struct raft *raft);
/* The newest in the log, and where its entry is (0: the cluster's first, or older than the log). */
const struct control_group *raft_group(const struct raft *raft);
uint64_t raft_group_index(const struct raft *raft);
bool raft_group_settled(const struct raft *raft); /* ... is known to be committed */
/* On the leader: was it heard within an election's time, and has it the log but for the tail? */
bool raft_is_heard(const struct raft *raft, uint32_t id);
bool raft_has_log(const struct raft *raft, uint32_t id);
const struct raft_snapshot *raft_snapshot(const struct raft *raft); /* the durable one */

struct raft_counts {
    uint64_t elections;
    uint64_t leaderships;
    uint64_t leader_changes;
    uint64_t step_downs;
    uint64_t snapshots_sent;
    uint64_t snapshots_installed;
};
const struct raft_counts *raft_counts(const struct raft *raft);

/* Seeded mistakes, compiled only into the simulator's own build of this room: they measure whether
 * its oracles see. Everywhere else MUTANT() is false. */
#ifdef RAFT_MUTANTS
extern int raft_mutant;
#define MUTANT(number) (raft_mutant == (number))
#else
#define MUTANT(number) false
#endif
enum raft_mutant_number {
    MUTANT_COMMIT_OLD_TERM = 1,  /* Figure 3.7: commits older terms' entries by counting */
    MUTANT_VOTE_NOT_PERSISTED,   /* a vote leaves before, and without, its write */
    MUTANT_LEADER_COUNTS_EARLY,  /* the leader counts its own entries before they are durable */
    MUTANT_ACK_BEFORE_DURABLE,   /* a follower answers for what is only in memory */
    MUTANT_VOTE_ANY_LOG,         /* votes without comparing logs (5.4.1) */
    MUTANT_NO_PREVIOUS_CHECK,    /* appends without the previous entry's term */
    MUTANT_VOTE_TWICE,           /* forgets whom it voted for in this term */
    MUTANT_TERM_NOT_PERSISTED,   /* a higher term is followed without writing it */
    MUTANT_SNAPSHOT_OLD_TERM,    /* a snapshot travels with another term than its entry's */
    MUTANT_KEEP_LOG_ON_INSTALL,  /* installs the state, but not the log's new beginning */
    MUTANT_COMMIT_UNVERIFIED,    /* a follower takes the leader's commit beyond what matched */
    MUTANT_NO_TRUNCATE,          /* a conflicting tail stays */
    MUTANT_MINORITY,             /* a majority is half of the voters */
    MUTANT_STABLE_BY_COUNT,      /* tracks the count of durable entries, not their writes */
    MUTANT_WAL_NO_SYNC,          /* the log is written, not synced */
    MUTANT_SNAPSHOT_NO_SYNC,     /* a snapshot's file is renamed before it is synced */
    MUTANT_RELEASE_EARLY,        /* log files go before the snapshot is durable */
    MUTANT_NO_NOOP,              /* no entry at a term's start: old entries never commit */
    MUTANT_NO_HINT_PROGRESS,     /* a reject never moves the probe back */
    MUTANT_SNAPSHOT_RESTARTS,    /* a newer snapshot takes the place of one that is on its way */
    MUTANT_APPLY_UNSTABLE,       /* applies what is committed before it is on this disk */
    MUTANT_STALE_ANSWERS,        /* counts answers of an older term */
    MUTANT_GRANTS_KEPT,          /* pre-votes count as votes */
    MUTANT_NO_CHECK_QUORUM,      /* a leader that hears nobody stays */
    MUTANT_VERIFIES_ALL,         /* an append vouches for all that follows it in the log */
    MUTANT_TRUNCATES_ALWAYS,     /* an old append cuts off what came after it */
    MUTANT_OWN_VOTE_EARLY,       /* wins before its own vote is durable */
    MUTANT_ACK_WHILE_INSTALLING, /* answers for a snapshot that is not durable yet */
    MUTANT_CHANGE_EARLY,    /* changes the group before an entry of its own term is committed */
    MUTANT_TWO_CHANGES,     /* a change before the one before is committed */
    MUTANT_LEARNER_COUNTED, /* a learner's disk counts for the commit index */
    MUTANT_LEARNER_VOTES,   /* a learner's vote counts */
    MUTANT_REMOVED_COUNTED, /* a leader that is a voter no more counts its own disk */
    MUTANT_GROUP_KEPT,      /* a group that was cut off the log still counts */
    MUTANT_GROUP_LATE,      /* a group counts from its commit on, not from its append */
    MUTANT_SNAPSHOT_GROUP,  /* a snapshot carries the newest group, not the one of its index */
    MUTANT_REMOVED_LEADS,   /* a leader that was removed stays */
    MUTANT_DROPPED_IDLE,    /* who is dropped by an entry not yet committed does not campaign */
    MUTANT_IDENTITY,        /* only the place counts: who lost its disk is who it was */
    MUTANT_JUMP,            /* several members change in one step */
    MUTANTS_END,
};

#endif
