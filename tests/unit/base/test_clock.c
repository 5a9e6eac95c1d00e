#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "tests/lib/unit.h"

/* One of the wall clock's would end at once: its deadline would be long over. */
START_TEST(a_wait_ends_by_the_monotonic_clock)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    clock_condition_init(&never);
    for (uint64_t wait_ms = 20; wait_ms <= 1020; wait_ms += 1000) {
        uint64_t began_ms = clock_now_ms();
        struct timespec until = clock_deadline(began_ms, wait_ms);
        int status = 0;
        ck_assert_int_eq(pthread_mutex_lock(&lock), 0);
        while (status == 0) {
            status = pthread_cond_timedwait(&never, &lock, &until);
        }
        ck_assert_int_eq(pthread_mutex_unlock(&lock), 0);
        ck_assert_int_eq(status, ETIMEDOUT);
        uint64_t took_ms = clock_now_ms() - began_ms;
        ck_assert_msg(took_ms >= wait_ms, "%llu ms", (unsigned long long)took_ms);
        ck_assert_msg(took_ms < wait_ms + 10000, "%llu ms", (unsigned long long)took_ms);
    }
    ck_assert_int_eq(pthread_cond_destroy(&never), 0);
}
END_TEST

START_TEST(a_deadline_carries_its_milliseconds)
{
    struct timespec until = clock_deadline(1999, 2);
    ck_assert_int_eq(until.tv_sec, 2);
    ck_assert_int_eq(until.tv_nsec, 1000000);
    until = clock_deadline(0, 999);
    ck_assert_int_eq(until.tv_sec, 0);
    ck_assert_int_eq(until.tv_nsec, 999000000);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("clock");
    TCase *tcase = tcase_create("clock");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_wait_ends_by_the_monotonic_clock);
    tcase_add_test(tcase, a_deadline_carries_its_milliseconds);
    suite_add_tcase(suite, tcase);
    return suite;
}
