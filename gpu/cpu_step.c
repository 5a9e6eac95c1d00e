#include "gpu/cpu.h"

#include <string.h>

#include "base/assert.h"
#include "numerics/lane.h"
#include "numerics/product.h"
#include "numerics/squared.h"

#define UPDATE_TILE 512 /* coordinates */

/* Less work than this many elements is done on one thread. */
#define SMALL_WORK 16384

void cpu_fault(atomic_ullong *fault, uint64_t at)
{
    unsigned long long seen = atomic_load_explicit(fault, memory_order_relaxed);
    while (at < seen && !atomic_compare_exchange_weak(fault, &seen, at)) {
    }
}

static bool faulty(struct cpu_device *cpu)
{
    return atomic_load(&cpu->fault_row) != UINT64_MAX ||
           atomic_load(&cpu->fault_coordinate) != UINT64_MAX;
}

static int report_faults(struct cpu_device *cpu, struct err *err)
{
    uint64_t row = atomic_load(&cpu->fault_row);
    uint64_t coordinate = atomic_load(&cpu->fault_coordinate);
    unsigned long long step = cpu->batch.step;
    if (row != UINT64_MAX) {
        return err_set(err, ERR_DIVERGED,
                       "step %llu: the residual of training row %llu left the range of binary32; "
                       "give a smaller rate",
                       step, (unsigned long long)row);
    }
    if (coordinate != UINT64_MAX) {
        return err_set(err, ERR_DIVERGED,
                       "step %llu: the parameter or accumulator of coordinate %llu left its range; "
                       "give a smaller rate",
                       step, (unsigned long long)coordinate);
    }
    return 0;
}

static void retire(struct cpu_device *cpu)
{
    *cpu->issues += 1;
}

static bool is_dense(const struct cpu_device *cpu)
{
    return cpu->shape.plan.storage == SESSION_DENSE;
}

static size_t tiles_of(const struct cpu_device *cpu, uint64_t row_first, uint64_t rows_count)
{
    return is_dense(cpu) ? cpu_dense_tiles(cpu, row_first, rows_count)
                         : cpu_sparse_tiles(rows_count);
}

static struct cpu_tile tile_of(const struct cpu_device *cpu, uint64_t row_first,
                               uint64_t rows_count, size_t index)
{
    return is_dense(cpu) ? cpu_dense_tile(cpu, row_first, rows_count, index)
                         : cpu_sparse_tile(row_first, rows_count, index);
}

static void forward_tile(const struct cpu_device *cpu, const struct cpu_tile *tile,
                         struct cpu_scratch *scratch, const double *ret_values[NODES_MAX])
{
    if (is_dense(cpu)) {
        cpu_dense_forward(cpu, tile, scratch, ret_values);
    } else {
        cpu_sparse_forward(cpu, tile, scratch, ret_values);
    }
}

/* Elements that a pass over so many rows looks at, about. */
static uint64_t work_of(const struct cpu_device *cpu, uint64_t rows_count)
{
    return rows_count * (cpu->shape.plan.entries / cpu->shape.plan.rows + 1);
}

static bool is_small(const struct cpu_device *cpu, uint64_t rows_count)
{
    return work_of(cpu, rows_count) < SMALL_WORK;
}

/* -- in parts --------------------------------------------------------------------------------- */

int cpu_step_begin(struct session_device *device, const struct session_batch *batch,
                   struct err *err)
{
    (void)err;
    struct cpu_device *cpu = cpu_of(device);
    cpu->batch = *batch;
    return 0;
}

struct forward_job {
    struct cpu_device *cpu;
    const struct session_chunk *chunk;
};

/* Where the values of a chunk lie. */
static double *values_of(const struct cpu_device *cpu, const struct session_chunk *chunk)
{
    return cpu->values + (size_t)chunk->index * cpu->shape.plan.chunk_rows * cpu->shape.nodes_count;
}

