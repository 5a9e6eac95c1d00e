/* Forward pass over dense columns:  z_i = canon(dyadic_j product(w_j, x_ij)),  r_i = z_i - y_i.
 *
 * x (rows x columns, column-major binary32), w (columns). A block of 8 warps takes a tile of 128
 * rows, or 8 / column_warps of them; a thread holds 4 rows (one 16-byte load a column). Each
 * warp sums whole subtrees ("segments", at most 128 columns, 16 columns at a time, all in
 * registers); shared memory keeps the segments' values, and one thread a row folds them along the
 * tree: a stack with one slot a level. Every add is the tree's, whatever the cut of the columns.
 * Out: the values of the canonical nodes (others own columns too), or the root and the residual. */
#include "gpu/kernels/device.cuh"

#define TILE_ROWS 128
#define WARPS     8
#define BLOCK     16 /* columns in flight a thread */

struct four {
    double row[4];
};

__device__ static inline float4 load_column(const forward_dense_args &args, uint64_t column,
                                            uint64_t row)
{
    if (column == args.intercept) {
        return make_float4(1.0F, 1.0F, 1.0F, 1.0F);
    }
    const float *x = args.x + column * args.ld + row;
    if ((row & 3) != 0) { /* a batch that begins between 16-byte boundaries */
        return make_float4(__ldg(x), __ldg(x + 1), __ldg(x + 2), __ldg(x + 3));
    }
    return __ldcs((const float4 *)x);
}

/* The value of 2^LEVEL columns from `column` on, for the thread's 4 rows. */
template <int LEVEL> struct subtree {
    static constexpr int COLUMNS = 1 << LEVEL;
    static __device__ inline four fold(const float4 *x, const float *w)
    {
        four left = subtree<LEVEL - 1>::fold(x, w);
        four right = subtree<LEVEL - 1>::fold(x + COLUMNS / 2, w + COLUMNS / 2);
        four sum;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            sum.row[r] = left.row[r] + right.row[r];
        }
        return sum;
    }
};

template <> struct subtree<0> {
    static __device__ inline four fold(const float4 *x, const float *w)
    {
        four term;
        term.row[0] = product(w[0], x[0].x);
        term.row[1] = product(w[0], x[0].y);
        term.row[2] = product(w[0], x[0].z);
        term.row[3] = product(w[0], x[0].w);
        return term;
    }
};

template <int LEVEL>
__device__ static inline four small(const forward_dense_args &args, uint64_t column, uint64_t row)
{
    float4 x[1 << LEVEL];
    float w[1 << LEVEL];
#pragma unroll
    for (int c = 0; c < 1 << LEVEL; c++) {
        x[c] = load_column(args, column + c, row);
        w[c] = __ldg(args.w32 + column + c);
    }
    return subtree<LEVEL>::fold(x, w);
}

__device__ static inline four segment_value(const forward_dense_args &args, const segment &piece,
                                            uint64_t row)
{
    switch (piece.level) {
    case 0:
        return small<0>(args, piece.first, row);
    case 1:
        return small<1>(args, piece.first, row);
    case 2:
        return small<2>(args, piece.first, row);
    case 3:
        return small<3>(args, piece.first, row);
    default:
        break;
    }
    double stack[4][3]; /* [row][level above 16 columns] */
    four root;
    const uint32_t blocks = 1U << (piece.level - 4);
    for (uint32_t block = 0; block < blocks; block++) {
        four value = small<4>(args, piece.first + (uint64_t)block * BLOCK, row);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            root.row[r] = push<3>(stack[r], block, value.row[r]);
        }
    }
    return root;
}

extern "C" __global__ void __launch_bounds__(256, 2) forward_dense(const forward_dense_args args)
{
    extern __shared__ double shared[];
    const rows_here here = rows_of(args.view, args.state);
    const unsigned warps = (unsigned)args.column_warps;
    const unsigned tiles = WARPS / warps;
    const unsigned block_rows = tiles * TILE_ROWS;
    double *slots = shared;                         /* [2][WARPS][TILE_ROWS] */
    double *stack = shared + 2 * WARPS * TILE_ROWS; /* [levels][block_rows] */
    const unsigned warp = threadIdx.x / WARP;
    const unsigned lane = threadIdx.x % WARP;
    const uint64_t tile_first = (uint64_t)blockIdx.x * block_rows;
    const uint64_t my_row = tile_first + warp / warps * TILE_ROWS + lane * 4;
    const bool mine = my_row < here.count;
    const uint32_t segments = (uint32_t)args.segments_count;
    const uint32_t rounds = (segments + warps - 1) / warps;

    if (tile_first < here.count) {
        for (uint32_t round = 0; round < rounds; round++) {
            double *slot = slots + (round & 1) * WARPS * TILE_ROWS;
            uint32_t piece = round * warps + warp % warps;
            if (piece < segments && mine) {
                four value = segment_value(args, args.segments[piece], here.row_first + my_row);
                double2 *out = (double2 *)(slot + warp * TILE_ROWS + lane * 4);
                out[0] = make_double2(value.row[0], value.row[1]);
                out[1] = make_double2(value.row[2], value.row[3]);
            }
            __syncthreads();
            for (unsigned row = threadIdx.x; row < block_rows; row += blockDim.x) {
                if (tile_first + row >= here.count) {
                    continue;
                }
                for (unsigned s = 0; s < warps && round * warps + s < segments; s++) {
                    const segment part = args.segments[round * warps + s];
                    double value =
                        slot[(row / TILE_ROWS * warps + s) * TILE_ROWS + row % TILE_ROWS];
                    uint64_t index = part.index;
                    uint32_t level = part.level;
                    for (; level < part.node_level && (index & 1) != 0; level++, index >>= 1) {
                        value = stack[level * block_rows + row] + value;
                    }
                    if (level == part.node_level && args.values != nullptr) {
                        args.values[part.node * here.count + tile_first + row] = value;
                    } else {
                        stack[level * block_rows + row] = value;
                    }
                }
            }
        }
        if (args.values == nullptr) {
            /* The range begins at 0: its nodes' levels are the ones of its length, and what lies
             * right of a node is folded before it. */
            const segment last = args.segments[segments - 1];
            const uint64_t columns = (uint64_t)last.first + (1ULL << last.level);
            for (unsigned row = threadIdx.x; row < block_rows; row += blockDim.x) {
                if (tile_first + row >= here.count) {
                    continue;
                }
                bool any = false;
                double z = 0.0;
                for (uint32_t level = 0; level < args.levels; level++) {
                    if ((columns >> level & 1) != 0) {
                        double value = stack[level * block_rows + row];
                        z = any ? value + z : value;
                        any = true;
                    }
                }
                z = canon(z);
                uint64_t at = here.place + tile_first + row;
                double r = squared_residual(z, args.y[here.row_first + tile_first + row]);
                float rounded = rn32(r);
                args.residual[at] = r;
                args.residual32[at] = rounded;
                if (!finite32(rounded)) {
                    bad_value(args.state, here.step, BAD_ROW(here.row_first + tile_first + row));
                }
            }
        }
    }
    retire(args.state, 0, args.retires);
}
