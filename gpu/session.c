#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/backend.h"
#include "gpu/readback.h"
#include "numerics/lane.h"
#include "numerics/product.h"

/* The counter is 64 bits wide; the sum of what was admitted stays far from its end. */
#define ISSUES_MAX ((uint64_t)1 << 62)

struct session {
    struct session_settings settings;
    const struct session_backend *backend;
    struct session_device *device; /* from bind to release */
    enum session_state state;
    struct session_shape shape;
    struct session_binding binding;
    uint64_t memory_bytes; /* of the device; 0: not known */
    struct images images;
    struct arena arena;
    uint64_t issues; /* submissions, counted here */
    bool changed;    /* an update was submitted: the state must be read back */

    bool captured;
    uint64_t captured_issues; /* `issues` at the capture */

    /* The open step. */
    struct session_batch batch;
    uint32_t chunks_count;
    uint32_t forwards;
    uint32_t backwards;
    bool updated;

    unsigned in_flight; /* local steps */
};

#define TO(state) (1U << (unsigned)(state))

/* The drawing of gpu.h; FAILED is reached from all but the two ends. */
static const unsigned legal[] = {
    [SESSION_NEW] = TO(SESSION_ADMITTED) | TO(SESSION_ABANDONED),
    [SESSION_ADMITTED] = TO(SESSION_BOUND) | TO(SESSION_ABANDONED),
    [SESSION_BOUND] = TO(SESSION_LOADED) | TO(SESSION_ABANDONED),
    [SESSION_LOADED] = TO(SESSION_CERTIFIED) | TO(SESSION_ABANDONED),
    [SESSION_CERTIFIED] = TO(SESSION_READY) | TO(SESSION_ABANDONED),
    [SESSION_READY] =
        TO(SESSION_STEPPING) | TO(SESSION_READ_BACK) | TO(SESSION_RELEASED) | TO(SESSION_ABANDONED),
    [SESSION_STEPPING] = TO(SESSION_READY) | TO(SESSION_ABANDONED),
    [SESSION_READ_BACK] = TO(SESSION_RELEASED),
    [SESSION_RELEASED] = 0,
    [SESSION_FAILED] = TO(SESSION_ABANDONED),
    [SESSION_ABANDONED] = 0,
};

static void set_state(struct session *session, enum session_state next)
{
    bool may_fail = session->state != SESSION_RELEASED && session->state != SESSION_ABANDONED;
    ASSERT((legal[session->state] & TO(next)) != 0 || (next == SESSION_FAILED && may_fail));
    session->state = next; /* The only writer. */
}

const char *session_state_name(enum session_state state)
{
    static const char *const names[] = {
        [SESSION_NEW] = "new",
        [SESSION_ADMITTED] = "admitted",
        [SESSION_BOUND] = "bound",
        [SESSION_LOADED] = "loaded",
        [SESSION_CERTIFIED] = "certified",
        [SESSION_READY] = "ready",
        [SESSION_STEPPING] = "stepping",
        [SESSION_READ_BACK] = "read-back",
        [SESSION_RELEASED] = "released",
        [SESSION_FAILED] = "failed",
        [SESSION_ABANDONED] = "abandoned",
    };
    return names[state];
}

/* Passes the code on; an error fails the session. */
static int settle(struct session *session, int code)
{
    if (code != 0 && session->state != SESSION_RELEASED && session->state != SESSION_ABANDONED) {
        set_state(session, SESSION_FAILED);
    }
    return code;
}

static int expect(struct session *session, enum session_state state, const char *what,
                  struct err *err)
{
    if (session->state == state) {
        return 0;
    }
    return settle(session,
                  err_set(err, ERR_STATE, "session: %s was asked for while %s; it must be %s", what,
                          session_state_name(session->state), session_state_name(state)));
}

static int misuse(struct session *session, const char *sentence, struct err *err)
{
    return settle(session, err_set(err, ERR_STATE, "session: %s", sentence));
}

