/* A slice of sparse entries: 32 threads, each its own row or cell, and its own stack of waiting
 * nodes in shared memory ([depth][threads of a block], this thread's column). */
#ifndef COPPELIUS_GPU_KERNELS_SLICE_CUH
#define COPPELIUS_GPU_KERNELS_SLICE_CUH

#include "gpu/kernels/device.cuh"

#define AHEAD 4 /* entries in flight a thread */

/* BYTES: from one slot of a thread's stack to the next. */
template <unsigned BYTES> struct tree_sum {
    static const unsigned bytes = BYTES;
    double top;
    uint32_t slot; /* shared address where `top` would be pushed; the first push is of a value nobody
                      reads */
};

__device__ static inline uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

__device__ static inline double load_slot(uint32_t slot)
{
    double value;
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(value) : "r"(slot) : "memory");
    return value;
}

__device__ static inline void store_slot(uint32_t slot, double value)
{
    asm volatile("st.shared.f64 [%0], %1;" : : "r"(slot), "d"(value) : "memory");
}

/* high: the entry's upper half. Half of all terms complete a node at once, without the stack; hardly
 * any completes more than three. */
template <unsigned SLOT_BYTES>
__device__ static inline void add_term(tree_sum<SLOT_BYTES> &sum, uint32_t high, double term)
{
    const uint32_t folds = high >> (ENTRY_FOLDS - 32);
    if (high < 1U << (ENTRY_FOLDS - 32)) {
        store_slot(sum.slot, sum.top);
    } else {
        term = sum.top + term;
    }
    if (folds > 1) {
        term = load_slot(sum.slot - SLOT_BYTES) + term;
    }
    if (folds > 2) {
        term = load_slot(sum.slot - 2 * SLOT_BYTES) + term;
    }
    sum.slot = sum.slot + SLOT_BYTES - folds * SLOT_BYTES;
    if (folds > 3) {
        uint32_t slot = sum.slot + (folds - 3) * SLOT_BYTES;
#pragma unroll 1
        do {
            slot -= SLOT_BYTES;
            term = load_slot(slot) + term;
        } while (slot != sum.slot);
    }
    sum.top = term;
}

/* AHEAD entries a thread of a slice, rank by rank: the longest rows are the lowest lanes, so those
 * that still have an entry are the first lanes and their entries lie side by side. Ranks that every
 * lane has come without questions; a missing entry is not read. */
__device__ static inline void fetch(uint64_t (&entry)[AHEAD], const unsigned long long *&next,
                                    uint32_t rank, uint32_t length, uint32_t shortest)
{
    if (rank + AHEAD <= shortest) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            entry[k] = __ldcs(next + k * WARP);
        }
        next += AHEAD * WARP;
    } else {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const bool mine = rank + k < length;
            entry[k] = 0;
            if (mine) {
                entry[k] = __ldcs(next);
            }
            next += __popc(__ballot_sync(ALL, mine));
        }
    }
}

/* Slices, of a form of the matrix. */
struct slices_here {
    const uint64_t *starts;
    const uint32_t *order;
    const uint32_t *lengths;
    const uint64_t *entries;
    uint32_t slice; /* the first for this warp, then every `stride`-th one before `end` */
    uint32_t end;
    uint32_t stride;
};

/* What a thread must know of its row or cell before its entries can be read. */
struct slice_head {
    uint32_t item;
    uint32_t length;
    const unsigned long long *next;
};

__device__ static inline slice_head head_of(const slices_here &here, uint32_t slice, int lane)
{
    slice_head head = {UINT32_MAX, 0, nullptr};
    if (slice < here.end) {
        head.item = __ldcs(here.order + (uint64_t)slice * SLICE + lane);
        head.length = __ldcs(here.lengths + (uint64_t)slice * SLICE + lane);
        head.next = (const unsigned long long *)here.entries + __ldg(here.starts + slice) + lane;
    }
    return head;
}

/* A warp's slices. For each: `use.begin(item, slice)`, then `use.take(entries, count)` with a thread's
 * entries in order, up to AHEAD at a time, then `use.end()`. The entries that follow travel
 * meanwhile, also those of the next slice, whose head is there by then: it came a slice ahead. */
template <class USE>
__device__ static inline void each_slice(const slices_here &here, int lane, USE &use)
{
    uint32_t slice = here.slice; /* all of a session's are fewer than 2^31 */
    slice_head now = head_of(here, slice, lane);
    slice_head later = head_of(here, slice + here.stride, lane);
    uint32_t longest = __shfl_sync(ALL, now.length, 0);
    uint32_t shortest = __shfl_sync(ALL, now.length, WARP - 1);
    uint64_t entry[AHEAD];
    fetch(entry, now.next, 0, now.length, shortest);
    while (slice < here.end) {
        const slice_head last = head_of(here, slice + 2 * here.stride, lane);
        use.begin(now.item, slice);
        slice += here.stride;
        uint32_t rank = 0;
        bool more;
        do {
            uint64_t ahead[AHEAD];
            const bool full = rank + AHEAD <= shortest;
            const uint32_t left = now.length > rank ? now.length - rank : 0;
            rank += AHEAD;
            more = rank < longest;
            if (more) {
                fetch(ahead, now.next, rank, now.length, shortest);
            } else {
                longest = __shfl_sync(ALL, later.length, 0);
                shortest = __shfl_sync(ALL, later.length, WARP - 1);
                fetch(ahead, later.next, 0, later.length, shortest);
            }
            if (full) {
                use.template take<true>(entry, AHEAD);
            } else {
                use.template take<false>(entry, left);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                entry[k] = ahead[k];
            }
        } while (more);
        use.end();
        now = later;
        later = last;
    }
}

#endif
