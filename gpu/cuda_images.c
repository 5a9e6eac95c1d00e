/* Device images: the registry's names, and the committed record of each (gpu/images.records), which
 * the driver must confirm when the image is loaded. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/cuda.h"

#define FATBIN_HEAD 16 /* bytes: magic, version, bytes of the header, bytes of the rest */

static const struct {
    const char *name;  /* the identity, in the registry and in the records */
    const char *entry; /* in the module */
    enum cuda_module module;
} catalogue[KERNELS_COUNT] = {
    [KERNEL_FORWARD_DENSE] = {"forward-dense", "forward_dense", MODULE_FORWARD_DENSE},
    [KERNEL_BACKWARD_DENSE] = {"backward-dense", "backward_dense", MODULE_BACKWARD_DENSE},
    [KERNEL_UPDATE] = {"update", "update", MODULE_UPDATE},
    [KERNEL_CURSOR] = {"cursor", "cursor", MODULE_UPDATE},
    [KERNEL_LOSSES] = {"losses", "losses", MODULE_UPDATE},
    [KERNEL_FORWARD_SPARSE] = {"forward-sparse", "forward_sparse", MODULE_FORWARD_SPARSE},
    [KERNEL_BACKWARD_SPARSE] = {"backward-sparse", "backward_sparse", MODULE_BACKWARD_SPARSE},
    [KERNEL_FUSED_32] = {"fused-32", "fused_32", MODULE_FUSED},
    [KERNEL_FUSED_64] = {"fused-64", "fused_64", MODULE_FUSED},
    [KERNEL_FUSED_128] = {"fused-128", "fused_128", MODULE_FUSED},
    [KERNEL_FUSED_256] = {"fused-256", "fused_256", MODULE_FUSED},
    [KERNEL_PACK_TILES] = {"pack-tiles", "pack_tiles", MODULE_TILES},
    [KERNEL_FORWARD_TILES] = {"forward-tiles", "forward_tiles", MODULE_TILES},
    [KERNEL_BACKWARD_TILES] = {"backward-tiles", "backward_tiles", MODULE_TILES},
    [KERNEL_SMALL] = {"small-step", "small_step", MODULE_SMALL},
};

/* -- records ---------------------------------------------------------------------------------- */