int session_new(const struct session_settings *settings, const struct session_backend *backend,
                struct session **ret_session, struct err *err)
{
    if (backend == NULL) {
        if (settings->device == NULL) {
            return err_set(err, ERR_CONFIG, "no device is given; say 'cpu', 'auto' or a GPU");
        }
        bool cpu = strcmp(settings->device, "cpu") == 0;
        backend = cpu ? session_backend_cpu() : session_backend_cuda();
        if (backend == NULL) {
            return err_set(err, ERR_DEVICE,
                           "device '%s': this build is without GPU kernels; build it with nvcc, or "
                           "set device: cpu",
                           settings->device);
        }
    }
    struct session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a session");
    }
    session->settings = *settings;
    session->backend = backend;
    session->state = SESSION_NEW;
    *ret_session = session;
    return 0;
}

static void give_back(struct session *session)
{
    if (session->device != NULL) {
        session->backend->release(session->device);
        session->device = NULL;
    }
}

void session_free(struct session *session)
{
    if (session != NULL) {
        give_back(session);
        free(session);
    }
}

/* -- life ------------------------------------------------------------------------------------- */

static int check_plan(const struct session_plan *plan, struct err *err)
{
    if (plan->coordinate_first >= plan->coordinate_end || plan->coordinate_end > NODES_INDEX_END) {
        return err_set(err, ERR_JOB, "session: coordinates %llu to %llu are no range",
                       (unsigned long long)plan->coordinate_first,
                       (unsigned long long)plan->coordinate_end);
    }
    if (plan->rows == 0 || plan->rows > UINT32_MAX) {
        return err_set(err, ERR_JOB, "session: %llu rows; give 1 to %u",
                       (unsigned long long)plan->rows, UINT32_MAX);
    }
    if (plan->batch_rows == 0 || plan->batch_rows > plan->rows) {
        return err_set(err, ERR_JOB, "session: a batch of %llu rows; give 1 to %llu",
                       (unsigned long long)plan->batch_rows, (unsigned long long)plan->rows);
    }
    if (plan->chunk_rows == 0 || plan->chunk_rows % PANEL_ROWS != 0) {
        return err_set(err, ERR_JOB, "session: chunks of %u rows; they are multiples of %d",
                       plan->chunk_rows, PANEL_ROWS);
    }
    uint64_t columns = session_plan_columns(plan);
    bool too_many = columns > ARENA_BYTES_MAX / plan->rows;
    if (too_many || plan->entries > columns * plan->rows ||
        (plan->storage == SESSION_DENSE && plan->entries != columns * plan->rows)) {
        return err_set(err, ERR_JOB, "session: %llu entries in %llu rows of %llu columns",
                       (unsigned long long)plan->entries, (unsigned long long)plan->rows,
                       (unsigned long long)columns);
    }
    if (plan->whole && plan->coordinate_first != 0) {
        return err_set(err, ERR_JOB, "session: a whole model begins at coordinate 0, not %llu",
                       (unsigned long long)plan->coordinate_first);
    }
    if (plan->issues_max > ISSUES_MAX) {
        return err_set(err, ERR_JOB,
                       "session: the steps would retire more issues than the counter holds "
                       "(2^62); give fewer steps");
    }
    return 0;
}

/* The memory check, with the numbers. */
static int check_memory(const struct session *session, uint64_t bytes, uint64_t memory_bytes,
                        const char *at_least, struct err *err)
{
    if (session->settings.memory_bytes != 0 &&
        (memory_bytes == 0 || session->settings.memory_bytes < memory_bytes)) {
        memory_bytes = session->settings.memory_bytes;
    }
    if (memory_bytes == 0 || bytes <= memory_bytes) {
        return 0;
    }
    return err_set(err, ERR_NOMEM,
                   "session: %llu rows and %llu columns need %s%llu MiB on this node, the device "
                   "has %llu MiB; about %llu times as many nodes would do",
                   (unsigned long long)session->shape.plan.rows,
                   (unsigned long long)session->shape.columns, at_least,
                   (unsigned long long)(bytes >> 20) + 1, (unsigned long long)(memory_bytes >> 20),
                   (unsigned long long)(bytes / memory_bytes) + 1);
}

