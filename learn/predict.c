#include "learn/learn.h"

#include "numerics/lane.h"
#include "numerics/nodes.h"
#include "numerics/product.h"

#define CHUNK_ROWS (16 * PANEL_ROWS)
#define BATCH_ROWS (8 * (uint64_t)CHUNK_ROWS) /* rows whose values are held at a time */

/* One window of rows: forward, and the fold of this node's own canonical nodes. */
static int predict_window(struct session *session, const struct session_plan *plan,
                          const struct fold_plan *fold, uint64_t window, double *prediction,
                          struct err *err)
{
    uint64_t stride = session_window_rows(plan);
    uint64_t left = plan->rows - window * stride;
    struct session_batch batch = {.step = window,
                                  .row_first = window * stride,
                                  .rows_count = left < stride ? left : stride,
                                  .evaluate = true};
    uint32_t chunks = session_chunks_count(plan, batch.rows_count);
    int code = session_step_begin(session, &batch, err);
    for (uint32_t chunk = 0; code == 0 && chunk < chunks; chunk++) {
        code = session_forward(session, chunk, err);
    }
    for (uint32_t chunk = 0; code == 0 && chunk < chunks; chunk++) {
        const double *values = NULL;
        code = session_forward_wait(session, chunk, &values, err);
        if (code != 0) {
            break;
        }
        uint64_t first = (uint64_t)chunk * plan->chunk_rows;
        uint64_t rest = batch.rows_count - first;
        size_t rows = (size_t)(rest < plan->chunk_rows ? rest : plan->chunk_rows);
        const double *inputs[NODES_MAX];
        for (size_t n = 0; n < fold->inputs_count; n++) {
            inputs[n] = values + n * rows;
        }
        double *to = prediction + batch.row_first + first;
        fold_plan_run(fold, inputs, to, rows);
        for (size_t i = 0; i < rows; i++) {
            if (!finite64(to[i])) {
                return err_set(err, ERR_DIVERGED,
                               "the prediction of row %llu left the range of binary32 products",
                               (unsigned long long)(batch.row_first + first + i));
            }
        }
    }
    return code != 0 ? code : session_step_end(session, err);
}

static int run_session(struct session *session, const struct session_plan *plan,
                       const struct session_seed *seed, const struct fold_plan *fold,
                       double *prediction, struct err *err)
{
    int code = session_admit(session, plan, err);
    code = code != 0 ? code : session_bind(session, err);
    code = code != 0 ? code : session_load(session, err);
    code = code != 0 ? code : session_certify(session, err);
    code = code != 0 ? code : session_seed(session, seed, err);
    uint64_t stride = session_window_rows(plan);
    for (uint64_t w = 0; code == 0 && w * stride < plan->rows; w++) {
        code = predict_window(session, plan, fold, w, prediction, err);
    }
    return code != 0 ? code : session_release(session, err);
}

int learn_predict(const struct session_settings *settings, const struct session_matrix *matrix,
                  bool intercept, const double *parameter, double *prediction, struct err *err)
{
    if (matrix->rows == 0) {
        return 0;
    }
    uint64_t coordinates = matrix->columns + (intercept ? 1 : 0);
    struct session_plan plan = {
        .coordinate_end = coordinates,
        .intercept = intercept,
        .storage = matrix->storage,
        .rows = matrix->rows,
        .entries = matrix->storage == SESSION_DENSE
                       ? matrix->rows * matrix->columns
                       : matrix->starts[matrix->columns] - matrix->starts[0],
        .batch_rows = matrix->rows < BATCH_ROWS ? matrix->rows : BATCH_ROWS,
        .chunk_rows = CHUNK_ROWS,
        .issues_max = panels_of((size_t)matrix->rows) + 1,
    };
    struct session_seed seed = {.matrix = matrix, .parameter = parameter};
    uint64_t bounds[2] = {0, coordinates};
    struct fold_plan fold = FOLD_PLAN_NONE;
    struct session *session = NULL;
    int code = fold_plan_init_bounds(&fold, bounds, 1, err);
    if (code == 0) {
        code = session_new(settings, NULL, &session, err);
    }
    if (code == 0) {
        code = run_session(session, &plan, &seed, &fold, prediction, err);
    }
    session_free(session);
    fold_plan_done(&fold);
    return code;
}
