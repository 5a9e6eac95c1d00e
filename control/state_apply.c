/* The entries of the log, one function each: what it asks for, what it changes. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "control/state_entry.h"

#define TO(job_state) (1U << (unsigned)(job_state))

/* The drawing in state.h as a table. */
static const unsigned legal[] = {
    [JOB_SUBMITTED] = TO(JOB_PLACED) | TO(JOB_PAUSED) | TO(JOB_CANCELLED),
    [JOB_PLACED] = TO(JOB_LOADING) | TO(JOB_PAUSED) | TO(JOB_FAILED) | TO(JOB_CANCELLED),
    [JOB_LOADING] =
        TO(JOB_RUNNING) | TO(JOB_PAUSED) | TO(JOB_SUCCEEDED) | TO(JOB_FAILED) | TO(JOB_CANCELLED),
    [JOB_RUNNING] =
        TO(JOB_FINISHING) | TO(JOB_PAUSED) | TO(JOB_SUCCEEDED) | TO(JOB_FAILED) | TO(JOB_CANCELLED),
    [JOB_FINISHING] = TO(JOB_SUCCEEDED) | TO(JOB_PAUSED) | TO(JOB_FAILED) | TO(JOB_CANCELLED),
    [JOB_SUCCEEDED] = 0,
    [JOB_FAILED] = 0,
    [JOB_CANCELLED] = 0,
    [JOB_PAUSED] = TO(JOB_PLACED) | TO(JOB_FAILED) | TO(JOB_CANCELLED),
};

enum state_outcome state_ignored(const struct entry *entry, const char *format, ...)
{
    if (entry->why != NULL) {
        va_list list;
        va_start(list, format);
        entry->why->code = ERR_STATE;
        (void)vsnprintf(entry->why->text, sizeof(entry->why->text), format, list);
        va_end(list);
    }
    return STATE_IGNORED;
}

/* The only writer of job->state. */
void state_move(const struct entry *entry, struct state_job *job, enum state_job_state next)
{
    ASSERT(legal[job->state] & TO(next));
    job->state = next;
    job->changed_ms = entry->wall_ms;
    if (state_job_ended(job)) {
        job->ended_ms = entry->wall_ms;
        job->stopping = false;
        job->regrouping = false;
        job->hold = HOLD_NONE;
    }
}

void state_reason(char *target, const char *text)
{
    size_t size = strnlen(text, COMMAND_REASON_SIZE - 1);
    memcpy(target, text, size);
    target[size] = '\0';
}

/* The generation is over; who asked for a stop meanwhile still holds the job. */
void state_end_generation(const struct entry *entry, struct state_job *job, const char *reason)
{
    job->hold = HOLD_NONE;
    if (job->stopping && !job->regrouping) {
        job->hold = job->stop_node == 0 ? HOLD_USER : HOLD_NODE;
        job->hold_node = job->stop_node;
        job->hold_incarnation = job->stop_incarnation;
    }
    job->stopping = false;
    job->regrouping = false;
    state_move(entry, job, JOB_PAUSED);
    state_reason(job->reason, reason);
}

void state_drop_open(struct state_job *job, const char *reason)
{
    ASSERT(job->open != NULL);
    job->aborted_epoch = job->open->epoch;
    state_reason(job->aborted_reason, reason);
    job->aborted_in_turn++;
    state_epoch_free(job->open);
    job->open = NULL;
}

/* ---- nodes ---- */

/* What the node had under way is over: its part of an open publication, its generation. */
void state_without_node(const struct entry *entry, struct state_job *job, uint32_t node,
                        const char *reason)
{
    if (job->open != NULL) {
        const struct state_shard *shard = state_shard(job->open, node);
        if (shard != NULL && !shard->prepared) {
            state_drop_open(job, reason);
        }
    }
    if (state_job_active(job) && state_rank(job, node) >= 0) {
        job->attempts++;
        state_end_generation(entry, job, reason);
    }
}

/* ---- jobs ---- */

