/* A node of the world with the state machine, the coordinator and a client on it. */
#include "tests/sim/publication.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/publication_core.h"

#define BEAT_MS   100U
#define REPEAT_MS 300U

/* ---- options ---- */

static const char *const mutant_texts[] = {
#define PUBLICATION_MUTANT_TEXT(name, text) text,
    PUBLICATION_MUTANTS(PUBLICATION_MUTANT_TEXT)
#undef PUBLICATION_MUTANT_TEXT
};

const char *publication_mutant_text(enum publication_mutant mutant)
{
    return mutant_texts[mutant];
}

static uint32_t pick(struct rand *rand, const uint32_t *choices, size_t count)
{
    return choices[rand_below(rand, count)];
}
#define PICK(rand, ...)                         \
    pick(rand, (const uint32_t[]){__VA_ARGS__}, \
         sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

void publication_options_of_seed(uint64_t seed, struct publication_options *options,
                                 struct world_options *world)
{
    struct rand own = {seed * 0xD1342543DE82EF95U + 7};
    struct rand *rand = &own;
    options->jobs = PICK(rand, 1, 1, 2, 3);
    options->steps = PICK(rand, 4, 12, 20, 30);
    options->every = PICK(rand, 1, 3, 5, 100);
    options->keep = PICK(rand, 1, 1, 2, 3);
    options->coordinates = PICK(rand, 1, 3, 9, 20);
    options->step_ms = PICK(rand, 1, 10, 40);
    options->file_ms_max = PICK(rand, 1, 20, 200);
    options->suspect_ms = PICK(rand, 1000, 3000);
    options->prepare_ms = PICK(rand, 300, 2000, 60000);
    options->disturb_ms = PICK(rand, 0, 0, 2000, 4000);
    options->replicas = PICK(rand, 0, 1, 1, 1, 2);
    options->hurt_ms = PICK(rand, 0, 0, 1500, 4000);
    options->elastic = PICK(rand, 0, 1);
    options->drain_ms = PICK(rand, 0, 0, 2000, 6000);
    options->removes = options->elastic != 0 && options->replicas != 0 ? PICK(rand, 0, 1) : 0;
    options->rejoins = options->replicas != 0 ? PICK(rand, 0, 1, 3) : 0;
    options->mutant = MUTANT_NONE;
    world->heal_ms = 240000;
    world->nodes = world->voters + PICK(rand, 0, 0, 1);
    world->member_ms = 0;
    world->wipe_ms = 0;
    world->propose_ms = 1000000; /* The core's own clients are not here. */
    /* Nodes that die again and again never train: half of the seeds leave them time. */
    if (world->crash_ms != 0 && rand_below(rand, 2) == 0) {
        world->crash_ms *= 4;
    }
}

void publication_options_print(const struct publication_options *options)
{
    printf("  jobs=%u steps=%u every=%u keep=%u coordinates=%u step_ms=%u file_ms_max=%u "
           "suspect_ms=%u prepare_ms=%u disturb_ms=%u replicas=%u hurt_ms=%u elastic=%u "
           "drain_ms=%u removes=%u rejoins=%u mutant=%s\n",
           options->jobs, options->steps, options->every, options->keep, options->coordinates,
           options->step_ms, options->file_ms_max, options->suspect_ms, options->prepare_ms,
           options->disturb_ms, options->replicas, options->hurt_ms, options->elastic,
           options->drain_ms, options->removes, options->rejoins,
           publication_mutant_text(options->mutant));
}

struct publication *publication_new(const struct publication_options *options)
{
    struct publication *all = calloc(1, sizeof(*all));
    ASSERT(all != NULL);
    ASSERT(options->jobs <= JOBS_MAX);
    all->options = *options;
    return all;
}

void publication_free(struct publication *all)
{
    free(all);
}

void publication_counts(const struct publication *all, struct publication_counts *ret_counts)
{
    *ret_counts = all->counts;
}

void publication_hold_votes(struct publication *all, unsigned node, bool hold)
{
    all->hold_votes[node] = hold;
}

void publication_hold_publish(struct publication *all, unsigned node, bool hold)
{
    all->hold_publish[node] = hold;
}

void publication_fill_disk(struct publication *all, unsigned node, bool full)
{
    all->full[node] = full;
}

const struct state *publication_state(const void *self)
{
    return ((const struct pub_node *)self)->state;
}

/* ---- small things ---- */

uint64_t pub_now_ms(const struct pub_node *node)
{
    return world_node_now_ms(node->world, node->node);
}

unsigned pub_peer_of(const struct world *world, uint32_t node_id)
{
    ASSERT(node_id >= 1);
    return world_node_of(world, node_id);
}

uint32_t pub_id(const struct pub_node *node)
{
    return world_place(node->world, node->node);
}

void pub_propose(struct pub_node *node, struct command *command)
{
    struct buf bytes = BUF_NONE;
    command->wall_ms = world_now_us(node->world) / 1000;
    ASSERT(command_encode(command, &bytes, NULL) == 0);
    (void)world_propose(node->world, node->node, bytes.bytes, bytes.size);
    buf_done(&bytes);
}

/* ---- the state machine ---- */

/* A mutant's memory of what the lost identity held, and its work: it holds it still. */
static void note_held(const struct pub_node *node, struct buf *held)
{
    uint32_t place = member_place(node->all->lost_id);
    if (node->all->options.mutant != MUTANT_OLD_COPIES || place == 0) {
        return;
    }
    for (uint32_t i = 0; i < node->state->jobs_count; i++) {
        const struct state_job *job = node->state->jobs[i];
        for (uint32_t k = 0; k < job->epochs_count; k++) {
            for (uint32_t r = 0; r < job->epochs[k]->shards_count; r++) {
                if (state_shard_held(&job->epochs[k]->shards[r], place)) {
                    buf_put_u64(held, job->id);
                    buf_put_u64(held, job->epochs[k]->epoch);
                    buf_put_u32(held, r);
                }
            }
        }
    }
}

static void keep_held(const struct pub_node *node, struct buf *held)
{
    struct reader in = {held->bytes, held->size, false};
    uint32_t place = member_place(node->all->lost_id);
    while (in.size > 0) {
        uint64_t id = read_u64(&in);
        uint64_t number = read_u64(&in);
        uint32_t rank = read_u32(&in);
        const struct state_job *job = state_job(node->state, id);
        for (uint32_t k = 0; job != NULL && k < job->epochs_count; k++) {
            struct state_shard *shard = &job->epochs[k]->shards[rank];
            if (job->epochs[k]->epoch == number && !state_shard_held(shard, place) &&
                !state_node_in(state_node(node->state, place)) &&
                shard->holders_count < COMMAND_HOLDERS_MAX) {
                shard->holders[shard->holders_count++] = place;
            }
        }
    }
    buf_done(held);
}

static void fsm_apply(void *context, uint64_t index, uint64_t term, const uint8_t *command,
                      size_t size)
{
    struct pub_node *node = context;
    struct err why = {0};
    struct buf held = BUF_NONE;
    (void)term;
    note_held(node, &held);
    if (state_apply(node->state, index, command, size, &why) == STATE_REFUSED) {
        world_violation(node->world, "an entry is refused: %s", why.text);
    }
    keep_held(node, &held);
    pub_watch_state(node);
}

static void lose_votes(struct state *state)
{
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        struct state_epoch *open = state->jobs[i]->open;
        for (uint32_t k = 0; open != NULL && k < open->shards_count; k++) {
            open->shards[k].prepared = false;
            open->shards[k].holders_count = 0;
        }
    }
}

