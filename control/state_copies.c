/* The entries about copies of committed shards, and what becomes of an epoch that has lost its last
 * one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "control/state_entry.h"

/* The committed shard that the entry names, digest included, or NULL with the outcome's sentence.
 */
static struct state_shard *named(const struct entry *entry, const struct command_copy *c,
                                 struct state_job **ret_job, uint32_t *ret_at)
{
    struct state_job *job = state_job_edit(entry->state, c->job);
    for (uint32_t i = 0; job != NULL && i < job->epochs_count; i++) {
        struct state_epoch *epoch = job->epochs[i];
        if (epoch->epoch == c->epoch && c->rank < epoch->shards_count &&
            memcmp(epoch->shards[c->rank].sha256, c->sha256, SHA256_SIZE) == 0) {
            *ret_job = job;
            *ret_at = i;
            return &epoch->shards[c->rank];
        }
    }
    (void)state_ignored(entry,
                        "job %" PRIu64 ": no committed epoch %" PRIu64 " has such a shard %" PRIu32,
                        c->job, c->epoch, c->rank + 1);
    return NULL;
}

/* Of who has the place now, and is in. */
static bool is_of_member(const struct entry *entry, const struct command_copy *c)
{
    const struct state_node *node = state_node(entry->state, c->node);
    return state_node_in(node) && (c->life == node->life || c->life == COMMAND_LIFE_UNSAID);
}

/* The job goes on from the one before, or not at all. What is running has its state in memory and
 * publishes again. */
static void lose_epoch(const struct entry *entry, struct state_job *job, uint32_t at)
{
    char reason[COMMAND_REASON_SIZE];
    uint64_t number = job->epochs[at]->epoch;
    state_epoch_free(job->epochs[at]);
    job->epochs_count--;
    for (uint32_t i = at; i < job->epochs_count; i++) {
        job->epochs[i] = job->epochs[i + 1];
    }
    job->lost_epoch = number > job->lost_epoch ? number : job->lost_epoch;
    const struct state_epoch *newest = state_newest_epoch(job);
    if (newest == NULL) {
        (void)snprintf(reason, sizeof(reason),
                       "epoch %" PRIu64 " can be had from no copy any more, and there is no older "
                       "one",
                       number);
    } else {
        (void)snprintf(reason, sizeof(reason),
                       "epoch %" PRIu64 " can be had from no copy any more: it goes on from epoch "
                       "%" PRIu64 " (step %" PRIu64 ")",
                       number, newest->epoch, newest->step);
    }
    if ((job->state == JOB_PLACED || job->state == JOB_LOADING) && job->seed_epoch == number) {
        state_end_generation(entry, job, reason);
    } else if (job->state == JOB_PAUSED && at == job->epochs_count) {
        state_reason(job->reason, reason);
    }
}

static bool take_out(struct state_shard *shard, uint32_t node)
{
    for (uint32_t i = 0; i < shard->holders_count; i++) {
        if (shard->holders[i] == node) {
            shard->holders_count--;
            for (; i < shard->holders_count; i++) {
                shard->holders[i] = shard->holders[i + 1];
            }
            return true;
        }
    }
    return false;
}

enum state_outcome state_on_replicated(const struct entry *entry, const struct command_copy *c)
{
    struct state_job *job = NULL;
    uint32_t at = 0;
    struct state_shard *shard = named(entry, c, &job, &at);
    if (shard == NULL) {
        return STATE_IGNORED;
    }
    if (state_shard_held(shard, c->node) || shard->holders_count == COMMAND_HOLDERS_MAX ||
        !is_of_member(entry, c)) {
        return state_ignored(
            entry, "job %" PRIu64 ": epoch %" PRIu64 " needs no word of node %" PRIu32 " on a copy",
            c->job, c->epoch, c->node);
    }
    shard->holders[shard->holders_count++] = c->node;
    if (shard->wanted == c->node) {
        shard->wanted = 0;
    }
    return STATE_CHANGED;
}

enum state_outcome state_on_dropped(const struct entry *entry, const struct command_copy *c)
{
    struct state_job *job = NULL;
    uint32_t at = 0;
    struct state_shard *shard = named(entry, c, &job, &at);
    if (shard == NULL) {
        return STATE_IGNORED;
    }
    if (!is_of_member(entry, c) || !take_out(shard, c->node)) {
        return state_ignored(entry,
                             "job %" PRIu64 ": node %" PRIu32 " holds no copy of epoch %" PRIu64,
                             c->job, c->node, c->epoch);
    }
    /* Whoever lost its own shard owes no word on it: others hold it now. */
    shard->published = shard->published || shard->node == c->node;
    if (shard->holders_count == 0) {
        lose_epoch(entry, job, at);
    }
    return STATE_CHANGED;
}

enum state_outcome state_on_assign(const struct entry *entry, const struct command_copy *c)
{
    struct state_job *job = NULL;
    uint32_t at = 0;
    struct state_shard *shard = named(entry, c, &job, &at);
    if (shard == NULL) {
        return STATE_IGNORED;
    }
    if (state_shard_held(shard, c->node) || shard->wanted == c->node ||
        shard->holders_count >= COMMAND_HOLDERS_MAX || !is_of_member(entry, c)) {
        return state_ignored(entry,
                             "job %" PRIu64 ": epoch %" PRIu64 " wants no copy of node %" PRIu32,
                             c->job, c->epoch, c->node);
    }
    shard->wanted = c->node;
    return STATE_CHANGED;
}

enum state_outcome state_on_prune(const struct entry *entry, const struct command_prune *c)
{
    struct state_job *job = state_job_edit(entry->state, c->job);
    if (job == NULL || job->keep == c->keep) {
        return state_ignored(entry, "job %" PRIu64 " is not there or keeps %" PRIu32 " already",
                             c->job, c->keep);
    }
    job->keep = c->keep;
    return STATE_CHANGED;
}

/* An open publication that still needs the node comes to nothing. */
static void open_without(struct state_job *job, uint32_t node, uint32_t most)
{
    bool needed = false;
    for (uint32_t r = 0; job->open != NULL && r < job->open->shards_count; r++) {
        struct state_shard *shard = &job->open->shards[r];
        if (shard->prepared) {
            (void)take_out(shard, node);
            shard->copies = shard->copies < most ? shard->copies : most;
            needed = needed || shard->holders_count == 0;
        } else {
            needed = needed || shard->node == node || state_shard_held(shard, node);
        }
    }
    if (needed) {
        state_drop_open(job, "a node that it needed was removed");
    }
}

void state_copies_without(const struct entry *entry, uint32_t node)
{
    struct state *state = entry->state;
    uint32_t others = 0;
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        others += state->nodes[i].id != node && state_node_in(&state->nodes[i]) ? 1 : 0;
    }
    uint32_t most = others == 0 ? 0 : others - 1;
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        struct state_job *job = state->jobs[i];
        open_without(job, node, most);
        for (uint32_t k = 0; k < job->epochs_count;) {
            struct state_epoch *epoch = job->epochs[k];
            bool lost = false;
            for (uint32_t r = 0; r < epoch->shards_count; r++) {
                struct state_shard *shard = &epoch->shards[r];
                (void)take_out(shard, node);
                shard->copies = shard->copies < most ? shard->copies : most;
                shard->wanted = shard->wanted == node ? 0 : shard->wanted;
                shard->published = shard->published || shard->node == node;
                lost = lost || shard->holders_count == 0;
            }
            if (lost) {
                lose_epoch(entry, job, k);
            } else {
                k++;
            }
        }
    }
}
