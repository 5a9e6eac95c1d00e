/* What dense and sparse loading share. Private to data. */
#ifndef COPPELIUS_DATA_LOAD_H
#define COPPELIUS_DATA_LOAD_H

#include "data/dataset.h"
#include "data/source.h"

/* Which row goes where. */
struct rows_plan {
    struct dataset_split split;
    uint64_t *order; /* training row i is row order[i] of the file; NULL: i */
};

struct load {
    const struct dataset *dataset;
    const struct dataset_view *view;
    struct rows_plan rows;
    struct dataset_block *block; /* being made; first and end are set */
    struct meter meter;
};

int rows_plan_init(struct rows_plan *plan, const struct dataset *dataset,
                   const struct dataset_view *view, struct err *err);
void rows_plan_done(struct rows_plan *plan);

static inline bool load_is_dense(const struct dataset *dataset, const struct dataset_view *view)
{
    return !dataset->info.sparse || view->standardize || view->mean != NULL;
}

/* Fills the block's dense matrices (load_dense.c) or CSC ones (load_sparse.c). */
int load_dense(struct load *load, struct err *err);
int load_sparse(struct load *load, struct err *err);

/* Entries first .. first+count-1 of data.npy and indices.npy; rows below the number of rows, values
 * finite. */
int load_entries(const struct dataset *dataset, uint64_t first, size_t count, uint64_t *rows,
                 float *values, struct err *err);
/* The fault of a file whose rows do not ascend in a column. */
int load_order_fault(const struct dataset *dataset, uint64_t feature, uint64_t row,
                     struct err *err);

#endif
