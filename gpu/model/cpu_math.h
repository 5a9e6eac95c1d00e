/* What the CPU's programs share: sums in lanes, and exp without a branch. */
#ifndef COPPELIUS_GPU_MODEL_CPU_MATH_H
#define COPPELIUS_GPU_MODEL_CPU_MATH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 16

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
    for (; i < count; i++) {
        lanes[i % LANES] += a[i] * b[i];
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
    for (; i < count; i++) {
        lanes[i % LANES] += a[i];
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
    uint32_t bits[2] = {(uint32_t)(lower + 127) << 23, (uint32_t)(whole - lower + 127) << 23};
    float power[2];
    memcpy(power, bits, sizeof(power));
    float value = p * power[0] * power[1];
    return x < -87.0F ? 0.0F : x > 88.7F ? INFINITY : x != x ? x : value;
}

#endif
