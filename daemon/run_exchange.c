/* A run's exchange: opened when the columns are loaded, between the learner's seam and the peer
 * room. */
#include "daemon/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "numerics/lane.h"

#define CONNECT_TIMEOUT_MS                                                 \
    3600000U /* others may import for long; the control plane watches them \
              */

#define LINKS_MS 10000U /* ... but once all have loaded, links are a matter of seconds */
/* Of a bulk connection: a peer whose data alone stop is named within 5 s. A little behind the
 * control plane's 3 s, which say it better when all of the peer is gone. */
#define SILENCE_MS 4000U

/* What the exchange refuses is not this node's own failure: the thread may tell its end before the
 * exchange has told the loop. */
static int refused_by(struct run *run, int code)
{
    if (code != 0) {
        atomic_store(&run->exchange_refused, true);
    }
    return code;
}

static int exchange_begin_of(void *context, uint64_t step, uint64_t rows, uint32_t chunk_rows,
                             struct err *err)
{
    struct run *run = context;
    return refused_by(run, exchange_begin(run->exchange, step, rows, chunk_rows, err));
}

static int exchange_push_of(void *context, uint64_t step, uint32_t chunk, const double *values,
                            struct err *err)
{
    struct run *run = context;
    return refused_by(run, exchange_push(run->exchange, step, chunk, values, err));
}

static int exchange_pull_of(void *context, uint64_t step, uint32_t chunk,
                            const float **ret_residual, const double **ret_panel_losses,
                            uint32_t *ret_directive, struct err *err)
{
    struct run *run = context;
    return refused_by(run, exchange_pull(run->exchange, step, chunk, ret_residual, ret_panel_losses,
                                         ret_directive, err));
}

static int finish_of(void *context, uint64_t step, uint32_t chunk, uint32_t rows, const double *z,
                     float *residual, double *panel_losses, struct err *err)
{
    struct run *run = context;
    return run->ops->finish(atomic_load(&run->learner), step, chunk, rows, z, residual,
                            panel_losses, err);
}

void run_start_steps(struct run *run)
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
        run_start_steps(run);
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
    if (culprit != 0 && mesh_is_up(daemon->mesh, culprit)) { /* Else its link has said why. */
        struct member *member = members_find(daemon, culprit);
        const struct progress *its = &member->progress;
        bool said_itself =
            its->failed_here && its->job == run->job && its->generation == run->generation;
        if (!said_itself) { /* What it knows of itself is nearer to the cause. */
            lost_name(daemon, member, "is lost to the exchange", err->text);
        }
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

int run_open_exchange(struct run *run, const struct state_job *job, struct err *err)
{
    struct daemon *daemon = run->daemon;
    struct exchange_participant participants[STATE_NODES_MAX];
    for (uint32_t r = 0; r < run->participants; r++) {
        struct member *member = members_find(daemon, job->participants[r].node);
        bool failed = member->lost.job == run->job && member->lost.generation == run->generation;
        if (mesh_is_up(daemon->mesh, member->id) && !failed) {
            member->reason[0] = '\0'; /* What an exchange before said. */
        }
        participants[r] =
            (struct exchange_participant){.node_id = member->id,
                                          .life = member->life,
                                          .incarnation = job->participants[r].incarnation,
                                          .name = member->name,
                                          .address = member->address,
                                          .first = job->bounds[r],
                                          .end = job->bounds[r + 1]};
    }
    struct exchange_settings settings = {
        .cluster = daemon->cluster,
        .job = run->job,
        .generation = run->generation,
        .policy = job_policy(&run->spec),
        .trust = run->daemon->trust,
        .participants = participants,
        .participants_count = run->participants,
        .rank = run->rank,
        .streams = daemon->streams,
        .threads = daemon->exchange_threads,
        .chunk_rows_max = run->loaded.chunk_rows_max,
        .chunks_max = run->loaded.chunks_max,
        .panel_rows = PANEL_ROWS,
        .connect_timeout_ms = CONNECT_TIMEOUT_MS,
        .silence_ms = SILENCE_MS,
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
    run->learn_exchange_store =
        (struct learn_exchange){run, exchange_begin_of, exchange_push_of, exchange_pull_of};
    run->learn_exchange = &run->learn_exchange_store;
    return 0;
}

void run_connecting_turn(struct run *run, const struct state_job *job)
{
    for (uint32_t r = 0; r < run->participants; r++) {
        const struct progress *said =
            &members_find(run->daemon, job->participants[r].node)->progress;
        if (said->job != run->job || said->generation != run->generation ||
            (strcmp(said->phase, "connect") != 0 && strcmp(said->phase, "step") != 0)) {
            return;
        }
    }
    exchange_expect_links(run->exchange, LINKS_MS);
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
