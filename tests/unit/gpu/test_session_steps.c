/* Steps: how many, their parts in order, and values out of range. */
#include "tests/unit/gpu/session_fixture.h"

START_TEST(issues_beyond_the_counter_are_not_admitted)
{
    struct session_plan plan = make_plan(true);
    plan.issues_max = UINT64_MAX;
    struct session *session = NULL;
    struct err err = {0};
    ck_assert_int_eq(session_new(&cpu, NULL, &session, &err), 0);
    ck_assert_int_eq(session_admit(session, &plan, &err), ERR_JOB);
    ck_assert(strstr(err.text, "fewer steps") != NULL);
    failed_then_abandoned(session);
}
END_TEST

START_TEST(more_submissions_than_admitted_fail_the_run)
{
    struct session *session = NULL;
    struct err err = {0};
    struct session_plan plan = make_plan(true);
    struct session_matrix matrix = make_matrix();
    struct session_seed seed = {.matrix = &matrix, .targets = targets};
    plan.issues_max = 2;
    ck_assert_int_eq(session_new(&cpu, NULL, &session, &err), 0);
    ck_assert_int_eq(session_admit(session, &plan, &err), 0);
    ck_assert_int_eq(session_bind(session, &err), 0);
    ck_assert_int_eq(session_load(session, &err), 0);
    ck_assert_int_eq(session_certify(session, &err), 0);
    ck_assert_int_eq(session_seed(session, &seed, &err), 0);
    local_step(session);
    local_step(session);
    ck_assert_int_eq(session_local_step(session, &batch, &hyper, &err), ERR_STATE);
    failed_then_abandoned(session);
}
END_TEST

START_TEST(the_parts_of_a_step_keep_their_order)
{
    struct err err = {0};
    struct session *session = live(SEEDED, false, NULL);
    ck_assert_msg(step_in_parts(session, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(session_issues(session), 7);
    session_free(session);
    for (unsigned fault = 0; fault < 8; fault++) {
        session = live(SEEDED, false, NULL);
        ck_assert_int_eq(session_step_begin(session, &batch, &err), 0);
        const double *values = NULL;
        int code = 0;
        switch (fault) {
        case 0: /* a chunk is left out */
            code = session_forward(session, 1, &err);
            break;
        case 1: /* not submitted yet */
            code = session_forward_wait(session, 0, &values, &err);
            break;
        case 2: /* before all forwards */
            ck_assert_int_eq(session_forward(session, 0, &err), 0);
            code = session_backward(session, 0, residuals, &err);
            break;
        case 3:
            code = session_update(session, &hyper, &err);
            break;
        case 4:
            code = session_step_end(session, &err);
            break;
        case 5: /* in the middle of a step */
            code = session_capture(session, &err);
            break;
        case 6:
            code = session_step_begin(session, &batch, &err);
            break;
        default: /* other nodes own coordinates */
            code = session_local_step(session, &batch, &hyper, &err);
            break;
        }
        ck_assert_msg(code == ERR_STATE, "fault %u", fault);
        failed_then_abandoned(session);
    }
}
END_TEST

START_TEST(a_step_that_is_no_batch_is_refused)
{
    static const struct session_batch bad[] = {
        {.row_first = 1, .rows_count = ROWS - 1},
        {.row_first = 0, .rows_count = ROWS - 1},
        {.row_first = 0, .rows_count = ROWS + 1},
        {.row_first = ROWS, .rows_count = 1},
        {.row_first = 0, .rows_count = 0},
        {.row_first = 100, .rows_count = 10, .evaluate = true},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct session *session = live(SEEDED, false, NULL);
        struct err err = {0};
        ck_assert_int_eq(session_step_begin(session, &bad[i], &err), ERR_STATE);
        failed_then_abandoned(session);
    }
}
END_TEST

START_TEST(a_residual_out_of_range_names_step_and_row)
{
    struct session *session = live(SEEDED, false, NULL);
    struct err err = {0};
    residuals[3000] = INFINITY;
    ck_assert_int_eq(step_in_parts(session, &err), ERR_DIVERGED);
    ck_assert_str_eq(err.text, "step 0: the residual of training row 3000 left the range of "
                               "binary32; give a smaller rate");
    failed_then_abandoned(session);
}
END_TEST

START_TEST(a_parameter_out_of_range_names_step_and_coordinate)
{
    for (unsigned whole = 0; whole < 2; whole++) {
        struct session *session = live(SEEDED, whole != 0, NULL);
        struct err err = {0};
        struct session_hyper wild = hyper;
        wild.rate = 1e300;
        const double *losses = NULL;
        size_t panels = 0;
        int code = 0;
        if (whole != 0) {
            code = session_local_step(session, &batch, &wild, &err);
            code = code != 0 ? code : session_local_wait(session, &losses, &panels, &err);
        } else {
            ck_assert_int_eq(session_step_begin(session, &batch, &err), 0);
            for (uint32_t chunk = 0; chunk < 3; chunk++) {
                ck_assert_int_eq(session_forward(session, chunk, &err), 0);
            }
            for (uint32_t chunk = 0; chunk < 3; chunk++) {
                ck_assert_int_eq(
                    session_backward(session, chunk, residuals + (size_t)chunk * 2048, &err), 0);
            }
            ck_assert_int_eq(session_update(session, &wild, &err), 0);
            code = session_step_end(session, &err);
        }
        ck_assert_int_eq(code, ERR_DIVERGED);
        ck_assert_str_eq(err.text, "step 0: the parameter or accumulator of coordinate 0 left its "
                                   "range; give a smaller rate");
        failed_then_abandoned(session);
    }
}
END_TEST

START_TEST(an_overflowing_product_is_found_in_the_residual)
{
    struct session *session = live(CERTIFIED, true, NULL);
    struct session_matrix matrix = make_matrix();
    matrix_values[2 * ROWS + 4321] = 3e38F; /* column 2 */
    double parameter[COORDINATES] = {0.0, 0.0, 3.0};
    struct session_seed seed = {.matrix = &matrix, .targets = targets, .parameter = parameter};
    struct err err = {0};
    const double *losses = NULL;
    size_t panels = 0;
    ck_assert_int_eq(session_seed(session, &seed, &err), 0);
    ck_assert_int_eq(session_local_step(session, &batch, &hyper, &err), 0);
    ck_assert_int_eq(session_local_wait(session, &losses, &panels, &err), ERR_DIVERGED);
    ck_assert(strstr(err.text, "training row 4321") != NULL);
    failed_then_abandoned(session);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("session_steps");
    TCase *tests = tcase_create("session_steps");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, issues_beyond_the_counter_are_not_admitted);
    tcase_add_test(tests, more_submissions_than_admitted_fail_the_run);
    tcase_add_test(tests, the_parts_of_a_step_keep_their_order);
    tcase_add_test(tests, a_step_that_is_no_batch_is_refused);
    tcase_add_test(tests, a_residual_out_of_range_names_step_and_row);
    tcase_add_test(tests, a_parameter_out_of_range_names_step_and_coordinate);
    tcase_add_test(tests, an_overflowing_product_is_found_in_the_residual);
    suite_add_tcase(suite, tests);
    return suite;
}
