#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "peer/exchange_room.h"

#define STREAMS            4 /* in plain text */
#define STREAMS_SEALED     8 /* over TLS */
#define CONNECT_TIMEOUT_MS 60000
#define SILENCE_MS         10000
#define PROGRESS_MS        300000

void exchange_count(_Atomic uint64_t *counter, uint64_t more)
{
    (void)atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

/* ---------------------------------------------------------------- the owner's loop */

static void exchange_free(struct exchange *exchange)
{
    for (uint32_t w = 0; exchange->workers != NULL && w < exchange->workers_count; w++) {
        steps_done_worker(&exchange->workers[w]);
        ASSERT(pthread_mutex_destroy(&exchange->workers[w].step_lock) == 0);
    }
    ASSERT(pthread_mutex_destroy(&exchange->lock) == 0);
    steps_done(exchange);
    gather_done(exchange);
    fold_plan_done(&exchange->plan);
    free(exchange->slots);
    free(exchange->participants);
    free(exchange->workers);
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
            ASSERT(pthread_join(OWNER_OF(message, struct worker, ended)->thread, NULL) == 0);
            if (++exchange->ended == exchange->workers_count) {
                mailbox_close(&exchange->loop_box, on_loop_box_closed);
                return;
            }
            break;
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
    if (own->streams == 0) { /* The same for all, whatever cores they have: all must agree. */
        own->streams = own->trust != NULL ? STREAMS_SEALED : STREAMS;
    }
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
        to->life = from->life;
        to->incarnation = from->incarnation;
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
    hello->life = exchange->participants[exchange->rank].life;
    hello->incarnation = exchange->participants[exchange->rank].incarnation;
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

uint32_t exchange_threads_for(uint32_t cores, bool sealed, uint32_t streams)
{
    uint32_t most = sealed ? cores : cores / 2;
    uint32_t threads = most < streams ? most : streams;
    while (threads > 1 && streams % threads != 0) {
        threads--;
    }
    return threads > 1 ? threads : 1;
}

static uint32_t workers_for(const struct exchange_settings *settings)
{
    cpu_set_t set;
    uint32_t wanted = settings->threads;
    if (wanted != 0) {
        return wanted < settings->streams ? wanted : settings->streams;
    }
    CPU_ZERO(&set);
    bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
    return exchange_threads_for(known ? (uint32_t)CPU_COUNT(&set) : 1, settings->trust != NULL,
                                settings->streams);
}

static int make_workers(struct exchange *exchange, struct err *err)
{
    uint32_t count = workers_for(&exchange->settings);
    exchange->workers = aligned_alloc(EXCHANGE_LINE, count * sizeof(*exchange->workers));
    if (exchange->workers == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %u threads", count);
    }
    memset(exchange->workers, 0, count * sizeof(*exchange->workers));
    exchange->workers_count = count;
    for (uint32_t w = 0; w < count; w++) {
        exchange->workers[w].exchange = exchange;
        exchange->workers[w].index = w;
        ASSERT(pthread_mutex_init(&exchange->workers[w].step_lock, NULL) == 0);
    }
    for (uint32_t w = 0; w < count; w++) {
        if (steps_open_worker(&exchange->workers[w], err) != 0) {
            return err->code;
        }
    }
    return 0;
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
    ASSERT(pthread_mutex_init(&exchange->lock, NULL) == 0);
    uint32_t opened = 0;
    if (configure(exchange, settings, err) != 0 || steps_open(exchange, err) != 0 ||
        make_workers(exchange, err) != 0 || gather_open(exchange, err) != 0 ||
        links_open(exchange, err) != 0) {
        goto fail;
    }
    for (; opened < exchange->workers_count; opened++) {
        if (worker_open(&exchange->workers[opened], err) != 0) {
            goto fail;
        }
    }
    ASSERT(mailbox_open(&exchange->loop_box, loop, on_news) == 0);
    mailbox_init(&exchange->compute_box);
    for (uint32_t w = 0; w < exchange->workers_count; w++) {
        worker_start(&exchange->workers[w]);
    }
    *ret_exchange = exchange;
    return 0;
fail:
    while (opened > 0) {
        worker_discard(&exchange->workers[--opened]);
    }
    exchange_free(exchange);
    return err->code;
}

void exchange_close(struct exchange *exchange, void (*on_closed)(void *context), void *context)
{
    ASSERT(!exchange->closing);
    exchange->closing = true;
    exchange->on_closed = on_closed;
    exchange->closed_context = context;
    for (uint32_t w = 0; w < exchange->workers_count; w++) {
        mailbox_put(&exchange->workers[w].box, &exchange->workers[w].close);
    }
}
