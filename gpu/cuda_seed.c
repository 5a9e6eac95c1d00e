/* The matrix, the targets and the state, uploaded once, in the device's own form, through two
 * pinned buffers: while one travels the other is filled. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/cuda.h"
#include "gpu/cuda_upload.h"
#include "numerics/lane.h"
#include "numerics/product.h"

/* -- dense --------------------------------------------------------------------------------------
 */

static int send_columns(struct cuda_device *cuda, const struct session_matrix *matrix,
                        struct err *err)
{
    struct cuda_upload upload;
    int code = cuda_upload_begin(&upload, cuda, cuda->at.matrix, err);
    for (uint64_t j = 0; j < matrix->columns && code == 0; j++) {
        code = cuda_upload_put(&upload, matrix->dense + j * matrix->stride,
                               matrix->rows * sizeof(float), err);
        code = code != 0
                   ? code
                   : cuda_upload_put(&upload, NULL, (cuda->ld - matrix->rows) * sizeof(float), err);
    }
    return code != 0 ? code : cuda_upload_flush(&upload, err);
}

/* Whole panels of all columns at a time through the stage, then a kernel orders them. */
static int send_tiles(struct cuda_device *cuda, const struct session_matrix *matrix,
                      struct err *err)
{
    size_t panel_bytes = (size_t)matrix->columns * PANEL_ROWS * sizeof(float);
    uint64_t panels_a_time = cuda->stage_size / panel_bytes;
    ASSERT(panels_a_time > 0); /* at most 1024 columns: 8 MiB */
    panels_a_time = panels_a_time > 512 ? 512 : panels_a_time;
    uint64_t panels = panels_of(matrix->rows);
    bool ones = cuda->shape.plan.intercept && cuda->outside == NO_COLUMN;
    for (uint64_t panel = 0; panel < panels; panel += panels_a_time) {
        uint64_t now = panels - panel < panels_a_time ? panels - panel : panels_a_time;
        uint64_t first = panel * PANEL_ROWS;
        uint64_t rows = matrix->rows - first;
        rows = rows < now * PANEL_ROWS ? rows : now * PANEL_ROWS;
        struct cuda_upload upload;
        int code = cuda_upload_begin(&upload, cuda, cuda->at.stage, err);
        for (uint64_t j = 0; j < matrix->columns && code == 0; j++) {
            code = cuda_upload_put(&upload, matrix->dense + j * matrix->stride + first,
                                   rows * sizeof(float), err);
            code = code != 0 ? code
                             : cuda_upload_put(&upload, NULL,
                                               (now * PANEL_ROWS - rows) * sizeof(float), err);
        }
        code = code != 0 ? code : cuda_upload_flush(&upload, err);
        if (code != 0) {
            return code;
        }
        struct pack_args args = {
            .staged = cuda->at.stage,
            .staged_rows = now * PANEL_ROWS,
            .rows = rows,
            .columns = matrix->columns,
            .ones = ones ? matrix->columns : NO_COLUMN,
            .row_floats = cuda->row_floats,
            .panel_first = panel,
            .tiles = cuda->at.matrix,
        };
        code = cuda_launch(cuda, KERNEL_PACK_TILES, (unsigned)((cuda->row_floats + 31) / 32),
                           PANEL_LANES / 32, (unsigned)now, 256, 0, &args, err);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

/* Where a row lies in the order of tiles. */
static uint64_t tile_row(uint64_t row)
{
    uint64_t in = row % PANEL_ROWS;
    return row / PANEL_ROWS * PANEL_ROWS + in % PANEL_LANES * (PANEL_ROWS / PANEL_LANES) +
           in / PANEL_LANES;
}

static int send_targets(struct cuda_device *cuda, const double *targets, struct err *err)
{
    uint64_t rows = cuda->shape.plan.rows;
    if (cuda->form != FORM_TILES) {
        return cuda_upload_all(cuda, cuda->at.targets, targets, rows * sizeof(double), err);
    }
    uint64_t padded = panels_of(rows) * PANEL_ROWS;
    double *ordered = calloc(padded, sizeof(*ordered));
    if (ordered == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu targets", (unsigned long long)padded);
    }
    for (uint64_t i = 0; i < rows; i++) {
        ordered[tile_row(i)] = targets[i];
    }
    int code = cuda_upload_all(cuda, cuda->at.targets, ordered, padded * sizeof(double), err);
    free(ordered);
    return code;
}

/* -- tables and state ----------------------------------------------------------------------------
 */

static int send_segments(struct cuda_device *cuda, struct err *err)
{
    const struct session_shape *shape = &cuda->shape;
    struct segment *list = calloc(cuda->segments_count, sizeof(*list));
    if (list == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu pieces of columns",
                       (unsigned long long)cuda->segments_count);
    }
    size_t at = 0;
    for (size_t n = 0; n < shape->nodes_count; n++) {
        struct node node = shape->nodes[n];
        unsigned level = node.level < cuda->level_max ? node.level : cuda->level_max;
        uint64_t pieces = (uint64_t)1 << (node.level - level);
        for (uint64_t i = 0; i < pieces; i++) {
            uint64_t index = node.index * pieces + i;
            list[at++] = (struct segment){
                .first = (uint32_t)((index << level) - shape->plan.coordinate_first),
                .level = level,
                .node = (uint32_t)n,
                .node_level = node.level,
                .index = index,
            };
        }
    }
    ASSERT(at == cuda->segments_count);
    int code = cuda_upload_all(cuda, cuda->at.segments, list, at * sizeof(*list), err);
    free(list);
    return code;
}

static int send_state(struct cuda_device *cuda, const struct session_seed *seed, struct err *err)
{
    const struct session_shape *shape = &cuda->shape;
    uint64_t count = shape->coordinates;
    uint64_t ends[NODES_MAX];
    for (size_t n = 0; n < shape->nodes_count; n++) {
        ends[n] = node_end(shape->nodes[n]) - shape->plan.coordinate_first;
    }
    int code = cuda_upload_all(cuda, cuda->at.node_ends, ends, shape->nodes_count * 8, err);
    struct step_state state = {
        .issues = cuda->at.issues,
        .bad_step = UINT64_MAX,
        .bad_place = UINT64_MAX,
    };
    code = code != 0 ? code : cuda_upload_all(cuda, cuda->at.state, &state, sizeof(state), err);
    double *vector = calloc(count, sizeof(*vector));
    float *rounded = calloc(count, sizeof(*rounded));
    if (code == 0 && (vector == NULL || rounded == NULL)) {
        code = err_set(err, ERR_NOMEM, "no memory for %llu coordinates", (unsigned long long)count);
    }
    if (code == 0 && seed->parameter != NULL) {
        for (uint64_t j = 0; j < count; j++) {
            vector[j] = canon(seed->parameter[j]);
            rounded[j] = rn32(vector[j]);
        }
        code = cuda_upload_all(cuda, cuda->at.parameter, vector, count * sizeof(*vector), err);
        code = code != 0
                   ? code
                   : cuda_upload_all(cuda, cuda->at.w32, rounded, count * sizeof(*rounded), err);
    }
    if (code == 0 && seed->accumulator != NULL) {
        for (uint64_t j = 0; j < count; j++) {
            vector[j] = canon(seed->accumulator[j]);
        }
        code = cuda_upload_all(cuda, cuda->at.accumulator, vector, count * sizeof(*vector), err);
    }
    free(vector);
    free(rounded);
    return code;
}

int cuda_seed(struct session_device *device, const struct session_seed *seed, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    const struct session_matrix *matrix = seed->matrix;
    int code = 0;
    if (cuda->form == FORM_SPARSE) {
        code = cuda_send_sparse(cuda, matrix, seed->targets, err);
    } else if (cuda->form == FORM_TILES) {
        code = send_tiles(cuda, matrix, err);
    } else {
        code = send_columns(cuda, matrix, err);
        code = code != 0 ? code : send_segments(cuda, err);
    }
    if (code == 0 && seed->targets != NULL && cuda->form != FORM_SPARSE) {
        code = send_targets(cuda, seed->targets, err);
    }
    code = code != 0 ? code : send_state(cuda, seed, err);
    if (code != 0) {
        return code;
    }
    CUDA_TRY(cuda, cuStreamSynchronize(cuda->work), "uploading the matrix");
    return 0;
}
