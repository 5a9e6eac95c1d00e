/* The embedding's gradient in a fixed order (cpu_scatter.c says which): three launches, each of
 * which begins while the one before it ends.
 *
 * 1. order: a block a leaf sorts its positions by (token, position): warps sort 32, then runs merge
 * in pairs; says of every token of the vocabulary where the leaf has it, and of every place how
 * long a run begins there
 * 2. leaves: a block some places of the order; where a long run begins, it sums the rows, in order
 * 3. root: a warp lists what a token adds, over all leaves; what is one or two rows it adds at
 * once, the rest all warps of the block add, 128 columns each: the leaves fold as a dyadic tree
 * onto the table */
#include "gpu/model/kernels/model.cuh"

#define LEAF       MODEL_SCATTER_LEAF
#define THREADS    128
#define WARPS      MODEL_SCATTER_TOKENS /* and tokens of a block of the third launch */
#define PLACES     MODEL_SCATTER_PLACES /* of a block of the second launch */
#define LEAVES_MAX 256
#define AHEAD      16 /* rows of a long run under way at a time */
#define SHORT      MODEL_SCATTER_SHORT
#define ROOT_AHEAD 8 /* rows and sums of a token under way at a time */
#define CHUNKS     4 /* of 128 columns, of what is one or two rows */
#define WARP       0xffffffffU
/* What is said of a token in a leaf: nowhere; or the length of its run and the place: of a single
 * row in dx, of a short run in the order, of a long run (length 0) in the sums. */
#define NOWHERE 0xffffffffU
#define PLACE   0x0fffffffU
#define LENGTH  28 /* bits */
/* What is to be added next: a row of dx or of the sums; is it the first of its leaf, and the last;
 * and then the level of the tree at which the leaf waits for the next one that has the token. */
#define ITEM_ROW   0x000fffffU
#define ITEM_SUM   0x00100000U
#define ITEM_FIRST 0x00200000U
#define ITEM_LAST  0x00400000U
#define ITEM_LEVEL 24 /* bits */
#define LEVEL_NONE 15 /* no leaf comes behind it */

static_assert(WARPS * 32 == THREADS, "a warp a token");

/* -- order ------------------------------------------------------------------------------------- */

/* The warp's keys, sorted bitonically: lane i has the one of rank i. */
__device__ static inline uint32_t sort_warp(uint32_t key, uint32_t lane)
{
#pragma unroll
    for (uint32_t size = 2; size <= 32; size *= 2) {
#pragma unroll
        for (uint32_t step = size / 2; step > 0; step /= 2) {
            const uint32_t other = __shfl_xor_sync(WARP, key, (int)step);
            const bool smaller = ((lane & step) == 0) == ((lane & size) == 0 || size == 32);
            key = (key < other) == smaller ? key : other;
        }
    }
    return key;
}

KERNEL(scatter_order, LEAF)
{
    __shared__ uint32_t both[2][LEAF]; /* keys: token, position in the leaf: tokens below 2^20 */
    __shared__ uint32_t begins[LEAF / 32]; /* a bit a place: a run begins there */
    const uint32_t at = threadIdx.x;
    const uint32_t lane = at % 32;
    const uint32_t first = blockIdx.x * LEAF;
    const uint32_t count = min(LEAF, args.launch.rows - first);
    const uint32_t vocabulary = args.launch.shape.vocabulary;
    uint32_t key = NOWHERE - (LEAF - 1) + at; /* behind all others, and no two alike */
    if (at < count) {
        key = (uint32_t)operand<const int32_t>(args, 0)[first + at] * LEAF + at;
    }
    uint4 *quads = operand<uint4>(args, 5) + (uint64_t)blockIdx.x * (vocabulary / 4);
    for (uint32_t i = at; i < vocabulary / 4; i += LEAF) {
        quads[i] = make_uint4(NOWHERE, NOWHERE, NOWHERE, NOWHERE);
    }
    key = sort_warp(key, lane);
    /* Sorted runs of `size` merge in pairs: a key goes up by how many of the other run are smaller.
     * Two rooms in turn: who still looks through one is waited for before it is written again. */
    uint32_t place = at;
    uint32_t turn = 0;
#pragma unroll
    for (uint32_t size = 32; size < LEAF; size *= 2, turn ^= 1) {
        both[turn][place] = key;
        __syncthreads();
        const uint32_t *other = &both[turn][(place ^ size) & ~(size - 1)];
        uint32_t smaller = 0;
#pragma unroll
        for (uint32_t step = size / 2; step > 0; step /= 2) {
            smaller += other[smaller + step - 1] < key ? step : 0;
        }
        smaller += other[smaller] < key ? 1 : 0;
        place = (place & ~(2 * size - 1)) + place % size + smaller;
    }
    uint32_t *keys = both[turn];
    keys[place] = key;
    __syncthreads();
    key = keys[at];
    const uint32_t token = key / LEAF;
    const bool begin = at == 0 || keys[at - 1] / LEAF != token; /* and where no position is */
    const uint32_t bits = __ballot_sync(WARP, begin);
    if (lane == 0) {
        begins[at / 32] = bits;
    }
    __syncthreads();
    if (at >= count) {
        return;
    }
    uint32_t run = 0;
    if (begin) {
        const uint32_t behind = lane == 31 ? 0 : bits >> (lane + 1);
        uint32_t end = at + (uint32_t)__ffs((int)behind);
        if (behind == 0) {
            uint32_t word = at / 32 + 1;
            while (word < LEAF / 32 && begins[word] == 0) {
                word++;
            }
            end = word < LEAF / 32 ? word * 32 + (uint32_t)__ffs((int)begins[word]) - 1 : LEAF;
        }
        run = end - at;
        operand<uint32_t>(args, 5)[(uint64_t)blockIdx.x * vocabulary + token] =
            run == 1 ? (first + key % LEAF) | 1U << LENGTH
                     : (first + at) | (run <= SHORT ? run : 0) << LENGTH;
    }
    uint32_t *order = operand<uint32_t>(args, 2);
    order[first + at] = first + key % LEAF;
    order[args.launch.rows + first + at] = run;
}

