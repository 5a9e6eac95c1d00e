#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "learn/learn.h"
#include "tests/lib/unit.h"

enum { ROWS = 7000, COLUMNS = 6 };

static float x[ROWS * COLUMNS];
static double targets[ROWS];

/* -- counting allocations, where the sanitizer's runtime lets us ------------------------------- */

int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *))
    __attribute__((weak));

static atomic_ullong allocations;

static void on_malloc(const volatile void *memory, size_t size)
{
    (void)memory;
    (void)size;
    atomic_fetch_add(&allocations, 1);
}

static void on_free(const volatile void *memory)
{
    (void)memory;
}

/* -- an exchange with nobody: this node is rank 0 of 2, the other owns a column of zeros --------
 */

struct nobody {
    const struct learner *learner;
    float residual[ROWS + 2048];
    double losses[8];
    double z[ROWS + 2048];
    uint64_t step;
    uint32_t pushed; /* bits of the chunks of the step */
    uint32_t pulled;
    uint32_t chunk_rows;
    uint64_t rows;
    uint64_t directive_step; /* UINT64_MAX: none */
    uint64_t fail_step;      /* pull fails there */
    unsigned begins;
};

static int begin(void *context, uint64_t step, uint64_t rows, uint32_t chunk_rows, struct err *err)
{
    struct nobody *nobody = context;
    (void)err;
    nobody->step = step;
    nobody->pushed = 0;
    nobody->pulled = 0;
    nobody->rows = rows;
    nobody->chunk_rows = chunk_rows;
    nobody->begins++;
    return 0;
}

static int push(void *context, uint64_t step, uint32_t chunk, const double *values, struct err *err)
{
    struct nobody *nobody = context;
    ASSERT(step == nobody->step); /* Check's own assertions allocate */
    ASSERT((nobody->pushed & (1U << chunk)) == 0);
    nobody->pushed |= 1U << chunk;
    uint64_t first = (uint64_t)chunk * nobody->chunk_rows;
    uint64_t left = nobody->rows - first;
    uint32_t rows = left < nobody->chunk_rows ? (uint32_t)left : nobody->chunk_rows;
    for (uint32_t i = 0; i < rows; i++) { /* columns 0-3 and 4 are this node's */
        nobody->z[first + i] = values[i] + values[rows + i];
    }
    return learner_regression.finish(nobody->learner, step, chunk, rows, nobody->z + first,
                                     nobody->residual + first, nobody->losses + first / 2048, err);
}

static int pull(void *context, uint64_t step, uint32_t chunk, const float **ret_residual,
                const double **ret_panel_losses, uint32_t *ret_directive, struct err *err)
{
    struct nobody *nobody = context;
    ASSERT(step == nobody->step); /* Check's own assertions allocate */
    ASSERT((nobody->pushed & (1U << chunk)) != 0);
    ASSERT((nobody->pulled & (1U << chunk)) == 0);
    nobody->pulled |= 1U << chunk;
    if (step == nobody->fail_step) {
        return err_set(err, ERR_PEER, "node b is gone");
    }
    *ret_residual = nobody->residual + (size_t)chunk * nobody->chunk_rows;
    *ret_panel_losses = nobody->losses + (size_t)chunk * nobody->chunk_rows / 2048;
    *ret_directive = chunk == 0 && step == nobody->directive_step ? 5 : 0;
    return 0;
}

/* -- a learner and its session ------------------------------------------------------------------
 */

struct rig {
    struct learn_settings settings;
    struct learner *learner;
    struct session *session;
    struct nobody nobody;
    struct learn_exchange exchange;
};

static struct rig rig;

