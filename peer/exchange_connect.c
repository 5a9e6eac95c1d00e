/* How the bulk connections of an exchange come up. Of a pair the lower node id dials every stream
 * and dials again (50 ms, doubling to 500 ms) until the connect deadline; the other side adopts
 * what the mesh hands over. The worker of the stream. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "peer/exchange_room.h"
#include "peer/pump.h"

#define RETRY_LAST_MS 500

static bool ours_to_dial(const struct exchange *exchange, uint32_t participant)
{
    return participant != exchange->rank && exchange->participants[exchange->rank].node_id <
                                                exchange->participants[participant].node_id;
}

static struct bulk *bulk_new(struct worker *worker, uint32_t participant, uint32_t stream)
{
    struct bulk *bulk = calloc(1, sizeof(*bulk));
    if (bulk != NULL) {
        bulk->worker = worker;
        bulk->participant = participant;
        bulk->stream = stream;
        bulk->deadline_ms = uv_now(&worker->loop) + HANDSHAKE_DEADLINE_MS;
    }
    return bulk;
}

static void come_up(struct bulk *bulk)
{
    bulk->state = BULK_UP;
    bulk->link.limit = FRAME_LIMIT_BULK;
    bulk->link.piece_size = LINK_PIECE_SIZE;
    links_count_up(bulk->worker, bulk);
}

/* Whether it is the process of that node that was placed: another one has none of its state. */
static int check_process(const struct participant *participant, const struct peer_hello *said,
                         struct err *err)
{
    if (said->life == participant->life && said->incarnation == participant->incarnation) {
        return 0;
    }
    return err_set(err, ERR_AUTH,
                   "node '%s' comes as another process (identity %u, start %" PRIu64
                   ") than the one that takes part (identity %u, start %" PRIu64 ")",
                   participant->name, said->life, said->incarnation, participant->life,
                   participant->incarnation);
}

/* ---------------------------------------------------------------- dialling */

static void dial(struct worker *worker, uint32_t participant, uint32_t stream, uint64_t now_ms)
{
    struct exchange *exchange = worker->exchange;
    struct bulk_slot *slot = links_slot(exchange, participant, stream);
    struct err err = {0};
    struct bulk *bulk = bulk_new(worker, participant, stream);
    slot->retry_at_ms = now_ms + slot->retry_ms;
    slot->retry_ms = slot->retry_ms * 2 < RETRY_LAST_MS ? slot->retry_ms * 2 : RETRY_LAST_MS;
    const struct participant *to = &exchange->participants[participant];
    struct link_target target = {&to->address, exchange->settings.trust, to->name};
    if (bulk == NULL || link_dial(&bulk->link, &worker->loop, &target, &links_bulk_ops,
                                  HANDSHAKE_LIMIT, &err) != 0) {
        if (bulk == NULL) {
            (void)err_set(&err, ERR_NOMEM, "no memory for a connection");
        }
        links_note(exchange, participant, &err);
        free(bulk);
        return;
    }
    worker->bulks++;
    bulk->link.one_frame = exchange->pumps; /* It is handed over behind WELCOME. */
    bulk->state = BULK_DIALLING;
    slot->bulk = bulk;
}

/* A connection that both sides have greeted goes up in its slot; takes the transport. */
static int put_up(struct worker *worker, uint32_t participant, uint32_t stream,
                  struct transport *transport, struct err *err)
{
    struct exchange *exchange = worker->exchange;
    struct bulk_slot *slot = links_slot(exchange, participant, stream);
    struct bulk *bulk = bulk_new(worker, participant, stream);
    if (bulk == NULL) {
        transport_close(transport);
        return err_set(err, ERR_NOMEM, "no memory for a connection");
    }
    if ((exchange->pumps && transport_pump(transport, err) != 0) ||
        link_take(&bulk->link, &worker->loop, transport, &links_bulk_ops, FRAME_LIMIT_BULK, err) !=
            0) {
        free(bulk);
        transport_close(transport);
        return err->code;
    }
    worker->bulks++;
    slot->bulk = bulk;
    come_up(bulk);
    return 0;
}

