#include "checkpoint/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/agent_room.h"

void agent_init(struct agent *agent, uint64_t job, uint32_t id, uint64_t incarnation)
{
    ASSERT(member_place(id) >= 1);
    *agent = (struct agent){
        .job = job, .node = member_place(id), .life = id >> 8U, .incarnation = incarnation};
}

void agent_capture(struct agent *agent, const struct agent_capture *capture)
{
    agent->capture = *capture;
}

bool agent_holds_capture(const struct agent *agent, const struct state *state)
{
    const struct agent_capture *capture = &agent->capture;
    const struct state_job *job = state_job(state, agent->job);
    if (capture->generation == 0 || job == NULL || state_job_ended(job)) {
        return false;
    }
    const struct state_epoch *newest = state_newest_epoch(job);
    if (newest != NULL && newest->step >= capture->step) {
        return false; /* Committed. */
    }
    if (job->open != NULL && job->open->generation == capture->generation &&
        job->open->step == capture->step) {
        return true;
    }
    if (!state_job_active(job) || job->generation != capture->generation) {
        return false; /* Interrupted before it was begun. */
    }
    return capture->ends || job->begun_step < capture->step; /* Else aborted, and let go. */
}

bool agent_contains(const uint64_t *epochs, uint32_t count, uint64_t epoch)
{
    for (uint32_t i = 0; i < count; i++) {
        if (epochs[i] == epoch) {
            return true;
        }
    }
    return false;
}

enum agent_kind agent_files(struct look *look, enum agent_kind kind, uint64_t epoch)
{
    look->action->kind = kind;
    look->action->epoch = epoch;
    look->action->rooted = look->agent->rooted;
    look->agent->busy = true;
    return kind;
}

enum agent_kind agent_propose(struct look *look, enum command_kind kind, uint64_t epoch)
{
    ASSERT(look->action->command.kind == kind);
    look->action->kind = AGENT_PROPOSE;
    look->action->epoch = epoch;
    return AGENT_PROPOSE;
}

static enum agent_kind propose_abort(struct look *look, uint64_t epoch, const char *reason)
{
    struct command *c = &look->action->command;
    *c = (struct command){.kind = COMMAND_ABORT};
    c->abort.job = look->job->id;
    c->abort.epoch = epoch;
    c->abort.node = look->agent->node;
    int size = snprintf(c->abort.reason, sizeof(c->abort.reason), "node '%s': %s",
                        state_node_name(look->state, look->agent->node), reason);
    (void)size; /* A long one is cut. */
    return agent_propose(look, COMMAND_ABORT, epoch);
}

/* The open publication's own part where this process owes something to it. */
static const struct state_shard *owed(const struct look *look)
{
    const struct state_epoch *open = look->job->open;
    const struct state_shard *shard = open == NULL ? NULL : state_shard(open, look->agent->node);
    return shard != NULL && shard->incarnation == look->agent->incarnation && !shard->prepared
               ? shard
               : NULL;
}

static enum agent_kind next_abort(struct look *look)
{
    struct agent *agent = look->agent;
    if (agent->failed_epoch != 0) {
        if (look->job->open != NULL && look->job->open->epoch == agent->failed_epoch) {
            return propose_abort(look, agent->failed_epoch, agent->failed_reason);
        }
        agent->failed_epoch = 0;
    }
    if (owed(look) != NULL && agent->staged_epoch != look->job->open->epoch &&
        (agent->capture.generation != look->job->open->generation ||
         agent->capture.step != look->job->open->step)) {
        return propose_abort(look, look->job->open->epoch, "what it captured is gone");
    }
    return AGENT_IDLE;
}

static enum agent_kind next_stage(struct look *look)
{
    const struct agent *agent = look->agent;
    const struct state_epoch *open = look->job->open;
    const struct state_shard *shard = owed(look);
    if (shard == NULL || agent->staged_epoch == open->epoch || !agent->capture.content_ready) {
        return AGENT_IDLE;
    }
    checkpoint_shard_name((uint32_t)(shard - open->shards), open->shards_count,
                          look->action->shard);
    return agent_files(look, AGENT_STAGE, open->epoch);
}

