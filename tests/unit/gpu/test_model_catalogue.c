#include <stdio.h>
#include <string.h>

#include "gpu/model/device.h"
#include "gpu/model/entries.h"
#include "gpu/model/tiles.h"
#include "tests/lib/unit.h"

static const struct model_shape coppelius = {1, 1024, 512, 8, 64, 1408, 12288};

START_TEST(the_coppelius_sizes_have_the_products_of_the_table)
{
    static const char *const table[] = {
        "tiled-rr-m1024-n1536-k512",     "tiled-rr-m1024-n512-k512-add",
        "tiled-rr-m1024-n1408-k512",     "tiled-rr-m1024-n512-k1408-add",
        "tiled-rr-m1024-n12288-k512",    "tiled-rc-m1024-n512-k1536",
        "tiled-rc-m1024-n512-k512",      "tiled-rc-m1024-n512-k1408",
        "tiled-rc-m1024-n512-k1408-add", "tiled-rc-m1024-n1408-k512",
        "tiled-rc-m1024-n512-k12288",    "tiled-cc-m1536-n512-k1024",
        "tiled-cc-m512-n512-k1024",      "tiled-cc-m1408-n512-k1024",
        "tiled-cc-m512-n1408-k1024",     "tiled-cc-m12288-n512-k1024",
    };
    struct model_name names[MODEL_PRODUCTS_MAX];
    ck_assert_uint_eq(model_products(&coppelius, names), 16);
    for (size_t i = 0; i < 16; i++) {
        ck_assert_str_eq(names[i].text, table[i]);
    }
    ck_assert_uint_eq(model_transposes(&coppelius, names), 2);
    ck_assert_str_eq(names[0].text, "transpose-g8-r1024-c64");
    ck_assert_str_eq(names[1].text, "transpose-g8-r64-c1024");
}
END_TEST

START_TEST(a_product_is_what_its_name_says)
{
    struct err err = {0};
    struct model_launch launch = {.count = 7};
    const struct model_image *image;
    ck_assert_int_eq(model_image_find("tiled-rc-m1024-n512-k1408-add", &launch, &image, &err), 0);
    ck_assert_str_eq(image->name, "tiled");
    ck_assert_uint_eq(launch.m, 1024);
    ck_assert_uint_eq(launch.n, 512);
    ck_assert_uint_eq(launch.k, 1408);
    ck_assert_uint_eq(launch.a_columns, 0);
    ck_assert_uint_eq(launch.b_columns, 1);
    ck_assert_uint_eq(launch.add, 1);
    ck_assert_uint_eq(launch.count, 7);
    model_launch_sequences(&launch, 3);
    ck_assert_uint_eq(launch.m, 3072);
    ck_assert_int_eq(model_image_find("tiled-cc-m512-n1408-k1024", &launch, &image, &err), 0);
    model_launch_sequences(&launch, 3);
    ck_assert_uint_eq(launch.m, 512);
    ck_assert_uint_eq(launch.k, 3072);
    ck_assert_uint_eq(launch.add, 0);
}
END_TEST

START_TEST(what_is_not_in_the_catalogue_is_refused_by_name)
{
    static const char *const unknown[] = {
        "",
        "softmax",
        "tiled",
        "transpose",
        "tiled-cr-m64-n64-k64",
        "tiled-rr-m064-n64-k64",
        "tiled-rr-m64-n64",
        "tiled-rr-m64-n64-k64-sub",
        "tiled-rr-m64-n64-k0",
        "tiled-rr-m64-n64-k99999999999999999999",
        "transpose-g8-r64-c1024x",
        "transpose-g8-r64-c-4",
    };
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        struct err err = {0};
        const struct model_image *image = NULL;
        struct model_launch launch = {.m = 5};
        ck_assert_int_eq(model_image_find(unknown[i], &launch, &image, &err), ERR_NOT_FOUND);
        ck_assert_ptr_null(image);
        ck_assert_uint_eq(launch.m, 5);
        char quoted[128];
        (void)snprintf(quoted, sizeof(quoted), "'%s'", unknown[i]);
        ck_assert_ptr_nonnull(strstr(err.text, quoted));
    }
}
END_TEST

