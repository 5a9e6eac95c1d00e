/* A node of the world: its life, and the environment that its control lives in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/world_core.h"

/* --- the environment ---------------------------------------------------------------------------
 */
static uint64_t env_now_ms(void *context)
{
    struct node *node = context;
    return world_node_now_ms(node->world, node->number);
}

static uint64_t env_random(void *context)
{
    struct node *node = context;
    return rand_next(&node->world->rand);
}

static uint64_t message_delay_us(struct world *world)
{
    const struct world_options *options = &world->options;
    if (world->faulty && rand_below(&world->rand, 1000) < options->delay_tail_permille) {
        return rand_below(&world->rand, 1000000);
    }
    uint64_t most = world->faulty ? options->delay_us_max : 2000;
    return 50 + rand_below(&world->rand, most + 1);
}

/* A message is handed over, unless the node dies before; it may die right after. */
static bool leaves(struct node *node, bool is_control, const uint8_t *bytes, size_t size)
{
    struct world *world = node->world;
    world->stats.messages++;
    if (world->extension->on_send == NULL) {
        return true;
    }
    if (node->dying) {
        return false; /* It has died at a message before, in this very event. */
    }
    enum world_moment moment =
        world->extension->on_send(world, node->number, is_control, bytes, size);
    node->dying = moment != WORLD_GO_ON;
    return moment != WORLD_DIE_BEFORE;
}

bool world_serve(struct world *world, unsigned node, const void *bytes, size_t size)
{
    return leaves(&world->nodes[node], false, bytes, size);
}

static void put_on_wire(struct node *node, unsigned to, enum event_kind kind, const uint8_t *bytes,
                        size_t size)
{
    struct world *world = node->world;
    if (!leaves(node, kind == EVENT_DELIVER, bytes, size) || world->cut[node->number][to]) {
        return;
    }
    unsigned copies = 1;
    if (world->faulty && rand_below(&world->rand, 1000) < world->options.loss_permille) {
        copies = 0;
    } else if (world->faulty && rand_below(&world->rand, 1000) < world->options.double_permille) {
        copies = 2;
    }
    for (unsigned i = 0; i < copies; i++) {
        struct event event = {.time_us = world->now_us + message_delay_us(world),
                              .kind = kind,
                              .node = to,
                              .from = node->number,
                              .from_id = world_id(world, node->number)};
        buf_put(&event.bytes, bytes, size);
        world_plan(world, &event);
    }
}

/* That identity's; else of who has its place now, which drops it. */
static unsigned machine_of(const struct world *world, uint32_t id)
{
    for (unsigned i = 0; i < world->options.nodes; i++) {
        if (world_id(world, i) == id) {
            return i;
        }
    }
    return world_node_of(world, member_place(id));
}

static void env_send(void *context, uint32_t to, const uint8_t *bytes, size_t size)
{
    struct node *node = context;
    struct raft_message message;
    struct err err = {0};
    unsigned machine = machine_of(node->world, to);
    if (message_decode(bytes, size, &message, &err) != 0) {
        world_violation(node->world, "node %u sends what nobody can read: %s", node->number,
                        err.text);
        return;
    }
    oracle_on_send(node, to, &message);
    if (machine != node->number && machine != WORLD_NODES_MAX) { /* Else to one that is no more. */
        put_on_wire(node, machine, EVENT_DELIVER, bytes, size);
    }
}

void world_send(struct world *world, unsigned from, unsigned to, const void *bytes, size_t size)
{
    put_on_wire(&world->nodes[from], to, EVENT_MAIL, bytes, size);
}

static void plan_write(struct node *node)
{
    struct world *world = node->world;
    uint64_t most = world->faulty ? world->options.disk_us_max : 500;
    uint64_t time_us = 20 + rand_below(&world->rand, most + 1);
    if (world->faulty && rand_below(&world->rand, 1000) < world->options.disk_tail_permille) {
        time_us = rand_below(&world->rand, 1500000);
    }
    struct event event = {.time_us = world->now_us + time_us,
                          .kind = EVENT_WRITE,
                          .node = node->number,
                          .incarnation = node->incarnation};
    world_plan(world, &event);
}

