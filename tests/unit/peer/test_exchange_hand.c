/* An exchange whose peer is this file with a blocking socket: what it must bear, and what ends it.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "peer/handshake.h"
#include "proto/frame.h"
#include "tests/lib/exchange_cluster.h"
#include "tests/lib/unit.h"

static struct cluster cluster;

static struct cluster_settings usual(uint32_t nodes)
{
    struct cluster_settings settings = {.nodes = nodes,
                                        .coordinates = 13,
                                        .streams = 2,
                                        .chunk_rows = 16,
                                        .steps = {{1, 64}, {2, 64}, {3, 64}, {4, 64}},
                                        .steps_count = 4,
                                        .seed = 1,
                                        .silence_ms = 4000,
                                        .connect_timeout_ms = 10000};
    return settings;
}

static void check_says(const struct err *err, int code, const char *says)
{
    ck_assert_msg(err->code == code, "%d: %s", err->code, err->text);
    ck_assert_msg(strstr(err->text, says) != NULL, "'%s' in: %s", says, err->text);
}

/* n1 by hand dials n2's mesh: its control connection, or as stream 0 of 1. */
static int dial_by_hand(enum peer_class class)
{
    struct sockaddr_in address;
    struct err err = {0};
    uint64_t generation = class == PEER_BULK ? 3 : 0;
    struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION,
                               .class = class,
                               .cluster = "test",
                               .node = "n1",
                               .node_id = 1,
                               .incarnation = 1,
                               .job = 7,
                               .generation = generation,
                               .identity = {1, 2, 3},
                               .policy = "test-policy",
                               .streams = 1};
    struct buf body = BUF_NONE;
    struct buf bytes = BUF_NONE;
    handshake_put_hello(&body, &hello);
    struct frame frame = {
        .kind = FRAME_HELLO, .generation = generation, .body = body.bytes, .body_size = body.size};
    frame_write(&bytes, &frame);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(peer_address_parse(cluster.nodes[1].address, &address, &err), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(send(fd, bytes.bytes, bytes.size, 0), (ssize_t)bytes.size);
    buf_done(&body);
    buf_done(&bytes);
    return fd;
}

static void say(int fd, uint16_t kind, uint64_t generation, uint64_t step, uint32_t chunk,
                const void *bytes, size_t size)
{
    struct buf out = BUF_NONE;
    struct frame frame = {.kind = kind,
                          .generation = generation,
                          .sequence = step << 24 | chunk,
                          .body = bytes,
                          .body_size = size};
    frame_write(&out, &frame);
    ck_assert_int_eq(send(fd, out.bytes, out.size, MSG_NOSIGNAL), (ssize_t)out.size);
    buf_done(&out);
}

/* The next frame of this kind, body into bytes. An answer that comes before it is kept for the
 * next call; idle frames are skipped. */
static size_t hear(int fd, uint16_t kind, void *bytes, size_t capacity)
{
    static size_t kept_size;
    uint64_t end_ms = clock_now_ms() + 60000;
    const int never = 0;
    if (kind == PEER_RESULT && kept_size > 0) {
        size_t size = kept_size;
        kept_size = 0;
        return size;
    }
    while (clock_now_ms() < end_ms) {
        uint8_t header[FRAME_HEADER_SIZE];
        struct frame_header frame;
        struct err err = {0};
        static uint8_t body[65536];
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        (void)cluster_run(&cluster, &never, 1, 5);
        if (poll(&readable, 1, 0) == 0) {
            continue;
        }
        ssize_t got = recv(fd, header, sizeof(header), MSG_WAITALL);
        if (got <= 0) {
            return 0;
        }
        ck_assert_int_eq(frame_header_read(header, sizeof(body), &frame, &err), 0);
        if (frame.body_size > 0) {
            ck_assert_int_eq(recv(fd, body, frame.body_size, MSG_WAITALL),
                             (ssize_t)frame.body_size);
        }
        if (frame.kind == kind) {
            memcpy(bytes, body, frame.body_size < capacity ? frame.body_size : capacity);
            return frame.body_size;
        }
        if (frame.kind == PEER_RESULT) {
            ck_assert_uint_eq(kept_size, 0);
            kept_size = frame.body_size;
        }
    }
    ck_abort_msg("no frame of kind %u came", kind);
    return 0;
}

