/* Directed scenes of whole nodes: what the random schedules also do, told one by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "control/raft.h"
#include "control/wal_record.h"
#include "tests/lib/unit.h"
#include "tests/sim/directed.h"
#include "tests/sim/hashes.h"
#include "tests/sim/test_members.h"

static struct hashes *all;
static struct world *world;

static struct world *calm(uint32_t nodes, uint32_t snapshot_entries)
{
    struct world_options options;
    world_options_calm(nodes, &options);
    options.snapshot_entries = snapshot_entries;
    options.trailing_entries = 0;
    options.chunk_size = 60;
    options.propose_ms = 50;
    all = hashes_new();
    world = world_new(&options, &world_hashes, all);
    return world;
}

static void end(void)
{
    ck_assert_msg(!world_violated(world), "%s", world_violation_text(world));
    world_free(world);
    hashes_free(all);
    world = NULL;
}

static bool leads(struct world *of, void *context)
{
    (void)context;
    int leader = world_leader(of);
    return leader >= 0 && control_caught_up(world_control(of, (unsigned)leader));
}

static unsigned wait_leader(void)
{
    ck_assert(world_run_until(world, 10000, leads, NULL));
    return (unsigned)world_leader(world);
}

static bool other_leads(struct world *of, void *context)
{
    int leader = world_leader(of);
    return leader >= 0 && leader != *(int *)context && leads(of, NULL);
}

/* No faults, the clients end, everything comes to rest, and again after a power cut. */
static void come_to_rest(void)
{
    ck_assert_msg(world_run(world), "%s", world_violation_text(world));
}

START_TEST(old_terms_entries_are_not_committed_by_counting_figure_3_7)
{
    ck_assert(directed_old_term_is_not_committed_by_counting());
}
END_TEST

START_TEST(a_follower_commits_only_what_matched)
{
    ck_assert(directed_commit_stays_within_what_matched());
}
END_TEST

START_TEST(a_snapshot_on_its_way_is_finished_before_a_newer_one)
{
    ck_assert(directed_a_snapshot_on_its_way_is_finished());
}
END_TEST

START_TEST(an_answer_of_an_older_term_counts_nothing)
{
    ck_assert(directed_an_answer_of_an_older_term_counts_nothing());
}
END_TEST

START_TEST(a_leader_that_hears_nobody_steps_down)
{
    ck_assert(directed_a_leader_that_hears_nobody_steps_down());
}
END_TEST

START_TEST(a_candidate_waits_for_its_own_vote)
{
    ck_assert(directed_a_candidate_waits_for_its_own_vote());
}
END_TEST

START_TEST(a_snapshot_counts_when_it_is_durable)
{
    ck_assert(directed_a_snapshot_counts_when_it_is_durable());
}
END_TEST

START_TEST(a_slow_follower_gets_its_snapshot_while_many_newer_ones_are_taken)
{
    struct world_options options;
    world_options_calm(3, &options);
    options.snapshot_entries = 5;
    options.trailing_entries = 100;
    options.chunk_size = 1;
    options.propose_ms = 20;
    options.delay_us_max = 20000;
    all = hashes_new();
    world = world_new(&options, &world_hashes, all);
    unsigned leader = wait_leader();
    unsigned follower = (leader + 1) % 3;
    world_isolate(world, follower, true);
    world_run_for(world, 5000);
    world_isolate(world, follower, false);
    uint64_t taken = control_commit_index(world_control(world, leader)) / 5;
    world_run_for(world, 10000);
    ck_assert_int_eq(world_leader(world), (int)leader);
    ck_assert_uint_gt(control_commit_index(world_control(world, leader)) / 5, taken + 50);
    struct control_stats stats;
    control_stats(world_control(world, follower), &stats);
    ck_assert_uint_eq(stats.snapshots_installed, 1);
    ck_assert_uint_gt(control_applied_index(world_control(world, follower)) + 50,
                      control_commit_index(world_control(world, leader)));
    come_to_rest();
    end();
}
END_TEST

