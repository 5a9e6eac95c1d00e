/* coppeliusctl's other end: questions of proto/ctl.proto on the admin socket and on connections
 * that the mesh hands over, answered out of the facts.
 *
 * Loop thread. The admin socket is a unix socket, mode 0660; who connects must be root, the
 * daemon's own user or a member of the group (SO_PEERCRED, SO_PEERGROUPS): others get a sentence
 * and the end; or, where the settings say others_look (mode 0666 then), they may look.
 *
 * Limits: API_CONNECTIONS_MAX connections, API_OF_A_SOURCE_MAX of one user or one address; where
 * another one would be too many, the one that has been idle longest of the source with the most
 * makes way, and only where none is idle is the new one refused (ERR_BUSY); idle ones end after
 * API_IDLE_MS; one question at a time on each (what comes meanwhile
 * waits in the input, which holds one frame; reading stops when it is full); 5 s for HELLO; a
 * reply that a client has not taken after API_WRITE_MS ends its connection; a stream (watch, logs)
 * makes its next reply only when the last one was taken, so a slow reader costs one reply of
 * memory. */
#ifndef COPPELIUS_DAEMON_API_H
#define COPPELIUS_DAEMON_API_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "daemon/doctor.h"
#include "daemon/facts.h"
#include "daemon/logring.h"
#include "peer/peer.h"

#define API_CONNECTIONS_MAX 64
#define API_OF_A_SOURCE_MAX 48
#define API_SOCKETS_MAX     1024 /* with those that are being ended: a turn may take in hundreds */
#define API_IDLE_MS         600000
#define API_LOG_MAX         20 /* lines a minute on refused and cut connections */
#define API_HELLO_MS        5000
#define API_WRITE_MS        30000
#define API_TICK_MS         250        /* streams look for news as often */
#define API_PIECE_SIZE      (1U << 20) /* most bytes of Reply.data */
#define API_FROM_SIZE       128

struct api;

struct api_settings { /* copied; what it points to must outlive the api */
    const struct facts *facts;
    struct log_ring *log_ring;
    const struct doctor_settings *doctor;
    const char *socket_path; /* "": none */
    const char *group;       /* "coppelius"; one that is not there lets in nobody */
    /* For WELCOME. */
    const char *cluster;
    const char *node;
    const char *version;
    uint32_t node_id;
    uint64_t incarnation;
    uint64_t write_ms; /* 0: API_WRITE_MS */
    bool others_look;  /* on the socket, who is neither root, the daemon's user nor in the group */
};

struct api_stats {
    uint64_t accepted;
    uint64_t refused; /* not authorized, no HELLO, another protocol, too many */
    uint64_t requests;
    uint64_t cut; /* slow or talking nonsense */
    unsigned connections;
};

/* A socket file left by a daemon that is gone is replaced; one that somebody answers on is refused.
 */
int api_open(uv_loop_t *loop, const struct api_settings *settings, struct api **ret_api,
             struct err *err);
/* Every verb that was begun must have been answered (ERR_CANCELED) before or be answered soon:
 * on_closed (may be NULL) comes when the last connection is gone, and the api with it. */
void api_close(struct api *api, void (*on_closed)(void *context), void *context);

/* Makes room for a connection from there ("IP:PORT"), ending an idle one where it must. Whether it
 * would still be too many: refuse it with ERR_BUSY. */
bool api_full(struct api *api, const char *from);
/* Takes the transport of a connection whose HELLO (class ctl) was read and answered with WELCOME.
 * Over TLS a certificate of kind admin may change things, others may look; in plain text anybody
 * may all. from is its address, for the log. */
void api_take(struct api *api, const struct transport *transport, const char *from);

const struct api_stats *api_stats(const struct api *api);

#endif
