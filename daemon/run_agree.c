/* What the agreed state asks of a run, and what the run asks to be agreed: the cuts, RUNNING,
 * stops, the end of the job or of the generation. */
#include "daemon/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

/* A participant that only sees the others fail says so a little later than the one that knows why.
 */
#define INTERRUPT_DELAY_MS 400
/* Heartbeats tell who has the data; a holder that is gone ends the generation before. */
#define NO_HOLDER_MS 20000
/* Word of the participants that have not said yet whether they have the data. */
#define HOLDERS_MS 2000

static void propose_partition(struct run *run, const struct state_job *job)
{
    struct command command = {.kind = COMMAND_PARTITION};
    command.partition.job = run->job;
    command.partition.generation = run->generation;
    memcpy(command.partition.dataset, run->prepared.dataset, SHA256_SIZE);
    job_identity(&run->spec, run->prepared.dataset, command.partition.identity);
    command.partition.rows = run->prepared.rows;
    command.partition.features = run->prepared.features;
    command.partition.steps = run->prepared.steps;
    command.partition.ranges_count = run->prepared.ranges_count;
    memcpy(command.partition.bounds, run->prepared.bounds, sizeof(command.partition.bounds));
    (void)job;
    daemon_propose(run->daemon, &command);
}

/* What a participant has said of the data of this job. */
static const struct data_word *word_of(struct run *run, const struct state_job *job, uint32_t rank)
{
    return &members_find(run->daemon, job->participants[rank].node)->data;
}

static bool is_missing(const struct run *run, const struct data_word *word)
{
    return word->job == run->job && !word->has && word->missing[0] != '\0';
}

/* The lowest participant that has the data says the cuts. */
static bool proposes(struct run *run, const struct state_job *job)
{
    for (uint32_t r = 0; r < run->rank; r++) {
        if (!is_missing(run, word_of(run, job, r))) {
            return false;
        }
    }
    return run->prepared.missing[0] == '\0';
}

/* All participants have looked and none has them: the job has failed; rank 0 says it. */
static void nobody_turn(struct run *run, const struct state_job *job)
{
    struct err err = {0};
    struct buf names = BUF_NONE;
    bool nobody = run->rank == 0;
    for (uint32_t r = 0; r < run->participants && nobody; r++) {
        const struct data_word *word = word_of(run, job, r);
        nobody = is_missing(run, word);
        buf_print(&names, "%s%s: %s", r > 0 ? "; " : "",
                  members_find(run->daemon, job->participants[r].node)->name, word->missing);
    }
    if (nobody && run_may_propose(run)) {
        (void)err_set(&err, ERR_NOT_FOUND,
                      "no node can read the data; put them on one of them (%.400s)",
                      (const char *)names.bytes);
        run_fail_here(run, &err);
    }
    buf_done(&names);
}

/* The nodes that can serve the agreed data, participants or not. */
static void list_holders(struct run *run, const struct state_job *job, struct run_load *load)
{
    struct daemon *daemon = run->daemon;
    load->holders_count = 0;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        if (!member->self && member->data.has && member->data.job == run->job &&
            memcmp(member->data.dataset, job->dataset, SHA256_SIZE) == 0 &&
            members_state(daemon, member) != FACTS_DOWN) {
            struct run_holder *holder = &load->holders[load->holders_count++];
            holder->node_id = member->id;
            holder->life = member->life;
            (void)snprintf(holder->name, sizeof(holder->name), "%s", member->name);
            (void)snprintf(holder->address, sizeof(holder->address), "%s", member->address);
        }
    }
}

/* A list made too early would lack the one holder whose bytes are right. */
static bool all_have_spoken(struct run *run, const struct state_job *job)
{
    for (uint32_t r = 0; r < job->participants_count; r++) {
        const struct member *member = members_find(run->daemon, job->participants[r].node);
        if (!member->self && member->data.job != run->job &&
            members_state(run->daemon, member) != FACTS_DOWN) {
            return false;
        }
    }
    return true;
}

/* Whether this node must fetch; with whom it can. false: nobody who has the data is heard yet, or
 * not everybody has been heard. */
