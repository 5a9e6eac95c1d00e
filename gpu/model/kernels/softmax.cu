/* Causal softmax over rows of scores, and its gradient: a warp a row, which it keeps in registers,
 * QUADS of 16 bytes a lane. What lies above the diagonal is not read. */
#include "gpu/model/kernels/model.cuh"

#define THREADS (MODEL_SOFTMAX_ROWS * 32)

__device__ static inline uint64_t row_of()
{
    return (uint64_t)blockIdx.x * MODEL_SOFTMAX_ROWS + threadIdx.x / 32;
}

__device__ static inline uint64_t rows_of(const model_shape &shape)
{
    return (uint64_t)shape.sequences * shape.heads * shape.length;
}

template <int QUADS> __device__ static inline void softmax_forward(const model_arguments &args)
{
    const uint32_t length = args.launch.shape.length;
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t row = row_of();
    if (row >= rows_of(args.launch.shape)) {
        return;
    }
    const uint32_t seen = (uint32_t)(row % length) + 1;
    const float4 *x = (const float4 *)(operand<const float>(args, 0) + row * length);
    uint2 *out = (uint2 *)(operand<half_t>(args, 1) + row * length);
    const float scale = args.launch.scale;
    float4 value[QUADS];
    float most = -INFINITE;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t quad = i * 32 + lane;
        value[i] = make_float4(-INFINITE, -INFINITE, -INFINITE, -INFINITE);
        if (quad * 4 < seen) {
            value[i] = x[quad];
        }
    }
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t first = (i * 32 + lane) * 4;
        value[i].x = first < seen ? scale * value[i].x : -INFINITE;
        value[i].y = first + 1 < seen ? scale * value[i].y : -INFINITE;
        value[i].z = first + 2 < seen ? scale * value[i].z : -INFINITE;
        value[i].w = first + 3 < seen ? scale * value[i].w : -INFINITE;
        most = fmaxf(fmaxf(fmaxf(value[i].x, value[i].y), fmaxf(value[i].z, value[i].w)), most);
    }
    most = warp_max(most);
    const float from = most == -INFINITE ? 0.0F : most; /* a row that sees nothing is 0 */
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        if (i * 128 < seen) { /* the same for the warp; else all of it is 0 */
            value[i] = make_float4(fast_exp(value[i].x - from), fast_exp(value[i].y - from),
                                   fast_exp(value[i].z - from), fast_exp(value[i].w - from));
            sum += (value[i].x + value[i].y) + (value[i].z + value[i].w);
        } else {
            value[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        }
    }
    sum = warp_sum(sum);
    const float over = sum > 0.0F ? 1.0F / sum : 0.0F;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t quad = i * 32 + lane;
        if (quad * 4 < length) {
            out[quad] = make_uint2(half_pair(value[i].x * over, value[i].y * over),
                                   half_pair(value[i].z * over, value[i].w * over));
        }
    }
}

template <int QUADS> __device__ static inline void softmax_backward(const model_arguments &args)
{
    const uint32_t length = args.launch.shape.length;
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t row = row_of();
    if (row >= rows_of(args.launch.shape)) {
        return;
    }
    const uint32_t seen = (uint32_t)(row % length) + 1;
    const uint2 *p = (const uint2 *)(operand<const half_t>(args, 0) + row * length);
    const float4 *dp = (const float4 *)(operand<const float>(args, 1) + row * length);
    uint2 *out = (uint2 *)(operand<half_t>(args, 2) + row * length);
    uint2 weight[QUADS];
    float4 slope[QUADS];
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t quad = i * 32 + lane;
        weight[i] = make_uint2(0, 0);
        slope[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        if (quad * 4 < seen) {
            weight[i] = p[quad];
            slope[i] = dp[quad];
        }
    }
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t first = (i * 32 + lane) * 4;
        slope[i].y = first + 1 < seen ? slope[i].y : 0.0F; /* not read above the diagonal */
        slope[i].z = first + 2 < seen ? slope[i].z : 0.0F;
        slope[i].w = first + 3 < seen ? slope[i].w : 0.0F;
        weight[i].x = first + 1 < seen ? weight[i].x : weight[i].x & 0xffffU;
        weight[i].y = first + 3 < seen ? weight[i].y : first + 2 < seen ? weight[i].y & 0xffffU : 0;
        sum += (pair_low(weight[i].x) * slope[i].x + pair_high(weight[i].x) * slope[i].y) +
               (pair_low(weight[i].y) * slope[i].z + pair_high(weight[i].y) * slope[i].w);
    }
    sum = warp_sum(sum);
    const float scale = args.launch.scale;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t quad = i * 32 + lane;
        const float x = scale * pair_low(weight[i].x) * (slope[i].x - sum);
        const float y = scale * pair_high(weight[i].x) * (slope[i].y - sum);
        const float z = scale * pair_low(weight[i].y) * (slope[i].z - sum);
        const float w = scale * pair_high(weight[i].y) * (slope[i].w - sum);
        const uint32_t first = quad * 4; /* +0.0 above the diagonal */
        if (first < length) {
            out[quad] =
                make_uint2(half_pair(first < seen ? x : 0.0F, first + 1 < seen ? y : 0.0F),
                           half_pair(first + 2 < seen ? z : 0.0F, first + 3 < seen ? w : 0.0F));
        }
    }
}

KERNEL(softmax_forward_1024, THREADS)
{
    softmax_forward<8>(args);
}

KERNEL(softmax_forward_4096, THREADS)
{
    softmax_forward<32>(args);
}

KERNEL(softmax_backward_1024, THREADS)
{
    softmax_backward<8>(args);
}

KERNEL(softmax_backward_4096, THREADS)
{
    softmax_backward<32>(args);
}