/* n2 is real, n1 (rank 0: owner of chunk 0) by hand; one stream; two chunks of 16 rows a step. */
static int open_by_hand(void)
{
    struct cluster_settings settings = usual(2);
    uint8_t welcome[256];
    settings.streams = 1;
    settings.played_by_hand = 1;
    settings.coordinates = 2; /* One canonical node each. */
    settings.silence_ms = 5000;
    for (size_t s = 0; s < settings.steps_count; s++) {
        settings.steps[s].rows = 32;
    }
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    int control = dial_by_hand(PEER_CONTROL); /* Without one no bulk connection is let in. */
    ck_assert_uint_gt(hear(control, FRAME_WELCOME, welcome, sizeof(welcome)), 0);
    (void)close(control);
    int fd = dial_by_hand(PEER_BULK);
    ck_assert_uint_gt(hear(fd, FRAME_WELCOME, welcome, sizeof(welcome)), 0);
    return fd;
}

/* Plays the right part in a step. */
static void play_step(int fd, uint64_t step, bool values_sent)
{
    double values[16];
    double got[16];
    uint8_t answer[16 + 64] = {0};
    const uint32_t word = 5;
    if (!values_sent) {
        (void)cluster_values(&cluster.settings, 0, step, 16, 16, values);
        say(fd, PEER_VALUES, 3, step, 1, values, sizeof(values));
    }
    ck_assert_uint_eq(hear(fd, PEER_VALUES, got, sizeof(got)), sizeof(got));
    say(fd, PEER_WORD, 3, step, 0, &word, sizeof(word));
    say(fd, PEER_RESULT, 3, step, 0, answer, sizeof(answer));
    ck_assert_uint_eq(hear(fd, PEER_RESULT, answer, sizeof(answer)), sizeof(answer));
}

START_TEST(stale_generations_are_dropped_and_early_values_are_held)
{
    int fd = open_by_hand();
    double values[16];
    double wrong[16] = {1e300};
    for (uint64_t step = 1; step <= 4; step++) {
        if (step == 1) { /* A stale frame with values that would change everything. */
            say(fd, PEER_VALUES, 2, step, 1, wrong, sizeof(wrong));
        }
        play_step(fd, step, step > 1);
        if (step < 4) { /* At once the next step's values: n2 may not have begun it. */
            (void)cluster_values(&cluster.settings, 0, step + 1, 16, 16, values);
            say(fd, PEER_VALUES, 3, step + 1, 1, values, sizeof(values));
        }
    }
    ck_assert(cluster_run_done(&cluster, 60000));
    struct exchange_stats stats;
    exchange_stats(cluster.nodes[1].exchange, &stats);
    ck_assert_uint_eq(stats.stale_frames, 1);
    ck_assert_uint_eq(stats.values_in, 4 * sizeof(values));
    ck_assert_int_eq(cluster.nodes[1].failed, 0);
    ck_assert_uint_eq(cluster.nodes[1].steps_done, 4);
    for (size_t s = 0; s < 4; s++) {
        ck_assert_uint_eq(cluster.nodes[1].words[s], 5);
    }
    cluster_close(&cluster);
    (void)close(fd);
}
END_TEST

START_TEST(a_leaver_fails_nobody_until_it_is_needed)
{
    const int32_t finished[2] = {0, 1};
    int fd = open_by_hand();
    play_step(fd, 1, false);
    say(fd, PEER_BYE, 3, 0, 0, finished, sizeof(finished));
    (void)close(fd);
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 60000));
    check_says(&cluster.nodes[1].failure, ERR_PEER, "node 'n1'");
    check_says(&cluster.nodes[1].failure, ERR_PEER, "it has left the exchange");
    ck_assert_uint_eq(cluster.nodes[1].culprit, 1);
    cluster_close(&cluster);
}
END_TEST

