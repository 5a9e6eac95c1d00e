#include "daemon/capture.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"

#define LARGE_PAGE (UINT64_C(2) << 20)

double *capture_vector(uint64_t count)
{
    uint64_t bytes = count * sizeof(double);
    void *memory = NULL;
    if (bytes < 4 * LARGE_PAGE) {
        return malloc(bytes);
    }
    if (posix_memalign(&memory, LARGE_PAGE, bytes) != 0) {
        return NULL;
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* A wish. */
    return memory;
}

void capture_names_drop(struct capture_names *names)
{
    if (names == NULL || atomic_fetch_sub(&names->holders, 1) > 1) {
        return;
    }
    for (uint64_t i = 0; i < names->count; i++) {
        free(names->names[i]);
    }
    free(names);
}

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
    capture_names_drop(capture->names);
    free(capture->parameter);
    free(capture->accumulator);
    free(capture->mean);
    free(capture->scale);
    free(capture);
}
