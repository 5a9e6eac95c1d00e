#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "numerics/nodes.h"
#include "peer/exchange_room.h"
#include "tests/lib/exchange_cluster.h"
#include "tests/lib/unit.h"

static struct cluster cluster;
static bool secure, pumps;
static uint32_t threads;
static bool mixed;

static void over_tls(void)
{
    secure = true;
}

static void over_pumps(void)
{
    secure = true;
    pumps = true;
}

static void on_threads(void)
{
    threads = 4;
}

static void on_differing_threads(void)
{
    threads = 1;
    mixed = true;
}

static void on_threads_over_tls(void)
{
    threads = 4;
    secure = true;
}

static void on_threads_over_pumps(void)
{
    threads = 2;
    over_pumps();
}

static struct cluster_settings usual(uint32_t nodes)
{
    struct cluster_settings settings = {.nodes = nodes,
                                        .coordinates = 13,
                                        .streams = threads != 0 ? 4 : 2,
                                        .threads = threads,
                                        .mixed = mixed,
                                        .chunk_rows = 16,
                                        .steps = {{1, 100}, {2, 100}, {3, 7}, {4, 100}, {9, 250}},
                                        .steps_count = 5,
                                        .seed = 1,
                                        .secure = secure,
                                        .pumps = pumps};
    return settings;
}

static void check_digests(void)
{
    struct cluster_digests expected;
    cluster_expected(&cluster.settings, &expected);
    for (uint32_t i = 0; i < cluster.settings.nodes; i++) {
        ck_assert_msg(cluster.nodes[i].err.code == 0, "%s", cluster.nodes[i].err.text);
        ck_assert_mem_eq(cluster.nodes[i].digests.residuals, expected.residuals, SHA256_SIZE);
        ck_assert_mem_eq(cluster.nodes[i].digests.losses, expected.losses, SHA256_SIZE);
        ck_assert_int_eq(cluster.nodes[i].failed, 0);
    }
}

static const struct {
    uint32_t nodes, streams, chunk_rows;
    uint64_t coordinates;
} shapes[] = {{1, 1, 16, 13},  {2, 1, 16, 13}, {2, 4, 8, 64}, {3, 2, 16, 13},
              {3, 1, 256, 37}, {4, 1, 8, 13},  {4, 3, 32, 4}, {2, 16, 256, 2}};

START_TEST(every_cluster_gives_the_digests_of_one_sum)
{
    struct cluster_settings settings = usual(shapes[_i].nodes);
    settings.streams = shapes[_i].streams;
    settings.chunk_rows = shapes[_i].chunk_rows;
    settings.coordinates = shapes[_i].coordinates;
    settings.seed = (uint64_t)_i;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    cluster_close(&cluster);
    check_digests();
    for (uint32_t i = 0; i < settings.nodes; i++) {
        size_t wanted = threads + (mixed ? i : 0); /* One a stream at most. */
        ck_assert_int_eq(cluster.nodes[i].ready, 1);
        if (threads != 0) {
            ck_assert_uint_eq(cluster.nodes[i].stats.threads,
                              wanted < settings.streams ? wanted : settings.streams);
        }
    }
}
END_TEST

START_TEST(folds_in_tree_order_whatever_arrives_first)
{
    struct cluster_settings settings = usual(2 + (uint32_t)_i % 3);
    settings.streams = 1 + (uint32_t)_i % 4;
    settings.chunk_rows = 8;
    settings.delay_us_max = 1500;
    settings.pause_us = 3000;
    settings.window_size = _i % 2 == 0 ? 1 : 0;
    settings.seed = 100 + (uint64_t)_i;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    cluster_close(&cluster);
    check_digests();
}
END_TEST

/* The formula of peer.h, from the settings alone. */
START_TEST(nobody_is_ahead_of_the_answers_by_more_than_a_window)
{
    /* Each pushes in an order of its own; chunks of 8 rows, two at least, 5 where they fit. */
    struct cluster_settings settings = usual(3);
    settings.coordinates = 3;
    settings.chunk_rows = 8;
    settings.window_size = _i == 0 ? 1 : 5 * 8 * sizeof(double) + 7;
    settings.delay_us_max = 500;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    cluster_close(&cluster);
    check_digests();
    uint64_t threads_most = 0; /* Each of a sender's threads has a window of its own. */
    for (uint32_t p = 0; p < settings.nodes; p++) {
        uint64_t own = cluster.nodes[p].stats.threads;
        threads_most = own > threads_most ? own : threads_most;
    }
    for (uint32_t p = 0; p < settings.nodes; p++) {
        uint64_t ahead = cluster.nodes[p].stats.ahead_max;
        ck_assert_uint_ge(ahead, 1);
        ck_assert_uint_le(ahead, (_i == 0 ? 2U : 5U) * threads_most);
    }
}
END_TEST

