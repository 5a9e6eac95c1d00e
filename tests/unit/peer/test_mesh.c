#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "peer/handshake.h"
#include "peer/peer.h"
#include "proto/frame.h"
#include "tests/lib/ports.h"
#include "tests/lib/unit.h"

#define KIND      300
#define NODES_MAX 3

/* Nodes of one process, on one loop, on 127.0.0.1. */
struct node {
    struct mesh *mesh;
    uint32_t id;
    int ups, downs;
    uint32_t up_of;
    char reason[ERR_TEXT_SIZE];
    int messages;
    uint32_t from;
    uint8_t last[64];
    size_t last_size;
    int bulk, ctl;
    struct peer_incoming incoming;
};

static uv_loop_t loop;
static uint64_t later; /* starts of the peers after their first */
static struct node nodes[NODES_MAX];

static void on_up(void *context, uint32_t node_id, uint64_t incarnation)
{
    struct node *node = context;
    ck_assert_uint_eq(incarnation, 1000 + node_id + later);
    node->ups++;
    node->up_of = node_id;
}

static void on_down(void *context, uint32_t node_id, const char *reason)
{
    struct node *node = context;
    (void)node_id;
    node->downs++;
    (void)snprintf(node->reason, sizeof(node->reason), "%s", reason);
}

static void on_message(void *context, uint32_t node_id, uint16_t kind, const uint8_t *bytes,
                       size_t size)
{
    struct node *node = context;
    ck_assert_uint_eq(kind, KIND);
    node->messages++;
    node->from = node_id;
    node->last_size = size;
    memcpy(node->last, bytes, size < sizeof(node->last) ? size : sizeof(node->last));
}

static void on_bulk(void *context, const struct peer_incoming *incoming)
{
    struct node *node = context;
    node->bulk++;
    node->incoming = *incoming;
}

static void on_ctl(void *context, const struct peer_incoming *incoming)
{
    struct node *node = context;
    node->ctl++;
    node->incoming = *incoming;
}

static struct mesh_peer peers[NODES_MAX];
static char addresses[NODES_MAX][32];
static const char *const names[NODES_MAX] = {"a", "b", "c"};

static void set_up(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    memset(nodes, 0, sizeof(nodes));
    later = 0;
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        (void)snprintf(addresses[i], sizeof(addresses[i]), "127.0.0.1:%u", test_port());
        peers[i] = (struct mesh_peer){.node_id = i + 1, .name = names[i], .address = addresses[i]};
    }
}

static struct mesh_settings settings_of(size_t i, size_t count)
{
    return (struct mesh_settings){
        .cluster = "test",
        .name = names[i],
        .node_id = peers[i].node_id,
        .incarnation = 1000 + peers[i].node_id,
        .listen = addresses[i],
        .peers = peers,
        .peers_count = count,
        .silence_ms = 700,
        .context = &nodes[i],
        .on_up = on_up,
        .on_down = on_down,
        .on_message = on_message,
        .on_bulk = on_bulk,
        .on_ctl = on_ctl,
        .on_data = on_bulk,
    };
}

static void start(size_t i, size_t count)
{
    struct err err = {0};
    struct mesh_settings settings = settings_of(i, count);
    ck_assert_msg(mesh_open(&settings, &loop, &nodes[i].mesh, &err) == 0, "%s", err.text);
    ck_assert_uint_ne(mesh_port(nodes[i].mesh), 0);
}

static void stop(size_t i)
{
    if (nodes[i].mesh != NULL) {
        mesh_close(nodes[i].mesh, NULL, NULL);
        nodes[i].mesh = NULL;
    }
}

