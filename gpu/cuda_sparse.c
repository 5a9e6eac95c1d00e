/* The device's forms of a sparse matrix: entries by row and by (panel, column) cell, in slices of
 * 32 (gpu/kernels/params.h has the layout), with the tree's work beside each entry. Made once, on
 * the host, from CSC. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/cuda.h"
#include "gpu/cuda_upload.h"
#include "numerics/dyadic.h"
#include "numerics/lane.h"

static uint64_t entry_of(uint64_t key, float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    return key << 32 | bits;
}

/* -- the shape of the tree -------------------------------------------------------------------- */

/* Terms in index order: tells how many nodes the one before completes, when the next is known. */
struct tree_shape {
    unsigned bit[DYADIC_LEVELS_MAX]; /* where values i and i + 1 of the stack meet; falls */
    unsigned depth;
};

static uint64_t folds_before(struct tree_shape *shape, unsigned bit)
{
    uint64_t folds = 0;
    while (shape->depth > 1 && shape->bit[shape->depth - 2] < bit) {
        shape->depth--;
        folds++;
    }
    shape->bit[shape->depth - 1] = bit;
    return folds;
}

/* A row: the tree of each canonical node, completed where the node ends. Keys are local columns. */
static void shape_row(const struct cuda_device *cuda, uint64_t *entries, size_t count)
{
    const struct session_shape *of = &cuda->shape;
    struct tree_shape shape = {.depth = 0};
    size_t node = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t index = (entries[i] >> 32) + of->plan.coordinate_first;
        while (node_end(of->nodes[node]) <= index) {
            node++;
        }
        shape.depth++;
        uint64_t folds = shape.depth - 1U;
        uint64_t next = i + 1 < count ? (entries[i + 1] >> 32) + of->plan.coordinate_first : 0;
        if (i + 1 < count && next < node_end(of->nodes[node])) {
            folds = folds_before(&shape, arith_highest_bit(index ^ next));
        } else {
            shape.depth = 0; /* the node's value is one value for what comes */
        }
        entries[i] |= folds << ENTRY_FOLDS;
    }
}

/* A cell: lanes meet, rows of one lane just add. Keys are lane << 4 | pass. */
static void shape_cell(uint64_t *entries, size_t count)
{
    struct tree_shape shape = {.depth = 0};
    bool again = false;
    for (size_t i = 0; i < count; i++) {
        uint64_t lane = entries[i] >> 36;
        uint64_t next = i + 1 < count ? entries[i + 1] >> 36 : lane;
        uint64_t folds = again ? 1 : 0; /* a row of the same lane: to the top itself */
        shape.depth += again ? 0 : 1;
        again = i + 1 < count && next == lane;
        if (i + 1 == count) {
            folds += shape.depth - 1U;
        } else if (!again) {
            folds += folds_before(&shape, arith_highest_bit(lane ^ next));
        }
        uint64_t pass = entries[i] >> 32 & 15;
        uint64_t row = pass * PANEL_LANES + lane; /* of the panel: what the device wants */
        entries[i] = row << 32 | (entries[i] & UINT32_MAX) | folds << ENTRY_FOLDS;
    }
}

/* By lane, then pass: the keys of a cell are distinct and below 2048. Room: slots[2048]. */
static void order_cell(uint64_t *cell, size_t count, uint64_t *slots)
{
    if (count < 48) {
        for (size_t i = 1; i < count; i++) {
            uint64_t entry = cell[i];
            size_t k = i;
            for (; k > 0 && cell[k - 1] >> 32 > entry >> 32; k--) {
                cell[k] = cell[k - 1];
            }
            cell[k] = entry;
        }
        return;
    }
    memset(slots, 0xff, PANEL_ROWS * sizeof(*slots));
    for (size_t i = 0; i < count; i++) {
        slots[cell[i] >> 32] = cell[i];
    }
    size_t at = 0;
    for (size_t key = 0; key < PANEL_ROWS; key++) {
        if (slots[key] != UINT64_MAX) {
            cell[at++] = slots[key];
        }
    }
    ASSERT(at == count);
}

/* -- slices ---------------------------------------------------------------------------------------
 */

struct slicer {
    struct cuda_upload upload; /* of the entries */
    uint64_t *slices;
    uint32_t *order;
    uint32_t *lengths;
    uint64_t slices_count; /* so far */
    uint64_t entries_count;
    uint64_t *buffer; /* of a slice */
    size_t buffer_count;
    uint32_t *sorted; /* items of a window */
};

static int slicer_init(struct slicer *slicer, uint64_t slices_max, uint64_t window, struct err *err)
{
    memset(slicer, 0, sizeof(*slicer));
    slicer->slices = calloc(slices_max + 1, sizeof(*slicer->slices));
    slicer->order = calloc(slices_max * SLICE + 1, sizeof(*slicer->order));
    slicer->lengths = calloc(slices_max * SLICE + 1, sizeof(*slicer->lengths));
    slicer->sorted = calloc(window + 1, sizeof(*slicer->sorted));
    if (slicer->slices == NULL || slicer->order == NULL || slicer->lengths == NULL ||
        slicer->sorted == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to order %llu slices of a sparse matrix",
                       (unsigned long long)slices_max);
    }
    return 0;
}

