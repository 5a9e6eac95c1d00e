/* The agent with the real state machine and real files: a cluster of three in one process. */
#include "checkpoint/checkpoint.h"

#include "tests/lib/agreed.h"
#include "tests/lib/folder.h"
#include "tests/lib/unit.h"

static struct state state;
static struct test_folder folders[3];
static struct agent agents[3];
static struct agent_action action;
static struct agent_result result;

static void setup(void)
{
    agreed_init(&state, 3);
    agreed_to_running(&state, 1);
    for (uint32_t i = 0; i < 3; i++) {
        test_folder_open(&folders[i]);
        agent_init(&agents[i], 1, i + 1, 10);
    }
}

static void teardown(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        test_folder_close(&folders[i]);
    }
    state_done(&state);
}

/* Coordinate i of step s is 100 s + i, its accumulator the negative. */
static void vectors(uint64_t step, double parameter[10], double accumulator[10])
{
    for (int i = 0; i < 10; i++) {
        parameter[i] = 100.0 * (double)step + i;
        accumulator[i] = -parameter[i];
    }
}

static void capture(uint64_t step, bool ends)
{
    double parameter[10];
    double accumulator[10];
    vectors(step, parameter, accumulator);
    struct agent_capture made = {.generation = state_job(&state, 1)->generation,
                                 .step = step,
                                 .ends = ends,
                                 .content_ready = true,
                                 .vectors_ready = true,
                                 .loss_bits = command_bits_of(0.25)};
    sha256_of(parameter, sizeof(parameter), made.parameter_sha256);
    sha256_of(accumulator, sizeof(accumulator), made.accumulator_sha256);
    for (uint32_t i = 0; i < 3; i++) {
        agent_capture(&agents[i], &made);
    }
}

/* Does one action of a node; false: it has none. */
static bool act(uint32_t i, bool caught_up)
{
    switch (agent_next(&agents[i], &state, caught_up, &action)) {
    case AGENT_IDLE:
        return false;
    case AGENT_PROPOSE:
        ck_assert_int_eq(agreed_apply(&state, &action.command, NULL), STATE_CHANGED);
        return true;
    case AGENT_SCAN:
    case AGENT_STAGE:
    case AGENT_PUBLISH:
    case AGENT_DISCARD:
    case AGENT_DELETE:
    case AGENT_VERIFY:
    case AGENT_TRIM:
    case AGENT_RETRACT:
    case AGENT_COPY:
    default:
        break;
    }
    const struct state_job *job = state_job(&state, 1);
    double parameter[10];
    double accumulator[10];
    struct shard_content content = {.about.rank = i, .about.ranks = 3};
    if (action.kind == AGENT_STAGE) {
        vectors(job->open->step, parameter, accumulator);
        content.about.epoch = job->open->epoch;
        content.about.step = job->open->step;
        content.about.generation = job->open->generation;
        memcpy(content.about.identity, job->identity, SHA256_SIZE);
        content.about.first = job->bounds[i];
        content.about.end = job->bounds[i + 1];
        content.about.coordinates = 10;
        content.parameter = parameter + job->bounds[i];
        content.accumulator = accumulator + job->bounds[i];
    }
    agent_execute(folders[i].fs, &action, action.kind == AGENT_STAGE ? &content : NULL, &result);
    ck_assert(!result.fatal);
    (void)agent_done(&agents[i], &action, &result);
    return true;
}

static void act_all(bool caught_up)
{
    for (bool any = true; any;) {
        any = false;
        for (uint32_t i = 0; i < 3; i++) {
            any = act(i, caught_up) || any;
        }
    }
}

static void publish_step(uint64_t step, bool ends)
{
    capture(step, ends);
    ck_assert_int_eq(agreed_begin(&state, 1, step, ends), STATE_CHANGED);
    act_all(true);
}

