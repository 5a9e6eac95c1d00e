#include <stdio.h>
#include <string.h>

#include "gpu/arena.h"
#include "gpu/images.h"
#include "tests/lib/unit.h"

static struct arena made(void)
{
    struct arena arena = {0};
    ck_assert_int_eq(arena_add(&arena, "parameter", 100, 64, NULL), 0);
    ck_assert_int_eq(arena_add(&arena, "accumulator", 100, 64, NULL), 1);
    ck_assert_int_eq(arena_add(&arena, "empty", 0, 4096, NULL), 2);
    ck_assert_int_eq(arena_add(&arena, "matrix", 1 << 20, 4096, NULL), 3);
    return arena;
}

static void refused(struct arena *arena, const char *sentence)
{
    struct err err = {0};
    ck_assert_int_eq(arena_certify(arena, &err), ERR_STATE);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "'%s' lacks '%s'", err.text, sentence);
    ck_assert(!arena->certified);
}

START_TEST(regions_laid_out_in_turn_are_certified)
{
    struct arena arena = made();
    struct err err = {0};
    ck_assert_msg(arena_certify(&arena, &err) == 0, "%s", err.text);
    ck_assert(arena.certified);
    ck_assert_uint_eq(arena_find(&arena, "accumulator")->offset, 128);
    ck_assert_uint_eq(arena_find(&arena, "matrix")->offset, 4096);
    ck_assert_uint_eq(arena.bytes, 4096 + (1 << 20));
    ck_assert(arena_find(&arena, "nothing") == NULL);
}
END_TEST

START_TEST(an_overlap_is_refused_with_both_names)
{
    struct arena arena = made();
    arena.regions[1].offset = 64;
    refused(&arena, "regions 'parameter' and 'accumulator' overlap");
}
END_TEST

START_TEST(a_region_out_of_bounds_is_refused)
{
    struct arena arena = made();
    arena.regions[3].bytes += 1;
    refused(&arena, "region 'matrix' is out of bounds");
    arena.regions[3].bytes = UINT64_MAX - 4095;
    refused(&arena, "region 'matrix' is out of bounds");
}
END_TEST

START_TEST(a_region_that_is_not_aligned_is_refused)
{
    struct arena arena = made();
    arena.regions[1].offset = 132;
    refused(&arena, "region 'accumulator' is not aligned");
    arena.regions[1].alignment = 12;
    refused(&arena, "alignment");
    arena.regions[1].alignment = 8192;
    refused(&arena, "alignment that the base does not keep");
}
END_TEST

START_TEST(names_are_present_and_unique)
{
    struct arena arena = made();
    memcpy(arena.regions[3].name, "parameter", 10);
    refused(&arena, "two regions are named 'parameter'");
    arena.regions[3].name[0] = '\0';
    refused(&arena, "has no name");
}
END_TEST

START_TEST(a_region_beyond_any_memory_is_refused_before_sums_overflow)
{
    struct arena arena = made();
    struct err err = {0};
    ck_assert_int_eq(arena_add(&arena, "matrix2", UINT64_MAX - 10, 64, &err), ERR_NOMEM);
    ck_assert(strstr(err.text, "'matrix2'") != NULL);
    for (int i = 4; i < ARENA_REGIONS_MAX; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "r%d", i);
        ck_assert_int_eq(arena_add(&arena, name, 8, 8, NULL), i);
    }
    ck_assert_int_eq(arena_add(&arena, "one more", 8, 8, &err), ERR_INTERNAL);
}
END_TEST

START_TEST(the_print_names_every_region)
{
    struct arena arena = made();
    struct buf text = BUF_NONE;
    arena_print(&arena, &text);
    buf_put_u8(&text, 0);
    const char *names[] = {"parameter", "accumulator", "empty", "matrix", "1048576"};
    for (size_t i = 0; i < 5; i++) {
        ck_assert(strstr((const char *)text.bytes, names[i]) != NULL);
    }
    buf_done(&text);
}
END_TEST

static void an_image(void)
{
}

START_TEST(an_unknown_name_launches_nothing)
{
    struct images images = {0};
    struct err err = {0};
    const struct image *image = NULL;
    ck_assert_int_eq(images_register(&images, "dense-forward", an_image, NULL, NULL, &err), 0);
    ck_assert_int_eq(images_find(&images, "dense-forward", &image, &err), 0);
    ck_assert(image->function == an_image);
    image = NULL;
    ck_assert_int_eq(images_find(&images, "dense-forwards", &image, &err), ERR_NOT_FOUND);
    ck_assert(image == NULL);
    ck_assert_str_eq(err.text, "no device image is named 'dense-forwards': nothing was launched "
                               "(this build has 1 images)");
}
END_TEST

START_TEST(a_missing_a_doubled_or_a_late_image_is_refused_by_name)
{
    struct images images = {0};
    struct err err = {0};
    ck_assert_int_eq(images_register(&images, "update", NULL, NULL, NULL, &err), ERR_DEVICE);
    ck_assert_str_eq(err.text, "device image 'update' is missing");
    ck_assert_int_eq(images_register(&images, "update", an_image, NULL, NULL, &err), 0);
    ck_assert_int_eq(images_register(&images, "update", an_image, NULL, NULL, &err), ERR_DEVICE);
    ck_assert_str_eq(err.text, "device image 'update' is registered twice");
    ck_assert_int_eq(images_register(&images, "", an_image, NULL, NULL, &err), ERR_DEVICE);
    images_close(&images);
    ck_assert_int_eq(images_register(&images, "late", an_image, NULL, NULL, &err), ERR_STATE);
    ck_assert_uint_eq(images.count, 1);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("arena");
    TCase *tcase = tcase_create("arena and images");
    tcase_add_test(tcase, regions_laid_out_in_turn_are_certified);
    tcase_add_test(tcase, an_overlap_is_refused_with_both_names);
    tcase_add_test(tcase, a_region_out_of_bounds_is_refused);
    tcase_add_test(tcase, a_region_that_is_not_aligned_is_refused);
    tcase_add_test(tcase, names_are_present_and_unique);
    tcase_add_test(tcase, a_region_beyond_any_memory_is_refused_before_sums_overflow);
    tcase_add_test(tcase, the_print_names_every_region);
    tcase_add_test(tcase, an_unknown_name_launches_nothing);
    tcase_add_test(tcase, a_missing_a_doubled_or_a_late_image_is_refused_by_name);
    suite_add_tcase(suite, tcase);
    return suite;
}
