/* The language model's images on the GPU against their oracles, and their times.
 *
 *   parity_model FOLDER check [REPEATS]     every image and tile on small shapes, then Coppelius'
 *   parity_model FOLDER small               one small shape once: for compute-sanitizer
 *   parity_model FOLDER whole                the Coppelius sizes, twice
 *   parity_model FOLDER time [SEQUENCES]    times: bytes and operations over them
 *
 * FOLDER holds the kernels as the target model_images makes them. Exits 77, saying why, where there
 * is no GPU or no such file; 1 after a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "gpu/cuda_driver.h"
#include "gpu/model/tiles.h"
#include "tests/lib/model_check.h"

static const char *const files[] = {"flat",       "gelu",    "norm",    "layout",   "softmax",
                                    "vocabulary", "scatter", "product", "attention"};
enum { FILES = 9, RUNS = 20, FILE_MAX = 64 << 20 };

struct gpu {
    const struct cuda_driver *driver;
    const char *folder;
    unsigned multiprocessors;
    cu_module modules[3][FILES]; /* [enum model_half] */
};

static void must(const struct gpu *gpu, cu_result result, const char *doing)
{
    struct err err = {0};
    if (cuda_check(gpu->driver, result, doing, &err) != 0) {
        (void)printf("FAILED %s\n", err.text);
        exit(1);
    }
}

static const char *half_name(enum model_half half)
{
    return half == MODEL_HALF_FP16 ? "fp16" : "bf16";
}

static void load(struct gpu *gpu, enum model_half half)
{
    for (size_t i = 0; i < FILES; i++) {
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/%s_%s.fatbin", gpu->folder, files[i],
                       half_name(half));
        FILE *file = fopen(path, "rb");
        if (file == NULL) {
            (void)printf("skipped: no file %s: build the target model_images\n", path);
            exit(77);
        }
        char *image = malloc(FILE_MAX);
        ASSERT(image != NULL);
        size_t size = fread(image, 1, FILE_MAX, file);
        ASSERT(size > 0);
        (void)fclose(file);
        must(gpu, gpu->driver->cuModuleLoadDataEx(&gpu->modules[half][i], image, 0, NULL, NULL),
             path);
        free(image);
    }
}

static void open_gpu(struct gpu *gpu)
{
    struct err err = {0};
    if (cuda_driver_get(&gpu->driver, &err) != 0) {
        (void)printf("skipped: %s\n", err.text);
        exit(77);
    }
    cu_device device;
    cu_context context;
    int multiprocessors;
    must(gpu, gpu->driver->cuDeviceGet(&device, 0), "taking device 0");
    must(gpu, gpu->driver->cuDevicePrimaryCtxRetain(&context, device), "making a context");
    must(gpu, gpu->driver->cuCtxSetCurrent(context), "using the context");
    must(gpu,
         gpu->driver->cuDeviceGetAttribute(&multiprocessors, CU_ATTRIBUTE_MULTIPROCESSORS, device),
         "asking for multiprocessors");
    gpu->multiprocessors = (unsigned)multiprocessors;
    load(gpu, MODEL_HALF_FP16);
    load(gpu, MODEL_HALF_BF16);
}

/* -- the runner -------------------------------------------------------------------------------- */

static cu_pointer address(const void *device)
{
    return (cu_pointer)(uintptr_t)device;
}

static void *alloc(void *context, uint64_t bytes)
{
    struct gpu *gpu = context;
    cu_pointer pointer;
    must(gpu, gpu->driver->cuMemAlloc_v2(&pointer, bytes), "allocating");
    return (void *)(uintptr_t)pointer; /* NOLINT(performance-no-int-to-ptr) */
}

static void release(void *context, void *device)
{
    struct gpu *gpu = context;
    must(gpu, gpu->driver->cuMemFree_v2(address(device)), "freeing");
}

static void upload(void *context, void *device, const void *host, uint64_t bytes)
{
    struct gpu *gpu = context;
    must(gpu, gpu->driver->cuMemcpyHtoDAsync_v2(address(device), host, bytes, NULL), "copying in");
    must(gpu, gpu->driver->cuStreamSynchronize(NULL), "waiting");
}

