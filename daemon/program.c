#include "daemon/program.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/obtain.h"
#include "daemon/enter.h"
#include "daemon/selftest.h"

#define TEST_RETRY_MS    5000
#define TEST_DEADLINE_MS 60000 /* a GPU may come late at boot; then the start has failed */

/* "FAILURES,MS": how often in a row the device has failed, and since when the start tries it (0:
 * not at its start). */
#define HANDED_ON "COPPELIUS_DEVICE_LOST"

static void stop(struct program *program, const char *why, bool hurry);

/* ---- the self-test ---- */

static int run_selftest(void *context, char *sentence, size_t sentence_size, struct err *err)
{
    const struct session_settings *settings = context;
    return selftest_run(settings, /* backend= */ NULL, sentence, sentence_size,
                        /* ret_binding= */ NULL, err);
}

static void on_test(uv_work_t *work)
{
    struct program *program = OWNER_OF(work, struct program, test);
    program->test_err = (struct err){0};
    (void)selftest_run(&program->session, /* backend= */ NULL, program->test_sentence,
                       sizeof(program->test_sentence), &program->test_binding, &program->test_err);
}

static void fail(struct program *program, const struct err *err)
{
    if (program->failure.code == 0) {
        program->failure = *err;
        log_error("daemon.failed", "reason=\"%s\"", err->text);
    }
}

static void begin_test(struct program *program);

static void on_timer(uv_timer_t *timer)
{
    struct program *program = OWNER_OF(timer, struct program, timer);
    if (program->failure.code != 0) {
        stop(program, "a failure", true);
    } else if (program->state < STOPPING && program->again) {
        stop(program, "the GPU is lost to this process, a new one takes its place", true);
    } else if (program->state == TESTING && !program->test_busy) {
        begin_test(program);
    }
}

static void soon(struct program *program, uint64_t delay_ms)
{
    int status = uv_timer_start(&program->timer, on_timer, delay_ms, /* repeat= */ 0);
    ASSERT(status == 0);
}

static void be_ready(struct program *program, const char *sentence)
{
    program->state = READY;
    daemon_set_selftest(program->daemon, &program->test_binding, NULL);
    log_notice("daemon.ready", "node=%s cluster=%s listen=%s selftest=\"%s\"", program->config.name,
               program->config.cluster, program->config.listen, sentence);
    notify_ready(&program->services.notify);
}

static void on_tested(uv_work_t *work, int status)
{
    struct program *program = OWNER_OF(work, struct program, test);
    program->test_busy = false;
    if (program->state != TESTING || status != 0) {
        return; /* It is stopping: the loop waited for this only. */
    }
    if (program->device_failures > 0) {
        program->state = READY; /* As the process before was; the daemon sees to the device. */
        daemon_retested(program->daemon, &program->test_binding, program->test_sentence,
                        &program->test_err);
        return;
    }
    if (program->test_err.code == 0) {
        be_ready(program, program->test_sentence);
        return;
    }
    daemon_set_selftest(program->daemon, NULL, &program->test_err);
    bool may_come = program->test_err.code == ERR_DEVICE || program->test_err.code == ERR_BUSY;
    if (may_come && clock_now_ms() - program->test_began_ms < TEST_DEADLINE_MS) {
        program->again = session_device_lost();
        log_warning("selftest.failed", "reason=\"%s\", trying again in %d s%s",
                    program->test_err.text, TEST_RETRY_MS / 1000,
                    program->again ? ", by a new process" : "");
        soon(program, TEST_RETRY_MS);
        return;
    }
    fail(program, &program->test_err);
    soon(program, 0);
}

static void begin_test(struct program *program)
{
    program->test_busy = true;
    int status = uv_queue_work(&program->loop, &program->test, on_test, on_tested);
    ASSERT(status == 0);
}

/* ---- the end ---- */

static void on_closed(void *context)
{
    struct program *program = context;
    for (size_t i = 0; i < program->signals_count; i++) {
        int number = program->signals[i].signum;
        uv_close((uv_handle_t *)&program->signals[i], NULL);
        /* libuv puts the default back, and a second SIGTERM must not end in the last millisecond
         * what the first one ends cleanly. */
        (void)signal(number, number == SIGCHLD ? SIG_DFL : SIG_IGN);
    }
    uv_close((uv_handle_t *)&program->timer, NULL);
}

/* The daemon is gone, and its facts: nothing may ask for them from here on. */
static void on_stopped(void *context)
{
    struct program *program = context;
    ASSERT(program->state == STOPPING);
    program->state = CLOSING;
    program->daemon = NULL;
    if (program->services_open) {
        services_close(&program->services, on_closed, program);
    } else {
        on_closed(program);
    }
}

