#include "learn/learn.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "numerics/dyadic.h"
#include "numerics/lane.h"
#include "numerics/nodes.h"
#include "numerics/squared.h"

/* Squared loss, momentum. Immutable after make but for `state`, which only the compute thread uses.
 */
struct learner {
    struct learn_settings settings;
    uint64_t bounds[LEARN_PARTICIPANTS_MAX + 1];
    struct node nodes[NODES_MAX]; /* of this rank */
    size_t nodes_count;
    uint64_t coordinates; /* of this rank */
    double *state;        /* parameter, then accumulator: for the penalty */
};

static bool has_intercept(const struct learner *learner)
{
    const struct learn_settings *settings = &learner->settings;
    return settings->intercept && settings->rank + 1 == settings->participants;
}

/* Whether evaluation ends with the step that folds the squared parameters. */
static bool folds_penalty(const struct learner *learner)
{
    return learner->settings.participants > 1 && learner->settings.l2 != 0.0;
}

/* -- make -------------------------------------------------------------------------------------- */

static int check_settings(const struct learn_settings *settings, struct err *err)
{
    if (settings->participants == 0 || settings->participants > LEARN_PARTICIPANTS_MAX ||
        settings->rank >= settings->participants) {
        return err_set(err, ERR_JOB, "rank %u of %u participants", settings->rank,
                       settings->participants);
    }
    uint64_t coordinates = settings->columns + (settings->intercept ? 1 : 0);
    bool in_order =
        settings->bounds[0] == 0 && settings->bounds[settings->participants] == coordinates;
    for (uint32_t p = 0; p < settings->participants; p++) {
        in_order = in_order && settings->bounds[p] < settings->bounds[p + 1];
    }
    if (!in_order) {
        return err_set(err, ERR_JOB, "the partition does not cover %llu coordinates in order",
                       (unsigned long long)coordinates);
    }
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"rate", settings->rate}, {"decay", settings->decay}, {"l2", settings->l2}};
    for (size_t i = 0; i < 3; i++) {
        if (!finite64(numbers[i].value) || numbers[i].value < 0.0) {
            return err_set(err, ERR_JOB, "%s = %g; give a finite number that is not negative",
                           numbers[i].name, numbers[i].value);
        }
    }
    for (uint64_t i = 0; i < settings->schedule.rows; i++) {
        if (!finite64(settings->targets[i])) {
            return err_set(err, ERR_DATA, "the target of training row %llu is not finite",
                           (unsigned long long)i);
        }
    }
    return 0;
}

static void regression_free(struct learner *learner)
{
    if (learner != NULL) {
        free(learner->state);
        free(learner);
    }
}

static int regression_make(const struct learn_settings *settings, struct learner **ret_learner,
                           struct err *err)
{
    int code = check_settings(settings, err);
    if (code != 0) {
        return code;
    }
    struct learner *learner = calloc(1, sizeof(*learner));
    if (learner == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a learner");
    }
    learner->settings = *settings;
    memcpy(learner->bounds, settings->bounds,
           ((size_t)settings->participants + 1) * sizeof(uint64_t));
    learner->settings.bounds = learner->bounds;
    uint64_t first = learner->bounds[settings->rank];
    uint64_t end = learner->bounds[settings->rank + 1];
    learner->coordinates = end - first;
    learner->nodes_count = nodes_cover(first, end, learner->nodes);
    learner->state = calloc(2 * (size_t)learner->coordinates, sizeof(double));
    if (learner->state == NULL) {
        regression_free(learner);
        return err_set(err, ERR_NOMEM, "no memory for %llu coordinates",
                       (unsigned long long)(end - first));
    }
    *ret_learner = learner;
    return 0;
}

/* -- issues -------------------------------------------------------------------------------------
 */

/* Chunks of all training steps before `step`: only the last batch of a pass is another length. */
static uint64_t chunks_before(const struct learn_schedule *schedule, uint64_t step)
{
    uint64_t full = learn_chunks_count(schedule, 0);
    uint64_t last = (schedule->rows - (schedule->batches_count - 1) * schedule->batch_rows +
                     schedule->chunk_rows - 1) /
                    schedule->chunk_rows;
    uint64_t pass = (schedule->batches_count - 1) * full + last;
    return step / schedule->batches_count * pass + step % schedule->batches_count * full;
}

