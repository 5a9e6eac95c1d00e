/* Whole steps where this node owns everything. The device runs from step to step by itself: rows
 * and hyper-parameters of the next step lie in its own state, which each step moves on; the host
 * sets them (the image "cursor") only where the next step is not the one that follows. So every
 * step is the same launch, or the same graph of launches. Panel losses and a step's result are
 * written by the device into a ring in the host's memory, and the host waits on that alone. */
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gpu/cuda.h"
#include "numerics/lane.h"

static const struct row_view local_view = {.local = 1};

static int launch_fused(struct cuda_device *cuda, uint64_t evaluate, struct err *err)
{
    struct fused_args args = {
        .tiles = cuda->at.matrix,
        .y_tiles = cuda->at.targets,
        .row_floats = cuda->row_floats,
        .w32 = cuda->at.w32,
        .outside = cuda->outside,
        .evaluate = evaluate,
        .partials = cuda->at.partials,
        .columns_stride = cuda->stride,
        .unit_losses = cuda->at.unit_losses,
        .state = cuda->at.state,
    };
    enum cuda_kernel kernel = cuda->team == 32    ? KERNEL_FUSED_32
                              : cuda->team == 64  ? KERNEL_FUSED_64
                              : cuda->team == 128 ? KERNEL_FUSED_128
                                                  : KERNEL_FUSED_256;
    uint64_t teams = FUSED_THREADS / cuda->team;
    size_t shared_size = teams * (PANEL_ROWS / PANEL_LANES) * cuda->row_floats * sizeof(float) +
                         (size_t)FUSED_LEVELS * FUSED_THREADS * 4 * sizeof(double);
    return cuda_launch(cuda, kernel, cuda->multiprocessors, 1, 1, FUSED_THREADS, shared_size, &args,
                       err);
}

static int launch_small(struct cuda_device *cuda, const struct session_batch *batch,
                        const struct session_hyper *hyper, struct err *err)
{
    struct small_args args = {
        .tiles = cuda->at.matrix,
        .y_tiles = cuda->at.targets,
        .row_floats = cuda->row_floats,
        .columns = cuda->shape.coordinates,
        .intercept = cuda->shape.plan.intercept ? cuda->shape.columns : NO_COLUMN,
        .evaluate = batch->evaluate ? 1 : 0,
        .row_first = batch->row_first,
        .rows_count = batch->rows_count,
        .step = batch->step,
        .slot = cuda->submitted % CUDA_LOCAL_DEPTH,
        .sequence = cuda->submitted + 1,
        .rate = hyper != NULL ? hyper->rate : 0.0,
        .decay = hyper != NULL ? hyper->decay : 0.0,
        .l2 = hyper != NULL ? hyper->l2 : 0.0,
        .partials = cuda->at.partials,
        .columns_stride = cuda->stride,
        .unit_losses = cuda->at.unit_losses,
        .losses = cuda->device_losses,
        .losses_stride = cuda->panels_max,
        .parameter = cuda->at.parameter,
        .accumulator = cuda->at.accumulator,
        .w32 = cuda->at.w32,
        .state = cuda->at.state,
        .results = cuda->device_results,
        .retires = 1,
    };
    uint64_t units = panels_of(batch->rows_count) * UNITS_A_PANEL;
    unsigned blocks = units < cuda->multiprocessors ? (unsigned)units : cuda->multiprocessors;
    return cuda_launch(cuda, KERNEL_SMALL, blocks, 1, 1, FUSED_THREADS, 0, &args, err);
}

static int launch_losses(struct cuda_device *cuda, uint64_t rows, struct err *err)
{
    bool units = cuda->form == FORM_TILES;
    struct losses_args args = {
        .residual = units ? 0 : cuda->at.residual,
        .unit_losses = units ? cuda->at.unit_losses : 0,
        .losses = cuda->device_losses,
        .losses_stride = cuda->panels_max,
        .state = cuda->at.state,
        .results = cuda->device_results,
        .results_count = CUDA_LOCAL_DEPTH,
        .retires = 1,
    };
    unsigned blocks = units ? 1 : (unsigned)panels_of(rows);
    return cuda_launch(cuda, KERNEL_LOSSES, blocks, 1, 1, 256, 0, &args, err);
}

static int launch_evaluation(struct cuda_device *cuda, uint64_t rows, struct err *err)
{
    int code = 0;
    if (cuda->form == FORM_TILES) {
        code = launch_fused(cuda, 1, err);
    } else {
        code = cuda_launch_forward(cuda, &local_view, rows, 0, 0, err);
    }
    return code != 0 ? code : launch_losses(cuda, rows, err);
}

/* Launches for a full batch; what a short one does not need ends at once. */
static int launch_training(struct cuda_device *cuda, struct err *err)
{
    const struct session_hyper unused = {.rate = 0.0};
    uint64_t rows = cuda->shape.plan.batch_rows;
    if (cuda->form == FORM_TILES) {
        int code = launch_fused(cuda, 0, err);
        return code != 0 ? code
                         : cuda_launch_update(cuda, &local_view, &unused, UNITS_A_PANEL, rows, err);
    }
    int code = cuda_launch_forward(cuda, &local_view, rows, 0, 0, err);
    code = code != 0 ? code
                     : cuda_launch_backward(cuda, &local_view, rows, cuda->device_losses, 0, err);
    return code != 0 ? code : cuda_launch_update(cuda, &local_view, &unused, 1, rows, err);
}

