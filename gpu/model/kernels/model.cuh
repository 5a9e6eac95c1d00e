/* What the language model's kernels share. A file is compiled once for each half type, with
 *   MODEL_FP16 or MODEL_BF16 defined; entry names end in _fp16 or _bf16.
 * Sums run in a fixed order: within a thread in index order, across a warp by halving distances,
 * across warps by index. No atomics on floating point. */
#ifndef COPPELIUS_GPU_MODEL_KERNELS_MODEL_CUH
#define COPPELIUS_GPU_MODEL_KERNELS_MODEL_CUH

#include "gpu/model/launch.h"

#if defined(MODEL_FP16)
#define ENTRY(name) name##_fp16
#else
#define ENTRY(name) name##_bf16
#endif
#ifndef EMULATED /* tests/emulate runs these sources on the CPU, with its own of what follows */

/* -- grids one behind the other: sm_90 and up; before that a grid begins when the last one is done
 */

/* Until the grids before this one in the stream are done and what they wrote is to be seen. Nothing
 * to wait for where the launch did not ask to be early. */
__device__ static inline void earlier_grids_done()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next grid may take what room there is, to wait there. */
__device__ static inline void next_grid_may_come()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Every thread waits before it touches what another grid may, and the next grid may come to wait in
 * its turn: what a launch costs passes meanwhile. A grid is done only when the one before it is. */
#define KERNEL(name, threads)                                                                \
    __device__ static __forceinline__ void name##_body(const model_arguments &args);         \
    extern "C" __global__ void __launch_bounds__(threads)                                    \
        ENTRY(name)(const __grid_constant__ model_arguments args)                            \
    {                                                                                        \
        next_grid_may_come();                                                                \
        earlier_grids_done();                                                                \
        name##_body(args);                                                                   \
    }                                                                                        \
    __device__ static __forceinline__ void name##_body(const model_arguments &args)
/* This one says both itself. */
#define KERNEL_MAPS(name, threads, cluster)                                                  \
    extern "C" __global__ void __launch_bounds__(threads, 1) __cluster_dims__(cluster, 1, 1) \
        ENTRY(name)(const __grid_constant__ model_arguments args,                            \
                    const __grid_constant__ model_maps maps)
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) uint8_t name[]
#endif

typedef uint16_t half_t; /* the bits */

#ifndef EMULATED

__device__ static inline float half_load(half_t bits)
{
#if defined(MODEL_FP16)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    return __uint_as_float((uint32_t)bits << 16);
#endif
}

__device__ static inline half_t half_round(float value)
{
    half_t bits;
#if defined(MODEL_FP16)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#endif
    return bits;
}

/* Within 2^-21 times 2 + |x|: for what is rounded to halves. */
__device__ static inline float fast_exp(float x)
{
    return __expf(x);
}

/* 0 for a finite a over infinity. */
__device__ static inline float fast_divide(float a, float b)
{
    return __fdividef(a, b);
}

/* Two side by side: low, high. */
__device__ static inline uint32_t half_pair(float low, float high)
{
    uint32_t bits;
#if defined(MODEL_FP16)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#endif
    return bits;
}

#endif

__device__ static inline float pair_low(uint32_t bits)
{
    return half_load((half_t)bits);
}

__device__ static inline float pair_high(uint32_t bits)
{
    return half_load((half_t)(bits >> 16));
}

/* Eight halves in 16 bytes. */
__device__ static inline void unpack8(uint4 from, float to[8])
{
    const uint32_t word[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = pair_low(word[i]);
        to[2 * i + 1] = pair_high(word[i]);
    }
}

__device__ static inline uint4 pack8(const float from[8])
{
    return make_uint4(half_pair(from[0], from[1]), half_pair(from[2], from[3]),
                      half_pair(from[4], from[5]), half_pair(from[6], from[7]));
}

__device__ static inline float warp_sum(float value)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, distance);
    }
    return value;
}

__device__ static inline double warp_sum(double value)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, distance);
    }
    return value;
}

__device__ static inline float warp_max(float value)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, distance));
    }
    return value;
}

/* The same value in every thread of a block of WARPS warps; `room` may be used again at once. */
template <int WARPS, typename T> __device__ static inline T block_sum(T value, T *room)
{
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = value;
    }
    __syncthreads();
    T sum = room[0];
#pragma unroll
    for (int i = 1; i < WARPS; i++) {
        sum += room[i];
    }
    return sum;
}

template <int WARPS> __device__ static inline float block_max(float value, float *room)
{
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float most = room[0];
#pragma unroll
    for (int i = 1; i < WARPS; i++) {
        most = fmaxf(most, room[i]);
    }
    return most;
}

template <typename T> __device__ static inline T *operand(const model_arguments &args, int i)
{
    return (T *)args.operand[i];
}

#define INFINITE __int_as_float(0x7f800000)

#endif
