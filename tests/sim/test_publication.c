/* Directed schedules of publication: what chance meets rarely. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "control/state.h"
#include "tests/lib/unit.h"
#include "tests/sim/publication.h"

static struct publication *all;
static struct world *world;
static uint32_t elastic; /* of the next world's jobs */

static void open_world(uint32_t nodes)
{
    struct world_options options;
    world_options_calm(nodes, &options);
    struct publication_options own = {.jobs = 1,
                                      .steps = 30,
                                      .every = elastic != 0 ? 2 : 10,
                                      .keep = elastic != 0 ? 1 : 2,
                                      .coordinates = 9,
                                      .step_ms = 10,
                                      .file_ms_max = 5,
                                      .suspect_ms = 1000,
                                      .prepare_ms = 60000,
                                      .replicas = 1,
                                      .elastic = elastic};
    all = publication_new(&own);
    world = world_new(&options, &world_publication, all);
    publication_submit(all, 0);
}

static void close_world(void)
{
    ck_assert_msg(!world_violated(world), "%s", world_violation_text(world));
    world_free(world);
    publication_free(all);
}

/* NULL where the node is down or does not know it yet. */
static const struct state_job *find_job(unsigned node)
{
    const void *self = world_self(world, node);
    return self == NULL ? NULL : state_job(publication_state(self), 1);
}

static const struct state_job *job_at(unsigned node)
{
    const struct state_job *job = find_job(node);
    ASSERT(job != NULL);
    return job;
}

/* What a wait waits for; `number` is an epoch or a count. */
enum what { OPEN_EPOCH, VOTES, COMMITTED, ABORTED, ENDED, PUBLISHED_AT, PAUSED, PARTS, COLLECTED };

struct wanted {
    enum what what;
    uint64_t number;
    unsigned node;
};

static bool is_there(struct world *of, void *context)
{
    const struct wanted *wanted = context;
    const struct state_job *job = find_job(wanted->node);
    (void)of;
    if (job == NULL) {
        return false;
    }
    switch (wanted->what) {
    case OPEN_EPOCH:
        return job->open != NULL && job->open->epoch >= wanted->number;
    case VOTES:
        return job->open != NULL && state_votes(job->open) >= wanted->number;
    case COMMITTED:
        return state_epoch(job, wanted->number) != NULL &&
               state_epoch_committed(state_epoch(job, wanted->number));
    case ABORTED:
        return job->aborted_epoch >= wanted->number;
    case ENDED:
        return state_job_ended(job);
    case PUBLISHED_AT:
        return publication_current(world, wanted->node, 1) >= wanted->number;
    case PAUSED:
        return job->state == JOB_PAUSED;
    case PARTS:
        return job->state == JOB_RUNNING && job->participants_count == wanted->number;
    case COLLECTED:
        return job->epochs_count > 0 && job->epochs[0]->epoch > wanted->number;
    default:
        return false;
    }
}

static void wait_for(enum what what, uint64_t number, unsigned node)
{
    struct wanted wanted = {what, number, node};
    bool there = world_run_until(world, 60000, is_there, &wanted);
    ck_assert_msg(there, "wait %d for %llu at node %u: %s", (int)what, (unsigned long long)number,
                  node, world_violation_text(world));
}

/* All jobs done, all states equal, all files as they should be, the bits right. */
static void settle(void)
{
    void *selves[WORLD_NODES_MAX] = {NULL};
    world_publication.on_heal(world);
    for (int turn = 0; turn < 600; turn++) {
        world_run_for(world, 100);
        for (unsigned n = 0; n < world_options(world)->nodes; n++) {
            selves[n] = world_self(world, n);
        }
        if (world_publication.settled(world, selves, world_options(world)->nodes)) {
            world_publication.finish(world, selves, world_options(world)->nodes);
            return;
        }
    }
    publication_print(world);
    ck_abort_msg("not at rest");
}

static void propose_abort(unsigned node, uint64_t epoch)
{
    struct command c = {.kind = COMMAND_ABORT};
    struct buf bytes = BUF_NONE;
    c.abort.job = 1;
    c.abort.epoch = epoch;
    (void)snprintf(c.abort.reason, sizeof(c.abort.reason), "the test says so");
    ASSERT(command_encode(&c, &bytes, NULL) == 0);
    (void)world_propose(world, node, bytes.bytes, bytes.size);
    buf_done(&bytes);
}

