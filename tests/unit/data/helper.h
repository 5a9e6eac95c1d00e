/* What the tests of data share: a scratch folder, small files in it, imports of them. */
#ifndef COPPELIUS_TESTS_UNIT_DATA_HELPER_H
#define COPPELIUS_TESTS_UNIT_DATA_HELPER_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "data/data.h"
#include "tests/lib/unit.h"

#define TEST_PATH_SIZE 512

static char scratch[64];

static inline void scratch_setup(void)
{
    (void)snprintf(scratch, sizeof(scratch), "/tmp/coppelius-data-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scratch));
}

static inline void scratch_teardown(void)
{
    struct fs *fs = NULL;
    struct err err = {0};
    ck_assert_int_eq(fs_posix_open("/tmp", &fs, &err), 0);
    ck_assert_int_eq(fs_remove_tree(fs, scratch + strlen("/tmp/"), &err), 0);
    fs_posix_close(fs);
}

/* scratch/name; sixteen results live at a time. */
static inline const char *in_scratch(const char *name)
{
    static char paths[16][TEST_PATH_SIZE];
    static unsigned next;
    char *path = paths[next++ % 16];
    (void)snprintf(path, TEST_PATH_SIZE, "%s/%s", scratch, name);
    return path;
}

static inline const char *put_bytes(const char *name, const void *bytes, size_t size)
{
    const char *path = in_scratch(name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

static inline const char *put_text(const char *name, const char *text)
{
    return put_bytes(name, text, strlen(text));
}

static inline size_t get_bytes(const char *path, uint8_t *bytes, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    size_t size = fread(bytes, 1, capacity, file);
    (void)fclose(file);
    return size;
}

/* Imports one file into scratch/name; the code, with the faults. */
static inline int import_path(const char *path, struct data_settings settings, const char *name,
                              struct data_report *report, struct data_faults *faults)
{
    const char *paths[] = {path};
    settings.paths = paths;
    settings.paths_count = 1;
    struct err err = {0};
    int code = data_import(&settings, in_scratch(name), NULL, report, faults, &err);
    ck_assert_int_eq(code, err.code);
    ck_assert(code == 0 || err.text[0] != '\0');
    for (size_t i = 0; faults != NULL && i < faults->count; i++) {
        faults->list[i].path = NULL; /* borrowed from here */
    }
    return code;
}

static inline int import_text(const char *text, struct data_settings settings,
                              struct data_report *report, struct data_faults *faults)
{
    return import_path(put_text("input", text), settings, "out", report, faults);
}

/* Imports that must work; the open dataset. */
static inline struct dataset *import_and_open(const char *path, struct data_settings settings,
                                              const char *name)
{
    struct data_faults faults = {0};
    struct err err = {0};
    struct dataset *dataset = NULL;
    int code = import_path(path, settings, name, NULL, &faults);
    ck_assert_msg(code == 0, "%s: %d %s", path, code, faults.count > 0 ? faults.list[0].text : "");
    ck_assert_msg(dataset_open(in_scratch(name), &dataset, &err) == 0, "%s", err.text);
    return dataset;
}

static inline struct dataset *open_text(const char *text, struct data_settings settings)
{
    return import_and_open(put_text("input", text), settings, "out");
}

/* Value (row, column) of a matrix of either kind. */
static inline float matrix_at(const struct dataset_matrix *matrix, uint64_t row, uint64_t column)
{
    if (!matrix->sparse) {
        return matrix->dense[column * matrix->ld + row];
    }
    for (uint64_t k = matrix->indptr[column]; k < matrix->indptr[column + 1]; k++) {
        uint64_t at = matrix->row32 != NULL ? matrix->row32[k] : matrix->row64[k];
        if (at == row) {
            return matrix->values[k];
        }
    }
    return 0.0F;
}

static inline const char *shared_path(char path[TEST_PATH_SIZE], const char *name)
{
    const char *shared = getenv("COPPELIUS_SHARED");
    (void)snprintf(path, TEST_PATH_SIZE, "%s/%s", shared != NULL ? shared : "../shared", name);
    return path;
}

/* Leaves the program as skipped, by name, where the folder of shared data is absent. */
static inline void need_shared(const char *name)
{
    char path[TEST_PATH_SIZE];
    struct stat status;
    if (stat(shared_path(path, name), &status) != 0) {
        printf("skipped: %s is not here\n", path);
        exit(77);
    }
}

static inline Suite *data_suite(const char *name, TCase **ret_tests)
{
    Suite *suite = suite_create(name);
    *ret_tests = tcase_create(name);
    tcase_add_checked_fixture(*ret_tests, scratch_setup, scratch_teardown);
    tcase_set_timeout(*ret_tests, 120);
    suite_add_tcase(suite, *ret_tests);
    return suite;
}

#endif
