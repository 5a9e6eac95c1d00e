/* Who works, in the simulated world: a machine joins, another one is removed for good, a third one
 * loses its folder, log and all, and joins again as a new identity; nodes are drained and
 * undrained; elastic jobs go on with those who are there. The operator's wish is the world's
 * (world_want()), the agreed list the state machine's: both are said until they are so. */
#include <string.h>

#include "base/assert.h"
#include "tests/sim/publication_core.h"

#define REPEAT_MS 300U
#define ALONE_MS  3000U /* without a leader, until it asks whether it is a member */

/* One of the first, known to everybody before it has said a word. */
static bool is_first(const struct world *world, uint32_t id)
{
    return id == member_place(id) && id <= world_options(world)->voters;
}

static bool is_in(const struct pub_node *node, uint32_t id)
{
    const struct state_node *known = state_node(node->state, member_place(id));
    return known == NULL ? is_first(node->world, id)
                         : state_node_in(known) && member_id(known->id, known->life) == id;
}

bool pub_is_member(const struct pub_node *node, unsigned number)
{
    return is_in(node, world_id(node->world, number));
}

bool pub_is_out(const struct publication *all, unsigned number)
{
    return all->removed == number + 1;
}

bool pub_lost_is_in(const struct pub_node *node)
{
    return node->all->lost_id != 0 && is_in(node, node->all->lost_id);
}

/* Everybody who is wanted and not yet there: the last machine, who lost its disk. */
static void join(struct pub_node *node)
{
    for (unsigned i = 0; i < world_options(node->world)->nodes; i++) {
        uint32_t id = world_id(node->world, i);
        const struct state_node *known = state_node(node->state, member_place(id));
        if (!world_is_wanted(node->world, i) || is_first(node->world, id) ||
            (known != NULL && member_id(known->id, known->life) == id)) {
            continue;
        }
        struct command c = {.kind = COMMAND_MEMBER};
        c.member.how = MEMBER_ADMIT;
        c.member.node = member_place(id);
        c.member.life = id >> 8U;
        c.member.role = ROLE_TRAINER;
        c.member.uuid[0] = (uint8_t)member_place(id);
        c.member.uuid[1] = (uint8_t)(id >> 8U);
        c.member.name[0] = (char)('a' + (char)i);
        pub_propose(node, &c);
    }
}

static void remove_id(struct pub_node *node, uint32_t id)
{
    const struct state_node *known = state_node(node->state, member_place(id));
    if (!is_in(node, id) || (known == NULL && !is_first(node->world, id))) {
        return;
    }
    struct command c = {.kind = COMMAND_REMOVE};
    c.remove.node = member_place(id);
    c.remove.life = id >> 8U;
    c.remove.name[0] = known == NULL ? (char)('a' + (char)member_place(id) - 1) : known->name[0];
    pub_propose(node, &c);
}

/* Another machine has the identity, or waits to be let in with its place: the log gives each to one
 * alone, which a node that is not up to date does not know. */
static bool is_had(const struct world *world, unsigned machine, uint32_t id)
{
    for (unsigned i = 0; i < world_options(world)->nodes; i++) {
        if (i != machine &&
            (world_id(world, i) == id ||
             (world_place(world, i) == member_place(id) && world_is_wanted(world, i)))) {
            return true;
        }
    }
    return false;
}

/* The machine that lost its disk gets a place, as soon as one is free: one that nobody had, or that
 * of an identity which is gone and which no job names any more. Its name is the same: where nobody
 * has said REMOVE, letting it in does. */
static void rejoin(struct world *world)
{
    const struct pub_node *node = pub_informed(world);
    struct publication *all = world_context(world);
    const struct world_options *options = world_options(world);
    uint32_t place = 0;
    uint32_t life = 0;
    uint64_t taken = 0;
    if (all->lost == 0 || node == NULL || (!all->lost_replaced && pub_lost_is_in(node))) {
        return;
    }
    for (uint32_t i = 1; i <= options->nodes; i++) { /* who is yet to come has its place */
        taken |= state_node(node->state, i) == NULL ? UINT64_C(1) << (i - 1) : 0;
    }
    uint64_t fresh = ~UINT64_C(0);
    for (uint32_t i = 0; i < node->state->nodes_count; i++) {
        fresh &= ~(UINT64_C(1) << (node->state->nodes[i].id - 1));
    }
    bool reuse = rand_below(world_rand(world), 2) == 0 &&
                 state_free_place(node->state, taken | fresh, &place, &life);
    if (!reuse && !state_free_place(node->state, taken, &place, &life)) {
        return;
    }
    unsigned machine = all->lost - 1;
    if (is_had(world, machine, member_id(place, life))) {
        return;
    }
    all->lost = 0;
    all->counts.rejoins++;
    world_rejoin(world, machine, place, life, all->lost_voter);
}

