/* Layouts and rotary positions. A thread moves 16 bytes (8 halves); the rotary ones take 8 pairs.
 */
#include "gpu/model/kernels/model.cuh"

#define THREADS 256
#define TILE    64

/* The octets of a launch, one a thread, the grid strides. */
#define EACH(i, count)                                                           \
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (count); \
         i += (uint64_t)gridDim.x * THREADS)

__device__ static inline uint64_t tokens_of(const model_shape &shape)
{
    return (uint64_t)shape.sequences * shape.length;
}

/* Element 0 of (token, head) in the head layout. */
__device__ static inline uint64_t head_index(const model_shape &shape, uint64_t token,
                                             uint32_t head)
{
    uint64_t sequence = token / shape.length;
    return ((sequence * shape.heads + head) * shape.length + token % shape.length) * shape.head;
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

/* Turns 8 pairs (a, b) by angles at `angle` of the table; sign -1 turns back. */
__device__ static inline void turn(const half_t *from, half_t *to, const float *cosines,
                                   const float *sines, uint64_t angle, uint32_t half, float sign)
{
    float a[8];
    float b[8];
    float c[8];
    float s[8];
    unpack8(*(const uint4 *)from, a);
    unpack8(*(const uint4 *)(from + half), b);
    load8(cosines + angle, c);
    load8(sines + angle, s);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float low = a[i] * c[i] - sign * (b[i] * s[i]);
        b[i] = sign * (a[i] * s[i]) + b[i] * c[i];
        a[i] = low;
    }
    *(uint4 *)to = pack8(a);
    *(uint4 *)(to + half) = pack8(b);
}

/* Octet `at` of the pairs of one part (queries or keys): token, head, pair. */
struct pair_place {
    uint64_t token;
    uint32_t head;
    uint32_t pair;
};

__device__ static inline pair_place place_of(const model_shape &shape, uint64_t at)
{
    const uint32_t octets = shape.head / 2 / 8;
    const uint64_t head = at / octets;
    return {head / shape.heads, (uint32_t)(head % shape.heads), (uint32_t)(at % octets) * 8};
}

KERNEL(qk_rope, THREADS)
{
    const model_shape &shape = args.launch.shape;
    const uint32_t half = shape.head / 2;
    const uint64_t octets = tokens_of(shape) * shape.heads * (half / 8);
    EACH(at, 2 * octets)
    {
        const int part = at >= octets;
        const pair_place p = place_of(shape, at % octets);
        const half_t *from = operand<const half_t>(args, 0) + (p.token * 3 + part) * shape.width +
                             p.head * shape.head + p.pair;
        half_t *to = operand<half_t>(args, 3 + part) + head_index(shape, p.token, p.head) + p.pair;
        turn(from, to, operand<const float>(args, 1), operand<const float>(args, 2),
             p.token % shape.length * half + p.pair, half, 1.0F);
    }
}

KERNEL(inverse_rope_qkv, THREADS)
{
    const model_shape &shape = args.launch.shape;
    const uint32_t half = shape.head / 2;
    const uint64_t octets = tokens_of(shape) * shape.heads * (half / 8);
    EACH(at, 3 * octets)
    {
        const int part = (int)(at / octets);
        const pair_place p = place_of(shape, at % octets);
        const half_t *from =
            operand<const half_t>(args, part) + head_index(shape, p.token, p.head) + p.pair;
        half_t *to = operand<half_t>(args, 5) + (p.token * 3 + part) * shape.width +
                     p.head * shape.head + p.pair;
        if (part == 2) {
            *(uint4 *)to = *(const uint4 *)from;
            *(uint4 *)(to + half) = *(const uint4 *)(from + half);
        } else {
            turn(from, to, operand<const float>(args, 3), operand<const float>(args, 4),
                 p.token % shape.length * half + p.pair, half, -1.0F);
        }
    }
}

/* Octet `at` of (tokens, width) and its place in the head layout. */
__device__ static inline uint64_t octet_in_heads(const model_shape &shape, uint64_t at)
{
    const uint32_t octets = shape.width / 8;
    const uint32_t j = (uint32_t)(at % octets) * 8;
    return (head_index(shape, at / octets, j / shape.head) + j % shape.head) / 8;
}

KERNEL(value_transpose, THREADS)
{
    const model_shape &shape = args.launch.shape;
    const uint32_t octets = shape.width / 8;
    EACH(at, tokens_of(shape) * octets)
    {
        operand<uint4>(args, 1)[octet_in_heads(shape, at)] =
            operand<const uint4>(args, 0)[(at / octets * 3 + 2) * octets + at % octets];
    }
}

KERNEL(head_to_token, THREADS)
{
    const model_shape &shape = args.launch.shape;
    EACH(at, tokens_of(shape) * (shape.width / 8))
    {
        operand<uint4>(args, 1)[at] = operand<const uint4>(args, 0)[octet_in_heads(shape, at)];
    }
}

KERNEL(token_to_head, THREADS)
{
    const model_shape &shape = args.launch.shape;
    EACH(at, tokens_of(shape) * (shape.width / 8))
    {
        operand<uint4>(args, 1)[octet_in_heads(shape, at)] = operand<const uint4>(args, 0)[at];
    }
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
