/* The elementary operations of the policy f32-products-f64-accumulation-v1 (NUMERICS.md). */
#ifndef COPPELIUS_NUMERICS_PRODUCT_H
#define COPPELIUS_NUMERICS_PRODUCT_H

#include "numerics/arith.h"

/* To binary32, nearest even; overflows to infinity. */
ARITH float rn32(double value)
{
    return (float)value;
}

/* A product of two binary32 operands, rounded in binary32 and widened exactly. */
ARITH double product(float a, float b)
{
    float rounded = a * b;
    return (double)rounded;
}

/* -0.0 becomes +0.0; everything else stays. Applied to the root of every sum and to what is stored.
 */
ARITH double canon(double value)
{
    return value + 0.0;
}

/* Neither infinite nor NaN, tested without a library. */
ARITH int finite32(float value)
{
    return value - value == 0.0F;
}

ARITH int finite64(double value)
{
    return value - value == 0.0;
}

#endif