int session_admit(struct session *session, const struct session_plan *plan, struct err *err)
{
    int code = expect(session, SESSION_NEW, "admission", err);
    if (code != 0) {
        return code;
    }
    code = check_plan(plan, err);
    if (code != 0) {
        return settle(session, code);
    }
    struct session_shape *shape = &session->shape;
    shape->plan = *plan;
    shape->columns = session_plan_columns(plan);
    shape->coordinates = plan->coordinate_end - plan->coordinate_first;
    shape->nodes_count = nodes_cover(plan->coordinate_first, plan->coordinate_end, shape->nodes);
    shape->batches_count = (plan->rows + plan->batch_rows - 1) / plan->batch_rows;
    shape->window_rows = session_window_rows(plan);
    shape->chunks_max = (uint32_t)(shape->window_rows / plan->chunk_rows);

    uint64_t memory_bytes = 0;
    code = session->backend->memory(&session->settings, &memory_bytes, err);
    if (code == 0) { /* The matrix and four vectors are the least that any backend keeps. */
        uint64_t matrix_bytes = plan->entries * (plan->storage == SESSION_DENSE ? 4 : 8);
        code = check_memory(session, matrix_bytes + 32 * shape->coordinates, memory_bytes,
                            "at least ", err);
    }
    if (code == 0) {
        set_state(session, SESSION_ADMITTED);
    }
    return settle(session, code);
}

int session_bind(struct session *session, struct err *err)
{
    int code = expect(session, SESSION_ADMITTED, "binding", err);
    if (code != 0) {
        return code;
    }
    code = session->backend->bind(&session->settings, &session->device, &session->binding,
                                  &session->memory_bytes, err);
    if (code == 0) {
        ASSERT(session->device->backend != NULL);
        ASSERT(session->device->local_depth >= 1);
        set_state(session, SESSION_BOUND);
    }
    return settle(session, code);
}

int session_load(struct session *session, struct err *err)
{
    int code = expect(session, SESSION_BOUND, "loading", err);
    if (code != 0) {
        return code;
    }
    code = session->backend->load(session->device, &session->shape, &session->images, err);
    images_close(&session->images);
    if (code == 0) {
        set_state(session, SESSION_LOADED);
    }
    return settle(session, code);
}

/* What every backend owes, whatever else it keeps. */
static int check_regions(const struct session *session, struct err *err)
{
    uint64_t vector_bytes = session->shape.coordinates * sizeof(double);
    const struct {
        const char *name;
        uint64_t bytes;
    } owed[] = {
        {"parameter", vector_bytes},          {"accumulator", vector_bytes},
        {"captured_parameter", vector_bytes}, {"captured_accumulator", vector_bytes},
        {"issues", sizeof(uint64_t)},
    };
    for (size_t i = 0; i < sizeof(owed) / sizeof(owed[0]); i++) {
        const struct arena_region *region = arena_find(&session->arena, owed[i].name);
        if (region == NULL || region->bytes < owed[i].bytes) {
            return err_set(err, ERR_STATE, "arena: region '%s' of %llu bytes is missing",
                           owed[i].name, (unsigned long long)owed[i].bytes);
        }
    }
    return 0;
}

int session_certify(struct session *session, struct err *err)
{
    int code = expect(session, SESSION_LOADED, "certification", err);
    if (code != 0) {
        return code;
    }
    code = session->backend->layout(session->device, &session->shape, &session->arena, err);
    if (code == 0) {
        code = arena_certify(&session->arena, err);
    }
    if (code == 0) {
        code = check_regions(session, err);
    }
    if (code == 0) {
        code = check_memory(session, session->arena.bytes, session->memory_bytes, "", err);
    }
    if (code == 0) {
        code = session->backend->allocate(session->device, &session->arena, err);
    }
    if (code == 0) {
        set_state(session, SESSION_CERTIFIED);
    }
    return settle(session, code);
}

