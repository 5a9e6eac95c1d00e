#include "daemon/selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"

/* Two panels of rows, the second one short, so that both trees have an odd end. */
#define ROWS        2100U
#define FEATURES    5U
#define COORDINATES (FEATURES + 1U)
#define STEPS       3U
#define RATE        0.05
#define DECAY       0.9
#define L2          0.01

/* What reference.py prints for the same numbers as a CSV file (tests/unit/daemon/test_selftest.c
 * writes it): --rate 0.05 --decay 0.9 --batch 2100 --l2 0.01 --steps 3. */
static const char golden_parameter[] =
    "d4f025424ac76e4af405a8fac8afec8de1ee8be7c217c44f6c7da0bc6ea76705";
static const char golden_accumulator[] =
    "5d0ed572ecd86f904374006e129dac5349c132a5f7e1fc865684698d8ecfadb5";

/* Numbers that are exact in binary32 and as decimal text. */
float selftest_feature(uint32_t row, uint32_t column)
{
    uint64_t mixed = row * UINT64_C(2654435761) + column * UINT64_C(2246822519) + 12345;
    return ((float)((mixed >> 7) & 0xffff) - 32768.0F) / 8192.0F;
}

double selftest_target(uint32_t row)
{
    uint32_t mixed = row * 7919U + ((row * row) & 0xffU);
    return (double)(mixed & 0x3ffU) / 64.0;
}

struct golden {
    float *x;
    double *y;
    double parameter[COORDINATES];
    double accumulator[COORDINATES];
};

static int steps(struct session *session, struct golden *golden, struct err *err)
{
    struct session_plan plan = {.coordinate_first = 0,
                                .coordinate_end = COORDINATES,
                                .intercept = true,
                                .whole = true,
                                .storage = SESSION_DENSE,
                                .rows = ROWS,
                                .entries = (uint64_t)ROWS * FEATURES,
                                .batch_rows = ROWS,
                                .chunk_rows = 2048,
                                .issues_max = STEPS};
    struct session_matrix matrix = {.storage = SESSION_DENSE,
                                    .rows = ROWS,
                                    .columns = FEATURES,
                                    .dense = golden->x,
                                    .stride = ROWS};
    struct session_seed seed = {.matrix = &matrix, .targets = golden->y};
    struct session_hyper hyper = {.rate = RATE, .decay = DECAY, .l2 = L2};
    int status = session_admit(session, &plan, err);
    status = status != 0 ? status : session_bind(session, err);
    status = status != 0 ? status : session_load(session, err);
    status = status != 0 ? status : session_certify(session, err);
    status = status != 0 ? status : session_seed(session, &seed, err);
    for (uint32_t step = 0; status == 0 && step < STEPS; step++) {
        struct session_batch batch = {.step = step, .row_first = 0, .rows_count = ROWS};
        const double *losses = NULL;
        size_t panels = 0;
        status = session_local_step(session, &batch, &hyper, err);
        status = status != 0 ? status : session_local_wait(session, &losses, &panels, err);
    }
    status = status != 0 ? status : session_capture(session, err);
    return status != 0 ? status
                       : session_capture_read(session, golden->parameter, golden->accumulator, err);
}

static int compare(const char *what, const double *values, const char *want,
                   const struct session_binding *binding, struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];
    sha256_of(values, COORDINATES * sizeof(values[0]), digest);
    sha256_hex(digest, hex);
    if (strcmp(hex, want) != 0) {
        return err_set(
            err, ERR_UNHEALTHY,
            "the golden step gave other %s bits on %s (%.16s… instead of %.16s…): this device "
            "or build must not train",
            what, binding->device, hex, want);
    }
    return 0;
}

int selftest_run(const struct session_settings *settings, const struct session_backend *backend,
                 char *sentence, size_t sentence_size, struct session_binding *ret_binding,
                 struct err *err)
{
    uint64_t began_ns = clock_now_ns();
    struct session *session = NULL;
    struct golden golden = {.x = malloc(sizeof(float) * ROWS * FEATURES),
                            .y = malloc(sizeof(double) * ROWS)};
    int status = golden.x == NULL || golden.y == NULL
                     ? err_set(err, ERR_NOMEM, "no memory for the golden step's numbers")
                     : session_new(settings, backend, &session, err);
    for (uint32_t row = 0; status == 0 && row < ROWS; row++) {
        golden.y[row] = selftest_target(row);
        for (uint32_t column = 0; column < FEATURES; column++) {
            golden.x[(size_t)column * ROWS + row] = selftest_feature(row, column);
        }
    }
    status = status != 0 ? status : steps(session, &golden, err);
    if (status == 0) {
        const struct session_binding *binding = session_binding(session);
        ASSERT(binding != NULL);
        status = compare("parameter", golden.parameter, golden_parameter, binding, err);
        status = status != 0
                     ? status
                     : compare("accumulator", golden.accumulator, golden_accumulator, binding, err);
        (void)snprintf(sentence, sentence_size, "the golden step gave its bits on %s in %.0f ms",
                       binding->device, (double)(clock_now_ns() - began_ns) / 1e6);
        if (ret_binding != NULL) {
            *ret_binding = *binding;
        }
    }
    session_free(session); /* Gives the device back: nothing of this is kept. */
    free(golden.x);
    free(golden.y);
    return status;
}