START_TEST(each_element_leaves_once_and_returns_once)
{
    struct cluster_settings settings = usual(1 + (uint32_t)_i);
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    cluster_close(&cluster);
    check_digests();
    for (uint32_t p = 0; p < settings.nodes; p++) {
        struct node nodes[NODES_MAX];
        struct exchange_stats expected = {0};
        size_t own =
            nodes_cover(cluster_bound(&settings, p), cluster_bound(&settings, p + 1), nodes);
        size_t all = 0;
        for (uint32_t q = 0; q < settings.nodes; q++) {
            all += nodes_cover(cluster_bound(&settings, q), cluster_bound(&settings, q + 1), nodes);
        }
        for (size_t s = 0; s < settings.steps_count; s++) {
            uint64_t rows = settings.steps[s].rows;
            for (uint64_t first = 0, c = 0; first < rows; first += settings.chunk_rows, c++) {
                uint64_t count =
                    rows - first < settings.chunk_rows ? rows - first : settings.chunk_rows;
                uint64_t answer =
                    4 * count + 8 * ((count + CLUSTER_PANEL_ROWS - 1) / CLUSTER_PANEL_ROWS);
                if (c % settings.nodes == p) {
                    expected.values_in += 8 * (all - own) * count;
                    expected.results_out += answer * (settings.nodes - 1);
                    expected.folds++;
                } else {
                    expected.values_out += 8 * own * count;
                    expected.results_in += answer;
                }
            }
        }
        const struct exchange_stats *stats = &cluster.nodes[p].stats;
        ck_assert_uint_eq(stats->values_out, expected.values_out);
        ck_assert_uint_eq(stats->values_in, expected.values_in);
        ck_assert_uint_eq(stats->results_out, expected.results_out);
        ck_assert_uint_eq(stats->results_in, expected.results_in);
        ck_assert_uint_eq(stats->folds, expected.folds);
        ck_assert_uint_eq(stats->steps, settings.steps_count);
        ck_assert_uint_eq(stats->stale_frames, 0);
        ck_assert_uint_eq(stats->links_count, (settings.nodes - 1) * settings.streams);
    }
}
END_TEST

/* Big pieces: several frames a chunk, and sockets that are full meanwhile. */
START_TEST(chunks_larger_than_a_frame_piece_arrive_whole)
{
    struct cluster_settings settings = usual(3);
    settings.coordinates = 3;
    settings.chunk_rows = 100000;
    settings.steps[0] = (struct cluster_step){1, 450001};
    settings.steps[1] = (struct cluster_step){2, 99999};
    settings.steps_count = 2;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    cluster_close(&cluster);
    check_digests();
}
END_TEST

static void on_later(uv_timer_t *timer)
{
    struct cluster *at = timer->data;
    static uint32_t bit;
    if (at->nodes[0].exchange != NULL) {
        exchange_direct(at->nodes[0].exchange, 1U << (bit++ % 3));
    }
}

START_TEST(every_participant_sees_the_same_word_in_the_same_step)
{
    struct cluster_settings settings = usual(3);
    uint32_t all = 0;
    for (size_t s = 0; s < CLUSTER_STEPS_MAX; s++) {
        settings.steps[s] = (struct cluster_step){s + 1, 64};
    }
    settings.steps_count = CLUSTER_STEPS_MAX;
    settings.delay_us_max = 1000;
    settings.pause_us = 6000;
    cluster_open(&cluster, &settings);
    uv_timer_t timer = {.data = &cluster};
    ck_assert_int_eq(uv_timer_init(&cluster.loop, &timer), 0);
    ck_assert_int_eq(uv_timer_start(&timer, on_later, 7, 7), 0);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    uv_close((uv_handle_t *)&timer, NULL);
    cluster_close(&cluster);
    check_digests();
    for (size_t s = 0; s < settings.steps_count; s++) {
        ck_assert_uint_eq(cluster.nodes[1].words[s], cluster.nodes[0].words[s]);
        ck_assert_uint_eq(cluster.nodes[2].words[s], cluster.nodes[0].words[s]);
        all |= cluster.nodes[0].words[s];
    }
    ck_assert_uint_eq(all, 7);
}
END_TEST

START_TEST(rank_0_gathers_both_vectors_while_steps_go_on)
{
    struct cluster_settings settings = usual(1 + (uint32_t)_i);
    settings.coordinates = 400001;
    settings.steps_count = 4;
    for (size_t s = 0; s < settings.steps_count; s++) {
        settings.steps[s].rows = 1;
    }
    settings.gather_at = 2;
    settings.delay_us_max = _i == 2 ? 300 : 0;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    ck_assert(cluster_run(&cluster, &cluster.nodes[0].gathered, 1, 60000));
    for (uint32_t p = 0; p < settings.nodes; p++) {
        ck_assert(cluster_run(&cluster, &cluster.nodes[p].slices_sent, 1, 60000));
    }
    cluster_close(&cluster);
    check_digests();
    double *expected = calloc(settings.coordinates, sizeof(*expected));
    ck_assert_uint_eq(cluster.nodes[0].gathered_step, 2);
    for (int which = 0; which < 2; which++) {
        uint8_t digest[SHA256_SIZE];
        for (uint64_t j = 0; j < settings.coordinates; j++) {
            expected[j] = cluster_slice_value(which, j);
        }
        sha256_of(expected, settings.coordinates * sizeof(*expected), digest);
        ck_assert_mem_eq(cluster.nodes[0].gathered_digest[which], digest, SHA256_SIZE);
    }
    free(expected);
    uint64_t own = cluster_bound(&settings, 1);
    ck_assert_uint_eq(cluster.nodes[0].stats.gather_in, 16 * (settings.coordinates - own));
}
END_TEST