static int check_csc(const struct session_matrix *matrix, uint64_t entries, struct err *err)
{
    if (matrix->starts[matrix->columns] - matrix->starts[0] != entries) {
        return err_set(err, ERR_DATA, "session: the matrix has %llu entries, %llu were admitted",
                       (unsigned long long)(matrix->starts[matrix->columns] - matrix->starts[0]),
                       (unsigned long long)entries);
    }
    for (uint64_t j = 0; j < matrix->columns; j++) {
        if (matrix->starts[j] > matrix->starts[j + 1]) {
            return err_set(err, ERR_DATA,
                           "session: column %llu of the matrix ends before it begins",
                           (unsigned long long)j);
        }
        for (uint64_t e = matrix->starts[j]; e < matrix->starts[j + 1]; e++) {
            if (matrix->row[e] >= matrix->rows ||
                (e > matrix->starts[j] && matrix->row[e] <= matrix->row[e - 1])) {
                return err_set(err, ERR_DATA,
                               "session: column %llu of the matrix: row %u is out of order",
                               (unsigned long long)j, matrix->row[e]);
            }
        }
    }
    return 0;
}

static int check_seed(const struct session *session, const struct session_seed *seed,
                      struct err *err)
{
    const struct session_shape *shape = &session->shape;
    const struct session_matrix *matrix = seed->matrix;
    if (matrix->storage != shape->plan.storage || matrix->rows != shape->plan.rows ||
        matrix->columns != shape->columns) {
        return err_set(err, ERR_DATA,
                       "session: a matrix of %llu x %llu came, one of %llu x %llu was admitted",
                       (unsigned long long)matrix->rows, (unsigned long long)matrix->columns,
                       (unsigned long long)shape->plan.rows, (unsigned long long)shape->columns);
    }
    if (matrix->storage == SESSION_DENSE && matrix->columns > 0 && matrix->stride < matrix->rows) {
        return err_set(err, ERR_DATA, "session: columns of %llu rows are %llu apart",
                       (unsigned long long)matrix->rows, (unsigned long long)matrix->stride);
    }
    if ((seed->targets != NULL) != shape->plan.whole) {
        return err_set(err, ERR_STATE, "session: targets go with a whole model, and only with it");
    }
    for (uint64_t j = 0; j < shape->coordinates; j++) {
        bool good = (seed->parameter == NULL || finite32(rn32(seed->parameter[j]))) &&
                    (seed->accumulator == NULL || finite64(seed->accumulator[j]));
        if (!good) {
            return err_set(err, ERR_DAMAGED,
                           "session: the given parameter or accumulator of coordinate %llu is out "
                           "of range",
                           (unsigned long long)(shape->plan.coordinate_first + j));
        }
    }
    return matrix->storage == SESSION_CSC ? check_csc(matrix, shape->plan.entries, err) : 0;
}

int session_seed(struct session *session, const struct session_seed *seed, struct err *err)
{
    int code = expect(session, SESSION_CERTIFIED, "seeding", err);
    if (code != 0) {
        return code;
    }
    code = check_seed(session, seed, err);
    if (code == 0) {
        code = session->backend->seed(session->device, seed, err);
    }
    if (code == 0) {
        set_state(session, SESSION_READY);
    }
    return settle(session, code);
}

/* -- submissions ------------------------------------------------------------------------------ */

/* Counts one submission before it is handed to the device. */
static int issue(struct session *session, struct err *err)
{
    if (session->issues >= session->shape.plan.issues_max) {
        return settle(session, err_set(err, ERR_STATE,
                                       "session: more than the %llu submissions that were admitted",
                                       (unsigned long long)session->shape.plan.issues_max));
    }
    session->issues++;
    return 0;
}