static bool choose_source(struct run *run, const struct state_job *job, struct run_load *load)
{
    const struct data_word *word = &members_self(run->daemon)->data;
    memcpy(load->dataset, job->dataset, SHA256_SIZE);
    load->fetch = !word->has || memcmp(job->dataset, word->dataset, SHA256_SIZE) != 0;
    if (!load->fetch) {
        return true;
    }
    if (!all_have_spoken(run, job) && clock_now_ms() - run->state_since_ms < HOLDERS_MS) {
        return false;
    }
    list_holders(run, job, load);
    if (load->holders_count == 0) {
        if (clock_now_ms() - run->state_since_ms >= NO_HOLDER_MS) {
            struct err err = {0};
            (void)err_set(&err, ERR_PEER, "no node that is up says that it has the agreed data");
            run_fail_here(run, &err);
        }
        return false;
    }
    if (word->has) {
        log_warning("data.differ",
                    "run=%s job=%llu reason=\"the data here are not those of node %s\" next=\"this "
                    "node's columns are fetched from there\"",
                    run->name, (unsigned long long)run->job, load->holders[0].name);
        members_self(run->daemon)->data.has = false;
        (void)snprintf(members_self(run->daemon)->data.missing,
                       sizeof(members_self(run->daemon)->data.missing),
                       "other data are there than those agreed on");
    }
    return true;
}

/* CUTTING: the first that has the data says the cuts; with them, and the epoch to start from on
 * this disk, load. */
void run_cutting_turn(struct run *run, const struct state_job *job)
{
    struct daemon *daemon = run->daemon;
    if (job->ranges_count == 0) {
        if (proposes(run, job)) {
            if (run_may_propose(run)) {
                propose_partition(run, job);
            }
        } else {
            nobody_turn(run, job);
        }
        return;
    }
    int rank = state_rank(job, daemon->node_id);
    if (rank < 0) {
        run_end(run, "there are fewer coordinates than nodes: this one takes no part");
        return;
    }
    if (job->seed_epoch != 0 &&
        !publish_seed_ready(daemon, run->job, run->generation, job->seed_epoch, job->bounds[rank],
                            job->bounds[rank + 1])) {
        return; /* Its files are being published, fetched or compared. */
    }
    struct run_load *load = calloc(1, sizeof(*load));
    ASSERT(load != NULL);
    load->rank = (uint32_t)rank;
    if (!choose_source(run, job, load)) {
        free(load);
        return;
    }
    load->participants = job->ranges_count;
    memcpy(load->bounds, job->bounds, sizeof(load->bounds));
    load->steps = job->steps;
    memcpy(load->identity, job->identity, SHA256_SIZE);
    load->seed_epoch = job->seed_epoch;
    if (job->seed_epoch != 0) {
        char folder[FOLDER_PATH_SIZE];
        checkpoint_job_folder(job, folder);
        checkpoint_epoch_folder(folder, job->seed_epoch, load->seed_folder);
    } else if (run->spec.checkpoint.from != NULL) {
        (void)snprintf(load->seed_folder, sizeof(load->seed_folder), "%s",
                       run->spec.checkpoint.from);
    }
    run->rank = (uint32_t)rank;
    run->participants = job->ranges_count;
    run_set_state(run, RUN_LOADING);
    load->message.kind = RUN_MAIL_LOAD;
    mailbox_put(&run->to_compute, &load->message);
}

/* Rank 0 says that it computes. A job of a few steps may have ended before the first turn that
 * could say so; without it nothing would be published. */
static void running_turn(struct run *run, const struct state_job *job)
{
    if (run->rank == 0 && job->state == JOB_LOADING && run_may_propose(run)) {
        struct command command = {.kind = COMMAND_RUNNING};
        command.running.job = run->job;
        command.running.generation = run->generation;
        daemon_propose(run->daemon, &command);
    }
}

void run_stepping_turn(struct run *run, const struct state_job *job)
{
    running_turn(run, job);
    if (run->rank == 0 && job->stopping && !run->directed) {
        run->directed = true;
        log_info("run.direct", "run=%s word=capture,stop reason=\"%s\"", run->name,
                 job->stop_reason);
        if (run->exchange != NULL) {
            exchange_direct(run->exchange, RUN_CAPTURE | RUN_STOP);
        } else {
            atomic_fetch_or(&run->local_word, RUN_CAPTURE | RUN_STOP);
        }
    }
}

