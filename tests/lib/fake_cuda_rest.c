/* The functions of the made-up driver that nobody gets as far as to call; fake_cuda.c has the others,
 * which win over these. */
#include "gpu/cuda_driver.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define CUDA_STUB(name, arguments)                                               \
    __attribute__((visibility("default"))) cu_result name arguments;             \
    __attribute__((weak, visibility("default"))) cu_result name arguments        \
    {                                                                            \
        return CU_ERROR_NO_DEVICE;                                               \
    }
CUDA_SYMBOLS(CUDA_STUB)
