/* Whoever is asked: a thread for each connection, at most so many. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "peer/probe_room.h"

#define SILENCE_MS 8000U /* others may have the line first */
#define STACK_SIZE (512U << 10)
#define DRAIN_MS   2000U
#define LOOK_MS    100

struct serving { /* a connection */
    struct serving *next;
    struct probe_server *server;
    struct peer_incoming incoming;
    struct wire wire;
    pthread_t thread;
    atomic_bool cancel; /* a newer one, or the end */
    atomic_bool ended;
};

struct allowance { /* of a node: looks that may come */
    uint32_t spent;
    uint64_t since_ms;
};

struct probe_server {
    struct serving *list; /* the taking thread's, as is the next */
    uint32_t count;
    struct allowance allowances[PEER_NODES_MAX];
    _Atomic uint64_t accepted, refused, failed, bytes_in;
    _Atomic uint32_t serving;
};

/* ---------------------------------------------------------------- one connection */

/* The later part begins where half of the time was left, or less: marks are set at twice the time
 * of the one before. */
struct marks {
    uint64_t ns[2], bytes[2];
};

static void mark(struct marks *marks, uint64_t ns, uint64_t bytes)
{
    if (ns >= 1000000 && ns >= 2 * marks->ns[1]) {
        marks->ns[0] = marks->ns[1];
        marks->bytes[0] = marks->bytes[1];
        marks->ns[1] = ns;
        marks->bytes[1] = bytes;
    }
}

/* Until the bytes are there, or the time is over: a frame that is then under way is left. */
static int count_data(struct wire *wire, uint32_t bytes_max, uint32_t ms, uint8_t *buffer,
                      struct probe_count *count, struct err *err)
{
    struct marks marks = {{0}, {0}};
    uint64_t begin_ns = clock_now_ns();
    uint64_t begin_ms = clock_now_ms();
    while (count->bytes < bytes_max) {
        struct frame_header header;
        uint64_t now_ms = clock_now_ms();
        uint64_t end_ms = begin_ms + (count->bytes < PROBE_LEAST ? PROBE_SLOW_MS : ms);
        if (now_ms >= end_ms) {
            break;
        }
        int code = wire_receive(wire, buffer, PROBE_PIECE_SIZE, end_ms, &header, NULL, err);
        if (code == ERR_TIMEOUT) {
            *err = (struct err){0};
            break;
        }
        if (code != 0) {
            return code;
        }
        if (header.kind != PEER_PROBE_DATA || header.body_size == 0 ||
            header.body_size > bytes_max - count->bytes) {
            return err_set(err, ERR_PROTO,
                           "a frame of kind %u and %u bytes came where %u bytes of data were said",
                           header.kind, header.body_size, bytes_max);
        }
        count->bytes += header.body_size;
        count->ns = clock_now_ns() - begin_ns;
        mark(&marks, count->ns, count->bytes);
    }
    if (count->bytes < PROBE_LEAST) {
        count->ns = clock_now_ns() - begin_ns; /* Most of it nothing came. */
    }
    count->late_bytes = count->bytes - marks.bytes[0];
    count->late_ns = count->ns - marks.ns[0];
    return 0;
}

/* Reads on until the other has closed: to close with bytes unread would take back the answer. */
static void drain(struct wire *wire, uint8_t *buffer)
{
    size_t left = PROBE_BYTES_MAX;
    uint64_t deadline_ms = clock_now_ms() + DRAIN_MS;
    while (left > 0 && clock_now_ms() < deadline_ms &&
           (wire->cancel == NULL || !atomic_load(wire->cancel))) {
        struct err err = {0};
        struct iovec part = {buffer, left < PROBE_PIECE_SIZE ? left : PROBE_PIECE_SIZE};
        struct pollfd poll_fd = {.fd = wire->transport.fd, .events = POLLIN};
        wire->transport.reads_left = 1;
        ssize_t got = wire->transport.ops->read(&wire->transport, &part, 1, &err);
        if (got < 0) {
            return;
        }
        left -= (size_t)got;
        if (got == 0) {
            (void)poll(&poll_fd, 1, LOOK_MS);
        }
    }
}

