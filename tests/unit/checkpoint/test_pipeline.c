/* Pieces go to both users, whole and in order; a failure ends neither the other nor the wait. */
#include <unistd.h>

#include "base/err.h"
#include "checkpoint/pipeline.h"
#include "tests/lib/unit.h"

#define PIECES 100

struct seen {
    unsigned bytes[PIPELINE_USERS];
    unsigned wrong[PIPELINE_USERS];
    unsigned calls;    /* of the first user */
    unsigned fails_at; /* its call; 0: never */
};

static void look(struct seen *seen, unsigned user, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        seen->wrong[user] += bytes[i] != (uint8_t)(seen->bytes[user] * 7);
        seen->bytes[user]++;
    }
}

static int first(void *context, const uint8_t *bytes, size_t size)
{
    struct seen *seen = context;
    seen->calls++;
    if (seen->calls == seen->fails_at) {
        return ERR_DISK;
    }
    (void)usleep(seen->calls % 10 == 0 ? 3000 : 0); /* Now this one is late, now the other. */
    look(seen, 0, bytes, size);
    return 0;
}

static int second(void *context, const uint8_t *bytes, size_t size)
{
    struct seen *seen = context;
    (void)usleep(seen->bytes[1] % 13 == 0 ? 2000 : 0);
    look(seen, 1, bytes, size);
    return 0;
}

static pipeline_use_fn *const users[PIPELINE_USERS] = {first, second};

/* Pieces of 1 to 37 bytes; what the last put said. */
static int put_all(struct pipeline *pipeline, unsigned *ret_bytes)
{
    int code = 0;
    *ret_bytes = 0;
    for (unsigned i = 0; i < PIECES; i++) {
        size_t size = 1 + i * 11 % 37;
        uint8_t *piece = pipeline_piece(pipeline);
        for (size_t k = 0; k < size; k++) {
            piece[k] = (uint8_t)((*ret_bytes)++ * 7);
        }
        code = pipeline_put(pipeline, size);
    }
    return code;
}

START_TEST(both_users_see_every_byte_in_order)
{
    struct seen seen = {0};
    struct pipeline pipeline;
    unsigned bytes = 0;
    ck_assert(pipeline_begin(&pipeline, 37, users, &seen));
    ck_assert_int_eq(put_all(&pipeline, &bytes), 0);
    ck_assert_int_eq(pipeline_end(&pipeline), 0);
    for (unsigned i = 0; i < PIPELINE_USERS; i++) {
        ck_assert_uint_eq(seen.bytes[i], bytes);
        ck_assert_uint_eq(seen.wrong[i], 0);
    }
}
END_TEST

START_TEST(a_failed_use_is_told_and_nobody_waits_for_it)
{
    struct seen seen = {.fails_at = 3};
    struct pipeline pipeline;
    unsigned bytes = 0;
    ck_assert(pipeline_begin(&pipeline, 37, users, &seen));
    ck_assert_int_eq(put_all(&pipeline, &bytes), ERR_DISK);
    ck_assert_int_eq(pipeline_end(&pipeline), ERR_DISK);
    ck_assert_uint_eq(seen.calls, 3);
    ck_assert_uint_eq(seen.bytes[1], bytes);
}
END_TEST

START_TEST(nothing_put_is_nothing_used)
{
    struct seen seen = {0};
    struct pipeline pipeline;
    ck_assert(pipeline_begin(&pipeline, 37, users, &seen));
    ck_assert_int_eq(pipeline_end(&pipeline), 0);
    ck_assert_uint_eq(seen.calls, 0);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tcase = tcase_create("pipeline");
    tcase_add_test(tcase, both_users_see_every_byte_in_order);
    tcase_add_test(tcase, a_failed_use_is_told_and_nobody_waits_for_it);
    tcase_add_test(tcase, nothing_put_is_nothing_used);
    suite_add_tcase(suite, tcase);
    return suite;
}
