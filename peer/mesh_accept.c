/* Whoever connects: a HELLO within 5 s, checked, then welcomed, handed over or refused. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "peer/address.h"
#include "peer/mesh_room.h"

#define ACCEPTS_A_TURN 32

/* Makes room: of the newest's source where that has too many, else of all where these are. */
static void cut_oldest(struct mesh *mesh, const struct connection *newest)
{
    struct connection *oldest = NULL;
    struct connection *of_source = NULL;
    struct connection *unknown = NULL;
    size_t count = 0;
    /* The list has the newest first, so the last one found is the oldest. */
    for (struct connection *at = mesh->connections; at != NULL; at = at->next) {
        if (at->state != CONNECTION_STRANGER) {
            continue;
        }
        oldest = at;
        unknown = at->known ? unknown : at;
        if (at->source == newest->source) {
            of_source = at;
            count++;
        }
    }
    struct connection *goes = NULL;
    if (count > (newest->known ? MESH_OF_A_MEMBER_MAX : MESH_OF_A_SOURCE_MAX)) {
        goes = of_source;
    } else if (mesh->strangers > MESH_STRANGERS_MAX) {
        goes = unknown != NULL ? unknown : oldest;
    }
    if (goes != NULL) {
        mesh_cut(goes);
    }
}

/* Whether it comes from a member's address, or from the very address that it dialled. */
static bool is_known(const struct mesh *mesh, int fd, const struct sockaddr_in *from)
{
    struct sockaddr_in here = {0};
    socklen_t size = sizeof(here);
    if (getsockname(fd, (struct sockaddr *)&here, &size) == 0 &&
        here.sin_addr.s_addr == from->sin_addr.s_addr) {
        return true;
    }
    for (size_t i = 0; i < mesh->peers_count; i++) {
        if (!mesh->peers[i].removed &&
            mesh->peers[i].address.sin_addr.s_addr == from->sin_addr.s_addr) {
            return true;
        }
    }
    return false;
}

static void receive(struct mesh *mesh, int fd, const struct sockaddr_in *from)
{
    struct err err = {0};
    struct transport transport = {.fd = -1};
    bool known = is_known(mesh, fd, from);
    if (!gate_admits(&mesh->gate, from->sin_addr.s_addr, known, uv_now(mesh->loop))) {
        (void)close(fd);
        mesh->stats.turned_away++;
        return;
    }
    struct connection *connection = mesh_connection_new(mesh);
    if (connection == NULL || transport_accept(&transport, mesh->settings.trust, fd,
                                               mesh->settings.on_join != NULL, &err) != 0) {
        mesh_connection_free(connection);
        (void)close(fd);
        mesh->stats.cut++;
        return;
    }
    if (link_take(&connection->link, mesh->loop, &transport, &mesh_link_ops, HANDSHAKE_LIMIT,
                  &err) != 0) {
        mesh_connection_free(connection);
        transport_close(&transport);
        mesh->stats.cut++;
        return;
    }
    mesh->handles++;
    mesh->strangers++;
    mesh->stats.accepted++;
    connection->state = CONNECTION_STRANGER;
    connection->deadline_ms = uv_now(mesh->loop) + HANDSHAKE_DEADLINE_MS;
    connection->link.one_frame = true;
    connection->source = from->sin_addr.s_addr;
    connection->known = known;
    address_print(from, connection->address);
    cut_oldest(mesh, connection);
}