static void fsm_snapshot_write(void *context, struct buf *bytes)
{
    struct pub_node *node = context;
    size_t before = bytes->size;
    state_write(node->state, bytes);
    if (node->all->options.mutant == MUTANT_SNAPSHOT_VOTES) {
        struct state *copy = calloc(1, sizeof(*copy));
        ASSERT(copy != NULL);
        state_init(copy);
        ASSERT(state_load(copy, bytes->bytes + before, bytes->size - before, NULL) == 0);
        lose_votes(copy);
        bytes->size = before;
        state_write(copy, bytes);
        state_done(copy);
        free(copy);
    }
}

static int fsm_snapshot_load(void *context, uint64_t index, const uint8_t *bytes, size_t size,
                             struct err *err)
{
    struct pub_node *node = context;
    (void)index;
    int code = state_load(node->state, bytes, size, err);
    if (code == 0) {
        pub_watch_state(node);
    }
    return code;
}

static void on_fsm(void *self, struct control_fsm *ret_fsm)
{
    *ret_fsm = (struct control_fsm){self, fsm_apply, fsm_snapshot_write, fsm_snapshot_load};
}

/* ---- life ---- */

static void *on_open(struct world *world, unsigned number, uint64_t incarnation, struct fs *fs)
{
    struct pub_node *node = calloc(1, sizeof(*node));
    ASSERT(node != NULL);
    node->world = world;
    node->all = world_context(world);
    node->node = number;
    node->incarnation = incarnation;
    node->state = calloc(1, sizeof(*node->state));
    ASSERT(node->state != NULL);
    state_init(node->state);
    pub_fs_init(node, fs);
    for (uint64_t job = 1; job <= JOBS_MAX; job++) {
        agent_init(&node->agents[job - 1].agent, job, world_id(world, number), incarnation);
        /* What a crash left, before anybody touches it: it is all durable. */
        pub_look(node, job, true);
        uint64_t left = node->all->seen_current[number][job - 1];
        if (node->all->seen_in[number] == incarnation) {
            pub_note_current(node->all, number, job, left);
        }
    }
    return node;
}

