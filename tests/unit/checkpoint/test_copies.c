/* Copies with the real state machine and real files: a cluster of three in one process, whose words
 * and bytes go from folder to folder. */
#include <unistd.h>

#include "checkpoint/checkpoint.h"

#include "tests/lib/agreed.h"
#include "tests/lib/folder.h"
#include "tests/lib/unit.h"

static struct state state;
static struct test_folder folders[3];
static struct agent agents[3];
static struct agent_action action;
static struct agent_result result;
static bool deaf[3]; /* hears no words */
enum lie { HONEST, FIRST_BIT, LAST_BIT, ZEROS, OTHER_SHARD, OLDER };
static enum lie lie;         /* of the holder */
static unsigned stops_after; /* reads of a fetch before its connection is gone; 0: never */
static unsigned fetched;     /* bytes */

static void setup(void)
{
    struct command c;
    state_init(&state);
    for (uint32_t node = 1; node <= 3; node++) {
        ck_assert_int_eq(agreed_node(&state, node, 10), STATE_CHANGED);
    }
    agreed_submit_command(&c, 1, "test");
    c.submit.replicas = 1;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
    agreed_to_running(&state, 1);
    for (uint32_t i = 0; i < 3; i++) {
        test_folder_open(&folders[i]);
        agent_init(&agents[i], 1, i + 1, 10);
        deaf[i] = false;
    }
    lie = HONEST;
    stops_after = 0;
    fetched = 0;
}

static void teardown(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        test_folder_close(&folders[i]);
    }
    state_done(&state);
}

static const struct state_job *job(void)
{
    return state_job(&state, 1);
}

static void vectors(uint64_t step, double parameter[10], double accumulator[10])
{
    for (int i = 0; i < 10; i++) {
        parameter[i] = 100.0 * (double)step + i;
        accumulator[i] = -parameter[i];
    }
}

static int on_read(void *context, uint64_t offset, void *bytes, size_t size, struct err *err)
{
    const struct buf *file = context;
    if (stops_after != 0 && --stops_after == 0) {
        return err_set(err, ERR_PEER, "the connection is gone");
    }
    ck_assert_uint_le(offset + size, file->size);
    memcpy(bytes, file->bytes + offset, size);
    if (size > 0 && lie == FIRST_BIT && offset == 0) {
        ((uint8_t *)bytes)[0] ^= 1;
    } else if (size > 0 && lie == LAST_BIT && offset + size == file->size) {
        ((uint8_t *)bytes)[size - 1] ^= 0x80;
    } else if (lie == ZEROS) {
        memset(bytes, 0, size);
    }
    fetched += (unsigned)size;
    return 0;
}

/* The bytes of another shard, or of this one's earlier epoch, as many as are due. */
static void take_another(struct buf *file)
{
    char path[FOLDER_PATH_SIZE];
    struct buf other = BUF_NONE;
    struct err err = {0};
    uint32_t rank = lie == OLDER ? action.rank : (action.rank + 1) % 3;
    (void)snprintf(path, sizeof(path), "jobs/1-test/epoch-00000001/shard-%05u-of-00003.safetensors",
                   rank + 1);
    ck_assert_msg(fs_read_all(folders[rank].fs, path, 1U << 20, &other, &err) == 0, "%s", err.text);
    while (other.size < file->size) {
        buf_put_u8(&other, 0);
    }
    ck_assert(memcmp(file->bytes, other.bytes, file->size) != 0);
    memcpy(file->bytes, other.bytes, file->size);
    buf_done(&other);
}

/* From where the other node has it. */
static void copy(uint32_t i)
{
    char place[FOLDER_PATH_SIZE];
    char path[FOLDER_PATH_SIZE + MANIFEST_TEXT_SIZE];
    struct buf file = BUF_NONE;
    struct err err = {0};
    struct fs *fs = folders[action.from - 1].fs;
    checkpoint_epoch_folder(action.folder, action.epoch, place);
    (void)snprintf(path, sizeof(path), "%s/%s", place, action.shard);
    if (fs_read_all(fs, path, 1U << 20, &file, &err) != 0) {
        checkpoint_staging_folder(action.folder, action.epoch, place);
        (void)snprintf(path, sizeof(path), "%s/%s", place, action.shard);
        err = (struct err){0};
        (void)fs_read_all(fs, path, 1U << 20, &file, &err);
    }
    struct agent_source source = {&file, on_read};
    ck_assert_uint_eq(file.size, action.size);
    if (lie == OTHER_SHARD || lie == OLDER) {
        take_another(&file);
    }
    agent_execute_copy(folders[i].fs, &action, &source, &result);
    buf_done(&file);
}

