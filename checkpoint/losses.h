/* The losses of a run's steps, bounded: what is kept is a function of the newest step alone, so
 * that it is the same on any number of nodes and however often the run was interrupted.
 *
 * Of steps 1 .. s every stride-th is kept, from the first on, and s itself; the stride is the
 * smallest power of two with which they are at most LOSSES_MAX. Loops over the points are bounded
 * by it. Losses are finite. A run that goes on from a checkpoint without them begins at the step
 * after it.
 *
 * Plain data, 64 KiB: no thread of its own, copied as a struct. */
#ifndef COPPELIUS_CHECKPOINT_LOSSES_H
#define COPPELIUS_CHECKPOINT_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOSSES_MAX 4096U

struct losses {
    uint64_t stride; /* 0 where nothing was put */
    size_t count;
    uint64_t steps[LOSSES_MAX]; /* ascending, the first step is 1 */
    double values[LOSSES_MAX];  /* data loss of that step's batch, before its update */
};

/* All zeros is an empty one. A step that is not newer than the newest, or whose loss is not finite,
 * is left out. */
void losses_put(struct losses *losses, uint64_t step, double value);
uint64_t losses_newest(const struct losses *losses); /* 0: none */

/* Steps and values came from outside, count of them (at most LOSSES_MAX): NULL, or what is wrong.
 * Then the stride is known, and what this version would not keep is gone. */
const char *losses_settle(struct losses *losses, uint64_t step_max);

#endif
