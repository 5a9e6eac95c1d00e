/* Private to the CUDA backend: a bound GPU and what a session keeps on it.
 *
 *   cuda.c          the table of functions, capture, release
 *   cuda_driver.c   libcuda.so.1
 *   cuda_bind.c     which GPU, the lock, the context
 *   cuda_images.c   device images: embedded, loaded, checked against their records
 *   cuda_arena.c    layout and allocation
 *   cuda_seed.c     matrix, targets and state to the device
 *   cuda_upload.c   bytes into a region through pinned memory
 *   cuda_sparse.c   the forms of a sparse matrix (sparse_form.h) to the device
 *   cuda_steps.c    forward, backward, update between nodes
 *   cuda_local.c    whole steps where this node owns everything
 *
 * All on the session's compute thread. Three streams: work (kernels, in order), down (values to the
 * host), up (residuals to the device); events tie them. */
#ifndef COPPELIUS_GPU_CUDA_H
#define COPPELIUS_GPU_CUDA_H

#include "gpu/backend.h"
#include "gpu/cuda_driver.h"
#include "gpu/kernels/params.h"

#define CUDA_LOCAL_DEPTH       16 /* local steps in flight; a power of two */
#define CUDA_LOOKAHEAD         8
#define CUDA_STAGE_MAX         ((size_t)32 << 20)
#define CUDA_SPLITS_MAX        32
#define CUDA_FUSED_COLUMNS     1024 /* the widest matrix of the fused step */
#define CUDA_SMALL_COORDINATES 128
#define CUDA_SMALL_ROWS        65536
#define CUDA_W32_COUNT         1032 /* binary32 parameters are padded to this, at least */

/* Everything that can be launched; cuda_images.c has names, files and entry points. */
enum cuda_kernel {
    KERNEL_FORWARD_DENSE,
    KERNEL_BACKWARD_DENSE,
    KERNEL_UPDATE,
    KERNEL_CURSOR,
    KERNEL_LOSSES,
    KERNEL_FORWARD_SPARSE,
    KERNEL_BACKWARD_SPARSE,
    KERNEL_FUSED_32,
    KERNEL_FUSED_64,
    KERNEL_FUSED_128,
    KERNEL_FUSED_256,
    KERNEL_PACK_TILES,
    KERNEL_FORWARD_TILES,
    KERNEL_BACKWARD_TILES,
    KERNEL_SMALL,
    KERNELS_COUNT,
};

enum cuda_module { /* a .cu file each */
                   MODULE_FORWARD_DENSE,
                   MODULE_BACKWARD_DENSE,
                   MODULE_UPDATE,
                   MODULE_FORWARD_SPARSE,
                   MODULE_BACKWARD_SPARSE,
                   MODULE_FUSED,
                   MODULE_TILES,
                   MODULE_SMALL,
                   MODULES_COUNT,
};

enum cuda_form { FORM_COLUMNS, FORM_TILES, FORM_SPARSE };

struct cuda_device {
    struct session_device session;
    const struct cuda_driver *driver;
    cu_device device;
    cu_context context; /* the device's primary one, retained; NULL: none */
    char name[64];
    int capability; /* 90 for 9.0 */
    unsigned multiprocessors;
    unsigned threads;    /* of the host, for what is done once */
    unsigned shared_max; /* bytes a block may have */

    cu_module modules[MODULES_COUNT];
    cu_function kernels[KERNELS_COUNT];