START_TEST(the_log_alone_decides_between_the_last_vote_and_an_abort)
{
    unsigned committed = 0;
    unsigned aborted = 0;
    for (int64_t offset_ms = -40; offset_ms <= 40; offset_ms += 4) {
        open_world(3);
        publication_hold_votes(all, 2, true);
        wait_for(VOTES, 2, 0);
        if (offset_ms < 0) {
            propose_abort(1, 1);
            world_run_for(world, (uint64_t)-offset_ms);
            publication_hold_votes(all, 2, false);
        } else {
            publication_hold_votes(all, 2, false);
            world_run_for(world, (uint64_t)offset_ms);
            propose_abort(1, 1);
        }
        world_run_for(world, 1000);
        bool committed_here[3];
        for (unsigned n = 0; n < 3; n++) {
            const struct state_job *job = job_at(n);
            const struct state_epoch *epoch = state_epoch(job, 1);
            committed_here[n] = job->aborted_epoch != 1;
            ck_assert(epoch == NULL || state_epoch_committed(epoch));
            ck_assert(committed_here[n] == committed_here[0]);
        }
        committed += committed_here[0] ? 1 : 0;
        aborted += committed_here[0] ? 0 : 1;
        settle();
        ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
        close_world();
    }
    ck_assert_uint_gt(committed, 2);
    ck_assert_uint_gt(aborted, 2);
}
END_TEST

START_TEST(a_decision_survives_the_leader_that_dies_before_the_renames)
{
    open_world(3);
    for (unsigned n = 0; n < 3; n++) {
        publication_hold_publish(all, n, true);
    }
    wait_for(OPEN_EPOCH, 1, 0);
    int leader = world_leader(world);
    ck_assert_int_ge(leader, 0);
    wait_for(COMMITTED, 1, (unsigned)leader);
    world_crash(world, (unsigned)leader);
    for (unsigned n = 0; n < 3; n++) {
        ck_assert_uint_eq(publication_current(world, n, 1), 0);
        publication_hold_publish(all, n, false);
    }
    for (unsigned n = 0; n < 3; n++) {
        wait_for(PUBLISHED_AT, 1, n);
    }
    settle();
    ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
    close_world();
}
END_TEST

START_TEST(a_leader_that_dies_before_the_last_vote_leaves_the_votes)
{
    open_world(3);
    wait_for(OPEN_EPOCH, 1, 0);
    close_world();
    open_world(3); /* The same run: who leads is known now. */
    for (unsigned n = 0; n < 3; n++) {
        publication_hold_votes(all, n, true);
    }
    wait_for(OPEN_EPOCH, 1, 0);
    unsigned leader = (unsigned)world_leader(world);
    publication_hold_votes(all, leader, false);
    wait_for(VOTES, 1, leader);
    world_crash(world, leader); /* It has voted: its restart aborts nothing. */
    for (unsigned n = 0; n < 3; n++) {
        publication_hold_votes(all, n, false);
    }
    wait_for(COMMITTED, 1, (leader + 1) % 3);
    settle();
    ck_assert_uint_eq(job_at(0)->aborted_epoch, 0);
    close_world();
}
END_TEST

START_TEST(all_nodes_die_between_decision_and_renames_and_publish_when_they_are_back)
{
    open_world(3);
    for (unsigned n = 0; n < 3; n++) {
        publication_hold_publish(all, n, true);
    }
    for (unsigned n = 0; n < 3; n++) {
        wait_for(COMMITTED, 1, n);
    }
    for (unsigned n = 0; n < 3; n++) {
        world_crash(world, n);
    }
    for (unsigned n = 0; n < 3; n++) {
        ck_assert_uint_eq(publication_current(world, n, 1), 0);
        publication_hold_publish(all, n, false);
    }
    settle();
    ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
    close_world();
}
END_TEST

START_TEST(a_full_disk_aborts_the_vote_with_its_reason_and_the_job_goes_on)
{
    open_world(3);
    publication_fill_disk(all, 1, true);
    wait_for(ABORTED, 1, 0);
    ck_assert_str_eq(job_at(0)->aborted_reason, "node 'b': reserve: No space left on device");
    ck_assert_int_eq(job_at(0)->state, JOB_RUNNING);
    ck_assert_uint_eq(job_at(0)->generation, 1);
    wait_for(ABORTED, 2, 0); /* Its next checkpoint fails too, and the training goes on. */
    ck_assert_str_eq(job_at(0)->aborted_reason, "node 'b': write: No space left on device");
    ck_assert_uint_eq(job_at(0)->generation, 1);
    publication_fill_disk(all, 1, false);
    settle();
    ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
    ck_assert_uint_eq(job_at(0)->generation, 1);
    close_world();
}
END_TEST