/* Forgets ended jobs, oldest first, until there is room. */
bool state_make_room(struct state *state, uint64_t size, uint32_t jobs)
{
    for (;;) {
        uint64_t total = size;
        for (uint32_t i = 0; i < state->jobs_count; i++) {
            total += state_job_size(state->jobs[i]);
        }
        if (total <= STATE_SIZE_MAX && state->jobs_count + jobs <= STATE_JOBS_MAX) {
            return true;
        }
        uint32_t at = 0;
        while (at < state->jobs_count && !state_job_ended(state->jobs[at])) {
            at++;
        }
        if (at == state->jobs_count) {
            return false;
        }
        state_job_free(state->jobs[at]);
        state->jobs_count--;
        for (; at < state->jobs_count; at++) {
            state->jobs[at] = state->jobs[at + 1];
        }
    }
}

static enum state_outcome on_submit(const struct entry *entry, const struct command_submit *c)
{
    struct state *state = entry->state;
    if (state_job_by_uuid(state, c->uuid) != NULL) {
        return state_ignored(entry, "job '%s' is known already", c->name);
    }
    if (!state_make_room(state, c->text_size + 4096U, 1)) {
        (void)err_set(entry->why, ERR_BUSY,
                      "%" PRIu32 " jobs wait already: cancel some, or submit '%s' later",
                      state->jobs_count, c->name);
        return STATE_REFUSED;
    }
    struct state_job *job = state_job_new();
    job->id = state->job_next++;
    memcpy(job->uuid, c->uuid, sizeof(job->uuid));
    memcpy(job->name, c->name, sizeof(job->name));
    memcpy(job->client, c->client, sizeof(job->client));
    memcpy(job->policy, c->policy, sizeof(job->policy));
    memcpy(job->identity_inputs, c->identity_inputs, sizeof(job->identity_inputs));
    job->keep = c->keep;
    job->replicas = c->replicas;
    job->nodes_wanted = c->nodes;
    job->elastic = c->elastic;
    job->text = calloc(c->text_size + 1, 1);
    ASSERT(job->text != NULL);
    memcpy(job->text, c->text, c->text_size);
    job->text_size = (uint32_t)c->text_size;
    job->state = JOB_SUBMITTED;
    job->submitted_ms = entry->wall_ms;
    job->changed_ms = entry->wall_ms;
    job->epoch_next = 1;
    state->jobs[state->jobs_count++] = job;
    return STATE_CHANGED;
}

static enum state_outcome on_place(const struct entry *entry, const struct command_place *c)
{
    struct state *state = entry->state;
    struct state_job *job = state_job_edit(state, c->job);
    if (job == NULL || c->generation != state->generation + 1) {
        return state_ignored(entry, "job %" PRIu64 ": generation %" PRIu64 " is not the next",
                             c->job, c->generation);
    }
    if (job->state != JOB_SUBMITTED && (job->state != JOB_PAUSED || job->hold != HOLD_NONE)) {
        return state_ignored(entry, "job %" PRIu64 " is %s and cannot be placed", c->job,
                             state_job_label(job->state));
    }
    if (state_active_job(state) != NULL || job->open != NULL) {
        return state_ignored(entry, "job %" PRIu64 ": another job or a publication is under way",
                             c->job);
    }
    for (uint32_t i = 0; i < c->nodes_count; i++) {
        const struct state_node *node = state_node(state, c->nodes[i]);
        if (!state_node_in(node) || node->incarnation != c->incarnations[i] || node->drained ||
            node->role == ROLE_ARBITER) {
            return state_ignored(entry, "job %" PRIu64 ": node %" PRIu32 " is not what it was",
                                 c->job, c->nodes[i]);
        }
    }
    const struct state_epoch *newest = state_newest_epoch(job);
    if (newest == NULL && job->lost_epoch != 0 && job->state == JOB_PAUSED) {
        /* Never a silent fresh start. */
        char reason[COMMAND_REASON_SIZE];
        (void)snprintf(reason, sizeof(reason),
                       "epoch %" PRIu64 ", its only checkpoint, can be had from no copy any more: "
                       "submit the job anew",
                       job->lost_epoch);
        state_move(entry, job, JOB_FAILED);
        state_reason(job->reason, reason);
        return STATE_CHANGED;
    }
    state->generation = c->generation;
    job->generation = c->generation;
    job->seed_epoch = newest == NULL ? 0 : newest->epoch;
    job->participants_count = c->nodes_count;
    for (uint32_t i = 0; i < c->nodes_count; i++) {
        job->participants[i] = (struct state_participant){c->nodes[i], c->incarnations[i]};
    }
    job->ranges_count = 0;
    job->begun_step = 0;
    job->stopping = false;
    job->regrouping = false;
    state_move(entry, job, JOB_PLACED);
    job->reason[0] = '\0';
    return STATE_CHANGED;
}

