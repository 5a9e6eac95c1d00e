/* What the host hands to the kernels: plain structs of 8-byte members, the same for both compilers.
 * Pointers are device addresses (uint64_t on the host, which never follows one).
 *
 * Two layouts of a dense matrix: "columns" (column-major, as the host has it) and "tiles" (for the
 * fused step: panel, lane, pass, column; a lane's 16 rows of a panel lie together). Rows of a step
 * are row_first and on, in the resident matrix; places in z, residuals and panel losses count from
 * the step's first row. */
#ifndef COPPELIUS_GPU_KERNELS_PARAMS_H
#define COPPELIUS_GPU_KERNELS_PARAMS_H

#include <stdint.h>

#ifdef __CUDACC__
#define DEVICE_POINTER(type) type *
#else
#define DEVICE_POINTER(type) uint64_t
#endif

#define NO_COLUMN UINT64_MAX /* intercept: this range has none */

#define UNIT_LANES     16 /* of the fused step: lanes whose sums one team folds */
#define UNITS_A_PANEL  8
#define FUSED_THREADS  512
#define FUSED_LEVELS   4 /* log2 of UNIT_LANES */
#define UPDATE_COLUMNS 32
#define TICKETS_MAX    8
#define BAD_COLUMN_BIT ((uint64_t)1 << 63)
#define BAD_ROW(row)   ((uint64_t)(row)) /* a step's bad rows come before its coordinates */
#define BAD_COLUMN(at) ((uint64_t)(at) | BAD_COLUMN_BIT)

/* In device memory; only kernels write it after the seed: the local step that runs next. */
struct step_state {
    DEVICE_POINTER(uint64_t) issues; /* the issue counter: submissions retired */
    uint64_t row_first;
    uint64_t rows_count;
    uint64_t step;
    uint64_t sequence; /* local steps done */
    uint64_t slot;     /* of the results ring: sequence modulo its length */
    double rate;
    double decay;
    double l2;
    uint64_t bad_step;             /* the first step with a value out of range, UINT64_MAX: none */
    uint64_t bad_place;            /* there: BAD_ROW or BAD_COLUMN, the lowest; UINT64_MAX: none */
    uint64_t tickets[TICKETS_MAX]; /* blocks that finished, by kind of launch */
};

/* What the host reads of a local step, in pinned memory that the device writes. */
struct step_result {
    uint64_t done; /* local steps done, written last */
    uint64_t bad_step;
    uint64_t bad_place;
    uint64_t issues;
};

/* Which rows a launch works on. local: those of the state's open step, and the rest is ignored. */
struct row_view {
    uint64_t local;
    uint64_t row_first;  /* of the chunk in the matrix */
    uint64_t rows_count; /* of the chunk */
    uint64_t place;      /* of the chunk's first row in the step, a multiple of 2048 */
    uint64_t step;
    uint64_t step_rows;
};

struct cursor_args {
    DEVICE_POINTER(struct step_state) state;
    uint64_t row_first;
    uint64_t rows_count;
    uint64_t step;
    double rate;
    double decay;
    double l2;
};

/* A piece of a canonical node that one warp sums: 2^level columns. */
struct segment {
    uint32_t first;      /* local column */
    uint32_t level;      /* at most 7 */
    uint32_t node;       /* which canonical node of the range */
    uint32_t node_level; /* its level */
    uint64_t index;      /* of the piece at its level on the whole index line */
};

struct forward_dense_args {
    DEVICE_POINTER(const float) x; /* column-major, ld rows a column */
    uint64_t ld;
    DEVICE_POINTER(const float) w32; /* parameters in binary32 */
    uint64_t intercept;              /* its local column, or NO_COLUMN */
    DEVICE_POINTER(const struct segment) segments;
    uint64_t segments_count;
    uint64_t column_warps; /* 1, 2, 4 or 8 warps share the columns of a tile of 128 rows */
    uint64_t levels;       /* of the fold's stack: highest node level + 1 */
    struct row_view view;
    DEVICE_POINTER(double) values; /* [node][rows_count]: the canonical nodes; 0: residuals */
    DEVICE_POINTER(const double) y;
    DEVICE_POINTER(double) residual; /* r, by place */
    DEVICE_POINTER(float) residual32;
    DEVICE_POINTER(struct step_state) state;
    uint64_t retires; /* issues that this launch retires */
};

