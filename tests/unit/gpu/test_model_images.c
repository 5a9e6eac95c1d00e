/* The device images inside the program: files, records, and what is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "tests/lib/unit.h"

#if defined(COPPELIUS_HAVE_CUDA)

#include "gpu/model/blobs.h"
#include "gpu/model/records.h"

static bool inside(enum model_file file, enum model_half half, const struct cuda_blob **ret_blob,
                   struct err *err)
{
    int code = model_blob_find(file, half, ret_blob, err);
    ck_assert(code == 0 || code == ERR_DEVICE);
    return code == 0;
}

START_TEST(every_file_is_inside_or_refused_by_its_name)
{
    for (int file = 0; file < MODEL_FILES_COUNT; file++) {
        for (int half = MODEL_HALF_FP16; half <= MODEL_HALF_BF16; half++) {
            struct err err = {0};
            const struct cuda_blob *blob = NULL;
            if (inside((enum model_file)file, (enum model_half)half, &blob, &err)) {
                ck_assert_int_eq(strncmp(blob->name, model_files[file], strlen(model_files[file])),
                                 0);
                ck_assert_ptr_nonnull(
                    strstr(blob->name, half == MODEL_HALF_FP16 ? "_fp16" : "_bf16"));
            } else {
                ck_assert_ptr_nonnull(strstr(err.text, model_files[file]));
                ck_assert_ptr_nonnull(strstr(err.text, "is missing: this build"));
            }
        }
    }
}
END_TEST

START_TEST(a_file_that_is_cut_short_is_refused_by_its_name)
{
    struct err err = {0};
    struct cuda_blob blob = cuda_blobs[0];
    ck_assert_int_eq(cuda_blob_check(&blob, &err), 0);
    const unsigned char *end = blob.end;
    for (size_t less = 1; less < (size_t)(end - blob.bytes); less = less * 2 + 7) {
        blob.end = end - less;
        ck_assert_int_eq(cuda_blob_check(&blob, &err), ERR_DEVICE);
        ck_assert_ptr_nonnull(strstr(err.text, "device image file 'forward_dense'"));
    }
    /* And one whose header promises more than there can be. */
    unsigned char head[32] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    blob = (struct cuda_blob){"update", head, head + sizeof(head)};
    memset(head + 8, 0xff, 8);
    ck_assert_int_eq(cuda_blob_check(&blob, &err), ERR_DEVICE);
    memset(head + 8, 0, 8);
    head[8] = 16;
    ck_assert_int_eq(cuda_blob_check(&blob, &err), 0);
}
END_TEST

START_TEST(every_kernel_has_a_record_for_each_architecture_that_has_its_code)
{
    static const int all[] = {80, 86, 89, 90, 100, 120};
    for (size_t i = 0; i < model_entries_count; i++) {
        for (size_t a = 0; a < sizeof(all) / sizeof(all[0]); a++) {
            for (int half = MODEL_HALF_FP16; half <= MODEL_HALF_BF16; half++) {
                struct image_record record;
                struct err err = {0};
                int code = model_record_find(model_entries[i].name, (enum model_half)half, all[a],
                                             &record, &err);
                bool serves = model_blob_serves(model_entries[i].file, all[a]);
                ck_assert_msg(code == (serves ? 0 : ERR_NOT_FOUND), "%s sm_%d: %s",
                              model_entries[i].name, all[a], err.text);
                ck_assert(!serves || record.threads == model_entries[i].threads);
            }
        }
    }
    ck_assert(!model_blob_serves(MODEL_FILE_FLAT, 75)); /* no bf16 there */
}
END_TEST

START_TEST(the_builds_architectures_come_in_order)
{
    int before = 0;
    for (int at = model_blob_architecture(0); at != 0; at = model_blob_architecture(at)) {
        ck_assert_int_gt(at, before);
        ck_assert(model_blob_has(at));
        before = at;
    }
    ck_assert_int_gt(before, 0);
    ck_assert(!model_blob_has(1));
}
END_TEST

START_TEST(the_list_of_the_program_has_every_image_once_an_architecture)
{
    struct err err = {0};
    const struct cuda_blob *blob = NULL;
    FILE *list = tmpfile();
    ck_assert_ptr_nonnull(list);
    int code = gpu_print_images(list, &err);
    if (!inside(MODEL_FILE_FLAT, MODEL_HALF_BF16, &blob, &err)) {
        ck_assert_int_eq(code, 0); /* the regression's alone */
    }
    ck_assert_msg(code == 0, "%s", err.text);
    rewind(list);
    char line[256];
    char before[256] = "";
    size_t count = 0;
    while (fgets(line, sizeof(line), list) != NULL) {
        ck_assert_str_ne(line, before);
        memcpy(before, line, sizeof(line));
        count++;
    }
    size_t wanted = 0;
    for (int at = model_blob_architecture(0); at != 0; at = model_blob_architecture(at)) {
        wanted += KERNELS_COUNT;
        for (size_t i = 0; blob != NULL && i < model_entries_count; i++) {
            wanted += model_blob_serves(model_entries[i].file, at) ? 2 : 0;
        }
    }
    ck_assert_uint_eq(count, wanted);
    (void)fclose(list);
}
END_TEST

#else

START_TEST(a_build_without_kernels_says_so)
{
    struct err err = {0};
    ck_assert_int_eq(gpu_print_images(stdout, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "no GPU kernels in this build"));
    ck_assert_int_eq(gpu_list_images(NULL, stdout, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "no GPU kernels in this build"));
    ck_assert_int_eq(gpu_bench_tiles(NULL, stdout, NULL, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "no GPU kernels in this build"));
}
END_TEST

#endif

Suite *unit_suite(void)
{
    Suite *suite = suite_create("model_images");
    TCase *tcase = tcase_create("images");
#if defined(COPPELIUS_HAVE_CUDA)
    tcase_add_test(tcase, every_file_is_inside_or_refused_by_its_name);
    tcase_add_test(tcase, a_file_that_is_cut_short_is_refused_by_its_name);
    tcase_add_test(tcase, every_kernel_has_a_record_for_each_architecture_that_has_its_code);
    tcase_add_test(tcase, the_builds_architectures_come_in_order);
    tcase_add_test(tcase, the_list_of_the_program_has_every_image_once_an_architecture);
#else
    tcase_add_test(tcase, a_build_without_kernels_says_so);
#endif
    suite_add_tcase(suite, tcase);
    return suite;
}
