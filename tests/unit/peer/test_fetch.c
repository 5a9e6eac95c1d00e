/* Data in pieces from another node: a real mesh that hands connections to the server, a blocking
 * fetcher, and both sides against peers that do not keep to it. */
#include <arpa/inet.h>
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/fetch_room.h"
#include "peer/handshake.h"
#include "proto/frame.h"
#include "tests/lib/unit.h"

#define PART_SIZE (3U << 20)

struct holder {
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct mesh *mesh;
    struct fetch_server *server;
    char address[PEER_ADDRESS_SIZE];
    /* of the source */
    uint8_t digest[FETCH_DIGEST_SIZE];
    uint8_t *bytes;
    unsigned slow_ms;
    atomic_uint opened, closed;
};

static struct holder holder;

static int on_source_open(void *context, uint32_t node_id, const uint8_t digest[FETCH_DIGEST_SIZE],
                          const struct fetch_wait *wait, void **ret_served,
                          uint64_t *ret_manifest_size, uint64_t *ret_table_size, struct err *err)
{
    struct holder *h = context;
    ck_assert_uint_eq(node_id, 1);
    if (memcmp(digest, h->digest, FETCH_DIGEST_SIZE) != 0) {
        return err_set(err, ERR_NOT_FOUND, "there are no such data here");
    }
    for (unsigned slept = 0; slept < h->slow_ms; slept += 50) {
        (void)usleep(50000);
        if (!wait->on_wait(wait->context, slept, h->slow_ms)) {
            return err_set(err, ERR_CANCELED, "canceled");
        }
    }
    atomic_fetch_add(&h->opened, 1U);
    *ret_served = h;
    *ret_manifest_size = 1000;
    *ret_table_size = 64;
    return 0;
}

static int on_source_read(void *served, uint32_t part, uint64_t offset, void *bytes, size_t size,
                          struct err *err)
{
    const struct holder *h = served;
    if (part > 2 || offset > PART_SIZE || size > PART_SIZE - offset) {
        return err_set(err, ERR_PROTO, "%zu bytes at %llu of part %u are asked for", size,
                       (unsigned long long)offset, part);
    }
    memcpy(bytes, h->bytes + offset, size);
    return 0;
}

static void on_source_close(void *context, void *served)
{
    struct holder *h = context;
    ck_assert_ptr_eq(h, served);
    atomic_fetch_add(&h->closed, 1U);
}

static void on_data(void *context, const struct peer_incoming *incoming)
{
    struct holder *h = context;
    fetch_server_take(h->server, incoming);
}

static void on_up(void *context, uint32_t node, uint64_t incarnation)
{
    (void)context;
    (void)node;
    (void)incarnation;
}

static void on_down(void *context, uint32_t node, const char *reason)
{
    (void)context;
    (void)node;
    (void)reason;
}

static void on_message(void *context, uint32_t node, uint16_t kind, const uint8_t *bytes,
                       size_t size)
{
    (void)context;
    (void)node;
    (void)kind;
    (void)bytes;
    (void)size;
}

static void on_stop(uv_async_t *async)
{
    struct holder *h = async->data;
    mesh_close(h->mesh, NULL, NULL);
    fetch_server_free(h->server);
    uv_close((uv_handle_t *)async, NULL);
}

static void *holder_main(void *context)
{
    struct holder *h = context;
    ASSERT(uv_run(&h->loop, UV_RUN_DEFAULT) == 0);
    return NULL;
}

/* The fetcher's control connection comes up once: without one no data connection is let in. */
static void introduce(void)
{
    struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION,
                               .class = PEER_CONTROL,
                               .cluster = "test",
                               .node = "a",
                               .node_id = 1,
                               .incarnation = 3};
    struct buf body = BUF_NONE;
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    uint8_t answer[FRAME_HEADER_SIZE];
    int fd = -1;
    handshake_put_hello(&body, &hello);
    struct frame frame = {.kind = FRAME_HELLO, .body = body.bytes, .body_size = body.size};
    frame_write(&bytes, &frame);
    ck_assert_int_eq(peer_connect(holder.address, clock_now_ms() + 10000, &fd, &err), 0);
    ck_assert_int_eq(send(fd, bytes.bytes, bytes.size, 0), (ssize_t)bytes.size);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&readable, 1, 10000), 1);
    ck_assert_int_eq(recv(fd, answer, sizeof(answer), 0), sizeof(answer)); /* WELCOME */
    buf_done(&body);
    buf_done(&bytes);
    (void)close(fd);
}