static int check_batch(struct session *session, const struct session_batch *batch, struct err *err)
{
    const struct session_plan *plan = &session->shape.plan;
    if (batch->row_first >= plan->rows || batch->rows_count == 0 ||
        batch->rows_count > plan->rows - batch->row_first ||
        batch->rows_count > session->shape.window_rows) {
        return misuse(session, "a step beyond the rows of the matrix", err);
    }
    if (batch->evaluate) {
        return batch->row_first % PANEL_ROWS == 0
                   ? 0
                   : misuse(session, "an evaluation window begins inside a panel", err);
    }
    uint64_t left = plan->rows - batch->row_first;
    uint64_t rows_count = left < plan->batch_rows ? left : plan->batch_rows;
    if (batch->row_first % plan->batch_rows != 0 || batch->rows_count != rows_count) {
        return misuse(session, "a training step that is no batch of the plan", err);
    }
    return 0;
}

int session_step_begin(struct session *session, const struct session_batch *batch, struct err *err)
{
    int code = expect(session, SESSION_READY, "a step", err);
    if (code == 0) {
        code = check_batch(session, batch, err);
    }
    if (code == 0 && session->in_flight > 0) {
        code = misuse(session, "a step while local steps are in flight", err);
    }
    if (code != 0) {
        return code;
    }
    session->batch = *batch;
    session->chunks_count = session_chunks_count(&session->shape.plan, batch->rows_count);
    session->forwards = 0;
    session->backwards = 0;
    session->updated = false;
    set_state(session, SESSION_STEPPING);
    return settle(session, session->backend->step_begin(session->device, batch, err));
}

static struct session_chunk chunk_of(const struct session *session, uint32_t index)
{
    uint64_t chunk_rows = session->shape.plan.chunk_rows;
    uint64_t first = index * chunk_rows;
    uint64_t left = session->batch.rows_count - first;
    return (struct session_chunk){.index = index,
                                  .row_first = session->batch.row_first + first,
                                  .rows_count = left < chunk_rows ? left : chunk_rows,
                                  .last = index + 1 == session->chunks_count};
}

int session_forward(struct session *session, uint32_t chunk, struct err *err)
{
    int code = expect(session, SESSION_STEPPING, "forward", err);
    if (code != 0) {
        return code;
    }
    if (chunk != session->forwards || chunk >= session->chunks_count) {
        return misuse(session, "forward of a chunk out of order", err);
    }
    code = issue(session, err);
    if (code != 0) {
        return code;
    }
    session->forwards++;
    struct session_chunk at = chunk_of(session, chunk);
    return settle(session, session->backend->forward(session->device, &at, err));
}

int session_forward_wait(struct session *session, uint32_t chunk, const double **ret_values,
                         struct err *err)
{
    int code = expect(session, SESSION_STEPPING, "forward's values", err);
    if (code != 0) {
        return code;
    }
    if (chunk >= session->forwards) {
        return misuse(session, "waiting for a forward that was not submitted", err);
    }
    struct session_chunk at = chunk_of(session, chunk);
    return settle(session, session->backend->forward_wait(session->device, &at, ret_values, err));
}

int session_backward(struct session *session, uint32_t chunk, const float *residual,
                     struct err *err)
{
    int code = expect(session, SESSION_STEPPING, "backward", err);
    if (code != 0) {
        return code;
    }
    if (session->batch.evaluate) {
        return misuse(session, "backward in an evaluation", err);
    }
    if (session->forwards != session->chunks_count || chunk != session->backwards ||
        chunk >= session->chunks_count) {
        return misuse(session, "backward before all forwards, or of a chunk out of order", err);
    }
    struct session_chunk at = chunk_of(session, chunk);
    for (uint64_t i = 0; i < at.rows_count; i++) {
        if (!finite32(residual[i])) {
            return settle(session, err_set(err, ERR_DIVERGED,
                                           "step %llu: the residual of training row %llu left the "
                                           "range of binary32; give a smaller rate",
                                           (unsigned long long)session->batch.step,
                                           (unsigned long long)(at.row_first + i)));
        }
    }
    code = issue(session, err);
    if (code != 0) {
        return code;
    }
    session->backwards++;
    return settle(session, session->backend->backward(session->device, &at, residual, err));
}

