#include "tests/lib/cluster.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fs.h"
#include "base/rand.h"
#include "gpu/readback.h"
#include "numerics/lane.h"
#include "numerics/nodes.h"

struct chunk_slot {
    const double *values[CLUSTER_NODES_MAX];
    uint32_t arrived;
    bool done;
};

/* Everything that nodes share; under lock. Steps alternate between two sets of slots: a node can be
 * one step ahead of another, never two. */
struct shared {
    const struct cluster_job *job;
    const struct learner *owner; /* any node's learner: finish is pure */
    struct learn_schedule schedule;
    struct fold_plan fold;
    size_t nodes_count[CLUSTER_NODES_MAX];
    uint64_t bounds[CLUSTER_NODES_MAX + 1];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct chunk_slot *slots[2]; /* chunks_max */
    float *residual[2];          /* window_rows */
    double *losses[2];           /* panels */
    double *z;
    uint64_t step[2];
    uint32_t begun[2];
    uint32_t pulled[2]; /* nodes that pulled the last chunk */
    int code;
    struct err err;
    struct cluster_result *result;
    double objective[CLUSTER_NODES_MAX];
    struct fs *fs;
};

struct member {
    struct shared *shared;
    uint32_t rank;
    struct rand rand;
    struct learner *learner;
    pthread_t thread;
    struct err err;
    int code;
};

static int set_failed(struct shared *shared, const struct err *err)
{
    if (shared->code == 0) {
        shared->code = err->code;
        shared->err = *err;
    }
    (void)pthread_cond_broadcast(&shared->changed);
    return shared->code;
}

static void delay(struct member *member)
{
    if (member->shared->job->jitter != 0 && rand_below(&member->rand, 3) == 0) {
        (void)usleep((useconds_t)rand_below(&member->rand, 60));
    }
}

static int on_begin(void *context, uint64_t step, uint64_t rows, uint32_t chunk_rows,
                    struct err *err)
{
    struct member *member = context;
    struct shared *shared = member->shared;
    (void)rows;
    ASSERT(chunk_rows == shared->schedule.chunk_rows);
    unsigned side = (unsigned)(step % 2);
    (void)pthread_mutex_lock(&shared->lock);
    if (shared->begun[side] == 0 || shared->begun[side] == shared->job->nodes) {
        memset(shared->slots[side], 0, shared->schedule.chunks_max * sizeof(struct chunk_slot));
        shared->begun[side] = 0;
        shared->step[side] = step;
    }
    ASSERT(shared->step[side] == step);
    shared->begun[side]++;
    int code = shared->code;
    if (code != 0 && err != NULL) {
        *err = shared->err;
    }
    (void)pthread_mutex_unlock(&shared->lock);
    return code;
}

/* The last value of a chunk is there: what its owner does. */
static void fold_chunk(struct shared *shared, uint64_t step, uint32_t chunk)
{
    unsigned side = (unsigned)(step % 2);
    struct chunk_slot *slot = &shared->slots[side][chunk];
    uint32_t rows = learn_chunk_rows(&shared->schedule, step, chunk);
    const double *inputs[CLUSTER_NODES_MAX * NODES_MAX];
    size_t count = 0;
    for (uint32_t p = 0; p < shared->job->nodes; p++) {
        for (size_t n = 0; n < shared->nodes_count[p]; n++) {
            inputs[count] = slot->values[p] + n * rows;
            count++;
        }
    }
    ASSERT(count == shared->fold.inputs_count);
    size_t first = (size_t)chunk * shared->schedule.chunk_rows;
    fold_plan_run(&shared->fold, inputs, shared->z, rows);
    struct err err = {0};
    int code = learner_regression.finish(shared->owner, step, chunk, rows, shared->z,
                                         shared->residual[side] + first,
                                         shared->losses[side] + first / PANEL_ROWS, &err);
    if (code != 0) {
        (void)set_failed(shared, &err);
    }
    slot->done = true;
    (void)pthread_cond_broadcast(&shared->changed);
}