static void on_close(void *self)
{
    struct pub_node *node = self;
    state_done(node->state);
    free(node->state);
    free(node);
}

/* ---- clients ---- */

void publication_submit(struct publication *all, unsigned node)
{
    ASSERT(all->jobs_made < JOBS_MAX);
    all->jobs[all->jobs_made] = (struct pub_job){.submitted = true, .client = node};
    all->jobs_made++;
}

static void client_tick(struct pub_node *node)
{
    static const char text[] = "kind: fake\n";
    struct publication *all = node->all;
    struct rand *rand = world_rand(node->world);
    bool time = world_faulty(node->world) && rand_below(rand, 25) == 0;
    bool member = pub_is_member(node, node->node) && !pub_is_out(all, node->node);
    if (all->jobs_made < all->options.jobs && member && (time || all->healed)) {
        publication_submit(all, node->node);
    }
    for (uint32_t i = 0; i < all->jobs_made; i++) {
        struct pub_job *job = &all->jobs[i];
        uint8_t uuid[COMMAND_UUID_SIZE] = {(uint8_t)(i + 1), 0xaa};
        const struct state_job *known = state_job_by_uuid(node->state, uuid);
        if (known != NULL) {
            if (job->id != 0 && job->id != known->id) {
                world_violation(node->world, "job %u is there as %llu and as %llu", i,
                                (unsigned long long)job->id, (unsigned long long)known->id);
            }
            job->id = known->id;
        }
        if (pub_is_out(all, job->client) && member) {
            job->client = node->node; /* Somebody else asks in its place. */
        }
        if (job->client != node->node || job->acknowledged) {
            continue;
        }
        job->acknowledged = known != NULL;
        uint64_t now = world_now_us(node->world);
        if (!job->acknowledged && (job->tried_us == 0 || now - job->tried_us > 1000U * REPEAT_MS)) {
            struct command c = {.kind = COMMAND_SUBMIT};
            job->tried_us = now;
            memcpy(c.submit.uuid, uuid, sizeof(uuid));
            (void)snprintf(c.submit.name, sizeof(c.submit.name), "fake");
            (void)snprintf(c.submit.policy, sizeof(c.submit.policy), "none");
            c.submit.keep = all->options.keep;
            c.submit.replicas = all->options.replicas;
            c.submit.elastic = all->options.elastic != 0;
            c.submit.text = text;
            c.submit.text_size = sizeof(text) - 1;
            pub_propose(node, &c);
        }
    }
}

static void stop_job(struct pub_node *node, const struct state_job *job, enum command_stop how,
                     uint32_t id)
{
    struct command c = {.kind = COMMAND_STOP};
    c.stop.job = job->id;
    c.stop.turn = job->turn;
    c.stop.how = (uint8_t)how;
    c.stop.node = id;
    c.stop.incarnation = id == 0 ? 0 : node->incarnation;
    (void)snprintf(c.stop.reason, sizeof(c.stop.reason), "%s",
                   id != 0 ? "the node stops" : "somebody asked");
    pub_propose(node, &c);
}

