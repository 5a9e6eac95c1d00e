/* Files, control, mesh; what goes between them. */
#include "daemon/daemon.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/core.h"
#include "daemon/joins.h"
#include "daemon/preflight.h"
#include "daemon/run.h"
#include "daemon/serve.h"
#include "daemon/verdict.h"
#include "data/cache.h"
#include "gpu/gpu.h"

#define SAID_MS    2000U /* the same words so long after the last time are another proposal */
#define RUNNING_MS 1000U /* of DAEMON_STOP_MS: a run that does steps is said to be running */

uint64_t daemon_wall_ms(void)
{
    return (uint64_t)clock_wall_ms();
}

void daemon_event(struct daemon *daemon, const char *format, ...)
{
    if (daemon->events_count == FACTS_EVENTS_MAX) {
        memmove(daemon->events, daemon->events + 1,
                sizeof(daemon->events) - sizeof(daemon->events[0]));
        daemon->events_count--;
    }
    struct facts_event *event = &daemon->events[daemon->events_count++];
    event->at_ms = clock_wall_ms();
    char text[FACTS_TEXT_SIZE + 2 * FACTS_NAME_SIZE]; /* The log has all of it. */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)snprintf(event->text, sizeof(event->text), "%.*s", (int)sizeof(event->text) - 1, text);
    log_notice("cluster.event", "text=\"%s\"", text);
    daemon_record(daemon, "event", "%s", text);
}

/* The wall time of a proposal is that of its first saying: a repetition then has the same bytes,
 * and a leader that has it on its way does not write it again. */
static uint64_t first_said_ms(struct daemon *daemon, const struct buf *bytes)
{
    uint64_t now_ms = clock_now_ms();
    uint64_t hash = hash_xxh3(bytes->bytes, bytes->size);
    for (size_t i = 0; i < DAEMON_SAID_MAX; i++) {
        struct said *said = &daemon->said[i];
        if (said->hash == hash && said->at_ms != 0 && now_ms - said->at_ms < SAID_MS) {
            said->at_ms = now_ms;
            return said->wall_ms;
        }
    }
    struct said *said = &daemon->said[daemon->said_next];
    daemon->said_next = (daemon->said_next + 1) % DAEMON_SAID_MAX;
    *said = (struct said){hash, now_ms, daemon_wall_ms()};
    return said->wall_ms;
}

void daemon_propose(struct daemon *daemon, struct command *command)
{
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    command->wall_ms = 0;
    int code = command_encode(command, &bytes, &err);
    if (code == 0) {
        command->wall_ms = first_said_ms(daemon, &bytes);
        buf_clear(&bytes);
        code = command_encode(command, &bytes, &err);
    }
    if (code == 0 && daemon->control != NULL && !daemon->log_failed) {
        (void)control_propose(daemon->control, bytes.bytes, bytes.size, &err);
    }
    if (err.code != 0 && err.code != ERR_UNHEALTHY) {
        log_warning("control.propose", "command=%s error=\"%s\" next=\"tried again\"",
                    command_label(command->kind), err.text);
    }
    buf_done(&bytes);
}

/* ---- what must follow from the state ---- */

static void own_entry_turn(struct daemon *daemon)
{
    const struct state_node *node = state_node(&daemon->state, daemon->node_id);
    if (node != NULL && node->incarnation == daemon->incarnation) {
        return;
    }
    uint64_t now = clock_now_ms();
    if (daemon->node_proposed_ms != 0 && now - daemon->node_proposed_ms < 500) {
        return;
    }
    if (daemon_leader(daemon) == 0 || !daemon->selftest_done || daemon->selftest.code != 0) {
        return; /* The entry says what device it has, and that it can be worked with. */
    }
    daemon->node_proposed_ms = now;
    struct command command = {.kind = COMMAND_NODE};
    const struct member *self = members_self(daemon);
    command.node.node = daemon->node_id;
    command.node.incarnation = daemon->incarnation;
    command.node.role = (uint8_t)self->role;
    command.node.life = daemon->life;
    memcpy(command.node.uuid, daemon->uuid, sizeof(command.node.uuid));
    (void)snprintf(command.node.name, sizeof(command.node.name), "%s", daemon->name);
    (void)snprintf(command.node.address, sizeof(command.node.address), "%s", daemon->advertise);
    (void)snprintf(command.node.device, sizeof(command.node.device), "%s", daemon->device_text);
    memcpy(command.node.binding, daemon->binding, sizeof(command.node.binding));
    daemon_propose(daemon, &command);
}