static void stage(uint32_t i)
{
    double parameter[10];
    double accumulator[10];
    struct shard_content content = {.about.rank = i, .about.ranks = 3};
    vectors(job()->open->step, parameter, accumulator);
    content.about.epoch = job()->open->epoch;
    content.about.step = job()->open->step;
    content.about.generation = job()->open->generation;
    memcpy(content.about.identity, job()->identity, SHA256_SIZE);
    content.about.first = job()->bounds[i];
    content.about.end = job()->bounds[i + 1];
    content.about.coordinates = 10;
    content.parameter = parameter + job()->bounds[i];
    content.accumulator = accumulator + job()->bounds[i];
    agent_execute(folders[i].fs, &action, &content, &result);
}

static bool say_words(uint32_t i)
{
    struct agent_word words[AGENT_WORDS_MAX];
    size_t count = agent_words(&agents[i], &state, words);
    bool any = false;
    for (size_t k = 0; k < count; k++) {
        uint32_t to = words[k].node - 1;
        words[k].node = i + 1;
        any = (!deaf[to] && agent_hear(&agents[to], &state, &words[k])) || any;
    }
    return any;
}

/* One action of a node, and its words; false: nothing. A failed one ends the turn. */
static bool act(uint32_t i)
{
    bool heard = say_words(i);
    enum agent_kind kind = agent_next(&agents[i], &state, true, &action);
    if (kind == AGENT_IDLE) {
        return heard;
    }
    if (kind == AGENT_PROPOSE) {
        ck_assert_int_eq(agreed_apply(&state, &action.command, NULL), STATE_CHANGED);
        return true;
    }
    if (kind == AGENT_COPY) {
        copy(i);
    } else if (kind == AGENT_STAGE) {
        stage(i);
    } else {
        agent_execute(folders[i].fs, &action, NULL, &result);
    }
    ck_assert(!result.fatal);
    return agent_done(&agents[i], &action, &result) == 0;
}

static void act_all(void)
{
    for (bool any = true; any;) {
        any = false;
        for (uint32_t i = 0; i < 3; i++) {
            any = act(i) || any;
        }
    }
}

static void begin_step(uint64_t step)
{
    double parameter[10];
    double accumulator[10];
    struct command c = {.kind = COMMAND_BEGIN, .wall_ms = 3600};
    vectors(step, parameter, accumulator);
    struct agent_capture made = {.generation = job()->generation,
                                 .step = step,
                                 .content_ready = true,
                                 .vectors_ready = true};
    sha256_of(parameter, sizeof(parameter), made.parameter_sha256);
    sha256_of(accumulator, sizeof(accumulator), made.accumulator_sha256);
    for (uint32_t i = 0; i < 3; i++) {
        agent_capture(&agents[i], &made);
    }
    c.begin.job = 1;
    c.begin.epoch = job()->epoch_next;
    c.begin.step = step;
    c.begin.generation = job()->generation;
    c.begin.live = 7;
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
}

static void assign(uint32_t rank, uint32_t node)
{
    struct command c = {.kind = COMMAND_ASSIGN, .wall_ms = 4200};
    const struct state_epoch *epoch = state_newest_epoch(job());
    c.copy.job = 1;
    c.copy.epoch = epoch->epoch;
    c.copy.rank = rank;
    c.copy.node = node;
    memcpy(c.copy.sha256, epoch->shards[rank].sha256, SHA256_SIZE);
    ck_assert_int_eq(agreed_apply(&state, &c, NULL), STATE_CHANGED);
}

/* All that the folder has of the newest epoch is right; how many shards it has. */
static uint32_t verified(uint32_t i)
{
    char path[FOLDER_PATH_SIZE];
    struct manifest m;
    struct checkpoint_verdict verdict = {0};
    struct err err = {0};
    checkpoint_epoch_folder("jobs/1-test", state_newest_epoch(job())->epoch, path);
    ck_assert_msg(checkpoint_verify(folders[i].fs, path, &m, &verdict, &err) == 0, "%s", err.text);
    return verdict.shards;
}

