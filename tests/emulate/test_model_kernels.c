/* The language model's kernels, their sources run on the CPU by the emulator, against the oracles.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/emulate/emulate.h"
#include "tests/lib/model_check.h"

static void *alloc(void *context, uint64_t bytes)
{
    (void)context;
    void *made = aligned_alloc(256, (bytes + 255) / 256 * 256);
    ASSERT(made != NULL);
    return made;
}

static void release(void *context, void *device)
{
    (void)context;
    free(device);
}

static void upload(void *context, void *device, const void *host, uint64_t bytes)
{
    (void)context;
    memcpy(device, host, bytes);
}

static void download(void *context, void *host, const void *device, uint64_t bytes)
{
    (void)context;
    memcpy(host, device, bytes);
}

static int launch(void *context, const struct model_kernel *kernel, enum model_half half,
                  const struct model_arguments *arguments)
{
    (void)context;
    char entry[IMAGE_NAME_SIZE + 8];
    (void)snprintf(entry, sizeof(entry), "%s_%s", kernel->entry,
                   half == MODEL_HALF_FP16 ? "fp16" : "bf16");
    return emulate_launch(entry, kernel->grid, kernel->threads, kernel->shared_bytes, arguments);
}

int main(void)
{
    /* Small, but with several blocks and tiles everywhere. */
    static const struct {
        struct model_shape shape;
        enum model_half half;
    } cases[] = {
        {{1, 128, 128, 2, 64, 128, 256}, MODEL_HALF_BF16},
        {{2, 128, 64, 1, 64, 128, 512}, MODEL_HALF_FP16},
    };
    const struct model_runner runner = {.multiprocessors = 2,
                                        .alloc = alloc,
                                        .release = release,
                                        .upload = upload,
                                        .download = download,
                                        .launch = launch};
    unsigned failures = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        failures += model_check_shape(&runner, &cases[i].shape, cases[i].half, 1);
    }
    /* Leaves of the scatter and of the sums, and the vocabulary's width, without the products. */
    const struct model_shape leaves = {1, 5 * 1024 + 128, 64, 1, 64, 128, 512};
    struct model_launch with = case_launch(&leaves);
    for (int flavour = CASE_SAME; flavour <= CASE_ZIPF; flavour++) {
        failures += model_check_image(&runner, "embedding-scatter", &with, MODEL_HALF_BF16,
                                      MODEL_TILE_NONE, (enum case_flavour)flavour, 1);
    }
    failures += model_check_image(&runner, "layernorm-parameters", &with, MODEL_HALF_BF16,
                                  MODEL_TILE_NONE, CASE_RANDOM, 1);
    failures += model_check_image(&runner, "gradient-norm", &with, MODEL_HALF_BF16, MODEL_TILE_NONE,
                                  CASE_RANDOM, 1);
    with.count = 100001;
    failures += model_check_image(&runner, "loss-sum", &with, MODEL_HALF_BF16, MODEL_TILE_NONE,
                                  CASE_RANDOM, 1);
    failures += model_check_image(&runner, "random-normal", &with, MODEL_HALF_BF16, MODEL_TILE_NONE,
                                  CASE_RANDOM, 1);
    failures += model_check_image(&runner, "cast-down", &with, MODEL_HALF_FP16, MODEL_TILE_NONE,
                                  CASE_RANDOM, 1);
    struct model_shape wide = {1, 128, 1024, 16, 64, 128, 12288};
    with = case_launch(&wide);
    with.rows = 3;
    static const char *const rows[] = {"argmax", "cross-entropy", "cross-entropy-backward",
                                       "layernorm-forward", "layernorm-backward"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int flavour = CASE_RANDOM; flavour <= CASE_MASKED; flavour++) {
            failures += model_check_image(&runner, rows[i], &with, MODEL_HALF_BF16, MODEL_TILE_NONE,
                                          (enum case_flavour)flavour, 1);
        }
    }
    const struct model_shape large_heads = {1, 192, 256, 2, 128, 128, 256};
    with = case_launch(&large_heads);
    const struct model_shape larger_heads = {1, 128, 192, 1, 192, 128, 256};
    const struct model_launch wider = case_launch(&larger_heads);
    static const char *const attention[] = {"attention-forward", "attention-query",
                                            "attention-key"};
    for (size_t i = 0; i < sizeof(attention) / sizeof(attention[0]); i++) {
        failures += model_check_image(&runner, attention[i], &with, MODEL_HALF_BF16,
                                      MODEL_TILE_NONE, CASE_RANDOM, 1);
        failures += model_check_image(&runner, attention[i], &wider, MODEL_HALF_BF16,
                                      MODEL_TILE_NONE, CASE_RANDOM, 1);
    }
    const struct model_shape two = {2, 128, 64, 1, 64, 128, 256};
    failures += model_check_all_rows(&runner, &two, MODEL_HALF_BF16);
    (void)printf("%u failures\n", failures);
    return failures == 0 ? 0 : 1;
}
