#include "checkpoint/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

void agent_init(struct agent *agent, uint64_t job, uint32_t node, uint64_t incarnation)
{
    ASSERT(node >= 1);
    *agent = (struct agent){.job = job, .node = node, .incarnation = incarnation};
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

static bool contains(const uint64_t *epochs, uint32_t count, uint64_t epoch)
{
    for (uint32_t i = 0; i < count; i++) {
        if (epochs[i] == epoch) {
            return true;
        }
    }
    return false;
}

/* What one call looks at. */
struct look {
    struct agent *agent;
    const struct state *state;
    const struct state_job *job;
    struct agent_action *action;
};

static enum agent_kind files(struct look *look, enum agent_kind kind, uint64_t epoch)
{
    look->action->kind = kind;
    look->action->epoch = epoch;
    look->agent->busy = true;
    return kind;
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
    look->action->kind = AGENT_PROPOSE;
    look->action->epoch = epoch;
    return AGENT_PROPOSE;
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
    return files(look, AGENT_STAGE, open->epoch);
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
    c->prepared.holders_count = 1;
    c->prepared.holders[0] = agent->node;
    if (first) {
        c->prepared.has_vectors = true;
        memcpy(c->prepared.parameter_sha256, agent->capture.parameter_sha256, SHA256_SIZE);
        memcpy(c->prepared.accumulator_sha256, agent->capture.accumulator_sha256, SHA256_SIZE);
        c->prepared.loss_bits = agent->capture.loss_bits;
    }
    look->action->kind = AGENT_PROPOSE;
    look->action->epoch = open->epoch;
    return AGENT_PROPOSE;
}

/* Committed epochs that are newer than CURRENT, oldest first. */
static enum agent_kind next_publish(struct look *look)
{
    const struct agent *agent = look->agent;
    const struct folder_view *view = &agent->view;
    for (uint32_t i = 0; i < look->job->epochs_count; i++) {
        const struct state_epoch *epoch = look->job->epochs[i];
        const struct state_shard *shard = state_shard(epoch, agent->node);
        if (shard == NULL || epoch->epoch <= view->current || epoch->epoch <= agent->lost_epoch) {
            continue;
        }
        manifest_of_state(look->state, look->job, epoch, &look->action->manifest);
        checkpoint_shard_name((uint32_t)(shard - epoch->shards), epoch->shards_count,
                              look->action->shard);
        look->action->verify = agent->staged_epoch != epoch->epoch;
        return files(look, AGENT_PUBLISH, epoch->epoch);
    }
    return AGENT_IDLE;
}

static enum agent_kind next_report(struct look *look)
{
    const struct agent *agent = look->agent;
    const struct folder_view *view = &agent->view;
    for (uint32_t i = 0; i < look->job->epochs_count; i++) {
        const struct state_epoch *epoch = look->job->epochs[i];
        const struct state_shard *shard = state_shard(epoch, agent->node);
        if (shard == NULL || shard->published || epoch->epoch > view->current ||
            !contains(view->published, view->published_count, epoch->epoch)) {
            continue;
        }
        struct command *c = &look->action->command;
        *c = (struct command){.kind = COMMAND_PUBLISHED};
        c->published.job = look->job->id;
        c->published.epoch = epoch->epoch;
        c->published.node = agent->node;
        look->action->kind = AGENT_PROPOSE;
        look->action->epoch = epoch->epoch;
        return AGENT_PROPOSE;
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
        if (number < look->job->epoch_next &&
            (epoch == NULL || state_shard(epoch, look->agent->node) == NULL ||
             (state_epoch_committed(epoch) &&
              contains(view->published, view->published_count, number)))) {
            return files(look, AGENT_DISCARD, number);
        }
    }
    for (uint32_t i = 0; i < view->published_count; i++) {
        uint64_t number = view->published[i];
        if (number < look->job->epoch_next && number < view->current &&
            state_epoch(look->job, number) == NULL) {
            return files(look, AGENT_DELETE, number);
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
        return files(&look, AGENT_SCAN, 0);
    }
    enum agent_kind kind = next_abort(&look);
    kind = kind == AGENT_IDLE && caught_up ? next_publish(&look) : kind;
    kind = kind == AGENT_IDLE ? next_stage(&look) : kind;
    kind = kind == AGENT_IDLE ? next_vote(&look) : kind;
    kind = kind == AGENT_IDLE && caught_up ? next_report(&look) : kind;
    kind = kind == AGENT_IDLE && caught_up ? next_leftover(&look) : kind;
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
            memcpy(agent->staged_sha256, result->sha256, SHA256_SIZE);
            agent->staged_size = result->size;
        } else {
            agent->failed_epoch = action->epoch;
            size_t size = strnlen(result->err.text, sizeof(agent->failed_reason) - 1);
            memcpy(agent->failed_reason, result->err.text, size);
            agent->failed_reason[size] = '\0';
        }
    }
    if (action->kind == AGENT_PUBLISH &&
        (result->code == ERR_DAMAGED || result->code == ERR_NOT_FOUND)) {
        agent->lost_epoch = action->epoch;
    }
    return result->code;
}