static void env_persist(void *context, struct control_write *write)
{
    struct node *node = context;
    oracle_on_persist(node, write);
    bool idle = node->writes == NULL;
    ASSERT(write->next == NULL);
    *node->writes_last = write;
    node->writes_last = &write->next;
    if (idle) {
        plan_write(node);
    }
}

static void env_applied(void *context, uint64_t index)
{
    struct node *node = context;
    if (node->world->extension->on_applied != NULL) {
        node->world->extension->on_applied(node->self, index);
    }
}

static void env_failed(void *context, const struct err *err)
{
    struct node *node = context;
    world_violation(node->world, "node %u cannot go on: %s", node->number, err->text);
    node->dying = true;
}

/* The disk is through with the oldest writes, one or several. */
void node_on_write(struct node *node)
{
    struct control_write *first = node->writes;
    ASSERT(first != NULL);
    uint64_t most = 1 + rand_below(&node->world->rand, 8);
    uint64_t count = 1;
    struct control_write *last = first;
    for (; count < most && last->next != NULL; count++) {
        last = last->next;
    }
    struct control_write *rest = last->next;
    last->next = NULL;
    struct err err = {0};
    int code = control_write_run(first, &err);
    last->next = rest;
    if (code != 0) {
        node->dying = true; /* A crash point, or a fault after which a process must end. */
        return;
    }
    node->writes = rest;
    last->next = NULL;
    if (rest == NULL) {
        node->writes_last = &node->writes;
    } else {
        plan_write(node);
    }
    for (struct control_write *write = first; write != NULL;) {
        struct control_write *next = write->next;
        write->next = NULL;
        oracle_on_durable(node, write);
        control_persisted(node->control, write);
        write = next;
    }
}

/* --- the state machine, seen through the oracle ------------------------------------------------
 */
static void fsm_apply(void *context, uint64_t index, uint64_t term, const uint8_t *command,
                      size_t size)
{
    struct node *node = context;
    oracle_on_apply(node, index, term, command, size);
    node->inner.apply(node->inner.context, index, term, command, size);
}

static void fsm_snapshot_write(void *context, struct buf *bytes)
{
    struct node *node = context;
    buf_put_u64(bytes, node->chain);
    node->inner.snapshot_write(node->inner.context, bytes);
    oracle_on_snapshot(node, control_applied_index(node->control), node->chain, bytes->bytes,
                       bytes->size);
}

static int fsm_snapshot_load(void *context, uint64_t index, const uint8_t *bytes, size_t size,
                             struct err *err)
{
    struct node *node = context;
    ASSERT(size >= 8);
    struct reader reader = {bytes, size, false};
    node->chain = read_u64(&reader);
    node->chain_index = index;
    oracle_on_snapshot(node, index, node->chain, bytes, size);
    return node->inner.snapshot_load(node->inner.context, index, reader.bytes, reader.size, err);
}

/* --- life --------------------------------------------------------------------------------------
 */
void node_init(struct world *world, unsigned number)
{
    struct node *node = &world->nodes[number];
    *node = (struct node){.world = world, .number = number, .place = number + 1};
    node->writes_last = &node->writes;
    node->disk = sim_disk_new(rand_next(&world->rand));
    if (world->extension->on_disk != NULL) {
        world->extension->on_disk(world, number, node->disk);
    }
    sim_disk_set_torn(node->disk, world->options.torn != 0);
    uint64_t drift = world->options.drift_permille;
    node->clock_permille = 1000 - drift + rand_below(&world->rand, 2 * drift + 1);
    node->clock_offset_us = 1000000 + rand_below(&world->rand, 1000000000);
}

void node_settings(const struct node *node, struct control_settings *settings)
{
    const struct world_options *options = &node->world->options;
    control_settings_default(settings);
    settings->self = world_id(node->world, node->number);
    bool first = node->life == 0 && node->place <= options->voters;
    settings->voters_count = first ? options->voters : 0;
    for (uint32_t i = 0; i < settings->voters_count; i++) {
        settings->voters[i] = i + 1;
    }
    settings->election_ms_min = options->election_ms_min;
    settings->election_ms_max = options->election_ms_max;
    settings->heartbeat_ms = options->heartbeat_ms;
    settings->snapshot_entries = options->snapshot_entries;
    settings->trailing_entries = options->trailing_entries;
    settings->append_size = options->append_size;
    settings->chunk_size = options->chunk_size;
    settings->inflight_max = options->inflight_max;
    settings->segment_size = options->segment_size;
}

