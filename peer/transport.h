/* The seam between a socket and frames: plain bytes, or TLS (trust/trust.h). A link and a wire know
 * a transport only by its table. Thread: its holder's, one at a time; it may be handed on as a
 * value. Nothing here blocks. */
#ifndef COPPELIUS_PEER_TRANSPORT_H
#define COPPELIUS_PEER_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"
#include "trust/trust.h"

struct transport;

struct transport_ops {
    /* Bytes read into the parts, in order, fewer than asked only where no more are there now (0:
     * none) or reads_left is used up; -1: the end (ERR_PEER, "closed the connection") or a broken
     * connection, said in err. Before it is ready, without parts: drives the handshake. */
    ssize_t (*read)(struct transport *transport, const struct iovec *parts, int parts_count,
                    struct err *err);
    /* Bytes taken; 0: no room now, or not ready; -1: broken, said in err. Without parts: what the
     * transport itself has to write. */
    ssize_t (*write)(struct transport *transport, const struct iovec *parts, int parts_count,
                     struct err *err);
    /* Whether the transport itself needs the socket to become writable, beside what its holder has
     * to send: bytes that it has taken, its handshake's. */
    bool (*wants_write)(const struct transport *transport);
    /* Whether the holder's bytes may go now: the handshake is done. Until then nothing is read
     * either, and the other side is unknown. */
    bool (*is_ready)(const struct transport *transport);
    /* Whether fd is never waited on for writing: what was given to write() is answered for by its
     * being readable. NULL: no. (pump.h) */
    bool (*is_busy)(const struct transport *transport);
    /* Gives back the memory that write() was called with: the bytes of it that were taken and not
     * yet answered for. Waits a moment. NULL: a write that answered holds nothing. */
    ssize_t (*settle)(struct transport *transport);
    /* No more will be written; the other side reads the end. */
    void (*shut)(struct transport *transport);
    /* Frees what the transport holds, not the descriptor; before that is closed. */
    void (*done)(struct transport *transport);
};

struct transport {
    const struct transport_ops *ops;
    int fd;              /* to poll; -1: none */
    int socket;          /* the same, or what a thread of its own works on (pump.h) */
    bool sealed;         /* over TLS: no byte can change on the way */
    unsigned reads_left; /* system calls that read() may still make: its holder's to set */
    void *state;         /* of the ops */
};

void transport_plain(struct transport *transport, int fd);
/* TLS where trust is there, else plain. joins: trust/trust.h. ERR_NOMEM. */
int transport_accept(struct transport *transport, struct trust *trust, int fd, bool joins,
                     struct err *err);
/* The same for the side that dials the node of that name. */
int transport_dial(struct transport *transport, struct trust *trust, int fd, const char *node,
                   struct err *err);
/* Who is there, once it is ready; NULL: plain, so anybody. A joiner is TRUST_NOBODY. */
const struct trust_identity *transport_peer(const struct transport *transport);
/* done, and closes the descriptor; nothing where there is none. */
void transport_close(struct transport *transport);

#endif
