#include "gpu/cpu.h"

#include <string.h>

#include "base/assert.h"
#include "numerics/lane.h"

/* Columns of one panel that a worker takes through the backward pass at a time. */
#define COLUMNS_TILE 32

/* One block of rows: where its columns are. */
struct block {
    const float *columns; /* column j at columns + j * height */
    size_t height;        /* a multiple of CPU_STRIP */
    uint64_t row_first;   /* in the resident matrix */
};

static uint64_t batch_rows_of(const struct cpu_device *cpu, uint64_t batch)
{
    const struct session_plan *plan = &cpu->shape.plan;
    uint64_t left = plan->rows - batch * plan->batch_rows;
    return left < plan->batch_rows ? left : plan->batch_rows;
}

/* Block k of a batch. */
static struct block block_of(const struct cpu_device *cpu, uint64_t batch, size_t k)
{
    size_t rows = (size_t)batch_rows_of(cpu, batch);
    size_t padded = (rows + CPU_STRIP - 1) / CPU_STRIP * CPU_STRIP;
    size_t first = k * cpu->block_rows;
    ASSERT(first < padded);
    size_t left = padded - first;
    return (struct block){.columns = cpu->matrix +
                                     (batch * cpu->padded_batch_rows + first) * cpu->shape.columns,
                          .height = left < cpu->block_rows ? left : cpu->block_rows,
                          .row_first = batch * cpu->shape.plan.batch_rows + first};
}

/* Column j of a block from its row `skip` on; the intercept's is ones. */
static const float *column_of(const struct cpu_device *cpu, const struct block *block, uint64_t j,
                              size_t skip)
{
    return j < cpu->shape.columns ? block->columns + j * block->height + skip : cpu->ones;
}

/* -- seed ------------------------------------------------------------------------------------- */

struct seeding {
    struct cpu_device *cpu;
    const struct session_matrix *matrix;
};

/* Copies one block; the workers touch first what they will read. */
static void seed_block(void *context, size_t item, unsigned worker)
{
    (void)worker;
    const struct seeding *seeding = context;
    struct cpu_device *cpu = seeding->cpu;
    const struct session_matrix *matrix = seeding->matrix;
    uint64_t batch = item / cpu->blocks_per_batch;
    size_t k = item % cpu->blocks_per_batch;
    uint64_t batch_rows = batch_rows_of(cpu, batch);
    if (k * cpu->block_rows >= batch_rows) {
        return; /* a short last batch has fewer blocks */
    }
    struct block block = block_of(cpu, batch, k);
    size_t left = (size_t)(batch_rows - k * cpu->block_rows);
    size_t rows = left < block.height ? left : block.height;
    float *to = cpu->matrix + (block.columns - cpu->matrix);
    for (uint64_t j = 0; j < matrix->columns; j++) {
        memcpy(to, matrix->dense + j * matrix->stride + block.row_first, rows * sizeof(float));
        memset(to + rows, 0, (block.height - rows) * sizeof(float));
        to += block.height;
    }
}

void cpu_dense_seed(struct cpu_device *cpu, const struct session_matrix *matrix)
{
    for (size_t i = 0; i < cpu->block_rows; i++) {
        cpu->ones[i] = 1.0F;
    }
    if (matrix->columns == 0) {
        return;
    }
    struct seeding seeding = {cpu, matrix};
    cpu_pool_run(&cpu->pool, seed_block, &seeding,
                 (size_t)cpu->shape.batches_count * cpu->blocks_per_batch, false);
}

/* -- forward ---------------------------------------------------------------------------------- */

/* Number of the block that a row is in, over all batches. */
static uint64_t block_number(const struct cpu_device *cpu, uint64_t row)
{
    uint64_t batch = row / cpu->shape.plan.batch_rows;
    uint64_t in_batch = row % cpu->shape.plan.batch_rows;
    return batch * cpu->blocks_per_batch + in_batch / cpu->block_rows;
}

size_t cpu_dense_tiles(const struct cpu_device *cpu, uint64_t row_first, uint64_t rows_count)
{
    return (size_t)(block_number(cpu, row_first + rows_count - 1) - block_number(cpu, row_first)) +
           1;
}