static uint64_t regression_issues(const struct learner *learner, uint64_t first_step,
                                  uint64_t end_step, bool evaluated)
{
    const struct learn_schedule *schedule = &learner->settings.schedule;
    ASSERT(first_step <= end_step);
    ASSERT(end_step <= schedule->steps);
    if (learner->settings.participants == 1) { /* a step is one issue, and so is a window */
        uint64_t windows = evaluated ? schedule->windows_count : 0;
        uint64_t steps = end_step - first_step;
        return steps > UINT64_MAX - windows ? UINT64_MAX : steps + windows;
    }
    if (end_step > UINT64_MAX / 4 / (schedule->chunks_max + 1)) {
        return UINT64_MAX;
    }
    uint64_t chunks = chunks_before(schedule, end_step) - chunks_before(schedule, first_step);
    uint64_t issues = 2 * chunks + (end_step - first_step);
    if (evaluated) { /* windows are whole chunks but for the last one */
        issues += (schedule->rows + schedule->chunk_rows - 1) / schedule->chunk_rows;
    }
    return issues;
}

static void regression_plan(const struct learner *learner, uint64_t first_step,
                            struct session_plan *ret_plan)
{
    const struct learn_settings *settings = &learner->settings;
    *ret_plan = (struct session_plan){
        .coordinate_first = learner->bounds[settings->rank],
        .coordinate_end = learner->bounds[settings->rank + 1],
        .intercept = has_intercept(learner),
        .whole = settings->participants == 1,
        .storage = settings->storage,
        .rows = settings->schedule.rows,
        .entries = settings->entries,
        .batch_rows = settings->schedule.batch_rows,
        .chunk_rows = settings->schedule.chunk_rows,
        .issues_max = regression_issues(learner, first_step, settings->schedule.steps, true),
    };
}

/* -- steps ---------------------------------------------------------------------------------------
 */

/* Where a step's time goes. */
struct stopwatch {
    uint64_t at;
    struct learn_report *report;
};

static void begin_time(struct stopwatch *watch, struct learn_report *report)
{
    watch->report = report;
    watch->at = clock_now_ns();
}

/* The time since the last call was spent in the session, or waiting for others. */
static void spend(struct stopwatch *watch, bool exchange)
{
    uint64_t now = clock_now_ns();
    if (exchange) {
        watch->report->exchange_ns += now - watch->at;
    } else {
        watch->report->compute_ns += now - watch->at;
    }
    watch->at = now;
}

/* Forward of all chunks, each pushed as soon as it is there. */
static int push_forwards(const struct learner *learner, struct session *session,
                         const struct learn_exchange *exchange, const struct session_batch *batch,
                         struct stopwatch *watch, struct err *err)
{
    const struct learn_schedule *schedule = &learner->settings.schedule;
    uint32_t chunks = learn_chunks_count(schedule, batch->step);
    uint32_t ahead = session_lookahead(session);
    uint32_t enqueued = 0;
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        while (enqueued < chunks && enqueued - chunk <= ahead) {
            int code = session_forward(session, enqueued, err);
            if (code != 0) {
                return code;
            }
            enqueued++;
        }
        const double *values = NULL;
        int code = session_forward_wait(session, chunk, &values, err);
        spend(watch, false);
        if (code == 0) {
            code = exchange->push(exchange->context, batch->step, chunk, values, err);
        }
        spend(watch, true);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

/* The answers in chunk order; losses go to the dyadic sum, residuals to backward (training). */
static int pull_answers(const struct learner *learner, struct session *session,
                        const struct learn_exchange *exchange, const struct session_batch *batch,
                        struct dyadic *losses, struct stopwatch *watch, struct err *err)
{
    const struct learn_schedule *schedule = &learner->settings.schedule;
    uint32_t chunks = learn_chunks_count(schedule, batch->step);
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        const float *residual = NULL;
        const double *panel_losses = NULL;
        uint32_t directive = 0;
        int code = exchange->pull(exchange->context, batch->step, chunk, &residual, &panel_losses,
                                  &directive, err);
        spend(watch, true);
        if (code != 0) {
            return code;
        }
        size_t panels = panels_of(learn_chunk_rows(schedule, batch->step, chunk));
        for (size_t p = 0; p < panels; p++) {
            dyadic_add(losses, panel_losses[p]);
        }
        if (chunk == 0) {
            watch->report->directive = directive;
        }
        if (!batch->evaluate) {
            code = session_backward(session, chunk, residual, err);
            spend(watch, false);
            if (code != 0) {
                return code;
            }
        }
    }
    return 0;
}

