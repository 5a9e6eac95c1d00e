#include "control/state.h"

#include "tests/lib/agreed.h"
#include "tests/lib/unit.h"

static struct state state;

static const struct state_job *job(void)
{
    return state_job(&state, 1);
}

START_TEST(the_last_vote_commits_and_an_abort_behind_it_changes_nothing)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    ck_assert_int_eq(agreed_begin(&state, 1, 50, false), STATE_CHANGED);
    ck_assert_int_eq(agreed_vote(&state, 1, 3), STATE_CHANGED);
    ck_assert_int_eq(agreed_vote(&state, 1, 1), STATE_CHANGED);
    ck_assert_uint_eq(state_votes(job()->open), 2);
    ck_assert_int_eq(agreed_vote(&state, 1, 1), STATE_IGNORED);
    ck_assert_int_eq(agreed_vote(&state, 1, 2), STATE_CHANGED);
    ck_assert_ptr_null(job()->open);
    ck_assert_int_eq(agreed_abort(&state, 1, 1), STATE_IGNORED);
    const struct state_epoch *epoch = state_newest_epoch(job());
    ck_assert_uint_eq(epoch->epoch, 1);
    ck_assert_uint_eq(epoch->decided_index, state.applied_index - 1);
    ck_assert_uint_eq(epoch->parameter_sha256[0], 0x11);
    ck_assert_uint_eq(epoch->shards[1].first, 3);
    ck_assert_uint_eq(epoch->shards[1].end, 6);
    ck_assert_uint_eq(epoch->shards[2].sha256[0], 3);
    state_done(&state);
}
END_TEST

START_TEST(an_abort_before_the_last_vote_wins_and_its_number_is_not_used_again)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    (void)agreed_begin(&state, 1, 50, false);
    (void)agreed_vote(&state, 1, 1);
    (void)agreed_vote(&state, 1, 2);
    struct command last;
    agreed_vote_command(&state, 1, 3, &last);
    ck_assert_int_eq(agreed_abort(&state, 1, 1), STATE_CHANGED);
    ck_assert_int_eq(agreed_apply(&state, &last, NULL), STATE_IGNORED);
    ck_assert_ptr_null(state_newest_epoch(job()));
    ck_assert_str_eq(job()->aborted_reason, "node 'b': disk full");
    ck_assert_int_eq(agreed_begin(&state, 1, 50, false), STATE_IGNORED); /* tried already */
    ck_assert_int_eq(agreed_begin(&state, 1, 60, false), STATE_CHANGED);
    ck_assert_uint_eq(job()->open->epoch, 2);
    state_done(&state);
}
END_TEST

START_TEST(votes_of_another_world_do_not_count)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    (void)agreed_begin(&state, 1, 50, false);
    struct command good;
    agreed_vote_command(&state, 1, 2, &good);
    struct command c = good;
    c.prepared.incarnation = 9;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c = good;
    c.prepared.generation++;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c = good;
    c.prepared.step++;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c = good;
    c.prepared.epoch++;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c = good;
    c.prepared.node = 4;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c = good;
    c.prepared.holders[0] = 1; /* not with the node itself */
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c = good;
    c.prepared.holders_count = 2;
    c.prepared.holders[1] = 2; /* one holder twice */
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    agreed_vote_command(&state, 1, 1, &c);
    c.prepared.has_vectors = false; /* rank 0 owes the digests of the whole vectors */
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    ck_assert_uint_eq(state_votes(job()->open), 0);
    ck_assert_int_eq(agreed_apply(&state, &good, NULL), STATE_CHANGED);
    state_done(&state);
}
END_TEST

START_TEST(success_needs_the_last_step_published)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    agreed_commit(&state, 1, 50, false);
    ck_assert_int_eq(agreed_finish(&state, 1, OUTCOME_SUCCEEDED), STATE_IGNORED);
    (void)agreed_begin(&state, 1, 100, true);
    ck_assert_int_eq(job()->state, JOB_FINISHING);
    ck_assert_int_eq(agreed_abort(&state, 1, 2), STATE_CHANGED);
    ck_assert_int_eq(agreed_finish(&state, 1, OUTCOME_SUCCEEDED), STATE_IGNORED);
    agreed_commit(&state, 1, 100, true); /* an ending capture is tried again */
    ck_assert_int_eq(agreed_finish(&state, 1, OUTCOME_SUCCEEDED), STATE_CHANGED);
    ck_assert_uint_eq(job()->result.epoch, 3);
    ck_assert_uint_eq(job()->result.parameter_sha256[0], 0x11);
    ck_assert(command_double_of(job()->result.loss_bits) == 0.25);
    state_done(&state);
}
END_TEST

START_TEST(a_job_whose_last_step_is_published_may_finish_in_a_new_generation)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    agreed_commit(&state, 1, 100, true);
    (void)agreed_interrupt(&state, 1);
    (void)agreed_place(&state, 1);
    ck_assert_int_eq(agreed_finish(&state, 1, OUTCOME_SUCCEEDED), STATE_IGNORED);
    (void)agreed_partition(&state, 1);
    ck_assert_int_eq(agreed_finish(&state, 1, OUTCOME_SUCCEEDED), STATE_CHANGED);
    state_done(&state);
}
END_TEST

START_TEST(collecting_keeps_what_is_asked_and_never_the_newest)
{
    agreed_init(&state, 3); /* keep: 2 */
    agreed_to_running(&state, 1);
    agreed_commit(&state, 1, 10, false);
    agreed_publish(&state, 1, 1);
    ck_assert_int_eq(agreed_collect(&state, 1, 1), STATE_IGNORED);
    agreed_commit(&state, 1, 20, false);
    agreed_publish(&state, 1, 2);
    ck_assert_int_eq(agreed_collect(&state, 1, 1), STATE_IGNORED);
    agreed_commit(&state, 1, 30, false);
    ck_assert_int_eq(agreed_collect(&state, 1, 1), STATE_IGNORED); /* not yet published */
    (void)agreed_published(&state, 1, 3, 1);
    (void)agreed_published(&state, 1, 3, 2);
    ck_assert_int_eq(agreed_collect(&state, 1, 1), STATE_IGNORED); /* by all */
    (void)agreed_published(&state, 1, 3, 3);
    ck_assert_int_eq(agreed_collect(&state, 1, 2), STATE_IGNORED); /* not the oldest */
    ck_assert_int_eq(agreed_collect(&state, 1, 1), STATE_CHANGED);
    ck_assert_uint_eq(job()->epochs_count, 2);
    ck_assert_ptr_null(state_epoch(job(), 1));
    state_done(&state);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("publication");
    TCase *tests = tcase_create("publication");
    tcase_add_test(tests, the_last_vote_commits_and_an_abort_behind_it_changes_nothing);
    tcase_add_test(tests, an_abort_before_the_last_vote_wins_and_its_number_is_not_used_again);
    tcase_add_test(tests, votes_of_another_world_do_not_count);
    tcase_add_test(tests, success_needs_the_last_step_published);
    tcase_add_test(tests, a_job_whose_last_step_is_published_may_finish_in_a_new_generation);
    tcase_add_test(tests, collecting_keeps_what_is_asked_and_never_the_newest);
    suite_add_tcase(suite, tests);
    return suite;
}
