/* Commands to the log's bytes; command_decode.c is the way back. */
#include "control/command.h"

#include <string.h>

#include "base/assert.h"

static const struct {
    enum command_kind kind;
    const char *label;
} labels[] = {
#define COMMAND_ROW(name, value, label) {name, label},
    COMMAND_MAP(COMMAND_ROW)
#undef COMMAND_ROW
};

const char *command_label(enum command_kind kind)
{
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        if (labels[i].kind == kind) {
            return labels[i].label;
        }
    }
    return "unknown";
}

uint64_t command_bits_of(double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

double command_double_of(uint64_t bits)
{
    double value = 0;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void put_bool(struct buf *out, bool value)
{
    buf_put_u8(out, value ? 1 : 0);
}

/* A text of at most capacity-1 bytes; a longer one is cut at a character's begin (UTF-8). */
static void put_cut(struct buf *out, const char *text, size_t capacity)
{
    size_t size = strnlen(text, capacity);
    if (size >= capacity) {
        size = capacity - 1;
        while (size > 0 && ((unsigned char)text[size] & 0xC0U) == 0x80U) {
            size--;
        }
    }
    buf_put_u32(out, (uint32_t)size);
    buf_put(out, text, size);
}

static void put_node(struct buf *out, const struct command_node *c)
{
    ASSERT(c->node >= 1);
    ASSERT(c->node <= COMMAND_NODES_MAX);
    buf_put_u32(out, c->node);
    buf_put_u64(out, c->incarnation);
    buf_put_u8(out, c->role);
    buf_put_u32(out, c->life);
    buf_put(out, c->uuid, sizeof(c->uuid));
    put_cut(out, c->name, sizeof(c->name));
    put_cut(out, c->address, sizeof(c->address));
    put_cut(out, c->device, sizeof(c->device));
    buf_put(out, c->binding, sizeof(c->binding));
}

static void put_member(struct buf *out, const struct command_member *c)
{
    buf_put_u8(out, c->how);
    buf_put_u32(out, c->node);
    buf_put_u32(out, c->life);
    buf_put_u8(out, c->role);
    buf_put(out, c->uuid, sizeof(c->uuid));
    put_cut(out, c->name, sizeof(c->name));
    put_cut(out, c->address, sizeof(c->address));
}

static void put_submit(struct buf *out, const struct command_submit *c)
{
    ASSERT(c->keep >= 1);
    ASSERT(c->keep <= COMMAND_KEEP_MAX);
    buf_put(out, c->uuid, sizeof(c->uuid));
    put_cut(out, c->name, sizeof(c->name));
    put_cut(out, c->client, sizeof(c->client));
    put_cut(out, c->policy, sizeof(c->policy));
    buf_put(out, c->identity_inputs, sizeof(c->identity_inputs));
    buf_put_u32(out, c->keep);
    buf_put_u32(out, c->replicas);
    buf_put_u32(out, c->nodes);
    put_bool(out, c->elastic);
    buf_put_u32(out, (uint32_t)c->text_size);
    buf_put(out, c->text, c->text_size);
}

static void put_place(struct buf *out, const struct command_place *c)
{
    ASSERT(c->nodes_count >= 1);
    ASSERT(c->nodes_count <= COMMAND_NODES_MAX);
    buf_put_u64(out, c->job);
    buf_put_u64(out, c->generation);
    buf_put_u32(out, c->nodes_count);
    for (uint32_t i = 0; i < c->nodes_count; i++) {
        buf_put_u32(out, c->nodes[i]);
        buf_put_u64(out, c->incarnations[i]);
    }
}

static void put_partition(struct buf *out, const struct command_partition *c)
{
    ASSERT(c->ranges_count >= 1);
    ASSERT(c->ranges_count <= COMMAND_NODES_MAX);
    buf_put_u64(out, c->job);
    buf_put_u64(out, c->generation);
    buf_put(out, c->dataset, sizeof(c->dataset));
    buf_put(out, c->identity, sizeof(c->identity));
    buf_put_u64(out, c->rows);
    buf_put_u64(out, c->features);
    buf_put_u64(out, c->steps);
    buf_put_u32(out, c->ranges_count);
    for (uint32_t i = 0; i <= c->ranges_count; i++) {
        buf_put_u64(out, c->bounds[i]);
    }
}

static void put_prepared(struct buf *out, const struct command_prepared *c)
{
    ASSERT(c->holders_count >= 1);
    ASSERT(c->holders_count <= COMMAND_HOLDERS_MAX);
    buf_put_u64(out, c->job);
    buf_put_u64(out, c->epoch);
    buf_put_u32(out, c->node);
    buf_put_u64(out, c->incarnation);
    buf_put_u64(out, c->generation);
    buf_put_u64(out, c->step);
    buf_put(out, c->sha256, sizeof(c->sha256));
    buf_put_u64(out, c->size);
    buf_put_u32(out, c->holders_count);
    for (uint32_t i = 0; i < c->holders_count; i++) {
        buf_put_u32(out, c->holders[i]);
    }
    put_bool(out, c->has_vectors);
    if (c->has_vectors) {
        buf_put(out, c->parameter_sha256, sizeof(c->parameter_sha256));
        buf_put(out, c->accumulator_sha256, sizeof(c->accumulator_sha256));
        buf_put_u64(out, c->loss_bits);
    }
}

static void put_finish(struct buf *out, const struct command_finish *c)
{
    buf_put_u64(out, c->job);
    buf_put_u64(out, c->generation);
    buf_put_u8(out, c->outcome);
    buf_put_u64(out, c->step);
    put_bool(out, c->has_loss);
    buf_put_u64(out, c->has_loss ? c->loss_bits : 0);
    put_bool(out, c->has_objective);
    buf_put_u64(out, c->has_objective ? c->objective_bits : 0);
    put_cut(out, c->reason, sizeof(c->reason));
}

int command_encode(const struct command *command, struct buf *out, struct err *err)
{
    if (command->kind == COMMAND_SUBMIT && command->submit.text_size > COMMAND_JOB_TEXT_MAX) {
        return err_set(err, ERR_JOB, "the job's text has %zu bytes; the most is %d",
                       command->submit.text_size, COMMAND_JOB_TEXT_MAX);
    }
    size_t before = out->size;
    buf_put_u8(out, COMMAND_FORMAT);
    buf_put_u8(out, (uint8_t)command->kind);
    buf_put_u16(out, 0);
    buf_put_u64(out, command->wall_ms);
    switch (command->kind) {
    case COMMAND_NODE:
        put_node(out, &command->node);
        break;
    case COMMAND_SUBMIT:
        put_submit(out, &command->submit);
        break;
    case COMMAND_PLACE:
        put_place(out, &command->place);
        break;
    case COMMAND_PARTITION:
        put_partition(out, &command->partition);
        break;
    case COMMAND_RUNNING:
        buf_put_u64(out, command->running.job);
        buf_put_u64(out, command->running.generation);
        break;
    case COMMAND_INTERRUPT:
        buf_put_u64(out, command->interrupt.job);
        buf_put_u64(out, command->interrupt.generation);
        buf_put_u32(out, command->interrupt.node);
        put_cut(out, command->interrupt.reason, sizeof(command->interrupt.reason));
        break;
    case COMMAND_STOP:
        buf_put_u64(out, command->stop.job);
        buf_put_u64(out, command->stop.turn);
        buf_put_u8(out, command->stop.how);
        buf_put_u32(out, command->stop.node);
        buf_put_u64(out, command->stop.incarnation);
        put_cut(out, command->stop.reason, sizeof(command->stop.reason));
        break;
    case COMMAND_RESUME:
        buf_put_u64(out, command->resume.job);
        buf_put_u64(out, command->resume.turn);
        break;
    case COMMAND_BEGIN:
        buf_put_u64(out, command->begin.job);
        buf_put_u64(out, command->begin.epoch);
        buf_put_u64(out, command->begin.step);
        buf_put_u64(out, command->begin.generation);
        put_bool(out, command->begin.ends);
        buf_put_u64(out, command->begin.live);
        break;
    case COMMAND_PREPARED:
        put_prepared(out, &command->prepared);
        break;
    case COMMAND_ABORT:
        buf_put_u64(out, command->abort.job);
        buf_put_u64(out, command->abort.epoch);
        buf_put_u32(out, command->abort.node);
        put_cut(out, command->abort.reason, sizeof(command->abort.reason));
        break;
    case COMMAND_PUBLISHED:
        buf_put_u64(out, command->published.job);
        buf_put_u64(out, command->published.epoch);
        buf_put_u32(out, command->published.node);
        break;
    case COMMAND_COLLECT:
        buf_put_u64(out, command->collect.job);
        buf_put_u64(out, command->collect.epoch);
        break;
    case COMMAND_FINISH:
        put_finish(out, &command->finish);
        break;
    case COMMAND_REPLICATED:
    case COMMAND_DROPPED:
    case COMMAND_ASSIGN:
        buf_put_u64(out, command->copy.job);
        buf_put_u64(out, command->copy.epoch);
        buf_put_u32(out, command->copy.rank);
        buf_put_u32(out, command->copy.node);
        buf_put(out, command->copy.sha256, SHA256_SIZE);
        buf_put_u32(out, command->copy.life);
        break;
    case COMMAND_PRUNE:
        buf_put_u64(out, command->prune.job);
        buf_put_u32(out, command->prune.keep);
        break;
    case COMMAND_REMOVE:
        buf_put_u32(out, command->remove.node);
        buf_put_u32(out, command->remove.life);
        put_cut(out, command->remove.name, sizeof(command->remove.name));
        put_cut(out, command->remove.reason, sizeof(command->remove.reason));
        break;
    case COMMAND_MEMBER:
        put_member(out, &command->member);
        break;
    case COMMAND_DRAIN:
        buf_put_u32(out, command->drain.node);
        buf_put_u32(out, command->drain.life);
        put_bool(out, command->drain.drained);
        break;
    case COMMAND_RECOVER:
        buf_put_u32(out, command->recover.node);
        buf_put_u32(out, command->recover.life);
        break;
    case COMMAND_NONE:
    default:
        ASSERT(false); /* a command of no kind */
    }
    ASSERT(out->size - before <= COMMAND_SIZE_MAX);
    return 0;
}
