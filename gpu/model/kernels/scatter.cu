/* The embedding's gradient in a fixed order (cpu_scatter.c says which): three launches.
 *
 * 1. order: a block a leaf sorts its positions by (token, position), bitonically; says of every
 * token of the vocabulary where the leaf has it, and of every place how long a run begins there
 * 2. leaves: a block some places of the order; where a long run begins, it sums the rows, in order
 * 3. root: a warp a token and 128 columns; its leaves, few of all, fold as a dyadic tree onto the
 * table; short runs are summed there */
#include "gpu/model/kernels/model.cuh"

#define LEAF       MODEL_SCATTER_LEAF
#define THREADS    128
#define PLACES     MODEL_SCATTER_PLACES /* of a block of the second launch */
#define LEAVES_MAX 256
#define LEVELS     9  /* of the tree over LEAVES_MAX leaves, and the root */
#define AHEAD      16 /* rows under way at a time */
#define SHORT      MODEL_SCATTER_SHORT
#define TOGETHER   4 /* leaves under way at a time */
/* What is said of a token in a leaf: nowhere; or the length of its run and the place: of a single
 * row in dx, of a short run in the order, of a long run (length 0) in the sums. */
#define NOWHERE 0xffffffffU
#define PLACE   0x0fffffffU
#define LENGTH  28 /* bits */

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
            run == 1 ? (first + key % LEAF) | 1U << LENGTH
                     : (first + at) | (run <= SHORT ? run : 0) << LENGTH;
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

/* The sum of a run of rows, in order, of one quad of columns. rows: shared. */
__device__ static inline void add_rows(float4 &sum, bool begin, const float4 *dx, uint32_t quads,
                                       const uint32_t *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += AHEAD) {
        float4 x[AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
            if (i + k < count) {
                x[k] = dx[(uint64_t)rows[i + k] * quads];
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
            if (begin && i + k == 0) {
                sum = x[k];
            } else if (i + k < count) {
                add4(sum, x[k]);
            }
        }
    }
}

KERNEL(scatter_leaf, THREADS)
{
    __shared__ uint32_t rows[THREADS];
    const uint32_t *order = operand<const uint32_t>(args, 2);
    const uint32_t quads = args.launch.shape.width / 4;
    const uint32_t mine = blockIdx.x * PLACES + threadIdx.x % 32;
    const bool there = threadIdx.x % 32 < PLACES && mine < args.launch.rows;
    const uint32_t length = there ? order[args.launch.rows + mine] : 0;
    uint32_t waiting = __ballot_sync(0xffffffffU, length > SHORT); /* the same in every warp */
    while (waiting != 0) {
        const uint32_t which = (uint32_t)__ffs((int)waiting) - 1;
        const uint32_t place = blockIdx.x * PLACES + which;
        const uint32_t run = __shfl_sync(0xffffffffU, length, (int)which);
        waiting &= waiting - 1;
        for (uint32_t j0 = 0; j0 < quads; j0 += THREADS) {
            const uint32_t j = j0 + threadIdx.x;
            float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            for (uint32_t first = 0; first < run; first += THREADS) {
                __syncthreads();
                if (first + threadIdx.x < run) {
                    rows[threadIdx.x] = order[place + first + threadIdx.x];
                }
                __syncthreads();
                if (j < quads) {
                    add_rows(sum, first == 0, operand<const float4>(args, 1) + j, quads, rows,
                             min(THREADS, run - first));
                }
            }
            if (j < quads) {
                operand<float4>(args, 3)[(uint64_t)place * quads + j] = sum;
            }
        }
    }
}

/* The tree over the leaves that have a token, put in order, of one quad of columns. waits: shared,
 * the thread's own at every THREADS-th place; a node there waits for its right sibling. */
struct fold {
    float4 *waits;
    uint32_t there; /* a bit a level */

    /* Joins what waits below a level, the lowest first. */
    __device__ inline void join(float4 &carry, uint32_t below)
    {
        for (uint32_t left = there & below; left != 0; left &= left - 1) {
            float4 sum = waits[((uint32_t)__ffs((int)left) - 1) * THREADS];
            add4(sum, carry);
            carry = sum;
        }
        there &= ~below;
    }

