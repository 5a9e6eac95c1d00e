/* Messages of a join over TLS: both sides block, with one deadline. */
#include "trust/join_room.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"

#define SLICE_MS      100
#define READS_AT_ONCE 16

static int wait_for(const struct talk *talk, short events, struct err *err)
{
    uint64_t now = clock_now_ms();
    struct pollfd polled = {.fd = talk->fd, .events = tls_is_open(talk->tls) ? events : POLLIN};
    if (now >= talk->deadline_ms) {
        return err_set(err, ERR_TIMEOUT, "no answer in time");
    }
    polled.events |= tls_wants_write(talk->tls) ? POLLOUT : 0;
    uint64_t left = talk->deadline_ms - now;
    if (poll(&polled, 1, (int)(left < SLICE_MS ? left : SLICE_MS)) < 0 && errno != EINTR) {
        return err_set(err, ERR_PEER, "poll: %s", err_errno(errno));
    }
    return 0;
}

int talk_shake(const struct talk *talk, struct err *err)
{
    struct iovec none = {NULL, 0};
    while (!tls_is_open(talk->tls)) {
        unsigned reads = READS_AT_ONCE;
        if (tls_read(talk->tls, &none, 1, &reads, err) < 0) {
            return err->code;
        }
        if (!tls_is_open(talk->tls) && wait_for(talk, POLLIN, err) != 0) {
            return err->code;
        }
    }
    return 0;
}

int talk_put(const struct talk *talk, const void *bytes, size_t size, struct err *err)
{
    size_t done = 0;
    while (done < size || tls_wants_write(talk->tls)) {
        struct iovec part = {(uint8_t *)(uintptr_t)bytes + done, size - done};
        ssize_t taken = tls_write(talk->tls, &part, size > done ? 1 : 0, err);
        if (taken < 0) {
            return err->code;
        }
        done += (size_t)taken;
        if ((done < size || tls_wants_write(talk->tls)) && taken == 0 &&
            wait_for(talk, POLLOUT, err) != 0) {
            return err->code;
        }
    }
    return 0;
}

int talk_take(const struct talk *talk, void *bytes, size_t size, struct err *err)
{
    size_t done = 0;
    while (done < size) {
        struct iovec part = {(uint8_t *)bytes + done, size - done};
        unsigned reads = READS_AT_ONCE;
        ssize_t got = tls_read(talk->tls, &part, 1, &reads, err);
        if (got < 0) {
            return err->code;
        }
        done += (size_t)got;
        if (got == 0 && wait_for(talk, POLLIN, err) != 0) {
            return err->code;
        }
    }
    return 0;
}

/* u32 size, body. */
int talk_put_message(const struct talk *talk, const struct buf *body, struct err *err)
{
    struct buf message = BUF_NONE;
    buf_put_u32(&message, (uint32_t)body->size);
    buf_put(&message, body->bytes, body->size);
    int code = talk_put(talk, message.bytes, message.size, err);
    buf_done(&message);
    return code;
}

int talk_take_message(const struct talk *talk, size_t most, struct buf *body, struct err *err)
{
    uint8_t bytes[4];
    if (talk_take(talk, bytes, sizeof(bytes), err) != 0) {
        return err->code;
    }
    struct reader reader = {bytes, sizeof(bytes), false};
    uint32_t size = read_u32(&reader);
    if (size > most) {
        return err_set(err, ERR_PROTO, "a message of %u bytes came; the most is %zu", size, most);
    }
    buf_clear(body);
    buf_reserve(body, size + 1);
    int code = talk_take(talk, body->bytes, size, err);
    body->size = code == 0 ? size : 0;
    return code;
}

void join_put_run(struct buf *body, const void *bytes, size_t size)
{
    buf_put_u32(body, (uint32_t)size);
    buf_put(body, bytes, size);
}

/* What lies behind its u32 size; NULL where the reader failed. */
const uint8_t *join_read_run(struct reader *reader, uint32_t *ret_size)
{
    uint32_t size = read_u32(reader);
    if (reader->failed || size > reader->size) {
        reader->failed = true;
        *ret_size = 0;
        return NULL;
    }
    const uint8_t *bytes = reader->bytes;
    reader->bytes += size;
    reader->size -= size;
    *ret_size = size;
    return bytes;
}

/* Printable and for one log line. */
void join_clean(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == '"' ? ' ' : *at;
    }
}