START_TEST(a_full_disk_at_the_last_step_is_waited_for)
{
    open_world(2);
    wait_for(COMMITTED, 2, 0);
    publication_fill_disk(all, 0, true);
    wait_for(ABORTED, 4, 0);
    ck_assert_int_eq(job_at(0)->state, JOB_FINISHING);
    publication_fill_disk(all, 0, false);
    wait_for(ENDED, 0, 0);
    settle();
    ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
    ck_assert_uint_eq(job_at(0)->generation, 1);
    close_world();
}
END_TEST

START_TEST(without_a_majority_nothing_is_published_and_it_is_when_the_other_is_back)
{
    open_world(2);
    publication_hold_votes(all, 1, true);
    wait_for(VOTES, 1, 0);
    world_isolate(world, 1, true);
    publication_hold_votes(all, 1, false);
    world_run_for(world, 10000);
    ck_assert_uint_eq(publication_current(world, 0, 1), 0);
    ck_assert_uint_eq(publication_current(world, 1, 1), 0);
    world_isolate(world, 1, false);
    settle();
    ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
    close_world();
}
END_TEST

START_TEST(a_silent_participant_pauses_the_job_with_its_name)
{
    open_world(3);
    wait_for(COMMITTED, 1, 0);
    int leader = world_leader(world);
    unsigned other = (unsigned)(leader + 1) % 3;
    world_isolate(world, other, true);
    wait_for(PAUSED, 0, (unsigned)leader);
    char name[2] = {(char)('a' + (char)other), '\0'};
    ck_assert(strstr(job_at((unsigned)leader)->reason, name) != NULL ||
              strstr(job_at((unsigned)leader)->reason, "no word of node") != NULL);
    world_isolate(world, other, false);
    settle();
    ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
    close_world();
}
END_TEST

/* From BEGIN on, `point` operations of the disk's later, the node dies, or an fsync fails. */
static void strike(unsigned node, uint64_t point, int how)
{
    open_world(3);
    wait_for(OPEN_EPOCH, 1, node);
    struct sim_disk *disk = world_disk(world, node);
    if (how < 2) {
        sim_disk_crash_at(disk, sim_disk_ops(disk) + point, how == 1);
    } else {
        sim_disk_fail_sync(disk, point);
    }
    settle();
    ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
    close_world();
}

START_TEST(a_crash_before_and_after_each_disk_operation_loses_nothing)
{
    unsigned runs = 0;
    for (unsigned node = 0; node < 3; node++) { /* One of them leads. */
        for (uint64_t point = 1; point <= 150; point++) {
            strike(node, point, 0);
            strike(node, point, 1);
            runs += 2;
        }
    }
    printf("%u crash points\n", runs);
}
END_TEST

START_TEST(each_failing_fsync_of_a_publication_loses_nothing)
{
    unsigned runs = 0;
    for (unsigned node = 0; node < 3; node++) {
        for (uint64_t point = 1; point <= 80; point++) {
            strike(node, point, 2);
            runs++;
        }
    }
    printf("%u failing fsyncs\n", runs);
}
END_TEST

/* A node loses its checkpoints at each moment of a publication, its own shard's and the copy's: the
 * others have all, and it gets them back. */
START_TEST(checkpoints_lost_at_each_moment_are_whole_again)
{
    unsigned runs = 0;
    for (unsigned node = 0; node < 3; node++) {
        for (uint64_t ms = 0; ms <= 400; ms += 8) {
            struct publication_counts counts;
            open_world(3);
            wait_for(OPEN_EPOCH, 1, node);
            world_run_for(world, ms);
            publication_wipe(world, node);
            settle();
            ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
            ck_assert_uint_eq(job_at(0)->lost_epoch, 0);
            publication_counts(all, &counts);
            ck_assert_uint_eq(counts.hurts, 1);
            close_world();
            runs++;
        }
    }
    printf("%u moments of a lost disk\n", runs);
}
END_TEST

/* A node loses its folder, its log too, at each moment of a publication: it is removed and joins
 * again as somebody else, who is sent the log and then works and holds copies like the others. */