void mesh_on_accept(uv_poll_t *poll, int status, int events)
{
    struct mesh *mesh = OWNER_OF(poll, struct mesh, listener);
    (void)status;
    (void)events;
    for (int turn = 0; turn < ACCEPTS_A_TURN; turn++) {
        struct sockaddr_in from = {0};
        socklen_t size = sizeof(from);
        int fd = accept4(mesh->listener_fd, (struct sockaddr *)&from, &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            receive(mesh, fd, &from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* Polling on would turn in circles; the next tick tries again. */
            mesh->listener_rests = true;
            (void)uv_poll_stop(&mesh->listener);
        }
        return;
    }
}

static void leave(struct connection *connection)
{
    if (connection->state == CONNECTION_STRANGER) {
        ASSERT(connection->mesh->strangers > 0);
        connection->mesh->strangers--;
    }
    connection->state = CONNECTION_LEAVING;
}

void mesh_cut(struct connection *connection)
{
    connection->mesh->stats.cut++;
    leave(connection);
    link_close(&connection->link);
}

void mesh_stranger_ended(struct connection *connection, const struct err *err)
{
    struct mesh *mesh = connection->mesh;
    uint64_t now_ms = uv_now(mesh->loop);
    bool knew = err->code == ERR_AUTH || err->code == ERR_PROTO;
    if (knew && (mesh->logged_ms == 0 || now_ms - mesh->logged_ms >= MESH_LOG_EVERY_MS)) {
        mesh->logged_ms = now_ms;
        log_warning("peer.refused", "from=%s refused_total=%llu reason=\"%s\"", connection->address,
                    (unsigned long long)mesh->stats.cut + 1, err->text);
    }
    mesh_cut(connection);
}

/* Who knocks in vain, once a minute in the log. */
static void log_refusal(struct mesh *mesh, const struct connection *connection,
                        const struct peer_hello *hello, const char *text)
{
    struct peer_state *peer = mesh_find(mesh, hello->node_id);
    uint64_t *logged_ms = peer != NULL ? &peer->logged_ms : &mesh->logged_ms;
    uint64_t now_ms = uv_now(mesh->loop);
    if (*logged_ms != 0 && now_ms - *logged_ms < MESH_LOG_EVERY_MS) {
        return;
    }
    *logged_ms = now_ms;
    log_warning("peer.refused", "from=%s node=%s refused_total=%llu reason=\"%s\"",
                connection->address, hello->node, (unsigned long long)mesh->stats.refused, text);
}

static void refuse(struct connection *connection, const struct peer_hello *hello, int code,
                   const char *text)
{
    struct mesh *mesh = connection->mesh;
    struct handshake_refusal refusal = {.code = code, .retry = code == ERR_BUSY};
    (void)snprintf(refusal.text, sizeof(refusal.text), "%s", text);
    mesh->stats.refused++;
    if (!refusal.retry) { /* Else it comes again, and is let in or refused then. */
        log_refusal(mesh, connection, hello, text);
    }
    leave(connection);
    handshake_put_refusal(&connection->greeting_body, &refusal);
    mesh_greet(connection, FRAME_REFUSAL);
    link_close(&connection->link); /* What the socket took is sent. */
}

/* A daemon's starts are numbered upwards: who comes with a lower number than was seen was started
 * before (it was frozen, or is a copy), or is a HELLO shown again. Bulk and data come from the
 * process alone whose control connection was the last to come up; a look at the line (class probe)
 * is for whoever has none. */
static int check_process(const struct peer_state *peer, const struct peer_hello *hello,
                         struct err *err)
{
    if (hello->incarnation < peer->incarnation) {
        return err_set(err, ERR_AUTH,
                       "node '%s' was started again since this process of it (start %" PRIu64
                       ", now %" PRIu64 "); end the one that was started before",
                       hello->node, hello->incarnation, peer->incarnation);
    }
    if ((hello->class == PEER_BULK || hello->class == PEER_DATA) &&
        hello->incarnation != peer->incarnation) {
        return err_set(err, ERR_BUSY, "node '%s' has no control connection of this process yet",
                       hello->node);
    }
    return 0;
}

/* 0, or why this HELLO does not belong here: a sentence for both sides. */
static int check_hello(const struct mesh *mesh, const struct peer_hello *hello, struct err *err)
{
    const struct peer_hello *self = &mesh->self;
    if (hello->protocol != FRAME_PROTOCOL_VERSION) {
        return err_set(err, ERR_PROTO,
                       "node '%s' speaks protocol %u and node '%s' protocol %u; run the same "
                       "version of coppeliusd on both",
                       hello->node, hello->protocol, self->node, (unsigned)FRAME_PROTOCOL_VERSION);
    }
    if (strcmp(hello->cluster, self->cluster) != 0 &&
        (hello->class != PEER_CTL || hello->cluster[0] != '\0')) {
        return err_set(err, ERR_AUTH,
                       "node '%s' is of cluster '%s' and node '%s' of cluster '%s'; set the same "
                       "'cluster' in both configs, or correct the address",
                       hello->node, hello->cluster, self->node, self->cluster);
    }
    if (hello->class == PEER_CTL) {
        return hello->node_id == 0 && hello->life == 0
                   ? 0
                   : err_set(err, ERR_PROTO,
                             "'%s' asks as a coppeliusctl and says that it is node "
                             "%u; it can be one of both",
                             hello->node, hello->node_id);
    }
    const struct peer_state *peer = mesh_find(mesh, hello->node_id);
    if (hello->node_id == self->node_id) {
        return err_set(err, ERR_AUTH,
                       "node '%s' has id %u as node '%s' has; list the peers in the same order in "
                       "every config",
                       hello->node, hello->node_id, self->node);
    }
    if (peer == NULL || strcmp(peer->name, hello->node) != 0) {
        return err_set(err, ERR_AUTH,
                       "node '%s' with id %u is not what the config of node '%s' says (id %u is "
                       "'%s'); list the same peers in the same order in every config",
                       hello->node, hello->node_id, self->node, hello->node_id,
                       peer != NULL ? peer->name : "nobody");
    }
    if (hello->life != peer->life) {
        return err_set(
            err, ERR_AUTH,
            "node '%s' with id %u has another identity here (%u, not %u): one of them was "
            "removed from the cluster",
            hello->node, hello->node_id, peer->life, hello->life);
    }
    if (check_process(peer, hello, err) != 0) {
        return err->code;
    }
    if (hello->class == PEER_CONTROL && hello->node_id > self->node_id) {
        return err_set(err, ERR_PROTO,
                       "node '%s' (id %u) dialled node '%s' (id %u), but of a pair the lower id "
                       "dials",
                       hello->node, hello->node_id, self->node, self->node_id);
    }
    return 0;
}

static void take_out(struct connection *connection, const struct peer_hello *hello,
                     struct peer_incoming *ret_incoming)
{
    struct mesh *mesh = connection->mesh;
    *ret_incoming = (struct peer_incoming){.hello = *hello, .self = mesh->self};
    (void)snprintf(ret_incoming->address, sizeof(ret_incoming->address), "%s", connection->address);
    leave(connection);
    ret_incoming->transport = link_detach(&connection->link);
}

void mesh_on_ready(struct link *link)
{
    struct connection *connection = OWNER_OF(link, struct connection, link);
    struct mesh *mesh = connection->mesh;
    const struct trust_identity *who = transport_peer(&link->transport);
    struct peer_hello none = {.class = PEER_CTL};
    struct peer_incoming incoming;
    if (who == NULL || who->kind != TRUST_NOBODY) {
        return; /* Its HELLO is read next. */
    }
    ASSERT(connection->state == CONNECTION_STRANGER);
    take_out(connection, &none, &incoming);
    mesh->stats.handed_join++;
    mesh->settings.on_join(mesh->settings.context, &incoming);
}

/* Where there is TLS, the HELLO may say nothing else than the certificate does. */
static int check_certificate(const struct connection *connection, const struct peer_hello *hello,
                             struct err *err)
{
    const struct trust_identity *who = transport_peer(&connection->link.transport);
    if (who == NULL || hello->class == PEER_CTL) {
        return 0; /* Plain; or a person, or a node's coppeliusctl: whoever takes it looks at who. */
    }
    if (who->kind == TRUST_NODE && !who->member) {
        return err_set(err, ERR_AUTH,
                       "node '%s' is no member of cluster '%s': it was removed, or has not joined; "
                       "a node joins by `join` in its config, and a token or `coppeliusctl cluster "
                       "add` where nobody expects it",
                       who->name, who->cluster);
    }
    if (who->kind != TRUST_NODE || strcmp(who->name, hello->node) != 0 ||
        strcmp(who->cluster, hello->cluster) != 0) {
        return err_set(err, ERR_AUTH,
                       "the certificate is of the %s '%s' of cluster '%s', and its HELLO says node "
                       "'%s' of '%s'; give the node its own certificate",
                       trust_kind_name(who->kind), who->name, who->cluster, hello->node,
                       hello->cluster);
    }
    return 0;
}

static void hand_over(struct connection *connection, const struct peer_hello *hello)
{
    struct mesh *mesh = connection->mesh;
    struct peer_incoming incoming;
    take_out(connection, hello, &incoming);
    if (hello->class == PEER_BULK) {
        mesh->stats.handed_bulk++;
        mesh->settings.on_bulk(mesh->settings.context, &incoming);
    } else if (hello->class == PEER_DATA) {
        mesh->stats.handed_data++;
        mesh->settings.on_data(mesh->settings.context, &incoming);
    } else if (hello->class == PEER_PROBE) {
        mesh->stats.handed_probe++;
        mesh->settings.on_probe(mesh->settings.context, &incoming);
    } else {
        mesh->stats.handed_ctl++;
        mesh->settings.on_ctl(mesh->settings.context, &incoming);
    }
}

int mesh_on_hello(struct connection *connection, const struct frame_header *header,
                  const uint8_t *body, struct err *err)
{
    struct mesh *mesh = connection->mesh;
    struct peer_hello hello;
    if (header->kind != FRAME_HELLO || header->flags != 0) {
        return err_set(err, ERR_PROTO, "a frame of kind %u came before HELLO", header->kind);
    }
    if (handshake_get_hello(body, header->body_size, &hello, err) != 0) {
        return err->code;
    }
    struct err why = {0};
    if (check_certificate(connection, &hello, &why) != 0 || check_hello(mesh, &hello, &why) != 0) {
        refuse(connection, &hello, why.code, why.text);
        return 0;
    }
    if ((hello.class == PEER_BULK && mesh->settings.on_bulk == NULL) ||
        (hello.class == PEER_CTL && mesh->settings.on_ctl == NULL) ||
        (hello.class == PEER_DATA && mesh->settings.on_data == NULL) ||
        (hello.class == PEER_PROBE && mesh->settings.on_probe == NULL)) {
        refuse(connection, &hello, ERR_BUSY, "this node does not take such connections now");
        return 0;
    }
    if (hello.class != PEER_CONTROL) {
        hand_over(connection, &hello);
        return 0;
    }
    struct peer_state *peer = mesh_find(mesh, hello.node_id);
    if (peer->connection != NULL) {
        struct err replaced = {0};
        (void)err_set(&replaced, ERR_PEER, "%s",
                      peer->incarnation == hello.incarnation
                          ? "it dialled again"
                          : "it was started again and dialled anew");
        mesh_fail(peer->connection, &replaced, false);
        if (mesh->closing) {
            return 0;
        }
    }
    handshake_put_welcome(&connection->greeting_body, &mesh->self);
    mesh_greet(connection, FRAME_WELCOME);
    leave(connection);
    mesh_come_up(connection, peer, hello.incarnation);
    return 0;
}
