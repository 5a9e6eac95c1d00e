#include "gpu/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cuda_driver table;
static struct err failure;

static int fill(void *library, struct err *err)
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

static void open_once(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)err_set(&failure, ERR_DEVICE,
                      "no NVIDIA driver here (%s): install driver 580 or newer, give the container "
                      "its GPU, or set device: cpu",
                      dlerror());
        return;
    }
    if (fill(library, &failure) != 0) {
        return;
    }
    int version = 0;
    cu_result result = table.cuDriverGetVersion(&version);
    if (result == 0 && cuda_driver_check_version(version, &failure) != 0) {
        return;
    }
    table.version = version;
    result = result == 0 ? table.cuInit(0) : result;
    if (result == CU_ERROR_NO_DEVICE) {
        (void)err_set(&failure, ERR_DEVICE,
                      "the NVIDIA driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, "
                      "or set device: cpu");
    } else if (result != 0) {
        (void)cuda_check(&table, result, "initialising the NVIDIA driver", &failure);
    }
}

int cuda_driver_get(const struct cuda_driver **ret_driver, struct err *err)
{
    (void)pthread_once(&once, open_once);
    if (failure.code != 0) {
        return err_set(err, failure.code, "%s", failure.text);
    }
    *ret_driver = &table;
    return 0;
}

int cuda_check(const struct cuda_driver *driver, cu_result result, const char *doing,
               struct err *err)
{
    if (result == 0) {
        return 0;
    }
    const char *name = NULL;
    const char *text = NULL;
    if (driver->cuGetErrorName(result, &name) != 0 || name == NULL) {
        name = "unknown error";
    }
    if (driver->cuGetErrorString(result, &text) != 0 || text == NULL) {
        text = "no text";
    }
    int code = result == CU_ERROR_OUT_OF_MEMORY ? ERR_NOMEM : ERR_DEVICE;
    return err_set(err, code, "%s: %s (%s, %d)", doing, text, name, result);
}
