#include "checkpoint/losses.h"

#include <math.h>

#include "base/assert.h"

/* One place is the newest step's. */
static bool fits(uint64_t step, uint64_t stride)
{
    return (step - 1) / stride + 1 <= LOSSES_MAX - 1;
}

static bool on_stride(uint64_t step, uint64_t stride)
{
    return (step - 1) % stride == 0;
}

/* The stride for that newest step; what falls between goes. */
static void thin(struct losses *losses, uint64_t newest)
{
    losses->stride = losses->stride == 0 ? 1 : losses->stride;
    while (!fits(newest, losses->stride)) {
        losses->stride *= 2;
    }
    size_t kept = 0;
    for (size_t i = 0; i < losses->count; i++) {
        if (on_stride(losses->steps[i], losses->stride)) {
            losses->steps[kept] = losses->steps[i];
            losses->values[kept] = losses->values[i];
            kept++;
        }
    }
    losses->count = kept;
}

uint64_t losses_newest(const struct losses *losses)
{
    return losses->count == 0 ? 0 : losses->steps[losses->count - 1];
}

void losses_put(struct losses *losses, uint64_t step, double value)
{
    if (step <= losses_newest(losses) || !isfinite(value)) {
        return;
    }
    if (losses->stride == 0 || !fits(step, losses->stride)) {
        thin(losses, step);
    } else if (losses->count > 0 && !on_stride(losses_newest(losses), losses->stride)) {
        losses->count--; /* It was the newest, and nothing else. */
    }
    ASSERT(losses->count < LOSSES_MAX);
    losses->steps[losses->count] = step;
    losses->values[losses->count] = value;
    losses->count++;
}

const char *losses_settle(struct losses *losses, uint64_t step_max)
{
    uint64_t before = 0;
    ASSERT(losses->count <= LOSSES_MAX);
    for (size_t i = 0; i < losses->count; i++) {
        if (losses->steps[i] <= before || losses->steps[i] > step_max) {
            return "loss_steps";
        }
        if (!isfinite(losses->values[i])) {
            return "losses";
        }
        before = losses->steps[i];
    }
    losses->stride = 0;
    if (losses->count > 0) {
        double newest = losses->values[losses->count - 1];
        losses->count--;
        thin(losses, before);
        losses_put(losses, before, newest);
    }
    return NULL;
}