static int on_push(void *context, uint64_t step, uint32_t chunk, const double *values,
                   struct err *err)
{
    struct member *member = context;
    struct shared *shared = member->shared;
    delay(member);
    (void)pthread_mutex_lock(&shared->lock);
    struct chunk_slot *slot = &shared->slots[step % 2][chunk];
    ASSERT(slot->values[member->rank] == NULL);
    slot->values[member->rank] = values;
    slot->arrived++;
    int code = shared->code;
    if (code != 0 && err != NULL) {
        *err = shared->err;
    } else if (slot->arrived == shared->job->nodes) {
        fold_chunk(shared, step, chunk);
    }
    (void)pthread_mutex_unlock(&shared->lock);
    return code;
}

static int on_pull(void *context, uint64_t step, uint32_t chunk, const float **ret_residual,
                   const double **ret_panel_losses, uint32_t *ret_directive, struct err *err)
{
    struct member *member = context;
    struct shared *shared = member->shared;
    delay(member);
    unsigned side = (unsigned)(step % 2);
    (void)pthread_mutex_lock(&shared->lock);
    while (!shared->slots[side][chunk].done && shared->code == 0) {
        (void)pthread_cond_wait(&shared->changed, &shared->lock);
    }
    int code = shared->code;
    if (code != 0 && err != NULL) {
        *err = shared->err;
    }
    (void)pthread_mutex_unlock(&shared->lock);
    size_t first = (size_t)chunk * shared->schedule.chunk_rows;
    *ret_residual = shared->residual[side] + first;
    *ret_panel_losses = shared->losses[side] + first / PANEL_ROWS;
    *ret_directive = chunk == 0 && step + 1 == shared->job->end_step ? 2 : 0;
    return code;
}

static void on_report(void *context, const struct learn_report *report)
{
    struct member *member = context;
    struct shared *shared = member->shared;
    uint64_t at = report->step - shared->job->first_step;
    if (member->rank == 0) {
        shared->result->losses[at] = report->loss;
        shared->result->done = at + 1;
    }
}

static struct session_matrix columns_of(const struct cluster_job *job, uint64_t first,
                                        uint64_t count)
{
    struct session_matrix matrix = job->storage == SESSION_DENSE ? job->dense : job->csc;
    matrix.columns = count;
    if (job->storage == SESSION_DENSE) {
        matrix.dense += first * matrix.stride;
    } else {
        matrix.starts += first;
    }
    return matrix;
}

static int open_session(struct member *member, const struct session_plan *plan,
                        struct session **session)
{
    const struct cluster_job *job = member->shared->job;
    struct err *err = &member->err;
    struct session_settings settings = {.device = job->device != NULL ? job->device : "cpu",
                                        .threads = job->threads,
                                        .isa = job->isa,
                                        .share = true};
    uint64_t first = plan->coordinate_first;
    struct session_matrix matrix = columns_of(job, first, session_plan_columns(plan));
    struct session_seed seed = {
        .matrix = &matrix,
        .targets = plan->whole ? job->targets : NULL,
        .parameter = job->parameter != NULL ? job->parameter + first : NULL,
        .accumulator = job->accumulator != NULL ? job->accumulator + first : NULL,
        .step = job->first_step,
    };
    int code = session_new(&settings, job->backend[member->rank], session, err);
    code = code != 0 ? code : session_admit(*session, plan, err);
    code = code != 0 ? code : session_bind(*session, err);
    code = code != 0 ? code : session_load(*session, err);
    code = code != 0 ? code : session_certify(*session, err);
    return code != 0 ? code : session_seed(*session, &seed, err);
}

