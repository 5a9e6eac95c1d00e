#include "gpu/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/gpu.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_driver table; /* under the lock, immutable once `opened` */
static void *library;
static bool opened;
static atomic_bool lost; /* set once */

static int fill(struct err *err)
{
    /* ISO C has no cast from an object's to a function's pointer; POSIX promises the bits. */
#define CUDA_RESOLVE(name, arguments)                                                              \
    {                                                                                              \
        void *symbol = dlsym(library, #name);                                                      \
        if (symbol == NULL) {                                                                      \
            return err_set(err, ERR_DEVICE,                                                        \
                           "libcuda.so.1 has no %s: the NVIDIA driver is too old; install driver " \
                           "580 or newer, or set device: cpu",                                     \
                           #name);                                                                 \
        }                                                                                          \
        memcpy(&table.name, &symbol, sizeof(symbol));                                              \
    }
    CUDA_SYMBOLS(CUDA_RESOLVE)
#undef CUDA_RESOLVE
    return 0;
}

int cuda_driver_check_version(int version, struct err *err)
{
    if (version < CUDA_DRIVER_MIN) {
        return err_set(err, ERR_DEVICE,
                       "the NVIDIA driver supports CUDA %d.%d, this build needs %d.%d: install "
                       "driver 580 or newer, or set device: cpu",
                       version / 1000, version % 1000 / 10, CUDA_DRIVER_MIN / 1000,
                       CUDA_DRIVER_MIN % 1000 / 10);
    }
    return 0;
}

/* Nothing that failed is kept: a driver may come, or its device, while this process waits. */
static int open_driver(struct err *err)
{
    if (library == NULL) {
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        return err_set(err, ERR_DEVICE,
                       "no NVIDIA driver here (%s): install driver 580 or newer, give the "
                       "container its GPU, or set device: cpu",
                       dlerror());
    }
    int code = fill(err);
    if (code != 0) {
        return code;
    }
    int version = 0;
    cu_result result = table.cuDriverGetVersion(&version);
    code = result == 0 ? cuda_driver_check_version(version, err) : 0;
    if (code != 0) {
        return code;
    }
    table.version = version;
    result = result == 0 ? table.cuInit(0) : result;
    if (result == CU_ERROR_NO_DEVICE) {
        return err_set(err, ERR_DEVICE,
                       "the NVIDIA driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, "
                       "or set device: cpu");
    }
    return cuda_check(&table, result, "initialising the NVIDIA driver", err);
}

int cuda_driver_get(const struct cuda_driver **ret_driver, struct err *err)
{
    ASSERT(pthread_mutex_lock(&lock) == 0);
    int code = opened ? 0 : open_driver(err);
    opened = code == 0;
    ASSERT(pthread_mutex_unlock(&lock) == 0);
    if (code == 0) {
        *ret_driver = &table;
    }
    return code;
}

/* Errors after which the driver gives this process nothing but them: a kernel's fault, or the
 * hardware's. */
static bool loses_device(cu_result result)
{
    switch (result) {
    case CU_ERROR_ECC_UNCORRECTABLE:
    case CU_ERROR_NVLINK_UNCORRECTABLE:
    case CU_ERROR_ILLEGAL_ADDRESS:
    case CU_ERROR_LAUNCH_TIMEOUT:
    case CU_ERROR_ASSERT:
    case CU_ERROR_HARDWARE_STACK_ERROR:
    case CU_ERROR_ILLEGAL_INSTRUCTION:
    case CU_ERROR_MISALIGNED_ADDRESS:
    case CU_ERROR_INVALID_ADDRESS_SPACE:
    case CU_ERROR_INVALID_PC:
    case CU_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

bool session_device_lost(void)
{
    return atomic_load(&lost);
}

int cuda_check(const struct cuda_driver *driver, cu_result result, const char *doing,
               struct err *err)
{
    if (result == 0) {
        return 0;
    }
    if (loses_device(result)) {
        atomic_store(&lost, true);
    }
    const char *name = NULL;
    const char *text = NULL;
    if (driver->cuGetErrorName(result, &name) != 0 || name == NULL) {
        name = "unknown error";
    }
    if (driver->cuGetErrorString(result, &text) != 0 || text == NULL) {
        text = "no text";
    }
    return err_set(err, ERR_DEVICE, "%s: %s (%s, %d)", doing, text, name, result);
}