START_TEST(a_step_is_staged_voted_published_and_reported)
{
    publish_step(50, false);
    const struct state_epoch *epoch = state_newest_epoch(state_job(&state, 1));
    ck_assert_ptr_nonnull(epoch);
    ck_assert(state_epoch_published(epoch));
    for (uint32_t i = 0; i < 3; i++) {
        struct manifest m;
        struct checkpoint_verdict verdict;
        struct err err = {0};
        uint64_t current = 0;
        ck_assert_int_eq(current_read(folders[i].fs, "jobs/1-test", &current, &err), 0);
        ck_assert_uint_eq(current, 1);
        ck_assert_int_eq(
            checkpoint_verify(folders[i].fs, "jobs/1-test/epoch-00000001", &m, &verdict, &err), 0);
        ck_assert_uint_eq(verdict.files, 2);
        ck_assert_uint_eq(verdict.shards, 1);
        ck_assert(!verdict.whole);
        ck_assert_uint_eq(m.step, 50);
        ck_assert_uint_eq(agents[i].view.staged_count, 0);
        ck_assert(!agent_holds_capture(&agents[i], &state));
    }
}
END_TEST

START_TEST(the_manifest_has_the_same_bytes_everywhere)
{
    publish_step(50, false);
    struct buf bytes[3] = {BUF_NONE, BUF_NONE, BUF_NONE};
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(fs_read_all(folders[i].fs, "jobs/1-test/epoch-00000001/manifest.json",
                                     MANIFEST_SIZE_MAX, &bytes[i], NULL),
                         0);
        ck_assert_uint_eq(bytes[i].size, bytes[0].size);
        ck_assert_mem_eq(bytes[i].bytes, bytes[0].bytes, bytes[0].size);
    }
    for (uint32_t i = 0; i < 3; i++) {
        buf_done(&bytes[i]);
    }
}
END_TEST

START_TEST(rank_0_does_not_vote_before_the_whole_vectors_are_digested)
{
    capture(50, false);
    struct agent_capture early = agents[0].capture;
    struct agent_capture late = early;
    early.vectors_ready = false;
    agent_capture(&agents[0], &early);
    (void)agreed_begin(&state, 1, 50, false);
    act_all(true);
    ck_assert_uint_eq(state_votes(state_job(&state, 1)->open), 2);
    agent_capture(&agents[0], &late);
    act_all(true);
    ck_assert_ptr_nonnull(state_newest_epoch(state_job(&state, 1)));
}
END_TEST

START_TEST(nothing_is_published_or_deleted_before_it_has_caught_up)
{
    capture(50, false);
    (void)agreed_begin(&state, 1, 50, false);
    act_all(false);
    ck_assert_ptr_nonnull(state_newest_epoch(state_job(&state, 1))); /* voting is allowed */
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(agents[i].view.current, 0);
        ck_assert_uint_eq(agents[i].view.staged_count, 1);
    }
    /* A node that restarts with a log that does not know the publication yet leaves it alone. */
    struct state behind;
    agreed_init(&behind, 3);
    agent_init(&agents[0], 1, 1, 11);
    ck_assert_int_eq(agent_next(&agents[0], &behind, false, &action), AGENT_SCAN);
    agent_execute(folders[0].fs, &action, NULL, &result);
    (void)agent_done(&agents[0], &action, &result);
    ck_assert_int_eq(agent_next(&agents[0], &behind, false, &action), AGENT_IDLE);
    ck_assert_int_eq(agent_next(&agents[0], &behind, true, &action),
                     AGENT_IDLE); /* not its to judge */
    state_done(&behind);
    act_all(true);
    ck_assert_uint_eq(agents[0].view.current, 1);
}
END_TEST

