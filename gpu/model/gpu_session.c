#include "gpu/model/gpu_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/cuda.h"
#include "gpu/model/blobs.h"
#include "gpu/model/maps.h"
#include "gpu/model/records.h"

#define FILE_MAX (64L << 20)

struct model_gpu {
    const struct cuda_driver *driver;
    const struct model_choices *choices; /* NULL: the committed ones */
    enum model_half half;
    int architecture;
    unsigned multiprocessors;
    int shared_max; /* of a block */
    cu_module modules[MODEL_FILES_COUNT];
    struct images images;
};

static const char *half_name(enum model_half half)
{
    return half == MODEL_HALF_FP16 ? "fp16" : "bf16";
}

/* -- loading ---------------------------------------------------------------------------------- */

/* The whole file; the caller frees it. */
static int read_file(const char *path, unsigned char **ret_bytes, size_t *ret_size, struct err *err)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return err_set(err, ERR_NOT_FOUND,
                       "device image file '%s' is missing: build the target model_images", path);
    }
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size < 0 || size > FILE_MAX || fseek(file, 0, SEEK_SET) != 0) {
        (void)fclose(file);
        return err_set(err, ERR_DEVICE, "device image file '%s' has %ld bytes; at most %ld serve",
                       path, size, FILE_MAX);
    }
    unsigned char *bytes = malloc((size_t)size + 1);
    size_t got = bytes != NULL ? fread(bytes, 1, (size_t)size, file) : 0;
    (void)fclose(file);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for device image file '%s'", path);
    }
    *ret_bytes = bytes;
    *ret_size = got;
    return 0;
}

/* A file of the folder, to be freed, or what the program has inside. */
static int find_file(const struct model_gpu *gpu, const char *folder, enum model_file which,
                     char *path, size_t path_size, unsigned char **ret_own,
                     struct cuda_blob *ret_blob, struct err *err)
{
    if (folder == NULL) {
        const struct cuda_blob *blob = NULL;
        int status = model_blob_find(which, gpu->half, &blob, err);
        if (status == 0) {
            *ret_blob = *blob;
        }
        return status;
    }
    (void)snprintf(path, path_size, "%s/%s_%s.fatbin", folder, model_files[which],
                   half_name(gpu->half));
    size_t size = 0;
    int status = read_file(path, ret_own, &size, err);
    if (status == 0) {
        *ret_blob = (struct cuda_blob){path, *ret_own, *ret_own + size};
        status = cuda_blob_check(ret_blob, err);
    }
    return status;
}

static int load_module(struct model_gpu *gpu, const char *folder, enum model_file which,
                       struct err *err)
{
    char path[512];
    unsigned char *own = NULL;
    struct cuda_blob blob = {.name = NULL};
    int status = find_file(gpu, folder, which, path, sizeof(path), &own, &blob, err);
    if (status == 0) {
        status = cuda_check(
            gpu->driver,
            gpu->driver->cuModuleLoadDataEx(&gpu->modules[which], blob.bytes, 0, NULL, NULL),
            "loading it", err);
        if (status != 0) {
            (void)err_prefix(err, "device image file '%s' (sm_%d): ", blob.name, gpu->architecture);
        }
    }
    free(own);
    return status;
}

static int attribute(const struct model_gpu *gpu, cu_function function, int which,
                     uint32_t *ret_value, struct err *err)
{
    int value = 0;
    int status = cuda_check(gpu->driver, gpu->driver->cuFuncGetAttribute(&value, which, function),
                            "asking for an image's record", err);
    *ret_value = (uint32_t)value;
    return status;
}

