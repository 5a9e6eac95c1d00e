/* The CPU backend's device: what cpu.c (life), cpu_dense.c, cpu_sparse.c (the matrix in its two
 * forms) and cpu_step.c (what they share: submissions, residuals, update) have in common. Private
 * to the room.
 *
 * Dense storage. Rows lie in batches as the plan cuts them; each batch is padded with zero rows to
 * a multiple of 16 and cut into blocks of block_rows rows (a divisor of a panel; the last one is
 * lower); a block holds its columns one behind the other, so that a pass over a block is one
 * stream, and a block and its columns stay in the second-level cache between forward and backward:
 *
 *     batch b, block k at (padded row of the block) * columns; x(i, j) at [j * height + i]
 *
 * Zero rows change nothing: their residual is 0, and a lane that gets +0.0 keeps its bits.
 *
 * Sparse storage. Twice, each in the order in which a pass reads it: by rows for the forward pass
 * (with the joins of the tree worked out: they depend on the indices alone), by batch, column and
 * row for the backward pass. */
#ifndef COPPELIUS_GPU_CPU_H
#define COPPELIUS_GPU_CPU_H

#include <stdatomic.h>

#include "gpu/backend.h"
#include "gpu/cpu_kernels.h"
#include "gpu/cpu_pool.h"

/* A flag in the joins of an entry: the last one of its canonical node in this row. */
#define CPU_NODE_END 0x80U

/* An entry for the backward pass. */
struct cpu_entry {
    uint32_t row; /* from the batch's first */
    uint32_t column;
    float value;
};

struct cpu_device {
    struct session_device device;
    struct session_shape shape;
    struct session_batch batch; /* the open step, or the local one */
    const struct cpu_isa *isa;
    struct cpu_pool pool;

    /* Found in the registry, by name. */
    cpu_forward_fn *forward;
    cpu_backward_fn *backward;
    cpu_root_fn *root;

    /* The arena. */
    char *mapped; /* what the kernel gave; base is aligned in it */
    size_t mapped_bytes;
    char *base;
    size_t base_bytes;
    double *parameter;
    double *accumulator;
    double *captured_parameter;
    double *captured_accumulator;
    uint64_t *issues; /* the counter, and behind it its captured twin */
    float *weights;   /* parameter in binary32 */
    double *targets;  /* where whole */
    double *values;   /* (nodes, rows) of each chunk */
    double *sums;     /* (panels, coordinates) dense, (coordinates) sparse: the gradient's sums */
    float *residual;  /* window_rows, zeros behind the batch's last row */
    double *row_loss; /* window_rows: terms of the loss, where whole */
    double *panel_losses;
    char *scratch; /* of each worker */
    size_t scratch_bytes;

    /* Dense. */
    float *matrix;
    float *ones;
    size_t block_rows;
    size_t padded_batch_rows; /* of a full batch */
    size_t blocks_per_batch;
    bool fused; /* local steps go panel by panel through forward and backward */

    /* Sparse. */
    uint64_t *row_starts; /* rows + 1, into row_columns … */
    uint32_t *row_columns;
    float *row_values;
    uint8_t *row_joins;
    uint64_t *batch_starts; /* batches + 1, into entries */
    struct cpu_entry *entries;

    /* Where something left its range: the lowest, UINT64_MAX for none. */
    atomic_ullong fault_row;
    atomic_ullong fault_coordinate;

    struct fold_plan fold; /* of this node's own canonical nodes, where whole */
    size_t panels_count;   /* of the last local step */
};

/* A worker's scratch, cut up. Arrays of doubles are tile_rows long. */
struct cpu_scratch {
    double *nodes[NODES_MAX];
    double *stack[CPU_LEVELS_MAX];
    double *z;
    double *lanes; /* (coordinates, 128) where fused, else one column's */
};

#define CPU_TILE_ROWS_MAX 2048

/* Rows that a worker takes through the forward pass at a time: a part of one block, or some sparse
 * rows. */
struct cpu_tile {
    uint64_t row_first; /* in the resident matrix */
    size_t rows_count;
};

/* cpu_layout.c: where all is */
int cpu_layout(struct session_device *device, const struct session_shape *shape,
               struct arena *arena, struct err *err);
void cpu_layout_pointers(struct cpu_device *cpu, const struct arena *arena);
void cpu_scratch_cut(const struct cpu_device *cpu, unsigned worker, struct cpu_scratch *scratch);

/* cpu_dense.c */
void cpu_dense_seed(struct cpu_device *cpu, const struct session_matrix *matrix);
size_t cpu_dense_tiles(const struct cpu_device *cpu, uint64_t row_first, uint64_t rows_count);
struct cpu_tile cpu_dense_tile(const struct cpu_device *cpu, uint64_t row_first,
                               uint64_t rows_count, size_t index);
/* Values of the canonical nodes for the tile's rows: the n-th at ret_values[n], in the scratch. */
void cpu_dense_forward(const struct cpu_device *cpu, const struct cpu_tile *tile,
                       struct cpu_scratch *scratch, const double *ret_values[NODES_MAX]);
/* Sums of panels first .. first + count - 1 of the open batch, from cpu->residual. */
void cpu_dense_backward(struct cpu_device *cpu, size_t panel_first, size_t panels_count);
/* A whole local training step but for the update, each panel's rows read once from memory. */
void cpu_dense_fused(struct cpu_device *cpu);
/* Folds the panels' sums: afterwards sums[j] is the root of coordinate j. Destroys the others. */
void cpu_dense_fold(const struct cpu_device *cpu, size_t first, size_t end, size_t panels_count);

/* cpu_sparse.c */
void cpu_sparse_seed(struct cpu_device *cpu, const struct session_matrix *matrix);
size_t cpu_sparse_tiles(uint64_t rows_count);
struct cpu_tile cpu_sparse_tile(uint64_t row_first, uint64_t rows_count, size_t index);
void cpu_sparse_forward(const struct cpu_device *cpu, const struct cpu_tile *tile,
                        struct cpu_scratch *scratch, const double *ret_values[NODES_MAX]);
/* sums[j] of all coordinates from the whole open batch. */
void cpu_sparse_backward(struct cpu_device *cpu);

/* cpu_step.c: the submissions of struct session_backend */
int cpu_step_begin(struct session_device *device, const struct session_batch *batch,
                   struct err *err);
int cpu_forward(struct session_device *device, const struct session_chunk *chunk, struct err *err);
int cpu_forward_wait(struct session_device *device, const struct session_chunk *chunk,
                     const double **ret_values, struct err *err);
int cpu_backward(struct session_device *device, const struct session_chunk *chunk,
                 const float *residual, struct err *err);
int cpu_update(struct session_device *device, const struct session_hyper *hyper, struct err *err);
int cpu_fence(struct session_device *device, struct err *err);
int cpu_local_step(struct session_device *device, const struct session_batch *batch,
                   const struct session_hyper *hyper, struct err *err);
int cpu_local_wait(struct session_device *device, const double **ret_panel_losses,
                   size_t *ret_panels_count, struct err *err);
/* Folds the tile's values, makes its residuals: cpu->residual, and terms of the loss into `terms`.
 */
void cpu_residuals(struct cpu_device *cpu, const struct cpu_tile *tile,
                   const double *const values[NODES_MAX], double *z, double *terms);
/* Lowers a fault to `at`. */
void cpu_fault(atomic_ullong *fault, uint64_t at);

static inline struct cpu_device *cpu_of(struct session_device *device)
{
    return (struct cpu_device *)(void *)((char *)device - offsetof(struct cpu_device, device));
}

#endif
