/* The loop's half of a run: what the agreed state says, what the compute thread and the exchange
 * tell, and what follows. See run.h for the states. */
#include "daemon/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "numerics/lane.h"

#define PROPOSE_AGAIN_MS 500
#define CONNECT_TIMEOUT_MS                                                 \
    3600000U /* others may import for long; the control plane watches them \
              */
/* A participant that only sees the others fail says so a little later than the one that knows why.
 */
#define INTERRUPT_DELAY_MS 400

static const char *const state_names[] = {
    [RUN_PREPARING] = "import",   [RUN_CUTTING] = "partition", [RUN_LOADING] = "load",
    [RUN_CONNECTING] = "connect", [RUN_STEPPING] = "step",     [RUN_ENDED] = "publish",
    [RUN_CLOSING] = "",
};

static void run_set_state(struct run *run, enum run_state next)
{
    ASSERT(next > run->state);
    run->state = next;
    run->state_since_ms = clock_now_ms();
    struct progress *progress = &members_self(run->daemon)->progress;
    (void)snprintf(progress->phase, sizeof(progress->phase), "%s", state_names[next]);
    log_info("run.state", "run=%s job=%llu generation=%llu phase=%s", run->name,
             (unsigned long long)run->job, (unsigned long long)run->generation,
             next == RUN_CLOSING ? "close" : state_names[next]);
}

static const struct state_job *job_of(const struct run *run)
{
    return state_job(&run->daemon->state, run->job);
}

bool run_active(const struct daemon *daemon)
{
    return daemon->run != NULL;
}

/* True at most every PROPOSE_AGAIN_MS. */
static bool may_propose(struct run *run)
{
    uint64_t now = clock_now_ms();
    if (run->proposed_ms != 0 && now - run->proposed_ms < PROPOSE_AGAIN_MS) {
        return false;
    }
    run->proposed_ms = now;
    return true;
}

/* ---- down ---- */

static void on_box_closed(struct mailbox *box)
{
    struct run *run = OWNER_OF(box, struct run, to_loop);
    struct daemon *daemon = run->daemon;
    mailbox_done(&run->to_compute);
    job_done(&run->spec);
    daemon_run_gone(daemon, run);
    free(run);
}

static void send_free(struct run *run)
{
    run->mail_free.kind = RUN_MAIL_FREE;
    mailbox_put(&run->to_compute, &run->mail_free);
}

static void on_exchange_closed(void *context)
{
    struct run *run = context;
    run->exchange = NULL;
    capture_drop(run->gathering);
    run->gathering = NULL;
    send_free(run);
}

/* Goes on where the thread has ended: exchange, then what it borrowed, then the rest. */
static void close_on(struct run *run)
{
    if (run->state != RUN_CLOSING || !run->thread_ended || run->exchange_closing) {
        return;
    }
    run->exchange_closing = true;
    if (run->exchange != NULL) {
        exchange_close(run->exchange, on_exchange_closed, run);
    } else {
        send_free(run);
    }
}

/* The generation is over for this node. */
static void run_end(struct run *run, const char *reason)
{
    if (run->state == RUN_CLOSING) {
        return;
    }
    struct daemon *daemon = run->daemon;
    log_info("run.end", "run=%s job=%llu generation=%llu reason=\"%s\"", run->name,
             (unsigned long long)run->job, (unsigned long long)run->generation, reason);
    run_set_state(run, RUN_CLOSING);
    ASSERT(daemon->run == run);
    daemon->run = NULL;
    daemon->closing = run;
    struct progress *progress = &members_self(daemon)->progress;
    struct progress kept = *progress;
    memset(progress, 0, sizeof(*progress));
    progress->threads = kept.threads;
    memcpy(progress->version, kept.version, sizeof(progress->version));
    daemon->session.open = false;
    atomic_store(&run->cancel, true);
    if (run->exchange != NULL) {
        exchange_cancel(run->exchange, reason);
    }
    if (!run->quit_sent) {
        run->quit_sent = true;
        run->mail_quit.kind = RUN_MAIL_QUIT;
        mailbox_put(&run->to_compute, &run->mail_quit);
    }
    close_on(run);
}

