/* One connection of the mesh: how it comes up, what it carries, how it goes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "peer/mesh_room.h"

static void dial(struct peer_state *peer);

/* ---------------------------------------------------------------- connections */

struct connection *mesh_connection_new(struct mesh *mesh)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        return NULL;
    }
    connection->mesh = mesh;
    connection->next = mesh->connections;
    connection->link_to_this = &mesh->connections;
    if (connection->next != NULL) {
        connection->next->link_to_this = &connection->next;
    }
    mesh->connections = connection;
    return connection;
}

void mesh_connection_free(struct connection *connection)
{
    if (connection == NULL) {
        return;
    }
    *connection->link_to_this = connection->next;
    if (connection->next != NULL) {
        connection->next->link_to_this = connection->link_to_this;
    }
    buf_done(&connection->greeting_body);
    free(connection);
}

static void on_link_closed(struct link *link)
{
    struct connection *connection = OWNER_OF(link, struct connection, link);
    struct mesh *mesh = connection->mesh;
    mesh->stats.bytes_in += link->bytes_in;
    mesh->stats.bytes_out += link->bytes_out;
    mesh_connection_free(connection);
    mesh_handle_closed(mesh);
}

void mesh_greet(struct connection *connection, uint16_t kind)
{
    connection->greeting = (struct link_send){.kind = kind,
                                              .bytes = connection->greeting_body.bytes,
                                              .size = connection->greeting_body.size,
                                              .sequence = connection->sequence_out++};
    link_send(&connection->link, &connection->greeting, 0);
}

struct peer_state *mesh_find(const struct mesh *mesh, uint32_t node_id)
{
    for (size_t i = 0; i < mesh->peers_count; i++) {
        if (mesh->peers[i].node_id == node_id && !mesh->peers[i].removed) {
            return &mesh->peers[i];
        }
    }
    return NULL;
}

void mesh_on_retry(uv_timer_t *timer)
{
    dial(OWNER_OF(timer, struct peer_state, retry));
}

bool mesh_ours_to_dial(const struct peer_state *peer)
{
    return peer->mesh->self.node_id < peer->node_id;
}

static void dial_later(struct peer_state *peer, bool slowly)
{
    if (!mesh_ours_to_dial(peer) || peer->mesh->closing || peer->removed) {
        return;
    }
    if (slowly) {
        peer->retry_ms = MESH_RETRY_LAST_MS;
    }
    ASSERT(uv_timer_start(&peer->retry, mesh_on_retry, peer->retry_ms, 0) == 0);
    peer->retry_ms =
        peer->retry_ms * 2 < MESH_RETRY_LAST_MS ? peer->retry_ms * 2 : MESH_RETRY_LAST_MS;
}

void mesh_fail(struct connection *connection, const struct err *err, bool slowly)
{
    struct peer_state *peer = connection->peer;
    struct mesh *mesh = connection->mesh;
    bool was_up = connection->state == CONNECTION_UP;
    ASSERT(peer != NULL);
    ASSERT(peer->connection == connection);
    connection->state = CONNECTION_LEAVING;
    peer->connection = NULL;
    peer->bytes_in += connection->link.bytes_in;
    peer->bytes_out += connection->link.bytes_out;
    peer->frames_in += connection->link.frames_in;
    peer->frames_out += connection->link.frames_out;
    (void)snprintf(peer->last_error, sizeof(peer->last_error), "%s", err->text);
    link_close(&connection->link);
    dial_later(peer, slowly);
    if (was_up) {
        mesh->stats.peers_up--;
        mesh->settings.on_down(mesh->settings.context, peer->node_id, peer->last_error);
    }
}

void mesh_come_up(struct connection *connection, struct peer_state *peer, uint64_t incarnation)
{
    struct mesh *mesh = connection->mesh;
    connection->state = CONNECTION_UP;
    connection->peer = peer;
    connection->link.limit = FRAME_LIMIT_CONTROL;
    connection->link.piece_size = FRAME_LIMIT_CONTROL;
    connection->link.one_frame = false;
    peer->connection = connection;
    peer->incarnation = incarnation;
    peer->heard_ms = uv_now(mesh->loop);
    peer->retry_ms = MESH_RETRY_FIRST_MS;
    peer->connects++;
    peer->last_error[0] = '\0';
    mesh->stats.peers_up++;
    mesh->settings.on_up(mesh->settings.context, peer->node_id, incarnation);
}

