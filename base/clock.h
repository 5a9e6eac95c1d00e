/* Time: monotonic for every decision, wall time for people only. The clock is a table, so that the
 * simulator can put its own in place. */
#ifndef COPPELIUS_BASE_CLOCK_H
#define COPPELIUS_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. Any thread. */
uint64_t clock_now_ns(void);
/* Milliseconds of the same. */
uint64_t clock_now_ms(void);
/* Wall time in milliseconds since 1970: for log lines and listings, never for a decision. */
int64_t clock_wall_ms(void);

#endif
