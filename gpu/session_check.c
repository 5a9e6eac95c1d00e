/* What a session admits, and what it may be seeded with: each refusal says the numbers. */
#include "base/assert.h"
#include "gpu/session_room.h"
#include "numerics/lane.h"
#include "numerics/product.h"

/* The counter is 64 bits wide; the sum of what was admitted stays far from its end. */
#define ISSUES_MAX ((uint64_t)1 << 62)

int session_check_plan(const struct session_plan *plan, struct err *err)
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

int session_check_seed(const struct session *session, const struct session_seed *seed,
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