static void start(uint32_t connections_max)
{
    struct err err = {0};
    static const struct mesh_peer peers[2] = {{1, 0, "a", "127.0.0.1:1"},
                                              {2, 0, "b", "127.0.0.1:2"}};
    struct mesh_settings mesh = {.cluster = "test",
                                 .name = "b",
                                 .node_id = 2,
                                 .incarnation = 5,
                                 .listen = "127.0.0.1:0",
                                 .peers = peers,
                                 .peers_count = 2,
                                 .context = &holder,
                                 .on_up = on_up,
                                 .on_down = on_down,
                                 .on_message = on_message,
                                 .on_data = on_data};
    struct fetch_server_settings settings = {
        .source = {&holder, on_source_open, on_source_read, on_source_close},
        .connections_max = connections_max,
        .idle_ms = 2000};
    holder.bytes = malloc(PART_SIZE);
    ck_assert_ptr_nonnull(holder.bytes);
    for (size_t i = 0; i < PART_SIZE; i++) {
        holder.bytes[i] = (uint8_t)(i * 31 + i / 251);
    }
    memset(holder.digest, 9, sizeof(holder.digest));
    holder.slow_ms = 0;
    atomic_store(&holder.opened, 0U);
    atomic_store(&holder.closed, 0U);
    ck_assert_int_eq(fetch_server_new(&settings, &holder.server, &err), 0);
    ck_assert_int_eq(uv_loop_init(&holder.loop), 0);
    ck_assert_int_eq(uv_async_init(&holder.loop, &holder.stop, on_stop), 0);
    holder.stop.data = &holder;
    ck_assert_msg(mesh_open(&mesh, &holder.loop, &holder.mesh, &err) == 0, "%s", err.text);
    (void)snprintf(holder.address, sizeof(holder.address), "127.0.0.1:%u",
                   (unsigned)mesh_port(holder.mesh));
    ck_assert_int_eq(pthread_create(&holder.thread, NULL, holder_main, &holder), 0);
    introduce();
}

static void stop(void)
{
    ck_assert_int_eq(uv_async_send(&holder.stop), 0);
    ck_assert_int_eq(pthread_join(holder.thread, NULL), 0);
    ck_assert_int_eq(uv_loop_close(&holder.loop), 0);
    ck_assert_uint_eq(atomic_load(&holder.opened), atomic_load(&holder.closed));
    free(holder.bytes);
}

static struct fetch_settings settings_of(const char *address)
{
    struct fetch_settings settings = {.cluster = "test",
                                      .node = "a",
                                      .node_id = 1,
                                      .incarnation = 3,
                                      .job = 4,
                                      .generation = 7,
                                      .holder = "b",
                                      .holder_id = 2,
                                      .address = address};
    memset(settings.digest, 9, sizeof(settings.digest));
    return settings;
}

/* What the holder counted when that many bytes were among it, or after 20 s: its thread counts an
 * answer when it is sent, so the fetcher may have all of it before. */
static struct fetch_server_stats heard(uint64_t bytes)
{
    struct fetch_server_stats stats;
    uint64_t end_ms = clock_now_ms() + 20000;
    do {
        fetch_server_stats(holder.server, &stats);
    } while (stats.bytes_out < bytes && clock_now_ms() < end_ms && usleep(2000) == 0);
    return stats;
}

