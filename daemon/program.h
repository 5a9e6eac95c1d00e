/* The program between its arguments and its exit status: opens the daemon and its services, tests
 * the device, hears signals, and takes all down in reverse.
 *
 *   STARTING -> TESTING -> READY        the self-test has passed                 [on_tested]
 *   any -> STOPPING                     SIGTERM, SIGINT, a failure, a lost GPU   [stop]
 *   STOPPING -> CLOSING                 the daemon is closed                     [on_stopped]
 *   CLOSING -> the loop ends            the services are closed                  [on_closed] */
#ifndef COPPELIUS_DAEMON_PROGRAM_H
#define COPPELIUS_DAEMON_PROGRAM_H

#include <uv.h>

#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/logring.h"
#include "daemon/roll.h"
#include "daemon/services.h"
#include "daemon/state_folder.h"
#include "gpu/gpu.h"

#define PROGRAM_SETTINGS_MAX 64

enum program_state { STARTING, TESTING, READY, STOPPING, CLOSING };

struct program {
    enum program_state state;
    uv_loop_t loop;
    const char *config_path; /* NULL: the usual one, where it is there */
    const char *settings[PROGRAM_SETTINGS_MAX];
    size_t settings_count;
    struct config config;   /* of the start: what is open holds on to its texts */
    struct config reloaded; /* of the last SIGHUP, or zero: its keys that need no restart count */
    struct state_folder folder;
    struct roll roll; /* who is in the cluster, as this start found it */
    bool joined;      /* by a roll of its own, not as one of the config's first nodes */
    struct log_ring ring;
    struct trust *trust; /* NULL: plain text */
    struct daemon *daemon;
    struct services services;
    bool services_open;
    uv_signal_t signals[5];
    size_t signals_count;
    uv_timer_t timer; /* the self-test's next try, or a stop that must not come from inside */
    uv_work_t test;
    uint64_t test_began_ms;
    struct session_settings session;
    struct err test_err;
    char test_sentence[FACTS_TEXT_SIZE];
    struct session_binding test_binding;
    bool test_busy;
    bool stop_asked;
    bool again;               /* a new process is to take this one's place: program_replace() */
    unsigned device_failures; /* in a row, handed on to it */
    struct err failure; /* why it ends, code 0: asked to */
};

/* config, config_path, settings, folder and ring are there; the main thread becomes the loop.
 * Returns the exit status when all is closed. */
int program_run(struct program *program);

/* What a process that this one takes the place of has handed on. Before any thread, and before
 * program_run(). */
void program_take_over(struct program *program);

/* After program_run() has returned with `again` set: the same program with the same arguments in
 * this process's place, under its id, with a GPU of its own; for when the driver gives this process
 * nothing but errors any more. Returns an exit status where that fails. */
int program_replace(const struct program *program, char *const *arguments);

#endif
