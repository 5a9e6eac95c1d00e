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

/* ---- encode ---- */

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

/* ---- decode: anything odd sets reader->failed ---- */

static void check(struct reader *in, bool good)
{
    if (!good) {
        in->failed = true;
    }
}

static bool get_bool(struct reader *in)
{
    uint8_t value = read_u8(in);
    check(in, value <= 1);
    return value == 1;
}

static uint32_t get_node_id(struct reader *in, uint32_t least)
{
    uint32_t node = read_u32(in);
    check(in, node >= least && node <= COMMAND_NODES_MAX);
    return node;
}

static uint32_t get_life(struct reader *in)
{
    uint32_t life = read_u32(in);
    check(in, life <= COMMAND_LIFE_MAX);
    return life;
}

static void get_member(struct reader *in, struct command_member *c)
{
    c->how = read_u8(in);
    check(in, c->how >= MEMBER_EXPECT && c->how <= MEMBER_ADMIT);
    c->node = get_node_id(in, 0);
    check(in, c->how == MEMBER_JOIN || c->node >= 1);
    c->life = get_life(in);
    c->role = read_u8(in);
    check(in, c->role >= ROLE_TRAINER && c->role <= ROLE_SPARE);
    read_bytes(in, c->uuid, sizeof(c->uuid));
    read_text(in, c->name, sizeof(c->name));
    read_text(in, c->address, sizeof(c->address));
}

static void get_node(struct reader *in, struct command_node *c)
{
    c->node = get_node_id(in, 1);
    c->incarnation = read_u64(in);
    c->role = read_u8(in);
    check(in, c->role >= ROLE_TRAINER && c->role <= ROLE_SPARE);
    c->life = get_life(in);
    read_bytes(in, c->uuid, sizeof(c->uuid));
    read_text(in, c->name, sizeof(c->name));
    read_text(in, c->address, sizeof(c->address));
    read_text(in, c->device, sizeof(c->device));
    read_bytes(in, c->binding, sizeof(c->binding));
}

static void get_submit(struct reader *in, struct command_submit *c)
{
    read_bytes(in, c->uuid, sizeof(c->uuid));
    read_text(in, c->name, sizeof(c->name));
    read_text(in, c->client, sizeof(c->client));
    read_text(in, c->policy, sizeof(c->policy));
    read_bytes(in, c->identity_inputs, sizeof(c->identity_inputs));
    c->keep = read_u32(in);
    check(in, c->keep >= 1 && c->keep <= COMMAND_KEEP_MAX);
    c->replicas = read_u32(in);
    c->nodes = read_u32(in);
    check(in, c->nodes <= COMMAND_NODES_MAX);
    c->elastic = get_bool(in);
    c->text_size = read_u32(in);
    check(in, c->text_size <= COMMAND_JOB_TEXT_MAX && c->text_size <= in->size);
    if (in->failed) {
        return;
    }
    c->text = (const char *)in->bytes;
    check(in, c->text_size == 0 || memchr(c->text, 0, c->text_size) == NULL);
    in->bytes += c->text_size;
    in->size -= c->text_size;
}

static void get_place(struct reader *in, struct command_place *c)
{
    c->job = read_u64(in);
    c->generation = read_u64(in);
    c->nodes_count = read_u32(in);
    check(in, c->nodes_count >= 1 && c->nodes_count <= COMMAND_NODES_MAX);
    uint64_t seen = 0; /* node ids are 1 .. 64: one bit each */
    for (uint32_t i = 0; !in->failed && i < c->nodes_count; i++) {
        c->nodes[i] = get_node_id(in, 1);
        c->incarnations[i] = read_u64(in);
        if (!in->failed) {
            uint64_t bit = UINT64_C(1) << (c->nodes[i] - 1);
            check(in, (seen & bit) == 0);
            seen |= bit;
        }
    }
}

static void get_partition(struct reader *in, struct command_partition *c)
{
    c->job = read_u64(in);
    c->generation = read_u64(in);
    read_bytes(in, c->dataset, sizeof(c->dataset));
    read_bytes(in, c->identity, sizeof(c->identity));
    c->rows = read_u64(in);
    c->features = read_u64(in);
    c->steps = read_u64(in);
    check(in, c->steps >= 1);
    c->ranges_count = read_u32(in);
    check(in, c->ranges_count >= 1 && c->ranges_count <= COMMAND_NODES_MAX);
    for (uint32_t i = 0; !in->failed && i <= c->ranges_count; i++) {
        c->bounds[i] = read_u64(in);
        check(in, i == 0 ? c->bounds[0] == 0 : c->bounds[i] > c->bounds[i - 1]);
        check(in, c->bounds[i] <= INT64_MAX); /* shards store them as I64 */
    }
}

static void get_prepared(struct reader *in, struct command_prepared *c)
{
    c->job = read_u64(in);
    c->epoch = read_u64(in);
    c->node = get_node_id(in, 1);
    c->incarnation = read_u64(in);
    c->generation = read_u64(in);
    c->step = read_u64(in);
    read_bytes(in, c->sha256, sizeof(c->sha256));
    c->size = read_u64(in);
    c->holders_count = read_u32(in);
    check(in, c->holders_count >= 1 && c->holders_count <= COMMAND_HOLDERS_MAX);
    for (uint32_t i = 0; !in->failed && i < c->holders_count; i++) {
        c->holders[i] = get_node_id(in, 1);
    }
    c->has_vectors = get_bool(in);
    if (c->has_vectors) {
        read_bytes(in, c->parameter_sha256, sizeof(c->parameter_sha256));
        read_bytes(in, c->accumulator_sha256, sizeof(c->accumulator_sha256));
        c->loss_bits = read_u64(in);
    }
}