static struct session_hyper hyper_of(const struct learner *learner)
{
    return (struct session_hyper){.rate = learner->settings.rate,
                                  .decay = learner->settings.decay,
                                  .l2 = learner->settings.l2};
}

/* A step, or an evaluation window, between nodes. */
static int exchanged_step(const struct learner *learner, struct session *session,
                          const struct learn_exchange *exchange, const struct session_batch *batch,
                          struct dyadic *losses, struct learn_report *report, struct err *err)
{
    struct stopwatch watch;
    begin_time(&watch, report);
    int code = exchange->begin(exchange->context, batch->step, batch->rows_count,
                               learner->settings.schedule.chunk_rows, err);
    if (code == 0) {
        code = session_step_begin(session, batch, err);
    }
    if (code == 0) {
        code = push_forwards(learner, session, exchange, batch, &watch, err);
    }
    if (code == 0) {
        code = pull_answers(learner, session, exchange, batch, losses, &watch, err);
    }
    if (code == 0 && !batch->evaluate) {
        struct session_hyper hyper = hyper_of(learner);
        code = session_update(session, &hyper, err);
    }
    if (code == 0) {
        code = session_step_end(session, err);
    }
    spend(&watch, false);
    return code;
}

/* The loss of a batch or of all rows, from the panels' losses in dyadic order. */
static int mean_loss(const struct dyadic *losses, uint64_t step, uint64_t rows, double *ret_loss,
                     struct err *err)
{
    double loss = canon(dyadic_root(losses)) / (double)rows;
    if (!finite64(loss)) {
        return err_set(err, ERR_DIVERGED, "step %llu: the loss is not finite; give a smaller rate",
                       (unsigned long long)step);
    }
    *ret_loss = loss;
    return 0;
}

/* Waits for the oldest local step in flight. */
static int collect_local(struct session *session, struct dyadic *losses, struct err *err)
{
    const double *panel_losses = NULL;
    size_t panels = 0;
    int code = session_local_wait(session, &panel_losses, &panels, err);
    for (size_t p = 0; code == 0 && p < panels; p++) {
        dyadic_add(losses, panel_losses[p]);
    }
    return code;
}

static int run_local(const struct learner *learner, struct session *session, uint64_t first_step,
                     uint64_t end_step, learn_report_fn *on_report, void *context,
                     uint64_t *ret_done, struct err *err)
{
    const struct learn_schedule *schedule = &learner->settings.schedule;
    struct session_hyper hyper = hyper_of(learner);
    unsigned depth = session_local_depth(session);
    uint64_t enqueued = first_step;
    for (uint64_t step = first_step; step < end_step; step++) {
        struct learn_report report = {.step = step};
        struct stopwatch watch;
        begin_time(&watch, &report);
        struct session_batch batch;
        while (enqueued < end_step && enqueued - step < depth) {
            learn_batch(schedule, enqueued, &batch);
            int code = session_local_step(session, &batch, &hyper, err);
            if (code != 0) {
                return code;
            }
            enqueued++;
        }
        struct dyadic losses;
        dyadic_start(&losses);
        learn_batch(schedule, step, &batch);
        int code = collect_local(session, &losses, err);
        if (code == 0) {
            code = mean_loss(&losses, step, batch.rows_count, &report.loss, err);
        }
        if (code != 0) {
            return code;
        }
        spend(&watch, false);
        *ret_done += 1;
        if (on_report != NULL) {
            on_report(context, &report);
        }
    }
    return 0;
}

