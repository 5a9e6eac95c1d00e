#include "daemon/capture.h"

#include <stdlib.h>

#include "base/assert.h"

void capture_hold(struct capture *capture)
{
    capture->holders++;
}

void capture_drop(struct capture *capture)
{
    if (capture == NULL) {
        return;
    }
    ASSERT(capture->holders > 0);
    capture->holders--;
    if (capture->holders > 0) {
        return;
    }
    for (uint64_t i = 0; capture->columns != NULL && i < capture->count; i++) {
        free(capture->columns[i]);
    }
    free(capture->columns);
    free(capture->parameter);
    free(capture->accumulator);
    free(capture->mean);
    free(capture->scale);
    free(capture);
}
