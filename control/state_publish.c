/* The entries of a publication: begun, voted on, decided with the last vote, aborted before it,
 * published, collected. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "control/placement.h"
#include "control/state_entry.h"

enum state_outcome state_on_begin(const struct entry *entry, const struct command_begin *c)
{
    struct state_job *job = state_of_generation(entry, c->job, c->generation);
    if (job == NULL) {
        return STATE_IGNORED;
    }
    const struct state_epoch *newest = state_newest_epoch(job);
    if ((job->state != JOB_RUNNING && job->state != JOB_FINISHING) || job->open != NULL ||
        c->epoch != job->epoch_next || job->epochs_count == STATE_EPOCHS_MAX) {
        return state_ignored(entry, "job %" PRIu64 ": epoch %" PRIu64 " cannot begin now", c->job,
                             c->epoch);
    }
    if (c->step > job->steps || c->step <= (newest == NULL ? 0 : newest->step) ||
        (c->step <= job->begun_step && !c->ends)) {
        return state_ignored(entry, "job %" PRIu64 ": step %" PRIu64 " is not one to publish",
                             c->job, c->step);
    }
    if (!state_make_room(entry->state, 256U + 128U * job->participants_count, 0)) {
        return state_ignored(entry, "job %" PRIu64 ": no room for one more epoch", c->job);
    }
    struct state_epoch *epoch = state_epoch_new(job->participants_count);
    epoch->epoch = c->epoch;
    epoch->step = c->step;
    epoch->generation = c->generation;
    epoch->ends = c->ends;
    epoch->begun_ms = entry->wall_ms;
    for (uint32_t i = 0; i < job->participants_count; i++) {
        epoch->shards[i].node = job->participants[i].node;
        epoch->shards[i].incarnation = job->participants[i].incarnation;
        epoch->shards[i].first = job->bounds[i];
        epoch->shards[i].end = job->bounds[i + 1];
    }
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        placement_begin(entry->state, epoch, i, c->live, job->replicas);
    }
    job->open = epoch;
    job->epoch_next++;
    job->begun_step = c->step;
    if (c->step == job->steps && job->state == JOB_RUNNING) {
        state_move(entry, job, JOB_FINISHING);
    }
    return STATE_CHANGED;
}

/* The last vote is in: this entry is the decision to commit. */
static void decide(const struct entry *entry, struct state_job *job)
{
    struct state_epoch *epoch = job->open;
    ASSERT(job->epochs_count < STATE_EPOCHS_MAX);
    epoch->decided_ms = entry->wall_ms;
    epoch->decided_index = entry->index;
    for (uint32_t i = 0; i < epoch->shards_count; i++) { /* Who voted and was removed since. */
        struct state_shard *shard = &epoch->shards[i];
        shard->published = !state_shard_held(shard, shard->node);
    }
    job->open = NULL;
    job->epochs[job->epochs_count++] = epoch;
    job->attempts = 0;
    job->aborted_in_turn = 0;
    if (state_job_active(job) && job->generation == epoch->generation && epoch->ends &&
        epoch->step < job->steps) {
        char reason[COMMAND_REASON_SIZE];
        state_reason(reason, job->stopping ? job->stop_reason : "stopped at a checkpoint");
        state_end_generation(entry, job, reason);
    }
}

/* Those that BEGIN placed, each once, the voter among them. */
static bool holders_good(const struct state_shard *shard, const struct command_prepared *c)
{
    for (uint32_t i = 0; i < c->holders_count; i++) {
        if (!state_shard_held(shard, c->holders[i])) {
            return false;
        }
    }
    uint64_t seen = 0;
    for (uint32_t i = 0; i < c->holders_count; i++) {
        uint64_t bit = UINT64_C(1) << (c->holders[i] - 1);
        if ((seen & bit) != 0) {
            return false;
        }
        seen |= bit;
    }
    return c->holders_count == shard->holders_count && (seen & (UINT64_C(1) << (c->node - 1))) != 0;
}

