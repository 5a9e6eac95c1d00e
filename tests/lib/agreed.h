/* Driving a struct state by entries, for tests of what stands on it. Three nodes a, b, c; a job of
 * 10 coordinates and 100 steps. */
#ifndef COPPELIUS_TESTS_AGREED_H
#define COPPELIUS_TESTS_AGREED_H

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "control/state.h"

static inline enum state_outcome agreed_apply(struct state *state, const struct command *command,
                                              struct err *why)
{
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    ASSERT(command_encode(command, &bytes, &err) == 0);
    enum state_outcome outcome =
        state_apply(state, state->applied_index + 1, bytes.bytes, bytes.size, why);
    buf_done(&bytes);
    return outcome;
}

static inline enum state_outcome agreed_node(struct state *state, uint32_t node,
                                             uint64_t incarnation)
{
    struct command c = {.kind = COMMAND_NODE, .wall_ms = 1000 + node};
    c.node.node = node;
    c.node.incarnation = incarnation;
    c.node.role = ROLE_TRAINER;
    c.node.name[0] = (char)('a' + (char)(node - 1));
    (void)snprintf(c.node.address, sizeof(c.node.address), "127.0.0.%u:7620", node);
    (void)snprintf(c.node.device, sizeof(c.node.device), "cpu");
    return agreed_apply(state, &c, NULL);
}

static inline void agreed_submit_command(struct command *c, uint8_t number, const char *name)
{
    static const char text[] = "name: test\n";
    *c = (struct command){.kind = COMMAND_SUBMIT, .wall_ms = 2000};
    c->submit.uuid[0] = number;
    (void)snprintf(c->submit.name, sizeof(c->submit.name), "%s", name);
    (void)snprintf(c->submit.policy, sizeof(c->submit.policy), "f32-products-f64-accumulation-v1");
    c->submit.keep = 2;
    c->submit.replicas = 0; /* tests of copies ask for some */
    c->submit.text = text;
    c->submit.text_size = sizeof(text) - 1;
}

static inline enum state_outcome agreed_submit(struct state *state, uint8_t number,
                                               const char *name)
{
    struct command c;
    agreed_submit_command(&c, number, name);
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_place(struct state *state, uint64_t job)
{
    struct command c = {.kind = COMMAND_PLACE, .wall_ms = 3000};
    c.place.job = job;
    c.place.generation = state->generation + 1;
    c.place.nodes_count = state->nodes_count;
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        c.place.nodes[i] = state->nodes[i].id;
        c.place.incarnations[i] = state->nodes[i].incarnation;
    }
    return agreed_apply(state, &c, NULL);
}

static inline void agreed_partition_command(const struct state *state, uint64_t job,
                                            struct command *c)
{
    *c = (struct command){.kind = COMMAND_PARTITION, .wall_ms = 3100};
    const struct state_job *j = state_job(state, job);
    c->partition.job = job;
    c->partition.generation = j->generation;
    c->partition.dataset[0] = 7;
    c->partition.identity[0] = 8;
    c->partition.rows = 1000;
    c->partition.features = 9;
    c->partition.steps = 100;
    c->partition.ranges_count = j->participants_count == 0 ? 1 : j->participants_count;
    for (uint32_t i = 0; i <= c->partition.ranges_count; i++) {
        c->partition.bounds[i] = (uint64_t)10 * i / c->partition.ranges_count;
    }
}

