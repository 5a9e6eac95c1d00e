/* The flight recorder's memory. */
#include <stdio.h>
#include <string.h>

#include "daemon/recorder.h"
#include "tests/lib/unit.h"

static struct record numbered(uint64_t step)
{
    struct record record = {.wall_ms = 1000 + step, .job = 1, .generation = 2, .step = step};
    (void)snprintf(record.text, sizeof(record.text), "step %llu", (unsigned long long)step);
    return record;
}

START_TEST(keeps_the_newest_and_lets_the_oldest_go)
{
    struct recorder recorder;
    struct err err = {0};
    ck_assert_int_eq(recorder_init(&recorder, 4, &err), 0);
    ck_assert_uint_eq(recorder_size(&recorder), 0);
    for (uint64_t step = 1; step <= 3; step++) {
        struct record record = numbered(step);
        recorder_put(&recorder, &record);
    }
    ck_assert_uint_eq(recorder_size(&recorder), 3);
    ck_assert_uint_eq(recorder_at(&recorder, 0)->step, 1);
    for (uint64_t step = 4; step <= 11; step++) {
        struct record record = numbered(step);
        recorder_put(&recorder, &record);
    }
    ck_assert_uint_eq(recorder_size(&recorder), 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(recorder_at(&recorder, i)->step, 8 + i);
    }
    ck_assert_str_eq(recorder_at(&recorder, 3)->text, "step 11");
    recorder_done(&recorder);
    recorder_done(&recorder);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("recorder");
    TCase *tests = tcase_create("recorder");
    tcase_add_test(tests, keeps_the_newest_and_lets_the_oldest_go);
    suite_add_tcase(suite, tests);
    return suite;
}
