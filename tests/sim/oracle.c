/* What must hold in every world: Figure 3.2 of the dissertation, and that no promise outruns a
 * disk. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "tests/sim/world_core.h"

#define TERMS_MAX 1000000U

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t words[2] = {a, b};
    return hash_xxh3(words, sizeof(words)) | 1U;
}

static void *grown(void *items, size_t *capacity, uint64_t index, size_t size)
{
    if (index < *capacity) {
        return items;
    }
    size_t wanted = *capacity == 0 ? 256 : *capacity;
    while (wanted <= index) {
        wanted *= 2;
    }
    char *made = realloc(items, wanted * size);
    ASSERT(made != NULL);
    memset(made + *capacity * size, 0, (wanted - *capacity) * size);
    *capacity = wanted;
    return made;
}

void oracle_done(struct oracle *oracle)
{
    free(oracle->truths);
    free(oracle->knowns);
    free(oracle->leaders);
    free(oracle->votes);
    *oracle = (struct oracle){0};
}

static struct truth *truth_at(struct oracle *oracle, uint64_t index)
{
    oracle->truths =
        grown(oracle->truths, &oracle->truths_capacity, index, sizeof(*oracle->truths));
    return &oracle->truths[index];
}

/* --- durability: the account of what each disk was told to hold --------------------------------
 */
static uint64_t durable_term(const struct durable *durable, uint64_t index)
{
    return index <= durable->last && index < durable->capacity ? durable->terms[index] : 0;
}

static void durable_put(struct durable *durable, uint64_t index, uint64_t term)
{
    durable->terms = grown(durable->terms, &durable->capacity, index, sizeof(*durable->terms));
    durable->terms[index] = term;
    durable->last = index;
}

/* A write that happened. */
void oracle_on_durable(struct node *node, const struct control_write *write)
{
    struct durable *durable = &node->durable;
    struct oracle *oracle = &node->world->oracle;
    if (write->install) {
        durable->last = write->snapshot_index;
        durable_put(durable, write->snapshot_index, write->snapshot_term);
    }
    if (write->snapshot) {
        durable->snapshot = write->snapshot_index;
    }
    if (write->hard) {
        durable->term = write->term;
        durable->vote = write->vote;
    }
    struct reader reader = {write->entries.bytes, write->entries.size, false};
    for (size_t i = 0; i < write->entries_count; i++) {
        struct message_entry entry;
        ASSERT(message_read_entry(&reader, &entry, NULL) == 0);
        uint64_t index = write->append_first + i;
        uint64_t before = durable_term(durable, index);
        if (index <= oracle->truths_last && oracle->truths[index].hash != 0 && before != 0 &&
            before == oracle->truths[index].term && before != entry.term) {
            world_violation(node->world,
                            "node %u replaced the committed entry %" PRIu64 " of term %" PRIu64
                            " by one of term %" PRIu64,
                            node->number, index, before, entry.term);
        }
        durable_put(durable, index, entry.term);
    }
}

/* A crash while this write was being done, or before it was reported. */
void oracle_on_open_write(struct node *node, const struct control_write *write)
{
    struct durable *durable = &node->durable;
    durable->open_hard = durable->open_hard || write->hard;
    uint64_t first = write->install ? 1 : write->append_first;
    if (first != 0 && (durable->open_from == 0 || first < durable->open_from)) {
        durable->open_from = first;
    }
}

/* After a start: what was reported durable must be there. */
void oracle_on_recovered(struct node *node)
{
    struct durable *durable = &node->durable;
    const struct raft *raft = control_raft(node->control);
    const struct raft_log *log = raft_log(raft);
    uint64_t base = log->base_index;
    if (base < durable->snapshot) {
        world_violation(node->world, "node %u lost its durable snapshot of entry %" PRIu64,
                        node->number, durable->snapshot);
    }
    if (raft_term(raft) < durable->term ||
        (raft_term(raft) == durable->term && !durable->open_hard &&
         raft_vote(raft) != durable->vote)) {
        world_violation(
            node->world,
            "node %u forgot its durable term %" PRIu64 " and vote %u: it has %" PRIu64 ", %u",
            node->number, durable->term, durable->vote, raft_term(raft), raft_vote(raft));
    }
    for (uint64_t index = base + 1; index <= durable->last; index++) {
        if (durable->open_from != 0 && index >= durable->open_from) {
            break;
        }
        if (index > raft_log_last(log) ||
            raft_log_term(log, index) != durable_term(durable, index)) {
            world_violation(node->world, "node %u lost its durable entry %" PRIu64, node->number,
                            index);
            break;
        }
    }
    durable->term = raft_term(raft);
    durable->vote = raft_vote(raft);
    durable->snapshot = base;
    durable->last = base;
    durable->open_from = 0;
    durable->open_hard = false;
    if (base > 0) {
        durable_put(durable, base, log->base_term);
    }
    for (uint64_t index = base + 1; index <= raft_log_last(log); index++) {
        durable_put(durable, index, raft_log_term(log, index));
    }
}

