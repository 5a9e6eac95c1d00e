/* A slice of sparse entries: 32 threads, each its own row or cell, and its own stack of waiting
 * nodes in shared memory ([depth][256], this thread's column). */
#ifndef COPPELIUS_GPU_KERNELS_SLICE_CUH
#define COPPELIUS_GPU_KERNELS_SLICE_CUH

#include "gpu/kernels/device.cuh"

#define SPARSE_BLOCK 256
#define AHEAD        4 /* entries in flight a thread */

struct tree_sum {
    double top;
    double *slot; /* where `top` would be pushed; the first push is of a value nobody reads */
};

/* high: the entry's upper half. Half of all terms complete a node at once, without the stack. */
__device__ static inline void take(tree_sum &sum, uint32_t high, double term)
{
    const uint32_t folds = high >> (ENTRY_FOLDS - 32);
    const double before = sum.top;
    sum.top = folds != 0 ? before + term : term;
    if (folds == 0) {
        *sum.slot = before;
        sum.slot += SPARSE_BLOCK;
    } else {
        double *const end = sum.slot - (folds - 1) * SPARSE_BLOCK;
        while (sum.slot != end) {
            sum.slot -= SPARSE_BLOCK;
            sum.top = *sum.slot + sum.top;
        }
    }
}

/* Hands every entry of a slice to `use(rank, entry)`, a thread its own. Rank by rank: the longest
 * rows are the lowest lanes, so those that still have an entry are the first lanes and their
 * entries lie side by side. Ranks that every lane has come first, without questions. */
template <class USE>
__device__ static inline void each_entry(const uint64_t *entries, uint32_t length, int lane,
                                         USE &use)
{
    const uint32_t longest = __shfl_sync(ALL, length, 0);
    const uint32_t shortest = __shfl_sync(ALL, length, WARP - 1);
    const uint64_t *next = entries + lane;
    uint32_t rank = 0;
    for (; rank + AHEAD <= shortest; rank += AHEAD) {
        uint64_t entry[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            entry[k] = __ldcs((const unsigned long long *)next + k * WARP);
        }
        next += AHEAD * WARP;
        use(entry);
    }
    for (; rank < longest; rank++) {
        const bool mine = rank < length;
        uint64_t entry[1] = {0};
        if (mine) {
            entry[0] = __ldcs((const unsigned long long *)next);
        }
        next += __popc(__ballot_sync(ALL, mine));
        if (mine) {
            use(entry);
        }
    }
}

#endif
