/* A look at the line to another node: a real mesh that hands connections to the server, rounds of
 * real threads, plain and over TLS; and both sides against others that do not keep to it. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/assert.h"
#include "base/clock.h"
#include "peer/address.h"
#include "peer/probe_room.h"
#include "tests/lib/trust_files.h"
#include "tests/lib/unit.h"

#define RESULTS_MAX 8

struct asked { /* a node b that is looked at */
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct mesh *mesh;
    struct probe_server *server;
    char address[PEER_ADDRESS_SIZE];
};

static struct asked asked;
static struct trust *trusts[2]; /* NULL: plain text */
static struct test_folder folder;

struct results {
    pthread_mutex_t lock;
    pthread_cond_t came;
    size_t count;
    struct probe_result list[RESULTS_MAX];
    uint64_t at_ms[RESULTS_MAX];
};
static struct results results = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                 .came = PTHREAD_COND_INITIALIZER};

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

static void on_probe(void *context, const struct peer_incoming *incoming)
{
    const struct asked *a = context;
    probe_server_take(a->server, incoming);
}

static void on_stop(uv_async_t *async)
{
    struct asked *a = async->data;
    mesh_close(a->mesh, NULL, NULL);
    probe_server_free(a->server);
    uv_close((uv_handle_t *)async, NULL);
}

static void *asked_main(void *context)
{
    struct asked *a = context;
    ASSERT(uv_run(&a->loop, UV_RUN_DEFAULT) == 0);
    return NULL;
}

static void start(bool secure)
{
    static const struct mesh_peer peers[2] = {{1, 0, "a", "127.0.0.1:1"},
                                              {2, 0, "b", "127.0.0.1:2"}};
    static const char *const names[2] = {"a", "b"};
    struct err err = {0};
    if (secure) {
        trust_open_nodes(&folder, "test", names, 2, trusts);
    }
    struct mesh_settings mesh = {.cluster = "test",
                                 .name = "b",
                                 .node_id = 2,
                                 .incarnation = 5,
                                 .listen = "127.0.0.1:0",
                                 .peers = peers,
                                 .peers_count = 2,
                                 .trust = trusts[1],
                                 .context = &asked,
                                 .on_up = on_up,
                                 .on_down = on_down,
                                 .on_message = on_message,
                                 .on_probe = on_probe};
    ck_assert_int_eq(probe_server_new(&asked.server, &err), 0);
    ck_assert_int_eq(uv_loop_init(&asked.loop), 0);
    ck_assert_int_eq(uv_async_init(&asked.loop, &asked.stop, on_stop), 0);
    asked.stop.data = &asked;
    ck_assert_msg(mesh_open(&mesh, &asked.loop, &asked.mesh, &err) == 0, "%s", err.text);
    (void)snprintf(asked.address, sizeof(asked.address), "127.0.0.1:%u",
                   (unsigned)mesh_port(asked.mesh));
    ck_assert_int_eq(pthread_create(&asked.thread, NULL, asked_main, &asked), 0);
}

static void stop(void)
{
    ck_assert_int_eq(uv_async_send(&asked.stop), 0);
    ck_assert_int_eq(pthread_join(asked.thread, NULL), 0);
    ck_assert_int_eq(uv_loop_close(&asked.loop), 0);
    if (trusts[0] != NULL) {
        trust_free(trusts[0]);
        trust_free(trusts[1]);
        test_folder_close(&folder);
    }
    trusts[0] = trusts[1] = NULL;
}

static void on_result(void *context, size_t index, const struct probe_result *result)
{
    struct results *to = context;
    ck_assert_uint_lt(index, RESULTS_MAX);
    ck_assert_int_eq(pthread_mutex_lock(&to->lock), 0);
    to->list[index] = *result;
    to->at_ms[index] = clock_now_ms();
    to->count++;
    ck_assert_int_eq(pthread_cond_signal(&to->came), 0);
    ck_assert_int_eq(pthread_mutex_unlock(&to->lock), 0);
}

static uint32_t patience = 20; /* the machine may be busy */

