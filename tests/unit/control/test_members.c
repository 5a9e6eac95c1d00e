/* Who is in the cluster, and who works on a job: entries and the leader's choice. */
#include "control/roster.h"
#include "tests/lib/agreed.h"
#include "tests/lib/unit.h"

static struct state state;
static struct coordinator_view view;

/* Three trainers, registered and heard. */
static void begin(void)
{
    agreed_init(&state, 3);
    view = (struct coordinator_view){.now_ms = 100000, .leading = true, .nodes_count = 5};
    for (uint32_t i = 0; i < 5; i++) {
        view.nodes[i] = (struct coordinator_node){.id = i + 1,
                                                  .role = ROLE_TRAINER,
                                                  .heard = i < 3,
                                                  .heard_ms = 100000,
                                                  .incarnation = 10};
    }
    view.nodes_count = 3;
}

static enum state_outcome member(enum command_member_how how, uint32_t node, uint32_t life,
                                 uint8_t uuid, const char *name)
{
    struct command c = {.kind = COMMAND_MEMBER};
    c.member.how = (uint8_t)how;
    c.member.node = node;
    c.member.life = life;
    c.member.role = ROLE_TRAINER;
    c.member.uuid[0] = uuid;
    (void)snprintf(c.member.name, sizeof(c.member.name), "%s", name);
    return agreed_apply(&state, &c, NULL);
}

static enum state_outcome start(uint32_t node, uint32_t life, uint8_t uuid, uint64_t incarnation)
{
    struct command c = {.kind = COMMAND_NODE};
    c.node.node = node;
    c.node.life = life;
    c.node.uuid[0] = uuid;
    c.node.incarnation = incarnation;
    c.node.role = ROLE_TRAINER;
    c.node.name[0] = (char)('a' + (char)(node - 1));
    return agreed_apply(&state, &c, NULL);
}

static enum state_outcome leave(uint32_t node, uint32_t life)
{
    struct command c = {.kind = COMMAND_REMOVE};
    c.remove.node = node;
    c.remove.life = life;
    (void)snprintf(c.remove.reason, sizeof(c.remove.reason), "node '%u' was removed", node);
    return agreed_apply(&state, &c, NULL);
}

static enum state_outcome drain(uint32_t node, bool drained)
{
    struct command c = {.kind = COMMAND_DRAIN};
    c.drain.node = node;
    c.drain.drained = drained;
    return agreed_apply(&state, &c, NULL);
}

START_TEST(a_name_is_expected_then_bound_to_one_identity)
{
    begin();
    ck_assert_int_eq(member(MEMBER_JOIN, 0, 0, 7, "d"), STATE_IGNORED); /* nobody expects it */
    ck_assert_int_eq(member(MEMBER_EXPECT, 4, 0, 0, "d"), STATE_CHANGED);
    ck_assert(!state_node_in(state_node(&state, 4)));
    ck_assert_int_eq(start(4, 0, 7, 5), STATE_IGNORED); /* expected is not in */
    ck_assert_int_eq(member(MEMBER_JOIN, 0, 0, 7, "d"), STATE_CHANGED);
    ck_assert_int_eq(member(MEMBER_JOIN, 0, 0, 7, "d"), STATE_IGNORED); /* twice is once */
    ck_assert_int_eq(member(MEMBER_JOIN, 0, 0, 8, "d"), STATE_IGNORED); /* somebody else */
    ck_assert_int_eq(start(4, 0, 8, 5), STATE_IGNORED);
    ck_assert_int_eq(start(4, 0, 7, 5), STATE_CHANGED);
    ck_assert(state_node_in(state_node(&state, 4)));
    state_done(&state);
}
END_TEST

START_TEST(an_authorised_node_comes_in_at_once)
{
    begin();
    ck_assert_int_eq(member(MEMBER_ADMIT, 2, 0, 7, "d"), STATE_IGNORED); /* that place is taken */
    ck_assert_int_eq(member(MEMBER_ADMIT, 4, 0, 7, "d"), STATE_CHANGED);
    ck_assert(state_node_in(state_node(&state, 4)));
    state_done(&state);
}
END_TEST