int cuda_record_find(const char *text, size_t size, const char *name, int architecture,
                     struct image_record *ret_record, struct err *err)
{
    size_t at = 0;
    for (unsigned line = 1; at < size; line++) {
        const char *start = text + at;
        const char *end = memchr(start, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - start) : size - at;
        at += length + 1;
        char copy[160];
        if (length == 0 || start[0] == '#') {
            continue;
        }
        if (length >= sizeof(copy)) {
            return err_set(err, ERR_DEVICE, "images.records:%u: a line of %zu bytes", line, length);
        }
        memcpy(copy, start, length);
        copy[length] = '\0';
        char of[IMAGE_NAME_SIZE];
        int architecture_here = 0;
        struct image_record record;
        int fields = sscanf(copy, "%63s sm_%d registers=%u threads=%u shared=%u local=%u", of,
                            &architecture_here, &record.registers, &record.threads,
                            &record.shared_bytes, &record.local_bytes);
        if (fields != 6) {
            return err_set(err, ERR_DEVICE, "images.records:%u: not a record: '%s'", line, copy);
        }
        if (strcmp(of, name) == 0 && architecture_here == architecture) {
            *ret_record = record;
            return 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND, "device image '%s' has no record for sm_%d", name,
                   architecture);
}

int cuda_record_check(const char *name, int architecture, const struct image_record *record,
                      const struct image_record *reported, struct err *err)
{
    if (record->registers != reported->registers || record->threads != reported->threads ||
        record->shared_bytes != reported->shared_bytes ||
        record->local_bytes != reported->local_bytes) {
        return err_set(err, ERR_DEVICE,
                       "device image '%s' (sm_%d) differs from its record: registers %u (record "
                       "%u), threads %u (%u), shared %u (%u), local %u (%u): the binary is not the "
                       "one that was checked; install it again",
                       name, architecture, reported->registers, record->registers,
                       reported->threads, record->threads, reported->shared_bytes,
                       record->shared_bytes, reported->local_bytes, record->local_bytes);
    }
    return 0;
}

int cuda_blob_check(const struct cuda_blob *blob, struct err *err)
{
    static const unsigned char magic[4] = {0x50, 0xed, 0x55, 0xba}; /* a fatbin's first bytes */
    if (blob->bytes == NULL || blob->bytes == blob->end) {
        return err_set(err, ERR_DEVICE,
                       "device image file '%s' is %s: nothing was launched; install a build with "
                       "GPU kernels, or set device: cpu",
                       blob->name, blob->bytes == NULL ? "missing" : "empty");
    }
    const size_t size = (size_t)(blob->end - blob->bytes);
    if (size < FATBIN_HEAD || memcmp(blob->bytes, magic, sizeof(magic)) != 0) {
        return err_set(
            err, ERR_DEVICE,
            "device image file '%s' is no fatbin: nothing was launched; install it again",
            blob->name);
    }
    uint16_t head = 0; /* bytes of the header; then those of what follows */
    uint64_t body = 0;
    memcpy(&head, blob->bytes + 6, sizeof(head));
    memcpy(&body, blob->bytes + 8, sizeof(body));
    if (head < FATBIN_HEAD || body == 0 || body > size || head + body != size) {
        return err_set(err, ERR_DEVICE,
                       "device image file '%s' has %zu bytes, but says that it has %llu: nothing "
                       "was launched; install it again",
                       blob->name, size, (unsigned long long)body + head);
    }
    return 0;
}

extern const char cuda_records_text[];
extern const char cuda_records_end[];

int cuda_image_record(enum cuda_kernel kernel, int architecture, const char **ret_name,
                      struct image_record *ret_record, struct err *err)
{
    int status = cuda_blob_check(&cuda_blobs[catalogue[kernel].module], err);
    if (status == 0) {
        status = cuda_record_find(cuda_records_text, (size_t)(cuda_records_end - cuda_records_text),
                                  catalogue[kernel].name, architecture, ret_record, err);
    }
    if (status == 0) {
        *ret_name = catalogue[kernel].name;
    }
    return status;
}

/* -- loading ---------------------------------------------------------------------------------- */

static int load_module(struct cuda_device *cuda, enum cuda_module module, struct err *err)
{
    const struct cuda_blob *blob = &cuda_blobs[module];
    int code = cuda_blob_check(blob, err);
    if (code != 0) {
        return code;
    }
    char reason[1024] = "";
    int options[2] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_SIZE};
    void *values[2] = {reason, (void *)(uintptr_t)sizeof(reason)};
    cu_result result =
        cuda->driver->cuModuleLoadDataEx(&cuda->modules[module], blob->bytes, 2, options, values);
    if (result == CU_ERROR_NO_BINARY_FOR_GPU || result == CU_ERROR_UNSUPPORTED_PTX_VERSION) {
        return err_set(err, ERR_DEVICE,
                       "device image file '%s' has nothing for %s (compute capability %d.%d) on a "
                       "driver for CUDA %d.%d: install driver 580 or newer, or set device: cpu",
                       blob->name, cuda->name, cuda->capability / 10, cuda->capability % 10,
                       cuda->driver->version / 1000, cuda->driver->version % 1000 / 10);
    }
    code = cuda_check(cuda->driver, result, "loading it", err);
    if (code != 0) {
        return err_prefix(err, "device image file '%s': %.200s", blob->name, reason);
    }
    return 0;
}

static int attribute(struct cuda_device *cuda, cu_function function, int which, uint32_t *ret_value,
                     struct err *err)
{
    int value = 0;
    CUDA_TRY(cuda, cuFuncGetAttribute(&value, which, function), "asking for an image's record");
    *ret_value = (uint32_t)value;
    return 0;
}

