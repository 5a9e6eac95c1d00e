/* Layouts and rotary positions. A thread moves pieces of 16 bytes (8 halves), MODEL_AHEAD of them
 * under way; the rotary ones take 8 pairs of every head of a token. Pieces of a launch are counted
 * in 32 bits (the plan refuses more): divisions are what these images would wait for. */
#include "gpu/model/kernels/model.cuh"

#define THREADS 256
#define TILE    64

/* One a thread, the grid strides. */
#define EACH(i, count)                                                           \
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (count); \
         i += (uint64_t)gridDim.x * THREADS)

__device__ static inline uint32_t tokens_of(const model_shape &shape)
{
    return shape.sequences * shape.length;
}

/* Element 0 of (token, head) in the head layout. */
__device__ static inline uint64_t head_index(const model_shape &shape, uint32_t token,
                                             uint32_t head)
{
    const uint32_t sequence = token / shape.length;
    const uint32_t row = (sequence * shape.heads + head) * shape.length + token % shape.length;
    return (uint64_t)row * shape.head;
}

KERNEL(rotary_table, THREADS)
{
    const uint32_t half = args.launch.shape.head / 2;
    EACH(at, (uint64_t)args.launch.shape.length * half)
    {
        double angle =
            (double)(at / half) * pow(args.launch.base, -(double)(at % half) / (double)half);
        operand<float>(args, 0)[at] = (float)cos(angle);
        operand<float>(args, 1)[at] = (float)sin(angle);
    }
}

__device__ static inline void load8(const float *from, float to[8])
{
    float4 a = ((const float4 *)from)[0];
    float4 b = ((const float4 *)from)[1];
    to[0] = a.x;
    to[1] = a.y;
    to[2] = a.z;
    to[3] = a.w;
    to[4] = b.x;
    to[5] = b.y;
    to[6] = b.z;
    to[7] = b.w;
}

/* Cosines and sines of 8 pairs of a position. */
struct angles {
    float cosine[8];
    float sine[8];
};

__device__ static inline angles load_angles(const float *cosines, const float *sines, uint32_t at)
{
    angles of;
    load8(cosines + at, of.cosine);
    load8(sines + at, of.sine);
    return of;
}

/* Turns 8 pairs (a, b); sign -1 turns back. */
__device__ static inline void turn(uint4 &low, uint4 &high, const angles &of, float sign)
{
    float a[8];
    float b[8];
    unpack8(low, a);
    unpack8(high, b);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float turned = a[i] * of.cosine[i] - sign * (b[i] * of.sine[i]);
        b[i] = sign * (a[i] * of.sine[i]) + b[i] * of.cosine[i];
        a[i] = turned;
    }
    low = pack8(a);
    high = pack8(b);
}

#define HEADS 4 /* of a token under way */

/* A thread 8 pairs of every head of a token: its angles are loaded once. */
KERNEL(qk_rope, THREADS)
{
    const model_shape &shape = args.launch.shape;
    const uint32_t half = shape.head / 2;
    const uint32_t octets = half / 8;
    EACH(at, (uint64_t)tokens_of(shape) * octets)
    {
        const uint32_t token = (uint32_t)at / octets;
        const uint32_t pair = (uint32_t)at % octets * 8;
        const uint64_t place = head_index(shape, token, 0) + pair;
        const angles of = load_angles(operand<const float>(args, 1), operand<const float>(args, 2),
                                      token % shape.length * half + pair);
        for (uint32_t i = 0; i < 2 * shape.heads; i += HEADS) { /* the queries' heads, the keys' */
            const half_t *from = operand<const half_t>(args, 0) +
                                 ((uint64_t)token * 3 * shape.heads + i) * shape.head + pair;
            uint4 low[HEADS];
            uint4 high[HEADS];
#pragma unroll
            for (uint32_t k = 0; k < HEADS; k++) {
                if (i + k < 2 * shape.heads) {
                    low[k] = *(const uint4 *)(from + k * shape.head);
                    high[k] = *(const uint4 *)(from + k * shape.head + half);
                }
            }
#pragma unroll
            for (uint32_t k = 0; k < HEADS; k++) {
                if (i + k < 2 * shape.heads) {
                    turn(low[k], high[k], of, 1.0F);
                    const uint32_t head = i + k < shape.heads ? i + k : i + k - shape.heads;
                    half_t *to = operand<half_t>(args, i + k < shape.heads ? 3 : 4) + place +
                                 (uint64_t)head * shape.length * shape.head;
                    *(uint4 *)to = low[k];
                    *(uint4 *)(to + half) = high[k];
                }
            }
        }
    }
}

/* A thread 8 pairs of one head in one part, the parts one after the other: three streams of
 * addresses that differ in their highest bits alone would meet in the memory's banks. */
