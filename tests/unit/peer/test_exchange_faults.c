/* What ends an exchange, and that it says who, when, where. Node n1 (the lower id) dials; a node
 * played by hand is this file with a blocking socket. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
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

static bool pumped; /* over TLS, a thread for each connection */

static void over_pumps(void)
{
    pumped = true;
}

static struct cluster_settings usual(uint32_t nodes)
{
    struct cluster_settings settings = {.nodes = nodes,
                                        .coordinates = 13,
                                        .streams = 2,
                                        .chunk_rows = 16,
                                        .steps = {{1, 64}, {2, 64}, {3, 64}, {4, 64}},
                                        .steps_count = 4,
                                        .seed = 1,
                                        .secure = pumped,
                                        .pumps = pumped,
                                        .silence_ms = 4000,
                                        .connect_timeout_ms = 10000};
    return settings;
}

static void check_says(const struct err *err, int code, const char *says)
{
    ck_assert_msg(err->code == code, "%d: %s", err->code, err->text);
    ck_assert_msg(strstr(err->text, says) != NULL, "'%s' in: %s", says, err->text);
}

/* Node n2 computes no more before step 3; its exchange lives. What happens then to the link: */
static void stop_n2_at_3(struct cluster_settings *settings)
{
    settings->proxied = true;
    settings->stop_at = 3;
    settings->stop_node = 1;
    cluster_open(&cluster, settings);
    /* The control connections first: the newest is then a bulk one. */
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].ups, (int)settings->nodes - 1, 5000));
    cluster_start(&cluster);
    for (uint64_t end_ms = clock_now_ms() + 10000;
         !atomic_load(&cluster.nodes[1].done) && clock_now_ms() < end_ms;) {
        (void)cluster_run(&cluster, &cluster.nodes[1].failed, 1, 10);
    }
    (void)cluster_run(&cluster, &cluster.nodes[1].failed, 1, 100); /* n1 waits in step 3 now. */
    ck_assert(atomic_load(&cluster.nodes[1].done));
    ck_assert_uint_eq(cluster.nodes[1].steps_done, 2);
    ck_assert_int_eq(cluster.nodes[0].failed, 0);
}

START_TEST(one_cut_data_socket_names_peer_step_phase_and_bytes)
{
    struct cluster_settings settings = usual(2);
    stop_n2_at_3(&settings);
    uint64_t start_ms = clock_now_ms();
    ck_assert_int_eq(delay_proxy_cut_one(cluster.nodes[1].proxy), 0);
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 5000));
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 5000));
    ck_assert_uint_lt(clock_now_ms() - start_ms, 3000); /* Not the silence. */
    ck_assert(cluster_run_done(&cluster, 1000));
    check_says(&cluster.nodes[0].failure, ERR_PEER, "node 'n2' (127.0.0.1:");
    check_says(&cluster.nodes[0].failure, ERR_PEER,
               "step 3, forward values of chunk 0, 0 of 384 bytes came: ");
    check_says(&cluster.nodes[0].failure, ERR_PEER, "stream ");
    check_says(&cluster.nodes[0].failure, ERR_PEER, "closed the connection");
    ck_assert_uint_eq(cluster.nodes[0].culprit, 2);
    ck_assert_int_eq(cluster.nodes[0].err.code, ERR_PEER);
    ck_assert_str_eq(cluster.nodes[0].err.text, cluster.nodes[0].failure.text);
    check_says(&cluster.nodes[1].failure, ERR_PEER, "n");
    cluster_close(&cluster);
    ck_assert_int_eq(cluster.nodes[0].failed, 1);
}
END_TEST

START_TEST(a_silent_peer_is_named_within_the_silence)
{
    struct cluster_settings settings = usual(2);
    settings.silence_ms = 1000;
    stop_n2_at_3(&settings);
    uint64_t start_ms = clock_now_ms();
    delay_proxy_freeze(cluster.nodes[1].proxy);
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 8000));
    uint64_t took_ms = clock_now_ms() - start_ms;
    ck_assert_uint_ge(took_ms, 400);
    ck_assert_uint_lt(took_ms, 5000);
    ck_assert(cluster_run_done(&cluster, 1000));
    check_says(&cluster.nodes[0].failure, ERR_TIMEOUT, "nothing was heard for 1.");
    check_says(&cluster.nodes[0].failure, ERR_TIMEOUT, "step 3, forward values of chunk 0");
    ck_assert_uint_eq(cluster.nodes[0].culprit, 2);
    cluster_close(&cluster);
}
END_TEST

START_TEST(a_peer_that_lives_but_computes_no_more_is_named)
{
    struct cluster_settings settings = usual(2);
    settings.progress_ms = 600;
    stop_n2_at_3(&settings);
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 5000));
    check_says(&cluster.nodes[0].failure, ERR_TIMEOUT, "its connections live, but no data came");
    ck_assert_uint_eq(cluster.nodes[0].culprit, 2);
    /* n2 is told why. */
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 5000));
    check_says(&cluster.nodes[1].failure, ERR_TIMEOUT, "it ended the exchange: node 'n2'");
    cluster_close(&cluster);
}
END_TEST

