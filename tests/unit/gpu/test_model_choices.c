#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "gpu/model/choices.h"
#include "gpu/model/records.h"
#include "gpu/model/tiles.h"
#include "tests/lib/unit.h"

static const char table[] =
    "# comment\n"
    "sm_90 1 tiled-rr-m1024-n1536-k512 tile=18 split=1 us=5.0 tflops=322 registers=90 local=0 "
    "shared=100 blocks=2\n"
    "sm_90 16 tiled-rr-m1024-n1536-k512 tile=9 split=1 us=44.0 tflops=585 registers=168 local=0 "
    "shared=230464 blocks=1\n"
    "sm_80 16 tiled-rr-m1024-n1408-k512 tile=7 split=1 us=44.0 tflops=585 registers=168 local=0 "
    "shared=230464 blocks=1\n"
    "sm_90 1 tiled-cc tile=9 split=4 us=0 tflops=0 registers=168 local=0 shared=0 blocks=1\n"
    "sm_90 1 tiled-cc tile=18 split=1 us=0 tflops=0 registers=168 local=0 shared=0 blocks=1\n";

static int choose(int architecture, const char *name, uint32_t sequences,
                  struct model_choice *ret_choice, struct err *err)
{
    struct model_launch launch = {0};
    const struct model_image *image;
    ck_assert_int_eq(model_image_find(name, &launch, &image, NULL), 0);
    model_launch_sequences(&launch, sequences);
    return model_choice_in(table, sizeof(table) - 1, "a table", architecture, name, sequences,
                           &launch, ret_choice, err);
}

START_TEST(the_choice_is_the_one_measured_nearest_below)
{
    const struct {
        uint32_t sequences;
        int tile;
    } cases[] = {{1, 18}, {2, 18}, {15, 18}, {16, 9}, {64, 9}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_choice choice;
        struct err err = {0};
        ck_assert_int_eq(choose(90, "tiled-rr-m1024-n1536-k512", cases[i].sequences, &choice, &err),
                         0);
        ck_assert_int_eq(choice.tile, cases[i].tile);
        ck_assert_uint_eq(choice.split, 1);
    }
}
END_TEST

START_TEST(a_shape_without_a_line_takes_the_first_of_its_pattern_that_serves)
{
    struct model_choice choice;
    struct err err = {0};
    ck_assert_int_eq(choose(90, "tiled-cc-m512-n512-k1024", 1, &choice, &err), 0);
    ck_assert_int_eq(choice.tile, 9);
    ck_assert_uint_eq(choice.split, 4);
    ck_assert_int_eq(choose(90, "tiled-cc-m192-n192-k128", 1, &choice, &err), 0);
    ck_assert_int_eq(choice.tile, 18);
}
END_TEST

START_TEST(a_product_that_no_line_serves_is_refused_by_name)
{
    struct model_choice choice;
    const struct {
        int architecture;
        const char *name;
        const char *why;
    } cases[] = {
        {80, "tiled-rr-m1024-n1536-k512", "has no measured choice for sm_80 in a table"},
        {90, "tiled-rc-m1024-n512-k512", "has no measured choice for sm_90 in a table"},
        /* tile 7 is 128 x 256 */
        {80, "tiled-rr-m1024-n1408-k512", "7 in 1 parts, does not serve 1024 x 1408 x 512"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        ck_assert_int_eq(choose(cases[i].architecture, cases[i].name, 1, &choice, &err),
                         ERR_DEVICE);
        ck_assert_ptr_nonnull(strstr(err.text, cases[i].name));
        ck_assert_ptr_nonnull(strstr(err.text, cases[i].why));
        ck_assert_ptr_nonnull(strstr(err.text, "coppeliusctl bench tiles"));
        ck_assert_ptr_nonnull(strstr(err.text, "tile_choices:"));
    }
}
END_TEST

START_TEST(a_line_that_is_no_choice_is_refused_with_its_number)
{
    static const char damaged[] = "# comment\nsm_90 1 tiled-rr-m64-n64-k64 tile=18 split=x\n";
    struct model_launch launch = {.m = 64, .n = 64, .k = 64};
    struct model_choice choice;
    struct err err = {0};
    ck_assert_int_eq(model_choice_in(damaged, sizeof(damaged) - 1, "a table", 90,
                                     "tiled-rr-m64-n64-k64", 1, &launch, &choice, &err),
                     ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "a table:2: not a choice"));
}
END_TEST

