/* Tiled products with mma.sync (sm_80 and up), f32 accumulation. C = A B, + R; A by rows (m, k) or
 * columns (k, m), B by rows (n, k) or columns (k, n).
 *
 * A block makes a BM x BN tile of C, warps WM x WN of it; the summed dimension goes in steps of
 * BK = 32 through a ring of STAGES in shared memory, filled by cp.async 16 bytes a copy. Every
 * element of C is one chain of m16n8k16 products in order of k: its bits do not depend on m, n or
 * the grid.
 *
 * Shared tiles: by rows, (BM, 32) halves, the four 16-byte chunks of a row permuted by (row / 2)
 * mod 4; by columns, (32, BM), the low three bits of the chunk's number permuted by k mod 8:
 * ldmatrix reads eight rows without a bank conflict. */
#include "gpu/model/kernels/mma.cuh"
#include "gpu/model/tiles.h"

#define BK TILE_K

/* One operand's tile: SIZE of m or n by BK of k. */
template <bool COLUMNS, int SIZE, int THREADS> struct tile {
    static constexpr int bytes = SIZE * BK * 2;
    static constexpr int chunks = SIZE * BK / 8;
    static_assert(chunks % THREADS == 0, "copies are even over the threads");

    /* Byte of the chunk that holds (index, k). */
    __device__ static inline uint32_t place(uint32_t index, uint32_t k)
    {
        if (COLUMNS) {
            return k * (SIZE * 2) + ((index / 8) ^ (k % 8)) * 16;
        }
        return index * (BK * 2) + ((k / 8) ^ (index / 2 % 4)) * 16;
    }

    /* From the operand at (first, k): leading is its k (rows) or its m or n (columns). */
    __device__ static inline void fetch(uint32_t to, const half_t *from, uint32_t leading,
                                        uint32_t first, uint32_t k)
    {
#pragma unroll
        for (int i = 0; i < chunks / THREADS; i++) {
            const uint32_t chunk = i * THREADS + threadIdx.x;
            if (COLUMNS) {
                const uint32_t row = chunk / (SIZE / 8);
                const uint32_t index = chunk % (SIZE / 8) * 8;
                copy16(to + place(index, row),
                       from + (uint64_t)(k + row) * leading + first + index);
            } else {
                const uint32_t index = chunk / (BK / 8);
                const uint32_t row = chunk % (BK / 8) * 8;
                copy16(to + place(index, row),
                       from + (uint64_t)(first + index) * leading + k + row);
            }
        }
    }
};