static void restart(uint32_t i)
{
    ck_assert_int_eq(agreed_node(&state, i + 1, state_node(&state, i + 1)->incarnation + 1),
                     STATE_CHANGED);
    agent_init(&agents[i], 1, i + 1, state_node(&state, i + 1)->incarnation);
}

START_TEST(each_shard_is_on_two_nodes_before_it_is_published)
{
    begin_step(50);
    act_all();
    const struct state_epoch *epoch = state_newest_epoch(job());
    ck_assert_ptr_nonnull(epoch);
    ck_assert(state_epoch_safe(epoch));
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(epoch->shards[i].holders_count, 2);
        ck_assert_uint_eq(verified(i), 2);
        ck_assert_uint_eq(agents[i].view.staged_count, 0);
    }
}
END_TEST

START_TEST(nobody_votes_before_its_copy_is_stored)
{
    deaf[2] = true; /* c is to hold b's shard and is not told of it */
    begin_step(50);
    act_all();
    ck_assert_ptr_nonnull(job()->open);
    ck_assert(job()->open->shards[0].prepared);
    ck_assert(!job()->open->shards[1].prepared);
    ck_assert(!job()->open->shards[2].prepared); /* nor hears that a has its own */
    deaf[2] = false;
    act_all();
    ck_assert_ptr_null(job()->open);
    ck_assert(state_epoch_safe(state_newest_epoch(job())));
}
END_TEST

START_TEST(a_word_about_another_shard_counts_for_nothing)
{
    deaf[0] = true;
    begin_step(50);
    act_all();
    struct agent_word word = {.kind = AGENT_STORED,
                              .node = 2,
                              .job = 1,
                              .epoch = agents[0].staged_epoch,
                              .size = agents[0].staged_size};
    ck_assert(!agent_hear(&agents[0], &state, &word)); /* another digest */
    memcpy(word.sha256, agents[0].staged_sha256, SHA256_SIZE);
    word.epoch++;
    ck_assert(!agent_hear(&agents[0], &state, &word)); /* another epoch */
    word.epoch--;
    word.size++;
    ck_assert(!agent_hear(&agents[0], &state, &word));
    ck_assert_uint_eq(agents[0].stored_by, 0);
    word.size--;
    ck_assert(agent_hear(&agents[0], &state, &word));
    ck_assert_uint_eq(agents[0].stored_by, 2);
}
END_TEST

START_TEST(a_holder_without_room_aborts_with_its_reason)
{
    begin_step(50);
    ck_assert(act(0)); /* scan */
    ck_assert(act(0)); /* stage */
    ck_assert(act(1)); /* scan */
    (void)say_words(0);
    ck_assert(act(1)); /* stage of its own */
    ck_assert_int_eq(agent_next(&agents[1], &state, true, &action), AGENT_COPY);
    struct agent_result full = {.code = ERR_DISK, .scanned = true, .view = agents[1].view};
    (void)snprintf(full.err.text, sizeof(full.err.text), "write: No space left on device");
    ck_assert_int_eq(agent_done(&agents[1], &action, &full), ERR_DISK);
    ck_assert_int_eq(agent_next(&agents[1], &state, true, &action), AGENT_PROPOSE);
    ck_assert_int_eq(action.command.kind, COMMAND_ABORT);
    ck_assert_str_eq(action.command.abort.reason,
                     "node 'b': its copy of 'shard-00001-of-00003.safetensors': write: No space "
                     "left on device");
}
END_TEST

static struct fs_ops troubled; /* a folder's table with some functions exchanged */

static int no_room(struct fs_file *file, uint64_t size, struct err *err)
{
    (void)file;
    return err_set(err, ERR_DISK, "no room for %llu bytes", (unsigned long long)size);
}