START_TEST(a_command_that_is_repeated_is_written_once_while_it_is_on_its_way)
{
    struct world_options options;
    world_options_calm(3, &options);
    options.propose_ms = 1000000;
    all = hashes_new();
    world = world_new(&options, &world_hashes, all);
    unsigned leader = wait_leader();
    world_run_for(world, 500); /* the followers know it too */
    struct control *control = world_control(world, leader);
    struct control_stats before;
    struct control_stats after;
    struct buf command = BUF_NONE;
    buf_put_u64(&command, 5);
    control_stats(control, &before);
    for (unsigned i = 0; i < 20; i++) { /* by the leader and, forwarded, by a follower */
        ck_assert_int_eq(world_propose(world, (leader + i % 2) % 3, command.bytes, command.size),
                         0);
    }
    control_stats(control, &after);
    ck_assert_uint_eq(after.last_index, before.last_index + 1);
    world_run_for(world, 1000);
    control_stats(control, &after);
    ck_assert_uint_ge(after.proposals_under_way, 9);
    ck_assert_uint_eq(after.applied_index, after.last_index);
    /* Once it is applied, the same words are a new command. */
    uint64_t applied = after.applied_index;
    ck_assert_int_eq(world_propose(world, leader, command.bytes, command.size), 0);
    world_run_for(world, 1000);
    ck_assert_uint_eq(control_applied_index(control), applied + 1);
    buf_done(&command);
    end();
}
END_TEST

START_TEST(a_leader_whose_disk_is_full_ends_and_the_others_go_on)
{
    calm(3, 4096);
    unsigned leader = wait_leader();
    world_run_for(world, 1000);
    uint64_t before = hashes_acknowledged(all);
    uint64_t incarnation = world_incarnation(world, leader);
    sim_disk_set_capacity(world_disk(world, leader), sim_disk_used(world_disk(world, leader)) + 50);
    int was = (int)leader;
    ck_assert(world_run_until(world, 10000, other_leads, &was));
    ck_assert_uint_gt(world_incarnation(world, leader), incarnation);
    world_run_for(world, 2000);
    ck_assert_uint_gt(hashes_acknowledged(all), before);
    sim_disk_set_capacity(world_disk(world, leader), UINT64_MAX);
    come_to_rest();
    end();
}
END_TEST

START_TEST(a_follower_whose_disk_is_full_ends_and_comes_back_with_the_same_state)
{
    calm(3, 4096);
    unsigned leader = wait_leader();
    unsigned follower = (leader + 1) % 3;
    uint64_t incarnation = world_incarnation(world, follower);
    sim_disk_set_capacity(world_disk(world, follower), sim_disk_used(world_disk(world, follower)));
    world_run_for(world, 3000);
    ck_assert_uint_gt(world_incarnation(world, follower), incarnation);
    ck_assert_int_eq(world_leader(world), (int)leader);
    uint64_t before = hashes_acknowledged(all);
    world_run_for(world, 1000);
    ck_assert_uint_gt(hashes_acknowledged(all), before);
    sim_disk_set_capacity(world_disk(world, follower), UINT64_MAX);
    come_to_rest();
    end();
}
END_TEST

START_TEST(a_failed_fsync_ends_the_node_and_loses_nothing)
{
    calm(3, 4096);
    unsigned leader = wait_leader();
    for (unsigned i = 0; i < 20; i++) {
        sim_disk_fail_sync(world_disk(world, (leader + i) % 3), 1 + i % 4);
        world_run_for(world, 1500);
    }
    struct world_stats stats;
    world_stats(world, &stats);
    ck_assert_uint_ge(stats.crashes, 20);
    come_to_rest();
    end();
}
END_TEST

START_TEST(a_follower_far_behind_is_sent_a_snapshot_and_may_crash_while_it_installs)
{
    for (uint64_t op = 1; op <= 24; op++) {
        calm(3, 20);
        unsigned leader = wait_leader();
        unsigned follower = (leader + 1) % 3;
        world_crash(world, follower);
        world_run_for(world, 4000 + 50 * op); /* its planned restart brings it back in there */
        if (world_control(world, follower) != NULL) {
            world_crash(world, follower);
        }
        world_isolate(world, follower, true);
        world_run_for(world, 5000);
        struct sim_disk *disk = world_disk(world, follower);
        sim_disk_crash_at(disk, sim_disk_ops(disk) + op, op % 2 == 0);
        world_isolate(world, follower, false);
        world_run_for(world, 3000);
        struct world_stats stats;
        world_stats(world, &stats);
        ck_assert_uint_ge(stats.crashes, 2);
        come_to_rest();
        end();
    }
}
END_TEST

START_TEST(new_snapshots_taken_while_one_is_being_sent_do_not_harm)
{
    calm(3, 5);
    unsigned leader = wait_leader();
    unsigned follower = (leader + 1) % 3;
    world_isolate(world, follower, true);
    world_run_for(world, 5000);
    world_isolate(world, follower, false);
    world_run_for(world, 5000);
    struct control_stats stats;
    control_stats(world_control(world, follower), &stats);
    ck_assert_uint_ge(stats.snapshots_installed, 1);
    come_to_rest();
    end();
}
END_TEST