static void forward_item(void *context, size_t item, unsigned worker)
{
    const struct forward_job *job = context;
    struct cpu_device *cpu = job->cpu;
    const struct session_chunk *chunk = job->chunk;
    struct cpu_scratch scratch;
    cpu_scratch_cut(cpu, worker, &scratch);
    struct cpu_tile tile = tile_of(cpu, chunk->row_first, chunk->rows_count, item);
    const double *values[NODES_MAX];
    forward_tile(cpu, &tile, &scratch, values);
    double *to = values_of(cpu, chunk) + (tile.row_first - chunk->row_first);
    for (size_t n = 0; n < cpu->shape.nodes_count; n++) {
        memcpy(to + n * chunk->rows_count, values[n], tile.rows_count * sizeof(double));
    }
}

int cpu_forward(struct session_device *device, const struct session_chunk *chunk, struct err *err)
{
    (void)err;
    struct cpu_device *cpu = cpu_of(device);
    struct forward_job job = {cpu, chunk};
    cpu_pool_run(&cpu->pool, forward_item, &job, tiles_of(cpu, chunk->row_first, chunk->rows_count),
                 is_small(cpu, chunk->rows_count));
    retire(cpu);
    return 0;
}

int cpu_forward_wait(struct session_device *device, const struct session_chunk *chunk,
                     const double **ret_values, struct err *err)
{
    (void)err;
    *ret_values = values_of(cpu_of(device), chunk);
    return 0;
}

/* Zero residuals for the rows that fill the last strip of the batch. */
static void pad_residuals(struct cpu_device *cpu)
{
    size_t rows = (size_t)cpu->batch.rows_count;
    size_t padded = (rows + CPU_STRIP - 1) / CPU_STRIP * CPU_STRIP;
    memset(cpu->residual + rows, 0, (padded - rows) * sizeof(float));
}

int cpu_backward(struct session_device *device, const struct session_chunk *chunk,
                 const float *residual, struct err *err)
{
    (void)err;
    struct cpu_device *cpu = cpu_of(device);
    size_t first = (size_t)(chunk->row_first - cpu->batch.row_first);
    memcpy(cpu->residual + first, residual, (size_t)chunk->rows_count * sizeof(float));
    if (chunk->last) {
        pad_residuals(cpu);
    }
    if (is_dense(cpu)) {
        cpu_dense_backward(cpu, first / PANEL_ROWS, panels_of((size_t)chunk->rows_count));
    } else if (chunk->last) {
        cpu_sparse_backward(cpu);
    }
    retire(cpu);
    return 0;
}

struct update_job {
    struct cpu_device *cpu;
    const struct session_hyper *hyper;
};

static void update_item(void *context, size_t item, unsigned worker)
{
    (void)worker;
    const struct update_job *job = context;
    struct cpu_device *cpu = job->cpu;
    const struct session_hyper *hyper = job->hyper;
    size_t coordinates = (size_t)cpu->shape.coordinates;
    size_t first = item * UPDATE_TILE;
    size_t end = coordinates - first < UPDATE_TILE ? coordinates : first + UPDATE_TILE;
    if (is_dense(cpu)) {
        cpu_dense_fold(cpu, first, end, panels_of((size_t)cpu->batch.rows_count));
    }
    double rows = (double)cpu->batch.rows_count;
    for (size_t j = first; j < end; j++) {
        double l2 = j < cpu->shape.columns ? hyper->l2 : 0.0;
        double gradient = momentum_gradient(cpu->sums[j], rows, l2, cpu->parameter[j]);
        double accumulator = momentum_accumulator(hyper->decay, cpu->accumulator[j], gradient);
        double parameter = momentum_parameter(hyper->rate, accumulator, cpu->parameter[j]);
        float weight = rn32(parameter);
        if (!finite64(accumulator) || !finite32(weight)) {
            cpu_fault(&cpu->fault_coordinate, cpu->shape.plan.coordinate_first + j);
        }
        cpu->accumulator[j] = accumulator;
        cpu->parameter[j] = parameter;
        cpu->weights[j] = weight;
    }
}

static void update_all(struct cpu_device *cpu, const struct session_hyper *hyper)
{
    struct update_job job = {cpu, hyper};
    size_t panels = is_dense(cpu) ? panels_of((size_t)cpu->batch.rows_count) : 1;
    cpu_pool_run(&cpu->pool, update_item, &job,
                 ((size_t)cpu->shape.coordinates + UPDATE_TILE - 1) / UPDATE_TILE,
                 cpu->shape.coordinates * (panels + 8) < SMALL_WORK);
}

