/* Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3" (2011), section 3.3: ten rounds of two 32 x 32 -> 64 bit products.
 * The same bits on the host and on the device. */
#ifndef COPPELIUS_GPU_MODEL_PHILOX_H
#define COPPELIUS_GPU_MODEL_PHILOX_H

#include "numerics/arith.h"

struct philox {
    uint32_t word[4];
};

ARITH struct philox philox_block(uint64_t counter, uint64_t key)
{
    struct philox x;
    x.word[0] = (uint32_t)counter;
    x.word[1] = (uint32_t)(counter >> 32);
    x.word[2] = 0;
    x.word[3] = 0;
    uint32_t key0 = (uint32_t)key;
    uint32_t key1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53U * x.word[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57U * x.word[2];
        uint32_t word1 = x.word[1];
        uint32_t word3 = x.word[3];
        x.word[0] = (uint32_t)(product1 >> 32) ^ word1 ^ key0;
        x.word[1] = (uint32_t)product1;
        x.word[2] = (uint32_t)(product0 >> 32) ^ word3 ^ key1;
        x.word[3] = (uint32_t)product0;
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
    return x;
}

#endif
