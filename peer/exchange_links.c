/* The bulk connections of an exchange that are up: what they carry, goodbyes, silence. While
 * opening, a connection that breaks is replaced; afterwards it is the end. Exchange thread. */
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

#define WINDOW_NEAR_SIZE ((size_t)512 << 10)
#define WINDOW_FAR_SIZE  ((size_t)8 << 20) /* 10 GB/s at 0.8 ms */

struct bulk_slot *links_slot(struct exchange *exchange, uint32_t participant, uint32_t stream)
{
    return &exchange->slots[(size_t)participant * exchange->settings.streams + stream];
}

#define PUMP_PROCESSORS_LEAST 4
#define PUMP_LINKS_MOST       32
#define PUMP_ROWS_LEAST       8192 /* of a chunk: small frames lose more by the hand-over */

/* Whether connections have threads of their own. */
static bool want_pumps(const struct exchange *exchange)
{
    const struct exchange_settings *settings = &exchange->settings;
    cpu_set_t set;
    if (settings->trust == NULL || settings->pumps != EXCHANGE_PUMPS_AUTO) {
        return settings->trust != NULL && settings->pumps == EXCHANGE_PUMPS_YES;
    }
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof(set), &set) == 0 &&
           CPU_COUNT(&set) >= PUMP_PROCESSORS_LEAST &&
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
    struct exchange *exchange = bulk->exchange;
    exchange->wire_in_gone += link->bytes_in;
    exchange->wire_out_gone += link->bytes_out;
    buf_done(&bulk->greeting_body);
    free(bulk);
    ASSERT(exchange->bulks > 0);
    exchange->bulks--;
    exchange_settle(exchange);
}

void links_close(struct bulk *bulk)
{
    struct bulk_slot *slot = links_slot(bulk->exchange, bulk->participant, bulk->stream);
    if (bulk->state == BULK_CLOSED) {
        return;
    }
    bulk->state = BULK_CLOSED;
    if (slot->bulk == bulk) {
        slot->bulk = NULL;
    }
    link_close(&bulk->link);
}

void links_note(struct exchange *exchange, uint32_t participant, const struct err *err)
{
    struct participant *to = &exchange->participants[participant];
    (void)snprintf(to->last_error, sizeof(to->last_error), "%s", err->text);
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
static void size_windows(struct exchange *exchange)
{
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        size_t given = exchange->settings.window_size;
        if (p != exchange->rank) {
            exchange->participants[p].window_size = given != 0 ? given
                                                    : is_near(links_slot(exchange, p, 0)->bulk)
                                                        ? WINDOW_NEAR_SIZE
                                                        : WINDOW_FAR_SIZE;
        }
    }
}

void links_check_ready(struct exchange *exchange)
{
    size_t up = 0;
    size_t count = (size_t)(exchange->participants_count - 1) * exchange->settings.streams;
    size_t slots = (size_t)exchange->participants_count * exchange->settings.streams;
    for (size_t i = 0; i < slots; i++) {
        up += exchange->slots[i].bulk != NULL && exchange->slots[i].bulk->state == BULK_UP;
    }
    atomic_store(&exchange->counters.links_up, up);
    if (up == count && exchange->state == EXCHANGE_OPENING) {
        exchange->state = EXCHANGE_READY;
        size_windows(exchange);
        exchange->ready.kind = NEWS_READY;
        mailbox_put(&exchange->loop_box, &exchange->ready);
        exchange_take_held(exchange);
    }
}

/* ---------------------------------------------------------------- frames */

static void on_bye(struct bulk *bulk, const struct frame_header *header, const uint8_t *body)
{
    struct exchange *exchange = bulk->exchange;
    struct participant *from = &exchange->participants[bulk->participant];
    int32_t code = 0;
    uint32_t culprit = 0;
    memcpy(&code, body, sizeof(code));
    memcpy(&culprit, body + 4, sizeof(culprit));
    bulk->left = true;
    from->streams_left++;
    if (exchange->state == EXCHANGE_FAILED || exchange->state == EXCHANGE_CLOSING) {
        return;
    }
    struct err err = {0};
    char where[ERR_TEXT_SIZE];
    exchange_where(exchange, bulk->participant, where, sizeof(where));
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
        exchange_fail(exchange, blamed, &err);
        return;
    }
    bool all = from->streams_left == exchange->settings.streams;
    if (exchange->state == EXCHANGE_OPENING ||
        (all && (steps_owes(exchange, bulk->participant, NULL, 0) ||
                 gather_owes(exchange, bulk->participant, NULL, 0)))) {
        (void)err_set(&err, ERR_PEER, "%s: it has left the exchange", where);
        exchange_fail(exchange, bulk->participant, &err);
    }
}