/* The job whose generation the entry names, or NULL with the outcome's sentence. */
struct state_job *state_of_generation(const struct entry *entry, uint64_t id, uint64_t generation)
{
    struct state_job *job = state_job_edit(entry->state, id);
    if (job == NULL || job->generation != generation) {
        (void)state_ignored(entry, "job %" PRIu64 ": generation %" PRIu64 " is not its own", id,
                            generation);
        return NULL;
    }
    return job;
}

static enum state_outcome on_partition(const struct entry *entry, const struct command_partition *c)
{
    struct state_job *job = state_of_generation(entry, c->job, c->generation);
    if (job == NULL) {
        return STATE_IGNORED;
    }
    if (job->state != JOB_PLACED || c->ranges_count > job->participants_count) {
        return state_ignored(entry, "job %" PRIu64 " is %s with %" PRIu32 " participants", c->job,
                             state_job_label(job->state), job->participants_count);
    }
    uint64_t coordinates = c->bounds[c->ranges_count];
    if (job->partitioned && (memcmp(job->dataset, c->dataset, sizeof(job->dataset)) != 0 ||
                             memcmp(job->identity, c->identity, sizeof(job->identity)) != 0 ||
                             job->rows != c->rows || job->features != c->features ||
                             job->steps != c->steps || job->coordinates != coordinates)) {
        char reason[COMMAND_REASON_SIZE];
        (void)snprintf(reason, sizeof(reason),
                       "the dataset changed: %" PRIu64 " rows and %" PRIu64
                       " features, before %" PRIu64 " and %" PRIu64
                       ", or other contents; submit the job anew",
                       c->rows, c->features, job->rows, job->features);
        state_move(entry, job, JOB_FAILED);
        state_reason(job->reason, reason);
        return STATE_CHANGED;
    }
    job->partitioned = true;
    memcpy(job->dataset, c->dataset, sizeof(job->dataset));
    memcpy(job->identity, c->identity, sizeof(job->identity));
    job->rows = c->rows;
    job->features = c->features;
    job->steps = c->steps;
    job->coordinates = coordinates;
    job->ranges_count = c->ranges_count;
    job->participants_count = c->ranges_count; /* Who has no range takes no part. */
    memcpy(job->bounds, c->bounds, sizeof(job->bounds[0]) * (c->ranges_count + 1));
    state_move(entry, job, JOB_LOADING);
    return STATE_CHANGED;
}

static enum state_outcome on_running(const struct entry *entry, const struct command_running *c)
{
    struct state_job *job = state_of_generation(entry, c->job, c->generation);
    if (job == NULL) {
        return STATE_IGNORED;
    }
    if (job->state != JOB_LOADING) {
        return state_ignored(entry, "job %" PRIu64 " is %s", c->job, state_job_label(job->state));
    }
    state_move(entry, job, JOB_RUNNING);
    if (job->started_ms == 0) {
        job->started_ms = entry->wall_ms;
    }
    return STATE_CHANGED;
}

static enum state_outcome on_interrupt(const struct entry *entry, const struct command_interrupt *c)
{
    struct state_job *job = state_of_generation(entry, c->job, c->generation);
    if (job == NULL) {
        return STATE_IGNORED;
    }
    if (!state_job_active(job)) {
        return state_ignored(entry, "job %" PRIu64 " is %s", c->job, state_job_label(job->state));
    }
    job->attempts++;
    state_end_generation(entry, job, c->reason);
    return STATE_CHANGED;
}

