#include <stdatomic.h>
#include <string.h>

#include "gpu/cpu_pool.h"
#include "tests/lib/unit.h"

enum { ITEMS = 1000 };

struct tally {
    atomic_uint times[ITEMS];
    atomic_bool busy[CPU_THREADS_MAX];
    unsigned threads;
};

static void count_item(void *context, size_t item, unsigned worker)
{
    struct tally *tally = context;
    if (worker >= tally->threads || atomic_exchange(&tally->busy[worker], true)) {
        atomic_fetch_add(&tally->times[item], 1000); /* two threads with one number */
    }
    atomic_fetch_add(&tally->times[item], 1);
    atomic_store(&tally->busy[worker], false);
}

START_TEST(each_item_is_done_once_whatever_the_number_of_threads)
{
    static struct tally tally;
    for (unsigned threads = 1; threads <= 7; threads += 2) {
        static struct cpu_pool pool;
        struct err err = {0};
        ck_assert_int_eq(cpu_pool_init(&pool, threads, &err), 0);
        for (size_t round = 0; round < 200; round++) {
            size_t items = round * 5;
            memset(&tally, 0, sizeof(tally));
            tally.threads = threads;
            cpu_pool_run(&pool, count_item, &tally, items, false);
            for (size_t i = 0; i < ITEMS; i++) {
                ck_assert_uint_eq(atomic_load(&tally.times[i]), i < items ? 1 : 0);
            }
        }
        cpu_pool_done(&pool);
        cpu_pool_done(&pool);
    }
}
END_TEST

START_TEST(a_small_job_stays_on_the_callers_thread_in_order)
{
    static struct tally tally;
    static struct cpu_pool pool;
    ck_assert_int_eq(cpu_pool_init(&pool, 4, NULL), 0);
    tally.threads = 1;
    cpu_pool_run(&pool, count_item, &tally, 50, true);
    for (size_t i = 0; i < 50; i++) {
        ck_assert_uint_eq(atomic_load(&tally.times[i]), 1);
    }
    cpu_pool_done(&pool);
    ck_assert_uint_ge(cpu_threads_available(), 1);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("pool");
    TCase *tcase = tcase_create("pool");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, each_item_is_done_once_whatever_the_number_of_threads);
    tcase_add_test(tcase, a_small_job_stays_on_the_callers_thread_in_order);
    suite_add_tcase(suite, tcase);
    return suite;
}
