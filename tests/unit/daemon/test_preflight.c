/* What nodes say of their lines: taken where it can be, told, and the reason that it holds a job
 * for. */
#include <stdlib.h>
#include <string.h>

#include <peer.pb-c.h>

#include "base/clock.h"
#include "daemon/preflight.h"
#include "tests/lib/agreed.h"
#include "tests/lib/unit.h"

static struct daemon *self; /* node a of three */
static uv_loop_t loop;

static void on_closed(void *context)
{
    ck_assert_ptr_eq(context, self);
}

static void setup(void)
{
    self = calloc(1, sizeof(*self));
    ASSERT(self != NULL);
    ASSERT(uv_loop_init(&loop) == 0);
    self->loop = &loop;
    agreed_init(&self->state, 3);
    self->node_id = 1;
    self->incarnation = 10;
    self->members_count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        struct member *member = &self->members[i];
        member->id = i + 1;
        member->self = i == 0;
        member->role = DAEMON_TRAINER;
        member->heard = true;
        member->heard_ms = clock_now_ms();
        member->incarnation = 10;
        (void)snprintf(member->name, sizeof(member->name), "%c", (char)('a' + (int)i));
        (void)snprintf(member->address, sizeof(member->address), "10.0.0.%u:7620", i + 1);
    }
    preflight_open(self);
}

static void teardown(void)
{
    preflight_close(self, on_closed);
    ASSERT(uv_run(&loop, UV_RUN_DEFAULT) == 0);
    ASSERT(uv_loop_close(&loop) == 0);
    preflight_free(self);
    state_done(&self->state);
    free(self);
}

static Peer__ProbePair pair_to(uint32_t to, const char *address, uint64_t bytes_per_s)
{
    Peer__ProbePair pair;
    peer__probe_pair__init(&pair);
    pair.to = to;
    pair.incarnation = 10;
    pair.address = (char *)(uintptr_t)address;
    pair.round_trip_ns = 1000000;
    pair.bytes_per_s = bytes_per_s;
    pair.bytes = 1000;
    return pair;
}

static void row(uint32_t from, uint64_t incarnation, Peer__ProbePair *pairs, size_t count)
{
    Peer__ProbeRow said;
    Peer__ProbePair *list[200];
    peer__probe_row__init(&said);
    ck_assert_uint_le(count, 200);
    for (size_t i = 0; i < count; i++) {
        list[i] = &pairs[i];
    }
    said.incarnation = incarnation;
    said.n_pair = count;
    said.pair = list;
    size_t size = peer__probe_row__get_packed_size(&said);
    uint8_t *bytes = malloc(size + 1);
    ASSERT(bytes != NULL);
    (void)peer__probe_row__pack(&said, bytes);
    preflight_on_row(self, from, bytes, size);
    free(bytes);
}

static void all_good(uint64_t bytes_per_s)
{
    static const char *const at[] = {"10.0.0.1:7620", "10.0.0.2:7620", "10.0.0.3:7620"};
    for (uint32_t from = 1; from <= 3; from++) {
        Peer__ProbePair pairs[2];
        size_t count = 0;
        for (uint32_t to = 1; to <= 3; to++) {
            if (to != from) {
                pairs[count++] = pair_to(to, at[to - 1], bytes_per_s);
            }
        }
        row(from, 10, pairs, count);
    }
}

START_TEST(what_was_found_counts_for_these_starts_and_this_address_only)
{
    Peer__ProbePair pair = pair_to(3, "10.0.0.3:7620", 1000000000);
    row(2, 10, &pair, 1);
    ck_assert_ptr_nonnull(preflight_pair(self, 2, 3));
    ck_assert_ptr_null(preflight_pair(self, 3, 2)); /* the other direction is another line */
    ck_assert_uint_gt(preflight_reach(self)->good_ms[1][2], 0);
    ck_assert_uint_eq(preflight_reach(self)->good_ms[2][1], 0);
    row(2, 9, &pair, 1); /* of an earlier start of b */
    ck_assert_ptr_null(preflight_pair(self, 2, 3));
    pair.incarnation = 11; /* c, as nobody knows it yet */
    row(2, 10, &pair, 1);
    ck_assert_ptr_null(preflight_pair(self, 2, 3));
    ck_assert_int_eq(agreed_node(&self->state, 3, 11), STATE_CHANGED);
    ck_assert_ptr_nonnull(preflight_pair(self, 2, 3));
    (void)snprintf(self->members[2].address, sizeof(self->members[2].address), "10.0.0.9:7620");
    ck_assert_ptr_null(preflight_pair(self, 2, 3));
    ck_assert_uint_eq(preflight_reach(self)->good_ms[1][2], 0);
}
END_TEST

