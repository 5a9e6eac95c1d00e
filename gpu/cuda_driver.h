/* NVIDIA's driver, as far as we use it: our own declarations of its functions and constants (the
 * driver's documented ABI), so that no build needs cuda.h, and a table that is filled at run time
 * from libcuda.so.1, so that the same binary runs where there is none.
 *
 * The names are the versioned ones ("cuMemAlloc_v2"), spelled out: cuda.h renames by macro, and an
 * unversioned name would get the old ABI. The table is filled once a process, by any thread,
 * and immutable then. */
#ifndef COPPELIUS_GPU_CUDA_DRIVER_H
#define COPPELIUS_GPU_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CUDA_DRIVER_MIN 13000 /* what nvcc 13.0's images need: driver 580 */

typedef int cu_result; /* 0 is success */
typedef int cu_device;
typedef uint64_t cu_pointer; /* a device address */
typedef struct cu_context *cu_context;
typedef struct cu_module *cu_module;
typedef struct cu_function *cu_function;
typedef struct cu_stream *cu_stream;
typedef struct cu_event *cu_event;
typedef struct cu_graph *cu_graph;
typedef struct cu_graph_exec *cu_graph_exec;

/* One attribute of a launch: that the grid may begin before the one in front of it has ended. */
struct cu_launch_attribute {
    int id;
    char pad[4];
    int value;
    char rest[60];
};
enum { CU_LAUNCH_EARLY = 6 };

struct cu_launch_config {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_size;
    cu_stream stream;
    struct cu_launch_attribute *attributes;
    unsigned attributes_count;
};

struct cu_uuid {
    uint8_t bytes[16];
};

enum {
    CU_ERROR_NO_DEVICE = 100,
    CU_ERROR_NO_BINARY_FOR_GPU = 209,
    CU_ERROR_ECC_UNCORRECTABLE = 214,
    CU_ERROR_NVLINK_UNCORRECTABLE = 220,
    CU_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CU_ERROR_NOT_READY = 600,
    CU_ERROR_ILLEGAL_ADDRESS = 700,
    CU_ERROR_LAUNCH_TIMEOUT = 702,
    CU_ERROR_ASSERT = 710,
    CU_ERROR_HARDWARE_STACK_ERROR = 714,
    CU_ERROR_ILLEGAL_INSTRUCTION = 715,
    CU_ERROR_MISALIGNED_ADDRESS = 716,
    CU_ERROR_INVALID_ADDRESS_SPACE = 717,
    CU_ERROR_INVALID_PC = 718,
    CU_ERROR_LAUNCH_FAILED = 719,
};
enum {
    CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    CU_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    CU_ATTRIBUTE_CAPABILITY_MINOR = 76,
    CU_ATTRIBUTE_SHARED_OPTIN = 97,
};
enum {
    CU_FUNCTION_THREADS_MAX = 0,
    CU_FUNCTION_SHARED_BYTES = 1,
    CU_FUNCTION_LOCAL_BYTES = 3,
    CU_FUNCTION_REGISTERS = 4,
    CU_FUNCTION_BINARY_VERSION = 6,
    CU_FUNCTION_DYNAMIC_SHARED_MAX = 8,
};
enum { CU_JIT_ERROR_LOG = 5, CU_JIT_ERROR_LOG_SIZE = 6 };
enum { CU_HOST_DEVICE_MAP = 2 };
enum { CU_EVENT_BLOCKING = 1, CU_EVENT_NO_TIMING = 2 };
enum { CU_TENSOR_FLOAT16 = 6, CU_TENSOR_BFLOAT16 = 9 };
enum { CU_TENSOR_SWIZZLE_128 = 3, CU_TENSOR_L2_256 = 3 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_CAPTURE_THREAD_LOCAL = 1 };

