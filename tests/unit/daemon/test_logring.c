#include <pthread.h>
#include <string.h>

#include "daemon/logring.h"
#include "tests/lib/unit.h"

static struct log_ring ring;
static struct log_ring_line lines[16];

static void put(const char *text)
{
    log_ring_sink(&ring, LOG_LEVEL_INFO, text, strlen(text));
}

START_TEST(the_oldest_lines_give_way)
{
    uint64_t seen = 0;
    ck_assert_int_eq(log_ring_init(&ring, 3, NULL), 0);
    ck_assert_uint_eq(log_ring_read(&ring, 0, NULL, 0, lines, 16, &seen), 0);
    put("<6>a 1");
    put("<6>a 2");
    put("<6>a 3");
    put("<6>a 4");
    ck_assert_uint_eq(log_ring_read(&ring, 0, NULL, 0, lines, 16, &seen), 3);
    ck_assert_str_eq(lines[0].text, "a 2");
    ck_assert_uint_eq(lines[0].sequence, 2);
    ck_assert_uint_eq(seen, 4);
    ck_assert_uint_eq(log_ring_read(&ring, seen, NULL, 0, lines, 16, &seen), 0);
    put("<6>a 5");
    ck_assert_uint_eq(log_ring_read(&ring, seen, NULL, 0, lines, 16, &seen), 1);
    ck_assert_uint_eq(log_ring_read(&ring, 0, NULL, 0, lines, 2, &seen), 2); /* In two turns. */
    ck_assert_uint_eq(seen, 4);
    ck_assert_uint_eq(log_ring_before_last(&ring, 1, NULL, 0), 4);
    ck_assert_uint_eq(log_ring_before_last(&ring, 0, NULL, 0), 2);
    log_ring_done(&ring);
    log_ring_done(&ring);
}
END_TEST

START_TEST(a_needle_is_a_whole_word)
{
    const char *needles[] = {"job=1", "run=x"};
    uint64_t seen = 0;
    ck_assert_int_eq(log_ring_init(&ring, 8, NULL), 0);
    put("<6>e job=12");
    put("<6>e job=1");
    put("<6>e xjob=1 a");
    put("<6>e job=1 a");
    put("<6>e run=x");
    ck_assert_uint_eq(log_ring_read(&ring, 0, needles, 2, lines, 16, &seen), 3);
    ck_assert_uint_eq(log_ring_before_last(&ring, 2, needles, 2), 3);
    log_ring_done(&ring);
}
END_TEST

static void *on_thread(void *context)
{
    (void)context;
    for (unsigned i = 0; i < 2000; i++) {
        put("<6>e from another thread");
    }
    return NULL;
}

START_TEST(threads_may_log_while_one_reads)
{
    pthread_t threads[3];
    uint64_t seen = 0;
    ck_assert_int_eq(log_ring_init(&ring, 64, NULL), 0);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, on_thread, NULL), 0);
    }
    for (unsigned i = 0; i < 500; i++) {
        size_t count = log_ring_read(&ring, seen, NULL, 0, lines, 16, &seen);
        for (size_t k = 0; k < count; k++) {
            ck_assert_str_eq(lines[k].text, "e from another thread");
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
    ck_assert_uint_eq(ring.last, 6000);
    log_ring_done(&ring);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("logring");
    TCase *tcase = tcase_create("ring");
    tcase_add_test(tcase, the_oldest_lines_give_way);
    tcase_add_test(tcase, a_needle_is_a_whole_word);
    tcase_add_test(tcase, threads_may_log_while_one_reads);
    suite_add_tcase(suite, tcase);
    return suite;
}
