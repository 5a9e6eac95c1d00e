/* The device's two forms of a sparse matrix (sparse_form.h) into the arena. */
#include <stdlib.h>

#include "gpu/cuda.h"
#include "gpu/cuda_upload.h"
#include "gpu/sparse_form.h"

static int take(void *context, const uint64_t *entries, size_t count, struct err *err)
{
    return cuda_upload_put(context, entries, count * sizeof(*entries), err);
}

static int send_tables(struct cuda_device *cuda, const struct sparse_form *form, cu_pointer slices,
                       cu_pointer order, cu_pointer lengths, struct err *err)
{
    uint64_t count = form->slices_count;
    int code = cuda_upload_all(cuda, slices, form->slices, count * 8, err);
    code = code != 0 ? code : cuda_upload_all(cuda, order, form->order, count * SLICE * 4, err);
    return code != 0 ? code : cuda_upload_all(cuda, lengths, form->lengths, count * SLICE * 4, err);
}

static int send_targets(struct cuda_device *cuda, const struct sparse_form *form,
                        const double *targets, struct err *err)
{
    size_t places = form->slices_count * SLICE;
    double *ordered = calloc(places, sizeof(*ordered));
    if (ordered == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu targets", places);
    }
    for (size_t i = 0; i < places; i++) {
        if (form->order[i] != UINT32_MAX) {
            ordered[i] = targets[form->order[i]];
        }
    }
    int code = cuda_upload_all(cuda, cuda->at.targets, ordered, places * sizeof(*ordered), err);
    free(ordered);
    return code;
}

int cuda_send_sparse(struct cuda_device *cuda, const struct session_matrix *matrix,
                     const double *targets, struct err *err)
{
    struct cuda_upload upload;
    struct sparse_form form;
    const struct sparse_plan plan = {
        .shape = &cuda->shape,
        .matrix = matrix,
        .window = cuda->window,
        .panels_a_batch = cuda->panels_a_batch,
        .threads = cuda->threads,
        .take = take,
        .context = &upload,
    };
    int code = cuda_upload_begin(&upload, cuda, cuda->at.matrix_rows, err);
    if (code != 0) {
        return code;
    }
    code = sparse_form_rows(&plan, &form, err);
    code = code != 0 ? code : cuda_upload_flush(&upload, err);
    code = code != 0 ? code
                     : send_tables(cuda, &form, cuda->at.row_slices, cuda->at.row_order,
                                   cuda->at.row_lengths, err);
    if (code == 0 && targets != NULL) {
        code = send_targets(cuda, &form, targets, err);
    }
    cuda->row_depth = form.depth + 1;
    sparse_form_free(&form);
    if (code == 0 && cuda->row_depth * FORWARD_SPARSE_THREADS * sizeof(double) > cuda->shared_max) {
        code =
            err_set(err, ERR_JOB,
                    "session: a row's sum needs a stack of %llu values a thread, more than %s has "
                    "room for: give more nodes",
                    (unsigned long long)cuda->row_depth, cuda->name);
    }
    code = code != 0 ? code : cuda_upload_begin(&upload, cuda, cuda->at.matrix, err);
    if (code != 0) {
        return code;
    }
    code = sparse_form_cells(&plan, &form, err);
    code = code != 0 ? code : cuda_upload_flush(&upload, err);
    code = code != 0 ? code
                     : send_tables(cuda, &form, cuda->at.panel_slices, cuda->at.panel_order,
                                   cuda->at.panel_lengths, err);
    sparse_form_free(&form);
    return code;
}