static enum agent_kind next_vote(struct look *look)
{
    const struct agent *agent = look->agent;
    const struct state_epoch *open = look->job->open;
    const struct state_shard *shard = owed(look);
    if (shard == NULL || agent->staged_epoch != open->epoch) {
        return AGENT_IDLE;
    }
    bool first = shard == open->shards;
    if (first && !agent->capture.vectors_ready) {
        return AGENT_IDLE;
    }
    for (uint32_t i = 0; i < shard->holders_count; i++) {
        uint32_t holder = shard->holders[i];
        if (holder != agent->node && (agent->stored_by & agent_bit(holder - 1)) == 0) {
            return AGENT_IDLE; /* It has not said yet that its copy is durable. */
        }
    }
    struct command *c = &look->action->command;
    *c = (struct command){.kind = COMMAND_PREPARED};
    c->prepared.job = look->job->id;
    c->prepared.epoch = open->epoch;
    c->prepared.node = agent->node;
    c->prepared.incarnation = agent->incarnation;
    c->prepared.generation = open->generation;
    c->prepared.step = open->step;
    memcpy(c->prepared.sha256, agent->staged_sha256, SHA256_SIZE);
    c->prepared.size = agent->staged_size;
    c->prepared.holders_count = shard->holders_count;
    memcpy(c->prepared.holders, shard->holders, sizeof(shard->holders[0]) * shard->holders_count);
    if (first) {
        c->prepared.has_vectors = true;
        memcpy(c->prepared.parameter_sha256, agent->capture.parameter_sha256, SHA256_SIZE);
        memcpy(c->prepared.accumulator_sha256, agent->capture.accumulator_sha256, SHA256_SIZE);
        c->prepared.loss_bits = agent->capture.loss_bits;
    }
    return agent_propose(look, COMMAND_PREPARED, open->epoch);
}

/* Committed epochs of which all that is to lie here does, oldest first. An older one than CURRENT
 * names is published where copies of it came late. */
static enum agent_kind next_publish(struct look *look)
{
    const struct agent *agent = look->agent;
    const struct folder_view *view = &agent->view;
    for (uint32_t i = 0; i < look->job->epochs_count; i++) {
        const struct state_epoch *epoch = look->job->epochs[i];
        uint64_t wanted = agent_wanted(agent, epoch);
        bool there = agent_contains(view->published, view->published_count, epoch->epoch);
        uint64_t here = agent_here(agent, epoch->epoch, there);
        if (wanted == 0 || (wanted & ~here) != 0 || (there && epoch->epoch <= view->current)) {
            continue;
        }
        manifest_of_state(look->state, look->job, epoch, &look->action->manifest);
        look->action->ranks = wanted;
        look->action->trusted = agent_trusted(agent, epoch);
        return agent_files(look, AGENT_PUBLISH, epoch->epoch);
    }
    return AGENT_IDLE;
}

/* Whether something newer will be published here: CURRENT waits for it. */
static bool more_to_come(const struct look *look)
{
    const struct state_epoch *open = look->job->open;
    for (uint32_t i = 0; i < look->job->epochs_count; i++) {
        if (agent_wanted(look->agent, look->job->epochs[i]) != 0) {
            return true;
        }
    }
    return open != NULL &&
           (state_shard(open, look->agent->node) != NULL || agent_placed(look->agent, open));
}

/* CURRENT names what is not agreed on any more: lost everywhere, or collected where nothing newer
 * lies. */
static enum agent_kind next_retract(struct look *look)
{
    const struct folder_view *view = &look->agent->view;
    uint64_t newest = 0;
    if (view->current == 0 || view->current >= look->job->epoch_next ||
        state_epoch(look->job, view->current) != NULL) {
        return AGENT_IDLE;
    }
    for (uint32_t i = 0; i < look->job->epochs_count; i++) {
        uint64_t epoch = look->job->epochs[i]->epoch;
        newest = agent_contains(view->published, view->published_count, epoch) ? epoch : newest;
    }
    if (newest == 0 && view->current > look->job->lost_epoch && more_to_come(look)) {
        return AGENT_IDLE;
    }
    look->action->current = newest;
    return agent_files(look, AGENT_RETRACT, view->current);
}

static enum agent_kind next_report(struct look *look)
{
    const struct agent *agent = look->agent;
    const struct folder_view *view = &agent->view;
    for (uint32_t i = 0; i < look->job->epochs_count; i++) {
        const struct state_epoch *epoch = look->job->epochs[i];
        const struct state_shard *shard = state_shard(epoch, agent->node);
        if (shard == NULL || shard->published || epoch->epoch > view->current ||
            !agent_contains(view->published, view->published_count, epoch->epoch)) {
            continue;
        }
        struct command *c = &look->action->command;
        *c = (struct command){.kind = COMMAND_PUBLISHED};
        c->published.job = look->job->id;
        c->published.epoch = epoch->epoch;
        c->published.node = agent->node;
        return agent_propose(look, COMMAND_PUBLISHED, epoch->epoch);
    }
    return AGENT_IDLE;
}

