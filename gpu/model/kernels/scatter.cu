/* The embedding's gradient in a fixed order (cpu_scatter.c says which): three launches.
 *
 * 1. order: a block a leaf sorts its positions by (token, position), bitonically; says of every
 * token of the vocabulary where the leaf has it, and of every place how long a run begins there
 * 2. leaves: a block some places of the order; where a run of several rows begins, it sums them, in
 * order (a single row stands for itself)
 * 3. root: a block a token; its leaves, few of all, fold as a dyadic tree onto the table */
#include "gpu/model/kernels/model.cuh"

#define LEAF       MODEL_SCATTER_LEAF
#define THREADS    128
#define PLACES     MODEL_SCATTER_PLACES /* of a block of the second launch */
#define LEAVES_MAX 256
#define LEVELS     9 /* of the tree over LEAVES_MAX leaves, and the root */
#define AHEAD      8 /* rows under way at a time */
/* What is said of a token in a leaf: nowhere; a row of dx; or, with this bit, a place of the sums. */
#define NOWHERE 0xffffffffU
#define SUMMED  0x40000000U

/* The smaller or the larger of a key and its partner's, as the bitonic network wants. */
__device__ static inline uint32_t take(uint32_t key, uint32_t other, uint32_t at, uint32_t size,
                                       uint32_t step)
{
    const bool smaller = ((at & step) == 0) == ((at & size) == 0);
    return (key < other) == smaller ? key : other;
}