START_TEST(a_node_that_lost_all_comes_back_as_somebody_else_and_nothing_is_lost)
{
    unsigned runs = 0;
    for (unsigned node = 0; node < 3; node++) {
        for (uint64_t ms = 0; ms <= 400; ms += 20) {
            struct publication_counts counts;
            elastic = (uint32_t)(ms / 20 % 2);
            open_world(3);
            wait_for(OPEN_EPOCH, 1, node);
            world_run_for(world, ms);
            uint32_t id = world_id(world, node);
            bool lost = publication_lose(world, node);
            for (int i = 0; i < 200 && !lost; i++) { /* A holder says STORED before it counts. */
                world_run_for(world, 5);
                lost = publication_lose(world, node);
            }
            ck_assert(lost);
            settle();
            ck_assert_uint_ne(world_id(world, node), id);
            ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
            ck_assert_uint_eq(job_at(0)->lost_epoch, 0);
            publication_counts(all, &counts);
            ck_assert_uint_eq(counts.rejoins, 1);
            ck_assert_uint_ge(counts.repairs, 1);
            close_world();
            runs++;
        }
    }
    elastic = 0;
    printf("%u moments of a lost node\n", runs);
}
END_TEST

static void propose_drain(unsigned node)
{
    struct command c = {.kind = COMMAND_DRAIN};
    struct buf bytes = BUF_NONE;
    c.drain.node = node + 1;
    c.drain.drained = true;
    ASSERT(command_encode(&c, &bytes, NULL) == 0);
    (void)world_propose(world, 0, bytes.bytes, bytes.size);
    buf_done(&bytes);
}

/* Drained, it has no part in the newer epochs, so that its CURRENT names an old one for as long as
 * it has not seen that this is collected; a bit of that one is another. Whoever reads it there is
 * told by its digest, no copy that is due is concerned, and the file goes with its epoch. */
START_TEST(a_damaged_epoch_on_a_drained_node_goes_when_it_is_collected)
{
    elastic = 1;
    open_world(4);
    elastic = 0;
    wait_for(PUBLISHED_AT, 1, 3);
    propose_drain(3);
    wait_for(PARTS, 3, 3);
    publication_hold_publish(all, 3, true);
    uint64_t old = publication_current(world, 3, 1);
    ck_assert_uint_gt(old, 0);
    bool rotten = false;
    for (int i = 0; i < 100 && !rotten; i++) {
        rotten = publication_rot(world, 3);
    }
    ck_assert(rotten);
    wait_for(COLLECTED, old, 3);
    world_run_for(world, 1500);
    world_crash(world, 3); /* The reader looks at all that lies there anew. */
    world_run_for(world, 3000);
    ck_assert_uint_eq(publication_current(world, 3, 1), old);
    publication_hold_publish(all, 3, false);
    settle();
    ck_assert_int_eq(job_at(0)->state, JOB_SUCCEEDED);
    ck_assert_uint_ne(publication_current(world, 3, 1), old);
    close_world();
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("publication");
    TCase *tests = tcase_create("publication");
    tcase_set_timeout(tests, 1200);
    tcase_add_test(tests, the_log_alone_decides_between_the_last_vote_and_an_abort);
    tcase_add_test(tests, a_decision_survives_the_leader_that_dies_before_the_renames);
    tcase_add_test(tests, a_leader_that_dies_before_the_last_vote_leaves_the_votes);
    tcase_add_test(tests,
                   all_nodes_die_between_decision_and_renames_and_publish_when_they_are_back);
    tcase_add_test(tests, a_full_disk_aborts_the_vote_with_its_reason_and_the_job_goes_on);
    tcase_add_test(tests, a_full_disk_at_the_last_step_is_waited_for);
    tcase_add_test(tests, without_a_majority_nothing_is_published_and_it_is_when_the_other_is_back);
    tcase_add_test(tests, a_silent_participant_pauses_the_job_with_its_name);
    tcase_add_test(tests, a_crash_before_and_after_each_disk_operation_loses_nothing);
    tcase_add_test(tests, each_failing_fsync_of_a_publication_loses_nothing);
    tcase_add_test(tests, checkpoints_lost_at_each_moment_are_whole_again);
    tcase_add_test(tests, a_node_that_lost_all_comes_back_as_somebody_else_and_nothing_is_lost);
    tcase_add_test(tests, a_damaged_epoch_on_a_drained_node_goes_when_it_is_collected);
    suite_add_tcase(suite, tests);
    return suite;
}
