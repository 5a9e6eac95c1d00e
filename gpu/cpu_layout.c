#include "gpu/cpu.h"

#include <unistd.h>

#include "base/assert.h"
#include "numerics/lane.h"

#define LINE 64 /* alignment of what vectors read */

/* A block should stay in half of the second-level cache between forward and backward; the lanes of
 * all coordinates beside it. */
#define BLOCK_BYTES_MIN ((size_t)128 << 10)
#define BLOCK_BYTES_MAX ((size_t)1 << 20)
#define LANES_BYTES     ((size_t)1 << 20)

static size_t block_bytes(void)
{
    long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    size_t half = cache > 0 ? (size_t)cache / 2 : BLOCK_BYTES_MAX;
    half = half < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : half;
    return half > BLOCK_BYTES_MAX ? BLOCK_BYTES_MAX : half;
}

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Padded rows of the batches before batch b, and of all for b = batches_count. */
static uint64_t padded_rows(const struct cpu_device *cpu)
{
    const struct session_shape *shape = &cpu->shape;
    uint64_t whole = shape->plan.rows / shape->plan.batch_rows;
    uint64_t rest = shape->plan.rows % shape->plan.batch_rows;
    return whole * cpu->padded_batch_rows + round_up(rest, CPU_STRIP);
}

static void choose_blocks(struct cpu_device *cpu)
{
    const struct session_shape *shape = &cpu->shape;
    size_t bytes = block_bytes();
    cpu->block_rows = PANEL_ROWS;
    while (cpu->block_rows > PANEL_LANES &&
           shape->columns * cpu->block_rows * sizeof(float) > bytes) {
        cpu->block_rows /= 2;
    }
    cpu->padded_batch_rows = round_up(shape->plan.batch_rows, CPU_STRIP);
    cpu->blocks_per_batch = (cpu->padded_batch_rows + cpu->block_rows - 1) / cpu->block_rows;
    size_t panels = panels_of(shape->plan.batch_rows);
    bool busy = cpu->pool.threads == 1 || panels >= 2 * (size_t)cpu->pool.threads;
    cpu->fused = shape->plan.whole && shape->plan.storage == SESSION_DENSE && busy &&
                 shape->coordinates * PANEL_LANES * sizeof(double) <= LANES_BYTES;
}

static size_t tile_rows(const struct cpu_device *cpu)
{
    return cpu->shape.plan.storage == SESSION_DENSE ? cpu->block_rows : CPU_TILE_ROWS_MAX / 4;
}

/* Levels of the stack of finished groups: a node of 2^k columns keeps at most k - 3 of them. */
static size_t stack_levels(const struct cpu_device *cpu)
{
    return cpu->shape.plan.storage == SESSION_DENSE ? arith_highest_bit(cpu->shape.coordinates) + 1
                                                    : 0;
}

static size_t lanes_count(const struct cpu_device *cpu)
{
    return (cpu->fused ? (size_t)cpu->shape.coordinates : 1) * PANEL_LANES;
}

