/* SplitMix64 (Steele, Lea and Flood, 2014) and Lemire's unbiased bounded draw (2019): the project's
 * one source of pseudo-randomness, the same bits everywhere. A struct rand belongs to its caller. */
#ifndef COPPELIUS_BASE_RAND_H
#define COPPELIUS_BASE_RAND_H

#include <stdint.h>

struct rand {
    uint64_t state;
};

static inline uint64_t rand_next(struct rand *rand)
{
    rand->state += 0x9E3779B97F4A7C15U;
    uint64_t z = rand->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* A draw in 0 .. bound-1; bound is at least 1. */
uint64_t rand_below(struct rand *rand, uint64_t bound);

/* Eight bytes of the kernel's randomness: seeds, incarnations, request ids. Ends the process where
 * the kernel has none to give. */
uint64_t rand_entropy(void);

#endif
