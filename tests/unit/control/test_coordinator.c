#include "control/coordinator.h"

#include "tests/lib/agreed.h"
#include "tests/lib/unit.h"

static struct state state;
static struct coordinator coordinator;
static struct coordinator_view view;
static struct command got;

/* Three trainers, all alive, at 100 s. */
static void begin(void)
{
    agreed_init(&state, 3);
    coordinator_reset(&coordinator);
    view = (struct coordinator_view){.now_ms = 100000, .wall_ms = 5, .leading = true};
    view.nodes_count = 3;
    static const char *const names[3] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        view.nodes[i] = (struct coordinator_node){.id = i + 1,
                                                  .role = ROLE_TRAINER,
                                                  .name = names[i],
                                                  .heard = true,
                                                  .heard_ms = view.now_ms,
                                                  .incarnation = 10};
    }
}

static bool next(void)
{
    return coordinator_next(&coordinator, &state, &view, &got);
}

/* Time goes on; who is in `mask` was heard. */
static void pass(uint64_t ms, unsigned mask)
{
    view.now_ms += ms;
    for (uint32_t i = 0; i < 3; i++) {
        if ((mask & (1U << i)) != 0) {
            view.nodes[i].heard_ms = view.now_ms;
        }
    }
}

static void captured(uint64_t step, bool ends)
{
    for (uint32_t i = 0; i < 3; i++) {
        view.nodes[i].captured =
            (struct coordinator_report){1, state_job(&state, 1)->generation, step, ends};
    }
}

static enum state_outcome take(void)
{
    return agreed_apply(&state, &got, NULL);
}

START_TEST(places_when_all_trainers_are_alive)
{
    begin();
    view.nodes[2].heard = false;
    ck_assert(!next());
    view.nodes[2].heard = true;
    view.nodes[2].incarnation = 11; /* its NODE entry is not there yet */
    ck_assert(!next());
    view.nodes[2].incarnation = 10;
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_PLACE);
    ck_assert_uint_eq(got.place.nodes_count, 3);
    ck_assert_uint_eq(got.wall_ms, 5);
    ck_assert(!next()); /* not twice at once */
    pass(COORDINATOR_REPEAT_MS, 7);
    ck_assert(next()); /* it may have been lost */
    ck_assert_int_eq(take(), STATE_CHANGED);
    ck_assert(!next());
    state_done(&state);
}
END_TEST

/* All lines were good at that time. */
static void good_since(struct coordinator_reach *reach, uint64_t ms)
{
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < 3; k++) {
            reach->good_ms[i][k] = i == k ? 0 : ms;
        }
    }
}

START_TEST(places_only_where_every_line_was_found_to_work_lately)
{
    static struct coordinator_reach reach;
    begin();
    view.now_ms += COORDINATOR_FRESH_MS;
    pass(0, 7);
    good_since(&reach, view.now_ms);
    view.reach = &reach;
    reach.good_ms[2][0] = 0; /* c to a: one way of one pair */
    ck_assert(!next());
    ck_assert_uint_eq(coordinator.wanted, 7);
    ck_assert_uint_eq(coordinator_roster(&state, &view, state.jobs[0]), 7);
    reach.good_ms[2][0] = view.now_ms;
    pass(COORDINATOR_FRESH_MS + 1, 7);
    ck_assert(!next()); /* Too long ago. */
    ck_assert_uint_eq(coordinator.wanted_since_ms, view.now_ms - COORDINATOR_FRESH_MS);
    good_since(&reach, view.now_ms);
    reach.good_ms[0][1] = view.now_ms - COORDINATOR_FRESH_MS;
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_PLACE);
    ck_assert_int_eq(take(), STATE_CHANGED);
    ck_assert_uint_eq(coordinator_roster(&state, &view, state.jobs[0]), 0); /* It is placed. */
    state_done(&state);
    begin(); /* Whoever takes no part need not be reached. */
    state.jobs[0]->nodes_wanted = 2;
    view.reach = &reach;
    good_since(&reach, view.now_ms);
    reach.good_ms[0][2] = reach.good_ms[2][1] = 0;
    ck_assert(next());
    ck_assert_uint_eq(got.place.nodes_count, 2);
    state_done(&state);
}
END_TEST

START_TEST(after_two_interruptions_in_a_row_lines_are_looked_at_anew)
{
    static struct coordinator_reach reach;
    for (uint32_t attempts = 1; attempts <= 2; attempts++) {
        begin();
        view.reach = &reach;
        good_since(&reach, view.now_ms - 1000);
        state.jobs[0]->attempts = attempts;
        (void)next(); /* It begins to wait. */
        pass(3 * COORDINATOR_BACKOFF_MS, 7);
        ck_assert(next() == (attempts == 1));
        good_since(&reach, view.now_ms);
        pass(COORDINATOR_REPEAT_MS, 7);
        ck_assert(next());
        state_done(&state);
    }
}
END_TEST