int session_update(struct session *session, const struct session_hyper *hyper, struct err *err)
{
    int code = expect(session, SESSION_STEPPING, "the update", err);
    if (code != 0) {
        return code;
    }
    if (session->batch.evaluate || session->updated ||
        session->backwards != session->chunks_count) {
        return misuse(session, "an update before all backwards of its step", err);
    }
    code = issue(session, err);
    if (code != 0) {
        return code;
    }
    session->updated = true;
    session->changed = true;
    return settle(session, session->backend->update(session->device, hyper, err));
}

int session_step_end(struct session *session, struct err *err)
{
    int code = expect(session, SESSION_STEPPING, "the end of a step", err);
    if (code != 0) {
        return code;
    }
    if (session->forwards != session->chunks_count ||
        (!session->batch.evaluate && !session->updated)) {
        return misuse(session, "the end of a step that is not complete", err);
    }
    code = session->backend->fence(session->device, err);
    if (code == 0) {
        set_state(session, SESSION_READY);
    }
    return settle(session, code);
}

int session_local_step(struct session *session, const struct session_batch *batch,
                       const struct session_hyper *hyper, struct err *err)
{
    int code = expect(session, SESSION_READY, "a local step", err);
    if (code == 0) {
        code = check_batch(session, batch, err);
    }
    if (code == 0 && !session->shape.plan.whole) {
        code = misuse(session, "a local step where other nodes own coordinates", err);
    }
    if (code == 0 && session->in_flight >= session->device->local_depth) {
        code = misuse(session, "more local steps in flight than the device takes", err);
    }
    if (code == 0) {
        code = issue(session, err);
    }
    if (code != 0) {
        return code;
    }
    session->in_flight++;
    session->changed = session->changed || !batch->evaluate;
    return settle(session, session->backend->local_step(session->device, batch, hyper, err));
}

int session_local_wait(struct session *session, const double **ret_panel_losses,
                       size_t *ret_panels_count, struct err *err)
{
    int code = expect(session, SESSION_READY, "a local step's losses", err);
    if (code != 0) {
        return code;
    }
    if (session->in_flight == 0) {
        return misuse(session, "waiting for a local step that was not submitted", err);
    }
    session->in_flight--;
    return settle(session, session->backend->local_wait(session->device, ret_panel_losses,
                                                        ret_panels_count, err));
}

unsigned session_local_depth(const struct session *session)
{
    return session->device != NULL ? session->device->local_depth : 1;
}

unsigned session_lookahead(const struct session *session)
{
    return session->device != NULL ? session->device->lookahead : 0;
}

/* -- results ---------------------------------------------------------------------------------- */

int session_capture(struct session *session, struct err *err)
{
    int code = expect(session, SESSION_READY, "a capture", err);
    if (code == 0 && session->in_flight > 0) {
        code = misuse(session, "a capture while local steps are in flight", err);
    }
    if (code != 0) {
        return code;
    }
    code = session->backend->capture(session->device, err);
    if (code == 0) {
        session->captured = true;
        session->captured_issues = session->issues;
    }
    return settle(session, code);
}