/* -- leaves ------------------------------------------------------------------------------------ */

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
    uint32_t waiting = __ballot_sync(WARP, length > SHORT); /* the same in every warp */
    while (waiting != 0) {
        const uint32_t which = (uint32_t)__ffs((int)waiting) - 1;
        const uint32_t place = blockIdx.x * PLACES + which;
        const uint32_t run = __shfl_sync(WARP, length, (int)which);
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

/* -- root -------------------------------------------------------------------------------------- */

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

    /* The next leaf that has the token is in the right sibling of a node of that level. */
    __device__ inline void put(float4 carry, uint32_t level)
    {
        join(carry, (1U << level) - 1);
        waits[level * THREADS] = carry;
        there |= 1U << level;
    }
};

/* The sum of the lanes' values before this one; *ret_all: of all. */
__device__ static inline uint32_t sum_before(uint32_t value, uint32_t lane, uint32_t *ret_all)
{
    uint32_t sum = value;
#pragma unroll
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_sync(WARP, sum, (int)((lane - step) % 32));
        sum += lane >= step ? other : 0;
    }
    *ret_all = __shfl_sync(WARP, sum, 31);
    return sum - value;
}

/* What a token adds, in order, over all leaves; returns how much. items: shared, room for SHORT of
 * every leaf. */
__device__ static inline uint32_t list_items(const model_arguments &args, uint32_t token,
                                             uint32_t *items)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t leaves = (args.launch.rows + LEAF - 1) / LEAF;
    const uint32_t *where = operand<const uint32_t>(args, 5) + token;
    const uint32_t *order = operand<const uint32_t>(args, 2);
    uint32_t mine[LEAVES_MAX / 32];
#pragma unroll
    for (uint32_t word = 0; word < LEAVES_MAX / 32; word++) {
        const uint32_t leaf = word * 32 + lane;
        mine[word] = leaf < leaves ? where[(uint64_t)leaf * args.launch.shape.vocabulary] : NOWHERE;
    }
    uint32_t next = NOWHERE; /* the first leaf behind the word that has the token */
    uint32_t nexts[LEAVES_MAX / 32];
#pragma unroll
    for (int word = LEAVES_MAX / 32 - 1; word >= 0; word--) {
        nexts[word] = next;
        const uint32_t bits = __ballot_sync(WARP, mine[word] != NOWHERE);
        next = bits != 0 ? (uint32_t)word * 32 + (uint32_t)__ffs((int)bits) - 1 : next;
    }
    uint32_t count = 0;
#pragma unroll
    for (uint32_t word = 0; word < LEAVES_MAX / 32; word++) {
        const uint32_t bits = __ballot_sync(WARP, mine[word] != NOWHERE);
        if (bits == 0) { /* the same in all lanes */
            continue;
        }
        const uint32_t length = mine[word] >> LENGTH;
        const uint32_t size = mine[word] == NOWHERE ? 0 : length > 1 ? length : 1;
        uint32_t all;
        const uint32_t at = count + sum_before(size, lane, &all);
        count += all;
        if (size == 0) {
            continue;
        }
        const uint32_t leaf = word * 32 + lane;
        const uint32_t behind = lane == 31 ? 0 : bits >> (lane + 1);
        const uint32_t right = behind != 0 ? leaf + (uint32_t)__ffs((int)behind) : nexts[word];
        const uint32_t level = right == NOWHERE ? LEVEL_NONE : 31 - __clz((int)(leaf ^ right));
        for (uint32_t i = 0; i < size; i++) {
            const uint32_t row = length > 1 ? order[(mine[word] & PLACE) + i] : mine[word] & PLACE;
            items[at + i] = row | (length == 0 ? ITEM_SUM : 0) | (i == 0 ? ITEM_FIRST : 0) |
                            (i + 1 == size ? ITEM_LAST | level << ITEM_LEVEL : 0);
        }
    }
    __syncwarp();
    return count;
}

