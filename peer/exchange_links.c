/* The bulk connections of an exchange that are up: what they carry, goodbyes, silence. While
 * opening, a connection that breaks is replaced; afterwards it is the end. The worker of the
 * stream.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "peer/exchange_room.h"

#define LINGER_MS     1000 /* for a goodbye to be read before the connection is closed */
#define LOOK_EVERY_MS 1000
#define BROKEN_MS     50 /* for the reason of a connection's end to come on another one */

#define WINDOW_NEAR_SIZE ((size_t)512 << 10)
#define WINDOW_FAR_SIZE  ((size_t)8 << 20) /* 10 GB/s at 0.8 ms */

struct bulk_slot *links_slot(const struct exchange *exchange, uint32_t participant, uint32_t stream)
{
    return &exchange->slots[(size_t)participant * exchange->settings.streams + stream];
}

#define PUMP_PROCESSORS_LEAST 8
#define PUMP_LINKS_MOST       32
#define PUMP_ROWS_LEAST       8192 /* of a chunk: small frames lose more by the hand-over */

/* Whether connections have threads of their own. Several exchange threads use the cores better. */
static bool want_pumps(const struct exchange *exchange)
{
    const struct exchange_settings *settings = &exchange->settings;
    cpu_set_t set;
    if (settings->trust == NULL || settings->pumps != EXCHANGE_PUMPS_AUTO) {
        return settings->trust != NULL && settings->pumps == EXCHANGE_PUMPS_YES;
    }
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof(set), &set) == 0 &&
           CPU_COUNT(&set) >= PUMP_PROCESSORS_LEAST && exchange->workers_count == 1 &&
           settings->chunk_rows_max >= PUMP_ROWS_LEAST &&
           (exchange->participants_count - 1) * settings->streams <= PUMP_LINKS_MOST;
}

int links_open(struct exchange *exchange, struct err *err)
{
    exchange->pumps = want_pumps(exchange);
    size_t count = (size_t)exchange->participants_count * exchange->settings.streams;
    exchange->slots = calloc(count, sizeof(*exchange->slots));
    if (exchange->slots == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu connections", count);
    }
    for (size_t i = 0; i < count; i++) {
        exchange->slots[i].retry_ms = LINKS_RETRY_FIRST_MS;
    }
    return 0;
}

static void on_bulk_closed(struct link *link)
{
    struct bulk *bulk = OWNER_OF(link, struct bulk, link);
    struct worker *worker = bulk->worker;
    worker->wire_in_gone += link->bytes_in;
    worker->wire_out_gone += link->bytes_out;
    buf_done(&bulk->greeting_body);
    free(bulk);
    ASSERT(worker->bulks > 0);
    worker->bulks--;
    worker_settle(worker);
}

void links_close(struct bulk *bulk)
{
    struct worker *worker = bulk->worker;
    struct exchange *exchange = worker->exchange;
    struct bulk_slot *slot = links_slot(exchange, bulk->participant, bulk->stream);
    if (bulk->state == BULK_CLOSED) {
        return;
    }
    if (bulk->state == BULK_UP &&
        (worker->state == EXCHANGE_OPENING || worker->state == EXCHANGE_READY)) {
        (void)atomic_fetch_sub(&exchange->links_up, 1);
        (void)atomic_fetch_sub(&exchange->participants[bulk->participant].links_up, 1);
        (void)atomic_fetch_sub(&worker->counters.links_up, 1);
    }
    bulk->state = BULK_CLOSED;
    if (slot->bulk == bulk) {
        slot->bulk = NULL;
    }
    link_close(&bulk->link);
}

void links_note(struct exchange *exchange, uint32_t participant, const struct err *err)
{
    ASSERT(pthread_mutex_lock(&exchange->lock) == 0);
    exchange->participants[participant].last_error = *err;
    ASSERT(pthread_mutex_unlock(&exchange->lock) == 0);
}

void links_noted(struct exchange *exchange, uint32_t participant, struct err *ret_err)
{
    ASSERT(pthread_mutex_lock(&exchange->lock) == 0);
    *ret_err = exchange->participants[participant].last_error;
    ASSERT(pthread_mutex_unlock(&exchange->lock) == 0);
}