/* ---------------------------------------------------------------- dialling */

static void dial(struct peer_state *peer)
{
    struct mesh *mesh = peer->mesh;
    struct err err = {0};
    struct connection *connection = mesh_connection_new(mesh);
    struct link_target target = {&peer->address, mesh->settings.trust, peer->name};
    if (connection == NULL || link_dial(&connection->link, mesh->loop, &target, &mesh_link_ops,
                                        HANDSHAKE_LIMIT, &err) != 0) {
        if (connection == NULL) {
            (void)err_set(&err, ERR_NOMEM, "no memory");
        }
        (void)err_prefix(&err, "cannot connect to %s: ", peer->address_text);
        (void)snprintf(peer->last_error, sizeof(peer->last_error), "%s", err.text);
        mesh_connection_free(connection);
        dial_later(peer, false);
        return;
    }
    mesh->handles++;
    connection->state = CONNECTION_DIALLED;
    connection->peer = peer;
    connection->deadline_ms = uv_now(mesh->loop) + HANDSHAKE_DEADLINE_MS;
    (void)snprintf(connection->address, sizeof(connection->address), "%s", peer->address_text);
    peer->connection = connection;
}

static void on_open(struct link *link)
{
    struct connection *connection = OWNER_OF(link, struct connection, link);
    struct peer_hello hello = connection->mesh->self;
    hello.class = PEER_CONTROL;
    handshake_put_hello(&connection->greeting_body, &hello);
    mesh_greet(connection, FRAME_HELLO);
}

static void log_once_a_minute(struct peer_state *peer, const char *reason)
{
    uint64_t now_ms = uv_now(peer->mesh->loop);
    if (peer->logged_ms == 0 || now_ms - peer->logged_ms >= MESH_LOG_EVERY_MS) {
        peer->logged_ms = now_ms;
        log_warning("peer.refused_us", "node=%s address=%s reason=\"%s\"", peer->name,
                    peer->address_text, reason);
    }
}

static void on_refusal(struct connection *connection, const struct handshake_refusal *refusal)
{
    struct err err = {0};
    (void)err_set(&err, refusal->code, "refused: %s", refusal->text);
    log_once_a_minute(connection->peer, refusal->text);
    mesh_fail(connection, &err, true);
}

static int on_welcome(struct connection *connection, const struct frame_header *header,
                      const uint8_t *body, struct err *err)
{
    struct peer_state *peer = connection->peer;
    struct mesh *mesh = connection->mesh;
    struct peer_hello welcome;
    if (header->kind == FRAME_REFUSAL) {
        struct handshake_refusal refusal;
        if (handshake_get_refusal(body, header->body_size, &refusal, err) != 0) {
            return err->code;
        }
        on_refusal(connection, &refusal);
        return 0;
    }
    if (header->kind != FRAME_WELCOME) {
        return err_set(err, ERR_PROTO, "a frame of kind %u came instead of WELCOME", header->kind);
    }
    if (handshake_get_welcome(body, header->body_size, &welcome, err) != 0) {
        return err->code;
    }
    if (welcome.protocol != FRAME_PROTOCOL_VERSION || welcome.node_id != peer->node_id ||
        welcome.life != peer->life || strcmp(welcome.node, peer->name) != 0 ||
        strcmp(welcome.cluster, mesh->self.cluster) != 0) {
        struct handshake_refusal wrong = {.code = ERR_AUTH};
        (void)snprintf(wrong.text, sizeof(wrong.text),
                       "at %s answers node '%s' (id %u) of cluster '%s', not '%s' (id %u) of "
                       "'%s'; correct 'peers' in the config",
                       peer->address_text, welcome.node, welcome.node_id, welcome.cluster,
                       peer->name, peer->node_id, mesh->self.cluster);
        on_refusal(connection, &wrong);
        return 0;
    }
    if (welcome.incarnation < peer->incarnation) {
        struct handshake_refusal old = {.code = ERR_AUTH};
        (void)snprintf(old.text, sizeof(old.text),
                       "at %s answers a process of node '%s' (start %" PRIu64
                       ") that was started before the one seen last (%" PRIu64 "); end it",
                       peer->address_text, peer->name, welcome.incarnation, peer->incarnation);
        on_refusal(connection, &old);
        return 0;
    }
    mesh_come_up(connection, peer, welcome.incarnation);
    return 0;
}

