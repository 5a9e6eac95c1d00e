/* The dyadic sum over consecutive or skipping indices, one term at a time, index 0 first.
 *
 * Node (k, m) covers indices m*2^k .. (m+1)*2^k - 1 and is left + right where both children hold a
 * term, else the one child's value. A stack holds the finished nodes that still wait for a right
 * sibling, at most one a level. */
#ifndef COPPELIUS_NUMERICS_DYADIC_H
#define COPPELIUS_NUMERICS_DYADIC_H

#include "numerics/arith.h"

#define DYADIC_LEVELS_MAX 64

/* Consecutive indices 0, 1, 2 …: a binary counter. */
struct dyadic {
    double value[DYADIC_LEVELS_MAX];
    uint64_t count; /* terms so far; its ones are the nodes that wait */
    unsigned depth; /* of value[] */
};

ARITH void dyadic_start(struct dyadic *sum)
{
    sum->count = 0;
    sum->depth = 0;
}

ARITH void dyadic_add(struct dyadic *sum, double term)
{
    for (uint64_t ones = sum->count; (ones & 1) != 0; ones >>= 1) {
        sum->depth--;
        term = sum->value[sum->depth] + term;
    }
    sum->value[sum->depth] = term;
    sum->depth++;
    sum->count++;
}

/* The root, not canonical; +0.0 when empty. What waits has no right sibling but the later nodes. */
ARITH double dyadic_root(const struct dyadic *sum)
{
    if (sum->depth == 0) {
        return 0.0;
    }
    double root = sum->value[sum->depth - 1];
    for (unsigned level = sum->depth - 1; level > 0; level--) {
        root = sum->value[level - 1] + root;
    }
    return root;
}

/* Ascending indices with gaps (the entries of a sparse row): two neighbours meet in the node whose
 * level is the highest bit in which their indices differ, and lower meetings come first. */
struct dyadic_sparse {
    double value[DYADIC_LEVELS_MAX];
    unsigned
        bit[DYADIC_LEVELS_MAX]; /* where value[i] and value[i + 1] meet; falls along the stack */
    uint64_t last;
    unsigned depth;
};

ARITH void dyadic_sparse_start(struct dyadic_sparse *sum)
{
    sum->depth = 0;
    sum->last = 0;
}

ARITH void dyadic_sparse_add(struct dyadic_sparse *sum, uint64_t index, double term)
{
    if (sum->depth > 0) {
        unsigned bit = arith_highest_bit(index ^ sum->last);
        while (sum->depth > 1 && sum->bit[sum->depth - 2] < bit) {
            sum->value[sum->depth - 2] += sum->value[sum->depth - 1];
            sum->depth--;
        }
        sum->bit[sum->depth - 1] = bit;
    }
    sum->value[sum->depth] = term;
    sum->depth++;
    sum->last = index;
}

ARITH double dyadic_sparse_root(const struct dyadic_sparse *sum)
{
    if (sum->depth == 0) {
        return 0.0;
    }
    double root = sum->value[sum->depth - 1];
    for (unsigned level = sum->depth - 1; level > 0; level--) {
        root = sum->value[level - 1] + root;
    }
    return root;
}

#endif