static void slicer_done(struct slicer *slicer)
{
    free(slicer->slices);
    free(slicer->order);
    free(slicer->lengths);
    free(slicer->sorted);
    free(slicer->buffer);
}

struct ordered {
    uint64_t length;
    uint32_t item;
};

static int longest_first(const void *a, const void *b)
{
    const struct ordered *x = a;
    const struct ordered *y = b;
    if (x->length != y->length) {
        return x->length < y->length ? 1 : -1;
    }
    return x->item < y->item ? -1 : 1;
}

/* Adds a window's items (rows or cells), whose entries are entries[starts[i]] .. [starts[i + 1]] -
 * 1, padded to whole slices by missing ones. name: of item 0. scratch: window of them. */
static int slice_window(struct slicer *slicer, const uint64_t *entries, const uint64_t *starts,
                        size_t count, size_t padded, uint32_t name, struct ordered *scratch,
                        struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        scratch[i] = (struct ordered){.length = starts[i + 1] - starts[i], .item = (uint32_t)i};
    }
    qsort(scratch, count, sizeof(*scratch), longest_first);
    for (size_t first = 0; first < padded; first += SLICE) {
        size_t here = count > first ? count - first : 0;
        here = here < SLICE ? here : SLICE;
        size_t total = 0;
        for (size_t i = 0; i < SLICE; i++) {
            size_t at = slicer->slices_count * SLICE + i;
            slicer->order[at] = i < here ? name + scratch[first + i].item : UINT32_MAX;
            slicer->lengths[at] = i < here ? (uint32_t)scratch[first + i].length : 0;
            total += slicer->lengths[at];
        }
        if (total > slicer->buffer_count) {
            free(slicer->buffer);
            slicer->buffer_count = 2 * total;
            slicer->buffer = calloc(slicer->buffer_count, sizeof(*slicer->buffer));
            if (slicer->buffer == NULL) {
                slicer->buffer_count = 0;
                return err_set(err, ERR_NOMEM, "no memory for a slice of %zu entries", total);
            }
        }
        size_t used = 0;
        for (size_t rank = 0; used < total; rank++) {
            for (size_t i = 0; i < here && scratch[first + i].length > rank; i++) {
                slicer->buffer[used++] = entries[starts[scratch[first + i].item] + rank];
            }
        }
        slicer->slices[slicer->slices_count++] = slicer->entries_count;
        slicer->entries_count += total;
        int code = cuda_upload_put(&slicer->upload, slicer->buffer, total * sizeof(uint64_t), err);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

static int send_tables(struct cuda_device *cuda, struct slicer *slicer, cu_pointer slices,
                       cu_pointer order, cu_pointer lengths, struct err *err)
{
    uint64_t count = slicer->slices_count;
    int code = cuda_upload_flush(&slicer->upload, err);
    code = code != 0 ? code : cuda_upload_all(cuda, slices, slicer->slices, count * 8, err);
    code = code != 0 ? code : cuda_upload_all(cuda, order, slicer->order, count * SLICE * 4, err);
    return code != 0 ? code
                     : cuda_upload_all(cuda, lengths, slicer->lengths, count * SLICE * 4, err);
}

/* -- the two forms
 * --------------------------------------------------------------------------------- */

static int send_rows(struct cuda_device *cuda, const struct session_matrix *matrix, struct err *err)
{
    uint64_t window = cuda->window;
    uint64_t extra = cuda->shape.plan.intercept ? 1 : 0;
    uint64_t rows = matrix->rows;
    uint64_t total = cuda->shape.plan.entries + extra * rows;
    uint64_t *starts = calloc(rows + 2, sizeof(*starts));
    uint64_t *ordered = calloc(total + 1, sizeof(*ordered));
    struct ordered *scratch = calloc(window, sizeof(*scratch));
    struct slicer slicer;
    uint64_t *next = NULL;
    int code = slicer_init(&slicer, cuda->row_slices_count, window, err);
    if (code == 0 && (starts == NULL || ordered == NULL || scratch == NULL)) {
        code = err_set(err, ERR_NOMEM, "no memory to order %llu entries by row",
                       (unsigned long long)total);
    }
    if (code != 0) {
        goto out;
    }
    next = starts + 1; /* starts[i + 1] moves from row i's begin to its end */
    for (uint64_t e = matrix->starts[0]; e < matrix->starts[matrix->columns]; e++) {
        next[matrix->row[e] + 1]++;
    }
    for (uint64_t i = 0; i < rows; i++) {
        next[i + 1] += next[i] + extra;
    }
    for (uint64_t j = 0; j < matrix->columns; j++) {
        for (uint64_t e = matrix->starts[j]; e < matrix->starts[j + 1]; e++) {
            ordered[next[matrix->row[e]]++] = entry_of(j, matrix->value[e]);
        }
    }
    for (uint64_t i = 0; i < rows; i++) {
        if (extra != 0) {
            ordered[next[i]++] = entry_of(matrix->columns, 1.0F);
        }
        shape_row(cuda, ordered + starts[i], (size_t)(starts[i + 1] - starts[i]));
    }
    code = cuda_upload_begin(&slicer.upload, cuda, cuda->at.matrix_rows, err);
    for (uint64_t first = 0; first < rows && code == 0; first += window) {
        uint64_t count = rows - first < window ? rows - first : window;
        code = slice_window(&slicer, ordered, starts + first, (size_t)count, (size_t)window,
                            (uint32_t)first, scratch, err);
    }
    ASSERT(code != 0 || slicer.slices_count == cuda->row_slices_count);
    code = code != 0 ? code
                     : send_tables(cuda, &slicer, cuda->at.row_slices, cuda->at.row_order,
                                   cuda->at.row_lengths, err);
out:
    slicer_done(&slicer);
    free(starts);
    free(ordered);
    free(scratch);
    return code;
}

/* next[cell] from counts to places; counted[cell + 1] holds cell's count before. */
static void count_or_place(const struct cuda_device *cuda, const struct session_matrix *matrix,
                           uint64_t *next, uint64_t *ordered)
{
    uint64_t batch_rows = cuda->shape.plan.batch_rows;
    for (uint64_t j = 0; j < matrix->columns; j++) {
        for (uint64_t e = matrix->starts[j]; e < matrix->starts[j + 1]; e++) {
            uint64_t in_batch = matrix->row[e] % batch_rows;
            uint64_t panel = matrix->row[e] / batch_rows * cuda->panels_a_batch;
            panel += in_batch / PANEL_ROWS;
            uint64_t cell = panel * matrix->columns + j;
            if (ordered == NULL) {
                next[cell + 1]++;
                continue;
            }
            uint64_t in = in_batch % PANEL_ROWS;
            uint64_t key = in % PANEL_LANES << 4 | in / PANEL_LANES;
            ordered[next[cell]++] = entry_of(key, matrix->value[e]);
        }
    }
}

static int send_panels(struct cuda_device *cuda, const struct session_matrix *matrix,
                       struct err *err)
{
    uint64_t entries = cuda->shape.plan.entries;
    uint64_t columns = matrix->columns;
    uint64_t padded = cuda->slices_a_panel * SLICE;
    uint64_t cells = cuda->stored_panels * columns;
    uint64_t *starts = calloc(cells + 2, sizeof(*starts));
    uint64_t *ordered = calloc(entries + 1, sizeof(*ordered));
    uint64_t *slots = calloc(PANEL_ROWS, sizeof(*slots));
    struct ordered *scratch = calloc(padded + 1, sizeof(*scratch));
    struct slicer slicer;
    int code = slicer_init(&slicer, cuda->stored_panels * cuda->slices_a_panel, padded, err);
    if (code == 0 && (starts == NULL || ordered == NULL || slots == NULL || scratch == NULL)) {
        code = err_set(err, ERR_NOMEM, "no memory to order %llu entries by panel",
                       (unsigned long long)entries);
    }
    if (code != 0) {
        goto out;
    }
    count_or_place(cuda, matrix, starts + 1, NULL);
    for (uint64_t cell = 0; cell < cells; cell++) {
        starts[cell + 2] += starts[cell + 1];
    }
    count_or_place(cuda, matrix, starts + 1, ordered);
    for (uint64_t cell = 0; cell < cells; cell++) {
        size_t count = (size_t)(starts[cell + 1] - starts[cell]);
        order_cell(ordered + starts[cell], count, slots);
        shape_cell(ordered + starts[cell], count);
    }
    code = cuda_upload_begin(&slicer.upload, cuda, cuda->at.matrix, err);
    for (uint64_t panel = 0; panel < cuda->stored_panels && code == 0; panel++) {
        code = slice_window(&slicer, ordered, starts + panel * columns, (size_t)columns,
                            (size_t)padded, 0, scratch, err);
    }
    code = code != 0 ? code
                     : send_tables(cuda, &slicer, cuda->at.panel_slices, cuda->at.panel_order,
                                   cuda->at.panel_lengths, err);
out:
    slicer_done(&slicer);
    free(starts);
    free(ordered);
    free(slots);
    free(scratch);
    return code;
}

int cuda_send_sparse(struct cuda_device *cuda, const struct session_matrix *matrix, struct err *err)
{
    int code = send_rows(cuda, matrix, err);
    return code != 0 ? code : send_panels(cuda, matrix, err);
}
