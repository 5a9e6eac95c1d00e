#include "gpu/cpu.h"

#include <string.h>

#include "base/assert.h"
#include "numerics/dyadic.h"
#include "numerics/lane.h"
#include "numerics/product.h"

#define TILE_ROWS (CPU_TILE_ROWS_MAX / 4)

/* -- seed ------------------------------------------------------------------------------------- */

/* How each entry of a row joins those before it: after entry e, row_joins[e] & ~CPU_NODE_END of the
 * stack's nodes are joined to it, as its meeting with the next entry demands. */
static void plan_row(struct cpu_device *cpu, uint64_t row)
{
    const struct session_shape *shape = &cpu->shape;
    uint64_t first = cpu->row_starts[row];
    uint64_t end = cpu->row_starts[row + 1];
    unsigned bits[CPU_LEVELS_MAX]; /* where stack[i] and stack[i + 1] meet */
    unsigned depth = 0;
    size_t n = 0;
    for (uint64_t e = first; e < end; e++) {
        uint64_t at = shape->plan.coordinate_first + cpu->row_columns[e];
        while (at >= node_end(shape->nodes[n])) {
            n++;
        }
        uint64_t next = 0;
        bool last = e + 1 == end;
        if (!last) {
            next = shape->plan.coordinate_first + cpu->row_columns[e + 1];
            last = next >= node_end(shape->nodes[n]);
        }
        depth++;
        unsigned joins = 0;
        if (last) {
            joins = depth - 1;
            depth = 0;
            cpu->row_joins[e] = (uint8_t)(joins | CPU_NODE_END);
            continue;
        }
        unsigned bit = arith_highest_bit(at ^ next);
        while (depth > 1 && bits[depth - 2] < bit) {
            depth--;
            joins++;
        }
        bits[depth - 1] = bit;
        cpu->row_joins[e] = (uint8_t)joins;
    }
}

static void plan_rows(void *context, size_t item, unsigned worker)
{
    (void)worker;
    struct cpu_device *cpu = context;
    struct cpu_tile tile = cpu_sparse_tile(0, cpu->shape.plan.rows, item);
    for (size_t i = 0; i < tile.rows_count; i++) {
        plan_row(cpu, tile.row_first + i);
    }
}

void cpu_sparse_seed(struct cpu_device *cpu, const struct session_matrix *matrix)
{
    const struct session_plan *plan = &cpu->shape.plan;
    /* Count, then place: row_starts[i + 1] and batch_starts[b + 1] serve as cursors. */
    memset(cpu->row_starts, 0, ((size_t)plan->rows + 1) * sizeof(uint64_t));
    memset(cpu->batch_starts, 0, ((size_t)cpu->shape.batches_count + 1) * sizeof(uint64_t));
    uint64_t begin = matrix->starts[0];
    uint64_t end = matrix->starts[matrix->columns];
    for (uint64_t e = begin; e < end; e++) {
        cpu->row_starts[matrix->row[e] + 1]++;
    }
    uint64_t total = 0;
    for (uint64_t i = 0; i < plan->rows; i++) {
        uint64_t count = cpu->row_starts[i + 1];
        cpu->batch_starts[i / plan->batch_rows + 1] += count;
        cpu->row_starts[i + 1] = total;
        total += count + (plan->intercept ? 1 : 0);
    }
    total = 0;
    for (uint64_t b = 0; b < cpu->shape.batches_count; b++) {
        uint64_t count = cpu->batch_starts[b + 1];
        cpu->batch_starts[b + 1] = total;
        total += count;
    }
    for (uint64_t j = 0; j < matrix->columns; j++) {
        for (uint64_t e = matrix->starts[j]; e < matrix->starts[j + 1]; e++) {
            uint32_t row = matrix->row[e];
            uint64_t to = cpu->row_starts[row + 1]++;
            cpu->row_columns[to] = (uint32_t)j;
            cpu->row_values[to] = matrix->value[e];
            uint64_t batch = row / plan->batch_rows;
            to = cpu->batch_starts[batch + 1]++;
            cpu->entries[to] = (struct cpu_entry){.row = (uint32_t)(row - batch * plan->batch_rows),
                                                  .column = (uint32_t)j,
                                                  .value = matrix->value[e]};
        }
    }
    if (plan->intercept) { /* the last coordinate of every row */
        for (uint64_t i = 0; i < plan->rows; i++) {
            uint64_t to = cpu->row_starts[i + 1]++;
            cpu->row_columns[to] = (uint32_t)matrix->columns;
            cpu->row_values[to] = 1.0F;
        }
    }
    cpu_pool_run(&cpu->pool, plan_rows, cpu, cpu_sparse_tiles(plan->rows), false);
}