static int answer_data(struct wire *wire, const uint8_t *body, uint8_t *buffer,
                       _Atomic uint64_t *bytes_in, struct err *err)
{
    struct reader reader = {body, PROBE_BEGIN_SIZE, false};
    struct probe_count count = {0};
    struct buf got = BUF_NONE;
    uint32_t bytes = read_u32(&reader);
    uint32_t ms = read_u32(&reader);
    if (bytes == 0 || bytes > PROBE_BYTES_MAX || ms == 0 || ms > PROBE_MS_MAX) {
        return err_set(err, ERR_PROTO,
                       "a look of %u bytes and %u ms is asked for; up to %u and %u are possible",
                       bytes, ms, PROBE_BYTES_MAX, PROBE_MS_MAX);
    }
    int code = count_data(wire, bytes, ms, buffer, &count, err);
    atomic_fetch_add(bytes_in, count.bytes);
    if (code != 0) {
        return code;
    }
    buf_put_u64(&got, count.bytes);
    buf_put_u64(&got, count.ns);
    buf_put_u64(&got, count.late_bytes);
    buf_put_u64(&got, count.late_ns);
    code = wire_send(wire, PEER_PROBE_GOT, 0, got.bytes, got.size, clock_now_ms() + PROBE_SLOW_MS,
                     err);
    buf_done(&got);
    if (code == 0) {
        drain(wire, buffer);
    }
    return code;
}

int probe_serve(struct wire *wire, uint8_t *buffer, _Atomic uint64_t *bytes_in, struct err *err)
{
    uint64_t deadline_ms = clock_now_ms() + PROBE_SERVE_MS;
    for (uint32_t pings = 0;;) {
        struct frame_header header;
        bool begun = false;
        int code = wire_receive(wire, buffer, PROBE_PIECE_SIZE, deadline_ms, &header, &begun, err);
        if (code == ERR_PEER && !begun) {
            *err = (struct err){0};
            return 0; /* It knows what it wants to know. */
        }
        if (code != 0) {
            return code;
        }
        if (header.kind == PEER_PROBE_BEGIN && header.body_size == PROBE_BEGIN_SIZE) {
            uint8_t begin[PROBE_BEGIN_SIZE];
            memcpy(begin, buffer, sizeof(begin));
            return answer_data(wire, begin, buffer, bytes_in, err);
        }
        if (header.kind != PEER_PROBE_PING || header.body_size != PROBE_PING_SIZE ||
            ++pings > PROBE_PINGS_MAX) {
            return err_set(err, ERR_PROTO,
                           "a frame of kind %u and %u bytes came behind %u pings; a ping or the "
                           "beginning of data was due",
                           header.kind, header.body_size, pings);
        }
        code = wire_send(wire, PEER_PROBE_PONG, header.sequence, buffer, PROBE_PING_SIZE,
                         deadline_ms, err);
        if (code != 0) {
            return code;
        }
    }
}

static void *serve_main(void *context)
{
    struct serving *serving = context;
    struct probe_server *server = serving->server;
    struct err err = {0};
    uint8_t *buffer = malloc(PROBE_PIECE_SIZE);
    int code = buffer == NULL ? err_set(&err, ERR_NOMEM, "no memory for a look")
                              : peer_welcome(&serving->incoming, &err);
    if (code == 0) {
        code = probe_serve(&serving->wire, buffer, &server->bytes_in, &err);
    }
    if (code != 0 && !atomic_load(&serving->cancel)) {
        atomic_fetch_add(&server->failed, 1U);
        log_info("probe.serve", "from=%s address=%s error=\"%s\" next=\"closed\"",
                 serving->incoming.hello.node, serving->incoming.address, err.text);
    }
    free(buffer);
    wire_done(&serving->wire);
    atomic_fetch_sub(&server->serving, 1U);
    atomic_store(&serving->ended, true);
    return NULL;
}