static inline enum state_outcome agreed_partition(struct state *state, uint64_t job)
{
    struct command c;
    agreed_partition_command(state, job, &c);
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_running(struct state *state, uint64_t job)
{
    struct command c = {.kind = COMMAND_RUNNING, .wall_ms = 3200};
    c.running.job = job;
    c.running.generation = state_job(state, job)->generation;
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_interrupt(struct state *state, uint64_t job)
{
    struct command c = {.kind = COMMAND_INTERRUPT, .wall_ms = 3300};
    c.interrupt.job = job;
    c.interrupt.generation = state_job(state, job)->generation;
    c.interrupt.node = 3;
    (void)snprintf(c.interrupt.reason, sizeof(c.interrupt.reason), "node 'c' is silent");
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_stop(struct state *state, uint64_t job,
                                             enum command_stop how, uint32_t node)
{
    struct command c = {.kind = COMMAND_STOP, .wall_ms = 3400};
    c.stop.job = job;
    c.stop.turn = state_job(state, job)->turn;
    c.stop.how = (uint8_t)how;
    c.stop.node = node;
    c.stop.incarnation = node == 0 ? 0 : state_node(state, node)->incarnation;
    (void)snprintf(c.stop.reason, sizeof(c.stop.reason), "%s",
                   how == STOP_DROP ? "cancelled by root" : "paused by root");
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_resume(struct state *state, uint64_t job)
{
    struct command c = {.kind = COMMAND_RESUME, .wall_ms = 3500};
    c.resume.job = job;
    c.resume.turn = state_job(state, job)->turn;
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_begin(struct state *state, uint64_t job, uint64_t step,
                                              bool ends)
{
    struct command c = {.kind = COMMAND_BEGIN, .wall_ms = 3600};
    c.begin.job = job;
    c.begin.epoch = state_job(state, job)->epoch_next;
    c.begin.step = step;
    c.begin.generation = state_job(state, job)->generation;
    c.begin.ends = ends;
    return agreed_apply(state, &c, NULL);
}

static inline void agreed_vote_command(const struct state *state, uint64_t job, uint32_t node,
                                       struct command *c)
{
    const struct state_job *j = state_job(state, job);
    *c = (struct command){.kind = COMMAND_PREPARED, .wall_ms = 3700};
    c->prepared.job = job;
    c->prepared.epoch = j->open == NULL ? 1 : j->open->epoch;
    c->prepared.node = node;
    c->prepared.incarnation = state_node(state, node)->incarnation;
    c->prepared.generation = j->open == NULL ? j->generation : j->open->generation;
    c->prepared.step = j->open == NULL ? 1 : j->open->step;
    c->prepared.sha256[0] = (uint8_t)node;
    c->prepared.size = 1000 + node;
    c->prepared.holders_count = 1;
    c->prepared.holders[0] = node;
    c->prepared.has_vectors = node == 1;
    c->prepared.parameter_sha256[0] = node == 1 ? 0x11 : 0;
    c->prepared.accumulator_sha256[0] = node == 1 ? 0x22 : 0;
    c->prepared.loss_bits = node == 1 ? command_bits_of(0.5) : 0;
}

static inline enum state_outcome agreed_vote(struct state *state, uint64_t job, uint32_t node)
{
    struct command c;
    agreed_vote_command(state, job, node, &c);
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_abort(struct state *state, uint64_t job, uint64_t epoch)
{
    struct command c = {.kind = COMMAND_ABORT, .wall_ms = 3800};
    c.abort.job = job;
    c.abort.epoch = epoch;
    c.abort.node = 2;
    (void)snprintf(c.abort.reason, sizeof(c.abort.reason), "node 'b': disk full");
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_published(struct state *state, uint64_t job, uint64_t epoch,
                                                  uint32_t node)
{
    struct command c = {.kind = COMMAND_PUBLISHED, .wall_ms = 3900};
    c.published.job = job;
    c.published.epoch = epoch;
    c.published.node = node;
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_collect(struct state *state, uint64_t job, uint64_t epoch)
{
    struct command c = {.kind = COMMAND_COLLECT, .wall_ms = 4000};
    c.collect.job = job;
    c.collect.epoch = epoch;
    return agreed_apply(state, &c, NULL);
}

static inline enum state_outcome agreed_finish(struct state *state, uint64_t job,
                                               enum command_outcome outcome)
{
    struct command c = {.kind = COMMAND_FINISH, .wall_ms = 4100};
    c.finish.job = job;
    c.finish.generation = state_job(state, job)->generation;
    c.finish.outcome = (uint8_t)outcome;
    c.finish.step = 100;
    c.finish.has_loss = true;
    c.finish.loss_bits = command_bits_of(0.25);
    (void)snprintf(c.finish.reason, sizeof(c.finish.reason), "%s",
                   outcome == OUTCOME_FAILED ? "step 7: coordinate 3 left the range" : "");
    return agreed_apply(state, &c, NULL);
}

/* Nodes 1 .. nodes with incarnation 10 each, and job 1. */
static inline void agreed_init(struct state *state, uint32_t nodes)
{
    state_init(state);
    for (uint32_t node = 1; node <= nodes; node++) {
        ASSERT(agreed_node(state, node, 10) == STATE_CHANGED);
    }
    ASSERT(agreed_submit(state, 1, "test") == STATE_CHANGED);
}

static inline void agreed_to_running(struct state *state, uint64_t job)
{
    ASSERT(agreed_place(state, job) == STATE_CHANGED);
    ASSERT(agreed_partition(state, job) == STATE_CHANGED);
    ASSERT(agreed_running(state, job) == STATE_CHANGED);
}

/* BEGIN and all votes. */
static inline void agreed_commit(struct state *state, uint64_t job, uint64_t step, bool ends)
{
    ASSERT(agreed_begin(state, job, step, ends) == STATE_CHANGED);
    uint32_t count = state_job(state, job)->open->shards_count;
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(agreed_vote(state, job, state_job(state, job)->participants[i].node) ==
               STATE_CHANGED);
    }
    ASSERT(state_job(state, job)->open == NULL);
}

static inline void agreed_publish(struct state *state, uint64_t job, uint64_t epoch)
{
    for (uint32_t i = 0; i < state_job(state, job)->participants_count; i++) {
        ASSERT(agreed_published(state, job, epoch, state_job(state, job)->participants[i].node) ==
               STATE_CHANGED);
    }
}

#endif
