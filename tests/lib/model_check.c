#include "tests/lib/model_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/model/tiles.h"

static uint64_t seed = 1;

/* Runs the kernels once on fresh copies of the operands; results go to host[]. */
static unsigned run_once(const struct model_runner *runner, const char *name,
                         const struct model_case *one, const struct model_kernel *kernels,
                         size_t kernels_count, void *const host[])
{
    struct model_arguments arguments = {.launch = one->launch};
    unsigned failures = 0;
    for (size_t i = 0; i < one->operands_count; i++) {
        uint64_t bytes = one->count[i] * model_case_element(one, i);
        if (bytes != 0) {
            model_case_write(one, i, host[i]);
            arguments.operand[i] = runner->alloc(runner->context, bytes);
            runner->upload(runner->context, arguments.operand[i], host[i], bytes);
        }
    }
    for (size_t k = 0; k < kernels_count && failures == 0; k++) {
        if (runner->launch(runner->context, &kernels[k], one->half, &arguments) != 0) {
            (void)printf("FAILED %s: %s did not run\n", name, kernels[k].entry);
            failures++;
        }
    }
    for (size_t i = 0; i < one->operands_count; i++) {
        uint64_t bytes = one->count[i] * model_case_element(one, i);
        if (bytes != 0) {
            runner->download(runner->context, host[i], arguments.operand[i], bytes);
            runner->release(runner->context, arguments.operand[i]);
        }
    }
    return failures;
}

unsigned model_check_image(const struct model_runner *runner, const char *name,
                           const struct model_launch *launch, enum model_half half, int tile,
                           enum case_flavour flavour, unsigned repeats)
{
    struct model_case one;
    model_case_init(&one, name, launch, half, flavour, seed++);
    struct model_kernel kernels[MODEL_STAGES_MAX];
    size_t kernels_count;
    struct err err = {0};
    if (model_device_plan(name, &one.launch, tile, runner->multiprocessors, kernels, &kernels_count,
                          &err) != 0) {
        (void)printf("FAILED %s\n", err.text);
        model_case_done(&one);
        return 1;
    }
    void *host[MODEL_OPERANDS_MAX] = {NULL};
    for (size_t i = 0; i < one.operands_count; i++) {
        if (one.count[i] != 0) {
            host[i] = malloc(one.count[i] * model_case_element(&one, i));
            ASSERT(host[i] != NULL);
        }
    }
    unsigned failures = 0;
    uint64_t digest[MODEL_OPERANDS_MAX] = {0};
    for (unsigned repeat = 0; repeat < repeats && failures == 0; repeat++) {
        const bool ran = run_once(runner, name, &one, kernels, kernels_count, host) == 0;
        failures += ran ? 0 : 1;
        for (size_t i = 0; i < one.operands_count; i++) {
            if (one.expected[i] == NULL || !ran) {
                continue;
            }
            const char *operand = one.image->operands[i].name;
            uint64_t now = model_case_digest(&one, i, host[i]);
            if (repeat == 0) {
                double error = model_case_error(&one, i, host[i]);
                double most = model_case_tolerance(&one, i);
                if (!(error <= most)) {
                    (void)printf("FAILED %s, %s, tile %d, flavour %d: error %.3g above %.3g\n",
                                 name, operand, tile, (int)flavour, error, most);
                    failures++;
                }
            } else if (now != digest[i]) {
                (void)printf("FAILED %s, %s, tile %d: run %u has other bits\n", name, operand, tile,
                             repeat);
                failures++;
            }
            digest[i] = now;
        }
    }
    for (size_t i = 0; i < one.operands_count; i++) {
        free(host[i]);
    }
    model_case_done(&one);
    return failures;
}

/* Is it this runner's turn to make the next check? */
static bool take(const struct model_runner *runner, unsigned *number)
{
    const unsigned mine = (*number)++;
    if (mine < runner->first || (runner->slices != 0 && mine % runner->slices != runner->slice)) {
        return false;
    }
    if (runner->at != NULL) {
        *runner->at = mine;
    }
    seed = mine + 1;
    return true;
}

/* -- rows and how many there are ------------------------------------------------------------------
 */

