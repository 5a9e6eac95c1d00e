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

/* The root of the tree over leaves: neighbours join, an odd last one goes up alone. */
static double root_of(double *leaves, size_t count)
{
    for (; count > 1; count = (count + 1) / 2) {
        for (size_t i = 0; i < count / 2; i++) {
            leaves[i] = leaves[2 * i] + leaves[2 * i + 1];
        }
        if (count % 2 != 0) {
            leaves[count / 2] = leaves[count - 1];
        }
    }
    return leaves[0];
}

/* The second launch of the sums alone: leaves for which no array of elements would fit here. */
static unsigned check_sum_root(size_t count)
{
    double *leaves = malloc(count * sizeof(*leaves));
    double *again = malloc(count * sizeof(*again));
    ASSERT(leaves != NULL && again != NULL);
    for (size_t i = 0; i < count; i++) {
        leaves[i] = 1.0 / (double)(i % 1013 + 3);
        again[i] = leaves[i];
    }
    float sum = -1.0F;
    struct model_arguments arguments = {.launch = {.scale = 1.0F}};
    arguments.launch.count = (uint64_t)count * MODEL_SUM_LEAF - 5;
    arguments.operand[1] = leaves;
    arguments.operand[2] = &sum;
    const uint32_t grid[3] = {1, 1, 1};
    ASSERT(emulate_launch("loss_root_bf16", grid, 1024, 0, &arguments) == 0);
    const float expected = (float)root_of(again, count);
    const bool same = memcmp(&sum, &expected, sizeof(sum)) == 0 && leaves[0] == again[0];
    if (!same) {
        (void)printf("FAILED loss_root: %zu leaves: %.17g, expected %.17g\n", count, leaves[0],
                     again[0]);
    }
    free(leaves);
    free(again);
    return same ? 0 : 1;
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
    const struct model_shape more_leaves = {10, 4096, 64, 1,
                                            64, 128,  512}; /* than a warp's lanes */
    const struct model_launch more = case_launch(&more_leaves);
    failures += model_check_image(&runner, "embedding-scatter", &more, MODEL_HALF_BF16,
                                  MODEL_TILE_NONE, CASE_ZIPF, 1);
    static const size_t sums[] = {1, 2, 3, 255, 8191, 8192, 8193, 3 * 8192 + 5};
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        failures += check_sum_root(sums[i]);
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
