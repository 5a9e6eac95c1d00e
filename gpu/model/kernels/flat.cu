/* Flat images, and sums over flat arrays. A thread takes MODEL_AHEAD quads (16 bytes) that are
 * under way together; the last elements that are no quad go one by one. */
#include "gpu/model/kernels/model.cuh"
#include "gpu/model/philox.h"

#define THREADS 256
#define QUADS(count)                                                                 \
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (count) / 4; \
         i += (uint64_t)gridDim.x * THREADS)
#define TAIL(count)                                                                                \
    for (uint64_t i = (count) / 4 * 4 + (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (count); \
         i += (uint64_t)gridDim.x * THREADS)

/* load(i) of the thread's quads, all of them, then store(i, what was loaded). */
template <typename T, typename LOAD, typename STORE>
__device__ static inline void each_quad(uint64_t count, LOAD load, STORE store)
{
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * MODEL_AHEAD) + threadIdx.x;
    T x[MODEL_AHEAD];
#pragma unroll
    for (int k = 0; k < MODEL_AHEAD; k++) {
        if (first + k * THREADS < count / 4) {
            x[k] = load(first + k * THREADS);
        }
    }
#pragma unroll
    for (int k = 0; k < MODEL_AHEAD; k++) {
        if (first + k * THREADS < count / 4) {
            store(first + k * THREADS, x[k]);
        }
    }
}

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
        float x[4];
#pragma unroll
        for (unsigned place = 0; place < 4; place++) {
            x[place] = normal_of(words, place, args.launch.scale);
        }
        const uint64_t number = block * 4;
        if (first % 4 == 0 && number + 4 <= end) { /* the block is a quad of the output */
            *(float4 *)&out[number - first] = make_float4(x[0], x[1], x[2], x[3]);
            continue;
        }
#pragma unroll
        for (unsigned place = 0; place < 4; place++) {
            if (number + place >= first && number + place < end) {
                out[number + place - first] = x[place];
            }
        }
    }
}

KERNEL(fill, THREADS)
{
    const float value = args.launch.value;
    float4 *out = operand<float4>(args, 0);
    each_quad<float4>(
        args.launch.count, [&](uint64_t) { return make_float4(value, value, value, value); },
        [&](uint64_t i, float4 x) { out[i] = x; });
    TAIL(args.launch.count)
    {
        operand<float>(args, 0)[i] = value;
    }
}

KERNEL(copy, THREADS)
{
    const float4 *in = operand<const float4>(args, 0);
    float4 *out = operand<float4>(args, 1);
    each_quad<float4>(
        args.launch.count, [&](uint64_t i) { return in[i]; },
        [&](uint64_t i, float4 x) { out[i] = x; });
    TAIL(args.launch.count)
    {
        operand<float>(args, 1)[i] = operand<const float>(args, 0)[i];
    }
}

KERNEL(cast_down, THREADS)
{
    const float4 *in = operand<const float4>(args, 0);
    uint2 *out = operand<uint2>(args, 1);
    each_quad<float4>(
        args.launch.count, [&](uint64_t i) { return in[i]; },
        [&](uint64_t i, float4 x) {
            out[i] = make_uint2(half_pair(x.x, x.y), half_pair(x.z, x.w));
        });
    TAIL(args.launch.count)
    {
        operand<half_t>(args, 1)[i] = half_round(operand<const float>(args, 0)[i]);
    }
}

KERNEL(cast_up, THREADS)
{
    const uint2 *in = operand<const uint2>(args, 0);
    float4 *out = operand<float4>(args, 1);
    each_quad<uint2>(
        args.launch.count, [&](uint64_t i) { return in[i]; },
        [&](uint64_t i, uint2 x) {
            out[i] = make_float4(pair_low(x.x), pair_high(x.x), pair_low(x.y), pair_high(x.y));
        });
    TAIL(args.launch.count)
    {
        operand<float>(args, 1)[i] = half_load(operand<const half_t>(args, 0)[i]);
    }
}

