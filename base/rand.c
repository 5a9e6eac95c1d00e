#include "base/rand.h"

#include <sys/random.h>

#include "base/assert.h"

__extension__ typedef unsigned __int128 wide;

uint64_t rand_below(struct rand *rand, uint64_t bound)
{
    ASSERT(bound > 0);
    wide product = (wide)rand_next(rand) * bound;
    if ((uint64_t)product < bound) {
        uint64_t threshold = (0U - bound) % bound;
        while ((uint64_t)product < threshold) {
            product = (wide)rand_next(rand) * bound;
        }
    }
    return (uint64_t)(product >> 64);
}

uint64_t rand_entropy(void)
{
    uint64_t value = 0;
    ASSERT(getrandom(&value, sizeof(value), 0) == (ssize_t)sizeof(value));
    return value;
}
