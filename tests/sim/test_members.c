/* Who is a member, in whole nodes, directed: joins, removals, lost disks, many machines. */
#include "tests/sim/test_members.h"

#include <stdio.h>

#include "base/assert.h"
#include "control/raft.h"
#include "tests/lib/unit.h"
#include "tests/sim/directed.h"
#include "tests/sim/hashes.h"

static struct hashes *all;
static struct world *world;

static void begin(uint32_t nodes, uint32_t voters)
{
    struct world_options options;
    world_options_calm(nodes, &options);
    options.voters = voters;
    options.snapshot_entries = 40;
    options.trailing_entries = 8;
    options.propose_ms = 50;
    all = hashes_new();
    world = world_new(&options, &world_hashes, all);
}

static void end(void)
{
    ck_assert_msg(world_run(world), "%s", world_violation_text(world));
    world_free(world);
    hashes_free(all);
}

static bool is_as_wanted(struct world *of, void *context)
{
    const struct control_group *wanted = context;
    int leader = world_leader(of);
    bool settled = false;
    return leader >= 0 &&
           group_equal(control_group(world_control(of, (unsigned)leader), &settled), wanted) &&
           settled;
}

static unsigned wait_leader(void)
{
    for (int i = 0; i < 200 && world_leader(world) < 0; i++) {
        world_run_for(world, 50);
    }
    ck_assert_int_ge(world_leader(world), 0);
    return (unsigned)world_leader(world);
}

/* Who is wanted (bits of machines) becomes who is. */
static void wait_for(unsigned voters, unsigned learners, uint64_t ms)
{
    struct control_group wanted = {0};
    for (unsigned i = 0; i < world_options(world)->nodes && i < 32; i++) {
        if (((voters | learners) >> i & 1U) != 0) {
            group_set(&wanted, world_id(world, i), (voters >> i & 1U) != 0);
        }
    }
    ck_assert_msg(world_run_until(world, ms, is_as_wanted, &wanted), "the group did not change: %s",
                  world_violation_text(world));
}

START_TEST(two_adds_of_two_leaders_decide_once)
{
    ck_assert(directed_two_adds());
}
END_TEST

START_TEST(an_add_and_a_remove_of_two_leaders_decide_once)
{
    ck_assert(directed_an_add_and_a_remove());
}
END_TEST

START_TEST(two_removes_of_two_leaders_decide_once)
{
    ck_assert(directed_two_removes());
}
END_TEST

START_TEST(one_change_at_a_time)
{
    ck_assert(directed_one_change_at_a_time());
}
END_TEST

START_TEST(a_removed_leader_goes_when_its_removal_is_committed)
{
    ck_assert(directed_a_removed_leader_goes());
}
END_TEST

START_TEST(a_group_that_is_cut_off_counts_no_more)
{
    ck_assert(directed_a_group_that_is_cut_off_counts_no_more());
}
END_TEST

START_TEST(a_snapshot_has_the_group_of_its_entry)
{
    ck_assert(directed_a_snapshot_has_the_group_of_its_entry());
}
END_TEST

START_TEST(a_new_node_catches_up_by_a_snapshot_before_it_votes)
{
    begin(4, 3);
    (void)wait_leader();
    world_run_for(world, 6000); /* the log's beginning is gone by now */
    world_want(world, 3, true, true);
    wait_for(0xf, 0, 10000);
    struct control_stats stats;
    control_stats(world_control(world, 3), &stats);
    ck_assert_uint_ge(stats.snapshots_installed, 1);
    ck_assert(control_caught_up(world_control(world, 3)));
    end();
}
END_TEST

START_TEST(a_new_node_that_is_not_there_never_becomes_a_voter)
{
    begin(4, 3);
    unsigned leader = wait_leader();
    world_isolate(world, 3, true);
    world_want(world, 3, true, true);
    world_run_for(world, 5000);
    const struct control_group *group = control_group(world_control(world, leader), NULL);
    ck_assert_uint_eq(group->count, 4);
    ck_assert_uint_eq(group_voters(group), 3);
    /* So one of the three may still be lost. */
    uint64_t before = hashes_acknowledged(all);
    world_isolate(world, (leader + 1) % 3, true);
    world_run_for(world, 3000);
    ck_assert_uint_gt(hashes_acknowledged(all), before);
    world_isolate(world, (leader + 1) % 3, false);
    world_isolate(world, 3, false);
    wait_for(0xf, 0, 10000);
    end();
}
END_TEST

START_TEST(a_leader_that_is_removed_hands_over_and_is_left_alone)
{
    begin(4, 4);
    unsigned leader = wait_leader();
    world_want(world, leader, false, false);
    wait_for(0xfU & ~(1U << leader), 0, 10000);
    world_run_for(world, 2000);
    ck_assert_int_ne(world_leader(world), (int)leader);
    /* Restarted, it asks for votes without end and moves no term. */
    uint64_t term = control_term(world_control(world, (unsigned)world_leader(world)));
    world_crash(world, leader);
    world_run_for(world, 20000);
    ck_assert_uint_eq(control_term(world_control(world, (unsigned)world_leader(world))), term);
    end();
}
END_TEST

