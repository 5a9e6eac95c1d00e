/* The compute thread's mail, as it comes to the loop. */
#include "daemon/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

static void on_prepared(struct run *run, struct run_prepared *said)
{
    run->prepared = *said;
    run->has_prepared = true;
    struct data_word *word = &members_self(run->daemon)->data;
    word->job = run->job;
    word->has = said->missing[0] == '\0';
    memcpy(word->dataset, said->dataset, sizeof(word->dataset));
    (void)snprintf(word->missing, sizeof(word->missing), "%s", said->missing);
    members_heartbeat(run->daemon, true); /* The others wait for the word. */
    if (!word->has) {
        log_info("data.missing",
                 "run=%s reason=\"%s\" next=\"its columns come from a node that has "
                 "them\"",
                 run->name, said->missing);
        free(said);
        if (run->state == RUN_PREPARING) {
            run_set_state(run, RUN_CUTTING);
        }
        return;
    }
    struct history *history = history_of(run->daemon, run->job);
    history->test_rows = said->test_rows;
    history->nonzeros = said->nonzeros;
    history->sparse = said->sparse;
    history->read = true;
    history->ranges_count = said->ranges_count;
    memcpy(history->weights, said->weights, sizeof(history->weights));
    free(said);
    if (run->state == RUN_PREPARING) {
        run_set_state(run, RUN_CUTTING);
    }
}

void run_fail_here(struct run *run, const struct err *err)
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
    struct history *history = history_of(daemon, run->job);
    history->test_rows = run->loaded.test_rows;
    history->nonzeros = run->loaded.nonzeros;
    history->sparse = run->loaded.sparse;
    history->read = true;
    history_take(history, &run->loaded.losses); /* What comes after it is done again. */
    if (run->state != RUN_LOADING) {
        return;
    }
    if (run->participants == 1) {
        run_start_steps(run);
        return;
    }
    struct err err = {0};
    if (run_open_exchange(run, run_job(run), &err) != 0) {
        run_fail_here(run, &err);
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
        progress->has_loss = true;
        history_put(history, &said->points[i], said->stepped_ms);
    }
    said->points_count = 0;
    /* The job's, not the first that this generation did. */
    progress->first_loss = history->has_first ? history->first_loss : (double)NAN;
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
    if (run->state != RUN_CLOSING) {
        history->last = *progress;
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
    fitness_prove(run->daemon);
    history_take(history_of(run->daemon, run->job), &capture->losses);
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
    if (run->ended.err.code == ERR_DEVICE) {
        const struct progress *progress = &members_self(run->daemon)->progress;
        (void)err_prefix(&run->ended.err,
                         "step %llu, phase %s: ", (unsigned long long)run->ended.step,
                         run->state == RUN_CLOSING ? "close" : progress->phase);
        fitness_fail(run->daemon, &run->ended.err);
    }
    if (run->state == RUN_CLOSING) {
        run_close_on(run);
        return;
    }
    if (run->ended.err.code != 0) {
        struct progress *progress = &members_self(run->daemon)->progress;
        (void)snprintf(progress->trouble, sizeof(progress->trouble), "%s", run->ended.err.text);
        /* A cancelled thread and a broken exchange have their cause elsewhere. */
        progress->failed_here = !run->exchange_failed && !atomic_load(&run->exchange_refused) &&
                                run->ended.err.code != ERR_CANCELED;
        log_error("run.failed", "run=%s job=%llu generation=%llu step=%llu error=\"%s\"", run->name,
                  (unsigned long long)run->job, (unsigned long long)run->generation,
                  (unsigned long long)run->ended.step, run->ended.err.text);
        if (run->exchange != NULL && !run->exchange_failed) {
            exchange_cancel(run->exchange, run->ended.err.text);
        }
        daemon_record(run->daemon, "failed", "%s", run->ended.err.text);
        members_heartbeat(run->daemon, true); /* Before the words are taken away. */
    }
    if (run->state < RUN_ENDED) {
        run_set_state(run, RUN_ENDED);
    }
    run->proposed_ms = 0;
}

static void on_box_closed(struct mailbox *box)
{
    struct run *run = OWNER_OF(box, struct run, to_loop);
    struct daemon *daemon = run->daemon;
    run_data_release(run);
    mailbox_done(&run->to_compute);
    job_done(&run->spec);
    daemon_run_gone(daemon, run);
    free(run);
}

static void on_gone(struct run *run)
{
    void *compute = NULL;
    ASSERT(pthread_join(run->thread, &compute) == 0);
    free(compute);
    run->thread_started = false;
    mailbox_close(&run->to_loop, on_box_closed);
}

void run_on_mail(struct mailbox *box)
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
