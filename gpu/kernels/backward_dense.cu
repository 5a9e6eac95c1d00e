/* Backward pass over dense columns:  panel sums of  product(r_i, x_ij)  by lanes.
 *
 * A block takes one panel (2048 rows) and some columns; its residuals lie in shared memory. A warp
 * takes a column at a time: 16 loads of 16 bytes a thread are in flight, thread t adds rows to its
 * lanes 4t .. 4t+3 in row order, and the 128 lanes fold by shuffles. The blocks of the first
 * columns also take the panel's loss. The intercept's x is 1 and is not stored. */
#include "gpu/kernels/device.cuh"

#define PASSES (PANEL_ROWS / PANEL_LANES)

extern "C" __global__ void __launch_bounds__(256, 2) backward_dense(const backward_dense_args args)
{
    __shared__ __align__(16) float residual[PANEL_ROWS];
    const rows_here here = rows_of(args.view, args.state);
    const uint64_t panel_first = (uint64_t)blockIdx.x * PANEL_ROWS; /* in the chunk */
    const unsigned warp = threadIdx.x / WARP;
    const unsigned lane = threadIdx.x % WARP;

    if (panel_first < here.count) {
        const uint64_t left = here.count - panel_first;
        const unsigned rows = left < PANEL_ROWS ? (unsigned)left : PANEL_ROWS;
        const uint64_t panel = here.place / PANEL_ROWS + blockIdx.x; /* in the step */
        const float *source = args.residual32 + here.place + panel_first;
        for (unsigned row = threadIdx.x; row < PANEL_ROWS; row += blockDim.x) {
            residual[row] = row < rows ? source[row] : 0.0F;
        }
        if (args.losses != nullptr && blockIdx.y == 0) {
            panel_loss(args.residual + here.place + panel_first, rows,
                       args.losses + here.slot * args.losses_stride + panel);
        }
        __syncthreads();
        const uint64_t column_first = blockIdx.y * args.columns_a_block;
        uint64_t column_end = column_first + args.columns_a_block;
        column_end = column_end < args.columns ? column_end : args.columns;
        for (uint64_t column = column_first + warp; column < column_end;
             column += blockDim.x / WARP) {
            const float *top = args.x + column * args.ld + here.row_first + panel_first;
            const float4 *x = (const float4 *)top;
            float4 value[PASSES];
            if (column == args.intercept) {
#pragma unroll
                for (int pass = 0; pass < PASSES; pass++) {
                    value[pass] = make_float4(1.0F, 1.0F, 1.0F, 1.0F);
                }
            } else if ((here.row_first & 3) != 0) { /* between 16-byte boundaries */
#pragma unroll
                for (int pass = 0; pass < PASSES; pass++) {
                    const float *one = top + pass * PANEL_LANES + lane * 4;
                    value[pass] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
                    if (pass * PANEL_LANES + lane * 4 < rows) {
                        value[pass] =
                            make_float4(__ldg(one), __ldg(one + 1), __ldg(one + 2), __ldg(one + 3));
                    }
                }
            } else if (rows == PANEL_ROWS) {
#pragma unroll
                for (int pass = 0; pass < PASSES; pass++) {
                    value[pass] = __ldcs(x + pass * WARP + lane);
                }
            } else {
#pragma unroll
                for (int pass = 0; pass < PASSES; pass++) {
                    value[pass] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
                    if (pass * PANEL_LANES + lane * 4 < rows) {
                        value[pass] = __ldcs(x + pass * WARP + lane);
                    }
                }
            }
            double sum[4] = {0.0, 0.0, 0.0, 0.0};
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++) {
                float4 r = ((const float4 *)residual)[pass * WARP + lane];
                sum[0] = sum[0] + product(r.x, value[pass].x);
                sum[1] = sum[1] + product(r.y, value[pass].y);
                sum[2] = sum[2] + product(r.z, value[pass].z);
                sum[3] = sum[3] + product(r.w, value[pass].w);
            }
            double root = lanes_root_warp(sum);
            if (lane == 0) {
                args.partials[panel * args.columns_stride + column] = root;
            }
        }
    }
    retire(args.state, 1, args.retires);
}
