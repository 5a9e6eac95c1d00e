/* What the CPU's programs share: sums in lanes, and exp without a branch. */
#ifndef COPPELIUS_GPU_MODEL_CPU_MATH_H
#define COPPELIUS_GPU_MODEL_CPU_MATH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 16

/* Programs that are compiled for several widths of vectors, of which the machine's is taken at run
 * time. None of them contracts or reorders a sum: the bits are the same. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CPU_WIDTHS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CPU_WIDTHS
#endif

/* Destroys the lanes. */
static inline float lanes_sum(float lanes[LANES])
{
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            lanes[i] += lanes[i + width];
        }
    }
    return lanes[0];
}

static inline float dot32(const float *a, const float *b, size_t count)
{
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += a[i + lane] * b[i + lane];
        }
    }
    for (size_t lane = 0; i < count && lane < LANES; lane++) { /* no lane is ever -0.0 */
        lanes[lane] += i + lane < count ? a[i + lane] * b[i + lane] : 0.0F;
    }
    return lanes_sum(lanes);
}

static inline float sum32(const float *a, size_t count)
{
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += a[i + lane];
        }
    }
    for (size_t lane = 0; i < count && lane < LANES; lane++) {
        lanes[lane] += i + lane < count ? a[i + lane] : 0.0F;
    }
    return lanes_sum(lanes);
}

static inline float max32(const float *a, size_t count)
{
    float most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        most = a[i] > most ? a[i] : most;
    }
    return most;
}

/* 2^n for a normal result. */
static inline float power_of_two(int32_t n)
{
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return power;
}

/* e^x within 2 units in the last place; 0 below -87, infinity above 88.7. x = n ln 2 + r with
 * |r| <= ln 2 / 2 in two parts (Cody and Waite, 1980), a Taylor polynomial of degree 7 in r. */
static inline float exp32(float x)
{
    float kept = x < -87.0F ? -87.0F : x > 88.7F ? 88.7F : x;
    float n = kept * 1.44269504F + 12582912.0F; /* 1.5 * 2^23: rounds to a whole number */
    n -= 12582912.0F;
    float r = kept - n * 0.693359375F;
    r += n * 2.12194440e-4F;
    float p = 1.0F / 5040.0F;
    p = p * r + 1.0F / 720.0F;
    p = p * r + 1.0F / 120.0F;
    p = p * r + 1.0F / 24.0F;
    p = p * r + 1.0F / 6.0F;
    p = p * r + 0.5F;
    p = p * r * r + r + 1.0F;
    /* 2^n in two factors: n may be 128. */
    int32_t whole = (int32_t)n;
    int32_t lower = whole / 2;
    float value = p * power_of_two(lower) * power_of_two(whole - lower);
    return x < -87.0F ? 0.0F : x > 88.7F ? INFINITY : x != x ? x : value;
}

#endif
