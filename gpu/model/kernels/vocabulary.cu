/* Images over the vocabulary: a block a row; gather: a warp a row. */
#include "gpu/model/kernels/model.cuh"

#define THREADS 256
#define WARPS   (THREADS / 32)

/* The lowest index among the largest: the larger value, or the lower index of equals, wins, and
 * that order is total, so that no tree of comparisons has a say. */
struct best {
    float value;
    uint32_t index;
};

__device__ static inline best better(best a, best b)
{
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

KERNEL(argmax, THREADS)
{
    __shared__ best room[WARPS];
    const uint32_t vocabulary = args.launch.shape.vocabulary;
    const float4 *logits =
        (const float4 *)(operand<const float>(args, 0) + (uint64_t)blockIdx.x * vocabulary);
    best mine = {-INFINITE, UINT32_MAX};
    for (uint32_t i = threadIdx.x; i < vocabulary / 4; i += THREADS) {
        float4 four = logits[i];
        mine = better(mine, {four.x, 4 * i});
        mine = better(mine, {four.y, 4 * i + 1});
        mine = better(mine, {four.z, 4 * i + 2});
        mine = better(mine, {four.w, 4 * i + 3});
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        best other = {__shfl_xor_sync(0xffffffffU, mine.value, distance),
                      __shfl_xor_sync(0xffffffffU, mine.index, distance)};
        mine = better(mine, other);
    }
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < WARPS; i++) {
            mine = better(mine, room[i]);
        }
        operand<int32_t>(args, 1)[blockIdx.x] = mine.index == UINT32_MAX ? 0 : (int32_t)mine.index;
    }
}

/* A warp a row, four pieces of 16 bytes a lane under way. */
KERNEL(gather, 128)
{
    const uint32_t row = blockIdx.x * 4 + threadIdx.x / 32;
    if (row >= args.launch.rows) {
        return;
    }
    const uint32_t quads = args.launch.shape.width / 4;
    const uint64_t token = (uint64_t)operand<const int32_t>(args, 0)[row];
    const float4 *from = operand<const float4>(args, 1) + token * quads;
    float4 *to = operand<float4>(args, 2) + (uint64_t)row * quads;
    for (uint32_t i = threadIdx.x % 32; i < quads; i += 4 * 32) {
        float4 x[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            if (i + k * 32 < quads) {
                x[k] = from[i + k * 32];
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            if (i + k * 32 < quads) {
                to[i + k * 32] = x[k];
            }
        }
    }
}

/* One pass: a thread's running largest and sum; a new largest rescales the sum (Milakov and
 * Gimelshein, 2018). Joined over the block by the common largest. */
KERNEL(cross_entropy, THREADS)
{
    __shared__ float room[WARPS];
    const uint32_t vocabulary = args.launch.shape.vocabulary;
    const float *row = operand<const float>(args, 0) + (uint64_t)blockIdx.x * vocabulary;
    const int32_t target = operand<const int32_t>(args, 1)[blockIdx.x];
    const float4 *logits = (const float4 *)row;
    float most = -INFINITE;
    float sum = 0.0F;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < vocabulary / 4; i += THREADS) {
        float4 x = logits[i];
        float larger = fmaxf(fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)), most);
        float from = larger == -INFINITE ? 0.0F : larger;
        sum = sum * expf(most - from) +
              ((expf(x.x - from) + expf(x.y - from)) + (expf(x.z - from) + expf(x.w - from)));
        most = larger;
    }
    const float all = block_max<WARPS>(most, room);
    sum = block_sum<WARPS>(sum * expf(most - (all == -INFINITE ? 0.0F : all)), room);
    if (threadIdx.x == 0) {
        const float past = all == -INFINITE ? all - all : logf(sum); /* no logit at all: NaN */
        operand<float>(args, 2)[blockIdx.x] = target < 0 ? 0.0F : (all - row[target]) + past;
        operand<float>(args, 3)[2 * (uint64_t)blockIdx.x] = all;
        operand<float>(args, 3)[2 * (uint64_t)blockIdx.x + 1] = past;
    }
}

KERNEL(cross_entropy_backward, THREADS)
{
    const uint32_t vocabulary = args.launch.shape.vocabulary;
    const float4 *logits =
        (const float4 *)(operand<const float>(args, 0) + (uint64_t)blockIdx.x * vocabulary);
    const int32_t target = operand<const int32_t>(args, 1)[blockIdx.x];
    const float most = operand<const float>(args, 2)[2 * (uint64_t)blockIdx.x];
    const float past = operand<const float>(args, 2)[2 * (uint64_t)blockIdx.x + 1];
    const float scale = args.launch.scale;
    uint2 *out = (uint2 *)(operand<half_t>(args, 3) + (uint64_t)blockIdx.x * vocabulary);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < vocabulary / 4; i += THREADS) {
        float4 x = logits[i];
        float p[4] = {expf(x.x - most - past), expf(x.y - most - past), expf(x.z - most - past),
                      expf(x.w - most - past)};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float hit = (int32_t)(4 * i) + j == target ? 1.0F : 0.0F;
            p[j] = target < 0 ? 0.0F : scale * (p[j] - hit);
        }
        out[i] = make_uint2(half_pair(p[0], p[1]), half_pair(p[2], p[3]));
    }
}

/* A thread a row. */
KERNEL(loss_target_gather, THREADS)
{
    const uint32_t row = blockIdx.x * THREADS + threadIdx.x;
    if (row < args.launch.rows) {
        const int32_t target = operand<const int32_t>(args, 1)[row];
        const float *logits = operand<const float>(args, 0);
        operand<float>(args, 2)[row] =
            target < 0 ? 0.0F : logits[(uint64_t)row * args.launch.shape.vocabulary + target];
    }
}
