/* Helpers of tiles_gpu.c on the device: random operands, an oracle of single elements in binary64,
 * norms of differences, digests; and one wgmma with the descriptor's bits as parameters. */
#include "gpu/model/kernels/wgmma.cuh"

__device__ static inline uint32_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33;
    return (uint32_t)x;
}

/* About normal: four uniform bytes added. */
__device__ static inline float random_value(uint64_t seed, uint64_t i)
{
    uint32_t bits = mix(seed * 0x9e3779b97f4a7c15ULL + i);
    float sum = 0.0F;
    for (int b = 0; b < 4; b++) {
        sum += (float)(bits >> (8 * b) & 255);
    }
    return (sum - 510.0F) / 148.0F;
}

extern "C" __global__ void fill_halves(uint16_t *to, uint64_t count, uint64_t seed)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        to[i] = half_round(random_value(seed, i));
    }
}

extern "C" __global__ void fill_floats(float *to, uint64_t count, uint64_t seed)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        to[i] = random_value(seed, i);
    }
}

/* Block b: element (row, column) = spot b, out[2 b] = exact, out[2 b + 1] = what C holds. */
extern "C" __global__ void spots(model_arguments args, double *out, uint64_t seed)
{
    const model_launch &l = args.launch;
    uint32_t row = mix(seed + 2 * blockIdx.x) % l.m;
    uint32_t column = mix(seed + 2 * blockIdx.x + 1) % l.n;
    if (blockIdx.x < 4) {
        row = blockIdx.x % 2 != 0 ? l.m - 1 : 0;
        column = blockIdx.x / 2 != 0 ? l.n - 1 : 0;
    }
    const half_t *a = operand<const half_t>(args, 0);
    const half_t *b = operand<const half_t>(args, 1);
    double sum = 0.0;
    for (uint32_t k = threadIdx.x; k < l.k; k += 256) {
        const float x =
            half_load(l.a_columns ? a[(uint64_t)k * l.m + row] : a[(uint64_t)row * l.k + k]);
        const float y =
            half_load(l.b_columns ? b[(uint64_t)k * l.n + column] : b[(uint64_t)column * l.k + k]);
        sum += (double)x * y;
    }
    __shared__ double room[8];
    sum = block_sum<8>(sum, room);
    if (threadIdx.x == 0) {
        const uint64_t at = (uint64_t)row * l.n + column;
        out[2 * blockIdx.x] = sum + (l.add ? operand<const float>(args, 2)[at] : 0.0F);
        out[2 * blockIdx.x + 1] =
            l.half_out ? half_load(operand<half_t>(args, 4)[at]) : operand<float>(args, 3)[at];
    }
}

/* out[2 b], out[2 b + 1]: sums of (C - other)^2 and other^2. */
extern "C" __global__ void norms(model_arguments args, const float *other, double *out)
{
    const model_launch &l = args.launch;
    const uint64_t count = (uint64_t)l.m * l.n;
    double difference = 0.0;
    double size = 0.0;
    for (uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x; i < count;
         i += gridDim.x * 256ULL) {
        const float own =
            l.half_out ? half_load(operand<half_t>(args, 4)[i]) : operand<float>(args, 3)[i];
        const double d = (double)own - other[i];
        difference += d * d;
        size += (double)other[i] * other[i];
    }
    __shared__ double room[8];
    difference = block_sum<8>(difference, room);
    size = block_sum<8>(size, room);
    if (threadIdx.x == 0) {
        out[2 * blockIdx.x] = difference;
        out[2 * blockIdx.x + 1] = size;
    }
}

extern "C" __global__ void digest(const uint32_t *words, uint64_t count, unsigned long long *out)
{
    unsigned long long sum = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x; i < count;
         i += gridDim.x * 256ULL) {
        sum += (uint64_t)mix((i << 32 | words[i]) + 1) * (i | 1);
    }
    atomicAdd(out, sum);
}

/* C (64 x N) = A (64 x 64) B (64 x N), one warpgroup; steps: bytes from k to k + 16. */
struct micro {
    uint32_t a_leading, a_stride, a_step, b_leading, b_stride, b_step;
    uint32_t a_index, b_index; /* where the boxes start */
    uint32_t k;
};

template <bool A_COLUMNS, bool B_COLUMNS, int N>
__device__ static inline void micro_run(const model_maps &maps, float *out, const micro &m)
{
    extern __shared__ __align__(1024) uint8_t room[];
    __shared__ __align__(8) uint64_t bar;
    const uint32_t base = (shared_address(room) + 1023) & ~1023U;
    const uint32_t barrier = shared_address(&bar);
    if (threadIdx.x == 0) {
        barrier_init(barrier, 1);
        barrier_init_done();
        barrier_expect(barrier, 8192 + N * 128);
        tensor_load(base, &maps.map[0], A_COLUMNS ? m.a_index : m.k, A_COLUMNS ? m.k : m.a_index,
                    barrier);
        for (int i = 0; i < N; i += B_COLUMNS ? 64 : N) {
            tensor_load(base + 8192 + i * 128, &maps.map[1], B_COLUMNS ? m.b_index + i : m.k,
                        B_COLUMNS ? m.k : m.b_index + i, barrier);
        }
    }
    __syncthreads();
    barrier_wait(barrier, 0);
    float c[N / 2];
    products_begin();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        warpgroup_product<N, A_COLUMNS, B_COLUMNS>::add(
            c, shared_matrix(base + i * m.a_step, m.a_leading, m.a_stride),
            shared_matrix(base + 8192 + i * m.b_step, m.b_leading, m.b_stride), i != 0);
    }
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        asm volatile("" : "+f"(c[i])::"memory");
        const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
        out[row * N + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = c[i];
    }
}

#define MICRO(name, a, b)                                                                          \
    extern "C" __global__ void __launch_bounds__(128)                                              \
        name(float *out, const __grid_constant__ model_maps maps, const __grid_constant__ micro m) \
    {                                                                                              \
        micro_run<a, b, 128>(maps, out, m);                                                        \
    }
MICRO(micro_rr, false, false)
MICRO(micro_rc, false, true)
MICRO(micro_cc, true, true)