void links_count_up(struct worker *worker, struct bulk *bulk)
{
    struct exchange *exchange = worker->exchange;
    size_t count = (size_t)(exchange->participants_count - 1) * exchange->settings.streams;
    size_t up = 0;
    if (bulk != NULL) {
        (void)atomic_fetch_add(&exchange->participants[bulk->participant].links_up, 1);
        (void)atomic_fetch_add(&worker->counters.links_up, 1);
        up = atomic_fetch_add(&exchange->links_up, 1) + 1;
    }
    if (up == count && !atomic_exchange(&exchange->is_ready, true)) {
        worker_all_up(worker);
    }
}

static bool is_near(const struct bulk *bulk)
{
    struct sockaddr_in here = {0};
    struct sockaddr_in there = {0};
    socklen_t size = sizeof(here);
    ASSERT(getsockname(bulk->link.transport.socket, (struct sockaddr *)&here, &size) == 0);
    size = sizeof(there);
    /* A connection that breaks just now has no other end; its end is told soon. */
    return getpeername(bulk->link.transport.socket, (struct sockaddr *)&there, &size) == 0 &&
           (here.sin_addr.s_addr == there.sin_addr.s_addr ||
            ntohl(there.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET);
}

/* On one host what counts is that the bytes stay in the cache, between hosts that the way is full.
 */
static void size_window(struct worker *worker, uint32_t participant)
{
    const struct exchange *exchange = worker->exchange;
    const struct bulk *bulk = links_slot(exchange, participant, worker->index)->bulk;
    size_t given = exchange->settings.window_size;
    worker->counterparts[participant].window_size = given != 0 ? given
                                                    : bulk != NULL && is_near(bulk)
                                                        ? WINDOW_NEAR_SIZE
                                                        : WINDOW_FAR_SIZE;
}

static void fail_broken(struct worker *worker, uint32_t participant)
{
    struct counterpart *from = &worker->counterparts[participant];
    struct err err = from->broken_err;
    char where[ERR_TEXT_SIZE];
    exchange_where(worker, participant, where, sizeof(where));
    (void)err_prefix(&err, "%s: stream %u: ", where, from->broken_stream);
    exchange_fail(worker, participant, &err);
}

/* A link ended that was needed. If whoever ended it says why, it does so on another one, which may
 * be another worker's: it has a moment for it, unless all of its links have ended so. */
static void link_broke(struct worker *worker, uint32_t participant, uint32_t stream,
                       const struct err *err)
{
    struct exchange *exchange = worker->exchange;
    struct counterpart *from = &worker->counterparts[participant];
    if (!from->broken) {
        from->broken = true;
        from->broken_stream = stream;
        from->broken_ms = uv_now(&worker->loop);
        from->broken_err = *err;
    }
    uint32_t broken = atomic_fetch_add(&exchange->participants[participant].links_broken, 1) + 1;
    if (broken >= exchange->settings.streams) {
        fail_broken(worker, participant);
    }
}

void links_ready(struct worker *worker)
{
    struct exchange *exchange = worker->exchange;
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        if (p == exchange->rank) {
            continue;
        }
        size_window(worker, p);
        for (EACH_STREAM(s, worker)) {
            const struct bulk *bulk = links_slot(exchange, p, s)->bulk;
            if (bulk == NULL || bulk->state != BULK_UP) { /* It was, when they were counted. */
                struct err err = {0};
                (void)err_set(&err, ERR_PEER, "the connection broke as the last ones came up");
                link_broke(worker, p, s, &err);
            }
        }
    }
}

/* ---------------------------------------------------------------- frames */

static uint32_t streams_of(const struct worker *worker)
{
    uint32_t count = 0;
    for (EACH_STREAM(s, worker)) {
        count++;
    }
    return count;
}