/* The training step as a graph: one submission to the driver instead of two or three. */
static int capture_graph(struct cuda_device *cuda, struct err *err)
{
    cu_graph graph = NULL;
    CUDA_TRY(cuda, cuStreamBeginCapture_v2(cuda->work, CU_CAPTURE_THREAD_LOCAL),
             "recording a step");
    int code = launch_training(cuda, err);
    cu_result result = cuda->driver->cuStreamEndCapture(cuda->work, &graph);
    if (code != 0) {
        return code;
    }
    code = cuda_check(cuda->driver, result, "recording a step", err);
    if (code == 0) {
        result = cuda->driver->cuGraphInstantiateWithFlags(&cuda->graph, graph, 0);
        code = cuda_check(cuda->driver, result, "recording a step", err);
        (void)cuda->driver->cuGraphDestroy(graph);
    }
    return code;
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

/* Makes the device's next step the one that is asked for. */
static int set_cursor(struct cuda_device *cuda, const struct session_batch *batch,
                      const struct session_hyper *hyper, struct err *err)
{
    struct cursor_args want = {
        .state = cuda->at.state,
        .row_first = batch->row_first,
        .rows_count = batch->rows_count,
        .step = batch->step,
        .rate = hyper != NULL ? hyper->rate : 0.0,
        .decay = hyper != NULL ? hyper->decay : 0.0,
        .l2 = hyper != NULL ? hyper->l2 : 0.0,
    };
    const struct cursor_args *next = &cuda->next;
    int code = 0;
    if (!cuda->next_known || next->row_first != want.row_first ||
        next->rows_count != want.rows_count || next->step != want.step ||
        !same_bits(next->rate, want.rate) || !same_bits(next->decay, want.decay) ||
        !same_bits(next->l2, want.l2)) {
        code = cuda_launch(cuda, KERNEL_CURSOR, 1, 1, 1, 32, 0, &want, err);
    }
    cuda->next = want;
    cuda->next_known = false;
    return code;
}

int cuda_local_step(struct session_device *device, const struct session_batch *batch,
                    const struct session_hyper *hyper, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    const struct session_plan *plan = &cuda->shape.plan;
    ASSERT(cuda->submitted - cuda->waited < CUDA_LOCAL_DEPTH);
    unsigned slot = (unsigned)(cuda->submitted % CUDA_LOCAL_DEPTH);
    cuda->ring_panels[slot] = panels_of(batch->rows_count);
    int code = 0;
    if (cuda->small) { /* one launch, told everything */
        code = launch_small(cuda, batch, hyper, err);
        cuda->submitted += code == 0 ? 1 : 0;
        return code;
    }
    code = set_cursor(cuda, batch, hyper, err);
    if (code != 0) {
        return code;
    }
    if (batch->evaluate) {
        code = launch_evaluation(cuda, batch->rows_count, err);
    } else {
        code = cuda->graph == NULL ? capture_graph(cuda, err) : 0;
        if (code == 0) {
            CUDA_TRY(cuda, cuGraphLaunch(cuda->graph, cuda->work), "a step");
        }
    }
    if (code != 0) {
        return code;
    }
    cuda->submitted++;
    if (!batch->evaluate) { /* as next_batch() does on the device */
        uint64_t next = batch->row_first + plan->batch_rows;
        next = next < plan->rows ? next : 0;
        uint64_t left = plan->rows - next;
        cuda->next.row_first = next;
        cuda->next.rows_count = left < plan->batch_rows ? left : plan->batch_rows;
        cuda->next.step = batch->step + 1;
        cuda->next_known = true;
    }
    return 0;
}

/* Waits for the device's word: spins for the time of a short step, then looks every 20 us, and now
 * and then asks the driver whether the device still works. */
static int wait_done(struct cuda_device *cuda, const volatile struct step_result *result,
                     uint64_t sequence, struct err *err)
{
    uint64_t begin_ns = clock_now_ns();
    for (unsigned look = 1;; look++) {
        if (__atomic_load_n(&result->done, __ATOMIC_ACQUIRE) >= sequence) {
            return 0;
        }
        if (look % 256 != 0) {
            __asm__ volatile("" ::: "memory");
            continue;
        }
        uint64_t waited_ns = clock_now_ns() - begin_ns;
        if (waited_ns < 100000) {
            continue;
        }
        look -= 1; /* look every time from here on */
        const struct timespec nap = {.tv_nsec = 20000};
        (void)nanosleep(&nap, NULL);
        if (waited_ns % 1000000 < 100000) {
            cu_result state = cuda->driver->cuStreamQuery(cuda->work);
            if (state != 0 && state != CU_ERROR_NOT_READY) {
                return cuda_check(cuda->driver, state, "a step on the device", err);
            }
            if (state == 0 && __atomic_load_n(&result->done, __ATOMIC_ACQUIRE) < sequence) {
                return err_set(err, ERR_DEVICE,
                               "the device finished without the result of local step %llu",
                               (unsigned long long)sequence);
            }
        }
    }
}

int cuda_local_wait(struct session_device *device, const double **ret_panel_losses,
                    size_t *ret_panels_count, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    ASSERT(cuda->waited < cuda->submitted);
    unsigned slot = (unsigned)(cuda->waited % CUDA_LOCAL_DEPTH);
    const struct step_result *result = &cuda->results[slot];
    int code = wait_done(cuda, result, cuda->waited + 1, err);
    if (code != 0) {
        return code;
    }
    cuda->waited++;
    code = cuda_diverged(result->bad_step, result->bad_place, err);
    if (code == 0) {
        *ret_panel_losses = cuda->host_losses + slot * cuda->panels_max;
        *ret_panels_count = cuda->ring_panels[slot];
    }
    return code;
}