START_TEST(a_copy_for_which_there_is_no_room_is_not_fetched)
{
    static const char part[] =
        "jobs/1-test/staging/epoch-00000001/shard-00001-of-00003.safetensors.part";
    const struct fs_ops *ops = folders[1].fs->ops;
    struct err err = {0};
    bool there = true;
    begin_step(50);
    ck_assert(act(0)); /* scan */
    ck_assert(act(0)); /* stage */
    ck_assert(act(1)); /* scan */
    (void)say_words(0);
    ck_assert(act(1)); /* stage of its own */
    troubled = *ops;
    troubled.reserve = no_room;
    folders[1].fs->ops = &troubled;
    ck_assert(!act(1)); /* the copy */
    folders[1].fs->ops = ops;
    ck_assert_int_eq(action.kind, AGENT_COPY);
    ck_assert_uint_eq(fetched, 0);
    ck_assert_int_eq(ops->exists(folders[1].fs, part, &there, &err), 0);
    ck_assert(!there);
    ck_assert(act(1)); /* abort */
    ck_assert_ptr_null(job()->open);
    ck_assert_ptr_nonnull(strstr(job()->aborted_reason,
                                 "node 'b': its copy of 'shard-00001-of-00003.safetensors': no "
                                 "room for "));
    act_all();
    ck_assert_uint_eq(agents[1].view.staged_count, 0);
}
END_TEST

START_TEST(a_doubted_copy_is_compared_at_once)
{
    begin_step(50);
    act_all();
    test_folder_flip(&folders[1], "jobs/1-test/epoch-00000001/shard-00001-of-00003.safetensors",
                     -20);
    struct agent_word word = {.kind = AGENT_DOUBT, .node = 3, .job = 1, .epoch = 1, .rank = 0};
    ck_assert(agent_hear(&agents[1], &state, &word));
    act_all();
    ck_assert(!state_shard_held(&state_newest_epoch(job())->shards[0], 2));
}
END_TEST

START_TEST(a_copy_with_another_digest_is_none)
{
    begin_step(50);
    act_all();
    for (lie = FIRST_BIT; lie <= OLDER; lie++) {
        const uint64_t published = state_newest_epoch(job())->epoch;
        begin_step(50 + 10 * (uint64_t)lie);
        for (int turn = 0; turn < 12; turn++) {
            act_all();
        }
        ck_assert_ptr_nonnull(job()->open);
        ck_assert_uint_eq(state_votes(job()->open), 0);
        ck_assert_int_eq(action.kind, AGENT_COPY);
        ck_assert_int_eq(result.code, ERR_DAMAGED);
        char says[128];
        (void)snprintf(says, sizeof(says), "the copy of '%s' of epoch %llu has another SHA-256",
                       action.shard, (unsigned long long)action.epoch);
        ck_assert_msg(strstr(result.err.text, says) != NULL, "%s", result.err.text);
        ck_assert_uint_eq(state_newest_epoch(job())->epoch, published);
        for (uint32_t i = 0; i < 3; i++) { /* nothing of it is left, by any name */
            char path[FOLDER_PATH_SIZE + MANIFEST_TEXT_SIZE + 8];
            bool there = true;
            (void)snprintf(path, sizeof(path),
                           "jobs/1-test/staging/epoch-%08llu/shard-%05u-of-00003.safetensors.part",
                           (unsigned long long)action.epoch, (i + 2) % 3 + 1);
            ck_assert_int_eq(folders[i].fs->ops->exists(folders[i].fs, path, &there, NULL), 0);
            ck_assert(!there);
        }
        const enum lie said = lie;
        lie = HONEST;
        act_all();
        ck_assert(state_newest_epoch(job())->epoch > published);
        ck_assert(state_epoch_safe(state_newest_epoch(job())));
        lie = said;
    }
}
END_TEST

/* What lies in a shard's place and is none; nothing is read of it, and nobody waits for it. */
static void put_instead(const char *path, unsigned kind)
{
    char outside[FOLDER_PATH_SIZE];
    (void)snprintf(outside, sizeof(outside), "%s/outside", folders[1].path);
    switch (kind) {
    case 0: /* the right bytes, elsewhere */
        ck_assert_int_eq(rename(path, outside), 0);
        ck_assert_int_eq(symlink(outside, path), 0);
        return;
    case 1:
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        return;
    case 2:
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        return;
    case 3: /* holes: minutes of reading */
        ck_assert_int_eq(truncate(path, (off_t)1 << 38), 0);
        return;
    case 4:
        ck_assert_int_eq(truncate(path, 100), 0);
        return;
    case 5:
        ck_assert_int_eq(truncate(path, 0), 0);
        return;
    default:
        ck_assert_int_eq(unlink(path), 0);
    }
}

