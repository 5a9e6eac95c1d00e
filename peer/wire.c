#include "peer/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/peer.h"

#define LOOK_MS       100 /* at the cancel flag */
#define READS_AT_ONCE 64

int wire_connect(const char *text, atomic_bool *cancel, uint64_t deadline_ms, int *ret_fd,
                 struct err *err)
{
    struct sockaddr_in address;
    int one = 1;
    if (peer_address_parse(text, &address, err) != 0) {
        return err->code;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_set(err, ERR_REACH, "socket: %s", err_errno(errno));
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    int failed = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
    while (failed == EINPROGRESS || failed == EINTR) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        socklen_t size = sizeof(failed);
        if ((cancel != NULL && atomic_load(cancel)) || clock_now_ms() >= deadline_ms) {
            failed = ETIMEDOUT;
        } else if (poll(&poll_fd, 1, 100) > 0) {
            ASSERT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0);
        }
    }
    if (failed != 0) {
        (void)close(fd);
        return err_set(err, ERR_REACH, "%s: %s", text, err_errno(failed));
    }
    *ret_fd = fd;
    return 0;
}

static void tick(const struct wire *wire)
{
    if (wire->ticks != NULL) {
        atomic_fetch_add(wire->ticks, 1);
    }
}

/* Until the socket is ready, or something ends the waiting. moved_ms: when bytes moved last. */
static int wait_for(struct wire *wire, short events, uint64_t moved_ms, uint64_t deadline_ms,
                    struct err *err)
{
    for (;;) {
        uint64_t now = clock_now_ms();
        if (wire->cancel != NULL && atomic_load(wire->cancel)) {
            return err_set(err, ERR_CANCELED, "canceled");
        }
        if (now >= deadline_ms || now - moved_ms >= wire->silence_ms) {
            return err_set(err, ERR_TIMEOUT, "%s: nothing %s for %llu ms",
                           now >= deadline_ms ? "it took too long" : "it is silent",
                           (events & POLLIN) != 0 ? "came" : "was taken",
                           (unsigned long long)(now - moved_ms));
        }
        struct pollfd poll_fd = {.fd = wire->transport.fd, .events = events};
        if (!wire->transport.ops->is_ready(&wire->transport)) {
            poll_fd.events = POLLIN; /* The handshake's answer. */
        }
        if (wire->transport.ops->wants_write(&wire->transport)) {
            poll_fd.events |= POLLOUT;
        }
        int ready = poll(&poll_fd, 1, LOOK_MS);
        if (ready > 0) {
            return 0;
        }
        if (ready < 0 && errno != EINTR) {
            return err_set(err, ERR_PEER, "poll: %s", err_errno(errno));
        }
    }
}

int wire_send(struct wire *wire, uint16_t kind, uint64_t sequence, const void *body, size_t size,
              uint64_t deadline_ms, struct err *err)
{
    uint8_t header[FRAME_HEADER_SIZE];
    struct frame_part part = {body, size};
    frame_header_make(header, kind, 0, wire->generation, sequence, &part, 1);
    size_t done = 0;
    uint64_t moved_ms = clock_now_ms();
    while (done < sizeof(header) + size) {
        size_t in_body = done > sizeof(header) ? done - sizeof(header) : 0;
        struct iovec parts[2];
        int count = 0;
        if (done < sizeof(header)) {
            parts[count++] = (struct iovec){header + done, sizeof(header) - done};
        }
        if (size > in_body) {
            parts[count++] = (struct iovec){(void *)((uintptr_t)body + in_body), size - in_body};
        }
        ssize_t taken = wire->transport.ops->write(&wire->transport, parts, count, err);
        if (taken < 0) {
            return err->code;
        }
        if (taken > 0) {
            done += (size_t)taken;
            moved_ms = clock_now_ms();
            tick(wire);
        } else if (wait_for(wire, POLLOUT, moved_ms, deadline_ms, err) != 0) {
            return err->code;
        }
    }
    return 0;
}

static int receive_bytes(struct wire *wire, uint8_t *bytes, size_t size, uint64_t deadline_ms,
                         size_t *ret_done, struct err *err)
{
    uint64_t moved_ms = clock_now_ms();
    *ret_done = 0;
    while (*ret_done < size) {
        struct iovec part = {bytes + *ret_done, size - *ret_done};
        wire->transport.reads_left = READS_AT_ONCE;
        ssize_t got = wire->transport.ops->read(&wire->transport, &part, 1, err);
        if (got < 0) {
            return err->code;
        }
        if (got > 0) {
            *ret_done += (size_t)got;
            moved_ms = clock_now_ms();
            tick(wire);
            if (moved_ms < deadline_ms) {
                continue; /* A peer that sends byte by byte ends at the deadline too. */
            }
        }
        if (*ret_done < size && wait_for(wire, POLLIN, moved_ms, deadline_ms, err) != 0) {
            return err->code;
        }
    }
    return 0;
}

int wire_receive(struct wire *wire, void *body, size_t size_max, uint64_t deadline_ms,
                 struct frame_header *ret_header, bool *ret_begun, struct err *err)
{
    uint8_t bytes[FRAME_HEADER_SIZE];
    size_t done = 0;
    int code = receive_bytes(wire, bytes, sizeof(bytes), deadline_ms, &done, err);
    if (ret_begun != NULL) {
        *ret_begun = done > 0;
    }
    if (code != 0 || frame_header_read(bytes, size_max, ret_header, err) != 0) {
        return err->code;
    }
    if (receive_bytes(wire, body, ret_header->body_size, deadline_ms, &done, err) != 0 ||
        frame_header_check(bytes, body, ret_header->body_size, err) != 0) {
        return err->code;
    }
    if (ret_header->generation != wire->generation) {
        return err_set(err, ERR_PROTO, "a frame of generation %llu came; this is %llu",
                       (unsigned long long)ret_header->generation,
                       (unsigned long long)wire->generation);
    }
    return 0;
}

void wire_done(struct wire *wire)
{
    transport_close(&wire->transport);
}