static void stop(struct program *program, const char *why, bool hurry)
{
    if (program->state == CLOSING) {
        return;
    }
    if (program->state != STOPPING) {
        log_notice("daemon.stopping", "reason=\"%s\"", why);
        program->state = STOPPING;
        char text[128];
        (void)snprintf(text, sizeof(text), "Stopping: %s", why);
        if (program->services_open && !program->again) { /* The unit does not end. */
            notify_stopping(&program->services.notify, text);
        }
    }
    daemon_stop(program->daemon, hurry);
}

/* The log's disk has failed, say. Called from inside the daemon: the stop comes from the loop. */
static void on_failed(void *context, const struct err *err)
{
    struct program *program = context;
    fail(program, err);
    soon(program, 0);
}

/* Called from inside the daemon, likewise. */
static void on_device_lost(void *context, unsigned failures)
{
    struct program *program = context;
    program->again = true;
    program->device_failures = failures;
    program->test_began_ms = 0; /* the new process's own */
    soon(program, 0);
}

static void on_ctl(void *context, const struct peer_incoming *given)
{
    struct program *program = context;
    struct peer_incoming incoming = *given;
    struct err err = {0};
    if (!program->services_open || program->services.closing ||
        api_full(program->services.api, incoming.address)) {
        peer_refuse(&incoming, ERR_BUSY, "too many connections to this daemon; try again soon");
        return;
    }
    if (peer_welcome(&incoming, &err) != 0) {
        transport_close(&incoming.transport);
        return;
    }
    api_take(program->services.api, &incoming.transport, incoming.address);
}

/* ---- signals ---- */

static void reload(struct program *program)
{
    struct config next = {.name = NULL};
    struct faults faults = FAULTS_NONE;
    struct buf warnings = BUF_NONE;
    struct err err = {0};
    char keys[256];
    notify_reloading(&program->services.notify);
    int status = config_read_file(program->config_path, program->settings, program->settings_count,
                                  &next, &faults, &warnings);
    if (status != 0) {
        (void)faults_err(&faults, ERR_CONFIG, &err);
    } else {
        config_restart_keys(&program->config, &next, keys, sizeof(keys));
        status = program->trust != NULL ? trust_reload(program->trust, &err) : 0;
        status = status != 0 ? status : services_reload(&program->services, &next, &err);
        if (status != 0) {
            config_done(&next);
        }
    }
    if (status != 0) {
        log_error("config.refused", "reason=\"%s\", going on with the one before", err.text);
    } else {
        log_set_level((enum log_level)(next.log_level + LOG_LEVEL_ERROR));
        if (keys[0] != '\0') {
            log_warning("config.reloaded", "keys=\"%s\" need a restart and stay as they were",
                        keys);
        } else {
            log_notice("config.reloaded", "file=%s",
                       program->config_path != NULL ? program->config_path : CONFIG_PATH);
        }
        config_done(&program->reloaded);
        program->reloaded = next;
    }
    program->services.metrics.reload_failed = status != 0;
    faults_done(&faults);
    buf_done(&warnings);
    notify_reloaded(&program->services.notify);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct program *program = handle->data;
    if (number == SIGHUP) {
        if (program->services_open && program->state < STOPPING) {
            reload(program);
        }
    } else if (number == SIGCHLD) {
        while (waitpid(-1, NULL, WNOHANG) > 0) { /* PID 1 inherits what others leave. */
        }
    } else {
        program->again = false;
        /* Wrappers send SIGTERM twice; a person at the keyboard means the second Ctrl-C. */
        stop(program, number == SIGTERM ? "SIGTERM" : "SIGINT",
             number == SIGINT && program->state == STOPPING);
    }
}

static void watch_signal(struct program *program, int number)
{
    uv_signal_t *handle = &program->signals[program->signals_count++];
    ASSERT(program->signals_count <= sizeof(program->signals) / sizeof(program->signals[0]));
    ASSERT(uv_signal_init(&program->loop, handle) == 0);
    handle->data = program;
    ASSERT(uv_signal_start(handle, on_signal, number) == 0);
}

/* ---- the beginning ---- */

static int role_named(const char *role)
{
    return strcmp(role, "arbiter") == 0 ? DAEMON_ARBITER
           : strcmp(role, "spare") == 0 ? DAEMON_SPARE
                                        : DAEMON_TRAINER;
}

