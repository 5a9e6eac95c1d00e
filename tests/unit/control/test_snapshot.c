#include "tests/lib/agreed.h"
#include "tests/lib/unit.h"

/* A state with something everywhere: ended, open and waiting jobs, votes, collected epochs. */
static void fill(struct state *state)
{
    agreed_init(state, 3);
    agreed_to_running(state, 1);
    agreed_commit(state, 1, 50, false);
    agreed_publish(state, 1, 1);
    agreed_commit(state, 1, 100, true);
    ASSERT(agreed_finish(state, 1, OUTCOME_SUCCEEDED) == STATE_CHANGED);
    ASSERT(agreed_submit(state, 2, "second") == STATE_CHANGED);
    agreed_to_running(state, 2);
    ASSERT(agreed_begin(state, 2, 10, false) == STATE_CHANGED);
    ASSERT(agreed_vote(state, 2, 3) == STATE_CHANGED);
    ASSERT(agreed_stop(state, 2, STOP_CAPTURE, 2) == STATE_CHANGED);
    ASSERT(agreed_submit(state, 3, "third") == STATE_CHANGED);
    ASSERT(agreed_stop(state, 3, STOP_CAPTURE, 0) == STATE_CHANGED);
    ASSERT(agreed_submit(state, 4, "fourth") == STATE_CHANGED);
    ASSERT(agreed_stop(state, 4, STOP_DROP, 0) == STATE_CHANGED);
}

START_TEST(a_loaded_state_is_the_one_written_open_votes_included)
{
    struct state state;
    struct state loaded;
    struct buf bytes = BUF_NONE;
    struct buf again = BUF_NONE;
    struct err err = {0};
    fill(&state);
    state_init(&loaded);
    state_write(&state, &bytes);
    ck_assert_int_eq(state_load(&loaded, bytes.bytes, bytes.size, &err), 0);
    state_write(&loaded, &again);
    ck_assert_uint_eq(bytes.size, again.size);
    ck_assert_mem_eq(bytes.bytes, again.bytes, bytes.size);
    ck_assert_uint_eq(state_votes(state_job(&loaded, 2)->open), 1);
    /* Both go on alike. */
    struct state *both[2] = {&state, &loaded};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(agreed_vote(both[i], 2, 1), STATE_CHANGED);
        ck_assert_int_eq(agreed_vote(both[i], 2, 2), STATE_CHANGED);
        ck_assert_ptr_nonnull(state_newest_epoch(state_job(both[i], 2)));
    }
    buf_clear(&bytes);
    buf_clear(&again);
    state_write(&state, &bytes);
    state_write(&loaded, &again);
    ck_assert_uint_eq(bytes.size, again.size);
    ck_assert_mem_eq(bytes.bytes, again.bytes, bytes.size);
    buf_done(&bytes);
    buf_done(&again);
    state_done(&state);
    state_done(&loaded);
}
END_TEST

START_TEST(every_cut_of_a_snapshot_is_refused_and_leaves_the_state_alone)
{
    struct state state;
    struct state loaded;
    struct buf bytes = BUF_NONE;
    fill(&state);
    agreed_init(&loaded, 2);
    state_write(&state, &bytes);
    for (size_t size = 0; size < bytes.size; size++) {
        struct err err = {0};
        ck_assert_int_ne(state_load(&loaded, bytes.bytes, size, &err), 0);
    }
    buf_put_u8(&bytes, 0);
    struct err err = {0};
    ck_assert_int_eq(state_load(&loaded, bytes.bytes, bytes.size, &err), ERR_DAMAGED);
    ck_assert_uint_eq(loaded.nodes_count, 2);
    buf_done(&bytes);
    state_done(&state);
    state_done(&loaded);
}
END_TEST

START_TEST(a_flipped_byte_never_gives_a_state_that_breaks_on_entries)
{
    struct state state;
    struct buf bytes = BUF_NONE;
    fill(&state);
    state_write(&state, &bytes);
    unsigned loaded_count = 0;
    for (size_t at = 0; at < bytes.size; at++) {
        bytes.bytes[at] ^= 0x41;
        struct state loaded;
        struct err err = {0};
        state_init(&loaded);
        if (state_load(&loaded, bytes.bytes, bytes.size, &err) == 0) {
            loaded_count++;
            (void)agreed_node(&loaded, 2, UINT64_MAX);
            for (uint64_t id = 1; id <= 4; id++) {
                if (state_job(&loaded, id) != NULL) {
                    (void)agreed_interrupt(&loaded, id);
                    (void)agreed_place(&loaded, id);
                    (void)agreed_stop(&loaded, id, STOP_DROP, 0);
                }
            }
        }
        state_done(&loaded);
        bytes.bytes[at] ^= 0x41;
    }
    ck_assert_uint_gt(loaded_count, 0);
    buf_done(&bytes);
    state_done(&state);
}
END_TEST

START_TEST(another_format_is_named)
{
    struct state state;
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    agreed_init(&state, 1);
    state_write(&state, &bytes);
    bytes.bytes[4] = 9;
    ck_assert_int_eq(state_load(&state, bytes.bytes, bytes.size, &err), ERR_STATE);
    ck_assert_str_eq(err.text, "a snapshot of format 9; this version knows 3: use the version of "
                               "coppeliusd that wrote it");
    buf_done(&bytes);
    state_done(&state);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("snapshot");
    TCase *tests = tcase_create("snapshot");
    tcase_add_test(tests, a_loaded_state_is_the_one_written_open_votes_included);
    tcase_add_test(tests, every_cut_of_a_snapshot_is_refused_and_leaves_the_state_alone);
    tcase_add_test(tests, a_flipped_byte_never_gives_a_state_that_breaks_on_entries);
    tcase_add_test(tests, another_format_is_named);
    suite_add_tcase(suite, tests);
    return suite;
}
