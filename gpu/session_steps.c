/* Submissions: forward, backward, update, local steps. Each is counted before it is handed to the
 * device, and refused out of its order. */
#include <string.h>

#include "base/assert.h"
#include "gpu/session_room.h"
#include "numerics/lane.h"
#include "numerics/product.h"

/* Counts one submission before it is handed to the device. */
static int issue(struct session *session, struct err *err)
{
    if (session->issues >= session->shape.plan.issues_max) {
        return session_settle(session,
                              err_set(err, ERR_STATE,
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
        return session_misuse(session, "a step beyond the rows of the matrix", err);
    }
    if (batch->evaluate) {
        return batch->row_first % PANEL_ROWS == 0
                   ? 0
                   : session_misuse(session, "an evaluation window begins inside a panel", err);
    }
    uint64_t left = plan->rows - batch->row_first;
    uint64_t rows_count = left < plan->batch_rows ? left : plan->batch_rows;
    if (batch->row_first % plan->batch_rows != 0 || batch->rows_count != rows_count) {
        return session_misuse(session, "a training step that is no batch of the plan", err);
    }
    return 0;
}

int session_step_begin(struct session *session, const struct session_batch *batch, struct err *err)
{
    int code = session_expect(session, SESSION_READY, "a step", err);
    if (code == 0) {
        code = check_batch(session, batch, err);
    }
    if (code == 0 && session->in_flight > 0) {
        code = session_misuse(session, "a step while local steps are in flight", err);
    }
    if (code != 0) {
        return code;
    }
    session->batch = *batch;
    session->chunks_count = session_chunks_count(&session->shape.plan, batch->rows_count);
    session->forwards = 0;
    session->backwards = 0;
    session->updated = false;
    session_set_state(session, SESSION_STEPPING);
    return session_settle(session, session->backend->step_begin(session->device, batch, err));
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
    int code = session_expect(session, SESSION_STEPPING, "forward", err);
    if (code != 0) {
        return code;
    }
    if (chunk != session->forwards || chunk >= session->chunks_count) {
        return session_misuse(session, "forward of a chunk out of order", err);
    }
    code = issue(session, err);
    if (code != 0) {
        return code;
    }
    session->forwards++;
    struct session_chunk at = chunk_of(session, chunk);
    return session_settle(session, session->backend->forward(session->device, &at, err));
}

int session_forward_wait(struct session *session, uint32_t chunk, const double **ret_values,
                         struct err *err)
{
    int code = session_expect(session, SESSION_STEPPING, "forward's values", err);
    if (code != 0) {
        return code;
    }
    if (chunk >= session->forwards) {
        return session_misuse(session, "waiting for a forward that was not submitted", err);
    }
    struct session_chunk at = chunk_of(session, chunk);
    return session_settle(session,
                          session->backend->forward_wait(session->device, &at, ret_values, err));
}

/* Where the first residual that is not finite lies, or count. By 64, so that they are looked at
 * side by side. */
static uint64_t first_not_finite(const float *residual, uint64_t count)
{
    uint64_t first = 0;
    for (; first + 64 <= count; first += 64) {
        uint32_t bad = 0;
        for (unsigned i = 0; i < 64; i++) {
            uint32_t bits = 0;
            memcpy(&bits, &residual[first + i], sizeof(bits));
            bad |= (bits & 0x7f800000U) == 0x7f800000U ? 1U : 0U;
        }
        if (bad != 0) {
            break;
        }
    }
    while (first < count && finite32(residual[first])) {
        first++;
    }
    return first;
}

int session_backward(struct session *session, uint32_t chunk, const float *residual,
                     struct err *err)
{
    int code = session_expect(session, SESSION_STEPPING, "backward", err);
    if (code != 0) {
        return code;
    }
    if (session->batch.evaluate) {
        return session_misuse(session, "backward in an evaluation", err);
    }
    if (session->forwards != session->chunks_count || chunk != session->backwards ||
        chunk >= session->chunks_count) {
        return session_misuse(session, "backward before all forwards, or of a chunk out of order",
                              err);
    }
    struct session_chunk at = chunk_of(session, chunk);
    uint64_t bad = first_not_finite(residual, at.rows_count);
    if (bad < at.rows_count) {
        return session_settle(session,
                              err_set(err, ERR_DIVERGED,
                                      "step %llu: the residual of training row %llu left the range "
                                      "of binary32; give a smaller rate",
                                      (unsigned long long)session->batch.step,
                                      (unsigned long long)(at.row_first + bad)));
    }
    code = issue(session, err);
    if (code != 0) {
        return code;
    }
    session->backwards++;
    return session_settle(session, session->backend->backward(session->device, &at, residual, err));
}

int session_update(struct session *session, const struct session_hyper *hyper, struct err *err)
{
    int code = session_expect(session, SESSION_STEPPING, "the update", err);
    if (code != 0) {
        return code;
    }
    if (session->batch.evaluate || session->updated ||
        session->backwards != session->chunks_count) {
        return session_misuse(session, "an update before all backwards of its step", err);
    }
    code = issue(session, err);
    if (code != 0) {
        return code;
    }
    session->updated = true;
    session->changed = true;
    return session_settle(session, session->backend->update(session->device, hyper, err));
}

int session_step_end(struct session *session, struct err *err)
{
    int code = session_expect(session, SESSION_STEPPING, "the end of a step", err);
    if (code != 0) {
        return code;
    }
    if (session->forwards != session->chunks_count ||
        (!session->batch.evaluate && !session->updated)) {
        return session_misuse(session, "the end of a step that is not complete", err);
    }
    code = session->backend->fence(session->device, err);
    if (code == 0) {
        session_set_state(session, SESSION_READY);
    }
    return session_settle(session, code);
}

int session_local_step(struct session *session, const struct session_batch *batch,
                       const struct session_hyper *hyper, struct err *err)
{
    int code = session_expect(session, SESSION_READY, "a local step", err);
    if (code == 0) {
        code = check_batch(session, batch, err);
    }
    if (code == 0 && !session->shape.plan.whole) {
        code = session_misuse(session, "a local step where other nodes own coordinates", err);
    }
    if (code == 0 && session->in_flight >= session->device->local_depth) {
        code = session_misuse(session, "more local steps in flight than the device takes", err);
    }
    if (code == 0) {
        code = issue(session, err);
    }
    if (code != 0) {
        return code;
    }
    session->in_flight++;
    session->changed = session->changed || !batch->evaluate;
    return session_settle(session,
                          session->backend->local_step(session->device, batch, hyper, err));
}

int session_local_wait(struct session *session, const double **ret_panel_losses,
                       size_t *ret_panels_count, struct err *err)
{
    int code = session_expect(session, SESSION_READY, "a local step's losses", err);
    if (code != 0) {
        return code;
    }
    if (session->in_flight == 0) {
        return session_misuse(session, "waiting for a local step that was not submitted", err);
    }
    session->in_flight--;
    return session_settle(session, session->backend->local_wait(session->device, ret_panel_losses,
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