START_TEST(settings_that_cannot_be_are_refused)
{
    uv_loop_t loop;
    struct err err = {0};
    struct exchange *exchange = NULL;
    struct exchange_participant two[2] = {
        {.node_id = 1, .name = "a", .address = "127.0.0.1:1", .first = 0, .end = 4},
        {.node_id = 2, .name = "b", .address = "127.0.0.1:2", .first = 5, .end = 6}};
    struct exchange_settings settings = {.cluster = "c",
                                         .policy = "p",
                                         .participants = two,
                                         .participants_count = 2,
                                         .chunk_rows_max = 8,
                                         .chunks_max = 1,
                                         .panel_rows = 8};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(exchange_open(&settings, &loop, &exchange, &err), ERR_CONFIG);
    ck_assert_msg(strstr(err.text, "'b' has the coordinates 5 to 6") != NULL, "%s", err.text);
    two[1].first = 4;
    two[1].address = "example.org:1";
    ck_assert_int_eq(exchange_open(&settings, &loop, &exchange, &err), ERR_CONFIG);
    ck_assert_msg(strstr(err.text, "node 'b': 'example.org:1'") != NULL, "%s", err.text);
    two[1].address = "127.0.0.1:2";
    settings.streams = 17;
    ck_assert_int_eq(exchange_open(&settings, &loop, &exchange, &err), ERR_CONFIG);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

/* What docs/performance.md and the config's comments say. */
START_TEST(a_node_takes_threads_by_its_cores_and_more_over_tls)
{
    static const struct {
        uint32_t cores, streams, plain, sealed;
    } cases[] = {{0, 4, 1, 1}, {1, 8, 1, 1},  {2, 4, 1, 2},  {2, 8, 1, 2},    {3, 8, 1, 2},
                 {4, 8, 2, 4}, {6, 8, 2, 4},  {6, 4, 2, 4},  {8, 4, 4, 4},    {8, 8, 4, 8},
                 {7, 3, 3, 3}, {16, 8, 8, 8}, {16, 1, 1, 1}, {64, 16, 16, 16}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_uint_eq(exchange_threads_for(cases[i].cores, false, cases[i].streams),
                          cases[i].plain);
        ck_assert_uint_eq(exchange_threads_for(cases[i].cores, true, cases[i].streams),
                          cases[i].sealed);
    }
}
END_TEST

START_TEST(a_pair_has_four_streams_by_itself_and_eight_over_tls)
{
    secure = _i == 1;
    threads = 0;
    mixed = false;
    struct cluster_settings settings = usual(3);
    settings.streams = 0;
    cluster_open(&cluster, &settings);
    cluster_start(&cluster);
    ck_assert(cluster_run_done(&cluster, 60000));
    cluster_close(&cluster);
    check_digests();
    for (uint32_t i = 0; i < settings.nodes; i++) {
        ck_assert_uint_eq(cluster.nodes[i].stats.links_count, 2 * (secure ? 8 : 4));
    }
}
END_TEST

static void add_tests(Suite *suite, const char *name, SFun setup)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 120);
    tcase_add_unchecked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, every_cluster_gives_the_digests_of_one_sum, 0,
                        sizeof(shapes) / sizeof(shapes[0]));
    tcase_add_loop_test(tcase, folds_in_tree_order_whatever_arrives_first, 0, 9);
    tcase_add_loop_test(tcase, nobody_is_ahead_of_the_answers_by_more_than_a_window, 0, 2);
    tcase_add_loop_test(tcase, each_element_leaves_once_and_returns_once, 0, 4);
    tcase_add_test(tcase, chunks_larger_than_a_frame_piece_arrive_whole);
    tcase_add_test(tcase, every_participant_sees_the_same_word_in_the_same_step);
    tcase_add_loop_test(tcase, rank_0_gathers_both_vectors_while_steps_go_on, 0, 3);
    suite_add_tcase(suite, tcase);
}

Suite *unit_suite(void)
{
    Suite *suite = suite_create("exchange");
    add_tests(suite, "exchange", NULL);
    add_tests(suite, "tls", over_tls);
    add_tests(suite, "threads", on_threads);
    add_tests(suite, "differing_threads", on_differing_threads);
    add_tests(suite, "threads_tls", on_threads_over_tls);
    add_tests(suite, "pumped", over_pumps);
    add_tests(suite, "threads_pumped", on_threads_over_pumps);
    TCase *tcase = tcase_create("settings");
    tcase_add_test(tcase, settings_that_cannot_be_are_refused);
    tcase_add_test(tcase, a_node_takes_threads_by_its_cores_and_more_over_tls);
    tcase_add_loop_test(tcase, a_pair_has_four_streams_by_itself_and_eight_over_tls, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