START_TEST(idle_links_are_not_silent)
{
    struct cluster_settings settings = usual(3);
    settings.pause_us = 1;
    settings.silence_ms = 800;
    stop_n2_at_3(&settings);
    ck_assert(!cluster_run(&cluster, &cluster.nodes[0].failed, 1, 2500));
    ck_assert_int_eq(cluster.nodes[1].failed + cluster.nodes[2].failed, 0);
    cluster_close(&cluster);
}
END_TEST

START_TEST(a_failed_finish_ends_it_for_all_with_its_sentence)
{
    struct cluster_settings settings = usual(3);
    settings.fail_finish_at = 3;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 10000));
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert(cluster_run(&cluster, &cluster.nodes[i].failed, 1, 2000));
        check_says(&cluster.nodes[i].err, ERR_DIVERGED, "step 3: the loss is not finite");
        ck_assert_uint_eq(cluster.nodes[i].steps_done, 2);
        ck_assert_uint_eq(cluster.nodes[i].culprit, i == 0 ? 0 : 1);
    }
    check_says(&cluster.nodes[1].failure, ERR_DIVERGED, "it ended the exchange: ");
    cluster_close(&cluster);
}
END_TEST

START_TEST(an_absent_peer_is_named_at_the_connect_deadline)
{
    struct cluster_settings settings = usual(2);
    settings.connect_timeout_ms = 400;
    settings.played_by_hand = _i == 0 ? 2 : 1; /* The one to be dialled, or the dialler. */
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    struct cluster_node *node = &cluster.nodes[_i];
    ck_assert(cluster_run(&cluster, &node->failed, 1, 8000));
    check_says(&node->failure, ERR_TIMEOUT, "connect, 0 of 2 connections are up within 0.4 s: ");
    check_says(&node->failure, ERR_TIMEOUT, _i == 0 ? "Connection refused" : "it did not dial");
    ck_assert_uint_eq(node->culprit, _i == 0 ? 2 : 1);
    ck_assert_int_eq(node->ready, 0);
    cluster_close(&cluster);
}
END_TEST

START_TEST(links_that_are_expected_are_not_waited_for_an_hour)
{
    struct cluster_settings settings = usual(2);
    settings.connect_timeout_ms = 3600000;
    settings.played_by_hand = 2;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    struct cluster_node *node = &cluster.nodes[0];
    ck_assert(!cluster_run(&cluster, &node->failed, 1, 300));
    exchange_expect_links(node->exchange, 400);
    exchange_expect_links(node->exchange, 60000); /* The first call counts. */
    ck_assert(cluster_run(&cluster, &node->failed, 1, 8000));
    check_says(&node->failure, ERR_TIMEOUT, "connect, 0 of 2 connections are up within 0.4 s: ");
    cluster_close(&cluster);
}
END_TEST

START_TEST(close_and_cancel_never_hang)
{
    struct cluster_settings settings = usual(2);
    settings.played_by_hand = 2; /* Nobody is there. */
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    (void)cluster_run(&cluster, &cluster.nodes[0].failed, 1, 100);
    uint64_t start_ms = clock_now_ms();
    cluster_close(&cluster); /* Cancels: its compute thread waits. */
    ck_assert_uint_lt(clock_now_ms() - start_ms, 2500);
    check_says(&cluster.nodes[0].err, ERR_CANCELED, "the test ends");
    ck_assert_int_eq(cluster.nodes[0].closed, 1);
}
END_TEST

START_TEST(a_cancel_tells_the_peers_in_a_step_and_nobody_between_steps)
{
    struct cluster_settings settings = usual(2);
    if (_i == 0) { /* n1 waits in step 3. */
        stop_n2_at_3(&settings);
    } else {
        cluster_open(&cluster, &settings);
        cluster_start(&cluster);
        ck_assert(cluster_run_done(&cluster, 10000));
    }
    exchange_cancel(cluster.nodes[0].exchange, "the operator said so");
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 2000));
    check_says(&cluster.nodes[0].failure, ERR_CANCELED, "the operator said so");
    ck_assert_uint_eq(cluster.nodes[0].culprit, 0);
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 400) == (_i == 0));
    if (_i == 0) {
        check_says(&cluster.nodes[1].failure, ERR_CANCELED,
                   "it ended the exchange: the operator said so");
        ck_assert_uint_eq(cluster.nodes[1].culprit, 1);
    }
    cluster_close(&cluster);
}
END_TEST

static void tweak(uint32_t rank, struct exchange_settings *settings)
{
    if (rank == 0) {
        return;
    }
    switch (cluster.settings.stop_node) {
    case 0:
        settings->identity[0] ^= 1;
        break;
    case 1:
        settings->policy = "other-policy";
        break;
    case 2:
        settings->generation++;
        break;
    case 3:
        settings->generation--;
        break;
    default:
        settings->streams = 3;
        break;
    }
}

