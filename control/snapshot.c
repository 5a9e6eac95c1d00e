/* The state as bytes: everything, open votes included, in one order, so that two nodes with the
 * same state have the same bytes. Loading checks what the handlers take for granted. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "control/state.h"
#include "control/state_edit.h"

#define SNAPSHOT_MAGIC  0x53505043U /* "CPPS" */
#define SNAPSHOT_FORMAT 3U          /* 2: copies; 3: members */

/* ---- write ---- */

static void put_bool(struct buf *out, bool value)
{
    buf_put_u8(out, value ? 1 : 0);
}

static void put_epoch(struct buf *out, const struct state_epoch *e)
{
    buf_put_u64(out, e->epoch);
    buf_put_u64(out, e->step);
    buf_put_u64(out, e->generation);
    put_bool(out, e->ends);
    buf_put_u64(out, e->begun_ms);
    buf_put_u64(out, e->decided_ms);
    buf_put_u64(out, e->decided_index);
    buf_put(out, e->parameter_sha256, SHA256_SIZE);
    buf_put(out, e->accumulator_sha256, SHA256_SIZE);
    buf_put_u64(out, e->loss_bits);
    buf_put_u32(out, e->shards_count);
    for (uint32_t i = 0; i < e->shards_count; i++) {
        const struct state_shard *s = &e->shards[i];
        buf_put_u32(out, s->node);
        buf_put_u64(out, s->incarnation);
        buf_put_u64(out, s->first);
        buf_put_u64(out, s->end);
        put_bool(out, s->prepared);
        put_bool(out, s->published);
        buf_put_u64(out, s->size);
        buf_put(out, s->sha256, SHA256_SIZE);
        buf_put_u32(out, s->copies);
        buf_put_u32(out, s->wanted);
        buf_put_u32(out, s->holders_count);
        for (uint32_t k = 0; k < s->holders_count; k++) {
            buf_put_u32(out, s->holders[k]);
        }
    }
}

static void put_result(struct buf *out, const struct state_result *r)
{
    buf_put_u64(out, r->epoch);
    buf_put_u64(out, r->step);
    put_bool(out, r->has_loss);
    buf_put_u64(out, r->loss_bits);
    put_bool(out, r->has_objective);
    buf_put_u64(out, r->objective_bits);
    buf_put(out, r->parameter_sha256, SHA256_SIZE);
    buf_put(out, r->accumulator_sha256, SHA256_SIZE);
}

static void put_generation(struct buf *out, const struct state_job *j)
{
    buf_put_u64(out, j->generation);
    buf_put_u64(out, j->seed_epoch);
    buf_put_u32(out, j->participants_count);
    for (uint32_t i = 0; i < j->participants_count; i++) {
        buf_put_u32(out, j->participants[i].node);
        buf_put_u64(out, j->participants[i].incarnation);
    }
    buf_put_u32(out, j->attempts);
    put_bool(out, j->partitioned);
    buf_put(out, j->dataset, SHA256_SIZE);
    buf_put(out, j->identity, SHA256_SIZE);
    buf_put_u64(out, j->rows);
    buf_put_u64(out, j->features);
    buf_put_u64(out, j->steps);
    buf_put_u64(out, j->coordinates);
    buf_put_u32(out, j->ranges_count);
    for (uint32_t i = 0; j->ranges_count > 0 && i <= j->ranges_count; i++) {
        buf_put_u64(out, j->bounds[i]);
    }
}

static void put_job(struct buf *out, const struct state_job *j)
{
    buf_put_u64(out, j->id);
    buf_put(out, j->uuid, sizeof(j->uuid));
    buf_put_text(out, j->name);
    buf_put_text(out, j->client);
    buf_put_text(out, j->policy);
    buf_put(out, j->identity_inputs, SHA256_SIZE);
    buf_put_u32(out, j->keep);
    buf_put_u32(out, j->replicas);
    buf_put_u32(out, j->nodes_wanted);
    put_bool(out, j->elastic);
    buf_put_text(out, j->text);
    buf_put_u8(out, (uint8_t)j->state);
    buf_put_text(out, j->reason);
    buf_put_u64(out, j->submitted_ms);
    buf_put_u64(out, j->changed_ms);
    buf_put_u64(out, j->started_ms);
    buf_put_u64(out, j->ended_ms);
    put_generation(out, j);
    buf_put_u64(out, j->turn);
    put_bool(out, j->stopping);
    put_bool(out, j->regrouping);
    buf_put_u32(out, j->stop_node);
    buf_put_u64(out, j->stop_incarnation);
    buf_put_text(out, j->stop_reason);
    buf_put_u8(out, (uint8_t)j->hold);
    buf_put_u32(out, j->hold_node);
    buf_put_u64(out, j->hold_incarnation);
    buf_put_u64(out, j->epoch_next);
    buf_put_u64(out, j->begun_step);
    buf_put_u32(out, j->aborted_in_turn);
    buf_put_u64(out, j->aborted_epoch);
    buf_put_text(out, j->aborted_reason);
    buf_put_u64(out, j->lost_epoch);
    put_bool(out, j->open != NULL);
    if (j->open != NULL) {
        put_epoch(out, j->open);
    }
    buf_put_u32(out, j->epochs_count);
    for (uint32_t i = 0; i < j->epochs_count; i++) {
        put_epoch(out, j->epochs[i]);
    }
    put_result(out, &j->result);
}

