/* Backward pass over sparse columns: panel sums of  product(r_i, x_ij)  by lanes.
 *
 * A block takes a panel, whose residuals lie in shared memory, and some of its slices; a thread
 * takes a cell (panel, column), a warp a slice of 32 cells (params.h has the layout). A cell's
 * entries come by lane, then by pass: those of one lane add in row order, lanes fold along the tree
 * of 128. */
#include "gpu/kernels/slice.cuh"

#define DEPTH 9 /* a stack of 7 levels, the value in hand, and the slot that nobody reads */

struct cell_of_entries {
    const float *residual;
    tree_sum &sum;

    template <int N> __device__ inline void operator()(const uint64_t (&entry)[N])
    {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const uint32_t high = (uint32_t)(entry[k] >> 32);
            take(sum, high,
                 product(residual[high & (PANEL_ROWS - 1)], __uint_as_float((uint32_t)entry[k])));
        }
    }
};

extern "C" __global__ void __launch_bounds__(SPARSE_BLOCK, 6)
    backward_sparse(const backward_sparse_args args)
{
    __shared__ float residual[PANEL_ROWS];
    __shared__ double stack[DEPTH][SPARSE_BLOCK];
    double *bottom = &stack[0][threadIdx.x];
    const rows_here here = rows_of(args.view, args.state);
    const uint64_t panel_first = (uint64_t)blockIdx.x * PANEL_ROWS;
    const int lane = threadIdx.x % WARP;
    const unsigned warp = threadIdx.x / WARP;

    if (panel_first < here.count) {
        const uint64_t left = here.count - panel_first;
        const unsigned rows = left < PANEL_ROWS ? (unsigned)left : PANEL_ROWS;
        const uint64_t panel = here.place / PANEL_ROWS + blockIdx.x; /* in the step */
        const uint64_t stored = here.row_first / args.batch_rows * args.panels_a_batch + panel;
        const float *source = args.residual32 + here.place + panel_first;
        for (unsigned row = threadIdx.x; row < PANEL_ROWS; row += SPARSE_BLOCK) {
            residual[row] = row < rows ? source[row] : 0.0F;
        }
        if (args.losses != nullptr && blockIdx.y == 0) {
            panel_loss(args.residual + here.place + panel_first, rows,
                       args.losses + here.slot * args.losses_stride + panel);
        }
        __syncthreads();
        const uint64_t slice_first = (uint64_t)blockIdx.y * (SPARSE_BLOCK / WARP * SLICES_A_WARP);
        for (unsigned i = 0; i < SLICES_A_WARP; i++) {
            const uint64_t slice = slice_first + i * (SPARSE_BLOCK / WARP) + warp;
            if (slice >= args.slices_a_panel) {
                break;
            }
            const uint64_t at = stored * args.slices_a_panel + slice;
            const uint64_t column = args.order[at * SLICE + lane];
            tree_sum sum = {0.0, bottom};
            cell_of_entries cell = {residual, sum};
            each_entry(args.entries + args.slices[at], args.lengths[at * SLICE + lane], lane, cell);
            if (column < args.columns) {
                args.partials[panel * args.columns_stride + column] =
                    sum.slot != bottom ? sum.top : 0.0;
            }
        }
        if (args.intercept != NO_COLUMN && blockIdx.y == 0 && warp == 0) {
            double sum[4] = {0.0, 0.0, 0.0, 0.0};
            for (unsigned pass = 0; pass < PANEL_ROWS / PANEL_LANES; pass++) {
                for (int l = 0; l < 4; l++) {
                    sum[l] = sum[l] + product(residual[pass * PANEL_LANES + lane * 4 + l], 1.0F);
                }
            }
            double root = lanes_root_warp(sum);
            if (lane == 0) {
                args.partials[panel * args.columns_stride + args.intercept] = root;
            }
        }
    }
    retire(args.state, 1, args.retires);
}