static void on_bye(struct bulk *bulk, const struct frame_header *header, const uint8_t *body)
{
    struct worker *worker = bulk->worker;
    struct exchange *exchange = worker->exchange;
    struct counterpart *from = &worker->counterparts[bulk->participant];
    int32_t code = 0;
    uint32_t culprit = 0;
    memcpy(&code, body, sizeof(code));
    memcpy(&culprit, body + 4, sizeof(culprit));
    bulk->left = true;
    from->streams_left++;
    if (worker->state == EXCHANGE_FAILED || worker->state == EXCHANGE_CLOSING) {
        return;
    }
    struct err err = {0};
    char where[ERR_TEXT_SIZE];
    exchange_where(worker, bulk->participant, where, sizeof(where));
    if (code == ERR_PEER && culprit == exchange->hello.node_id &&
        atomic_load(&exchange->participants[bulk->participant].links_broken) > 0) {
        /* Both saw one connection break, and each names the other: what was seen here says more,
         * if not by this worker, then soon by the one whose connection it was. */
        if (from->broken) {
            fail_broken(worker, bulk->participant);
        }
        return;
    }
    if (code != 0) {
        uint32_t blamed = bulk->participant; /* Also where it blames us: we live. */
        for (uint32_t p = 0; p < exchange->participants_count; p++) {
            if (exchange->participants[p].node_id == culprit && p != exchange->rank) {
                blamed = p;
            }
        }
        (void)err_set(&err, code < 0 ? code : ERR_PEER, "it ended the exchange: %.*s",
                      (int)(header->body_size - 8), (const char *)body + 8);
        (void)err_prefix(&err, "%s: ", where);
        exchange_fail(worker, blamed, &err);
        return;
    }
    bool all = from->streams_left == streams_of(worker);
    if (worker->state == EXCHANGE_OPENING ||
        (all && (steps_owes(worker, bulk->participant, NULL, 0) ||
                 (gather_is_of(worker) && gather_owes(exchange, bulk->participant, NULL, 0))))) {
        (void)err_set(&err, ERR_PEER, "%s: it has left the exchange", where);
        exchange_fail(worker, bulk->participant, &err);
    }
}

static int place_bulk(struct link *link, const struct frame_header *header, uint8_t **ret_place,
                      struct err *err)
{
    struct bulk *bulk = OWNER_OF(link, struct bulk, link);
    struct worker *worker = bulk->worker;
    struct exchange *exchange = worker->exchange;
    if (bulk->state != BULK_UP) {
        return 0;
    }
    if (header->generation != exchange->settings.generation || worker->state == EXCHANGE_FAILED ||
        worker->state == EXCHANGE_CLOSING) {
        return 0; /* on_bulk_frame drops it. */
    }
    if (header->flags != 0) {
        return err_set(err, ERR_PROTO, "a frame with flags %u came", header->flags);
    }
    switch (header->kind) {
    case PEER_VALUES:
    case PEER_RESULT:
    case PEER_WORD:
        return steps_place(worker, bulk->participant, bulk->stream, header, ret_place, err);
    case PEER_GATHER:
        return gather_place(worker, bulk->participant, header, ret_place, err);
    case PEER_ALIVE:
        return header->body_size == 0 ? 0 : err_set(err, ERR_PROTO, "a full idle frame came");
    case PEER_BYE:
        return header->body_size >= 8 && header->body_size <= BYE_BODY_SIZE
                   ? 0
                   : err_set(err, ERR_PROTO, "a goodbye of %u bytes came", header->body_size);
    default:
        return err_set(err, ERR_PROTO, "a frame of kind %u came, which no bulk link carries",
                       header->kind);
    }
}

static int on_bulk_frame(struct link *link, const struct frame_header *header, uint8_t *body,
                         struct err *err)
{
    struct bulk *bulk = OWNER_OF(link, struct bulk, link);
    struct worker *worker = bulk->worker;
    struct exchange *exchange = worker->exchange;
    if (bulk->state != BULK_UP) {
        return links_on_answer(bulk, header, body, err);
    }
    if (header->generation != exchange->settings.generation) {
        exchange_count(&worker->counters.stale_frames, 1);
        return 0;
    }
    if (bulk->left) {
        return err_set(err, ERR_PROTO, "a frame of kind %u came behind the goodbye", header->kind);
    }
    if (header->kind == PEER_BYE && header->body_size >= 8) {
        on_bye(bulk, header, body);
        return 0;
    }
    if (worker->state == EXCHANGE_FAILED || worker->state == EXCHANGE_CLOSING) {
        return 0;
    }
    switch (header->kind) {
    case PEER_GATHER:
        gather_came(worker, bulk->participant, header);
        return 0;
    case PEER_ALIVE:
        return 0;
    default:
        return steps_came(worker, bulk->participant, header, body, err);
    }
}

