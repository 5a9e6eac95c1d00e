#include "peer/transport.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>

static ssize_t plain_read(struct transport *transport, const struct iovec *parts, int parts_count,
                          struct err *err)
{
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
                                               .shut = plain_shut,
                                               .done = plain_done};
    *transport = (struct transport){.ops = &plain, .fd = fd, .state = NULL};
}