START_TEST(shapes_that_nothing_serves_are_refused_by_what_is_wrong)
{
    static const struct {
        struct model_shape shape;
        const char *device; /* the GPU's refusal … */
        const char *any;    /* … and the CPU's; NULL: served */
    } cases[] = {
        {{1, 1024, 512, 8, 64, 1408, 12288}, NULL, NULL},
        {{64, 4096, 1024, 8, 128, 2816, 256}, NULL, NULL},
        {{65, 1024, 512, 8, 64, 1408, 12288}, "sequences = 65", NULL},
        {{1, 1000, 512, 8, 64, 1408, 12288}, "length = 1000", NULL},
        {{1, 8192, 512, 8, 64, 1408, 12288}, "length = 8192", NULL},
        {{1, 128, 64, 2, 32, 1408, 12288}, "head = 32", NULL},
        {{1, 128, 64, 1, 64, 1400, 12288}, "feed = 1400", NULL},
        {{1, 128, 64, 1, 64, 1408, 300}, "vocabulary = 300", NULL},
        {{1, 128, 60, 2, 32, 128, 256}, "width = 60 is not", "width = 60 is not heads (2)"},
        {{1, 128, 63, 1, 63, 128, 256}, "head = 63", "head = 63; rotary positions"},
        {{0, 128, 64, 1, 64, 128, 256}, "sequences = 0", "sequences = 0; give 1"},
        {{1, 128, 64, 1, 64, 128, 0}, "vocabulary = 0", "vocabulary = 0; give 1"},
        {{1U << 20, 1U << 20, 64, 1, 64, 128, 256}, "tokens", "tokens"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        int status = model_shape_check_device(&cases[i].shape, &err);
        ck_assert_int_eq(status, cases[i].device == NULL ? 0 : ERR_JOB);
        if (cases[i].device != NULL) {
            ck_assert_ptr_nonnull(strstr(err.text, cases[i].device));
        }
        err = (struct err){0};
        status = model_shape_check(&cases[i].shape, &err);
        ck_assert_int_eq(status, cases[i].any == NULL ? 0 : ERR_JOB);
        if (cases[i].any != NULL) {
            ck_assert_ptr_nonnull(strstr(err.text, cases[i].any));
        }
    }
}
END_TEST

START_TEST(an_image_outside_the_sessions_registry_is_not_launched)
{
    struct model_shape shape = {2, 8, 8, 2, 4, 12, 20};
    struct model_session *session;
    struct err err = {0};
    ck_assert_int_eq(model_session_new(&shape, MODEL_HALF_F32, 1, &session, &err), 0);
    /* 32 images of their own names, 16 products, 2 transposes. */
    ck_assert_uint_eq(model_session_images(session)->count, model_images_count - 2 + 16 + 2);
    struct model_launch launch = {.shape = shape, .rows = 16, .count = 16};
    float in[16] = {0};
    float out[16];
    void *operands[] = {in, out};
    /* A product of another shape is known to the catalogue, but not to this session. */
    ck_assert_int_eq(model_session_launch(session, "tiled-rr-m8-n8-k9", &launch, operands, 2, &err),
                     ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "'tiled-rr-m8-n8-k9': nothing was launched"));
    ck_assert_int_eq(model_session_launch(session, "copy", &launch, operands, 1, &err), ERR_STATE);
    ck_assert_str_eq(err.text, "device image 'copy': 1 operands, it has 2");
    operands[1] = NULL;
    ck_assert_int_eq(model_session_launch(session, "copy", &launch, operands, 2, &err), ERR_STATE);
    ck_assert_str_eq(err.text, "device image 'copy': operand 'out' is missing");
    operands[1] = out;
    launch.shape.sequences = 3;
    ck_assert_int_eq(model_session_launch(session, "copy", &launch, operands, 2, &err), ERR_STATE);
    ck_assert_str_eq(err.text, "device image 'copy': 3 sequences; the session has 1 to 2");
    launch.shape.sequences = 1;
    launch.shape.feed = 13;
    ck_assert_int_eq(model_session_launch(session, "copy", &launch, operands, 2, &err), ERR_STATE);
    launch.shape.feed = 12;
    launch.rows = 17;
    ck_assert_int_eq(model_session_launch(session, "copy", &launch, operands, 2, &err), ERR_STATE);
    launch.rows = 16;
    ck_assert_int_eq(model_session_launch(session, "copy", &launch, operands, 2, &err), 0);
    ck_assert_mem_eq(in, out, sizeof(in));
    launch.count = 15;
    ck_assert_int_eq(model_session_launch(session, "adamw", &launch, operands, 2, &err), ERR_STATE);
    ck_assert_str_eq(err.text, "device image 'adamw': 15 elements are not whole quads");
    model_session_free(session);
    model_session_free(NULL);
}
END_TEST