static void make_rig(uint32_t participants, uint64_t batch)
{
    static const uint64_t bounds_of[3][3] = {{0}, {0, COLUMNS}, {0, 5, COLUMNS}};
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        x[i] = (float)((double)((i * 2654435761U) % 2001) / 1000.0 - 1.0);
    }
    for (size_t i = 0; i < ROWS; i++) {
        targets[i] = (double)(i % 5) - 2.0;
    }
    memset(&rig, 0, sizeof(rig));
    struct err err = {0};
    rig.settings = (struct learn_settings){.columns = COLUMNS,
                                           .rate = 0.01,
                                           .decay = 0.9,
                                           .l2 = 0.5,
                                           .participants = participants,
                                           .bounds = bounds_of[participants],
                                           .entries = bounds_of[participants][1] * ROWS,
                                           .targets = targets};
    ck_assert_int_eq(
        learn_schedule_init(&rig.settings.schedule, ROWS, batch, 20, participants, &err), 0);
    ck_assert_msg(learner_regression.make(&rig.settings, &rig.learner, &err) == 0, "%s", err.text);
    struct session_settings cpu = {.device = "cpu", .threads = 2};
    struct session_plan plan;
    learner_regression.plan(rig.learner, 0, &plan);
    struct session_matrix matrix = {
        .rows = ROWS, .columns = session_plan_columns(&plan), .dense = x, .stride = ROWS};
    struct session_seed seed = {.matrix = &matrix, .targets = plan.whole ? targets : NULL};
    ck_assert_int_eq(session_new(&cpu, NULL, &rig.session, &err), 0);
    ck_assert_int_eq(session_admit(rig.session, &plan, &err), 0);
    ck_assert_int_eq(session_bind(rig.session, &err), 0);
    ck_assert_int_eq(session_load(rig.session, &err), 0);
    ck_assert_int_eq(session_certify(rig.session, &err), 0);
    ck_assert_msg(session_seed(rig.session, &seed, &err) == 0, "%s", err.text);
    rig.nobody = (struct nobody){
        .learner = rig.learner, .directive_step = UINT64_MAX, .fail_step = UINT64_MAX};
    rig.exchange =
        (struct learn_exchange){.context = &rig.nobody, .begin = begin, .push = push, .pull = pull};
}

static void drop_rig(void)
{
    session_free(rig.session);
    learner_regression.free(rig.learner);
}

static int run(uint64_t first, uint64_t count, uint64_t *done, uint32_t *directive, struct err *err)
{
    const struct learn_exchange *exchange = rig.settings.participants > 1 ? &rig.exchange : NULL;
    return learner_regression.run(rig.learner, rig.session, exchange, first, count, NULL, NULL,
                                  done, directive, err);
}

START_TEST(a_step_does_not_allocate)
{
    if (__sanitizer_install_malloc_and_free_hooks == NULL) {
        return; /* counted in the builds with a sanitizer */
    }
    for (uint32_t participants = 1; participants <= 2; participants++) {
        make_rig(participants, 3000);
        uint64_t done = 0;
        uint32_t directive = 0;
        ck_assert_int_eq(run(0, 1, &done, &directive, NULL), 0); /* threads have begun */
        static bool installed;
        if (!installed) {
            installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) > 0;
            void *volatile probe = malloc(1);
            free(probe);
            ck_assert(atomic_load(&allocations) > 0); /* the hook works */
        }
        atomic_store(&allocations, 0);
        int code = run(1, 10, &done, &directive, NULL);
        unsigned long long counted = atomic_load(&allocations);
        ck_assert_int_eq(code, 0);
        ck_assert_uint_eq(done, 10);
        ck_assert_uint_eq(counted, 0);
        drop_rig();
    }
}
END_TEST

START_TEST(a_directive_ends_the_run_after_its_step_and_is_told)
{
    make_rig(2, 3000);
    rig.nobody.directive_step = 3;
    uint64_t done = 0;
    uint32_t directive = 0;
    ck_assert_int_eq(run(0, 20, &done, &directive, NULL), 0);
    ck_assert_uint_eq(done, 4);
    ck_assert_uint_eq(directive, 5);
    ck_assert_uint_eq(session_issues(rig.session),
                      learner_regression.issues(rig.learner, 0, 4, false));
    ck_assert_int_eq(run(4, 20, &done, &directive, NULL), 0);
    ck_assert_uint_eq(done, 16); /* to the schedule's end, not beyond */
    ck_assert_uint_eq(directive, 0);
    drop_rig();
}
END_TEST