int cpu_update(struct session_device *device, const struct session_hyper *hyper, struct err *err)
{
    (void)err;
    struct cpu_device *cpu = cpu_of(device);
    update_all(cpu, hyper);
    retire(cpu);
    return 0;
}

int cpu_fence(struct session_device *device, struct err *err)
{
    return report_faults(cpu_of(device), err);
}

/* -- a whole step -------------------------------------------------------------------------------
 */

void cpu_residuals(struct cpu_device *cpu, const struct cpu_tile *tile,
                   const double *const values[NODES_MAX], double *z, double *terms)
{
    size_t first = (size_t)(tile->row_first - cpu->batch.row_first);
    float *residuals = cpu->residual + first;
    const double *targets = cpu->targets + tile->row_first;
    fold_plan_run(&cpu->fold, values, z, tile->rows_count);
    float worst = 0.0F;
    for (size_t i = 0; i < tile->rows_count; i++) {
        double residual = squared_residual(z[i], targets[i]);
        residuals[i] = rn32(residual);
        terms[i] = squared_loss(residual);
        worst += residuals[i] - residuals[i]; /* NaN as soon as one is not finite */
    }
    if (!finite32(worst)) {
        for (size_t i = 0; i < tile->rows_count; i++) {
            if (!finite32(residuals[i])) {
                cpu_fault(&cpu->fault_row, tile->row_first + i);
                break;
            }
        }
    }
    if (first + tile->rows_count == cpu->batch.rows_count) {
        pad_residuals(cpu);
    }
}

static void residual_item(void *context, size_t item, unsigned worker)
{
    struct cpu_device *cpu = context;
    struct cpu_scratch scratch;
    cpu_scratch_cut(cpu, worker, &scratch);
    struct cpu_tile tile = tile_of(cpu, cpu->batch.row_first, cpu->batch.rows_count, item);
    const double *values[NODES_MAX];
    forward_tile(cpu, &tile, &scratch, values);
    cpu_residuals(cpu, &tile, values, scratch.z,
                  cpu->row_loss + (tile.row_first - cpu->batch.row_first));
}

static void loss_item(void *context, size_t panel, unsigned worker)
{
    (void)worker;
    struct cpu_device *cpu = context;
    double lanes[PANEL_LANES] = {0.0};
    size_t rows_count = (size_t)cpu->batch.rows_count;
    size_t first = panel * PANEL_ROWS;
    size_t end = rows_count - first < PANEL_ROWS ? rows_count : first + PANEL_ROWS;
    for (size_t at = first; at < end; at += PANEL_LANES) {
        size_t size = end - at < PANEL_LANES ? end - at : PANEL_LANES;
        for (size_t lane = 0; lane < size; lane++) {
            lanes[lane] += cpu->row_loss[at + lane];
        }
    }
    cpu->panel_losses[panel] = cpu->root(lanes);
}

int cpu_local_step(struct session_device *device, const struct session_batch *batch,
                   const struct session_hyper *hyper, struct err *err)
{
    (void)err;
    struct cpu_device *cpu = cpu_of(device);
    cpu->batch = *batch;
    cpu->panels_count = panels_of((size_t)batch->rows_count);
    bool small = is_small(cpu, batch->rows_count);
    if (cpu->fused && !batch->evaluate) {
        cpu_dense_fused(cpu);
    } else {
        cpu_pool_run(&cpu->pool, residual_item, cpu,
                     tiles_of(cpu, batch->row_first, batch->rows_count), small);
        if (!batch->evaluate && is_dense(cpu)) {
            cpu_dense_backward(cpu, 0, cpu->panels_count);
        } else if (!batch->evaluate) {
            cpu_sparse_backward(cpu);
        }
    }
    cpu_pool_run(&cpu->pool, loss_item, cpu, cpu->panels_count, batch->rows_count < SMALL_WORK);
    if (!batch->evaluate && !faulty(cpu)) {
        update_all(cpu, hyper);
    }
    retire(cpu);
    return 0;
}

int cpu_local_wait(struct session_device *device, const double **ret_panel_losses,
                   size_t *ret_panels_count, struct err *err)
{
    struct cpu_device *cpu = cpu_of(device);
    *ret_panel_losses = cpu->panel_losses;
    *ret_panels_count = cpu->panels_count;
    return report_faults(cpu, err);
}
