/* The embedding's gradient in a fixed order (cpu_scatter.c says which): three launches.
 *
 * 1. order: a block a leaf sorts its positions by (token, position), bitonically
 * 2. leaves: a block a place of the order; the first of a token's run sums the run, in order,
 * unless it is a single row
 * 3. root: a block a place; the token's first run of all leaves finds the runs of the others (a
 * warp's lanes search a leaf each) and folds them as a dyadic tree onto the table */
#include "gpu/model/kernels/model.cuh"

#define LEAF       MODEL_SCATTER_LEAF
#define THREADS    128
#define LEAVES_MAX 256
#define LEVELS     9 /* of the tree over LEAVES_MAX leaves, and the root */

KERNEL(scatter_order, LEAF)
{
    __shared__ uint64_t key[LEAF]; /* token, position in the leaf */
    const uint32_t at = threadIdx.x;
    const uint32_t row = blockIdx.x * LEAF + at;
    const int32_t *token = operand<const int32_t>(args, 0);
    key[at] = row < args.launch.rows ? (uint64_t)(uint32_t)token[row] << 32 | at : ~0ULL;
    for (uint32_t size = 2; size <= LEAF; size *= 2) {
        for (uint32_t step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            const uint32_t other = at ^ step;
            if (other > at && (key[at] > key[other]) == ((at & size) == 0)) {
                const uint64_t kept = key[at];
                key[at] = key[other];
                key[other] = kept;
            }
        }
    }
    __syncthreads();
    if (row < args.launch.rows) {
        operand<int32_t>(args, 2)[row] = (int32_t)(blockIdx.x * LEAF + (uint32_t)key[at]);
    }
}

struct run {
    uint32_t first; /* place */
    uint32_t end;
};

/* The places of `wanted` in the order's first .. end - 1; empty where there is none. */
__device__ static inline run find_run(const int32_t *token, const int32_t *order, uint32_t first,
                                      uint32_t end, int32_t wanted)
{
    uint32_t bound[2];
#pragma unroll
    for (int side = 0; side < 2; side++) {
        uint32_t low = first;
        uint32_t high = end;
        while (low < high) {
            const uint32_t middle = (low + high) / 2;
            const int32_t there = token[order[middle]];
            if (there < wanted || (side == 1 && there == wanted)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        bound[side] = low;
    }
    return {bound[0], bound[1]};
}

/* Is this place the first of its token's run in its leaf? */
__device__ static inline bool starts_run(const int32_t *token, const int32_t *order, uint32_t place)
{
    return place % LEAF == 0 || token[order[place - 1]] != token[order[place]];
}

__device__ static inline void add4(float4 &sum, float4 x)
{
    sum.x += x.x;
    sum.y += x.y;
    sum.z += x.z;
    sum.w += x.w;
}

KERNEL(scatter_leaf, THREADS)
{
    const int32_t *token = operand<const int32_t>(args, 0);
    const int32_t *order = operand<const int32_t>(args, 2);
    const uint32_t quads = args.launch.shape.width / 4;
    const uint32_t place = blockIdx.x;
    const uint32_t leaf_end = min((place / LEAF + 1) * LEAF, args.launch.rows);
    const int32_t wanted = token[order[place]];
    if (!starts_run(token, order, place) || place + 1 == leaf_end ||
        token[order[place + 1]] != wanted) {
        return; /* another place's run, or a single row */
    }
    const uint32_t end = find_run(token, order, place, leaf_end, wanted).end;
    const float4 *dx = operand<const float4>(args, 1);
    for (uint32_t j = threadIdx.x; j < quads; j += THREADS) {
        float4 sum = dx[(uint64_t)order[place] * quads + j];
#pragma unroll 8
        for (uint32_t i = place + 1; i < end; i++) {
            add4(sum, dx[(uint64_t)order[i] * quads + j]);
        }
        operand<float4>(args, 3)[(uint64_t)place * quads + j] = sum;
    }
}

KERNEL(scatter_root, THREADS)
{
    __shared__ run runs[LEAVES_MAX];
    __shared__ int earlier;
    const int32_t *token = operand<const int32_t>(args, 0);
    const int32_t *order = operand<const int32_t>(args, 2);
    const uint32_t rows = args.launch.rows;
    const uint32_t quads = args.launch.shape.width / 4;
    const uint32_t place = blockIdx.x;
    const uint32_t leaves = (rows + LEAF - 1) / LEAF;
    if (!starts_run(token, order, place)) {
        return;
    }
    const int32_t wanted = token[order[place]];
    if (threadIdx.x == 0) {
        earlier = 0;
    }
    __syncthreads();
    for (uint32_t leaf = threadIdx.x; leaf < leaves; leaf += THREADS) {
        runs[leaf] = find_run(token, order, leaf * LEAF, min((leaf + 1) * LEAF, rows), wanted);
        if (leaf < place / LEAF && runs[leaf].first != runs[leaf].end) {
            earlier = 1;
        }
    }
    __syncthreads();
    if (earlier != 0) {
        return; /* the token's first leaf does it */
    }
    const float4 *dx = operand<const float4>(args, 1);
    const float4 *sums = operand<const float4>(args, 3);
    uint32_t levels = 0;
    while (1U << levels < leaves) {
        levels++;
    }
    for (uint32_t j = threadIdx.x; j < quads; j += THREADS) {
        float4 waits[LEVELS];
        uint32_t there = 0; /* a bit a level */
        for (uint32_t leaf = 0; leaf < 1U << levels; leaf++) {
            const run found = leaf < leaves ? runs[leaf] : run{0, 0};
            bool have = found.first != found.end;
            float4 carry = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            if (have) {
                carry = found.end - found.first == 1 ? dx[(uint64_t)order[found.first] * quads + j]
                                                     : sums[(uint64_t)found.first * quads + j];
            }
            bool settled = false;
#pragma unroll
            for (uint32_t level = 0; level < LEVELS; level++) {
                const bool right = (leaf >> level & 1) != 0;
                if (!settled && !right) {
                    waits[level] = carry;
                    there = have ? there | 1U << level : there & ~(1U << level);
                    settled = true;
                } else if (!settled && (there >> level & 1) != 0) {
                    float4 left = waits[level];
                    if (have) {
                        add4(left, carry);
                    }
                    carry = left;
                    have = true;
                }
            }
        }
        float4 root = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
        for (uint32_t level = 0; level < LEVELS; level++) {
            if (level == levels) {
                root = waits[level];
            }
        }
        float4 *row = operand<float4>(args, 4) + (uint64_t)wanted * quads + j;
        float4 sum = *row;
        add4(sum, root);
        *row = sum;
    }
}
