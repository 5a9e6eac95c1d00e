/* gpu: one compute session on a bound GPU or on the CPU, the same bits on both.
 *
 * The room: session_* (this door, and the life below), backend.h (the table of functions that a
 * device implements), arena (named resident regions), images (what can be launched, by name),
 * binding (16 bytes), readback (the file at the end), cpu_* (the CPU backend), cuda_* (the CUDA
 * backend).
 *
 * A session holds a node's columns of the training matrix, its slices of parameter and accumulator,
 * and does the arithmetic of NUMERICS.md on them. Its life, which no success may bypass; each arrow
 * is the function of that name, and a call that does not fit its state answers ERR_STATE and fails
 * the session:
 *
 *   NEW -session_admit-> ADMITTED -session_bind-> BOUND -session_load-> LOADED
 *       -session_certify-> CERTIFIED -session_seed-> READY
 *   READY -session_step_begin-> STEPPING -session_step_end-> READY
 *   READY -session_capture-> READY (captured)      a submission ends "captured"
 *   READY (captured) -session_read_back-> READ_BACK -session_release-> RELEASED
 *   any but RELEASED -a failure-> FAILED -session_release-> ABANDONED
 *
 * Only a RELEASED session's results may be published: ask session_state().
 *
 * Thread: all of a session belongs to one compute thread, which makes it, calls it and frees it.
 * Memory: everything is allocated by session_certify() at the latest; a step does not allocate. */
#ifndef COPPELIUS_GPU_GPU_H
#define COPPELIUS_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/fs.h"
#include "gpu/arena.h"
#include "gpu/binding.h"

struct session;
struct session_backend;

enum session_state {
    SESSION_NEW,
    SESSION_ADMITTED,
    SESSION_BOUND,
    SESSION_LOADED,
    SESSION_CERTIFIED,
    SESSION_READY,
    SESSION_STEPPING,
    SESSION_READ_BACK,
    SESSION_RELEASED,
    SESSION_FAILED,
    SESSION_ABANDONED, /* released after a failure: nothing of it may be published */
};

struct session_settings {
    const char *device;    /* "cpu", "auto", an index, a GPU's or MIG's UUID, a PCI id; borrowed */
    unsigned threads;      /* CPU workers; 0: as many as the process may run on */
    uint64_t memory_bytes; /* the most the arena may take; 0: what the device has */
    const char *isa; /* NULL: COPPELIUS_CPU or the best; "plain", "avx2", "avx512" (the CPU's) */
    bool share;      /* device_share: others may hold the same GPU */
};

enum session_storage { SESSION_DENSE, SESSION_CSC };

/* What the session is for. Coordinates are those of the whole index line (numerics/nodes.h). */
struct session_plan {
    uint64_t coordinate_first; /* this node's range; may not be empty */
    uint64_t coordinate_end;
    bool intercept; /* coordinate_end - 1 is the intercept: x = 1 in every row, no column is stored
                     */
    bool whole;     /* this node owns every coordinate: targets are resident, local steps allowed */
    enum session_storage storage;
    uint64_t rows;       /* of the resident matrix, at least 1, below 2^32 */
    uint64_t entries;    /* stored: rows * columns (dense), non-zeros (CSC) */
    uint64_t batch_rows; /* rows of a full batch, 1 .. rows; batch b is rows b*batch_rows .. */
    uint32_t chunk_rows; /* rows of a full chunk: a multiple of PANEL_ROWS */
    uint64_t issues_max; /* all the issues that the session may be asked to retire (below) */
};

/* The columns of the plan: coordinates without the intercept. */
static inline uint64_t session_plan_columns(const struct session_plan *plan)
{
    return plan->coordinate_end - plan->coordinate_first - (plan->intercept ? 1 : 0);
}

/* A node's columns, all rows of the plan; borrowed for session_seed(), which copies them into the
 * arena (in the device's own layout): the caller may free or unmap them then. */
struct session_matrix {
    enum session_storage storage;
    uint64_t rows;
    uint64_t columns;
    /* Dense: x(i, j) = dense[j * stride + i]; stride >= rows. */
    const float *dense;
    uint64_t stride;
    /* CSC: column j has entries starts[j] .. starts[j + 1] - 1, rows ascending, no row twice. */
    const uint64_t *starts; /* columns + 1, starts[0] may be above 0 */
    const uint32_t *row;    /* indexed by entry */
    const float *value;     /* indexed by entry */
};

