/* Forward pass over sparse columns:  z_i = canon(dyadic_j product(w_j, x_ij)) over a row's entries.
 *
 * A thread takes a row, a warp a slice of 32 rows (params.h has the layout). Entries come in the
 * order of their columns; how many nodes a term completes was worked out when the matrix was
 * loaded. A zero term that is not stored changes no bit. */
#include "gpu/kernels/slice.cuh"

/* PARTS: the canonical nodes' values go out one by one; else everything stays on the stack. */
template <bool PARTS> struct row_of_entries {
    const forward_sparse_args &args;
    const rows_here &here;
    tree_sum &sum;
    double *bottom;
    uint64_t row;
    bool mine;
    uint64_t node;
    uint64_t node_end;

    __device__ inline void end_node()
    {
        if (mine) {
            args.values[node * here.count + row] = sum.slot != bottom ? sum.top : 0.0;
        }
        sum.slot = bottom;
        node++;
    }

    template <int N> __device__ inline void operator()(const uint64_t (&entry)[N])
    {
        float w[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            w[k] = __ldg(args.w32 + ((uint32_t)(entry[k] >> 32) & (uint32_t)(ENTRY_COLUMNS - 1)));
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            const uint32_t high = (uint32_t)(entry[k] >> 32);
            if (PARTS) {
                while ((high & (uint32_t)(ENTRY_COLUMNS - 1)) >= node_end) {
                    end_node();
                    node_end = args.node_ends[node];
                }
            }
            take(sum, high, product(w[k], __uint_as_float((uint32_t)entry[k])));
        }
    }
};

extern "C" __global__ void __launch_bounds__(SPARSE_BLOCK, 5)
    forward_sparse(const forward_sparse_args args)
{
    extern __shared__ double shared[]; /* [levels + 2][SPARSE_BLOCK] */
    double *bottom = shared + threadIdx.x;
    const rows_here here = rows_of(args.view, args.state);
    const int lane = threadIdx.x % WARP;
    /* Slices of all windows that the rows touch. */
    const uint64_t slice = here.row_first / args.window * (args.window / SLICE) +
                           (uint64_t)blockIdx.x * (SPARSE_BLOCK / WARP) + threadIdx.x / WARP;
    uint64_t row = UINT64_MAX;
    if (slice < args.slices_count) {
        row = (uint64_t)args.order[slice * SLICE + lane] - here.row_first;
    }
    const bool mine = row < here.count; /* rows before the first wrapped around */
    if (__any_sync(ALL, mine)) {
        const uint32_t length = args.lengths[slice * SLICE + lane];
        const uint64_t *entries = args.entries + args.slices[slice];
        tree_sum sum = {0.0, bottom};
        if (args.values != nullptr) {
            row_of_entries<true> parts = {args, here, sum, bottom, row, mine, 0, args.node_ends[0]};
            each_entry(entries, length, lane, parts);
            while (parts.node < args.nodes_count) {
                parts.end_node();
            }
        } else {
            row_of_entries<false> whole = {args, here, sum, bottom, row, mine, 0, 0};
            each_entry(entries, length, lane, whole);
            if (mine) {
                /* What is right of a node is folded before it; the lowest slot holds nothing. */
                double z = sum.slot != bottom ? sum.top : 0.0;
                while (sum.slot > bottom + SPARSE_BLOCK) {
                    sum.slot -= SPARSE_BLOCK;
                    z = *sum.slot + z;
                }
                const double r = squared_residual(canon(z), args.y[here.row_first + row]);
                const float rounded = rn32(r);
                args.residual[here.place + row] = r;
                args.residual32[here.place + row] = rounded;
                if (!finite32(rounded)) {
                    bad_value(args.state, here.step, BAD_ROW(here.row_first + row));
                }
            }
        }
    }
    retire(args.state, 0, args.retires);
}
