/* Whoever asks: round trips, then bytes, over a connection that is up. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "peer/probe_room.h"

/* What waits in this socket is late for the other's clock; what is on the line is not bounded. */
#define UNSENT_SIZE (128 << 10)
#define ANSWER_MS   500U

static uint64_t median(uint64_t *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint64_t value = values[i];
        uint32_t at = i;
        for (; at > 0 && values[at - 1] > value; at--) {
            values[at] = values[at - 1];
        }
        values[at] = value;
    }
    return values[count / 2];
}

int probe_pings(struct wire *wire, uint64_t until_ms, uint64_t deadline_ms,
                struct probe_result *result, struct err *err)
{
    uint64_t took[PROBE_PINGS];
    uint32_t count = 0;
    result->step = PROBE_PING;
    while (count < PROBE_PINGS && (count == 0 || clock_now_ms() < until_ms)) {
        uint8_t ping[PROBE_PING_SIZE];
        uint8_t pong[PROBE_PING_SIZE];
        struct frame_header header;
        uint64_t begin_ns = clock_now_ns();
        memcpy(ping, &begin_ns, sizeof(ping));
        if (wire_send(wire, PEER_PROBE_PING, count, ping, sizeof(ping), deadline_ms, err) != 0 ||
            wire_receive(wire, pong, sizeof(pong), deadline_ms, &header, NULL, err) != 0) {
            return err->code;
        }
        if (header.kind != PEER_PROBE_PONG || header.body_size != sizeof(pong) ||
            memcmp(ping, pong, sizeof(ping)) != 0) {
            return err_set(err, ERR_PROTO, "a frame of kind %u and %u bytes came for a ping",
                           header.kind, header.body_size);
        }
        took[count++] = clock_now_ns() - begin_ns;
    }
    result->round_trip_ns = median(took, count);
    return 0;
}

static int get_got(const struct frame_header *header, const uint8_t *body, uint64_t sent,
                   struct probe_count *count, struct err *err)
{
    struct reader reader = {body, header->body_size, false};
    count->bytes = read_u64(&reader);
    count->ns = read_u64(&reader);
    count->late_bytes = read_u64(&reader);
    count->late_ns = read_u64(&reader);
    if (header->kind != PEER_PROBE_GOT || reader.failed || reader.size != 0 ||
        count->bytes > sent || count->late_bytes > count->bytes || count->late_ns > count->ns) {
        return err_set(
            err, ERR_PROTO,
            "a frame of kind %u and %u bytes came where an account of %llu bytes was due",
            header->kind, header->body_size, (unsigned long long)sent);
    }
    return 0;
}

static uint64_t sooner(uint64_t a_ms, uint64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

/* Sends until enough is sent or said. */
static int send_data(struct wire *wire, const uint8_t *pattern, uint32_t bytes, uint32_t ms,
                     uint64_t deadline_ms, uint64_t *ret_sent, struct err *err)
{
    uint64_t until_ms = clock_now_ms() + ms;
    uint32_t piece = PROBE_PIECE_FIRST;
    uint64_t sequence = 0;
    for (uint64_t sent = 0; sent < bytes && (sent < PROBE_LEAST || clock_now_ms() < until_ms);) {
        uint32_t size = bytes - sent < piece ? (uint32_t)(bytes - sent) : piece;
        int code = wire_send(
            wire, PEER_PROBE_DATA, sequence++, pattern, size,
            sent < PROBE_LEAST ? sooner(until_ms + PROBE_SLOW_MS, deadline_ms) : until_ms, err);
        *ret_sent = sent + size; /* Some of a frame that was given up may have gone. */
        if (code == ERR_TIMEOUT) {
            *err = (struct err){0}; /* The line is full: the other tells what came. */
            return 0;
        }
        if (code != 0) {
            return code;
        }
        sent += size;
        piece = piece < PROBE_PIECE_SIZE ? piece * 2 : piece;
    }
    return 0;
}

int probe_put(struct wire *wire, const uint8_t *pattern, uint32_t bytes, uint32_t ms,
              uint64_t deadline_ms, struct probe_result *result, struct err *err)
{
    struct buf begin = BUF_NONE;
    struct frame_header header;
    struct probe_count count = {0};
    uint8_t body[PROBE_GOT_SIZE];
    uint64_t sent = 0;
    int unsent = UNSENT_SIZE;
    uint64_t begin_ns = clock_now_ns();
    result->step = PROBE_PUT;
    /* Without it only what is late is counted less well. */
    (void)setsockopt(wire->transport.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    buf_put_u32(&begin, bytes);
    buf_put_u32(&begin, ms);
    int code = wire_send(wire, PEER_PROBE_BEGIN, 0, begin.bytes, begin.size, deadline_ms, err);
    buf_done(&begin);
    code = code == 0 ? send_data(wire, pattern, bytes, ms, deadline_ms, &sent, err) : code;
    uint64_t wait_ms = PROBE_SLOW_MS + ANSWER_MS + 2 * result->round_trip_ns / 1000000;
    code = code == 0
               ? wire_receive(wire, body, sizeof(body),
                              sooner(clock_now_ms() + wait_ms, deadline_ms), &header, NULL, err)
               : code;
    code = code == 0 ? get_got(&header, body, sent, &count, err) : code;
    if (code != 0) {
        return code;
    }
    uint64_t elapsed_ns = clock_now_ns() - begin_ns;
    result->bytes = count.bytes;
    if (count.bytes < 2 * PROBE_PIECE_FIRST + 1024 && count.bytes < bytes) {
        result->holes = true;
        return err_set(err, ERR_TIMEOUT,
                       "of %llu bytes that were sent %llu arrived within %.1f s, and small packets "
                       "pass",
                       (unsigned long long)sent, (unsigned long long)count.bytes,
                       (double)elapsed_ns * 1e-9);
    }
    if (count.ns > elapsed_ns || count.late_ns == 0 || count.late_bytes == 0) {
        count.late_bytes = count.bytes; /* No such clock: by this one. */
        count.late_ns = elapsed_ns;
    }
    result->bytes_per_s = (uint64_t)((double)count.late_bytes * 1e9 /
                                     (double)(count.late_ns > 0 ? count.late_ns : 1));
    result->step = PROBE_DONE;
    return 0;
}