/* return type is always cu_result */
#define CUDA_SYMBOLS(X)                                                                            \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDriverGetVersion, (int *version))                                                          \
    X(cuGetErrorName, (cu_result result, const char **name))                                       \
    X(cuGetErrorString, (cu_result result, const char **text))                                     \
    X(cuDeviceGetCount, (int *count))                                                              \
    X(cuDeviceGet, (cu_device * device, int ordinal))                                              \
    X(cuDeviceGetName, (char *name, int size, cu_device device))                                   \
    X(cuDeviceGetUuid_v2, (struct cu_uuid * uuid, cu_device device))                               \
    X(cuDeviceGetPCIBusId, (char *text, int size, cu_device device))                               \
    X(cuDeviceGetAttribute, (int *value, int attribute, cu_device device))                         \
    X(cuDeviceTotalMem_v2, (size_t * bytes, cu_device device))                                     \
    X(cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))                          \
    X(cuDevicePrimaryCtxRelease_v2, (cu_device device))                                            \
    X(cuCtxSetCurrent, (cu_context context))                                                       \
    X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                \
    X(cuMemAlloc_v2, (cu_pointer * pointer, size_t size))                                          \
    X(cuMemFree_v2, (cu_pointer pointer))                                                          \
    X(cuMemHostAlloc, (void **pointer, size_t size, unsigned flags))                               \
    X(cuMemFreeHost, (void *pointer))                                                              \
    X(cuMemHostGetDevicePointer_v2, (cu_pointer * pointer, void *host, unsigned flags))            \
    X(cuMemsetD8Async, (cu_pointer to, unsigned char value, size_t size, cu_stream stream))        \
    X(cuMemcpyHtoDAsync_v2, (cu_pointer to, const void *from, size_t size, cu_stream stream))      \
    X(cuMemcpyDtoHAsync_v2, (void *to, cu_pointer from, size_t size, cu_stream stream))            \
    X(cuMemcpyDtoDAsync_v2, (cu_pointer to, cu_pointer from, size_t size, cu_stream stream))       \
    X(cuStreamCreate, (cu_stream * stream, unsigned flags))                                        \
    X(cuStreamDestroy_v2, (cu_stream stream))                                                      \
    X(cuStreamSynchronize, (cu_stream stream))                                                     \
    X(cuStreamQuery, (cu_stream stream))                                                           \
    X(cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned flags))                       \
    X(cuStreamBeginCapture_v2, (cu_stream stream, int mode))                                       \
    X(cuStreamEndCapture, (cu_stream stream, cu_graph * graph))                                    \
    X(cuGraphInstantiateWithFlags, (cu_graph_exec * exec, cu_graph graph, unsigned long long f))   \
    X(cuGraphLaunch, (cu_graph_exec exec, cu_stream stream))                                       \
    X(cuGraphExecDestroy, (cu_graph_exec exec))                                                    \
    X(cuGraphDestroy, (cu_graph graph))                                                            \
    X(cuEventCreate, (cu_event * event, unsigned flags))                                           \
    X(cuEventDestroy_v2, (cu_event event))                                                         \
    X(cuEventRecord, (cu_event event, cu_stream stream))                                           \
    X(cuEventElapsedTime, (float *milliseconds, cu_event from, cu_event to))                       \
    X(cuEventQuery, (cu_event event))                                                              \
    X(cuEventSynchronize, (cu_event event))                                                        \
    X(cuModuleLoadDataEx, (cu_module * module, const void *image, unsigned options_count,          \
                           int *options, void **values))                                           \
    X(cuModuleUnload, (cu_module module))                                                          \
    X(cuModuleGetFunction, (cu_function * function, cu_module module, const char *name))           \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                 \
      (int *blocks, cu_function function, int threads, size_t shared_size))                        \
    X(cuTensorMapEncodeTiled,                                                                      \
      (void *map, int kind, unsigned rank, void *address, const uint64_t *sizes,                   \
       const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,        \
       int swizzle, int promotion, int fill))                                                      \
    X(cuFuncGetAttribute, (int *value, int attribute, cu_function function))                       \
    X(cuFuncSetAttribute, (cu_function function, int attribute, int value))                        \
    X(cuLaunchKernelEx, (const struct cu_launch_config *config, cu_function function,              \
                         void **arguments, void **extra))                                          \
    X(cuLaunchKernel, (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,    \
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size, \
                       cu_stream stream, void **arguments, void **extra))

#define CUDA_FIELD(name, arguments) cu_result(*name) arguments;
struct cuda_driver {
    CUDA_SYMBOLS(CUDA_FIELD)
    int version; /* 13000 for 13.0 */
};
#undef CUDA_FIELD

/* Opens libcuda.so.1 and initialises it; once that worked, later calls give the same table, and
 * after a failure they try again. ERR_DEVICE with one sentence and what to do: no library, a symbol
 * missing, too old, no GPU. */
int cuda_driver_get(const struct cuda_driver **ret_driver, struct err *err);

/* Only the comparison, for tests: is a driver of that version refused? */
int cuda_driver_check_version(int version, struct err *err);

/* 0 for success, else ERR_DEVICE (also where the device is out of memory now: what can never fit is
 * refused before, by its size) with what was being done and the driver's own name and text. */
int cuda_check(const struct cuda_driver *driver, cu_result result, const char *doing,
               struct err *err);

#endif
