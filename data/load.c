/* Blocks of columns and targets out of a dataset: split, then shuffle, then standardise. */
#include "data/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rand.h"
#include "data/share.h"

#define TARGETS_PIECE 65536U

int dataset_split_rows(uint64_t rows, double test, struct dataset_split *ret_split, struct err *err)
{
    if (!(test >= 0.0 && test < 1.0)) {
        return err_set(err, ERR_USAGE, "test = %g; give a fraction from 0 to below 1", test);
    }
    uint64_t test_rows = (uint64_t)((double)rows * test);
    if (test_rows >= rows) {
        return err_set(err, ERR_DATA, "%llu rows with test = %g leave no training row",
                       (unsigned long long)rows, test);
    }
    *ret_split = (struct dataset_split){rows - test_rows, test_rows};
    return 0;
}

/* Fisher-Yates from the last row down (NUMERICS.md). */
static int shuffle(struct rows_plan *plan, uint64_t seed, struct err *err)
{
    uint64_t rows = plan->split.train_rows;
    plan->order = malloc((size_t)rows * sizeof(*plan->order));
    if (plan->order == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to shuffle %llu rows", (unsigned long long)rows);
    }
    for (uint64_t i = 0; i < rows; i++) {
        plan->order[i] = i;
    }
    struct rand rand = {seed};
    for (uint64_t i = rows - 1; i > 0; i--) {
        uint64_t j = rand_below(&rand, i + 1);
        uint64_t kept = plan->order[i];
        plan->order[i] = plan->order[j];
        plan->order[j] = kept;
    }
    return 0;
}

int rows_plan_init(struct rows_plan *plan, const struct dataset *dataset,
                   const struct dataset_view *view, struct err *err)
{
    plan->order = NULL;
    int code = dataset_split_rows(dataset->info.rows, view->test, &plan->split, err);
    return code == 0 && view->shuffle ? shuffle(plan, view->shuffle_seed, err) : code;
}

void rows_plan_done(struct rows_plan *plan)
{
    free(plan->order);
    plan->order = NULL;
}

int dataset_block_bytes(const struct dataset *dataset, const struct dataset_view *view,
                        uint64_t first, uint64_t end, uint64_t *ret_bytes, struct err *err)
{
    ASSERT(first <= end);
    ASSERT(end <= dataset->info.features);
    uint64_t columns = end - first;
    struct dataset_split split = {0, 0};
    int code = dataset_split_rows(dataset->info.rows, view->test, &split, err);
    if (code != 0) {
        return code;
    }
    if (load_is_dense(dataset, view)) {
        uint64_t lines =
            ((split.train_rows + 15) & ~UINT64_C(15)) + ((split.test_rows + 15) & ~UINT64_C(15));
        *ret_bytes = lines * columns * sizeof(float); /* Below 2^40 * 2^27 * 4. */
        *ret_bytes += view->standardize || view->mean != NULL ? columns * 2 * sizeof(double) : 0;
        return 0;
    }
    uint64_t bounds[2] = {0, 0};
    code = dataset_indptr(dataset, first, 1, &bounds[0], err);
    code = code == 0 ? dataset_indptr(dataset, end, 1, &bounds[1], err) : code;
    uint64_t entry = sizeof(float) + (dataset->info.rows < (UINT64_C(1) << 32) ? 4 : 8);
    if (code == 0 && bounds[1] < bounds[0]) {
        code = err_set(err, ERR_DAMAGED, "%s: does not ascend", dataset->indptr.path);
    }
    *ret_bytes = (bounds[1] - bounds[0]) * entry + 2 * (columns + 1) * sizeof(uint64_t);
    return code;
}

int dataset_ranges(const struct dataset *dataset, uint64_t first, uint64_t end,
                   struct dataset_range *ret_ranges, size_t *ret_count, struct err *err)
{
    ASSERT(first <= end);
    ASSERT(end <= dataset->info.features);
    if (!dataset->info.sparse) {
        uint64_t column = dataset->info.rows * sizeof(float);
        ret_ranges[0] = (struct dataset_range){"x.npy", dataset->x.npy.offset + first * column,
                                               (end - first) * column};
        *ret_count = 1;
        return 0;
    }
    uint64_t bounds[2] = {0, 0};
    const struct npy *indptr = &dataset->indptr.npy;
    const struct npy *indices = &dataset->indices.npy;
    int code = dataset_indptr(dataset, first, 1, &bounds[0], err);
    code = code == 0 ? dataset_indptr(dataset, end, 1, &bounds[1], err) : code;
    if (code == 0 && bounds[1] < bounds[0]) {
        code = err_set(err, ERR_DAMAGED, "%s: does not ascend", dataset->indptr.path);
    }
    if (code != 0) {
        return code;
    }
    uint64_t entries = bounds[1] - bounds[0];
    ret_ranges[0] = (struct dataset_range){"indptr.npy", indptr->offset + first * indptr->item,
                                           (end - first + 1) * indptr->item};
    ret_ranges[1] = (struct dataset_range){
        "data.npy", dataset->data.npy.offset + bounds[0] * sizeof(float), entries * sizeof(float)};
    ret_ranges[2] = (struct dataset_range){
        "indices.npy", indices->offset + bounds[0] * indices->item, entries * indices->item};
    *ret_count = DATASET_RANGES_MAX;
    return 0;
}