static void coordinator_turn(struct daemon *daemon)
{
    uint32_t leader = daemon_leader(daemon);
    uint64_t term = control_term(daemon->control);
    if (leader != daemon->leader_seen || (leader != 0 && term != daemon->term_seen)) {
        daemon->leader_seen = leader;
        daemon->term_seen = term; /* A leader may restart and win again before anybody missed it. */
        if (leader == 0) {
            daemon_event(daemon, "no leader is known");
        } else {
            daemon_event(daemon, "%s leads in term %llu", members_find(daemon, leader)->name,
                         (unsigned long long)term);
        }
    }
    bool leading = control_leads(daemon->control);
    if (leading && !daemon->was_leading) {
        coordinator_reset(&daemon->coordinator);
    }
    daemon->was_leading = leading;
    if (!leading) {
        return;
    }
    struct coordinator_view view;
    members_view(daemon, &view);
    for (int i = 0; i < 16; i++) {
        struct command command;
        if (!coordinator_next(&daemon->coordinator, &daemon->state, &view, &command)) {
            return;
        }
        if (command.kind == COMMAND_INTERRUPT) {
            log_warning("job.interrupt", "job=%llu generation=%llu reason=\"%s\"",
                        (unsigned long long)command.interrupt.job,
                        (unsigned long long)command.interrupt.generation, command.interrupt.reason);
        }
        daemon_propose(daemon, &command);
    }
}

static void finish_stop(struct daemon *daemon);

/* SIGTERM: the job that this node works on is asked to stop with a publication; when that is done,
 * when there is nothing to wait for, or when the time is over, everything closes. */
static void stop_turn(struct daemon *daemon)
{
    uint64_t now = clock_now_ms();
    const struct state_job *job = state_active_job(&daemon->state);
    bool mine = job != NULL && state_rank(job, daemon->node_id) >= 0 && run_active(daemon);
    bool wait = (mine || publish_busy(daemon)) && !daemon->hurried && !daemon->log_failed &&
                now < daemon->stop_until_ms;
    if (!wait) {
        finish_stop(daemon);
        return;
    }
    /* RUNNING is on its way: before it a stop publishes nothing, and steps are done already. */
    bool early = mine && job->state == JOB_LOADING && run_steps(daemon) &&
                 now + DAEMON_STOP_MS < daemon->stop_until_ms + RUNNING_MS;
    if (mine && !early && !job->stopping && now - daemon->stop_proposed_ms >= 500) {
        daemon->stop_proposed_ms = now;
        struct command command = {.kind = COMMAND_STOP};
        command.stop.job = job->id;
        command.stop.turn = job->turn;
        command.stop.how = STOP_CAPTURE;
        command.stop.node = daemon->node_id;
        command.stop.incarnation = daemon->incarnation;
        (void)snprintf(command.stop.reason, sizeof(command.stop.reason), "node %s is stopping",
                       daemon->name);
        daemon_propose(daemon, &command);
    }
}

static void daemon_turn(struct daemon *daemon)
{
    if (!daemon->opened) {
        return;
    }
    newcomer_turn(daemon);
    if (!daemon->log_failed) {
        own_entry_turn(daemon);
        fitness_turn(daemon);
        run_turn(daemon);
        publish_turn(daemon);
        coordinator_turn(daemon);
        preflight_turn(daemon);
        verdict_turn(daemon);
        membership_turn(daemon);
        verbs_turn(daemon);
    }
    members_heartbeat(daemon, false);
    renew_turn(daemon);
    standing_turn(daemon);
    if (daemon->joins != NULL) {
        joins_turn(daemon->joins);
    }
    if (daemon->stopping) {
        stop_turn(daemon);
    }
}

static void on_tick(uv_timer_t *timer)
{
    daemon_turn(OWNER_OF(timer, struct daemon, tick));
}

static void on_soon(uv_timer_t *timer)
{
    daemon_turn(OWNER_OF(timer, struct daemon, soon));
}

uint32_t daemon_leader(const struct daemon *daemon)
{
    return daemon->control != NULL ? control_leader(daemon->control) : 0;
}

void daemon_soon(struct daemon *daemon)
{
    if (daemon->opened && !uv_is_closing((uv_handle_t *)&daemon->soon)) {
        ASSERT(uv_timer_start(&daemon->soon, on_soon, 0, 0) == 0);
    }
}

/* ---- up ---- */

