/* The seam between a socket and frames: plain bytes today, TLS (memory BIOs) later. A link knows a
 * transport only by its table. Thread: the link's loop. Nothing here blocks. */
#ifndef COPPELIUS_PEER_TRANSPORT_H
#define COPPELIUS_PEER_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"

struct transport;

struct transport_ops {
    /* Bytes read into the parts, in order, fewer than asked only where no more are there now (0:
     * none); -1: the end (ERR_PEER, "closed the
     * connection") or a broken connection, said in err. */
    ssize_t (*read)(struct transport *transport, const struct iovec *parts, int parts_count,
                    struct err *err);
    /* Bytes taken; 0: no room now; -1: broken, said in err. */
    ssize_t (*write)(struct transport *transport, const struct iovec *parts, int parts_count,
                     struct err *err);
    /* Whether the transport itself needs the socket to become writable (TLS: a key update), beside
     * what the link has to send. */
    bool (*wants_write)(const struct transport *transport);
    /* No more will be written; the other side reads the end. */
    void (*shut)(struct transport *transport);
    /* Frees what the transport holds, not the descriptor. */
    void (*done)(struct transport *transport);
};

struct transport {
    const struct transport_ops *ops;
    int fd;
    void *state; /* of the ops */
};

void transport_plain(struct transport *transport, int fd);

#endif
