/* Tiles: the layout of the fused step (panel, lane, pass, column), made from columns; and the two
 * passes over it in parts, for a session that owns everything but is driven chunk by chunk. */
#include "gpu/kernels/tile.cuh"

/* A block takes 32 columns and 32 lanes of a panel: 16 transposes of 32 x 32. */
extern "C" __global__ void __launch_bounds__(256) pack_tiles(const pack_args args)
{
    __shared__ float square[WARP][WARP + 1];
    const uint64_t column_first = (uint64_t)blockIdx.x * WARP;
    const unsigned lane_first = blockIdx.y * WARP;
    const uint64_t panel = blockIdx.z;
    const unsigned x = threadIdx.x % WARP;
    for (unsigned pass = 0; pass < PASSES; pass++) {
        for (unsigned c = threadIdx.x / WARP; c < WARP; c += 8) {
            const uint64_t column = column_first + c;
            const uint64_t row = panel * PANEL_ROWS + pass * PANEL_LANES + lane_first + x;
            float value = 0.0F;
            if (row < args.rows) {
                if (column < args.columns) {
                    value = args.staged[column * args.staged_rows + row];
                } else if (column == args.ones) {
                    value = 1.0F;
                }
            }
            square[c][x] = value;
        }
        __syncthreads();
        for (unsigned l = threadIdx.x / WARP; l < WARP; l += 8) {
            const uint64_t at =
                ((args.panel_first + panel) * PANEL_LANES + lane_first + l) * PASSES + pass;
            if (column_first + x < args.row_floats) {
                args.tiles[at * args.row_floats + column_first + x] = square[x][l];
            }
        }
        __syncthreads();
    }
}

__device__ static inline uint64_t tile_row(uint64_t row)
{
    const uint64_t in = row % PANEL_ROWS;
    return row / PANEL_ROWS * PANEL_ROWS + in % PANEL_LANES * PASSES + in / PANEL_LANES;
}

/* A thread a row: the values of the canonical nodes. The view's first row begins a panel. */
extern "C" __global__ void __launch_bounds__(256) forward_tiles(const tiles_args args)
{
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row < args.view.rows_count) {
        const float *x = args.tiles + tile_row(args.view.row_first + row) * args.row_floats;
        uint64_t column = 0;
        for (uint64_t node = 0; node < args.nodes_count; node++) {
            double stack[16];
            double root = 0.0;
            const uint64_t first = column;
            for (; column < args.node_ends[node]; column++) {
                const float one = column == args.intercept ? 1.0F : x[column];
                root = push<16>(stack, column - first, product(args.w32[column], one));
            }
            args.values[node * args.view.rows_count + row] = root;
        }
    }
    retire(args.state, 0, args.retires);
}

/* A thread a column of a panel: 128 lanes of 16 rows each, folded as they end. */
extern "C" __global__ void __launch_bounds__(128) backward_tiles(const tiles_args args)
{
    const uint64_t column = (uint64_t)blockIdx.y * blockDim.x + threadIdx.x;
    const uint64_t first = (uint64_t)blockIdx.x * PANEL_ROWS;
    const float *residual = args.residual32 + args.view.place + first;
    const uint64_t left = args.view.rows_count - first;
    if (column < args.columns) {
        const float *x = args.tiles + (args.view.row_first + first) * args.row_floats;
        double stack[7];
        double root = 0.0;
        for (unsigned lane = 0; lane < PANEL_LANES; lane++) {
            double sum = 0.0;
            for (unsigned pass = 0; pass < PASSES; pass++) {
                const unsigned row = pass * PANEL_LANES + lane;
                const float r = row < left ? residual[row] : 0.0F;
                const float one = column == args.intercept
                                      ? 1.0F
                                      : x[(lane * PASSES + pass) * args.row_floats + column];
                sum = sum + product(r, one);
            }
            root = push<7>(stack, lane, sum);
        }
        const uint64_t panel = args.view.place / PANEL_ROWS + blockIdx.x;
        args.partials[panel * args.columns_stride + column] = root;
    }
    retire(args.state, 1, args.retires);
}