static void copy_settings(struct daemon *daemon, const struct daemon_settings *settings)
{
    (void)snprintf(daemon->cluster, sizeof(daemon->cluster), "%s", settings->cluster);
    (void)snprintf(daemon->name, sizeof(daemon->name), "%s", settings->name);
    (void)snprintf(daemon->advertise, sizeof(daemon->advertise), "%s", settings->advertise);
    (void)snprintf(daemon->state_dir, sizeof(daemon->state_dir), "%s", settings->state_dir);
    (void)snprintf(daemon->device, sizeof(daemon->device), "%s", settings->device);
    daemon->threads = settings->threads;
    daemon->device_share = settings->device_share;
    daemon->memory_bytes = settings->memory_bytes;
    daemon->node_id = settings->node_id;
    daemon->life = settings->life;
    daemon->joined = settings->joined;
    memcpy(daemon->uuid, settings->uuid, sizeof(daemon->uuid));
    daemon->streams = settings->streams;
    daemon->exchange_threads = settings->exchange_threads;
    daemon->incarnation = settings->incarnation;
    daemon->trust = settings->trust;
    daemon->insecure = settings->insecure;
    daemon->renew_days = settings->renew_days;
    (void)snprintf(daemon->authority, sizeof(daemon->authority), "%s",
                   settings->authority != NULL ? settings->authority : "");
}

static void free_daemon(struct daemon *daemon)
{
    verdict_close(daemon);
    preflight_free(daemon);
    publish_free(daemon);
    history_free(daemon);
    renew_free(daemon);
    standing_free(daemon);
    serve_close(daemon->serve);
    data_cache_close(daemon->cache);
    state_done(&daemon->state);
    fs_posix_close(daemon->fs);
    free(daemon);
}

/* ---- down ---- */

static void maybe_gone(struct daemon *daemon)
{
    if (daemon->handles_open > 0 || daemon->works > 0 || daemon->run != NULL ||
        daemon->closing != NULL) {
        return;
    }
    void (*on_stopped)(void *) = daemon->hooks.on_stopped;
    void *context = daemon->hooks.context;
    bool tell = daemon->opened;
    free_daemon(daemon);
    if (tell) {
        on_stopped(context);
    }
}

static void on_part_closed(struct daemon *daemon)
{
    ASSERT(daemon->handles_open > 0);
    daemon->handles_open--;
    maybe_gone(daemon);
}

static void on_mesh_closed(void *context)
{
    struct daemon *daemon = context;
    daemon->mesh = NULL;
    on_part_closed(daemon);
}

static void on_control_closed(void *context)
{
    struct daemon *daemon = context;
    daemon->control_uv = NULL;
    on_part_closed(daemon);
}

static void on_other_closed(void *context)
{
    on_part_closed(context);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_part_closed(handle->data); /* One callback for both timers. */
}

static void close_parts(struct daemon *daemon)
{
    if (daemon->mesh != NULL) {
        mesh_close(daemon->mesh, on_mesh_closed, daemon);
    }
    if (daemon->control_uv != NULL) {
        daemon->control = NULL; /* It is freed in there. */
        control_uv_close(daemon->control_uv, on_control_closed, daemon);
    }
    if (daemon->joins != NULL) {
        joins_close(daemon->joins, on_other_closed, daemon);
        daemon->joins = NULL;
    }
    preflight_close(daemon, on_other_closed);
    uv_close((uv_handle_t *)&daemon->tick, on_timer_closed);
    uv_close((uv_handle_t *)&daemon->soon, on_timer_closed);
}

/* The last word of a stop: how much of the job is kept, and why not all of it where it is not. */
static void say_kept(const struct daemon *daemon)
{
    const struct state_job *job = state_job(&daemon->state, daemon->stop_job);
    if (daemon->stop_job == 0 || job == NULL) {
        return;
    }
    const struct state_epoch *newest = state_newest_epoch(job);
    char kept[FACTS_TEXT_SIZE];
    if (newest != NULL) {
        (void)snprintf(kept, sizeof(kept), "epoch %llu of step %llu is kept",
                       (unsigned long long)newest->epoch, (unsigned long long)newest->step);
    } else {
        (void)snprintf(kept, sizeof(kept), "nothing of it was published yet");
    }
    if (!state_job_active(job)) {
        log_notice("daemon.kept", "job=%llu text=\"the job is %s: %s\"",
                   (unsigned long long)job->id, state_job_label(job->state), kept);
        return;
    }
    const char *why = daemon->log_failed           ? "the log's disk has failed"
                      : daemon_leader(daemon) == 0 ? "no majority of the nodes answers"
                      : daemon->hurried            ? "it was told to hurry"
                                                   : "the time for a stop is over";
    log_warning(
        "daemon.kept",
        "job=%llu text=\"its last step is not published: %s; %s; what was done since is done "
        "again\"",
        (unsigned long long)job->id, why, kept);
}

static void finish_stop(struct daemon *daemon)
{
    if (uv_is_closing((uv_handle_t *)&daemon->tick)) {
        return;
    }
    verbs_cancel(daemon);
    say_kept(daemon);
    members_heartbeat(daemon, true);
    atomic_store(&daemon->copies_cancel, true);
    run_stop(daemon); /* closes on its own; daemon_run_gone() comes */
    close_parts(daemon);
}

