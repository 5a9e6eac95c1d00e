/* Copies in the agreed state: where they are placed, what is said of them, and what is lost with
 * the last one. */
#include "control/placement.h"
#include "control/state.h"

#include "tests/lib/agreed.h"
#include "tests/lib/unit.h"

static struct state state;

static void node_at(uint32_t node, const char *address, uint8_t role)
{
    struct command c = {.kind = COMMAND_NODE, .wall_ms = 1000};
    c.node.node = node;
    c.node.incarnation = 10;
    c.node.role = role;
    (void)snprintf(c.node.name, sizeof(c.node.name), "n%u", node);
    (void)snprintf(c.node.address, sizeof(c.node.address), "%s", address);
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
}

static void submit(uint32_t replicas)
{
    struct command c;
    agreed_submit_command(&c, 1, "test");
    c.submit.replicas = replicas;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
}

static enum state_outcome begin_with(uint64_t live, uint64_t step)
{
    struct command c = {.kind = COMMAND_BEGIN, .wall_ms = 3600};
    const struct state_job *job = state_job(&state, 1);
    c.begin.job = 1;
    c.begin.epoch = job->epoch_next;
    c.begin.step = step;
    c.begin.generation = job->generation;
    c.begin.live = live;
    return agreed_apply(&state, &c, NULL);
}

static enum state_outcome vote(uint32_t node)
{
    struct command c;
    agreed_vote_command(&state, 1, node, &c);
    const struct state_shard *shard = state_shard(state_job(&state, 1)->open, node);
    c.prepared.holders_count = shard->holders_count;
    memcpy(c.prepared.holders, shard->holders, sizeof(shard->holders[0]) * shard->holders_count);
    return agreed_apply(&state, &c, NULL);
}

static enum state_outcome say(enum command_kind kind, uint64_t epoch, uint32_t rank, uint32_t node)
{
    struct command c = {.kind = kind, .wall_ms = 4200};
    c.copy.job = 1;
    c.copy.epoch = epoch;
    c.copy.rank = rank;
    c.copy.node = node;
    c.copy.sha256[0] = (uint8_t)(rank + 1); /* agreed_vote_command's of node rank + 1 */
    return agreed_apply(&state, &c, NULL);
}

static enum state_outcome say_as(enum command_kind kind, uint32_t rank, uint32_t node,
                                 uint32_t life)
{
    struct command c = {.kind = kind, .wall_ms = 4200};
    c.copy.job = 1;
    c.copy.epoch = 1;
    c.copy.rank = rank;
    c.copy.node = node;
    c.copy.life = life;
    c.copy.sha256[0] = (uint8_t)(rank + 1);
    return agreed_apply(&state, &c, NULL);
}

static void commit(uint64_t live, uint64_t step)
{
    uint64_t epoch = state_job(&state, 1)->epoch_next;
    ck_assert_int_eq(begin_with(live, step), STATE_CHANGED);
    for (uint32_t node = 1; node <= 3; node++) {
        ck_assert_int_eq(vote(node), STATE_CHANGED);
    }
    for (uint32_t node = 1; node <= 3; node++) {
        ck_assert_int_eq(agreed_published(&state, 1, epoch, node), STATE_CHANGED);
    }
}

static void setup(void)
{
    state_init(&state);
    for (uint32_t node = 1; node <= 3; node++) {
        ck_assert_int_eq(agreed_node(&state, node, 10), STATE_CHANGED);
    }
    submit(1);
    agreed_to_running(&state, 1);
}

static void teardown(void)
{
    state_done(&state);
}

static void holds(uint32_t rank, uint32_t a, uint32_t b, uint32_t c)
{
    const struct state_shard *shard = &state_job(&state, 1)->open->shards[rank];
    const uint32_t due[3] = {a, b, c};
    ck_assert_uint_eq(shard->holders_count, c != 0 ? 3 : b != 0 ? 2 : 1);
    ck_assert_uint_eq(shard->copies, shard->holders_count - 1);
    for (uint32_t i = 0; i < shard->holders_count; i++) {
        ck_assert_uint_eq(shard->holders[i], due[i]);
    }
}

START_TEST(copies_are_with_the_next_ranks_that_are_heard)
{
    ck_assert_int_eq(begin_with(7, 50), STATE_CHANGED);
    holds(0, 1, 2, 0);
    holds(1, 2, 3, 0);
    holds(2, 3, 1, 0);
    ck_assert_int_eq(agreed_abort(&state, 1, 1), STATE_CHANGED);
    ck_assert_int_eq(begin_with(5, 60), STATE_CHANGED); /* b is not heard */
    holds(0, 1, 3, 0);
    holds(1, 2, 3, 0);
    holds(2, 3, 1, 0);
    ck_assert_int_eq(agreed_abort(&state, 1, 2), STATE_CHANGED);
    ck_assert_int_eq(begin_with(0, 70), STATE_CHANGED);
    holds(0, 1, 0, 0);
}
END_TEST