START_TEST(a_node_that_was_cut_off_does_not_disturb_the_leader)
{
    calm(5, 4096);
    unsigned leader = wait_leader();
    world_run_for(world, 500);
    uint64_t term = control_term(world_control(world, leader));
    unsigned follower = (leader + 1) % 5;
    world_isolate(world, follower, true);
    world_run_for(world, 20000); /* many election timeouts, none of which moves its term */
    world_isolate(world, follower, false);
    world_run_for(world, 3000);
    ck_assert_int_eq(world_leader(world), (int)leader);
    ck_assert_uint_eq(control_term(world_control(world, leader)), term);
    ck_assert_uint_eq(control_term(world_control(world, follower)), term);
    end();
}
END_TEST

START_TEST(a_leader_that_hears_no_majority_steps_down_and_a_minority_commits_nothing)
{
    calm(5, 4096);
    unsigned leader = wait_leader();
    world_run_for(world, 1000);
    unsigned friend = (leader + 1) % 5;
    for (unsigned node = 0; node < 5; node++) {
        for (unsigned other = 0; other < 5; other++) {
            bool apart = (node == leader || node == friend) != (other == leader || other == friend);
            world_cut(world, node, other, apart);
        }
    }
    uint64_t commit = control_commit_index(world_control(world, leader));
    world_run_for(world, 2500);
    ck_assert(!control_is_leader(world_control(world, leader)));
    struct control_stats stats;
    control_stats(world_control(world, leader), &stats);
    ck_assert_uint_eq(stats.step_downs, 1);
    ck_assert_uint_le(stats.commit_index, commit + 2); /* answers on the way when it was cut */
    int was = (int)leader;
    ck_assert(world_run_until(world, 5000, other_leads, &was));
    come_to_rest();
    end();
}
END_TEST

START_TEST(a_frozen_leader_is_replaced_and_returns_as_a_follower)
{
    calm(3, 4096);
    unsigned leader = wait_leader();
    world_pause(world, leader, 6000);
    int was = (int)leader;
    ck_assert(world_run_until(world, 5000, other_leads, &was));
    ck_assert_uint_lt(world_now_us(world), 10000000U);
    world_run_for(world, 6000);
    ck_assert(!control_is_leader(world_control(world, leader)));
    come_to_rest();
    end();
}
END_TEST

START_TEST(all_nodes_restart_with_everything_that_was_acknowledged)
{
    calm(5, 30);
    (void)wait_leader();
    for (unsigned round = 0; round < 5; round++) {
        world_run_for(world, 2000);
        for (unsigned node = 0; node < 5; node++) {
            if (world_control(world, node) != NULL) {
                world_crash(world, node);
            }
        }
        (void)wait_leader();
    }
    ck_assert_uint_gt(hashes_acknowledged(all), 100);
    come_to_rest();
    end();
}
END_TEST

/* Snapshots every 5 entries and segments of 300 bytes, so that few operations meet everything that
 * the log does: records, rolls, snapshots, releases, and recovery's own writes. */
static unsigned crash_at_each_operation(uint32_t nodes, unsigned victim)
{
    unsigned fired = 0;
    for (uint64_t op = 1; op <= 130; op++) {
        for (unsigned after = 0; after < 2; after++) {
            struct world_options options;
            world_options_calm(nodes, &options);
            options.seed = op;
            options.snapshot_entries = 5;
            options.trailing_entries = 1;
            options.segment_size = 300;
            options.fault_ms = 2500;
            options.propose_ms = 40;
            options.torn = 1;
            all = hashes_new();
            world = world_new(&options, &world_hashes, all);
            struct sim_disk *disk = world_disk(world, victim);
            sim_disk_crash_at(disk, sim_disk_ops(disk) + op, after == 1);
            come_to_rest();
            struct world_stats stats;
            world_stats(world, &stats);
            fired += stats.crashes > nodes ? 1 : 0; /* that many are the power cut at the end */
            end();
        }
    }
    return fired;
}

START_TEST(a_crash_before_and_after_each_of_the_first_operations_loses_nothing)
{
    ck_assert_uint_eq(crash_at_each_operation(1, 0), 260);
    ck_assert_uint_eq(crash_at_each_operation(3, 1), 260);
}
END_TEST

START_TEST(one_voter_alone_leads_and_keeps_what_it_acknowledged)
{
    calm(1, 30);
    (void)wait_leader();
    world_run_for(world, 3000);
    ck_assert_uint_gt(hashes_acknowledged(all), 10);
    world_crash(world, 0);
    (void)wait_leader();
    come_to_rest();
    end();
}
END_TEST