static int open_daemon(struct program *program, struct err *err)
{
    const struct config *config = &program->config;
    struct daemon_peer peers[ROLL_MAX];
    if (enter_find(config, &program->folder, program->trust, &program->roll, &program->joined,
                   err) != 0) {
        return err->code;
    }
    const struct roll *roll = &program->roll;
    for (uint32_t i = 0; i < roll->count; i++) {
        const struct roll_entry *entry = &roll->entries[i];
        peers[i] = (struct daemon_peer){.id = entry->node,
                                        .life = entry->life,
                                        .name = entry->name,
                                        .address = entry->address,
                                        .role = (enum daemon_role)role_named(entry->role)};
    }
    struct daemon_settings settings = {.cluster = config->cluster,
                                       .name = config->name,
                                       .node_id = roll->node,
                                       .life = roll->life,
                                       .joined = program->joined,
                                       .listen = config->listen,
                                       .advertise = config->advertise_address,
                                       .peers = peers,
                                       .peers_count = roll->count,
                                       .device = config->device,
                                       .threads = (unsigned)config->threads,
                                       .device_share = config->device_share,
                                       .memory_bytes = config->limits.memory,
                                       .cache_bytes = config->limits.cache,
                                       .state_dir = config->state_dir,
                                       .incarnation = program->folder.incarnation,
                                       .streams = (uint32_t)config->streams,
                                       .exchange_threads = (uint32_t)config->exchange_threads,
                                       .trust = program->trust,
                                       .insecure = config->insecure,
                                       .authority = config->tls_given ? config->tls.authority : "",
                                       .device_failures = program->device_failures,
                                       .renew_days = (unsigned)config->tls.renew_days};
    memcpy(settings.uuid, program->folder.uuid, sizeof(settings.uuid));
    struct daemon_hooks hooks = {.context = program,
                                 .on_ctl = on_ctl,
                                 .on_failed = on_failed,
                                 .on_device_lost = on_device_lost,
                                 .on_stopped = on_stopped};
    return daemon_open(&program->loop, &settings, &hooks, &program->daemon, err);
}

static void open_all(struct program *program)
{
    const struct config *config = &program->config;
    struct err err = {0};
    ASSERT(uv_timer_init(&program->loop, &program->timer) == 0);
    if (obtain_trust(config, &program->trust, &err) != 0 || open_daemon(program, &err) != 0) {
        fail(program, &err);
        on_closed(program);
        return;
    }
    watch_signal(program, SIGTERM);
    watch_signal(program, SIGINT);
    watch_signal(program, SIGHUP);
    if (getpid() == 1) {
        watch_signal(program, SIGCHLD);
    }
    program->session = (struct session_settings){.device = config->device,
                                                 .threads = (unsigned)config->threads,
                                                 .memory_bytes = config->limits.memory,
                                                 .share = config->device_share};
    bool has_device = role_named(roll_self(&program->roll)->role) != DAEMON_ARBITER;
    if (services_open(&program->services, &program->loop, config, daemon_facts(program->daemon),
                      &program->ring, program->folder.incarnation, has_device ? run_selftest : NULL,
                      &program->session, &err) != 0) {
        fail(program, &err);
        soon(program, 0); /* Stops the daemon; what the services opened is closing already. */
        return;
    }
    program->services_open = true;
    program->state = TESTING;
    if (program->test_began_ms == 0) {
        program->test_began_ms = clock_now_ms();
    }
    if (has_device) {
        begin_test(program);
    } else {
        be_ready(program, "no device on an arbiter");
    }
}

/* Nothing but what program_replace() has written is believed. */
void program_take_over(struct program *program)
{
    const char *text = getenv(HANDED_ON);
    unsigned failures = 0;
    uint64_t began_ms = 0;
    int end = 0;
    if (text != NULL && sscanf(text, "%9u,%19" SCNu64 "%n", &failures, &began_ms, &end) == 2 &&
        text[end] == '\0' && began_ms <= clock_now_ms()) {
        program->device_failures = failures;
        program->test_began_ms = began_ms;
    }
    ASSERT(unsetenv(HANDED_ON) == 0);
}

int program_replace(const struct program *program, char *const *arguments)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "%u,%" PRIu64, program->device_failures,
                   program->test_began_ms);
    ASSERT(setenv(HANDED_ON, text, /* overwrite= */ 1) == 0);
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        (void)signal(signals[i], SIG_DFL); /* What is ignored would stay so in the new program. */
    }
    (void)execv("/proc/self/exe", arguments);
    log_error("daemon.failed", "reason=\"starting anew in this process's place: %s\"",
              err_errno(errno));
    return err_exit_status(ERR_DEVICE);
}

int program_run(struct program *program)
{
    ASSERT(uv_loop_init(&program->loop) == 0);
    open_all(program);
    (void)uv_run(&program->loop, UV_RUN_DEFAULT);
    ASSERT(uv_loop_close(&program->loop) == 0);
    trust_free(program->trust);
    program->again = program->again && program->failure.code == 0;
    if (program->failure.code == 0) {
        log_notice(program->again ? "daemon.again" : "daemon.stopped", "node=%s",
                   program->config.name);
    }
    return err_exit_status(program->failure.code);
}