/* A round, until all results are there. */
static void look(const struct probe_target *targets, size_t count)
{
    struct probe_settings settings = {.cluster = "test",
                                      .node = "a",
                                      .node_id = 1,
                                      .incarnation = 3,
                                      .trust = trusts[0],
                                      .patience = patience,
                                      .context = &results,
                                      .on_result = on_result};
    struct probe_round *round = NULL;
    struct err err = {0};
    results.count = 0;
    ck_assert_msg(probe_round_new(&settings, targets, count, &round, &err) == 0, "%s", err.text);
    ck_assert_int_eq(pthread_mutex_lock(&results.lock), 0);
    while (results.count < count) {
        (void)pthread_cond_wait(&results.came, &results.lock);
    }
    ck_assert_int_eq(pthread_mutex_unlock(&results.lock), 0);
    probe_round_free(round);
}

static void measured(bool secure)
{
    start(secure);
    struct probe_target target = {2, 0, "b", asked.address};
    look(&target, 1);
    const struct probe_result *result = &results.list[0];
    ck_assert_msg(result->err.code == 0, "%s", result->err.text);
    ck_assert_int_eq(result->step, PROBE_DONE);
    ck_assert(result->sealed == secure);
    ck_assert_uint_gt(result->round_trip_ns, 0);
    ck_assert_uint_lt(result->round_trip_ns, UINT64_C(60000000000));
    ck_assert_uint_gt(result->bytes_per_s, 0); /* whatever else the machine does */
    ck_assert_uint_lt(result->bytes_per_s, UINT64_C(1000000000000));
    ck_assert_uint_ge(result->bytes, PROBE_LEAST);
    ck_assert_uint_le(result->bytes, PROBE_BYTES_LOOPBACK);
    struct probe_server_stats stats;
    probe_server_stats(asked.server, &stats);
    ck_assert_uint_eq(stats.accepted, 1);
    ck_assert_uint_eq(stats.bytes_in, result->bytes);
    stop();
}

START_TEST(a_line_has_a_round_trip_and_a_rate)
{
    measured(false);
}
END_TEST

START_TEST(a_line_is_looked_at_over_tls_where_that_is_on)
{
    measured(true);
}
END_TEST

START_TEST(who_cannot_be_reached_or_is_another_is_told_by_the_step)
{
    start(false);
    struct probe_target other = {2, 1, "b", asked.address};
    struct probe_target targets[2] = {{2, 0, "b", "127.0.0.1:1"}, {2, 0, "c", asked.address}};
    struct probe_target right = {2, 0, "b", asked.address};
    look(&other, 1); /* the identity that has its id later */
    ck_assert_int_eq(results.list[0].step, PROBE_GREET);
    ck_assert_int_eq(results.list[0].err.code, ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(results.list[0].err.text, "(0 of id 2, not 1 of id 2)"));
    look(targets, 2);
    ck_assert_int_eq(results.list[0].step, PROBE_CONNECT);
    ck_assert_int_eq(results.list[0].err.code, ERR_REACH);
    ck_assert(!results.list[0].late);
    ck_assert_ptr_nonnull(strstr(results.list[0].err.text, "127.0.0.1:1: Connection refused"));
    ck_assert_int_eq(results.list[1].step, PROBE_GREET);
    ck_assert_int_eq(results.list[1].err.code, ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(results.list[1].err.text, "node 'b' of cluster 'test' answers"));
    look(&right, 1); /* By itself: of two looks of one node the later replaces the other. */
    ck_assert_msg(results.list[0].step == PROBE_DONE, "%s", results.list[0].err.text);
    stop();
}
END_TEST

/* A port that takes connections into its queue and never speaks. */
static int mute(char address[PEER_ADDRESS_SIZE])
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(any);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
    ck_assert_int_eq(listen(fd, 64), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&any, &size), 0);
    address_print(&any, address);
    return fd;
}

START_TEST(silent_nodes_do_not_keep_the_others_waiting_and_a_round_ends_in_time)
{
    start(false);
    char address[PEER_ADDRESS_SIZE];
    int fd = mute(address);
    struct probe_target targets[7];
    for (size_t i = 0; i < 7; i++) {
        targets[i] = (struct probe_target){2, 0, "b", address};
    }
    targets[6].address = asked.address;
    patience = 3; /* 9 s for who speaks, and the silent ones are given up after as many. */
    uint64_t begin_ms = clock_now_ms();
    look(targets, 7);
    patience = 20;
    ck_assert_uint_lt(clock_now_ms() - begin_ms, 100000);
    for (size_t i = 0; i < 6; i++) {
        ck_assert_int_eq(results.list[i].step, PROBE_GREET);
        ck_assert(results.list[i].late);
        ck_assert_int_eq(results.list[i].err.code, ERR_TIMEOUT);
    }
    ck_assert_msg(results.list[6].err.code == 0, "%s", results.list[6].err.text);
    ck_assert_uint_lt(results.at_ms[6], results.at_ms[0]);
    (void)close(fd);
    stop();
}
END_TEST

