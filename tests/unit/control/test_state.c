#include "control/state.h"

#include <stdlib.h>

#include "tests/lib/agreed.h"
#include "tests/lib/unit.h"

static struct state state;

static const struct state_job *job(void)
{
    return state_job(&state, 1);
}

static void to_finishing(void)
{
    agreed_to_running(&state, 1);
    ASSERT(agreed_begin(&state, 1, 100, true) == STATE_CHANGED);
}

static void to_succeeded(void)
{
    agreed_to_running(&state, 1);
    agreed_commit(&state, 1, 100, true);
    ASSERT(agreed_finish(&state, 1, OUTCOME_SUCCEEDED) == STATE_CHANGED);
}

/* Brings job 1 there from nothing. */
static void bring_to(enum state_job_state target)
{
    agreed_init(&state, 3);
    switch (target) {
    case JOB_SUBMITTED:
        break;
    case JOB_PLACED:
        ASSERT(agreed_place(&state, 1) == STATE_CHANGED);
        break;
    case JOB_LOADING:
        ASSERT(agreed_place(&state, 1) == STATE_CHANGED);
        ASSERT(agreed_partition(&state, 1) == STATE_CHANGED);
        break;
    case JOB_RUNNING:
        agreed_to_running(&state, 1);
        break;
    case JOB_FINISHING:
        to_finishing();
        break;
    case JOB_SUCCEEDED:
        to_succeeded();
        break;
    case JOB_FAILED:
        agreed_to_running(&state, 1);
        ASSERT(agreed_finish(&state, 1, OUTCOME_FAILED) == STATE_CHANGED);
        break;
    case JOB_CANCELLED:
        ASSERT(agreed_stop(&state, 1, STOP_DROP, 0) == STATE_CHANGED);
        break;
    case JOB_PAUSED:
        agreed_to_running(&state, 1);
        ASSERT(agreed_interrupt(&state, 1) == STATE_CHANGED);
        break;
    default:
        ASSERT(false && "no such state");
    }
    ASSERT(job()->state == target);
}

enum what {
    W_NODE,
    W_SUBMIT,
    W_PLACE,
    W_PARTITION,
    W_RUNNING,
    W_INTERRUPT,
    W_STOP,
    W_DROP,
    W_RESUME,
    W_BEGIN,
    W_PREPARED,
    W_ABORT,
    W_PUBLISHED,
    W_COLLECT,
    W_SUCCEED,
    W_FAIL,
    W_COUNT
};

static enum state_outcome give(enum what what)
{
    switch (what) {
    case W_NODE:
        return agreed_node(&state, 2, 11);
    case W_SUBMIT:
        return agreed_submit(&state, 1, "test"); /* The same uuid. */
    case W_PLACE:
        return agreed_place(&state, 1);
    case W_PARTITION:
        return agreed_partition(&state, 1);
    case W_RUNNING:
        return agreed_running(&state, 1);
    case W_INTERRUPT:
        return agreed_interrupt(&state, 1);
    case W_STOP:
        return agreed_stop(&state, 1, STOP_CAPTURE, 0);
    case W_DROP:
        return agreed_stop(&state, 1, STOP_DROP, 0);
    case W_RESUME:
        return agreed_resume(&state, 1);
    case W_BEGIN:
        return agreed_begin(&state, 1, 50, false);
    case W_PREPARED:
        return agreed_vote(&state, 1, 2);
    case W_ABORT:
        return agreed_abort(&state, 1, 1);
    case W_PUBLISHED:
        return agreed_published(&state, 1, 1, 2);
    case W_COLLECT:
        return agreed_collect(&state, 1, 1);
    case W_SUCCEED:
        return agreed_finish(&state, 1, OUTCOME_SUCCEEDED);
    case W_FAIL:
        return agreed_finish(&state, 1, OUTCOME_FAILED);
    case W_COUNT:
    default:
        ASSERT(false && "no such entry");
        return STATE_REFUSED;
    }
}