    struct session_shape shape;
    enum cuda_form form;
    bool small;             /* tiles, and the whole step is one launch */
    uint64_t row_floats;    /* tiles: stored columns, a multiple of 4 */
    unsigned team;          /* tiles: threads of a team of the fused step */
    uint64_t outside;       /* tiles: the intercept without a stored column, or NO_COLUMN */
    uint64_t ld;            /* columns: rows a column takes */
    uint64_t stride;        /* of a row of partial sums: coordinates, padded */
    uint64_t panels_max;    /* of a step: of window_rows */
    uint64_t stored_panels; /* sparse: panels of all batches */
    uint64_t panels_a_batch;
    uint64_t slices_a_panel; /* sparse: of its cells */
    uint64_t window;         /* sparse: rows that are ordered by length together */
    uint64_t row_slices_count;
    uint64_t row_depth; /* sparse: of the stack that the forward pass needs */
    uint64_t segments_count;
    uint64_t levels;
    unsigned level_max; /* of a segment */
    unsigned column_warps;

    cu_pointer arena; /* 0: none */
    uint64_t arena_bytes;
    struct {
        cu_pointer matrix, matrix_rows, row_slices, row_order, row_lengths, panel_slices,
            panel_order, panel_lengths, targets, parameter, accumulator, w32, residual, residual32,
            partials, scratch, tickets, segments, node_ends, values, unit_losses, stage, state,
            issues, captured_parameter, captured_accumulator, captured_issues;
    } at;

    cu_stream work;
    cu_stream down;
    cu_stream up;
    cu_event staged[2]; /* pinned staging is free again */
    cu_event captured;
    cu_event *forwarded; /* [chunks_max] kernels done */
    cu_event *copied;    /* [chunks_max] values are on the host */
    cu_event *uploaded;  /* [chunks_max] residuals are on the device */

    /* Pinned host memory. */
    size_t stage_size; /* of a buffer of staging, and of the region "stage" */
    uint8_t *staging[2];
    double *host_values;           /* [chunk][node][row] */
    float *host_residual;          /* [row of the step]; both NULL until steps in parts */
    double *host_losses;           /* [CUDA_LOCAL_DEPTH][panels_max], mapped */
    struct step_result *results;   /* [CUDA_LOCAL_DEPTH], mapped */
    struct step_state *host_state; /* read at a fence */
    cu_pointer device_losses;
    cu_pointer device_results;

    struct session_batch batch; /* the open step */

    /* Local steps: what the device will do next by itself, and the ring. */
    struct cursor_args next;
    bool next_known;
    uint64_t submitted;
    uint64_t waited;
    size_t ring_panels[CUDA_LOCAL_DEPTH];
    uint64_t ring_steps[CUDA_LOCAL_DEPTH];
    cu_graph_exec graph; /* a whole local step; NULL: not captured yet, or one launch */
};

#define CUDA_TRY(cuda, call, doing)                                                    \
    do {                                                                               \
        int cuda_code_ = cuda_check((cuda)->driver, (cuda)->driver->call, doing, err); \
        if (cuda_code_ != 0) {                                                         \
            return cuda_code_;                                                         \
        }                                                                              \
    } while (0)

static inline struct cuda_device *cuda_of(struct session_device *device)
{
    return (struct cuda_device *)(void *)device; /* its first member */
}

/* cuda_bind.c */
struct cuda_candidate {
    cu_device device;
    int ordinal;
    int capability; /* 90 for 9.0 */
    uint8_t uuid[16];
    char uuid_text[64]; /* GPU-… */
    char pci[32];
    char name[64];
};
/* The first GPU that was asked for, is new enough and free: its lock is this process' then.
 * Whatever stands in the way of the others is told when none is left. ERR_CONFIG for a name that
 * makes no sense, ERR_BUSY where another process holds it, ERR_DEVICE. */
int cuda_choose(const struct cuda_driver *driver, const struct session_settings *settings,
                struct cuda_candidate *ret_chosen, struct err *err);
int cuda_bind(const struct session_settings *settings, struct session_device **ret_device,
              struct session_binding *ret_binding, uint64_t *ret_memory_bytes, struct err *err);
void cuda_unbind(struct cuda_device *cuda);