/* --- what leaves a node ------------------------------------------------------------------------
 */
static void check_vote(struct node *node, uint64_t term, uint32_t candidate, bool durable_needed)
{
    struct oracle *oracle = &node->world->oracle;
    if (term >= TERMS_MAX) {
        return;
    }
    uint32_t self = world_id(node->world, node->number);
    size_t at = (size_t)term * node->world->options.nodes + node->number;
    oracle->votes = grown(oracle->votes, &oracle->votes_capacity, at, sizeof(*oracle->votes));
    struct vote *vote = &oracle->votes[at];
    if (vote->voter == self && vote->candidate != candidate) {
        world_violation(node->world, "node %u votes in term %" PRIu64 " for %u, and before for %u",
                        node->number, term, candidate, vote->candidate);
    }
    *vote = (struct vote){self, candidate};
    const struct durable *durable = &node->durable;
    if (durable_needed &&
        (durable->term < term || (durable->term == term && durable->vote != candidate))) {
        world_violation(node->world,
                        "node %u tells its vote of term %" PRIu64 " before it is durable",
                        node->number, term);
    }
}

void oracle_on_send(struct node *node, uint32_t to, const struct raft_message *message)
{
    const struct durable *durable = &node->durable;
    if (message->kind == MESSAGE_VOTE) {
        check_vote(node, message->term, world_id(node->world, node->number), true);
    } else if (message->kind == MESSAGE_VOTE_ANSWER && message->ok) {
        check_vote(node, message->term, to, true);
    } else if (message->kind == MESSAGE_APPEND_ANSWER && message->ok) {
        if (message->index > durable->snapshot && durable_term(durable, message->index) == 0) {
            world_violation(node->world,
                            "node %u answers for entry %" PRIu64 " before it is durable",
                            node->number, message->index);
        }
        if (message->term > durable->term) {
            world_violation(node->world,
                            "node %u answers in term %" PRIu64 " before that is durable",
                            node->number, message->term);
        }
    }
}

/* --- logs --------------------------------------------------------------------------------------
 */
static struct known *known_slot(struct oracle *oracle, uint64_t index, uint64_t term)
{
    size_t mask = oracle->knowns_capacity - 1;
    size_t at = (size_t)mix(index, term) & mask;
    while (oracle->knowns[at].term != 0 &&
           (oracle->knowns[at].index != index || oracle->knowns[at].term != term)) {
        at = (at + 1) & mask;
    }
    return &oracle->knowns[at];
}

static void knowns_grow(struct oracle *oracle)
{
    if (2 * oracle->knowns_count < oracle->knowns_capacity) {
        return;
    }
    struct known *old = oracle->knowns;
    size_t old_capacity = oracle->knowns_capacity;
    oracle->knowns_capacity = old_capacity == 0 ? 1024 : 2 * old_capacity;
    oracle->knowns = calloc(oracle->knowns_capacity, sizeof(*oracle->knowns));
    ASSERT(oracle->knowns != NULL);
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].term != 0) {
            *known_slot(oracle, old[i].index, old[i].term) = old[i];
        }
    }
    free(old);
}

/* Log matching (3.5): one entry for each index and term, behind one previous term. */
void oracle_on_persist(struct node *node, const struct control_write *write)
{
    struct oracle *oracle = &node->world->oracle;
    if (node->control == NULL || write->entries_count == 0) {
        return;
    }
    uint64_t previous =
        raft_log_term(raft_log(control_raft(node->control)), write->append_first - 1);
    struct reader reader = {write->entries.bytes, write->entries.size, false};
    for (size_t i = 0; i < write->entries_count; i++) {
        struct message_entry entry;
        ASSERT(message_read_entry(&reader, &entry, NULL) == 0);
        uint64_t index = write->append_first + i;
        uint64_t hash = mix(hash_xxh3(entry.bytes, entry.size), entry.kind);
        knowns_grow(oracle);
        struct known *known = known_slot(oracle, index, entry.term);
        if (known->term == 0) {
            *known = (struct known){index, entry.term, hash, previous};
            oracle->knowns_count++;
        } else if (known->hash != hash || known->previous_term != previous) {
            world_violation(node->world,
                            "log matching: node %u has another entry %" PRIu64 " of term %" PRIu64,
                            node->number, index, entry.term);
        }
        previous = entry.term;
    }
}

/* --- state machines ----------------------------------------------------------------------------
 */