START_TEST(two_voters_lose_one_and_wait_and_lose_nothing)
{
    calm(2, 4096);
    unsigned leader = wait_leader();
    world_run_for(world, 1000);
    world_isolate(world, 1 - leader, true);
    world_run_for(world, 5000);
    ck_assert_int_eq(world_leader(world), -1);
    world_isolate(world, 1 - leader, false);
    (void)wait_leader();
    come_to_rest();
    end();
}
END_TEST

/* --- what a start refuses ----------------------------------------------------------------------
 */
static const char first_segment[] = "log/segment-00000000000000000001";

static uint64_t file_size(struct fs *fs, const char *path)
{
    struct buf bytes = BUF_NONE;
    ck_assert_int_eq(fs_read_all(fs, path, 1U << 30, &bytes, NULL), 0);
    uint64_t size = bytes.size;
    buf_done(&bytes);
    return size;
}

/* A cluster of three that has worked, one node down; the scene spoils its disk. */
static struct sim_disk *worked_and_stopped(unsigned node)
{
    calm(3, 4096);
    (void)wait_leader();
    world_run_for(world, 2000);
    world_crash(world, node);
    return world_disk(world, node);
}

static void expect_refusal(unsigned node, const char *words)
{
    world_expect_refusal(world, node);
    world_restart(world, node);
    ck_assert_ptr_null(world_control(world, node));
    ck_assert_str_ne(world_refusal(world, node), "");
    ck_assert_msg(strstr(world_refusal(world, node), words) != NULL, "'%s'",
                  world_refusal(world, node));
    end();
}

START_TEST(a_bit_flip_in_the_middle_of_the_log_is_refused)
{
    struct sim_disk *disk = worked_and_stopped(1);
    ck_assert_int_eq(sim_disk_flip(disk, first_segment, 500, 3, NULL), 0);
    expect_refusal(1, "whole records follow the damage, so it is no torn tail");
}
END_TEST

START_TEST(a_bit_flip_anywhere_but_in_the_last_batch_is_refused)
{
    for (uint64_t byte = 0; byte < 1400; byte += 7) {
        struct sim_disk *disk = worked_and_stopped(1);
        ck_assert_uint_gt(file_size(sim_disk_fs(disk), first_segment), 3000);
        ck_assert_int_eq(sim_disk_flip(disk, first_segment, byte, (unsigned)byte, NULL), 0);
        expect_refusal(1, "");
    }
}
END_TEST

START_TEST(a_torn_tail_is_cut_at_every_byte)
{
    for (uint64_t cut = 1; cut < 200; cut += 3) {
        struct sim_disk *disk = worked_and_stopped(1);
        struct fs *fs = sim_disk_fs(disk);
        struct fs_file *file = NULL;
        struct err err = {0};
        uint64_t size = file_size(fs, first_segment);
        /* A record begun and not synced: garbage of any length behind the end. */
        ck_assert_int_eq(fs_open(fs, first_segment, FS_APPEND, &file, &err), 0);
        struct buf bytes = BUF_NONE;
        struct wal_record record = {
            .kind = WAL_ENTRY,
            .segment = 1,
            .position = size,
            .batch = 1000000,
            .index = 1,
            .term = 1,
            .entry_kind = ENTRY_COMMAND,
            .bytes = (const uint8_t *)"torntorntorntorntorntorntorntorn"
                                      "torntorntorntorntorntorntorntorntorntorntorntorn"
                                      "torntorntorntorntorntorntorntorntorntorntorntorn",
            .size = 128};
        wal_put_record(&bytes, &record);
        ck_assert_uint_ge(bytes.size, 200);
        ck_assert_int_eq(fs->ops->write(file, bytes.bytes, cut, &err), 0);
        ck_assert_int_eq(fs->ops->sync(file, &err), 0);
        ck_assert_int_eq(fs->ops->close(file, &err), 0);
        buf_done(&bytes);
        world_restart(world, 1);
        ck_assert_str_eq(world_refusal(world, 1), "");
        ck_assert_uint_eq(file_size(fs, first_segment), size);
        end();
    }
}
END_TEST

START_TEST(a_missing_hard_state_is_refused)
{
    struct sim_disk *disk = worked_and_stopped(1);
    /* The first record of a segment is the term and vote. */
    ck_assert_int_eq(sim_disk_flip(disk, first_segment, WAL_SEGMENT_SIZE + 20, 1, NULL), 0);
    expect_refusal(1, "the term and vote that it begins with are gone");
}
END_TEST

START_TEST(a_log_that_was_removed_is_refused)
{
    struct sim_disk *disk = worked_and_stopped(1);
    struct fs *fs = sim_disk_fs(disk);
    ck_assert_int_eq(fs->ops->unlink(fs, first_segment, NULL), 0);
    expect_refusal(1, "'log' had a log, and its files are gone");
}
END_TEST

