/* A step between nodes, in parts. A chunk's way: forward on `work` -> values to pinned memory on
 * `down` -> (the caller exchanges) -> residuals to the device on `up` -> backward on `work`. Copies
 * and kernels of different chunks run beside each other; events tie a chunk's own. */
#include <string.h>

#include "base/assert.h"
#include "gpu/cuda.h"
#include "numerics/lane.h"

#define FORWARD_SPARSE_SHARED \
    ((size_t)74 << 10)   /* so that all blocks of a multiprocessor have room */
#define FORWARD_ROWS 128 /* a tile of the forward pass over columns */

int cuda_diverged(uint64_t bad_step, uint64_t bad_place, struct err *err)
{
    if (bad_step == UINT64_MAX) {
        return 0;
    }
    if ((bad_place & BAD_COLUMN_BIT) == 0) {
        return err_set(err, ERR_DIVERGED,
                       "step %llu: the residual of training row %llu left the range of binary32; "
                       "give a smaller rate",
                       (unsigned long long)bad_step, (unsigned long long)bad_place);
    }
    return err_set(
        err, ERR_DIVERGED,
        "step %llu: the parameter or accumulator of coordinate %llu left its range; give "
        "a smaller rate",
        (unsigned long long)bad_step, (unsigned long long)(bad_place & ~BAD_COLUMN_BIT));
}

/* -- launches ------------------------------------------------------------------------------------
 */

static uint64_t intercept_of(const struct cuda_device *cuda)
{
    return cuda->shape.plan.intercept ? cuda->shape.columns : NO_COLUMN;
}

static unsigned blocks_of(uint64_t count, uint64_t each)
{
    return (unsigned)((count + each - 1) / each);
}

static int forward_columns(struct cuda_device *cuda, const struct row_view *view,
                           uint64_t rows_count, cu_pointer values, uint64_t retires,
                           struct err *err)
{
    struct forward_dense_args args = {
        .x = cuda->at.matrix,
        .ld = cuda->ld,
        .w32 = cuda->at.w32,
        .intercept = intercept_of(cuda),
        .segments = cuda->at.segments,
        .segments_count = cuda->segments_count,
        .column_warps = cuda->column_warps,
        .levels = cuda->levels,
        .view = *view,
        .values = values,
        .y = cuda->at.targets,
        .residual = cuda->at.residual,
        .residual32 = cuda->at.residual32,
        .state = cuda->at.state,
        .retires = retires,
    };
    uint64_t rows = FORWARD_ROWS * (8 / cuda->column_warps);
    size_t shared_size = (2 * 8 * FORWARD_ROWS + cuda->levels * rows) * sizeof(double);
    if (shared_size > 48 << 10) {
        CUDA_TRY(cuda,
                 cuFuncSetAttribute(cuda->kernels[KERNEL_FORWARD_DENSE],
                                    CU_FUNCTION_DYNAMIC_SHARED_MAX, (int)shared_size),
                 "giving the forward pass its shared memory");
    }
    return cuda_launch(cuda, KERNEL_FORWARD_DENSE, blocks_of(rows_count, rows), 1, 1, 256,
                       shared_size, &args, err);
}

static int forward_sparse(struct cuda_device *cuda, const struct row_view *view,
                          uint64_t rows_count, cu_pointer values, uint64_t retires, struct err *err)
{
    struct forward_sparse_args args = {
        .slices = cuda->at.row_slices,
        .order = cuda->at.row_order,
        .lengths = cuda->at.row_lengths,
        .entries = cuda->at.matrix_rows,
        .window = cuda->window,
        .slices_count = cuda->row_slices_count,
        .depth = cuda->row_depth,
        .w32 = cuda->at.w32,
        .node_ends = cuda->at.node_ends,
        .nodes_count = cuda->shape.nodes_count,
        .view = *view,
        .values = values,
        .y = cuda->at.targets,
        .residual = cuda->at.residual,
        .state = cuda->at.state,
        .retires = retires,
    };
    size_t shared_size = cuda->row_depth * FORWARD_SPARSE_THREADS * sizeof(double);
    size_t parameters = cuda->shape.coordinates * sizeof(float);
    size_t most =
        cuda->shared_max < FORWARD_SPARSE_SHARED ? cuda->shared_max : FORWARD_SPARSE_SHARED;
    if (shared_size + parameters <= most) {
        shared_size += parameters;
        args.w32_shared = cuda->shape.coordinates;
    }
    if (shared_size > 48 << 10) {
        CUDA_TRY(cuda,
                 cuFuncSetAttribute(cuda->kernels[KERNEL_FORWARD_SPARSE],
                                    CU_FUNCTION_DYNAMIC_SHARED_MAX, (int)shared_size),
                 "giving the forward pass its shared memory");
    }
    /* The rows may begin inside a window and end inside one. */
    unsigned blocks = blocks_of(rows_count + 2 * cuda->window, FORWARD_SPARSE_THREADS);
    unsigned resident = FORWARD_SPARSE_BLOCKS * cuda->multiprocessors;
    return cuda_launch(cuda, KERNEL_FORWARD_SPARSE, blocks < resident ? blocks : resident, 1, 1,
                       FORWARD_SPARSE_THREADS, shared_size, &args, err);
}

