#include "control/placement.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

static bool same_host(const struct state_node *a, const struct state_node *b)
{
    size_t size = strcspn(a->address, ":");
    return size > 0 && size == strcspn(b->address, ":") &&
           memcmp(a->address, b->address, size) == 0;
}

/* Whether a holder lives on the node's address already. */
static bool host_taken(const struct state *state, const struct state_shard *shard,
                       const struct state_node *node)
{
    for (uint32_t i = 0; i < shard->holders_count; i++) {
        const struct state_node *holder = state_node(state, shard->holders[i]);
        if (holder != NULL && same_host(holder, node)) {
            return true;
        }
    }
    return false;
}

/* All nodes in the shard's order. */
static uint32_t in_order(const struct state *state, const struct state_epoch *epoch, uint32_t rank,
                         const struct state_node *nodes[STATE_NODES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        const struct state_node *node =
            state_node(state, epoch->shards[(rank + i) % epoch->shards_count].node);
        if (node != NULL) {
            nodes[count++] = node;
        }
    }
    for (int arbiters = 0; arbiters < 2; arbiters++) {
        for (uint32_t i = 0; i < state->nodes_count; i++) {
            const struct state_node *node = &state->nodes[i];
            if (state_shard(epoch, node->id) == NULL &&
                (node->role == ROLE_ARBITER) == (arbiters == 1)) {
                nodes[count++] = node;
            }
        }
    }
    return count;
}

uint32_t placement_next(const struct state *state, const struct state_epoch *epoch, uint32_t rank,
                        uint64_t live)
{
    const struct state_node *nodes[STATE_NODES_MAX];
    const struct state_shard *shard = &epoch->shards[rank];
    ASSERT(rank < epoch->shards_count);
    uint32_t count = in_order(state, epoch, rank, nodes);
    uint32_t shared = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = nodes[i]->id;
        if (!state_node_in(nodes[i]) || (live >> (id - 1) & 1) == 0 ||
            state_shard_held(shard, id)) { /* It may be removed since it was heard. */
            continue;
        }
        if (!host_taken(state, shard, nodes[i])) {
            return id;
        }
        shared = shared == 0 ? id : shared;
    }
    return shared;
}

void placement_begin(const struct state *state, struct state_epoch *epoch, uint32_t rank,
                     uint64_t live, uint32_t replicas)
{
    struct state_shard *shard = &epoch->shards[rank];
    ASSERT(shard->holders_count == 0);
    shard->holders[shard->holders_count++] = shard->node;
    while (shard->copies < replicas && shard->holders_count < COMMAND_HOLDERS_MAX) {
        uint32_t node = placement_next(state, epoch, rank, live);
        if (node == 0) {
            break;
        }
        shard->holders[shard->holders_count++] = node;
        shard->copies++;
    }
}
