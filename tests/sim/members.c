/* Who is wanted: an operator adds, removes and turns members, disks are lost for good; the leaders
 * follow as far as they have heard. */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "tests/sim/world_core.h"

#define HEAR_TICKS 10U /* on average, until a node has heard what is wanted now */

uint32_t world_id(const struct world *world, unsigned node)
{
    return member_id(world->nodes[node].place, world->nodes[node].life);
}

uint32_t world_place(const struct world *world, unsigned node)
{
    return world->nodes[node].place;
}

unsigned world_node_of(const struct world *world, uint32_t place)
{
    unsigned found = WORLD_NODES_MAX;
    for (unsigned i = 0; i < world->options.nodes; i++) {
        if (world->nodes[i].place == place &&
            (found == WORLD_NODES_MAX || world_is_wanted(world, i))) {
            found = i; /* One that was removed may still run beside who has its place now. */
        }
    }
    return found;
}

bool world_is_wanted(const struct world *world, unsigned node)
{
    return group_get(&world->wanted, world_id(world, node)) != NULL;
}

void members_init(struct world *world)
{
    for (unsigned i = 0; i < world->options.voters; i++) {
        group_set(&world->wanted, i + 1, true);
    }
    world->agreed = world->wanted;
}

/* Power off, an empty disk, another identity; it starts again by itself. */
static void lose_disk(struct node *node)
{
    if (node->up) {
        node_crash(node);
    }
    sim_disk_wipe(node->disk);
    free(node->durable.terms);
    node->durable = (struct durable){0};
    node->refusal[0] = '\0';
    node->life++;
    node->removed = false;
}

void world_want(struct world *world, unsigned number, bool member, bool voter)
{
    struct node *node = &world->nodes[number];
    if (!member) {
        group_drop(&world->wanted, world_id(world, number));
        node->removed = true;
        return;
    }
    if (node->removed) {
        lose_disk(node);
    }
    group_set(&world->wanted, world_id(world, number), voter);
}

void world_wipe(struct world *world, unsigned number)
{
    bool voter = group_is_voter(&world->wanted, world_id(world, number));
    group_drop(&world->wanted, world_id(world, number));
    lose_disk(&world->nodes[number]);
    group_set(&world->wanted, world_id(world, number), voter);
    world->stats.wipes++;
}

void world_lose(struct world *world, unsigned number)
{
    group_drop(&world->wanted, world_id(world, number));
    lose_disk(&world->nodes[number]);
    world->stats.wipes++;
    members_heal(world); /* Everybody hears of it: who is gone must not be waited for. */
}

void world_rejoin(struct world *world, unsigned number, uint32_t place, uint32_t life, bool voter)
{
    struct node *node = &world->nodes[number];
    ASSERT(!world_is_wanted(world, number));
    lose_disk(node); /* It was of another identity. */
    node->place = place;
    node->life = life;
    group_set(&world->wanted, world_id(world, number), voter);
}

/* A lost disk is lost for ever: the others must be able to go on without it. So only where all are
 * there, agree, and nothing is under way. */
bool world_may_wipe(const struct world *world)
{
    if (group_voters(&world->agreed) < 3 || !group_equal(&world->agreed, &world->wanted)) {
        return false;
    }
    for (unsigned i = 0; i < world->options.nodes; i++) {
        const struct node *node = &world->nodes[i];
        if (!world_is_wanted(world, i)) {
            continue;
        }
        bool settled = false;
        if (!node->up || sim_disk_dead(node->disk) ||
            !group_equal(control_group(node->control, &settled), &world->agreed) || !settled) {
            return false;
        }
    }
    return true;
}

static void wipe_somebody(struct world *world)
{
    unsigned number = (unsigned)rand_below(&world->rand, world->options.nodes);
    if (world_is_wanted(world, number) && world_may_wipe(world)) {
        world_wipe(world, number);
        members_heal(world); /* and nobody takes away another one for an older wish */
    }
}

/* A voter's disk is gone and the group does not yet go on without it: to take away another one now
 * could leave no majority, for ever. */
static bool is_wounded(const struct world *world)
{
    for (uint32_t i = 0; i < world->agreed.count; i++) {
        uint32_t id = world->agreed.items[i].id;
        unsigned machine = world_node_of(world, member_place(id));
        if (machine == WORLD_NODES_MAX || id != world_id(world, machine)) {
            return true;
        }
    }
    return false;
}

