#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/address.h"
#include "peer/mesh_room.h"

#define TICK_MS          100
#define PING_EVERY_MS    1000
#define SILENCE_MS       3000
#define QUEUE_SIZE_MAX   (8U << 20)
#define SLEPT_MS         1000 /* a tick so late: this process was stopped, not the others silent */
#define MESSAGE_OVERHEAD 128  /* what a queued message costs beside its bytes */

struct mesh_message {
    struct link_send send;
    uint8_t bytes[];
};

static void on_message_sent(struct link *link, struct link_send *send, bool sent)
{
    (void)link;
    (void)sent;
    free(OWNER_OF(send, struct mesh_message, send));
}

int mesh_send(struct mesh *mesh, uint32_t node_id, uint16_t kind, const void *bytes, size_t size,
              struct err *err)
{
    ASSERT(kind >= MESH_KIND_FIRST);
    ASSERT(size <= FRAME_LIMIT_CONTROL - 64);
    struct peer_state *peer = mesh_find(mesh, node_id);
    ASSERT(peer != NULL);
    struct connection *connection = peer->connection;
    if (connection == NULL || connection->state != CONNECTION_UP) {
        return err_set(err, ERR_REACH, "node '%s' is not connected: %s", peer->name,
                       peer->last_error);
    }
    size_t queued = connection->link.queued_size + size + MESSAGE_OVERHEAD;
    if (queued > mesh->settings.queue_size_max) {
        peer->queue_refused++;
        return err_set(err, ERR_BUSY, "%zu bytes wait for node '%s' already",
                       connection->link.queued_size, peer->name);
    }
    struct mesh_message *message = malloc(sizeof(*message) + size);
    if (message == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a message of %zu bytes", size);
    }
    message->send = (struct link_send){.kind = kind,
                                       .bytes = message->bytes,
                                       .size = size,
                                       .sequence = connection->sequence_out++,
                                       .on_sent = on_message_sent};
    if (size > 0) {
        memcpy(message->bytes, bytes, size);
    }
    link_send(&connection->link, &message->send, 0);
    return 0;
}

/* ---------------------------------------------------------------- time */

