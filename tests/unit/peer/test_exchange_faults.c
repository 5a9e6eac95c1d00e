/* What ends an exchange, and that it says who, when, where. Node n1 (the lower id) dials. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/lib/exchange_cluster.h"
#include "tests/lib/unit.h"

static struct cluster cluster;
static uint32_t threads;

static void on_threads(void)
{
    threads = 2; /* One a stream. */
}

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
                                        .threads = threads,
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
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].ups, (int)settings->nodes - 1, 60000));
    cluster_start(&cluster);
    for (uint64_t end_ms = clock_now_ms() + 60000;
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
    settings.silence_ms = 110000;
    stop_n2_at_3(&settings);
    ck_assert_int_eq(delay_proxy_cut_one(cluster.nodes[1].proxy), 0);
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 60000));
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 60000));
    ck_assert(cluster_run_done(&cluster, 60000));
    check_says(&cluster.nodes[0].failure, ERR_PEER, "node 'n2' (127.0.0.1:");
    check_says(&cluster.nodes[0].failure, ERR_PEER, "step 3, forward values of chunk ");
    check_says(&cluster.nodes[0].failure, ERR_PEER, ", 0 of 384 bytes came: stream ");
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
    settings.silence_ms = 4000;
    stop_n2_at_3(&settings);
    uint64_t start_ms = clock_now_ms();
    delay_proxy_freeze(cluster.nodes[1].proxy);
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 60000));
    uint64_t took_ms = clock_now_ms() - start_ms;
    ck_assert_uint_ge(took_ms, 400);
    ck_assert(cluster_run_done(&cluster, 60000));
    check_says(&cluster.nodes[0].failure, ERR_TIMEOUT, "nothing was heard for ");
    check_says(&cluster.nodes[0].failure, ERR_TIMEOUT, "step 3, forward values of chunk ");
    ck_assert_uint_eq(cluster.nodes[0].culprit, 2);
    cluster_close(&cluster);
}
END_TEST

START_TEST(a_peer_that_lives_but_computes_no_more_is_named)
{
    struct cluster_settings settings = usual(2);
    settings.progress_ms = 3000;
    stop_n2_at_3(&settings);
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 60000));
    check_says(&cluster.nodes[0].failure, ERR_TIMEOUT, "its connections live, but no data came");
    ck_assert_uint_eq(cluster.nodes[0].culprit, 2);
    /* n2 is told why. */
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 60000));
    check_says(&cluster.nodes[1].failure, ERR_TIMEOUT, "it ended the exchange: node 'n2'");
    cluster_close(&cluster);
}
END_TEST

START_TEST(idle_links_are_not_silent)
{
    struct cluster_settings settings = usual(3);
    settings.pause_us = 1;
    settings.silence_ms = 3000;
    stop_n2_at_3(&settings);
    ck_assert(!cluster_run(&cluster, &cluster.nodes[0].failed, 1, 7000));
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
    ck_assert(cluster_run_done(&cluster, 60000));
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert(cluster_run(&cluster, &cluster.nodes[i].failed, 1, 60000));
        check_says(&cluster.nodes[i].err, ERR_DIVERGED, "step 3: the loss is not finite");
        ck_assert_uint_eq(cluster.nodes[i].steps_done, 2);
        ck_assert_uint_eq(cluster.nodes[i].culprit, i == 0 ? 0 : 1);
    }
    check_says(&cluster.nodes[1].failure, ERR_DIVERGED, "it ended the exchange: ");
    cluster_close(&cluster);
}
END_TEST

/* Each owner's each thread: the first one's counts, and each node ends once. */
START_TEST(several_failures_at_once_are_one)
{
    struct cluster_settings settings = usual(3);
    settings.fail_finish_at = 3;
    settings.fail_finish_everywhere = true;
    settings.seed = 50 + (uint64_t)_i;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert(cluster_run(&cluster, &cluster.nodes[i].failed, 1, 60000));
        check_says(&cluster.nodes[i].err, ERR_DIVERGED, "step 3: the loss is not finite");
        ck_assert_str_eq(cluster.nodes[i].err.text, cluster.nodes[i].failure.text);
        ck_assert_uint_eq(cluster.nodes[i].steps_done, 2);
    }
    cluster_close(&cluster);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(cluster.nodes[i].failed, 1);
    }
}
END_TEST

/* Nobody waits for a reason where nobody is left to give one; and what is said is what is owed,
 * whichever thread sees the end first: a step of one chunk is one thread's alone. */
