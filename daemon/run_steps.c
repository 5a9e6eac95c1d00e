/* A run's steps on the compute thread: reports, captures, the directive's word, the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/run_compute.h"

void compute_progress(struct compute *c, bool must)
{
    struct run_progress *said = &c->progress;
    uint64_t now = clock_now_ns();
    if (!must && now - c->told_ns < 50000000U) {
        return;
    }
    while (must && !atomic_load(&said->taken) && !atomic_load(&c->run->cancel)) {
        (void)usleep(500); /* The last word: the loop is about to read the one before. */
    }
    if (!atomic_load(&said->taken)) {
        return; /* The loop has not read the last one: this goes with the next. */
    }
    c->told_ns = now;
    said->step = c->step;
    said->steps_done = c->step - c->steps_told;
    said->rows_done = c->rows - c->rows_told;
    c->steps_told = c->step;
    c->rows_told = c->rows;
    said->loss = c->loss;
    said->elapsed_ns = now - c->started_ns;
    said->compute_ns = c->compute_ns;
    said->exchange_ns = c->exchange_ns;
    said->publication_ns = c->publication_ns;
    said->rows = c->rows;
    said->issues = session_issues(c->session);
    said->stepped_ms = c->stepped_ms;
    said->points_count = c->points_count;
    memcpy(said->points, c->points, c->points_count * sizeof(c->points[0]));
    c->points_count = 0;
    memcpy(said->phases, c->phases, sizeof(said->phases));
    for (unsigned i = 0; i < FACTS_PHASES; i++) {
        c->phases[i] = (struct histogram)HISTOGRAM_STEP;
    }
    atomic_store(&said->taken, false);
    compute_tell(c, &said->message, RUN_MAIL_PROGRESS);
}

/* Keeps at most RUN_POINTS_MAX points between two reports: every stride-th step. */
static void keep_point(struct compute *c, uint64_t step, double loss)
{
    if (c->points_count == 0 && c->points_stride > 1) {
        c->points_stride /= 2;
    }
    if (step % c->points_stride != 0 && step != c->first_step) {
        return;
    }
    if (c->points_count == RUN_POINTS_MAX) {
        c->points_stride *= 2;
        size_t kept = 0;
        for (size_t i = 0; i < c->points_count; i += 2) {
            c->points[kept++] = c->points[i];
        }
        c->points_count = kept;
    }
    c->points[c->points_count++] = (struct facts_point){step + 1, loss};
}

static void on_report(void *context, const struct learn_report *report)
{
    struct compute *c = context;
    struct session_batch batch;
    learn_batch(&c->schedule, report->step, &batch);
    c->step = report->step + 1;
    c->stepped_ms = clock_now_ms();
    c->loss = report->loss;
    c->has_loss = true;
    c->rows += batch.rows_count;
    c->compute_ns += report->compute_ns;
    c->exchange_ns += report->exchange_ns;
    atomic_fetch_add(&c->run->ticks, 1);
    histogram_observe(&c->phases[FACTS_PHASE_COMPUTE], (double)report->compute_ns * 1e-9);
    histogram_observe(&c->phases[FACTS_PHASE_EXCHANGE], (double)report->exchange_ns * 1e-9);
    keep_point(c, report->step, report->loss);
    losses_put(&c->losses, c->step, report->loss);
    compute_progress(c, false);
}

/* Names beyond this make no header that a reader would take (SHARD_HEADER_SIZE_MAX, as JSON in
 * JSON); such a shard goes without. */
#define NAMES_SIZE_MAX (SHARD_HEADER_SIZE_MAX / 8)

/* Made once a run: a capture is to cost the copy of the state and nothing more. */
static struct capture_names *column_names(struct compute *c, uint64_t first, uint64_t end)
{
    const struct dataset_info *info = dataset_info_of(c->dataset);
    uint64_t size = 0;
    for (uint64_t j = first; j < end && size <= NAMES_SIZE_MAX; j++) {
        size += 8 + (j < info->features ? strlen(dataset_name(c->dataset, j)) : 16);
    }
    if (size > NAMES_SIZE_MAX) {
        return NULL;
    }
    struct capture_names *made = calloc(1, sizeof(*made) + (end - first) * sizeof(made->names[0]));
    ASSERT(made != NULL);
    atomic_store(&made->holders, 1);
    made->count = end - first;
    for (uint64_t j = first; j < end; j++) {
        const char *name = j < info->features ? dataset_name(c->dataset, j) : "(intercept)";
        made->names[j - first] = strdup(name);
        ASSERT(made->names[j - first] != NULL);
    }
    return made;
}

