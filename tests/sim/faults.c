/* What goes wrong in a world, and how a seed chooses it. */
#include <stdio.h>
#include <string.h>

#include "tests/sim/world_core.h"

/* --- the swarm ---------------------------------------------------------------------------------
 */
static uint32_t between(struct rand *rand, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rand_below(rand, high - low + 1U);
}

static uint32_t one_of(struct rand *rand, const uint32_t *choices, size_t count)
{
    return choices[rand_below(rand, count)];
}
#define ONE_OF(rand, ...)                         \
    one_of(rand, (const uint32_t[]){__VA_ARGS__}, \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

void world_options_calm(uint32_t nodes, struct world_options *options)
{
    *options = (struct world_options){
        .seed = 1,
        .nodes = nodes,
        .voters = nodes,
        .fault_ms = 5000,
        .heal_ms = 30000,
        .delay_us_max = 2000,
        .disk_us_max = 500,
        .down_ms = 500,
        .propose_ms = 200,
        .command_size_max = 100,
        .election_ms_min = 500,
        .election_ms_max = 1000,
        .heartbeat_ms = 80,
        .snapshot_entries = 4096,
        .trailing_entries = 1024,
        .append_size = 65536,
        .chunk_size = 65536,
        .inflight_max = 16,
        .segment_size = 8388608,
    };
}

static void choose_settings(struct rand *rand, struct world_options *options)
{
    if (rand_below(rand, 2) == 0) {
        options->election_ms_min = 150;
        options->election_ms_max = 300;
        options->heartbeat_ms = 40;
    }
    options->snapshot_entries = ONE_OF(rand, 5, 20, 40, 40, 200, 4096);
    options->trailing_entries = ONE_OF(rand, 0, 1, 8, 8, 100);
    options->append_size = ONE_OF(rand, 1, 200, 2000, 65536);
    options->chunk_size = ONE_OF(rand, 60, 300, 65536);
    options->inflight_max = ONE_OF(rand, 1, 2, 16);
    options->segment_size = ONE_OF(rand, 300, 2000, 20000, 8388608);
}

void world_options_of_seed(uint64_t seed, struct world_options *options)
{
    struct rand own = {seed * 0x9E3779B97F4A7C15U + 1};
    struct rand *rand = &own;
    world_options_calm(ONE_OF(rand, 1, 2, 3, 3, 3, 3, 4, 5, 5, 7), options);
    options->seed = seed;
    options->fault_ms = between(rand, 4000, 12000);
    options->delay_us_max = ONE_OF(rand, 300, 2000, 20000, 100000);
    options->delay_tail_permille = ONE_OF(rand, 0, 0, 5, 50);
    options->loss_permille = ONE_OF(rand, 0, 0, 10, 50, 250);
    options->double_permille = ONE_OF(rand, 0, 0, 10, 100);
    options->disk_us_max = ONE_OF(rand, 200, 2000, 20000, 150000);
    options->disk_tail_permille = ONE_OF(rand, 0, 0, 5, 50);
    options->crash_ms = ONE_OF(rand, 0, 300, 800, 800, 2000);
    options->crash_op_percent = ONE_OF(rand, 0, 50, 90);
    options->down_ms = ONE_OF(rand, 50, 500, 2000);
    options->cut_ms = ONE_OF(rand, 0, 0, 700, 1500);
    options->cut_length_ms = ONE_OF(rand, 200, 1000, 3000);
    options->pause_ms = ONE_OF(rand, 0, 0, 700, 2000);
    options->pause_length_ms = ONE_OF(rand, 100, 700, 2000);
    options->sync_fail_ms = ONE_OF(rand, 0, 0, 0, 2000);
    options->full_ms = ONE_OF(rand, 0, 0, 0, 2000);
    options->drift_permille = ONE_OF(rand, 0, 10, 100);
    options->torn = ONE_OF(rand, 0, 1, 1);
    options->propose_ms = ONE_OF(rand, 20, 60, 200);
    options->command_size_max = ONE_OF(rand, 30, 100, 2000);
    choose_settings(rand, options);
    if (rand_below(rand, 5) < 2) { /* who is a member changes */
        options->nodes += between(rand, 0, 3);
        options->member_ms = ONE_OF(rand, 0, 300, 1000, 3000);
        options->wipe_ms = ONE_OF(rand, 0, 0, 1000, 3000);
    }
}

void world_options_print(const struct world_options *options)
{
    printf("  seed %llu", (unsigned long long)options->seed);
#define WORLD_OPTION_PRINT(name, text) printf(" " #name "=%u", options->name);
    WORLD_OPTIONS(WORLD_OPTION_PRINT)
#undef WORLD_OPTION_PRINT
    printf("\n");
}

/* --- generators --------------------------------------------------------------------------------
 */
static void plan_next(struct world *world, enum event_kind kind, uint32_t mean_ms)
{
    if (mean_ms == 0) {
        return;
    }
    struct event event = {.time_us = world->now_us + 1000 * world_exponential(world, mean_ms),
                          .kind = kind};
    world_plan(world, &event);
}

void faults_plan(struct world *world)
{
    plan_next(world, EVENT_CRASH, world->options.crash_ms);
    plan_next(world, EVENT_CUT, world->options.cut_ms);
    plan_next(world, EVENT_PAUSE, world->options.pause_ms);
    plan_next(world, EVENT_SYNC_FAIL, world->options.sync_fail_ms);
    plan_next(world, EVENT_FULL, world->options.full_ms);
    plan_next(world, EVENT_MEMBER, world->options.member_ms);
    plan_next(world, EVENT_WIPE, world->options.wipe_ms);
}

static void crash_somebody(struct world *world, struct node *node)
{
    if (!node->up) {
        return;
    }
    if (rand_below(&world->rand, 100) < world->options.crash_op_percent) {
        sim_disk_crash_at(node->disk, sim_disk_ops(node->disk) + 1 + rand_below(&world->rand, 12),
                          rand_below(&world->rand, 2) == 0);
    } else {
        node->dying = true;
    }
}

static bool side_of(const uint64_t sides[2], unsigned node)
{
    return ((sides[node / 64] >> (node % 64)) & 1U) != 0;
}

static void cut_somebody(struct world *world)
{
    unsigned nodes = world->options.nodes;
    uint64_t sides[2] = {rand_next(&world->rand), rand_next(&world->rand)};
    uint64_t kind = rand_below(&world->rand, 4);
    unsigned alone = (unsigned)rand_below(&world->rand, nodes);
    for (unsigned from = 0; from < nodes; from++) {
        for (unsigned to = 0; to < nodes; to++) {
            bool apart = side_of(sides, from) != side_of(sides, to);
            bool one_way = side_of(sides, from) && !side_of(sides, to);
            bool cut = kind == 0   ? apart
                       : kind == 1 ? one_way
                       : kind == 2 ? from == alone
                                   : from == alone || to == alone;
            world->cut[from][to] = world->cut[from][to] || (cut && from != to);
        }
    }
    struct event event = {.time_us = world->now_us +
                                     1000 * world_exponential(world, world->options.cut_length_ms),
                          .kind = EVENT_CUT_END};
    world_plan(world, &event);
}

static void fill_disk(struct world *world, struct node *node)
{
    sim_disk_set_capacity(node->disk, sim_disk_used(node->disk) + rand_below(&world->rand, 2000));
    struct event event = {.time_us = world->now_us + 1000 * world_exponential(world, 800),
                          .kind = EVENT_FULL_END,
                          .node = node->number};
    world_plan(world, &event);
}

void faults_event(struct world *world, const struct event *event)
{
    struct node *node = &world->nodes[rand_below(&world->rand, world->options.nodes)];
    if (event->kind == EVENT_FULL_END) {
        sim_disk_set_capacity(world->nodes[event->node].disk, UINT64_MAX);
    } else if (event->kind == EVENT_CUT_END) {
        memset(world->cut, 0, sizeof(world->cut));
    }
    if (!world->faulty) {
        return; /* The generators end with the faulty phase. */
    }
    const struct world_options *options = &world->options;
    if (event->kind == EVENT_CRASH) {
        crash_somebody(world, node);
        plan_next(world, EVENT_CRASH, options->crash_ms);
    } else if (event->kind == EVENT_CUT) {
        cut_somebody(world);
        plan_next(world, EVENT_CUT, options->cut_ms);
    } else if (event->kind == EVENT_PAUSE) {
        world_pause(world, node->number, world_exponential(world, options->pause_length_ms));
        plan_next(world, EVENT_PAUSE, options->pause_ms);
    } else if (event->kind == EVENT_SYNC_FAIL) {
        sim_disk_fail_sync(node->disk, 1 + rand_below(&world->rand, 6));
        plan_next(world, EVENT_SYNC_FAIL, options->sync_fail_ms);
    } else if (event->kind == EVENT_FULL) {
        fill_disk(world, node);
        plan_next(world, EVENT_FULL, options->full_ms);
    } else if (event->kind == EVENT_MEMBER) {
        members_event(world, event);
        plan_next(world, EVENT_MEMBER, options->member_ms);
    } else if (event->kind == EVENT_WIPE) {
        members_event(world, event);
        plan_next(world, EVENT_WIPE, options->wipe_ms);
    }
}

void faults_heal(struct world *world)
{
    world->faulty = false;
    memset(world->cut, 0, sizeof(world->cut));
    for (unsigned i = 0; i < world->options.nodes; i++) {
        struct node *node = &world->nodes[i];
        node->paused_until_us = 0;
        sim_disk_crash_at(node->disk, 0, false);
        sim_disk_fail_sync(node->disk, 0);
        sim_disk_set_capacity(node->disk, UINT64_MAX);
        if (!node->up && node->refusal[0] == '\0') {
            node_start(node); /* Its planned restart finds it up. */
        }
    }
    members_heal(world);
    if (world->extension->on_heal != NULL) {
        world->extension->on_heal(world);
    }
}