void state_write(const struct state *state, struct buf *out)
{
    buf_put_u32(out, SNAPSHOT_MAGIC);
    buf_put_u32(out, SNAPSHOT_FORMAT);
    buf_put_u64(out, state->applied_index);
    buf_put_u64(out, state->generation);
    buf_put_u64(out, state->job_next);
    buf_put_u64(out, state->changes);
    buf_put_u32(out, state->nodes_count);
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        const struct state_node *n = &state->nodes[i];
        buf_put_u32(out, n->id);
        buf_put_u32(out, n->life);
        buf_put_u64(out, n->incarnation);
        buf_put_u8(out, n->role);
        buf_put_u8(out, n->standing);
        put_bool(out, n->drained);
        buf_put(out, n->uuid, sizeof(n->uuid));
        buf_put_u64(out, n->seen_ms);
        buf_put_text(out, n->name);
        buf_put_text(out, n->address);
        buf_put_text(out, n->device);
        buf_put(out, n->binding, sizeof(n->binding));
    }
    buf_put_u32(out, state->jobs_count);
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        put_job(out, state->jobs[i]);
    }
}

/* ---- load: anything odd sets in->failed; every loop ends there ---- */

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

static uint32_t get_count(struct reader *in, uint32_t least, uint32_t most)
{
    uint32_t count = read_u32(in);
    check(in, count >= least && count <= most);
    return in->failed ? 0 : count;
}

static struct state_epoch *get_epoch(struct reader *in, bool open)
{
    uint64_t epoch = read_u64(in);
    uint64_t step = read_u64(in);
    uint64_t generation = read_u64(in);
    bool ends = get_bool(in);
    uint64_t begun_ms = read_u64(in);
    uint64_t decided_ms = read_u64(in);
    uint64_t decided_index = read_u64(in);
    check(in, (decided_index == 0) == open);
    uint8_t digests[2][SHA256_SIZE];
    read_bytes(in, digests[0], SHA256_SIZE);
    read_bytes(in, digests[1], SHA256_SIZE);
    uint64_t loss_bits = read_u64(in);
    uint32_t shards_count = get_count(in, 1, STATE_NODES_MAX);
    if (in->failed) {
        return NULL;
    }
    struct state_epoch *e = state_epoch_new(shards_count);
    e->epoch = epoch;
    e->step = step;
    e->generation = generation;
    e->ends = ends;
    e->begun_ms = begun_ms;
    e->decided_ms = decided_ms;
    e->decided_index = decided_index;
    memcpy(e->parameter_sha256, digests[0], SHA256_SIZE);
    memcpy(e->accumulator_sha256, digests[1], SHA256_SIZE);
    e->loss_bits = loss_bits;
    for (uint32_t i = 0; !in->failed && i < shards_count; i++) {
        struct state_shard *s = &e->shards[i];
        s->node = get_count(in, 1, STATE_NODES_MAX);
        s->incarnation = read_u64(in);
        s->first = read_u64(in);
        s->end = read_u64(in);
        check(in, s->first < s->end && s->first == (i == 0 ? 0 : e->shards[i - 1].end));
        s->prepared = get_bool(in);
        s->published = get_bool(in);
        check(in, open ? !s->published : s->prepared);
        s->size = read_u64(in);
        read_bytes(in, s->sha256, SHA256_SIZE);
        s->copies = get_count(in, 0, COMMAND_HOLDERS_MAX - 1);
        s->wanted = get_count(in, 0, STATE_NODES_MAX);
        s->holders_count = get_count(in, s->prepared ? 1 : 0, COMMAND_HOLDERS_MAX);
        for (uint32_t k = 0; !in->failed && k < s->holders_count; k++) {
            s->holders[k] = get_count(in, 1, STATE_NODES_MAX);
        }
    }
    check(in, !open || state_votes(e) < e->shards_count);
    return e;
}