static void plan_restart(struct node *node)
{
    struct world *world = node->world;
    uint64_t down_ms = world->faulty ? world_exponential(world, world->options.down_ms) : 100;
    struct event event = {.time_us = world->now_us + 1000 * down_ms,
                          .kind = EVENT_RESTART,
                          .node = node->number,
                          .incarnation = node->incarnation};
    world_plan(world, &event);
}

/* Others notice the new process, and it them. */
static void plan_connections(struct node *node)
{
    struct world *world = node->world;
    for (unsigned other = 0; other < world->options.nodes; other++) {
        for (unsigned way = 0; other != node->number && way < 2; way++) {
            struct event event = {.time_us = world->now_us + message_delay_us(world),
                                  .kind = EVENT_CONNECT,
                                  .node = way == 0 ? other : node->number,
                                  .from = way == 0 ? node->number : other};
            world_plan(world, &event);
        }
    }
}

static bool open_control(struct node *node)
{
    struct control_settings settings;
    node_settings(node, &settings);
    struct control_fsm fsm = {node, fsm_apply, fsm_snapshot_write, fsm_snapshot_load};
    struct control_env env = {.context = node,
                              .now_ms = env_now_ms,
                              .random = env_random,
                              .send = env_send,
                              .persist = env_persist,
                              .applied = env_applied,
                              .failed = env_failed};
    struct err err = {0};
    int code =
        control_open(&settings, &fsm, &env, sim_disk_fs(node->disk), &node->control, NULL, &err);
    if (code == 0) {
        return true;
    }
    node->control = NULL;
    if (code != ERR_DISK) { /* A full disk or a failing one: the supervisor tries again. */
        (void)snprintf(node->refusal, sizeof(node->refusal), "%s", err.text);
        if (!node->expect_refusal) {
            world_violation(node->world, "node %u is refused: %s", node->number, err.text);
        }
    }
    return false;
}

void node_start(struct node *node)
{
    struct world *world = node->world;
    ASSERT(!node->up);
    node->incarnation++;
    node->up = true;
    node->dying = false;
    node->refusal[0] = '\0';
    node->chain = 0;
    node->chain_index = 0;
    node->led_term = 0;
    if (world->faulty && rand_below(&world->rand, 400) < world->options.crash_op_percent) {
        /* Recovery writes too, and may die of it. */
        sim_disk_crash_at(node->disk, sim_disk_ops(node->disk) + 1 + rand_below(&world->rand, 6),
                          rand_below(&world->rand, 2) == 0);
    }
    node->self = world->extension->node_open(world, node->number, node->incarnation,
                                             sim_disk_fs(node->disk));
    if (node->self != NULL) {
        world->extension->fsm(node->self, &node->inner);
    }
    if (node->self == NULL || !open_control(node)) {
        node_crash(node);
        return;
    }
    oracle_on_recovered(node);
    plan_connections(node);
    struct event event = {.time_us = world->now_us + rand_below(&world->rand, TICK_US),
                          .kind = EVENT_TICK,
                          .node = node->number,
                          .incarnation = node->incarnation};
    world_plan(world, &event);
    if (world->extension->on_start != NULL) {
        world->extension->on_start(node->self);
    }
}

/* Power off: control, extension and what the disk had not synced are gone. A node that was refused
 * stays down; any other starts again. */
void node_crash(struct node *node)
{
    ASSERT(node->up);
    node->up = false;
    node->dying = false;
    node->world->stats.crashes++;
    control_free(node->control);
    node->control = NULL;
    while (node->writes != NULL) {
        struct control_write *write = node->writes;
        node->writes = write->next;
        oracle_on_open_write(node, write);
        control_write_free(write);
    }
    node->writes_last = &node->writes;
    if (node->self != NULL) {
        node->world->extension->node_close(node->self);
        node->self = NULL;
    }
    sim_disk_crash(node->disk);
    if (node->refusal[0] == '\0') {
        plan_restart(node);
    }
}

void node_done(struct node *node)
{
    if (node->up) {
        node_crash(node);
    }
    node->world->stats.disk_ops += sim_disk_ops(node->disk);
    sim_disk_free(node->disk);
    free(node->durable.terms);
    node->durable = (struct durable){0};
}