static enum state_outcome drop_job(const struct entry *entry, struct state_job *job,
                                   const char *reason)
{
    if (job->open != NULL) {
        state_drop_open(job, "the job was cancelled");
    }
    state_move(entry, job, JOB_CANCELLED);
    state_reason(job->reason, reason);
    return STATE_CHANGED;
}

static enum state_outcome on_stop(const struct entry *entry, const struct command_stop_job *c)
{
    struct state_job *job = state_job_edit(entry->state, c->job);
    if (job == NULL || state_job_ended(job)) {
        return state_ignored(entry, "job %" PRIu64 " is not there or has ended", c->job);
    }
    if (c->how == STOP_DROP) {
        return drop_job(entry, job, c->reason);
    }
    if (c->turn != job->turn) {
        return state_ignored(entry, "job %" PRIu64 ": stop of turn %" PRIu64 " is late", c->job,
                             c->turn);
    }
    bool active = state_job_active(job);
    int rank = c->node == 0 ? -1 : state_rank(job, c->node);
    if (c->node != 0 &&
        (!active || rank < 0 || job->participants[rank].incarnation != c->incarnation)) {
        return state_ignored(entry, "job %" PRIu64 ": node %" PRIu32 " takes no part", c->job,
                             c->node);
    }
    if (!active && c->how == STOP_REGROUP) {
        return state_ignored(entry, "job %" PRIu64 " is %s", c->job, state_job_label(job->state));
    }
    if (!active) { /* A person pauses what waits. */
        if (job->state == JOB_PAUSED && job->hold == HOLD_USER) {
            return state_ignored(entry, "job %" PRIu64 " is paused already", c->job);
        }
        job->turn++;
        job->hold = HOLD_USER;
        if (job->state != JOB_PAUSED) {
            state_move(entry, job, JOB_PAUSED);
        }
        state_reason(job->reason, c->reason);
        return STATE_CHANGED;
    }
    if (job->stopping &&
        (c->how == STOP_REGROUP || (!job->regrouping && (c->node != 0 || job->stop_node == 0)))) {
        return state_ignored(entry, "job %" PRIu64 " is stopping already", c->job);
    }
    job->turn++;
    job->stopping = true;
    job->regrouping = c->how == STOP_REGROUP;
    job->stop_node = c->node;
    job->stop_incarnation = c->incarnation;
    state_reason(job->stop_reason, c->reason);
    if (job->state == JOB_PLACED || job->state == JOB_LOADING) {
        state_end_generation(entry, job, c->reason); /* No step was done: nothing to capture. */
    }
    return STATE_CHANGED;
}

static enum state_outcome on_resume(const struct entry *entry, const struct command_resume *c)
{
    struct state_job *job = state_job_edit(entry->state, c->job);
    if (job == NULL || state_job_ended(job) || c->turn != job->turn) {
        return state_ignored(entry, "job %" PRIu64 ": resume of turn %" PRIu64 " is late", c->job,
                             c->turn);
    }
    if (job->stopping) {
        job->stopping = false; /* Where the run has stopped already, it is placed again. */
        job->regrouping = false;
    } else if (job->state == JOB_PAUSED && job->hold != HOLD_NONE) {
        job->hold = HOLD_NONE;
        job->attempts = 0;
        job->changed_ms = entry->wall_ms;
    } else {
        return state_ignored(entry, "job %" PRIu64 " is %s and held by nobody", c->job,
                             state_job_label(job->state));
    }
    job->turn++;
    return STATE_CHANGED;
}