template <bool A_COLUMNS, bool B_COLUMNS, int BM, int BN, int STAGES, int WARPS_M, int WARPS_N>
__device__ static inline void product(const model_arguments &args)
{
    constexpr int THREADS = WARPS_M * WARPS_N * 32;
    constexpr int WM = BM / WARPS_M;
    constexpr int WN = BN / WARPS_N;
    constexpr int MT = WM / 16;
    constexpr int NT = WN / 8;
    using tile_a = tile<A_COLUMNS, BM, THREADS>;
    using tile_b = tile<B_COLUMNS, BN, THREADS>;
    DYNAMIC_SHARED(ring);
    const uint32_t a_ring = shared_address(ring);
    const uint32_t b_ring = a_ring + STAGES * tile_a::bytes;

    const model_launch &l = args.launch;
    const half_t *a = operand<const half_t>(args, 0);
    const half_t *b = operand<const half_t>(args, 1);
    const uint32_t a_leading = A_COLUMNS ? l.m : l.k;
    const uint32_t b_leading = B_COLUMNS ? l.n : l.k;
    /* Blocks of a column of tiles follow each other in bands of 8 rows of tiles: B stays in L2. */
    const uint32_t tiles_n = l.n / BN;
    const uint32_t tiles_m = l.m / BM;
    const uint32_t band = blockIdx.x / (8 * tiles_n);
    const uint32_t band_rows = min(8U, tiles_m - band * 8);
    const uint32_t inside = blockIdx.x % (8 * tiles_n);
    const uint32_t row = (band * 8 + inside % band_rows) * BM;
    const uint32_t column = inside / band_rows * BN;

    const int lane = threadIdx.x % 32;
    const int warp_m = threadIdx.x / 32 / WARPS_N * WM;
    const int warp_n = threadIdx.x / 32 % WARPS_N * WN;
    float c[MT][NT][4] = {};
    const uint32_t steps = l.k / BK;

#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (stage < (int)steps) {
            tile_a::fetch(a_ring + stage * tile_a::bytes, a, a_leading, row, stage * BK);
            tile_b::fetch(b_ring + stage * tile_b::bytes, b, b_leading, column, stage * BK);
        }
        copy_commit();
    }
    for (uint32_t step = 0; step < steps; step++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        const uint32_t next = step + STAGES - 1;
        if (next < steps) {
            const uint32_t stage = next % STAGES;
            tile_a::fetch(a_ring + stage * tile_a::bytes, a, a_leading, row, next * BK);
            tile_b::fetch(b_ring + stage * tile_b::bytes, b, b_leading, column, next * BK);
        }
        copy_commit();
        const uint32_t a_tile = a_ring + step % STAGES * tile_a::bytes;
        const uint32_t b_tile = b_ring + step % STAGES * tile_b::bytes;
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            uint32_t fragment_a[MT][4];
            uint32_t fragment_b[NT / 2][4];
#pragma unroll
            for (int i = 0; i < MT; i++) { /* matrices: m, m + 8, then k + 8 */
                const int m = warp_m + i * 16 + (A_COLUMNS ? lane / 8 % 2 * 8 : lane % 16);
                const int kk = k + lane / 16 * 8 + (A_COLUMNS ? lane % 8 : 0);
                load_matrices<A_COLUMNS>(fragment_a[i], a_tile + tile_a::place(m, kk));
            }
#pragma unroll
            for (int j = 0; j < NT / 2; j++) { /* matrices: k, k + 8, then n + 8 */
                const int n = warp_n + j * 16 + lane / 16 * 8 + (B_COLUMNS ? 0 : lane % 8);
                const int kk = k + lane / 8 % 2 * 8 + (B_COLUMNS ? lane % 8 : 0);
                load_matrices<B_COLUMNS>(fragment_b[j], b_tile + tile_b::place(n, kk));
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    multiply(c[i][j], fragment_a[i], fragment_b[j / 2][j % 2 * 2],
                             fragment_b[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
    }
    copy_wait<0>();

#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const uint64_t at_row = row + warp_m + i * 16 + side * 8 + lane / 4;
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const uint64_t at = at_row * l.n + column + warp_n + j * 8 + lane % 4 * 2;
                float2 out = make_float2(c[i][j][side * 2], c[i][j][side * 2 + 1]);
                if (l.add != 0) {
                    const float2 r = *(const float2 *)&operand<const float>(args, 2)[at];
                    out = make_float2(out.x + r.x, out.y + r.y);
                }
                if (l.half_out != 0) {
                    *(uint32_t *)&operand<half_t>(args, 4)[at] = half_pair(out.x, out.y);
                } else {
                    *(float2 *)&operand<float>(args, 3)[at] = out;
                }
            }
        }
    }
}

#define PRODUCT(pattern, a, b, number, bm, bn, stages, wm, wn) \
    KERNEL(product_##pattern##number, (wm) * (wn)*32)          \
    {                                                          \
        product<a, b, bm, bn, stages, wm, wn>(args);           \
    }
#define PRODUCTS(number, bm, bn, stages, wm, wn)              \
    PRODUCT(rr, false, false, number, bm, bn, stages, wm, wn) \
    PRODUCT(rc, false, true, number, bm, bn, stages, wm, wn)  \
    PRODUCT(cc, true, true, number, bm, bn, stages, wm, wn)
MODEL_TILES(PRODUCTS)
