/* A run's compute thread: data, session, steps, captures, release. It talks to the loop by mail and
 * to the other nodes through the learner's exchange; it looks at run->cancel at each boundary. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/run_compute.h"
#include "daemon/serve.h"

int compute_canceled(struct err *err)
{
    return err_set(err, ERR_CANCELED, "the generation is over");
}

/* Waits for mail of that kind. RUN_MAIL_NEXT may come in between. */
struct message *compute_await(struct compute *c, int kind, struct err *err)
{
    for (;;) {
        struct message *message = mailbox_wait(&c->run->to_compute, UINT64_MAX);
        if (message->kind == RUN_MAIL_QUIT || atomic_load(&c->run->cancel)) {
            if (message->kind == RUN_MAIL_LOAD) {
                free(OWNER_OF(message, struct run_load, message));
            }
            (void)compute_canceled(err);
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

void compute_tell(struct compute *c, struct message *message, int kind)
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
    char missing[FACTS_TEXT_SIZE];
    run_data_view(run, &c->view);
    run_data_missing(run, missing, sizeof(missing));
    if (missing[0] != '\0') {
        struct run_prepared *none = calloc(1, sizeof(*none));
        if (none == NULL) {
            return err_set(err, ERR_NOMEM, "no memory");
        }
        (void)snprintf(none->missing, sizeof(none->missing), "%s", missing);
        compute_tell(c, &none->message, RUN_MAIL_PREPARED);
        return 0; /* Others may have them: load() fetches. */
    }
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
    serve_put(run->daemon->serve, said->dataset, info->folder);
    compute_tell(c, &said->message, RUN_MAIL_PREPARED);
    return 0;
}

/* ---- load ---- */

/* Where the run starts: the shard of the epoch that PLACE named, the folder that the job continues,
 * or zeros. */
/* Whose it is comes first: another job's has other coordinates too. */
static int read_checkpoint(struct compute *c, struct fs *fs, const char *folder, uint64_t first,
                           uint64_t end, struct err *err)
{
    struct manifest *manifest = calloc(1, sizeof(*manifest));
    if (manifest == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a manifest");
    }
    int code = checkpoint_read_manifest(fs, folder, manifest, err);
    if (code == 0 && memcmp(manifest->identity, c->load->identity, SHA256_SIZE) != 0) {
        code = err_set(err, ERR_JOB,
                       "it is of another job (data, model, optimizer and numerics must be the "
                       "same); start without --from");
    }
    c->loss = command_double_of(manifest->loss_bits); /* Until a step has one of its own. */
    free(manifest);
    return code == 0 ? checkpoint_read_range(fs, folder, first, end, &c->seed, err) : code;
}

/* Those before the checkpoint; one that an earlier version wrote has none. */
static void take_losses(struct compute *c)
{
    const struct run *run = c->run;
    if (c->seed.losses != NULL) {
        c->losses = *c->seed.losses;
    } else if (c->step > 0) {
        log_notice("run.losses",
                   "run=%s job=%llu step=%llu reason=\"the checkpoint has no losses of the steps "
                   "before it\" next=\"the loss curve begins at the next step\"",
                   run->name, (unsigned long long)run->job, (unsigned long long)c->step);
    }
}

static int read_seed(struct compute *c, uint64_t first, uint64_t end, struct err *err)
{
    struct run *run = c->run;
    const struct run_load *load = c->load;
    if (load->seed_folder[0] == '\0') {
        return 0;
    }
    if (load->seed_epoch != 0) {
        if (read_checkpoint(c, run->daemon->fs, load->seed_folder, first, end, err) != 0) {
            size_t size = strlen(err->text);
            (void)snprintf(err->text + size, sizeof(err->text) - size,
                           "; bring the folder back from a copy and submit the job with --from, or "
                           "submit it anew");
            return err_prefix(err, "start from epoch %llu: ", (unsigned long long)load->seed_epoch);
        }
    } else {
        struct fs *fs = NULL;
        int code = fs_posix_open(load->seed_folder, &fs, err);
        code = code == 0 ? read_checkpoint(c, fs, ".", first, end, err) : code;
        code = code == 0 ? checkpoint_check_whole(fs, ".", err) : code;
        fs_posix_close(fs);
        if (code != 0) {
            return err_prefix(err, "continue from '%s': ", load->seed_folder);
        }
    }
    c->step = c->seed.about.step;
    take_losses(c);
    if (c->step > load->steps) {
        return err_set(err, ERR_JOB, "the checkpoint is at step %llu, beyond the job's %llu steps",
                       (unsigned long long)c->step, (unsigned long long)load->steps);
    }
    return 0;
}

static struct session_settings session_settings_of(const struct run *run)
{
    return (struct session_settings){
        .device = run->daemon->device,
        .threads = run->daemon->threads,
        .memory_bytes = run->daemon->memory_bytes,
        .share = run->daemon->device_share,
    };
}

/* What the device cannot hold is refused before it is read. */
static int limit_view(struct compute *c, struct err *err)
{
    struct session_settings session = session_settings_of(c->run);
    return session_memory(&session, /* backend= */ NULL, &c->view.memory_max, err);
}

static int make_session(struct compute *c, struct err *err)
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
    struct session_settings session = session_settings_of(run);
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
    facts->generation = c->run->generation;
    facts->arena_bytes = arena->bytes;
    facts->issues_expected = c->run->ops->issues(c->learner, c->step, c->schedule.steps, true);
    for (size_t i = 0; i < arena->regions_count && i < FACTS_REGIONS_MAX; i++) {
        struct facts_region *region = &facts->regions[facts->regions_count++];
        (void)snprintf(region->name, sizeof(region->name), "%s", arena->regions[i].name);
        region->offset = arena->regions[i].offset;
        region->bytes = arena->regions[i].bytes;
        region->alignment = arena->regions[i].alignment;
        if (region->alignment > facts->arena_alignment) {
            facts->arena_alignment = region->alignment;
        }
    }
}

static bool on_load_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct compute *c = context;
    work_meter_set(&c->run->meter, phase, done, total);
    atomic_fetch_add(&c->run->ticks, 1);
    return !atomic_load(&c->run->cancel);
}