static void tear_down(void)
{
    for (size_t i = 0; i < NODES_MAX; i++) {
        stop(i);
    }
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void on_nothing(uv_timer_t *timer)
{
    (void)timer;
}

/* Runs the loop until *at reaches wanted; the test fails after ten times so many milliseconds, for
 * the machine may be busy. */
static void run_until(const int *at, int wanted, uint64_t timeout_ms)
{
    uint64_t end_ms = clock_now_ms() + 10 * timeout_ms;
    uv_timer_t timer;
    ck_assert_int_eq(uv_timer_init(&loop, &timer), 0);
    ck_assert_int_eq(uv_timer_start(&timer, on_nothing, 5, 5), 0);
    while (*at < wanted && clock_now_ms() < end_ms) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_ge(*at, wanted);
}

static void run_for(uint64_t time_ms)
{
    const int never = 0;
    uint64_t end_ms = clock_now_ms() + time_ms;
    uv_timer_t timer;
    ck_assert_int_eq(uv_timer_init(&loop, &timer), 0);
    ck_assert_int_eq(uv_timer_start(&timer, on_nothing, 5, 5), 0);
    while (never == 0 && clock_now_ms() < end_ms) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

/* A blocking socket to node i. */
static int knock(size_t i)
{
    struct sockaddr_in address;
    struct err err;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(peer_address_parse(addresses[i], &address, &err), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void say(int fd, uint16_t kind, const struct peer_hello *hello)
{
    struct buf body = BUF_NONE;
    struct buf bytes = BUF_NONE;
    handshake_put_hello(&body, hello);
    struct frame frame = {.kind = kind, .body = body.bytes, .body_size = body.size};
    frame_write(&bytes, &frame);
    ck_assert_int_eq(send(fd, bytes.bytes, bytes.size, MSG_NOSIGNAL), (ssize_t)bytes.size);
    buf_done(&body);
    buf_done(&bytes);
}

/* The kind of the one frame that comes, its refusal where it is one; 0: the connection ended. */
static uint16_t hear(int fd, struct handshake_refusal *refusal)
{
    uint8_t bytes[8192];
    size_t size = 0;
    uint64_t end_ms = clock_now_ms() + 60000;
    struct frame frame = {0};
    size_t used = 0;
    struct err err = {0};
    while (used == 0 && clock_now_ms() < end_ms) {
        run_for(10);
        ssize_t got = recv(fd, bytes + size, sizeof(bytes) - size, MSG_DONTWAIT);
        if (got == 0) {
            return 0;
        }
        size += got > 0 ? (size_t)got : 0;
        ck_assert_int_eq(frame_parse(bytes, size, sizeof(bytes), &frame, &used, &err), 0);
    }
    ck_assert_uint_gt(used, 0);
    if (frame.kind == FRAME_REFUSAL) {
        ck_assert_int_eq(handshake_get_refusal(frame.body, frame.body_size, refusal, &err), 0);
    }
    return frame.kind;
}

static struct peer_hello hello_of(const char *cluster, const char *node, uint32_t node_id,
                                  enum peer_class class)
{
    struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION,
                               .class = class,
                               .node_id = node_id,
                               .incarnation = 1000 + node_id,
                               .streams = 1};
    (void)snprintf(hello.cluster, sizeof(hello.cluster), "%s", cluster);
    (void)snprintf(hello.node, sizeof(hello.node), "%s", node);
    return hello;
}

START_TEST(three_nodes_find_each_other_and_talk)
{
    struct err err = {0};
    for (size_t i = 0; i < 3; i++) {
        start(i, 3);
    }
    for (size_t i = 0; i < 3; i++) {
        run_until(&nodes[i].ups, 2, 5000);
    }
    static uint8_t big[(1U << 20) - 64];
    ck_assert_int_eq(mesh_send(nodes[0].mesh, 3, KIND, "hello", 5, &err), 0);
    run_until(&nodes[2].messages, 1, 2000);
    ck_assert_uint_eq(nodes[2].from, 1);
    ck_assert_uint_eq(nodes[2].last_size, 5);
    ck_assert_mem_eq(nodes[2].last, "hello", 5);
    ck_assert_int_eq(mesh_send(nodes[2].mesh, 2, KIND, big, sizeof(big), &err), 0);
    ck_assert_int_eq(mesh_send(nodes[2].mesh, 2, KIND, NULL, 0, &err), 0);
    run_until(&nodes[1].messages, 2, 2000);
    ck_assert_uint_eq(nodes[1].last_size, 0);
    run_for(1300); /* A ping, a second apart. */
    struct mesh_peer_stats stats;
    mesh_peer_stats(nodes[1].mesh, 1, &stats);
    ck_assert_str_eq(stats.name, "c");
    ck_assert(stats.up);
    ck_assert_uint_gt(stats.round_trip_us, 0);
    ck_assert_uint_lt(stats.round_trip_us, 60000000);
    ck_assert_uint_lt(stats.heard_ms_ago, 60000);
    ck_assert_uint_gt(stats.bytes_in, sizeof(big));
    struct mesh_stats all;
    mesh_stats(nodes[1].mesh, &all);
    ck_assert_uint_eq(all.peers_up, 2);
    ck_assert_uint_eq(all.refused, 0);
    ck_assert_uint_eq(all.cut, 0);
}
END_TEST

START_TEST(a_peer_that_goes_is_told_and_dialled_again)
{
    struct err err = {0};
    start(0, 2);
    start(1, 2);
    run_until(&nodes[0].ups, 1, 5000);
    run_until(&nodes[1].ups, 1, 5000);
    stop(1);
    run_until(&nodes[0].downs, 1, 2000);
    ck_assert_str_eq(nodes[0].reason, "closed the connection");
    ck_assert_int_eq(mesh_send(nodes[0].mesh, 2, KIND, "x", 1, &err), ERR_REACH);
    run_for(300);
    struct mesh_peer_stats stats;
    mesh_peer_stats(nodes[0].mesh, 0, &stats);
    ck_assert_msg(strstr(stats.last_error, "Connection refused") != NULL, "%s", stats.last_error);
    start(1, 2);
    run_until(&nodes[0].ups, 2, 3000);
    mesh_peer_stats(nodes[0].mesh, 0, &stats);
    ck_assert_uint_eq(stats.connects, 2);
    stop(0); /* The dialler: the other side waits for it. */
    run_until(&nodes[1].downs, 1, 2000);
    start(0, 2);
    run_until(&nodes[1].ups, 2, 3000);
}
END_TEST

START_TEST(a_peer_that_says_nothing_is_down_after_the_silence)
{
    start(1, 2); /* b; a is played by hand. */
    int fd = knock(1);
    struct peer_hello hello = hello_of("test", "a", 1, PEER_CONTROL);
    struct handshake_refusal refusal = {0};
    say(fd, FRAME_HELLO, &hello);
    ck_assert_uint_eq(hear(fd, &refusal), FRAME_WELCOME);
    ck_assert_int_eq(nodes[1].ups, 1);
    uint64_t start_ms = clock_now_ms();
    run_until(&nodes[1].downs, 1, 3000);
    ck_assert_uint_ge(clock_now_ms() - start_ms, 500);
    ck_assert_msg(strstr(nodes[1].reason, "nothing was heard for 0.") != NULL, "%s",
                  nodes[1].reason);
    (void)close(fd);
}
END_TEST

START_TEST(a_second_connection_of_a_peer_replaces_the_first)
{
    start(1, 2);
    struct handshake_refusal refusal = {0};
    struct peer_hello hello = hello_of("test", "a", 1, PEER_CONTROL);
    int first = knock(1);
    say(first, FRAME_HELLO, &hello);
    ck_assert_uint_eq(hear(first, &refusal), FRAME_WELCOME);
    int second = knock(1);
    say(second, FRAME_HELLO, &hello);
    ck_assert_uint_eq(hear(second, &refusal), FRAME_WELCOME);
    ck_assert_int_eq(nodes[1].ups, 2);
    ck_assert_int_eq(nodes[1].downs, 1);
    ck_assert_str_eq(nodes[1].reason, "it dialled again");
    ck_assert_uint_eq(hear(first, &refusal), 0);
    (void)close(first);
    (void)close(second);
}
END_TEST

/* The refusals, each with a word that its sentence must have. */
static const struct {
    const char *cluster, *node;
    uint32_t node_id, protocol;
    enum peer_class class;
    int code;
    const char *says;
} refused[] = {
    {"other", "a", 1, FRAME_PROTOCOL_VERSION, PEER_CONTROL, ERR_AUTH, "of cluster 'other'"},
    {"test", "a", 1, 99, PEER_CONTROL, ERR_PROTO, "protocol 99"},
    {"test", "x", 1, FRAME_PROTOCOL_VERSION, PEER_CONTROL, ERR_AUTH, "node 'x' with id 1"},
    {"test", "a", 77, FRAME_PROTOCOL_VERSION, PEER_BULK, ERR_AUTH, "id 77 is 'nobody'"},
    {"test", "a", 77, FRAME_PROTOCOL_VERSION, PEER_DATA, ERR_AUTH, "id 77 is 'nobody'"},
    {"test", "b", 2, FRAME_PROTOCOL_VERSION, PEER_CONTROL, ERR_AUTH, "has id 2 as node 'b' has"},
    {"test", "c", 3, FRAME_PROTOCOL_VERSION, PEER_CONTROL, ERR_PROTO, "the lower id dials"},
    {"other", "ctl", 0, FRAME_PROTOCOL_VERSION, PEER_CTL, ERR_AUTH, "of cluster 'other'"},
};

START_TEST(who_does_not_belong_is_refused_with_a_sentence)
{
    start(1, 3);
    struct mesh_stats before;
    mesh_stats(nodes[1].mesh, &before);
    int fd = knock(1);
    struct handshake_refusal refusal = {0};
    struct peer_hello hello =
        hello_of(refused[_i].cluster, refused[_i].node, refused[_i].node_id, refused[_i].class);
    hello.protocol = refused[_i].protocol;
    say(fd, FRAME_HELLO, &hello);
    ck_assert_uint_eq(hear(fd, &refusal), FRAME_REFUSAL);
    ck_assert_int_eq(refusal.code, refused[_i].code);
    ck_assert(!refusal.retry);
    ck_assert_msg(strstr(refusal.text, refused[_i].says) != NULL, "%s", refusal.text);
    struct mesh_stats after;
    mesh_stats(nodes[1].mesh, &after);
    ck_assert_uint_eq(after.refused, before.refused + 1);
    ck_assert_int_eq(nodes[1].ups, 0);
    (void)close(fd);
}
END_TEST

START_TEST(bulk_and_ctl_connections_are_handed_over_unread)
{
    start(1, 2);
    struct err err = {0};
    struct handshake_refusal refusal = {0};
    struct peer_hello hello = hello_of("test", "a", 1, PEER_CONTROL);
    int control = knock(1);
    say(control, FRAME_HELLO, &hello);
    ck_assert_uint_eq(hear(control, &refusal), FRAME_WELCOME);
    hello = hello_of("test", "a", 1, PEER_BULK);
    hello.job = 7;
    hello.generation = 3;
    hello.identity[31] = 9;
    hello.stream = 2;
    hello.streams = 4;
    int fd = knock(1);
    say(fd, FRAME_HELLO, &hello);
    run_until(&nodes[1].bulk, 1, 2000);
    ck_assert_uint_eq(nodes[1].incoming.hello.generation, 3);
    ck_assert_uint_eq(nodes[1].incoming.hello.job, 7);
    ck_assert_uint_eq(nodes[1].incoming.hello.stream, 2);
    ck_assert_uint_eq(nodes[1].incoming.hello.identity[31], 9);
    ck_assert_int_eq(peer_welcome(&nodes[1].incoming, &err), 0);
    ck_assert_uint_eq(hear(fd, &refusal), FRAME_WELCOME);
    ck_assert_int_eq(send(fd, "rest", 4, 0), 4);
    char rest[8] = "";
    run_for(20);
    ck_assert_int_eq(recv(nodes[1].incoming.transport.fd, rest, sizeof(rest), 0), 4);
    ck_assert_str_eq(rest, "rest");
    transport_close(&nodes[1].incoming.transport);
    (void)close(fd);
    fd = knock(1);
    hello = hello_of("", "ctl", 0, PEER_CTL);
    say(fd, FRAME_HELLO, &hello);
    run_until(&nodes[1].ctl, 1, 2000);
    peer_refuse(&nodes[1].incoming, ERR_BUSY, "come again");
    ck_assert_uint_eq(hear(fd, &refusal), FRAME_REFUSAL);
    ck_assert(refusal.retry);
    ck_assert_str_eq(refusal.text, "come again");
    (void)close(fd);
    (void)close(control);
}
END_TEST

static void is_refused(const struct peer_hello *hello, int code, bool retry, const char *says)
{
    struct handshake_refusal refusal = {0};
    int fd = knock(1);
    say(fd, FRAME_HELLO, hello);
    ck_assert_uint_eq(hear(fd, &refusal), FRAME_REFUSAL);
    ck_assert_int_eq(refusal.code, code);
    ck_assert_int_eq(refusal.retry, retry);
    ck_assert_msg(strstr(refusal.text, says) != NULL, "%s", refusal.text);
    (void)close(fd);
}

START_TEST(bulk_and_data_come_from_the_identity_and_process_that_is_known)
{
    static const enum peer_class classes[] = {PEER_BULK, PEER_DATA};
    struct handshake_refusal refusal = {0};
    start(1, 2);
    for (size_t i = 0; i < 2; i++) { /* Nobody has said yet which process the node is. */
        struct peer_hello hello = hello_of("test", "a", 1, classes[i]);
        is_refused(&hello, ERR_BUSY, true, "no control connection of this process yet");
    }
    struct peer_hello control = hello_of("test", "a", 1, PEER_CONTROL);
    int fd = knock(1);
    say(fd, FRAME_HELLO, &control);
    ck_assert_uint_eq(hear(fd, &refusal), FRAME_WELCOME);
    for (size_t i = 0; i < 2; i++) {
        struct peer_hello hello = hello_of("test", "a", 1, classes[i]);
        hello.life = 1;
        is_refused(&hello, ERR_AUTH, false, "has another identity here");
        hello.life = 0;
        hello.incarnation--;
        is_refused(&hello, ERR_AUTH, false, "was started again since this process");
        hello.incarnation += 2;
        is_refused(&hello, ERR_BUSY, true, "no control connection of this process yet");
    }
    ck_assert_int_eq(nodes[1].bulk, 0);
    (void)close(fd);
}
END_TEST

START_TEST(an_earlier_process_does_not_take_the_place_of_a_later_one)
{
    struct handshake_refusal refusal = {0};
    struct peer_hello hello = hello_of("test", "a", 1, PEER_CONTROL);
    start(1, 2);
    int fd = knock(1);
    say(fd, FRAME_HELLO, &hello);
    ck_assert_uint_eq(hear(fd, &refusal), FRAME_WELCOME);
    hello.incarnation--;
    is_refused(&hello, ERR_AUTH, false, "was started again since this process");
    ck_assert_int_eq(nodes[1].ups, 1);
    ck_assert_int_eq(nodes[1].downs, 0); /* the later one is where it was */
    hello.incarnation += 2;
    later = 1;
    int next = knock(1);
    say(next, FRAME_HELLO, &hello);
    ck_assert_uint_eq(hear(next, &refusal), FRAME_WELCOME);
    ck_assert_str_eq(nodes[1].reason, "it was started again and dialled anew");
    (void)close(fd);
    (void)close(next);
}
END_TEST

START_TEST(a_coppeliusctl_is_no_node)
{
    struct peer_hello hello = hello_of("test", "a", 1, PEER_CTL);
    start(1, 2);
    is_refused(&hello, ERR_PROTO, false, "asks as a coppeliusctl and says that it is node 1");
    ck_assert_int_eq(nodes[1].ctl, 0);
}
END_TEST

START_TEST(garbage_and_silence_are_cut_and_counted)
{
    start(1, 2);
    struct handshake_refusal refusal;
    struct mesh_stats stats;
    int garbage = knock(1);
    ck_assert_int_eq(send(garbage, "GET / HTTP/1.1\r\nHost: x\r\n\r\n........", 36, 0), 36);
    ck_assert_uint_eq(hear(garbage, &refusal), 0);
    int wrong = knock(1); /* A well-formed frame that is no HELLO. */
    struct peer_hello hello = hello_of("test", "a", 1, PEER_CONTROL);
    say(wrong, 999, &hello);
    ck_assert_uint_eq(hear(wrong, &refusal), 0);
    mesh_stats(nodes[1].mesh, &stats);
    ck_assert_uint_eq(stats.cut, 2);
    uint64_t start_ms = clock_now_ms();
    int silent = knock(1);
    ck_assert_uint_eq(hear(silent, &refusal), 0);
    ck_assert_uint_ge(clock_now_ms() - start_ms, 4500);
    mesh_stats(nodes[1].mesh, &stats);
    ck_assert_uint_eq(stats.cut, 3);
    (void)close(garbage);
    (void)close(wrong);
    (void)close(silent);
}
END_TEST

START_TEST(the_oldest_of_too_many_strangers_is_cut)
{
    start(1, 2);
    enum { STRANGERS = 260 };
    struct mesh_stats stats;
    static int fds[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = knock(1);
        if (i % 16 == 15) {
            run_for(10);
        }
    }
    run_for(50);
    mesh_stats(nodes[1].mesh, &stats);
    ck_assert_uint_eq(stats.accepted, STRANGERS);
    ck_assert_uint_eq(stats.cut, STRANGERS - 192);
    struct handshake_refusal refusal;
    struct peer_hello hello = hello_of("test", "a", 1, PEER_CONTROL);
    ck_assert_uint_eq(hear(fds[0], &refusal), 0);
    say(fds[STRANGERS - 1], FRAME_HELLO, &hello);
    ck_assert_uint_eq(hear(fds[STRANGERS - 1], &refusal), FRAME_WELCOME);
    for (int i = 0; i < STRANGERS; i++) {
        (void)close(fds[i]);
    }
}
END_TEST

START_TEST(a_full_queue_refuses_and_says_so)
{
    struct err err = {0};
    start(1, 2);
    int fd = knock(1); /* It never reads. */
    struct peer_hello hello = hello_of("test", "a", 1, PEER_CONTROL);
    say(fd, FRAME_HELLO, &hello);
    run_until(&nodes[1].ups, 1, 2000);
    static uint8_t big[(1U << 20) - 64];
    int code = 0;
    int sent = 0;
    while (code == 0 && sent < 64) {
        code = mesh_send(nodes[1].mesh, 1, KIND, big, sizeof(big), &err);
        sent++;
    }
    ck_assert_int_eq(code, ERR_BUSY);
    ck_assert_msg(strstr(err.text, "wait for node 'a' already") != NULL, "%s", err.text);
    struct mesh_peer_stats stats;
    mesh_peer_stats(nodes[1].mesh, 0, &stats);
    ck_assert_uint_eq(stats.queue_refused, 1);
    (void)close(fd);
}
END_TEST

START_TEST(a_taken_port_names_address_holder_and_what_to_do)
{
    struct err err = {0};
    char holder[32];
    start(0, 1);
    struct mesh *second = NULL;
    struct mesh_settings settings = settings_of(0, 1);
    ck_assert_int_eq(mesh_open(&settings, &loop, &second, &err), ERR_REACH);
    (void)snprintf(holder, sizeof(holder), "process %d does", (int)getpid());
    ck_assert_msg(strstr(err.text, addresses[0]) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, holder) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "choose another port in 'listen'") != NULL, "%s", err.text);
}
END_TEST

static const struct {
    const char *address, *says;
} addresses_refused[] = {
    {"localhost:7620", "names and IPv6 are not used"},
    {"[::1]:7620", "names and IPv6 are not used"},
    {"127.0.0.1", "give IP:PORT"},
    {"127.0.0.1:", "give IP:PORT"},
    {"127.0.0.1:-5", "give IP:PORT"},
    {"127.0.0.1:65536", "from 0 to 65535"},
    {"127.0.0.1:12x", "from 0 to 65535"},
    {"1.2.3:80", "four numbers"},
    {"127.0.0.1.127.0.0.1.127.0.0.1:1", "four numbers"},
};

START_TEST(addresses_that_are_none_say_why)
{
    struct err err = {0};
    struct sockaddr_in address;
    ck_assert_int_eq(peer_address_parse(addresses_refused[_i].address, &address, &err), ERR_CONFIG);
    ck_assert_msg(strstr(err.text, addresses_refused[_i].says) != NULL, "%s", err.text);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("mesh");
    TCase *tcase = tcase_create("mesh");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, three_nodes_find_each_other_and_talk);
    tcase_add_test(tcase, a_peer_that_goes_is_told_and_dialled_again);
    tcase_add_test(tcase, a_peer_that_says_nothing_is_down_after_the_silence);
    tcase_add_test(tcase, a_second_connection_of_a_peer_replaces_the_first);
    tcase_add_loop_test(tcase, who_does_not_belong_is_refused_with_a_sentence, 0,
                        sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(tcase, bulk_and_ctl_connections_are_handed_over_unread);
    tcase_add_test(tcase, bulk_and_data_come_from_the_identity_and_process_that_is_known);
    tcase_add_test(tcase, an_earlier_process_does_not_take_the_place_of_a_later_one);
    tcase_add_test(tcase, a_coppeliusctl_is_no_node);
    tcase_add_test(tcase, garbage_and_silence_are_cut_and_counted);
    tcase_add_test(tcase, the_oldest_of_too_many_strangers_is_cut);
    tcase_add_test(tcase, a_full_queue_refuses_and_says_so);
    tcase_add_test(tcase, a_taken_port_names_address_holder_and_what_to_do);
    tcase_add_loop_test(tcase, addresses_that_are_none_say_why, 0,
                        sizeof(addresses_refused) / sizeof(addresses_refused[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