/* Capture, read-back and its file, release. */
static int close_session(struct member *member, const struct session_plan *plan,
                         struct session *session, uint64_t issues)
{
    struct shared *shared = member->shared;
    struct err *err = &member->err;
    uint64_t first = plan->coordinate_first;
    uint64_t coordinates = plan->coordinate_end - first;
    double *parameter = shared->result->parameter + first;
    double *accumulator = shared->result->accumulator + first;
    char name[64];
    (void)snprintf(name, sizeof(name), "readback-%u.bin", member->rank);
    int code = session_capture(session, err);
    code = code != 0 ? code : session_capture_read(session, parameter, accumulator, err);
    code = code != 0 ? code : session_read_back(session, shared->fs, name, issues, err);
    code = code != 0 ? code : session_release(session, err);
    if (code != 0) {
        return code;
    }
    ASSERT(session_state(session) == SESSION_RELEASED);
    double *vectors = calloc(2 * (size_t)coordinates, sizeof(double));
    ASSERT(vectors != NULL);
    struct readback readback;
    code = readback_read(shared->fs, name, coordinates, &readback, vectors, vectors + coordinates,
                         err);
    if (code == 0) {
        ASSERT(readback.issues_device == issues);
        ASSERT(memcmp(vectors, parameter, coordinates * sizeof(double)) == 0);
        ASSERT(memcmp(vectors + coordinates, accumulator, coordinates * sizeof(double)) == 0);
    }
    free(vectors);
    (void)shared->fs->ops->unlink(shared->fs, name, NULL);
    return code;
}

static int run_member(struct member *member)
{
    struct shared *shared = member->shared;
    const struct cluster_job *job = shared->job;
    struct learn_exchange exchange = {
        .context = member, .begin = on_begin, .push = on_push, .pull = on_pull};
    const struct learn_exchange *link = job->nodes > 1 ? &exchange : NULL;
    struct session_plan plan;
    learner_regression.plan(member->learner, job->first_step, &plan);
    struct session *session = NULL;
    int code = open_session(member, &plan, &session);
    uint64_t done = 0;
    uint32_t directive = 0;
    uint64_t end = job->end_step != 0 ? job->end_step : job->steps;
    uint64_t asked = link == NULL ? end - job->first_step : UINT64_MAX;
    if (code == 0) {
        code = learner_regression.run(member->learner, session, link, job->first_step, asked,
                                      on_report, member, &done, &directive, &member->err);
    }
    if (code == 0) {
        ASSERT(job->first_step + done == end);
        ASSERT(directive == (link != NULL && job->end_step != 0 ? 2U : 0U));
    }
    if (code == 0 && job->end_step == 0) {
        code = learner_regression.evaluate(member->learner, session, link,
                                           &shared->objective[member->rank], &member->err);
    }
    if (code == 0) {
        code = close_session(
            member, &plan, session,
            learner_regression.issues(member->learner, job->first_step, end, job->end_step == 0));
    }
    session_free(session);
    return code;
}

static void *member_main(void *argument)
{
    struct member *member = argument;
    member->code = run_member(member);
    if (member->code != 0) {
        (void)pthread_mutex_lock(&member->shared->lock);
        (void)set_failed(member->shared, &member->err);
        (void)pthread_mutex_unlock(&member->shared->lock);
    }
    return NULL;
}

static uint64_t entries_of(const struct cluster_job *job, const uint64_t *bounds, uint32_t rank)
{
    uint64_t columns = job->storage == SESSION_DENSE ? job->dense.columns : job->csc.columns;
    uint64_t end = bounds[rank + 1] < columns ? bounds[rank + 1] : columns;
    uint64_t first = bounds[rank] < columns ? bounds[rank] : columns;
    return job->storage == SESSION_DENSE ? (end - first) * job->dense.rows
                                         : job->csc.starts[end] - job->csc.starts[first];
}

static int make_learner(struct shared *shared, struct member *member, struct err *err)
{
    const struct cluster_job *job = shared->job;
    struct learn_settings settings = {
        .schedule = shared->schedule,
        .columns = job->storage == SESSION_DENSE ? job->dense.columns : job->csc.columns,
        .intercept = job->intercept,
        .rate = job->rate,
        .decay = job->decay,
        .l2 = job->l2,
        .participants = job->nodes,
        .rank = member->rank,
        .bounds = shared->bounds,
        .storage = job->storage,
        .entries = entries_of(job, shared->bounds, member->rank),
        .targets = job->targets,
    };
    shared->nodes_count[member->rank] = learn_nodes_count(&settings, member->rank);
    return learner_regression.make(&settings, &member->learner, err);
}

