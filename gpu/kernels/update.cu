/* Update:  g_j = canon(dyadic of the panels) / B + l2_j w_j,  a_j = canon(decay a_j + g_j),
 * w_j = canon(w_j - rate a_j).
 *
 * A block takes 32 columns and an aligned gridDim.y-th of the parts (panels, or the fused step's
 * aligned eighths of a panel), each of its 8 warps an eighth of that; the number of parts is padded
 * to a power of two by +0.0, which changes no value before a canonical root. The block of a column
 * group that finishes last folds the group's pieces and does the update. State never leaves the
 * device. In a local step the launch also ends the step: the last block of all writes the result
 * that the host waits for and moves the state on to the next batch. */
#include "gpu/kernels/device.cuh"

#define WARPS  8
#define LEVELS 17 /* 2^20 panels or units a warp */
extern "C" __global__ void __launch_bounds__(256) update(const update_args args)
{
    __shared__ double part[WARPS][WARP];
    const rows_here here = rows_of(args.view, args.state);
    const uint64_t parts = panels_of(here.step_rows) * args.parts_a_panel;
    const uint64_t pieces = (uint64_t)gridDim.y * WARPS;
    const unsigned warp = threadIdx.x / WARP;
    const unsigned lane = threadIdx.x % WARP;
    const uint64_t column = (uint64_t)blockIdx.x * UPDATE_COLUMNS + lane;
    uint64_t padded = pieces;
    while (padded < parts) {
        padded *= 2;
    }
    const uint64_t each = padded / pieces;
    const uint64_t first = each * ((uint64_t)blockIdx.y * WARPS + warp);
    double sum = 0.0;
    if (column < args.columns && first < parts) {
        sum = strided_sum<LEVELS>(args.partials + first * args.columns_stride + column,
                                  args.columns_stride, smaller(each, parts - first));
    }
    part[warp][lane] = sum;
    if (args.unit_losses != nullptr && blockIdx.x == 0 && blockIdx.y == 0) {
        fold_units(args.unit_losses, panels_of(here.step_rows),
                   args.losses + here.slot * args.losses_stride);
    }
    __syncthreads();
    if (warp == 0 && column < args.columns) {
        double root = ((part[0][lane] + part[1][lane]) + (part[2][lane] + part[3][lane])) +
                      ((part[4][lane] + part[5][lane]) + (part[6][lane] + part[7][lane]));
        args.scratch[blockIdx.y * args.columns_stride + column] = root;
    }
    if (last_block(args.tickets + blockIdx.x, gridDim.y)) {
        if (warp == 0 && column < args.columns) {
            const double root =
                strided_sum<LEVELS>(args.scratch + column, args.columns_stride, gridDim.y);
            const bool local = args.view.local != 0;
            const double rate = local ? args.state->rate : args.rate;
            const double decay = local ? args.state->decay : args.decay;
            double l2 = local ? args.state->l2 : args.l2;
            l2 = column == args.intercept ? 0.0 : l2;
            const double w = args.parameter[column];
            const double g = momentum_gradient(root, (double)here.step_rows, l2, w);
            const double a = momentum_accumulator(decay, args.accumulator[column], g);
            const double moved = momentum_parameter(rate, a, w);
            args.accumulator[column] = a;
            args.parameter[column] = moved;
            args.w32[column] = rn32(moved);
            if (!finite64(a) || !finite32(rn32(moved))) {
                bad_value(args.state, here.step, BAD_COLUMN(args.first + column));
            }
        }
        if (last_block(&args.state->tickets[2], gridDim.x) && threadIdx.x == 0) {
            if (args.view.local != 0) {
                end_local(args.state, args.results, args.results_count, args.retires);
                next_batch(args.state, args.rows_total, args.batch_rows);
            } else {
                *args.state->issues += args.retires;
            }
        }
    }
}

/* Sets the local step that comes next, where it is not the one that follows by itself. */
extern "C" __global__ void __launch_bounds__(32) cursor(const cursor_args args)
{
    if (threadIdx.x == 0) {
        args.state->row_first = args.row_first;
        args.state->rows_count = args.rows_count;
        args.state->step = args.step;
        args.state->rate = args.rate;
        args.state->decay = args.decay;
        args.state->l2 = args.l2;
    }
}

/* Ends a local step that only evaluates: a block a panel, or one block with unit losses. */
extern "C" __global__ void __launch_bounds__(256) losses(const losses_args args)
{
    step_state *state = args.state;
    double *out = args.losses + state->slot * args.losses_stride;
    if (args.unit_losses != nullptr) {
        fold_units(args.unit_losses, panels_of(state->rows_count), out);
    } else {
        const uint64_t first = (uint64_t)blockIdx.x * PANEL_ROWS;
        if (first < state->rows_count) {
            panel_loss(args.residual + first, state->rows_count - first, out + blockIdx.x);
        }
    }
    if (last_block(&state->tickets[3], gridDim.x) && threadIdx.x == 0) {
        /* The host says which rows are next. */
        end_local(state, args.results, args.results_count, args.retires);
    }
}
