/* A libcuda.so.1 that a test puts in front of a daemon (LD_LIBRARY_PATH): every function that the
 * daemon resolves is there. COPPELIUS_FAKE_CUDA says what is wrong with it:
 *
 *   old            the driver is one for CUDA 12.4
 *   no-gpu         it finds no GPU
 *   late:FILE      it finds no GPU before FILE exists, and then none of the name asked for
 *   lost:FILE      it gives nothing but a kernel's fault to a process that began before FILE
 * existed, and finds no GPU for another broken         it does not start */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/cuda_driver.h"

/* Exported, and not to be known by any other name. */
#define CUDA_DECLARE(name, arguments) \
    __attribute__((visibility("default"))) cu_result name arguments;
CUDA_SYMBOLS(CUDA_DECLARE)
#undef CUDA_DECLARE

#define NOT_INITIALISED 3

static const char *fault(void)
{
    const char *text = getenv("COPPELIUS_FAKE_CUDA");
    return text != NULL ? text : "";
}

cu_result cuDriverGetVersion(int *version)
{
    *version = strcmp(fault(), "old") == 0 ? 12040 : CUDA_DRIVER_MIN;
    return 0;
}

cu_result cuInit(unsigned flags)
{
    (void)flags;
    if (strcmp(fault(), "broken") == 0) {
        return NOT_INITIALISED;
    }
    static bool lost;
    if (strncmp(fault(), "lost:", 5) == 0) {
        lost = lost || access(fault() + 5, F_OK) != 0;
        return lost ? CU_ERROR_LAUNCH_FAILED : 0;
    }
    if (strncmp(fault(), "late:", 5) == 0) {
        return access(fault() + 5, F_OK) == 0 ? 0 : CU_ERROR_NO_DEVICE;
    }
    return strcmp(fault(), "no-gpu") == 0 ? CU_ERROR_NO_DEVICE : 0;
}

cu_result cuDeviceGetCount(int *count)
{
    *count = 0;
    return 0;
}

cu_result cuGetErrorName(cu_result result, const char **name)
{
    *name = result == NOT_INITIALISED          ? "CUDA_ERROR_NOT_INITIALIZED"
            : result == CU_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                                               : "CUDA_ERROR_UNKNOWN";
    return 0;
}

cu_result cuGetErrorString(cu_result result, const char **text)
{
    *text = result == NOT_INITIALISED ? "initialization error" : "unknown error";
    return 0;
}