START_TEST(what_is_no_shard_is_named_put_aside_and_repaired)
{
    static const char shard[] = "shard-00001-of-00003.safetensors";
    char path[FOLDER_PATH_SIZE];
    begin_step(50);
    act_all();
    (void)snprintf(path, sizeof(path), "%s/jobs/1-test/epoch-00000001/%s", folders[1].path, shard);
    for (unsigned kind = 0; kind < 7; kind++) {
        put_instead(path, kind);
        agent_scrub(&agents[1]);
        for (bool found = false; !found;) {
            ck_assert_msg(act(1), "%u: action %d: %d %s; %s", kind, action.kind, result.code,
                          result.err.text, result.bad_text);
            found = action.kind == AGENT_VERIFY && result.bad == 1;
        }
        ck_assert_msg(strstr(result.bad_text, shard) != NULL, "%u: %s", kind, result.bad_text);
        act_all();
        const struct state_epoch *epoch = state_newest_epoch(job());
        ck_assert(!state_shard_held(&epoch->shards[0], 2));
        assign(0, 2);
        act_all();
        ck_assert(state_epoch_safe(epoch));
        ck_assert_uint_eq(verified(1), 2);
    }
}
END_TEST

START_TEST(a_fetch_that_broke_off_goes_on_with_what_is_there)
{
    begin_step(50);
    ck_assert(act(0)); /* scan */
    ck_assert(act(0)); /* stage */
    ck_assert(act(1)); /* scan */
    (void)say_words(0);
    struct err err = {0};
    char part[FOLDER_PATH_SIZE + MANIFEST_TEXT_SIZE];
    struct buf file = BUF_NONE;
    const char *name = "jobs/1-test/staging/epoch-00000001/shard-00001-of-00003.safetensors";
    ck_assert_int_eq(fs_read_all(folders[0].fs, name, 1U << 20, &file, &err), 0);
    ck_assert_int_eq(fs_mkdir_all(folders[1].fs, "jobs/1-test/staging/epoch-00000001", &err), 0);
    (void)snprintf(part, sizeof(part), "%s.part", name);
    ck_assert_int_eq(fs_create(folders[1].fs, part, file.bytes, 100, &err), 0);
    ck_assert(act(1)); /* stage of its own */
    ck_assert(act(1));
    ck_assert_int_eq(action.kind, AGENT_COPY);
    ck_assert_uint_eq(fetched, file.size - 100);
    ck_assert_uint_eq(result.good, 1);
    buf_done(&file);
    act_all();
    ck_assert(state_epoch_safe(state_newest_epoch(job())));
}
END_TEST

START_TEST(a_wiped_node_gets_its_shards_back)
{
    begin_step(50);
    act_all();
    test_folder_close(&folders[1]);
    test_folder_open(&folders[1]);
    restart(1);
    act_all();
    const struct state_epoch *epoch = state_newest_epoch(job());
    ck_assert_uint_eq(epoch->shards[0].holders_count, 1); /* b had a's copy and its own */
    ck_assert_uint_eq(epoch->shards[1].holders_count, 1);
    ck_assert_uint_eq(epoch->shards[2].holders_count, 2);
    assign(0, 2);
    assign(1, 2);
    act_all();
    ck_assert(state_epoch_safe(epoch));
    ck_assert_uint_eq(agents[1].view.current, 1);
    ck_assert_uint_eq(verified(1), 2);
}
END_TEST

START_TEST(what_is_said_of_a_copy_is_of_the_nodes_identity)
{
    begin_step(50);
    act_all();
    test_folder_close(&folders[1]);
    test_folder_open(&folders[1]);
    agent_init(&agents[1], 1, member_id(2, 5), 11);
    ck_assert_int_eq(agent_next(&agents[1], &state, true, &action), AGENT_SCAN);
    agent_execute(folders[1].fs, &action, NULL, &result);
    ck_assert_int_eq(agent_done(&agents[1], &action, &result), 0);
    ck_assert_int_eq(agent_next(&agents[1], &state, true, &action), AGENT_PROPOSE);
    ck_assert_int_eq(action.command.kind, COMMAND_DROPPED);
    ck_assert_uint_eq(action.command.copy.node, 2);
    ck_assert_uint_eq(action.command.copy.life, 5);
    ck_assert_int_eq(agreed_apply(&state, &action.command, NULL), STATE_IGNORED);
}
END_TEST

