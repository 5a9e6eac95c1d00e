/* Who works, in the simulated world: a machine joins, another one is removed for good, nodes are
 * drained and undrained; elastic jobs go on with those who are there. The operator's wish is the
 * world's (world_want()), the agreed list the state machine's: both are said until they are so. */
#include <string.h>

#include "base/assert.h"
#include "tests/sim/publication_core.h"

#define REPEAT_MS 300U

bool pub_is_member(const struct pub_node *node, unsigned number)
{
    const struct state_node *known = state_node(node->state, number + 1);
    return number < world_options(node->world)->voters ? known == NULL || state_node_in(known)
                                                       : state_node_in(known);
}

bool pub_is_out(const struct publication *all, unsigned number)
{
    return all->removed == number + 1;
}

/* The last machine, where there is one more than the first voters. */
static void join(struct pub_node *node)
{
    unsigned last = world_options(node->world)->nodes - 1;
    const struct state_node *known = state_node(node->state, last + 1);
    if (!node->all->joining || known != NULL) {
        return;
    }
    struct command c = {.kind = COMMAND_MEMBER};
    c.member.how = MEMBER_ADMIT;
    c.member.node = last + 1;
    c.member.role = ROLE_TRAINER;
    c.member.uuid[0] = (uint8_t)(last + 1);
    c.member.name[0] = (char)('a' + (char)last);
    pub_propose(node, &c);
}

static void leave(struct pub_node *node)
{
    struct publication *all = node->all;
    const struct state_node *known =
        all->removed == 0 ? NULL : state_node(node->state, all->removed);
    if (known == NULL || !state_node_in(known)) {
        return;
    }
    struct command c = {.kind = COMMAND_REMOVE};
    c.remove.node = all->removed;
    pub_propose(node, &c);
}

static void drain(struct pub_node *node, unsigned number, bool drained)
{
    const struct state_node *known = state_node(node->state, number + 1);
    if (!state_node_in(known) || known->drained == drained) {
        return;
    }
    struct command c = {.kind = COMMAND_DRAIN};
    c.drain.node = number + 1;
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
    if (all->options.removes != 0 && all->removed == 0 && node->state->nodes_count >= 3 &&
        rand_below(rand, 4000) < 20) {
        unsigned number = (unsigned)rand_below(rand, options->voters);
        if (state_node_in(state_node(node->state, number + 1)) &&
            pub_may_lose(node->world, number)) {
            all->removed = number + 1;
            pub_note_hurt(node->world, number);
            world_want(node->world, number, false, false);
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
    leave(node);
    for (unsigned i = 0; all->healed && i < world_options(node->world)->nodes; i++) {
        drain(node, i, false);
    }
}