START_TEST(a_lost_disk_is_replaced_under_its_name_and_fenced)
{
    begin();
    agreed_to_running(&state, 1);
    ck_assert_int_eq(member(MEMBER_EXPECT, 4, 0, 0, "b"), STATE_CHANGED);
    ck_assert_int_eq(state_node(&state, 2)->standing, STANDING_REMOVED);
    ck_assert_int_eq(state.jobs[0]->state, JOB_PAUSED);
    ck_assert_str_eq(state.jobs[0]->reason, "node 'b' is replaced by a new one of its name");
    ck_assert_int_eq(start(2, 0, 0, 99), STATE_IGNORED); /* the old one */
    ck_assert_uint_eq(state_node_named(&state, "b")->id, 4);
    ck_assert_int_eq(member(MEMBER_JOIN, 0, 0, 9, "b"), STATE_CHANGED);
    ck_assert_int_eq(start(4, 0, 9, 5), STATE_CHANGED);
    state_done(&state);
}
END_TEST

START_TEST(an_identity_that_is_known_is_not_taken_over)
{
    begin();
    ck_assert_int_eq(start(3, 0, 1, 20), STATE_CHANGED); /* its folder's identity is bound */
    ck_assert_int_eq(start(3, 0, 2, 30), STATE_IGNORED);
    ck_assert_int_eq(start(3, 1, 1, 30), STATE_IGNORED);
    ck_assert_int_eq(start(3, 0, 1, 30), STATE_CHANGED);
    state_done(&state);
}
END_TEST

START_TEST(a_removed_node_is_out_and_its_place_is_given_again_with_another_life)
{
    begin();
    ck_assert_int_eq(leave(3, 1), STATE_IGNORED); /* not that identity */
    ck_assert_int_eq(leave(3, 0), STATE_CHANGED);
    ck_assert_int_eq(leave(3, 0), STATE_IGNORED);
    ck_assert_int_eq(start(3, 0, 0, 99), STATE_IGNORED);
    ck_assert_int_eq(member(MEMBER_ADMIT, 3, 0, 5, "d"), STATE_IGNORED);
    ck_assert_int_eq(member(MEMBER_ADMIT, 3, 1, 5, "d"), STATE_CHANGED);
    ck_assert_int_eq(leave(1, 0), STATE_CHANGED);
    ck_assert_int_eq(leave(2, 0), STATE_CHANGED);
    ck_assert_int_eq(leave(3, 1), STATE_IGNORED); /* the last one that votes */
    uint32_t node = 0;
    uint32_t life = 9;
    ck_assert(
        state_free_place(&state, 8, &node, &life)); /* 4 is somebody's whom it does not know */
    ck_assert_uint_eq(node, 5);
    ck_assert_uint_eq(life, 0);
    state_done(&state);
}
END_TEST

START_TEST(the_group_follows_the_state)
{
    begin();
    struct control_group now = {0};
    struct control_group wanted;
    for (uint32_t i = 1; i <= 4; i++) {
        group_set(&now, i, true);
    }
    state_wanted_group(&state, &now, &wanted);
    ck_assert(group_equal(&now, &wanted)); /* 4 has not come yet and stays */
    ck_assert_int_eq(leave(2, 0), STATE_CHANGED);
    ck_assert_int_eq(member(MEMBER_ADMIT, 5, 0, 5, "e"), STATE_CHANGED);
    ck_assert_int_eq(member(MEMBER_ADMIT, 2, 1, 6, "f"), STATE_CHANGED);
    state_wanted_group(&state, &now, &wanted);
    ck_assert_uint_eq(wanted.count, 5);
    ck_assert_ptr_null(group_get(&wanted, 2));
    ck_assert(group_is_voter(&wanted, member_id(2, 1)));
    ck_assert(group_is_voter(&wanted, 5));
    /* Seven vote; the eighth listens. */
    for (uint32_t i = 6; i <= 9; i++) {
        ck_assert_int_eq(member(MEMBER_ADMIT, i, 0, (uint8_t)(10 + i), "x"), STATE_CHANGED);
        state.nodes[state.nodes_count - 1].name[1] = (char)i;
    }
    state_wanted_group(&state, &now, &wanted);
    ck_assert_uint_eq(group_voters(&wanted), CONTROL_VOTERS_MAX);
    ck_assert_uint_eq(wanted.count, 9);
    state_done(&state);
}
END_TEST