static void on_bulk_ended(struct link *link, const struct err *reason)
{
    struct bulk *bulk = OWNER_OF(link, struct bulk, link);
    struct worker *worker = bulk->worker;
    struct exchange *exchange = worker->exchange;
    uint32_t participant = bulk->participant;
    uint32_t stream = bulk->stream;
    bool left = bulk->left;
    struct err err = *reason;
    links_close(bulk);
    if (left || worker->state == EXCHANGE_FAILED || worker->state == EXCHANGE_CLOSING) {
        return;
    }
    if (err.code == ERR_PROTO) {
        char where[ERR_TEXT_SIZE];
        exchange_where(worker, participant, where, sizeof(where));
        (void)err_prefix(&err, "%s: stream %u: ", where, stream);
        exchange_fail(worker, participant, &err);
        return;
    }
    links_note(exchange, participant, &err);
    if (worker->state == EXCHANGE_OPENING) {
        return; /* It is dialled again, or the peer dials. */
    }
    /* Whoever fails says so on the links that can carry it: that names the culprit better. */
    for (EACH_STREAM(s, worker)) {
        struct bulk *sister = links_slot(exchange, participant, s)->bulk;
        if (sister != NULL) {
            link_read_now(&sister->link);
        }
        if (worker->state == EXCHANGE_FAILED) {
            return;
        }
    }
    link_broke(worker, participant, stream, &err);
}

const struct link_ops links_bulk_ops = {.on_open = links_on_open,
                                        .place = place_bulk,
                                        .on_frame = on_bulk_frame,
                                        .on_ended = on_bulk_ended,
                                        .on_closed = on_bulk_closed};

void links_send(struct worker *worker, uint32_t participant, uint32_t stream,
                struct link_send *send, int queue)
{
    struct exchange *exchange = worker->exchange;
    struct bulk *bulk = links_slot(exchange, participant, stream)->bulk;
    if (worker->state != EXCHANGE_FAILED && bulk != NULL && bulk->state == BULK_UP && !bulk->left) {
        link_send(&bulk->link, send, queue);
        return;
    }
    if (worker->state != EXCHANGE_FAILED && !worker->counterparts[participant].broken) {
        struct err err = {0};
        char where[ERR_TEXT_SIZE];
        exchange_where(worker, participant, where, sizeof(where));
        (void)err_set(&err, ERR_PEER, "%s: it has left the exchange", where);
        exchange_fail(worker, participant, &err);
    }
    if (send->on_sent != NULL) {
        send->on_sent(NULL, send, false);
    }
}

static void say_bye(struct bulk *bulk, int code, uint32_t culprit, const char *text)
{
    int32_t wire_code = code;
    size_t text_size = strlen(text);
    if (bulk->state != BULK_UP || bulk->bye.kind == PEER_BYE) {
        return;
    }
    memcpy(bulk->bye_body, &wire_code, 4);
    memcpy(bulk->bye_body + 4, &culprit, 4);
    memcpy(bulk->bye_body + 8, text, text_size);
    bulk->bye = (struct link_send){.kind = PEER_BYE,
                                   .generation = bulk->worker->exchange->settings.generation,
                                   .bytes = bulk->bye_body,
                                   .size = 8 + text_size};
    if (code == 0) {
        link_send(&bulk->link, &bulk->bye, 1); /* Behind all that is queued. */
        link_shut(&bulk->link);
    } else {
        (void)link_farewell(&bulk->link, &bulk->bye);
    }
}

void links_bye(struct worker *worker, int code, uint32_t culprit, const char *text)
{
    const struct exchange *exchange = worker->exchange;
    worker->close_deadline_ms = uv_now(&worker->loop) + (code == 0 ? 2 * LINGER_MS : LINGER_MS);
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        for (EACH_STREAM(s, worker)) {
            struct bulk *bulk = links_slot(exchange, p, s)->bulk;
            if (bulk != NULL) {
                say_bye(bulk, code, culprit, text);
            }
        }
    }
    /* Those that could not carry it, last: their end is read after the others' goodbye. */
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        for (EACH_STREAM(s, worker)) {
            struct bulk *bulk = links_slot(exchange, p, s)->bulk;
            if (bulk != NULL &&
                (bulk->state != BULK_UP ||
                 (code != 0 && !bulk->link.shut_when_sent && bulk->link.out_done > 0))) {
                links_close(bulk);
            }
        }
    }
}

void links_close_all(struct worker *worker)
{
    for (uint32_t p = 0; p < worker->exchange->participants_count; p++) {
        for (EACH_STREAM(s, worker)) {
            struct bulk *bulk = links_slot(worker->exchange, p, s)->bulk;
            if (bulk != NULL) {
                links_close(bulk);
            }
        }
    }
}

