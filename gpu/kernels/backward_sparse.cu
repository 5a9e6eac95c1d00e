/* Backward pass over sparse columns: panel sums of  product(r_i, x_ij)  by lanes.
 *
 * A block takes a panel, whose residuals lie in shared memory, and some of its slices; a thread
 * takes a cell (panel, column), a warp a slice of 32 cells (params.h has the layout). Entries of
 * one lane come in row order, one behind the other, lanes as the tree of 128 is summed with the
 * least waiting (gpu/sparse_order.h). */
#include "gpu/kernels/slice.cuh"

#define DEPTH 9 /* a stack of 7 levels, the value in hand, and the slot that nobody reads */

struct cells {
    const float *residual;
    uint32_t bottom;
    double *partials; /* of the panel */
    uint64_t columns;
    tree_sum<BACKWARD_SPARSE_THREADS * 8> sum;
    uint32_t column;

    __device__ inline void begin(uint32_t item, uint32_t)
    {
        column = item;
        sum.top = 0.0;
        sum.slot = bottom;
    }

    /* FULL: all of them are there. */
    template <bool FULL>
    __device__ inline void take(const uint64_t (&entry)[AHEAD], uint32_t count)
    {
        float r[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            r[k] = residual[(uint32_t)(entry[k] >> 32) & (PANEL_ROWS - 1)];
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (FULL || k < count) {
                add_term(sum, (uint32_t)(entry[k] >> 32),
                         product(r[k], __uint_as_float((uint32_t)entry[k])));
            }
        }
    }

    __device__ inline void end()
    {
        if (column < columns) {
            partials[column] = sum.slot != bottom ? sum.top : 0.0;
        }
    }
};

extern "C" __global__ void __launch_bounds__(BACKWARD_SPARSE_THREADS, BACKWARD_SPARSE_BLOCKS)
    backward_sparse(const backward_sparse_args args)
{
    __shared__ float residual[PANEL_ROWS];
    __shared__ double stack[DEPTH][BACKWARD_SPARSE_THREADS];
    const uint32_t bottom = shared_address(&stack[0][threadIdx.x]);
    const rows_here here = rows_of(args.view, args.state);
    const uint64_t panel_first = (uint64_t)blockIdx.x * PANEL_ROWS;
    const int lane = threadIdx.x % WARP;
    const unsigned warp = threadIdx.x / WARP;

    if (panel_first < here.count) {
        const uint64_t left = here.count - panel_first;
        const unsigned rows = left < PANEL_ROWS ? (unsigned)left : PANEL_ROWS;
        const uint64_t panel = here.place / PANEL_ROWS + blockIdx.x; /* in the step */
        const uint64_t stored = here.row_first / args.batch_rows * args.panels_a_batch + panel;
        const uint64_t place = here.place + panel_first;
        for (unsigned row = threadIdx.x; row < PANEL_ROWS; row += BACKWARD_SPARSE_THREADS) {
            float r = 0.0F;
            if (row < rows) {
                r = args.view.local != 0 ? rn32(args.residual[place + row])
                                         : args.residual32[place + row];
            }
            residual[row] = r;
        }
        if (args.losses != nullptr && blockIdx.y == 0) {
            panel_loss(args.residual + here.place + panel_first, rows,
                       args.losses + here.slot * args.losses_stride + panel);
        }
        __syncthreads();
        const uint64_t first = (uint64_t)blockIdx.y * args.slices_a_block;
        const uint64_t begin = stored * args.slices_a_panel;
        cells use = {residual, bottom, args.partials + panel * args.columns_stride, args.columns,
                     {0.0, bottom}, 0};
        const uint64_t end = smaller(first + args.slices_a_block, args.slices_a_panel);
        each_slice({args.slices, args.order, args.lengths, args.entries,
                    (uint32_t)(begin + first) + warp, (uint32_t)(begin + end),
                    BACKWARD_SPARSE_THREADS / WARP},
                   lane, use);
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
