/* What all kernels share: the rows of a launch, the issue counter, small trees in registers. */
#ifndef COPPELIUS_GPU_KERNELS_DEVICE_CUH
#define COPPELIUS_GPU_KERNELS_DEVICE_CUH

#include <stdint.h>

#include "gpu/kernels/params.h"
#include "numerics/lane.h"
#include "numerics/squared.h"

#define WARP 32
#define ALL  0xffffffffU

/* The rows that a launch works on. */
struct rows_here {
    uint64_t row_first; /* in the matrix */
    uint64_t count;
    uint64_t place; /* of the first in the step */
    uint64_t step;
    uint64_t step_rows;
    uint64_t slot;
};

__device__ static inline rows_here rows_of(const row_view &view, const step_state *state)
{
    rows_here here = {view.row_first, view.rows_count, view.place, view.step, view.step_rows, 0};
    if (view.local != 0) {
        here.row_first = state->row_first;
        here.count = state->rows_count;
        here.place = 0;
        here.step = state->step;
        here.step_rows = state->rows_count;
        here.slot = state->slot;
    }
    return here;
}

/* Called by every thread of every block as its last act: true in the block that finishes last, to
 * which the others' writes are visible. */
__device__ static inline bool last_block(uint64_t *ticket, uint64_t blocks)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned long long before = atomicAdd((unsigned long long *)ticket, 1ULL);
        last = before + 1 == blocks;
        if (last) {
            *ticket = 0;
            __threadfence();
        }
    }
    __syncthreads();
    return last;
}

/* The block that finishes last counts the submission's issues. */
__device__ static inline void retire(step_state *state, int kind, uint64_t issues)
{
    if (issues != 0 && last_block(&state->tickets[kind], (uint64_t)gridDim.x * gridDim.y) &&
        threadIdx.x == 0) {
        *state->issues += issues;
    }
}

/* Remembers the first step, and there the lowest place, with a value out of range. Steps run one
 * after the other: who finds an earlier step's mark leaves it. */
__device__ static inline void bad_value(step_state *state, uint64_t step, uint64_t place)
{
    unsigned long long before =
        atomicMin((unsigned long long *)&state->bad_step, (unsigned long long)step);
    if (before >= step) {
        atomicMin((unsigned long long *)&state->bad_place, (unsigned long long)place);
    }
}

/* Panel losses of the fused step, from those of its units; all threads of one block. */
__device__ static inline void fold_units(const double *units, uint64_t panels, double *losses)
{
    for (uint64_t panel = threadIdx.x; panel < panels; panel += blockDim.x) {
        const double *u = units + panel * UNITS_A_PANEL;
        losses[panel] = ((u[0] + u[1]) + (u[2] + u[3])) + ((u[4] + u[5]) + (u[6] + u[7]));
    }
}

/* The end of a local step, one thread, behind last_block(): the counter, what the host waits for
 * (`done` only behind everything that the step wrote to its memory), the ring. */
__device__ static inline void end_local(step_state *state, step_result *results,
                                        uint64_t results_count, uint64_t retires)
{
    step_result *result = results + state->slot;
    *state->issues += retires;
    result->bad_step = state->bad_step;
    result->bad_place = state->bad_place;
    result->issues = *state->issues;
    state->sequence += 1;
    state->slot = state->slot + 1 < results_count ? state->slot + 1 : 0;
    __threadfence_system();
    *(volatile uint64_t *)&result->done = state->sequence;
}

/* Moves the state on to the batch that follows. One thread. */
__device__ static inline void next_batch(step_state *state, uint64_t rows_total,
                                         uint64_t batch_rows)
{
    uint64_t next = state->row_first + batch_rows;
    next = next < rows_total ? next : 0;
    uint64_t left = rows_total - next;
    state->row_first = next;
    state->rows_count = left < batch_rows ? left : batch_rows;
    state->step += 1;
}

/* A binary counter of nodes in registers: the loop is unrolled, so no index is a run-time one.
 * count: terms of this level before this one. Returns what was placed: behind the last term of a
 * power of two, the root. */
template <int LEVELS>
__device__ static inline double push(double (&stack)[LEVELS], uint64_t count, double value)
{
    bool placed = false;
#pragma unroll
    for (int level = 0; level < LEVELS; level++) {
        if (!placed) {
            if ((count >> level & 1) == 0) {
                stack[level] = value;
                placed = true;
            } else {
                value = stack[level] + value;
            }
        }
    }
    return value;
}

/* The dyadic sum of the first `count` values of a stride, padded by +0.0; at most
 * 16 * 2^(STRIDED_LEVELS - 1) of them, 16 in flight. */
template <int STRIDED_LEVELS>
__device__ static inline double strided_sum(const double *values, uint64_t stride, uint64_t count)
{
    double stack[STRIDED_LEVELS];
    double root = 0.0;
    uint64_t blocks = 1; /* a power of two: the last push places the root */
    while (blocks * 16 < count) {
        blocks *= 2;
    }
    for (uint64_t block = 0; block < blocks; block++) {
        double v[16];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            v[i] = block * 16 + i < count ? values[(block * 16 + i) * stride] : 0.0;
        }
#pragma unroll
        for (int width = 8; width > 0; width /= 2) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                if (i < width) {
                    v[i] = v[2 * i] + v[2 * i + 1];
                }
            }
        }
        root = push<STRIDED_LEVELS>(stack, block, v[0]);
    }
    return root;
}

__device__ static inline uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The 128 lanes' dyadic sum, where thread t of a warp holds lanes 4t .. 4t+3. Addition commutes bit
 * for bit, so both partners of a shuffle hold left + right. */
__device__ static inline double lanes_root_warp(const double (&lane)[4])
{
    double sum = (lane[0] + lane[1]) + (lane[2] + lane[3]);
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        sum = sum + __shfl_xor_sync(ALL, sum, step);
    }
    return sum;
}

/* A panel's loss: 0.5 * r * r over the lanes, for a whole block (at least 128 threads). */
__device__ static inline void panel_loss(const double *residual, uint64_t count, double *ret_loss)
{
    __shared__ double lanes[PANEL_LANES];
    unsigned lane = threadIdx.x;
    if (lane < PANEL_LANES) {
        double sum = 0.0;
        double r[PANEL_ROWS / PANEL_LANES];
#pragma unroll
        for (unsigned pass = 0; pass < PANEL_ROWS / PANEL_LANES; pass++) {
            uint64_t row = (uint64_t)pass * PANEL_LANES + lane;
            r[pass] = row < count ? residual[row] : 0.0;
        }
#pragma unroll
        for (unsigned pass = 0; pass < PANEL_ROWS / PANEL_LANES; pass++) {
            sum = sum + squared_loss(r[pass]);
        }
        lanes[lane] = sum;
    }
    __syncthreads();
    if (lane < WARP) {
        double four[4] = {lanes[4 * lane], lanes[4 * lane + 1], lanes[4 * lane + 2],
                          lanes[4 * lane + 3]};
        double sum = lanes_root_warp(four);
        if (lane == 0) {
            *ret_loss = sum;
        }
    }
}

#endif