struct cpu_tile cpu_dense_tile(const struct cpu_device *cpu, uint64_t row_first,
                               uint64_t rows_count, size_t index)
{
    uint64_t number = block_number(cpu, row_first) + index;
    uint64_t batch = number / cpu->blocks_per_batch;
    uint64_t in_batch = number % cpu->blocks_per_batch * cpu->block_rows;
    uint64_t first = batch * cpu->shape.plan.batch_rows + in_batch;
    uint64_t batch_left = batch_rows_of(cpu, batch);
    batch_left = batch_left > in_batch ? batch_left - in_batch : 0;
    uint64_t end = first + (batch_left < cpu->block_rows ? batch_left : cpu->block_rows);
    uint64_t range_end = row_first + rows_count;
    first = first > row_first ? first : row_first;
    end = end < range_end ? end : range_end;
    return (struct cpu_tile){.row_first = first,
                             .rows_count = end > first ? (size_t)(end - first) : 0};
}

/* One canonical node of 2^level columns from column `first`: groups of 16 columns are joined in
 * registers, groups join as the bits of a binary counter carry. */
static void forward_node(const struct cpu_device *cpu, const struct block *block, size_t skip,
                         size_t rows, struct cpu_scratch *scratch, uint64_t first, unsigned level,
                         double *out)
{
    uint64_t size = (uint64_t)1 << level;
    struct cpu_group group = {.rows = rows};
    group.count = size < CPU_GROUP ? (unsigned)size : CPU_GROUP;
    uint64_t groups = size / group.count;
    size_t depth = 0;
    for (uint64_t g = 0; g < groups; g++) {
        uint64_t column = first + g * group.count;
        for (unsigned j = 0; j < group.count; j++) {
            group.columns[j] = column_of(cpu, block, column + j, skip);
        }
        group.weights = cpu->weights + column;
        group.pending_count = arith_trailing_zeros(g + 1); /* nodes that this group completes */
        for (unsigned p = 0; p < group.pending_count; p++) {
            depth--;
            group.pending[p] = scratch->stack[depth];
        }
        group.out = g + 1 == groups ? out : scratch->stack[depth];
        depth++;
        cpu->forward(&group);
    }
}

static void forward_block(const struct cpu_device *cpu, const struct block *block, size_t skip,
                          size_t rows, struct cpu_scratch *scratch)
{
    const struct session_shape *shape = &cpu->shape;
    for (size_t n = 0; n < shape->nodes_count; n++) {
        forward_node(cpu, block, skip, rows, scratch,
                     node_first(shape->nodes[n]) - shape->plan.coordinate_first,
                     shape->nodes[n].level, scratch->nodes[n]);
    }
}

void cpu_dense_forward(const struct cpu_device *cpu, const struct cpu_tile *tile,
                       struct cpu_scratch *scratch, const double *ret_values[NODES_MAX])
{
    uint64_t number = block_number(cpu, tile->row_first);
    struct block block =
        block_of(cpu, number / cpu->blocks_per_batch, (size_t)(number % cpu->blocks_per_batch));
    size_t from = (size_t)(tile->row_first - block.row_first);
    size_t skip = from / CPU_STRIP * CPU_STRIP; /* kernels take whole strips */
    size_t end = (from + tile->rows_count + CPU_STRIP - 1) / CPU_STRIP * CPU_STRIP;
    ASSERT(end <= block.height);
    forward_block(cpu, &block, skip, end - skip, scratch);
    for (size_t n = 0; n < cpu->shape.nodes_count; n++) {
        ret_values[n] = scratch->nodes[n] + (from - skip);
    }
}

/* -- backward --------------------------------------------------------------------------------- */

/* The panel's sum for one column, block by block. */
static double column_sum(const struct cpu_device *cpu, uint64_t batch, size_t panel, uint64_t j,
                         double *lanes)
{
    size_t rows_count = (size_t)cpu->batch.rows_count;
    size_t first = panel * PANEL_ROWS;
    for (size_t at = first; at < rows_count && at < first + PANEL_ROWS; at += cpu->block_rows) {
        struct block block = block_of(cpu, batch, at / cpu->block_rows);
        cpu->backward(column_of(cpu, &block, j, 0), cpu->residual + at, block.height, lanes,
                      at == first);
    }
    return cpu->root(lanes);
}

