/* The entries about who is in the cluster: a node's start, a member that is expected, joins, is
 * drained, is removed, and the survivor that goes on alone. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "control/state_entry.h"

static const uint8_t no_uuid[COMMAND_UUID_SIZE];

static bool is_set(const uint8_t uuid[COMMAND_UUID_SIZE])
{
    return memcmp(uuid, no_uuid, COMMAND_UUID_SIZE) != 0;
}

static uint64_t bit_of(uint32_t node)
{
    return UINT64_C(1) << (node - 1);
}

/* ---- places ---- */

static uint64_t bits_of_epoch(const struct state_epoch *epoch)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; epoch != NULL && i < epoch->shards_count; i++) {
        bits |= bit_of(epoch->shards[i].node);
        for (uint32_t k = 0; k < epoch->shards[i].holders_count; k++) {
            bits |= bit_of(epoch->shards[i].holders[k]);
        }
    }
    return bits;
}

/* Places that a job or an epoch still names: nobody else may be called so yet. */
static uint64_t named_places(const struct state *state)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        const struct state_job *job = state->jobs[i];
        bits |= bits_of_epoch(job->open);
        for (uint32_t k = 0; k < job->epochs_count; k++) {
            bits |= bits_of_epoch(job->epochs[k]);
        }
        for (uint32_t k = 0; k < job->participants_count; k++) {
            bits |= bit_of(job->participants[k].node);
        }
    }
    return bits;
}

/* May that identity have the place? A fresh one, or the next after one that was removed. */
static bool is_free(const struct state *state, uint32_t node, uint32_t life)
{
    const struct state_node *known = state_node(state, node);
    return known == NULL || (known->standing == STANDING_REMOVED && life > known->life &&
                             (named_places(state) & bit_of(node)) == 0);
}

bool state_free_place(const struct state *state, uint64_t taken, uint32_t *ret_node,
                      uint32_t *ret_life)
{
    for (int turn = 0; turn < 2; turn++) { /* those that nobody had first */
        for (uint32_t node = 1; node <= STATE_NODES_MAX; node++) {
            const struct state_node *known = state_node(state, node);
            uint32_t life = known == NULL ? 0 : known->life + 1;
            if ((taken & bit_of(node)) == 0 && (known == NULL) == (turn == 0) &&
                life <= COMMAND_LIFE_MAX && is_free(state, node, life)) {
                *ret_node = node;
                *ret_life = life;
                return true;
            }
        }
    }
    return false;
}

static struct state_node *put_node(struct state *state, uint32_t id)
{
    struct state_node *known = state_node_edit(state, id);
    if (known != NULL) {
        *known = (struct state_node){.id = id};
        return known;
    }
    ASSERT(state->nodes_count < STATE_NODES_MAX); /* Ids are 1 .. 64 and each is there once. */
    uint32_t at = state->nodes_count++;
    for (; at > 0 && state->nodes[at - 1].id > id; at--) {
        state->nodes[at] = state->nodes[at - 1];
    }
    state->nodes[at] = (struct state_node){.id = id};
    return &state->nodes[at];
}

void state_wanted_group(const struct state *state, const struct control_group *now,
                        struct control_group *ret_wanted)
{
    struct control_group wanted = *now;
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        const struct state_node *node = &state->nodes[i];
        for (uint32_t k = wanted.count; k > 0; k--) { /* an identity before, or one removed */
            uint32_t id = wanted.items[k - 1].id;
            if (member_place(id) == node->id &&
                (id != member_id(node->id, node->life) || !state_node_in(node))) {
                group_drop(&wanted, id);
            }
        }
    }
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        const struct state_node *node = &state->nodes[i];
        uint32_t id = member_id(node->id, node->life);
        if (!state_node_in(node)) {
            continue;
        }
        bool votes = node->role != ROLE_SPARE &&
                     (group_is_voter(&wanted, id) || group_voters(&wanted) < CONTROL_VOTERS_MAX);
        group_set(&wanted, id, votes);
    }
    *ret_wanted = group_voters(&wanted) == 0 ? *now : wanted;
}

bool state_is_removed(const struct state *state, uint32_t place, uint32_t life)
{
    const struct state_node *known = state_node(state, place);
    return known != NULL &&
           (known->life > life || (known->life == life && known->standing == STANDING_REMOVED));
}

