/* A lane's tile: its 16 rows of a panel (rows lane, lane + 128, …), 4 columns a thread of a warp.
 */
#ifndef COPPELIUS_GPU_KERNELS_TILE_CUH
#define COPPELIUS_GPU_KERNELS_TILE_CUH

#include "gpu/kernels/device.cuh"

#define PASSES (PANEL_ROWS / PANEL_LANES)

/* Which of a tile's 16 rows a lane of a warp ends with. */
__device__ static inline int row_of_lane(int lane)
{
    return (lane >> 3 & 1) * 8 + (lane & 1) * 4 + (lane >> 1 & 1) * 2 + (lane >> 2 & 1);
}

__device__ static inline int lane_of_row(int row)
{
    return (row >> 3 & 1) * 8 + (row >> 2 & 1) + (row >> 1 & 1) * 2 + (row & 1) * 4;
}

/* 8 row sums a thread: after three exchanges each lane holds one row of the 8, over 8 lanes. */
__device__ static inline double exchange(const double (&s)[8], int lane)
{
    double a[4];
    double b[2];
    const bool one = (lane & 1) != 0;
    const bool two = (lane & 2) != 0;
    const bool four = (lane & 4) != 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        double sent = __shfl_xor_sync(ALL, one ? s[i] : s[i + 4], 1);
        a[i] = (one ? s[i + 4] : s[i]) + sent;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        double sent = __shfl_xor_sync(ALL, two ? a[i] : a[i + 2], 2);
        b[i] = (two ? a[i + 2] : a[i]) + sent;
    }
    double sent = __shfl_xor_sync(ALL, four ? b[0] : b[1], 4);
    return (four ? b[1] : b[0]) + sent;
}

/* The row sums of a warp's 128 columns: 16 rows of 4 columns a thread in, the sum of row
 * row_of_lane(lane) out (both halves of the warp hold all 16). Neighbours meet first. */
__device__ static inline double tile_rows(const float4 (&x)[PASSES], float4 w, int lane)
{
    double half[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        double s[8];
#pragma unroll
        for (int p = 0; p < 8; p++) {
            const float4 v = x[8 * h + p];
            s[p] =
                (product(w.x, v.x) + product(w.y, v.y)) + (product(w.z, v.z) + product(w.w, v.w));
        }
        half[h] = exchange(s, lane);
    }
    const bool eight = (lane & 8) != 0;
    double sum = (eight ? half[1] : half[0]) + __shfl_xor_sync(ALL, eight ? half[0] : half[1], 8);
    return sum + __shfl_xor_sync(ALL, sum, 16);
}

/* The lane sums of 4 columns a thread: rows in order. residuals: 16 of them, 16-byte aligned. */
__device__ static inline void tile_lanes(const float4 (&x)[PASSES], const float *residuals,
                                         double (&g)[4])
{
    g[0] = g[1] = g[2] = g[3] = 0.0;
#pragma unroll
    for (int quarter = 0; quarter < PASSES / 4; quarter++) {
        const float4 q = ((const float4 *)residuals)[quarter];
        const float r[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float4 v = x[4 * quarter + p];
            g[0] = g[0] + product(r[p], v.x);
            g[1] = g[1] + product(r[p], v.y);
            g[2] = g[2] + product(r[p], v.z);
            g[3] = g[3] + product(r[p], v.w);
        }
    }
}

/* Sums over a tile's rows, in order, of a value that lane lane_of_row(row) holds. */
__device__ static inline double tile_sum(double value)
{
    double sum = 0.0;
#pragma unroll
    for (int p = 0; p < PASSES; p++) {
        sum = sum + __shfl_sync(ALL, value, lane_of_row(p));
    }
    return sum;
}

#endif
