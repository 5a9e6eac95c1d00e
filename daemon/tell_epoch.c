/* What facts.h says of a job's checkpoints. */
#include <stdio.h>
#include <string.h>

#include "daemon/core.h"

size_t tell_epoch_ids(void *context, uint64_t id, uint64_t *ret_epochs, size_t epochs_max)
{
    struct daemon *daemon = context;
    const struct state_job *job = state_job(&daemon->state, id);
    size_t count = 0;
    if (job == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < job->epochs_count && count < epochs_max; i++) {
        ret_epochs[count++] = job->epochs[i]->epoch;
    }
    if (job->open != NULL && count < epochs_max) {
        ret_epochs[count++] = job->open->epoch;
    }
    return count;
}

bool tell_epoch(void *context, uint64_t id, uint64_t number, struct facts_epoch *ret)
{
    struct daemon *daemon = context;
    const struct state_job *job = state_job(&daemon->state, id);
    const struct state_epoch *epoch = job != NULL ? state_epoch(job, number) : NULL;
    if (epoch == NULL) {
        return false;
    }
    memset(ret, 0, sizeof(*ret));
    char folder[FOLDER_PATH_SIZE];
    char path[FOLDER_PATH_SIZE];
    checkpoint_job_folder(job, folder);
    checkpoint_epoch_folder(folder, number, path);
    uint64_t current = publish_current(daemon, id);
    ret->epoch = number;
    ret->step = epoch->step;
    ret->generation = epoch->generation;
    bool committed = state_epoch_committed(epoch);
    (void)snprintf(ret->state, sizeof(ret->state), "%s", committed ? "published" : "publishing");
    ret->current = current == number;
    if (committed && publish_has(daemon, id, number)) {
        (void)snprintf(ret->folder, sizeof(ret->folder), "%s/%s", daemon->state_dir, path);
    }
    ret->committed_ms = (int64_t)epoch->decided_ms;
    tell_hex(epoch->parameter_sha256, ret->parameter_sha256);
    tell_hex(epoch->accumulator_sha256, ret->accumulator_sha256);
    (void)snprintf(ret->policy, sizeof(ret->policy), "%s", job->policy);
    ret->has_loss = committed;
    ret->loss = command_double_of(epoch->loss_bits);
    if (job->result.has_objective && job->result.epoch == number) {
        ret->has_objective = true;
        ret->objective = command_double_of(job->result.objective_bits);
    }
    for (uint32_t i = 0; i < epoch->shards_count && i < FACTS_NODES_MAX; i++) {
        const struct state_shard *shard = &epoch->shards[i];
        struct facts_shard *told = &ret->shards[ret->shards_count++];
        told->node_id = shard->node;
        (void)snprintf(told->node, sizeof(told->node), "%s",
                       state_node_name(&daemon->state, shard->node));
        checkpoint_shard_name(i, epoch->shards_count, told->name);
        tell_hex(shard->sha256, told->sha256);
        for (uint32_t k = 0; k < shard->holders_count && k < FACTS_COPIES_MAX; k++) {
            (void)snprintf(told->copies[told->copies_count++], FACTS_NAME_SIZE, "%s",
                           state_node_name(&daemon->state, shard->holders[k]));
        }
        told->copies_due = 1 + shard->copies;
        uint32_t others = shard->holders_count == 0 ? 0 : shard->holders_count - 1;
        ret->replicas = i == 0 || others < ret->replicas ? others : ret->replicas;
        if (committed) {
            (void)snprintf(told->here, sizeof(told->here), "%s",
                           publish_here(daemon, id, epoch, i));
        }
        told->size = shard->size;
        told->prepared = shard->prepared;
        told->published = shard->published;
        ret->bytes += shard->size;
    }
    return true;
}
