/* Streaming causal attention and its backward in two launches (Dao, "FlashAttention-2", 2023), with
 * mma.sync. No matrix of scores in memory: a block takes 64 rows (queries; for attention_key: keys)
 * of one sequence and head, four warps of 16 rows, and goes over the blocks of 64 of the other
 * side, in order, through two stages of shared memory.
 *
 * Scores are kept in units of log2: exp2(scale log2(e) s - largest). Every element's sum is one
 * chain in a fixed order, whatever else is in the launch. grid: (length / 64, sequences * heads).
 */
#include "gpu/model/kernels/mma.cuh"

#define THREADS 128
#define BLOCK   64
#define LOG2E   1.44269504F
#define LN2     0.693147181F

/* BLOCK rows of HEAD halves in shared memory; the low three bits of a 16-byte chunk's number are
 * permuted by row mod 8. */
template <int HEAD> struct rows_tile {
    static constexpr int bytes = BLOCK * HEAD * 2;

    __device__ static inline uint32_t place(uint32_t row, uint32_t column)
    {
        return row * (HEAD * 2) + ((column / 8) ^ (row % 8)) * 16;
    }

    __device__ static inline void fetch(uint32_t to, const half_t *from)
    {
#pragma unroll
        for (int i = 0; i < BLOCK * HEAD / 8 / THREADS; i++) {
            const uint32_t chunk = i * THREADS + threadIdx.x;
            const uint32_t row = chunk / (HEAD / 8);
            const uint32_t column = chunk % (HEAD / 8) * 8;
            copy16(to + place(row, column), from + row * HEAD + column);
        }
    }
};

/* The warp's first row in its block. */
__device__ static inline uint32_t warp_row()
{
    return threadIdx.x / 32 * 16;
}

/* c (16 x BLOCK) = rows of a, times rows of b transposed. */
template <int HEAD>
__device__ static inline void multiply_rows(float c[BLOCK / 8][4], uint32_t a, uint32_t b)
{
    using tile = rows_tile<HEAD>;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < BLOCK / 8; j++) {
        c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0.0F;
    }
#pragma unroll
    for (int k = 0; k < HEAD; k += 16) {
        uint32_t left[4];
        load_matrices<false>(left, a + tile::place(warp_row() + lane % 16, k + lane / 16 * 8));
#pragma unroll
        for (int j = 0; j < BLOCK / 16; j++) {
            uint32_t right[4];
            load_matrices<false>(
                right, b + tile::place(j * 16 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
            multiply(c[2 * j], left, right[0], right[1]);
            multiply(c[2 * j + 1], left, right[2], right[3]);
        }
    }
}

/* out (16 x HEAD) += c (16 x BLOCK, rounded to halves) times b (BLOCK x HEAD). */
template <int HEAD>
__device__ static inline void multiply_weights(float out[HEAD / 8][4], const float c[BLOCK / 8][4],
                                               uint32_t b)
{
    using tile = rows_tile<HEAD>;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < BLOCK / 16; k++) {
        const uint32_t left[4] = {half_pair(c[2 * k][0], c[2 * k][1]),
                                  half_pair(c[2 * k][2], c[2 * k][3]),
                                  half_pair(c[2 * k + 1][0], c[2 * k + 1][1]),
                                  half_pair(c[2 * k + 1][2], c[2 * k + 1][3])};
#pragma unroll
        for (int j = 0; j < HEAD / 16; j++) {
            uint32_t right[4];
            load_matrices<true>(right, b + tile::place(k * 16 + lane / 8 % 2 * 8 + lane % 8,
                                                       j * 16 + lane / 16 * 8));
            multiply(out[2 * j], left, right[0], right[1]);
            multiply(out[2 * j + 1], left, right[2], right[3]);
        }
    }
}

/* Writes the warp's 16 rows times a factor for each of the lane's two. */
template <int HEAD>
__device__ static inline void store_rows(half_t *to, const float c[HEAD / 8][4], float above,
                                         float below)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t row = warp_row() + lane / 4;
