/* A worker of an exchange: its thread and loop, its readiness, its part in a failure. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "peer/exchange_room.h"

#define TICK_MS 50

struct worker *worker_of_stream(const struct exchange *exchange, uint32_t stream)
{
    return &exchange->workers[stream % exchange->workers_count];
}

/* Puts the message in the worker's box, unless that worker ends. */
static void tell(struct worker *worker, struct message *message)
{
    struct exchange *exchange = worker->exchange;
    ASSERT(pthread_mutex_lock(&exchange->lock) == 0);
    if (!worker->deaf) {
        mailbox_put(&worker->box, message);
    }
    ASSERT(pthread_mutex_unlock(&exchange->lock) == 0);
}

/* ---------------------------------------------------------------- what is awaited */

/* Of any worker, this one first: who notices a peer's end may be owed nothing by it. */
static bool owes(struct worker *worker, uint32_t participant, char *text, size_t size)
{
    struct exchange *exchange = worker->exchange;
    bool found = false;
    for (uint32_t i = 0; i < exchange->workers_count && !found; i++) {
        struct worker *other = &exchange->workers[(worker->index + i) % exchange->workers_count];
        ASSERT(pthread_mutex_lock(&other->step_lock) == 0);
        found = steps_owes(other, participant, text, size);
        ASSERT(pthread_mutex_unlock(&other->step_lock) == 0);
    }
    return found;
}

/* The first worker begins every step. */
static uint64_t current_step(struct exchange *exchange)
{
    struct worker *first = &exchange->workers[0];
    ASSERT(pthread_mutex_lock(&first->step_lock) == 0);
    uint64_t step = first->begun ? first->step : 0;
    ASSERT(pthread_mutex_unlock(&first->step_lock) == 0);
    return step;
}

void exchange_where(struct worker *worker, uint32_t participant, char *text, size_t size)
{
    struct exchange *exchange = worker->exchange;
    struct participant *who = &exchange->participants[participant];
    char what[160];
    if (worker->state == EXCHANGE_OPENING) {
        (void)snprintf(what, sizeof(what), "connect, %u of %u connections are up",
                       atomic_load(&who->links_up), exchange->settings.streams);
    } else if (!owes(worker, participant, what, sizeof(what)) &&
               !gather_owes(exchange, participant, what, sizeof(what))) {
        (void)snprintf(what, sizeof(what), "step %" PRIu64 ", it owes nothing",
                       current_step(exchange));
    }
    (void)snprintf(text, size, "node '%s' (%s): %s", who->name, who->address_text, what);
}

/* ---------------------------------------------------------------- the end of push and pull */

/* The first failure is the exchange's. Whether this one is it. */
static bool claim(struct exchange *exchange, uint32_t participant, const struct err *err,
                  bool leaving)
{
    ASSERT(err->code != 0);
    ASSERT(pthread_mutex_lock(&exchange->lock) == 0);
    bool first = !exchange->failed;
    if (first) {
        exchange->failed = true;
        exchange->leaving = leaving;
        exchange->failure = *err;
        exchange->culprit =
            participant == EXCHANGE_NOBODY ? 0 : exchange->participants[participant].node_id;
        exchange->failed_answer = (struct failed_message){.message = {.kind = EXCHANGE_ENDED},
                                                          .culprit = exchange->culprit,
                                                          .err = exchange->failure};
        exchange->failed_news = exchange->failed_answer;
        exchange->failed_news.message.kind = NEWS_FAILED;
    }
    ASSERT(pthread_mutex_unlock(&exchange->lock) == 0);
    return first;
}

/* The peers are told why, or (leaving) that this node needs no more of them. The compute thread is
 * told when no worker borrows its values any more. */
static void stop(struct worker *worker)
{
    struct exchange *exchange = worker->exchange;
    uint32_t blamed =
        exchange->culprit != 0 ? exchange->culprit : exchange->participants[exchange->rank].node_id;
    worker->state = EXCHANGE_FAILED;
    if (gather_is_of(worker)) {
        gather_stop(worker);
    }
    worker_take_held(worker);
    links_bye(worker, exchange->leaving ? 0 : exchange->failure.code, blamed,
              exchange->leaving ? "" : exchange->failure.text);
    atomic_store(&worker->counters.links_up, 0);
    steps_answer(worker); /* What came before the end counts. */
    if (atomic_fetch_add(&exchange->stopped, 1) + 1 == exchange->workers_count) {
        mailbox_put(&exchange->compute_box, &exchange->failed_answer.message);
        mailbox_put(&exchange->loop_box, &exchange->failed_news.message);
    }
}

