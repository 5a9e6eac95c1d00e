/* The formulas of a step with squared loss and momentum, in the order in which they round. */
#ifndef COPPELIUS_NUMERICS_SQUARED_H
#define COPPELIUS_NUMERICS_SQUARED_H

#include "numerics/product.h"

/* r = z - y, for a canonical z; its binary32 rounding is what the backward pass multiplies. */
ARITH double squared_residual(double z, double y)
{
    return z - y;
}

/* One row's term of the lane sum of the loss. */
ARITH double squared_loss(double residual)
{
    double square = residual * residual;
    return 0.5 * square;
}

/* g = canon(lane sum) / rows, then + l2 * w: always, also where l2 is 0. `sum` is the root of the
 * panels' dyadic sum, not yet canonical; `rows` the batch's rows over all nodes. */
ARITH double momentum_gradient(double sum, double rows, double l2, double parameter)
{
    double mean = canon(sum) / rows;
    double penalty = l2 * parameter;
    return mean + penalty;
}

/* a = canon(decay * a + g) */
ARITH double momentum_accumulator(double decay, double accumulator, double gradient)
{
    double kept = decay * accumulator;
    double sum = kept + gradient;
    return canon(sum);
}

/* w = canon(w - rate * a), for the accumulator just updated. */
ARITH double momentum_parameter(double rate, double accumulator, double parameter)
{
    double move = rate * accumulator;
    double moved = parameter - move;
    return canon(moved);
}

#endif
