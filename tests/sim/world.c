#include "tests/sim/world.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/world_core.h"

#define EVENTS_MAX 1000000U /* of a schedule of up to ten machines; thousands are usual */

/* --- the heap of events ------------------------------------------------------------------------
 */
static bool is_before(const struct event *left, const struct event *right)
{
    return left->time_us != right->time_us ? left->time_us < right->time_us
                                           : left->order < right->order;
}

void world_plan(struct world *world, const struct event *event)
{
    if (world->heap_count == world->heap_capacity) {
        world->heap_capacity = world->heap_capacity == 0 ? 256 : 2 * world->heap_capacity;
        world->heap = realloc(world->heap, world->heap_capacity * sizeof(*world->heap));
        ASSERT(world->heap != NULL);
    }
    struct event made = *event;
    made.order = world->order++;
    size_t at = world->heap_count++;
    while (at > 0 && is_before(&made, &world->heap[(at - 1) / 2])) {
        world->heap[at] = world->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    world->heap[at] = made;
}

static struct event take(struct world *world)
{
    struct event first = world->heap[0];
    struct event last = world->heap[--world->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= world->heap_count) {
            break;
        }
        if (child + 1 < world->heap_count &&
            is_before(&world->heap[child + 1], &world->heap[child])) {
            child++;
        }
        if (!is_before(&world->heap[child], &last)) {
            break;
        }
        world->heap[at] = world->heap[child];
        at = child;
    }
    if (world->heap_count > 0) {
        world->heap[at] = last;
    }
    return first;
}

/* At least 1. */
uint64_t world_exponential(struct world *world, uint64_t mean)
{
    double unit = ((double)(rand_next(&world->rand) >> 11) + 0.5) / 9007199254740992.0;
    return 1 + (uint64_t)(-log(unit) * (double)mean);
}

/* --- one event ---------------------------------------------------------------------------------
 */
static void on_tick(struct node *node)
{
    struct world *world = node->world;
    struct event event = {.time_us = world->now_us + TICK_US * 1000 / node->clock_permille,
                          .kind = EVENT_TICK,
                          .node = node->number,
                          .incarnation = node->incarnation};
    world_plan(world, &event);
    control_tick(node->control);
    members_tick(node);
    if (world->extension->on_tick != NULL && !node->dying) {
        world->extension->on_tick(node->self);
    }
}

static void on_deliver(struct node *node, const struct event *event)
{
    int code =
        control_receive(node->control, event->from_id, event->bytes.bytes, event->bytes.size, NULL);
    if (code != 0 && code != ERR_PEER) { /* ERR_PEER: it was for the identity before. */
        world_violation(node->world, "node %u refuses a message of node %u", node->number,
                        event->from);
    }
}

static void on_node_event(struct node *node, struct event *event)
{
    struct world *world = node->world;
    switch (event->kind) {
    case EVENT_TICK:
        on_tick(node);
        break;
    case EVENT_DELIVER:
        on_deliver(node, event);
        break;
    case EVENT_CONNECT:
        control_reconnected(node->control, world_id(world, event->from));
        break;
    case EVENT_MAIL:
        if (world->extension->on_message != NULL) {
            world->extension->on_message(node->self, event->from, event->bytes.bytes,
                                         event->bytes.size);
        }
        break;
    case EVENT_WRITE:
        node_on_write(node);
        break;
    case EVENT_AFTER:
        event->function(node->self, event->argument);
        break;
    case EVENT_RESTART:
    case EVENT_CRASH:
    case EVENT_CUT:
    case EVENT_CUT_END:
    case EVENT_PAUSE:
    case EVENT_SYNC_FAIL:
    case EVENT_MEMBER:
    case EVENT_WIPE:
    case EVENT_FULL:
    case EVENT_FULL_END:
        ASSERT(event->kind == EVENT_TICK); /* these are of no node */
        break;
    }
}

static void reap(struct world *world)
{
    for (unsigned i = 0; i < world->options.nodes; i++) {
        struct node *node = &world->nodes[i];
        if (node->up && (node->dying || sim_disk_dead(node->disk))) {
            node_crash(node);
        }
    }
}

static void on_event(struct world *world, struct event *event)
{
    struct node *node = &world->nodes[event->node];
    if (event->kind == EVENT_RESTART) {
        if (!node->up && node->incarnation == event->incarnation) {
            node_start(node);
        }
        return;
    }
    if (event->kind > EVENT_RESTART) {
        faults_event(world, event);
        return;
    }
    bool of_a_life =
        event->kind != EVENT_DELIVER && event->kind != EVENT_MAIL && event->kind != EVENT_CONNECT;
    if (!node->up || (of_a_life && event->incarnation != node->incarnation)) {
        return;
    }
    if (node->paused_until_us > world->now_us) {
        struct event later = *event;
        later.time_us = node->paused_until_us;
        event->bytes = (struct buf)BUF_NONE;
        world_plan(world, &later);
        return;
    }
    on_node_event(node, event);
    if (node->up && !node->dying && !sim_disk_dead(node->disk)) {
        oracle_look(node);
        members_look(node);
    }
}