struct backward_dense_args {
    DEVICE_POINTER(const float) x;
    uint64_t ld;
    uint64_t columns;   /* local, the intercept included */
    uint64_t intercept; /* or NO_COLUMN */
    uint64_t columns_a_block;
    struct row_view view;
    DEVICE_POINTER(const float) residual32; /* by place */
    DEVICE_POINTER(const double) residual;  /* by place, with losses only */
    DEVICE_POINTER(double) losses;          /* [slot][losses_stride] by panel, or 0 */
    uint64_t losses_stride;
    DEVICE_POINTER(double) partials; /* [panel][columns_stride] */
    uint64_t columns_stride;
    DEVICE_POINTER(struct step_state) state;
    uint64_t retires;
};

struct update_args {
    DEVICE_POINTER(const double) partials; /* [panel or unit][columns_stride] */
    uint64_t columns_stride;
    uint64_t columns;
    uint64_t parts_a_panel; /* 1, or UNITS_A_PANEL: consecutive ones fold to the panel */
    uint64_t first;         /* the first coordinate of the range */
    uint64_t intercept;
    struct row_view view;
    double rate; /* not local: these */
    double decay;
    double l2;
    DEVICE_POINTER(double) scratch;           /* [gridDim.y][columns_stride] */
    DEVICE_POINTER(uint64_t) tickets;         /* [gridDim.x], zero between launches */
    DEVICE_POINTER(const double) unit_losses; /* by unit, or 0 */
    DEVICE_POINTER(double) losses;            /* [slot][losses_stride], with unit_losses */
    uint64_t losses_stride;
    DEVICE_POINTER(double) parameter;
    DEVICE_POINTER(double) accumulator;
    DEVICE_POINTER(float) w32;
    DEVICE_POINTER(struct step_state) state;
    DEVICE_POINTER(struct step_result) results; /* local: [slot], in the host's memory */
    uint64_t results_count;
    uint64_t rows_total; /* local: the matrix' rows and the batch's, for the next step's rows */
    uint64_t batch_rows;
    uint64_t retires;
};

/* Losses of a window that was only evaluated. */
struct losses_args {
    DEVICE_POINTER(const double) residual;    /* by place, or 0 with … */
    DEVICE_POINTER(const double) unit_losses; /* … these by unit */
    DEVICE_POINTER(double) losses;
    uint64_t losses_stride;
    DEVICE_POINTER(struct step_state) state;
    DEVICE_POINTER(struct step_result) results;
    uint64_t results_count;
    uint64_t retires;
};

/* Sparse: the same entries twice, by row for the forward pass and by (panel, column) cell for the
 * backward pass. 32 rows (cells) are a slice, a thread each, longest first; the slice's entries lie
 * by rank, then by thread: all first entries, then all second ones, without padding. Rows are
 * ordered by length in windows of `window` rows, cells in their panel.
 *
 * An entry: bits of the value | column, or row of the panel, << 32 | folds << ENTRY_FOLDS: what the
 * tree's shape wants done, worked out when the matrix was loaded: the term is put on the stack,
 * then `folds` times the two topmost values become their sum (a term of the same lane as the one
 * before it: once more). */
#define SLICE         32
#define ENTRY_COLUMNS ((uint64_t)1 << 25)
#define ENTRY_FOLDS   58
#define FORWARD_SPARSE_THREADS  384
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define FORWARD_SPARSE_BLOCKS 2 /* of a multiprocessor; Turing's have 1024 threads */
#else
#define FORWARD_SPARSE_BLOCKS 3
#endif
#define BACKWARD_SPARSE_THREADS 256
#define BACKWARD_SPARSE_BLOCKS  4

struct forward_sparse_args {
    DEVICE_POINTER(const uint64_t) slices;  /* where a slice's entries begin */
    DEVICE_POINTER(const uint32_t) order;   /* [slice][32]: the row */
    DEVICE_POINTER(const uint32_t) lengths; /* [slice][32] */
    DEVICE_POINTER(const uint64_t) entries; /* the intercept's (1.0) among them */
    uint64_t window;
    uint64_t slices_count;
    uint64_t depth; /* of a thread's stack */
    DEVICE_POINTER(const float) w32;
    uint64_t w32_shared; /* so many of them fit in shared memory: all, or none */
    DEVICE_POINTER(const uint64_t) node_ends; /* local end of each canonical node */
    uint64_t nodes_count;
    struct row_view view;
    DEVICE_POINTER(double) values;
    DEVICE_POINTER(const double) y; /* [slice][32], as the rows lie */
    DEVICE_POINTER(double) residual;
    DEVICE_POINTER(struct step_state) state;
    uint64_t retires;
};