START_TEST(a_round_that_is_given_up_ends_at_once)
{
    char address[PEER_ADDRESS_SIZE];
    int fd = mute(address);
    struct probe_target target = {2, 0, "b", address};
    struct probe_settings settings = {.cluster = "test",
                                      .node = "a",
                                      .node_id = 1,
                                      .patience = 30,
                                      .context = &results,
                                      .on_result = on_result};
    struct probe_round *round = NULL;
    struct err err = {0};
    results.count = 0;
    ck_assert_int_eq(probe_round_new(&settings, &target, 1, &round, &err), 0);
    uint64_t begin_ms = clock_now_ms();
    probe_round_free(round);
    ck_assert_uint_lt(clock_now_ms() - begin_ms, 60000); /* Its deadline is 90 s away. */
    ck_assert_uint_eq(results.count, 1);
    ck_assert_int_eq(results.list[0].err.code, ERR_CANCELED);
    (void)close(fd);
}
END_TEST

START_TEST(a_node_that_looks_too_often_is_told_to_come_later)
{
    start(false);
    struct err err = {0};
    unsigned refused = 0;
    for (unsigned i = 0; i < PROBE_BURST + 4; i++) {
        struct wire wire = {.silence_ms = 20000};
        struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION,
                                   .class = PEER_PROBE,
                                   .cluster = "test",
                                   .node = "a",
                                   .node_id = 1};
        bool again = false;
        int fd = -1;
        uint64_t deadline_ms = clock_now_ms() + 20000;
        ck_assert_int_eq(wire_connect(asked.address, NULL, deadline_ms, &fd, &err), 0);
        transport_plain(&wire.transport, fd);
        int code =
            wire_greet(&wire, &hello, &(struct wire_node){"b", 2, 0}, deadline_ms, &again, &err);
        ck_assert_msg(code == 0 || code == ERR_BUSY, "%s", err.text);
        refused += code == ERR_BUSY;
        ck_assert(code == 0 || again);
        err = (struct err){0};
        wire_done(&wire);
    }
    ck_assert_uint_ge(refused, 1);
    struct probe_server_stats stats;
    probe_server_stats(asked.server, &stats);
    ck_assert_uint_eq(stats.refused, refused);
    ck_assert_uint_le(stats.serving, PROBE_BURST);
    stop();
}
END_TEST

/* ---- against others that do not keep to it: a script in one end, our side at the other ---- */

static int pair[2];
static struct wire wire;

static void open_pair(void)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    wire = (struct wire){.silence_ms = 20000};
    transport_plain(&wire.transport, pair[0]);
}

static void close_pair(void)
{
    wire_done(&wire);
    (void)close(pair[1]);
}

static void say(uint16_t kind, uint64_t sequence, const void *body, size_t size)
{
    struct buf bytes = BUF_NONE;
    struct frame frame = {.kind = kind, .sequence = sequence, .body = body, .body_size = size};
    frame_write(&bytes, &frame);
    ck_assert_int_eq(send(pair[1], bytes.bytes, bytes.size, MSG_NOSIGNAL), (ssize_t)bytes.size);
    buf_done(&bytes);
}

static int serve(struct err *err, uint64_t *ret_bytes)
{
    _Atomic uint64_t bytes_in = 0;
    uint8_t *buffer = malloc(PROBE_PIECE_SIZE);
    ck_assert_ptr_nonnull(buffer);
    ck_assert_int_eq(shutdown(pair[1], SHUT_WR), 0);
    int code = probe_serve(&wire, buffer, &bytes_in, err);
    free(buffer);
    *ret_bytes = atomic_load(&bytes_in);
    return code;
}

static void say_begin(uint32_t bytes, uint32_t ms)
{
    uint8_t body[8];
    memcpy(body, &bytes, 4);
    memcpy(body + 4, &ms, 4);
    say(PEER_PROBE_BEGIN, 0, body, sizeof(body));
}