START_TEST(a_restart_between_vote_and_rename_publishes_only_what_is_right)
{
    capture(50, false);
    (void)agreed_begin(&state, 1, 50, false);
    act_all(false);
    for (uint32_t i = 0; i < 3; i++) {
        (void)agreed_node(&state, i + 1, 11);
        agent_init(&agents[i], 1, i + 1, 11);
    }
    test_folder_flip(&folders[2],
                     "jobs/1-test/staging/epoch-00000001/shard-00003-of-00003.safetensors", -8);
    act_all(true);
    ck_assert_uint_eq(agents[0].view.current, 0);
    ck_assert_uint_eq(agents[1].view.current, 0);
    ck_assert_uint_eq(agents[2].view.current, 0); /* never half of it */
    /* It had no copy: the epoch is lost, and nobody goes on naming it. */
    const struct state_job *job = state_job(&state, 1);
    ck_assert_uint_eq(job->lost_epoch, 1);
    ck_assert_ptr_null(state_newest_epoch(job));
}
END_TEST

START_TEST(an_aborted_epoch_leaves_nothing_behind)
{
    capture(50, false);
    (void)agreed_begin(&state, 1, 50, false);
    ck_assert(act(0, true)); /* scan */
    ck_assert(act(0, true)); /* stage */
    ck_assert_uint_eq(agents[0].view.staged_count, 1);
    (void)agreed_abort(&state, 1, 1);
    act_all(true);
    ck_assert_uint_eq(agents[0].view.staged_count, 0);
    ck_assert(!agent_holds_capture(&agents[0], &state));
}
END_TEST

START_TEST(a_shard_that_cannot_be_written_aborts_with_its_reason)
{
    char path[256];
    struct err err = {0};
    ck_assert_int_eq(fs_mkdir_all(folders[1].fs, "jobs/1-test", &err), 0);
    (void)snprintf(path, sizeof(path), "%s/jobs/1-test/staging", folders[1].path);
    FILE *file = fopen(path, "w"); /* a file where the folder must be */
    ck_assert_ptr_nonnull(file);
    (void)fclose(file);
    capture(50, true);
    (void)agreed_begin(&state, 1, 50, true);
    for (int i = 0; i < 6; i++) {
        agents[1].scanned = true; /* what is there cannot even be listed */
        (void)act(1, true);
    }
    ck_assert_ptr_null(state_job(&state, 1)->open);
    ck_assert(strncmp(state_job(&state, 1)->aborted_reason, "node 'b': ", 10) == 0);
    ck_assert(agent_holds_capture(&agents[1], &state)); /* it ends the run: tried again */
    ck_assert_int_eq(remove(path), 0);
    agents[1].scanned = false;
    ck_assert_int_eq(agreed_begin(&state, 1, 50, true), STATE_CHANGED);
    act_all(true);
    ck_assert_uint_eq(state_newest_epoch(state_job(&state, 1))->epoch, 2);
}
END_TEST

static struct fs_ops troubled; /* a folder's table with some functions exchanged */
static unsigned written;

static int no_room(struct fs_file *file, uint64_t size, struct err *err)
{
    (void)file;
    return err_set(err, ERR_DISK, "no room for %llu bytes", (unsigned long long)size);
}

static int write_counted(struct fs_file *file, const void *bytes, size_t size, struct err *err)
{
    (void)file;
    (void)bytes;
    written++;
    return err_set(err, ERR_DISK, "%zu bytes written in vain", size);
}

START_TEST(a_shard_for_which_there_is_no_room_is_not_begun)
{
    const struct fs_ops *ops = folders[1].fs->ops;
    struct folder_view view;
    struct err err = {0};
    capture(50, true);
    (void)agreed_begin(&state, 1, 50, true);
    troubled = *ops;
    troubled.reserve = no_room;
    troubled.write = write_counted;
    written = 0;
    folders[1].fs->ops = &troubled;
    while (state_job(&state, 1)->open != NULL) {
        ck_assert(act(1, true));
    }
    folders[1].fs->ops = ops;
    ck_assert_uint_eq(written, 0);
    ck_assert(strncmp(state_job(&state, 1)->aborted_reason, "node 'b': no room for ", 22) == 0);
    ck_assert_int_eq(folder_scan(folders[1].fs, "jobs/1-test", &view, &err), 0);
    ck_assert_uint_eq(view.staged_count, 0);
    ck_assert_int_eq(agreed_begin(&state, 1, 50, true), STATE_CHANGED);
    act_all(true);
    ck_assert_uint_eq(state_newest_epoch(state_job(&state, 1))->epoch, 2);
}
END_TEST

