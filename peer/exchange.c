#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "peer/exchange_room.h"

#define TICK_MS            50
#define STREAMS            4
#define CONNECT_TIMEOUT_MS 60000
#define SILENCE_MS         10000
#define PROGRESS_MS        300000

void exchange_count(_Atomic uint64_t *counter, uint64_t more)
{
    (void)atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

void exchange_where(const struct exchange *exchange, uint32_t participant, char *text, size_t size)
{
    const struct participant *who = &exchange->participants[participant];
    char what[160];
    if (exchange->state == EXCHANGE_OPENING) {
        uint32_t up = 0;
        for (uint32_t s = 0; s < exchange->settings.streams; s++) {
            const struct bulk *bulk =
                exchange->slots[(size_t)participant * exchange->settings.streams + s].bulk;
            up += bulk != NULL && bulk->state == BULK_UP;
        }
        (void)snprintf(what, sizeof(what), "connect, %u of %u connections are up", up,
                       exchange->settings.streams);
    } else if (!steps_owes(exchange, participant, what, sizeof(what)) &&
               !gather_owes(exchange, participant, what, sizeof(what))) {
        (void)snprintf(what, sizeof(what), "step %" PRIu64 ", it owes nothing",
                       exchange->begun ? exchange->step : 0);
    }
    (void)snprintf(text, size, "node '%s' (%s): %s", who->name, who->address_text, what);
}

/* The end of push and pull; the peers are told why, or (leave) that this node needs no more of
 * them. */
static void end_exchange(struct exchange *exchange, uint32_t participant, const struct err *err,
                         bool leave)
{
    if (exchange->state == EXCHANGE_FAILED || exchange->state == EXCHANGE_CLOSING) {
        return;
    }
    uint32_t culprit =
        participant == EXCHANGE_NOBODY ? 0 : exchange->participants[participant].node_id;
    exchange->failure = *err; /* err may lie in what is closed below. */
    exchange->state = EXCHANGE_FAILED;
    ASSERT(exchange->failure.code != 0);
    gather_stop(exchange);
    exchange_take_held(exchange);
    links_bye(exchange, leave ? 0 : exchange->failure.code,
              culprit != 0 ? culprit : exchange->participants[exchange->rank].node_id,
              leave ? "" : exchange->failure.text);
    atomic_store(&exchange->counters.links_up, 0);
    exchange->failed_answer = (struct failed_message){
        .message = {.kind = EXCHANGE_ENDED}, .culprit = culprit, .err = exchange->failure};
    exchange->failed_news = exchange->failed_answer;
    exchange->failed_news.message.kind = NEWS_FAILED;
    steps_answer(exchange); /* What came before the end counts. */
    mailbox_put(&exchange->compute_box, &exchange->failed_answer.message);
    mailbox_put(&exchange->loop_box, &exchange->failed_news.message);
}

void exchange_fail(struct exchange *exchange, uint32_t participant, const struct err *err)
{
    end_exchange(exchange, participant, err, false);
}

/* Between two steps nobody waits for this node: it leaves, and fails nobody who is as far. */
static void cancel_exchange(struct exchange *exchange, const char *reason)
{
    struct err err = {0};
    bool leave = exchange->state == EXCHANGE_READY && steps_idle(exchange);
    (void)err_set(&err, ERR_CANCELED, "%s", reason);
    end_exchange(exchange, EXCHANGE_NOBODY, &err, leave);
}

/* ---------------------------------------------------------------- the exchange thread */

static void on_box_closed(struct mailbox *box)
{
    struct exchange *exchange = OWNER_OF(box, struct exchange, box);
    ASSERT(exchange->finishing);
}

void exchange_settle(struct exchange *exchange)
{
    if (exchange->state != EXCHANGE_CLOSING || exchange->bulks > 0 || exchange->finishing) {
        return;
    }
    exchange->finishing = true; /* The loop ends when these are closed. */
    uv_close((uv_handle_t *)&exchange->tick, NULL);
    uv_close((uv_handle_t *)&exchange->turn, NULL);
    uv_close((uv_handle_t *)&exchange->gather.copying, NULL);
    mailbox_close(&exchange->box, on_box_closed);
}

static void close_down(struct exchange *exchange)
{
    bool orderly = exchange->state == EXCHANGE_READY;
    bool failed = exchange->state == EXCHANGE_FAILED;
    uint64_t deadline_ms = exchange->close_deadline_ms;
    exchange->state = EXCHANGE_CLOSING;
    gather_stop(exchange);
    exchange_take_held(exchange);
    if (!failed) {
        links_bye(exchange, orderly ? 0 : ERR_CANCELED,
                  exchange->participants[exchange->rank].node_id,
                  orderly ? "" : "it was closed before all links were up");
    } else {
        exchange->close_deadline_ms = deadline_ms; /* The goodbyes were said. */
    }
    exchange_settle(exchange);
}

/* What the compute thread sends. */
static void take_work(struct exchange *exchange, struct message *message)
{
    if (exchange->state == EXCHANGE_OPENING) {
        *exchange->held_last = message; /* Until all links are up. */
        exchange->held_last = &message->next;
    } else if (message->kind == TO_GATHER) {
        gather_start(exchange);
    } else if (exchange->state == EXCHANGE_READY && message->kind == TO_BEGIN) {
        steps_begin(exchange, &exchange->begin);
    } else if (exchange->state == EXCHANGE_READY) {
        steps_push(exchange, OWNER_OF(message, struct chunk, push));
    }
}

void exchange_take_held(struct exchange *exchange)
{
    while (exchange->held != NULL) {
        struct message *message = exchange->held;
        exchange->held = message->next;
        message->next = NULL;
        take_work(exchange, message);
    }
    exchange->held_last = &exchange->held;
}

static void on_mail(struct mailbox *box)
{
    struct exchange *exchange = OWNER_OF(box, struct exchange, box);
    for (struct message *message = mailbox_take(box); message != NULL;
         message = mailbox_take(box)) {
        switch ((enum to_exchange)message->kind) {
        case TO_ADOPT: {
            struct adopt_message *adopt = OWNER_OF(message, struct adopt_message, message);
            if (exchange->finishing || exchange->state == EXCHANGE_CLOSING) {
                peer_refuse(&adopt->incoming, ERR_BUSY, "the exchange is being closed");
            } else {
                links_adopt(exchange, &adopt->incoming);
            }
            free(adopt);
            break;
        }
        case TO_BEGIN:
        case TO_PUSH:
        case TO_GATHER:
            take_work(exchange, message);
            break;
        case TO_CANCEL: {
            struct cancel_message *cancel = OWNER_OF(message, struct cancel_message, message);
            cancel_exchange(exchange, cancel->reason);
            free(cancel);
            break;
        }
        case TO_CLOSE:
            close_down(exchange);
            return; /* The last message. */
        }
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct exchange *exchange = OWNER_OF(timer, struct exchange, tick);
    uint64_t now_ms = uv_now(&exchange->loop);
    /* A tick so late means that this process was stopped, not that the others were silent. */
    bool slept = now_ms - exchange->ticked_ms >= exchange->settings.silence_ms / 2;
    exchange->ticked_ms = now_ms;
    links_tick(exchange, now_ms, slept);
    if ((exchange->state == EXCHANGE_FAILED || exchange->state == EXCHANGE_CLOSING) &&
        now_ms >= exchange->close_deadline_ms) {
        links_close_all(exchange);
    }
}

static void on_turn(uv_check_t *check)
{
    steps_answer(OWNER_OF(check, struct exchange, turn));
}

static void *run_exchange(void *context)
{
    struct exchange *exchange = context;
    links_check_ready(exchange); /* A lone participant is ready at once. */
    on_tick(&exchange->tick);
    ASSERT(uv_run(&exchange->loop, UV_RUN_DEFAULT) == 0);
    ASSERT(uv_loop_close(&exchange->loop) == 0);
    exchange->ended.kind = NEWS_THREAD_ENDED;
    mailbox_put(&exchange->loop_box, &exchange->ended); /* The thread's last touch. */
    return NULL;
}

/* ---------------------------------------------------------------- the owner's loop */

static void exchange_free(struct exchange *exchange)
{
    steps_done(exchange);
    gather_done(exchange);
    fold_plan_done(&exchange->plan);
    free(exchange->slots);
    free(exchange->participants);
    free(exchange);
}

static void on_loop_box_closed(struct mailbox *box)
{
    struct exchange *exchange = OWNER_OF(box, struct exchange, loop_box);
    void (*on_closed)(void *) = exchange->on_closed;
    void *context = exchange->closed_context;
    mailbox_done(&exchange->compute_box);
    exchange_free(exchange);
    if (on_closed != NULL) {
        on_closed(context);
    }
}

static void on_news(struct mailbox *box)
{
    struct exchange *exchange = OWNER_OF(box, struct exchange, loop_box);
    const struct exchange_settings *settings = &exchange->settings;
    for (struct message *message = mailbox_take(box); message != NULL;
         message = mailbox_take(box)) {
        bool tell = !exchange->closing; /* A callback may have closed it. */
        switch ((enum to_loop)message->kind) {
        case NEWS_READY:
            if (tell && settings->on_ready != NULL) {
                settings->on_ready(settings->context);
            }
            break;
        case NEWS_FAILED:
            if (tell && settings->on_failed != NULL) {
                settings->on_failed(settings->context, exchange->failed_news.culprit,
                                    &exchange->failed_news.err);
            }
            break;
        case NEWS_GATHERED: {
            struct gathered_message *news = OWNER_OF(message, struct gathered_message, message);
            if (tell && settings->on_gathered != NULL) {
                settings->on_gathered(
                    settings->context, news->step, news->vectors[0], news->vectors[1],
                    (size_t)(exchange->coordinates_end - exchange->coordinates_first));
            } else {
                free(news->vectors[0]);
                free(news->vectors[1]);
            }
            free(news);
            break;
        }
        case NEWS_SLICES_SENT: {
            uint64_t step = exchange->gather_mail.step;
            atomic_store(&exchange->gathering, false);
            if (tell && settings->on_slices_sent != NULL) {
                settings->on_slices_sent(settings->context, step);
            }
            break;
        }
        case NEWS_THREAD_ENDED:
            ASSERT(pthread_join(exchange->thread, NULL) == 0);
            mailbox_close(&exchange->loop_box, on_loop_box_closed);
            return;
        }
    }
}

static int check_settings(const struct exchange_settings *settings, struct err *err)
{
    if (settings->participants_count < 1 || settings->participants_count >= PEER_NODES_MAX ||
        settings->rank >= settings->participants_count) {
        return err_set(err, ERR_CONFIG, "rank %zu of %zu participants; at most %d", settings->rank,
                       settings->participants_count, PEER_NODES_MAX - 1);
    }
    if (settings->streams > EXCHANGE_STREAMS_MAX) {
        return err_set(err, ERR_CONFIG, "%u streams; give 1 to %d", settings->streams,
                       EXCHANGE_STREAMS_MAX);
    }
    if (settings->chunk_rows_max < 1 || settings->chunks_max < 1 || settings->panel_rows < 1 ||
        settings->chunks_max > EXCHANGE_CHUNKS_MAX) {
        return err_set(err, ERR_CONFIG, "%u chunks of %u rows; give 1 to %u chunks of 1 or more",
                       settings->chunks_max, settings->chunk_rows_max, EXCHANGE_CHUNKS_MAX);
    }
    for (size_t p = 0; p < settings->participants_count; p++) {
        const struct exchange_participant *at = &settings->participants[p];
        if (at->first >= at->end || (p > 0 && at->first != settings->participants[p - 1].end)) {
            return err_set(err, ERR_CONFIG,
                           "node '%s' has the coordinates %" PRIu64 " to %" PRIu64
                           "; each needs at least one and begins where the one before ends",
                           at->name, at->first, at->end);
        }
        if (strlen(at->name) >= PEER_NAME_SIZE) {
            return err_set(err, ERR_CONFIG, "the name '%s' is too long", at->name);
        }
    }
    return 0;
}

static int configure(struct exchange *exchange, const struct exchange_settings *settings,
                     struct err *err)
{
    struct exchange_settings *own = &exchange->settings;
    uint32_t count = (uint32_t)settings->participants_count;
    *own = *settings;
    own->participants = NULL;
    own->streams = own->streams != 0 ? own->streams : STREAMS;
    own->connect_timeout_ms =
        own->connect_timeout_ms != 0 ? own->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    own->silence_ms = own->silence_ms != 0 ? own->silence_ms : SILENCE_MS;
    own->progress_ms = own->progress_ms != 0 ? own->progress_ms : PROGRESS_MS;
    exchange->rank = (uint32_t)settings->rank;
    exchange->participants = calloc(count, sizeof(*exchange->participants));
    uint64_t *bounds = calloc(count + 1U, sizeof(*bounds));
    if (exchange->participants == NULL || bounds == NULL) {
        free(bounds);
        return err_set(err, ERR_NOMEM, "no memory for %u participants", count);
    }
    exchange->participants_count = count;
    for (uint32_t p = 0; p < count; p++) {
        const struct exchange_participant *from = &settings->participants[p];
        struct participant *to = &exchange->participants[p];
        struct node nodes[NODES_MAX];
        to->node_id = from->node_id;
        to->first = from->first;
        to->end = from->end;
        to->nodes_count = nodes_cover(from->first, from->end, nodes);
        bounds[p] = from->first;
        bounds[p + 1] = from->end;
        (void)snprintf(to->name, sizeof(to->name), "%s", from->name);
        (void)snprintf(to->address_text, sizeof(to->address_text), "%s", from->address);
        if (p != exchange->rank && peer_address_parse(from->address, &to->address, err) != 0) {
            free(bounds);
            return err_prefix(err, "node '%s': ", from->name);
        }
    }
    exchange->coordinates_first = bounds[0];
    exchange->coordinates_end = bounds[count];
    int code = fold_plan_init_bounds(&exchange->plan, bounds, count, err);
    free(bounds);

    struct peer_hello *hello = &exchange->hello;
    hello->protocol = FRAME_PROTOCOL_VERSION;
    hello->class = PEER_BULK;
    hello->node_id = exchange->participants[exchange->rank].node_id;
    hello->incarnation = settings->incarnation;
    hello->job = settings->job;
    hello->generation = settings->generation;
    hello->streams = own->streams;
    memcpy(hello->identity, settings->identity, sizeof(hello->identity));
    (void)snprintf(hello->cluster, sizeof(hello->cluster), "%s", settings->cluster);
    (void)snprintf(hello->node, sizeof(hello->node), "%s",
                   exchange->participants[exchange->rank].name);
    (void)snprintf(hello->policy, sizeof(hello->policy), "%s", settings->policy);
    own->cluster = hello->cluster;
    own->policy = hello->policy;
    return code;
}

int exchange_open(const struct exchange_settings *settings, uv_loop_t *loop,
                  struct exchange **ret_exchange, struct err *err)
{
    if (check_settings(settings, err) != 0) {
        return err->code;
    }
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    if (exchange == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the exchange");
    }
    if (configure(exchange, settings, err) != 0 || steps_open(exchange, err) != 0 ||
        gather_open(exchange, err) != 0 || links_open(exchange, err) != 0) {
        exchange_free(exchange);
        return err->code;
    }
    /* These fail only where the process has no descriptors left. */
    int status = uv_loop_init(&exchange->loop);
    if (status != 0) {
        exchange_free(exchange);
        return err_set(err, ERR_INTERNAL, "cannot make a loop: %s", uv_strerror(status));
    }
    ASSERT(mailbox_open(&exchange->box, &exchange->loop, on_mail) == 0);
    ASSERT(mailbox_open(&exchange->loop_box, loop, on_news) == 0);
    mailbox_init(&exchange->compute_box);
    ASSERT(uv_timer_init(&exchange->loop, &exchange->tick) == 0);
    ASSERT(uv_timer_start(&exchange->tick, on_tick, TICK_MS, TICK_MS) == 0);
    ASSERT(uv_check_init(&exchange->loop, &exchange->turn) == 0);
    ASSERT(uv_check_start(&exchange->turn, on_turn) == 0);
    ASSERT(uv_idle_init(&exchange->loop, &exchange->gather.copying) == 0);
    exchange->held_last = &exchange->held;
    exchange->ticked_ms = uv_now(&exchange->loop);
    exchange->connect_deadline_ms = exchange->ticked_ms + exchange->settings.connect_timeout_ms;
    ASSERT(pthread_create(&exchange->thread, NULL, run_exchange, exchange) == 0);
    *ret_exchange = exchange;
    return 0;
}

void exchange_close(struct exchange *exchange, void (*on_closed)(void *context), void *context)
{
    ASSERT(!exchange->closing);
    exchange->closing = true;
    exchange->on_closed = on_closed;
    exchange->closed_context = context;
    exchange->close.kind = TO_CLOSE;
    mailbox_put(&exchange->box, &exchange->close);
}
