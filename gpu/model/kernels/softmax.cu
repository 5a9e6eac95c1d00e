/* Causal softmax over rows of scores, and its gradient: a block a row, at most ROW elements in
 * registers, quads of them a thread. */
#include "gpu/model/kernels/model.cuh"

#define THREADS 256
#define WARPS   (THREADS / 32)
#define QUADS   4 /* of a thread: rows of up to 4096 */

KERNEL(softmax_forward, THREADS)
{
    __shared__ float room[WARPS];
    const uint32_t length = args.launch.shape.length;
    const uint64_t row = blockIdx.x;
    const uint32_t seen = (uint32_t)(row % length) + 1;
    const float4 *x = (const float4 *)(operand<const float>(args, 0) + row * length);
    uint2 *out = (uint2 *)(operand<half_t>(args, 1) + row * length);
    const float scale = args.launch.scale;
    float value[QUADS][4];
    float most = -INFINITE;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t quad = i * THREADS + threadIdx.x;
        float4 four = quad * 4 < seen ? x[quad] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        const float of[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            value[i][j] = quad * 4 + j < seen ? scale * of[j] : -INFINITE;
            most = fmaxf(most, value[i][j]);
        }
    }
    most = block_max<WARPS>(most, room);
    const float from = most == -INFINITE ? 0.0F : most; /* a row that sees nothing is 0 */
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            value[i][j] = expf(value[i][j] - from);
            sum += value[i][j];
        }
    }
    sum = block_sum<WARPS>(sum, room);
    const float over = sum > 0.0F ? 1.0F / sum : 0.0F;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t quad = i * THREADS + threadIdx.x;
        if (quad * 4 < length) {
            out[quad] = make_uint2(half_pair(value[i][0] * over, value[i][1] * over),
                                   half_pair(value[i][2] * over, value[i][3] * over));
        }
    }
}

KERNEL(softmax_backward, THREADS)
{
    __shared__ float room[WARPS];
    const uint32_t length = args.launch.shape.length;
    const uint64_t row = blockIdx.x;
    const uint32_t seen = (uint32_t)(row % length) + 1;
    const uint2 *p = (const uint2 *)(operand<const half_t>(args, 0) + row * length);
    const float4 *dp = (const float4 *)(operand<const float>(args, 1) + row * length);
    uint2 *out = (uint2 *)(operand<half_t>(args, 2) + row * length);
    float weight[QUADS][4];
    float slope[QUADS][4];
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t quad = i * THREADS + threadIdx.x;
        const bool there = quad * 4 < seen;
        const uint2 two = there ? p[quad] : make_uint2(0, 0);
        const float4 four = there ? dp[quad] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        const float of[4] = {four.x, four.y, four.z, four.w};
        const float probability[4] = {pair_low(two.x), pair_high(two.x), pair_low(two.y),
                                      pair_high(two.y)};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool in = quad * 4 + j < seen;
            weight[i][j] = in ? probability[j] : 0.0F;
            slope[i][j] = in ? of[j] : 0.0F;
            sum += weight[i][j] * slope[i][j];
        }
    }
    sum = block_sum<WARPS>(sum, room);
    const float scale = args.launch.scale;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const uint32_t quad = i * THREADS + threadIdx.x;
        float d[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool in = quad * 4 + j < seen;
            d[j] = in ? scale * weight[i][j] * (slope[i][j] - sum) : 0.0F;
        }
        if (quad * 4 < length) {
            out[quad] = make_uint2(half_pair(d[0], d[1]), half_pair(d[2], d[3]));
        }
    }
}