    /* The next leaf that has the token is in the right sibling of a node above this leaf: up to
     * there. */
    __device__ inline void put(float4 carry, uint32_t leaf, uint32_t next)
    {
        uint32_t level = 0;
        while (leaf >> (level + 1) != next >> (level + 1)) {
            level++;
        }
        join(carry, (1U << level) - 1);
        waits[level * THREADS] = carry;
        there |= 1U << level;
    }
};

/* A leaf that has the token, and where. */
struct found {
    uint32_t leaf;
    uint32_t where;
};

/* The leaves that have a token, in order; returns how many. list: shared, the warp's own. */
__device__ static inline uint32_t find_leaves(const model_arguments &args, uint32_t token,
                                              found *list)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t leaves = (args.launch.rows + LEAF - 1) / LEAF;
    const uint32_t *where = operand<const uint32_t>(args, 5) + token;
    uint32_t mine[LEAVES_MAX / 32];
#pragma unroll
    for (uint32_t word = 0; word < LEAVES_MAX / 32; word++) {
        const uint32_t leaf = word * 32 + lane;
        mine[word] = leaf < leaves ? where[(uint64_t)leaf * args.launch.shape.vocabulary] : NOWHERE;
    }
    uint32_t count = 0;
#pragma unroll
    for (uint32_t word = 0; word < LEAVES_MAX / 32; word++) {
        const uint32_t bits = __ballot_sync(0xffffffffU, mine[word] != NOWHERE);
        if (mine[word] != NOWHERE) {
            list[count + __popc(bits & ((1U << lane) - 1))] = {word * 32 + lane, mine[word]};
        }
        count += __popc(bits);
    }
    __syncwarp();
    return count;
}

/* The rows of a short run, summed in order. */
__device__ static inline float4 short_run(const model_arguments &args, uint32_t where,
                                          uint32_t quads, uint32_t j)
{
    const uint32_t *order = operand<const uint32_t>(args, 2) + (where & PLACE);
    const float4 *dx = operand<const float4>(args, 1) + j;
    const uint32_t count = where >> LENGTH;
    float4 sum = dx[(uint64_t)order[0] * quads];
#pragma unroll 2
    for (uint32_t i = 1; i < count; i++) {
        add4(sum, dx[(uint64_t)order[i] * quads]);
    }
    return sum;
}

/* A warp a token and 128 columns. */
KERNEL(scatter_root, THREADS)
{
    __shared__ found lists[THREADS / 32][LEAVES_MAX];
    __shared__ float4 waits[LEVELS * THREADS];
    const uint32_t quads = args.launch.shape.width / 4;
    const uint32_t chunks = (quads + 31) / 32;
    const uint32_t unit = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const uint32_t token = unit / chunks;
    if (token >= args.launch.shape.vocabulary) {
        return;
    }
    found *list = lists[threadIdx.x / 32];
    const uint32_t count = find_leaves(args, token, list);
    const uint32_t j = unit % chunks * 32 + threadIdx.x % 32;
    if (count == 0 || j >= quads) {
        return;
    }
    float4 *row = operand<float4>(args, 4) + (uint64_t)token * quads + j;
    const float4 *dx = operand<const float4>(args, 1) + j;
    const float4 *sums = operand<const float4>(args, 3) + j;
    float4 sum = *row;
    float4 carry;
    fold tree = {&waits[threadIdx.x], 0};
    for (uint32_t first = 0; first < count; first += TOGETHER) {
        float4 x[TOGETHER];
#pragma unroll
        for (uint32_t k = 0; k < TOGETHER; k++) { /* of a short run anything, for now */
            if (first + k < count) {
                const uint32_t where = list[first + k].where;
                x[k] = (where >> LENGTH == 0 ? sums : dx)[(uint64_t)(where & PLACE) * quads];
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < TOGETHER; k++) {
            if (first + k < count) {
                const found at = list[first + k];
                carry = at.where >> LENGTH > 1 ? short_run(args, at.where, quads, j) : x[k];
                if (first + k + 1 < count) {
                    tree.put(carry, at.leaf, list[first + k + 1].leaf);
                }
            }
        }
    }
    tree.join(carry, ~0U);
    add4(sum, carry);
    *row = sum;
}
