/* A run's compute thread: data, session, steps, captures, release. It talks to the loop by mail and
 * to the other nodes through the learner's exchange; it looks at run->cancel at each boundary. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/run.h"

/* What the thread holds; nobody else sees it. */
struct compute {
    struct run *run;
    struct dataset *dataset;
    struct dataset_block block;
    struct dataset_targets targets;
    struct dataset_view view;
    struct session *session;
    struct learner *learner;
    struct run_load *load;
    struct learn_schedule schedule;
    uint64_t step;       /* steps done */
    uint64_t first_step; /* of this generation */
    bool has_loss;
    double loss;
    struct shard seed;
    bool slot_used; /* a capture is out: RUN_MAIL_NEXT is awaited before another */

    struct run_progress progress;
    uint64_t started_ns;
    uint64_t told_ns;
    uint64_t compute_ns, exchange_ns, publication_ns, rows;
    uint64_t points_stride;
    uint64_t steps_told;
    uint64_t rows_told;
};

static int canceled(struct err *err)
{
    return err_set(err, ERR_CANCELED, "the generation is over");
}

/* Waits for mail of that kind. RUN_MAIL_NEXT may come in between. */
static struct message *await(struct compute *c, int kind, struct err *err)
{
    for (;;) {
        struct message *message = mailbox_wait(&c->run->to_compute, UINT64_MAX);
        if (message->kind == RUN_MAIL_QUIT || atomic_load(&c->run->cancel)) {
            if (message->kind == RUN_MAIL_LOAD) {
                free(OWNER_OF(message, struct run_load, message));
            }
            (void)canceled(err);
            return NULL;
        }
        if (message->kind == RUN_MAIL_NEXT) {
            c->slot_used = false;
        }
        if (message->kind == kind) {
            return message;
        }
    }
}

/* The exchange thread may still ask the learner's finish of others' chunks: learner and targets
 * live until the loop has closed the exchange. */
static void await_free(struct compute *c)
{
    for (;;) {
        struct message *message = mailbox_wait(&c->run->to_compute, UINT64_MAX);
        if (message->kind == RUN_MAIL_FREE) {
            return;
        }
        if (message->kind == RUN_MAIL_LOAD) {
            free(OWNER_OF(message, struct run_load, message));
        }
    }
}

static void tell(struct compute *c, struct message *message, int kind)
{
    message->kind = kind;
    mailbox_put(&c->run->to_loop, message);
}

/* ---- data ---- */

static int cut(struct compute *c, struct run_prepared *said, struct err *err)
{
    const struct dataset_info *info = dataset_info_of(c->dataset);
    const struct run *run = c->run;
    uint64_t *counts = NULL;
    uint64_t coordinates = info->features + (run->spec.model.intercept ? 1 : 0);
    said->ranges_count = run->participants;
    if (coordinates < said->ranges_count) {
        said->ranges_count = (uint32_t)coordinates; /* The others take no part. */
    }
    if (info->sparse && !run->spec.data.standardize) {
        counts = calloc(info->features, sizeof(*counts));
        if (counts == NULL) {
            return err_set(err, ERR_NOMEM, "no memory for %llu column counts",
                           (unsigned long long)info->features);
        }
        if (dataset_counts(c->dataset, 0, info->features, counts, err) != 0) {
            free(counts);
            return err->code;
        }
    }
    struct partition_settings settings = {info->features, run->spec.model.intercept,
                                          said->ranges_count, counts};
    int code = partition_cut(&settings, said->bounds, err);
    for (uint32_t r = 0; code == 0 && r < said->ranges_count; r++) {
        for (uint64_t j = said->bounds[r]; j < said->bounds[r + 1] && j < info->features; j++) {
            said->weights[r] += counts != NULL ? counts[j] : said->rows * sizeof(float);
        }
    }
    free(counts);
    return code;
}