/* What the driver says of a kernel; *ret_version: of its machine code, 90 for sm_90. */
static int report(const struct model_gpu *gpu, cu_function function, struct image_record *ret,
                  uint32_t *ret_version, struct err *err)
{
    const struct {
        int which;
        uint32_t *value;
    } fields[] = {
        {CU_FUNCTION_REGISTERS, &ret->registers},
        {CU_FUNCTION_THREADS_MAX, &ret->threads},
        {CU_FUNCTION_SHARED_BYTES, &ret->shared_bytes},
        {CU_FUNCTION_LOCAL_BYTES, &ret->local_bytes},
        {CU_FUNCTION_BINARY_VERSION, ret_version},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        int status = attribute(gpu, function, fields[i].which, fields[i].value, err);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

static int load_kernel(struct model_gpu *gpu, const struct model_entry *entry, struct err *err)
{
    char symbol[IMAGE_NAME_SIZE + 8];
    char name[IMAGE_NAME_SIZE];
    (void)snprintf(symbol, sizeof(symbol), "%s_%s", entry->name, half_name(gpu->half));
    model_record_name(entry->name, gpu->half, name);
    cu_function function = NULL;
    int status = cuda_check(
        gpu->driver, gpu->driver->cuModuleGetFunction(&function, gpu->modules[entry->file], symbol),
        "looking it up", err);
    if (status != 0) {
        return err_prefix(err, "device image '%s' is missing: ", name);
    }
    struct image_record reported = {.registers = 0};
    uint32_t version = 0;
    status = report(gpu, function, &reported, &version, err);
    if (status != 0) {
        return err_prefix(err, "device image '%s': ", name);
    }
    status = model_record_check(entry->name, gpu->half, (int)version, &reported, err);
    if (status == 0) {
        status = images_register(&gpu->images, name, NULL, function, &reported, err);
    }
    return status;
}

static int ask(struct model_gpu *gpu, cu_device device, int which, int *ret_value, struct err *err)
{
    return cuda_check(gpu->driver, gpu->driver->cuDeviceGetAttribute(ret_value, which, device),
                      "asking for the GPU's properties", err);
}

static int load_all(struct model_gpu *gpu, cu_device device, const char *folder, struct err *err)
{
    int major = 0;
    int minor = 0;
    int multiprocessors = 0;
    int status = ask(gpu, device, CU_ATTRIBUTE_CAPABILITY_MAJOR, &major, err);
    status = status != 0 ? status : ask(gpu, device, CU_ATTRIBUTE_CAPABILITY_MINOR, &minor, err);
    status = status != 0 ? status
                         : ask(gpu, device, CU_ATTRIBUTE_MULTIPROCESSORS, &multiprocessors, err);
    status =
        status != 0 ? status : ask(gpu, device, CU_ATTRIBUTE_SHARED_OPTIN, &gpu->shared_max, err);
    gpu->architecture = major * 10 + minor;
    gpu->multiprocessors = (unsigned)multiprocessors;
    for (int file = 0; file < MODEL_FILES_COUNT && status == 0; file++) {
        if (gpu->architecture == 90 || !model_file_hopper((enum model_file)file)) {
            status = load_module(gpu, folder, (enum model_file)file, err);
        }
    }
    for (size_t i = 0; i < model_entries_count && status == 0; i++) {
        if (gpu->modules[model_entries[i].file] != NULL) {
            status = load_kernel(gpu, &model_entries[i], err);
        }
    }
    images_close(&gpu->images);
    return status;
}

int model_gpu_open(const struct cuda_driver *driver, cu_device device, const char *folder,
                   const struct model_choices *choices, enum model_half half,
                   struct model_gpu **ret_gpu, struct err *err)
{
    ASSERT(half == MODEL_HALF_FP16 || half == MODEL_HALF_BF16);
    struct model_gpu *gpu = calloc(1, sizeof(*gpu));
    if (gpu == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a session of the language model");
    }
    gpu->driver = driver;
    gpu->choices = choices;
    gpu->half = half;
    int status = load_all(gpu, device, folder, err);
    if (status != 0) {
        model_gpu_close(gpu);
        return status;
    }
    *ret_gpu = gpu;
    return 0;
}

void model_gpu_close(struct model_gpu *gpu)
{
    for (int file = 0; gpu != NULL && file < MODEL_FILES_COUNT; file++) {
        if (gpu->modules[file] != NULL) {
            (void)gpu->driver->cuModuleUnload(gpu->modules[file]);
        }
    }
    free(gpu);
}

const struct images *model_gpu_images(const struct model_gpu *gpu)
{
    return &gpu->images;
}

int model_gpu_architecture(const struct model_gpu *gpu)
{
    return gpu->architecture;
}

/* -- launching -------------------------------------------------------------------------------- */

int model_gpu_launch_kernel(struct model_gpu *gpu, const struct model_kernel *kernel,
                            const struct model_arguments *arguments, cu_stream stream,
                            struct err *err)
{
    char name[IMAGE_NAME_SIZE];
    model_record_name(kernel->entry, gpu->half, name);
    const struct image *image = NULL;
    int status = images_find(&gpu->images, name, &image, err);
    if (status != 0) {
        return status;
    }
    if (kernel->shared_bytes + image->record.shared_bytes > (unsigned)gpu->shared_max) {
        return err_set(
            err, ERR_DEVICE,
            "device image '%s' wants %u bytes of shared memory; this GPU's blocks have %d", name,
            kernel->shared_bytes + image->record.shared_bytes, gpu->shared_max);
    }
    cu_function function = image->object;
    struct model_maps maps = {0};
    status = model_maps_make(gpu->driver, kernel, arguments, gpu->half, &maps, err);
    if (status == 0 && kernel->shared_bytes > 0) {
        status =
            cuda_check(gpu->driver,
                       gpu->driver->cuFuncSetAttribute(function, CU_FUNCTION_DYNAMIC_SHARED_MAX,
                                                       (int)kernel->shared_bytes),
                       "asking for shared memory", err);
    }
    if (status == 0) {
        struct model_kernel own = *kernel;
        own.early = kernel->early && gpu->architecture >= 90; /* older ones cannot wait */
        status = model_kernel_launch(gpu->driver, function, &own, arguments, &maps, stream, err);
    }
    return status == 0 ? 0 : err_prefix(err, "device image '%s': ", name);
}

int model_gpu_launch(struct model_gpu *gpu, const char *name, const struct model_launch *launch,
                     int tile, void *const operands[], size_t operands_count, cu_stream stream,
                     struct err *err)
{
    struct model_arguments arguments = {.launch = *launch};
    const struct model_image *image = NULL;
    int status = model_image_find(name, &arguments.launch, &image, err);
    status = status != 0 ? status : model_shape_check_device(&launch->shape, err);
    if (status != 0) {
        return status;
    }
    if (strcmp(image->name, "tiled") == 0 || strcmp(image->name, "transpose") == 0) {
        model_launch_sequences(&arguments.launch, launch->shape.sequences);
    }
    if (strcmp(image->name, "tiled") == 0 && tile == MODEL_TILE_NONE) {
        struct model_choice choice = {.tile = MODEL_TILE_NONE};
        status = model_choice_find(gpu->choices, gpu->architecture, name, launch->shape.sequences,
                                   &arguments.launch, &choice, err);
        if (status != 0) {
            return status;
        }
        tile = choice.tile;
        arguments.launch.split = choice.split;
    }
    status = model_operands_check(image, name, &arguments.launch, operands, operands_count, err);
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; i < operands_count; i++) {
        arguments.operand[i] = operands[i];
    }
    if (tile == MODEL_TILE_NONE) {
        tile = model_attention_choice(gpu->architecture, name, &arguments.launch);
    }
    struct model_kernel kernels[MODEL_STAGES_MAX];
    size_t count = 0;
    status = model_device_plan(name, &arguments.launch, tile, gpu->multiprocessors, kernels, &count,
                               err);
    for (size_t i = 0; i < count && status == 0; i++) {
        status = model_gpu_launch_kernel(gpu, &kernels[i], &arguments, stream, err);
    }
    return status;
}