START_TEST(the_survivor_goes_on_alone_in_a_new_generation)
{
    begin();
    agreed_to_running(&state, 1);
    uint64_t generation = state.generation;
    struct command c = {.kind = COMMAND_RECOVER};
    c.recover.node = 2;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    ck_assert_uint_eq(state.generation, generation + 1);
    ck_assert_int_eq(state.jobs[0]->state, JOB_PAUSED);
    ck_assert(state_node_in(state_node(&state, 2)));
    ck_assert(!state_node_in(state_node(&state, 1)));
    ck_assert_int_eq(start(1, 0, 0, 99), STATE_IGNORED); /* fenced */
    state_done(&state);
}
END_TEST

static struct roster choose(uint64_t waited_ms)
{
    struct roster roster;
    roster_choose(&state, &view, state.jobs[0], waited_ms, &roster);
    return roster;
}

START_TEST(an_elastic_job_goes_on_with_those_who_are_there)
{
    begin();
    state.jobs[0]->elastic = true;
    view.nodes[1].heard_ms = 0;
    struct roster roster = choose(0);
    ck_assert_uint_eq(roster.missing_count, 1); /* it may be back in a moment */
    roster = choose(ROSTER_GRACE_MS);
    ck_assert_uint_eq(roster.missing_count, 0);
    ck_assert_uint_eq(roster.count, 2);
    ck_assert_uint_eq(roster.nodes[1], 3);
    state.jobs[0]->elastic = false;
    ck_assert_uint_eq(choose(ROSTER_GRACE_MS).missing_count, 1);
    state_done(&state);
}
END_TEST

START_TEST(a_spare_stands_in)
{
    begin();
    ck_assert_int_eq(member(MEMBER_ADMIT, 4, 0, 4, "d"), STATE_CHANGED);
    ck_assert_int_eq(start(4, 0, 4, 10), STATE_CHANGED);
    state.nodes[3].role = ROLE_SPARE;
    view.nodes_count = 4;
    view.nodes[3].role = ROLE_SPARE;
    view.nodes[3].heard = true;
    state.jobs[0]->elastic = true;
    ck_assert_uint_eq(choose(ROSTER_GRACE_MS).count, 3);
    ck_assert_uint_eq(choose(ROSTER_GRACE_MS).nodes[2], 3);
    view.nodes[1].heard_ms = 0;
    ck_assert_uint_eq(choose(ROSTER_GRACE_MS).count, 3);
    ck_assert_uint_eq(choose(ROSTER_GRACE_MS).nodes[2], 4);
    view.nodes[1].heard_ms = 100000;
    ck_assert_int_eq(drain(2, true), STATE_CHANGED); /* for who is drained, too */
    ck_assert_uint_eq(choose(0).nodes[2], 4);
    state_done(&state);
}
END_TEST

START_TEST(nothing_is_placed_where_a_shard_cannot_be_had)
{
    begin();
    agreed_to_running(&state, 1);
    agreed_commit(&state, 1, 10, false);
    (void)agreed_interrupt(&state, 1);
    state.jobs[0]->elastic = true;
    view.nodes[2].heard_ms = 0;
    struct roster roster = choose(UINT64_MAX);
    ck_assert_uint_eq(roster.missing_count, 1);
    ck_assert_uint_eq(roster.missing[0], 3);
    struct state_shard *shard = &state.jobs[0]->epochs[0]->shards[2];
    shard->holders[shard->holders_count++] = 1; /* a copy */
    roster = choose(UINT64_MAX);
    ck_assert_uint_eq(roster.missing_count, 0);
    ck_assert_uint_eq(roster.count, 2);
    state_done(&state);
}
END_TEST