static bool is_held(const struct world *world, const struct control_group *group, uint64_t index,
                    uint64_t term)
{
    uint32_t holders = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        unsigned machine = world_node_of(world, member_place(group->items[i].id));
        bool lost = machine == WORLD_NODES_MAX ||
                    group->items[i].id != world_id(world, machine); /* it may have had it */
        const struct durable *durable = lost ? NULL : &world->nodes[machine].durable;
        bool here = !lost && (durable->snapshot >= index || durable_term(durable, index) == term);
        holders += group->items[i].voter && (here || lost) ? 1 : 0;
    }
    return 2 * holders > group_voters(group);
}

/* The leader's group decided, or the one that was agreed on before its newest. Another node may
 * have heard of it first, and need not know either where groups change. */
static void check_majority(struct node *node, uint64_t index, uint64_t term)
{
    struct world *world = node->world;
    const struct raft *raft = control_raft(node->control);
    bool changes = world->options.member_ms != 0 || world->options.wipe_ms != 0 ||
                   world->stats.group_changes > 1 || world->stats.wipes > 0 ||
                   !raft_group_settled(raft);
    if ((changes && raft_role(raft) != RAFT_LEADER) ||
        is_held(world, raft_group(raft), index, term) ||
        (changes && is_held(world, &world->agreed, index, term))) {
        return;
    }
    world_violation(world,
                    "entry %" PRIu64 " of term %" PRIu64
                    " is applied by node %u while no majority of its group holds it",
                    index, term, node->number);
}

void oracle_on_apply(struct node *node, uint64_t index, uint64_t term, const uint8_t *command,
                     size_t size)
{
    struct oracle *oracle = &node->world->oracle;
    if (index <= node->chain_index) {
        world_violation(node->world, "node %u applies entry %" PRIu64 " after %" PRIu64,
                        node->number, index, node->chain_index);
    }
    uint64_t hash = mix(hash_xxh3(command, size), term);
    node->chain = mix(mix(node->chain, index), hash);
    node->chain_index = index;
    struct truth *truth = truth_at(oracle, index);
    if (truth->hash == 0) {
        truth->hash = hash;
        truth->term = term;
        truth->chain = node->chain;
        oracle->truths_last = index > oracle->truths_last ? index : oracle->truths_last;
        node->world->stats.entries_committed++;
        check_majority(node, index, term);
    } else if (truth->hash != hash || truth->chain != node->chain) {
        world_violation(node->world,
                        "state machine safety: node %u applies another command at %" PRIu64
                        " (term %" PRIu64 ", first term %" PRIu64 ")",
                        node->number, index, term, truth->term);
    }
}

/* A snapshot written or loaded at an index has the history, and the bytes, of everybody else's. */
void oracle_on_snapshot(struct node *node, uint64_t index, uint64_t chain, const uint8_t *bytes,
                        size_t size)
{
    struct oracle *oracle = &node->world->oracle;
    struct truth *truth = truth_at(oracle, index);
    uint64_t hash = mix(hash_xxh3(bytes, size), 7);
    if (truth->snapshot_hash == 0) {
        truth->snapshot_hash = hash;
    } else if (truth->snapshot_hash != hash) {
        world_violation(node->world, "node %u has another snapshot of entry %" PRIu64, node->number,
                        index);
    }
    uint64_t at = index < oracle->truths_last ? index : oracle->truths_last;
    while (at > 0 && oracle->truths[at].hash == 0) {
        at--;
    }
    if (at > 0 && oracle->truths[at].chain != chain) {
        world_violation(node->world,
                        "the snapshot of entry %" PRIu64 " at node %u has another "
                        "history",
                        index, node->number);
    }
}

/* --- after every event of a node ---------------------------------------------------------------
 */
void oracle_look(struct node *node)
{
    struct oracle *oracle = &node->world->oracle;
    const struct raft *raft = control_raft(node->control);
    if (raft_role(raft) != RAFT_LEADER) {
        node->led_term = 0;
        return;
    }
    uint64_t term = raft_term(raft);
    uint64_t last = raft_log_last(raft_log(raft));
    if (term < TERMS_MAX) {
        oracle->leaders =
            grown(oracle->leaders, &oracle->leaders_capacity, term, sizeof(*oracle->leaders));
        if (oracle->leaders[term] == 0) {
            oracle->leaders[term] = world_id(node->world, node->number);
            node->world->stats.elections++;
        } else if (oracle->leaders[term] != world_id(node->world, node->number)) {
            world_violation(node->world, "election safety: identities %u and %u lead term %" PRIu64,
                            oracle->leaders[term], world_id(node->world, node->number), term);
        }
    }
    if (node->led_term == term && last < node->led_last) {
        world_violation(node->world,
                        "leader append-only: node %u's log fell from %" PRIu64 " to %" PRIu64,
                        node->number, node->led_last, last);
    }
    node->led_term = term;
    node->led_last = last;
}