static void check_deadline(struct connection *connection, uint64_t now_ms)
{
    struct err err = {0};
    struct mesh *mesh = connection->mesh;
    switch (connection->state) {
    case CONNECTION_STRANGER:
        if (now_ms >= connection->deadline_ms) {
            mesh_cut(connection);
        }
        break;
    case CONNECTION_DIALLED:
        if (now_ms >= connection->deadline_ms) {
            (void)err_set(&err, ERR_TIMEOUT, "no answer from %s within %d s", connection->address,
                          HANDSHAKE_DEADLINE_MS / 1000);
            mesh_fail(connection, &err, false);
        }
        break;
    case CONNECTION_UP:
        if (now_ms - connection->link.heard_ms >= mesh->settings.silence_ms) {
            (void)err_set(&err, ERR_TIMEOUT, "nothing was heard for %.1f s",
                          (double)(now_ms - connection->link.heard_ms) / 1000.0);
            mesh_fail(connection, &err, false);
        }
        break;
    case CONNECTION_LEAVING:
        break;
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct mesh *mesh = OWNER_OF(timer, struct mesh, tick);
    uint64_t now_ms = uv_now(mesh->loop);
    bool slept = now_ms - mesh->ticked_ms >= SLEPT_MS;
    bool ping = now_ms - mesh->pinged_ms >= PING_EVERY_MS;
    mesh->ticked_ms = now_ms;
    if (mesh->listener_rests) {
        mesh->listener_rests = false;
        ASSERT(uv_poll_start(&mesh->listener, UV_READABLE, mesh_on_accept) == 0);
    }
    if (ping) {
        mesh->pinged_ms = now_ms;
    }
    /* Connections leave the list only when their handle is closed, on a later turn. */
    for (struct connection *at = mesh->connections; at != NULL && !mesh->closing; at = at->next) {
        if (slept && at->state == CONNECTION_UP) {
            at->link.heard_ms = now_ms;
        }
        check_deadline(at, now_ms);
        if (ping && !mesh->closing && at->state == CONNECTION_UP) {
            uint64_t stamp_ns = clock_now_ns();
            mesh_send_stamp(at, &at->ping, at->ping_body, PEER_PING, &stamp_ns);
        }
    }
}

/* ---------------------------------------------------------------- life */

void mesh_handle_closed(struct mesh *mesh)
{
    ASSERT(mesh->handles > 0);
    if (--mesh->handles > 0) {
        return;
    }
    ASSERT(mesh->closing);
    ASSERT(mesh->connections == NULL);
    void (*on_closed)(void *) = mesh->on_closed;
    void *context = mesh->closed_context;
    free((char *)(uintptr_t)mesh->settings.cluster);
    free(mesh->peers);
    free(mesh);
    if (on_closed != NULL) {
        on_closed(context);
    }
}

/* "what 'name'": the sentence for a name that cannot be one. */
static int check_name(const char *what, const char *name, struct err *err)
{
    if (name == NULL || name[0] == '\0' || strlen(name) >= PEER_NAME_SIZE) {
        return err_set(err, ERR_CONFIG, "the %s '%s' must have 1 to %d characters", what,
                       name != NULL ? name : "", PEER_NAME_SIZE - 1);
    }
    return 0;
}

int mesh_take_peer(struct mesh *mesh, struct peer_state *peer, const struct mesh_peer *from,
                   struct err *err)
{
    if (check_name("peer's name", from->name, err) != 0) {
        return err->code;
    }
    if (from->node_id < 1 || from->node_id >= PEER_NODES_MAX) {
        return err_set(err, ERR_CONFIG, "peer '%s' has id %u; ids are 1 to %d", from->name,
                       from->node_id, PEER_NODES_MAX - 1);
    }
    for (size_t i = 0; i < mesh->peers_count; i++) {
        if (!mesh->peers[i].removed && (mesh->peers[i].node_id == from->node_id ||
                                        strcmp(mesh->peers[i].name, from->name) == 0)) {
            return err_set(err, ERR_CONFIG, "peers '%s' and '%s' have the same id or name",
                           mesh->peers[i].name, from->name);
        }
    }
    if (strcmp(from->name, mesh->self.node) == 0) {
        return err_set(err, ERR_CONFIG, "the name '%s' is listed with ids %u and %u", from->name,
                       from->node_id, mesh->self.node_id);
    }
    if (peer_address_parse(from->address, &peer->address, err) != 0) {
        return err_prefix(err, "peer '%s': ", from->name);
    }
    peer->mesh = mesh;
    peer->node_id = from->node_id;
    peer->life = from->life;
    peer->removed = false;
    peer->retry_ms = MESH_RETRY_FIRST_MS;
    (void)snprintf(peer->name, sizeof(peer->name), "%s", from->name);
    address_print(&peer->address, peer->address_text);
    (void)snprintf(peer->last_error, sizeof(peer->last_error), "%s",
                   mesh_ours_to_dial(peer) ? "not dialled yet" : "it did not dial yet");
    return 0;
}

/* Copies the settings; fills mesh->self and mesh->peers. */
static int configure(struct mesh *mesh, const struct mesh_settings *settings, struct err *err)
{
    if (check_name("cluster's name", settings->cluster, err) != 0 ||
        check_name("node's name", settings->name, err) != 0) {
        return err->code;
    }
    if (settings->node_id < 1 || settings->node_id >= PEER_NODES_MAX) {
        return err_set(err, ERR_CONFIG, "node '%s' has id %u; ids are 1 to %d", settings->name,
                       settings->node_id, PEER_NODES_MAX - 1);
    }
    mesh->settings = *settings;
    mesh->settings.cluster = strdup(settings->cluster);
    mesh->settings.name = mesh->self.node;
    mesh->settings.listen = NULL;
    mesh->settings.peers = NULL;
    mesh->peers = calloc(PEER_NODES_MAX, sizeof(*mesh->peers)); /* They stay where they are. */
    if (mesh->peers == NULL || mesh->settings.cluster == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu peers", settings->peers_count);
    }
    if (mesh->settings.silence_ms == 0) {
        mesh->settings.silence_ms = SILENCE_MS;
    }
    if (mesh->settings.queue_size_max == 0) {
        mesh->settings.queue_size_max = QUEUE_SIZE_MAX;
    }
    mesh->self.protocol = FRAME_PROTOCOL_VERSION;
    mesh->self.class = PEER_CONTROL;
    mesh->self.node_id = settings->node_id;
    mesh->self.incarnation = settings->incarnation;
    mesh->self.life = settings->life;
    (void)snprintf(mesh->self.cluster, PEER_NAME_SIZE, "%s", settings->cluster);
    (void)snprintf(mesh->self.node, PEER_NAME_SIZE, "%s", settings->name);
    for (size_t i = 0; i < settings->peers_count; i++) {
        if (settings->peers[i].node_id == settings->node_id) {
            continue;
        }
        if (mesh_take_peer(mesh, &mesh->peers[mesh->peers_count], &settings->peers[i], err) != 0) {
            return err->code;
        }
        mesh->peers_count++;
    }
    return 0;
}

int mesh_open(const struct mesh_settings *settings, uv_loop_t *loop, struct mesh **ret_mesh,
              struct err *err)
{
    struct sockaddr_in listen_at;
    socklen_t size = sizeof(listen_at);
    int status = 0;
    struct mesh *mesh = calloc(1, sizeof(*mesh));
    if (mesh == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the mesh");
    }
    mesh->listener_fd = -1;
    mesh->loop = loop;
    if (peer_address_parse(settings->listen, &listen_at, err) != 0) {
        (void)err_prefix(err, "listen: ");
        goto fail;
    }
    if (configure(mesh, settings, err) != 0 ||
        address_listen(&listen_at, &mesh->listener_fd, err) != 0) {
        goto fail;
    }
    ASSERT(getsockname(mesh->listener_fd, (struct sockaddr *)&listen_at, &size) == 0);
    mesh->port = ntohs(listen_at.sin_port);
    status = uv_poll_init(loop, &mesh->listener, mesh->listener_fd);
    if (status != 0) {
        (void)err_set(err, ERR_INTERNAL, "cannot watch the listening socket: %s",
                      uv_strerror(status));
        goto fail;
    }
    uv_update_time(loop);
    mesh->ticked_ms = uv_now(loop);
    gate_init(&mesh->gate, uv_now(loop));
    ASSERT(uv_poll_start(&mesh->listener, UV_READABLE, mesh_on_accept) == 0);
    ASSERT(uv_timer_init(loop, &mesh->tick) == 0);
    ASSERT(uv_timer_start(&mesh->tick, on_tick, TICK_MS, TICK_MS) == 0);
    mesh->handles = 2 + mesh->peers_count;
    for (size_t i = 0; i < mesh->peers_count; i++) {
        ASSERT(uv_timer_init(loop, &mesh->peers[i].retry) == 0);
        if (mesh_ours_to_dial(&mesh->peers[i])) {
            ASSERT(uv_timer_start(&mesh->peers[i].retry, mesh_on_retry, 0, 0) == 0);
        }
    }
    *ret_mesh = mesh;
    return 0;
fail:
    if (mesh->listener_fd >= 0) {
        (void)close(mesh->listener_fd);
    }
    free((char *)(uintptr_t)mesh->settings.cluster);
    free(mesh->peers);
    free(mesh);
    return err->code;
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct mesh *mesh = OWNER_OF(handle, struct mesh, listener);
    (void)close(mesh->listener_fd);
    mesh_handle_closed(mesh);
}

static void on_tick_closed(uv_handle_t *handle)
{
    mesh_handle_closed(OWNER_OF(handle, struct mesh, tick));
}

static void on_retry_closed(uv_handle_t *handle)
{
    mesh_handle_closed(OWNER_OF(handle, struct peer_state, retry)->mesh);
}

void mesh_close(struct mesh *mesh, void (*on_closed)(void *context), void *context)
{
    ASSERT(!mesh->closing);
    mesh->closing = true;
    mesh->on_closed = on_closed;
    mesh->closed_context = context;
    for (struct connection *at = mesh->connections; at != NULL; at = at->next) {
        at->state = CONNECTION_LEAVING;
        link_close(&at->link);
    }
    uv_close((uv_handle_t *)&mesh->listener, on_listener_closed);
    uv_close((uv_handle_t *)&mesh->tick, on_tick_closed);
    for (size_t i = 0; i < mesh->peers_count; i++) {
        mesh->peers[i].connection = NULL;
        uv_close((uv_handle_t *)&mesh->peers[i].retry, on_retry_closed);
    }
}

bool mesh_is_up(const struct mesh *mesh, uint32_t node_id)
{
    const struct peer_state *peer = mesh_find(mesh, node_id);
    return peer != NULL && peer->connection != NULL && peer->connection->state == CONNECTION_UP;
}

uint16_t mesh_port(const struct mesh *mesh)
{
    return mesh->port;
}

void mesh_stats(const struct mesh *mesh, struct mesh_stats *ret_stats)
{
    *ret_stats = mesh->stats;
    ret_stats->peers_count = mesh->peers_count;
    for (const struct connection *at = mesh->connections; at != NULL; at = at->next) {
        ret_stats->bytes_in += at->link.bytes_in;
        ret_stats->bytes_out += at->link.bytes_out;
    }
}

void mesh_peer_stats(const struct mesh *mesh, size_t index, struct mesh_peer_stats *ret_stats)
{
    ASSERT(index < mesh->peers_count);
    const struct peer_state *peer = &mesh->peers[index];
    const struct connection *connection = peer->connection;
    uint64_t heard_ms = peer->heard_ms;
    *ret_stats = (struct mesh_peer_stats){
        .node_id = peer->node_id,
        .name = peer->name,
        .address = peer->address_text,
        .up = connection != NULL && connection->state == CONNECTION_UP,
        .incarnation = peer->incarnation,
        .round_trip_us = peer->round_trip_us,
        .bytes_in = peer->bytes_in,
        .bytes_out = peer->bytes_out,
        .frames_in = peer->frames_in,
        .frames_out = peer->frames_out,
        .connects = peer->connects,
        .queue_refused = peer->queue_refused,
        .last_error = peer->last_error,
    };
    if (connection != NULL) {
        heard_ms = ret_stats->up ? connection->link.heard_ms : heard_ms;
        ret_stats->bytes_in += connection->link.bytes_in;
        ret_stats->bytes_out += connection->link.bytes_out;
        ret_stats->frames_in += connection->link.frames_in;
        ret_stats->frames_out += connection->link.frames_out;
    }
    ret_stats->heard_ms_ago = heard_ms == 0 ? UINT64_MAX : uv_now(mesh->loop) - heard_ms;
}