/* mean and scale of the range's coordinates; the intercept's are 0 and 1. */
static double *extended(const double *values, uint64_t columns, uint64_t count, double last)
{
    double *all = calloc(count, sizeof(*all));
    for (uint64_t j = 0; all != NULL && j < count; j++) {
        all[j] = j < columns ? values[j] : last;
    }
    return all;
}

static struct capture *make_capture(struct compute *c, bool ends)
{
    const struct run *run = c->run;
    const struct dataset_info *info = dataset_info_of(c->dataset);
    uint64_t first = c->load->bounds[c->load->rank];
    uint64_t end = c->load->bounds[c->load->rank + 1];
    uint64_t columns = c->block.end - c->block.first;
    struct capture *capture = calloc(1, sizeof(*capture));
    if (capture == NULL) {
        return NULL;
    }
    capture->holders = 1;
    capture->job = run->job;
    capture->generation = run->generation;
    capture->step = c->step;
    capture->ends = ends;
    capture->whole = c->load->participants == 1;
    capture->first = c->load->rank == 0;
    capture->loss = c->loss;
    capture->losses = c->losses;
    capture->has_loss = c->has_loss;
    capture->count = end - first;
    capture->parameter = capture_vector(capture->count);
    capture->accumulator = capture_vector(capture->count);
    if (!c->names_made) {
        c->names_made = true;
        c->names = column_names(c, first, end);
    }
    if (c->names != NULL) {
        atomic_fetch_add(&c->names->holders, 1);
        capture->names = c->names;
    }
    if (run->spec.data.standardize) {
        capture->mean = extended(c->block.mean, columns, capture->count, 0.0);
        capture->scale = extended(c->block.scale, columns, capture->count, 1.0);
    }
    if (capture->parameter == NULL || capture->accumulator == NULL ||
        (run->spec.data.standardize && (capture->mean == NULL || capture->scale == NULL))) {
        capture_drop(capture);
        return NULL;
    }
    struct shard_about *about = &capture->content.about;
    (void)snprintf(about->job, sizeof(about->job), "%s", run->name);
    (void)snprintf(about->node, sizeof(about->node), "%s", run->daemon->name);
    (void)snprintf(about->policy, sizeof(about->policy), "%s", job_policy(&run->spec));
    memcpy(about->identity, c->load->identity, SHA256_SIZE);
    about->step = c->step;
    about->generation = run->generation;
    about->rank = c->load->rank;
    about->ranks = c->load->participants;
    about->first = first;
    about->end = end;
    about->coordinates = info->features + (run->spec.model.intercept ? 1 : 0);
    capture->content.parameter = capture->parameter;
    capture->content.accumulator = capture->accumulator;
    capture->content.mean = capture->mean;
    capture->content.scale = capture->scale;
    capture->content.losses = &capture->losses;
    capture->content.columns =
        capture->names != NULL ? (const char *const *)capture->names->names : NULL;
    return capture;
}

/* Waits until the capture before is decided: at most one is out. */
static int await_slot(struct compute *c, struct err *err)
{
    uint64_t start = clock_now_ns();
    while (c->slot_used) {
        if (compute_await(c, RUN_MAIL_NEXT, err) == NULL) {
            return err->code;
        }
    }
    c->publication_ns += clock_now_ns() - start;
    return 0;
}

/* Copies the state aside on the device, reads the copy, hands it to the loop. */
static int take_capture(struct compute *c, bool ends, struct capture **ret_capture, struct err *err)
{
    if (await_slot(c, err) != 0) {
        return err->code;
    }
    uint64_t start = clock_now_ns();
    struct capture *made = make_capture(c, ends);
    if (made == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a capture of %llu coordinates",
                       (unsigned long long)(c->load->bounds[c->load->rank + 1] -
                                            c->load->bounds[c->load->rank]));
    }
    if (session_capture(c->session, err) != 0 ||
        session_capture_read(c->session, made->parameter, made->accumulator, err) != 0) {
        capture_drop(made);
        return err->code;
    }
    uint64_t spent = clock_now_ns() - start;
    c->publication_ns += spent;
    histogram_observe(&c->phases[FACTS_PHASE_PUBLICATION], (double)spent * 1e-9);
    *ret_capture = made;
    return 0;
}

