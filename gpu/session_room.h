/* What the files of the session core share:
 *
 *   session.c          states, life, release
 *   session_check.c    what is admitted, what may be seeded
 *   session_steps.c    submissions
 *   session_results.c  capture and read-back
 *
 * The core owns the order of calls; what a device does is behind backend.h. Compute thread.
 * Private to the room. */
#ifndef COPPELIUS_GPU_SESSION_ROOM_H
#define COPPELIUS_GPU_SESSION_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/backend.h"

struct session {
    struct session_settings settings;
    const struct session_backend *backend;
    struct session_device *device; /* from bind to release */
    enum session_state state;
    struct session_shape shape;
    struct session_binding binding;
    uint64_t memory_bytes; /* of the device; 0: not known */
    struct images images;
    struct arena arena;
    uint64_t issues; /* submissions, counted here */
    bool changed;    /* an update was submitted: the state must be read back */

    bool captured;
    uint64_t captured_issues; /* `issues` at the capture */

    /* The open step. */
    struct session_batch batch;
    uint32_t chunks_count;
    uint32_t forwards;
    uint32_t backwards;
    bool updated;

    unsigned in_flight; /* local steps */
};

/* The only writer of session->state; the move must be in the drawing of gpu.h. */
void session_set_state(struct session *session, enum session_state next);
/* Passes the code on; an error fails the session. */
int session_settle(struct session *session, int code);
/* Refuses what was asked for out of order; the session has failed then. */
int session_expect(struct session *session, enum session_state state, const char *what,
                   struct err *err);
int session_misuse(struct session *session, const char *sentence, struct err *err);

/* session_check.c */
int session_check_plan(const struct session_plan *plan, struct err *err);
int session_check_seed(const struct session *session, const struct session_seed *seed,
                       struct err *err);

#endif
