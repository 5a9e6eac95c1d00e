#include "daemon/histogram.h"

#include "base/assert.h"

double histogram_bound(const struct histogram *histogram, unsigned bucket)
{
    ASSERT(bucket < HISTOGRAM_BUCKETS);
    return histogram->first * (double)(1U << bucket);
}

void histogram_observe(struct histogram *histogram, double seconds)
{
    ASSERT(histogram->first > 0);
    if (!(seconds > 0)) {
        seconds = 0;
    }
    unsigned bucket = 0;
    while (bucket < HISTOGRAM_BUCKETS && seconds > histogram_bound(histogram, bucket)) {
        bucket++;
    }
    histogram->counts[bucket]++;
    histogram->sum += seconds;
}
