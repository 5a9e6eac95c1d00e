/* Three real controls on one loop and real files: the environment, not the algorithm, is on trial.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/env_uv.h"
#include "tests/lib/unit.h"

#define NODES 3U

/* A file system whose sync fails on demand. */
static bool sync_fails;
static struct fs_ops failing_ops;
static int (*real_sync)(struct fs_file *file, struct err *err);

static int failing_sync(struct fs_file *file, struct err *err)
{
    return sync_fails ? err_set(err, ERR_DISK, "fsync 'x': Input/output error")
                      : real_sync(file, err);
}

struct letter {
    struct letter *next;
    uint32_t from;
    uint32_t to;
    struct buf bytes;
};

struct node {
    uint32_t id;
    char root[64];
    struct fs *fs;
    struct control_uv *uv;
    uint64_t sum;
    uint64_t commands;
    unsigned failures;
    char failure[ERR_TEXT_SIZE];
    bool closed;
};

static uv_loop_t loop;
static uv_timer_t postman; /* delivers later, never from inside a call */
static struct letter *letters;
static struct letter **letters_last;
static struct node nodes[NODES];

static void apply(void *context, uint64_t index, uint64_t term, const uint8_t *command, size_t size)
{
    (void)index;
    (void)term;
    struct node *node = context;
    ck_assert_uint_eq(size, 1);
    node->sum = node->sum * 31 + command[0];
    node->commands++;
}

static void snapshot_write(void *context, struct buf *bytes)
{
    struct node *node = context;
    buf_put_u64(bytes, node->sum);
    buf_put_u64(bytes, node->commands);
}

static int snapshot_load(void *context, uint64_t index, const uint8_t *bytes, size_t size,
                         struct err *err)
{
    (void)index;
    (void)err;
    struct node *node = context;
    struct reader reader = {bytes, size, false};
    node->sum = read_u64(&reader);
    node->commands = read_u64(&reader);
    return 0;
}

static void on_send(void *context, uint32_t to, const uint8_t *bytes, size_t size)
{
    struct node *node = context;
    struct letter *letter = calloc(1, sizeof(*letter));
    ck_assert_ptr_nonnull(letter);
    letter->from = node->id;
    letter->to = to;
    buf_put(&letter->bytes, bytes, size);
    *letters_last = letter;
    letters_last = &letter->next;
}

static void on_failed(void *context, const struct err *err)
{
    struct node *node = context;
    node->failures++;
    (void)snprintf(node->failure, sizeof(node->failure), "%s", err->text);
}

static void on_post(uv_timer_t *timer)
{
    (void)timer;
    while (letters != NULL) {
        struct letter *letter = letters;
        letters = letter->next;
        if (letters == NULL) {
            letters_last = &letters;
        }
        struct node *node = &nodes[letter->to - 1];
        if (node->uv != NULL && control_uv_control(node->uv) != NULL && node->failures == 0) {
            int code = control_receive(control_uv_control(node->uv), letter->from,
                                       letter->bytes.bytes, letter->bytes.size, NULL);
            /* A node whose log has failed says so at once, on_failed comes a turn later. */
            ck_assert_msg(code == 0 || (sync_fails && code == ERR_STATE), "%s", err_label(code));
        }
        buf_done(&letter->bytes);
        free(letter);
    }
}

static void open_node(unsigned number)
{
    struct node *node = &nodes[number];
    struct control_settings settings;
    control_settings_default(&settings);
    settings.election_ms_min = 150;
    settings.election_ms_max = 300;
    settings.heartbeat_ms = 30;
    settings.snapshot_entries = 40;
    settings.trailing_entries = 5;
    settings.self = number + 1;
    settings.voters_count = NODES;
    for (uint32_t i = 0; i < NODES; i++) {
        settings.voters[i] = i + 1;
    }
    struct control_fsm fsm = {node, apply, snapshot_write, snapshot_load};
    struct control_uv_callbacks callbacks = {node, on_send, NULL, on_failed};
    struct err err = {0};
    node->sum = 0;
    node->commands = 0;
    node->closed = false;
    node->failures = 0;
    int code = control_uv_open(&loop, &settings, &fsm, &callbacks, node->fs, &node->uv, NULL, &err);
    ck_assert_msg(code == 0, "%s", err.text);
}