/* Does an operand's sum go over all rows of the launch, or its place depend on their number? */
static bool adds_rows(const struct model_image *image)
{
    static const char *const names[] = {
        "loss-sum",          "gradient-norm", "layernorm-parameters",
        "embedding-scatter", "adamw",         "random-normal"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(image->name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

unsigned model_check_rows(const struct model_runner *runner, const char *name,
                          const struct model_shape *shape, enum model_half half, int tile)
{
    struct model_launch many = case_launch(shape);
    struct model_shape fewer = *shape;
    fewer.sequences = 1;
    struct model_case one;
    struct model_case few; /* for its counts */
    model_case_init(&one, name, &many, half, CASE_RANDOM, 5);
    many = case_launch(&fewer);
    model_case_init(&few, name, &many, half, CASE_RANDOM, 5);
    struct model_kernel kernels[2][MODEL_STAGES_MAX];
    size_t kernels_count[2] = {0, 0};
    struct err err = {0};
    if (model_device_plan(name, &one.launch, tile, runner->multiprocessors, kernels[0],
                          &kernels_count[0], &err) != 0 ||
        model_device_plan(name, &few.launch, tile, runner->multiprocessors, kernels[1],
                          &kernels_count[1], &err) != 0) {
        (void)printf("FAILED %s\n", err.text);
        return 1;
    }
    /* The few see the first of the many's operands. */
    struct model_arguments arguments[2] = {{.launch = one.launch}, {.launch = few.launch}};
    unsigned failures = 0;
    for (size_t i = 0; i < one.operands_count; i++) {
        const uint64_t bytes = one.count[i] * model_case_element(&one, i);
        for (int run = 0; run < 2 && bytes != 0; run++) {
            void *host = malloc(bytes);
            ASSERT(host != NULL);
            model_case_write(&one, i, host);
            arguments[run].operand[i] = runner->alloc(runner->context, bytes);
            runner->upload(runner->context, arguments[run].operand[i], host, bytes);
            free(host);
        }
    }
    for (int run = 0; run < 2; run++) {
        for (size_t k = 0; k < kernels_count[run] && failures == 0; k++) {
            failures +=
                runner->launch(runner->context, &kernels[run][k], half, &arguments[run]) == 0 ? 0
                                                                                              : 1;
        }
    }
    for (size_t i = 0; i < one.operands_count; i++) {
        const uint64_t bytes = few.count[i] * model_case_element(&one, i);
        void *host[2] = {malloc(bytes + 1), malloc(bytes + 1)};
        for (int run = 0; run < 2 && bytes != 0; run++) {
            runner->download(runner->context, host[run], arguments[run].operand[i], bytes);
            runner->release(runner->context, arguments[run].operand[i]);
        }
        if (one.expected[i] != NULL && memcmp(host[0], host[1], bytes) != 0) {
            (void)printf("FAILED %s, %s, tile %d: rows depend on how many there are\n", name,
                         one.image->operands[i].name, tile);
            failures++;
        }
        free(host[0]);
        free(host[1]);
    }
    model_case_done(&one);
    model_case_done(&few);
    return failures;
}

unsigned model_check_all_rows(const struct model_runner *runner, const struct model_shape *shape,
                              enum model_half half)
{
    unsigned failures = 0;
    unsigned checked = 0;
    for (size_t i = 0; i < model_images_count; i++) {
        const struct model_image *image = &model_images[i];
        const struct model_launch launch = case_launch(shape);
        if (strcmp(image->name, "tiled") == 0 || strcmp(image->name, "transpose") == 0 ||
            adds_rows(image)) {
            continue;
        }
        for (int tile = MODEL_TILE_NONE; tile < MODEL_TILES_COUNT; tile++) {
            if (tile == MODEL_TILE_NONE ||
                (runner->hopper && model_attention_serves(image->name, tile, &launch))) {
                failures += model_check_rows(runner, image->name, shape, half, tile);
                checked++;
            }
        }
    }
    (void)printf("%u images and tiles with 1 and with %u sequences: %u failures\n", checked,
                 shape->sequences, failures);
    return failures;
}

/* sm_90a's candidates, or any GPU's; of a weight gradient also in three parts of k. */
static unsigned check_products(const struct model_runner *runner, const struct model_shape *shape,
                               enum model_half half, unsigned repeats, unsigned *number,
                               unsigned *checked)
{
    unsigned failures = 0;
    struct model_name names[MODEL_PRODUCTS_MAX];
    size_t count = model_products(shape, names);
    for (size_t i = 0; i < count; i++) {
        struct model_launch launch = case_launch(shape);
        struct model_launch filled = launch;
        const struct model_image *image;
        ASSERT(model_image_find(names[i].text, &filled, &image, NULL) == 0);
        model_launch_sequences(&filled, shape->sequences);
        const int first = runner->hopper ? MMA_TILES_COUNT : 0;
        const int end = runner->hopper ? MODEL_TILES_COUNT : MMA_TILES_COUNT;
        for (int variant = first * 4; variant < end * 4; variant++) {
            const int tile = variant / 4;
            filled.half_out = (uint32_t)(variant % 2);
            filled.split = variant % 4 >= 2 ? 3 : 0;
            if ((filled.split != 0 && filled.a_columns == 0) ||
                (!runner->hopper && variant % 2 != tile % 2) || /* the emulator is slow */
                !model_tile_serves(tile, &filled) || !take(runner, number)) {
                continue;
            }
            launch.half_out = filled.half_out;
            launch.split = filled.split;
            failures +=
                model_check_image(runner, names[i].text, &launch, half, tile, CASE_RANDOM, repeats);
            (*checked)++;
        }
    }
    return failures;
}

unsigned model_check_shape(const struct model_runner *runner, const struct model_shape *shape,
                           enum model_half half, unsigned repeats)
{
    unsigned number = 0;
    unsigned checked = 0;
    unsigned failures = 0;
    if (!runner->without_products && (!runner->hopper || runner->candidate < 0)) {
        failures += check_products(runner, shape, half, repeats, &number, &checked);
    }
    struct model_launch launch = case_launch(shape);
    struct model_name names[2];
    size_t count = model_transposes(shape, names);
    for (size_t i = 0; i < count; i++) {
        if (!runner->hopper && take(runner, &number)) {
            failures += model_check_image(runner, names[i].text, &launch, half, MODEL_TILE_NONE,
                                          CASE_RANDOM, repeats);
            checked++;
        }
    }
    for (size_t i = 0; i < model_images_count; i++) {
        const struct model_image *image = &model_images[i];
        struct model_kernel kernels[MODEL_STAGES_MAX];
        bool tokens = strcmp(image->operands[0].name, "tokens") == 0;
        bool logits = strcmp(image->operands[0].name, "logits") == 0 ||
                      strcmp(image->operands[0].name, "scores") == 0;
        size_t ignored;
        if (strcmp(image->name, "tiled") == 0 || strcmp(image->name, "transpose") == 0) {
            continue;
        }
        if (model_device_plan(image->name, &launch, MODEL_TILE_NONE, runner->multiprocessors,
                              kernels, &ignored, NULL) != 0) {
            (void)printf("FAILED no kernel: %s\n", image->name);
            failures++;
            continue;
        }
        bool queries = strncmp(image->name, "attention-", 10) == 0;
        int first = logits || queries ? CASE_EQUAL : CASE_SAME;
        int last = logits ? CASE_MASKED : queries ? CASE_HUGE : tokens ? CASE_ZIPF : CASE_SAME - 1;
        for (int tile = 0; runner->hopper && tile < MODEL_TILES_COUNT; tile++) {
            if (model_attention_serves(image->name, tile, &launch) &&
                (runner->candidate < 0 || runner->candidate == tile) && take(runner, &number)) {
                for (int flavour = CASE_RANDOM; flavour <= CASE_HUGE; flavour++) {
                    failures += model_check_image(runner, image->name, &launch, half, tile,
                                                  (enum case_flavour)flavour, repeats);
                }
                checked++;
            }
        }
        for (int flavour = first - 1; !runner->hopper && flavour <= last; flavour++) {
            if (take(runner, &number)) {
                failures += model_check_image(
                    runner, image->name, &launch, half, MODEL_TILE_NONE,
                    flavour < first ? CASE_RANDOM : (enum case_flavour)flavour, repeats);
                checked++;
            }
        }
    }
    (void)printf(
        "%u checks of images and tiles, %ux%u positions, width %u, vocabulary %u, %s, %u runs: %u "
        "failures\n",
        checked, shape->sequences, shape->length, shape->width, shape->vocabulary,
        half == MODEL_HALF_FP16 ? "fp16" : "bf16", repeats, failures);
    (void)fflush(stdout);
    return failures;
}
