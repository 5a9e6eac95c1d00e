/* Publication in the simulated world: the real state machine, coordinator, agent and its file work
 * around a fake training, and the oracles of what must never be seen.
 *
 *   publication.c        a node: state machine, heartbeats, clients, coordinator
 *   publication_run.c    the fake training: lockstep by messages, captures at the same step
 *   publication_files.c  agents, the watched file system, mutants
 *   publication_copies.c copies: words, fetching, disks that are wiped or rot, what must hold of
 * them publication_oracle.c what must hold, the independent reader
 *   publication_members.c joins, removals, drained nodes
 *
 * A coordinate's value is a function of (job, coordinate, step) alone, so every checkpoint's bits
 * are known beforehand. The world's context is a struct publication. */
#ifndef COPPELIUS_TESTS_SIM_PUBLICATION_H
#define COPPELIUS_TESTS_SIM_PUBLICATION_H

#include "tests/sim/world.h"

/* Bugs that the oracles must find. */
#define PUBLICATION_MUTANTS(X)                                                  \
    X(MUTANT_NONE, "none")                                                      \
    X(MUTANT_OWN_VOTE, "publish on own vote")                                   \
    X(MUTANT_NOT_CAUGHT_UP, "recovery acts before it has caught up")            \
    X(MUTANT_CURRENT_SYNC, "CURRENT.new is not fsynced")                        \
    X(MUTANT_SNAPSHOT_VOTES, "the snapshot loses votes")                        \
    X(MUTANT_SHARD_SYNC, "vote before the shard is durable")                    \
    X(MUTANT_STAGING_SYNC, "vote before the shard's name is durable")           \
    X(MUTANT_PARENT_SYNC, "CURRENT before the renamed folder is durable")       \
    X(MUTANT_MANIFEST_SYNC, "the manifest is not fsynced")                      \
    X(MUTANT_COLLECT, "collecting races publication")                           \
    X(MUTANT_UNILATERAL, "a participant aborts on its own after its vote")      \
    X(MUTANT_EARLY_REPORT, "publication is reported before CURRENT is durable") \
    X(MUTANT_OTHER_DIGEST, "a vote names another digest than the shard's")      \
    X(MUTANT_IN_PLACE, "CURRENT is written in place")                           \
    X(MUTANT_COPY_SYNC, "a copy counts before it is fsynced")                   \
    X(MUTANT_COPY_NAME_SYNC, "a copy counts before its name is durable")        \
    X(MUTANT_VOTE_ALONE, "vote before the copies are stored")                   \
    X(MUTANT_COPY_DIGEST, "a copy counts before its digest is compared")        \
    X(MUTANT_REPAIR_DAMAGED, "repair from a damaged copy")                      \
    X(MUTANT_WRONG_EPOCH, "another epoch's copy is accepted")                   \
    X(MUTANT_STORED_ANY, "a word about another epoch's copy counts")            \
    X(MUTANT_LAST_COPY, "copies are collected while they are needed")           \
    X(MUTANT_QUIET_LOSS, "a lost copy is not told")                             \
    X(MUTANT_QUIET_DAMAGE, "a damaged copy goes on counting")                   \
    X(MUTANT_OLD_COPIES, "an identity that is gone goes on counting")           \
    X(MUTANT_UNKNOWN_OUT, "who is not known is told that it was removed")

#define PUBLICATION_MUTANT_ENUM(name, text) name,
enum publication_mutant { PUBLICATION_MUTANTS(PUBLICATION_MUTANT_ENUM) PUBLICATION_MUTANTS_COUNT };
#undef PUBLICATION_MUTANT_ENUM

const char *publication_mutant_text(enum publication_mutant mutant);

struct publication;

/* A swarm's part of its own, derived from the world's seed. */
struct publication_options {
    uint32_t jobs;
    uint32_t steps;
    uint32_t every;
    uint32_t keep;
    uint32_t coordinates;
    uint32_t step_ms;
    uint32_t file_ms_max; /* the time between an action's decision and its file work */
    uint32_t suspect_ms;
    uint32_t prepare_ms;
    uint32_t disturb_ms; /* mean time between pause, resume, cancel and SIGTERM; 0: none */
    uint32_t replicas;
    uint32_t hurt_ms;  /* mean time between disks that lose their checkpoints, or a bit; 0: none */
    uint32_t elastic;  /* the jobs are */
    uint32_t drain_ms; /* mean time between nodes drained and undrained; 0: none */
    uint32_t removes;  /* one node is removed for good */
    uint32_t rejoins;  /* disks lost for good, log and all, that come back as new identities */
    enum publication_mutant mutant;
};

/* Also lengthens the world's healed phase: back-offs and detection need time. */
void publication_options_of_seed(uint64_t seed, struct publication_options *options,
                                 struct world_options *world);
void publication_options_print(const struct publication_options *options);

struct publication *publication_new(const struct publication_options *options);
void publication_free(struct publication *all);

extern const struct world_extension world_publication;

struct publication_counts {
    uint64_t committed; /* decisions */
    uint64_t aborted;   /* epochs */
    uint64_t published; /* by nodes */
    uint64_t collected; /* folders deleted */
    uint64_t generations;
    uint64_t looks;          /* of the reader */
    uint64_t succeeded;      /* jobs */
    uint64_t refused_stages; /* shards that could not be written */
    uint64_t copies;         /* of shards that were fetched */
    uint64_t hurts;          /* disks wiped, or with a flipped bit; nodes removed */
    uint64_t repairs;        /* of them, those after which all copies were there again */
    uint64_t rejoins;        /* of identities whose disk was lost */
    uint64_t told;           /* removed nodes that learnt it from another one */
};
void publication_counts(const struct publication *all, struct publication_counts *ret_counts);

/* Where everybody is, for a person who looks at a failed seed. */
void publication_print(struct world *world);

/* ---- for directed tests ---- */
struct state;
const struct state *publication_state(const void *self);
/* A client submits the next job at that node (repeated until it is there). */
void publication_submit(struct publication *all, unsigned node);
/* What CURRENT says on the node for the job, 0: none. */
uint64_t publication_current(struct world *world, unsigned node, uint64_t job);
/* Keep the votes of a node back while true. */
void publication_hold_votes(struct publication *all, unsigned node, bool hold);
/* Shards of the node find no space while true; its log does. */
void publication_fill_disk(struct publication *all, unsigned node, bool full);
/* The node dies with all its checkpoints; its log stays. */
void publication_wipe(struct world *world, unsigned node);
/* The node's folder is lost, its log too: it is removed, and joins again as somebody else. False:
 * the others could not go on without it now. */
bool publication_lose(struct world *world, unsigned node);
/* One bit of one shard that lies there is another one now; false: of that one there is none. */
bool publication_rot(struct world *world, unsigned node);
/* Keep a node from publishing while true. */
void publication_hold_publish(struct publication *all, unsigned node, bool hold);

#endif