START_TEST(a_removed_maker_is_replaced_by_another)
{
    begin();
    agreed_to_running(&state, 1);
    agreed_commit(&state, 1, 10, false);
    (void)agreed_interrupt(&state, 1);
    struct state_shard *shard = &state.jobs[0]->epochs[0]->shards[2];
    shard->holders[shard->holders_count++] = 1;
    ck_assert_int_eq(leave(3, 0), STATE_CHANGED);
    ck_assert_uint_eq(choose(0).missing_count, 1); /* it, and nobody to take its place */
    ck_assert_int_eq(member(MEMBER_ADMIT, 4, 0, 4, "d"), STATE_CHANGED);
    ck_assert_int_eq(start(4, 0, 4, 10), STATE_CHANGED);
    view.nodes_count = 4;
    view.nodes[3].heard = true;
    struct roster roster = choose(0);
    ck_assert_uint_eq(roster.missing_count, 0);
    ck_assert_uint_eq(roster.count, 3);
    ck_assert_uint_eq(roster.nodes[2], 4);
    state_done(&state);
}
END_TEST

START_TEST(a_drained_node_is_worked_around_or_waited_for)
{
    begin();
    ck_assert_int_eq(drain(2, true), STATE_CHANGED);
    ck_assert_int_eq(drain(2, true), STATE_IGNORED);
    ck_assert_uint_eq(choose(0).count, 2); /* nothing was made yet: the others do it */
    ck_assert_int_eq(drain(2, false), STATE_CHANGED);
    agreed_to_running(&state, 1);
    char text[COMMAND_REASON_SIZE];
    ck_assert(!roster_regroup(&state, &view, state.jobs[0], text, sizeof(text)));
    ck_assert_int_eq(drain(2, true), STATE_CHANGED);
    ck_assert(roster_regroup(&state, &view, state.jobs[0], text, sizeof(text)));
    ck_assert_str_eq(text, "node 'b' is drained");
    state_done(&state);
}
END_TEST

START_TEST(a_node_whose_device_failed_is_worked_around_or_waited_for)
{
    begin();
    char text[COMMAND_REASON_SIZE];
    view.nodes[1].unfit = "its device failed: step 3, phase step: no 65 MiB of memory";
    view.nodes[1].name = "b";
    struct roster roster =
        choose(UINT64_MAX); /* nothing was made yet, and it is no less a trainer */
    ck_assert_uint_eq(roster.missing_count, 1);
    ck_assert_uint_eq(roster.missing[0], 2);
    coordinator_wait_text(&state, &view, state.jobs[0], text, sizeof(text));
    ck_assert_str_eq(text, "waits for node b (its device failed: step 3, phase step: no 65 MiB of "
                           "memory)");
    view.nodes[1].unfit = "";
    ck_assert_uint_eq(choose(0).count, 3);
    agreed_to_running(&state, 1);
    agreed_commit(&state, 1, 10, false);
    (void)agreed_interrupt(&state, 1);
    view.nodes[1].unfit = "broken";
    roster = choose(UINT64_MAX); /* its maker, but its copies can be had of it */
    ck_assert_uint_eq(roster.missing_count, 1);
    ck_assert_uint_eq(roster.missing[0], 2);
    ck_assert(!roster.drained);
    state.jobs[0]->elastic = true;
    roster = choose(UINT64_MAX);
    ck_assert_uint_eq(roster.missing_count, 0);
    ck_assert_uint_eq(roster.count, 2);
    ck_assert_uint_eq(roster.nodes[1], 3);
    view.nodes[1].unfit = NULL;
    ck_assert_uint_eq(choose(0).count, 3);
    state_done(&state);
}
END_TEST

