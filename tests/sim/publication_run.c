/* The fake training: participants step together, told by rank 0; a message that does not come ends
 * the generation. Seeds from the files that publication left and checks their bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/publication_core.h"

#define REPEAT_MS   200U
#define DEADLINE_MS 2500U

double pub_value(uint64_t job, uint64_t coordinate, uint64_t step)
{
    return (double)(job * 1000000 + step * 1000 + coordinate) + 0.25;
}

static uint64_t total_steps(const struct pub_node *node)
{
    return node->all->options.steps;
}

/* The shard of the epoch that the generation starts from, out of this node's own files. */
static bool seed(struct pub_node *node, const struct state_job *job)
{
    struct pub_run *run = &node->run;
    if (job->seed_epoch == 0) {
        run->step = 0;
        return true;
    }
    struct agent *agent = &node->agents[job->id - 1].agent;
    const struct state_epoch *epoch = state_epoch(job, job->seed_epoch);
    int rank = state_rank(job, pub_id(node));
    uint64_t ranks = 0;
    for (uint32_t i = 0; rank >= 0 && epoch != NULL && i < epoch->shards_count; i++) {
        bool over = epoch->shards[i].first < job->bounds[rank + 1] &&
                    epoch->shards[i].end > job->bounds[rank];
        ranks |= over ? UINT64_C(1) << i : 0;
    }
    if (ranks == 0 || !agent_need(agent, job->seed_epoch, ranks)) {
        return false; /* The agent publishes, fetches and compares it first. */
    }
    char folder[FOLDER_PATH_SIZE];
    char path[FOLDER_PATH_SIZE];
    struct shard shard = SHARD_NONE;
    struct err err = {0};
    checkpoint_job_folder(job, folder);
    checkpoint_epoch_folder(folder, job->seed_epoch, path);
    int code = checkpoint_read_range(&node->fs.fs, path, job->bounds[rank], job->bounds[rank + 1],
                                     &shard, &err);
    if (code != 0) {
        agent_doubt(agent, job->seed_epoch);
        if (!sim_disk_dead(world_disk(node->world, node->node)) &&
            node->all->hurt != node->node + 1) {
            world_violation(node->world, "node %u cannot seed from epoch %llu: %s", node->node,
                            (unsigned long long)job->seed_epoch, err.text);
        }
        return false;
    }
    (void)agent_need(agent, 0, 0);
    run->step = shard.about.step;
    for (uint64_t i = 0; i < shard.about.end - shard.about.first; i++) {
        if (shard.parameter[i] != pub_value(job->id, shard.about.first + i, run->step)) {
            world_violation(node->world, "node %u seeds from wrong bits", node->node);
        }
    }
    shard_done(&shard);
    return true;
}

static void propose_partition(struct pub_node *node, const struct state_job *job)
{
    struct command c = {.kind = COMMAND_PARTITION};
    uint64_t coordinates = node->all->options.coordinates;
    uint64_t ranges = job->participants_count < coordinates ? job->participants_count : coordinates;
    c.partition.job = job->id;
    c.partition.generation = job->generation;
    c.partition.dataset[0] = 1;
    c.partition.identity[0] = 2;
    c.partition.rows = 100;
    c.partition.features = coordinates;
    c.partition.steps = total_steps(node);
    c.partition.ranges_count = (uint32_t)ranges;
    for (uint64_t i = 0; i <= ranges; i++) {
        c.partition.bounds[i] = coordinates * i / ranges;
    }
    pub_propose(node, &c);
}

static void propose_interrupt(struct pub_node *node, const struct state_job *job, uint32_t culprit)
{
    struct command c = {.kind = COMMAND_INTERRUPT};
    c.interrupt.job = job->id;
    c.interrupt.generation = job->generation;
    c.interrupt.node = culprit;
    (void)snprintf(c.interrupt.reason, sizeof(c.interrupt.reason),
                   "no word of node %u at step %llu", culprit, (unsigned long long)node->run.step);
    pub_propose(node, &c);
}

