/* The core's insides, shared by raft.c election.c replication.c install.c. */
#ifndef COPPELIUS_CONTROL_RAFT_CORE_H
#define COPPELIUS_CONTROL_RAFT_CORE_H

#include "base/rand.h"
#include "control/raft.h"

/* How a leader feeds a follower:
 *   PROBE -> STREAM      the follower has all before `next`          [on_append_answer]
 *   STREAM -> PROBE      it has not (lost, or restarted)             [on_append_answer]
 *   PROBE -> SNAPSHOT    what it lacks is no longer in the log       [replication_send]
 *   SNAPSHOT -> STREAM   the snapshot is installed                   [on_append_answer]
 *   any -> PROBE         it may be a new process                     [replication_reconnected] */
enum peer_mode {
    PEER_PROBE,  /* one append outstanding; `next` is a guess */
    PEER_STREAM, /* pipelined; `next` runs ahead of the answers */
    PEER_SNAPSHOT,
};

struct raft_peer {
    uint32_t id;
    bool voter;
    bool granted; /* in this election */
    enum peer_mode mode;
    uint64_t match; /* durable there */
    uint64_t next;
    bool waiting;         /* PROBE, SNAPSHOT: an answer is outstanding */
    uint64_t commit_sent; /* the last commit index that it was told */
    uint64_t sent_ms;
    uint64_t heard_ms;
    uint64_t inflight[RAFT_INFLIGHT_MAX]; /* STREAM: last index of each unanswered append, a ring */
    uint32_t inflight_first;
    uint32_t inflight_count;
    uint64_t snapshot_index; /* SNAPSHOT: which, and how far it has got */
    uint64_t snapshot_offset;
};

struct raft {
    uint32_t self;
    struct control_group group;                  /* the newest in the log */
    uint64_t group_index;                        /* its entry; 0: `base` */
    bool votes;                                  /* this node is one of its voters */
    struct raft_peer peers[CONTROL_MEMBERS_MAX]; /* the other members */
    size_t peers_count;
    uint32_t election_ms_min;
    uint32_t election_ms_max;
    uint32_t heartbeat_ms;
    uint32_t trailing_entries;
    uint32_t append_size;
    uint32_t chunk_size;
    uint32_t inflight_max;
    uint64_t log_size_max;
    struct rand rand;
    uint64_t now_ms;

    /* durable, by writes */
    uint64_t term;
    uint32_t vote;
    struct raft_log log;
    struct raft_snapshot snapshot;
    struct control_group base; /* of the log's base */

    uint64_t write_next;
    uint64_t hard_write; /* the write that holds the present term and vote */
    uint64_t persisted;
    uint64_t stable;

    /* volatile */
    enum raft_role role;
    uint32_t leader;
    uint64_t leader_heard_ms; /* a follower's */
    uint64_t election_deadline_ms;
    uint64_t quorum_deadline_ms; /* a leader's */
    uint64_t commit;
    uint64_t confirmed;
    uint64_t verified; /* a follower: up to here its log is the leader's, this term */
    uint64_t acked;    /* ... and up to here it told it as durable */

    struct raft_snapshot
        sending; /* a leader's: older than `snapshot`, still on its way; index 0: none
                  */
    struct raft_snapshot taking; /* index 0: none; else in write taking_write */
    uint64_t taking_write;
    struct raft_snapshot installing; /* likewise; the log is based on it already */
    uint64_t installing_write;
    struct raft_snapshot incoming; /* chunks so far */
    uint64_t incoming_total;
    uint32_t incoming_from;

    struct raft_counts counts;
    struct raft_output *output; /* of the step in progress */
};

/* raft.c */
uint64_t raft_mark(struct raft *raft); /* this step's write number */
void raft_mark_hard(struct raft *raft);
size_t raft_majority(const struct raft *raft);
struct raft_peer *raft_peer_of(struct raft *raft, uint32_t id); /* NULL: no other voter */
/* Writes a letter; fills from, to, term where term is 0. */
void raft_send(struct raft *raft, uint32_t to, struct raft_message *message, uint64_t after);

/* membership.c */
/* `next` counts from now on; what is known of those who stay is kept. */
void membership_set(struct raft *raft, const struct control_group *next, uint64_t index);
/* The log was cut or begun anew: the newest group in it counts. */
void membership_refresh(struct raft *raft);
/* The group as of an entry that is not below the log's base. */
void membership_at(const struct raft *raft, uint64_t index, struct control_group *ret_group);
/* Before the entry at that index is dropped from the front of the log. */
void membership_compact(struct raft *raft, uint64_t index);
/* May this node stand for election: a voter, or one until an entry that is not yet committed. */
bool membership_may_lead(const struct raft *raft);
void membership_change(struct raft *raft, const struct control_group *next);
/* The leader's own removal is committed: it is none any more. */
void membership_check_removed(struct raft *raft);

/* election.c */
void election_tick(struct raft *raft);
void election_follow(struct raft *raft, uint64_t term, uint32_t leader);
void election_check_won(struct raft *raft);
void election_reset_timer(struct raft *raft);
void election_on_prevote(struct raft *raft, const struct raft_message *message);
void election_on_prevote_answer(struct raft *raft, const struct raft_message *message);
void election_on_vote(struct raft *raft, const struct raft_message *message);
void election_on_vote_answer(struct raft *raft, const struct raft_message *message);

/* replication.c */
void replication_lead(struct raft *raft); /* term start */
void replication_tick(struct raft *raft);
void replication_append_own(struct raft *raft, const struct message_entry *entry);
void replication_send(struct raft *raft, struct raft_peer *peer, bool heartbeat);
void replication_send_all(struct raft *raft);
void replication_advance(struct raft *raft); /* the leader's commit index */
void replication_reconnected(struct raft *raft, uint32_t id);
/* A message of this or a higher term's leader: follow it. False: it is none to obey. */
bool replication_obey(struct raft *raft, const struct raft_message *message);
void replication_answer(struct raft *raft); /* to the leader: how far we are */
void replication_on_append(struct raft *raft, const struct raft_message *message);
void replication_on_answer(struct raft *raft, const struct raft_message *message);

/* install.c */
void snapshot_send(struct raft *raft, struct raft_peer *peer, bool heartbeat);
void snapshot_on_chunk(struct raft *raft, const struct raft_message *message);
void snapshot_on_answer(struct raft *raft, const struct raft_message *message);
void snapshot_taken(struct raft *raft, uint64_t index, struct buf *bytes);
void snapshot_persisted(struct raft *raft);
void snapshot_release(struct raft *raft); /* lets go of one that nobody waits for any more */

#endif
