/* A histogram of seconds with fixed buckets, first·2^k for k = 0…14, and one for the rest.
 *
 * Two shapes: HISTOGRAM_LATENCY from 0.5 ms to 8 s, HISTOGRAM_STEP from 10 ms to 164 s. One thread
 * at a time: the thread that observes owns it; a copy is a snapshot (plain struct, no pointers). */
#ifndef COPPELIUS_DAEMON_HISTOGRAM_H
#define COPPELIUS_DAEMON_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 15

struct histogram {
    double first;                           /* upper bound of the first bucket, seconds */
    double sum;                             /* seconds */
    uint64_t counts[HISTOGRAM_BUCKETS + 1]; /* each bucket's own count; the last one is +Inf's */
};

#define HISTOGRAM_LATENCY \
    {                     \
        .first = 0.0005   \
    }
#define HISTOGRAM_STEP \
    {                  \
        .first = 0.01  \
    }

/* Counts one value; a negative one counts as 0. */
void histogram_observe(struct histogram *histogram, double seconds);
/* Upper bound of a bucket, 0 … HISTOGRAM_BUCKETS-1, in seconds. */
double histogram_bound(const struct histogram *histogram, unsigned bucket);

#endif