static int load(struct compute *c, struct err *err)
{
    struct run *run = c->run;
    struct message *mail = compute_await(c, RUN_MAIL_LOAD, err);
    if (mail == NULL) {
        return err->code;
    }
    c->load = OWNER_OF(mail, struct run_load, message);
    if (c->load->fetch && run_fetch(c, err) != 0) {
        return err->code;
    }
    const struct dataset_info *info = dataset_info_of(c->dataset);
    uint64_t first = c->load->bounds[c->load->rank];
    uint64_t end = c->load->bounds[c->load->rank + 1];
    uint64_t columns_end = end < info->features ? end : info->features;
    struct data_progress progress = {on_load_progress, c};
    if (limit_view(c, err) != 0 ||
        dataset_load(c->dataset, &c->view, first < columns_end ? first : columns_end, columns_end,
                     &progress, &c->block, err) != 0 ||
        dataset_load_targets(c->dataset, &c->view, &c->targets, err) != 0 ||
        learn_schedule_init(&c->schedule, c->targets.train_rows, run->spec.optimizer.batch,
                            c->load->steps, c->load->participants, err) != 0 ||
        read_seed(c, first, end, err) != 0 || make_session(c, err) != 0) {
        return err->code;
    }
    work_meter_set(&run->meter, NULL, 0, 0);
    dataset_matrix_done(&c->block.train); /* The session has its own copy. */
    dataset_matrix_done(&c->block.test);
    c->first_step = c->step;
    atomic_store(&run->learner, c->learner);
    struct run_loaded *said = calloc(1, sizeof(*said));
    if (said == NULL) {
        return err_set(err, ERR_NOMEM, "no memory");
    }
    said->chunk_rows_max = c->schedule.chunk_rows;
    said->chunks_max = c->schedule.chunks_max;
    said->test_rows = c->targets.test_rows;
    said->nonzeros = info->nonzeros;
    said->sparse = info->sparse && !run->spec.data.standardize;
    said->losses = c->losses;
    tell_session(c, &said->session);
    compute_tell(c, &said->message, RUN_MAIL_LOADED);
    return compute_await(c, RUN_MAIL_STEP, err) == NULL ? err->code : 0;
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
        c->phases[i] = (struct histogram)HISTOGRAM_STEP;
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
        code = compute_steps(c, ended, err);
    }
    if (code == 0 && ended->finished) {
        code = compute_finish(c, ended, err);
    }
    ended->err.code = code;
    if (code != 0) {
        ended->finished = false;
        ended->step = c->step;
    }
    if (c->session != NULL && c->started_ns != 0) {
        compute_progress(c, true);
    }
    session_free(c->session);
    c->session = NULL;
    compute_tell(c, &ended->message, RUN_MAIL_ENDED);
    await_free(c);
    run->ops->free(c->learner);
    dataset_block_done(&c->block);
    dataset_targets_done(&c->targets);
    dataset_close(c->dataset);
    capture_names_drop(c->names);
    shard_done(&c->seed);
    free(c->load);
    compute_tell(c, &run->mail_gone, RUN_MAIL_GONE);
    return c; /* Freed by the loop: it may still hold the progress message inside. */
}