int cpu_layout(struct session_device *device, const struct session_shape *shape,
               struct arena *arena, struct err *err)
{
    struct cpu_device *cpu = cpu_of(device);
    cpu->shape = *shape;
    choose_blocks(cpu);
    const struct session_plan *plan = &shape->plan;
    bool dense = plan->storage == SESSION_DENSE;
    uint64_t vector = shape->coordinates * sizeof(double);
    uint64_t panels = shape->window_rows / PANEL_ROWS;
    uint64_t row_entries = plan->entries + (plan->intercept ? plan->rows : 0);
    cpu->scratch_bytes = round_up(
        ((stack_levels(cpu) + shape->nodes_count + 1) * tile_rows(cpu) + lanes_count(cpu)) *
            sizeof(double),
        ARENA_BASE_ALIGNMENT);
    const struct {
        const char *name;
        uint64_t bytes;
    } regions[] = {
        {"issues", 2 * sizeof(uint64_t)},
        {"parameter", vector},
        {"accumulator", vector},
        {"captured_parameter", vector},
        {"captured_accumulator", vector},
        {"parameter32", shape->coordinates * sizeof(float)},
        {"targets", plan->whole ? plan->rows * sizeof(double) : 0},
        {"values", shape->nodes_count * shape->window_rows * sizeof(double)},
        {"sums", (dense ? panels : 1) * vector},
        {"residual", shape->window_rows * sizeof(float)},
        {"row_loss", plan->whole ? shape->window_rows * sizeof(double) : 0},
        {"panel_losses", panels * sizeof(double)},
        {"ones", dense ? cpu->block_rows * sizeof(float) : 0},
        {"matrix", dense ? padded_rows(cpu) * shape->columns * sizeof(float) : 0},
        {"row_starts", dense ? 0 : (plan->rows + 1) * sizeof(uint64_t)},
        {"row_columns", dense ? 0 : row_entries * sizeof(uint32_t)},
        {"row_values", dense ? 0 : row_entries * sizeof(float)},
        {"row_joins", dense ? 0 : row_entries},
        {"batch_starts", dense ? 0 : (shape->batches_count + 1) * sizeof(uint64_t)},
        {"entries", dense ? 0 : plan->entries * sizeof(struct cpu_entry)},
        {"scratch", cpu->pool.threads * cpu->scratch_bytes},
    };
    for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++) {
        bool own_pages = regions[i].bytes >= ARENA_BASE_ALIGNMENT;
        int index = arena_add(arena, regions[i].name, regions[i].bytes,
                              own_pages ? ARENA_BASE_ALIGNMENT : LINE, err);
        if (index < 0) {
            return index;
        }
    }
    return 0;
}

static void *region(const struct cpu_device *cpu, const struct arena *arena, const char *name)
{
    const struct arena_region *found = arena_find(arena, name);
    ASSERT(found != NULL);
    ASSERT(found->offset + found->bytes <= cpu->base_bytes);
    return cpu->base + found->offset;
}

void cpu_layout_pointers(struct cpu_device *cpu, const struct arena *arena)
{
    ASSERT(arena->certified);
    cpu->issues = region(cpu, arena, "issues");
    cpu->parameter = region(cpu, arena, "parameter");
    cpu->accumulator = region(cpu, arena, "accumulator");
    cpu->captured_parameter = region(cpu, arena, "captured_parameter");
    cpu->captured_accumulator = region(cpu, arena, "captured_accumulator");
    cpu->weights = region(cpu, arena, "parameter32");
    cpu->targets = region(cpu, arena, "targets");
    cpu->values = region(cpu, arena, "values");
    cpu->sums = region(cpu, arena, "sums");
    cpu->residual = region(cpu, arena, "residual");
    cpu->row_loss = region(cpu, arena, "row_loss");
    cpu->panel_losses = region(cpu, arena, "panel_losses");
    cpu->ones = region(cpu, arena, "ones");
    cpu->matrix = region(cpu, arena, "matrix");
    cpu->row_starts = region(cpu, arena, "row_starts");
    cpu->row_columns = region(cpu, arena, "row_columns");
    cpu->row_values = region(cpu, arena, "row_values");
    cpu->row_joins = region(cpu, arena, "row_joins");
    cpu->batch_starts = region(cpu, arena, "batch_starts");
    cpu->entries = region(cpu, arena, "entries");
    cpu->scratch = region(cpu, arena, "scratch");
}

void cpu_scratch_cut(const struct cpu_device *cpu, unsigned worker, struct cpu_scratch *scratch)
{
    double *at = (double *)(void *)(cpu->scratch + worker * cpu->scratch_bytes);
    size_t rows = tile_rows(cpu);
    scratch->lanes = at;
    at += lanes_count(cpu);
    scratch->z = at;
    at += rows;
    for (size_t n = 0; n < cpu->shape.nodes_count; n++) {
        scratch->nodes[n] = at;
        at += rows;
    }
    for (size_t level = 0; level < stack_levels(cpu); level++) {
        scratch->stack[level] = at;
        at += rows;
    }
}