START_TEST(a_lost_capture_aborts_what_it_was_begun_for)
{
    capture(50, false);
    (void)agreed_begin(&state, 1, 50, false);
    struct agent_capture none = {0};
    agent_capture(&agents[2], &none);
    ck_assert(act(2, true)); /* scan */
    ck_assert(act(2, true));
    ck_assert_ptr_null(state_job(&state, 1)->open);
    ck_assert_str_eq(state_job(&state, 1)->aborted_reason, "node 'c': what it captured is gone");
}
END_TEST

START_TEST(collected_epochs_go_and_the_current_one_never)
{
    for (uint64_t epoch = 1; epoch <= 4; epoch++) { /* keep: 2 */
        publish_step(10 * epoch, false);
        if (epoch > 2) {
            ck_assert_int_eq(agreed_collect(&state, 1, epoch - 2), STATE_CHANGED);
        }
        act_all(true);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_uint_eq(agents[i].view.current, epoch);
            ck_assert_uint_eq(agents[i].view.published_count, epoch < 2 ? 1 : 2);
            ck_assert_uint_eq(agents[i].view.staged_count, 0);
        }
    }
    /* Even a state that knows no epoch at all does not make it delete what CURRENT names. */
    struct agent_action bad = {.kind = AGENT_DELETE, .job = 1, .epoch = 4};
    (void)snprintf(bad.folder, sizeof(bad.folder), "jobs/1-test");
    agent_execute(folders[0].fs, &bad, NULL, &result);
    ck_assert_int_eq(result.code, ERR_STATE);
    ck_assert_uint_eq(result.view.published_count, 2);
}
END_TEST

START_TEST(a_staging_folder_that_somebody_took_away_is_no_failed_disk)
{
    publish_step(50, false);
    for (uint32_t i = 0; i < 3; i++) {
        struct err err = {0};
        ck_assert_int_eq(fs_remove_tree(folders[i].fs, "jobs/1-test/staging", &err), 0);
    }
    struct agent_action again = {.kind = AGENT_PUBLISH, .job = 1, .epoch = 1};
    (void)snprintf(again.folder, sizeof(again.folder), "jobs/1-test");
    agent_execute(folders[0].fs, &again, NULL, &result);
    ck_assert_msg(result.code == 0, "%s", result.err.text);
    ck_assert(!result.fatal);
    publish_step(60, false);
    ck_assert_uint_eq(agents[0].view.current, 2);
}
END_TEST

START_TEST(current_does_not_go_back)
{
    struct err err = {0};
    uint64_t epoch = 9;
    ck_assert_int_eq(current_read(folders[0].fs, "jobs/9-x", &epoch, &err), 0);
    ck_assert_uint_eq(epoch, 0);
    ck_assert_int_eq(fs_mkdir_all(folders[0].fs, "jobs/9-x", &err), 0);
    ck_assert_int_eq(current_write(folders[0].fs, "jobs/9-x", 12, &err), 0);
    ck_assert_int_eq(current_write(folders[0].fs, "jobs/9-x", 11, &err), ERR_STATE);
    ck_assert_int_eq(current_write(folders[0].fs, "jobs/9-x", 12, &err), 0);
    ck_assert_int_eq(current_read(folders[0].fs, "jobs/9-x", &epoch, &err), 0);
    ck_assert_uint_eq(epoch, 12);
    ck_assert_int_eq(fs_replace(folders[0].fs, "jobs/9-x/CURRENT", "../../etc\n", 10, &err), 0);
    ck_assert_int_eq(current_read(folders[0].fs, "jobs/9-x", &epoch, &err), ERR_DAMAGED);
}
END_TEST

