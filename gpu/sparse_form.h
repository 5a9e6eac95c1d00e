/* The device's two forms of a sparse matrix, made once, on the host, from CSC: entries by row for
 * the forward pass and by (panel, column) cell for the backward pass, in slices of 32
 * (gpu/kernels/params.h has the layout), in the order in which the device sums them
 * (sparse_order.h). By several threads, in blocks of 2048 rows: what is made depends on the matrix
 * alone. */
#ifndef COPPELIUS_GPU_SPARSE_FORM_H
#define COPPELIUS_GPU_SPARSE_FORM_H

#include "base/err.h"
#include "gpu/backend.h"

/* Takes the entries in order, on the caller's thread; borrowed for the call. */
typedef int sparse_take_fn(void *context, const uint64_t *entries, size_t count, struct err *err);

struct sparse_plan {
    const struct session_shape *shape;
    const struct session_matrix *matrix; /* CSC */
    uint64_t window; /* by row: rows that are ordered by length together: 32 or PANEL_ROWS */
    uint64_t panels_a_batch; /* by cell */
    unsigned threads;
    sparse_take_fn *take;
    void *context;
};

/* The tables beside the entries. */
struct sparse_form {
    uint64_t slices_count;
    uint64_t entries_count;
    uint64_t depth;   /* of the deepest stack, by row */
    uint64_t *slices; /* [slices_count]: where a slice's entries begin */
    uint32_t *order; /* [slices_count][32]: the row, or the column of the panel; UINT32_MAX: none */
    uint32_t *lengths; /* likewise */
};

/* 0, ERR_NOMEM, or what `take` said. The caller frees the form, also after an error. */
int sparse_form_rows(const struct sparse_plan *plan, struct sparse_form *ret_form, struct err *err);
int sparse_form_cells(const struct sparse_plan *plan, struct sparse_form *ret_form,
                      struct err *err);
void sparse_form_free(struct sparse_form *form);

#endif