START_TEST(a_row_that_cannot_be_harms_nobody)
{
    Peer__ProbePair pairs[200];
    char long_text[5000];
    memset(long_text, '\n', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    for (uint32_t i = 0; i < 200; i++) {
        pairs[i] = pair_to(i % 2 == 0 ? i : UINT32_MAX - i, "10.0.0.3:7620", UINT64_MAX);
        pairs[i].age_ms = UINT64_MAX;
        pairs[i].code = i % 3 == 0 ? 5 : INT32_MIN;
        pairs[i].text = long_text;
        pairs[i].address = long_text;
    }
    row(2, 10, pairs, 200);
    row(0, 10, pairs, 200);
    row(65, 10, pairs, 200);
    row(UINT32_MAX, 10, pairs, 200);
    for (uint32_t from = 1; from <= 3; from++) {
        for (uint32_t to = 1; to <= 3; to++) {
            ck_assert_ptr_null(preflight_pair(self, from, to));
        }
    }
    Peer__ProbePair pair = pair_to(3, "10.0.0.3:7620", 5);
    pair.code = 77; /* no code of ours: it has failed */
    pair.text = long_text;
    row(2, 10, &pair, 1);
    const struct preflight_pair *taken = preflight_pair(self, 2, 3);
    ck_assert_ptr_nonnull(taken);
    ck_assert_int_eq(taken->code, ERR_PEER);
    ck_assert_ptr_null(strchr(taken->text, '\n')); /* It goes into log lines. */
    ck_assert_uint_lt(strlen(taken->text), PREFLIGHT_TEXT_SIZE);
    preflight_on_row(self, 2, (const uint8_t *)"\xff\xff\xff", 3);
    preflight_on_ask(self, 2, (const uint8_t *)"\xff\xff\xff", 3);
    ck_assert_ptr_eq(preflight_pair(self, 2, 3), taken);
}
END_TEST

START_TEST(a_slow_line_is_one_beside_the_others)
{
    all_good(120000000);
    ck_assert(!preflight_slow(self, preflight_pair(self, 1, 2)));
    Peer__ProbePair pair = pair_to(2, "10.0.0.2:7620", 29000000); /* below a quarter */
    row(3, 10, &pair, 1);
    ck_assert(preflight_slow(self, preflight_pair(self, 3, 2)));
    all_good(20000000); /* All alike, and above 100 Mbit/s. */
    ck_assert(!preflight_slow(self, preflight_pair(self, 3, 2)));
    all_good(12000000);
    ck_assert(preflight_slow(self, preflight_pair(self, 3, 2)));
    all_good(UINT64_C(10000000000));
    pair.bytes_per_s = 126000000; /* above 1 Gbit/s nothing is slow */
    row(3, 10, &pair, 1);
    ck_assert(!preflight_slow(self, preflight_pair(self, 3, 2)));
    struct facts_pair told[FACTS_NODES_MAX];
    ck_assert_uint_eq(tell_pairs(self, 3, told, FACTS_NODES_MAX), 2);
    ck_assert_str_eq(told[1].name, "b");
    ck_assert_int_eq(told[1].state, FACTS_LINE_GOOD);
    ck_assert_uint_eq(told[1].bytes_per_s, 126000000);
    ck_assert_uint_eq(tell_pairs(self, 3, told, 1), 1);
}
END_TEST

START_TEST(a_job_is_held_with_the_first_line_that_does_not_work)
{
    char text[FACTS_TEXT_SIZE] = "";
    const struct state_job *job = self->state.jobs[0];
    ck_assert(preflight_hold_text(self, job, text, sizeof(text)));
    ck_assert_str_eq(text, "pre-flight: the lines between its nodes are looked at");
    all_good(1000000000);
    ck_assert(!preflight_hold_text(self, job, text, sizeof(text)));
    Peer__ProbePair pairs[2] = {pair_to(1, "10.0.0.1:7620", 0), pair_to(2, "10.0.0.2:7620", 0)};
    static char reason[] = "node c cannot connect to node a at 10.0.0.1:7620: Connection refused";
    pairs[0].code = pairs[1].code = ERR_REACH;
    pairs[0].text = reason;
    row(3, 10, pairs, 2);
    ck_assert(preflight_hold_text(self, job, text, sizeof(text)));
    ck_assert_str_eq(text,
                     "pre-flight: node c cannot connect to node a at 10.0.0.1:7620: Connection "
                     "refused (and 1 more: 'coppeliusctl nodes -o wide')");
    self->state.jobs[0]->nodes_wanted = 2; /* a and b are enough, and theirs work. */
    ck_assert(!preflight_hold_text(self, job, text, sizeof(text)));
}
END_TEST

START_TEST(an_order_leads_to_members_alone)
{
    preflight_wish(self, UINT64_MAX);
    ck_assert_uint_eq(self->preflight->wished, 6); /* b and c; not itself, nobody else */
    self->preflight->wished = 0;
    all_good(1000000000); /* a looked just now: what it found is told again instead. */
    preflight_wish(self, UINT64_MAX);
    ck_assert_uint_eq(self->preflight->wished, 0);
    ck_assert(self->preflight->untold);
    self->stopping = true;
    self->preflight->rows[0][1].at_ms -= PREFLIGHT_LEAST_MS;
    preflight_wish(self, UINT64_MAX);
    ck_assert_uint_eq(self->preflight->wished, 0);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("preflight");
    TCase *tcase = tcase_create("preflight");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_was_found_counts_for_these_starts_and_this_address_only);
    tcase_add_test(tcase, a_row_that_cannot_be_harms_nobody);
    tcase_add_test(tcase, a_slow_line_is_one_beside_the_others);
    tcase_add_test(tcase, a_job_is_held_with_the_first_line_that_does_not_work);
    tcase_add_test(tcase, an_order_leads_to_members_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