START_TEST(bytes_come_in_order_with_several_requests_under_way)
{
    start(0);
    struct fetch_settings settings = settings_of(holder.address);
    struct fetch *fetch = NULL;
    struct err err = {0};
    ck_assert_msg(fetch_open(&settings, &fetch, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(fetch_manifest_size(fetch), 1000);
    ck_assert_uint_eq(fetch_table_size(fetch), 64);
    for (uint32_t i = 0; i < FETCH_WINDOW; i++) {
        ck_assert_int_eq(fetch_ask(fetch, 2, i * 7919U, 70000 + i, &err), 0);
    }
    for (uint32_t i = 0; i < FETCH_WINDOW; i++) {
        const uint8_t *bytes = NULL;
        uint32_t size = 0;
        ck_assert_msg(fetch_take(fetch, &bytes, &size, &err) == 0, "%s", err.text);
        ck_assert_uint_eq(size, 70000 + i);
        ck_assert_mem_eq(bytes, holder.bytes + i * 7919U, size);
    }
    uint8_t *whole = malloc(PART_SIZE);
    ck_assert_ptr_nonnull(whole);
    ck_assert_int_eq(fetch_whole(fetch, 1, whole, PART_SIZE, &err), 0);
    ck_assert_mem_eq(whole, holder.bytes, PART_SIZE);
    free(whole);
    fetch_close(fetch);
    struct fetch_server_stats stats = heard((uint64_t)PART_SIZE + FETCH_WINDOW * 70000ULL);
    ck_assert_uint_eq(stats.accepted, 1);
    ck_assert_uint_ge(stats.bytes_out, (uint64_t)PART_SIZE + FETCH_WINDOW * 70000ULL);
    stop();
}
END_TEST

START_TEST(a_holder_that_makes_its_table_first_is_waited_for)
{
    start(0);
    holder.slow_ms = 2600;
    struct fetch_settings settings = settings_of(holder.address);
    struct fetch *fetch = NULL;
    struct err err = {0};
    settings.silence_ms = 1800; /* WAIT comes each second. */
    ck_assert_msg(fetch_open(&settings, &fetch, &err) == 0, "%s", err.text);
    fetch_close(fetch);
    settings.wait_ms = 300;
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), ERR_TIMEOUT);
    ck_assert_msg(strstr(err.text, "data from node b: ") != NULL, "%s", err.text);
    stop();
}
END_TEST

START_TEST(data_that_are_not_there_are_refused_with_the_holders_sentence)
{
    start(0);
    struct fetch_settings settings = settings_of(holder.address);
    struct fetch *fetch = NULL;
    struct err err = {0};
    settings.digest[3] = 1;
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), ERR_NOT_FOUND);
    ck_assert_str_eq(err.text, "data from node b: there are no such data here");
    settings = settings_of(holder.address);
    settings.node = "nobody";
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), ERR_AUTH);
    settings = settings_of(holder.address);
    settings.holder = "c";
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(err.text, "node 'b' of cluster 'test' answers there"));
    settings = settings_of(holder.address);
    settings.holder_life = 1; /* the node that had its id later */
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(err.text, "(0 of id 2, not 1 of id 2)"));
    settings = settings_of(holder.address);
    settings.life = 1;
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(err.text, "has another identity here"));
    settings = settings_of(holder.address);
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), 0);
    const uint8_t *bytes = NULL;
    uint32_t size = 0;
    ck_assert_int_eq(fetch_ask(fetch, 2, PART_SIZE, 1, &err), 0);
    ck_assert_int_eq(fetch_take(fetch, &bytes, &size, &err), ERR_PROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "1 bytes at 3145728 of part 2 are asked for"));
    fetch_close(fetch);
    settings.address = "127.0.0.1:1";
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), ERR_REACH);
    stop();
}
END_TEST

START_TEST(who_finds_all_places_taken_comes_again)
{
    start(1);
    struct fetch_settings settings = settings_of(holder.address);
    struct fetch *first = NULL;
    struct fetch *second = NULL;
    struct err err = {0};
    ck_assert_int_eq(fetch_open(&settings, &first, &err), 0);
    settings.connect_ms = 700;
    ck_assert_int_eq(fetch_open(&settings, &second, &err), ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(err.text, "serves as many fetches as it may"));
    fetch_close(first);
    settings.connect_ms = 5000;
    ck_assert_msg(fetch_open(&settings, &second, &err) == 0, "%s", err.text);
    fetch_close(second);
    stop();
}
END_TEST