START_TEST(says_nothing_before_it_leads)
{
    begin();
    view.leading = false;
    ck_assert(!next());
    state_done(&state);
}
END_TEST

START_TEST(an_arbiter_is_not_waited_for_and_a_wish_for_fewer_takes_the_first)
{
    begin();
    view.nodes[0].role = ROLE_ARBITER;
    view.nodes[0].heard = false;
    ck_assert(next());
    ck_assert_uint_eq(got.place.nodes_count, 2);
    ck_assert_uint_eq(got.place.nodes[0], 2);
    state_done(&state);
    begin();
    state.jobs[0]->nodes_wanted = 2;
    view.nodes[0].heard = false;
    ck_assert(next());
    ck_assert_uint_eq(got.place.nodes_count, 2);
    ck_assert_uint_eq(got.place.nodes[1], 3);
    state_done(&state);
}
END_TEST

START_TEST(a_silent_participant_interrupts_and_is_named)
{
    begin();
    agreed_to_running(&state, 1);
    ck_assert(!next());
    pass(3000, 3);
    ck_assert(!next());
    pass(100, 3);
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_INTERRUPT);
    ck_assert_uint_eq(got.interrupt.node, 3);
    ck_assert_str_eq(got.interrupt.reason, "node 'c' is silent for 3.1 s");
    (void)take();
    ck_assert(!next()); /* c is not there */
    pass(100, 7);
    ck_assert(next()); /* first interruption: at once, with a word from all since */
    ck_assert_int_eq(got.kind, COMMAND_PLACE);
    state_done(&state);
}
END_TEST

START_TEST(a_new_leader_gives_everybody_time)
{
    begin();
    agreed_to_running(&state, 1);
    for (uint32_t i = 1; i < 3; i++) {
        view.nodes[i].heard = false;
    }
    ck_assert(!next());
    pass(2900, 1);
    ck_assert(!next());
    pass(200, 1);
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_INTERRUPT);
    ck_assert_uint_eq(got.interrupt.node, 2);
    state_done(&state);
}
END_TEST

START_TEST(a_restarted_participant_interrupts_before_its_entry_is_there)
{
    begin();
    agreed_to_running(&state, 1);
    view.nodes[1].incarnation = 11;
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_INTERRUPT);
    ck_assert_str_eq(got.interrupt.reason, "node 'b' has restarted");
    state_done(&state);
}
END_TEST

START_TEST(interruptions_in_a_row_wait_longer_and_longer)
{
    static const uint64_t waits[] = {0, 1000, 2000, 4000, 8000, 8000, 8000};
    begin();
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        ck_assert_int_eq(agreed_place(&state, 1), STATE_CHANGED);
        (void)agreed_interrupt(&state, 1);
        (void)next(); /* sees it */
        if (waits[i] > 0) {
            pass(waits[i] - 1, 7);
            ck_assert(!next());
        }
        pass(1, 7);
        ck_assert(next());
        ck_assert_int_eq(got.kind, COMMAND_PLACE);
    }
    state_done(&state);
}
END_TEST

START_TEST(begins_when_all_have_captured_the_same_step)
{
    begin();
    agreed_to_running(&state, 1);
    captured(50, false);
    view.nodes[1].captured.step = 40;
    ck_assert(!next());
    view.nodes[1].captured = view.nodes[0].captured;
    view.nodes[1].captured.generation++;
    ck_assert(!next());
    view.nodes[1].captured = view.nodes[0].captured;
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_BEGIN);
    ck_assert_uint_eq(got.begin.step, 50);
    ck_assert_uint_eq(got.begin.epoch, 1);
    ck_assert_int_eq(take(), STATE_CHANGED);
    ck_assert(!next());
    for (uint32_t node = 1; node <= 3; node++) {
        (void)agreed_vote(&state, 1, node);
    }
    ck_assert(!next()); /* the same capture is not begun twice */
    state_done(&state);
}
END_TEST

START_TEST(an_aborted_capture_is_let_go_unless_it_ends_the_run)
{
    begin();
    agreed_to_running(&state, 1);
    captured(50, false);
    (void)next();
    (void)take();
    (void)agreed_abort(&state, 1, 1);
    ck_assert(!next());
    captured(100, true);
    ck_assert(next());
    (void)take();
    (void)agreed_abort(&state, 1, 2);
    ck_assert(!next()); /* two in turn: a second later */
    pass(999, 7);
    ck_assert(!next());
    pass(1001, 7);
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_BEGIN);
    ck_assert_uint_eq(got.begin.epoch, 3);
    ck_assert(got.begin.ends);
    state_done(&state);
}
END_TEST