START_TEST(no_two_copies_share_an_address_where_that_can_be)
{
    state_done(&state);
    state_init(&state);
    node_at(1, "10.0.0.1:7620", ROLE_TRAINER);
    node_at(2, "10.0.0.1:7621", ROLE_TRAINER);
    node_at(3, "10.0.0.2:7620", ROLE_TRAINER);
    submit(2);
    agreed_to_running(&state, 1);
    ck_assert_int_eq(begin_with(7, 50), STATE_CHANGED);
    holds(0, 1, 3, 2); /* the other address first, its own one only since there is no third */
    holds(1, 2, 3, 1);
    holds(2, 3, 1, 2);
    ck_assert_int_eq(agreed_abort(&state, 1, 1), STATE_CHANGED);
    node_at(4, "10.0.0.3:7620", ROLE_ARBITER);
    node_at(5, "10.0.0.4:7620", ROLE_SPARE);
    ck_assert_int_eq(begin_with(31, 60), STATE_CHANGED);
    holds(0, 1, 3, 5); /* a spare before an arbiter */
    holds(2, 3, 1, 5);
}
END_TEST

START_TEST(a_vote_names_the_holders_that_were_placed_and_no_others)
{
    ck_assert_int_eq(begin_with(7, 50), STATE_CHANGED);
    struct command c;
    agreed_vote_command(&state, 1, 2, &c); /* itself alone */
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c.prepared.holders_count = 2;
    c.prepared.holders[1] = 1; /* 3 was placed */
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c.prepared.holders[0] = 3;
    c.prepared.holders[1] = 3;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_IGNORED);
    c.prepared.holders[1] = 2;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
}
END_TEST

START_TEST(a_lost_copy_goes_and_comes_back_and_only_of_the_same_shard)
{
    commit(7, 50);
    const struct state_epoch *epoch = state_newest_epoch(state_job(&state, 1));
    ck_assert(state_epoch_safe(epoch));
    ck_assert_int_eq(say(COMMAND_DROPPED, 1, 0, 3), STATE_IGNORED); /* holds none of it */
    ck_assert_int_eq(say(COMMAND_DROPPED, 1, 0, 1), STATE_CHANGED);
    ck_assert_int_eq(say(COMMAND_DROPPED, 1, 0, 1), STATE_IGNORED);
    ck_assert(!state_epoch_safe(epoch));
    ck_assert(state_epoch_published(epoch));
    ck_assert_int_eq(say(COMMAND_ASSIGN, 1, 0, 3), STATE_CHANGED);
    ck_assert_uint_eq(epoch->shards[0].wanted, 3);
    struct command wrong = {.kind = COMMAND_REPLICATED, .wall_ms = 1};
    wrong.copy.job = 1;
    wrong.copy.epoch = 1;
    wrong.copy.node = 3;
    wrong.copy.sha256[0] = 77; /* of another epoch */
    ck_assert_int_eq(agreed_apply(&state, &wrong, NULL), STATE_IGNORED);
    ck_assert_int_eq(say(COMMAND_REPLICATED, 1, 0, 3), STATE_CHANGED);
    ck_assert_int_eq(say(COMMAND_REPLICATED, 1, 0, 3), STATE_IGNORED);
    ck_assert_uint_eq(epoch->shards[0].wanted, 0);
    ck_assert(state_epoch_safe(epoch));
}
END_TEST

START_TEST(keep_counts_those_with_all_their_copies)
{
    commit(7, 10);
    commit(7, 20);
    commit(7, 30); /* keep: 2 */
    ck_assert_int_eq(say(COMMAND_DROPPED, 2, 1, 3), STATE_CHANGED);
    ck_assert_int_eq(agreed_collect(&state, 1, 1), STATE_IGNORED);
    ck_assert_int_eq(say(COMMAND_REPLICATED, 2, 1, 1), STATE_CHANGED);
    ck_assert_int_eq(agreed_collect(&state, 1, 1), STATE_CHANGED);
}
END_TEST