static void get_finish(struct reader *in, struct command_finish *c)
{
    c->job = read_u64(in);
    c->generation = read_u64(in);
    c->outcome = read_u8(in);
    check(in, c->outcome == OUTCOME_SUCCEEDED || c->outcome == OUTCOME_FAILED);
    c->step = read_u64(in);
    c->has_loss = get_bool(in);
    c->loss_bits = read_u64(in);
    check(in, c->has_loss || c->loss_bits == 0);
    c->has_objective = get_bool(in);
    c->objective_bits = read_u64(in);
    check(in, c->has_objective || c->objective_bits == 0);
    read_text(in, c->reason, sizeof(c->reason));
}

static void get_stop(struct reader *in, struct command_stop_job *c)
{
    c->job = read_u64(in);
    c->turn = read_u64(in);
    c->how = read_u8(in);
    check(in, c->how >= STOP_CAPTURE && c->how <= STOP_REGROUP);
    c->node = get_node_id(in, 0);
    c->incarnation = read_u64(in);
    read_text(in, c->reason, sizeof(c->reason));
}

/* False: no kind of this version. */
static bool get_fields(struct reader *in, struct command *c)
{
    switch (c->kind) {
    case COMMAND_NODE:
        get_node(in, &c->node);
        return true;
    case COMMAND_SUBMIT:
        get_submit(in, &c->submit);
        return true;
    case COMMAND_PLACE:
        get_place(in, &c->place);
        return true;
    case COMMAND_PARTITION:
        get_partition(in, &c->partition);
        return true;
    case COMMAND_RUNNING:
        c->running.job = read_u64(in);
        c->running.generation = read_u64(in);
        return true;
    case COMMAND_INTERRUPT:
        c->interrupt.job = read_u64(in);
        c->interrupt.generation = read_u64(in);
        c->interrupt.node = get_node_id(in, 0);
        read_text(in, c->interrupt.reason, sizeof(c->interrupt.reason));
        return true;
    case COMMAND_STOP:
        get_stop(in, &c->stop);
        return true;
    case COMMAND_RESUME:
        c->resume.job = read_u64(in);
        c->resume.turn = read_u64(in);
        return true;
    case COMMAND_BEGIN:
        c->begin.job = read_u64(in);
        c->begin.epoch = read_u64(in);
        c->begin.step = read_u64(in);
        c->begin.generation = read_u64(in);
        c->begin.ends = get_bool(in);
        c->begin.live = read_u64(in);
        return true;
    case COMMAND_PREPARED:
        get_prepared(in, &c->prepared);
        return true;
    case COMMAND_ABORT:
        c->abort.job = read_u64(in);
        c->abort.epoch = read_u64(in);
        c->abort.node = get_node_id(in, 0);
        read_text(in, c->abort.reason, sizeof(c->abort.reason));
        return true;
    case COMMAND_PUBLISHED:
        c->published.job = read_u64(in);
        c->published.epoch = read_u64(in);
        c->published.node = get_node_id(in, 1);
        return true;
    case COMMAND_COLLECT:
        c->collect.job = read_u64(in);
        c->collect.epoch = read_u64(in);
        return true;
    case COMMAND_FINISH:
        get_finish(in, &c->finish);
        return true;
    case COMMAND_REPLICATED:
    case COMMAND_DROPPED:
    case COMMAND_ASSIGN:
        c->copy.job = read_u64(in);
        c->copy.epoch = read_u64(in);
        c->copy.rank = read_u32(in);
        check(in, c->copy.rank < COMMAND_NODES_MAX);
        c->copy.node = get_node_id(in, 1);
        read_bytes(in, c->copy.sha256, SHA256_SIZE);
        return true;
    case COMMAND_PRUNE:
        c->prune.job = read_u64(in);
        c->prune.keep = read_u32(in);
        check(in, c->prune.keep >= 1 && c->prune.keep <= COMMAND_KEEP_MAX);
        return true;
    case COMMAND_REMOVE:
        c->remove.node = get_node_id(in, 1);
        c->remove.life = get_life(in);
        read_text(in, c->remove.name, sizeof(c->remove.name));
        read_text(in, c->remove.reason, sizeof(c->remove.reason));
        return true;
    case COMMAND_MEMBER:
        get_member(in, &c->member);
        return true;
    case COMMAND_DRAIN:
        c->drain.node = get_node_id(in, 1);
        c->drain.life = get_life(in);
        c->drain.drained = get_bool(in);
        return true;
    case COMMAND_RECOVER:
        c->recover.node = get_node_id(in, 1);
        c->recover.life = get_life(in);
        return true;
    case COMMAND_NONE:
    default:
        return false;
    }
}

int command_decode(const uint8_t *bytes, size_t size, struct command *ret_command, struct err *err)
{
    if (size > COMMAND_SIZE_MAX) {
        return err_set(err, ERR_PROTO, "a log entry of %zu bytes; the most is %d", size,
                       COMMAND_SIZE_MAX);
    }
    struct reader in = {bytes, size, false};
    struct command made = {0};
    uint8_t format = read_u8(&in);
    uint8_t kind = read_u8(&in);
    uint16_t zero = read_u16(&in);
    made.kind = (enum command_kind)kind;
    made.wall_ms = read_u64(&in);
    if (in.failed || format != COMMAND_FORMAT || zero != 0) {
        return err_set(err, ERR_PROTO, "a log entry of format %u; this version knows %d", format,
                       COMMAND_FORMAT);
    }
    if (!get_fields(&in, &made)) {
        return err_set(err, ERR_PROTO, "a log entry of kind %u, which this version does not know",
                       kind);
    }
    if (in.failed || in.size != 0) {
        return err_set(err, ERR_PROTO, "a malformed '%s' entry of %zu bytes",
                       command_label(made.kind), size);
    }
    *ret_command = made;
    return 0;
}