/* Somebody's group has it, agreed on or not, or is still to have it by an older wish: its disk may
 * be needed yet. What a node that is down has in its log is not known; three voters can spare one.
 */
static bool is_counted_on(const struct world *world, uint32_t id)
{
    if (group_get(&world->agreed, id) != NULL) {
        return true;
    }
    bool can_spare = group_voters(&world->agreed) >= 3;
    for (unsigned i = 0; i < world->options.nodes; i++) {
        const struct node *node = &world->nodes[i];
        if (group_get(&node->wanted, id) != NULL ||
            (!node->up && !can_spare && world_is_wanted(world, i)) ||
            (node->up && group_get(control_group(node->control, NULL), id) != NULL)) {
            return true;
        }
    }
    return false;
}

static void change_somebody(struct world *world)
{
    if (is_wounded(world)) {
        return;
    }
    unsigned number = (unsigned)rand_below(&world->rand, world->options.nodes);
    bool voter = rand_below(&world->rand, 4) != 0;
    uint32_t voters = group_voters(&world->wanted);
    bool was_voter = group_is_voter(&world->wanted, world_id(world, number));
    bool last = was_voter && voters == 1;
    if (!world_is_wanted(world, number)) {
        if (is_counted_on(world, world_id(world, number))) {
            return; /* It is on its way out. */
        }
        world_want(world, number, true, voter && voters < CONTROL_VOTERS_MAX);
    } else if (!last && rand_below(&world->rand, 3) != 0) {
        world_want(world, number, false, false);
    } else if (!last && (was_voter || voters < CONTROL_VOTERS_MAX)) {
        world_want(world, number, true, !was_voter);
    }
}

void members_event(struct world *world, const struct event *event)
{
    if (event->kind == EVENT_WIPE) {
        wipe_somebody(world);
    } else {
        change_somebody(world);
    }
}

void members_tick(struct node *node)
{
    struct world *world = node->world;
    bool changes = world->options.member_ms != 0 || world->options.wipe_ms != 0 ||
                   !group_equal(&world->agreed, &world->wanted);
    if (!changes) {
        return;
    }
    if (rand_below(&world->rand, HEAR_TICKS) == 0) {
        node->wanted = world->wanted;
    }
    if (node->wanted.count != 0 && !node->dying) {
        (void)control_converge(node->control, &node->wanted);
    }
}

/* Everybody has heard. */
void members_heal(struct world *world)
{
    for (unsigned i = 0; i < world->options.nodes; i++) {
        world->nodes[i].wanted = world->wanted;
    }
}

static void print_group(const struct control_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        printf(" %u.%u%s", member_place(group->items[i].id), group->items[i].id >> 8,
               group->items[i].voter ? "" : "(learner)");
    }
    printf("\n");
}

void members_print(const struct world *world)
{
    printf("  wanted:");
    print_group(&world->wanted);
    for (unsigned i = 0; i < world->options.nodes; i++) {
        const struct node *node = &world->nodes[i];
        printf("  machine %u is %u.%u%s", i, node->place, node->life, node->up ? "" : " is down");
        if (node->up && node->control != NULL) {
            const struct raft *raft = control_raft(node->control);
            printf(" role %d term %llu leader %u log %llu..%llu commit %llu applied %llu; group of "
                   "entry %llu:",
                   (int)raft_role(raft), (unsigned long long)raft_term(raft), raft_leader(raft),
                   (unsigned long long)raft_log(raft)->base_index,
                   (unsigned long long)raft_log_last(raft_log(raft)),
                   (unsigned long long)raft_commit(raft),
                   (unsigned long long)control_applied_index(node->control),
                   (unsigned long long)raft_group_index(raft));
            print_group(raft_group(raft));
        } else {
            printf(" %s\n", node->refusal);
        }
    }
}

/* The newest group that a node knows as committed; all of one index are one. */
void members_look(struct node *node)
{
    struct world *world = node->world;
    const struct raft *raft = control_raft(node->control);
    uint64_t index = raft_group_index(raft);
    if (index == 0 || !raft_group_settled(raft) || index < world->agreed_index) {
        return;
    }
    if (index == world->agreed_index) {
        if (!group_equal(&world->agreed, raft_group(raft))) {
            world_violation(world, "node %u knows another group of entry %llu as committed",
                            node->number, (unsigned long long)index);
        }
        return;
    }
    world->agreed = *raft_group(raft);
    world->agreed_index = index;
    world->stats.group_changes++;
}
