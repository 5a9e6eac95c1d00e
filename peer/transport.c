#include "peer/transport.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"

static ssize_t plain_read(struct transport *transport, const struct iovec *parts, int parts_count,
                          struct err *err)
{
    if (parts_count == 0 || transport->reads_left == 0) {
        return 0;
    }
    transport->reads_left--;
    for (;;) {
        ssize_t got = readv(transport->fd, parts, parts_count);
        if (got > 0) {
            return got;
        }
        if (got == 0) {
            (void)err_set(err, ERR_PEER, "closed the connection");
            return -1;
        }
        if (errno == EAGAIN) {
            return 0;
        }
        if (errno != EINTR) {
            (void)err_set(err, ERR_PEER, "the connection broke: %s", err_errno(errno));
            return -1;
        }
    }
}

static ssize_t plain_write(struct transport *transport, const struct iovec *parts, int parts_count,
                           struct err *err)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts,
                             .msg_iovlen = (size_t)parts_count};
    if (parts_count == 0) {
        return 0;
    }
    for (;;) {
        ssize_t taken = sendmsg(transport->fd, &message, MSG_NOSIGNAL);
        if (taken >= 0) {
            return taken;
        }
        if (errno == EAGAIN) {
            return 0;
        }
        if (errno != EINTR) {
            (void)err_set(err, ERR_PEER, "the connection broke: %s", err_errno(errno));
            return -1;
        }
    }
}

static bool plain_wants_write(const struct transport *transport)
{
    (void)transport;
    return false;
}

static bool plain_is_ready(const struct transport *transport)
{
    (void)transport;
    return true;
}

static void plain_shut(struct transport *transport)
{
    (void)shutdown(transport->fd, SHUT_WR); /* A connection that is gone already needs none. */
}

static void plain_done(struct transport *transport)
{
    (void)transport;
}

void transport_plain(struct transport *transport, int fd)
{
    static const struct transport_ops plain = {.read = plain_read,
                                               .write = plain_write,
                                               .wants_write = plain_wants_write,
                                               .is_ready = plain_is_ready,
                                               .shut = plain_shut,
                                               .done = plain_done};
    *transport = (struct transport){.ops = &plain, .fd = fd, .socket = fd, .state = NULL};
}

/* ---------------------------------------------------------------- TLS */

static ssize_t secure_read(struct transport *transport, const struct iovec *parts, int parts_count,
                           struct err *err)
{
    return tls_read(transport->state, parts, parts_count, &transport->reads_left, err);
}

static ssize_t secure_write(struct transport *transport, const struct iovec *parts, int parts_count,
                            struct err *err)
{
    return tls_write(transport->state, parts, parts_count, err);
}

static bool secure_wants_write(const struct transport *transport)
{
    return tls_wants_write(transport->state);
}

static bool secure_is_ready(const struct transport *transport)
{
    return tls_is_open(transport->state);
}

static void secure_shut(struct transport *transport)
{
    tls_shut(transport->state);
}

static void secure_done(struct transport *transport)
{
    tls_free(transport->state);
    transport->state = NULL;
}

static const struct transport_ops secure = {.read = secure_read,
                                            .write = secure_write,
                                            .wants_write = secure_wants_write,
                                            .is_ready = secure_is_ready,
                                            .shut = secure_shut,
                                            .done = secure_done};

static int secured(struct transport *transport, int fd, int code, struct tls *tls)
{
    if (code == 0) {
        *transport = (struct transport){
            .ops = &secure, .fd = fd, .socket = fd, .sealed = true, .state = tls};
    }
    return code;
}

int transport_accept(struct transport *transport, struct trust *trust, int fd, bool joins,
                     struct err *err)
{
    struct tls *tls = NULL;
    if (trust == NULL) {
        transport_plain(transport, fd);
        return 0;
    }
    int code = tls_accept(trust, fd, joins, &tls, err);
    return secured(transport, fd, code, tls);
}

int transport_dial(struct transport *transport, struct trust *trust, int fd, const char *node,
                   struct err *err)
{
    struct tls *tls = NULL;
    if (trust == NULL) {
        transport_plain(transport, fd);
        return 0;
    }
    int code = tls_dial(trust, fd, node, &tls, err);
    return secured(transport, fd, code, tls);
}

const struct trust_identity *transport_peer(const struct transport *transport)
{
    /* NULL means anybody: never the answer for a sealed one that has a thread of its own. */
    ASSERT(transport->ops == &secure || !transport->sealed);
    return transport->ops == &secure ? tls_peer(transport->state) : NULL;
}

void transport_close(struct transport *transport)
{
    if (transport->fd >= 0) {
        transport->ops->done(transport);
        (void)close(transport->fd);
        transport->fd = -1;
    }
}