START_TEST(a_peer_whose_links_all_end_is_named_at_once)
{
    struct cluster_settings settings = usual(2);
    for (size_t s = 0; s < settings.steps_count; s++) {
        settings.steps[s].rows = 16;
    }
    stop_n2_at_3(&settings);
    for (uint32_t i = 0; i < settings.streams; i++) {
        ck_assert_int_eq(delay_proxy_cut_one(cluster.nodes[1].proxy), 0);
    }
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 60000));
    check_says(&cluster.nodes[0].failure, ERR_PEER, "node 'n2' (127.0.0.1:");
    check_says(&cluster.nodes[0].failure, ERR_PEER,
               "step 3, forward values of chunk 0, 0 of 384 bytes came: ");
    ck_assert_uint_eq(cluster.nodes[0].culprit, 2);
    cluster_close(&cluster);
    ck_assert_int_eq(cluster.nodes[0].failed, 1);
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
    ck_assert(cluster_run(&cluster, &node->failed, 1, 60000));
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
    ck_assert(cluster_run(&cluster, &node->failed, 1, 60000));
    check_says(&node->failure, ERR_TIMEOUT, "connect, 0 of 2 connections are up within 0.4 s: ");
    cluster_close(&cluster);
}
END_TEST

START_TEST(close_and_cancel_never_hang)
{
    struct cluster_settings settings = usual(2);
    settings.played_by_hand = 2; /* Nobody is there. */
    settings.connect_timeout_ms = 3600000;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    (void)cluster_run(&cluster, &cluster.nodes[0].failed, 1, 100);
    cluster_close(&cluster); /* Cancels: its compute thread waits. */
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
        ck_assert(cluster_run_done(&cluster, 60000));
    }
    exchange_cancel(cluster.nodes[0].exchange, "the operator said so");
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].failed, 1, 60000));
    check_says(&cluster.nodes[0].failure, ERR_CANCELED, "the operator said so");
    ck_assert_uint_eq(cluster.nodes[0].culprit, 0);
    ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, _i == 0 ? 60000 : 400) ==
              (_i == 0));
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
    static struct exchange_participant others[2];
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
    case 4:
        settings->streams = 3;
        break;
    default:
        memcpy(others, settings->participants, sizeof(others));
        others[0].incarnation += cluster.settings.stop_node == 5 ? 8 : 0;
        others[0].life += cluster.settings.stop_node == 6 ? 2 : 0;
        settings->participants = others;
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
    {ERR_AUTH,
     "node 'n1' comes as another process (identity 0, start 1) than the one that takes part "
     "(identity 0, start 9)",
     0},
    {ERR_AUTH,
     "node 'n1' comes as another process (identity 0, start 1) than the one that takes part "
     "(identity 2, start 1)",
     0},
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
    ck_assert(cluster_run(&cluster, &node->failed, 1, 60000));
    check_says(&node->failure, mismatches[_i].code, mismatches[_i].says);
    ck_assert_uint_eq(node->culprit, 2);
    if (_i != 3) { /* A node that is behind refuses for now only, and counts nothing. */
        ck_assert(cluster_run(&cluster, &cluster.nodes[1].failed, 1, 60000));
        check_says(&cluster.nodes[1].failure, ERR_TIMEOUT, mismatches[_i].says + 9);
        struct exchange_stats stats;
        exchange_stats(cluster.nodes[1].exchange, &stats);
        ck_assert_uint_ge(stats.refused, 1);
    }
    cluster_close(&cluster);
}
END_TEST

static void add_tests(Suite *suite, const char *name, SFun setup)
{
    TCase *tcase = tcase_create(name);
    tcase_set_tags(tcase, name);
    tcase_set_timeout(tcase, 120);
    tcase_add_unchecked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, one_cut_data_socket_names_peer_step_phase_and_bytes);
    tcase_add_test(tcase, a_silent_peer_is_named_within_the_silence);
    tcase_add_test(tcase, a_peer_that_lives_but_computes_no_more_is_named);
    tcase_add_test(tcase, idle_links_are_not_silent);
    tcase_add_test(tcase, a_failed_finish_ends_it_for_all_with_its_sentence);
    tcase_add_loop_test(tcase, several_failures_at_once_are_one, 0, 5);
    tcase_add_test(tcase, a_peer_whose_links_all_end_is_named_at_once);
    tcase_add_loop_test(tcase, an_absent_peer_is_named_at_the_connect_deadline, 0, 2);
    tcase_add_test(tcase, links_that_are_expected_are_not_waited_for_an_hour);
    tcase_add_test(tcase, close_and_cancel_never_hang);
    tcase_add_loop_test(tcase, a_cancel_tells_the_peers_in_a_step_and_nobody_between_steps, 0, 2);
    tcase_add_loop_test(tcase, who_differs_is_refused_by_name, 0,
                        sizeof(mismatches) / sizeof(mismatches[0]));
    suite_add_tcase(suite, tcase);
}

Suite *unit_suite(void)
{
    Suite *suite = suite_create("exchange_faults");
    add_tests(suite, "exchange_faults", NULL);
    add_tests(suite, "threads", on_threads);
    add_tests(suite, "pumps", over_pumps);
    return suite;
}