struct two_quads {
    float4 a;
    float4 b;
};

KERNEL(add, THREADS)
{
    const float4 *a = operand<const float4>(args, 0);
    const float4 *b = operand<const float4>(args, 1);
    float4 *out = operand<float4>(args, 2);
    each_quad<two_quads>(
        args.launch.count,
        [&](uint64_t i) {
            return two_quads{a[i], b[i]};
        },
        [&](uint64_t i, two_quads x) {
            out[i] = make_float4(x.a.x + x.b.x, x.a.y + x.b.y, x.a.z + x.b.z, x.a.w + x.b.w);
        });
    TAIL(args.launch.count)
    {
        operand<float>(args, 2)[i] =
            operand<const float>(args, 0)[i] + operand<const float>(args, 1)[i];
    }
}

KERNEL(scale, THREADS)
{
    const float s = args.launch.scale;
    const float4 *in = operand<const float4>(args, 0);
    float4 *out = operand<float4>(args, 1);
    each_quad<float4>(
        args.launch.count, [&](uint64_t i) { return in[i]; },
        [&](uint64_t i, float4 x) { out[i] = make_float4(s * x.x, s * x.y, s * x.z, s * x.w); });
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

/* -- sums: a block some leaves, then one block --------------------------------------------------
 */

#define SUM_AHEAD 8 /* quads of a thread under way */

/* Element i of a leaf adds to lane i mod 256, in order; the lanes are a tree of halves. A leaf is
 * 64 threads, four lanes each. */
template <bool SQUARES>
__device__ static inline void leaf_sum(const model_arguments &args,
                                       double (*all_lanes)[MODEL_SUM_LANES])
{
    constexpr int OF_LEAF = MODEL_SUM_LANES / 4; /* threads */
    static_assert(THREADS == OF_LEAF * MODEL_SUM_LEAVES, "a leaf is 64 threads");
    const uint32_t mine = threadIdx.x / OF_LEAF;
    const uint32_t thread = threadIdx.x % OF_LEAF;
    double *lanes = all_lanes[mine];
    const float *in = operand<const float>(args, 0);
    const uint64_t leaf = (uint64_t)blockIdx.x * MODEL_SUM_LEAVES + mine;
    const uint64_t first = leaf * MODEL_SUM_LEAF + thread * 4;
    const uint64_t count = args.launch.count;
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (uint32_t i = 0; i < MODEL_SUM_LEAF; i += SUM_AHEAD * MODEL_SUM_LANES) {
        float4 x[SUM_AHEAD];
        if (first + i + (SUM_AHEAD - 1) * MODEL_SUM_LANES + 4 <= count) {
#pragma unroll
            for (uint32_t k = 0; k < SUM_AHEAD; k++) {
                x[k] = *(const float4 *)(in + first + i + k * MODEL_SUM_LANES);
            }
        } else {
#pragma unroll
            for (uint32_t k = 0; k < SUM_AHEAD; k++) {
                const uint64_t at = first + i + k * MODEL_SUM_LANES;
                x[k] = make_float4(at < count ? in[at] : 0.0F, at + 1 < count ? in[at + 1] : 0.0F,
                                   at + 2 < count ? in[at + 2] : 0.0F,
                                   at + 3 < count ? in[at + 3] : 0.0F);
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < SUM_AHEAD; k++) {
            sum[0] += SQUARES ? (double)x[k].x * (double)x[k].x : (double)x[k].x;
            sum[1] += SQUARES ? (double)x[k].y * (double)x[k].y : (double)x[k].y;
            sum[2] += SQUARES ? (double)x[k].z * (double)x[k].z : (double)x[k].z;
            sum[3] += SQUARES ? (double)x[k].w * (double)x[k].w : (double)x[k].w;
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        lanes[thread * 4 + k] = sum[k];
    }
    for (uint32_t width = MODEL_SUM_LANES / 2; width > 0; width /= 2) {
        __syncthreads();
        for (uint32_t i = thread; i < width; i += OF_LEAF) {
            lanes[i] += lanes[i + width];
        }
    }
    if (thread == 0 && leaf * MODEL_SUM_LEAF < count) {
        operand<double>(args, 1)[leaf] = lanes[0];
    }
}

KERNEL(loss_leaf, THREADS)
{
    __shared__ double lanes[MODEL_SUM_LEAVES][MODEL_SUM_LANES];
    leaf_sum<false>(args, lanes);
}

KERNEL(norm_leaf, THREADS)
{
    __shared__ double lanes[MODEL_SUM_LEAVES][MODEL_SUM_LANES];
    leaf_sum<true>(args, lanes);
}

#define ROOT_THREADS 1024
#define ROOT_EACH    8 /* leaves of a thread, neighbours */

/* Nodes of so many lanes that are neighbours join with those right of them, level by level; lane i
 * of the warp has a node where i < count. The whole is in lane 0. */
__device__ static inline double join_lanes(double node, uint32_t lane, uint64_t count)
{
#pragma unroll
    for (uint32_t width = 1; width < 32; width *= 2) {
        const double right = __shfl_sync(0xffffffffU, node, (int)((lane + width) % 32));
        if (lane % (2 * width) == 0 && lane + width < count) {
            node += right;
        }
    }
    return node;
}

/* How many of `each` elements there are from `first` on, rounded up. */
__device__ static inline uint64_t left_of(uint64_t count, uint64_t first, uint64_t each)
{
    return first < count ? (count - first + each - 1) / each : 0;
}

/* The dyadic tree over the leaves: neighbours join, an odd last one goes up alone. 8192 leaves of
 * aligned places become one, in place, over and over: what is written was read before. */
__device__ static inline double leaves_root(const model_arguments &args)
{
    __shared__ double nodes[ROOT_THREADS / 32];
    constexpr uint64_t ALL = ROOT_THREADS * ROOT_EACH;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    double *leaves = operand<double>(args, 1);
    uint64_t count = (args.launch.count + MODEL_SUM_LEAF - 1) / MODEL_SUM_LEAF;
    do {
        for (uint64_t begin = 0; begin < count; begin += ALL) {
            const uint64_t first = begin + threadIdx.x * ROOT_EACH;
            double node[ROOT_EACH];
#pragma unroll
            for (uint32_t i = 0; i < ROOT_EACH; i++) {
                node[i] = first + i < count ? leaves[first + i] : 0.0;
            }
#pragma unroll
            for (uint32_t width = 1; width < ROOT_EACH; width *= 2) {
#pragma unroll
                for (uint32_t i = 0; i < ROOT_EACH; i += 2 * width) {
                    if (first + i + width < count) {
                        node[i] += node[i + width];
                    }
                }
            }
            const uint64_t of_warp = begin + (uint64_t)warp * 32 * ROOT_EACH;
            node[0] = join_lanes(node[0], lane, left_of(count, of_warp, ROOT_EACH));
            if (lane == 0) {
                nodes[warp] = node[0];
            }
            __syncthreads();
            if (warp == 0) {
                const double root =
                    join_lanes(nodes[lane], lane, left_of(count, begin, 32 * ROOT_EACH));
                if (lane == 0) {
                    leaves[begin / ALL] = root;
                }
            }
            __syncthreads();
        }
        count = (count + ALL - 1) / ALL;
    } while (count > 1);
    return leaves[0];
}

KERNEL(loss_root, ROOT_THREADS)
{
    double root = leaves_root(args);
    if (threadIdx.x == 0) {
        *operand<float>(args, 2) = (float)((double)args.launch.scale * root);
    }
}

KERNEL(norm_root, ROOT_THREADS)
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