static void get_result(struct reader *in, struct state_result *r)
{
    r->epoch = read_u64(in);
    r->step = read_u64(in);
    r->has_loss = get_bool(in);
    r->loss_bits = read_u64(in);
    r->has_objective = get_bool(in);
    r->objective_bits = read_u64(in);
    read_bytes(in, r->parameter_sha256, SHA256_SIZE);
    read_bytes(in, r->accumulator_sha256, SHA256_SIZE);
}

static void get_generation(struct reader *in, const struct state *state, struct state_job *j)
{
    j->generation = read_u64(in);
    check(in, j->generation <= state->generation);
    j->seed_epoch = read_u64(in);
    j->participants_count = get_count(in, 0, STATE_NODES_MAX);
    check(in, (j->generation == 0) == (j->participants_count == 0));
    for (uint32_t i = 0; !in->failed && i < j->participants_count; i++) {
        j->participants[i].node = get_count(in, 1, STATE_NODES_MAX);
        j->participants[i].incarnation = read_u64(in);
    }
    j->attempts = read_u32(in);
    j->partitioned = get_bool(in);
    read_bytes(in, j->dataset, SHA256_SIZE);
    read_bytes(in, j->identity, SHA256_SIZE);
    j->rows = read_u64(in);
    j->features = read_u64(in);
    j->steps = read_u64(in);
    j->coordinates = read_u64(in);
    j->ranges_count = get_count(in, 0, STATE_NODES_MAX);
    check(in, j->ranges_count == 0 || (j->partitioned && j->ranges_count == j->participants_count));
    for (uint32_t i = 0; !in->failed && j->ranges_count > 0 && i <= j->ranges_count; i++) {
        j->bounds[i] = read_u64(in);
        check(in, i == 0 ? j->bounds[0] == 0 : j->bounds[i] > j->bounds[i - 1]);
    }
    check(in, j->ranges_count == 0 || j->bounds[j->ranges_count] == j->coordinates);
}

static void get_job_text(struct reader *in, struct state_job *j)
{
    j->text_size = get_count(in, 0, COMMAND_JOB_TEXT_MAX);
    check(in, j->text_size <= in->size);
    if (in->failed) {
        j->text_size = 0;
    }
    j->text = calloc((size_t)j->text_size + 1, 1);
    ASSERT(j->text != NULL);
    read_bytes(in, j->text, j->text_size);
    check(in, strlen(j->text) == j->text_size);
}

/* What the handlers of state_apply.c and state_publish.c rely on. */
static bool job_sound(const struct state_job *j)
{
    bool running = j->state == JOB_RUNNING || j->state == JOB_FINISHING || j->state == JOB_LOADING;
    if ((state_job_active(j) && j->generation == 0) || (running && j->ranges_count == 0) ||
        (j->stopping && !state_job_active(j)) || (j->open != NULL && state_job_ended(j)) ||
        (j->hold != HOLD_NONE && j->state != JOB_PAUSED)) {
        return false;
    }
    uint64_t last = 0;
    uint64_t step = 0;
    for (uint32_t i = 0; i < j->epochs_count; i++) {
        if (j->epochs[i]->epoch <= last || j->epochs[i]->step <= step ||
            j->epochs[i]->epoch >= j->epoch_next) {
            return false;
        }
        last = j->epochs[i]->epoch;
        step = j->epochs[i]->step;
    }
    return j->open == NULL || (j->open->epoch > last && j->open->epoch < j->epoch_next &&
                               j->epochs_count < STATE_EPOCHS_MAX);
}

