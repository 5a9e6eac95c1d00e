#include "daemon/http_peers.h"

#include <sys/socket.h>

static bool is_live(const struct http_peer *peer)
{
    return peer->fd >= 0 && !peer->ended;
}

static void end(struct http_peer *peer)
{
    peer->ended = true;
    (void)shutdown(peer->fd, SHUT_RDWR); /* libmicrohttpd sees the end and closes. */
}

static size_t live_of(const struct http_peers *peers, uint32_t address)
{
    size_t count = 0;
    for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++) {
        count += is_live(&peers->list[i]) && peers->list[i].address == address;
    }
    return count;
}

/* One too many: of the address with the most connections, the one ends that has had its request's
 * time for longest; answers take no time, so it waits for its client. */
static void make_room(struct http_peers *peers)
{
    struct http_peer *oldest = NULL;
    size_t live = 0;
    size_t most = 0;
    for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++) {
        struct http_peer *peer = &peers->list[i];
        if (!is_live(peer)) {
            continue;
        }
        size_t count = live_of(peers, peer->address);
        live++;
        if (oldest == NULL || count > most ||
            (count == most && peer->since_ms < oldest->since_ms)) {
            oldest = peer;
            most = count;
        }
    }
    if (live > HTTP_CONNECTIONS_MAX) {
        end(oldest);
    }
}

static struct http_peer *peer_of(struct http_peers *peers, int fd)
{
    for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++) {
        if (peers->list[i].fd == fd) {
            return &peers->list[i];
        }
    }
    return NULL;
}

void http_peers_init(struct http_peers *peers)
{
    for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++) {
        peers->list[i] = (struct http_peer){.fd = -1};
    }
}

void http_peers_come(struct http_peers *peers, int fd, uint32_t address, uint64_t now_ms)
{
    struct http_peer *peer = peer_of(peers, /* a free one */ -1);
    if (peer != NULL) {
        *peer = (struct http_peer){fd, address, false, now_ms};
        make_room(peers);
    }
}

void http_peers_answered(struct http_peers *peers, int fd, uint64_t now_ms)
{
    struct http_peer *peer = peer_of(peers, fd);
    if (peer != NULL) {
        peer->since_ms = now_ms;
    }
}

void http_peers_go(struct http_peers *peers, int fd)
{
    struct http_peer *peer = peer_of(peers, fd);
    if (peer != NULL) {
        peer->fd = -1;
    }
}

void http_peers_sweep(struct http_peers *peers, uint64_t now_ms)
{
    for (size_t i = 0; i < HTTP_SOCKETS_MAX; i++) {
        struct http_peer *peer = &peers->list[i];
        if (is_live(peer) && now_ms - peer->since_ms > HTTP_REQUEST_MS) {
            end(peer);
        }
    }
}