/* ---- entries ---- */

enum state_outcome state_on_node(const struct entry *entry, const struct command_node *c)
{
    struct state *state = entry->state;
    struct state_node *node = state_node_edit(state, c->node);
    if (node != NULL && (node->standing != STANDING_IN || node->life != c->life ||
                         (is_set(node->uuid) && is_set(c->uuid) &&
                          memcmp(node->uuid, c->uuid, COMMAND_UUID_SIZE) != 0))) {
        return state_ignored(entry,
                             "node %" PRIu32 " '%s' is not that identity, or is not in the cluster",
                             c->node, c->name);
    }
    if (node == NULL && c->life != 0) {
        return state_ignored(entry, "node %" PRIu32 " '%s' was never let in", c->node, c->name);
    }
    if (node != NULL && c->incarnation <= node->incarnation) {
        return state_ignored(entry, "node %" PRIu32 ": incarnation %" PRIu64 " is not newer",
                             c->node, c->incarnation);
    }
    bool is_new = node == NULL || node->incarnation == 0;
    bool drained = node != NULL && node->drained;
    uint8_t role = node != NULL && node->incarnation == 0 ? node->role : c->role;
    uint8_t uuid[COMMAND_UUID_SIZE];
    memcpy(uuid, node != NULL && is_set(node->uuid) ? node->uuid : c->uuid, sizeof(uuid));
    node = put_node(state, c->node);
    node->life = c->life;
    node->incarnation = c->incarnation;
    node->role = role;
    node->standing = STANDING_IN;
    node->drained = drained;
    node->seen_ms = entry->wall_ms;
    memcpy(node->uuid, uuid, sizeof(node->uuid));
    memcpy(node->name, c->name, sizeof(node->name));
    memcpy(node->address, c->address, sizeof(node->address));
    memcpy(node->device, c->device, sizeof(node->device));
    memcpy(node->binding, c->binding, sizeof(node->binding));
    char reason[COMMAND_REASON_SIZE];
    (void)snprintf(reason, sizeof(reason), "node '%s' has restarted", node->name);
    for (uint32_t i = 0; !is_new && i < state->jobs_count; i++) {
        if (!state_job_ended(state->jobs[i])) {
            state_without_node(entry, state->jobs[i], c->node, reason);
        }
    }
    return STATE_CHANGED;
}

/* Out, for good: nothing waits for it any more. */
static void put_out(const struct entry *entry, struct state_node *node, const char *reason)
{
    struct state *state = entry->state;
    node->standing = STANDING_REMOVED;
    node->drained = false;
    state_copies_without(entry, node->id);
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        struct state_job *job = state->jobs[i];
        if (!state_job_ended(job)) {
            state_without_node(entry, job, node->id, reason);
        }
        if (job->hold == HOLD_NODE && job->hold_node == node->id) {
            job->hold = HOLD_NONE; /* It will not return. */
        }
    }
}

static uint32_t in_count(const struct state *state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        count += state_node_in(&state->nodes[i]) && state->nodes[i].role != ROLE_SPARE ? 1 : 0;
    }
    return count;
}

enum state_outcome state_on_remove(const struct entry *entry, const struct command_remove *c)
{
    struct state_node *node = state_node_edit(entry->state, c->node);
    if (node == NULL && c->life == 0 && in_count(entry->state) > 0) {
        node = put_node(entry->state, c->node); /* It never came. */
        node->role = ROLE_TRAINER;
        node->standing = STANDING_REMOVED;
        memcpy(node->name, c->name, sizeof(node->name));
        return STATE_CHANGED;
    }
    if (node == NULL || node->life != c->life || node->standing == STANDING_REMOVED) {
        return state_ignored(entry, "node %" PRIu32 " is not there or out already", c->node);
    }
    if (state_node_in(node) && node->role != ROLE_SPARE && in_count(entry->state) == 1) {
        return state_ignored(entry, "node '%s' is the last one that votes", node->name);
    }
    put_out(entry, node, c->reason);
    return STATE_CHANGED;
}