static int prepare(struct compute *c, struct err *err)
{
    struct run *run = c->run;
    if (run_data_open(run, &c->dataset, err) != 0) {
        return err->code;
    }
    const struct dataset_info *info = dataset_info_of(c->dataset);
    struct dataset_split split;
    if (!info->has_target) {
        return err_set(err, ERR_DATA, "'%s' has no target column: training needs one",
                       info->folder);
    }
    if (info->features == 0) {
        return err_set(err, ERR_DATA, "'%s' has no feature columns", info->folder);
    }
    run_data_view(run, &c->view);
    if (dataset_split_rows(info->rows, c->view.test, &split, err) != 0) {
        return err->code;
    }
    struct run_prepared *said = calloc(1, sizeof(*said));
    if (said == NULL) {
        return err_set(err, ERR_NOMEM, "no memory");
    }
    said->rows = split.train_rows;
    said->test_rows = split.test_rows;
    said->features = info->features;
    said->nonzeros = info->nonzeros;
    said->sparse = info->sparse && !run->spec.data.standardize;
    said->steps = run->spec.optimizer.steps_given
                      ? run->spec.optimizer.steps
                      : learn_steps_of_passes(split.train_rows, run->spec.optimizer.batch,
                                              run->spec.optimizer.passes);
    if (said->steps == 0) {
        free(said);
        return err_set(err, ERR_JOB,
                       "optimizer.passes: %llu passes are more steps than there can be",
                       (unsigned long long)run->spec.optimizer.passes);
    }
    if (dataset_digest(c->dataset, said->dataset, err) != 0 || cut(c, said, err) != 0) {
        free(said);
        return err->code;
    }
    tell(c, &said->message, RUN_MAIL_PREPARED);
    return 0;
}

/* ---- load ---- */

/* Where the run starts: the shard of the epoch that PLACE named, the folder that the job continues,
 * or zeros. */
static int read_seed(struct compute *c, uint64_t first, uint64_t end, struct err *err)
{
    struct run *run = c->run;
    const struct run_load *load = c->load;
    if (load->seed_folder[0] == '\0') {
        return 0;
    }
    struct fs *fs = NULL;
    if (load->seed_epoch != 0) {
        if (checkpoint_read_range(run->daemon->fs, load->seed_folder, first, end, &c->seed, err) !=
            0) {
            return err_prefix(err, "start from epoch %llu: ", (unsigned long long)load->seed_epoch);
        }
    } else {
        if (fs_posix_open(load->seed_folder, &fs, err) != 0 ||
            checkpoint_read_range(fs, ".", first, end, &c->seed, err) != 0) {
            fs_posix_close(fs);
            return err_prefix(err, "continue from '%s': ", load->seed_folder);
        }
        fs_posix_close(fs);
        if (memcmp(c->seed.about.identity, load->identity, SHA256_SIZE) != 0) {
            return err_set(err, ERR_JOB,
                           "continue from '%s': it is of another job (data, model, optimizer and "
                           "numerics must be the same); start without --from",
                           load->seed_folder);
        }
    }
    c->step = c->seed.about.step;
    if (c->step > load->steps) {
        return err_set(err, ERR_JOB, "the checkpoint is at step %llu, behind the job's %llu steps",
                       (unsigned long long)c->step, (unsigned long long)load->steps);
    }
    return 0;
}

static int make_session(struct compute *c, uint64_t first, uint64_t end, struct err *err)
{
    struct run *run = c->run;
    const struct dataset_info *info = dataset_info_of(c->dataset);
    const struct dataset_matrix *x = &c->block.train;
    if (x->sparse && x->row64 != NULL && x->row32 == NULL) {
        return err_set(err, ERR_DATA, "%llu training rows; a session takes fewer than 2^32",
                       (unsigned long long)x->rows);
    }
    struct learn_settings settings = {
        .schedule = c->schedule,
        .columns = info->features,
        .intercept = run->spec.model.intercept,
        .rate = run->spec.optimizer.rate,
        .decay = run->spec.optimizer.decay,
        .l2 = run->spec.model.l2,
        .participants = c->load->participants,
        .rank = c->load->rank,
        .bounds = c->load->bounds,
        .storage = x->sparse ? SESSION_CSC : SESSION_DENSE,
        .entries = x->sparse ? x->nonzeros : x->rows * x->columns,
        .targets = c->targets.train,
    };
    struct session_settings session = {
        .device = run->daemon->device,
        .threads = run->daemon->threads,
        .memory_bytes = run->daemon->memory_bytes,
        .share = run->daemon->device_share,
    };
    struct session_matrix matrix = {
        .storage = settings.storage,
        .rows = x->rows,
        .columns = x->columns,
        .dense = x->dense,
        .stride = x->ld,
        .starts = x->indptr,
        .row = x->row32,
        .value = x->values,
    };
    struct session_seed seed = {
        .matrix = &matrix,
        .targets = c->load->participants == 1 ? c->targets.train : NULL,
        .parameter = c->seed.parameter,
        .accumulator = c->seed.accumulator,
        .step = c->step,
    };
    struct session_plan plan;
    (void)first;
    (void)end;
    if (run->ops->make(&settings, &c->learner, err) != 0) {
        return err->code;
    }
    run->ops->plan(c->learner, c->step, &plan);
    if (session_new(&session, NULL, &c->session, err) != 0 ||
        session_admit(c->session, &plan, err) != 0 || session_bind(c->session, err) != 0 ||
        session_load(c->session, err) != 0 || session_certify(c->session, err) != 0 ||
        session_seed(c->session, &seed, err) != 0) {
        return err->code;
    }
    return 0;
}

