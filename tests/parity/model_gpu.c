/* The language model's images on the GPU against their oracles, and their times.
 *
 *   parity_model FOLDER check [REPEATS]     every image and tile on small shapes
 *   parity_model FOLDER edges [REPEATS]     the longest, the most, the widest that the images serve
 *   parity_model FOLDER small               one small shape once: for compute-sanitizer
 *   parity_model FOLDER candidates [HEAD]   every candidate of sm_90a once, one process: likewise
 *   parity_model FOLDER whole [REPEATS]     the Coppelius sizes, but for the products
 *   parity_model FOLDER hopper [REPEATS [CANDIDATE]]    sm_90a's candidates, small and Coppelius'
 *   parity_model FOLDER list                loads and checks the images, prints their records
 *   parity_model FOLDER rows                a row's bits with more and with fewer rows beside it
 *   parity_model FOLDER time [SEQUENCES]    times: bytes and operations over them
 *   parity_model FOLDER attention [SEQUENCES [CANDIDATE]]   times of sm_90a's attention
 *   parity_model FOLDER products [SEQUENCES]   times of the products, for each tile
 *
 * check and whole spread their checks over processes that use the GPU at the same time (which is
 * the load that the repetitions run under), and go on behind an image that took the GPU's context
 * with it.
 *
 * FOLDER holds the kernels as the target model_images makes them. Exits 77, saying why, where there
 * is no GPU or no such file; 1 after a failure. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "gpu/cuda_driver.h"
#include "gpu/gpu.h"
#include "gpu/model/gpu_session.h"
#include "gpu/model/tiles.h"
#include "tests/lib/model_check.h"

enum { RUNS = 20 };

struct gpu {
    const struct cuda_driver *driver;
    const char *folder;
    unsigned multiprocessors;
    bool hopper;
    struct model_gpu *session[3]; /* [enum model_half] */
};

static void must(const struct gpu *gpu, cu_result result, const char *doing)
{
    struct err err = {0};
    if (cuda_check(gpu->driver, result, doing, &err) != 0) {
        (void)printf("FAILED %s\n", err.text);
        exit(1);
    }
}

