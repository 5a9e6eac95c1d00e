/* Who is connected to the HTTP port, and since when each has had its request's time, so that nobody
 * keeps a connection by a byte now and then, and no address all of them. The sockets are
 * libmicrohttpd's: one that has to go is shut down, and it sees the end. On the loop. */
#ifndef COPPELIUS_DAEMON_HTTP_PEERS_H
#define COPPELIUS_DAEMON_HTTP_PEERS_H

#include "daemon/http.h"

struct http_peer {
    int fd; /* -1: free */
    uint32_t address;
    bool ended; /* shut by us: libmicrohttpd has not noticed yet */
    uint64_t since_ms;
};

struct http_peers {
    struct http_peer list[HTTP_SOCKETS_MAX];
};

void http_peers_init(struct http_peers *peers);
/* A connection. No more than HTTP_SOCKETS_MAX are kept in mind; for a further one its idle limit
 * alone holds. Where there are more than HTTP_CONNECTIONS_MAX, one ends: of the address with the
 * most, the one that has had its request's time for longest. */
void http_peers_come(struct http_peers *peers, int fd, uint32_t address, uint64_t now_ms);
void http_peers_answered(struct http_peers *peers, int fd,
                         uint64_t now_ms); /* the next's time begins */
void http_peers_go(struct http_peers *peers, int fd);
/* Ends whose request's time is over. */
void http_peers_sweep(struct http_peers *peers, uint64_t now_ms);

#endif