/* ---------------------------------------------------------------- time */

/* Silence of a link that is up, and our own small frame where we would be silent. */
static void silence_tick(struct worker *worker, struct bulk *bulk, uint64_t now_ms)
{
    const struct exchange *exchange = worker->exchange;
    uint64_t silence_ms = exchange->settings.silence_ms;
    uint64_t silent_ms = now_ms - bulk->link.heard_ms;
    if (bulk->left) {
        return;
    }
    if (silent_ms >= silence_ms) {
        struct err err = {0};
        char where[ERR_TEXT_SIZE];
        exchange_where(worker, bulk->participant, where, sizeof(where));
        (void)err_set(&err, ERR_TIMEOUT, "%s: stream %u: nothing was heard for %.1f s", where,
                      bulk->stream, (double)silent_ms / 1000.0);
        exchange_fail(worker, bulk->participant, &err);
        return;
    }
    if (now_ms - bulk->link.sent_ms >= silence_ms / 4 && !bulk->alive.queued) {
        bulk->alive = (struct link_send){.kind = PEER_ALIVE,
                                         .generation = exchange->settings.generation,
                                         .bytes = bulk->bye_body};
        link_send(&bulk->link, &bulk->alive, 0);
    }
}

/* When data of the participant came last, to any worker: what one is owed may wait for others. */
static uint64_t heard_data_ms(const struct worker *worker, uint32_t participant)
{
    const struct exchange *exchange = worker->exchange;
    uint64_t last_ms = worker->begun_ms;
    for (uint32_t w = 0; w < exchange->workers_count; w++) {
        uint64_t data_ms = atomic_load(&exchange->workers[w].counterparts[participant].data_ms);
        last_ms = data_ms > last_ms ? data_ms : last_ms;
    }
    return last_ms;
}

static void progress_tick(struct worker *worker, uint64_t now_ms)
{
    const struct exchange *exchange = worker->exchange;
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        uint64_t since_ms = heard_data_ms(worker, p);
        if (p != exchange->rank && now_ms >= since_ms + exchange->settings.progress_ms &&
            steps_owes(worker, p, NULL, 0)) {
            struct err err = {0};
            char where[ERR_TEXT_SIZE];
            exchange_where(worker, p, where, sizeof(where));
            (void)err_set(&err, ERR_TIMEOUT,
                          "%s: its connections live, but no data came for %.1f s", where,
                          (double)(now_ms - since_ms) / 1000.0);
            exchange_fail(worker, p, &err);
            return;
        }
    }
}

static void broken_tick(struct worker *worker, uint64_t now_ms)
{
    for (uint32_t p = 0; p < worker->exchange->participants_count; p++) {
        const struct counterpart *from = &worker->counterparts[p];
        if (worker->state == EXCHANGE_READY && from->broken &&
            now_ms - from->broken_ms >= BROKEN_MS) {
            fail_broken(worker, p);
        }
    }
}

void links_tick(struct worker *worker, uint64_t now_ms, bool slept)
{
    uint64_t out = worker->wire_out_gone;
    uint64_t in = worker->wire_in_gone;
    if (worker->state == EXCHANGE_OPENING) {
        links_connect_tick(worker, now_ms);
    }
    for (uint32_t p = 0; p < worker->exchange->participants_count; p++) {
        for (EACH_STREAM(s, worker)) {
            struct bulk *bulk = links_slot(worker->exchange, p, s)->bulk;
            if (bulk == NULL) {
                continue;
            }
            out += bulk->link.bytes_out;
            in += bulk->link.bytes_in;
            if (slept) {
                bulk->link.heard_ms = now_ms;
            }
            if (bulk->state == BULK_UP &&
                (worker->state == EXCHANGE_OPENING || worker->state == EXCHANGE_READY)) {
                silence_tick(worker, bulk, now_ms);
            }
        }
    }
    atomic_store(&worker->counters.wire_out, out);
    atomic_store(&worker->counters.wire_in, in);
    broken_tick(worker, now_ms);
    if (worker->state == EXCHANGE_READY && now_ms - worker->looked_ms >= LOOK_EVERY_MS) {
        worker->looked_ms = now_ms;
        progress_tick(worker, now_ms);
    }
}