/* ---------------------------------------------------------------- frames */

void mesh_send_stamp(struct connection *connection, struct link_send *send, uint8_t bytes[8],
                     uint16_t kind, const void *stamp)
{
    if (send->queued) {
        return; /* The one before still waits: the queue is long, and silence will tell. */
    }
    memcpy(bytes, stamp, 8);
    *send = (struct link_send){
        .kind = kind, .bytes = bytes, .size = 8, .sequence = connection->sequence_out++};
    link_send(&connection->link, send, 0);
}

static int on_peer_frame(struct connection *connection, const struct frame_header *header,
                         const uint8_t *body, struct err *err)
{
    struct mesh *mesh = connection->mesh;
    struct peer_state *peer = connection->peer;
    peer->heard_ms = uv_now(mesh->loop);
    if ((header->kind == PEER_PING || header->kind == PEER_PONG) && header->body_size == 8) {
        if (header->kind == PEER_PING) {
            mesh_send_stamp(connection, &connection->pong, connection->pong_body, PEER_PONG, body);
        } else {
            uint64_t stamp_ns = 0;
            uint64_t now_ns = clock_now_ns();
            memcpy(&stamp_ns, body, 8);
            if (stamp_ns <= now_ns) {
                peer->round_trip_us = (now_ns - stamp_ns) / 1000 + 1;
            }
        }
        return 0;
    }
    if (header->kind < MESH_KIND_FIRST) {
        return err_set(err, ERR_PROTO,
                       "a frame of kind %u and %u bytes came, which no control "
                       "connection carries",
                       header->kind, header->body_size);
    }
    mesh->settings.on_message(mesh->settings.context, peer->node_id, header->kind, body,
                              header->body_size);
    return 0;
}

static int on_frame(struct link *link, const struct frame_header *header, uint8_t *body,
                    struct err *err)
{
    struct connection *connection = OWNER_OF(link, struct connection, link);
    if (header->sequence != connection->sequence_in) {
        return err_set(err, ERR_PROTO, "frame %" PRIu64 " came where frame %" PRIu64 " was due",
                       header->sequence, connection->sequence_in);
    }
    connection->sequence_in++;
    switch (connection->state) {
    case CONNECTION_STRANGER:
        return mesh_on_hello(connection, header, body, err);
    case CONNECTION_DIALLED:
        return on_welcome(connection, header, body, err);
    case CONNECTION_UP:
        return on_peer_frame(connection, header, body, err);
    case CONNECTION_LEAVING:
        break;
    }
    return 0;
}

static void on_ended(struct link *link, const struct err *err)
{
    struct connection *connection = OWNER_OF(link, struct connection, link);
    struct err why = *err;
    switch (connection->state) {
    case CONNECTION_STRANGER:
        mesh_stranger_ended(connection, &why);
        break;
    case CONNECTION_DIALLED:
        (void)err_prefix(&why, "cannot connect to %s: ", connection->address);
        if (why.code == ERR_AUTH || why.code == ERR_PROTO) {
            log_once_a_minute(connection->peer, why.text);
        }
        mesh_fail(connection, &why, why.code == ERR_AUTH || why.code == ERR_PROTO);
        break;
    case CONNECTION_UP:
        mesh_fail(connection, &why, false);
        break;
    case CONNECTION_LEAVING:
        break;
    }
}

const struct link_ops mesh_link_ops = {.on_open = on_open,
                                       .on_ready = mesh_on_ready,
                                       .place = NULL,
                                       .on_frame = on_frame,
                                       .on_ended = on_ended,
                                       .on_closed = on_link_closed};