/* '.' changes nothing; else the state behind: s(ubmitted) p(laced) l(oading) r(unning) f(inishing)
 * S(ucceeded) F(ailed) C(ancelled) P(aused). Columns as enum what. */
static const char letters[] = "?splrfSFCP";
static const struct {
    enum state_job_state from;
    const char *row;
} table[] = {
    /*               N S P P R I S D R B P A P C S F   (NODE is known for all: see below) */
    {JOB_SUBMITTED, "s.p...PC........"}, {JOB_PLACED, "P..l.PPC.......F"},
    {JOB_LOADING, "P...rPPC.......F"},   {JOB_RUNNING, "P....PrC.r.....F"},
    {JOB_FINISHING, "P....PfC..ff...F"}, {JOB_SUCCEEDED, "S...........S..."},
    {JOB_FAILED, "F..............."},    {JOB_CANCELLED, "C..............."},
    {JOB_PAUSED, "P.p...PC.......F"},
};

START_TEST(each_entry_in_each_state_does_what_the_drawing_says)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        ck_assert_uint_eq(strlen(table[i].row), W_COUNT);
        for (unsigned w = 0; w < W_COUNT; w++) {
            bring_to(table[i].from);
            uint64_t changes = state.changes;
            enum state_outcome outcome = give((enum what)w);
            char expected = table[i].row[w];
            char now = letters[job()->state];
            if (expected == '.') {
                ck_assert_msg(outcome == STATE_IGNORED && job()->state == table[i].from &&
                                  state.changes == changes,
                              "state %s, entry %u: outcome %d, now %c",
                              state_job_label(table[i].from), w, (int)outcome, now);
            } else {
                ck_assert_msg(outcome == STATE_CHANGED && now == expected &&
                                  state.changes == changes + 1,
                              "state %s, entry %u: outcome %d, now %c, expected %c",
                              state_job_label(table[i].from), w, (int)outcome, now, expected);
            }
            state_done(&state);
        }
    }
}
END_TEST

START_TEST(every_entry_given_twice_changes_nothing_the_second_time)
{
    for (unsigned from = JOB_SUBMITTED; from <= JOB_PAUSED; from++) {
        for (unsigned w = 0; w < W_COUNT; w++) {
            bring_to((enum state_job_state)from);
            struct command c = {.kind = COMMAND_NONE};
            if (w == W_STOP || w == W_RESUME) { /* The very same bytes, not a new turn. */
                c.kind = w == W_STOP ? COMMAND_STOP : COMMAND_RESUME;
                if (w == W_STOP) {
                    c.stop.job = 1;
                    c.stop.how = STOP_CAPTURE;
                } else {
                    c.resume.job = 1;
                }
                (void)agreed_apply(&state, &c, NULL);
            } else if (w == W_PLACE || w == W_BEGIN) {
                (void)give((enum what)w);
                c.kind = w == W_PLACE ? COMMAND_PLACE : COMMAND_BEGIN;
                if (w == W_PLACE) {
                    c.place.job = 1;
                    c.place.generation = state.generation;
                    c.place.nodes_count = 1;
                    c.place.nodes[0] = 1;
                    c.place.incarnations[0] = 10;
                } else {
                    c.begin.job = 1;
                    c.begin.generation = job()->generation;
                    c.begin.epoch = 1;
                    c.begin.step = 50;
                }
            } else {
                (void)give((enum what)w);
            }
            uint64_t changes = state.changes;
            enum state_outcome outcome =
                c.kind != COMMAND_NONE ? agreed_apply(&state, &c, NULL) : give((enum what)w);
            ck_assert_msg(outcome == STATE_IGNORED && state.changes == changes,
                          "state %s, entry %u", state_job_label((enum state_job_state)from), w);
            state_done(&state);
        }
    }
}
END_TEST