/* The compute thread may capture again when the last capture is decided and its slices are sent. */
void run_next_turn(struct run *run)
{
    if (run->next_owed && run->gathering == NULL && !run->thread_ended &&
        !publish_holds_capture(run->daemon, run->job, run->next_step)) {
        run->next_owed = false;
        run->mail_next.kind = RUN_MAIL_NEXT;
        mailbox_put(&run->to_compute, &run->mail_next);
    }
}

/* ---- what ends a job or a generation ---- */

static void propose_failed(struct run *run, const struct err *err)
{
    struct command command = {.kind = COMMAND_FINISH};
    command.finish.job = run->job;
    command.finish.generation = run->generation;
    command.finish.outcome = OUTCOME_FAILED;
    command.finish.step = run->ended.step;
    (void)snprintf(command.finish.reason, sizeof(command.finish.reason), "node %s: %s",
                   run->daemon->name, err->text);
    daemon_propose(run->daemon, &command);
}

static void propose_interrupt(struct run *run, uint32_t culprit, const char *reason)
{
    struct command command = {.kind = COMMAND_INTERRUPT};
    command.interrupt.job = run->job;
    command.interrupt.generation = run->generation;
    command.interrupt.node = culprit;
    (void)snprintf(command.interrupt.reason, sizeof(command.interrupt.reason), "%s", reason);
    daemon_propose(run->daemon, &command);
}

/* Would the same happen in the next generation? Then the job has failed. */
static bool is_final(int code)
{
    switch (code) {
    case ERR_JOB:
    case ERR_DATA:
    case ERR_USAGE:
    case ERR_NOT_FOUND:
    case ERR_NOMEM:
    case ERR_DIVERGED:
    case ERR_DAMAGED:
    case ERR_STATE:
        return true;
    default:
        return false;
    }
}

static void propose_success(struct run *run, const struct state_job *job)
{
    struct command command = {.kind = COMMAND_FINISH};
    const struct state_epoch *newest = state_newest_epoch(job);
    command.finish.job = run->job;
    command.finish.generation = run->generation;
    command.finish.outcome = OUTCOME_SUCCEEDED;
    command.finish.step = run->ended.step;
    command.finish.has_loss = true;
    command.finish.loss_bits =
        run->ended.has_loss ? command_bits_of(run->ended.loss) : newest->loss_bits;
    command.finish.has_objective = run->ended.has_objective;
    command.finish.objective_bits = command_bits_of(run->ended.objective);
    const struct progress *progress = &members_self(run->daemon)->progress;
    if (run->ended.has_loss && progress->has_loss && run->ended.loss > progress->first_loss) {
        (void)snprintf(command.finish.reason, sizeof(command.finish.reason),
                       "the last loss %.9g is above the first one, %.9g: try a smaller "
                       "optimizer.rate",
                       run->ended.loss, progress->first_loss);
    }
    daemon_propose(run->daemon, &command);
}

void run_ended_turn(struct run *run, const struct state_job *job)
{
    const struct err *err = &run->ended.err;
    if (err->code != 0) {
        uint64_t waited = clock_now_ms() - run->state_since_ms;
        if (is_final(err->code)) {
            if (run_may_propose(run)) {
                propose_failed(run, err);
            }
        } else if (err->code == ERR_DEVICE && run_may_propose(run)) {
            struct err why = *err; /* This node knows, the others see what came of it. */
            (void)err_prefix(&why, "node %s: its device failed: ", run->daemon->name);
            propose_interrupt(run, run->daemon->node_id, why.text);
        } else if (err->code != ERR_DEVICE && waited >= INTERRUPT_DELAY_MS &&
                   run_may_propose(run)) {
            propose_interrupt(run, 0, err->text);
        }
        return;
    }
    running_turn(run, job);
    if (run->ended.finished && run->rank == 0) {
        const struct state_epoch *newest = state_newest_epoch(job);
        if (newest != NULL && newest->step == job->steps && job->open == NULL &&
            (publish_current(run->daemon, run->job) >= newest->epoch) && run_may_propose(run)) {
            propose_success(run, job);
        }
    }
}