static void start(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(uv_timer_init(&loop, &postman), 0);
    ck_assert_int_eq(uv_timer_start(&postman, on_post, 1, 1), 0);
    letters = NULL;
    letters_last = &letters;
    sync_fails = false;
    for (unsigned i = 0; i < NODES; i++) {
        nodes[i] = (struct node){.id = i + 1};
        strcpy(nodes[i].root, "/tmp/coppelius-env-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(nodes[i].root));
        ck_assert_int_eq(fs_posix_open(nodes[i].root, &nodes[i].fs, NULL), 0);
        open_node(i);
    }
}

static void on_closed(void *context)
{
    struct node *node = context;
    node->closed = true;
    node->uv = NULL;
}

static void close_node(unsigned number)
{
    control_uv_close(nodes[number].uv, on_closed, &nodes[number]);
    while (!nodes[number].closed) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
}

static void stop(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (nodes[i].uv != NULL) {
            close_node(i);
        }
    }
    on_post(&postman); /* what is left is thrown away */
    uv_close((uv_handle_t *)&postman, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (unsigned i = 0; i < NODES; i++) {
        ck_assert_int_eq(fs_remove_tree(nodes[i].fs, "log", NULL), 0);
        fs_posix_close(nodes[i].fs);
        ck_assert_int_eq(rmdir(nodes[i].root), 0);
    }
}

static bool all_equal(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (nodes[i].uv != NULL && nodes[i].commands != nodes[1].commands) {
            return false;
        }
    }
    return true;
}

/* Until everybody has the same commands, and no new ones came for 300 ms. */
static bool all_caught_up(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (nodes[i].uv != NULL && !control_caught_up(control_uv_control(nodes[i].uv))) {
            return false;
        }
    }
    return true;
}

static void settle(void)
{
    uint64_t start_ms = uv_now(&loop);
    uint64_t same_ms = start_ms;
    uint64_t commands = 0;
    while (uv_now(&loop) - start_ms < 100000 && uv_now(&loop) - same_ms < 300) {
        if (!all_equal() || !all_caught_up() || nodes[1].commands != commands) {
            same_ms = uv_now(&loop);
            commands = nodes[1].commands;
        }
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert(all_equal());
    for (unsigned i = 0; i < NODES; i++) {
        ck_assert(nodes[i].uv == NULL || nodes[i].sum == nodes[1].sum);
    }
}

/* Proposes by any node until that many commands are applied, then settles. */
static void propose(uint64_t commands)
{
    uint64_t start_ms = uv_now(&loop);
    unsigned at = 0;
    while (nodes[1].commands < commands && uv_now(&loop) - start_ms < 100000) {
        at = (at + 1) % NODES;
        uint8_t command = (uint8_t)at;
        if (nodes[at].uv != NULL) {
            (void)control_propose(control_uv_control(nodes[at].uv), &command, 1, NULL);
        }
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert_uint_ge(nodes[1].commands, commands);
    settle();
}

START_TEST(commands_proposed_anywhere_reach_everybody_and_survive_a_restart)
{
    propose(100);
    uint64_t commands = nodes[1].commands;
    struct control_uv_stats stats;
    control_uv_stats(nodes[0].uv, &stats);
    ck_assert_uint_gt(stats.syncs, 0);
    ck_assert_uint_gt(stats.sync_ns_max, 0);
    close_node(0);
    open_node(0);
    settle();
    ck_assert_uint_ge(nodes[0].commands, commands);
    ck_assert(control_caught_up(control_uv_control(nodes[0].uv)));
    struct control_stats control;
    control_stats(control_uv_control(nodes[0].uv), &control);
    ck_assert_uint_gt(control.snapshot_index, 0);
}
END_TEST

START_TEST(a_failing_sync_ends_the_node_once_and_with_a_sentence)
{
    propose(5);
    failing_ops = *nodes[0].fs->ops;
    real_sync = failing_ops.sync;
    failing_ops.sync = failing_sync;
    const struct fs_ops *ops = nodes[0].fs->ops;
    nodes[0].fs->ops = &failing_ops;
    sync_fails = true;
    uint64_t start_ms = uv_now(&loop);
    while (nodes[0].failures == 0 && uv_now(&loop) - start_ms < 100000) {
        uint8_t command = 1;
        (void)control_propose(control_uv_control(nodes[1].uv), &command, 1, NULL);
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    for (unsigned i = 0; i < 20; i++) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert_uint_eq(nodes[0].failures, 1);
    ck_assert_str_eq(nodes[0].failure, "the consensus log: fsync 'x': Input/output error");
    struct err err = {0};
    ck_assert_int_eq(
        control_propose(control_uv_control(nodes[0].uv), (const uint8_t *)"x", 1, &err), ERR_STATE);
    close_node(0);
    nodes[0].fs->ops = ops;
    nodes[0].commands = 0;
    propose(nodes[1].commands + 5); /* two of three go on */
    open_node(0);
    settle();
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("env_uv");
    TCase *tcase = tcase_create("env_uv");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, commands_proposed_anywhere_reach_everybody_and_survive_a_restart);
    tcase_add_test(tcase, a_failing_sync_ends_the_node_once_and_with_a_sentence);
    suite_add_tcase(suite, tcase);
    return suite;
}