START_TEST(an_epoch_without_any_copy_is_lost_and_the_one_before_is_gone_on_from)
{
    commit(7, 10);
    commit(7, 20);
    ck_assert_int_eq(agreed_interrupt(&state, 1), STATE_CHANGED);
    ck_assert_int_eq(agreed_place(&state, 1), STATE_CHANGED);
    const struct state_job *job = state_job(&state, 1);
    ck_assert_uint_eq(job->seed_epoch, 2);
    ck_assert_int_eq(say(COMMAND_DROPPED, 2, 1, 2), STATE_CHANGED);
    ck_assert_int_eq(say(COMMAND_DROPPED, 2, 1, 3), STATE_CHANGED);
    ck_assert_uint_eq(job->lost_epoch, 2);
    ck_assert_int_eq(job->state, JOB_PAUSED);
    ck_assert_str_eq(job->reason,
                     "epoch 2 can be had from no copy any more: it goes on from epoch 1 "
                     "(step 10)");
    ck_assert_int_eq(agreed_place(&state, 1), STATE_CHANGED);
    ck_assert_uint_eq(job->seed_epoch, 1);
    ck_assert_int_eq(say(COMMAND_DROPPED, 1, 0, 1), STATE_CHANGED);
    ck_assert_int_eq(say(COMMAND_DROPPED, 1, 0, 2), STATE_CHANGED);
    ck_assert_int_eq(job->state, JOB_PAUSED);
    ck_assert_int_eq(agreed_place(&state, 1), STATE_CHANGED); /* never a silent fresh start */
    ck_assert_int_eq(job->state, JOB_FAILED);
    ck_assert_str_eq(job->reason, "epoch 2, its only checkpoint, can be had from no copy any more: "
                                  "submit the job anew");
}
END_TEST

static void leave(uint32_t node)
{
    struct command c = {.kind = COMMAND_REMOVE, .wall_ms = 4300};
    c.remove.node = node;
    (void)snprintf(c.remove.reason, sizeof(c.remove.reason), "node '%u' was removed", node);
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
}

/* Its vote counts, since another one holds its shard; nobody else can say that it published. */
START_TEST(who_voted_and_was_removed_before_the_decision_owes_no_word)
{
    ck_assert_int_eq(begin_with(7, 50), STATE_CHANGED);
    ck_assert_int_eq(vote(1), STATE_CHANGED);
    ck_assert_int_eq(vote(3), STATE_CHANGED);
    leave(1);
    ck_assert_int_eq(vote(2), STATE_CHANGED);
    const struct state_epoch *epoch = state_newest_epoch(state_job(&state, 1));
    ck_assert_ptr_nonnull(epoch);
    ck_assert(!state_epoch_published(epoch));
    ck_assert_int_eq(agreed_published(&state, 1, 1, 2), STATE_CHANGED);
    ck_assert(!state_epoch_published(epoch)); /* 3 is there and owes its word */
    ck_assert_int_eq(agreed_published(&state, 1, 1, 3), STATE_CHANGED);
    ck_assert(state_epoch_published(epoch));
    ck_assert(!state_epoch_safe(epoch)); /* 1 held two copies */
    ck_assert_int_eq(say(COMMAND_REPLICATED, 1, 0, 3), STATE_CHANGED);
    ck_assert_int_eq(say(COMMAND_REPLICATED, 1, 2, 2), STATE_CHANGED);
    ck_assert(state_epoch_safe(epoch));
}
END_TEST

/* The leader heard it when it proposed BEGIN; REMOVE is before that in the log. */
START_TEST(who_was_removed_is_given_no_copy)
{
    ck_assert_int_eq(agreed_node(&state, 4, 10), STATE_CHANGED);
    ck_assert_int_eq(begin_with(9, 50), STATE_CHANGED);
    holds(0, 1, 4, 0);
    ck_assert_int_eq(agreed_abort(&state, 1, 1), STATE_CHANGED);
    leave(4);
    ck_assert_int_eq(begin_with(9, 60), STATE_CHANGED);
    holds(0, 1, 0, 0);
    holds(1, 2, 1, 0);
    ck_assert_uint_eq(placement_next(&state, state_job(&state, 1)->open, 0, 8), 0);
}
END_TEST

