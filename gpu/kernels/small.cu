/* A whole local step of a small problem (at most 128 coordinates) in one launch, over tiles:
 * forward, residual, backward as in fused.cu, then the update by the block that finishes last.
 *
 * A block takes a unit of 16 lanes, a warp a lane, straight into registers: all loads of the step
 * are in flight at once, which is what a step of some microseconds is made of. */
#include "gpu/kernels/tile.cuh"

#define THREADS 512
#define COLUMNS 128
#define LEVELS  5 /* 256 units a quarter: 131072 rows */

/* The dyadic sum of N values, `stride` apart. */
template <int N> __device__ static inline double lanes_tree(const double *values, int stride)
{
    double left = lanes_tree<N / 2>(values, stride);
    double right = lanes_tree<N / 2>(values + N / 2 * stride, stride);
    return left + right;
}

template <> __device__ inline double lanes_tree<1>(const double *values, int stride)
{
    (void)stride;
    return values[0];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) small_step(const small_args args)
{
    __shared__ __align__(16) double sums[UNIT_LANES][COLUMNS];
    __shared__ double unit_loss[UNIT_LANES];
    __shared__ __align__(16) float residuals[UNIT_LANES][PASSES];
    step_state *state = args.state;
    const int warp = threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    const int my_row = row_of_lane(lane);
    const uint64_t rows_count = args.rows_count;
    const uint64_t row_first = args.row_first;
    const uint64_t units = panels_of(rows_count) * UNITS_A_PANEL;
    const bool stored = (uint64_t)lane * 4 < args.row_floats;
    const float4 none = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    const float4 w = stored ? ((const float4 *)args.w32)[lane] : none;

    uint64_t *const issues = threadIdx.x == 0 ? state->issues : nullptr;
    const uint64_t issues_before = threadIdx.x == 0 ? *issues : 0;

    for (uint64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const uint64_t tile = unit * UNIT_LANES + warp; /* in the step */
        const uint64_t place = row_first / PANEL_ROWS * PANEL_LANES + tile;
        const float4 *from = (const float4 *)(args.tiles + place * PASSES * args.row_floats);
        float4 x[PASSES];
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            x[p] = stored ? from[p * (args.row_floats / 4) + lane] : none;
        }
        const double y = args.y_tiles[place * PASSES + my_row];
        const double z = canon(tile_rows(x, w, lane));
        const uint64_t row =
            tile / PANEL_LANES * PANEL_ROWS + my_row * PANEL_LANES + tile % PANEL_LANES;
        const double r = row < rows_count ? squared_residual(z, y) : 0.0;
        const float r32 = rn32(r);
        if (!finite32(r32)) {
            bad_value(state, args.step, BAD_ROW(row_first + row));
        }
        if (lane < PASSES) {
            residuals[warp][my_row] = r32;
        }
        __syncwarp();
        double g[4];
        tile_lanes(x, residuals[warp], g);
        double2 *out = (double2 *)&sums[warp][lane * 4];
        out[0] = make_double2(g[0], g[1]);
        out[1] = make_double2(g[2], g[3]);
        const double loss = tile_sum(squared_loss(r));
        if (lane == 0) {
            unit_loss[warp] = loss;
        }
        __syncthreads();
        if (threadIdx.x <= COLUMNS) { /* 128: the loss */
            const double *value = threadIdx.x < COLUMNS ? &sums[0][threadIdx.x] : unit_loss;
            const double root = lanes_tree<UNIT_LANES>(value, threadIdx.x < COLUMNS ? COLUMNS : 1);
            if (threadIdx.x == COLUMNS) {
                args.unit_losses[unit] = root;
            } else if (threadIdx.x < args.columns) {
                args.partials[unit * args.columns_stride + threadIdx.x] = root;
            }
        }
        __syncthreads();
    }
    if (!last_block(&state->tickets[4], gridDim.x)) {
        return;
    }
    const uint64_t bad_step = *(volatile uint64_t *)&state->bad_step;
    const uint64_t bad_place = *(volatile uint64_t *)&state->bad_place;
    bool bad = false;
    fold_units(args.unit_losses, panels_of(rows_count),
               args.losses + args.slot * args.losses_stride);
    if (args.evaluate == 0) {
        /* Thread t: column t mod 128, the aligned quarter t / 128 of the units. */
        const unsigned column = threadIdx.x % COLUMNS;
        const unsigned quarter = threadIdx.x / COLUMNS;
        uint64_t padded = THREADS / COLUMNS;
        while (padded < units) {
            padded *= 2;
        }
        const uint64_t each = padded / (THREADS / COLUMNS);
        const uint64_t first = each * quarter;
        const bool there = column < args.columns;
        const double before = there ? args.parameter[column] : 0.0;
        const double kept = there ? args.accumulator[column] : 0.0;
        const double *from = args.partials + first * args.columns_stride + column;
        double sum = 0.0;
        if (there && first < units) {
            sum = strided_sum<LEVELS>(from, args.columns_stride, smaller(each, units - first));
        }
        sums[quarter][column] = sum;
        __syncthreads();
        if (quarter == 0 && there) {
            const double root =
                (sums[0][column] + sums[1][column]) + (sums[2][column] + sums[3][column]);
            const double l2 = column == args.intercept ? 0.0 : args.l2;
            const double g = momentum_gradient(root, (double)rows_count, l2, before);
            const double a = momentum_accumulator(args.decay, kept, g);
            const double moved = momentum_parameter(args.rate, a, before);
            args.accumulator[column] = a;
            args.parameter[column] = moved;
            args.w32[column] = rn32(moved);
            bad = !finite64(a) || !finite32(rn32(moved));
            if (bad) {
                bad_value(state, args.step, BAD_COLUMN(column));
            }
        }
    }
    __threadfence();
    bad = __syncthreads_or(bad) != 0;
    if (threadIdx.x == 0) {
        step_result *result = args.results + args.slot;
        *issues = issues_before + args.retires;
        result->bad_step = bad ? *(volatile uint64_t *)&state->bad_step : bad_step;
        result->bad_place = bad ? *(volatile uint64_t *)&state->bad_place : bad_place;
        result->issues = issues_before + args.retires;
        __threadfence_system();
        *(volatile uint64_t *)&result->done = args.sequence;
    }
}