KERNEL(inverse_rope_qkv, THREADS)
{
    const model_shape &shape = args.launch.shape;
    const uint32_t half = shape.head / 2;
    const uint32_t octets = half / 8;
    const uint32_t of_part = tokens_of(shape) * shape.heads * octets;
    EACH(number, 3ULL * of_part)
    {
        const uint32_t part = (uint32_t)number / of_part;
        const uint32_t at = (uint32_t)number % of_part;
        const uint32_t token = at / (shape.heads * octets);
        const uint32_t head = at / octets % shape.heads;
        const uint32_t pair = at % octets * 8;
        const half_t *from =
            operand<const half_t>(args, (int)part) + head_index(shape, token, head) + pair;
        half_t *to = operand<half_t>(args, 5) + ((uint64_t)token * 3 + part) * shape.width +
                     head * shape.head + pair;
        uint4 low = *(const uint4 *)from;
        uint4 high = *(const uint4 *)(from + half);
        if (part < 2) {
            turn(low, high,
                 load_angles(operand<const float>(args, 3), operand<const float>(args, 4),
                             token % shape.length * half + pair),
                 -1.0F);
        }
        *(uint4 *)to = low;
        *(uint4 *)(to + half) = high;
    }
}

/* Octet `at` of (tokens, width) and its place in the head layout. */
__device__ static inline uint64_t octet_in_heads(const model_shape &shape, uint32_t at)
{
    const uint32_t octets = shape.width / 8;
    const uint32_t j = at % octets * 8;
    return (head_index(shape, at / octets, j / shape.head) + j % shape.head) / 8;
}

/* Octet at of (tokens, width), from(at) to to(at), MODEL_AHEAD a thread. */
template <typename FROM, typename TO>
__device__ static inline void move_octets(const model_arguments &args, int in, int out, FROM from,
                                          TO to)
{
    const model_shape &shape = args.launch.shape;
    const uint64_t count = (uint64_t)tokens_of(shape) * (shape.width / 8);
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * MODEL_AHEAD) + threadIdx.x;
    uint4 x[MODEL_AHEAD];
#pragma unroll
    for (int k = 0; k < MODEL_AHEAD; k++) {
        if (first + k * THREADS < count) {
            x[k] = operand<const uint4>(args, in)[from((uint32_t)first + k * THREADS)];
        }
    }
#pragma unroll
    for (int k = 0; k < MODEL_AHEAD; k++) {
        if (first + k * THREADS < count) {
            operand<uint4>(args, out)[to((uint32_t)first + k * THREADS)] = x[k];
        }
    }
}

KERNEL(value_transpose, THREADS)
{
    const model_shape &shape = args.launch.shape;
    const uint32_t octets = shape.width / 8;
    move_octets(
        args, 0, 1,
        [&](uint32_t at) { return ((uint64_t)(at / octets) * 3 + 2) * octets + at % octets; },
        [&](uint32_t at) { return octet_in_heads(shape, at); });
}

KERNEL(head_to_token, THREADS)
{
    const model_shape &shape = args.launch.shape;
    move_octets(
        args, 0, 1, [&](uint32_t at) { return octet_in_heads(shape, at); },
        [&](uint32_t at) { return (uint64_t)at; });
}

KERNEL(token_to_head, THREADS)
{
    const model_shape &shape = args.launch.shape;
    move_octets(
        args, 0, 1, [&](uint32_t at) { return (uint64_t)at; },
        [&](uint32_t at) { return octet_in_heads(shape, at); });
}

/* A 64 x 64 tile through shared memory, 4 bytes (two columns) a thread, rows padded against bank
 * conflicts. grid: (columns / 64, rows / 64, groups). */
KERNEL(transpose, THREADS)
{
    __shared__ uint16_t tile[TILE][TILE + 2];
    const uint32_t m = args.launch.m;
    const uint32_t n = args.launch.n;
    const uint64_t group = (uint64_t)blockIdx.z * m * n;
    const half_t *from = operand<const half_t>(args, 0) + group;
    half_t *to = operand<half_t>(args, 1) + group;
    const uint32_t row = blockIdx.y * TILE;
    const uint32_t column = blockIdx.x * TILE;
    const uint32_t pair = threadIdx.x % 32 * 2;
#pragma unroll
    for (uint32_t r = threadIdx.x / 32; r < TILE; r += THREADS / 32) {
        *(uint32_t *)&tile[r][pair] =
            *(const uint32_t *)&from[(uint64_t)(row + r) * n + column + pair];
    }
    __syncthreads();
#pragma unroll
    for (uint32_t c = threadIdx.x / 32; c < TILE; c += THREADS / 32) {
        uint32_t two = (uint32_t)tile[pair][c] | (uint32_t)tile[pair + 1][c] << 16;
        *(uint32_t *)&to[(uint64_t)(column + c) * m + row + pair] = two;
    }
}