static void open_session(struct gpu *gpu, cu_device device, enum model_half half)
{
    struct err err = {0};
    int status =
        model_gpu_open(gpu->driver, device, gpu->folder, NULL, half, &gpu->session[half], &err);
    if (status != 0) {
        (void)printf("%s: %s\n", status == ERR_NOT_FOUND ? "skipped" : "FAILED", err.text);
        exit(status == ERR_NOT_FOUND ? 77 : 1);
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
    int major;
    must(gpu, gpu->driver->cuDeviceGetAttribute(&major, CU_ATTRIBUTE_CAPABILITY_MAJOR, device),
         "asking for the capability");
    gpu->hopper = major == 9;
    open_session(gpu, device, MODEL_HALF_FP16);
    open_session(gpu, device, MODEL_HALF_BF16);
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

static void start(struct gpu *gpu, const struct model_kernel *kernel, enum model_half half,
                  const struct model_arguments *arguments)
{
    struct err err = {0};
    if (model_gpu_launch_kernel(gpu->session[half], kernel, arguments, NULL, &err) != 0) {
        (void)printf("FAILED %s\n", err.text);
        exit(1);
    }
}

static int launch(void *context, const struct model_kernel *kernel, enum model_half half,
                  const struct model_arguments *arguments)
{
    struct gpu *gpu = context;
    start(gpu, kernel, half, arguments);
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

/* Random bits of halves around 1, or indices, a piece again and again. */
static void fill_operand(struct gpu *gpu, char *device, uint64_t bytes, enum model_kind kind,
                         uint32_t vocabulary, struct rand *rand)
{
    enum { PIECE = 1 << 20 }; /* words */
    static uint32_t piece[PIECE];
    for (size_t at = 0; at < PIECE; at++) {
        uint32_t bits = (uint32_t)(rand_next(rand) >> 32);
        piece[at] = kind == MODEL_I32 ? bits % vocabulary : (bits & 0x80ff80ffU) | 0x3f003f00U;
    }
    for (uint64_t done = 0; done < bytes; done += sizeof(piece)) {
        uint64_t size = bytes - done < sizeof(piece) ? bytes - done : sizeof(piece);
        upload(gpu, device + done, piece, size);
    }
}

/* Bytes that an image must read or write of an operand, each once. */
static double moved_bytes(const char *image, const struct model_operand *operand,
                          const struct model_launch *filled, double bytes)
{
    const double seen = 0.5 + 0.5 / filled->shape.length; /* on and below the diagonal */
    if (operand->direction == MODEL_SCRATCH) {
        return 0.0;
    }
    if (strcmp(image, "gather") == 0 && strcmp(operand->name, "table") == 0) {
        return 4.0 * filled->rows * filled->shape.width;
    }
    if (strcmp(image, "loss-target-gather") == 0 && strcmp(operand->name, "logits") == 0) {
        return 32.0 * filled->rows; /* a sector each */
    }
    if (strcmp(operand->name, "qkv") == 0) {
        return strcmp(image, "value-transpose") == 0 ? bytes / 3.0 : bytes * 2.0 / 3.0;
    }
    if (strncmp(image, "softmax-", 8) == 0 && operand->direction == MODEL_IN) {
        return bytes * seen;
    }
    return operand->direction == MODEL_INOUT ? 2.0 * bytes : bytes;
}

/* Microseconds of one run of the image, the mean of RUNS; its operands are random bits of halves
 * around 1 (zeros would flatter the products) or small indices; the tokens, where given, those. */
static double time_image(struct gpu *gpu, const char *name, const struct model_launch *filled,
                         int tile, const int32_t *tokens, double *ret_bytes)
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
        arguments.operand[i] = alloc(gpu, bytes);
        fill_operand(gpu, arguments.operand[i], bytes, operand->kind, filled->shape.vocabulary,
                     &rand);
        if (tokens != NULL && strcmp(operand->name, "tokens") == 0) {
            upload(gpu, arguments.operand[i], tokens, bytes);
        }
        *ret_bytes += moved_bytes(name, operand, filled, (double)bytes);
    }
    double began = 0.0;
    for (int run = -3; run < RUNS; run++) {
        if (run == 0) {
            must(gpu, gpu->driver->cuStreamSynchronize(NULL), "warming up");
            began = now();
        }
        for (size_t k = 0; k < count; k++) {
            start(gpu, &kernels[k], MODEL_HALF_BF16, &arguments);
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
        for (int tile = 0; tile < MMA_TILES_COUNT; tile++) {
            double bytes;
            if (model_tile_serves(tile, &filled)) {
                double time = time_image(gpu, names[i].text, &filled, tile, NULL, &bytes);
                double flops = 2.0 * filled.m * filled.n * (double)filled.k;
                (void)printf(" %d: %.1f us %.0f", tile, time, flops / time / 1e6);
            }
        }
        (void)printf("\n");
    }
}

static void time_attention(struct gpu *gpu, const struct model_shape *shape, int candidate)
{
    for (size_t i = 0; i < model_images_count; i++) {
        const char *name = model_images[i].name;
        const struct model_launch filled = case_launch(shape);
        for (int tile = 0; tile < MODEL_TILES_COUNT; tile++) {
            if (model_attention_serves(name, tile, &filled) &&
                (candidate < 0 || candidate == tile)) {
                double bytes;
                double time = time_image(gpu, name, &filled, tile, NULL, &bytes);
                (void)printf("%-24s %10.1f us, candidate %d\n", name, time, tile);
                (void)fflush(stdout);
            }
        }
    }
}

/* The embedding's gradient, whose cost is a matter of the tokens. */
static void time_scatter(struct gpu *gpu, const struct model_shape *shape)
{
    static const char *const flavours[] = {"distinct", "zipf", "same"};
    const struct model_launch filled = case_launch(shape);
    int32_t *tokens = malloc(filled.rows * sizeof(*tokens));
    ASSERT(tokens != NULL);
    for (size_t flavour = 0; flavour < 3; flavour++) {
        struct rand rand = {11};
        for (uint32_t row = 0; row < filled.rows; row++) {
            const double uniform = (double)(rand_next(&rand) >> 11) * 0x1p-53;
            const double zipf = pow((double)shape->vocabulary + 1.0, uniform) - 1.0;
            tokens[row] = flavour == 0   ? (int32_t)(row * 5 % shape->vocabulary)
                          : flavour == 1 ? (int32_t)fmin(zipf, (double)shape->vocabulary - 1.0)
                                         : 7;
        }
        double bytes;
        double time =
            time_image(gpu, "embedding-scatter", &filled, MODEL_TILE_NONE, tokens, &bytes);
        (void)printf("embedding-scatter-%s %10.1f us %8.0f GB/s\n", flavours[flavour], time,
                     bytes / time / 1e3);
    }
    free(tokens);
}

static void time_images(struct gpu *gpu, const struct model_shape *shape)
{
    for (size_t i = 0; i < model_images_count; i++) {
        const char *name = model_images[i].name;
        struct model_launch filled = case_launch(shape);
        filled.count = 64U << 20;
        if (strcmp(name, "tiled") == 0 || strcmp(name, "transpose") == 0) {
            continue;
        }
        double bytes;
        const int tile = model_attention_choice(gpu->hopper ? 90 : 80, name, &filled);
        double time = time_image(gpu, name, &filled, tile, NULL, &bytes);
        (void)printf("%-24s %10.1f us %8.0f GB/s\n", name, time, bytes / time / 1e3);
        (void)fflush(stdout);
    }
    struct model_name names[2];
    size_t count = model_transposes(shape, names);
    for (size_t i = 0; i < count; i++) {
        struct model_launch filled = case_launch(shape);
        const struct model_image *image;
        struct err err = {0};
        double bytes;
        ASSERT(model_image_find(names[i].text, &filled, &image, &err) == 0);
        model_launch_sequences(&filled, shape->sequences);
        double time = time_image(gpu, names[i].text, &filled, MODEL_TILE_NONE, NULL, &bytes);
        (void)printf("%-24s %10.1f us %8.0f GB/s\n", names[i].text, time, bytes / time / 1e3);
    }
    time_scatter(gpu, shape);
}

/* -- many processes ---------------------------------------------------------------------------- */

struct part {
    const struct model_shape *shape;
    enum model_half half;
    unsigned slice;
    pid_t process;
    unsigned tries; /* one more for each image that broke */
};

struct parts {
    struct part part[64];
    size_t count;
    const char *folder;
    unsigned slices;
    unsigned repeats;
    bool without_products;
    bool hopper;
    int candidate;
    unsigned *at; /* of every part, shared with the processes */
};

static unsigned check_part(const struct parts *parts, size_t which, unsigned first)
{
    static struct gpu gpu;
    const struct part *part = &parts->part[which];
    gpu.folder = parts->folder;
    open_gpu(&gpu);
    const struct model_runner runner = {.context = &gpu,
                                        .multiprocessors = gpu.multiprocessors,
                                        .alloc = alloc,
                                        .release = release,
                                        .upload = upload,
                                        .download = download,
                                        .launch = launch,
                                        .hopper = parts->hopper && gpu.hopper,
                                        .candidate = parts->candidate,
                                        .first = first,
                                        .slice = part->slice,
                                        .slices = parts->slices,
                                        /* Its oracle takes minutes; tiles_gpu checks those. */
                                        .without_products = parts->without_products ||
                                                            part->shape->vocabulary > 4096,
                                        .at = &parts->at[which]};
    return model_check_shape(&runner, part->shape, part->half, parts->repeats);
}

static void start_part(struct parts *parts, size_t which, unsigned first)
{
    (void)fflush(stdout);
    pid_t process = fork();
    ASSERT(process >= 0);
    if (process == 0) {
        unsigned failures = check_part(parts, which, first);
        (void)fflush(stdout);
        _exit(failures == 0 ? 0 : 2); /* 1: broke at *at */
    }
    parts->part[which].process = process;
}

static unsigned run_parts(struct parts *parts)
{
    size_t size = parts->count * sizeof(*parts->at);
    parts->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(parts->at != MAP_FAILED);
    for (size_t i = 0; i < parts->count; i++) {
        start_part(parts, i, 0);
    }
    unsigned failed = 0;
    bool skipped = false;
    for (size_t running = parts->count; running > 0;) {
        int status = 0;
        pid_t ended = wait(&status);
        ASSERT(ended > 0);
        size_t which = 0;
        while (which < parts->count && parts->part[which].process != ended) {
            which++;
        }
        ASSERT(which < parts->count);
        const bool done = WIFEXITED(status) && WEXITSTATUS(status) != 1;
        failed += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
        skipped = skipped || (WIFEXITED(status) && WEXITSTATUS(status) == 77);
        if (!done && ++parts->part[which].tries < 20) {
            (void)printf("goes on behind check %u\n", parts->at[which]);
            start_part(parts, which, parts->at[which] + 1);
        } else {
            running--;
        }
    }
    return skipped ? 77 : failed == 0 ? 0 : 1;
}

static void add_parts(struct parts *parts, const struct model_shape *shape, enum model_half half)
{
    for (unsigned slice = 0; slice < parts->slices; slice++) {
        ASSERT(parts->count < sizeof(parts->part) / sizeof(parts->part[0]));
        parts->part[parts->count++] =
            (struct part){.shape = shape, .half = half, .slice = slice, .tries = 0};
    }
}

int main(int count, char **words)
{
    if (count < 3) {
        (void)printf("skipped: give the folder of the kernels (-: those inside this program), and "
                     "check, small or time\n");
        return 77;
    }
    static const struct model_shape small[] = {{1, 128, 128, 2, 64, 128, 256},
                                               {2, 256, 256, 2, 128, 384, 512},
                                               {3, 384, 192, 3, 64, 256, 768},
                                               {1, 640, 256, 2, 128, 128, 256}};
    static struct model_shape coppelius = {1, 1024, 512, 8, 64, 1408, 12288};
    const unsigned number = count > 3 ? (unsigned)strtoul(words[3], NULL, 10) : 0;
    const int candidate = count > 4 ? (int)strtol(words[4], NULL, 10) : -1;
    static struct parts parts;
    parts.candidate = candidate;
    const char *folder = strcmp(words[1], "-") == 0 ? NULL : words[1]; /* inside the program */
    parts.folder = folder;
    if (strcmp(words[2], "small") == 0) {
        static unsigned at; /* no other process: compute-sanitizer looks at this one */
        parts.at = &at;
        parts.slices = 1;
        parts.repeats = 1;
        add_parts(&parts, &small[0], MODEL_HALF_BF16);
        return check_part(&parts, 0, 0) == 0 ? 0 : 1;
    }
    if (strcmp(words[2], "candidates") == 0) { /* of products (head 64 alone) and attention */
        static const struct model_shape heads[] = {{2, 128, 256, 4, 64, 256, 512},
                                                   {1, 256, 256, 2, 128, 256, 512}};
        static unsigned at;
        parts.at = &at;
        parts.slices = 1;
        parts.repeats = 1;
        parts.hopper = true;
        parts.without_products = number == 128;
        add_parts(&parts, &heads[number == 128 ? 1 : 0], MODEL_HALF_BF16);
        return check_part(&parts, 0, 0) == 0 ? 0 : 1;
    }
    if (strcmp(words[2], "list") == 0) {
        struct err err = {0};
        int code = gpu_list_images(parts.folder, stdout, &err);
        (void)printf("%s%s\n", code == 0 ? "" : "FAILED ", code == 0 ? "listed" : err.text);
        return code == 0 ? 0 : 1;
    }
    if (strcmp(words[2], "check") == 0) {
        parts.slices = 2;
        parts.repeats = number != 0 ? number : 30;
        for (size_t i = 0; i < 4; i++) {
            add_parts(&parts, &small[i], MODEL_HALF_FP16);
            add_parts(&parts, &small[i], MODEL_HALF_BF16);
        }
        return (int)run_parts(&parts);
    }
    if (strcmp(words[2], "edges") == 0) { /* the longest, the most, the widest heads */
        static const struct model_shape edges[] = {{1, 4096, 64, 1, 64, 128, 256},
                                                   {64, 128, 64, 1, 64, 128, 256},
                                                   {1, 256, 384, 2, 192, 128, 256},
                                                   {1, 256, 512, 2, 256, 128, 256},
                                                   {1, 128, 2048, 32, 64, 8192, 32768}};
        parts.slices = 3;
        parts.repeats = number != 0 ? number : 2;
        parts.without_products = true;
        for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
            add_parts(&parts, &edges[i], MODEL_HALF_BF16);
        }
        return (int)run_parts(&parts);
    }
    if (strcmp(words[2], "hopper") == 0) {
        parts.slices = 1;
        parts.repeats = number != 0 ? number : 30;
        parts.hopper = true;
        for (size_t i = 0; i < 4; i++) {
            add_parts(&parts, &small[i], MODEL_HALF_FP16);
            add_parts(&parts, &small[i], MODEL_HALF_BF16);
        }
        add_parts(&parts, &coppelius, MODEL_HALF_BF16);
        return (int)run_parts(&parts);
    }
    if (strcmp(words[2], "whole") == 0) {
        parts.slices = 12;
        parts.repeats = number != 0 ? number : 2;
        parts.without_products = true;
        add_parts(&parts, &coppelius, MODEL_HALF_BF16);
        return (int)run_parts(&parts);
    }
    static struct gpu gpu;
    gpu.folder = folder;
    open_gpu(&gpu);
    coppelius.sequences = number != 0 ? number : 16;
    if (strcmp(words[2], "rows") == 0) {
        const struct model_runner runner = {.context = &gpu,
                                            .multiprocessors = gpu.multiprocessors,
                                            .alloc = alloc,
                                            .release = release,
                                            .upload = upload,
                                            .download = download,
                                            .launch = launch,
                                            .hopper = gpu.hopper,
                                            .candidate = -1};
        return model_check_all_rows(&runner, &small[2], MODEL_HALF_BF16) +
                           model_check_all_rows(&runner, &small[1], MODEL_HALF_FP16) ==
                       0
                   ? 0
                   : 1;
    }
    if (strcmp(words[2], "products") == 0) {
        time_products(&gpu, &coppelius);
    } else if (strcmp(words[2], "attention") == 0) {
        time_attention(&gpu, &coppelius, candidate);
        coppelius.heads = 4;
        coppelius.head = 128;
        time_attention(&gpu, &coppelius, candidate);
    } else {
        time_images(&gpu, &coppelius);
    }
    return 0;
}