START_TEST(a_restarted_node_ends_the_generation_and_aborts_what_it_did_not_vote_for)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    (void)agreed_begin(&state, 1, 50, false);
    (void)agreed_vote(&state, 1, 2);
    ck_assert_int_eq(agreed_node(&state, 2, 11), STATE_CHANGED);
    ck_assert_int_eq(job()->state, JOB_PAUSED);
    ck_assert_str_eq(job()->reason, "node 'b' has restarted");
    ck_assert_ptr_nonnull(job()->open); /* It had voted: the others may still commit. */
    ck_assert_int_eq(agreed_place(&state, 1), STATE_IGNORED);
    (void)agreed_vote(&state, 1, 1);
    (void)agreed_vote(&state, 1, 3);
    ck_assert_ptr_nonnull(state_newest_epoch(job()));
    ck_assert_int_eq(job()->state, JOB_PAUSED);
    ck_assert_int_eq(agreed_place(&state, 1), STATE_CHANGED);
    ck_assert_uint_eq(job()->seed_epoch, 1);
    (void)agreed_partition(&state, 1);
    (void)agreed_running(&state, 1);
    (void)agreed_begin(&state, 1, 70, false);
    ck_assert_int_eq(agreed_node(&state, 3, 11), STATE_CHANGED);
    ck_assert_ptr_null(job()->open);
    ck_assert_uint_eq(job()->aborted_epoch, 2);
    ck_assert_int_eq(agreed_node(&state, 3, 10), STATE_IGNORED); /* late */
    ck_assert_uint_eq(state_node(&state, 3)->incarnation, 11);
    state_done(&state);
}
END_TEST

START_TEST(a_generation_is_placed_with_the_incarnations_that_are_known)
{
    agreed_init(&state, 3);
    struct command c = {.kind = COMMAND_PLACE};
    c.place.job = 1;
    c.place.generation = 1;
    c.place.nodes_count = 1;
    c.place.nodes[0] = 2;
    c.place.incarnations[0] = 9;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c.place.incarnations[0] = 10;
    c.place.generation = 2;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c.place.generation = 1;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    ck_assert_int_eq(state_rank(job(), 2), 0);
    ck_assert_int_eq(state_rank(job(), 1), -1);
    state_done(&state);
}
END_TEST

START_TEST(fewer_coordinates_than_participants_leave_the_last_out)
{
    agreed_init(&state, 3);
    (void)agreed_place(&state, 1);
    struct command c;
    agreed_partition_command(&state, 1, &c);
    c.partition.ranges_count = 2;
    c.partition.bounds[1] = 1;
    c.partition.bounds[2] = 2;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    ck_assert_uint_eq(job()->participants_count, 2);
    ck_assert_int_eq(state_rank(job(), 3), -1);
    ck_assert_uint_eq(job()->coordinates, 2);
    (void)agreed_running(&state, 1);
    ck_assert_int_eq(agreed_node(&state, 3, 11), STATE_CHANGED); /* It disturbs nothing. */
    ck_assert_int_eq(job()->state, JOB_RUNNING);
    agreed_commit(&state, 1, 50, false);
    ck_assert_uint_eq(state_newest_epoch(job())->shards_count, 2);
    state_done(&state);
}
END_TEST

START_TEST(another_dataset_in_a_later_generation_fails_the_job)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    (void)agreed_interrupt(&state, 1);
    (void)agreed_place(&state, 1);
    struct command c;
    agreed_partition_command(&state, 1, &c);
    c.partition.rows = 999;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    ck_assert_int_eq(job()->state, JOB_FAILED);
    ck_assert_ptr_nonnull(strstr(job()->reason, "999 rows"));
    state_done(&state);
}
END_TEST

