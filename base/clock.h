/* Time: monotonic for every decision, wall time for people only. The clock is a table, so that the
 * simulator can put its own in place. */
#ifndef COPPELIUS_BASE_CLOCK_H
#define COPPELIUS_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC. Any thread. */
uint64_t clock_now_ns(void);
/* Milliseconds of the same. */
uint64_t clock_now_ms(void);
/* Wall time in milliseconds since 1970: for log lines and listings, never for a decision. */
int64_t clock_wall_ms(void);

/* A condition whose deadlines are of the monotonic clock, and such a deadline: a wall clock that is
 * set neither ends a wait early nor makes it longer. */
void clock_condition_init(pthread_cond_t *condition);
struct timespec clock_deadline(uint64_t now_ms, uint64_t wait_ms);

#endif
