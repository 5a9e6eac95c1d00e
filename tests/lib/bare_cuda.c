/* A libcuda.so.1 of a driver that is too old to have the functions that we need. */
#include "gpu/cuda_driver.h"

__attribute__((visibility("default"))) cu_result cuInit(unsigned flags);

cu_result cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}