START_TEST(a_pause_ends_behind_the_publication_that_it_asked_for)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    (void)agreed_begin(&state, 1, 50, false); /* a periodic one is under way */
    ck_assert_int_eq(agreed_stop(&state, 1, STOP_CAPTURE, 0), STATE_CHANGED);
    for (uint32_t node = 1; node <= 3; node++) {
        (void)agreed_vote(&state, 1, node);
    }
    ck_assert_int_eq(job()->state, JOB_RUNNING);
    ck_assert(job()->stopping);
    agreed_commit(&state, 1, 53, true);
    ck_assert_int_eq(job()->state, JOB_PAUSED);
    ck_assert_int_eq(job()->hold, HOLD_USER);
    ck_assert_str_eq(job()->reason, "paused by root");
    ck_assert_ptr_null(state_next_job(&state));
    ck_assert_int_eq(agreed_place(&state, 1), STATE_IGNORED);
    ck_assert_int_eq(agreed_resume(&state, 1), STATE_CHANGED);
    ck_assert_int_eq(agreed_place(&state, 1), STATE_CHANGED);
    ck_assert_uint_eq(job()->seed_epoch, 2);
    state_done(&state);
}
END_TEST

START_TEST(a_node_that_goes_holds_the_job_even_when_it_is_interrupted_first)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    ck_assert_int_eq(agreed_stop(&state, 1, STOP_CAPTURE, 2), STATE_CHANGED);
    (void)agreed_interrupt(&state, 1);
    ck_assert_int_eq(job()->hold, HOLD_NODE);
    ck_assert_uint_eq(job()->hold_node, 2);
    ck_assert_uint_eq(job()->hold_incarnation, 10);
    state_done(&state);
}
END_TEST

START_TEST(a_late_stop_or_resume_of_an_earlier_turn_changes_nothing)
{
    agreed_init(&state, 3);
    struct command stop = {.kind = COMMAND_STOP};
    stop.stop.job = 1;
    stop.stop.how = STOP_CAPTURE;
    ck_assert_int_eq(agreed_apply(&state, &stop, NULL), STATE_CHANGED);
    ck_assert_int_eq(agreed_resume(&state, 1), STATE_CHANGED);
    ck_assert_int_eq(agreed_apply(&state, &stop, NULL), STATE_IGNORED);
    ck_assert_ptr_nonnull(state_next_job(&state));
    state_done(&state);
}
END_TEST

START_TEST(one_job_is_placed_at_a_time_oldest_first)
{
    agreed_init(&state, 3);
    (void)agreed_submit(&state, 2, "second");
    ck_assert_uint_eq(state_next_job(&state)->id, 1);
    (void)agreed_place(&state, 1);
    ck_assert_uint_eq(state_active_job(&state)->id, 1);
    ck_assert_uint_eq(state_next_job(&state)->id, 2);
    ck_assert_int_eq(agreed_place(&state, 2), STATE_IGNORED);
    (void)agreed_stop(&state, 1, STOP_DROP, 0);
    ck_assert_int_eq(agreed_place(&state, 2), STATE_CHANGED);
    state_done(&state);
}
END_TEST

START_TEST(the_oldest_ended_job_is_forgotten_and_live_ones_never)
{
    state_init(&state);
    struct command c;
    for (unsigned i = 0; i < STATE_JOBS_MAX; i++) {
        agreed_submit_command(&c, (uint8_t)(i & 0xff), "many");
        c.submit.uuid[1] = (uint8_t)(1 + (i >> 8));
        ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    }
    struct err why = {0};
    c.submit.uuid[2] = 9;
    ck_assert_int_eq(agreed_apply(&state, &c, &why), STATE_REFUSED);
    ck_assert_str_eq(why.text, "256 jobs wait already: cancel some, or submit 'many' later");
    (void)agreed_stop(&state, 5, STOP_DROP, 0);
    (void)agreed_stop(&state, 3, STOP_DROP, 0);
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    ck_assert_uint_eq(state.jobs_count, STATE_JOBS_MAX);
    ck_assert_ptr_null(state_job(&state, 3));
    ck_assert_ptr_nonnull(state_job(&state, 5));
    ck_assert_ptr_nonnull(state_job(&state, 257));
    state_done(&state);
}
END_TEST