static void download(void *context, void *host, const void *device, uint64_t bytes)
{
    struct gpu *gpu = context;
    must(gpu, gpu->driver->cuMemcpyDtoHAsync_v2(host, address(device), bytes, NULL), "copying out");
    must(gpu, gpu->driver->cuStreamSynchronize(NULL), "waiting");
}

static cu_function find(struct gpu *gpu, const struct model_kernel *kernel, enum model_half half)
{
    char entry[IMAGE_NAME_SIZE + 8];
    (void)snprintf(entry, sizeof(entry), "%s_%s", kernel->entry, half_name(half));
    cu_function function = NULL;
    for (size_t i = 0; i < FILES && function == NULL; i++) {
        if (gpu->driver->cuModuleGetFunction(&function, gpu->modules[half][i], entry) != 0) {
            function = NULL;
        }
    }
    if (function == NULL) {
        (void)printf("FAILED no kernel %s\n", entry);
        exit(1);
    }
    if (kernel->shared_bytes > 48 * 1024) {
        must(gpu,
             gpu->driver->cuFuncSetAttribute(function, CU_FUNCTION_DYNAMIC_SHARED_MAX,
                                             (int)kernel->shared_bytes),
             entry);
    }
    return function;
}

static void start(struct gpu *gpu, cu_function function, const struct model_kernel *kernel,
                  const struct model_arguments *arguments)
{
    struct model_arguments copy = *arguments;
    void *parameters[] = {&copy};
    must(gpu,
         gpu->driver->cuLaunchKernel(function, kernel->grid[0], kernel->grid[1], kernel->grid[2],
                                     kernel->threads, 1, 1, kernel->shared_bytes, NULL, parameters,
                                     NULL),
         kernel->entry);
}

static int launch(void *context, const struct model_kernel *kernel, enum model_half half,
                  const struct model_arguments *arguments)
{
    struct gpu *gpu = context;
    start(gpu, find(gpu, kernel, half), kernel, arguments);
    must(gpu, gpu->driver->cuStreamSynchronize(NULL), kernel->entry);
    return 0;
}

/* -- times ------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Microseconds of one run of the image, the mean of RUNS; its operands are random bits of halves
 * around 1 (zeros would flatter the products) or small indices. */
static double time_image(struct gpu *gpu, const char *name, const struct model_launch *filled,
                         int tile, double *ret_bytes)
{
    const struct model_image *image;
    struct model_kernel kernels[MODEL_STAGES_MAX];
    size_t count;
    struct err err = {0};
    if (model_image_find(name, NULL, &image, &err) != 0 ||
        model_device_plan(name, filled, tile, gpu->multiprocessors, kernels, &count, &err) != 0) {
        (void)printf("FAILED %s\n", err.text);
        exit(1);
    }
    struct model_arguments arguments = {.launch = *filled};
    struct rand rand = {7};
    *ret_bytes = 0.0;
    for (size_t i = 0; i < model_operands_count(image); i++) {
        const struct model_operand *operand = &image->operands[i];
        struct model_case one = {.image = image, .half = MODEL_HALF_BF16};
        uint64_t elements = operand->count(filled);
        uint64_t bytes = elements * model_case_element(&one, i);
        if (bytes == 0) {
            continue;
        }
        uint32_t *host = malloc(bytes + 4);
        ASSERT(host != NULL);
        for (uint64_t at = 0; at < (bytes + 3) / 4; at++) {
            uint32_t bits = (uint32_t)(rand_next(&rand) >> 32);
            host[at] = operand->kind == MODEL_I32 ? bits % filled->shape.vocabulary
                                                  : (bits & 0x80ff80ffU) | 0x3f003f00U;
        }
        arguments.operand[i] = alloc(gpu, bytes);
        upload(gpu, arguments.operand[i], host, bytes);
        free(host);
        *ret_bytes += operand->direction == MODEL_SCRATCH ? 0.0
                      : operand->direction == MODEL_INOUT ? 2.0 * (double)bytes
                                                          : (double)bytes;
    }
    cu_function functions[MODEL_STAGES_MAX];
    for (size_t k = 0; k < count; k++) {
        functions[k] = find(gpu, &kernels[k], MODEL_HALF_BF16);
    }
    double began = 0.0;
    for (int run = -3; run < RUNS; run++) {
        if (run == 0) {
            must(gpu, gpu->driver->cuStreamSynchronize(NULL), "warming up");
            began = now();
        }
        for (size_t k = 0; k < count; k++) {
            start(gpu, functions[k], &kernels[k], &arguments);
        }
    }
    must(gpu, gpu->driver->cuStreamSynchronize(NULL), name);
    double microseconds = (now() - began) * 1e6 / RUNS;
    for (size_t i = 0; i < model_operands_count(image); i++) {
        if (arguments.operand[i] != NULL) {
            release(gpu, arguments.operand[i]);
        }
    }
    return microseconds;
}

