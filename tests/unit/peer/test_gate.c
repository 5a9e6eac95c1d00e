#include <stdlib.h>

#include "peer/gate.h"
#include "tests/lib/unit.h"

#define SOURCE 0x0100007FU

static unsigned admitted(struct gate *gate, uint32_t address, bool known, unsigned tries,
                         uint64_t now_ms)
{
    unsigned count = 0;
    for (unsigned i = 0; i < tries; i++) {
        count += gate_admits(gate, address, known, now_ms);
    }
    return count;
}

START_TEST(a_source_gets_its_burst_and_then_its_rate)
{
    struct gate *gate = calloc(1, sizeof(*gate));
    gate_init(gate, 5000);
    ck_assert_uint_eq(admitted(gate, SOURCE, false, 1000, 5000), GATE_SOURCE_BURST);
    unsigned later = 0;
    for (uint64_t ms = 5001; ms <= 15000; ms++) {
        later += admitted(gate, SOURCE, false, 3, ms);
    }
    ck_assert_uint_eq(later, 10 * GATE_SOURCE_RATE);
    ck_assert_uint_eq(admitted(gate, SOURCE, false, 1000, 900000), GATE_SOURCE_BURST);
    free(gate);
}
END_TEST

START_TEST(many_sources_together_are_bounded_and_members_are_not_touched)
{
    struct gate *gate = calloc(1, sizeof(*gate));
    unsigned strangers = 0;
    gate_init(gate, 0);
    for (uint32_t address = 1; address <= 5000; address++) {
        strangers += admitted(gate, address, false, 2, 0);
    }
    ck_assert_uint_eq(strangers, GATE_ALL_BURST);
    ck_assert_uint_eq(admitted(gate, 6000, false, 1, 0), 0);
    ck_assert_uint_eq(admitted(gate, 7000, true, 40, 0), 40);
    ck_assert_uint_eq(admitted(gate, 7000, true, 10000, 0), GATE_KNOWN_BURST - 40);
    ck_assert_uint_eq(admitted(gate, 7001, true, 1, 0), 1);
    ck_assert_uint_eq(admitted(gate, 6000, false, 1000, 1000), GATE_SOURCE_BURST);
    free(gate);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("gate");
    TCase *tcase = tcase_create("gate");
    tcase_add_test(tcase, a_source_gets_its_burst_and_then_its_rate);
    tcase_add_test(tcase, many_sources_together_are_bounded_and_members_are_not_touched);
    suite_add_tcase(suite, tcase);
    return suite;
}