void links_on_open(struct link *link)
{
    struct bulk *bulk = OWNER_OF(link, struct bulk, link);
    struct peer_hello hello = bulk->worker->exchange->hello;
    hello.stream = bulk->stream;
    handshake_put_hello(&bulk->greeting_body, &hello);
    bulk->state = BULK_GREETING;
    bulk->greeting = (struct link_send){.kind = FRAME_HELLO,
                                        .generation = hello.generation,
                                        .bytes = bulk->greeting_body.bytes,
                                        .size = bulk->greeting_body.size};
    link_send(link, &bulk->greeting, 0);
}

int links_on_answer(struct bulk *bulk, const struct frame_header *header, const uint8_t *body,
                    struct err *err)
{
    struct worker *worker = bulk->worker;
    struct exchange *exchange = worker->exchange;
    const struct participant *to = &exchange->participants[bulk->participant];
    struct err why = {0};
    if (header->kind == FRAME_WELCOME) {
        struct peer_hello welcome;
        if (handshake_get_welcome(body, header->body_size, &welcome, err) != 0) {
            return err->code;
        }
        if (welcome.node_id != to->node_id || strcmp(welcome.node, to->name) != 0 ||
            strcmp(welcome.cluster, exchange->hello.cluster) != 0) {
            return err_set(err, ERR_AUTH, "node '%s' (id %u) of cluster '%s' answers there",
                           welcome.node, welcome.node_id, welcome.cluster);
        }
        if (check_process(to, &welcome, err) != 0) {
            return err->code;
        }
        if (!exchange->pumps) {
            come_up(bulk);
            return 0;
        }
        uint32_t participant = bulk->participant;
        uint32_t stream = bulk->stream;
        struct transport transport = link_detach(&bulk->link);
        links_close(bulk); /* Its slot is free; the object goes when its handle is closed. */
        if (put_up(worker, participant, stream, &transport, &why) != 0) {
            links_note(exchange, participant, &why); /* It is dialled again. */
        }
        return 0;
    }
    if (header->kind != FRAME_REFUSAL) {
        return err_set(err, ERR_PROTO, "a frame of kind %u came instead of WELCOME", header->kind);
    }
    struct handshake_refusal refusal;
    if (handshake_get_refusal(body, header->body_size, &refusal, err) != 0) {
        return err->code;
    }
    (void)err_set(&why, refusal.code, "refused: %s", refusal.text);
    links_note(exchange, bulk->participant, &why);
    uint32_t participant = bulk->participant;
    links_close(bulk);
    if (!refusal.retry) {
        char where[ERR_TEXT_SIZE];
        exchange_where(worker, participant, where, sizeof(where));
        (void)err_prefix(&why, "%s: ", where);
        exchange_fail(worker, participant, &why);
    }
    return 0;
}

/* ---------------------------------------------------------------- adopting */

/* 0, or why the connection does not belong to this exchange; ERR_BUSY: not yet. */
static int check_incoming(struct exchange *exchange, const struct peer_hello *hello,
                          uint32_t *ret_participant, struct err *err)
{
    const struct peer_hello *own = &exchange->hello;
    if (hello->job != own->job || hello->generation < own->generation) {
        return err_set(err, ERR_STATE,
                       "node '%s' comes with generation %" PRIu64 " of job %" PRIu64
                       ", node '%s' is at generation %" PRIu64 " of job %" PRIu64,
                       hello->node, hello->generation, hello->job, own->node, own->generation,
                       own->job);
    }
    if (hello->generation > own->generation) {
        return err_set(err, ERR_BUSY, "node '%s' is still at generation %" PRIu64, own->node,
                       own->generation);
    }
    if (memcmp(hello->identity, own->identity, sizeof(own->identity)) != 0) {
        return err_set(err, ERR_STATE,
                       "node '%s' has another identity for job %" PRIu64 " (%02x%02x%02x%02x…) "
                       "than node '%s' (%02x%02x%02x%02x…); the data on one of them differs",
                       hello->node, own->job, hello->identity[0], hello->identity[1],
                       hello->identity[2], hello->identity[3], own->node, own->identity[0],
                       own->identity[1], own->identity[2], own->identity[3]);
    }
    if (strcmp(hello->policy, own->policy) != 0) {
        return err_set(err, ERR_STATE,
                       "node '%s' computes by policy '%s', node '%s' by '%s'; run the same version "
                       "on both",
                       hello->node, hello->policy, own->node, own->policy);
    }
    if (hello->streams != own->streams || hello->stream >= own->streams) {
        return err_set(err, ERR_STATE,
                       "node '%s' uses %u streams, node '%s' %u; set 'streams' alike", hello->node,
                       hello->streams, own->node, own->streams);
    }
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        if (exchange->participants[p].node_id == hello->node_id &&
            strcmp(exchange->participants[p].name, hello->node) == 0 && p != exchange->rank &&
            !ours_to_dial(exchange, p)) {
            *ret_participant = p;
            return check_process(&exchange->participants[p], hello, err);
        }
    }
    return err_set(err, ERR_AUTH,
                   "node '%s' does not take part in generation %" PRIu64 " of job %" PRIu64
                   ", or is not the one that dials",
                   hello->node, own->generation, own->job);
}

