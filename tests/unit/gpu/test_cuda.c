#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "tests/lib/unit.h"

#ifdef COPPELIUS_HAVE_CUDA
#include "gpu/cuda.h"

extern const char cuda_records_text[];
extern const char cuda_records_end[];

static const char records[] = "# a comment\n"
                              "fill sm_80 registers=16 threads=256 shared=0 local=0\n"
                              "fill sm_90 registers=24 threads=256 shared=128 local=8\n";

START_TEST(a_record_is_found_by_name_and_architecture)
{
    struct image_record record;
    struct err err = {0};
    ck_assert_int_eq(cuda_record_find(records, sizeof(records) - 1, "fill", 90, &record, &err), 0);
    ck_assert_uint_eq(record.registers, 24);
    ck_assert_uint_eq(record.shared_bytes, 128);
    ck_assert_uint_eq(record.local_bytes, 8);
    ck_assert_int_eq(cuda_record_find(records, sizeof(records) - 1, "fill", 75, &record, &err),
                     ERR_NOT_FOUND);
    ck_assert_str_eq(err.text, "device image 'fill' has no record for sm_75");
}
END_TEST

START_TEST(a_line_that_is_no_record_is_named)
{
    static const char bad[] = "fill sm_80 registers=16\n";
    struct image_record record;
    struct err err = {0};
    ck_assert_int_eq(cuda_record_find(bad, sizeof(bad) - 1, "fill", 80, &record, &err), ERR_DEVICE);
    ck_assert_str_eq(err.text, "images.records:1: not a record: 'fill sm_80 registers=16'");
}
END_TEST

START_TEST(an_image_that_differs_from_its_record_is_refused_by_name)
{
    const struct image_record record = {.registers = 16, .threads = 256};
    struct image_record reported = record;
    struct err err = {0};
    ck_assert_int_eq(cuda_record_check("fill", 90, &record, &reported, &err), 0);
    reported.registers = 17;
    ck_assert_int_eq(cuda_record_check("fill", 90, &record, &reported, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "device image 'fill' (sm_90) differs from its record"));
    reported = record;
    reported.local_bytes = 8;
    ck_assert_int_eq(cuda_record_check("fill", 90, &record, &reported, &err), ERR_DEVICE);
}
END_TEST

START_TEST(a_missing_an_empty_and_a_foreign_image_file_are_refused_by_name)
{
    static const unsigned char text[] = "not a fatbin";
    struct err err = {0};
    struct cuda_blob blob = {.name = "update"};
    ck_assert_int_eq(cuda_blob_check(&blob, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "device image file 'update' is missing"));
    blob.bytes = blob.end = text;
    ck_assert_int_eq(cuda_blob_check(&blob, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "device image file 'update' is empty"));
    blob.end = text + sizeof(text);
    ck_assert_int_eq(cuda_blob_check(&blob, &err), ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.text, "device image file 'update' is no fatbin"));
}
END_TEST

START_TEST(every_embedded_image_file_is_there_and_every_image_has_its_records)
{
    static const char *const names[KERNELS_COUNT] = {
        "forward-dense",  "backward-dense",  "update",        "cursor",         "losses",
        "forward-sparse", "backward-sparse", "fused-32",      "fused-64",       "fused-128",
        "fused-256",      "pack-tiles",      "forward-tiles", "backward-tiles", "small-step"};
    static const int architectures[] = {75, 80, 86, 89, 90, 100, 120};
    struct err err = {0};
    for (int module = 0; module < MODULES_COUNT; module++) {
        ck_assert_msg(cuda_blob_check(&cuda_blobs[module], &err) == 0, "%s", err.text);
    }
    size_t size = (size_t)(cuda_records_end - cuda_records_text);
    for (int kernel = 0; kernel < KERNELS_COUNT; kernel++) {
        for (size_t a = 0; a < sizeof(architectures) / sizeof(architectures[0]); a++) {
            struct image_record record;
            int code = cuda_record_find(cuda_records_text, size, names[kernel], architectures[a],
                                        &record, &err);
            ck_assert_msg(code == 0, "%s", err.text);
            ck_assert_uint_gt(record.threads, 0);
            ck_assert_uint_le(record.registers * record.threads, 65536);
        }
    }
}
END_TEST

START_TEST(a_driver_that_is_too_old_is_one_line_that_says_what_to_do)
{
    struct err err = {0};
    ck_assert_int_eq(cuda_driver_check_version(12040, &err), ERR_DEVICE);
    ck_assert_str_eq(err.text, "the NVIDIA driver supports CUDA 12.4, this build needs 13.0: "
                               "install driver 580 or newer, or set device: cpu");
    ck_assert_int_eq(cuda_driver_check_version(13000, &err), 0);
}
END_TEST
#endif

/* Where a GPU is, binding works and this says nothing; where none is, it must never be a CPU. */
START_TEST(a_device_that_is_not_there_is_refused_with_what_to_do)
{
    static const char *const devices[] = {"auto", "99", "GPU-00000000-0000-0000-0000-000000000000",
                                          "0000:ff:1f.7"};
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        struct session_settings settings = {.device = devices[i]};
        struct session_plan plan = {
            .coordinate_end = 1, .intercept = true, .rows = 1, .batch_rows = 1, .chunk_rows = 2048};
        struct session *session = NULL;
        struct err err = {0};
        int code = session_new(&settings, NULL, &session, &err);
        if (code == 0) {
            ck_assert_int_eq(session_admit(session, &plan, &err), 0);
            code = session_bind(session, &err);
        }
        if (code == 0) {
            ck_assert_uint_eq(i, 0); /* auto, and there is a GPU */
            ck_assert_ptr_null(strstr(session_binding(session)->device, "cpu"));
        } else {
            ck_assert_msg(code == ERR_DEVICE || code == ERR_BUSY, "%s", err.text);
        }
        session_free(session);
    }
}
END_TEST

START_TEST(a_device_that_makes_no_sense_is_refused)
{
    struct session_settings settings = {.device = "gpu one"};
    struct session_plan plan = {
        .coordinate_end = 1, .intercept = true, .rows = 1, .batch_rows = 1, .chunk_rows = 2048};
    struct session *session = NULL;
    struct err err = {0};
    int code = session_new(&settings, NULL, &session, &err);
    code = code != 0 ? code : session_admit(session, &plan, &err);
    code = code != 0 ? code : session_bind(session, &err);
    ck_assert_msg(code == ERR_CONFIG || session_backend_cuda() == NULL, "%s", err.text);
    session_free(session);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("cuda");
    TCase *tcase = tcase_create("cuda");
#ifdef COPPELIUS_HAVE_CUDA
    tcase_add_test(tcase, a_record_is_found_by_name_and_architecture);
    tcase_add_test(tcase, a_line_that_is_no_record_is_named);
    tcase_add_test(tcase, an_image_that_differs_from_its_record_is_refused_by_name);
    tcase_add_test(tcase, a_missing_an_empty_and_a_foreign_image_file_are_refused_by_name);
    tcase_add_test(tcase, every_embedded_image_file_is_there_and_every_image_has_its_records);
    tcase_add_test(tcase, a_driver_that_is_too_old_is_one_line_that_says_what_to_do);
#endif
    tcase_add_test(tcase, a_device_that_is_not_there_is_refused_with_what_to_do);
    tcase_add_test(tcase, a_device_that_makes_no_sense_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
