/* Dense blocks: column by column into memory, shuffled, and standardised over the training rows. */
#include "data/load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "numerics/dyadic.h"
#include "numerics/lane.h"

#define ENTRIES_PIECE 65536U

struct scratch {
    float *column;  /* in file order */
    uint64_t *rows; /* sparse: a piece of the entries */
    float *values;
    uint64_t *ends; /* sparse: indptr of the block's columns */
};

static int alloc_matrix(struct dataset_matrix *matrix, struct err *err)
{
    matrix->ld = (matrix->rows + 15) & ~UINT64_C(15);
    uint64_t bytes = matrix->ld * matrix->columns * sizeof(float);
    if (bytes == 0) {
        return 0;
    }
    matrix->dense = aligned_alloc(64, (size_t)bytes);
    if (matrix->dense == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu x %llu values",
                       (unsigned long long)matrix->rows, (unsigned long long)matrix->columns);
    }
    for (uint64_t j = 0; j < matrix->columns; j++) {
        memset(matrix->dense + j * matrix->ld + matrix->rows, 0,
               (size_t)(matrix->ld - matrix->rows) * sizeof(float));
    }
    return 0;
}

int load_order_fault(const struct dataset *dataset, uint64_t feature, uint64_t row, struct err *err)
{
    return err_set(err, ERR_DATA,
                   "%s: row %llu of column %llu is twice there or out of order; call "
                   "sum_duplicates() and sort_indices() in SciPy before saving",
                   dataset->indices.path, (unsigned long long)row, (unsigned long long)feature + 1);
}

/* A sparse column with its zeros. */
static int expand_column(struct load *load, struct scratch *scratch, uint64_t feature,
                         struct err *err)
{
    const struct dataset *dataset = load->dataset;
    uint64_t rows = dataset->info.rows;
    uint64_t at = scratch->ends[feature - load->block->first];
    uint64_t end = scratch->ends[feature - load->block->first + 1];
    memset(scratch->column, 0, (size_t)rows * sizeof(float));
    uint64_t next_row = 0;
    while (at < end) {
        size_t count = end - at < ENTRIES_PIECE ? (size_t)(end - at) : ENTRIES_PIECE;
        int code = load_entries(dataset, at, count, scratch->rows, scratch->values, err);
        if (code != 0) {
            return code;
        }
        for (size_t i = 0; i < count; i++) {
            if (scratch->rows[i] < next_row) {
                return load_order_fault(dataset, feature, scratch->rows[i], err);
            }
            scratch->column[scratch->rows[i]] = scratch->values[i];
            next_row = scratch->rows[i] + 1;
        }
        at += count;
    }
    return 0;
}

static int read_column(struct load *load, struct scratch *scratch, uint64_t feature,
                       struct err *err)
{
    const struct dataset *dataset = load->dataset;
    uint64_t rows = dataset->info.rows;
    if (dataset->info.sparse) {
        return expand_column(load, scratch, feature, err);
    }
    const struct dataset_file *x = &dataset->x;
    int code = dataset_pread(dataset, x, x->npy.offset + feature * rows * sizeof(float),
                             scratch->column, (size_t)rows * sizeof(float), err);
    if (code != 0) {
        return code;
    }
    unsigned bad = 0;
    for (uint64_t i = 0; i < rows; i++) {
        bad |= scratch->column[i] - scratch->column[i] == 0.0F ? 0U : 1U;
    }
    for (uint64_t i = 0; bad != 0 && i < rows; i++) {
        if (scratch->column[i] - scratch->column[i] != 0.0F) {
            return err_set(err, ERR_DATA, "%s: row %llu of column %llu is not finite", x->path,
                           (unsigned long long)i + 1, (unsigned long long)feature + 1);
        }
    }
    return 0;
}

/* lane(x_i - mean) or lane((x_i - mean)^2) over n rows (NUMERICS.md). */
static double lane_sum(const float *x, uint64_t n, double mean, bool squared)
{
    struct dyadic sum;
    dyadic_start(&sum);
    for (uint64_t first = 0; first < n; first += PANEL_ROWS) {
        double lanes[PANEL_LANES] = {0};
        uint64_t end = n - first < PANEL_ROWS ? n : first + PANEL_ROWS;
        for (uint64_t i = first; i < end; i += PANEL_LANES) {
            unsigned count = end - i < PANEL_LANES ? (unsigned)(end - i) : PANEL_LANES;
            for (unsigned lane = 0; lane < count; lane++) {
                double centred = (double)x[i + lane] - mean;
                lanes[lane] += squared ? centred * centred : centred;
            }
        }
        dyadic_add(&sum, lanes_root(lanes));
    }
    return dyadic_root(&sum) + 0.0;
}

