/* The cache of datasets: a limit, the oldest goes first, never one in use. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "data/cache.h"
#include "tests/unit/data/helper.h"

#define ENTRY_BYTES (256U << 10)

static void put_entry(const char *name, time_t used)
{
    static uint8_t bytes[ENTRY_BYTES];
    char path[TEST_PATH_SIZE];
    struct timespec times[2] = {{used, 0}, {used, 0}};
    memset(bytes, 7, sizeof(bytes));
    (void)snprintf(path, sizeof(path), "cache/%s", name);
    ck_assert_int_eq(mkdir(in_scratch(path), 0755), 0);
    (void)snprintf(path, sizeof(path), "cache/%s/x.npy", name);
    (void)put_bytes(path, bytes, sizeof(bytes));
    (void)snprintf(path, sizeof(path), "cache/%s", name);
    ck_assert_int_eq(utimensat(AT_FDCWD, in_scratch(path), times, 0), 0);
}

static bool there(const char *name)
{
    char path[TEST_PATH_SIZE];
    (void)snprintf(path, sizeof(path), "cache/%s", name);
    return access(in_scratch(path), F_OK) == 0;
}

START_TEST(the_oldest_goes_first_and_never_one_in_use)
{
    struct data_cache *cache = NULL;
    struct data_cache_stats stats;
    struct err err = {0};
    ck_assert_msg(data_cache_open(in_scratch("cache"), 4U * ENTRY_BYTES, &cache, &err) == 0, "%s",
                  err.text);
    put_entry("old", 1000);
    put_entry("older", 500);
    put_entry("new", 2000);
    ck_assert_int_eq(data_cache_room(cache, ENTRY_BYTES / 2, &err), 0);
    ck_assert(there("older"));
    data_cache_hold(cache, "older");
    ck_assert_int_eq(data_cache_room(cache, 2U * ENTRY_BYTES, &err), 0);
    ck_assert(there("older"));
    ck_assert(!there("old"));
    ck_assert(there("new"));
    data_cache_release(cache, "older");
    /* Its use counts from now: the other one is older. */
    ck_assert_int_eq(data_cache_room(cache, 3U * ENTRY_BYTES, &err), 0);
    ck_assert(there("older"));
    ck_assert(!there("new"));
    data_cache_stats(cache, &stats);
    ck_assert_uint_eq(stats.entries, 1);
    ck_assert_uint_eq(stats.evicted, 2);
    ck_assert_uint_ge(stats.evicted_bytes, 2U * ENTRY_BYTES);
    ck_assert_uint_eq(stats.held, 0);
    data_cache_close(cache);
}
END_TEST

START_TEST(a_job_is_not_refused_for_the_limit_but_for_the_disk)
{
    struct data_cache *cache = NULL;
    struct err err = {0};
    ck_assert_int_eq(data_cache_open(in_scratch("cache"), ENTRY_BYTES, &cache, &err), 0);
    put_entry("in-use", 1000);
    data_cache_hold(cache, "in-use");
    ck_assert_int_eq(data_cache_room(cache, 2U * ENTRY_BYTES, &err), 0);
    ck_assert(there("in-use"));
    ck_assert_int_eq(data_cache_room(cache, UINT64_C(1) << 60, &err), ERR_DISK);
    ck_assert_ptr_nonnull(strstr(err.text, "1152921504606846976 more bytes"));
    ck_assert(there("in-use"));
    data_cache_release(cache, "in-use");
    data_cache_drop(cache, "in-use");
    ck_assert(!there("in-use"));
    data_cache_close(cache);
}
END_TEST

START_TEST(what_a_dead_import_left_is_collected_at_the_start)
{
    struct data_cache *cache = NULL;
    struct err err = {0};
    ck_assert_int_eq(mkdir(in_scratch("cache"), 0755), 0);
    put_entry("abc.importing-0123456789abcdef", 1000);
    put_entry("fetched-abc", 1000);
    ck_assert_int_eq(data_cache_open(in_scratch("cache"), 0, &cache, &err), 0);
    ck_assert(!there("abc.importing-0123456789abcdef"));
    ck_assert(there("fetched-abc"));
    data_cache_close(cache);
}
END_TEST

Suite *unit_suite(void);

Suite *unit_suite(void)
{
    TCase *tests = NULL;
    Suite *suite = data_suite("cache", &tests);
    tcase_add_test(tests, the_oldest_goes_first_and_never_one_in_use);
    tcase_add_test(tests, a_job_is_not_refused_for_the_limit_but_for_the_disk);
    tcase_add_test(tests, what_a_dead_import_left_is_collected_at_the_start);
    return suite;
}
