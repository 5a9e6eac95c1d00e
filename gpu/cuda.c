/* The CUDA backend behind the session's table of functions; cuda.h has the map. */
#include "gpu/cuda.h"

#include <stdlib.h>

/* All that the GPU has. What is free is known when it is bound, and so is what is wrong with it. */
static int memory(const struct session_settings *settings, uint64_t *ret_bytes, struct err *err)
{
    const struct cuda_driver *driver = NULL;
    struct cuda_candidate chosen;
    struct err unsaid;
    size_t bytes = 0;
    (void)err;
    *ret_bytes = 0;
    if (cuda_driver_get(&driver, &unsaid) == 0 &&
        cuda_choose(driver, settings, &chosen, &unsaid) == 0 &&
        driver->cuDeviceTotalMem_v2(&bytes, chosen.device) == 0) {
        *ret_bytes = bytes;
    }
    return 0;
}

static int capture(struct session_device *device, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    size_t size = cuda->shape.coordinates * sizeof(double);
    CUDA_TRY(
        cuda,
        cuMemcpyDtoDAsync_v2(cuda->at.captured_parameter, cuda->at.parameter, size, cuda->work),
        "capturing the parameters");
    CUDA_TRY(
        cuda,
        cuMemcpyDtoDAsync_v2(cuda->at.captured_accumulator, cuda->at.accumulator, size, cuda->work),
        "capturing the accumulators");
    CUDA_TRY(cuda,
             cuMemcpyDtoDAsync_v2(cuda->at.captured_issues, cuda->at.issues, sizeof(uint64_t),
                                  cuda->work),
             "capturing the issue counter");
    CUDA_TRY(cuda, cuEventRecord(cuda->captured, cuda->work), "capturing");
    return 0;
}

static int capture_read(struct session_device *device, double *parameter, double *accumulator,
                        uint64_t *ret_issues, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    size_t size = cuda->shape.coordinates * sizeof(double);
    uint64_t issues = 0;
    CUDA_TRY(cuda, cuStreamWaitEvent(cuda->down, cuda->captured, 0), "reading the capture");
    CUDA_TRY(cuda, cuMemcpyDtoHAsync_v2(parameter, cuda->at.captured_parameter, size, cuda->down),
             "reading the captured parameters");
    CUDA_TRY(cuda,
             cuMemcpyDtoHAsync_v2(accumulator, cuda->at.captured_accumulator, size, cuda->down),
             "reading the captured accumulators");
    CUDA_TRY(cuda,
             cuMemcpyDtoHAsync_v2(&issues, cuda->at.captured_issues, sizeof(issues), cuda->down),
             "reading the captured issue counter");
    CUDA_TRY(cuda, cuStreamSynchronize(cuda->down), "reading the capture");
    *ret_issues = issues;
    return 0;
}

static void release(struct session_device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    cuda_deallocate(cuda);
    cuda_images_unload(cuda);
    cuda_unbind(cuda);
    free(cuda);
}

static const struct session_backend backend = {
    .name = "cuda",
    .memory = memory,
    .bind = cuda_bind,
    .load = cuda_load,
    .layout = cuda_layout,
    .allocate = cuda_allocate,
    .seed = cuda_seed,
    .step_begin = cuda_step_begin,
    .forward = cuda_forward,
    .forward_wait = cuda_forward_wait,
    .backward = cuda_backward,
    .update = cuda_update,
    .fence = cuda_fence,
    .local_step = cuda_local_step,
    .local_wait = cuda_local_wait,
    .capture = capture,
    .capture_read = capture_read,
    .release = release,
};

const struct session_backend *session_backend_cuda(void)
{
    return &backend;
}
