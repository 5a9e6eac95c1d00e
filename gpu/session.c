/* The session core: states, life, release. See gpu.h for the drawing. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/session_room.h"

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

void session_set_state(struct session *session, enum session_state next)
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
int session_settle(struct session *session, int code)
{
    if (code != 0 && session->state != SESSION_RELEASED && session->state != SESSION_ABANDONED) {
        session_set_state(session, SESSION_FAILED);
    }
    return code;
}

int session_expect(struct session *session, enum session_state state, const char *what,
                   struct err *err)
{
    if (session->state == state) {
        return 0;
    }
    return session_settle(
        session, err_set(err, ERR_STATE, "session: %s was asked for while %s; it must be %s", what,
                         session_state_name(session->state), session_state_name(state)));
}

int session_misuse(struct session *session, const char *sentence, struct err *err)
{
    return session_settle(session, err_set(err, ERR_STATE, "session: %s", sentence));
}

/* The one that the device asks for; NULL with err where there is none. */
static const struct session_backend *backend_for(const struct session_settings *settings,
                                                 struct err *err)
{
    if (settings->device == NULL) {
        (void)err_set(err, ERR_CONFIG, "no device is given; say 'cpu', 'auto' or a GPU");
        return NULL;
    }
    if (strcmp(settings->device, "cpu") == 0) {
        return session_backend_cpu();
    }
    if (session_backend_cuda() == NULL) {
        (void)err_set(err, ERR_DEVICE,
                      "device '%s': this build is without GPU kernels; build it with nvcc, or set "
                      "device: cpu",
                      settings->device);
    }
    return session_backend_cuda();
}

static uint64_t smaller_limit(uint64_t a, uint64_t b) /* 0 is no limit */
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

int session_memory(const struct session_settings *settings, const struct session_backend *backend,
                   uint64_t *ret_bytes, struct err *err)
{
    uint64_t bytes = 0;
    backend = backend != NULL ? backend : backend_for(settings, err);
    if (backend == NULL) {
        return settings->device == NULL ? ERR_CONFIG : ERR_DEVICE;
    }
    int code = backend->memory(settings, &bytes, err);
    *ret_bytes = smaller_limit(bytes, settings->memory_bytes);
    return code;
}

int session_new(const struct session_settings *settings, const struct session_backend *backend,
                struct session **ret_session, struct err *err)
{
    backend = backend != NULL ? backend : backend_for(settings, err);
    if (backend == NULL) {
        return settings->device == NULL ? ERR_CONFIG : ERR_DEVICE;
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

/* The memory check, with the numbers. */
static int check_memory(const struct session *session, uint64_t bytes, uint64_t memory_bytes,
                        const char *at_least, struct err *err)
{
    memory_bytes = smaller_limit(memory_bytes, session->settings.memory_bytes);
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
    int code = session_expect(session, SESSION_NEW, "admission", err);
    if (code != 0) {
        return code;
    }
    code = session_check_plan(plan, err);
    if (code != 0) {
        return session_settle(session, code);
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
        session_set_state(session, SESSION_ADMITTED);
    }
    return session_settle(session, code);
}

int session_bind(struct session *session, struct err *err)
{
    int code = session_expect(session, SESSION_ADMITTED, "binding", err);
    if (code != 0) {
        return code;
    }
    code = session->backend->bind(&session->settings, &session->device, &session->binding,
                                  &session->memory_bytes, err);
    if (code == 0) {
        ASSERT(session->device->backend != NULL);
        ASSERT(session->device->local_depth >= 1);
        session_set_state(session, SESSION_BOUND);
    }
    return session_settle(session, code);
}

int session_load(struct session *session, struct err *err)
{
    int code = session_expect(session, SESSION_BOUND, "loading", err);
    if (code != 0) {
        return code;
    }
    code = session->backend->load(session->device, &session->shape, &session->images, err);
    images_close(&session->images);
    if (code == 0) {
        session_set_state(session, SESSION_LOADED);
    }
    return session_settle(session, code);
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
    int code = session_expect(session, SESSION_LOADED, "certification", err);
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
        session_set_state(session, SESSION_CERTIFIED);
    }
    return session_settle(session, code);
}

int session_seed(struct session *session, const struct session_seed *seed, struct err *err)
{
    int code = session_expect(session, SESSION_CERTIFIED, "seeding", err);
    if (code != 0) {
        return code;
    }
    code = session_check_seed(session, seed, err);
    if (code == 0) {
        code = session->backend->seed(session->device, seed, err);
    }
    if (code == 0) {
        session_set_state(session, SESSION_READY);
    }
    return session_settle(session, code);
}

int session_release(struct session *session, struct err *err)
{
    give_back(session);
    bool unchanged = session->state == SESSION_READY && !session->changed;
    if (session->state == SESSION_READ_BACK || unchanged) {
        session_set_state(session, SESSION_RELEASED);
        return 0;
    }
    if (session->state == SESSION_RELEASED || session->state == SESSION_ABANDONED) {
        return err_set(err, ERR_STATE, "session: released twice");
    }
    bool failed = session->state == SESSION_FAILED;
    const char *name = session_state_name(session->state);
    session_set_state(session, SESSION_ABANDONED);
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