static enum agent_kind next_leftover(struct look *look)
{
    const struct folder_view *view = &look->agent->view;
    for (uint32_t i = 0; i < view->staged_count; i++) {
        uint64_t number = view->staged[i];
        const struct state_epoch *epoch = state_epoch(look->job, number);
        /* A number that the log does not know yet is not ours to judge. */
        bool there = agent_contains(view->published, view->published_count, number);
        bool part = false;
        if (epoch != NULL && state_epoch_committed(epoch)) { /* Once published: parts of a copy. */
            uint64_t wanted = agent_wanted(look->agent, epoch);
            part = (there ? wanted & ~agent_here(look->agent, number, true) : wanted) != 0;
        } else if (epoch != NULL) {
            part =
                state_shard(epoch, look->agent->node) != NULL || agent_placed(look->agent, epoch);
        }
        if (number < look->job->epoch_next && !part) {
            return agent_files(look, AGENT_DISCARD, number);
        }
    }
    for (uint32_t i = 0; i < view->published_count; i++) {
        uint64_t number = view->published[i];
        if (number < look->job->epoch_next && number != view->current &&
            state_epoch(look->job, number) == NULL) { /* Collected, or lost everywhere. */
            return agent_files(look, AGENT_DELETE, number);
        }
    }
    return AGENT_IDLE;
}

enum agent_kind agent_next(struct agent *agent, const struct state *state, bool caught_up,
                           struct agent_action *ret_action)
{
    ret_action->kind = AGENT_IDLE;
    ret_action->job = agent->job;
    ret_action->epoch = 0;
    const struct state_job *job = state_job(state, agent->job);
    if (agent->busy || job == NULL) {
        return AGENT_IDLE;
    }
    struct look look = {agent, state, job, ret_action};
    checkpoint_job_folder(job, ret_action->folder);
    if (!agent->scanned) {
        return agent_files(&look, AGENT_SCAN, 0);
    }
    enum agent_kind kind = next_abort(&look);
    static enum agent_kind (*const always[])(struct look *) = {next_stage, next_vote,
                                                               agent_next_offered};
    static enum agent_kind (*const later[])(struct look *) = {
        next_report,           agent_next_dropped, agent_next_verify, agent_next_fetch,
        agent_next_replicated, next_retract,       agent_next_trim,   next_leftover};
    kind = kind == AGENT_IDLE && caught_up ? next_publish(&look) : kind;
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]) && kind == AGENT_IDLE; i++) {
        kind = always[i](&look);
    }
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]) && kind == AGENT_IDLE && caught_up;
         i++) {
        kind = later[i](&look);
    }
    ret_action->kind = kind;
    return kind;
}

int agent_done(struct agent *agent, const struct agent_action *action,
               const struct agent_result *result)
{
    ASSERT(agent->busy);
    ASSERT(!result->fatal);
    agent->busy = false;
    agent->scanned = result->scanned;
    if (result->scanned) {
        agent->view = result->view;
    }
    if (action->kind == AGENT_STAGE) {
        if (result->code == 0) {
            agent->staged_epoch = action->epoch;
            agent->stored_by = 0;
            memcpy(agent->staged_sha256, result->sha256, SHA256_SIZE);
            agent->staged_size = result->size;
        } else {
            agent->failed_epoch = action->epoch;
            size_t size = strnlen(result->err.text, sizeof(agent->failed_reason) - 1);
            memcpy(agent->failed_reason, result->err.text, size);
            agent->failed_reason[size] = '\0';
        }
    }
    agent_mark(agent, action->epoch, result->good, result->bad);
    agent->rooted = agent->rooted || (result->code == 0 &&
                                      (action->kind == AGENT_STAGE || action->kind == AGENT_COPY));
    if (action->kind == AGENT_COPY && result->code == ERR_DISK &&
        action->manifest.decided_index == 0) { /* No room for what it was to hold. */
        agent->failed_epoch = action->epoch;
        (void)snprintf(agent->failed_reason, sizeof(agent->failed_reason),
                       "its copy of '%s': %.180s", action->shard, result->err.text);
    }
    if (action->kind == AGENT_COPY) {
        agent->tries += result->code == 0 ? 0 : 1;
        struct agent_offer *offer = &agent->offers[action->rank];
        if (result->code == 0 && agent->offers_epoch == action->epoch &&
            offer->size == action->size &&
            memcmp(offer->sha256, action->sha256, SHA256_SIZE) == 0) {
            offer->stored = true;
        }
    }
    return result->code;
}