struct session_seed {
    const struct session_matrix *matrix;
    const double *targets;     /* rows of them where the plan is whole, else NULL */
    const double *parameter;   /* coordinates of them, from a checkpoint; NULL: zeros */
    const double *accumulator; /* likewise */
    uint64_t step;             /* steps that the state has behind it (for records only) */
};

/* A run of consecutive rows of the resident matrix that one step looks at. A training batch begins
 * at a multiple of batch_rows and is batch_rows long or ends at the last row; an evaluation window
 * begins at a multiple of PANEL_ROWS and has at most chunks * chunk_rows rows
 * (session_window_rows). */
struct session_batch {
    uint64_t step; /* names the step in errors */
    uint64_t row_first;
    uint64_t rows_count;
    bool evaluate; /* forward only: no backward, no update */
};

struct session_hyper {
    double rate;
    double decay;
    double l2; /* of every coordinate but the intercept */
};

/* -- life ------------------------------------------------------------------------------------- */

/* backend NULL: the one that settings->device asks for (a GPU where this build or machine has none
 * is ERR_DEVICE with what to do; never a silent CPU). settings are copied but for the texts. */
int session_new(const struct session_settings *settings, const struct session_backend *backend,
                struct session **ret_session, struct err *err);
/* Bytes that the session's arena may take: what the device has, or settings->memory_bytes where
 * that is less; 0: not known. For refusing what cannot fit before it is read; certification has the
 * last word. backend: as above. */
int session_memory(const struct session_settings *settings, const struct session_backend *backend,
                   uint64_t *ret_bytes, struct err *err);
/* Releases what is still held; NULL is fine. */
void session_free(struct session *session);

/* Checks the plan: shapes, issues within the counter's range, sizes against memory where that is
 * known before binding. A refusal has the numbers. */
int session_admit(struct session *session, const struct session_plan *plan, struct err *err);
int session_bind(struct session *session, struct err *err);
int session_load(struct session *session, struct err *err);
/* Lays the arena out, proves it, checks it against the device's memory, allocates it. */
int session_certify(struct session *session, struct err *err);
/* Matrix, targets and state, once. Values of the matrix are finite (the data room's promise); a
 * parameter beyond binary32 or a CSC that is out of order is refused with its place. */
int session_seed(struct session *session, const struct session_seed *seed, struct err *err);

/* -- a step in parts, between nodes ----------------------------------------------------------- */
/* step_begin, then for each chunk in order forward, forward_wait, and in order backward, then
 * update, step_end. Each of forward, backward and update is one submission: it is enqueued, and
 * retires one issue on the counter in device memory when the device has done it. All forwards may
 * be enqueued before the first wait; a backward may be enqueued as soon as its residuals are there
 * (all forwards of the step must have been enqueued before the first backward). */

int session_step_begin(struct session *session, const struct session_batch *batch, struct err *err);
int session_forward(struct session *session, uint32_t chunk, struct err *err);
/* Waits for that forward. values[n * rows + i]: n over the canonical nodes of this node's range in
 * index order, i over the chunk's rows. Valid until the next session_step_begin(). */
int session_forward_wait(struct session *session, uint32_t chunk, const double **ret_values,
                         struct err *err);
/* residual: the chunk's rows, finite binary32; borrowed until session_step_end(). A residual that
 * is not finite is refused with step and row (ERR_DIVERGED). Chunks in order. */
int session_backward(struct session *session, uint32_t chunk, const float *residual,
                     struct err *err);
/* After the last chunk's backward. The gradient is divided by the batch's rows. */
int session_update(struct session *session, const struct session_hyper *hyper, struct err *err);
/* Waits until the device has done all of the step. ERR_DIVERGED names step and coordinate where a
 * parameter left binary32 or an accumulator left binary64. */
int session_step_end(struct session *session, struct err *err);

/* -- a step where this node owns every coordinate (plan->whole) ---------------------------------
 */

/* Enqueues a whole step (forward, fold, residual, loss, backward, update), or with batch->evaluate
 * the losses of a window only. One issue. No session_step_begin(). At most session_local_depth()
 * are in flight: wait for the oldest first. */
int session_local_step(struct session *session, const struct session_batch *batch,
                       const struct session_hyper *hyper, struct err *err);
