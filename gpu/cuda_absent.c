/* Where a build has no CUDA backend this file says so; cuda.c has the real answer. */
#include "gpu/gpu.h"

const struct session_backend *session_backend_cuda(void)
{
    return NULL;
}
