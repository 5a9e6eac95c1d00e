#include "control/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "control/state_edit.h"

/* ---- lifecycles ---- */

struct state_job *state_job_new(void)
{
    struct state_job *job = calloc(1, sizeof(*job));
    ASSERT(job != NULL);
    return job;
}

void state_job_free(struct state_job *job)
{
    if (job == NULL) {
        return;
    }
    free(job->text);
    state_epoch_free(job->open);
    for (uint32_t i = 0; i < job->epochs_count; i++) {
        state_epoch_free(job->epochs[i]);
    }
    free(job);
}

struct state_epoch *state_epoch_new(uint32_t shards_count)
{
    ASSERT(shards_count >= 1);
    ASSERT(shards_count <= STATE_NODES_MAX);
    struct state_epoch *epoch = calloc(1, sizeof(*epoch));
    ASSERT(epoch != NULL);
    epoch->shards = calloc(shards_count, sizeof(*epoch->shards));
    ASSERT(epoch->shards != NULL);
    epoch->shards_count = shards_count;
    return epoch;
}

void state_epoch_free(struct state_epoch *epoch)
{
    if (epoch != NULL) {
        free(epoch->shards);
        free(epoch);
    }
}

void state_init(struct state *state)
{
    *state = (struct state){.job_next = 1};
}

void state_done(struct state *state)
{
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        state_job_free(state->jobs[i]);
    }
    state_init(state);
}

/* ---- queries ---- */

const char *state_job_label(enum state_job_state job_state)
{
    switch (job_state) {
#define STATE_JOB_CASE(name, value, label) \
    case name:                             \
        return label;
        STATE_JOB_MAP(STATE_JOB_CASE)
#undef STATE_JOB_CASE
    default:
        return "unknown";
    }
}

bool state_job_ended(const struct state_job *job)
{
    return job->state == JOB_SUCCEEDED || job->state == JOB_FAILED || job->state == JOB_CANCELLED;
}

bool state_job_active(const struct state_job *job)
{
    return job->state == JOB_PLACED || job->state == JOB_LOADING || job->state == JOB_RUNNING ||
           job->state == JOB_FINISHING;
}

struct state_node *state_node_edit(struct state *state, uint32_t node)
{
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        if (state->nodes[i].id == node) {
            return &state->nodes[i];
        }
    }
    return NULL;
}

const struct state_node *state_node(const struct state *state, uint32_t node)
{
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        if (state->nodes[i].id == node) {
            return &state->nodes[i];
        }
    }
    return NULL;
}

bool state_node_in(const struct state_node *node)
{
    return node != NULL && node->standing == STANDING_IN;
}

const struct state_node *state_node_named(const struct state *state, const char *name)
{
    const struct state_node *found = NULL;
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        const struct state_node *node = &state->nodes[i];
        if (strcmp(node->name, name) == 0 &&
            (found == NULL || node->standing != STANDING_REMOVED || node->id > found->id)) {
            found = node;
            if (node->standing != STANDING_REMOVED) {
                return found;
            }
        }
    }
    return found;
}

const char *state_node_name(const struct state *state, uint32_t node)
{
    static _Thread_local char text[32];
    const struct state_node *known = state_node(state, node);
    if (known != NULL && known->name[0] != '\0') {
        return known->name;
    }
    (void)snprintf(text, sizeof(text), "node %" PRIu32, node);
    return text;
}

struct state_job *state_job_edit(struct state *state, uint64_t id)
{
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        if (state->jobs[i]->id == id) {
            return state->jobs[i];
        }
    }
    return NULL;
}

const struct state_job *state_job(const struct state *state, uint64_t id)
{
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        if (state->jobs[i]->id == id) {
            return state->jobs[i];
        }
    }
    return NULL;
}

const struct state_job *state_job_by_uuid(const struct state *state,
                                          const uint8_t uuid[COMMAND_UUID_SIZE])
{
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        if (memcmp(state->jobs[i]->uuid, uuid, COMMAND_UUID_SIZE) == 0) {
            return state->jobs[i];
        }
    }
    return NULL;
}

int state_find_job(const struct state *state, const char *name_or_id,
                   const struct state_job **ret_job, struct err *err)
{
    const struct state_job *found = NULL;
    size_t digits = strspn(name_or_id, "0123456789");
    if (digits > 0 && digits < 20 && name_or_id[digits] == '\0') {
        found = state_job(state, strtoull(name_or_id, NULL, 10));
    }
    for (uint32_t i = state->jobs_count; found == NULL && i > 0; i--) {
        if (strcmp(state->jobs[i - 1]->name, name_or_id) == 0) {
            found = state->jobs[i - 1];
        }
    }
    if (found == NULL) {
        return err_set(err, ERR_NOT_FOUND,
                       "no job '%s': 'coppeliusctl jobs' lists those that there are", name_or_id);
    }
    *ret_job = found;
    return 0;
}

const struct state_job *state_active_job(const struct state *state)
{
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        if (state_job_active(state->jobs[i])) {
            return state->jobs[i];
        }
    }
    return NULL;
}

const struct state_job *state_next_job(const struct state *state)
{
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        const struct state_job *job = state->jobs[i];
        if (job->state == JOB_SUBMITTED || (job->state == JOB_PAUSED && job->hold == HOLD_NONE)) {
            return job;
        }
    }
    return NULL;
}

int state_rank(const struct state_job *job, uint32_t node)
{
    for (uint32_t i = 0; i < job->participants_count; i++) {
        if (job->participants[i].node == node) {
            return (int)i;
        }
    }
    return -1;
}

const struct state_epoch *state_epoch(const struct state_job *job, uint64_t epoch)
{
    if (job->open != NULL && job->open->epoch == epoch) {
        return job->open;
    }
    for (uint32_t i = 0; i < job->epochs_count; i++) {
        if (job->epochs[i]->epoch == epoch) {
            return job->epochs[i];
        }
    }
    return NULL;
}

const struct state_epoch *state_newest_epoch(const struct state_job *job)
{
    return job->epochs_count == 0 ? NULL : job->epochs[job->epochs_count - 1];
}

bool state_epoch_committed(const struct state_epoch *epoch)
{
    return epoch->decided_index != 0;
}

const struct state_shard *state_shard(const struct state_epoch *epoch, uint32_t node)
{
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        if (epoch->shards[i].node == node) {
            return &epoch->shards[i];
        }
    }
    return NULL;
}

uint32_t state_votes(const struct state_epoch *epoch)
{
    uint32_t votes = 0;
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        votes += epoch->shards[i].prepared ? 1 : 0;
    }
    return votes;
}

bool state_epoch_published(const struct state_epoch *epoch)
{
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        if (!epoch->shards[i].published) {
            return false;
        }
    }
    return state_epoch_committed(epoch);
}

bool state_shard_held(const struct state_shard *shard, uint32_t node)
{
    for (uint32_t i = 0; i < shard->holders_count; i++) {
        if (shard->holders[i] == node) {
            return true;
        }
    }
    return false;
}

bool state_epoch_safe(const struct state_epoch *epoch)
{
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        if (epoch->shards[i].holders_count < 1 + epoch->shards[i].copies) {
            return false;
        }
    }
    return state_epoch_published(epoch);
}

uint64_t state_job_size(const struct state_job *job)
{
    uint64_t size = job->text_size + 4096U;
    for (uint32_t i = 0; i < job->epochs_count; i++) {
        size += 256U + 128U * job->epochs[i]->shards_count;
    }
    return size + (job->open == NULL ? 0 : 256U + 128U * job->open->shards_count);
}