/* Waits for the oldest in flight: its panel losses, one a panel of its rows, valid until the next
 * call on this session. ERR_DIVERGED names step, and row or coordinate. */
int session_local_wait(struct session *session, const double **ret_panel_losses,
                       size_t *ret_panels_count, struct err *err);
/* How many local steps may be in flight: 1 on the CPU. */
unsigned session_local_depth(const struct session *session);
/* How many chunks' forwards are worth enqueueing ahead of the first wait: 0 on the CPU, which
 * computes inside session_forward(). */
unsigned session_lookahead(const struct session *session);

/* -- results ---------------------------------------------------------------------------------- */

/* After the device fence: copies parameter, accumulator and issue counter aside, on the device. A
 * second capture overwrites the first. Between steps only, no local step in flight. */
int session_capture(struct session *session, struct err *err);
/* The captured vectors to the host: coordinates of each. Steps may have been done since. */
int session_capture_read(struct session *session, double *parameter, double *accumulator,
                         struct err *err);
/* The end: writes the captured state into `path`, created exclusively and synced (gpu/readback.h
 * has the format). Refused (ERR_STATE, and the session fails) where submissions came after the last
 * capture, or the device's counter, the submissions counted here and issues_expected differ. */
int session_read_back(struct session *session, struct fs *fs, const char *path,
                      uint64_t issues_expected, struct err *err);
/* Gives the device back. READ_BACK becomes RELEASED, FAILED becomes ABANDONED; from any other state
 * ERR_STATE, and the device is given back all the same (ABANDONED). */
int session_release(struct session *session, struct err *err);

/* -- looking ---------------------------------------------------------------------------------- */

enum session_state session_state(const struct session *session);
const char *session_state_name(enum session_state state);
/* Submissions so far, as counted on the host. */
uint64_t session_issues(const struct session *session);
/* From BOUND on, else NULL. */
const struct session_binding *session_binding(const struct session *session);
/* From CERTIFIED on, else NULL. */
const struct arena *session_arena(const struct session *session);
/* Canonical nodes of the plan's range: the first dimension of forward's values. From ADMITTED on.
 */
size_t session_nodes_count(const struct session *session);
/* Chunks of a run of rows, and the most rows of an evaluation window: whole chunks that hold a
 * batch. Pure. */
uint32_t session_chunks_count(const struct session_plan *plan, uint64_t rows_count);
uint64_t session_window_rows(const struct session_plan *plan);

/* A kernel's or the hardware's fault has cost this process its GPU: the driver answers everything
 * with that error from there on, also to a session that is opened anew (seen with driver 580); only
 * a new process can use the GPU again. Never true on the CPU. Any thread. */
bool session_device_lost(void);

/* The backends of this build. NULL where it has none. */
const struct session_backend *session_backend_cpu(void);
const struct session_backend *session_backend_cuda(void);

/* Times the candidates of the language model's products on GPU 0 with the kernels of a folder (the
 * target model_images; NULL: those inside the program): the table of choices to `table`, every
 * candidate to `log` (NULL: not wanted). Some minutes, 12 GiB of the GPU's memory. ERR_DEVICE,
 * ERR_NOT_FOUND say what is missing; ERR_DEVICE in a build without kernels. */
int gpu_bench_tiles(const char *folder, FILE *table, FILE *log, struct err *err);

/* Loads the language model's kernels of a folder (NULL: those inside the program) on GPU 0, holds
 * each against its committed record (gpu/model/model.records) and lists them: name, architecture,
 * registers, threads, shared and local bytes. ERR_DEVICE names the first that is missing, empty or
 * different. */
int gpu_list_images(const char *folder, FILE *list, struct err *err);
/* Lists every device image inside the program with its committed record for each architecture of
 * this build; needs no GPU. ERR_DEVICE names a file that is missing, empty or cut short,
 * ERR_NOT_FOUND an image without a record. */
int gpu_print_images(FILE *list, struct err *err);

/* Reads and checks a table of choices of one's own ("": only the built-in one is meant): ERR_CONFIG
 * names the line. Where architecture is not 0 (90 for sm_90): how many of the products of the
 * Coppelius shape have a choice there, and of the first that has none the refusal. */
int gpu_check_tiles(const char *path, int architecture, size_t *ret_served, size_t *ret_count,
                    struct err *ret_missing, struct err *err);

#endif