static void end_exchange(struct worker *worker, uint32_t participant, const struct err *err,
                         bool leaving)
{
    struct exchange *exchange = worker->exchange;
    if (worker->state == EXCHANGE_FAILED || worker->state == EXCHANGE_CLOSING) {
        return;
    }
    if (claim(exchange, participant, err, leaving)) { /* err may lie in what is closed below. */
        for (uint32_t w = 0; w < exchange->workers_count; w++) {
            if (w != worker->index) {
                tell(&exchange->workers[w], &exchange->workers[w].stop);
            }
        }
    }
    stop(worker);
}

void exchange_fail(struct worker *worker, uint32_t participant, const struct err *err)
{
    end_exchange(worker, participant, err, false);
}

/* Between two steps nobody waits for this node: it leaves, and fails nobody who is as far. */
static void cancel_exchange(struct worker *worker, const char *reason)
{
    struct err err = {0};
    bool leaving =
        worker->state == EXCHANGE_READY && atomic_load(&worker->exchange->incomplete) == 0;
    (void)err_set(&err, ERR_CANCELED, "%s", reason);
    end_exchange(worker, EXCHANGE_NOBODY, &err, leaving);
}

/* ---------------------------------------------------------------- all links are up */

static void get_ready(struct worker *worker)
{
    if (worker->state == EXCHANGE_OPENING) {
        worker->state = EXCHANGE_READY;
        links_ready(worker);
        worker_take_held(worker);
    }
}

void worker_all_up(struct worker *worker)
{
    struct exchange *exchange = worker->exchange;
    for (uint32_t w = 0; w < exchange->workers_count; w++) {
        if (w != worker->index) {
            tell(&exchange->workers[w], &exchange->workers[w].ready);
        }
    }
    exchange->ready.kind = NEWS_READY;
    mailbox_put(&exchange->loop_box, &exchange->ready);
    get_ready(worker);
}

/* ---------------------------------------------------------------- the thread */

static void on_box_closed(struct mailbox *box)
{
    struct worker *worker = OWNER_OF(box, struct worker, box);
    ASSERT(worker->finishing);
}

static void close_handles(struct worker *worker)
{
    ASSERT(pthread_mutex_lock(&worker->exchange->lock) == 0);
    worker->deaf = true;
    ASSERT(pthread_mutex_unlock(&worker->exchange->lock) == 0);
    worker->finishing = true; /* The loop ends when these are closed. */
    uv_close((uv_handle_t *)&worker->tick, NULL);
    uv_close((uv_handle_t *)&worker->turn, NULL);
    if (gather_is_of(worker)) {
        uv_close((uv_handle_t *)&worker->exchange->gather.copying, NULL);
    }
    mailbox_close(&worker->box, on_box_closed);
}

void worker_settle(struct worker *worker)
{
    if (worker->state == EXCHANGE_CLOSING && worker->bulks == 0 && !worker->finishing) {
        close_handles(worker);
    }
}

static void close_down(struct worker *worker)
{
    struct exchange *exchange = worker->exchange;
    bool orderly = worker->state == EXCHANGE_READY;
    bool failed = worker->state == EXCHANGE_FAILED;
    worker->state = EXCHANGE_CLOSING;
    if (gather_is_of(worker)) {
        gather_stop(worker);
    }
    worker_take_held(worker);
    if (!failed) { /* Else the goodbyes were said. */
        links_bye(worker, orderly ? 0 : ERR_CANCELED,
                  exchange->participants[exchange->rank].node_id,
                  orderly ? "" : "it was closed before all links were up");
    }
    worker_settle(worker);
}

/* What the compute thread sends. */
static void take_work(struct worker *worker, struct message *message)
{
    if (worker->state == EXCHANGE_OPENING) {
        *worker->held_last = message; /* Until all links are up. */
        worker->held_last = &message->next;
    } else if (message->kind == TO_GATHER) {
        gather_start(worker);
    } else if (worker->state == EXCHANGE_READY && message->kind == TO_BEGIN) {
        steps_begin(worker, &worker->begin);
    } else if (worker->state == EXCHANGE_READY) {
        steps_push(worker, OWNER_OF(message, struct chunk, push));
    }
}

void worker_take_held(struct worker *worker)
{
    while (worker->held != NULL) {
        struct message *message = worker->held;
        worker->held = message->next;
        message->next = NULL;
        take_work(worker, message);
    }
    worker->held_last = &worker->held;
}

