/* fp16 (IEEE binary16) and bf16 (the upper half of binary32), rounded to nearest even, subnormals
 * kept, overflow to infinity, NaN stays NaN: what cvt.rn.f16.f32 and cvt.rn.bf16.f32 do. */
#ifndef COPPELIUS_GPU_MODEL_HALF_H
#define COPPELIUS_GPU_MODEL_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float half_value(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint16_t half_to_bf16(float value)
{
    uint32_t bits = half_bits(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)(bits >> 16 | 0x40U); /* quiet */
    }
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

static inline float half_from_bf16(uint16_t half)
{
    return half_value((uint32_t)half << 16);
}

static inline uint16_t half_to_fp16(float value)
{
    uint32_t bits = half_bits(value);
    uint32_t sign = bits >> 16 & 0x8000U;
    uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
        return (uint16_t)(sign | 0x7e00U | (magnitude >> 13 & 0x1ffU));
    }
    if (magnitude >= 0x47800000U) { /* 65536 and more; 65520 and more carry into infinity below */
        return (uint16_t)(sign | 0x7c00U);
    }
    if (magnitude < 0x38800000U) { /* below 2^-14: units of 2^-24, rounded by adding 2^23 */
        float units = half_value(magnitude) * 0x1p24F + 0x1p23F;
        return (uint16_t)(sign | (half_bits(units) & 0x7fffU));
    }
    uint32_t rounded = magnitude + 0xfffU + (magnitude >> 13 & 1U);
    return (uint16_t)(sign | (rounded - 0x38000000U) >> 13);
}

static inline float half_from_fp16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000U) << 16;
    uint32_t exponent = half >> 10 & 0x1fU;
    uint32_t fraction = half & 0x3ffU;
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24F;
        return half_value(sign | half_bits(magnitude));
    }
    if (exponent == 31) {
        return half_value(sign | 0x7f800000U | fraction << 13);
    }
    return half_value(sign | (exponent + 112U) << 23 | fraction << 13);
}

#endif