START_TEST(whoever_asks_for_more_than_may_be_is_cut)
{
    static const uint8_t data[4096];
    uint64_t bytes = 0;
    const struct {
        uint32_t bytes, ms;
        int code;
    } begins[] = {{0, 100, ERR_PROTO},
                  {PROBE_BYTES_MAX + 1, 100, ERR_PROTO},
                  {UINT32_MAX, UINT32_MAX, ERR_PROTO},
                  {1000, 0, ERR_PROTO},
                  {1000, PROBE_MS_MAX + 1, ERR_PROTO}};
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        struct err err = {0};
        open_pair();
        say_begin(begins[i].bytes, begins[i].ms);
        ck_assert_msg(serve(&err, &bytes) == begins[i].code, "%zu: %s", i, err.text);
        close_pair();
    }
    struct err err = {0};
    open_pair(); /* more than it said */
    say_begin(5000, 100);
    say(PEER_PROBE_DATA, 0, data, 4096);
    say(PEER_PROBE_DATA, 1, data, 4096);
    ck_assert_int_eq(serve(&err, &bytes), ERR_PROTO);
    ck_assert_uint_le(bytes, 5000);
    close_pair();
    err = (struct err){0};
    open_pair(); /* pings without end */
    for (uint32_t i = 0; i <= PROBE_PINGS_MAX; i++) {
        say(PEER_PROBE_PING, i, data, PROBE_PING_SIZE);
    }
    ck_assert_int_eq(serve(&err, &bytes), ERR_PROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "behind 33 pings"));
    close_pair();
    const struct {
        uint16_t kind;
        size_t size;
    } wrong[] = {{PEER_PROBE_PING, 9}, {PEER_PROBE_PING, 0},   {PEER_PROBE_DATA, 100},
                 {PEER_VALUES, 8},     {PEER_PROBE_BEGIN, 16}, {PEER_FETCH_READ, 16}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        err = (struct err){0};
        open_pair();
        say(wrong[i].kind, 0, data, wrong[i].size);
        ck_assert_msg(serve(&err, &bytes) == ERR_PROTO, "%zu: %s", i, err.text);
        close_pair();
    }
}
END_TEST

START_TEST(whoever_is_asked_sends_no_more_than_it_gets)
{
    static const uint8_t data[PROBE_PIECE_SIZE];
    struct err err = {0};
    uint64_t bytes = 0;
    uint8_t heard[4096];
    open_pair();
    for (uint32_t i = 0; i < PROBE_PINGS_MAX; i++) {
        say(PEER_PROBE_PING, i, data, PROBE_PING_SIZE);
    }
    say_begin(8192, 400);
    say(PEER_PROBE_DATA, 0, data, 8192);
    ck_assert_msg(serve(&err, &bytes) == 0, "%s", err.text);
    ck_assert_uint_eq(bytes, 8192);
    ssize_t got = recv(pair[1], heard, sizeof(heard), 0);
    ck_assert_int_eq(got, (ssize_t)(PROBE_PINGS_MAX * (FRAME_HEADER_SIZE + PROBE_PING_SIZE) +
                                    FRAME_HEADER_SIZE + PROBE_GOT_SIZE));
    close_pair();
    open_pair(); /* It does not wait for what does not come. */
    say_begin(PROBE_BYTES_MAX, 100);
    say(PEER_PROBE_DATA, 0, data, 1024);
    uint64_t begin_ms = clock_now_ms();
    uint8_t *buffer = malloc(PROBE_PIECE_SIZE);
    _Atomic uint64_t bytes_in = 0;
    ck_assert_int_eq(probe_serve(&wire, buffer, &bytes_in, &err), 0);
    ck_assert_uint_ge(clock_now_ms() - begin_ms, PROBE_SLOW_MS);
    ck_assert_uint_eq(atomic_load(&bytes_in), 1024);
    free(buffer);
    close_pair();
}
END_TEST

static int put_with(const uint64_t got[4], struct probe_result *result, struct err *err)
{
    static const uint8_t pattern[PROBE_PIECE_SIZE];
    *result = (struct probe_result){0};
    *err = (struct err){0};
    open_pair();
    say(PEER_PROBE_GOT, 0, got, PROBE_GOT_SIZE);
    int code = probe_put(&wire, pattern, 16384, 200, clock_now_ms() + 20000, result, err);
    close_pair();
    return code;
}