START_TEST(a_node_that_comes_is_used_from_a_step_boundary)
{
    begin();
    agreed_to_running(&state, 1);
    state.jobs[0]->elastic = true;
    ck_assert_int_eq(member(MEMBER_ADMIT, 4, 0, 4, "d"), STATE_CHANGED);
    ck_assert_int_eq(start(4, 0, 4, 10), STATE_CHANGED);
    view.nodes_count = 4;
    char text[COMMAND_REASON_SIZE];
    ck_assert(!roster_regroup(&state, &view, state.jobs[0], text, sizeof(text))); /* not heard */
    view.nodes[3].heard = true;
    ck_assert(roster_regroup(&state, &view, state.jobs[0], text, sizeof(text)));
    ck_assert_str_eq(text, "node 'd' joins");
    static struct coordinator_reach reach; /* It can be used only where its lines work. */
    view.reach = &reach;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            reach.good_ms[i][k] = i == k || (i == 1 && k == 3) ? 0 : 5;
        }
    }
    ck_assert(!roster_regroup(&state, &view, state.jobs[0], text, sizeof(text)));
    reach.good_ms[1][3] = 5;
    ck_assert(roster_regroup(&state, &view, state.jobs[0], text, sizeof(text)));
    struct command c = {.kind = COMMAND_STOP};
    c.stop.job = 1;
    c.stop.turn = state.jobs[0]->turn;
    c.stop.how = STOP_REGROUP;
    memcpy(c.stop.reason, text, sizeof(text));
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    ck_assert(state.jobs[0]->regrouping);
    /* A person's pause goes before it, and is not undone by another regroup. */
    ck_assert_int_eq(agreed_stop(&state, 1, STOP_CAPTURE, 0), STATE_CHANGED);
    ck_assert(!state.jobs[0]->regrouping);
    c.stop.turn = state.jobs[0]->turn;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    ck_assert_int_eq(agreed_resume(&state, 1), STATE_CHANGED);
    c.stop.turn = state.jobs[0]->turn;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    /* Its publication ends the generation; nobody holds the job. */
    (void)agreed_begin(&state, 1, 10, true);
    for (uint32_t i = 1; i <= 3; i++) {
        (void)agreed_vote(&state, 1, i);
    }
    ck_assert_int_eq(state.jobs[0]->state, JOB_PAUSED);
    ck_assert_int_eq(state.jobs[0]->hold, HOLD_NONE);
    ck_assert_str_eq(state.jobs[0]->reason, "node 'd' joins");
    ck_assert_uint_eq(choose(0).count, 4);
    state_done(&state);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("members");
    TCase *tcase = tcase_create("members");
    tcase_add_test(tcase, a_name_is_expected_then_bound_to_one_identity);
    tcase_add_test(tcase, an_authorised_node_comes_in_at_once);
    tcase_add_test(tcase, a_lost_disk_is_replaced_under_its_name_and_fenced);
    tcase_add_test(tcase, an_identity_that_is_known_is_not_taken_over);
    tcase_add_test(tcase, a_removed_node_is_out_and_its_place_is_given_again_with_another_life);
    tcase_add_test(tcase, the_group_follows_the_state);
    tcase_add_test(tcase, the_survivor_goes_on_alone_in_a_new_generation);
    tcase_add_test(tcase, an_elastic_job_goes_on_with_those_who_are_there);
    tcase_add_test(tcase, a_spare_stands_in);
    tcase_add_test(tcase, nothing_is_placed_where_a_shard_cannot_be_had);
    tcase_add_test(tcase, a_removed_maker_is_replaced_by_another);
    tcase_add_test(tcase, a_drained_node_is_worked_around_or_waited_for);
    tcase_add_test(tcase, a_node_whose_device_failed_is_worked_around_or_waited_for);
    tcase_add_test(tcase, a_node_that_comes_is_used_from_a_step_boundary);
    suite_add_tcase(suite, tcase);
    return suite;
}