START_TEST(a_line_that_was_written_is_read_back)
{
    struct model_choice choice = {13, 2, 12.5, 600.0, 168, 0, 230464, 1};
    struct model_choice read;
    struct model_launch launch = {.m = 1024, .n = 512, .k = 512};
    char line[256];
    size_t size =
        model_choice_line(&choice, 90, "tiled-rr-m1024-n512-k512", 16, line, sizeof(line));
    ck_assert_uint_ne(size, 0);
    ck_assert_int_eq(model_choice_in(line, size, "a line", 90, "tiled-rr-m1024-n512-k512", 16,
                                     &launch, &read, NULL),
                     0);
    ck_assert_int_eq(memcmp(&choice, &read, sizeof(read)), 0);
}
END_TEST

/* Every product of a shape has a committed choice on sm_90 that makes a plan. */
static void check_committed(const struct model_shape *shape, bool coppelius)
{
    struct model_name names[MODEL_PRODUCTS_MAX];
    size_t count = model_products(shape, names);
    for (size_t i = 0; i < count; i++) {
        struct model_launch launch = {.shape = *shape};
        const struct model_image *image;
        struct model_choice choice;
        struct model_kernel kernels[MODEL_STAGES_MAX];
        size_t kernels_count = 0;
        struct err err = {0};
        ck_assert_int_eq(model_image_find(names[i].text, &launch, &image, NULL), 0);
        model_launch_sequences(&launch, shape->sequences);
        launch.half_out = launch.add == 0 && launch.a_columns == 0;
        ck_assert_msg(model_choice_find(NULL, 90, names[i].text, shape->sequences, &launch, &choice,
                                        &err) == 0,
                      "%s", err.text);
        /* Rows of C must not depend on their number: only sums over the tokens are split, and all
         * candidates are of the family whose bits agree. */
        ck_assert(launch.a_columns != 0 || choice.split == 1);
        ck_assert_int_ge(choice.tile, MMA_TILES_COUNT);
        launch.split = choice.split;
        ck_assert_int_eq(model_device_plan(names[i].text, &launch, choice.tile, 132, kernels,
                                           &kernels_count, &err),
                         0);
        ck_assert(!coppelius || choice.microseconds > 0.0); /* measured */
#if defined(COPPELIUS_HAVE_CUDA)
        if (coppelius) { /* and its schedule's resources recorded */
            struct image_record record;
            ck_assert_int_eq(
                model_record_find(kernels[0].entry, MODEL_HALF_BF16, 90, &record, &err), 0);
            ck_assert_uint_eq(choice.registers, record.registers);
            ck_assert_uint_eq(choice.local_bytes, record.local_bytes);
            ck_assert_uint_eq(choice.shared_bytes, record.shared_bytes + kernels[0].shared_bytes);
        }
#endif
    }
}

START_TEST(the_committed_table_serves_coppelius_at_any_number_of_sequences)
{
    struct model_shape shape = {1, 1024, 512, 8, 64, 1408, 12288};
    for (shape.sequences = 1; shape.sequences <= 64; shape.sequences++) {
        check_committed(&shape, true);
    }
}
END_TEST

START_TEST(the_committed_table_serves_other_shapes)
{
    const struct model_shape shapes[] = {{1, 128, 64, 1, 64, 128, 256},
                                         {2, 256, 256, 2, 128, 384, 512},
                                         {3, 384, 192, 3, 64, 256, 768},
                                         {64, 4096, 1024, 16, 64, 2816, 50432}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_committed(&shapes[i], false);
    }
}
END_TEST

/* -- a table of one's own ---------------------------------------------------------------------- */

static char path[64];