static enum state_outcome on_finish(const struct entry *entry, const struct command_finish *c)
{
    struct state_job *job = state_of_generation(entry, c->job, c->generation);
    if (job == NULL) {
        return STATE_IGNORED;
    }
    const struct state_epoch *newest = state_newest_epoch(job);
    bool succeeded = c->outcome == OUTCOME_SUCCEEDED;
    bool there = succeeded ? job->state == JOB_LOADING || job->state == JOB_RUNNING ||
                                 job->state == JOB_FINISHING
                           : state_job_active(job) || job->state == JOB_PAUSED;
    if (!there) {
        return state_ignored(entry, "job %" PRIu64 " is %s", c->job, state_job_label(job->state));
    }
    if (succeeded && (newest == NULL || newest->step != job->steps || job->open != NULL)) {
        return state_ignored(entry, "job %" PRIu64 ": its last step is not published", c->job);
    }
    if (job->open != NULL) {
        state_drop_open(job, "the job failed");
    }
    job->result = (struct state_result){.step = c->step,
                                        .has_loss = c->has_loss,
                                        .loss_bits = c->loss_bits,
                                        .has_objective = c->has_objective,
                                        .objective_bits = c->objective_bits};
    if (newest != NULL) {
        job->result.epoch = newest->epoch;
        memcpy(job->result.parameter_sha256, newest->parameter_sha256, SHA256_SIZE);
        memcpy(job->result.accumulator_sha256, newest->accumulator_sha256, SHA256_SIZE);
    }
    state_move(entry, job, succeeded ? JOB_SUCCEEDED : JOB_FAILED);
    state_reason(job->reason, c->reason);
    return STATE_CHANGED;
}

static enum state_outcome apply(const struct entry *entry, const struct command *command)
{
    switch (command->kind) {
    case COMMAND_NODE:
        return state_on_node(entry, &command->node);
    case COMMAND_SUBMIT:
        return on_submit(entry, &command->submit);
    case COMMAND_PLACE:
        return on_place(entry, &command->place);
    case COMMAND_PARTITION:
        return on_partition(entry, &command->partition);
    case COMMAND_RUNNING:
        return on_running(entry, &command->running);
    case COMMAND_INTERRUPT:
        return on_interrupt(entry, &command->interrupt);
    case COMMAND_STOP:
        return on_stop(entry, &command->stop);
    case COMMAND_RESUME:
        return on_resume(entry, &command->resume);
    case COMMAND_BEGIN:
        return state_on_begin(entry, &command->begin);
    case COMMAND_PREPARED:
        return state_on_prepared(entry, &command->prepared);
    case COMMAND_ABORT:
        return state_on_abort(entry, &command->abort);
    case COMMAND_PUBLISHED:
        return state_on_published(entry, &command->published);
    case COMMAND_COLLECT:
        return state_on_collect(entry, &command->collect);
    case COMMAND_REPLICATED:
        return state_on_replicated(entry, &command->copy);
    case COMMAND_DROPPED:
        return state_on_dropped(entry, &command->copy);
    case COMMAND_ASSIGN:
        return state_on_assign(entry, &command->copy);
    case COMMAND_PRUNE:
        return state_on_prune(entry, &command->prune);
    case COMMAND_FINISH:
        return on_finish(entry, &command->finish);
    case COMMAND_REMOVE:
        return state_on_remove(entry, &command->remove);
    case COMMAND_MEMBER:
        return state_on_member(entry, &command->member);
    case COMMAND_DRAIN:
        return state_on_drain(entry, &command->drain);
    case COMMAND_RECOVER:
        return state_on_recover(entry, &command->recover);
    case COMMAND_NONE:
    default:
        ASSERT(false); /* command_decode lets no other kind pass */
        return STATE_REFUSED;
    }
}

enum state_outcome state_apply(struct state *state, uint64_t index, const uint8_t *bytes,
                               size_t size, struct err *why)
{
    ASSERT(index > state->applied_index);
    state->applied_index = index;
    if (size == 0) {
        return STATE_IGNORED;
    }
    struct command command;
    if (command_decode(bytes, size, &command, why) != 0) {
        return STATE_REFUSED;
    }
    struct entry entry = {state, index, command.wall_ms, why};
    enum state_outcome outcome = apply(&entry, &command);
    state->changes += outcome == STATE_CHANGED ? 1 : 0;
    return outcome;
}