void links_adopt(struct worker *worker, struct peer_incoming *incoming)
{
    struct exchange *exchange = worker->exchange;
    struct err err = {0};
    uint32_t participant = 0;
    int code = check_incoming(exchange, &incoming->hello, &participant, &err);
    if (code == 0 && worker->state != EXCHANGE_OPENING) {
        code =
            err_set(&err, ERR_STATE, "generation %" PRIu64 " at node '%s' takes no more links%s%s",
                    exchange->hello.generation, exchange->hello.node,
                    worker->state == EXCHANGE_FAILED ? ": " : "",
                    worker->state == EXCHANGE_FAILED ? exchange->failure.text : "");
    }
    if (code != 0) {
        if (code != ERR_BUSY) {
            exchange_count(&worker->counters.refused, 1);
            for (uint32_t p = 0; p < exchange->participants_count; p++) {
                if (exchange->participants[p].node_id == incoming->hello.node_id) {
                    links_note(exchange, p, &err);
                }
            }
        }
        peer_refuse(incoming, code, err.text);
        return;
    }
    struct bulk_slot *slot = links_slot(exchange, participant, incoming->hello.stream);
    if (slot->bulk != NULL) {
        links_close(slot->bulk); /* The dialer gave it up, or it would not dial again. */
    }
    if (peer_welcome(incoming, &err) != 0) {
        transport_close(&incoming->transport);
        return; /* The dialer comes again. */
    }
    (void)put_up(worker, participant, incoming->hello.stream, &incoming->transport, &err);
}

void links_connect_tick(struct worker *worker, uint64_t now_ms)
{
    struct exchange *exchange = worker->exchange;
    unsigned expect_ms = atomic_load(&exchange->expect_ms);
    if (expect_ms != 0 && !worker->expecting) {
        worker->expecting = true;
        if (now_ms + expect_ms < worker->connect_deadline_ms) {
            worker->connect_deadline_ms = now_ms + expect_ms;
            worker->connect_timeout_ms = expect_ms;
        }
    }
    for (uint32_t p = 0; p < exchange->participants_count; p++) {
        if (p == exchange->rank) {
            continue;
        }
        for (EACH_STREAM(s, worker)) {
            struct bulk_slot *slot = links_slot(exchange, p, s);
            struct bulk *bulk = slot->bulk;
            if (bulk != NULL && bulk->state != BULK_UP && now_ms >= bulk->deadline_ms) {
                struct err err = {0};
                (void)err_set(&err, ERR_TIMEOUT, "no answer within %d s",
                              HANDSHAKE_DEADLINE_MS / 1000);
                links_note(exchange, p, &err);
                links_close(bulk);
                bulk = NULL;
            }
            if (now_ms >= worker->connect_deadline_ms && (bulk == NULL || bulk->state != BULK_UP)) {
                struct err err = {0};
                char where[ERR_TEXT_SIZE];
                struct err last = {0};
                exchange_where(worker, p, where, sizeof(where));
                links_noted(exchange, p, &last);
                (void)err_set(&err, ERR_TIMEOUT, "%s within %.1f s: %s", where,
                              (double)worker->connect_timeout_ms / 1000.0,
                              last.code != 0 ? last.text : "it did not dial");
                exchange_fail(worker, p, &err);
                return;
            }
            if (bulk == NULL && ours_to_dial(exchange, p) && now_ms >= slot->retry_at_ms) {
                dial(worker, p, s, now_ms);
            }
        }
    }
}