#pragma unroll
    for (int j = 0; j < HEAD / 8; j++) {
        const uint32_t column = j * 8 + lane % 4 * 2;
        *(uint32_t *)&to[row * HEAD + column] = half_pair(c[j][0] * above, c[j][1] * above);
        *(uint32_t *)&to[(row + 8) * HEAD + column] = half_pair(c[j][2] * below, c[j][3] * below);
    }
}

/* Over the four lanes that share a row. */
__device__ static inline float row_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

__device__ static inline float row_sum(float value)
{
    value += __shfl_xor_sync(0xffffffffU, value, 1);
    return value + __shfl_xor_sync(0xffffffffU, value, 2);
}

/* Does element i of c[j] of the diagonal block lie where the row's index is below the column's? */
__device__ static inline bool above_diagonal(int j, int i)
{
    const uint32_t lane = threadIdx.x % 32;
    return warp_row() + lane / 4 + i / 2 * 8 < j * 8 + lane % 4 * 2 + i % 2;
}

template <int HEAD> __device__ static inline void attention_forward(const model_arguments &args)
{
    using tile = rows_tile<HEAD>;
    DYNAMIC_SHARED(memory);
    const uint32_t q_tile = shared_address(memory);
    const uint32_t k_tile = q_tile + tile::bytes; /* two stages of (keys, values) */
    const uint32_t length = args.launch.shape.length;
    const uint32_t last = gridDim.x - 1 - blockIdx.x; /* the longest blocks first */
    const uint64_t group = (uint64_t)blockIdx.y * length;
    const half_t *k = operand<const half_t>(args, 1) + group * HEAD;
    const half_t *v = operand<const half_t>(args, 2) + group * HEAD;
    const float scale = args.launch.scale * LOG2E;
    const uint64_t first = group + last * BLOCK;
    float out[HEAD / 8][4] = {};
    float most[2] = {-INFINITE, -INFINITE}; /* of the lane's two rows */
    float sum[2] = {0.0F, 0.0F};            /* of the lane's own columns */

    tile::fetch(q_tile, operand<const half_t>(args, 0) + first * HEAD);
    tile::fetch(k_tile, k);
    tile::fetch(k_tile + tile::bytes, v);
    copy_commit();
    for (uint32_t block = 0; block <= last; block++) {
        const uint32_t stage = k_tile + block % 2 * (2 * tile::bytes);
        const uint32_t next = k_tile + (block + 1) % 2 * (2 * tile::bytes);
        __syncthreads(); /* all are done with the next stage's last block */
        if (block < last) {
            tile::fetch(next, k + (uint64_t)(block + 1) * BLOCK * HEAD);
            tile::fetch(next + tile::bytes, v + (uint64_t)(block + 1) * BLOCK * HEAD);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        float c[BLOCK / 8][4];
        multiply_rows<HEAD>(c, q_tile, stage);
        float larger[2] = {most[0], most[1]};
#pragma unroll
        for (int j = 0; j < BLOCK / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                c[j][i] = block == last && above_diagonal(j, i) ? -INFINITE : c[j][i] * scale;
                larger[i / 2] = fmaxf(larger[i / 2], c[j][i]);
            }
        }
#pragma unroll
        for (int side = 0; side < 2; side++) {
            larger[side] = row_max(larger[side]);
            const float kept = exp2f(most[side] - larger[side]);
            most[side] = larger[side];
            sum[side] *= kept;
#pragma unroll
            for (int j = 0; j < HEAD / 8; j++) {
                out[j][2 * side] *= kept;
                out[j][2 * side + 1] *= kept;
            }
        }
#pragma unroll
        for (int j = 0; j < BLOCK / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                c[j][i] = exp2f(c[j][i] - most[i / 2]);
                sum[i / 2] += c[j][i];
            }
        }
        multiply_weights<HEAD>(out, c, stage + tile::bytes);
    }
    sum[0] = row_sum(sum[0]);
    sum[1] = row_sum(sum[1]);
    store_rows<HEAD>(operand<half_t>(args, 3) + first * HEAD, out, 1.0F / sum[0], 1.0F / sum[1]);
    if (threadIdx.x % 4 == 0) {
        float *lse = operand<float>(args, 4) + first + warp_row() + threadIdx.x % 32 / 4;
        lse[0] = (most[0] + log2f(sum[0])) * LN2;
        lse[8] = (most[1] + log2f(sum[1])) * LN2;
    }
}