START_TEST(an_account_that_cannot_be_is_refused_and_small_packets_alone_are_a_hole)
{
    struct probe_result result;
    struct err err;
    ck_assert_int_eq(put_with((const uint64_t[4]){16384, 2000, 8192, 1000}, &result, &err), 0);
    ck_assert_int_eq(result.step, PROBE_DONE);
    ck_assert_uint_eq(result.bytes, 16384);
    ck_assert_uint_eq(result.bytes_per_s, UINT64_C(8192000000));
    const uint64_t wrong[][4] = {{16385, 1000, 100, 100},           /* more than was sent */
                                 {UINT64_MAX, 1, UINT64_MAX, 1},    /* likewise */
                                 {1000, 1000, 1001, 100},           /* the part more than all */
                                 {16384, 1000, 16384, UINT64_MAX}}; /* likewise, time */
    for (size_t i = 0; i < 4; i++) {
        ck_assert_msg(put_with(wrong[i], &result, &err) == ERR_PROTO, "%zu", i);
        ck_assert_int_eq(result.step, PROBE_PUT);
    }
    /* A clock that stands still, or runs ahead of ours: ours counts. */
    ck_assert_int_eq(put_with((const uint64_t[4]){16384, 0, 16384, 0}, &result, &err), 0);
    ck_assert_uint_lt(result.bytes_per_s, UINT64_C(16384000000000));
    ck_assert_int_eq(
        put_with((const uint64_t[4]){16384, UINT64_MAX, 16384, UINT64_MAX}, &result, &err), 0);
    ck_assert_uint_gt(result.bytes_per_s, 0);
    for (uint64_t bytes = 0; bytes <= 1024; bytes += 1024) {
        ck_assert_int_eq(put_with((const uint64_t[4]){bytes, 2000, bytes, 2000}, &result, &err),
                         ERR_TIMEOUT);
        ck_assert(result.holes);
        ck_assert_ptr_nonnull(strstr(err.text, "small packets pass"));
    }
    ck_assert_int_eq(put_with((const uint64_t[4]){3072, 2000, 3072, 2000}, &result, &err), 0);
    ck_assert(!result.holes); /* only slow */
    /* A pong that is not what was sent. */
    open_pair();
    say(PEER_PROBE_PONG, 0, "????????", PROBE_PING_SIZE);
    err = (struct err){0};
    ck_assert_int_eq(
        probe_pings(&wire, clock_now_ms() + 100, clock_now_ms() + 20000, &result, &err), ERR_PROTO);
    ck_assert_int_eq(result.step, PROBE_PING);
    close_pair();
}
END_TEST

START_TEST(the_line_is_had_in_turns_by_the_first_that_wait)
{
    struct probe_turns turns = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};
    uint64_t begin_ms = clock_now_ms();
    probe_turn_take(&turns, 3, 60000, begin_ms + 60000);
    turns.waits[1] = true; /* Another one waits, and comes first: 2 goes on at its deadline. */
    probe_turn_take(&turns, 2, 60000, begin_ms + 200);
    ck_assert_uint_ge(clock_now_ms() - begin_ms, 200);
    probe_turn_give(&turns, 3); /* Its slot is not its own any more. */
    ck_assert_uint_gt(turns.free_ms, 0);
    probe_turn_give(&turns, 2);
    ck_assert_uint_eq(turns.free_ms, 0);
    probe_turn_take(&turns, 1, 300, begin_ms + 60000);
    uint64_t taken_ms = clock_now_ms();
    probe_turn_take(&turns, 0, 300, begin_ms + 60000); /* 1 does not give: its slot ends. */
    ck_assert_uint_ge(clock_now_ms() - taken_ms, 250);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("probe");
    TCase *tcase = tcase_create("probe");
    tcase_add_test(tcase, a_line_has_a_round_trip_and_a_rate);
    tcase_add_test(tcase, a_line_is_looked_at_over_tls_where_that_is_on);
    tcase_add_test(tcase, who_cannot_be_reached_or_is_another_is_told_by_the_step);
    tcase_add_test(tcase, silent_nodes_do_not_keep_the_others_waiting_and_a_round_ends_in_time);
    tcase_add_test(tcase, a_round_that_is_given_up_ends_at_once);
    tcase_add_test(tcase, a_node_that_looks_too_often_is_told_to_come_later);
    tcase_add_test(tcase, whoever_asks_for_more_than_may_be_is_cut);
    tcase_add_test(tcase, whoever_is_asked_sends_no_more_than_it_gets);
    tcase_add_test(tcase, an_account_that_cannot_be_is_refused_and_small_packets_alone_are_a_hole);
    tcase_add_test(tcase, the_line_is_had_in_turns_by_the_first_that_wait);
    suite_add_tcase(suite, tcase);
    return suite;
}
