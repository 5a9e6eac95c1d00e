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

/* A tile's first element in a group, and its group. */
struct tile_at {
    uint32_t group;
    uint32_t row;
    uint32_t column;
};

__device__ static inline tile_at find_tile(const model_launch &l, uint32_t number)
{
    const uint32_t across = l.n / TILE;
    const uint32_t of_group = l.m / TILE * across;
    const uint32_t inside = number % of_group;
    return {number / of_group, inside / across * TILE, inside % across * TILE};
}

/* MODEL_TRANSPOSE_TILES tiles of 64 x 64 through shared memory. A thread reads 16 bytes of two rows
 * that follow each other and leaves eight words, the columns' pairs; then takes 16 bytes of a column
 * to its place. A column's eight pieces of 16 bytes lie in an order that its eight neighbours'
 * do not have: neither side meets itself in a bank. */
KERNEL(transpose, THREADS)
{
    __shared__ uint4 memory[MODEL_TRANSPOSE_TILES][TILE * TILE / 8];
    static_assert(THREADS * 16 == TILE * TILE, "two pieces a thread");
    const model_launch &l = args.launch;
    const uint32_t tiles = l.groups * (l.m / TILE) * (l.n / TILE);
    const uint32_t first = blockIdx.x * MODEL_TRANSPOSE_TILES;
    const uint32_t octet = threadIdx.x % 8; /* of columns; then of rows */
    const uint32_t pair = threadIdx.x / 8;  /* of rows; then of columns */
    uint4 x[MODEL_TRANSPOSE_TILES][2];
#pragma unroll
    for (uint32_t i = 0; i < MODEL_TRANSPOSE_TILES; i++) {
        if (first + i < tiles) {
            const tile_at at = find_tile(l, first + i);
            const half_t *from = operand<const half_t>(args, 0) + (uint64_t)at.group * l.m * l.n +
                                 (uint64_t)(at.row + 2 * pair) * l.n + at.column + octet * 8;
            x[i][0] = *(const uint4 *)from;
            x[i][1] = *(const uint4 *)(from + l.n);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < MODEL_TRANSPOSE_TILES; i++) {
        uint32_t *words = (uint32_t *)memory[i];
        const uint32_t one[4] = {x[i][0].x, x[i][0].y, x[i][0].z, x[i][0].w};
        const uint32_t two[4] = {x[i][1].x, x[i][1].y, x[i][1].z, x[i][1].w};
#pragma unroll
        for (uint32_t j = 0; first + i < tiles && j < 8; j++) {
            const uint32_t word = j % 2 == 0 ? (one[j / 2] & 0xffffU) | two[j / 2] << 16
                                             : one[j / 2] >> 16 | (two[j / 2] & 0xffff0000U);
            words[(octet * 8 + j) * (TILE / 2) + ((pair / 4 ^ octet) * 4 + pair % 4)] = word;
        }
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < MODEL_TRANSPOSE_TILES; i++) {
        if (first + i < tiles) {
            const tile_at at = find_tile(l, first + i);
            half_t *to = operand<half_t>(args, 1) + (uint64_t)at.group * l.m * l.n + at.row +
                         octet * 8;
#pragma unroll
            for (uint32_t c = pair; c < TILE; c += THREADS / 8) {
                *(uint4 *)(to + (uint64_t)(at.column + c) * l.m) =
                    memory[i][c * 8 + (octet ^ c / 8)];
            }
        }
    }
}