/* People pause, resume, cancel; supervisors send SIGTERM. */
static void disturb_tick(struct pub_node *node)
{
    struct rand *rand = world_rand(node->world);
    uint64_t now = pub_now_ms(node);
    const struct state *state = node->state;
    uint32_t mean = node->all->options.disturb_ms;
    if (node->all->healed && now - node->disturb_ms > REPEAT_MS) {
        node->disturb_ms = now;
        for (uint32_t i = 0; i < state->jobs_count; i++) {
            const struct state_job *job = state->jobs[i];
            if ((job->hold == HOLD_USER && job->state == JOB_PAUSED) ||
                (job->stopping && job->stop_node == 0)) {
                struct command c = {.kind = COMMAND_RESUME};
                c.resume.job = job->id;
                c.resume.turn = job->turn;
                pub_propose(node, &c);
            }
        }
    }
    if (mean == 0 || node->all->healed || state->jobs_count == 0 || rand_below(rand, mean) >= 20) {
        return;
    }
    const struct state_job *job = state->jobs[rand_below(rand, state->jobs_count)];
    uint64_t kind = rand_below(rand, 20);
    if (kind == 0) {
        stop_job(node, job, STOP_DROP, 0);
    } else if (kind < 7) {
        stop_job(node, job, STOP_CAPTURE, 0);
    } else if (kind < 14) {
        struct command c = {.kind = COMMAND_RESUME};
        c.resume.job = job->id;
        c.resume.turn = job->turn;
        pub_propose(node, &c);
    } else if (node->term_ms == 0) {
        node->term_ms = now;
    }
}

/* SIGTERM: the job is asked to stop; the node ends when it does not run here any more. */
static void term_tick(struct pub_node *node)
{
    const struct state_job *job = state_active_job(node->state);
    uint64_t now = pub_now_ms(node);
    if (node->term_ms == 0) {
        return;
    }
    bool mine = job != NULL && state_rank(job, pub_id(node)) >= 0;
    if (!mine || now - node->term_ms > 5000) {
        world_die(node->world, node->node, "SIGTERM");
    } else if (!job->stopping && now - node->disturb_ms > REPEAT_MS) {
        node->disturb_ms = now;
        stop_job(node, job, STOP_CAPTURE, pub_id(node));
    }
}

/* ---- heartbeats, registration, coordinator ---- */

static void beat(struct pub_node *node)
{
    struct coordinator_report captured = {0};
    struct buf bytes = BUF_NONE;
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        const struct agent *agent = &node->agents[i].agent;
        if (agent_holds_capture(agent, node->state)) {
            captured = (struct coordinator_report){agent->job, agent->capture.generation,
                                                   agent->capture.step, agent->capture.ends};
        }
    }
    buf_put_u8(&bytes, MAIL_BEAT);
    buf_put_u32(&bytes, world_id(node->world, node->node));
    buf_put_u64(&bytes, node->incarnation);
    buf_put_u64(&bytes, captured.job);
    buf_put_u64(&bytes, captured.generation);
    buf_put_u64(&bytes, captured.step);
    buf_put_u8(&bytes, captured.ends ? 1 : 0);
    buf_put_u64(&bytes, node->run.phase >= RUN_LOADED ? node->run.generation : 0);
    for (unsigned to = 0; to < world_options(node->world)->nodes; to++) {
        if (to != node->node) {
            world_send(node->world, node->node, to, bytes.bytes, bytes.size);
        }
    }
    node->peers[node->node] =
        (struct pub_peer){true, pub_now_ms(node), node->incarnation, captured,
                          node->run.phase >= RUN_LOADED ? node->run.generation : 0};
    buf_done(&bytes);
}

static void on_beat(struct pub_node *node, unsigned from, struct reader *in)
{
    struct pub_peer peer = {.heard = true, .heard_ms = pub_now_ms(node)};
    uint32_t id = read_u32(in);
    peer.incarnation = read_u64(in);
    peer.captured.job = read_u64(in);
    peer.captured.generation = read_u64(in);
    peer.captured.step = read_u64(in);
    peer.captured.ends = read_u8(in) != 0;
    peer.loaded = read_u64(in);
    ASSERT(!in->failed);
    if (id == world_id(node->world, from) &&
        peer.incarnation >= node->peers[from].incarnation) { /* Else of an earlier process, late. */
        node->peers[from] = peer;
    }
}

