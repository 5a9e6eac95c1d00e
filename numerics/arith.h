/* ARITH marks a function that both compilers build from the same line: C for the host, CUDA C for
 * the device. Every operation in such a function rounds on its own (-ffp-contract=off,
 * --fmad=false) to nearest even with subnormals kept, so the bits are the same on both sides. */
#ifndef COPPELIUS_NUMERICS_ARITH_H
#define COPPELIUS_NUMERICS_ARITH_H

#include <stdint.h>

#ifdef __CUDACC__
#define ARITH __host__ __device__ static inline
#else
#define ARITH static inline
#endif

#define NUMERICS_POLICY_F32_F64 "f32-products-f64-accumulation-v1"

/* Trailing zeros and the highest set bit of a number that is not 0. */
ARITH unsigned arith_trailing_zeros(uint64_t bits)
{
#ifdef __CUDA_ARCH__
    return (unsigned)__ffsll((long long)bits) - 1;
#else
    return (unsigned)__builtin_ctzll(bits);
#endif
}

ARITH unsigned arith_highest_bit(uint64_t bits)
{
#ifdef __CUDA_ARCH__
    return 63U - (unsigned)__clzll((long long)bits);
#else
    return 63U - (unsigned)__builtin_clzll(bits);
#endif
}

#endif