static void tell_session(struct compute *c, struct facts_session *facts)
{
    const struct arena *arena = session_arena(c->session);
    facts->open = true;
    (void)snprintf(facts->state, sizeof(facts->state), "%s",
                   session_state_name(session_state(c->session)));
    facts->job = c->run->job;
    facts->arena_bytes = arena->bytes;
    facts->issues_expected = c->run->ops->issues(c->learner, c->step, c->schedule.steps, true);
    for (size_t i = 0; i < arena->regions_count && i < FACTS_REGIONS_MAX; i++) {
        struct facts_region *region = &facts->regions[facts->regions_count++];
        (void)snprintf(region->name, sizeof(region->name), "%s", arena->regions[i].name);
        region->offset = arena->regions[i].offset;
        region->bytes = arena->regions[i].bytes;
        region->alignment = arena->regions[i].alignment;
    }
}

static bool on_load_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct compute *c = context;
    (void)phase;
    (void)done;
    (void)total;
    atomic_fetch_add(&c->run->ticks, 1);
    return !atomic_load(&c->run->cancel);
}

static int load(struct compute *c, struct err *err)
{
    struct run *run = c->run;
    struct message *mail = await(c, RUN_MAIL_LOAD, err);
    if (mail == NULL) {
        return err->code;
    }
    c->load = OWNER_OF(mail, struct run_load, message);
    const struct dataset_info *info = dataset_info_of(c->dataset);
    uint64_t first = c->load->bounds[c->load->rank];
    uint64_t end = c->load->bounds[c->load->rank + 1];
    uint64_t columns_end = end < info->features ? end : info->features;
    struct data_progress progress = {on_load_progress, c};
    if (dataset_load(c->dataset, &c->view, first < columns_end ? first : columns_end, columns_end,
                     &progress, &c->block, err) != 0 ||
        dataset_load_targets(c->dataset, &c->view, &c->targets, err) != 0 ||
        learn_schedule_init(&c->schedule, c->targets.train_rows, run->spec.optimizer.batch,
                            c->load->steps, c->load->participants, err) != 0 ||
        read_seed(c, first, end, err) != 0 || make_session(c, first, end, err) != 0) {
        return err->code;
    }
    c->first_step = c->step;
    atomic_store(&run->learner, c->learner);
    struct run_loaded *said = calloc(1, sizeof(*said));
    if (said == NULL) {
        return err_set(err, ERR_NOMEM, "no memory");
    }
    said->chunk_rows_max = c->schedule.chunk_rows;
    said->chunks_max = c->schedule.chunks_max;
    tell_session(c, &said->session);
    tell(c, &said->message, RUN_MAIL_LOADED);
    return await(c, RUN_MAIL_STEP, err) == NULL ? err->code : 0;
}

/* ---- steps ---- */