void daemon_run_gone(struct daemon *daemon, struct run *run)
{
    if (daemon->run == run) {
        daemon->run = NULL;
    }
    if (daemon->closing == run) {
        daemon->closing = NULL;
    }
    if (daemon->handles_open == 0) {
        maybe_gone(daemon);
    } else {
        daemon_soon(daemon);
    }
}

void daemon_work_begun(struct daemon *daemon)
{
    daemon->works++;
}

void daemon_work_ended(struct daemon *daemon)
{
    ASSERT(daemon->works > 0);
    daemon->works--;
    if (daemon->handles_open == 0) {
        maybe_gone(daemon);
    } else {
        daemon_soon(daemon);
    }
}

void daemon_stop(struct daemon *daemon, bool hurry)
{
    daemon->hurried = daemon->hurried || hurry;
    if (!daemon->stopping) {
        daemon->stopping = true;
        daemon->stop_job = members_self(daemon)->progress.job;
        daemon->stop_until_ms = clock_now_ms() + DAEMON_STOP_MS;
        log_notice("daemon.stop", "node=%s job=%llu", daemon->name,
                   (unsigned long long)members_self(daemon)->progress.job);
    }
    daemon_soon(daemon);
}

int daemon_open(uv_loop_t *loop, const struct daemon_settings *settings,
                const struct daemon_hooks *hooks, struct daemon **ret_daemon, struct err *err)
{
    struct daemon *daemon = calloc(1, sizeof(*daemon));
    if (daemon == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the daemon");
    }
    daemon->loop = loop;
    daemon->hooks = *hooks;
    if (strlen(settings->state_dir) > DAEMON_STATE_DIR_MAX) {
        free(daemon);
        return err_set(err, ERR_CONFIG, "state_dir: the path is longer than %d bytes",
                       DAEMON_STATE_DIR_MAX);
    }
    state_init(&daemon->state);
    copy_settings(daemon, settings);
    tell_init(daemon);
    renew_init(daemon);
    char cache[DAEMON_PATH_SIZE + 16];
    (void)snprintf(cache, sizeof(cache), "%s/cache", daemon->state_dir);
    if (members_init(daemon, settings, err) != 0 ||
        fs_posix_open(daemon->state_dir, &daemon->fs, err) != 0 ||
        data_cache_open(cache, settings->cache_bytes, &daemon->cache, err) != 0 ||
        serve_open(&daemon->serve, err) != 0 || verdict_open(daemon, err) != 0) {
        free_daemon(daemon);
        return err->code;
    }
    if (settings->device_failures > 0) {
        fitness_take_over(daemon, settings->device_failures);
    }
    preflight_open(daemon);
    ASSERT(uv_timer_init(loop, &daemon->tick) == 0);
    ASSERT(uv_timer_init(loop, &daemon->soon) == 0);
    daemon->tick.data = daemon;
    daemon->soon.data = daemon;
    bool joins = daemon->trust != NULL && daemon->authority[0] != '\0';
    daemon->handles_open = 5 + (joins ? 1U : 0U); /* both timers, the mesh, control, pre-flight */
    if (daemon_open_control(daemon, err) != 0 ||
        (joins && joins_open(loop, daemon->authority, daemon->cluster, members_admit, daemon,
                             &daemon->joins, err) != 0) ||
        daemon_open_mesh(daemon, settings->listen, err) != 0) {
        int code = err->code;
        daemon->handles_open =
            3U + (daemon->control_uv != NULL ? 1U : 0U) + (daemon->joins != NULL ? 1U : 0U);
        close_parts(daemon); /* The loop frees it; on_stopped is not called. */
        return code;
    }
    daemon->opened = true;
    ASSERT(uv_timer_start(&daemon->tick, on_tick, DAEMON_TICK_MS, DAEMON_TICK_MS) == 0);
    *ret_daemon = daemon;
    return 0;
}

const struct facts *daemon_facts(struct daemon *daemon)
{
    return &daemon->facts;
}

void daemon_set_selftest(struct daemon *daemon, const struct session_binding *binding,
                         const struct err *err)
{
    daemon->selftest_done = true;
    daemon->selftest = err != NULL ? *err : (struct err){0};
    if (binding != NULL) {
        memcpy(daemon->binding, binding->bytes, sizeof(daemon->binding));
        (void)snprintf(daemon->device_text, sizeof(daemon->device_text), "%s", binding->device);
        (void)snprintf(daemon->backend, sizeof(daemon->backend), "%s",
                       strncmp(binding->device, "cpu", 3) == 0 ? "cpu" : "cuda");
    }
    daemon_soon(daemon);
}

void daemon_retested(struct daemon *daemon, const struct session_binding *binding,
                     const char *sentence, const struct err *err)
{
    daemon->selftest_done = true;
    fitness_conclude(daemon, binding, sentence, err);
}
