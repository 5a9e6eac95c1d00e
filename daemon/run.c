/* The loop's half of a run: its states, its begin and its end. See run.h. */
#include "daemon/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

#define PROPOSE_AGAIN_MS 500

static const char *const state_names[] = {
    [RUN_PREPARING] = "import",   [RUN_CUTTING] = "partition", [RUN_LOADING] = "load",
    [RUN_CONNECTING] = "connect", [RUN_STEPPING] = "step",     [RUN_ENDED] = "publish",
    [RUN_CLOSING] = "",
};

#define TO(state) (1U << (unsigned)(state))
#define AWAY      (TO(RUN_ENDED) | TO(RUN_CLOSING))

/* The drawing in run.h as a table. */
static const unsigned legal[] = {
    [RUN_PREPARING] = TO(RUN_CUTTING) | AWAY,
    [RUN_CUTTING] = TO(RUN_LOADING) | AWAY,
    [RUN_LOADING] = TO(RUN_CONNECTING) | TO(RUN_STEPPING) | AWAY,
    [RUN_CONNECTING] = TO(RUN_STEPPING) | AWAY,
    [RUN_STEPPING] = AWAY,
    [RUN_ENDED] = TO(RUN_CLOSING),
    [RUN_CLOSING] = 0,
};

/* The only writer of run->state. */
void run_set_state(struct run *run, enum run_state next)
{
    ASSERT((legal[run->state] & TO(next)) != 0);
    run->state = next;
    run->state_since_ms = clock_now_ms();
    struct progress *progress = &members_self(run->daemon)->progress;
    (void)snprintf(progress->phase, sizeof(progress->phase), "%s", state_names[next]);
    daemon_record(run->daemon, "phase", "%s", "");
    log_info("run.state", "run=%s job=%llu generation=%llu phase=%s", run->name,
             (unsigned long long)run->job, (unsigned long long)run->generation,
             next == RUN_CLOSING ? "close" : state_names[next]);
}

const struct state_job *run_job(const struct run *run)
{
    return state_job(&run->daemon->state, run->job);
}

bool run_active(const struct daemon *daemon)
{
    return daemon->run != NULL;
}

bool run_steps(const struct daemon *daemon)
{
    return daemon->run != NULL &&
           (daemon->run->state == RUN_STEPPING || daemon->run->state == RUN_ENDED);
}

/* True at most every PROPOSE_AGAIN_MS. */
bool run_may_propose(struct run *run)
{
    uint64_t now = clock_now_ms();
    if (run->proposed_ms != 0 && now - run->proposed_ms < PROPOSE_AGAIN_MS) {
        return false;
    }
    run->proposed_ms = now;
    return true;
}

/* ---- down ---- */

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
void run_close_on(struct run *run)
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
void run_end(struct run *run, const char *reason)
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
    progress->storage_free_bytes = kept.storage_free_bytes;
    memcpy(progress->version, kept.version, sizeof(progress->version));
    memcpy(progress->backend, kept.backend, sizeof(progress->backend));
    memset(&daemon->session, 0, sizeof(daemon->session));
    atomic_store(&run->cancel, true);
    if (run->exchange != NULL) {
        exchange_cancel(run->exchange, reason);
    }
    if (!run->quit_sent) {
        run->quit_sent = true;
        run->mail_quit.kind = RUN_MAIL_QUIT;
        mailbox_put(&run->to_compute, &run->mail_quit);
    }
    run_close_on(run);
}

void run_stop(struct daemon *daemon)
{
    if (daemon->run != NULL) {
        run_end(daemon->run, "the daemon stops");
    }
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
    ASSERT(mailbox_open(&run->to_loop, daemon->loop, run_on_mail) == 0);
    daemon->run = run;
    struct progress *progress = &members_self(daemon)->progress;
    progress->job = run->job;
    progress->generation = run->generation;
    progress->step = 0;
    members_self(daemon)->data = (struct data_word){.job = run->job};
    (void)snprintf(progress->phase, sizeof(progress->phase), "%s", state_names[RUN_PREPARING]);
    ASSERT(pthread_create(&run->thread, NULL, run_compute_main, run) == 0);
    run->thread_started = true;
    log_info("run.start", "run=%s job=%llu generation=%llu rank=%u participants=%u policy=%s",
             run->name, (unsigned long long)run->job, (unsigned long long)run->generation,
             run->rank, run->participants, job_policy(&run->spec));
    return 0;
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
        const struct state_job *mine = run_job(run);
        run_end(run, mine == NULL || mine->generation != run->generation ? "another generation"
                     : mine->reason[0] != '\0'                           ? mine->reason
                                               : state_job_label(mine->state));
        run = NULL;
    }
    if (run == NULL) {
        if (job == NULL || daemon->closing != NULL || daemon->stopping || fitness_testing(daemon)) {
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
        run_cutting_turn(run, job);
        break;
    case RUN_STEPPING:
        run_stepping_turn(run, job);
        run_next_turn(run);
        break;
    case RUN_ENDED:
        run_ended_turn(run, job);
        break;
    case RUN_CONNECTING:
        run_connecting_turn(run, job);
        break;
    case RUN_PREPARING:
    case RUN_LOADING:
    case RUN_CLOSING:
        break;
    }
}