struct backward_sparse_args {
    DEVICE_POINTER(const uint64_t) slices;  /* [stored panel][slices_a_panel] */
    DEVICE_POINTER(const uint32_t) order;   /* [stored panel][slices_a_panel][32]: the column */
    DEVICE_POINTER(const uint32_t) lengths; /* likewise; a missing column has none */
    DEVICE_POINTER(const uint64_t) entries;
    uint64_t slices_a_panel;
    uint64_t slices_a_block;
    uint64_t batch_rows;
    uint64_t panels_a_batch;
    uint64_t columns; /* stored ones: without the intercept */
    uint64_t intercept;
    struct row_view view;
    DEVICE_POINTER(const float) residual32; /* by place; a local step has the other one */
    DEVICE_POINTER(const double) residual;
    DEVICE_POINTER(double) losses;
    uint64_t losses_stride;
    DEVICE_POINTER(double) partials;
    uint64_t columns_stride;
    DEVICE_POINTER(struct step_state) state;
    uint64_t retires;
};

/* Both passes of a local step over tiles, the matrix read once. */
struct fused_args {
    DEVICE_POINTER(const float) tiles;    /* [panel][128 lanes][16 passes][row_floats] */
    DEVICE_POINTER(const double) y_tiles; /* [panel][128 lanes][16 passes] */
    uint64_t row_floats;                  /* stored columns, a multiple of 4 */
    DEVICE_POINTER(const float) w32;      /* zeros behind the last coordinate */
    uint64_t outside;  /* the intercept's coordinate where it has no stored column, or NO_COLUMN */
    uint64_t evaluate; /* 1: losses only */
    DEVICE_POINTER(double) partials; /* [unit][columns_stride] */
    uint64_t columns_stride;
    DEVICE_POINTER(double) unit_losses;
    DEVICE_POINTER(struct step_state) state;
};

/* A whole local step of a small problem in one launch, over tiles: a warp takes a lane's tile. */
struct small_args {
    DEVICE_POINTER(const float) tiles;
    DEVICE_POINTER(const double) y_tiles;
    uint64_t row_floats;
    uint64_t columns;   /* coordinates, at most 128 (without an intercept outside) */
    uint64_t intercept; /* or NO_COLUMN */
    uint64_t evaluate;
    uint64_t row_first; /* of the step */
    uint64_t rows_count;
    uint64_t step;
    uint64_t slot;
    uint64_t sequence; /* of this step: the host waits for it */
    double rate;
    double decay;
    double l2;
    DEVICE_POINTER(double) partials; /* [unit][columns_stride] */
    uint64_t columns_stride;
    DEVICE_POINTER(double) unit_losses;
    DEVICE_POINTER(double) losses; /* [slot][losses_stride], in the host's memory */
    uint64_t losses_stride;
    DEVICE_POINTER(double) parameter;
    DEVICE_POINTER(double) accumulator;
    DEVICE_POINTER(float) w32;
    DEVICE_POINTER(struct step_state) state;
    DEVICE_POINTER(struct step_result) results;
    uint64_t retires;
};

/* Forward and backward in parts over tiles (rare: a whole session that is driven chunk by chunk).
 */
struct tiles_args {
    DEVICE_POINTER(const float) tiles;
    uint64_t row_floats;
    uint64_t columns; /* coordinates */
    uint64_t intercept;
    DEVICE_POINTER(const float) w32;
    DEVICE_POINTER(const uint64_t) node_ends;
    uint64_t nodes_count;
    struct row_view view;
    DEVICE_POINTER(double) values;
    DEVICE_POINTER(const float) residual32;
    DEVICE_POINTER(double) partials; /* [panel][columns_stride] */
    uint64_t columns_stride;
    DEVICE_POINTER(struct step_state) state;
    uint64_t retires;
};

/* A block of whole panels of staged columns to tiles. */
struct pack_args {
    DEVICE_POINTER(const float) staged; /* [column][staged_rows] */
    uint64_t staged_rows;               /* a multiple of 2048 */
    uint64_t rows;                      /* of them are there; the rest becomes +0.0 */
    uint64_t columns;                   /* stored ones */
    uint64_t ones;                      /* a further column of ones, or NO_COLUMN */
    uint64_t row_floats;
    uint64_t panel_first;
    DEVICE_POINTER(float) tiles;
};

#endif