START_TEST(a_publication_is_aborted_at_its_deadline_naming_who_lacks)
{
    begin();
    agreed_to_running(&state, 1);
    captured(50, false);
    (void)next();
    (void)take();
    (void)agreed_vote(&state, 1, 1);
    ck_assert(!next());
    for (int i = 0; i < 60; i++) {
        pass(1000, 7);
        ck_assert(!next());
    }
    pass(1, 7);
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_ABORT);
    ck_assert_uint_eq(got.abort.node, 2);
    ck_assert_str_eq(got.abort.reason, "node 'b' has not prepared its shard within 60 s");
    coordinator_reset(&coordinator); /* a new leader's timer starts anew */
    ck_assert(!next());
    state_done(&state);
}
END_TEST

START_TEST(the_deadline_is_ten_times_the_last_publication_where_that_is_longer)
{
    begin();
    agreed_to_running(&state, 1);
    captured(50, false);
    (void)next();
    (void)take();
    (void)next();
    for (int i = 0; i < 20; i++) {
        pass(1000, 7);
        (void)next();
    }
    for (uint32_t node = 1; node <= 3; node++) {
        (void)agreed_vote(&state, 1, node);
    }
    (void)next();
    captured(60, false);
    ck_assert(next());
    (void)take();
    for (int i = 0; i < 200; i++) {
        ck_assert(!next());
        pass(1000, 7);
    }
    pass(1, 7);
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_ABORT);
    state_done(&state);
}
END_TEST

START_TEST(an_open_publication_is_settled_before_the_next_generation)
{
    begin();
    agreed_to_running(&state, 1);
    captured(50, false);
    (void)next();
    (void)take();
    (void)agreed_vote(&state, 1, 3);
    (void)agreed_interrupt(&state, 1);
    ck_assert(!next());
    pass(100, 7);
    ck_assert(!next()); /* waits for the votes */
    pass(3100, 6);
    ck_assert(next()); /* a has not voted and is silent */
    ck_assert_int_eq(got.kind, COMMAND_ABORT);
    ck_assert_uint_eq(got.abort.node, 1);
    (void)take();
    (void)next();
    pass(100, 7);
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_PLACE);
    state_done(&state);
}
END_TEST

START_TEST(collects_beyond_keep_and_resumes_when_the_stopped_node_is_back)
{
    begin(); /* keep: 2 */
    agreed_to_running(&state, 1);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        agreed_commit(&state, 1, epoch * 10, false);
        ck_assert(!next());
        agreed_publish(&state, 1, epoch);
    }
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_COLLECT);
    ck_assert_uint_eq(got.collect.epoch, 1);
    ck_assert_int_eq(take(), STATE_CHANGED);
    (void)agreed_stop(&state, 1, STOP_CAPTURE, 2);
    agreed_commit(&state, 1, 40, true);
    ck_assert(!next()); /* b is still the same process */
    view.nodes[1].incarnation = 11;
    ck_assert(!next()); /* and not registered */
    (void)agreed_node(&state, 2, 11);
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_RESUME);
    ck_assert_int_eq(take(), STATE_CHANGED);
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_PLACE);
    state_done(&state);
}
END_TEST

START_TEST(after_a_publication_the_nodes_with_the_shards_are_needed)
{
    begin();
    (void)agreed_place(&state, 1);
    struct command c;
    agreed_partition_command(&state, 1, &c);
    c.partition.ranges_count = 2;
    c.partition.bounds[1] = 1;
    c.partition.bounds[2] = 2;
    (void)agreed_apply(&state, &c, NULL);
    (void)agreed_running(&state, 1);
    agreed_commit(&state, 1, 10, false);
    (void)agreed_interrupt(&state, 1);
    (void)next();
    pass(4000, 3); /* c is silent, and not needed */
    ck_assert(next());
    ck_assert_int_eq(got.kind, COMMAND_PLACE);
    ck_assert_uint_eq(got.place.nodes_count, 2);
    state_done(&state);
}
END_TEST

static void expect_text(uint64_t job, const char *expected)
{
    char text[COMMAND_REASON_SIZE];
    coordinator_wait_text(&state, &view, state_job(&state, job), text, sizeof(text));
    ck_assert_str_eq(text, expected);
}

/* A node's disk was lost with many epochs on it: what is asked for is bounded, nothing is asked for
 * twice within the time, the rest is asked for then, and what is urgent does not wait for it. */
