/* Flat images, and sums over flat arrays. Every thread takes quads (16 bytes), the grid strides;
 * the last elements that are no quad go one by one. */
#include "gpu/model/kernels/model.cuh"
#include "gpu/model/philox.h"

#define THREADS 256
#define QUADS(count)                                                                 \
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (count) / 4; \
         i += (uint64_t)gridDim.x * THREADS)
#define TAIL(count)                                                                                \
    for (uint64_t i = (count) / 4 * 4 + (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (count); \
         i += (uint64_t)gridDim.x * THREADS)

__device__ static inline float normal_of(const philox &block, unsigned place, float scale)
{
    unsigned pair = place / 2 * 2;
    float u = ((float)(block.word[pair] >> 8) + 1.0F) * 0x1p-24F;
    float v = (float)(block.word[pair + 1] >> 8) * 0x1p-24F;
    float sine;
    float cosine;
    sincospif(2.0F * v, &sine, &cosine);
    return scale * sqrtf(-2.0F * logf(u)) * (place % 2 == 0 ? cosine : sine);
}

KERNEL(random_normal, THREADS)
{
    float *out = operand<float>(args, 0);
    uint64_t first = args.launch.first;
    uint64_t end = first + args.launch.count;
    for (uint64_t block = first / 4 + (uint64_t)blockIdx.x * THREADS + threadIdx.x;
         block <= (end - 1) / 4; block += (uint64_t)gridDim.x * THREADS) {
        philox words = philox_block(block, args.launch.seed);
#pragma unroll
        for (unsigned place = 0; place < 4; place++) {
            uint64_t number = block * 4 + place;
            if (number >= first && number < end) {
                out[number - first] = normal_of(words, place, args.launch.scale);
            }
        }
    }
}

KERNEL(fill, THREADS)
{
    float value = args.launch.value;
    QUADS(args.launch.count)
    {
        operand<float4>(args, 0)[i] = make_float4(value, value, value, value);
    }
    TAIL(args.launch.count)
    {
        operand<float>(args, 0)[i] = value;
    }
}

KERNEL(copy, THREADS)
{
    QUADS(args.launch.count)
    {
        operand<float4>(args, 1)[i] = operand<const float4>(args, 0)[i];
    }
    TAIL(args.launch.count)
    {
        operand<float>(args, 1)[i] = operand<const float>(args, 0)[i];
    }
}

KERNEL(cast_down, THREADS)
{
    QUADS(args.launch.count)
    {
        float4 x = operand<const float4>(args, 0)[i];
        operand<uint2>(args, 1)[i] = make_uint2(half_pair(x.x, x.y), half_pair(x.z, x.w));
    }
    TAIL(args.launch.count)
    {
        operand<half_t>(args, 1)[i] = half_round(operand<const float>(args, 0)[i]);
    }
}

KERNEL(cast_up, THREADS)
{
    QUADS(args.launch.count)
    {
        uint2 x = operand<const uint2>(args, 0)[i];
        operand<float4>(args, 1)[i] =
            make_float4(pair_low(x.x), pair_high(x.x), pair_low(x.y), pair_high(x.y));
    }
    TAIL(args.launch.count)
    {
        operand<float>(args, 1)[i] = half_load(operand<const half_t>(args, 0)[i]);
    }
}

KERNEL(add, THREADS)
{
    QUADS(args.launch.count)
    {
        float4 a = operand<const float4>(args, 0)[i];
        float4 b = operand<const float4>(args, 1)[i];
        operand<float4>(args, 2)[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
    TAIL(args.launch.count)
    {
        operand<float>(args, 2)[i] =
            operand<const float>(args, 0)[i] + operand<const float>(args, 1)[i];
    }
}

KERNEL(scale, THREADS)
{
    float s = args.launch.scale;
    QUADS(args.launch.count)
    {
        float4 a = operand<const float4>(args, 0)[i];
        operand<float4>(args, 1)[i] = make_float4(s * a.x, s * a.y, s * a.z, s * a.w);
    }
    TAIL(args.launch.count)
    {
        operand<float>(args, 1)[i] = s * operand<const float>(args, 0)[i];
    }
}

__device__ static inline void adamw_one(const model_launch &l, float factor, float decay, float &p,
                                        float &m, float &v, float gradient)
{
    float g = factor * gradient;
    m = l.beta1 * m + (1.0F - l.beta1) * g;
    v = l.beta2 * v + (1.0F - l.beta2) * g * g;
    float step = l.correction1 * m / (sqrtf(l.correction2 * v) + l.epsilon);
    p -= l.rate * (step + decay * p);
}

/* The whole bank: it is whole quads, and every quad is reached. */
KERNEL(adamw, THREADS)
{
    const model_launch &l = args.launch;
    const float factor = *operand<const float>(args, 5);
    const uint8_t *mask = operand<const uint8_t>(args, 4);
    QUADS(l.count)
    {
        float4 p = operand<float4>(args, 0)[i];
        float4 m = operand<float4>(args, 1)[i];
        float4 v = operand<float4>(args, 2)[i];
        float4 g = operand<const float4>(args, 3)[i];
        float decay = mask[i] != 0 ? l.decay : 0.0F;
        adamw_one(l, factor, decay, p.x, m.x, v.x, g.x);
        adamw_one(l, factor, decay, p.y, m.y, v.y, g.y);
        adamw_one(l, factor, decay, p.z, m.z, v.z, g.z);
        adamw_one(l, factor, decay, p.w, m.w, v.w, g.w);
        operand<float4>(args, 0)[i] = p;
        operand<float4>(args, 1)[i] = m;
        operand<float4>(args, 2)[i] = v;
        operand<uint2>(args, 6)[i] = make_uint2(half_pair(p.x, p.y), half_pair(p.z, p.w));
    }
}

/* -- sums: a block a leaf, then one block ------------------------------------------------------ */

/* Element i of a leaf adds to lane i mod 256, in order; the lanes are a tree of halves. */
template <bool SQUARES>
__device__ static inline void leaf_sum(const model_arguments &args, double *lanes)
{
    static_assert(THREADS == MODEL_SUM_LANES, "a thread a lane");
    const float *in = operand<const float>(args, 0);
    uint64_t first = (uint64_t)blockIdx.x * MODEL_SUM_LEAF;
    double sum = 0.0;
#pragma unroll 8
    for (int i = threadIdx.x; i < MODEL_SUM_LEAF; i += THREADS) {
        double x = first + i < args.launch.count ? (double)in[first + i] : 0.0;
        sum += SQUARES ? x * x : x;
    }
    lanes[threadIdx.x] = sum;
    for (int width = THREADS / 2; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) {
            lanes[threadIdx.x] += lanes[threadIdx.x + width];
        }
    }
    if (threadIdx.x == 0) {
        operand<double>(args, 1)[blockIdx.x] = lanes[0];
    }
}

KERNEL(loss_leaf, THREADS)
{
    __shared__ double lanes[THREADS];
    leaf_sum<false>(args, lanes);
}

KERNEL(norm_leaf, THREADS)
{
    __shared__ double lanes[THREADS];
    leaf_sum<true>(args, lanes);
}

/* The dyadic tree over the leaves, level by level, in place: neighbours join, an odd last one goes
 * up alone. Each round reads all it needs before it writes. */
__device__ static inline double leaves_root(const model_arguments &args)
{
    double *leaves = operand<double>(args, 1);
    uint64_t count = (args.launch.count + MODEL_SUM_LEAF - 1) / MODEL_SUM_LEAF;
    while (count > 1) {
        uint64_t next = (count + 1) / 2;
        for (uint64_t first = 0; first < next; first += THREADS) {
            uint64_t i = first + threadIdx.x;
            double value = 0.0;
            if (i < next) {
                value = leaves[2 * i];
                if (2 * i + 1 < count) {
                    value += leaves[2 * i + 1];
                }
            }
            __syncthreads();
            if (i < next) {
                leaves[i] = value;
            }
            __syncthreads();
        }
        count = next;
    }
    return leaves[0];
}

KERNEL(loss_root, THREADS)
{
    double root = leaves_root(args);
    if (threadIdx.x == 0) {
        *operand<float>(args, 2) = (float)((double)args.launch.scale * root);
    }
}

KERNEL(norm_root, THREADS)
{
    double root = leaves_root(args);
    if (threadIdx.x == 0) {
        double scale = (double)args.launch.scale;
        double most = (double)args.launch.value;
        double norm = fabs(scale) * sqrt(root);
        operand<float>(args, 2)[0] = (float)norm;
        operand<float>(args, 2)[1] =
            (float)(most > 0.0 && norm > most ? scale * most / norm : scale);
    }
}