static int run_exchanged(const struct learner *learner, struct session *session,
                         const struct learn_exchange *exchange, uint64_t first_step,
                         uint64_t end_step, learn_report_fn *on_report, void *context,
                         uint64_t *ret_done, uint32_t *ret_directive, struct err *err)
{
    for (uint64_t step = first_step; step < end_step && *ret_directive == 0; step++) {
        struct learn_report report = {.step = step};
        struct session_batch batch;
        learn_batch(&learner->settings.schedule, step, &batch);
        struct dyadic losses;
        dyadic_start(&losses);
        int code = exchanged_step(learner, session, exchange, &batch, &losses, &report, err);
        if (code == 0) {
            code = mean_loss(&losses, step, batch.rows_count, &report.loss, err);
        }
        if (code != 0) {
            return code;
        }
        *ret_done += 1;
        *ret_directive = report.directive;
        if (on_report != NULL) {
            on_report(context, &report);
        }
    }
    return 0;
}

static int regression_run(struct learner *learner, struct session *session,
                          const struct learn_exchange *exchange, uint64_t first_step,
                          uint64_t steps_count, learn_report_fn *on_report, void *context,
                          uint64_t *ret_done, uint32_t *ret_directive, struct err *err)
{
    ASSERT((exchange == NULL) == (learner->settings.participants == 1));
    ASSERT(first_step <= learner->settings.schedule.steps);
    uint64_t left = learner->settings.schedule.steps - first_step;
    uint64_t end_step = first_step + (steps_count < left ? steps_count : left);
    uint64_t done = 0;
    uint32_t directive = 0;
    int code = exchange == NULL ? run_local(learner, session, first_step, end_step, on_report,
                                            context, &done, err)
                                : run_exchanged(learner, session, exchange, first_step, end_step,
                                                on_report, context, &done, &directive, err);
    *ret_done = done;
    *ret_directive = directive;
    return code;
}

/* -- evaluation ----------------------------------------------------------------------------------
 */

static int evaluate_window(const struct learner *learner, struct session *session,
                           const struct learn_exchange *exchange, uint64_t step,
                           struct dyadic *losses, struct err *err)
{
    struct session_batch batch;
    learn_batch(&learner->settings.schedule, step, &batch);
    if (exchange != NULL) {
        struct learn_report report = {.step = step};
        return exchanged_step(learner, session, exchange, &batch, losses, &report, err);
    }
    struct session_hyper hyper = hyper_of(learner);
    int code = session_local_step(session, &batch, &hyper, err);
    return code != 0 ? code : collect_local(session, losses, err);
}

/* The dyadic sum of the squares of coordinates first .. end-1 of the index line; the intercept's
 * square is left out as +0.0. */
static double squares(const struct learner *learner, uint64_t first, uint64_t end)
{
    uint64_t base = learner->bounds[learner->settings.rank];
    struct dyadic sum;
    dyadic_start(&sum);
    for (uint64_t at = first; at < end; at++) {
        double w = learner->state[at - base];
        double square = at < learner->settings.columns ? w * w : 0.0;
        dyadic_add(&sum, square);
    }
    return dyadic_root(&sum);
}

/* 0.5 * l2 * sum of w^2 over all nodes; every participant gets the same number. */
static int penalty_of(struct learner *learner, struct session *session,
                      const struct learn_exchange *exchange, double *ret_penalty, struct err *err)
{
    const struct learn_schedule *schedule = &learner->settings.schedule;
    int code = session_capture(session, err);
    if (code == 0) {
        code = session_capture_read(session, learner->state, learner->state + learner->coordinates,
                                    err);
    }
    if (code != 0) {
        return code;
    }
    double sum = 0.0;
    if (exchange == NULL) {
        sum = canon(squares(learner, learner->bounds[0], learner->bounds[1]));
    } else if (folds_penalty(learner)) {
        double values[NODES_MAX];
        for (size_t n = 0; n < learner->nodes_count; n++) {
            values[n] =
                squares(learner, node_first(learner->nodes[n]), node_end(learner->nodes[n]));
        }
        uint64_t step = schedule->steps + schedule->windows_count;
        const float *residual = NULL;
        const double *panel_losses = NULL;
        uint32_t directive = 0;
        code = exchange->begin(exchange->context, step, 1, schedule->chunk_rows, err);
        if (code == 0) {
            code = exchange->push(exchange->context, step, 0, values, err);
        }
        if (code == 0) {
            code = exchange->pull(exchange->context, step, 0, &residual, &panel_losses, &directive,
                                  err);
        }
        if (code != 0) {
            return code;
        }
        sum = panel_losses[0];
    }
    double half = 0.5 * learner->settings.l2;
    *ret_penalty = half * sum;
    return 0;
}