enum state_outcome state_on_prepared(const struct entry *entry, const struct command_prepared *c)
{
    struct state_job *job = state_job_edit(entry->state, c->job);
    struct state_epoch *epoch = job == NULL ? NULL : job->open;
    if (epoch == NULL || epoch->epoch != c->epoch || epoch->generation != c->generation ||
        epoch->step != c->step) {
        return state_ignored(entry,
                             "job %" PRIu64 ": a vote for epoch %" PRIu64 ", which is not open",
                             c->job, c->epoch);
    }
    struct state_shard *shard = NULL;
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        if (epoch->shards[i].node == c->node) {
            shard = &epoch->shards[i];
        }
    }
    if (shard == NULL || shard->incarnation != c->incarnation || shard->prepared) {
        return state_ignored(entry,
                             "job %" PRIu64 ": epoch %" PRIu64 " awaits no vote of node %" PRIu32
                             " in incarnation %" PRIu64,
                             c->job, c->epoch, c->node, c->incarnation);
    }
    bool first = shard == &epoch->shards[0];
    if (!holders_good(shard, c) || (first && !c->has_vectors)) {
        return state_ignored(entry,
                             "job %" PRIu64 ": the vote of node %" PRIu32 " lacks what it owes",
                             c->job, c->node);
    }
    shard->prepared = true;
    shard->size = c->size;
    memcpy(shard->sha256, c->sha256, sizeof(shard->sha256));
    if (first) {
        memcpy(epoch->parameter_sha256, c->parameter_sha256, SHA256_SIZE);
        memcpy(epoch->accumulator_sha256, c->accumulator_sha256, SHA256_SIZE);
        epoch->loss_bits = c->loss_bits;
    }
    if (state_votes(epoch) == epoch->shards_count) {
        decide(entry, job);
    }
    return STATE_CHANGED;
}

enum state_outcome state_on_abort(const struct entry *entry, const struct command_abort *c)
{
    struct state_job *job = state_job_edit(entry->state, c->job);
    if (job == NULL || job->open == NULL || job->open->epoch != c->epoch) {
        return state_ignored(entry, "job %" PRIu64 ": epoch %" PRIu64 " is not open", c->job,
                             c->epoch);
    }
    state_drop_open(job, c->reason);
    return STATE_CHANGED;
}

enum state_outcome state_on_published(const struct entry *entry, const struct command_published *c)
{
    struct state_job *job = state_job_edit(entry->state, c->job);
    for (uint32_t i = 0; job != NULL && i < job->epochs_count; i++) {
        for (uint32_t k = 0; k < job->epochs[i]->shards_count; k++) {
            struct state_shard *shard = &job->epochs[i]->shards[k];
            if (job->epochs[i]->epoch == c->epoch && shard->node == c->node && !shard->published) {
                shard->published = true;
                return STATE_CHANGED;
            }
        }
    }
    return state_ignored(entry, "job %" PRIu64 ": node %" PRIu32 " owes no word on epoch %" PRIu64,
                         c->job, c->node, c->epoch);
}

enum state_outcome state_on_collect(const struct entry *entry, const struct command_collect *c)
{
    struct state_job *job = state_job_edit(entry->state, c->job);
    if (job == NULL || job->epochs_count == 0 || job->epochs[0]->epoch != c->epoch) {
        return state_ignored(entry, "job %" PRIu64 ": epoch %" PRIu64 " is not its oldest", c->job,
                             c->epoch);
    }
    uint32_t published = 0;
    for (uint32_t i = 1; i < job->epochs_count; i++) {
        published += state_epoch_safe(job->epochs[i]) ? 1 : 0;
    }
    if (published < job->keep || !state_epoch_safe(state_newest_epoch(job))) {
        return state_ignored(entry,
                             "job %" PRIu64 ": only %" PRIu32
                             " newer epochs are published everywhere with all their copies",
                             c->job, published);
    }
    state_epoch_free(job->epochs[0]);
    job->epochs_count--;
    for (uint32_t i = 0; i < job->epochs_count; i++) {
        job->epochs[i] = job->epochs[i + 1];
    }
    return STATE_CHANGED;
}