static int check_memory(const struct dataset *dataset, const struct dataset_view *view,
                        uint64_t first, uint64_t end, struct err *err)
{
    uint64_t bytes = 0;
    int code = dataset_block_bytes(dataset, view, first, end, &bytes, err);
    if (code != 0 || view->memory_max == 0 || bytes <= view->memory_max) {
        return code;
    }
    bool grown = dataset->info.sparse && load_is_dense(dataset, view);
    return err_set(
        err, ERR_NOMEM,
        "%s: columns %llu to %llu take %llu bytes%s; this node has room for %llu: %s%llu times as "
        "many nodes would do",
        dataset->folder, (unsigned long long)first + 1, (unsigned long long)end,
        (unsigned long long)bytes, grown ? " once standardize has made the sparse ones dense" : "",
        (unsigned long long)view->memory_max, grown ? "leave standardize out, or about " : "about ",
        (unsigned long long)(bytes / view->memory_max) + 1);
}

int dataset_load(const struct dataset *dataset, const struct dataset_view *view, uint64_t first,
                 uint64_t end, const struct data_progress *progress,
                 struct dataset_block *ret_block, struct err *err)
{
    ASSERT(first <= end);
    ASSERT(end <= dataset->info.features);
    ASSERT((view->mean == NULL) == (view->scale == NULL));
    int code = check_memory(dataset, view, first, end, err);
    if (code != 0) {
        return code;
    }
    struct dataset_block made = DATASET_BLOCK_NONE;
    made.first = first;
    made.end = end;
    struct load load = {.dataset = dataset, .view = view, .block = &made};
    code = rows_plan_init(&load.rows, dataset, view, err);
    if (code == 0) {
        made.train.rows = load.rows.split.train_rows;
        made.test.rows = load.rows.split.test_rows;
        made.train.columns = made.test.columns = end - first;
        meter_start(&load.meter, progress, "loading",
                    dataset->info.rows * (end - first) * sizeof(float));
        code = load_is_dense(dataset, view) ? load_dense(&load, err) : load_sparse(&load, err);
    }
    rows_plan_done(&load.rows);
    if (code != 0) {
        dataset_block_done(&made);
        return code;
    }
    *ret_block = made;
    return 0;
}

void dataset_matrix_done(struct dataset_matrix *matrix)
{
    free(matrix->dense);
    free(matrix->indptr);
    free(matrix->row32);
    free(matrix->row64);
    free(matrix->values);
    *matrix = (struct dataset_matrix){.rows = 0};
}

void dataset_block_done(struct dataset_block *block)
{
    dataset_matrix_done(&block->train);
    dataset_matrix_done(&block->test);
    free(block->mean);
    free(block->scale);
    *block = (struct dataset_block)DATASET_BLOCK_NONE;
}

/* All targets in file order. */
static int read_targets(const struct dataset *dataset, double *targets, struct err *err)
{
    const struct dataset_file *y = &dataset->y;
    uint8_t *bytes = malloc((size_t)TARGETS_PIECE * 8);
    ASSERT(bytes != NULL);
    int code = 0;
    for (uint64_t at = 0; at < dataset->info.rows && code == 0;) {
        uint64_t count = dataset->info.rows - at;
        count = count < TARGETS_PIECE ? count : TARGETS_PIECE;
        code = dataset_pread(dataset, y, y->npy.offset + at * y->npy.item, bytes,
                             (size_t)(count * y->npy.item), err);
        for (uint64_t i = 0; i < count && code == 0; i++) {
            double value = npy_value(&y->npy, bytes, (size_t)i);
            if (value - value != 0.0) {
                code = err_set(err, ERR_DATA, "%s: the target of row %llu is not finite", y->path,
                               (unsigned long long)(at + i) + 1);
            }
            targets[at + i] = value;
        }
        at += count;
    }
    free(bytes);
    return code;
}

int dataset_load_targets(const struct dataset *dataset, const struct dataset_view *view,
                         struct dataset_targets *ret_targets, struct err *err)
{
    if (!dataset->info.has_target) {
        return err_set(err, ERR_DATA, "%s: has no targets (y.npy)", dataset->folder);
    }
    struct rows_plan plan = {.order = NULL};
    int code = rows_plan_init(&plan, dataset, view, err);
    struct dataset_targets made = {.train = NULL};
    double *all = NULL;
    if (code == 0) {
        made.train_rows = plan.split.train_rows;
        made.test_rows = plan.split.test_rows;
        all = malloc((size_t)dataset->info.rows * sizeof(double));
        made.train = malloc((size_t)made.train_rows * sizeof(double));
        made.test = malloc((size_t)(made.test_rows + 1) * sizeof(double));
        code = all == NULL || made.train == NULL || made.test == NULL
                   ? err_set(err, ERR_NOMEM, "no memory for %llu targets",
                             (unsigned long long)dataset->info.rows)
                   : read_targets(dataset, all, err);
    }
    if (code == 0) {
        for (uint64_t i = 0; i < made.train_rows; i++) {
            made.train[i] = all[plan.order != NULL ? plan.order[i] : i];
        }
        memcpy(made.test, all + made.train_rows, (size_t)made.test_rows * sizeof(double));
    }
    free(all);
    rows_plan_done(&plan);
    if (code != 0) {
        dataset_targets_done(&made);
        return code;
    }
    *ret_targets = made;
    return 0;
}

void dataset_targets_done(struct dataset_targets *targets)
{
    free(targets->train);
    free(targets->test);
    *targets = (struct dataset_targets){.train = NULL};
}