/* What daemon/standing.c does: who was removed while it was away hears no leader, since nobody
 * sends it anything; it asks. An answer binds, whoever gives it (state_is_removed()). */
void pub_ask_tick(struct pub_node *node)
{
    uint64_t now = pub_now_ms(node);
    struct buf bytes = BUF_NONE;
    if (node->led_ms == 0 || control_leader(world_control(node->world, node->node)) != 0) {
        node->led_ms = now;
    }
    if (now - node->led_ms < ALONE_MS || now - node->asked_ms < REPEAT_MS) {
        return;
    }
    node->asked_ms = now;
    buf_put_u8(&bytes, MAIL_ASK);
    buf_put_u32(&bytes, world_id(node->world, node->node));
    for (unsigned to = 0; to < world_options(node->world)->nodes; to++) {
        if (to != node->node) {
            world_send(node->world, node->node, to, bytes.bytes, bytes.size);
        }
    }
    buf_done(&bytes);
}

void pub_on_ask(struct pub_node *node, unsigned from, struct reader *in)
{
    struct buf bytes = BUF_NONE;
    uint32_t id = read_u32(in);
    bool out = state_is_removed(node->state, member_place(id), id >> 8U) ||
               (node->all->options.mutant == MUTANT_UNKNOWN_OUT && !is_in(node, id));
    ASSERT(!in->failed);
    if (!out) {
        return;
    }
    buf_put_u8(&bytes, MAIL_OUT);
    buf_put_u32(&bytes, id);
    world_send(node->world, node->node, from, bytes.bytes, bytes.size);
    buf_done(&bytes);
}

void pub_on_out(struct pub_node *node, struct reader *in)
{
    uint32_t id = read_u32(in);
    ASSERT(!in->failed);
    if (id != world_id(node->world, node->node) || node->out) {
        return; /* Of an identity before. */
    }
    if (world_is_wanted(node->world, node->node)) {
        world_violation(node->world, "node %u is told that it was removed, and is wanted",
                        node->node);
    }
    node->out = true;
    node->all->counts.told++;
}

static void drain(struct pub_node *node, unsigned number, bool drained)
{
    uint32_t id = world_id(node->world, number);
    const struct state_node *known = state_node(node->state, member_place(id));
    if (!state_node_in(known) || known->drained == drained || !is_in(node, id)) {
        return;
    }
    struct command c = {.kind = COMMAND_DRAIN};
    c.drain.node = known->id;
    c.drain.life = known->life;
    c.drain.drained = drained;
    pub_propose(node, &c);
}

/* The operator acts on the whole world, at most once each. */
static void wish(struct pub_node *node)
{
    struct publication *all = node->all;
    struct rand *rand = world_rand(node->world);
    const struct world_options *options = world_options(node->world);
    if (!all->joining && options->nodes > options->voters && rand_below(rand, 2000) < 20) {
        all->joining = true;
        world_want(node->world, options->nodes - 1, true, options->voters < CONTROL_VOTERS_MAX);
    }
    if (all->options.removes != 0 && all->removed == 0 && all->lost == 0 &&
        node->state->nodes_count >= 3 && rand_below(rand, 4000) < 20) {
        unsigned number = (unsigned)rand_below(rand, options->voters);
        if (state_node_in(state_node(node->state, world_place(node->world, number))) &&
            pub_is_member(node, number) && pub_may_lose(node->world, number)) {
            all->removed = number + 1;
            pub_note_hurt(node->world, number);
            world_want(node->world, number, false, false);
        }
    }
    if (all->lost_count < all->options.rejoins && rand_below(rand, 1500) < 20) {
        unsigned number = (unsigned)rand_below(rand, options->nodes);
        if (number != node->node && !pub_is_out(all, number) && pub_is_member(node, number)) {
            (void)publication_lose(node->world, number);
        }
    }
}

void pub_members_tick(struct pub_node *node)
{
    struct publication *all = node->all;
    struct rand *rand = world_rand(node->world);
    uint32_t mean = all->options.drain_ms;
    uint64_t now = pub_now_ms(node);
    if (!all->healed) {
        wish(node);
        if (mean != 0 && rand_below(rand, mean) < 20) {
            drain(node, (unsigned)rand_below(rand, world_options(node->world)->nodes),
                  rand_below(rand, 2) == 0);
        }
    }
    if (now - node->members_ms < REPEAT_MS) {
        return;
    }
    node->members_ms = now;
    join(node);
    if (all->removed != 0) {
        remove_id(node, world_id(node->world, all->removed - 1));
    }
    if (all->lost_id != 0 && !all->lost_replaced) {
        remove_id(node, all->lost_id);
    }
    if (all->lost != node->node + 1) {
        rejoin(node->world); /* by anybody else: its own process ends with it */
    }
    for (unsigned i = 0; all->healed && i < world_options(node->world)->nodes; i++) {
        drain(node, i, false);
    }
}