static int prepare(struct shared *shared, struct member *members, struct err *err)
{
    const struct cluster_job *job = shared->job;
    bool dense = job->storage == SESSION_DENSE;
    const struct session_matrix *matrix = dense ? &job->dense : &job->csc;
    struct partition_settings partition = {
        .columns = matrix->columns, .intercept = job->intercept, .participants = job->nodes};
    uint64_t *weights = calloc((size_t)matrix->columns, sizeof(*weights));
    ASSERT(weights != NULL);
    if (!dense) {
        for (uint64_t j = 0; j < matrix->columns; j++) {
            weights[j] = matrix->starts[j + 1] - matrix->starts[j];
        }
        partition.weights = weights;
    }
    int code = 0;
    if (job->bounds != NULL) {
        memcpy(shared->bounds, job->bounds, (job->nodes + 1) * sizeof(uint64_t));
    } else {
        code = partition_cut(&partition, shared->bounds, err);
    }
    free(weights);
    code = code != 0 ? code
                     : learn_schedule_init(&shared->schedule, matrix->rows, job->batch, job->steps,
                                           job->nodes, err);
    code = code != 0 ? code : fold_plan_init_bounds(&shared->fold, shared->bounds, job->nodes, err);
    for (uint32_t rank = 0; code == 0 && rank < job->nodes; rank++) {
        members[rank] =
            (struct member){.shared = shared, .rank = rank, .rand = {job->jitter * 1000 + rank}};
        code = make_learner(shared, &members[rank], err);
    }
    if (code != 0) {
        return code;
    }
    shared->owner = members[0].learner;
    for (unsigned side = 0; side < 2; side++) {
        size_t rows = (size_t)shared->schedule.window_rows;
        shared->slots[side] = calloc(shared->schedule.chunks_max, sizeof(struct chunk_slot));
        shared->residual[side] = calloc(rows, sizeof(float));
        shared->losses[side] = calloc(rows / PANEL_ROWS, sizeof(double));
        ASSERT(shared->slots[side] != NULL);
        ASSERT(shared->residual[side] != NULL);
        ASSERT(shared->losses[side] != NULL);
    }
    shared->z = calloc((size_t)shared->schedule.chunk_rows, sizeof(double));
    ASSERT(shared->z != NULL);
    return 0;
}

static void clean(struct shared *shared, struct member *members)
{
    for (uint32_t rank = 0; rank < shared->job->nodes; rank++) {
        learner_regression.free(members[rank].learner);
    }
    for (unsigned side = 0; side < 2; side++) {
        free(shared->slots[side]);
        free(shared->residual[side]);
        free(shared->losses[side]);
    }
    free(shared->z);
    fold_plan_done(&shared->fold);
    (void)pthread_cond_destroy(&shared->changed);
    (void)pthread_mutex_destroy(&shared->lock);
}

int cluster_run(const struct cluster_job *job, struct cluster_result *result, struct err *err)
{
    ASSERT(job->nodes >= 1);
    ASSERT(job->nodes <= CLUSTER_NODES_MAX);
    struct shared shared = {.job = job, .result = result};
    struct member members[CLUSTER_NODES_MAX] = {{0}};
    (void)pthread_mutex_init(&shared.lock, NULL);
    (void)pthread_cond_init(&shared.changed, NULL);
    char folder[] = "/tmp/coppelius-cluster-XXXXXX";
    ASSERT(mkdtemp(folder) != NULL);
    int code = fs_posix_open(folder, &shared.fs, err);
    ASSERT(code == 0);
    result->done = 0;
    result->objective = 0.0;
    code = prepare(&shared, members, err);
    if (code == 0) {
        for (uint32_t rank = 0; rank < job->nodes; rank++) {
            ASSERT(pthread_create(&members[rank].thread, NULL, member_main, &members[rank]) == 0);
        }
        for (uint32_t rank = 0; rank < job->nodes; rank++) {
            (void)pthread_join(members[rank].thread, NULL);
        }
        code = shared.code;
        if (code != 0 && err != NULL) {
            *err = shared.err;
        }
        result->objective = shared.objective[0];
        for (uint32_t rank = 1; rank < job->nodes && code == 0; rank++) {
            ASSERT(memcmp(&shared.objective[0], &shared.objective[rank], sizeof(double)) == 0);
        }
    }
    clean(&shared, members);
    fs_posix_close(shared.fs);
    (void)rmdir(folder);
    return code;
}