static int load_kernel(struct cuda_device *cuda, enum cuda_kernel kernel, struct images *images,
                       struct err *err)
{
    const char *name = catalogue[kernel].name;
    cu_function function = NULL;
    cu_result result = cuda->driver->cuModuleGetFunction(
        &function, cuda->modules[catalogue[kernel].module], catalogue[kernel].entry);
    if (result != 0) {
        (void)cuda_check(cuda->driver, result, "looking it up", err);
        return err_prefix(err, "device image '%s' is missing: ", name);
    }
    struct image_record reported = {.registers = 0};
    uint32_t version = 0;
    int code = attribute(cuda, function, CU_FUNCTION_REGISTERS, &reported.registers, err);
    code = code != 0 ? code
                     : attribute(cuda, function, CU_FUNCTION_THREADS_MAX, &reported.threads, err);
    code = code != 0
               ? code
               : attribute(cuda, function, CU_FUNCTION_SHARED_BYTES, &reported.shared_bytes, err);
    code = code != 0
               ? code
               : attribute(cuda, function, CU_FUNCTION_LOCAL_BYTES, &reported.local_bytes, err);
    code = code != 0 ? code : attribute(cuda, function, CU_FUNCTION_BINARY_VERSION, &version, err);
    if (code != 0) {
        return err_prefix(err, "device image '%s': ", name);
    }
    struct image_record record;
    struct err none;
    size_t size = (size_t)(cuda_records_end - cuda_records_text);
    code = cuda_record_find(cuda_records_text, size, name, (int)version, &record, &none);
    if (code == 0) {
        code = cuda_record_check(name, (int)version, &record, &reported, err);
    } else if (code == ERR_NOT_FOUND &&
               cuda_record_find(cuda_records_text, size, name, 80, &record, &none) == 0) {
        code =
            0; /* built by the driver from PTX for an architecture that has no image of its own */
    } else {
        code = err_set(err, none.code, "%s", none.text);
    }
    if (code == 0) {
        cuda->kernels[kernel] = function;
        code = images_register(images, name, NULL, function, &reported, err);
    }
    return code;
}

int cuda_images_load(struct cuda_device *cuda, struct images *images, struct err *err)
{
    for (int module = 0; module < MODULES_COUNT; module++) {
        int code = load_module(cuda, (enum cuda_module)module, err);
        if (code != 0) {
            return code;
        }
    }
    for (int kernel = 0; kernel < KERNELS_COUNT; kernel++) {
        int code = load_kernel(cuda, (enum cuda_kernel)kernel, images, err);
        if (code != 0) {
            return code;
        }
    }
    /* A launch goes by the registry: what it does not name stays NULL and launches nothing. */
    for (int kernel = 0; kernel < KERNELS_COUNT; kernel++) {
        const struct image *image = NULL;
        int code = images_find(images, catalogue[kernel].name, &image, err);
        if (code != 0) {
            return code;
        }
        cuda->kernels[kernel] = image->object;
    }
    return 0;
}

void cuda_images_unload(struct cuda_device *cuda)
{
    for (int module = 0; module < MODULES_COUNT; module++) {
        if (cuda->modules[module] != NULL) {
            (void)cuda->driver->cuModuleUnload(cuda->modules[module]);
            cuda->modules[module] = NULL;
        }
    }
}

int cuda_launch(struct cuda_device *cuda, enum cuda_kernel kernel, unsigned grid_x, unsigned grid_y,
                unsigned grid_z, unsigned block, size_t shared_size, void *arguments,
                struct err *err)
{
    ASSERT(cuda->kernels[kernel] != NULL);
    void *list[1] = {arguments};
    cu_result result =
        cuda->driver->cuLaunchKernel(cuda->kernels[kernel], grid_x, grid_y, grid_z, block, 1, 1,
                                     (unsigned)shared_size, cuda->work, list, NULL);
    if (result != 0) {
        (void)cuda_check(cuda->driver, result, "launching it", err);
        return err_prefix(err, "device image '%s': ", catalogue[kernel].name);
    }
    return 0;
}