/* -- forward ---------------------------------------------------------------------------------- */

size_t cpu_sparse_tiles(uint64_t rows_count)
{
    return (size_t)((rows_count + TILE_ROWS - 1) / TILE_ROWS);
}

struct cpu_tile cpu_sparse_tile(uint64_t row_first, uint64_t rows_count, size_t index)
{
    uint64_t first = index * TILE_ROWS;
    uint64_t left = rows_count - first;
    return (struct cpu_tile){.row_first = row_first + first,
                             .rows_count = left < TILE_ROWS ? (size_t)left : TILE_ROWS};
}

static void forward_row(const struct cpu_device *cpu, uint64_t row, struct cpu_scratch *scratch,
                        size_t at)
{
    const struct session_shape *shape = &cpu->shape;
    double stack[CPU_LEVELS_MAX];
    size_t depth = 0;
    size_t n = 0;
    for (uint64_t e = cpu->row_starts[row]; e < cpu->row_starts[row + 1]; e++) {
        uint32_t column = cpu->row_columns[e];
        double sum = product(cpu->weights[column], cpu->row_values[e]);
        unsigned joins = cpu->row_joins[e];
        for (unsigned join = joins & ~CPU_NODE_END; join > 0; join--) {
            depth--;
            sum = stack[depth] + sum;
        }
        if ((joins & CPU_NODE_END) == 0) {
            stack[depth] = sum;
            depth++;
            continue;
        }
        while (shape->plan.coordinate_first + column >= node_end(shape->nodes[n])) {
            n++;
        }
        scratch->nodes[n][at] = sum;
    }
}

void cpu_sparse_forward(const struct cpu_device *cpu, const struct cpu_tile *tile,
                        struct cpu_scratch *scratch, const double *ret_values[NODES_MAX])
{
    for (size_t n = 0; n < cpu->shape.nodes_count; n++) { /* a node without entries is +0.0 */
        memset(scratch->nodes[n], 0, tile->rows_count * sizeof(double));
        ret_values[n] = scratch->nodes[n];
    }
    for (size_t i = 0; i < tile->rows_count; i++) {
        forward_row(cpu, tile->row_first + i, scratch, i);
    }
}

/* -- backward --------------------------------------------------------------------------------- */

/* The lanes of one panel, of which only the touched ones are looked at: the others are +0.0, and
 * adding them changes no bit of a canonical root. */
struct lanes {
    double value[PANEL_LANES];
    uint64_t touched[2];
};

static void lanes_add(struct lanes *lanes, uint32_t row, double term)
{
    unsigned lane = row % PANEL_LANES;
    uint64_t bit = (uint64_t)1 << (lane % 64);
    double before = (lanes->touched[lane / 64] & bit) != 0 ? lanes->value[lane] : 0.0;
    lanes->value[lane] = before + term;
    lanes->touched[lane / 64] |= bit;
}