struct backward_job {
    struct cpu_device *cpu;
    size_t panel_first;
    size_t tiles; /* of columns */
};

static void backward_item(void *context, size_t item, unsigned worker)
{
    const struct backward_job *job = context;
    struct cpu_device *cpu = job->cpu;
    struct cpu_scratch scratch;
    cpu_scratch_cut(cpu, worker, &scratch);
    size_t panel = job->panel_first + item / job->tiles;
    uint64_t first = item % job->tiles * COLUMNS_TILE;
    uint64_t left = cpu->shape.coordinates - first;
    uint64_t end = first + (left < COLUMNS_TILE ? left : COLUMNS_TILE);
    uint64_t batch = cpu->batch.row_first / cpu->shape.plan.batch_rows;
    double *sums = cpu->sums + panel * cpu->shape.coordinates;
    for (uint64_t j = first; j < end; j++) {
        sums[j] = column_sum(cpu, batch, panel, j, scratch.lanes);
    }
}

void cpu_dense_backward(struct cpu_device *cpu, size_t panel_first, size_t panels_count)
{
    uint64_t coordinates = cpu->shape.coordinates;
    struct backward_job job = {.cpu = cpu,
                               .panel_first = panel_first,
                               .tiles = (size_t)((coordinates + COLUMNS_TILE - 1) / COLUMNS_TILE)};
    bool small = coordinates * cpu->batch.rows_count < 16384; /* elements */
    cpu_pool_run(&cpu->pool, backward_item, &job, job.tiles * panels_count, small);
}

/* -- a local step ------------------------------------------------------------------------------ */

static void fused_panel(void *context, size_t panel, unsigned worker)
{
    struct cpu_device *cpu = context;
    struct cpu_scratch scratch;
    cpu_scratch_cut(cpu, worker, &scratch);
    uint64_t coordinates = cpu->shape.coordinates;
    uint64_t batch = cpu->batch.row_first / cpu->shape.plan.batch_rows;
    size_t rows_count = (size_t)cpu->batch.rows_count;
    size_t first = panel * PANEL_ROWS;
    size_t end = first + PANEL_ROWS < rows_count ? first + PANEL_ROWS : rows_count;
    for (size_t at = first; at < end; at += cpu->block_rows) {
        struct block block = block_of(cpu, batch, at / cpu->block_rows);
        forward_block(cpu, &block, 0, block.height, &scratch);
        size_t left = end - at;
        struct cpu_tile tile = {.row_first = block.row_first,
                                .rows_count = left < block.height ? left : block.height};
        cpu_residuals(cpu, &tile, (const double *const *)scratch.nodes, scratch.z,
                      cpu->row_loss + at);
        for (uint64_t j = 0; j < coordinates; j++) { /* the block is in the cache now */
            cpu->backward(column_of(cpu, &block, j, 0), cpu->residual + at, block.height,
                          scratch.lanes + j * PANEL_LANES, at == first);
        }
    }
    double *sums = cpu->sums + panel * coordinates;
    for (uint64_t j = 0; j < coordinates; j++) {
        sums[j] = cpu->root(scratch.lanes + j * PANEL_LANES);
    }
}

void cpu_dense_fused(struct cpu_device *cpu)
{
    cpu_pool_run(&cpu->pool, fused_panel, cpu, panels_of((size_t)cpu->batch.rows_count), false);
}

void cpu_dense_fold(const struct cpu_device *cpu, size_t first, size_t end, size_t panels_count)
{
    size_t coordinates = (size_t)cpu->shape.coordinates;
    for (size_t count = panels_count; count > 1; count = (count + 1) / 2) {
        for (size_t p = 0; p < count / 2; p++) {
            double *to = cpu->sums + p * coordinates;
            const double *left = cpu->sums + 2 * p * coordinates;
            const double *right = left + coordinates;
            for (size_t j = first; j < end; j++) {
                to[j] = left[j] + right[j];
            }
        }
        if (count % 2 != 0) { /* passes through */
            memcpy(cpu->sums + count / 2 * coordinates + first,
                   cpu->sums + (count - 1) * coordinates + first, (end - first) * sizeof(double));
        }
    }
}
