#include "peer/link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"

#define USER_TIMEOUT_MS   10000 /* unacknowledged bytes for so long: the connection is gone */
#define KEEPALIVE_IDLE_S  5
#define KEEPALIVE_EVERY_S 2
#define KEEPALIVE_COUNT   3
#define NOTSENT_SIZE      (256 << 10)

int link_tune(int fd, struct err *err)
{
    static const struct {
        int level, option, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS},
        {IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_SIZE},
    };
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return err_set(err, ERR_PEER, "cannot prepare a socket: %s", err_errno(errno));
    }
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (setsockopt(fd, options[i].level, options[i].option, &options[i].value,
                       sizeof(options[i].value)) != 0) {
            return err_set(err, ERR_PEER, "cannot set a socket's option: %s", err_errno(errno));
        }
    }
    return 0;
}

static int link_start(struct link *link, uv_loop_t *loop, const struct transport *transport,
                      const struct link_ops *ops, size_t limit, enum link_state state,
                      struct err *err)
{
    memset(link, 0, sizeof(*link));
    int status = uv_poll_init(loop, &link->poll, transport->fd);
    if (status != 0) {
        return err_set(err, ERR_PEER, "cannot watch a socket: %s", uv_strerror(status));
    }
    link->transport = *transport;
    link->ops = ops;
    link->limit = limit;
    link->piece_size = limit;
    link->state = state;
    link->queue_last[0] = &link->queue_first[0];
    link->queue_last[1] = &link->queue_first[1];
    link->heard_ms = uv_now(loop);
    link->sent_ms = uv_now(loop);
    link->events = state == LINK_CONNECTING ? UV_WRITABLE : UV_READABLE;
    ASSERT(uv_poll_start(&link->poll, link->events, link_on_poll) == 0);
    return 0;
}

int link_dial(struct link *link, uv_loop_t *loop, const struct link_target *target,
              const struct link_ops *ops, size_t limit, struct err *err)
{
    const struct sockaddr_in *address = target->address;
    struct transport transport = {.fd = -1};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_set(err, ERR_PEER, "cannot make a socket: %s", err_errno(errno));
    }
    if (link_tune(fd, err) != 0) {
        goto fail;
    }
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
        errno != EINPROGRESS) {
        (void)err_set(err, ERR_REACH, "%s", err_errno(errno));
        goto fail;
    }
    if (transport_dial(&transport, target->trust, fd, target->node, err) != 0) {
        goto fail;
    }
    if (link_start(link, loop, &transport, ops, limit, LINK_CONNECTING, err) != 0) {
        transport_close(&transport);
        return err->code;
    }
    return 0;
fail:
    (void)close(fd);
    return err->code;
}

int link_take(struct link *link, uv_loop_t *loop, const struct transport *transport,
              const struct link_ops *ops, size_t limit, struct err *err)
{
    /* One with a thread of its own has no socket here; it was tuned before. */
    if (transport->ops->is_busy == NULL && link_tune(transport->fd, err) != 0) {
        return err->code;
    }
    return link_start(link, loop, transport, ops, limit, LINK_OPEN, err);
}

static void on_connected(struct link *link)
{
    int number = 0;
    socklen_t size = sizeof(number);
    struct err err = {0};
    ASSERT(getsockopt(link->transport.fd, SOL_SOCKET, SO_ERROR, &number, &size) == 0);
    if (number == EINPROGRESS || number == EAGAIN) {
        return;
    }
    if (number != 0) {
        (void)err_set(&err, ERR_REACH, "%s", err_errno(number));
        link_end(link, &err);
        return;
    }
    link->state = LINK_OPEN;
    link->heard_ms = uv_now(link->poll.loop);
    link->ops->on_open(link);
    if (link->state == LINK_OPEN) {
        link_flush(link);
    }
}

void link_on_poll(uv_poll_t *poll, int status, int events)
{
    struct link *link = OWNER_OF(poll, struct link, poll);
    if (link->state == LINK_CONNECTING) {
        on_connected(link);
        return;
    }
    if ((events & UV_READABLE) != 0 || status != 0) {
        link->burst = 0;
        link_read_frames(link); /* First: what the peer said before it went counts. */
    }
    if (link->state == LINK_OPEN && link->broken.code != 0) {
        link_end(link, &link->broken);
        return;
    }
    if (link->state == LINK_OPEN && status != 0) {
        struct err err = {0};
        (void)err_set(&err, ERR_PEER, "the connection broke: %s", uv_strerror(status));
        link_end(link, &err);
        return;
    }
    bool busy = link->transport.ops->is_busy != NULL; /* Its answers come as readable. */
    if (link->state == LINK_OPEN && ((events & UV_WRITABLE) != 0 || busy)) {
        link->burst = 0;
        link_flush(link);
    }
    link_watch(link);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct link *link = OWNER_OF(handle, struct link, poll);
    transport_close(&link->transport);
    free(link->buffer);
    link->buffer = NULL;
    link->ops->on_closed(link); /* May free the link: touch nothing after. */
}

void link_close(struct link *link)
{
    if (link->state == LINK_CLOSING) {
        return;
    }
    link->state = LINK_CLOSING;
    (void)uv_poll_stop(&link->poll);
    link_drop_queued(link);
    uv_close((uv_handle_t *)&link->poll, on_poll_closed);
}

struct transport link_detach(struct link *link)
{
    ASSERT(link->state == LINK_OPEN);
    ASSERT(!link->in_body);
    ASSERT(link->header_have == 0);
    struct transport transport = link->transport;
    link_close(link);
    link->transport.fd = -1;
    return transport;
}