static void selves_of(const struct world *world, void *selves[WORLD_NODES_MAX])
{
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        selves[i] = world->nodes[i].up ? world->nodes[i].self : NULL;
    }
}

static void one_event(struct world *world)
{
    ASSERT(world->heap_count > 0);
    struct event event = take(world);
    ASSERT(event.time_us >= world->now_us);
    world->now_us = event.time_us;
    world->stats.events++;
    if (world->stats.events > EVENTS_MAX * (1 + (uint64_t)world->options.nodes / 10)) {
        world_violation(world, "a storm: %llu events", (unsigned long long)world->stats.events);
    }
    on_event(world, &event);
    buf_done(&event.bytes);
    reap(world);
    if (world->extension->check != NULL) {
        void *selves[WORLD_NODES_MAX];
        selves_of(world, selves);
        world->extension->check(world, selves, world->options.nodes);
    }
}

/* --- runs --------------------------------------------------------------------------------------
 */
void world_run_for(struct world *world, uint64_t ms)
{
    (void)world_run_until(world, ms, NULL, NULL);
}

bool world_run_until(struct world *world, uint64_t ms, bool (*done)(struct world *, void *),
                     void *context)
{
    uint64_t end_us = world->now_us + 1000 * ms;
    while (!world->violated) {
        if (done != NULL && done(world, context)) {
            return true;
        }
        if (world->heap_count == 0 || world->heap[0].time_us > end_us) {
            world->now_us = end_us;
            return false;
        }
        one_event(world);
    }
    return false;
}

/* Those who are members, for an extension's last looks. */
static void members_of(const struct world *world, void *selves[WORLD_NODES_MAX])
{
    selves_of(world, selves);
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        selves[i] = i < world->options.nodes && world_is_wanted(world, i) ? selves[i] : NULL;
    }
}

static bool is_at_rest(struct world *world)
{
    int leader = world_leader(world);
    bool settled = false;
    if (leader < 0 ||
        !group_equal(control_group(world->nodes[leader].control, &settled), &world->wanted) ||
        !settled) {
        return false;
    }
    struct control_stats lead;
    control_stats(world->nodes[leader].control, &lead);
    for (unsigned i = 0; i < world->options.nodes; i++) {
        const struct node *node = &world->nodes[i];
        if ((!node->up && node->refusal[0] != '\0') || !world_is_wanted(world, i)) {
            continue; /* stays down, as expected; or is no member */
        }
        if (!node->up || node->writes != NULL) {
            return false;
        }
        struct control_stats stats;
        control_stats(node->control, &stats);
        if (stats.term != lead.term || stats.applied_index != lead.last_index ||
            stats.last_index != lead.last_index || !control_caught_up(node->control) ||
            control_leader(node->control) != world_place(world, (unsigned)leader)) {
            return false;
        }
    }
    return true;
}

static bool settle(struct world *world, uint64_t ms)
{
    uint64_t end_us = world->now_us + 1000 * ms;
    while (!world->violated && world->now_us < end_us) {
        world_run_for(world, 50);
        void *selves[WORLD_NODES_MAX];
        members_of(world, selves);
        if (is_at_rest(world) && (world->extension->settled == NULL ||
                                  world->extension->settled(world, selves, world->options.nodes))) {
            return true;
        }
    }
    return false;
}

static bool settle_or_say(struct world *world, const char *when)
{
    if (!world->violated && !settle(world, world->options.heal_ms)) {
        world_violation(world, "stall: %u ms after %s the nodes are not at rest",
                        world->options.heal_ms, when);
    }
    return !world->violated;
}

/* The power of all nodes fails at once; nobody proposes: what was begun must end by itself. */
static void restart_all(struct world *world)
{
    for (unsigned i = 0; i < world->options.nodes; i++) {
        if (world->nodes[i].up) {
            node_crash(&world->nodes[i]);
        }
    }
}

bool world_run(struct world *world)
{
    world->faulty = true;
    faults_plan(world);
    world_run_for(world, world->options.fault_ms);
    faults_heal(world);
    if (settle_or_say(world, "the last fault")) {
        restart_all(world);
        (void)settle_or_say(world, "all nodes' restart");
    }
    if (!world->violated && world->extension->finish != NULL) {
        void *selves[WORLD_NODES_MAX];
        members_of(world, selves);
        world->extension->finish(world, selves, world->options.nodes);
    }
    return !world->violated;
}

struct world *world_new(const struct world_options *options,
                        const struct world_extension *extension, void *context)
{
    struct world *world = calloc(1, sizeof(*world));
    ASSERT(world != NULL);
    ASSERT(options->nodes >= 1);
    ASSERT(options->nodes <= WORLD_NODES_MAX);
    ASSERT(options->voters >= 1);
    ASSERT(options->voters <= options->nodes);
    world->options = *options;
    world->extension = extension;
    world->context = context;
    world->rand.state = options->seed;
    world->now_us = 1;
    members_init(world);
    for (unsigned i = 0; i < options->nodes; i++) {
        node_init(world, i);
    }
    for (unsigned i = 0; i < options->nodes; i++) {
        node_start(&world->nodes[i]);
    }
    return world;
}