START_TEST(a_damaged_current_names_the_newest_epoch_again)
{
    static const char *const bad[] = {"../../etc\n", "", "epoch-00000099\n", "epoch-00000003"};
    struct fs *fs = folders[0].fs;
    struct err err = {0};
    struct agent_action scan = {.kind = AGENT_SCAN, .job = 9};

    uint64_t epoch = 0;
    (void)snprintf(scan.folder, sizeof(scan.folder), "jobs/9-x");
    ck_assert_int_eq(fs_mkdir_all(fs, "jobs/9-x", &err), 0);
    for (size_t i = 0; i < 4; i++) { /* No epoch is there: it goes. */
        ck_assert_int_eq(fs_replace(fs, "jobs/9-x/CURRENT", bad[i], strlen(bad[i]), &err), 0);
        agent_execute(fs, &scan, NULL, &result);
        ck_assert_msg(result.code == 0, "%s", result.err.text);
        ck_assert(result.repaired);
        ck_assert(result.scanned);
        ck_assert_uint_eq(result.view.current, 0);
    }
    ck_assert_int_eq(fs_mkdir_all(fs, "jobs/9-x/epoch-00000002", &err), 0);
    ck_assert_int_eq(fs_mkdir_all(fs, "jobs/9-x/epoch-00000003", &err), 0);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(fs_replace(fs, "jobs/9-x/CURRENT", bad[i], strlen(bad[i]), &err), 0);
        agent_execute(fs, &scan, NULL, &result);
        ck_assert(result.repaired);
        ck_assert_uint_eq(result.view.current, 3);
        ck_assert_int_eq(current_read(fs, "jobs/9-x", &epoch, &err), 0);
        ck_assert_uint_eq(epoch, 3);
    }
    agent_execute(fs, &scan, NULL, &result);
    ck_assert(!result.repaired);
}
END_TEST

/* ---- whole checkpoints ---- */

static void sources(struct checkpoint_source from[3])
{
    for (uint32_t i = 0; i < 3; i++) {
        from[i] = (struct checkpoint_source){folders[i].fs, "jobs/1-test/epoch-00000001"};
    }
}

START_TEST(three_nodes_folders_make_a_whole_one)
{
    publish_step(50, true);
    struct checkpoint_source from[3];
    struct checkpoint_whole whole;
    struct checkpoint_verdict verdict;
    struct manifest m;
    struct shard range = SHARD_NONE;
    struct err err = {0};
    double parameter[10];
    double accumulator[10];
    sources(from);
    ck_assert_int_eq(checkpoint_assemble(from, 2, folders[0].fs, "whole", &err), ERR_NOT_FOUND);
    ck_assert_str_eq(err.text, "no source has 'shard-00003-of-00003.safetensors', node c's part");
    ck_assert_int_eq(checkpoint_assemble(from, 3, folders[0].fs, "whole", &err), 0);
    ck_assert_int_eq(checkpoint_assemble(from, 3, folders[0].fs, "whole", &err), ERR_USAGE);
    ck_assert_int_eq(checkpoint_verify(folders[0].fs, "whole", &m, &verdict, &err), 0);
    ck_assert(verdict.whole);
    ck_assert_uint_eq(verdict.files, 4);
    ck_assert_int_eq(checkpoint_read_whole(folders[0].fs, "whole", &whole, &err), 0);
    vectors(50, parameter, accumulator);
    ck_assert_mem_eq(whole.parameter, parameter, sizeof(parameter));
    ck_assert_mem_eq(whole.accumulator, accumulator, sizeof(accumulator));
    checkpoint_whole_done(&whole);
    ck_assert_int_eq(checkpoint_read_range(folders[0].fs, "whole", 2, 9, &range, &err), 0);
    ck_assert_mem_eq(range.parameter, parameter + 2, 7 * sizeof(double));
    shard_done(&range);
    ck_assert_int_eq(checkpoint_read_range(folders[0].fs, "whole", 2, 11, &range, &err), ERR_STATE);
}
END_TEST

