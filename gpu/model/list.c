/* What a GPU has of the language model's images: loaded, checked, listed. */
#include <stdio.h>

#include "gpu/gpu.h"
#include "gpu/model/gpu_session.h"

/* The kernels of a half type, one a line, as the records have them. */
static int list_half(const struct cuda_driver *driver, cu_device device, const char *folder,
                     enum model_half half, FILE *list, struct err *err)
{
    struct model_gpu *gpu = NULL;
    int status = model_gpu_open(driver, device, folder, half, &gpu, err);
    if (status != 0) {
        return status;
    }
    const struct images *images = model_gpu_images(gpu);
    for (size_t i = 0; i < images->count; i++) {
        const struct image *image = &images->list[i];
        (void)fprintf(list, "%s sm_%d registers=%u threads=%u shared=%u local=%u\n", image->name,
                      model_gpu_architecture(gpu), image->record.registers, image->record.threads,
                      image->record.shared_bytes, image->record.local_bytes);
    }
    model_gpu_close(gpu);
    return 0;
}

int gpu_list_images(const char *folder, FILE *list, struct err *err)
{
    const struct cuda_driver *driver = NULL;
    cu_device device = 0;
    cu_context context = NULL;
    int status = cuda_driver_get(&driver, err);
    if (status != 0) {
        return status;
    }
    status = cuda_check(driver, driver->cuDeviceGet(&device, 0), "taking GPU 0", err);
    if (status == 0) {
        status = cuda_check(driver, driver->cuDevicePrimaryCtxRetain(&context, device),
                            "making a context", err);
    }
    if (status != 0) {
        return status;
    }
    status = cuda_check(driver, driver->cuCtxSetCurrent(context), "using the context", err);
    if (status == 0) {
        status = list_half(driver, device, folder, MODEL_HALF_FP16, list, err);
    }
    if (status == 0) {
        status = list_half(driver, device, folder, MODEL_HALF_BF16, list, err);
    }
    (void)driver->cuDevicePrimaryCtxRelease_v2(device);
    return status;
}
