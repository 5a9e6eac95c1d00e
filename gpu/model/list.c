/* What there is of device images: in the program, and of the language model's on a GPU, loaded and
 * checked. */
#include <stdio.h>

#include "gpu/gpu.h"
#include "gpu/model/blobs.h"
#include "gpu/model/gpu_session.h"
#include "gpu/model/records.h"

static void print_image(FILE *list, const char *name, int architecture,
                        const struct image_record *record)
{
    (void)fprintf(list, "%s sm_%d registers=%u threads=%u shared=%u local=%u\n", name, architecture,
                  record->registers, record->threads, record->shared_bytes, record->local_bytes);
}

/* The kernels of a half type, one a line, as the records have them. */
static int list_half(const struct cuda_driver *driver, cu_device device, const char *folder,
                     enum model_half half, FILE *list, struct err *err)
{
    struct model_gpu *gpu = NULL;
    int status = model_gpu_open(driver, device, folder, NULL, half, &gpu, err);
    if (status != 0) {
        return status;
    }
    const struct images *images = model_gpu_images(gpu);
    for (size_t i = 0; i < images->count; i++) {
        const struct image *image = &images->list[i];
        print_image(list, image->name, model_gpu_architecture(gpu), &image->record);
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

/* -- in the program --------------------------------------------------------------------------- */

static int print_half(enum model_half half, const struct model_entry *entry, FILE *list,
                      struct err *err)
{
    const struct cuda_blob *blob = NULL;
    char name[IMAGE_NAME_SIZE];
    int status = model_blob_find(entry->file, half, &blob, err);
    model_record_name(entry->name, half, name);
    for (int at = model_blob_architecture(0); at != 0 && status == 0;
         at = model_blob_architecture(at)) {
        struct image_record record;
        if (model_blob_serves(entry->file, at)) {
            status = model_record_find(entry->name, half, at, &record, err);
            if (status == 0) {
                print_image(list, name, at, &record);
            }
        }
    }
    return status;
}

int gpu_print_images(FILE *list, struct err *err)
{
    int status = 0;
    for (int kernel = 0; kernel < KERNELS_COUNT && status == 0; kernel++) {
        for (int at = model_blob_architecture(0); at != 0 && status == 0;
             at = model_blob_architecture(at)) {
            const char *name = NULL;
            struct image_record record;
            status = cuda_image_record((enum cuda_kernel)kernel, at, &name, &record, err);
            if (status == 0) {
                print_image(list, name, at, &record);
            }
        }
    }
    for (size_t i = 0; model_blob_any() && i < model_entries_count && status == 0; i++) {
        if (model_file_hopper(model_entries[i].file) && !model_blob_has(90)) {
            continue; /* of an architecture that this build left out */
        }
        status = print_half(MODEL_HALF_FP16, &model_entries[i], list, err);
        status = status != 0 ? status : print_half(MODEL_HALF_BF16, &model_entries[i], list, err);
    }
    return status;
}