static bool all_loaded(const struct pub_node *node, const struct state_job *job)
{
    for (uint32_t i = 0; i < job->participants_count; i++) {
        unsigned peer = pub_peer_of(node->world, job->participants[i].node);
        if (peer == WORLD_NODES_MAX || node->peers[peer].loaded != job->generation) {
            return false;
        }
    }
    return true;
}

/* The step is done here: what its directive asks for follows. */
static void complete(struct pub_node *node, const struct state_job *job, uint64_t step,
                     bool capture, bool ends)
{
    node->run.step = step;
    node->run.progress_ms = pub_now_ms(node);
    if (capture) {
        pub_capture(node, job->id, step, ends);
    }
    if (ends) {
        node->run.phase = RUN_ENDED;
    }
}

/* Whether a capture may be taken now: the one before must have been let go. */
static bool capture_free(const struct pub_node *node, const struct state_job *job)
{
    return !agent_holds_capture(&node->agents[job->id - 1].agent, node->state);
}

static void send_step(struct pub_node *node, const struct state_job *job)
{
    struct buf bytes = BUF_NONE;
    buf_put_u8(&bytes, MAIL_STEP);
    buf_put_u64(&bytes, job->generation);
    buf_put_u64(&bytes, node->run.asked_step);
    buf_put_u8(&bytes, node->run.capture ? 1 : 0);
    buf_put_u8(&bytes, node->run.ends ? 1 : 0);
    for (uint32_t i = 0; i < job->participants_count; i++) {
        unsigned to = pub_peer_of(node->world, job->participants[i].node);
        if (to != WORLD_NODES_MAX && !node->run.acked[to]) {
            world_send(node->world, node->node, to, bytes.bytes, bytes.size);
        }
    }
    node->run.asked_ms = pub_now_ms(node);
    buf_done(&bytes);
}

/* Rank 0's part of a step. */
static void lead(struct pub_node *node, const struct state_job *job)
{
    struct pub_run *run = &node->run;
    uint64_t now = pub_now_ms(node);
    if (run->asked_step == 0) {
        if (now - run->progress_ms < node->all->options.step_ms) {
            return;
        }
        uint64_t step = run->step + 1;
        bool ends = step == job->steps || job->stopping;
        bool capture = ends || step % node->all->options.every == 0;
        if (capture && !capture_free(node, job)) {
            run->progress_ms = now; /* Waits for the publication, not for a peer. */
            return;
        }
        run->asked_step = step;
        run->capture = capture;
        run->ends = ends;
        memset(run->acked, 0, sizeof(run->acked));
        run->acked[node->node] = true;
        send_step(node, job);
    }
    for (uint32_t i = 0; i < job->participants_count; i++) {
        unsigned peer = pub_peer_of(node->world, job->participants[i].node);
        if (peer == WORLD_NODES_MAX || !run->acked[peer]) {
            if (now - run->progress_ms > DEADLINE_MS && now - run->proposed_ms > REPEAT_MS) {
                run->proposed_ms = now;
                propose_interrupt(node, job, job->participants[i].node);
            } else if (now - run->asked_ms > REPEAT_MS) {
                send_step(node, job);
            }
            return;
        }
    }
    uint64_t step = run->asked_step;
    run->asked_step = 0;
    complete(node, job, step, run->capture, run->ends);
}

static void start(struct pub_node *node, const struct state_job *job)
{
    node->run = (struct pub_run){.job = job->id,
                                 .generation = job->generation,
                                 .phase = RUN_SEEDING,
                                 .progress_ms = pub_now_ms(node)};
}