static void get_job(struct reader *in, const struct state *state, struct state_job *j)
{
    j->id = read_u64(in);
    read_bytes(in, j->uuid, sizeof(j->uuid));
    read_text(in, j->name, sizeof(j->name));
    read_text(in, j->client, sizeof(j->client));
    read_text(in, j->policy, sizeof(j->policy));
    read_bytes(in, j->identity_inputs, SHA256_SIZE);
    j->keep = get_count(in, 1, COMMAND_KEEP_MAX);
    j->replicas = read_u32(in);
    j->nodes_wanted = get_count(in, 0, COMMAND_NODES_MAX);
    j->elastic = get_bool(in);
    get_job_text(in, j);
    uint8_t job_state = read_u8(in);
    check(in, job_state >= JOB_SUBMITTED && job_state <= JOB_PAUSED);
    j->state = in->failed ? JOB_SUBMITTED : (enum state_job_state)job_state;
    read_text(in, j->reason, sizeof(j->reason));
    j->submitted_ms = read_u64(in);
    j->changed_ms = read_u64(in);
    j->started_ms = read_u64(in);
    j->ended_ms = read_u64(in);
    get_generation(in, state, j);
    j->turn = read_u64(in);
    j->stopping = get_bool(in);
    j->regrouping = get_bool(in);
    check(in, j->stopping || !j->regrouping);
    j->stop_node = get_count(in, 0, STATE_NODES_MAX);
    j->stop_incarnation = read_u64(in);
    read_text(in, j->stop_reason, sizeof(j->stop_reason));
    uint8_t hold = read_u8(in);
    check(in, hold <= HOLD_NODE);
    j->hold = in->failed ? HOLD_NONE : (enum state_hold)hold;
    j->hold_node = get_count(in, 0, STATE_NODES_MAX);
    j->hold_incarnation = read_u64(in);
    j->epoch_next = read_u64(in);
    j->begun_step = read_u64(in);
    j->aborted_in_turn = read_u32(in);
    j->aborted_epoch = read_u64(in);
    read_text(in, j->aborted_reason, sizeof(j->aborted_reason));
    j->lost_epoch = read_u64(in);
    if (get_bool(in)) {
        j->open = get_epoch(in, true);
    }
    uint32_t epochs_count = get_count(in, 0, STATE_EPOCHS_MAX);
    for (uint32_t i = 0; !in->failed && i < epochs_count; i++) {
        struct state_epoch *epoch = get_epoch(in, false);
        if (epoch != NULL) {
            j->epochs[j->epochs_count++] = epoch;
        }
    }
    get_result(in, &j->result);
    check(in, in->failed || job_sound(j));
}

static void get_nodes(struct reader *in, struct state *state)
{
    state->nodes_count = get_count(in, 0, STATE_NODES_MAX);
    for (uint32_t i = 0; !in->failed && i < state->nodes_count; i++) {
        struct state_node *n = &state->nodes[i];
        n->id = get_count(in, 1, STATE_NODES_MAX);
        check(in, i == 0 || n->id > state->nodes[i - 1].id);
        n->life = read_u32(in);
        check(in, n->life <= COMMAND_LIFE_MAX);
        n->incarnation = read_u64(in);
        n->role = read_u8(in);
        check(in, n->role >= ROLE_TRAINER && n->role <= ROLE_SPARE);
        n->standing = read_u8(in);
        check(in, n->standing >= STANDING_EXPECTED && n->standing <= STANDING_REMOVED);
        n->drained = get_bool(in);
        read_bytes(in, n->uuid, sizeof(n->uuid));
        n->seen_ms = read_u64(in);
        read_text(in, n->name, sizeof(n->name));
        read_text(in, n->address, sizeof(n->address));
        read_text(in, n->device, sizeof(n->device));
        read_bytes(in, n->binding, sizeof(n->binding));
    }
}

int state_load(struct state *state, const uint8_t *bytes, size_t size, struct err *err)
{
    struct reader in = {bytes, size, false};
    uint32_t magic = read_u32(&in);
    uint32_t format = read_u32(&in);
    if (in.failed || magic != SNAPSHOT_MAGIC) {
        return err_set(err, ERR_DAMAGED, "a snapshot of %zu bytes that is none", size);
    }
    if (format != SNAPSHOT_FORMAT) {
        return err_set(err, ERR_STATE,
                       "a snapshot of format %u; this version knows %u: use the version of "
                       "coppeliusd that wrote it",
                       format, SNAPSHOT_FORMAT);
    }
    struct state *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the cluster's state");
    }
    made->applied_index = read_u64(&in);
    made->generation = read_u64(&in);
    made->job_next = read_u64(&in);
    made->changes = read_u64(&in);
    get_nodes(&in, made);
    uint32_t jobs_count = get_count(&in, 0, STATE_JOBS_MAX);
    uint32_t active = 0;
    for (uint32_t i = 0; !in.failed && i < jobs_count; i++) {
        struct state_job *job = state_job_new();
        made->jobs[made->jobs_count++] = job;
        get_job(&in, made, job);
        check(&in, job->id < made->job_next && (i == 0 || job->id > made->jobs[i - 1]->id));
        active += state_job_active(job) ? 1 : 0;
    }
    check(&in, active <= 1);
    if (in.failed || in.size != 0) {
        state_done(made);
        free(made);
        return err_set(err, ERR_DAMAGED, "a malformed snapshot of %zu bytes", size);
    }
    state_done(state);
    *state = *made;
    free(made);
    return 0;
}