static void on_message(void *self, unsigned from, const uint8_t *bytes, size_t size)
{
    struct pub_node *node = self;
    struct reader in = {bytes, size, false};
    if (size > 0 && bytes[0] == MAIL_BEAT) {
        (void)read_u8(&in);
        on_beat(node, from, &in);
    } else if (size > 0 && bytes[0] == MAIL_ASK) {
        (void)read_u8(&in);
        pub_on_ask(node, from, &in);
    } else if (size > 0 && bytes[0] == MAIL_OUT) {
        (void)read_u8(&in);
        pub_on_out(node, &in);
    } else if (size > 0 && bytes[0] == MAIL_WORD) {
        (void)read_u8(&in);
        pub_on_word(node, from, &in);
    } else {
        pub_run_message(node, from, &in);
    }
}

static void register_tick(struct pub_node *node)
{
    uint32_t id = world_id(node->world, node->node);
    const struct state_node *known = state_node(node->state, pub_id(node));
    uint64_t now = pub_now_ms(node);
    if (!pub_is_member(node, node->node) ||
        (known != NULL && known->incarnation == node->incarnation) ||
        now - node->node_ms < REPEAT_MS) {
        return;
    }
    struct command c = {.kind = COMMAND_NODE};
    node->node_ms = now;
    c.node.node = member_place(id);
    c.node.life = id >> 8U;
    c.node.incarnation = node->incarnation;
    c.node.role = ROLE_TRAINER;
    if (known != NULL) {
        memcpy(c.node.uuid, known->uuid, sizeof(c.node.uuid));
    }
    c.node.name[0] = (char)('a' + (char)node->node);
    pub_propose(node, &c);
}

static void coordinate(struct pub_node *node)
{
    const struct control *control = world_control(node->world, node->node);
    struct coordinator_view *view = calloc(1, sizeof(*view));
    ASSERT(view != NULL);
    view->now_ms = pub_now_ms(node);
    view->wall_ms = world_now_us(node->world) / 1000;
    view->leading = control_leads(control);
    view->suspect_ms = node->all->options.suspect_ms;
    view->prepare_ms = node->all->options.prepare_ms;
    view->nodes_count = world_options(node->world)->nodes;
    for (uint32_t i = 0; i < view->nodes_count; i++) {
        const struct pub_peer *peer = &node->peers[i];
        /* Who is no member yet is nobody's trainer. */
        view->nodes[i] = (struct coordinator_node){
            .id = world_place(node->world, i),
            .role = pub_is_member(node, i) ? ROLE_TRAINER : ROLE_ARBITER,
            .heard = peer->heard,
            .heard_ms = peer->heard_ms,
            .incarnation = peer->incarnation,
            .captured = peer->captured,
        };
    }
    view->nodes[node->node].heard_ms = view->now_ms;
    if (view->leading && !node->was_leading) {
        coordinator_reset(&node->coordinator);
    }
    node->was_leading = view->leading;
    struct command command;
    while (coordinator_next(&node->coordinator, node->state, view, &command)) {
        pub_propose(node, &command);
        view->leading = control_leads(control);
    }
    free(view);
}

static void on_tick(void *self)
{
    struct pub_node *node = self;
    pub_ask_tick(node);
    if (node->out) {
        return;
    }
    if (pub_now_ms(node) - node->beat_ms >= BEAT_MS) {
        node->beat_ms = pub_now_ms(node);
        beat(node);
    }
    register_tick(node);
    client_tick(node);
    disturb_tick(node);
    term_tick(node);
    pub_run_tick(node);
    pub_files_tick(node);
    pub_hurt_tick(node);
    pub_members_tick(node);
    coordinate(node);
}

static void on_heal(struct world *world)
{
    struct publication *all = world_context(world);
    all->healed = true;
    memset(all->hold_votes, 0, sizeof(all->hold_votes));
    memset(all->hold_publish, 0, sizeof(all->hold_publish));
    memset(all->full, 0, sizeof(all->full));
}

const struct world_extension world_publication = {
    .node_open = on_open,
    .node_close = on_close,
    .fsm = on_fsm,
    .on_tick = on_tick,
    .on_message = on_message,
    .settled = pub_settled,
    .finish = pub_finish,
    .on_heal = on_heal,
};
