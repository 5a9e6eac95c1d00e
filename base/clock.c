#include "base/clock.h"

#include <time.h>

#include "base/assert.h"

uint64_t clock_now_ns(void)
{
    struct timespec now;
    ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ms(void)
{
    return clock_now_ns() / 1000000U;
}

int64_t clock_wall_ms(void)
{
    struct timespec now;
    ASSERT(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