static void take_mail(struct worker *worker, struct message *message)
{
    switch ((enum to_worker)message->kind) {
    case TO_ADOPT: {
        struct adopt_message *adopt = OWNER_OF(message, struct adopt_message, message);
        if (worker->finishing || worker->state == EXCHANGE_CLOSING) {
            peer_refuse(&adopt->incoming, ERR_BUSY, "the exchange is being closed");
        } else {
            links_adopt(worker, &adopt->incoming);
        }
        free(adopt);
        break;
    }
    case TO_READY:
        get_ready(worker);
        break;
    case TO_BEGIN:
    case TO_PUSH:
    case TO_GATHER:
        take_work(worker, message);
        break;
    case TO_CANCEL: {
        struct cancel_message *cancel = OWNER_OF(message, struct cancel_message, message);
        cancel_exchange(worker, cancel->reason);
        free(cancel);
        break;
    }
    case TO_STOP:
        if (worker->state == EXCHANGE_OPENING || worker->state == EXCHANGE_READY) {
            stop(worker);
        }
        break;
    case TO_CLOSE:
        close_down(worker);
        break;
    }
}

static void on_mail(struct mailbox *box)
{
    struct worker *worker = OWNER_OF(box, struct worker, box);
    for (struct message *message = mailbox_take(box); message != NULL;
         message = mailbox_take(box)) {
        take_mail(worker, message);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct worker *worker = OWNER_OF(timer, struct worker, tick);
    uint64_t now_ms = uv_now(&worker->loop);
    /* A tick so late means that this process was stopped, not that the others were silent. */
    bool slept = now_ms - worker->ticked_ms >= worker->exchange->settings.silence_ms / 2;
    worker->ticked_ms = now_ms;
    links_tick(worker, now_ms, slept);
    if ((worker->state == EXCHANGE_FAILED || worker->state == EXCHANGE_CLOSING) &&
        now_ms >= worker->close_deadline_ms) {
        links_close_all(worker);
    }
}

static void on_turn(uv_check_t *check)
{
    steps_answer(OWNER_OF(check, struct worker, turn));
}

static void *run_worker(void *context)
{
    struct worker *worker = context;
    links_count_up(worker, NULL); /* A lone participant is ready at once. */
    on_tick(&worker->tick);
    ASSERT(uv_run(&worker->loop, UV_RUN_DEFAULT) == 0);
    ASSERT(uv_loop_close(&worker->loop) == 0);
    mailbox_put(&worker->exchange->loop_box, &worker->ended); /* The thread's last touch. */
    return NULL;
}

int worker_open(struct worker *worker, struct err *err)
{
    /* These fail only where the process has no descriptors left. */
    int status = uv_loop_init(&worker->loop);
    if (status != 0) {
        return err_set(err, ERR_INTERNAL, "cannot make a loop: %s", uv_strerror(status));
    }
    status = mailbox_open(&worker->box, &worker->loop, on_mail);
    if (status != 0) {
        ASSERT(uv_loop_close(&worker->loop) == 0);
        return err_set(err, ERR_INTERNAL, "cannot make a mailbox: %s", uv_strerror(status));
    }
    ASSERT(uv_timer_init(&worker->loop, &worker->tick) == 0);
    ASSERT(uv_timer_start(&worker->tick, on_tick, TICK_MS, TICK_MS) == 0);
    ASSERT(uv_check_init(&worker->loop, &worker->turn) == 0);
    ASSERT(uv_check_start(&worker->turn, on_turn) == 0);
    if (gather_is_of(worker)) {
        ASSERT(uv_idle_init(&worker->loop, &worker->exchange->gather.copying) == 0);
    }
    worker->held_last = &worker->held;
    worker->ready.kind = TO_READY;
    worker->stop.kind = TO_STOP;
    worker->close.kind = TO_CLOSE;
    worker->ended.kind = NEWS_THREAD_ENDED;
    worker->ticked_ms = uv_now(&worker->loop);
    worker->connect_timeout_ms = worker->exchange->settings.connect_timeout_ms;
    worker->connect_deadline_ms = worker->ticked_ms + worker->connect_timeout_ms;
    return 0;
}

void worker_start(struct worker *worker)
{
    ASSERT(pthread_create(&worker->thread, NULL, run_worker, worker) == 0);
}

void worker_discard(struct worker *worker)
{
    close_handles(worker);
    ASSERT(uv_run(&worker->loop, UV_RUN_DEFAULT) == 0);
    ASSERT(uv_loop_close(&worker->loop) == 0);
}