static void *cancel_later(void *context)
{
    (void)usleep(200000);
    atomic_store((atomic_bool *)context, true);
    return NULL;
}

START_TEST(a_canceled_fetch_ends_at_once)
{
    start(0);
    holder.slow_ms = 100000;
    atomic_bool cancel;
    atomic_init(&cancel, false);
    struct fetch_settings settings = settings_of(holder.address);
    struct fetch *fetch = NULL;
    struct err err = {0};
    pthread_t thread;
    settings.cancel = &cancel;
    uint64_t begin = clock_now_ms();
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel_later, &cancel), 0);
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), ERR_CANCELED);
    ck_assert_uint_lt(clock_now_ms() - begin, 50000);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    begin = clock_now_ms();
    stop(); /* The server's thread gives its own work up. */
    ck_assert_uint_lt(clock_now_ms() - begin, 50000);
}
END_TEST

/* ---- a fetcher that does not keep to it ---- */

static int dial(const char *address)
{
    struct sockaddr_in to;
    struct err err = {0};
    struct timeval limit = {5, 0};
    ck_assert_int_eq(peer_address_parse(address, &to, &err), 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void say(int fd, uint16_t kind, uint64_t generation, uint64_t sequence,
                const struct buf *body)
{
    struct buf bytes = BUF_NONE;
    struct frame frame = {.kind = kind,
                          .generation = generation,
                          .sequence = sequence,
                          .body = body->bytes,
                          .body_size = body->size};
    frame_write(&bytes, &frame);
    ck_assert_int_eq(send(fd, bytes.bytes, bytes.size, MSG_NOSIGNAL), (ssize_t)bytes.size);
    buf_done(&bytes);
}

static void say_hello(int fd)
{
    struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION,
                               .class = PEER_DATA,
                               .cluster = "test",
                               .node = "a",
                               .node_id = 1,
                               .incarnation = 3,
                               .generation = 7};
    struct buf body = BUF_NONE;
    memset(hello.identity, 9, sizeof(hello.identity));
    handshake_put_hello(&body, &hello);
    say(fd, FRAME_HELLO, 7, 0, &body);
    buf_done(&body);
}

/* Reads to the end; the kind of the last whole frame. */
static uint16_t hear_to_the_end(int fd)
{
    struct buf bytes = BUF_NONE;
    uint16_t last = 0;
    size_t at = 0;
    for (;;) {
        buf_reserve(&bytes, 65536);
        ssize_t got = recv(fd, bytes.bytes + bytes.size, 65536, 0);
        ck_assert_msg(got >= 0, "the server did not close");
        if (got == 0) {
            break;
        }
        bytes.size += (size_t)got;
    }
    for (;;) {
        struct frame frame;
        struct err err = {0};
        size_t used = 0;
        ck_assert_int_eq(
            frame_parse(bytes.bytes + at, bytes.size - at, FRAME_LIMIT_BULK, &frame, &used, &err),
            0);
        if (used == 0) {
            break;
        }
        at += used;
        last = frame.kind;
    }
    buf_done(&bytes);
    return last;
}

START_TEST(a_fetcher_that_sends_nonsense_is_told_and_cut)
{
    start(0);
    struct {
        uint16_t kind;
        uint64_t generation;
        uint32_t size; /* asked for */
        size_t cut;    /* bytes of the body */
    } wrong[] = {{PEER_FETCH_DATA, 7, 100, 16}, {PEER_FETCH_READ, 8, 100, 16},
                 {PEER_FETCH_READ, 7, 0, 16},   {PEER_FETCH_READ, 7, FETCH_SIZE_MAX + 1, 16},
                 {PEER_FETCH_READ, 7, 100, 15}, {PEER_FETCH_READ, 7, 100, 0}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct buf body = BUF_NONE;
        int fd = dial(holder.address);
        say_hello(fd);
        /* The dialer waits for WELCOME before it says more. */
        uint8_t peek = 0;
        ck_assert_int_eq(recv(fd, &peek, 1, MSG_PEEK), 1);
        buf_put_u32(&body, 2);
        buf_put_u32(&body, wrong[i].size);
        buf_put_u64(&body, 0);
        body.size = wrong[i].cut;
        say(fd, wrong[i].kind, wrong[i].generation, 0, &body);
        ck_assert_msg(hear_to_the_end(fd) == PEER_BYE, "%zu", i);
        (void)close(fd);
        buf_done(&body);
    }
    /* One that asks and does not read, and one that says nothing, are cut after idle_ms. */
    struct buf body = BUF_NONE;
    int greedy = dial(holder.address);
    say_hello(greedy);
    uint8_t peek = 0;
    ck_assert_int_eq(recv(greedy, &peek, 1, MSG_PEEK), 1);
    buf_put_u32(&body, 2);
    buf_put_u32(&body, FETCH_SIZE_MAX);
    buf_put_u64(&body, 0);
    for (unsigned i = 0; i < 64; i++) {
        say(greedy, PEER_FETCH_READ, 7, i, &body);
    }
    int silent = dial(holder.address);
    say_hello(silent);
    ck_assert_int_eq(hear_to_the_end(silent), PEER_BYE);
    for (unsigned tries = 0; tries < 100; tries++) {
        struct fetch_server_stats stats;
        fetch_server_stats(holder.server, &stats);
        if (stats.serving == 0) {
            break;
        }
        ck_assert_uint_lt(tries, 99);
        (void)usleep(100000);
    }
    (void)close(greedy);
    (void)close(silent);
    buf_done(&body);
    struct fetch_settings settings = settings_of(holder.address);
    struct fetch *fetch = NULL;
    struct err err = {0};
    ck_assert_int_eq(fetch_open(&settings, &fetch, &err), 0); /* It serves others still. */
    fetch_close(fetch);
    stop();
}
END_TEST

/* ---- a holder that does not keep to it ---- */

struct liar {
    int listener;
    char address[PEER_ADDRESS_SIZE];
    unsigned lie;
};

enum {
    LIE_SILENT,
    LIE_CLOSE,
    LIE_ABOUT,
    LIE_KIND,
    LIE_SEQUENCE,
    LIE_SIZE,
    LIE_CHECK,
    LIE_DRIP,
    LIES
};

static void *liar_main(void *context)
{
    struct liar *liar = context;
    int fd = accept(liar->listener, NULL, NULL);
    struct peer_hello self = {
        .protocol = FRAME_PROTOCOL_VERSION, .cluster = "test", .node = "b", .node_id = 2};
    struct buf body = BUF_NONE;
    uint8_t bytes[4096];
    ASSERT(fd >= 0);
    ASSERT(recv(fd, bytes, sizeof(bytes), 0) > 0);
    handshake_put_welcome(&body, &self);
    say(fd, FRAME_WELCOME, 7, 0, &body);
    buf_clear(&body);
    buf_put_u64(&body, liar->lie == LIE_ABOUT ? FETCH_MANIFEST_MAX + 1 : 10);
    buf_put_u64(&body, 10);
    say(fd, PEER_FETCH_ABOUT, 7, 0, &body);
    while (liar->lie != LIE_ABOUT && recv(fd, bytes, sizeof(bytes), MSG_PEEK) < 48) {
        (void)usleep(1000);
    }
    if (liar->lie != LIE_ABOUT) {
        ASSERT(recv(fd, bytes, sizeof(bytes), 0) >= 48); /* A close then is an end, not a reset. */
    }
    buf_clear(&body);
    buf_put(&body, bytes, liar->lie == LIE_SIZE ? 99 : 100);
    if (liar->lie == LIE_CHECK || liar->lie == LIE_DRIP) {
        uint8_t header[FRAME_HEADER_SIZE];
        struct frame_part part = {body.bytes, body.size};
        frame_header_make(header, PEER_FETCH_DATA, 0, 7, 0, &part, 1);
        for (unsigned i = 0; i < 30 && liar->lie == LIE_DRIP; i++) {
            if (send(fd, header + i, 1, MSG_NOSIGNAL) != 1) {
                break;
            }
            (void)usleep(100000);
        }
        body.bytes[50] ^= 1;
        (void)send(fd, header, sizeof(header), MSG_NOSIGNAL);
        (void)send(fd, body.bytes, body.size, MSG_NOSIGNAL);
    } else if (liar->lie == LIE_KIND || liar->lie == LIE_SEQUENCE || liar->lie == LIE_SIZE) {
        say(fd, liar->lie == LIE_KIND ? PEER_FETCH_READ : PEER_FETCH_DATA, 7,
            liar->lie == LIE_SEQUENCE ? 1 : 0, &body);
    } else if (liar->lie == LIE_SILENT) {
        (void)usleep(1500000);
    }
    (void)usleep(100000);
    (void)close(fd);
    buf_done(&body);
    return NULL;
}

START_TEST(a_holder_that_lies_is_named_and_left)
{
    static const struct {
        int code;
        const char *text;
    } ends[LIES] = {[LIE_SILENT] = {ERR_TIMEOUT, "it is silent: nothing came for"},
                    [LIE_CLOSE] = {ERR_PEER, "closed the connection"},
                    [LIE_ABOUT] = {ERR_PROTO, "a manifest of 262145 and a table of 10 bytes"},
                    [LIE_KIND] = {ERR_PROTO, "a frame of kind 25"},
                    [LIE_SEQUENCE] = {ERR_PROTO, "number 1 and 100 bytes came; answer 0"},
                    [LIE_SIZE] = {ERR_PROTO, "99 bytes came; answer 0 of 100 was due"},
                    [LIE_CHECK] = {ERR_PROTO, "check"},
                    [LIE_DRIP] = {ERR_TIMEOUT, "it took too long"}};
    for (unsigned lie = 0; lie < LIES; lie++) {
        struct liar liar = {.lie = lie};
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(at);
        pthread_t thread;
        liar.listener = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(bind(liar.listener, (struct sockaddr *)&at, sizeof(at)), 0);
        ck_assert_int_eq(listen(liar.listener, 1), 0);
        ck_assert_int_eq(getsockname(liar.listener, (struct sockaddr *)&at, &size), 0);
        (void)snprintf(liar.address, sizeof(liar.address), "127.0.0.1:%u", ntohs(at.sin_port));
        ck_assert_int_eq(pthread_create(&thread, NULL, liar_main, &liar), 0);
        struct fetch_settings settings = settings_of(liar.address);
        struct fetch *fetch = NULL;
        struct err err = {0};
        const uint8_t *bytes = NULL;
        uint32_t got = 0;
        settings.silence_ms = 700;
        settings.answer_ms = 1500;
        int code = fetch_open(&settings, &fetch, &err);
        if (code == 0) {
            ck_assert_int_eq(fetch_ask(fetch, 0, 0, 100, &err), 0);
            code = fetch_take(fetch, &bytes, &got, &err);
        }
        ck_assert_msg(code == ends[lie].code && strstr(err.text, ends[lie].text) != NULL &&
                          strstr(err.text, "data from node b: ") == err.text,
                      "%u: %d %s", lie, code, err.text);
        fetch_close(fetch);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        (void)close(liar.listener);
    }
}
END_TEST

Suite *unit_suite(void);

Suite *unit_suite(void)
{
    Suite *suite = suite_create("fetch");
    TCase *tests = tcase_create("fetch");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, bytes_come_in_order_with_several_requests_under_way);
    tcase_add_test(tests, a_holder_that_makes_its_table_first_is_waited_for);
    tcase_add_test(tests, data_that_are_not_there_are_refused_with_the_holders_sentence);
    tcase_add_test(tests, who_finds_all_places_taken_comes_again);
    tcase_add_test(tests, a_canceled_fetch_ends_at_once);
    tcase_add_test(tests, a_fetcher_that_sends_nonsense_is_told_and_cut);
    tcase_add_test(tests, a_holder_that_lies_is_named_and_left);
    suite_add_tcase(suite, tests);
    return suite;
}