/* delta of the block's 64 rows: two threads a row, half of it each. */
template <int HEAD>
__device__ static inline void row_deltas(const half_t *out, const half_t *dout, float *to)
{
    const uint32_t row = threadIdx.x / 2;
    const uint32_t from = row * HEAD + threadIdx.x % 2 * (HEAD / 2);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < HEAD / 2; i += 8) {
        float a[8];
        float b[8];
        unpack8(*(const uint4 *)(out + from + i), a);
        unpack8(*(const uint4 *)(dout + from + i), b);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            sum += a[j] * b[j];
        }
    }
    sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    if (threadIdx.x % 2 == 0) {
        to[row] = sum;
    }
}

template <int HEAD> __device__ static inline void attention_query(const model_arguments &args)
{
    using tile = rows_tile<HEAD>;
    __shared__ float deltas[BLOCK];
    DYNAMIC_SHARED(memory);
    const uint32_t q_tile = shared_address(memory);
    const uint32_t dout_tile = q_tile + tile::bytes;
    const uint32_t k_tile = dout_tile + tile::bytes; /* two stages of (keys, values) */
    const uint32_t length = args.launch.shape.length;
    const uint32_t last = gridDim.x - 1 - blockIdx.x;
    const uint64_t group = (uint64_t)blockIdx.y * length;
    const half_t *k = operand<const half_t>(args, 1) + group * HEAD;
    const half_t *v = operand<const half_t>(args, 2) + group * HEAD;
    const uint64_t first = group + last * BLOCK;
    const float scale = args.launch.scale * LOG2E;
    const uint32_t row = warp_row() + threadIdx.x % 32 / 4;

    tile::fetch(q_tile, operand<const half_t>(args, 0) + first * HEAD);
    tile::fetch(dout_tile, operand<const half_t>(args, 4) + first * HEAD);
    tile::fetch(k_tile, k);
    tile::fetch(k_tile + tile::bytes, v);
    copy_commit();
    row_deltas<HEAD>(operand<const half_t>(args, 3) + first * HEAD,
                     operand<const half_t>(args, 4) + first * HEAD, deltas);
    const float *lse = operand<const float>(args, 5) + first;
    const float base[2] = {lse[row] * LOG2E, lse[row + 8] * LOG2E};
    __syncthreads();
    const float delta[2] = {deltas[row], deltas[row + 8]};
    if (threadIdx.x < BLOCK) {
        operand<float>(args, 7)[first + threadIdx.x] = deltas[threadIdx.x];
    }
    float out[HEAD / 8][4] = {};
    for (uint32_t block = 0; block <= last; block++) {
        const uint32_t stage = k_tile + block % 2 * (2 * tile::bytes);
        const uint32_t next = k_tile + (block + 1) % 2 * (2 * tile::bytes);
        __syncthreads();
        if (block < last) {
            tile::fetch(next, k + (uint64_t)(block + 1) * BLOCK * HEAD);
            tile::fetch(next + tile::bytes, v + (uint64_t)(block + 1) * BLOCK * HEAD);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        float p[BLOCK / 8][4];
        float ds[BLOCK / 8][4];
        multiply_rows<HEAD>(p, q_tile, stage);
        multiply_rows<HEAD>(ds, dout_tile, stage + tile::bytes);
#pragma unroll
        for (int j = 0; j < BLOCK / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool hidden = block == last && above_diagonal(j, i);
                const float weight = hidden ? 0.0F : exp2f(p[j][i] * scale - base[i / 2]);
                ds[j][i] = weight * (ds[j][i] - delta[i / 2]);
            }
        }
        multiply_weights<HEAD>(out, ds, stage);
    }
    store_rows<HEAD>(operand<half_t>(args, 6) + first * HEAD, out, args.launch.scale,
                     args.launch.scale);
}