START_TEST(a_lost_peer_ends_the_run_with_its_sentence)
{
    make_rig(2, 3000);
    rig.nobody.fail_step = 2;
    uint64_t done = 0;
    uint32_t directive = 0;
    struct err err = {0};
    ck_assert_int_eq(run(0, 20, &done, &directive, &err), ERR_PEER);
    ck_assert_str_eq(err.text, "node b is gone");
    ck_assert_uint_eq(done, 2);
    drop_rig();
}
END_TEST

START_TEST(an_evaluation_goes_once_over_all_rows_and_ends_captured)
{
    make_rig(2, 3000);
    uint64_t done = 0;
    uint32_t directive = 0;
    double objective = 0.0;
    struct err err = {0};
    ck_assert_int_eq(run(0, 20, &done, &directive, NULL), 0);
    rig.nobody.begins = 0;
    ck_assert_msg(
        learner_regression.evaluate(rig.learner, rig.session, &rig.exchange, &objective, &err) == 0,
        "%s", err.text);
    /* the windows, and the penalty's row */
    ck_assert_uint_eq(rig.nobody.begins, rig.settings.schedule.windows_count + 1);
    ck_assert(objective > 0.0);
    ck_assert_uint_eq(session_issues(rig.session),
                      learner_regression.issues(rig.learner, 0, 20, true));
    double state[2 * COLUMNS];
    ck_assert_int_eq(session_capture_read(rig.session, state, state + COLUMNS, &err), 0);
    drop_rig();
}
END_TEST

START_TEST(a_residual_out_of_range_is_named_by_its_owner)
{
    make_rig(2, 3000);
    static double z[2048];
    static float residual[2048];
    double losses[1];
    struct err err = {0};
    z[1000] = 1e39;
    /* Step 1 is the second batch, chunk 0 its rows 3000 … */
    ck_assert_int_eq(learner_regression.finish(rig.learner, 1, 0, 2048, z, residual, losses, &err),
                     ERR_DIVERGED);
    ck_assert_str_eq(err.text, "step 1: the residual of training row 4000 left the range of "
                               "binary32; give a smaller rate");
    z[1000] = (double)NAN;
    ck_assert_int_eq(learner_regression.finish(rig.learner, 1, 0, 2048, z, residual, losses, &err),
                     ERR_DIVERGED);
    drop_rig();
}
END_TEST

START_TEST(a_prediction_out_of_range_names_its_row)
{
    static float column[3000];
    column[2999] = 3e38F;
    struct session_matrix matrix = {.rows = 3000, .columns = 1, .dense = column, .stride = 3000};
    struct session_settings cpu = {.device = "cpu", .threads = 1};
    double parameter[1] = {100.0};
    static double prediction[3000];
    struct err err = {0};
    ck_assert_int_eq(learn_predict(&cpu, &matrix, false, parameter, prediction, &err),
                     ERR_DIVERGED);
    ck_assert_str_eq(err.text, "the prediction of row 2999 left the range of binary32 products");
}
END_TEST

START_TEST(the_environment_forces_an_instruction_set)
{
    ck_assert_int_eq(setenv("COPPELIUS_CPU", "plain", 1), 0);
    make_rig(1, 0);
    ck_assert_str_eq(session_binding(rig.session)->device, "cpu (plain, 2 threads)");
    drop_rig();
    (void)unsetenv("COPPELIUS_CPU");
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("regression");
    TCase *tcase = tcase_create("regression");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_step_does_not_allocate);
    tcase_add_test(tcase, a_directive_ends_the_run_after_its_step_and_is_told);
    tcase_add_test(tcase, a_lost_peer_ends_the_run_with_its_sentence);
    tcase_add_test(tcase, an_evaluation_goes_once_over_all_rows_and_ends_captured);
    tcase_add_test(tcase, a_residual_out_of_range_is_named_by_its_owner);
    tcase_add_test(tcase, a_prediction_out_of_range_names_its_row);
    tcase_add_test(tcase, the_environment_forces_an_instruction_set);
    suite_add_tcase(suite, tcase);
    return suite;
}