START_TEST(a_missing_format_is_refused)
{
    struct sim_disk *disk = worked_and_stopped(1);
    struct fs *fs = sim_disk_fs(disk);
    ck_assert_int_eq(fs->ops->unlink(fs, "log/format", NULL), 0);
    expect_refusal(1, "the file 'log/format' is missing");
}
END_TEST

START_TEST(another_version_or_node_is_named)
{
    struct sim_disk *disk = worked_and_stopped(1);
    struct fs *fs = sim_disk_fs(disk);
    const char text[] = "coppelius-log 9 node 2 voters 1 2 3\n";
    ck_assert_int_eq(fs_replace(fs, "log/format", text, sizeof(text) - 1, NULL), 0);
    expect_refusal(1, "the log in 'log' is 'coppelius-log 9 node 2 voters 1 2 3', but this program "
                      "and node are 'coppelius-log 2 node 2'");
}
END_TEST

START_TEST(a_damaged_snapshot_is_refused)
{
    calm(3, 10);
    (void)wait_leader();
    world_run_for(world, 3000);
    struct control_stats stats;
    control_stats(world_control(world, 1), &stats);
    ck_assert_uint_gt(stats.snapshot_index, 0);
    char path[64];
    (void)snprintf(path, sizeof(path), "log/snapshot-%020llu",
                   (unsigned long long)stats.snapshot_index);
    world_crash(world, 1);
    ck_assert_int_eq(sim_disk_flip(world_disk(world, 1), path, 100, 2, NULL), 0);
    expect_refusal(1, "it is damaged");
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("world");
    TCase *tcase = tcase_create("world");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, old_terms_entries_are_not_committed_by_counting_figure_3_7);
    tcase_add_test(tcase, a_follower_commits_only_what_matched);
    tcase_add_test(tcase, a_snapshot_on_its_way_is_finished_before_a_newer_one);
    tcase_add_test(tcase, an_answer_of_an_older_term_counts_nothing);
    tcase_add_test(tcase, a_leader_that_hears_nobody_steps_down);
    tcase_add_test(tcase, a_candidate_waits_for_its_own_vote);
    tcase_add_test(tcase, a_snapshot_counts_when_it_is_durable);
    tcase_add_test(tcase, a_slow_follower_gets_its_snapshot_while_many_newer_ones_are_taken);
    tcase_add_test(tcase, a_command_that_is_repeated_is_written_once_while_it_is_on_its_way);
    tcase_add_test(tcase, a_leader_whose_disk_is_full_ends_and_the_others_go_on);
    tcase_add_test(tcase, a_follower_whose_disk_is_full_ends_and_comes_back_with_the_same_state);
    tcase_add_test(tcase, a_failed_fsync_ends_the_node_and_loses_nothing);
    tcase_add_test(tcase, a_follower_far_behind_is_sent_a_snapshot_and_may_crash_while_it_installs);
    tcase_add_test(tcase, new_snapshots_taken_while_one_is_being_sent_do_not_harm);
    tcase_add_test(tcase, a_node_that_was_cut_off_does_not_disturb_the_leader);
    tcase_add_test(tcase,
                   a_leader_that_hears_no_majority_steps_down_and_a_minority_commits_nothing);
    tcase_add_test(tcase, a_frozen_leader_is_replaced_and_returns_as_a_follower);
    tcase_add_test(tcase, all_nodes_restart_with_everything_that_was_acknowledged);
    tcase_add_test(tcase, a_crash_before_and_after_each_of_the_first_operations_loses_nothing);
    tcase_add_test(tcase, one_voter_alone_leads_and_keeps_what_it_acknowledged);
    tcase_add_test(tcase, two_voters_lose_one_and_wait_and_lose_nothing);
    tcase_add_test(tcase, a_bit_flip_in_the_middle_of_the_log_is_refused);
    tcase_add_test(tcase, a_bit_flip_anywhere_but_in_the_last_batch_is_refused);
    tcase_add_test(tcase, a_torn_tail_is_cut_at_every_byte);
    tcase_add_test(tcase, a_missing_hard_state_is_refused);
    tcase_add_test(tcase, a_log_that_was_removed_is_refused);
    tcase_add_test(tcase, a_missing_format_is_refused);
    tcase_add_test(tcase, another_version_or_node_is_named);
    tcase_add_test(tcase, a_damaged_snapshot_is_refused);
    suite_add_tcase(suite, tcase);
    test_members_add(suite);
    return suite;
}