static int place_bulk(struct link *link, const struct frame_header *header, uint8_t **ret_place,
                      struct err *err)
{
    struct bulk *bulk = OWNER_OF(link, struct bulk, link);
    struct exchange *exchange = bulk->exchange;
    if (bulk->state != BULK_UP) {
        return 0;
    }
    if (header->generation != exchange->settings.generation || exchange->state == EXCHANGE_FAILED ||
        exchange->state == EXCHANGE_CLOSING) {
        return 0; /* on_bulk_frame drops it. */
    }
    if (header->flags != 0) {
        return err_set(err, ERR_PROTO, "a frame with flags %u came", header->flags);
    }
    switch (header->kind) {
    case PEER_VALUES:
    case PEER_RESULT:
    case PEER_WORD:
        return steps_place(exchange, bulk->participant, bulk->stream, header, ret_place, err);
    case PEER_GATHER:
        return gather_place(exchange, bulk->participant, header, ret_place, err);
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
    struct exchange *exchange = bulk->exchange;
    if (bulk->state != BULK_UP) {
        return links_on_answer(bulk, header, body, err);
    }
    if (header->generation != exchange->settings.generation) {
        exchange_count(&exchange->counters.stale_frames, 1);
        return 0;
    }
    if (bulk->left) {
        return err_set(err, ERR_PROTO, "a frame of kind %u came behind the goodbye", header->kind);
    }
    if (header->kind == PEER_BYE && header->body_size >= 8) {
        on_bye(bulk, header, body);
        return 0;
    }
    if (exchange->state == EXCHANGE_FAILED || exchange->state == EXCHANGE_CLOSING) {
        return 0;
    }
    switch (header->kind) {
    case PEER_GATHER:
        gather_came(exchange, bulk->participant, header);
        return 0;
    case PEER_ALIVE:
        return 0;
    default:
        return steps_came(exchange, bulk->participant, header, body, err);
    }
}

static void on_bulk_ended(struct link *link, const struct err *reason)
{
    struct bulk *bulk = OWNER_OF(link, struct bulk, link);
    struct exchange *exchange = bulk->exchange;
    uint32_t participant = bulk->participant;
    uint32_t stream = bulk->stream;
    bool left = bulk->left;
    struct err err = *reason;
    links_close(bulk);
    links_check_ready(exchange);
    if (left || exchange->state == EXCHANGE_FAILED || exchange->state == EXCHANGE_CLOSING) {
        return;
    }
    if (exchange->state == EXCHANGE_OPENING && err.code != ERR_PROTO) {
        links_note(exchange, participant, &err); /* It is dialled again, or the peer dials. */
        return;
    }
    /* Whoever fails says so on the links that can carry it: that names the culprit better. */
    for (uint32_t s = 0; s < exchange->settings.streams && err.code != ERR_PROTO; s++) {
        struct bulk *sister = links_slot(exchange, participant, s)->bulk;
        if (sister != NULL) {
            link_read_now(&sister->link);
        }
        if (exchange->state == EXCHANGE_FAILED) {
            return;
        }
    }
    char where[ERR_TEXT_SIZE];
    exchange_where(exchange, participant, where, sizeof(where));
    (void)err_prefix(&err, "%s: stream %u: ", where, stream);
    exchange_fail(exchange, participant, &err);
}

const struct link_ops links_bulk_ops = {.on_open = links_on_open,
                                        .place = place_bulk,
                                        .on_frame = on_bulk_frame,
                                        .on_ended = on_bulk_ended,
                                        .on_closed = on_bulk_closed};

void links_send(struct exchange *exchange, uint32_t participant, uint32_t stream,
                struct link_send *send, int queue)
{
    struct bulk *bulk = links_slot(exchange, participant, stream)->bulk;
    if (exchange->state != EXCHANGE_FAILED && bulk != NULL && bulk->state == BULK_UP &&
        !bulk->left) {
        link_send(&bulk->link, send, queue);
        return;
    }
    if (exchange->state != EXCHANGE_FAILED) {
        struct err err = {0};
        char where[ERR_TEXT_SIZE];
        exchange_where(exchange, participant, where, sizeof(where));
        (void)err_set(&err, ERR_PEER, "%s: it has left the exchange", where);
        exchange_fail(exchange, participant, &err);
    }
    if (send->on_sent != NULL) {
        send->on_sent(NULL, send, false);
    }
}

void links_bye(struct exchange *exchange, int code, uint32_t culprit, const char *text)
{
    size_t slots = (size_t)exchange->participants_count * exchange->settings.streams;
    int32_t wire_code = code;
    exchange->close_deadline_ms = uv_now(&exchange->loop) + (code == 0 ? 2 * LINGER_MS : LINGER_MS);
    for (size_t i = 0; i < slots; i++) {
        struct bulk *bulk = exchange->slots[i].bulk;
        if (bulk == NULL || bulk->state != BULK_UP || bulk->bye.kind == PEER_BYE) {
            continue;
        }
        size_t text_size = strlen(text);
        memcpy(bulk->bye_body, &wire_code, 4);
        memcpy(bulk->bye_body + 4, &culprit, 4);
        memcpy(bulk->bye_body + 8, text, text_size);
        bulk->bye = (struct link_send){.kind = PEER_BYE,
                                       .generation = exchange->settings.generation,
                                       .bytes = bulk->bye_body,
                                       .size = 8 + text_size};
        if (code == 0) {
            link_send(&bulk->link, &bulk->bye, 1); /* Behind all that is queued. */
            link_shut(&bulk->link);
        } else {
            (void)link_farewell(&bulk->link, &bulk->bye);
        }
    }
    /* Those that could not carry it, last: their end is read after the others' goodbye. */
    for (size_t i = 0; i < slots; i++) {
        struct bulk *bulk = exchange->slots[i].bulk;
        if (bulk != NULL && (bulk->state != BULK_UP || (code != 0 && !bulk->link.shut_when_sent &&
                                                        bulk->link.out_done > 0))) {
            links_close(bulk);
        }
    }
}

void links_close_all(struct exchange *exchange)
{
    size_t slots = (size_t)exchange->participants_count * exchange->settings.streams;
    for (size_t i = 0; i < slots; i++) {
        if (exchange->slots[i].bulk != NULL) {
            links_close(exchange->slots[i].bulk);
        }
    }
}

/* ---------------------------------------------------------------- time */

/* Silence of a link that is up, and our own small frame where we would be silent. */
static void silence_tick(struct exchange *exchange, struct bulk *bulk, uint64_t now_ms)
{
    uint64_t silence_ms = exchange->settings.silence_ms;
    uint64_t silent_ms = now_ms - bulk->link.heard_ms;
    if (bulk->left) {
        return;
    }
    if (silent_ms >= silence_ms) {
        struct err err = {0};
        char where[ERR_TEXT_SIZE];
        exchange_where(exchange, bulk->participant, where, sizeof(where));
        (void)err_set(&err, ERR_TIMEOUT, "%s: stream %u: nothing was heard for %.1f s", where,
                      bulk->stream, (double)silent_ms / 1000.0);
        exchange_fail(exchange, bulk->participant, &err);
        return;
    }
    if (now_ms - bulk->link.sent_ms >= silence_ms / 4 && !bulk->alive.queued) {
        bulk->alive = (struct link_send){.kind = PEER_ALIVE,
                                         .generation = exchange->settings.generation,
                                         .bytes = bulk->bye_body};
        link_send(&bulk->link, &bulk->alive, 0);
    }
}

static void progress_tick(struct exchange *exchange, uint64_t now_ms)
{
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        uint64_t since_ms = exchange->participants[p].data_ms > exchange->begun_ms
                                ? exchange->participants[p].data_ms
                                : exchange->begun_ms;
        if (p != exchange->rank && now_ms - since_ms >= exchange->settings.progress_ms &&
            steps_owes(exchange, p, NULL, 0)) {
            struct err err = {0};
            char where[ERR_TEXT_SIZE];
            exchange_where(exchange, p, where, sizeof(where));
            (void)err_set(&err, ERR_TIMEOUT,
                          "%s: its connections live, but no data came for %.1f s", where,
                          (double)(now_ms - since_ms) / 1000.0);
            exchange_fail(exchange, p, &err);
            return;
        }
    }
}

void links_tick(struct exchange *exchange, uint64_t now_ms, bool slept)
{
    uint64_t out = exchange->wire_out_gone;
    uint64_t in = exchange->wire_in_gone;
    size_t slots = (size_t)exchange->participants_count * exchange->settings.streams;
    if (exchange->state == EXCHANGE_OPENING) {
        links_connect_tick(exchange, now_ms);
    }
    for (size_t i = 0; i < slots; i++) {
        struct bulk *bulk = exchange->slots[i].bulk;
        if (bulk == NULL) {
            continue;
        }
        out += bulk->link.bytes_out;
        in += bulk->link.bytes_in;
        if (slept) {
            bulk->link.heard_ms = now_ms;
        }
        if (bulk->state == BULK_UP &&
            (exchange->state == EXCHANGE_OPENING || exchange->state == EXCHANGE_READY)) {
            silence_tick(exchange, bulk, now_ms);
        }
    }
    atomic_store(&exchange->counters.wire_out, out);
    atomic_store(&exchange->counters.wire_in, in);
    if (exchange->state == EXCHANGE_READY && now_ms - exchange->looked_ms >= LOOK_EVERY_MS) {
        exchange->looked_ms = now_ms;
        progress_tick(exchange, now_ms);
    }
}
