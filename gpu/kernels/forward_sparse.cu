/* Forward pass over sparse columns:  z_i = canon(dyadic_j product(w_j, x_ij)) over a row's entries.
 *
 * A thread takes a row, a warp a slice of 32 rows (params.h has the layout), then the slice that is
 * a stride further on. Entries come in the order in which the tree is summed with the least waiting
 * (gpu/sparse_order.h); how many nodes a term completes was worked out when the matrix was loaded.
 * The parameters lie in shared memory where they fit. A zero term that is not stored changes no
 * bit. */
#include "gpu/kernels/slice.cuh"

#define SLOT_BYTES (FORWARD_SPARSE_THREADS * 8U)

/* PARTS: the canonical nodes' values go out one by one; else everything stays on the stack.
 * SHARED: the parameters lie in shared memory, at w. */
template <bool PARTS, bool SHARED> struct rows_of_entries {
    const forward_sparse_args &args;
    const rows_here &here;
    uint32_t bottom;
    uint32_t w;
    tree_sum<SLOT_BYTES> sum;
    uint32_t item; /* the row; others than the launch's come along where a window begins before it */
    double y;
    uint32_t node;
    uint32_t node_end; /* local: below 2^25, or as good as that */

    __device__ inline uint64_t row() const
    {
        return (uint64_t)item - here.row_first;
    }

    __device__ inline void begin(uint32_t next, uint32_t slice)
    {
        item = next;
        sum.top = 0.0;
        sum.slot = bottom;
        if (PARTS) {
            node = 0;
            node_end = (uint32_t)args.node_ends[0];
        } else {
            y = row() < here.count
                    ? __ldcs(args.y + (uint64_t)slice * SLICE + threadIdx.x % WARP)
                    : 0.0;
        }
    }

    __device__ inline void end_node()
    {
        if (row() < here.count) {
            args.values[node * here.count + row()] = sum.slot != bottom ? sum.top : 0.0;
        }
        sum.slot = bottom;
        node++;
    }

    __device__ inline float parameter(uint32_t high) const
    {
        const uint32_t column = high & (uint32_t)(ENTRY_COLUMNS - 1);
        if (!SHARED) {
            return __ldg(args.w32 + column);
        }
        float value;
        asm("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(w + column * 4));
        return value;
    }

    /* FULL: all of them are there. */
    template <bool FULL>
    __device__ inline void take(const uint64_t (&entry)[AHEAD], uint32_t count)
    {
        float value[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            value[k] = parameter((uint32_t)(entry[k] >> 32));
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t high = (uint32_t)(entry[k] >> 32);
            if (FULL || k < count) {
                if (PARTS) {
                    while ((high & (uint32_t)(ENTRY_COLUMNS - 1)) >= node_end) {
                        end_node();
                        node_end = (uint32_t)args.node_ends[node];
                    }
                }
                add_term(sum, high, product(value[k], __uint_as_float((uint32_t)entry[k])));
            }
        }
    }

    __device__ inline void end()
    {
        if (PARTS) {
            while (node < args.nodes_count) {
                end_node();
            }
        } else if (row() < here.count) {
            /* What is right of a node is folded before it; the lowest slot holds nothing. */
            double z = sum.slot != bottom ? sum.top : 0.0;
            while (sum.slot > bottom + SLOT_BYTES) {
                sum.slot -= SLOT_BYTES;
                z = load_slot(sum.slot) + z;
            }
            const double r = squared_residual(canon(z), y);
            args.residual[here.place + row()] = r; /* the backward pass rounds it */
            if (!finite32(rn32(r))) {
                bad_value(args.state, here.step, BAD_ROW(item));
            }
        }
    }
};

template <bool PARTS, bool SHARED>
__device__ static inline void sum_rows(const forward_sparse_args &args, const rows_here &here,
                                       const slices_here &slices, uint32_t bottom, uint32_t w)
{
    rows_of_entries<PARTS, SHARED> use = {args, here, bottom, w, {0.0, bottom}, 0, 0.0, 0, 0};
    each_slice(slices, threadIdx.x % WARP, use);
}

extern "C" __global__ void __launch_bounds__(FORWARD_SPARSE_THREADS, FORWARD_SPARSE_BLOCKS)
    forward_sparse(const forward_sparse_args args)
{
    extern __shared__ double shared[]; /* [depth][threads], the parameters */
    const uint32_t bottom = shared_address(shared + threadIdx.x);
    const uint32_t w = shared_address(shared + args.depth * FORWARD_SPARSE_THREADS);
    const rows_here here = rows_of(args.view, args.state);
    /* Slices of all windows that the rows touch. */
    const uint64_t window_slices = args.window / SLICE;
    const uint64_t first = here.row_first / args.window * window_slices;
    const uint64_t last = (here.row_first + here.count + args.window - 1) / args.window;
    const slices_here slices = {
        args.slices,
        args.order,
        args.lengths,
        args.entries,
        (uint32_t)first + threadIdx.x / WARP * gridDim.x + blockIdx.x,
        (uint32_t)smaller(last * window_slices, args.slices_count),
        gridDim.x * (FORWARD_SPARSE_THREADS / WARP)};
    if (args.w32_shared != 0) {
        float *to = (float *)(shared + args.depth * FORWARD_SPARSE_THREADS);
        for (uint64_t column = threadIdx.x; column < args.w32_shared;
             column += FORWARD_SPARSE_THREADS) {
            to[column] = args.w32[column];
        }
        __syncthreads();
    }
    if (args.values != nullptr) {
        if (args.w32_shared != 0) {
            sum_rows<true, true>(args, here, slices, bottom, w);
        } else {
            sum_rows<true, false>(args, here, slices, bottom, w);
        }
    } else if (args.w32_shared != 0) {
        sum_rows<false, true>(args, here, slices, bottom, w);
    } else {
        sum_rows<false, false>(args, here, slices, bottom, w);
    }
    retire(args.state, 0, args.retires);
}