void world_free(struct world *world)
{
    if (world == NULL) {
        return;
    }
    for (unsigned i = 0; i < world->options.nodes; i++) {
        node_done(&world->nodes[i]);
    }
    for (size_t i = 0; i < world->heap_count; i++) {
        buf_done(&world->heap[i].bytes);
    }
    oracle_done(&world->oracle);
    free(world->heap);
    free(world);
}

void world_violation(struct world *world, const char *format, ...)
{
    if (world->violated) {
        return;
    }
    world->violated = true;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(world->violation, sizeof(world->violation), format, arguments);
    va_end(arguments);
    if (!world->quiet) {
        printf("VIOLATION seed %llu at %.3f s, event %llu: %s\n",
               (unsigned long long)world->options.seed, (double)world->now_us / 1e6,
               (unsigned long long)world->stats.events, world->violation);
        world_options_print(&world->options);
        members_print(world);
        (void)fflush(stdout);
    }
}

/* --- looking and doing -------------------------------------------------------------------------
 */
bool world_violated(const struct world *world)
{
    return world->violated;
}

const char *world_violation_text(const struct world *world)
{
    return world->violation;
}

void world_set_quiet(struct world *world, bool quiet)
{
    world->quiet = quiet;
}

void *world_context(struct world *world)
{
    return world->context;
}

uint64_t world_now_us(const struct world *world)
{
    return world->now_us;
}

uint64_t world_node_now_ms(const struct world *world, unsigned node)
{
    const struct node *of = &world->nodes[node];
    return (of->clock_offset_us + world->now_us * of->clock_permille / 1000) / 1000;
}

struct rand *world_rand(struct world *world)
{
    return &world->rand;
}

const struct world_options *world_options(const struct world *world)
{
    return &world->options;
}

bool world_faulty(const struct world *world)
{
    return world->faulty;
}

struct control *world_control(const struct world *world, unsigned node)
{
    return world->nodes[node].up ? world->nodes[node].control : NULL;
}

void *world_self(const struct world *world, unsigned node)
{
    return world->nodes[node].up ? world->nodes[node].self : NULL;
}

struct sim_disk *world_disk(const struct world *world, unsigned node)
{
    return world->nodes[node].disk;
}

uint64_t world_incarnation(const struct world *world, unsigned node)
{
    return world->nodes[node].incarnation;
}

int world_leader(const struct world *world)
{
    int leader = -1;
    uint64_t term = 0;
    for (unsigned i = 0; i < world->options.nodes; i++) {
        const struct node *node = &world->nodes[i];
        if (node->up && node->control != NULL && control_is_leader(node->control) &&
            control_term(node->control) > term) {
            term = control_term(node->control);
            leader = (int)i;
        }
    }
    return leader;
}

int world_propose(struct world *world, unsigned node, const void *command, size_t size)
{
    struct control *control = world_control(world, node);
    return control == NULL ? ERR_UNHEALTHY : control_propose(control, command, size, NULL);
}

void world_after(struct world *world, unsigned node, uint64_t us,
                 void (*function)(void *self, void *argument), void *argument)
{
    struct event event = {.time_us = world->now_us + us,
                          .kind = EVENT_AFTER,
                          .node = node,
                          .incarnation = world->nodes[node].incarnation,
                          .function = function,
                          .argument = argument};
    world_plan(world, &event);
}

void world_die(struct world *world, unsigned node, const char *why)
{
    (void)why;
    world->nodes[node].dying = true;
}

void world_crash(struct world *world, unsigned node)
{
    node_crash(&world->nodes[node]);
}

void world_restart(struct world *world, unsigned node)
{
    node_start(&world->nodes[node]);
}

void world_pause(struct world *world, unsigned node, uint64_t ms)
{
    world->nodes[node].paused_until_us = world->now_us + 1000 * ms;
}

void world_cut(struct world *world, unsigned from, unsigned to, bool cut)
{
    world->cut[from][to] = cut;
}

void world_isolate(struct world *world, unsigned node, bool cut)
{
    for (unsigned other = 0; other < world->options.nodes; other++) {
        world->cut[node][other] = cut && other != node;
        world->cut[other][node] = cut && other != node;
    }
}

const char *world_refusal(const struct world *world, unsigned node)
{
    return world->nodes[node].refusal;
}

void world_expect_refusal(struct world *world, unsigned node)
{
    world->nodes[node].expect_refusal = true;
}

void world_stats(const struct world *world, struct world_stats *ret_stats)
{
    *ret_stats = world->stats;
    for (unsigned i = 0; i < world->options.nodes; i++) {
        ret_stats->disk_ops +=
            world->nodes[i].disk != NULL ? sim_disk_ops(world->nodes[i].disk) : 0;
        if (world->nodes[i].control != NULL) {
            struct control_stats stats;
            control_stats(world->nodes[i].control, &stats);
            ret_stats->snapshots_installed += stats.snapshots_installed;
        }
    }
}