static struct tiles_args tiles_of(const struct cuda_device *cuda, const struct row_view *view,
                                  uint64_t retires)
{
    return (struct tiles_args){
        .tiles = cuda->at.matrix,
        .row_floats = cuda->row_floats,
        .columns = cuda->shape.coordinates,
        .intercept = intercept_of(cuda),
        .w32 = cuda->at.w32,
        .node_ends = cuda->at.node_ends,
        .nodes_count = cuda->shape.nodes_count,
        .view = *view,
        .values = cuda->at.values,
        .residual32 = cuda->at.residual32,
        .partials = cuda->at.partials,
        .columns_stride = cuda->stride,
        .state = cuda->at.state,
        .retires = retires,
    };
}

int cuda_launch_forward(struct cuda_device *cuda, const struct row_view *view, uint64_t rows_count,
                        cu_pointer values, uint64_t retires, struct err *err)
{
    if (cuda->form == FORM_COLUMNS) {
        return forward_columns(cuda, view, rows_count, values, retires, err);
    }
    if (cuda->form == FORM_SPARSE) {
        return forward_sparse(cuda, view, rows_count, values, retires, err);
    }
    struct tiles_args args = tiles_of(cuda, view, retires);
    args.values = values;
    return cuda_launch(cuda, KERNEL_FORWARD_TILES, blocks_of(rows_count, 256), 1, 1, 256, 0, &args,
                       err);
}

static int backward_columns(struct cuda_device *cuda, const struct row_view *view, unsigned panels,
                            cu_pointer losses, uint64_t retires, struct err *err)
{
    uint64_t coordinates = cuda->shape.coordinates;
    uint64_t each = 64;
    while (each > 8 && (uint64_t)panels * blocks_of(coordinates, each) < 1024) {
        each /= 2;
    }
    while (coordinates / each >= 65535) {
        each *= 2;
    }
    struct backward_dense_args args = {
        .x = cuda->at.matrix,
        .ld = cuda->ld,
        .columns = coordinates,
        .intercept = intercept_of(cuda),
        .columns_a_block = each,
        .view = *view,
        .residual32 = cuda->at.residual32,
        .residual = cuda->at.residual,
        .losses = losses,
        .losses_stride = cuda->panels_max,
        .partials = cuda->at.partials,
        .columns_stride = cuda->stride,
        .state = cuda->at.state,
        .retires = retires,
    };
    return cuda_launch(cuda, KERNEL_BACKWARD_DENSE, panels, blocks_of(coordinates, each), 1, 256, 0,
                       &args, err);
}

/* Slices of a panel that a block takes: what is done soonest, where blocks come in waves, a slice a
 * warp takes a time of one, and so does the block's start. */
static uint64_t slices_a_block(const struct cuda_device *cuda, unsigned panels)
{
    uint64_t slots = (uint64_t)BACKWARD_SPARSE_BLOCKS * cuda->multiprocessors;
    uint64_t best = UINT64_MAX;
    uint64_t chosen = 1;
    for (uint64_t each = 1; each <= 16; each *= 2) {
        uint64_t blocks = (uint64_t)panels *
                          blocks_of(cuda->slices_a_panel, each * BACKWARD_SPARSE_THREADS / SLICE);
        uint64_t time = (blocks + slots - 1) / slots * (each + 1);
        if (time < best) {
            best = time;
            chosen = each;
        }
    }
    return chosen * (BACKWARD_SPARSE_THREADS / SLICE);
}