/* ---------------------------------------------------------------- all of them */

/* Joins the threads that have ended, or (all) waits for every one. */
static void reap(struct probe_server *server, bool all)
{
    for (struct serving **at = &server->list; *at != NULL;) {
        struct serving *serving = *at;
        if (all) {
            atomic_store(&serving->cancel, true);
        } else if (!atomic_load(&serving->ended)) {
            at = &serving->next;
            continue;
        }
        ASSERT(pthread_join(serving->thread, NULL) == 0);
        *at = serving->next;
        server->count--;
        free(serving);
    }
}

int probe_server_new(struct probe_server **ret_server, struct err *err)
{
    struct probe_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the server of looks");
    }
    *ret_server = server;
    return 0;
}

void probe_server_free(struct probe_server *server)
{
    if (server == NULL) {
        return;
    }
    for (struct serving *at = server->list; at != NULL; at = at->next) {
        atomic_store(&at->cancel, true); /* All at once: each looks ten times a second. */
    }
    reap(server, true);
    ASSERT(server->count == 0);
    free(server);
}

/* PROBE_BURST at once, one a second. */
static bool may_come(struct probe_server *server, uint32_t node_id)
{
    struct allowance *allowance = &server->allowances[node_id < PEER_NODES_MAX ? node_id : 0];
    uint64_t now_ms = clock_now_ms();
    uint64_t back = (now_ms - allowance->since_ms) / 1000;
    if (back > 0) {
        allowance->spent = back < allowance->spent ? allowance->spent - (uint32_t)back : 0;
        allowance->since_ms = now_ms;
    }
    if (allowance->spent >= PROBE_BURST) {
        return false;
    }
    allowance->spent++;
    return true;
}

static struct serving *begin(struct probe_server *server, const struct peer_incoming *incoming)
{
    struct serving *serving = calloc(1, sizeof(*serving));
    pthread_attr_t attributes;
    if (serving == NULL) {
        return NULL;
    }
    serving->server = server;
    serving->incoming = *incoming;
    serving->wire = (struct wire){
        .transport = incoming->transport, .silence_ms = SILENCE_MS, .cancel = &serving->cancel};
    ASSERT(pthread_attr_init(&attributes) == 0);
    (void)pthread_attr_setstacksize(&attributes, STACK_SIZE);
    atomic_fetch_add(&server->serving, 1U);
    int failed = pthread_create(&serving->thread, &attributes, serve_main, serving);
    ASSERT(pthread_attr_destroy(&attributes) == 0);
    if (failed != 0) {
        atomic_fetch_sub(&server->serving, 1U);
        free(serving);
        return NULL;
    }
    return serving;
}

void probe_server_take(struct probe_server *server, const struct peer_incoming *incoming)
{
    struct peer_incoming refused = *incoming;
    reap(server, false);
    for (struct serving *at = server->list; at != NULL; at = at->next) {
        if (at->incoming.hello.node_id == incoming->hello.node_id) {
            atomic_store(&at->cancel, true);
        }
    }
    if (!may_come(server, incoming->hello.node_id) || server->count >= PROBE_SERVED_MAX) {
        atomic_fetch_add(&server->refused, 1U);
        peer_refuse(&refused, ERR_BUSY, "this node was looked at too often just now");
        return;
    }
    struct serving *serving = begin(server, incoming);
    if (serving == NULL) {
        atomic_fetch_add(&server->refused, 1U);
        peer_refuse(&refused, ERR_BUSY, "this node has no thread for a look now");
        return;
    }
    atomic_fetch_add(&server->accepted, 1U);
    serving->next = server->list;
    server->list = serving;
    server->count++;
}

void probe_server_stats(struct probe_server *server, struct probe_server_stats *ret_stats)
{
    *ret_stats = (struct probe_server_stats){
        .accepted = atomic_load(&server->accepted),
        .refused = atomic_load(&server->refused),
        .failed = atomic_load(&server->failed),
        .bytes_in = atomic_load(&server->bytes_in),
        .serving = atomic_load(&server->serving),
    };
}