KERNEL(scatter_order, LEAF)
{
    __shared__ uint32_t keys[LEAF]; /* token, position in the leaf: vocabularies up to 2^20 */
    const uint32_t at = threadIdx.x;
    const uint32_t first = blockIdx.x * LEAF;
    const uint32_t count = min(LEAF, args.launch.rows - first);
    const uint32_t vocabulary = args.launch.shape.vocabulary;
    uint4 *quads = operand<uint4>(args, 5) + (uint64_t)blockIdx.x * (vocabulary / 4);
    for (uint32_t i = at; i < vocabulary / 4; i += LEAF) {
        quads[i] = make_uint4(NOWHERE, NOWHERE, NOWHERE, NOWHERE);
    }
    uint32_t key = NOWHERE;
    if (at < count) {
        key = (uint32_t)operand<const int32_t>(args, 0)[first + at] * LEAF + at;
    }
    for (uint32_t size = 2; size <= LEAF; size *= 2) {
        for (uint32_t step = size / 2; step >= 32; step /= 2) {
            __syncthreads();
            keys[at] = key;
            __syncthreads();
            key = take(key, keys[at ^ step], at, size, step);
        }
        for (uint32_t step = min(size / 2, 16); step > 0; step /= 2) {
            key = take(key, __shfl_xor_sync(0xffffffffU, key, (int)step), at, size, step);
        }
    }
    __syncthreads();
    keys[at] = key;
    __syncthreads();
    if (at >= count) {
        return;
    }
    const uint32_t token = key / LEAF;
    uint32_t run = 0;
    if (at == 0 || keys[at - 1] / LEAF != token) {
        uint32_t low = at + 1; /* the first place behind the run */
        uint32_t high = count;
        while (low < high) {
            const uint32_t middle = (low + high) / 2;
            if (keys[middle] / LEAF == token) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        run = low - at;
        operand<uint32_t>(args, 5)[(uint64_t)blockIdx.x * vocabulary + token] =
            run == 1 ? first + key % LEAF : (first + at) | SUMMED;
    }
    uint32_t *order = operand<uint32_t>(args, 2);
    order[first + at] = first + key % LEAF;
    order[args.launch.rows + first + at] = run;
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
    __shared__ uint32_t rows[THREADS];
    const uint32_t *order = operand<const uint32_t>(args, 2);
    const uint32_t quads = args.launch.shape.width / 4;
    const uint32_t end = min((blockIdx.x + 1) * PLACES, args.launch.rows);
    const float4 *dx = operand<const float4>(args, 1);
    for (uint32_t place = blockIdx.x * PLACES; place < end; place++) {
        const uint32_t run = order[args.launch.rows + place];
        for (uint32_t j0 = 0; run > 1 && j0 < quads; j0 += THREADS) {
            const uint32_t j = j0 + threadIdx.x;
            float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            for (uint32_t first = 0; first < run; first += THREADS) {
                __syncthreads();
                if (first + threadIdx.x < run) {
                    rows[threadIdx.x] = order[place + first + threadIdx.x];
                }
                __syncthreads();
                const uint32_t count = min(THREADS, run - first);
                for (uint32_t i = 0; j < quads && i < count; i += AHEAD) {
                    float4 x[AHEAD];
#pragma unroll
                    for (uint32_t k = 0; k < AHEAD; k++) {
                        if (i + k < count) {
                            x[k] = dx[(uint64_t)rows[i + k] * quads + j];
                        }
                    }
#pragma unroll
                    for (uint32_t k = 0; k < AHEAD; k++) {
                        if (first + i + k == 0) {
                            sum = x[k];
                        } else if (i + k < count) {
                            add4(sum, x[k]);
                        }
                    }
                }
            }
            if (j < quads) {
                operand<float4>(args, 3)[(uint64_t)place * quads + j] = sum;
            }
        }
    }
}

/* A leaf that has the token, and where. */
struct found {
    uint32_t leaf;
    uint32_t where;
};

/* The leaves that have the token, in order; returns how many. */
__device__ static inline uint32_t find_leaves(const model_arguments &args, found *ret)
{
    __shared__ uint32_t bits[LEAVES_MAX / 32];
    const uint32_t leaves = (args.launch.rows + LEAF - 1) / LEAF;
    const uint32_t *where = operand<const uint32_t>(args, 5) + blockIdx.x;
    uint32_t mine[LEAVES_MAX / THREADS];
#pragma unroll
    for (uint32_t i = 0; i < LEAVES_MAX / THREADS; i++) {
        const uint32_t leaf = i * THREADS + threadIdx.x;
        mine[i] = leaf < leaves ? where[(uint64_t)leaf * args.launch.shape.vocabulary] : NOWHERE;
    }
#pragma unroll
    for (uint32_t i = 0; i < LEAVES_MAX / THREADS; i++) {
        const uint32_t there = __ballot_sync(0xffffffffU, mine[i] != NOWHERE);
        if (threadIdx.x % 32 == 0) {
            bits[(i * THREADS + threadIdx.x) / 32] = there;
        }
    }
    __syncthreads();
    uint32_t count = 0;
#pragma unroll
    for (uint32_t word = 0; word < LEAVES_MAX / 32; word++) {
#pragma unroll
        for (uint32_t i = 0; i < LEAVES_MAX / THREADS; i++) {
            if ((i * THREADS + threadIdx.x) / 32 == word && mine[i] != NOWHERE) {
                const uint32_t before = bits[word] & ((1U << threadIdx.x % 32) - 1);
                ret[count + __popc(before)] = {i * THREADS + threadIdx.x, mine[i]};
            }
        }
        count += __popc(bits[word]);
    }
    __syncthreads();
    return count;
}

KERNEL(scatter_root, THREADS)
{
    __shared__ found list[LEAVES_MAX];
    const uint32_t quads = args.launch.shape.width / 4;
    const uint32_t count = find_leaves(args, list);
    const float4 *dx = operand<const float4>(args, 1);
    const float4 *sums = operand<const float4>(args, 3);
    for (uint32_t j = threadIdx.x; count != 0 && j < quads; j += THREADS) {
        float4 *row = operand<float4>(args, 4) + (uint64_t)blockIdx.x * quads + j;
        float4 sum = *row;
        float4 waits[LEVELS]; /* a node whose right sibling is still to come */
        uint32_t there = 0;   /* a bit a level */
        float4 carry = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        for (uint32_t first = 0; first < count; first += AHEAD) {
            float4 x[AHEAD];
#pragma unroll
            for (uint32_t k = 0; k < AHEAD; k++) {
                if (first + k < count) {
                    const uint32_t where = list[first + k].where;
                    x[k] = (where & SUMMED) != 0 ? sums[(uint64_t)(where & ~SUMMED) * quads + j]
                                                 : dx[(uint64_t)where * quads + j];
                }
            }
#pragma unroll
            for (uint32_t k = 0; k < AHEAD; k++) {
                if (first + k >= count) {
                    continue;
                }
                const uint32_t leaf = list[first + k].leaf;
                /* Up to the level where the next leaf that has the token is in the right sibling. */
                const uint32_t next = first + k + 1 < count ? list[first + k + 1].leaf
                                                            : leaf | (1U << (LEVELS - 1));
                carry = x[k];
                bool settled = false;
#pragma unroll
                for (uint32_t level = 0; level < LEVELS; level++) {
                    if (!settled && (there >> level & 1) != 0) {
                        float4 left = waits[level];
                        add4(left, carry);
                        carry = left;
                        there &= ~(1U << level);
                    }
                    if (!settled && leaf >> (level + 1) == next >> (level + 1)) {
                        waits[level] = carry;
                        there |= 1U << level;
                        settled = true;
                    }
                }
            }
        }
        add4(sum, carry);
        *row = sum;
    }
}
