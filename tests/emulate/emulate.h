/* CUDA C on the CPU, as far as the language model's kernels use it: the same sources, one block at
 * a time, every thread a fiber that gives way at barriers and warp exchanges. Slow, and blind to
 * what only hardware shows (races of memory, banks, alignment of cp.async is checked), but exact
 * about indices, orders and who waits for whom: a barrier that not all live threads reach ends the
 * process.
 *
 * Included before everything else in a .cu file that is compiled as C++; then also the C side,
 * which launches by entry name. One thread only. */
#ifndef COPPELIUS_TESTS_EMULATE_H
#define COPPELIUS_TESTS_EMULATE_H

#include <stdint.h>

#include "gpu/model/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void emulated_kernel(const struct model_arguments *args);

/* Called by constructors of the kernels' files. */
void emulate_register(const char *entry, emulated_kernel *kernel);
/* 0, or -1 where no kernel has the name. Dynamic shared memory is poisoned for each block. */
int emulate_launch(const char *entry, const uint32_t grid[3], uint32_t threads,
                   uint32_t shared_bytes, const struct model_arguments *args);

/* What kernels see of where they are, and the services behind the CUDA names below. */
struct emulated_index {
    uint32_t x;
    uint32_t y;
    uint32_t z;
};
extern struct emulated_index emulate_thread;
extern struct emulated_index emulate_block;
extern struct emulated_index emulate_grid;
extern uint8_t emulate_shared[]; /* dynamic */

void emulate_block_barrier(void);
/* Every live thread of the warp gives 16 words and sees what all 32 gave: [lane][16]. The result is
 * valid until the next exchange. */
const uint32_t (*emulate_exchange(const uint32_t *words, unsigned count))[16];
void emulate_copy(uint32_t to, const void *from); /* 16 bytes into dynamic shared memory, later */
void emulate_copy_commit(void);
void emulate_copy_wait(unsigned left);

#ifdef __cplusplus
}

#include <cmath>
#include <cstring>

#include "gpu/model/half.h"

#define EMULATED 1
#define __global__
#define __device__
#define __shared__       static
#define __align__(bytes) alignas(bytes)
#define threadIdx        emulate_thread
#define blockIdx         emulate_block
#define gridDim          emulate_grid
#define __syncthreads    emulate_block_barrier

#define KERNEL(name, threads)                                     \
    static void kernel_##name(const model_arguments &args);       \
    static void run_##name(const model_arguments *args)           \
    {                                                             \
        kernel_##name(*args);                                     \
    }                                                             \
    __attribute__((constructor)) static void register_##name()    \
    {                                                             \
        emulate_register(EMULATED_NAME(ENTRY(name)), run_##name); \
    }                                                             \
    static void kernel_##name(const model_arguments &args)
#define EMULATED_NAME(entry) EMULATED_TEXT(entry)
#define EMULATED_TEXT(entry) #entry
#define DYNAMIC_SHARED(name) uint8_t *const name = emulate_shared

struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
static inline float __uint_as_float(uint32_t bits)
{
    return half_value(bits);
}
static inline float __int_as_float(int32_t bits)
{
    return half_value((uint32_t)bits);
}
static inline void sincospif(float x, float *sine, float *cosine)
{
    *sine = (float)sin(M_PI * (double)x);
    *cosine = (float)cos(M_PI * (double)x);
}

template <typename T> static inline T __shfl_xor_sync(uint32_t, T value, int distance)
{
    uint32_t words[2] = {0, 0};
    memcpy(words, &value, sizeof(value));
    const uint32_t(*all)[16] = emulate_exchange(words, 2);
    T other;
    memcpy(&other, all[(threadIdx.x % 32) ^ (uint32_t)distance], sizeof(other));
    return other;
}

static inline uint32_t __ballot_sync(uint32_t, bool value)
{
    const uint32_t word = value ? 1 : 0;
    const uint32_t(*all)[16] = emulate_exchange(&word, 1);
    uint32_t bits = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        bits |= all[lane][0] << lane;
    }
    return bits;
}
template <typename T> static inline T __shfl_sync(uint32_t, T value, int lane)
{
    uint32_t words[2] = {0, 0};
    memcpy(words, &value, sizeof(value));
    const uint32_t(*all)[16] = emulate_exchange(words, 2);
    T other;
    memcpy(&other, all[lane], sizeof(other));
    return other;
}
static inline void __syncwarp()
{
    const uint32_t word = 0;
    (void)emulate_exchange(&word, 1);
}
static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}
static inline float fast_exp(float x)
{
    return expf(x);
}
static inline float fast_divide(float a, float b)
{
    return a / b;
}
static inline int __clz(int bits)
{
    return bits == 0 ? 32 : __builtin_clz((unsigned)bits);
}
static inline uint32_t __popc(uint32_t bits)
{
    return (uint32_t)__builtin_popcount(bits);
}

#if defined(MODEL_FP16)
static inline float half_load(uint16_t bits)
{
    return half_from_fp16(bits);
}
static inline uint16_t half_round(float value)
{
    return half_to_fp16(value);
}
#else
static inline float half_load(uint16_t bits)
{
    return half_from_bf16(bits);
}
static inline uint16_t half_round(float value)
{
    return half_to_bf16(value);
}
#endif
static inline uint32_t half_pair(float low, float high)
{
    return (uint32_t)half_round(low) | (uint32_t)half_round(high) << 16;
}

static inline uint32_t shared_address(const void *pointer)
{
    return (uint32_t)((const uint8_t *)pointer - emulate_shared);
}
static inline void copy16(uint32_t to, const void *from)
{
    emulate_copy(to, from);
}
static inline void copy_commit()
{
    emulate_copy_commit();
}
template <int LEFT> static inline void copy_wait()
{
    emulate_copy_wait(LEFT);
}

/* Matrix j's row r is at the address that lane 8 j + r gave; a lane takes two neighbours of its row
 * (lane / 4), or, turned, of its column. */
template <bool TRANSPOSED> static inline void load_matrices(uint32_t to[4], uint32_t address)
{
    const uint32_t(*all)[16] = emulate_exchange(&address, 1);
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t j = 0; j < 4; j++) {
        uint16_t two[2];
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t along = lane % 4 * 2 + i;
            const uint32_t row = TRANSPOSED ? along : lane / 4;
            const uint32_t column = TRANSPOSED ? lane / 4 : along;
            memcpy(&two[i], emulate_shared + all[8 * j + row][0] + column * 2, 2);
        }
        memcpy(&to[j], two, 4);
    }
}

/* m16n8k16: the lane that holds A(row, k) is row % 8 * 4 + k % 8 / 2, its word row / 8 + k / 8 * 2;
 * B(k, n): lane n * 4 + k % 8 / 2, word k / 8. */
static inline void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const uint32_t(*all)[16] = emulate_exchange(words, 6);
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = lane / 4 + i / 2 * 8;
        const uint32_t n = lane % 4 * 2 + i % 2;
        float sum = 0.0F;
        for (uint32_t k = 0; k < 16; k++) {
            uint32_t left = all[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            uint32_t right = all[n * 4 + k % 8 / 2][4 + k / 8];
            sum += half_load((uint16_t)(left >> k % 2 * 16)) *
                   half_load((uint16_t)(right >> k % 2 * 16));
        }
        c[i] += sum;
    }
}

#endif
#endif