void run_stop(struct daemon *daemon)
{
    if (daemon->run != NULL) {
        run_end(daemon->run, "the daemon stops");
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

static void ended_turn(struct run *run, const struct state_job *job)
{
    const struct err *err = &run->ended.err;
    if (err->code != 0) {
        uint64_t waited = clock_now_ms() - run->state_since_ms;
        if (is_final(err->code)) {
            if (may_propose(run)) {
                propose_failed(run, err);
            }
        } else if (waited >= INTERRUPT_DELAY_MS && may_propose(run)) {
            propose_interrupt(run, 0, err->text);
        }
        return;
    }
    if (run->ended.finished && run->rank == 0) {
        const struct state_epoch *newest = state_newest_epoch(job);
        if (newest != NULL && newest->step == job->steps && job->open == NULL &&
            (publish_current(run->daemon, run->job) >= newest->epoch) && may_propose(run)) {
            propose_success(run, job);
        }
    }
}

/* ---- the exchange ---- */

static int exchange_begin_of(void *context, uint64_t step, uint64_t rows, uint32_t chunk_rows,
                             struct err *err)
{
    return exchange_begin(context, step, rows, chunk_rows, err);
}

static int exchange_push_of(void *context, uint64_t step, uint32_t chunk, const double *values,
                            struct err *err)
{
    return exchange_push(context, step, chunk, values, err);
}

static int exchange_pull_of(void *context, uint64_t step, uint32_t chunk,
                            const float **ret_residual, const double **ret_panel_losses,
                            uint32_t *ret_directive, struct err *err)
{
    return exchange_pull(context, step, chunk, ret_residual, ret_panel_losses, ret_directive, err);
}

static int finish_of(void *context, uint64_t step, uint32_t chunk, uint32_t rows, const double *z,
                     float *residual, double *panel_losses, struct err *err)
{
    struct run *run = context;
    return run->ops->finish(atomic_load(&run->learner), step, chunk, rows, z, residual,
                            panel_losses, err);
}

static void start_steps(struct run *run)
{
    run_set_state(run, RUN_STEPPING);
    run->proposed_ms = 0;
    run->mail_step.kind = RUN_MAIL_STEP;
    mailbox_put(&run->to_compute, &run->mail_step);
    daemon_soon(run->daemon);
}

static void on_exchange_ready(void *context)
{
    struct run *run = context;
    if (run->state == RUN_CONNECTING) {
        start_steps(run);
    }
}

static void on_exchange_failed(void *context, uint32_t culprit, const struct err *err)
{
    struct run *run = context;
    struct daemon *daemon = run->daemon;
    struct progress *progress = &members_self(daemon)->progress;
    run->exchange_failed = true;
    log_error("run.exchange", "run=%s job=%llu generation=%llu step=%llu culprit=%s error=\"%s\"",
              run->name, (unsigned long long)run->job, (unsigned long long)run->generation,
              (unsigned long long)progress->step,
              culprit != 0 ? members_find(daemon, culprit)->name : "-", err->text);
    (void)snprintf(progress->trouble, sizeof(progress->trouble), "%s", err->text);
    if (culprit != 0) {
        struct member *member = members_find(daemon, culprit);
        (void)snprintf(member->reason, sizeof(member->reason), "%s", err->text);
    }
    if (run->state == RUN_CONNECTING) {
        /* The compute thread waits for a mail that will not come. */
        run->ended.err = *err;
        atomic_store(&run->cancel, true);
        run->quit_sent = true;
        run->mail_quit.kind = RUN_MAIL_QUIT;
        mailbox_put(&run->to_compute, &run->mail_quit);
    }
    if (run->state == RUN_ENDED && run->ended.err.code == 0 && run->gathering != NULL) {
        run->ended.err = *err; /* Its slices did not get through: no vote can come of this. */
        run->state_since_ms = clock_now_ms();
    }
    daemon_soon(daemon);
}

static void on_gathered(void *context, uint64_t step, double *parameter, double *accumulator,
                        size_t count)
{
    struct run *run = context;
    run->gathered_step = step;
    publish_vectors(run->daemon, run->job, run->generation, step, parameter, accumulator, count);
}

static void on_slices_sent(void *context, uint64_t step)
{
    struct run *run = context;
    (void)step;
    capture_drop(run->gathering);
    run->gathering = NULL;
    daemon_soon(run->daemon);
}

static int open_exchange(struct run *run, const struct state_job *job, struct err *err)
{
    struct daemon *daemon = run->daemon;
    struct exchange_participant participants[STATE_NODES_MAX];
    for (uint32_t r = 0; r < run->participants; r++) {
        struct member *member = members_find(daemon, job->participants[r].node);
        participants[r] = (struct exchange_participant){member->id, member->name, member->address,
                                                        job->bounds[r], job->bounds[r + 1]};
    }
    struct exchange_settings settings = {
        .cluster = daemon->cluster,
        .incarnation = daemon->incarnation,
        .job = run->job,
        .generation = run->generation,
        .policy = job_policy(&run->spec),
        .participants = participants,
        .participants_count = run->participants,
        .rank = run->rank,
        .streams = daemon->streams,
        .chunk_rows_max = run->loaded.chunk_rows_max,
        .chunks_max = run->loaded.chunks_max,
        .panel_rows = PANEL_ROWS,
        .connect_timeout_ms = CONNECT_TIMEOUT_MS,
        .finish = finish_of,
        .finish_context = run,
        .context = run,
        .on_ready = on_exchange_ready,
        .on_failed = on_exchange_failed,
        .on_gathered = on_gathered,
        .on_slices_sent = on_slices_sent,
    };
    memcpy(settings.identity, job->identity, SHA256_SIZE);
    if (exchange_open(&settings, daemon->loop, &run->exchange, err) != 0) {
        return err->code;
    }
    run->learn_exchange_store = (struct learn_exchange){run->exchange, exchange_begin_of,
                                                        exchange_push_of, exchange_pull_of};
    run->learn_exchange = &run->learn_exchange_store;
    return 0;
}

void run_adopt(struct daemon *daemon, const struct peer_incoming *incoming)
{
    struct run *run = daemon->run;
    if (run != NULL && run->exchange != NULL && !run->exchange_failed &&
        incoming->hello.job == run->job && incoming->hello.generation == run->generation) {
        exchange_adopt(run->exchange, incoming);
        return;
    }
    struct peer_incoming copy = *incoming;
    peer_refuse(&copy, ERR_BUSY, "this node is not ready for that generation");
}

/* ---- the compute thread's mail ---- */

static void on_prepared(struct run *run, struct run_prepared *said)
{
    run->prepared = *said;
    run->has_prepared = true;
    struct history *history = history_of(run->daemon, run->job);
    history->test_rows = said->test_rows;
    history->nonzeros = said->nonzeros;
    history->sparse = said->sparse;
    history->ranges_count = said->ranges_count;
    memcpy(history->weights, said->weights, sizeof(history->weights));
    free(said);
    if (run->state == RUN_PREPARING) {
        run_set_state(run, RUN_CUTTING);
    }
}

static void fail_here(struct run *run, const struct err *err)
{
    run->ended.err = *err;
    if (run->state < RUN_ENDED) {
        run_set_state(run, RUN_ENDED);
    }
}

static void on_loaded(struct run *run, struct run_loaded *said)
{
    struct daemon *daemon = run->daemon;
    run->loaded = *said;
    free(said);
    daemon->session = run->loaded.session;
    if (run->state != RUN_LOADING) {
        return;
    }
    if (run->participants == 1) {
        start_steps(run);
        return;
    }
    struct err err = {0};
    if (open_exchange(run, job_of(run), &err) != 0) {
        fail_here(run, &err);
        return;
    }
    run_set_state(run, RUN_CONNECTING);
}

static void on_progress_mail(struct run *run, struct run_progress *said)
{
    struct daemon *daemon = run->daemon;
    struct progress *progress = &members_self(daemon)->progress;
    struct history *history = history_of(daemon, run->job);
    for (size_t i = 0; i < said->points_count; i++) {
        if (!progress->has_loss) {
            progress->first_loss = said->points[i].loss;
        }
        progress->has_loss = true;
        history_put(history, &said->points[i]);
    }
    said->points_count = 0;
    if (run->state != RUN_CLOSING) {
        progress->step = said->step;
        progress->loss = said->loss;
        progress->rows = said->rows;
        progress->elapsed_ns = said->elapsed_ns;
        progress->compute_ns = said->compute_ns;
        progress->exchange_ns = said->exchange_ns;
        progress->publication_ns = said->publication_ns;
        daemon->session.issues = said->issues;
        if (run->exchange != NULL) {
            struct exchange_stats stats;
            exchange_stats(run->exchange, &stats);
            progress->sent_bytes = stats.wire_out;
            progress->received_bytes = stats.wire_in;
        }
    }
    history_add(history, said->steps_done, said->rows_done, said->phases);
    atomic_store(&said->taken, true);
}

static void on_captured(struct run *run, struct run_captured *said)
{
    struct capture *capture = said->capture;
    free(said);
    run->next_owed = true;
    run->next_step = capture->step;
    if (run->state == RUN_CLOSING) {
        /* The steps are agreed all the same: its publication may go on without this generation,
         * where rank 0 has the vectors. */
        publish_capture(run->daemon, capture);
        return;
    }
    if (run->exchange != NULL && !run->exchange_failed) {
        struct err err = {0};
        if (exchange_gather(run->exchange, capture->step, capture->parameter, capture->accumulator,
                            &err) == 0) {
            capture_hold(capture);
            run->gathering = capture;
        } else {
            log_error("run.gather", "run=%s step=%llu error=\"%s\"", run->name,
                      (unsigned long long)capture->step, err.text);
        }
    }
    publish_capture(run->daemon, capture);
    members_heartbeat(run->daemon, true);
}

static void on_ended(struct run *run, struct run_ended *said)
{
    struct err before = run->ended.err;
    run->ended = *said;
    if (before.code != 0) {
        run->ended.err = before; /* The cause, rather than what it led to. */
    }
    free(said);
    run->thread_ended = true;
    run->daemon->session.open = false;
    if (run->state == RUN_CLOSING) {
        close_on(run);
        return;
    }
    if (run->ended.err.code != 0) {
        struct progress *progress = &members_self(run->daemon)->progress;
        (void)snprintf(progress->trouble, sizeof(progress->trouble), "%s", run->ended.err.text);
        log_error("run.failed", "run=%s job=%llu generation=%llu step=%llu error=\"%s\"", run->name,
                  (unsigned long long)run->job, (unsigned long long)run->generation,
                  (unsigned long long)run->ended.step, run->ended.err.text);
        if (run->exchange != NULL && !run->exchange_failed) {
            exchange_cancel(run->exchange, run->ended.err.text);
        }
    }
    if (run->state < RUN_ENDED) {
        run_set_state(run, RUN_ENDED);
    }
    run->proposed_ms = 0;
}

static void on_gone(struct run *run)
{
    void *compute = NULL;
    ASSERT(pthread_join(run->thread, &compute) == 0);
    free(compute);
    run->thread_started = false;
    mailbox_close(&run->to_loop, on_box_closed);
}

static void on_mail(struct mailbox *box)
{
    struct run *run = OWNER_OF(box, struct run, to_loop);
    struct daemon *daemon = run->daemon;
    bool gone = false;
    for (struct message *message = mailbox_take(box); message != NULL;
         message = mailbox_take(box)) {
        switch ((enum run_mail)message->kind) {
        case RUN_MAIL_PREPARED:
            on_prepared(run, OWNER_OF(message, struct run_prepared, message));
            break;
        case RUN_MAIL_LOADED:
            on_loaded(run, OWNER_OF(message, struct run_loaded, message));
            break;
        case RUN_MAIL_PROGRESS:
            on_progress_mail(run, OWNER_OF(message, struct run_progress, message));
            break;
        case RUN_MAIL_CAPTURED:
            on_captured(run, OWNER_OF(message, struct run_captured, message));
            break;
        case RUN_MAIL_ENDED:
            on_ended(run, OWNER_OF(message, struct run_ended, message));
            break;
        case RUN_MAIL_GONE:
            gone = true;
            break;
        case RUN_MAIL_LOAD:
        case RUN_MAIL_STEP:
        case RUN_MAIL_NEXT:
        case RUN_MAIL_QUIT:
        case RUN_MAIL_FREE:
            ASSERT(false); /* These go the other way. */
            break;
        }
    }
    if (gone) {
        on_gone(run);
    }
    daemon_soon(daemon);
}

/* ---- up ---- */

static int start(struct daemon *daemon, const struct state_job *job, struct err *err)
{
    struct run *run = calloc(1, sizeof(*run));
    struct faults faults = FAULTS_NONE;
    if (run == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a run");
    }
    run->daemon = daemon;
    run->job = job->id;
    run->generation = job->generation;
    run->participants = job->participants_count;
    run->rank = (uint32_t)state_rank(job, daemon->node_id);
    run->state_since_ms = clock_now_ms();
    (void)snprintf(run->name, sizeof(run->name), "%s", job->name);
    (void)snprintf(run->cache_dir, sizeof(run->cache_dir), "%s/cache", daemon->state_dir);
    if (job_parse(job->text, job->text_size, "job", NULL, NULL, 0, &run->spec, &faults) != 0) {
        (void)faults_err(&faults, ERR_JOB, err);
        faults_done(&faults);
        free(run);
        return err->code;
    }
    run->ops = learner_find(job_kind_name(&run->spec));
    if (run->ops == NULL) {
        (void)err_set(err, ERR_JOB, "kind: this version trains no '%s'", job_kind_name(&run->spec));
        job_done(&run->spec);
        free(run);
        return err->code;
    }
    mailbox_init(&run->to_compute);
    ASSERT(mailbox_open(&run->to_loop, daemon->loop, on_mail) == 0);
    daemon->run = run;
    struct progress *progress = &members_self(daemon)->progress;
    progress->job = run->job;
    progress->generation = run->generation;
    progress->step = 0;
    (void)snprintf(progress->phase, sizeof(progress->phase), "%s", state_names[RUN_PREPARING]);
    ASSERT(pthread_create(&run->thread, NULL, run_compute_main, run) == 0);
    run->thread_started = true;
    log_info("run.start", "run=%s job=%llu generation=%llu rank=%u participants=%u policy=%s",
             run->name, (unsigned long long)run->job, (unsigned long long)run->generation,
             run->rank, run->participants, job_policy(&run->spec));
    return 0;
}

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

/* CUTTING: rank 0 says the cuts; with them, and the epoch to start from on this disk, load. */
static void cutting_turn(struct run *run, const struct state_job *job)
{
    struct daemon *daemon = run->daemon;
    if (job->ranges_count == 0) {
        if (run->rank == 0 && may_propose(run)) {
            propose_partition(run, job);
        }
        return;
    }
    int rank = state_rank(job, daemon->node_id);
    if (rank < 0) {
        run_end(run, "there are fewer coordinates than nodes: this one takes no part");
        return;
    }
    if (memcmp(job->dataset, run->prepared.dataset, SHA256_SIZE) != 0) {
        struct err err = {0};
        (void)err_set(&err, ERR_DATA,
                      "the data here differ from those of node %s: the same path must hold the "
                      "same bytes on every node",
                      state_node_name(&daemon->state, job->participants[0].node));
        fail_here(run, &err);
        return;
    }
    if (job->seed_epoch != 0 && publish_current(daemon, run->job) < job->seed_epoch) {
        return; /* The agent is publishing it here. */
    }
    struct run_load *load = calloc(1, sizeof(*load));
    ASSERT(load != NULL);
    load->rank = (uint32_t)rank;
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

static void stepping_turn(struct run *run, const struct state_job *job)
{
    struct daemon *daemon = run->daemon;
    if (run->rank == 0 && job->state == JOB_LOADING && may_propose(run)) {
        struct command command = {.kind = COMMAND_RUNNING};
        command.running.job = run->job;
        command.running.generation = run->generation;
        daemon_propose(daemon, &command);
    }
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
static void next_turn(struct run *run)
{
    if (run->next_owed && run->gathering == NULL && !run->thread_ended &&
        !publish_holds_capture(run->daemon, run->job, run->next_step)) {
        run->next_owed = false;
        run->mail_next.kind = RUN_MAIL_NEXT;
        mailbox_put(&run->to_compute, &run->mail_next);
    }
}

static const struct state_job *wanted_job(const struct daemon *daemon)
{
    const struct state_job *job = state_active_job(&daemon->state);
    if (job == NULL) {
        return NULL;
    }
    int rank = state_rank(job, daemon->node_id);
    if (rank < 0 || job->participants[rank].incarnation != daemon->incarnation) {
        return NULL;
    }
    return job;
}

void run_turn(struct daemon *daemon)
{
    const struct state_job *job = wanted_job(daemon);
    struct run *run = daemon->run;
    if (run != NULL && (job == NULL || job->id != run->job || job->generation != run->generation)) {
        const struct state_job *mine = job_of(run);
        run_end(run, mine == NULL || mine->generation != run->generation ? "another generation"
                     : mine->reason[0] != '\0'                           ? mine->reason
                                               : state_job_label(mine->state));
        run = NULL;
    }
    if (run == NULL) {
        if (job == NULL || daemon->closing != NULL || daemon->stopping) {
            return;
        }
        struct err err = {0};
        if (start(daemon, job, &err) != 0) {
            log_error("run.start", "job=%llu error=\"%s\"", (unsigned long long)job->id, err.text);
            struct command command = {.kind = COMMAND_FINISH};
            command.finish.job = job->id;
            command.finish.generation = job->generation;
            command.finish.outcome = OUTCOME_FAILED;
            (void)snprintf(command.finish.reason, sizeof(command.finish.reason), "node %s: %s",
                           daemon->name, err.text);
            daemon_propose(daemon, &command);
        }
        return;
    }
    switch (run->state) {
    case RUN_CUTTING:
        cutting_turn(run, job);
        break;
    case RUN_STEPPING:
        stepping_turn(run, job);
        next_turn(run);
        break;
    case RUN_ENDED:
        ended_turn(run, job);
        break;
    case RUN_PREPARING:
    case RUN_LOADING:
    case RUN_CONNECTING:
    case RUN_CLOSING:
        break;
    }
}