static void time_products(struct gpu *gpu, const struct model_shape *shape)
{
    struct model_name names[MODEL_PRODUCTS_MAX];
    size_t count = model_products(shape, names);
    for (size_t i = 0; i < count; i++) {
        struct model_launch filled = case_launch(shape);
        const struct model_image *image;
        struct err err = {0};
        ASSERT(model_image_find(names[i].text, &filled, &image, &err) == 0);
        model_launch_sequences(&filled, shape->sequences);
        filled.half_out = filled.add == 0 && filled.a_columns == 0;
        (void)printf("%-32s", names[i].text);
        for (int tile = 0; tile < MODEL_TILES_COUNT; tile++) {
            double bytes;
            if (model_tile_serves(tile, &filled)) {
                double time = time_image(gpu, names[i].text, &filled, tile, &bytes);
                double flops = 2.0 * filled.m * filled.n * (double)filled.k;
                (void)printf(" %d: %.1f us %.0f", tile, time, flops / time / 1e6);
            }
        }
        (void)printf("\n");
    }
}

static void time_images(struct gpu *gpu, const struct model_shape *shape)
{
    for (size_t i = 0; i < model_images_count; i++) {
        const char *name = model_images[i].name;
        struct model_launch filled = case_launch(shape);
        filled.count = 32U << 20;
        if (strcmp(name, "tiled") == 0 || strcmp(name, "transpose") == 0) {
            continue;
        }
        double bytes;
        double time = time_image(gpu, name, &filled, MODEL_TILE_NONE, &bytes);
        (void)printf("%-24s %10.1f us %8.0f GB/s\n", name, time, bytes / time / 1e3);
    }
}

int main(int count, char **words)
{
    if (count < 3) {
        (void)printf("skipped: give the folder of the kernels, and check, small or time\n");
        return 77;
    }
    static struct gpu gpu;
    gpu.folder = words[1];
    open_gpu(&gpu);
    const struct model_runner runner = {
        &gpu, gpu.multiprocessors, alloc, release, upload, download, launch};
    const struct model_shape small[] = {{1, 128, 128, 2, 64, 128, 256},
                                        {2, 256, 256, 2, 128, 384, 512},
                                        {3, 384, 192, 3, 64, 256, 768}};
    struct model_shape coppelius = {1, 1024, 512, 8, 64, 1408, 12288};
    unsigned failures = 0;
    if (strcmp(words[2], "small") == 0) {
        failures += model_check_shape(&runner, &small[0], MODEL_HALF_BF16, 1);
    } else if (strcmp(words[2], "check") == 0) {
        unsigned repeats = count > 3 ? (unsigned)strtoul(words[3], NULL, 10) : 30;
        for (size_t i = 0; i < 3; i++) {
            failures += model_check_shape(&runner, &small[i], MODEL_HALF_FP16, repeats);
            failures += model_check_shape(&runner, &small[i], MODEL_HALF_BF16, repeats);
        }
    } else if (strcmp(words[2], "whole") == 0) {
        failures += model_check_shape(&runner, &coppelius, MODEL_HALF_BF16, 2);
    } else {
        coppelius.sequences = count > 3 ? (uint32_t)strtoul(words[3], NULL, 10) : 16;
        time_products(&gpu, &coppelius);
        time_images(&gpu, &coppelius);
    }
    return failures == 0 ? 0 : 1;
}
