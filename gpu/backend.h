/* What a device implements. The session core (session_room.h) owns the order of calls: a backend is
 * never called out of the life drawn in gpu.h, never with a chunk, batch or plan that was not
 * checked, and need not check again. All calls come on the session's compute thread.
 *
 * A device embeds struct session_device first and finds itself back with OWNER_OF. Submissions may
 * be asynchronous; errors of the device's work come from the next wait, fence or capture. */
#ifndef COPPELIUS_GPU_BACKEND_H
#define COPPELIUS_GPU_BACKEND_H

#include "gpu/gpu.h"
#include "gpu/images.h"
#include "numerics/nodes.h"

struct session_device {
    const struct session_backend *backend;
    unsigned lookahead;   /* see session_lookahead() */
    unsigned local_depth; /* see session_local_depth(); at least 1 */
};

/* What the core has worked out of the plan; valid from admission to release. */
struct session_shape {
    struct session_plan plan;
    uint64_t columns;             /* stored columns */
    uint64_t coordinates;         /* columns, and 1 more with an intercept */
    struct node nodes[NODES_MAX]; /* canonical, index order */
    size_t nodes_count;
    uint64_t batches_count; /* of a pass */
    uint64_t window_rows; /* rows that values, residuals and panel losses must hold: whole chunks */
    uint32_t chunks_max;  /* window_rows / chunk_rows */
};

/* One chunk of the step that is open. */
struct session_chunk {
    uint32_t index;
    uint64_t row_first; /* in the resident matrix */
    uint64_t rows_count;
    bool last; /* of the step */
};

struct session_backend {
    const char *name; /* "cpu", "cuda" */
    /* Bytes an arena may have before a device is bound; 0: not known before. */
    int (*memory)(const struct session_settings *settings, uint64_t *ret_bytes, struct err *err);
    int (*bind)(const struct session_settings *settings, struct session_device **ret_device,
                struct session_binding *ret_binding, uint64_t *ret_memory_bytes, struct err *err);
    /* Registers what it can launch, and finds in the registry, by name, what the shape needs. */
    int (*load)(struct session_device *device, const struct session_shape *shape,
                struct images *images, struct err *err);
    /* Adds its regions to the arena; "parameter", "accumulator", "captured_parameter",
     * "captured_accumulator" (8 bytes a coordinate) and "issues" (8 bytes) must be among them. */
    int (*layout)(struct session_device *device, const struct session_shape *shape,
                  struct arena *arena, struct err *err);
    /* The certified arena, and whatever host staging goes with it. */
    int (*allocate)(struct session_device *device, const struct arena *arena, struct err *err);
    int (*seed)(struct session_device *device, const struct session_seed *seed, struct err *err);

    int (*step_begin)(struct session_device *device, const struct session_batch *batch,
                      struct err *err);
    int (*forward)(struct session_device *device, const struct session_chunk *chunk,
                   struct err *err);
    int (*forward_wait)(struct session_device *device, const struct session_chunk *chunk,
                        const double **ret_values, struct err *err);
    int (*backward)(struct session_device *device, const struct session_chunk *chunk,
                    const float *residual, struct err *err);
    int (*update)(struct session_device *device, const struct session_hyper *hyper,
                  struct err *err);
    /* Waits for all that was submitted; reports what left its range. */
    int (*fence)(struct session_device *device, struct err *err);

    int (*local_step)(struct session_device *device, const struct session_batch *batch,
                      const struct session_hyper *hyper, struct err *err);
    int (*local_wait)(struct session_device *device, const double **ret_panel_losses,
                      size_t *ret_panels_count, struct err *err);

    /* Copies parameter, accumulator and counter to their captured twins, behind a fence. */
    int (*capture)(struct session_device *device, struct err *err);
    int (*capture_read)(struct session_device *device, double *parameter, double *accumulator,
                        uint64_t *ret_issues, struct err *err);
    /* Gives everything back and frees the device. Never fails; also after a failure, in any state.
     */
    void (*release)(struct session_device *device);
};

#endif