static double lanes_sum(struct lanes *lanes)
{
    struct dyadic_sparse sum;
    dyadic_sparse_start(&sum);
    for (unsigned word = 0; word < 2; word++) {
        for (uint64_t bits = lanes->touched[word]; bits != 0; bits &= bits - 1) {
            unsigned lane = 64 * word + arith_trailing_zeros(bits);
            dyadic_sparse_add(&sum, lane, lanes->value[lane]);
        }
        lanes->touched[word] = 0;
    }
    return dyadic_sparse_root(&sum);
}

/* Entries first .. end-1 are one column's in the batch, rows ascending. */
static double column_sum(const struct cpu_device *cpu, uint64_t first, uint64_t end,
                         struct lanes *lanes)
{
    struct dyadic_sparse panels;
    dyadic_sparse_start(&panels);
    uint64_t panel = cpu->entries[first].row / PANEL_ROWS;
    for (uint64_t e = first; e < end; e++) {
        const struct cpu_entry *entry = &cpu->entries[e];
        if (entry->row / PANEL_ROWS != panel) {
            dyadic_sparse_add(&panels, panel, lanes_sum(lanes));
            panel = entry->row / PANEL_ROWS;
        }
        lanes_add(lanes, entry->row, product(cpu->residual[entry->row], entry->value));
    }
    dyadic_sparse_add(&panels, panel, lanes_sum(lanes));
    return dyadic_sparse_root(&panels);
}

/* The intercept: x is 1 in every row. */
static double ones_sum(const struct cpu_device *cpu)
{
    struct dyadic panels;
    dyadic_start(&panels);
    size_t rows_count = (size_t)cpu->batch.rows_count;
    for (size_t first = 0; first < rows_count; first += PANEL_ROWS) {
        double lanes[PANEL_LANES] = {0.0};
        for (size_t i = first; i < rows_count && i < first + PANEL_ROWS; i++) {
            lanes[i % PANEL_LANES] += product(cpu->residual[i], 1.0F);
        }
        dyadic_add(&panels, lanes_root(lanes));
    }
    return dyadic_root(&panels);
}

struct backward_job {
    struct cpu_device *cpu;
    uint64_t first; /* entries of the batch */
    uint64_t end;
    size_t pieces;
};

/* The first entry from `at` on that begins a column. */
static uint64_t column_begin(const struct backward_job *job, uint64_t at)
{
    const struct cpu_entry *entries = job->cpu->entries;
    while (at > job->first && at < job->end && entries[at].column == entries[at - 1].column) {
        at++;
    }
    return at;
}

static void backward_item(void *context, size_t item, unsigned worker)
{
    (void)worker;
    const struct backward_job *job = context;
    struct cpu_device *cpu = job->cpu;
    if (item == job->pieces) { /* the last item: the intercept */
        cpu->sums[cpu->shape.columns] = ones_sum(cpu);
        return;
    }
    uint64_t count = job->end - job->first;
    uint64_t at = column_begin(job, job->first + count * item / job->pieces);
    uint64_t end = column_begin(job, job->first + count * (item + 1) / job->pieces);
    struct lanes lanes = {.touched = {0}};
    while (at < end) {
        uint64_t column_end = at + 1;
        while (column_end < end && cpu->entries[column_end].column == cpu->entries[at].column) {
            column_end++;
        }
        cpu->sums[cpu->entries[at].column] = column_sum(cpu, at, column_end, &lanes);
        at = column_end;
    }
}

void cpu_sparse_backward(struct cpu_device *cpu)
{
    memset(cpu->sums, 0, (size_t)cpu->shape.coordinates * sizeof(double));
    uint64_t batch = cpu->batch.row_first / cpu->shape.plan.batch_rows;
    struct backward_job job = {.cpu = cpu,
                               .first = cpu->batch_starts[batch],
                               .end = cpu->batch_starts[batch + 1],
                               .pieces = (size_t)cpu->pool.threads * 4};
    size_t items = job.pieces + (cpu->shape.plan.intercept ? 1 : 0);
    bool small = job.end - job.first + cpu->batch.rows_count < 8192;
    cpu_pool_run(&cpu->pool, backward_item, &job, items, small);
}