static int hand_over(struct compute *c, struct capture *made, struct err *err)
{
    struct run_captured *said = calloc(1, sizeof(*said));
    if (said == NULL) {
        capture_drop(made);
        return err_set(err, ERR_NOMEM, "no memory");
    }
    said->capture = made;
    c->slot_used = true;
    compute_tell(c, &said->message, RUN_MAIL_CAPTURED);
    return 0;
}

/* The end of the device's part: read back with the counter's check, release. Only then may the
 * capture be published. */
static int close_session(struct compute *c, bool evaluated, struct err *err)
{
    struct run *run = c->run;
    char path[FOLDER_PATH_SIZE];
    char folder[FOLDER_PATH_SIZE];
    uint64_t expected = run->ops->issues(c->learner, c->first_step, c->step, evaluated);
    (void)snprintf(folder, sizeof(folder), "jobs/%llu-%s", (unsigned long long)run->job, run->name);
    (void)snprintf(path, sizeof(path), "%s/readback-g%llu.bin", folder,
                   (unsigned long long)run->generation);
    if (fs_mkdir_all(run->daemon->fs, folder, err) != 0 ||
        session_read_back(c->session, run->daemon->fs, path, expected, err) != 0 ||
        session_release(c->session, err) != 0) {
        return err->code;
    }
    if (session_state(c->session) != SESSION_RELEASED) {
        return err_set(err, ERR_STATE, "the session is %s, not released: nothing is published",
                       session_state_name(session_state(c->session)));
    }
    return 0;
}

/* Steps in pieces short enough to look at the mail in between, where no exchange carries
 * directives.
 */
static uint64_t piece(const struct compute *c, uint64_t left, uint64_t piece_steps)
{
    if (c->run->learn_exchange != NULL) {
        return left;
    }
    return left < piece_steps ? left : piece_steps;
}

int compute_steps(struct compute *c, struct run_ended *ended, struct err *err)
{
    struct run *run = c->run;
    uint64_t every = run->spec.checkpoint.every;
    uint64_t piece_steps = 1;
    while (c->step < c->schedule.steps) {
        uint64_t goal = c->schedule.steps;
        if (every != 0 && (c->step / every + 1) * every < goal) {
            goal = (c->step / every + 1) * every;
        }
        uint64_t done = 0;
        uint32_t word = 0;
        uint64_t start = clock_now_ns();
        if (atomic_load(&run->cancel)) {
            return compute_canceled(err);
        }
        if (run->ops->run(c->learner, c->session, run->learn_exchange, c->step,
                          piece(c, goal - c->step, piece_steps), on_report, c, &done, &word,
                          err) != 0) {
            return err->code;
        }
        uint64_t spent = clock_now_ns() - start;
        if (spent < 20000000U && piece_steps < (1U << 20)) {
            piece_steps *= 2;
        } else if (spent > 80000000U && piece_steps > 1) {
            piece_steps /= 2;
        }
        if (run->learn_exchange == NULL) {
            word = atomic_exchange(&run->local_word, 0U);
        }
        bool stop = (word & RUN_STOP) != 0 && c->step < c->schedule.steps;
        bool due = c->step == goal && goal < c->schedule.steps;
        if (stop || due || ((word & RUN_CAPTURE) != 0 && c->step < c->schedule.steps)) {
            struct capture *made = NULL;
            if (take_capture(c, stop, &made, err) != 0) {
                return err->code;
            }
            if (stop && close_session(c, false, err) != 0) {
                capture_drop(made);
                return err->code;
            }
            if (hand_over(c, made, err) != 0) {
                return err->code;
            }
        }
        if (stop) {
            ended->step = c->step;
            return 0;
        }
    }
    ended->finished = true;
    return 0;
}

int compute_finish(struct compute *c, struct run_ended *ended, struct err *err)
{
    struct run *run = c->run;
    struct capture *made = NULL;
    double objective = 0.0;
    if (run->ops->evaluate(c->learner, c->session, run->learn_exchange, &objective, err) != 0 ||
        take_capture(c, true, &made, err) != 0) {
        return err->code;
    }
    if (close_session(c, true, err) != 0) {
        capture_drop(made);
        return err->code;
    }
    ended->has_objective = true;
    ended->objective = objective;
    ended->step = c->step;
    ended->has_loss = c->has_loss;
    ended->loss = c->loss;
    if (c->load->seed_epoch != 0 && c->first_step == c->schedule.steps) {
        ended->published = true; /* The last step was committed before this generation. */
        capture_drop(made);
        return 0;
    }
    return hand_over(c, made, err);
}