int cuda_launch_backward(struct cuda_device *cuda, const struct row_view *view, uint64_t rows_count,
                         cu_pointer losses, uint64_t retires, struct err *err)
{
    unsigned panels = blocks_of(rows_count, PANEL_ROWS);
    if (cuda->form == FORM_COLUMNS) {
        return backward_columns(cuda, view, panels, losses, retires, err);
    }
    if (cuda->form == FORM_TILES) {
        struct tiles_args args = tiles_of(cuda, view, retires);
        return cuda_launch(cuda, KERNEL_BACKWARD_TILES, panels,
                           blocks_of(cuda->shape.coordinates, 128), 1, 128, 0, &args, err);
    }
    struct backward_sparse_args args = {
        .slices = cuda->at.panel_slices,
        .order = cuda->at.panel_order,
        .lengths = cuda->at.panel_lengths,
        .entries = cuda->at.matrix,
        .slices_a_panel = cuda->slices_a_panel,
        .batch_rows = cuda->shape.plan.batch_rows,
        .panels_a_batch = cuda->panels_a_batch,
        .columns = cuda->shape.columns,
        .intercept = intercept_of(cuda),
        .view = *view,
        .residual32 = cuda->at.residual32,
        .residual = cuda->at.residual,
        .losses = losses,
        .losses_stride = cuda->panels_max,
        .partials = cuda->at.partials,
        .columns_stride = cuda->stride,
        .state = cuda->at.state,
        .retires = retires,
    };
    args.slices_a_block = slices_a_block(cuda, panels);
    uint64_t slices = cuda->slices_a_panel > 0 ? cuda->slices_a_panel : 1;
    return cuda_launch(cuda, KERNEL_BACKWARD_SPARSE, panels, blocks_of(slices, args.slices_a_block),
                       1, BACKWARD_SPARSE_THREADS, 0, &args, err);
}

int cuda_launch_update(struct cuda_device *cuda, const struct row_view *view,
                       const struct session_hyper *hyper, uint64_t parts_a_panel, uint64_t rows,
                       struct err *err)
{
    uint64_t parts = panels_of(rows) * parts_a_panel;
    uint64_t each = parts_a_panel == 1 ? 128 : 256; /* measured: 1.7 % of a sparse step */
    unsigned splits = 1; /* the same whatever the rows of a step: bits do not depend on it anyway */
    while (splits < CUDA_SPLITS_MAX && parts > splits * each) {
        splits *= 2;
    }
    struct update_args args = {
        .partials = cuda->at.partials,
        .columns_stride = cuda->stride,
        .columns = cuda->shape.coordinates,
        .parts_a_panel = parts_a_panel,
        .first = cuda->shape.plan.coordinate_first,
        .intercept = intercept_of(cuda),
        .view = *view,
        .rate = hyper->rate,
        .decay = hyper->decay,
        .l2 = hyper->l2,
        .scratch = cuda->at.scratch,
        .tickets = cuda->at.tickets,
        .unit_losses = parts_a_panel > 1 ? cuda->at.unit_losses : 0,
        .losses = cuda->device_losses,
        .losses_stride = cuda->panels_max,
        .parameter = cuda->at.parameter,
        .accumulator = cuda->at.accumulator,
        .w32 = cuda->at.w32,
        .state = cuda->at.state,
        .results = cuda->device_results,
        .results_count = CUDA_LOCAL_DEPTH,
        .rows_total = cuda->shape.plan.rows,
        .batch_rows = cuda->shape.plan.batch_rows,
        .retires = 1,
    };
    return cuda_launch(cuda, KERNEL_UPDATE, blocks_of(cuda->shape.coordinates, UPDATE_COLUMNS),
                       splits, 1, 256, 0, &args, err);
}

/* -- the step ------------------------------------------------------------------------------------
 */