/* Its words may come after another one was let in at its place. */
START_TEST(what_a_removed_identity_says_is_nothing_of_the_next_one)
{
    struct command c = {.kind = COMMAND_MEMBER, .wall_ms = 4200};
    ck_assert_int_eq(agreed_node(&state, 4, 10), STATE_CHANGED);
    commit(7, 50);
    leave(4); /* No epoch names it. */
    c.member = (struct command_member){.how = MEMBER_ADMIT, .node = 4, .life = 1};
    c.member.role = ROLE_TRAINER;
    c.member.uuid[0] = 77;
    c.member.name[0] = 'e';
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    ck_assert_int_eq(say_as(COMMAND_ASSIGN, 0, 4, 0), STATE_IGNORED);
    ck_assert_int_eq(say_as(COMMAND_REPLICATED, 0, 4, 0), STATE_IGNORED);
    ck_assert_uint_eq(state_newest_epoch(state_job(&state, 1))->shards[0].holders_count, 2);
    ck_assert_int_eq(say_as(COMMAND_ASSIGN, 0, 4, 1), STATE_CHANGED);
    ck_assert_int_eq(say_as(COMMAND_REPLICATED, 0, 4, 1), STATE_CHANGED);
    ck_assert_int_eq(say_as(COMMAND_DROPPED, 0, 4, 0), STATE_IGNORED);
    ck_assert(state_shard_held(&state_newest_epoch(state_job(&state, 1))->shards[0], 4));
    ck_assert_int_eq(say_as(COMMAND_DROPPED, 0, 4, COMMAND_LIFE_UNSAID), STATE_CHANGED);
    ck_assert_int_eq(say_as(COMMAND_REPLICATED, 0, 4, COMMAND_LIFE_UNSAID), STATE_CHANGED);
}
END_TEST

/* 3 was not heard when it began, so that only its shard had two copies. */
START_TEST(a_removal_asks_an_open_epoch_for_no_more_copies_than_there_are_nodes)
{
    state_done(&state);
    state_init(&state);
    for (uint32_t node = 1; node <= 3; node++) {
        ck_assert_int_eq(agreed_node(&state, node, 10), STATE_CHANGED);
    }
    submit(2);
    agreed_to_running(&state, 1);
    ck_assert_int_eq(begin_with(3, 50), STATE_CHANGED);
    holds(0, 1, 2, 0);
    holds(2, 3, 1, 2);
    ck_assert_int_eq(vote(3), STATE_CHANGED);
    leave(3);
    holds(2, 1, 2, 0);
    ck_assert_int_eq(vote(1), STATE_CHANGED);
    ck_assert_int_eq(vote(2), STATE_CHANGED);
    ck_assert_int_eq(agreed_published(&state, 1, 1, 1), STATE_CHANGED);
    ck_assert_int_eq(agreed_published(&state, 1, 1, 2), STATE_CHANGED);
    ck_assert(state_epoch_safe(state_newest_epoch(state_job(&state, 1))));
}
END_TEST

START_TEST(a_snapshot_has_the_copies)
{
    struct buf bytes = BUF_NONE;
    struct buf again = BUF_NONE;
    struct state other;
    struct err err = {0};
    commit(7, 10);
    ck_assert_int_eq(say(COMMAND_DROPPED, 1, 2, 3), STATE_CHANGED);
    ck_assert_int_eq(say(COMMAND_ASSIGN, 1, 2, 3), STATE_CHANGED);
    ck_assert_int_eq(begin_with(7, 20), STATE_CHANGED);
    state_write(&state, &bytes);
    state_init(&other);
    ck_assert_msg(state_load(&other, bytes.bytes, bytes.size, &err) == 0, "%s", err.text);
    state_write(&other, &again);
    ck_assert_uint_eq(bytes.size, again.size);
    ck_assert_mem_eq(bytes.bytes, again.bytes, bytes.size);
    ck_assert_uint_eq(state_newest_epoch(state_job(&other, 1))->shards[2].wanted, 3);
    ck_assert_uint_eq(state_job(&other, 1)->open->shards[1].copies, 1);
    buf_done(&bytes);
    buf_done(&again);
    state_done(&other);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("copies");
    TCase *tests = tcase_create("copies");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, copies_are_with_the_next_ranks_that_are_heard);
    tcase_add_test(tests, no_two_copies_share_an_address_where_that_can_be);
    tcase_add_test(tests, a_vote_names_the_holders_that_were_placed_and_no_others);
    tcase_add_test(tests, a_lost_copy_goes_and_comes_back_and_only_of_the_same_shard);
    tcase_add_test(tests, keep_counts_those_with_all_their_copies);
    tcase_add_test(tests, an_epoch_without_any_copy_is_lost_and_the_one_before_is_gone_on_from);
    tcase_add_test(tests, who_voted_and_was_removed_before_the_decision_owes_no_word);
    tcase_add_test(tests, who_was_removed_is_given_no_copy);
    tcase_add_test(tests, what_a_removed_identity_says_is_nothing_of_the_next_one);
    tcase_add_test(tests, a_removal_asks_an_open_epoch_for_no_more_copies_than_there_are_nodes);
    tcase_add_test(tests, a_snapshot_has_the_copies);
    suite_add_tcase(suite, tests);
    return suite;
}
