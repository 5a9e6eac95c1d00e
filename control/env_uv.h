/* The control room's real environment: a log writer thread, a uv timer, the kernel's randomness.
 *
 * All functions and callbacks on the loop's thread. A failed write or fsync of the log, or a
 * snapshot that cannot be loaded, ends the node: on_failed comes once, and the process must end
 * (exit status of the error, one sentence). */
#ifndef COPPELIUS_CONTROL_ENV_UV_H
#define COPPELIUS_CONTROL_ENV_UV_H

#include <uv.h>

#include "control/control.h"

struct control_uv;

struct control_uv_callbacks {
    void *context;
    /* Give the bytes to the mesh; they are borrowed for the call. */
    void (*send)(void *context, uint32_t to, const uint8_t *bytes, size_t size);
    void (*on_applied)(void *context, uint64_t index); /* may propose */
    void (*on_failed)(void *context, const struct err *err);
};

#define CONTROL_UV_SYNC_BUCKETS 15

struct control_uv_stats {
    uint64_t syncs;         /* writes made durable */
    uint64_t sync_ns_total; /* time in write and fsync */
    uint64_t sync_ns_max;
    uint64_t sync_ns_last;
    /* How many took at most 0.5 ms * 2^k; the last one has the rest. */
    uint64_t sync_counts[CONTROL_UV_SYNC_BUCKETS + 1];
    uint64_t queue_length; /* writes waiting for the writer now */
};

/* Opens control (blocks on the disk while it recovers), starts the timer and the writer. fs is
 * borrowed until on_closed. */
int control_uv_open(uv_loop_t *loop, const struct control_settings *settings,
                    const struct control_fsm *fsm, const struct control_uv_callbacks *callbacks,
                    struct fs *fs, struct control_uv **ret_uv, bool *ret_fresh, struct err *err);
struct control *control_uv_control(struct control_uv *uv);
void control_uv_stats(const struct control_uv *uv, struct control_uv_stats *ret_stats);
/* Lets the running write end, drops those that wait (nothing was promised for them), joins the
 * writer; then on_closed(context), after which nothing of it is left. Not from inside send
 * or on_applied; on_failed comes from the loop alone and may close. */
void control_uv_close(struct control_uv *uv, void (*on_closed)(void *context), void *context);

#endif