START_TEST(texts_are_bounded_in_sum)
{
    state_init(&state);
    char *text = malloc(COMMAND_JOB_TEXT_MAX);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', COMMAND_JOB_TEXT_MAX);
    unsigned taken = 0;
    for (unsigned i = 0; i < STATE_JOBS_MAX; i++) {
        struct command c;
        agreed_submit_command(&c, (uint8_t)i, "large");
        c.submit.text = text;
        c.submit.text_size = COMMAND_JOB_TEXT_MAX;
        taken += agreed_apply(&state, &c, NULL) == STATE_CHANGED ? 1 : 0;
    }
    ck_assert_uint_gt(taken, 100);
    ck_assert_uint_lt(taken, STATE_JOBS_MAX);
    struct buf bytes = BUF_NONE;
    state_write(&state, &bytes);
    ck_assert_uint_le(bytes.size, STATE_SIZE_MAX);
    buf_done(&bytes);
    free(text);
    state_done(&state);
}
END_TEST

START_TEST(a_job_is_found_by_number_and_by_its_newest_name)
{
    agreed_init(&state, 1);
    (void)agreed_submit(&state, 2, "test");
    const struct state_job *found = NULL;
    struct err err = {0};
    ck_assert_int_eq(state_find_job(&state, "1", &found, &err), 0);
    ck_assert_uint_eq(found->id, 1);
    ck_assert_int_eq(state_find_job(&state, "test", &found, &err), 0);
    ck_assert_uint_eq(found->id, 2);
    ck_assert_int_eq(state_find_job(&state, "other", &found, &err), ERR_NOT_FOUND);
    ck_assert_str_eq(err.text, "no job 'other': 'coppeliusctl jobs' lists those that there are");
    state_done(&state);
}
END_TEST

START_TEST(bytes_that_are_no_entry_are_refused_and_change_nothing)
{
    agreed_init(&state, 1);
    uint64_t changes = state.changes;
    struct err why = {0};
    static const uint8_t later[12] = {COMMAND_FORMAT, 99}; /* of a later version */
    ck_assert_int_eq(state_apply(&state, state.applied_index + 1, later, sizeof(later), &why),
                     STATE_REFUSED);
    ck_assert_str_eq(why.text, "a log entry of kind 99, which this version does not know");
    ck_assert_uint_eq(state.changes, changes);
    state_done(&state);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("state");
    TCase *tests = tcase_create("state");
    tcase_add_test(tests, each_entry_in_each_state_does_what_the_drawing_says);
    tcase_add_test(tests, every_entry_given_twice_changes_nothing_the_second_time);
    tcase_add_test(tests, a_restarted_node_ends_the_generation_and_aborts_what_it_did_not_vote_for);
    tcase_add_test(tests, a_generation_is_placed_with_the_incarnations_that_are_known);
    tcase_add_test(tests, fewer_coordinates_than_participants_leave_the_last_out);
    tcase_add_test(tests, another_dataset_in_a_later_generation_fails_the_job);
    tcase_add_test(tests, a_pause_ends_behind_the_publication_that_it_asked_for);
    tcase_add_test(tests, a_node_that_goes_holds_the_job_even_when_it_is_interrupted_first);
    tcase_add_test(tests, a_late_stop_or_resume_of_an_earlier_turn_changes_nothing);
    tcase_add_test(tests, one_job_is_placed_at_a_time_oldest_first);
    tcase_add_test(tests, the_oldest_ended_job_is_forgotten_and_live_ones_never);
    tcase_add_test(tests, texts_are_bounded_in_sum);
    tcase_add_test(tests, a_job_is_found_by_number_and_by_its_newest_name);
    tcase_add_test(tests, bytes_that_are_no_entry_are_refused_and_change_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}