/* Rank 0 says how far the generation is, until it sees it applied. */
static void tell(struct pub_node *node, const struct state_job *job)
{
    struct pub_run *run = &node->run;
    const struct state_epoch *newest = state_newest_epoch(job);
    uint64_t now = pub_now_ms(node);
    if (now - run->proposed_ms < REPEAT_MS) {
        return;
    }
    if (job->state == JOB_PLACED) {
        run->proposed_ms = now;
        propose_partition(node, job);
    } else if (newest != NULL && newest->step == job->steps) {
        struct command c = {.kind = COMMAND_FINISH};
        run->proposed_ms = now;
        c.finish.job = job->id;
        c.finish.generation = job->generation;
        c.finish.outcome = OUTCOME_SUCCEEDED;
        c.finish.step = job->steps;
        pub_propose(node, &c);
    } else if (job->state == JOB_LOADING && all_loaded(node, job)) {
        struct command c = {.kind = COMMAND_RUNNING};
        run->proposed_ms = now;
        c.running.job = job->id;
        c.running.generation = job->generation;
        pub_propose(node, &c);
    }
}

void pub_run_tick(struct pub_node *node)
{
    struct pub_run *run = &node->run;
    const struct state_job *job = state_active_job(node->state);
    int rank = job == NULL ? -1 : state_rank(job, pub_id(node));
    if (rank < 0 || job->participants[rank].incarnation != node->incarnation) {
        run->phase = RUN_NONE;
        run->generation = 0;
        return;
    }
    if (run->generation != job->generation) {
        start(node, job);
    }
    if (rank == 0) {
        tell(node, job);
    }
    if (run->phase == RUN_SEEDING && job->ranges_count > 0 && seed(node, job)) {
        run->phase = run->step == job->steps ? RUN_ENDED : RUN_LOADED;
    }
    if (run->phase == RUN_LOADED && job->state == JOB_RUNNING) {
        run->phase = RUN_STEPPING;
        run->progress_ms = pub_now_ms(node);
    }
    if (run->phase == RUN_STEPPING && rank == 0) {
        lead(node, job);
    } else if (run->phase == RUN_STEPPING &&
               pub_now_ms(node) - run->progress_ms > 2 * DEADLINE_MS &&
               pub_now_ms(node) - run->proposed_ms > REPEAT_MS && capture_free(node, job)) {
        run->proposed_ms = pub_now_ms(node);
        propose_interrupt(node, job, job->participants[0].node);
    }
}

static void on_step(struct pub_node *node, unsigned from, struct reader *in)
{
    struct pub_run *run = &node->run;
    uint64_t generation = read_u64(in);
    uint64_t step = read_u64(in);
    bool capture = read_u8(in) != 0;
    bool ends = read_u8(in) != 0;
    const struct state_job *job = state_active_job(node->state);
    if (job == NULL || job->generation != generation || run->generation != generation ||
        run->phase < RUN_LOADED || step > run->step + 1) {
        return; /* Of another world, or it does not step yet: rank 0 repeats. */
    }
    if (step == run->step + 1 && run->phase != RUN_ENDED) {
        if (capture && !capture_free(node, job)) {
            return; /* Later: rank 0 repeats. */
        }
        run->phase = RUN_STEPPING;
        complete(node, job, step, capture, ends);
    }
    struct buf bytes = BUF_NONE;
    buf_put_u8(&bytes, MAIL_ACK);
    buf_put_u64(&bytes, generation);
    buf_put_u64(&bytes, step);
    world_send(node->world, node->node, from, bytes.bytes, bytes.size);
    buf_done(&bytes);
}

void pub_run_message(struct pub_node *node, unsigned from, struct reader *in)
{
    uint8_t kind = read_u8(in);
    if (kind == MAIL_STEP) {
        on_step(node, from, in);
        return;
    }
    ASSERT(kind == MAIL_ACK);
    uint64_t generation = read_u64(in);
    uint64_t step = read_u64(in);
    if (node->run.generation == generation && node->run.asked_step == step && step != 0) {
        node->run.acked[from] = true;
    }
}
