/* Layer norm: a warp a row; a lane takes quads lane, lane + 32 … of the row, at most NORM_QUADS of
 * them in registers (width up to 4096 by NORM_QUADS = 32: the loop reads again beyond that). */
#include "gpu/model/kernels/model.cuh"

#define THREADS 128
#define WARPS   (THREADS / 32)
#define KEPT    4 /* quads of a lane that stay in registers: width 512 */

__device__ static inline float4 quad_of(const float *row, int i, int quads)
{
    return i < quads ? ((const float4 *)row)[i] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
}

__device__ static inline float sum4(float4 x)
{
    return (x.x + x.y) + (x.z + x.w);
}

/* f(value, quad's index) over the row's quads of this lane, the first KEPT from registers. */
template <typename F>
__device__ static inline void each_quad(const float *row, const float4 kept[KEPT], int quads, F f)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        if (i * 32 + lane < quads) {
            f(kept[i], i * 32 + lane);
        }
    }
    for (int i = KEPT * 32 + lane; i < quads; i += 32) {
        f(((const float4 *)row)[i], i);
    }
}

__device__ static inline void keep(const float *row, float4 kept[KEPT], int quads)
{
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        kept[i] = quad_of(row, i * 32 + threadIdx.x % 32, quads);
    }
}

KERNEL(layernorm_forward, THREADS)
{
    const uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;
    const int width = args.launch.shape.width;
    const int quads = width / 4;
    if (row >= args.launch.rows) {
        return;
    }
    const float *x = operand<const float>(args, 0) + (uint64_t)row * width;
    const float4 *scale = operand<const float4>(args, 1);
    const float4 *bias = operand<const float4>(args, 2);
    uint2 *out = (uint2 *)(operand<half_t>(args, 3) + (uint64_t)row * width);
    float4 kept[KEPT];
    keep(x, kept, quads);
    float sum = 0.0F;
    each_quad(x, kept, quads, [&](float4 q, int) { sum += sum4(q); });
    const float mean = warp_sum(sum) / (float)width;
    float squares = 0.0F;
    each_quad(x, kept, quads, [&](float4 q, int) {
        float4 d = make_float4(q.x - mean, q.y - mean, q.z - mean, q.w - mean);
        squares += (d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w);
    });
    const float rstd = 1.0F / sqrtf(warp_sum(squares) / (float)width + args.launch.epsilon);
    each_quad(x, kept, quads, [&](float4 q, int i) {
        float4 s = scale[i];
        float4 b = bias[i];
        out[i] = make_uint2(
            half_pair(s.x * ((q.x - mean) * rstd) + b.x, s.y * ((q.y - mean) * rstd) + b.y),
            half_pair(s.z * ((q.z - mean) * rstd) + b.z, s.w * ((q.w - mean) * rstd) + b.w));
    });
    if (threadIdx.x % 32 == 0) {
        operand<float>(args, 4)[row] = mean;
        operand<float>(args, 5)[row] = rstd;
    }
}

KERNEL(layernorm_backward, THREADS)
{
    const uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;
    const int width = args.launch.shape.width;
    const int quads = width / 4;
    if (row >= args.launch.rows) {
        return;
    }
    const float *dy = operand<const float>(args, 0) + (uint64_t)row * width;
    const float4 *x = (const float4 *)(operand<const float>(args, 1) + (uint64_t)row * width);
    const float4 *scale = operand<const float4>(args, 2);
    const float mean = operand<const float>(args, 3)[row];
    const float rstd = operand<const float>(args, 4)[row];
    float4 *dx = (float4 *)(operand<float>(args, 5) + (uint64_t)row * width);
    float4 kept[KEPT];
    float4 hats[KEPT]; /* xhat of the kept quads */
    keep(dy, kept, quads);
    keep((const float *)x, hats, quads);
    auto hat = [&](float4 q) {
        return make_float4((q.x - mean) * rstd, (q.y - mean) * rstd, (q.z - mean) * rstd,
                           (q.w - mean) * rstd);
    };
    auto xhat = [&](int i) {
        float4 q = i < KEPT * 32 ? hats[0] : x[i];
#pragma unroll
        for (int k = 1; k < KEPT; k++) {
            q = i / 32 == k ? hats[k] : q;
        }
        return hat(q);
    };
    float sum_g = 0.0F;
    float sum_gx = 0.0F;
    each_quad(dy, kept, quads, [&](float4 d, int i) {
        float4 s = scale[i];
        float4 h = xhat(i);
        float4 g = make_float4(d.x * s.x, d.y * s.y, d.z * s.z, d.w * s.w);
        sum_g += sum4(g);
        sum_gx += (g.x * h.x + g.y * h.y) + (g.z * h.z + g.w * h.w);
    });
    const float mean_g = warp_sum(sum_g) / (float)width;
    const float mean_gx = warp_sum(sum_gx) / (float)width;
    each_quad(dy, kept, quads, [&](float4 d, int i) {
        float4 s = scale[i];
        float4 h = xhat(i);
        dx[i] = make_float4(rstd * (d.x * s.x - mean_g - h.x * mean_gx),
                            rstd * (d.y * s.y - mean_g - h.y * mean_gx),
                            rstd * (d.z * s.z - mean_g - h.z * mean_gx),
                            rstd * (d.w * s.w - mean_g - h.w * mean_gx));
    });
}