static int regression_evaluate(struct learner *learner, struct session *session,
                               const struct learn_exchange *exchange, double *ret_objective,
                               struct err *err)
{
    ASSERT((exchange == NULL) == (learner->settings.participants == 1));
    const struct learn_schedule *schedule = &learner->settings.schedule;
    struct dyadic losses;
    dyadic_start(&losses);
    for (uint64_t w = 0; w < schedule->windows_count; w++) {
        int code = evaluate_window(learner, session, exchange, schedule->steps + w, &losses, err);
        if (code != 0) {
            return code;
        }
    }
    double loss = 0.0;
    double penalty = 0.0;
    int code = mean_loss(&losses, schedule->steps, schedule->rows, &loss, err);
    if (code == 0) {
        code = penalty_of(learner, session, exchange, &penalty, err);
    }
    if (code == 0) {
        *ret_objective = loss + penalty;
    }
    return code;
}

/* -- what the owner of a chunk does ---------------------------------------------------------------
 */

/* One panel: residuals in binary32, and the lane sum of the losses. Returns 0, or 1 + the first row
 * whose residual is not finite. */
static size_t finish_panel(const double *z, const double *targets, size_t rows, float *residual,
                           double *ret_loss)
{
    double lanes[PANEL_LANES] = {0.0};
    float worst = 0.0F;
    for (size_t at = 0; at < rows; at += PANEL_LANES) {
        size_t size = rows - at < PANEL_LANES ? rows - at : PANEL_LANES;
        for (size_t lane = 0; lane < size; lane++) {
            double r = squared_residual(z[at + lane], targets[at + lane]);
            float r32 = rn32(r);
            residual[at + lane] = r32;
            lanes[lane] += squared_loss(r);
            worst += r32 - r32; /* NaN as soon as one is not finite */
        }
    }
    *ret_loss = lanes_root(lanes);
    size_t bad = 0;
    while (!finite32(worst) && finite32(residual[bad])) {
        bad++;
    }
    return finite32(worst) ? 0 : bad + 1;
}

static int regression_finish(const struct learner *learner, uint64_t step, uint32_t chunk,
                             uint32_t rows, const double *z, float *residual, double *panel_losses,
                             struct err *err)
{
    const struct learn_schedule *schedule = &learner->settings.schedule;
    if (step == schedule->steps + schedule->windows_count) { /* the penalty's sum */
        residual[0] = 0.0F;
        panel_losses[0] = z[0];
        return 0;
    }
    struct session_batch batch;
    learn_batch(schedule, step, &batch);
    uint64_t first = batch.row_first + (uint64_t)chunk * schedule->chunk_rows;
    ASSERT(first + rows <= schedule->rows);
    const double *targets = learner->settings.targets + first;
    for (uint32_t at = 0; at < rows; at += PANEL_ROWS) {
        uint32_t size = rows - at < PANEL_ROWS ? rows - at : PANEL_ROWS;
        size_t bad =
            finish_panel(z + at, targets + at, size, residual + at, &panel_losses[at / PANEL_ROWS]);
        if (bad != 0) {
            return err_set(err, ERR_DIVERGED,
                           "step %llu: the residual of training row %llu left the range of "
                           "binary32; give a smaller rate",
                           (unsigned long long)step, (unsigned long long)(first + at + bad - 1));
        }
    }
    return 0;
}

const struct learner_ops learner_regression = {
    .kind = "regression",
    .policy = NUMERICS_POLICY_F32_F64,
    .make = regression_make,
    .free = regression_free,
    .plan = regression_plan,
    .run = regression_run,
    .evaluate = regression_evaluate,
    .finish = regression_finish,
    .issues = regression_issues,
};

const struct learner_ops *learner_find(const char *kind)
{
    return strcmp(kind, learner_regression.kind) == 0 ? &learner_regression : NULL;
}
