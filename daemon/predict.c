/* Prediction: a whole checkpoint, rows from a file or a native folder, a fresh session that
 * restores the parameters, does the products on this node's device and folds them. On the libuv
 * pool. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rand.h"
#include "daemon/core.h"
#include "daemon/meter.h"
#include "daemon/run.h"
#include "learn/learn.h"

struct predict {
    uv_work_t work;
    struct daemon *daemon;
    facts_predicted_fn *done;
    void *context;
    char *checkpoint;
    char *data_path;
    char *data_settings;
    bool metrics;
    enum { ROWS_ALL, ROWS_TRAIN, ROWS_TEST } rows;
    struct facts_prediction *answer;
    struct work_meter *meter; /* the asker's, until done; or NULL */

    struct checkpoint_whole whole;
    bool intercept;
    uint64_t features;
    struct dataset *dataset;
    char imported[64]; /* below the state folder; "" where the data were native */
    struct dataset_block block;
    struct dataset_targets targets;
};

static int read_checkpoint(struct predict *p, struct err *err)
{
    struct fs *fs = NULL;
    if (fs_posix_open(p->checkpoint, &fs, err) != 0) {
        return err->code;
    }
    int code = checkpoint_read_whole(fs, ".", &p->whole, err);
    fs_posix_close(fs);
    if (code != 0) {
        return err_prefix(err, "'%s': ", p->checkpoint);
    }
    p->features = p->whole.manifest.coordinates;
    if (p->whole.columns != NULL && p->features > 0 &&
        strcmp(p->whole.columns[p->features - 1], "(intercept)") == 0) {
        p->intercept = true;
        p->features--;
    }
    return 0;
}

static bool on_progress(void *context, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
    struct predict *p = context;
    if (p->meter != NULL) {
        work_meter_set(p->meter, phase, done_bytes, total_bytes);
    }
    return true;
}

static int import_rows(struct predict *p, const struct job_data *data, struct err *err)
{
    struct data_settings settings;
    struct data_progress progress = {on_progress, p};
    struct data_faults *faults = calloc(1, sizeof(*faults));
    char folder[DAEMON_PATH_SIZE + 64];
    if (faults == NULL) {
        return err_set(err, ERR_NOMEM, "no memory");
    }
    int code = run_data_settings(data, &settings, err);
    if (code == 0) {
        settings.expect_features = p->features;
        settings.expect_names = settings.header ? (const char *const *)p->whole.columns : NULL;
        if (settings.format == DATA_FORMAT_SVM) {
            settings.features = p->features;
        }
        (void)snprintf(p->imported, sizeof(p->imported), "cache/predict-%016llx",
                       (unsigned long long)rand_entropy());
        (void)snprintf(folder, sizeof(folder), "%s/%s", p->daemon->state_dir, p->imported);
        code = fs_mkdir_all(p->daemon->fs, "cache", err);
    }
    if (code == 0) {
        code = data_import(&settings, folder, &progress, NULL, faults, err);
    }
    run_data_more(faults, "", code, err);
    free(faults);
    return code != 0 ? code : dataset_open(folder, &p->dataset, err);
}

/* Refuses before anything of them is read the rows that would take more than a prediction may. */
static int check_room(struct predict *p, const struct dataset_view *view, struct err *err)
{
    uint64_t most = p->daemon->memory_bytes;
    if (most == 0) {
        most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) /
               PREDICTION_MEMORY_SHARE;
    }
    uint64_t bytes = 0;
    int code = dataset_block_bytes(p->dataset, view, 0, p->features, &bytes, err);
    uint64_t rows = dataset_info_of(p->dataset)->rows;
    bytes = 2 * bytes + rows * PREDICTION_ROW_BYTES; /* as read, and the session's own layout */
    if (code != 0 || bytes <= most) {
        return code;
    }
    return err_set(err, ERR_NOMEM,
                   "'%s': %llu rows take %llu bytes, a prediction on node %s may take %llu (%s): "
                   "predict about %llu rows at once",
                   p->data_path, (unsigned long long)rows, (unsigned long long)bytes,
                   p->daemon->name, (unsigned long long)most,
                   p->daemon->memory_bytes != 0 ? "limits.memory" : "a quarter of its memory",
                   (unsigned long long)(rows / (bytes / most + 1)));
}

