/* What mesh.c (life, sending, liveness), mesh_connection.c (one connection: how it comes up and
 * goes, what it carries) and mesh_accept.c (whoever comes in) share. Thread: the mesh's loop.
 * Private to the room. */
#ifndef COPPELIUS_PEER_MESH_ROOM_H
#define COPPELIUS_PEER_MESH_ROOM_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "peer/gate.h"
#include "peer/handshake.h"
#include "peer/link.h"
#include "peer/peer.h"

/* Connections without a HELLO yet, of all, of an address that is no member's, of one that is. One
 * more of a source cuts the oldest of that source; one more of all the oldest that is no member's,
 * else the oldest. */
#define MESH_STRANGERS_MAX   256
#define MESH_OF_A_SOURCE_MAX 64
#define MESH_OF_A_MEMBER_MAX 192
#define MESH_LOG_EVERY_MS    60000
#define MESH_REASON_SIZE     ERR_TEXT_SIZE
#define MESH_RETRY_FIRST_MS  50
#define MESH_RETRY_LAST_MS   1000

/*  STRANGER -> UP        a good HELLO of class control       [mesh_on_hello]
 *  STRANGER -> LEAVING   refused, cut, handed over           [mesh_on_hello, mesh_cut]
 *  DIALLED  -> UP        WELCOME                             [on_welcome]
 *  DIALLED  -> LEAVING   refused, unreachable, late          [mesh_fail]
 *  UP       -> LEAVING   ended, silent, replaced             [mesh_fail]              */
enum connection_state {
    CONNECTION_STRANGER,
    CONNECTION_DIALLED,
    CONNECTION_UP,
    CONNECTION_LEAVING,
};

struct connection {
    struct link link;
    struct mesh *mesh;
    struct peer_state *peer; /* NULL: a stranger */
    enum connection_state state;
    char address[PEER_ADDRESS_SIZE];
    uint64_t deadline_ms; /* of the handshake, by uv_now */
    uint32_t source;      /* where it was accepted from, as in struct in_addr; else 0 */
    bool known;           /* a member's address, or this machine's own */
    uint64_t sequence_in, sequence_out;
    struct buf greeting_body;
    struct link_send greeting; /* HELLO, WELCOME or REFUSAL */
    struct link_send ping, pong;
    uint8_t ping_body[8], pong_body[8];
    struct connection *next;
    struct connection **link_to_this; /* in mesh->connections */
};

struct peer_state {
    struct mesh *mesh;
    uint32_t node_id;
    uint32_t life;
    bool removed; /* no peer any more; its timer stays, for another of its id or the end */
    char name[PEER_NAME_SIZE];
    char address_text[PEER_ADDRESS_SIZE];
    struct sockaddr_in address;
    struct connection *connection; /* dialled or up */
    uv_timer_t retry;
    uint64_t retry_ms;
    uint64_t incarnation;
    uint64_t heard_ms; /* uv_now; 0: never */
    uint64_t round_trip_us;
    uint64_t bytes_in, bytes_out, frames_in, frames_out; /* of connections that are gone */
    uint64_t connects, queue_refused;
    uint64_t logged_ms; /* the last refusal in the log */
    char last_error[MESH_REASON_SIZE];
};

struct mesh {
    struct mesh_settings settings; /* strings point into what follows */
    struct peer_hello self;
    struct peer_state *peers;
    size_t peers_count;
    uv_loop_t *loop;
    uv_poll_t listener;
    int listener_fd;
    bool listener_rests; /* no descriptors are left: accepting goes on at the next tick */
    uint16_t port;
    uv_timer_t tick;
    uint64_t pinged_ms, ticked_ms;
    uint64_t logged_ms;
    struct connection *connections;
    size_t strangers;
    size_t handles; /* open: listener, tick, retries, connections */
    struct gate gate;
    bool closing;
    void (*on_closed)(void *context);
    void *closed_context;
    struct mesh_stats stats;
};

struct connection *mesh_connection_new(struct mesh *mesh);
void mesh_connection_free(struct connection *connection);
/* Queues the greeting; its body is in connection->greeting_body. */
void mesh_greet(struct connection *connection, uint16_t kind);
/* The peer's connection is gone: says so, closes it, dials again where it is ours to dial. */
void mesh_fail(struct connection *connection, const struct err *err, bool slowly);
void mesh_come_up(struct connection *connection, struct peer_state *peer, uint64_t incarnation);
bool mesh_ours_to_dial(const struct peer_state *peer);
void mesh_on_retry(uv_timer_t *timer); /* dials */
/* A ping or pong; none while the one before is still queued. */
void mesh_send_stamp(struct connection *connection, struct link_send *send, uint8_t bytes[8],
                     uint16_t kind, const void *stamp);
void mesh_handle_closed(struct mesh *mesh);
/* mesh.c: fills a peer's place; its timer and counters stay. */
int mesh_take_peer(struct mesh *mesh, struct peer_state *peer, const struct mesh_peer *from,
                   struct err *err);
struct peer_state *mesh_find(const struct mesh *mesh, uint32_t node_id);

void mesh_on_ready(struct link *link); /* a stranger's handshake below is done */
void mesh_on_accept(uv_poll_t *poll, int status, int events);
int mesh_on_hello(struct connection *connection, const struct frame_header *header,
                  const uint8_t *body, struct err *err);
/* A stranger that said nothing right; counted. */
void mesh_cut(struct connection *connection);
/* ... whose connection ended by itself, or by what TLS found: said in the log once a minute. */
void mesh_stranger_ended(struct connection *connection, const struct err *err);

extern const struct link_ops mesh_link_ops;

#endif