static void write_table(const void *text, size_t size)
{
    (void)snprintf(path, sizeof(path), "choices.%d", (int)getpid());
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

static int find(const struct model_choices *own, int architecture, const char *name,
                struct model_choice *ret_choice, struct err *err)
{
    struct model_launch launch = {0};
    const struct model_image *image;
    ck_assert_int_eq(model_image_find(name, &launch, &image, NULL), 0);
    return model_choice_find(own, architecture, name, 1, &launch, ret_choice, err);
}

START_TEST(a_table_of_ones_own_stands_for_the_architectures_it_has)
{
    static const char text[] =
        "# measured\nsm_86 1 tiled-rr-m1024-n1536-k512 tile=4 split=1 us=50.0 "
        "tflops=32 registers=90 local=0 shared=49152 blocks=2\n";
    struct model_choices own;
    struct model_choice choice;
    struct err err = {0};
    write_table(text, sizeof(text) - 1);
    ck_assert_msg(model_choices_init(&own, path, &err) == 0, "%s", err.text);
    ck_assert_int_eq(find(&own, 86, "tiled-rr-m1024-n1536-k512", &choice, &err), 0);
    ck_assert_int_eq(choice.tile, 4);
    ck_assert_int_eq(find(&own, 90, "tiled-rr-m1024-n1536-k512", &choice, &err), 0);
    ck_assert_int_ge(choice.tile, MMA_TILES_COUNT); /* the built-in one */
    ck_assert_int_eq(find(&own, 86, "tiled-rc-m1024-n512-k512", &choice, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, path)); /* where it looked */
    ck_assert_int_eq(find(&own, 89, "tiled-rr-m1024-n1536-k512", &choice, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "no measured choice for sm_89 in the built-in table"));
    model_choices_done(&own);
    model_choices_done(&own);

    size_t served = 0;
    size_t count = 0;
    struct err missing = {0};
    ck_assert_int_eq(gpu_check_tiles(path, 86, &served, &count, &missing, &err), 0);
    ck_assert_uint_eq(served, 1);
    ck_assert_uint_eq(count, MODEL_PRODUCTS_MAX);
    ck_assert_ptr_nonnull(strstr(missing.text, "tiled-rr-m1024-n512-k512-add")); /* the second */
    ck_assert_int_eq(gpu_check_tiles("", 90, &served, &count, &missing, &err), 0);
    ck_assert_uint_eq(served, count);
    ck_assert_int_eq(gpu_check_tiles("", 86, &served, &count, &missing, &err), 0);
    ck_assert_uint_eq(served, 0);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(a_table_that_is_none_is_refused_with_file_and_line)
{
    static char large[MODEL_CHOICES_MAX + 2];
    memset(large, '#', sizeof(large));
    const struct {
        const char *text;
        size_t size;
        const char *why;
    } cases[] = {
#define TEXT(text) text, sizeof(text) - 1
#define LINE(tile) \
    "sm_86 1 tiled-rr tile=" tile " split=1 us=1 tflops=1 registers=1 local=0 shared=0 blocks=1"
        {TEXT(""), "without a line"},
        {TEXT("# only a comment\n"), "without a line"},
        {TEXT("sm_86 1 x\n"), ":1: not a choice: 'sm_86 1 x'"},
        {TEXT("#\n\n" LINE("99")), ":3: tile 99: this build has 0 to"},
        {TEXT(LINE("1") "\0more"), ":1: no line of text"},
        {large, sizeof(large), "more than 1048576 bytes"},
#undef LINE
#undef TEXT
    };
    struct model_choices own = {.text = NULL};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        write_table(cases[i].text, cases[i].size);
        ck_assert_int_eq(model_choices_init(&own, path, &err), ERR_CONFIG);
        ck_assert_msg(strstr(err.text, path) != NULL && strstr(err.text, cases[i].why) != NULL,
                      "%s", err.text);
    }
    ck_assert_int_eq(unlink(path), 0);
    struct err err = {0};
    ck_assert_int_eq(model_choices_init(&own, path, &err), ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot be opened: No such file"));
    ck_assert_ptr_null(own.text);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("model_choices");
    TCase *tcase = tcase_create("choices");
    tcase_add_test(tcase, the_choice_is_the_one_measured_nearest_below);
    tcase_add_test(tcase, a_shape_without_a_line_takes_the_first_of_its_pattern_that_serves);
    tcase_add_test(tcase, a_product_that_no_line_serves_is_refused_by_name);
    tcase_add_test(tcase, a_line_that_is_no_choice_is_refused_with_its_number);
    tcase_add_test(tcase, a_line_that_was_written_is_read_back);
    tcase_add_test(tcase, the_committed_table_serves_coppelius_at_any_number_of_sequences);
    tcase_add_test(tcase, the_committed_table_serves_other_shapes);
    tcase_add_test(tcase, a_table_of_ones_own_stands_for_the_architectures_it_has);
    tcase_add_test(tcase, a_table_that_is_none_is_refused_with_file_and_line);
    suite_add_tcase(suite, tcase);
    return suite;
}