/* x' = rn32((x - mean) / scale), in place. */
static int transform(float *x, uint64_t n, double mean, double scale, uint64_t feature,
                     struct err *err)
{
    unsigned bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)(((double)x[i] - mean) / scale);
        bad |= x[i] - x[i] == 0.0F ? 0U : 1U;
    }
    return bad == 0 ? 0
                    : err_set(err, ERR_DATA,
                              "column %llu leaves the range of binary32 when it is standardised",
                              (unsigned long long)feature + 1);
}

static int standardise(struct load *load, uint64_t feature, float *train, float *test,
                       struct err *err)
{
    const struct dataset_view *view = load->view;
    struct dataset_block *block = load->block;
    double mean = 0;
    double scale = 1;
    if (view->mean != NULL) {
        mean = view->mean[feature];
        scale = view->scale[feature];
    } else {
        double n = (double)block->train.rows;
        mean = lane_sum(train, block->train.rows, 0.0, false) / n;
        double variance = lane_sum(train, block->train.rows, mean, true) / n;
        scale = variance > 0.0 ? sqrt(variance) : 1.0;
    }
    block->mean[feature - block->first] = mean;
    block->scale[feature - block->first] = scale;
    int code = transform(train, block->train.rows, mean, scale, feature, err);
    return code == 0 ? transform(test, block->test.rows, mean, scale, feature, err) : code;
}

static int place_column(struct load *load, const struct scratch *scratch, uint64_t feature,
                        struct err *err)
{
    struct dataset_block *block = load->block;
    uint64_t column = feature - block->first;
    float *train = block->train.dense + column * block->train.ld;
    float *test = block->test.rows > 0 ? block->test.dense + column * block->test.ld : NULL;
    const uint64_t *order = load->rows.order;
    if (order != NULL) {
        for (uint64_t i = 0; i < block->train.rows; i++) {
            train[i] = scratch->column[order[i]];
        }
    } else {
        memcpy(train, scratch->column, (size_t)block->train.rows * sizeof(float));
    }
    if (test != NULL) {
        memcpy(test, scratch->column + block->train.rows, (size_t)block->test.rows * sizeof(float));
    }
    return block->mean != NULL ? standardise(load, feature, train, test, err) : 0;
}

static int alloc_scratch(struct load *load, struct scratch *scratch, struct err *err)
{
    uint64_t rows = load->dataset->info.rows;
    uint64_t columns = load->block->end - load->block->first;
    scratch->column = malloc((size_t)rows * sizeof(float));
    if (load->dataset->info.sparse) {
        scratch->rows = malloc(ENTRIES_PIECE * sizeof(*scratch->rows));
        scratch->values = malloc(ENTRIES_PIECE * sizeof(*scratch->values));
        scratch->ends = malloc((size_t)(columns + 1) * sizeof(*scratch->ends));
    }
    bool failed = scratch->column == NULL ||
                  (load->dataset->info.sparse &&
                   (scratch->rows == NULL || scratch->values == NULL || scratch->ends == NULL));
    if (failed) {
        return err_set(err, ERR_NOMEM, "no memory for a column of %llu rows",
                       (unsigned long long)rows);
    }
    return load->dataset->info.sparse
               ? dataset_indptr(load->dataset, load->block->first, columns + 1, scratch->ends, err)
               : 0;
}

int load_dense(struct load *load, struct err *err)
{
    struct dataset_block *block = load->block;
    struct scratch scratch = {.column = NULL};
    uint64_t columns = block->end - block->first;
    int code = alloc_matrix(&block->train, err);
    code = code == 0 ? alloc_matrix(&block->test, err) : code;
    code = code == 0 ? alloc_scratch(load, &scratch, err) : code;
    if (code == 0 && (load->view->standardize || load->view->mean != NULL)) {
        block->mean = malloc((size_t)(columns + 1) * sizeof(double));
        block->scale = malloc((size_t)(columns + 1) * sizeof(double));
        ASSERT(block->mean != NULL);
        ASSERT(block->scale != NULL);
    }
    for (uint64_t j = block->first; j < block->end && code == 0; j++) {
        code = read_column(load, &scratch, j, err);
        code = code == 0 ? place_column(load, &scratch, j, err) : code;
        code = code == 0 ? meter_add(&load->meter, load->dataset->info.rows * sizeof(float), err)
                         : code;
    }
    free(scratch.column);
    free(scratch.rows);
    free(scratch.values);
    free(scratch.ends);
    return code;
}