/* A quad of columns of what an item adds. */
__device__ static inline float4 load_item(const model_arguments &args, uint32_t item,
                                          uint32_t quads, uint32_t j)
{
    const float4 *from = operand<const float4>(args, (item & ITEM_SUM) != 0 ? 3 : 1);
    return from[(uint64_t)(item & ITEM_ROW) * quads + j];
}

/* One item, or two, whose order and tree are a single addition: all columns. */
__device__ static inline void add_few(const model_arguments &args, uint32_t token, uint32_t quads,
                                      const uint32_t *items, uint32_t count)
{
    float4 *table = operand<float4>(args, 4) + (uint64_t)token * quads;
    const uint32_t one = items[0];
    const uint32_t two = items[count - 1];
    for (uint32_t j0 = threadIdx.x % 32; j0 < quads; j0 += 32 * CHUNKS) {
        float4 sum[CHUNKS];
        float4 x[CHUNKS];
        float4 y[CHUNKS];
#pragma unroll
        for (uint32_t k = 0; k < CHUNKS; k++) {
            const uint32_t j = j0 + 32 * k;
            if (j < quads) {
                sum[k] = table[j];
                x[k] = load_item(args, one, quads, j);
                if (count == 2) {
                    y[k] = load_item(args, two, quads, j);
                }
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < CHUNKS; k++) {
            if (j0 + 32 * k < quads) {
                if (count == 2) {
                    add4(x[k], y[k]);
                }
                add4(sum[k], x[k]);
                table[j0 + 32 * k] = sum[k];
            }
        }
    }
}

/* All items of a token onto one quad of columns. */
__device__ static inline void add_items(const model_arguments &args, float4 *table, uint32_t quads,
                                        uint32_t j, const uint32_t *items, uint32_t count,
                                        float4 *waits)
{
    fold tree = {waits, 0};
    float4 sum = table[j];
    float4 carry = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    for (uint32_t i = 0; i < count; i += ROOT_AHEAD) {
        float4 x[ROOT_AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < ROOT_AHEAD; k++) {
            if (i + k < count) {
                x[k] = load_item(args, items[i + k], quads, j);
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < ROOT_AHEAD; k++) {
            if (i + k < count) {
                const uint32_t item = items[i + k];
                if ((item & ITEM_FIRST) != 0) {
                    carry = x[k];
                } else {
                    add4(carry, x[k]);
                }
                if ((item & ITEM_LAST) != 0 && item >> ITEM_LEVEL != LEVEL_NONE) {
                    tree.put(carry, item >> ITEM_LEVEL);
                }
            }
        }
    }
    tree.join(carry, ~0U);
    add4(sum, carry);
    table[j] = sum;
}

/* Tokens of a block lie far apart: those that are many, near together in most vocabularies, would
 * else meet in one block. */
KERNEL(scatter_root, THREADS)
{
    DYNAMIC_SHARED(memory); /* waits of every level, then every warp's items */
    __shared__ uint32_t counts[WARPS];
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t leaves = (args.launch.rows + LEAF - 1) / LEAF;
    const uint32_t vocabulary = args.launch.shape.vocabulary;
    const uint32_t quads = args.launch.shape.width / 4;
    float4 *waits = (float4 *)memory;
    uint32_t *items = (uint32_t *)(waits + MODEL_SCATTER_LEVELS(leaves) * THREADS);
    const uint32_t token = blockIdx.x + warp * gridDim.x;
    uint32_t *mine = items + warp * leaves * SHORT;
    uint32_t count = token < vocabulary ? list_items(args, token, mine) : 0;
    if (count == 1 || count == 2) {
        add_few(args, token, quads, mine, count);
        count = 0;
    }
    if (threadIdx.x % 32 == 0) {
        counts[warp] = count;
    }
    __syncthreads();
    for (uint32_t i = 0; i < WARPS; i++) {
        if (counts[i] == 0) {
            continue;
        }
        float4 *row = operand<float4>(args, 4) + (uint64_t)(blockIdx.x + i * gridDim.x) * quads;
        for (uint32_t j = threadIdx.x; j < quads; j += THREADS) {
            add_items(args, row, quads, j, items + i * leaves * SHORT, counts[i],
                      waits + threadIdx.x);
        }
    }
}