/* A block a leaf of rows and MODEL_NORM_COLUMNS columns, two a thread: the rows in order, AHEAD of
 * them under way. grid: (leaves, columns). */
#define AHEAD 8

KERNEL(layernorm_leaf, THREADS)
{
    static_assert(MODEL_NORM_COLUMNS == 2 * THREADS, "two columns a thread");
    __shared__ float2 kept[MODEL_NORM_LEAF]; /* mean, rstd */
    const uint32_t width = args.launch.shape.width;
    const uint32_t j = blockIdx.y * MODEL_NORM_COLUMNS + threadIdx.x * 2;
    const uint32_t first = blockIdx.x * MODEL_NORM_LEAF;
    const uint32_t count = min(MODEL_NORM_LEAF, args.launch.rows - first);
    for (uint32_t i = threadIdx.x; i < count; i += THREADS) {
        kept[i] = make_float2(operand<const float>(args, 2)[first + i],
                              operand<const float>(args, 3)[first + i]);
    }
    __syncthreads();
    if (j >= width) {
        return;
    }
    const float *dy = operand<const float>(args, 0) + (uint64_t)first * width + j;
    const float *x = operand<const float>(args, 1) + (uint64_t)first * width + j;
    float2 dscale = make_float2(0.0F, 0.0F);
    float2 dbias = make_float2(0.0F, 0.0F);
    for (uint32_t i = 0; i < count; i += AHEAD) {
        float2 d[AHEAD];
        float2 v[AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
            if (i + k < count) {
                d[k] = *(const float2 *)(dy + (uint64_t)(i + k) * width);
                v[k] = *(const float2 *)(x + (uint64_t)(i + k) * width);
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
            if (i + k < count) {
                const float2 of = kept[i + k];
                dscale.x += d[k].x * ((v[k].x - of.x) * of.y);
                dscale.y += d[k].y * ((v[k].y - of.x) * of.y);
                dbias.x += d[k].x;
                dbias.y += d[k].y;
            }
        }
    }
    float *out = operand<float>(args, 4) + (uint64_t)blockIdx.x * 2 * width + j;
    *(float2 *)out = dscale;
    *(float2 *)(out + width) = dbias;
}

/* The leaves as a dyadic tree: 32 columns of (dscale, dbias) a block, a thread for an aligned run
 * of leaves of a column, then the runs. Missing leaves count as +0.0. */
#define ROOT_RUNS   32
#define ROOT_LEVELS 8 /* runs of up to 128 leaves: 524288 rows */

KERNEL(layernorm_root, 1024)
{
    __shared__ float runs[ROOT_RUNS][33];
    const uint32_t width = args.launch.shape.width;
    const uint32_t column = threadIdx.x % 32;
    const uint32_t run = threadIdx.x / 32;
    const uint64_t both = 2 * (uint64_t)width;
    const uint32_t j = blockIdx.x * 32 + column;
    const uint32_t count = (args.launch.rows + MODEL_NORM_LEAF - 1) / MODEL_NORM_LEAF;
    uint32_t levels = 0; /* of a run: 2^levels leaves */
    while ((uint32_t)ROOT_RUNS << levels < count) {
        levels++;
    }
    const float *leaves = operand<const float>(args, 4) + j;
    float waits[ROOT_LEVELS];
    for (uint32_t i = 0; i < 1U << levels; i++) {
        const uint32_t leaf = (run << levels) + i;
        float value = j < both && leaf < count ? leaves[leaf * both] : 0.0F;
        bool settled = false;
#pragma unroll
        for (int level = 0; level < ROOT_LEVELS; level++) {
            const bool right = (i >> level & 1) != 0;
            if (!settled && !right) {
                waits[level] = value;
                settled = true;
            } else if (!settled) {
                value = waits[level] + value;
            }
        }
    }
    float root = 0.0F;
#pragma unroll
    for (int level = 0; level < ROOT_LEVELS; level++) {
        root = level == (int)levels ? waits[level] : root;
    }
    runs[run][column] = root;
    for (uint32_t step = 1; step < ROOT_RUNS; step *= 2) {
        __syncthreads();
        if (run % (2 * step) == 0) {
            runs[run][column] += runs[run + step][column];
        }
    }
    if (run == 0 && j < both) {
        operand<float>(args, j < width ? 5 : 6)[j % width] = runs[0][column];
    }
}