START_TEST(removed_nodes_that_missed_it_do_not_disturb)
{
    begin(5, 5);
    unsigned leader = wait_leader();
    unsigned gone = (leader + 1) % 5;
    world_isolate(world, gone, true);
    world_want(world, gone, false, false);
    wait_for(0x1fU & ~(1U << gone), 0, 10000);
    leader = (unsigned)world_leader(world);
    uint64_t term = control_term(world_control(world, leader));
    world_isolate(world, gone, false); /* it still thinks that it votes */
    world_run_for(world, 20000);
    ck_assert_int_eq(world_leader(world), (int)leader);
    ck_assert_uint_eq(control_term(world_control(world, leader)), term);
    end();
}
END_TEST

START_TEST(five_become_one_and_five_again)
{
    begin(5, 5);
    (void)wait_leader();
    for (unsigned node = 0; node < 4; node++) {
        world_want(world, node, false, false);
    }
    wait_for(0x10, 0, 20000);
    world_run_for(world, 1000);
    for (unsigned node = 0; node < 4; node++) { /* with empty disks and new identities */
        world_want(world, node, true, node != 2);
    }
    wait_for(0x1b, 0x4, 20000);
    end();
}
END_TEST

START_TEST(a_lost_disk_comes_back_as_somebody_else_and_nothing_is_lost)
{
    begin(3, 3);
    for (unsigned round = 0; round < 6; round++) {
        (void)wait_leader();
        world_run_for(world, 1500);
        world_wipe(world, round % 3);
        wait_for(0x7, 0, 20000);
        world_run_for(world, 500);
    }
    end();
}
END_TEST

START_TEST(two_voters_and_an_arbiter_survive_the_loss_of_one)
{
    begin(3, 3); /* for the core an arbiter is a voter like any other */
    unsigned leader = wait_leader();
    world_isolate(world, leader, true);
    world_run_for(world, 4000);
    uint64_t before = hashes_acknowledged(all);
    world_run_for(world, 2000);
    ck_assert_int_ge(world_leader(world), 0);
    ck_assert_uint_gt(hashes_acknowledged(all), before);
    world_isolate(world, leader, false);
    end();
}
END_TEST

START_TEST(a_hundred_machines)
{
    struct world_options options;
    world_options_calm(100, &options);
    options.voters = 3;
    options.fault_ms = 15000;
    options.heal_ms = 120000;
    options.crash_ms = 2000;
    options.cut_ms = 5000;
    options.cut_length_ms = 500;
    options.loss_permille = 10;
    options.snapshot_entries = 60;
    options.trailing_entries = 20;
    options.propose_ms = 1000;
    all = hashes_new();
    world = world_new(&options, &world_hashes, all);
    for (unsigned node = 3; node < 100; node++) {
        world_want(world, node, true, node < CONTROL_VOTERS_MAX);
    }
    ck_assert_msg(world_run(world), "%s", world_violation_text(world));
    const struct control_group *group =
        control_group(world_control(world, (unsigned)world_leader(world)), NULL);
    ck_assert_uint_eq(group->count, 100);
    ck_assert_uint_eq(group_voters(group), CONTROL_VOTERS_MAX);
    world_free(world);
    hashes_free(all);
}
END_TEST

void test_members_add(Suite *suite)
{
    TCase *tcase = tcase_create("members");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, two_adds_of_two_leaders_decide_once);
    tcase_add_test(tcase, an_add_and_a_remove_of_two_leaders_decide_once);
    tcase_add_test(tcase, two_removes_of_two_leaders_decide_once);
    tcase_add_test(tcase, one_change_at_a_time);
    tcase_add_test(tcase, a_removed_leader_goes_when_its_removal_is_committed);
    tcase_add_test(tcase, a_group_that_is_cut_off_counts_no_more);
    tcase_add_test(tcase, a_snapshot_has_the_group_of_its_entry);
    tcase_add_test(tcase, a_new_node_catches_up_by_a_snapshot_before_it_votes);
    tcase_add_test(tcase, a_new_node_that_is_not_there_never_becomes_a_voter);
    tcase_add_test(tcase, a_leader_that_is_removed_hands_over_and_is_left_alone);
    tcase_add_test(tcase, removed_nodes_that_missed_it_do_not_disturb);
    tcase_add_test(tcase, five_become_one_and_five_again);
    tcase_add_test(tcase, a_lost_disk_comes_back_as_somebody_else_and_nothing_is_lost);
    tcase_add_test(tcase, two_voters_and_an_arbiter_survive_the_loss_of_one);
    tcase_add_test(tcase, a_hundred_machines);
    suite_add_tcase(suite, tcase);
}