static const struct {
    int code;
    const char *says;
    uint32_t says_it; /* the node that fails by it */
} mismatches[] = {
    {ERR_STATE,
     "refused: node 'n1' has another identity for job 7 (01020300…) than node 'n2' "
     "(00020300…)",
     0},
    {ERR_STATE, "node 'n1' computes by policy 'test-policy', node 'n2' by 'other-policy'", 0},
    {ERR_STATE, "node 'n1' comes with generation 3 of job 7, node 'n2' is at generation 4", 0},
    {ERR_TIMEOUT, "refused: node 'n2' is still at generation 2", 0},
    {ERR_STATE, "node 'n1' uses 2 streams, node 'n2' 3", 0},
};

START_TEST(who_differs_is_refused_by_name)
{
    struct cluster_settings settings = usual(2);
    settings.connect_timeout_ms = 2000;
    settings.stop_node = (uint32_t)_i; /* Which tweak. */
    cluster_open(&cluster, &settings);
    cluster.tweak = tweak;
    cluster_start(&cluster);
    cluster.tweak = NULL;
    struct cluster_node *node = &cluster.nodes[mismatches[_i].says_it];
    ck_assert(cluster_run(&cluster, &node->failed, 1, 8000));
    check_says(&node->failure, mismatches[_i].code, mismatches[_i].says);
    ck_assert_uint_eq(node->culprit, 2);
    if (_i != 3) { /* A node that is behind refuses for now only, and counts nothing. */
        ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 8000));
        check_says(&cluster.nodes[1].failure, ERR_TIMEOUT, mismatches[_i].says + 9);
        struct exchange_stats stats;
        exchange_stats(cluster.nodes[1].exchange, &stats);
        ck_assert_uint_ge(stats.refused, 1);
    }
    cluster_close(&cluster);
}
END_TEST

/* ---------------------------------------------------------------- a peer by hand */

/* n1 by hand dials n2's mesh as stream 0 of 1. */
static int dial_by_hand(void)
{
    struct sockaddr_in address;
    struct err err = {0};
    struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION,
                               .class = PEER_BULK,
                               .cluster = "test",
                               .node = "n1",
                               .node_id = 1,
                               .incarnation = 1,
                               .job = 7,
                               .generation = 3,
                               .identity = {1, 2, 3},
                               .policy = "test-policy",
                               .streams = 1};
    struct buf body = BUF_NONE;
    struct buf bytes = BUF_NONE;
    handshake_put_hello(&body, &hello);
    struct frame frame = {
        .kind = FRAME_HELLO, .generation = 3, .body = body.bytes, .body_size = body.size};
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
    uint64_t end_ms = clock_now_ms() + 5000;
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
    int fd = dial_by_hand();
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
    ck_assert(cluster_run_done(&cluster, 5000));
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
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 8000));
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
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 8000));
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
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 8000));
    check_says(&cluster.nodes[1].failure, ERR_PROTO, "wrong check");
    cluster_close(&cluster);
    (void)close(fd);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("exchange_faults");
    TCase *tcase = tcase_create("exchange_faults");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, one_cut_data_socket_names_peer_step_phase_and_bytes);
    tcase_add_test(tcase, a_silent_peer_is_named_within_the_silence);
    tcase_add_test(tcase, a_peer_that_lives_but_computes_no_more_is_named);
    tcase_add_test(tcase, idle_links_are_not_silent);
    tcase_add_test(tcase, a_failed_finish_ends_it_for_all_with_its_sentence);
    tcase_add_loop_test(tcase, an_absent_peer_is_named_at_the_connect_deadline, 0, 2);
    tcase_add_test(tcase, links_that_are_expected_are_not_waited_for_an_hour);
    tcase_add_test(tcase, close_and_cancel_never_hang);
    tcase_add_loop_test(tcase, a_cancel_tells_the_peers_in_a_step_and_nobody_between_steps, 0, 2);
    tcase_add_loop_test(tcase, who_differs_is_refused_by_name, 0,
                        sizeof(mismatches) / sizeof(mismatches[0]));
    tcase_add_test(tcase, stale_generations_are_dropped_and_early_values_are_held);
    tcase_add_test(tcase, a_leaver_fails_nobody_until_it_is_needed);
    tcase_add_loop_test(tcase, impossible_frames_are_protocol_errors_that_name_the_peer, 0,
                        sizeof(impossible) / sizeof(impossible[0]));
    tcase_add_test(tcase, a_damaged_frame_is_a_protocol_error);
    suite_add_tcase(suite, tcase);
    TCase *pumps = tcase_create("pumps");
    tcase_set_timeout(pumps, 60);
    tcase_add_unchecked_fixture(pumps, over_pumps, NULL);
    tcase_add_test(pumps, one_cut_data_socket_names_peer_step_phase_and_bytes);
    tcase_add_test(pumps, a_silent_peer_is_named_within_the_silence);
    tcase_add_test(pumps, a_peer_that_lives_but_computes_no_more_is_named);
    tcase_add_test(pumps, idle_links_are_not_silent);
    tcase_add_test(pumps, a_failed_finish_ends_it_for_all_with_its_sentence);
    tcase_add_loop_test(pumps, a_cancel_tells_the_peers_in_a_step_and_nobody_between_steps, 0, 2);
    suite_add_tcase(suite, pumps);
    return suite;
}
