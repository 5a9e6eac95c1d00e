/* A session on the CPU with a small dense matrix, brought to any stage of its life. */
#ifndef COPPELIUS_TESTS_SESSION_FIXTURE_H
#define COPPELIUS_TESTS_SESSION_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/backend.h"
#include "gpu/readback.h"
#include "tests/lib/unit.h"

enum { ROWS = 5000, COLUMNS = 7, COORDINATES = 8 };

static float matrix_values[ROWS * COLUMNS];
static double targets[ROWS];
static float residuals[ROWS];
static const struct session_settings cpu = {.device = "cpu", .threads = 2};
static const struct session_hyper hyper = {.rate = 0.01, .decay = 0.9, .l2 = 0.1};
static const struct session_batch batch = {.step = 0, .row_first = 0, .rows_count = ROWS};

static inline struct session_plan make_plan(bool whole)
{
    return (struct session_plan){.coordinate_end = COORDINATES,
                                 .intercept = true,
                                 .whole = whole,
                                 .rows = ROWS,
                                 .entries = ROWS * COLUMNS,
                                 .batch_rows = ROWS,
                                 .chunk_rows = 2048,
                                 .issues_max = 100};
}

static inline struct session_matrix make_matrix(void)
{
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        matrix_values[i] = (float)((double)((i * 2654435761U) % 2001) / 1000.0 - 1.0);
    }
    for (size_t i = 0; i < ROWS; i++) {
        targets[i] = (double)(i % 17);
        residuals[i] = (float)(i % 5) - 2.0F;
    }
    return (struct session_matrix){
        .rows = ROWS, .columns = COLUMNS, .dense = matrix_values, .stride = ROWS};
}

/* How far a life is to go. */
enum stage { NEW, ADMITTED, BOUND, LOADED, CERTIFIED, SEEDED };

static inline struct session *live(enum stage stage, bool whole,
                                   const struct session_backend *backend)
{
    struct session *session = NULL;
    struct err err = {0};
    struct session_plan plan = make_plan(whole);
    struct session_matrix matrix = make_matrix();
    struct session_seed seed = {.matrix = &matrix, .targets = whole ? targets : NULL};
    ck_assert_int_eq(session_new(&cpu, backend, &session, &err), 0);
    int code = stage >= ADMITTED ? session_admit(session, &plan, &err) : 0;
    code = code == 0 && stage >= BOUND ? session_bind(session, &err) : code;
    code = code == 0 && stage >= LOADED ? session_load(session, &err) : code;
    code = code == 0 && stage >= CERTIFIED ? session_certify(session, &err) : code;
    code = code == 0 && stage >= SEEDED ? session_seed(session, &seed, &err) : code;
    ck_assert_msg(code == 0, "%s", err.text);
    return session;
}

static inline void local_step(struct session *session)
{
    struct err err = {0};
    const double *losses = NULL;
    size_t panels = 0;
    ck_assert_int_eq(session_local_step(session, &batch, &hyper, &err), 0);
    ck_assert_msg(session_local_wait(session, &losses, &panels, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(panels, 3);
}

/* A whole step in parts; NULL where it went well, else what was wrong. */
static inline int step_in_parts(struct session *session, struct err *err)
{
    int code = session_step_begin(session, &batch, err);
    for (uint32_t chunk = 0; code == 0 && chunk < 3; chunk++) {
        const double *values = NULL;
        code = session_forward(session, chunk, err);
        code = code != 0 ? code : session_forward_wait(session, chunk, &values, err);
    }
    for (uint32_t chunk = 0; code == 0 && chunk < 3; chunk++) {
        code = session_backward(session, chunk, residuals + (size_t)chunk * 2048, err);
    }
    code = code != 0 ? code : session_update(session, &hyper, err);
    return code != 0 ? code : session_step_end(session, err);
}

static inline void failed_then_abandoned(struct session *session)
{
    struct err err = {0};
    ck_assert_int_eq(session_state(session), SESSION_FAILED);
    /* Nothing brings it back … */
    ck_assert_int_eq(session_capture(session, &err), ERR_STATE);
    /* … and its end is not RELEASED. */
    ck_assert_int_eq(session_release(session, &err), 0);
    ck_assert_int_eq(session_state(session), SESSION_ABANDONED);
    session_free(session);
}

static inline struct fs *make_folder(char *folder)
{
    struct fs *fs = NULL;
    ck_assert(mkdtemp(folder) != NULL);
    ck_assert_int_eq(fs_posix_open(folder, &fs, NULL), 0);
    return fs;
}

static inline void drop_folder(struct fs *fs, const char *folder)
{
    (void)fs->ops->unlink(fs, "readback.bin", NULL);
    fs_posix_close(fs);
    ck_assert_int_eq(rmdir(folder), 0);
}

#endif