START_TEST(a_flipped_bit_is_found_put_aside_and_repaired)
{
    begin_step(50);
    act_all();
    test_folder_flip(&folders[1], "jobs/1-test/epoch-00000001/shard-00001-of-00003.safetensors",
                     -20);
    agent_scrub(&agents[1]);
    act_all();
    ck_assert_uint_eq(agents[1].scrubs, 1);
    const struct state_epoch *epoch = state_newest_epoch(job());
    ck_assert(!state_shard_held(&epoch->shards[0], 2));
    ck_assert_uint_eq(verified(1), 1); /* what it still names is right */
    bool there = false;
    ck_assert_int_eq(folders[1].fs->ops->exists(
                         folders[1].fs,
                         "jobs/1-test/epoch-00000001/shard-00001-of-00003.safetensors.damaged",
                         &there, NULL),
                     0);
    ck_assert(there);
    assign(0, 2);
    act_all();
    ck_assert(state_epoch_safe(epoch));
    ck_assert_uint_eq(verified(1), 2);
}
END_TEST

START_TEST(what_a_run_needs_is_fetched_compared_and_let_go)
{
    begin_step(50);
    act_all();
    ck_assert(!agent_need(&agents[0], 1, 7)); /* all three; it has its own and c's */
    act_all();
    ck_assert(agent_need(&agents[0], 1, 7));
    ck_assert_uint_eq(verified(0), 3);
    agent_doubt(&agents[0], 1);
    ck_assert(!agent_need(&agents[0], 1, 7));
    act_all();
    ck_assert(agent_need(&agents[0], 1, 7));
    (void)agent_need(&agents[0], 0, 0);
    begin_step(60);
    act_all();
    ck_assert_uint_eq(verified(0), 2);
    ck_assert_uint_eq(agent_need(&agents[0], 1, 7), 0); /* b's shard went when it was not needed */
    ck_assert_uint_eq(state_job(&state, 1)->epochs[0]->shards[1].holders_count, 2);
}
END_TEST

START_TEST(an_epoch_lost_everywhere_is_not_named_any_more)
{
    begin_step(50);
    act_all();
    begin_step(60);
    act_all();
    for (uint32_t i = 0; i < 2; i++) { /* a's shard of epoch 2, on a and on b */
        test_folder_flip(&folders[i], "jobs/1-test/epoch-00000002/shard-00001-of-00003.safetensors",
                         -20);
        agent_scrub(&agents[i]);
    }
    act_all();
    ck_assert_uint_eq(job()->lost_epoch, 2);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(agents[i].view.current, 1);
        ck_assert_uint_eq(agents[i].view.published_count, 1);
        ck_assert_uint_eq(verified(i), 2);
    }
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("copies");
    TCase *tests = tcase_create("copies");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, each_shard_is_on_two_nodes_before_it_is_published);
    tcase_add_test(tests, nobody_votes_before_its_copy_is_stored);
    tcase_add_test(tests, a_word_about_another_shard_counts_for_nothing);
    tcase_add_test(tests, a_holder_without_room_aborts_with_its_reason);
    tcase_add_test(tests, a_copy_for_which_there_is_no_room_is_not_fetched);
    tcase_add_test(tests, a_doubted_copy_is_compared_at_once);
    tcase_add_test(tests, a_copy_with_another_digest_is_none);
    tcase_add_test(tests, what_is_no_shard_is_named_put_aside_and_repaired);
    tcase_add_test(tests, a_fetch_that_broke_off_goes_on_with_what_is_there);
    tcase_add_test(tests, a_wiped_node_gets_its_shards_back);
    tcase_add_test(tests, what_is_said_of_a_copy_is_of_the_nodes_identity);
    tcase_add_test(tests, a_flipped_bit_is_found_put_aside_and_repaired);
    tcase_add_test(tests, what_a_run_needs_is_fetched_compared_and_let_go);
    tcase_add_test(tests, an_epoch_lost_everywhere_is_not_named_any_more);
    suite_add_tcase(suite, tests);
    return suite;
}
