/* Private to checkpoint/agent*.c: what one call of agent_next() looks at. */
#ifndef COPPELIUS_CHECKPOINT_AGENT_ROOM_H
#define COPPELIUS_CHECKPOINT_AGENT_ROOM_H

#include "checkpoint/agent.h"

struct look {
    struct agent *agent;
    const struct state *state;
    const struct state_job *job;
    struct agent_action *action;
};

/* agent.c */
bool agent_contains(const uint64_t *epochs, uint32_t count, uint64_t epoch);
/* The action is file work: the agent is busy with it. */
enum agent_kind agent_files(struct look *look, enum agent_kind kind, uint64_t epoch);
enum agent_kind agent_propose(struct look *look, enum command_kind kind, uint64_t epoch);

/* agent_copies.c */
uint64_t agent_bit(uint32_t rank);
/* Shards of a committed epoch that are to lie here, bit rank. */
uint64_t agent_wanted(const struct agent *agent, const struct state_epoch *epoch);
/* Those that lie in its folder, or in staging. */
uint64_t agent_here(const struct agent *agent, uint64_t epoch, bool published);
/* Of them, those that this process has written or compared. */
uint64_t agent_trusted(const struct agent *agent, const struct state_epoch *epoch);
void agent_mark(struct agent *agent, uint64_t epoch, uint64_t good, uint64_t bad);
/* Whether BEGIN placed a copy of some shard of the open epoch here. */
bool agent_placed(const struct agent *agent, const struct state_epoch *epoch);
enum agent_kind agent_next_offered(struct look *look);    /* COPY for an open epoch */
enum agent_kind agent_next_dropped(struct look *look);    /* DROPPED */
enum agent_kind agent_next_verify(struct look *look);     /* VERIFY */
enum agent_kind agent_next_fetch(struct look *look);      /* COPY for a committed epoch */
enum agent_kind agent_next_replicated(struct look *look); /* REPLICATED */
enum agent_kind agent_next_trim(struct look *look);       /* TRIM */

#endif