START_TEST(a_damaged_shard_is_named_and_taken_from_another_source)
{
    publish_step(50, true);
    struct checkpoint_source from[4];
    struct checkpoint_verdict verdict;
    struct checkpoint_whole whole;
    struct manifest m;
    struct err err = {0};
    sources(from);
    ck_assert_int_eq(checkpoint_assemble(from, 3, folders[0].fs, "whole", &err), 0);
    test_folder_flip(&folders[1], "jobs/1-test/epoch-00000001/shard-00002-of-00003.safetensors",
                     -20);
    ck_assert_int_eq(
        checkpoint_verify(folders[1].fs, "jobs/1-test/epoch-00000001", &m, &verdict, &err),
        ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.text, "shard-00002-of-00003.safetensors"));
    ck_assert_int_eq(checkpoint_assemble(from, 3, folders[2].fs, "whole", &err), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.text, "shard-00002-of-00003.safetensors"));
    from[3] = (struct checkpoint_source){folders[0].fs, "whole"};
    ck_assert_int_eq(checkpoint_assemble(from, 4, folders[2].fs, "whole", &err), 0);
    ck_assert_int_eq(checkpoint_read_whole(folders[2].fs, "whole", &whole, &err), 0);
    checkpoint_whole_done(&whole);
    test_folder_flip(&folders[2], "whole/SHA256SUMS", 3);
    ck_assert_int_eq(checkpoint_verify(folders[2].fs, "whole", &m, &verdict, &err), ERR_DAMAGED);
}
END_TEST

START_TEST(swapped_shards_and_a_replayed_manifest_are_refused)
{
    publish_step(50, false);
    publish_step(60, false);
    struct checkpoint_source from[3];
    struct checkpoint_verdict verdict;
    struct manifest m;
    struct err err = {0};
    for (uint32_t i = 0; i < 3; i++) {
        from[i] = (struct checkpoint_source){folders[i].fs, i == 2 ? "jobs/1-test/epoch-00000001"
                                                                   : "jobs/1-test/epoch-00000002"};
    }
    ck_assert_int_eq(checkpoint_assemble(from, 3, folders[0].fs, "whole", &err), ERR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.text, "differ"));
    const struct fs_ops *ops = folders[0].fs->ops;
    ck_assert_int_eq(ops->rename(folders[0].fs, "jobs/1-test/epoch-00000001/manifest.json",
                                 "jobs/1-test/epoch-00000002/manifest.json", &err),
                     0);
    ck_assert_int_eq(
        checkpoint_verify(folders[0].fs, "jobs/1-test/epoch-00000002", &m, &verdict, &err),
        ERR_DAMAGED);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("agent");
    TCase *tests = tcase_create("agent");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_step_is_staged_voted_published_and_reported);
    tcase_add_test(tests, the_manifest_has_the_same_bytes_everywhere);
    tcase_add_test(tests, rank_0_does_not_vote_before_the_whole_vectors_are_digested);
    tcase_add_test(tests, nothing_is_published_or_deleted_before_it_has_caught_up);
    tcase_add_test(tests, a_restart_between_vote_and_rename_publishes_only_what_is_right);
    tcase_add_test(tests, an_aborted_epoch_leaves_nothing_behind);
    tcase_add_test(tests, a_shard_that_cannot_be_written_aborts_with_its_reason);
    tcase_add_test(tests, a_shard_for_which_there_is_no_room_is_not_begun);
    tcase_add_test(tests, a_lost_capture_aborts_what_it_was_begun_for);
    tcase_add_test(tests, collected_epochs_go_and_the_current_one_never);
    tcase_add_test(tests, a_staging_folder_that_somebody_took_away_is_no_failed_disk);
    tcase_add_test(tests, current_does_not_go_back);
    tcase_add_test(tests, a_damaged_current_names_the_newest_epoch_again);
    tcase_add_test(tests, three_nodes_folders_make_a_whole_one);
    tcase_add_test(tests, a_damaged_shard_is_named_and_taken_from_another_source);
    tcase_add_test(tests, swapped_shards_and_a_replayed_manifest_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
