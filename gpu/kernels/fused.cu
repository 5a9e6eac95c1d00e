/* A whole local step's passes with the matrix read once from memory:
 *   z_i = canon(dyadic_j product(w_j, x_ij)),  r_i = z_i - y_i,
 *   lane sums of product(r_i, x_ij) and of 0.5 r_i^2.
 *
 * The tile of a lane is its 16 rows of a panel (rows lane, lane + 128, …), all columns: with these
 * rows together a lane's sums are complete within its tile, so nothing but a stack of finished
 * nodes lives from tile to tile. A team of CT threads (4 columns a thread) takes a unit of 16
 * lanes, tile after tile:
 *
 *   tile in shared memory (bulk copy, one tile ahead) -> registers -> the next copy is issued
 *   forward: 16 row sums a thread, folded along the tree by shuffles (neighbours first; half of the
 *   rows go each way, so a lane ends with one row), across warps by shared memory
 *   residual: a lane a row; spread to the warp through shared memory
 *   backward: 4 lane sums a thread, rows in order, out of the registers
 *   a binary counter in shared memory folds the 16 lanes; the unit's sums go to memory
 *
 * Teams of a block run apart, so that one's arithmetic hides the other's waits. No grid barrier. */
#include "gpu/kernels/tile.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ static inline uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

__device__ static inline void copy_start(void *to, const void *from, uint32_t bytes,
                                         uint64_t *barrier)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ static inline void copy_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

template <int CT> __device__ static inline void team_barrier(int team)
{
    if (CT == WARP) {
        __syncwarp();
    } else {
        asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(CT) : "memory");
    }
}

/* The dyadic sum over the warps of a team. */
template <int W> __device__ static inline double warps_sum(const double *part, int row)
{
    if (W == 1) {
        return part[row];
    }
    double v[W];
#pragma unroll
    for (int w = 0; w < W; w++) {
        v[w] = part[w * PASSES + row];
    }
#pragma unroll
    for (int width = W / 2; width > 0; width /= 2) {
#pragma unroll
        for (int w = 0; w < width; w++) {
            v[w] = v[2 * w] + v[2 * w + 1];
        }
    }
    return v[0];
}