int session_capture_read(struct session *session, double *parameter, double *accumulator,
                         struct err *err)
{
    int code = expect(session, SESSION_READY, "captured state", err);
    if (code == 0 && !session->captured) {
        code = misuse(session, "captured state was asked for before a capture", err);
    }
    if (code != 0) {
        return code;
    }
    uint64_t issues = 0;
    code = session->backend->capture_read(session->device, parameter, accumulator, &issues, err);
    if (code == 0 && issues != session->captured_issues) {
        code = err_set(err, ERR_STATE,
                       "session: the device retired %llu issues, %llu were submitted before the "
                       "capture",
                       (unsigned long long)issues, (unsigned long long)session->captured_issues);
    }
    return settle(session, code);
}

int session_read_back(struct session *session, struct fs *fs, const char *path,
                      uint64_t issues_expected, struct err *err)
{
    int code = expect(session, SESSION_READY, "the read-back", err);
    if (code == 0 && !(session->captured && session->captured_issues == session->issues)) {
        code = misuse(session, "the read-back needs a capture behind the last submission", err);
    }
    if (code != 0) {
        return code;
    }
    size_t coordinates = (size_t)session->shape.coordinates;
    double *vectors = calloc(2 * coordinates, sizeof(*vectors));
    if (vectors == NULL) {
        return settle(session, err_set(err, ERR_NOMEM, "no memory to read %zu coordinates back",
                                       coordinates));
    }
    struct readback readback = {.binding = session->binding,
                                .coordinate_first = session->shape.plan.coordinate_first,
                                .coordinate_end = session->shape.plan.coordinate_end,
                                .issues_host = session->issues,
                                .issues_expected = issues_expected};
    code = session->backend->capture_read(session->device, vectors, vectors + coordinates,
                                          &readback.issues_device, err);
    if (code == 0) { /* A mismatch is written too: the file is the evidence. */
        code = readback_write(fs, path, &readback, vectors, vectors + coordinates, err);
    }
    if (code == 0 &&
        (readback.issues_device != issues_expected || readback.issues_host != issues_expected)) {
        code = err_set(err, ERR_STATE,
                       "session: the device retired %llu issues, the host submitted %llu, the job "
                       "expects %llu: the run is void ('%s' has the state)",
                       (unsigned long long)readback.issues_device,
                       (unsigned long long)readback.issues_host,
                       (unsigned long long)issues_expected, path);
    }
    free(vectors);
    if (code == 0) {
        set_state(session, SESSION_READ_BACK);
    }
    return settle(session, code);
}

int session_release(struct session *session, struct err *err)
{
    give_back(session);
    bool unchanged = session->state == SESSION_READY && !session->changed;
    if (session->state == SESSION_READ_BACK || unchanged) {
        set_state(session, SESSION_RELEASED);
        return 0;
    }
    if (session->state == SESSION_RELEASED || session->state == SESSION_ABANDONED) {
        return err_set(err, ERR_STATE, "session: released twice");
    }
    bool failed = session->state == SESSION_FAILED;
    const char *name = session_state_name(session->state);
    set_state(session, SESSION_ABANDONED);
    return failed ? 0
                  : err_set(err, ERR_STATE,
                            "session: released while %s, without a read-back: nothing of it may be "
                            "published",
                            name);
}

/* -- looking ---------------------------------------------------------------------------------- */

enum session_state session_state(const struct session *session)
{
    return session->state;
}

uint64_t session_issues(const struct session *session)
{
    return session->issues;
}

const struct session_binding *session_binding(const struct session *session)
{
    return session->binding.device[0] != '\0' ? &session->binding : NULL;
}

const struct arena *session_arena(const struct session *session)
{
    return session->arena.certified ? &session->arena : NULL;
}

size_t session_nodes_count(const struct session *session)
{
    return session->shape.nodes_count;
}

uint32_t session_chunks_count(const struct session_plan *plan, uint64_t rows_count)
{
    return (uint32_t)((rows_count + plan->chunk_rows - 1) / plan->chunk_rows);
}

uint64_t session_window_rows(const struct session_plan *plan)
{
    return (uint64_t)session_chunks_count(plan, plan->batch_rows) * plan->chunk_rows;
}