static void tell_progress(struct compute *c, bool must)
{
    struct run_progress *said = &c->progress;
    uint64_t now = clock_now_ns();
    if (!must && now - c->told_ns < 50000000U) {
        return;
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
    atomic_store(&said->taken, false);
    tell(c, &said->message, RUN_MAIL_PROGRESS);
}

/* Keeps at most RUN_POINTS_MAX points between two reports: every stride-th step. */
static void keep_point(struct compute *c, uint64_t step, double loss)
{
    struct run_progress *said = &c->progress;
    if (!atomic_load(&said->taken)) {
        return;
    }
    if (said->points_count == 0 && c->points_stride > 1) {
        c->points_stride /= 2;
    }
    if (step % c->points_stride != 0 && step != c->first_step) {
        return;
    }
    if (said->points_count == RUN_POINTS_MAX) {
        c->points_stride *= 2;
        size_t kept = 0;
        for (size_t i = 0; i < said->points_count; i += 2) {
            said->points[kept++] = said->points[i];
        }
        said->points_count = kept;
    }
    said->points[said->points_count++] = (struct facts_point){step + 1, loss};
}

static void on_report(void *context, const struct learn_report *report)
{
    struct compute *c = context;
    struct session_batch batch;
    learn_batch(&c->schedule, report->step, &batch);
    c->step = report->step + 1;
    c->loss = report->loss;
    c->has_loss = true;
    c->rows += batch.rows_count;
    c->compute_ns += report->compute_ns;
    c->exchange_ns += report->exchange_ns;
    atomic_fetch_add(&c->run->ticks, 1);
    if (atomic_load(&c->progress.taken)) {
        histogram_observe(&c->progress.phases[FACTS_PHASE_COMPUTE],
                          (double)report->compute_ns * 1e-9);
        histogram_observe(&c->progress.phases[FACTS_PHASE_EXCHANGE],
                          (double)report->exchange_ns * 1e-9);
    }
    keep_point(c, report->step, report->loss);
    tell_progress(c, false);
}

static char **column_names(struct compute *c, uint64_t first, uint64_t end)
{
    const struct dataset_info *info = dataset_info_of(c->dataset);
    char **names = calloc(end - first, sizeof(*names));
    if (names == NULL) {
        return NULL;
    }
    for (uint64_t j = first; j < end; j++) {
        names[j - first] = strdup(j < info->features ? dataset_name(c->dataset, j) : "(intercept)");
        ASSERT(names[j - first] != NULL);
    }
    return names;
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
    capture->has_loss = c->has_loss;
    capture->count = end - first;
    capture->parameter = calloc(capture->count, sizeof(double));
    capture->accumulator = calloc(capture->count, sizeof(double));
    capture->columns = column_names(c, first, end);
    if (run->spec.data.standardize) {
        capture->mean = extended(c->block.mean, columns, capture->count, 0.0);
        capture->scale = extended(c->block.scale, columns, capture->count, 1.0);
    }
    if (capture->parameter == NULL || capture->accumulator == NULL || capture->columns == NULL ||
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
    capture->content.columns = (const char *const *)capture->columns;
    return capture;
}

/* Waits until the capture before is decided: at most one is out. */
static int await_slot(struct compute *c, struct err *err)
{
    uint64_t start = clock_now_ns();
    while (c->slot_used) {
        if (await(c, RUN_MAIL_NEXT, err) == NULL) {
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
    if (atomic_load(&c->progress.taken)) {
        histogram_observe(&c->progress.phases[FACTS_PHASE_PUBLICATION], (double)spent * 1e-9);
    }
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
    tell(c, &said->message, RUN_MAIL_CAPTURED);
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

static int step_on(struct compute *c, struct run_ended *ended, struct err *err)
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
            return canceled(err);
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

static int finish(struct compute *c, struct run_ended *ended, struct err *err)
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

void *run_compute_main(void *context)
{
    struct run *run = context;
    struct compute *c = calloc(1, sizeof(*c));
    struct run_ended *ended = calloc(1, sizeof(*ended));
    ASSERT(c != NULL);
    ASSERT(ended != NULL);
    c->run = run;
    c->block = (struct dataset_block)DATASET_BLOCK_NONE;
    c->points_stride = 1;
    atomic_store(&c->progress.taken, true);
    for (int i = 0; i < FACTS_PHASES; i++) {
        c->progress.phases[i] = (struct histogram)HISTOGRAM_STEP;
    }
    struct err *err = &ended->err;
    int code = prepare(c, err);
    if (code == 0) {
        code = load(c, err);
    }
    if (code == 0) {
        c->started_ns = clock_now_ns();
        c->told_ns = c->started_ns;
        c->steps_told = c->step;
        code = step_on(c, ended, err);
    }
    if (code == 0 && ended->finished) {
        code = finish(c, ended, err);
    }
    ended->err.code = code;
    if (code != 0) {
        ended->finished = false;
        ended->step = c->step;
    }
    if (c->session != NULL && c->started_ns != 0) {
        tell_progress(c, true);
    }
    session_free(c->session);
    c->session = NULL;
    tell(c, &ended->message, RUN_MAIL_ENDED);
    await_free(c);
    run->ops->free(c->learner);
    dataset_block_done(&c->block);
    dataset_targets_done(&c->targets);
    dataset_close(c->dataset);
    shard_done(&c->seed);
    free(c->load);
    tell(c, &run->mail_gone, RUN_MAIL_GONE);
    return c; /* Freed by the loop: it may still hold the progress message inside. */
}