START_TEST(many_copies_are_asked_for_a_bounded_number_at_a_time)
{
    enum { EPOCHS = 30, SHARDS = 3 };
    static bool asked[EPOCHS + 1][SHARDS];
    memset(asked, 0, sizeof(asked));
    begin();
    state.jobs[0]->replicas = 1;
    state.jobs[0]->keep = EPOCHS;
    agreed_to_running(&state, 1);
    for (uint64_t e = 1; e <= EPOCHS; e++) { /* Of each shard there is its own node's only. */
        agreed_commit(&state, 1, e, false);
        agreed_publish(&state, 1, e);
    }
    unsigned total = 0;
    for (int turn = 0; turn < 2; turn++) {
        unsigned said = 0;
        while (next()) {
            ck_assert_int_eq(got.kind, COMMAND_ASSIGN);
            ck_assert_uint_eq(got.copy.life, state_node(&state, got.copy.node)->life);
            ck_assert(turn > 0 || !asked[got.copy.epoch][got.copy.rank]);
            asked[got.copy.epoch][got.copy.rank] = true;
            said++;
            ck_assert_uint_le(said, COORDINATOR_ASSIGNED_MAX);
        }
        ck_assert_uint_eq(said, COORDINATOR_ASSIGNED_MAX);
        view.nodes[2].incarnation = 11; /* It has restarted. */
        ck_assert(next());
        ck_assert_int_eq(got.kind, COMMAND_INTERRUPT);
        ck_assert(!next());
        view.nodes[2].incarnation = 10;
        pass(COORDINATOR_REPEAT_MS, 7);
    }
    while (next()) { /* What is agreed on makes room for the others. */
        ck_assert_int_eq(take(), STATE_CHANGED);
        total++;
        if (total % COORDINATOR_ASSIGNED_MAX == 0) {
            pass(COORDINATOR_REPEAT_MS, 7);
        }
        ck_assert_uint_le(total, EPOCHS * SHARDS);
    }
    ck_assert_uint_eq(total, EPOCHS * SHARDS);
    state_done(&state);
}
END_TEST

START_TEST(tells_people_what_a_job_waits_for)
{
    begin();
    (void)agreed_submit(&state, 2, "second");
    (void)agreed_submit(&state, 3, "third");
    expect_text(3, "2 jobs before it");
    expect_text(1, "is placed as soon as its nodes answer");
    view.nodes[1].heard = false;
    expect_text(1, "waits for node b");
    view.nodes[2].heard = false;
    expect_text(1, "waits for nodes b, c");
    view.leading = false; /* Whoever is asked. */
    expect_text(1, "waits for nodes b, c");
    view.leading = true;
    state_done(&state);
    begin();
    state.jobs[0]->nodes_wanted = 9;
    expect_text(1, "wants 9 trainers, more than the cluster has: start more, or submit it with "
                   "fewer");
    state.jobs[0]->nodes_wanted = 0;
    agreed_to_running(&state, 1);
    expect_text(1, "");
    (void)agreed_stop(&state, 1, STOP_CAPTURE, 0);
    expect_text(1, "stops after its next checkpoint");
    agreed_commit(&state, 1, 10, true);
    expect_text(1, "held until 'coppeliusctl job resume test'");
    state_done(&state);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("coordinator");
    TCase *tests = tcase_create("coordinator");
    tcase_add_test(tests, places_when_all_trainers_are_alive);
    tcase_add_test(tests, places_only_where_every_line_was_found_to_work_lately);
    tcase_add_test(tests, after_two_interruptions_in_a_row_lines_are_looked_at_anew);
    tcase_add_test(tests, says_nothing_before_it_leads);
    tcase_add_test(tests, an_arbiter_is_not_waited_for_and_a_wish_for_fewer_takes_the_first);
    tcase_add_test(tests, a_silent_participant_interrupts_and_is_named);
    tcase_add_test(tests, a_new_leader_gives_everybody_time);
    tcase_add_test(tests, a_restarted_participant_interrupts_before_its_entry_is_there);
    tcase_add_test(tests, interruptions_in_a_row_wait_longer_and_longer);
    tcase_add_test(tests, begins_when_all_have_captured_the_same_step);
    tcase_add_test(tests, an_aborted_capture_is_let_go_unless_it_ends_the_run);
    tcase_add_test(tests, a_publication_is_aborted_at_its_deadline_naming_who_lacks);
    tcase_add_test(tests, the_deadline_is_ten_times_the_last_publication_where_that_is_longer);
    tcase_add_test(tests, an_open_publication_is_settled_before_the_next_generation);
    tcase_add_test(tests, collects_beyond_keep_and_resumes_when_the_stopped_node_is_back);
    tcase_add_test(tests, after_a_publication_the_nodes_with_the_shards_are_needed);
    tcase_add_test(tests, many_copies_are_asked_for_a_bounded_number_at_a_time);
    tcase_add_test(tests, tells_people_what_a_job_waits_for);
    suite_add_tcase(suite, tests);
    return suite;
}