/* Each frame is impossible after step 1 was played. */
static const struct {
    uint16_t kind;
    uint64_t step;
    uint32_t chunk;
    size_t size;
    const char *says;
} impossible[] = {
    {PEER_VALUES, 2, 0, 128, "values of chunk 0 came, which is not this node's"},
    {PEER_VALUES, 2, 5, 128, "values of chunk 5 came, which is not this node's"},
    {PEER_VALUES, 1, 1, 128, "values of "},
    {PEER_VALUES, 4, 1, 128, "values of chunk 1 of step 4"},
    {PEER_VALUES, 2, 1, 136, "136 bytes of values of chunk 1 came in step 2 where 128 are due"},
    {PEER_VALUES, 2, 1, 0, "0 bytes of values"},
    {PEER_RESULT, 2, 1, 80, "an answer for chunk 1 of step 2 came, which nobody waits for"},
    {PEER_RESULT, 2, 0, 81, "81 bytes of the answer for chunk 0 came in step 2 where 80 are due"},
    {PEER_RESULT, 3, 0, 80, "an answer for chunk 0 of step 3"},
    {PEER_WORD, 2, 0, 8, "a directive of 8 bytes"},
    {PEER_WORD, 2, 1, 4, "a directive of 4 bytes came for chunk 1"},
    {PEER_GATHER, 2, 0, 8, "a slice came to rank 1"},
    {PEER_ALIVE, 0, 0, 8, "a full idle frame"},
    {PEER_BYE, 0, 0, 4, "a goodbye of 4 bytes"},
    {PEER_PING, 0, 0, 8, "a frame of kind 16 came"},
    {999, 0, 0, 8, "a frame of kind 999 came"},
};

START_TEST(impossible_frames_are_protocol_errors_that_name_the_peer)
{
    static const double bytes[32];
    int fd = open_by_hand();
    double got[16];
    play_step(fd, 1, false);
    ck_assert_uint_eq(hear(fd, PEER_VALUES, got, sizeof(got)), sizeof(got)); /* It is in step 2. */
    say(fd, impossible[_i].kind, 3, impossible[_i].step, impossible[_i].chunk, bytes,
        impossible[_i].size);
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 60000));
    check_says(&cluster.nodes[1].failure, ERR_PROTO, "node 'n1'");
    check_says(&cluster.nodes[1].failure, ERR_PROTO, impossible[_i].says);
    ck_assert_uint_eq(cluster.nodes[1].culprit, 1);
    cluster_close(&cluster);
    (void)close(fd);
}
END_TEST

START_TEST(a_damaged_frame_is_a_protocol_error)
{
    int fd = open_by_hand();
    double values[16] = {0};
    struct buf out = BUF_NONE;
    struct frame frame = {.kind = PEER_VALUES,
                          .generation = 3,
                          .sequence = 1 << 24 | 1,
                          .body = (const uint8_t *)values,
                          .body_size = sizeof(values)};
    frame_write(&out, &frame);
    out.bytes[100] ^= 4;
    ck_assert_int_eq(send(fd, out.bytes, out.size, 0), (ssize_t)out.size);
    buf_done(&out);
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 60000));
    check_says(&cluster.nodes[1].failure, ERR_PROTO, "wrong check");
    cluster_close(&cluster);
    (void)close(fd);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("exchange_hand");
    TCase *tcase = tcase_create("exchange_hand");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, stale_generations_are_dropped_and_early_values_are_held);
    tcase_add_test(tcase, a_leaver_fails_nobody_until_it_is_needed);
    tcase_add_loop_test(tcase, impossible_frames_are_protocol_errors_that_name_the_peer, 0,
                        sizeof(impossible) / sizeof(impossible[0]));
    tcase_add_test(tcase, a_damaged_frame_is_a_protocol_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
