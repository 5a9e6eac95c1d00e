/* How many predictions a daemon works on at once. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/core.h"
#include "tests/lib/unit.h"

static struct daemon *asked;
static uv_loop_t loop;
static unsigned answers;

static void setup(void)
{
    asked = calloc(1, sizeof(*asked));
    ASSERT(asked != NULL);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    asked->loop = &loop;
    asked->works = 1; /* else it were closed by now, and would go with the last prediction */
    (void)snprintf(asked->name, sizeof(asked->name), "a");
    answers = 0;
}

static void teardown(void)
{
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    free(asked);
}

static void on_predicted(void *context, struct facts_prediction *prediction)
{
    ck_assert_ptr_eq(context, asked);
    ck_assert_int_ne(prediction->err.code, 0); /* There is no such checkpoint. */
    answers++;
}

static int ask(struct err *err)
{
    const struct facts_predict question = {
        .checkpoint = "/nowhere/epoch-00000001", .data_path = "/nowhere/data.csv", .rows = "all"};
    return predict_start(asked, &question, on_predicted, asked, err);
}

START_TEST(predictions_at_once_are_bounded)
{
    struct err err = {0};
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < PREDICTIONS_MAX; i++) {
            ck_assert_msg(ask(&err) == 0, "%s", err.text);
        }
        ck_assert_int_eq(ask(&err), ERR_BUSY);
        ck_assert_str_eq(err.text, "node a works on 2 predictions already; try again when one is "
                                   "done, or ask another node");
        ck_assert_uint_eq(answers, round * PREDICTIONS_MAX); /* none before the loop turns */
        while (uv_run(&loop, UV_RUN_DEFAULT) != 0) {
        }
        ck_assert_uint_eq(answers, (round + 1) * PREDICTIONS_MAX);
    }
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("predict");
    TCase *claims = tcase_create("claims");
    tcase_add_checked_fixture(claims, setup, teardown);
    tcase_add_test(claims, predictions_at_once_are_bounded);
    suite_add_tcase(suite, claims);
    return suite;
}