template <int CT> __device__ static inline void fused_step(const fused_args &args)
{
    constexpr int TEAMS = FUSED_THREADS / CT;
    constexpr int W = CT / WARP;
    extern __shared__ __align__(128) unsigned char arena[];
    __shared__ __align__(8) uint64_t barriers[TEAMS];
    __shared__ __align__(16) float residuals[FUSED_THREADS / WARP][PASSES];
    __shared__ double parts[TEAMS][2][W][PASSES];
    __shared__ double extra[TEAMS][FUSED_LEVELS][2]; /* loss and intercept */
    const int team = threadIdx.x / CT;
    const int t = threadIdx.x % CT;
    const int warp = t / WARP;
    const int lane = t % WARP;
    const uint32_t tile_bytes = (uint32_t)(PASSES * args.row_floats * sizeof(float));
    float *tile = (float *)(arena + team * (uint64_t)tile_bytes);
    double2 *stack = (double2 *)(arena + TEAMS * (uint64_t)tile_bytes) +
                     (uint64_t)team * FUSED_LEVELS * 2 * CT + t; /* [level][half][CT] */
    const step_state *state = args.state;
    const uint64_t rows_count = state->rows_count;
    const uint64_t units = panels_of(rows_count) * UNITS_A_PANEL;
    const uint64_t unit_first = state->row_first / PANEL_ROWS * UNITS_A_PANEL;
    const uint64_t stride = (uint64_t)gridDim.x * TEAMS;
    const uint64_t mine = blockIdx.x + (uint64_t)team * gridDim.x;
    const bool stored = (uint64_t)t * 4 < args.row_floats;
    const float4 w = stored ? ((const float4 *)args.w32)[t] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    const float w_outside = args.outside != NO_COLUMN ? args.w32[args.outside] : 0.0F;
    const int my_row = row_of_lane(lane);
    uint64_t *barrier = &barriers[team];
    uint32_t parity = 0;
    int buffer = 0;

    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (mine < units) {
            copy_start(tile,
                       args.tiles + (unit_first + mine) * UNIT_LANES * PASSES * args.row_floats,
                       tile_bytes, barrier);
        }
    }
    __syncthreads();

    for (uint64_t unit = mine; unit < units; unit += stride) {
#pragma unroll 1
        for (int l = 0; l < UNIT_LANES; l++) {
            const uint64_t here = unit * UNIT_LANES + l; /* the tile, in the step */
            const double y =
                __ldg(args.y_tiles + (unit_first * UNIT_LANES + here) * PASSES + my_row);
            copy_wait(barrier, parity);
            parity ^= 1;
            float4 x[PASSES];
#pragma unroll
            for (int p = 0; p < PASSES; p++) {
                x[p] = stored ? *(const float4 *)(tile + p * args.row_floats + t * 4)
                              : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            }
            const double sum = tile_rows(x, w, lane);
            if (W > 1 && lane < PASSES) {
                parts[team][buffer][warp][my_row] = sum;
            }
            team_barrier<CT>(team); /* parts are there, and the tile is in registers */
            if (t == 0) {
                const uint64_t next_unit = l + 1 < UNIT_LANES ? unit : unit + stride;
                if (next_unit < units) {
                    const uint64_t next = l + 1 < UNIT_LANES ? here + 1 : next_unit * UNIT_LANES;
                    copy_start(tile,
                               args.tiles +
                                   (unit_first * UNIT_LANES + next) * PASSES * args.row_floats,
                               tile_bytes, barrier);
                }
            }
            double z = W > 1 ? warps_sum<W>(&parts[team][buffer][0][0], my_row) : sum;
            buffer ^= 1;
            if (args.outside != NO_COLUMN) {
                z = z + product(w_outside, 1.0F);
            }
            z = canon(z);
            const uint64_t row =
                here / PANEL_LANES * PANEL_ROWS + my_row * PANEL_LANES + here % PANEL_LANES;
            double r = 0.0;
            if (row < rows_count) {
                r = squared_residual(z, y);
            }
            const float r32 = rn32(r);
            if (warp == 0 && !finite32(r32)) {
                bad_value(args.state, state->step, BAD_ROW(state->row_first + row));
            }
            float *spread = residuals[threadIdx.x / WARP];
            if (lane < PASSES) {
                spread[my_row] = r32;
            }
            __syncwarp();
            double g[4];
            tile_lanes(x, spread, g);
            __syncwarp(); /* before the next tile's residuals */
            int level = 0;
#pragma unroll 1
            for (; (l >> level & 1) != 0; level++) {
                const double2 low = stack[(level * 2) * CT];
                const double2 high = stack[(level * 2 + 1) * CT];
                g[0] = low.x + g[0];
                g[1] = low.y + g[1];
                g[2] = high.x + g[2];
                g[3] = high.y + g[3];
            }
            if (l + 1 < UNIT_LANES) {
                stack[(level * 2) * CT] = make_double2(g[0], g[1]);
                stack[(level * 2 + 1) * CT] = make_double2(g[2], g[3]);
            } else if (stored && args.evaluate == 0) {
                double2 *out =
                    (double2 *)(args.partials + unit * args.columns_stride + (uint64_t)t * 4);
                out[0] = make_double2(g[0], g[1]);
                out[1] = make_double2(g[2], g[3]);
            }
            if (warp == 0) {
                double loss = tile_sum(squared_loss(r));
                double ones = tile_sum(product(r32, 1.0F));
                if (lane == 0) {
                    for (int k = 0; k < level; k++) {
                        loss = extra[team][k][0] + loss;
                        ones = extra[team][k][1] + ones;
                    }
                    if (l + 1 < UNIT_LANES) {
                        extra[team][level][0] = loss;
                        extra[team][level][1] = ones;
                    } else {
                        args.unit_losses[unit] = loss;
                        if (args.outside != NO_COLUMN && args.evaluate == 0) {
                            args.partials[unit * args.columns_stride + args.outside] = ones;
                        }
                    }
                }
            }
        }
    }
}

#define FUSED(ct)                                                  \
    extern "C" __global__ void __launch_bounds__(FUSED_THREADS, 1) \
        fused_##ct(const fused_args args)                          \
    {                                                              \
        fused_step<ct>(args);                                      \
    }

#else /* no bulk copies before sm_90: there the host takes the two passes */

#define FUSED(ct)                                                  \
    extern "C" __global__ void __launch_bounds__(FUSED_THREADS, 1) \
        fused_##ct(const fused_args args)                          \
    {                                                              \
        (void)args;                                                \
        __trap();                                                  \
    }

#endif

FUSED(32)
FUSED(64)
FUSED(128)
FUSED(256)