/* Rows are keys, columns queries: P and dS transposed. */
template <int HEAD> __device__ static inline void attention_key(const model_arguments &args)
{
    using tile = rows_tile<HEAD>;
    __shared__ float bases[2][BLOCK];
    __shared__ float deltas[2][BLOCK];
    DYNAMIC_SHARED(memory);
    const uint32_t k_tile = shared_address(memory);
    const uint32_t v_tile = k_tile + tile::bytes;
    const uint32_t q_tile = v_tile + tile::bytes; /* two stages of (queries, dout) */
    const uint32_t blocks = gridDim.x;
    const uint32_t own = blockIdx.x;
    const uint64_t group = (uint64_t)blockIdx.y * args.launch.shape.length;
    const half_t *q = operand<const half_t>(args, 0) + group * HEAD;
    const half_t *dout = operand<const half_t>(args, 3) + group * HEAD;
    const float *lse = operand<const float>(args, 4) + group;
    const float *delta = operand<const float>(args, 5) + group;
    const uint64_t first = group + own * BLOCK;
    const float scale = args.launch.scale * LOG2E;
    const uint32_t column = threadIdx.x % 4 * 2;

    auto fetch = [&](uint32_t block) {
        const uint32_t stage = q_tile + block % 2 * (2 * tile::bytes);
        tile::fetch(stage, q + (uint64_t)block * BLOCK * HEAD);
        tile::fetch(stage + tile::bytes, dout + (uint64_t)block * BLOCK * HEAD);
        if (threadIdx.x < BLOCK) {
            bases[block % 2][threadIdx.x] = lse[block * BLOCK + threadIdx.x] * LOG2E;
            deltas[block % 2][threadIdx.x] = delta[block * BLOCK + threadIdx.x];
        }
    };
    tile::fetch(k_tile, operand<const half_t>(args, 1) + first * HEAD);
    tile::fetch(v_tile, operand<const half_t>(args, 2) + first * HEAD);
    fetch(own);
    copy_commit();
    float dk[HEAD / 8][4] = {};
    float dv[HEAD / 8][4] = {};
    for (uint32_t block = own; block < blocks; block++) {
        const uint32_t stage = q_tile + block % 2 * (2 * tile::bytes);
        __syncthreads();
        if (block + 1 < blocks) {
            fetch(block + 1);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        float p[BLOCK / 8][4];
        float ds[BLOCK / 8][4];
        multiply_rows<HEAD>(p, k_tile, stage);
        multiply_rows<HEAD>(ds, v_tile, stage + tile::bytes);
#pragma unroll
        for (int j = 0; j < BLOCK / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t query = j * 8 + column + i % 2;
                /* Hidden where the query comes before the key: below the diagonal here. */
                const uint32_t key = warp_row() + threadIdx.x % 32 / 4 + i / 2 * 8;
                const bool hidden = block == own && query < key;
                p[j][i] = hidden ? 0.0F : exp2f(p[j][i] * scale - bases[block % 2][query]);
                ds[j][i] = p[j][i] * (ds[j][i] - deltas[block % 2][query]);
            }
        }
        multiply_weights<HEAD>(dv, p, stage + tile::bytes);
        multiply_weights<HEAD>(dk, ds, stage);
    }
    store_rows<HEAD>(operand<half_t>(args, 6) + first * HEAD, dk, args.launch.scale,
                     args.launch.scale);
    store_rows<HEAD>(operand<half_t>(args, 7) + first * HEAD, dv, 1.0F, 1.0F);
}

#define ATTENTION(head)                      \
    KERNEL(attention_forward##head, THREADS) \
    {                                        \
        attention_forward<head>(args);       \
    }                                        \
    KERNEL(attention_query##head, THREADS)   \
    {                                        \
        attention_query<head>(args);         \
    }                                        \
    KERNEL(attention_key##head, THREADS)     \
    {                                        \
        attention_key<head>(args);           \
    }
ATTENTION(64)
ATTENTION(128)
ATTENTION(192)
ATTENTION(256)