/* cuda_images.c */
struct cuda_blob {
    const char *name; /* of the module */
    const unsigned char *bytes;
    const unsigned char *end;
};
extern const struct cuda_blob cuda_blobs[MODULES_COUNT]; /* cuda_blobs.c */
int cuda_images_load(struct cuda_device *cuda, struct images *images, struct err *err);
void cuda_images_unload(struct cuda_device *cuda);
/* Finds the record of a kernel for a device in the text of images.records; for tests too. 0 found,
 * ERR_NOT_FOUND: no line. */
int cuda_record_find(const char *text, size_t size, const char *name, int architecture,
                     struct image_record *ret_record, struct err *err);
/* Refuses, naming the image, where the driver reports other numbers than the record. */
int cuda_record_check(const char *name, int architecture, const struct image_record *record,
                      const struct image_record *reported, struct err *err);
/* The committed record of a kernel, and its name, where its module is in the program. */
int cuda_image_record(enum cuda_kernel kernel, int architecture, const char **ret_name,
                      struct image_record *ret_record, struct err *err);
/* Refuses a file that is missing, empty, no fatbin, or not as long as it says. */
int cuda_blob_check(const struct cuda_blob *blob, struct err *err);
int cuda_launch(struct cuda_device *cuda, enum cuda_kernel kernel, unsigned grid_x, unsigned grid_y,
                unsigned grid_z, unsigned block, size_t shared_size, void *arguments,
                struct err *err);

/* cuda_arena.c */
int cuda_load(struct session_device *device, const struct session_shape *shape,
              struct images *images, struct err *err);
int cuda_layout(struct session_device *device, const struct session_shape *shape,
                struct arena *arena, struct err *err);
int cuda_allocate(struct session_device *device, const struct arena *arena, struct err *err);
/* Pinned memory for steps in parts; once. */
int cuda_pin_parts(struct cuda_device *cuda, struct err *err);
void cuda_deallocate(struct cuda_device *cuda);

/* cuda_seed.c */
int cuda_seed(struct session_device *device, const struct session_seed *seed, struct err *err);

/* cuda_sparse.c: targets as the rows lie in their slices; NULL where the plan is not whole. */
int cuda_send_sparse(struct cuda_device *cuda, const struct session_matrix *matrix,
                     const double *targets, struct err *err);

/* cuda_steps.c */
int cuda_step_begin(struct session_device *device, const struct session_batch *batch,
                    struct err *err);
int cuda_forward(struct session_device *device, const struct session_chunk *chunk, struct err *err);
int cuda_forward_wait(struct session_device *device, const struct session_chunk *chunk,
                      const double **ret_values, struct err *err);
int cuda_backward(struct session_device *device, const struct session_chunk *chunk,
                  const float *residual, struct err *err);
int cuda_update(struct session_device *device, const struct session_hyper *hyper, struct err *err);
int cuda_fence(struct session_device *device, struct err *err);
/* ERR_DIVERGED for what a kernel marked; 0 where nothing is marked. */
int cuda_diverged(uint64_t bad_step, uint64_t bad_place, struct err *err);
/* The launches of one pass; view says which rows, values 0: residuals and losses on the device. */
int cuda_launch_forward(struct cuda_device *cuda, const struct row_view *view, uint64_t rows_count,
                        cu_pointer values, uint64_t retires, struct err *err);
int cuda_launch_backward(struct cuda_device *cuda, const struct row_view *view, uint64_t rows_count,
                         cu_pointer losses, uint64_t retires, struct err *err);
int cuda_launch_update(struct cuda_device *cuda, const struct row_view *view,
                       const struct session_hyper *hyper, uint64_t parts_a_panel, uint64_t rows,
                       struct err *err);

/* cuda_local.c */
int cuda_local_step(struct session_device *device, const struct session_batch *batch,
                    const struct session_hyper *hyper, struct err *err);
int cuda_local_wait(struct session_device *device, const double **ret_panel_losses,
                    size_t *ret_panels_count, struct err *err);

#endif
