#include "base/clock.h"

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

void clock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    ASSERT(pthread_condattr_init(&attributes) == 0);
    ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(condition, &attributes) == 0);
    ASSERT(pthread_condattr_destroy(&attributes) == 0);
}

struct timespec clock_deadline(uint64_t now_ms, uint64_t wait_ms)
{
    uint64_t until_ms = now_ms + wait_ms;
    return (struct timespec){.tv_sec = (time_t)(until_ms / 1000U),
                             .tv_nsec = (long)(until_ms % 1000U) * 1000000L};
}
