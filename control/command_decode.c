/* Bytes of the log to commands: anything odd sets reader->failed. */
#include "control/command.h"

#include <string.h>

#include "base/assert.h"

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
static bool get_fields(struct reader *in, uint8_t format, struct command *c)
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
        c->copy.life = format < 3 ? COMMAND_LIFE_UNSAID : read_u32(in);
        check(in, c->copy.life <= COMMAND_LIFE_MAX || c->copy.life == COMMAND_LIFE_UNSAID);
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
    if (in.failed || format < COMMAND_FORMAT_LEAST || format > COMMAND_FORMAT || zero != 0) {
        return err_set(err, ERR_PROTO, "a log entry of format %u; this version knows %d to %d",
                       format, COMMAND_FORMAT_LEAST, COMMAND_FORMAT);
    }
    if (!get_fields(&in, format, &made)) {
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