static int read_rows(struct predict *p, struct err *err)
{
    struct faults faults = FAULTS_NONE;
    struct job_data data = {0};
    double test = 0.0;
    int code;
    if (p->data_settings[0] == '\0') {
        code = dataset_open(p->data_path, &p->dataset, err);
    } else {
        if (job_data_parse(p->data_settings, strlen(p->data_settings), "data", NULL, &data,
                           &faults) != 0) {
            (void)faults_err(&faults, ERR_USAGE, err);
            faults_done(&faults);
            return err->code;
        }
        test = data.test;
        char *paths[1] = {p->data_path};
        struct yaml_texts asked = {paths, 1};
        struct yaml_texts given = data.path;
        data.path = asked;
        code = data.format == JOB_NATIVE ? dataset_open(p->data_path, &p->dataset, err)
                                         : import_rows(p, &data, err);
        data.path = given;
        job_data_done(&data);
    }
    if (code != 0) {
        return code;
    }
    const struct dataset_info *info = dataset_info_of(p->dataset);
    if (p->metrics && !info->has_target) {
        return err_set(err, ERR_DATA,
                       "'%s' has no target column: metrics need one; leave --metrics out",
                       p->data_path);
    }
    if (p->rows != ROWS_ALL && test == 0.0) {
        return err_set(err, ERR_USAGE,
                       "rows %s: say which fraction is for testing with --test, as the job did",
                       p->rows == ROWS_TEST ? "test" : "train");
    }
    struct dataset_view view = {
        .test = p->rows == ROWS_ALL ? 0.0 : test,
        .mean = p->whole.mean,
        .scale = p->whole.scale,
    };
    struct data_progress progress = {on_progress, p};
    const char *const *names = data.header ? (const char *const *)p->whole.columns : NULL;
    if (dataset_expect(p->dataset, p->features, names, err) != 0 ||
        check_room(p, &view, err) != 0 ||
        dataset_load(p->dataset, &view, 0, p->features, &progress, &p->block, err) != 0) {
        return err->code;
    }
    return info->has_target ? dataset_load_targets(p->dataset, &view, &p->targets, err) : 0;
}

static void measure(struct predict *p, const double *targets, size_t count)
{
    struct facts_prediction *answer = p->answer;
    double squares = 0.0;
    double absolute = 0.0;
    double mean = 0.0;
    double spread = 0.0;
    for (size_t i = 0; i < count; i++) {
        double difference = answer->values[i] - targets[i];
        squares += difference * difference;
        absolute += fabs(difference);
        mean += targets[i];
    }
    mean /= (double)count;
    for (size_t i = 0; i < count; i++) {
        spread += (targets[i] - mean) * (targets[i] - mean);
    }
    answer->has_metrics = true;
    answer->rmse = sqrt(squares / (double)count);
    answer->mae = absolute / (double)count;
    answer->r2 = spread > 0.0 ? 1.0 - squares / spread : (double)NAN;
}

static int compute(struct predict *p, struct err *err)
{
    struct facts_prediction *answer = p->answer;
    const struct dataset_matrix *x = p->rows == ROWS_TEST ? &p->block.test : &p->block.train;
    const double *targets = p->rows == ROWS_TEST ? p->targets.test : p->targets.train;
    if (x->rows == 0) {
        return err_set(err, ERR_DATA, "there are no %s rows", p->rows == ROWS_TEST ? "test" : "");
    }
    struct session_settings settings = {
        .device = p->daemon->device,
        .threads = p->daemon->threads,
        .memory_bytes = p->daemon->memory_bytes,
        .share = true, /* It may stand beside a run's own session. */
    };
    struct session_matrix matrix = {
        .storage = x->sparse ? SESSION_CSC : SESSION_DENSE,
        .rows = x->rows,
        .columns = x->columns,
        .dense = x->dense,
        .stride = x->ld,
        .starts = x->indptr,
        .row = x->row32,
        .value = x->values,
    };
    answer->values = calloc(x->rows, sizeof(double));
    if (answer->values == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu predictions",
                       (unsigned long long)x->rows);
    }
    if (learn_predict(&settings, &matrix, p->intercept, p->whole.parameter, answer->values, err) !=
        0) {
        return err->code;
    }
    answer->values_count = x->rows;
    if (p->metrics) {
        measure(p, targets, x->rows);
    }
    if (targets != NULL) {
        answer->first_has_target = true;
        (void)snprintf(answer->target, sizeof(answer->target), "%s",
                       dataset_info_of(p->dataset)->target_name);
    }
    answer->first_count = x->rows < FACTS_FIRST_MAX ? (uint32_t)x->rows : FACTS_FIRST_MAX;
    for (uint32_t i = 0; targets != NULL && i < answer->first_count; i++) {
        answer->first_target[i] = targets[i];
    }
    return 0;
}