static struct row_view view_of(const struct cuda_device *cuda, const struct session_chunk *chunk)
{
    return (struct row_view){
        .local = 0,
        .row_first = chunk->row_first,
        .rows_count = chunk->rows_count,
        .place = chunk->row_first - cuda->batch.row_first,
        .step = cuda->batch.step,
        .step_rows = cuda->batch.rows_count,
    };
}

int cuda_step_begin(struct session_device *device, const struct session_batch *batch,
                    struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    cuda->batch = *batch;
    return cuda_pin_parts(cuda, err);
}

/* Values of a chunk begin where those of full chunks before it end. */
static size_t values_at(const struct cuda_device *cuda, const struct session_chunk *chunk)
{
    return (size_t)chunk->index * cuda->shape.plan.chunk_rows * cuda->shape.nodes_count;
}

int cuda_forward(struct session_device *device, const struct session_chunk *chunk, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    struct row_view view = view_of(cuda, chunk);
    size_t at = values_at(cuda, chunk);
    cu_pointer values = cuda->at.values + at * sizeof(double);
    int code = cuda_launch_forward(cuda, &view, chunk->rows_count, values, 1, err);
    if (code != 0) {
        return code;
    }
    size_t size = cuda->shape.nodes_count * chunk->rows_count * sizeof(double);
    CUDA_TRY(cuda, cuEventRecord(cuda->forwarded[chunk->index], cuda->work), "forward");
    CUDA_TRY(cuda, cuStreamWaitEvent(cuda->down, cuda->forwarded[chunk->index], 0), "forward");
    CUDA_TRY(cuda, cuMemcpyDtoHAsync_v2(cuda->host_values + at, values, size, cuda->down),
             "bringing values to the host");
    CUDA_TRY(cuda, cuEventRecord(cuda->copied[chunk->index], cuda->down), "forward");
    return 0;
}

int cuda_forward_wait(struct session_device *device, const struct session_chunk *chunk,
                      const double **ret_values, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    cu_result result = CU_ERROR_NOT_READY;
    for (int spin = 0; spin < 2000 && result == CU_ERROR_NOT_READY; spin++) {
        result = cuda->driver->cuEventQuery(cuda->copied[chunk->index]);
    }
    if (result == CU_ERROR_NOT_READY) {
        result = cuda->driver->cuEventSynchronize(cuda->copied[chunk->index]);
    }
    if (result != 0) {
        return cuda_check(cuda->driver, result, "forward", err);
    }
    *ret_values = cuda->host_values + values_at(cuda, chunk);
    return 0;
}

int cuda_backward(struct session_device *device, const struct session_chunk *chunk,
                  const float *residual, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    struct row_view view = view_of(cuda, chunk);
    size_t size = chunk->rows_count * sizeof(float);
    memcpy(cuda->host_residual + view.place, residual, size);
    CUDA_TRY(cuda,
             cuMemcpyHtoDAsync_v2(cuda->at.residual32 + view.place * sizeof(float),
                                  cuda->host_residual + view.place, size, cuda->up),
             "bringing residuals to the device");
    CUDA_TRY(cuda, cuEventRecord(cuda->uploaded[chunk->index], cuda->up), "backward");
    CUDA_TRY(cuda, cuStreamWaitEvent(cuda->work, cuda->uploaded[chunk->index], 0), "backward");
    return cuda_launch_backward(cuda, &view, chunk->rows_count, 0, 1, err);
}

int cuda_update(struct session_device *device, const struct session_hyper *hyper, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    struct row_view view = {
        .row_first = cuda->batch.row_first,
        .rows_count = cuda->batch.rows_count,
        .step = cuda->batch.step,
        .step_rows = cuda->batch.rows_count,
    };
    return cuda_launch_update(cuda, &view, hyper, 1, cuda->batch.rows_count, err);
}

int cuda_fence(struct session_device *device, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    CUDA_TRY(cuda,
             cuMemcpyDtoHAsync_v2(cuda->host_state, cuda->at.state, sizeof(*cuda->host_state),
                                  cuda->work),
             "the device's fence");
    CUDA_TRY(cuda, cuStreamSynchronize(cuda->down), "the device's fence");
    CUDA_TRY(cuda, cuStreamSynchronize(cuda->work), "the device's fence");
    return cuda_diverged(cuda->host_state->bad_step, cuda->host_state->bad_place, err);
}