/* Whom the entry speaks of and who is not out: by identity, else by name. */
static struct state_node *find_member(const struct entry *entry, const struct command_member *c)
{
    struct state *state = entry->state;
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        struct state_node *node = &state->nodes[i];
        if (is_set(c->uuid) && memcmp(node->uuid, c->uuid, COMMAND_UUID_SIZE) == 0) {
            return node;
        }
    }
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        struct state_node *node = &state->nodes[i];
        if (node->standing != STANDING_REMOVED && strcmp(node->name, c->name) == 0) {
            return node;
        }
    }
    return NULL;
}

static enum state_outcome join(const struct entry *entry, struct state_node *node,
                               const struct command_member *c)
{
    node->standing = STANDING_IN;
    memcpy(node->uuid, c->uuid, sizeof(node->uuid));
    if (c->address[0] != '\0') {
        memcpy(node->address, c->address, sizeof(node->address));
    }
    node->seen_ms = entry->wall_ms;
    return STATE_CHANGED;
}

enum state_outcome state_on_member(const struct entry *entry, const struct command_member *c)
{
    struct state_node *node = find_member(entry, c);
    bool same =
        node != NULL && is_set(c->uuid) && memcmp(node->uuid, c->uuid, COMMAND_UUID_SIZE) == 0;
    if (same) {
        return state_ignored(entry, "node '%s' is known by that identity", node->name);
    }
    if ((c->how != MEMBER_EXPECT) != is_set(c->uuid)) {
        return state_ignored(entry, "node '%s': an identity is missing, or not asked for", c->name);
    }
    if (c->how == MEMBER_JOIN) {
        if (node == NULL || node->standing != STANDING_EXPECTED) {
            return state_ignored(entry, "nobody expects a node '%s'", c->name);
        }
        return join(entry, node, c);
    }
    if (node != NULL && node->standing == STANDING_EXPECTED) { /* The newer word counts. */
        node->role = c->role;
        memcpy(node->address, c->address, sizeof(node->address));
        return c->how == MEMBER_ADMIT ? join(entry, node, c) : STATE_CHANGED;
    }
    if (!is_free(entry->state, c->node, c->life)) {
        return state_ignored(entry, "place %" PRIu32 " is not free", c->node);
    }
    if (node != NULL) { /* One of that name is in: it is replaced. */
        char reason[COMMAND_REASON_SIZE];
        if (node->role != ROLE_SPARE && in_count(entry->state) == 1) {
            return state_ignored(entry, "node '%s' is the last one that votes", node->name);
        }
        (void)snprintf(reason, sizeof(reason), "node '%s' is replaced by a new one of its name",
                       node->name);
        put_out(entry, node, reason);
    }
    node = put_node(entry->state, c->node);
    node->life = c->life;
    node->role = c->role;
    node->standing = STANDING_EXPECTED;
    node->seen_ms = entry->wall_ms;
    memcpy(node->name, c->name, sizeof(node->name));
    memcpy(node->address, c->address, sizeof(node->address));
    return c->how == MEMBER_ADMIT ? join(entry, node, c) : STATE_CHANGED;
}

enum state_outcome state_on_drain(const struct entry *entry, const struct command_drain *c)
{
    struct state_node *node = state_node_edit(entry->state, c->node);
    if (!state_node_in(node) || node->life != c->life || node->drained == c->drained) {
        return state_ignored(entry, "node %" PRIu32 " is not in, or is so already", c->node);
    }
    node->drained = c->drained;
    return STATE_CHANGED;
}

enum state_outcome state_on_recover(const struct entry *entry, const struct command_recover *c)
{
    struct state *state = entry->state;
    const struct state_node *survivor = state_node(state, c->node);
    if (survivor == NULL || survivor->life != c->life) {
        return state_ignored(entry, "node %" PRIu32 " is not known", c->node);
    }
    char reason[COMMAND_REASON_SIZE];
    (void)snprintf(reason, sizeof(reason), "node '%s' goes on without a majority of the others",
                   survivor->name);
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        if (state->nodes[i].id != c->node && state->nodes[i].standing != STANDING_REMOVED) {
            put_out(entry, &state->nodes[i], reason);
        }
    }
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        if (state_job_active(state->jobs[i])) { /* Even one that only the survivor works on. */
            state_end_generation(entry, state->jobs[i], reason);
        }
    }
    state->generation++; /* What the others still say is of an older one. */
    return STATE_CHANGED;
}