static void predict_run(uv_work_t *work)
{
    struct predict *p = OWNER_OF(work, struct predict, work);
    struct err *err = &p->answer->err;
    int code = read_checkpoint(p, err);
    if (code == 0) {
        code = read_rows(p, err);
    }
    if (code == 0) {
        code = compute(p, err);
    }
    err->code = code;
    if (p->imported[0] != '\0') {
        struct err ignored = {0};
        (void)fs_remove_tree(p->daemon->fs, p->imported, &ignored);
    }
    if (code == 0) {
        const struct manifest *manifest = &p->whole.manifest;
        sha256_hex(manifest->parameter_sha256, p->answer->parameter_sha256);
        uint8_t digest[SHA256_SIZE];
        sha256_of(p->answer->values, p->answer->values_count * sizeof(double), digest);
        sha256_hex(digest, p->answer->prediction_sha256);
        p->answer->epoch = manifest->epoch;
        p->answer->step = manifest->step;
        (void)snprintf(p->answer->checkpoint, sizeof(p->answer->checkpoint), "%s", p->checkpoint);
        (void)snprintf(p->answer->device, sizeof(p->answer->device), "%s", p->daemon->device_text);
    } else {
        free(p->answer->values);
        p->answer->values = NULL;
    }
}

static void predict_free(struct predict *p)
{
    checkpoint_whole_done(&p->whole);
    dataset_block_done(&p->block);
    dataset_targets_done(&p->targets);
    dataset_close(p->dataset);
    free(p->checkpoint);
    free(p->data_path);
    free(p->data_settings);
    free(p->answer);
    free(p);
}

static void predict_done(uv_work_t *work, int status)
{
    struct predict *p = OWNER_OF(work, struct predict, work);
    struct daemon *daemon = p->daemon;
    (void)status;
    ASSERT(daemon->predictions > 0);
    daemon->predictions--;
    p->done(p->context, p->answer); /* Takes the values. */
    predict_free(p);
    daemon_work_ended(daemon);
}

int predict_start(void *context, const struct facts_predict *question, facts_predicted_fn *done,
                  void *done_context, struct err *err)
{
    struct daemon *daemon = context;
    if (daemon->stopping) {
        return err_set(err, ERR_UNHEALTHY, "node %s is stopping; ask another one", daemon->name);
    }
    if (daemon->predictions >= PREDICTIONS_MAX) {
        return err_set(err, ERR_BUSY,
                       "node %s works on %u predictions already; try again when one is done, or "
                       "ask another node",
                       daemon->name, daemon->predictions);
    }
    struct predict *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a prediction");
    }
    p->answer = calloc(1, sizeof(*p->answer));
    p->checkpoint = strdup(question->checkpoint);
    p->data_path = strdup(question->data_path);
    p->data_settings = strdup(question->data_settings != NULL ? question->data_settings : "");
    if (p->answer == NULL || p->checkpoint == NULL || p->data_path == NULL ||
        p->data_settings == NULL) {
        predict_free(p);
        return err_set(err, ERR_NOMEM, "no memory for a prediction");
    }
    p->daemon = daemon;
    p->done = done;
    p->context = done_context;
    p->metrics = question->metrics;
    p->meter = question->meter;
    p->block = (struct dataset_block)DATASET_BLOCK_NONE;
    const char *rows = question->rows != NULL && question->rows[0] != '\0' ? question->rows : "all";
    if (strcmp(rows, "all") == 0) {
        p->rows = ROWS_ALL;
    } else if (strcmp(rows, "train") == 0) {
        p->rows = ROWS_TRAIN;
    } else if (strcmp(rows, "test") == 0) {
        p->rows = ROWS_TEST;
    } else {
        predict_free(p);
        return err_set(err, ERR_USAGE, "rows: '%s' is none of all, train, test", rows);
    }
    daemon->predictions++;
    daemon_work_begun(daemon);
    ASSERT(uv_queue_work(daemon->loop, &p->work, predict_run, predict_done) == 0);
    return 0;
}