/* The launch of a name for that many sequences of a shape. */
static struct model_launch filled(const char *name, const struct model_shape *shape)
{
    struct model_launch launch = {.shape = *shape, .rows = shape->sequences * shape->length};
    const struct model_image *image;
    ck_assert_int_eq(model_image_find(name, &launch, &image, NULL), 0);
    model_launch_sequences(&launch, shape->sequences);
    return launch;
}

START_TEST(the_gpu_is_told_only_what_a_kernel_serves)
{
    struct model_shape odd = {1, 96, 192, 2, 96, 128, 256};
    struct model_shape many = {65, 4096, 512, 8, 64, 1408, 12288};
    const struct {
        const char *name;
        const struct model_shape *shape;
        int tile;
        const char *refusal;
    } cases[] = {
        {"tiled-rr-m1024-n1536-k512", &coppelius, MODEL_TILE_NONE, "no tile was chosen for it"},
        {"tiled-rr-m1024-n1408-k512", &coppelius, 7, "tile 7 does not serve 1024 x 1408 x 512"},
        {"tiled-rr-m1024-n1536-k520", &coppelius, 0, "tile 0 does not serve 1024 x 1536 x 520"},
        {"tiled-rr-m1024-n1536-k512", &coppelius, MODEL_TILES_COUNT, "does not serve"},
        {"tiled-rr-m1024-n1408-k512", &coppelius, 8, "tile 8 does not serve 1024 x 1408 x 512"},
        {"tiled-rr-m1024-n1536-k544", &coppelius, 8, "tile 8 does not serve 1024 x 1536 x 544"},
        {"transpose-g8-r1024-c32", &coppelius, MODEL_TILE_NONE, "it serves multiples of 64"},
        {"attention-forward", &odd, MODEL_TILE_NONE, "head = 96; it serves 64, 128, 192, 256"},
        {"attention-key", &coppelius, 2, "candidate 2 does not serve head 64, length 1024"},
        {"attention-query", &coppelius, 99, "candidate 99 does not serve head 64"},
        {"embedding-scatter", &many, MODEL_TILE_NONE, "266240 rows; it serves 262144"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        struct model_kernel kernels[MODEL_STAGES_MAX];
        size_t count = 99;
        struct model_launch launch = filled(cases[i].name, cases[i].shape);
        ck_assert_int_eq(
            model_device_plan(cases[i].name, &launch, cases[i].tile, 132, kernels, &count, &err),
            ERR_DEVICE);
        ck_assert_uint_eq(count, 99);
        ck_assert_ptr_nonnull(strstr(err.text, cases[i].name));
        ck_assert_ptr_nonnull(strstr(err.text, cases[i].refusal));
    }
}
END_TEST

START_TEST(a_products_grid_covers_c)
{
    struct model_kernel kernels[MODEL_STAGES_MAX];
    size_t count;
    struct model_shape shape = coppelius;
    shape.sequences = 16;
    struct model_launch launch = filled("tiled-rc-m1024-n512-k1408-add", &shape);
    ck_assert_int_eq(
        model_device_plan("tiled-rc-m1024-n512-k1408-add", &launch, 4, 132, kernels, &count, NULL),
        0);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(kernels[0].entry, "product_rc4");
    ck_assert_uint_eq(kernels[0].grid[0], 16384 / 128 * (512 / 64));
    ck_assert_uint_eq(kernels[0].threads, 256);
    ck_assert_uint_eq(kernels[0].shared_bytes, 48 * 1024); /* two blocks a multiprocessor */
}
END_TEST

/* sm_90a's attention: what the copy engine is to walk, and pairs of tiles of the same work. */
START_TEST(a_hopper_attention_walks_its_operands_by_boxes)
{
    struct model_kernel kernels[MODEL_STAGES_MAX];
    size_t count;
    struct model_shape shape = coppelius;
    shape.sequences = 3;
    struct model_launch launch = filled("attention-query", &shape);
    ck_assert(model_attention_serves("attention-query", 0, &launch));
    ck_assert(!model_attention_serves("attention-query", -1, &launch));
    ck_assert(!model_attention_serves("softmax-forward", 0, &launch));
    ck_assert_int_eq(model_device_plan("attention-query", &launch, 0, 132, kernels, &count, NULL),
                     0);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(kernels[0].entry, "hopper_query0");
    ck_assert_uint_eq(kernels[0].threads, 4 * 128);
    ck_assert_uint_eq(kernels[0].grid[0], 3); /* tiles of 192 rows: 6 */
    ck_assert_uint_eq(kernels[0].grid[1], 3 * 8);
    ck_assert_uint_eq(kernels[0].boxes_count, 4);
    ck_assert_uint_eq(kernels[0].boxes[3].operand, 4); /* dout */
    ck_assert_uint_eq(kernels[0].boxes[3].columns, 64);
    ck_assert_uint_eq(kernels[0].boxes[3].rows, 3 * 8 * 1024);
    /* Two tiles of queries and dout for three warpgroups, three steps of 64 keys and values. */
    ck_assert_uint_eq(kernels[0].shared_bytes, (2 * 2 * 3 * 64 + 3 * 2 * 64) * 128 + 1024);
    launch = filled("attention-forward", &shape);
    ck_assert_int_eq(model_device_plan("attention-forward", &launch, MODEL_TILE_NONE, 132, kernels,
                                       &count, NULL),
                     0);
    ck_assert_str_eq(kernels[0].entry, "attention_forward64"); /* any GPU's */
    ck_assert_uint_eq(kernels[0].boxes_count, 0);
}
END_TEST

START_TEST(a_hopper_product_is_persistent_and_says_its_boxes)
{
    struct model_kernel kernels[MODEL_STAGES_MAX];
    size_t count;
    struct model_shape shape = coppelius;
    shape.sequences = 16;
    struct model_launch launch = filled("tiled-rc-m1024-n512-k1408", &shape);
    launch.half_out = 1;
    /* 128 x 256, clusters of 2 x 1 */
    ck_assert_int_eq(
        model_device_plan("tiled-rc-m1024-n512-k1408", &launch, 9, 132, kernels, &count, NULL), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(kernels[0].entry, "product_rc9");
    ck_assert_uint_eq(kernels[0].grid[0], 132);
    ck_assert_uint_eq(kernels[0].threads, 384);
    ck_assert_uint_eq(kernels[0].boxes_count, 3);
    ck_assert_uint_eq(kernels[0].boxes[0].columns, 1408);
    ck_assert_uint_eq(kernels[0].boxes[0].rows, 16384);
    ck_assert_uint_eq(kernels[0].boxes[0].box_rows, 128);
    ck_assert_uint_eq(kernels[0].boxes[1].columns, 512); /* B by columns: blocks of 64 */
    ck_assert_uint_eq(kernels[0].boxes[1].rows, 1408);
    ck_assert_uint_eq(kernels[0].boxes[1].box_rows, 32); /* half of 64, in a cluster */
    ck_assert_uint_eq(kernels[0].boxes[2].operand, 4);
    /* fewer units than multiprocessors */
    launch.m = 1024;
    ck_assert_int_eq(
        model_device_plan("tiled-rc-m1024-n512-k1408", &launch, 9, 132, kernels, &count, NULL), 0);
    ck_assert_uint_eq(kernels[0].grid[0], 16);
}
END_TEST

START_TEST(a_split_product_adds_its_parts_in_a_second_kernel)
{
    struct model_kernel kernels[MODEL_STAGES_MAX];
    size_t count;
    struct model_shape shape = coppelius;
    shape.sequences = 16;
    struct model_launch launch = filled("tiled-cc-m512-n512-k1024", &shape);
    launch.split = 16;
    ck_assert_int_eq(
        model_device_plan("tiled-cc-m512-n512-k1024", &launch, 9, 132, kernels, &count, NULL), 0);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(kernels[0].grid[0], 128);
    ck_assert_str_eq(kernels[1].entry, "product_sum");
    ck_assert_uint_eq(kernels[1].grid[0] * kernels[1].threads * 4, 512 * 512);
    struct err err = {0};
    ck_assert_int_eq(
        model_device_plan("tiled-cc-m512-n512-k1024", &launch, 0, 132, kernels, &count, &err),
        ERR_DEVICE); /* the candidates of mma.sync do not split */
    launch.split = 257;
    ck_assert_int_eq(
        model_device_plan("tiled-cc-m512-n512-k1024", &launch, 9, 132, kernels, &count, &err),
        ERR_DEVICE); /* more parts than steps */
}
END_TEST

static void check_entries(const char *name, const struct model_launch *launch, int tile)
{
    struct model_kernel kernels[MODEL_STAGES_MAX];
    size_t count = 0;
    struct err err = {0};
    ck_assert_msg(model_device_plan(name, launch, tile, 132, kernels, &count, &err) == 0, "%s",
                  err.text);
    for (size_t i = 0; i < count; i++) {
        const struct model_entry *entry = model_entry_find(kernels[i].entry);
        ck_assert_msg(entry != NULL, "%s is not in the list of kernels", kernels[i].entry);
        ck_assert_uint_eq(entry->threads, kernels[i].threads);
        ck_assert(model_file_hopper(entry->file) || kernels[i].boxes_count == 0);
    }
}

/* What a plan launches is what is loaded and recorded. */
START_TEST(every_kernel_of_a_plan_is_in_the_list)
{
    const struct model_shape shapes[] = {coppelius, {2, 256, 256, 2, 128, 384, 512}};
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < model_images_count; i++) {
            const char *name = model_images[i].name;
            struct model_launch launch = {.shape = shapes[s], .count = 64, .rows = 1024};
            if (strcmp(name, "tiled") == 0 || strcmp(name, "transpose") == 0) {
                continue;
            }
            check_entries(name, &launch, MODEL_TILE_NONE);
            for (int tile = 0; tile < MODEL_TILES_COUNT; tile++) {
                if (model_attention_serves(name, tile, &launch)) {
                    check_entries(name, &launch, tile);
                }
            }
            const int choice = model_attention_choice(90, name, &launch);
            ck_assert((choice != MODEL_TILE_NONE) == (strncmp(name, "attention-", 10) == 0));
            ck_assert_int_eq(model_attention_choice(80, name, &launch), MODEL_TILE_NONE);
        }
        struct model_name names[MODEL_PRODUCTS_MAX];
        size_t count = model_products(&shapes[s], names);
        for (size_t i = 0; i < count; i++) {
            const struct model_launch launch = filled(names[i].text, &shapes[s]);
            for (int tile = 0; tile < MODEL_TILES_COUNT; tile++) {
                if (model_tile_serves(tile, &launch)) {
                    check_entries(names[i].text, &launch, tile);
                }
            }
        }
    }
    for (size_t i = 0; i < model_entries_count; i++) {
        ck_assert_ptr_eq(model_entry_find(model_entries[i].name), &model_entries[i]);
    }
    ck_assert_ptr_null(model_entry_find("softmax"));
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("model_catalogue");
    TCase *tcase = tcase_create("names");
    tcase_add_test(tcase, the_coppelius_sizes_have_the_products_of_the_table);
    tcase_add_test(tcase, a_product_is_what_its_name_says);
    tcase_add_test(tcase, what_is_not_in_the_catalogue_is_refused_by_name);
    tcase_add_test(tcase, shapes_that_nothing_serves_are_refused_by_what_is_wrong);
    tcase_add_test(tcase, an_image_outside_the_sessions_registry_is_not_launched);
    tcase_add_test(tcase, the_gpu_is_told_only_what_a_kernel_serves);
    tcase_add_test(tcase, a_products_grid_covers_c);
    tcase_add_test(tcase, a_hopper_product_is_persistent_and_says_its_boxes);
    tcase_add_test(tcase, a_split_product_adds_its_parts_in_a_second_kernel);
    tcase_add_test(tcase, every_kernel_of_a_plan_is_in_the_list);
    tcase_add_test(tcase, a_hopper_attention_walks_its_operands_by_boxes);
    suite_add_tcase(suite, tcase);
    return suite;
}
