/* A block is what one thread works on: 2048 rows, or a panel. A group is as many blocks as fit a
 * buffer; its blocks' places in every column are found first, then each block is put together, then
 * the group goes out.
 *
 *   count every block's entries -> for each group: places -> blocks -> take() */
#include "gpu/sparse_form.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/cpu_pool.h"
#include "gpu/sparse_order.h"
#include "numerics/lane.h"

#define GROUP_ENTRIES ((uint64_t)8 << 20)
#define GROUP_PLACES  ((uint64_t)8 << 20)
#define SCRATCH_MAX   ((uint64_t)128 << 20) /* entries of all threads together */
#define COLUMNS_A_RUN 256

struct ordered {
    uint32_t length;
    uint32_t item;
};

/* Of one thread. */
struct scratch {
    uint64_t *entries; /* a block's, before they are sliced */
    uint64_t *starts;  /* of its items, and the end */
    uint64_t *room;    /* a row, or a cell */
    struct ordered *sorted;
    uint64_t *counts; /* of the blocks, while counting */
    uint64_t depth;
};

struct maker {
    const struct sparse_plan *plan;
    struct sparse_form *form;
    bool by_row;
    uint64_t extra; /* entries a row that the matrix does not store: the intercept's */
    uint64_t blocks_count;
    uint64_t items_max;      /* of a block: rows or columns, whole slices */
    uint64_t slices_a_block; /* of a full one */
    uint32_t *block_of;      /* by row */
    uint64_t *first_row;     /* by block, and the end */
    uint64_t *base;          /* entries before a block, and the end */
    uint64_t *at;            /* by column: the place of the group's first row */
    uint64_t *places;        /* [block of the group, and the end][column] */
    uint64_t *out;
    uint64_t group_first;
    uint64_t group_count;
    uint64_t group_most;
    struct cpu_pool pool;
    bool pooled;
    struct scratch scratch[CPU_THREADS_MAX];
};

/* -- counting --------------------------------------------------------------------------------- */

static void count_columns(void *context, size_t item, unsigned worker)
{
    struct maker *m = context;
    const struct session_matrix *matrix = m->plan->matrix;
    uint64_t first = item * COLUMNS_A_RUN;
    uint64_t end =
        first + COLUMNS_A_RUN < matrix->columns ? first + COLUMNS_A_RUN : matrix->columns;
    uint64_t *counts = m->scratch[worker].counts;
    for (uint64_t e = matrix->starts[first]; e < matrix->starts[end]; e++) {
        counts[m->block_of[matrix->row[e]]]++;
    }
}

static size_t column_runs(const struct maker *m)
{
    return (size_t)((m->plan->matrix->columns + COLUMNS_A_RUN - 1) / COLUMNS_A_RUN);
}

/* Which rows a block has, and where its entries begin. */
static void deal_blocks(struct maker *m)
{
    const struct session_plan *plan = &m->plan->shape->plan;
    uint64_t rows = m->plan->matrix->rows;
    for (uint64_t block = 0; block <= m->blocks_count; block++) {
        uint64_t first = block * PANEL_ROWS;
        if (!m->by_row) {
            uint64_t batch = block / m->plan->panels_a_batch;
            uint64_t in = block % m->plan->panels_a_batch * PANEL_ROWS;
            first = batch * plan->batch_rows + in;
        }
        m->first_row[block] = first < rows && block < m->blocks_count ? first : rows;
    }
    for (uint64_t block = 0; block < m->blocks_count; block++) {
        for (uint64_t row = m->first_row[block]; row < m->first_row[block + 1]; row++) {
            m->block_of[row] = (uint32_t)block;
        }
    }
    cpu_pool_run(&m->pool, count_columns, m, column_runs(m), false);
    uint64_t sum = 0;
    for (uint64_t block = 0; block < m->blocks_count; block++) {
        m->base[block] = sum;
        sum += m->extra * (m->first_row[block + 1] - m->first_row[block]);
        for (unsigned t = 0; t < m->pool.threads; t++) {
            sum += m->scratch[t].counts[block];
        }
    }
    m->base[m->blocks_count] = sum;
    m->form->entries_count = sum;
}

/* -- places ----------------------------------------------------------------------------------- */

/* The first entry of a column at or behind `row`, from entry e on. */
static uint64_t place_of(const struct session_matrix *matrix, uint64_t e, uint64_t end,
                         uint64_t row)
{
    uint64_t step = 1;
    while (e + step < end && matrix->row[e + step] < row) { /* gallop, then halve */
        e += step;
        step *= 2;
    }
    uint64_t high = e + step < end ? e + step : end;
    while (e < high) {
        uint64_t middle = e + (high - e) / 2;
        if (matrix->row[middle] < row) {
            e = middle + 1;
        } else {
            high = middle;
        }
    }
    return e;
}

static void place_columns(void *context, size_t item, unsigned worker)
{
    struct maker *m = context;
    const struct session_matrix *matrix = m->plan->matrix;
    (void)worker;
    uint64_t end = (item + 1) * COLUMNS_A_RUN;
    for (uint64_t j = item * COLUMNS_A_RUN; j < end && j < matrix->columns; j++) {
        uint64_t e = m->at[j];
        for (uint64_t b = 0; b < m->group_count; b++) {
            m->places[b * matrix->columns + j] = e;
            e = place_of(matrix, e, matrix->starts[j + 1], m->first_row[m->group_first + b + 1]);
        }
        m->places[m->group_count * matrix->columns + j] = e;
        m->at[j] = e;
    }
}

/* -- blocks ----------------------------------------------------------------------------------- */

static int longest_first(const void *a, const void *b)
{
    const struct ordered *x = a;
    const struct ordered *y = b;
    if (x->length != y->length) {
        return x->length < y->length ? 1 : -1;
    }
    return x->item < y->item ? -1 : 1;
}

/* Items first .. first + count - 1 of the scratch, padded to whole slices by missing ones. name: of
 * the first one. out: where their entries go, `base` in the whole form. Returns their entries. */
static uint64_t slice_items(struct maker *m, struct scratch *s, uint64_t first, uint64_t count,
                            uint64_t slice, uint64_t slices, uint32_t name, uint64_t *out,
                            uint64_t base)
{
    struct sparse_form *form = m->form;
    const uint64_t *starts = s->starts + first;
    for (uint64_t i = 0; i < count; i++) {
        s->sorted[i] =
            (struct ordered){.length = (uint32_t)(starts[i + 1] - starts[i]), .item = (uint32_t)i};
    }
    qsort(s->sorted, count, sizeof(*s->sorted), longest_first);
    uint64_t used = 0;
    for (uint64_t k = 0; k < slices; k++) {
        const struct ordered *items = s->sorted + k * SLICE;
        uint64_t here = count > k * SLICE ? count - k * SLICE : 0;
        here = here < SLICE ? here : SLICE;
        uint64_t total = 0;
        for (uint64_t i = 0; i < SLICE; i++) {
            size_t at = (size_t)((slice + k) * SLICE + i);
            form->order[at] = i < here ? name + items[i].item : UINT32_MAX;
            form->lengths[at] = i < here ? items[i].length : 0;
            total += form->lengths[at];
        }
        form->slices[slice + k] = base + used;
        uint64_t *to = out + used;
        for (uint64_t rank = 0; total > 0; rank++) {
            for (uint64_t i = 0; i < here && items[i].length > rank; i++) {
                *to++ = s->entries[starts[items[i].item] + rank];
                total--;
            }
        }
        used = (uint64_t)(to - out);
    }
    return used;
}

static void make_rows(void *context, size_t item, unsigned worker)
{
    struct maker *m = context;
    struct scratch *s = &m->scratch[worker];
    const struct session_matrix *matrix = m->plan->matrix;
    const struct session_shape *shape = m->plan->shape;
    uint64_t block = m->group_first + item;
    uint64_t first = m->first_row[block];
    uint64_t rows = m->first_row[block + 1] - first;
    const uint64_t *from = m->places + item * matrix->columns;
    const uint64_t *to = from + matrix->columns;
    uint64_t *next = s->starts + 1; /* starts[i + 1] moves from row i's begin to its end */
    memset(s->starts, 0, (rows + 2) * sizeof(*s->starts));
    for (uint64_t j = 0; j < matrix->columns; j++) {
        for (uint64_t e = from[j]; e < to[j]; e++) {
            next[matrix->row[e] - first + 1]++;
        }
    }
    for (uint64_t i = 0; i < rows; i++) {
        next[i + 1] += next[i] + m->extra;
    }
    for (uint64_t j = 0; j < matrix->columns; j++) {
        for (uint64_t e = from[j]; e < to[j]; e++) {
            s->entries[next[matrix->row[e] - first]++] = sparse_entry(j, matrix->value[e]);
        }
    }
    for (uint64_t i = 0; i < rows; i++) {
        if (m->extra != 0) {
            s->entries[next[i]++] = sparse_entry(matrix->columns, 1.0F);
        }
        uint64_t *row = s->entries + s->starts[i];
        size_t count = (size_t)(s->starts[i + 1] - s->starts[i]);
        uint64_t depth = sparse_order_row(row, count, shape->nodes, shape->plan.coordinate_first,
                                          shape->plan.whole, s->room);
        s->depth = depth > s->depth ? depth : s->depth;
    }
    uint64_t window = m->plan->window;
    uint64_t *out = m->out + (m->base[block] - m->base[m->group_first]);
    uint64_t base = m->base[block];
    uint64_t slice = block * m->slices_a_block;
    for (uint64_t at = 0; at < rows; at += window) {
        uint64_t count = rows - at < window ? rows - at : window;
        uint64_t used =
            slice_items(m, s, at, count, slice, window / SLICE, (uint32_t)(first + at), out, base);
        out += used;
        base += used;
        slice += window / SLICE;
    }
    ASSERT(base == m->base[block + 1]);
}

static void make_cells(void *context, size_t item, unsigned worker)
{
    struct maker *m = context;
    struct scratch *s = &m->scratch[worker];
    const struct session_matrix *matrix = m->plan->matrix;
    uint64_t block = m->group_first + item;
    const uint64_t *from = m->places + item * matrix->columns;
    const uint64_t *to = from + matrix->columns;
    uint64_t used = 0;
    for (uint64_t j = 0; j < matrix->columns; j++) {
        s->starts[j] = used;
        for (uint64_t e = from[j]; e < to[j]; e++) {
            s->entries[used++] =
                sparse_entry(matrix->row[e] - m->first_row[block], matrix->value[e]);
        }
        sparse_order_cell(s->entries + s->starts[j], (size_t)(used - s->starts[j]), s->room);
    }
    s->starts[matrix->columns] = used;
    uint64_t base = m->base[block];
    base += slice_items(m, s, 0, matrix->columns, block * m->slices_a_block, m->slices_a_block, 0,
                        m->out + (base - m->base[m->group_first]), base);
    ASSERT(base == m->base[block + 1]);
}

/* -- groups ----------------------------------------------------------------------------------- */

/* How many blocks from `first` on go together. */
static uint64_t group_from(const struct maker *m, uint64_t first)
{
    uint64_t places = GROUP_PLACES / (m->plan->matrix->columns + 1);
    uint64_t count = 1;
    while (first + count < m->blocks_count && count < places &&
           m->base[first + count + 1] - m->base[first] <= GROUP_ENTRIES) {
        count++;
    }
    return count;
}

static void *table(uint64_t count, size_t size, bool *good)
{
    void *memory = calloc(count + 1, size);
    *good = *good && memory != NULL;
    return memory;
}

static int no_memory(const struct maker *m, struct err *err)
{
    return err_set(err, ERR_NOMEM, "no memory to order %llu sparse entries by %s",
                   (unsigned long long)m->plan->shape->plan.entries, m->by_row ? "row" : "panel");
}

/* What every block needs; before counting. */
static int start(struct maker *m, struct err *err)
{
    const struct session_matrix *matrix = m->plan->matrix;
    uint64_t slices = m->form->slices_count;
    bool good = true;
    m->form->slices = table(slices, sizeof(uint64_t), &good);
    m->form->order = table(slices * SLICE, sizeof(uint32_t), &good);
    m->form->lengths = table(slices * SLICE, sizeof(uint32_t), &good);
    m->block_of = table(matrix->rows, sizeof(*m->block_of), &good);
    m->first_row = table(m->blocks_count + 1, sizeof(*m->first_row), &good);
    m->base = table(m->blocks_count + 1, sizeof(*m->base), &good);
    m->at = table(matrix->columns, sizeof(*m->at), &good);
    for (unsigned t = 0; t < m->plan->threads; t++) {
        m->scratch[t].counts = table(m->blocks_count, sizeof(uint64_t), &good);
    }
    if (!good) {
        return no_memory(m, err);
    }
    int code = cpu_pool_init(&m->pool, m->plan->threads, err);
    m->pooled = code == 0;
    return code;
}

/* Buffers of the largest block and group. Fewer threads where a block is huge. */
static int make_room(struct maker *m, struct err *err)
{
    uint64_t columns = m->plan->matrix->columns;
    uint64_t block_most = 1;
    uint64_t group_most = 1;
    uint64_t places_most = 1;
    for (uint64_t block = 0; block < m->blocks_count; block++) {
        uint64_t here = m->base[block + 1] - m->base[block];
        block_most = here > block_most ? here : block_most;
    }
    for (uint64_t first = 0; first < m->blocks_count;) {
        uint64_t count = group_from(m, first);
        uint64_t here = m->base[first + count] - m->base[first];
        group_most = here > group_most ? here : group_most;
        places_most = count > places_most ? count : places_most;
        first += count;
    }
    bool good = true;
    unsigned threads = m->pool.threads;
    while (threads > 1 && threads * block_most > SCRATCH_MAX) {
        threads /= 2;
    }
    if (threads < m->pool.threads) {
        cpu_pool_done(&m->pool);
        m->pooled = false;
        int code = cpu_pool_init(&m->pool, threads, err);
        if (code != 0) {
            return code;
        }
        m->pooled = true;
    }
    uint64_t room = m->by_row ? columns + 1 : PANEL_ROWS;
    for (unsigned t = 0; t < threads; t++) {
        m->scratch[t].entries = table(block_most, sizeof(uint64_t), &good);
        m->scratch[t].starts = table(m->items_max + 2, sizeof(uint64_t), &good);
        m->scratch[t].sorted = table(m->items_max, sizeof(struct ordered), &good);
        m->scratch[t].room = table(room, sizeof(uint64_t), &good);
    }
    m->places = table((places_most + 1) * columns, sizeof(*m->places), &good);
    m->out = table(group_most, sizeof(*m->out), &good);
    return good ? 0 : no_memory(m, err);
}

static void finish(struct maker *m)
{
    if (m->pooled) {
        cpu_pool_done(&m->pool);
    }
    for (unsigned t = 0; t < m->plan->threads; t++) {
        struct scratch *s = &m->scratch[t];
        m->form->depth = s->depth > m->form->depth ? s->depth : m->form->depth;
        free(s->entries);
        free(s->starts);
        free(s->room);
        free(s->sorted);
        free(s->counts);
    }
    free(m->block_of);
    free(m->first_row);
    free(m->base);
    free(m->at);
    free(m->places);
    free(m->out);
    free(m);
}

static int make(struct maker *m, cpu_item_fn *make_block, struct err *err)
{
    const struct sparse_plan *plan = m->plan;
    ASSERT(plan->threads > 0 && plan->threads <= CPU_THREADS_MAX);
    int code = start(m, err);
    if (code == 0) {
        deal_blocks(m);
        code = make_room(m, err);
    }
    if (code != 0) {
        goto out;
    }
    memcpy(m->at, plan->matrix->starts, plan->matrix->columns * sizeof(*m->at));
    while (m->group_first < m->blocks_count && code == 0) {
        m->group_count = group_from(m, m->group_first);
        cpu_pool_run(&m->pool, place_columns, m, column_runs(m), false);
        cpu_pool_run(&m->pool, make_block, m, (size_t)m->group_count, false);
        uint64_t count = m->base[m->group_first + m->group_count] - m->base[m->group_first];
        code = plan->take(plan->context, m->out, (size_t)count, err);
        m->group_first += m->group_count;
    }
out:
    finish(m);
    return code;
}

static struct maker *maker_new(const struct sparse_plan *plan, struct sparse_form *form,
                               bool by_row, struct err *err)
{
    struct maker *m = calloc(1, sizeof(*m));
    memset(form, 0, sizeof(*form));
    if (m == NULL) {
        (void)err_set(err, ERR_NOMEM, "no memory to order a sparse matrix");
        return NULL;
    }
    m->plan = plan;
    m->form = form;
    m->by_row = by_row;
    return m;
}

int sparse_form_rows(const struct sparse_plan *plan, struct sparse_form *ret_form, struct err *err)
{
    struct maker *m = maker_new(plan, ret_form, /* by_row= */ true, err);
    if (m == NULL) {
        return ERR_NOMEM;
    }
    uint64_t rows = plan->matrix->rows;
    m->extra = plan->shape->plan.intercept ? 1 : 0;
    m->blocks_count = panels_of(rows);
    m->items_max = PANEL_ROWS;
    m->slices_a_block = PANEL_ROWS / SLICE;
    ret_form->slices_count = (rows + plan->window - 1) / plan->window * (plan->window / SLICE);
    return make(m, make_rows, err);
}

int sparse_form_cells(const struct sparse_plan *plan, struct sparse_form *ret_form, struct err *err)
{
    struct maker *m = maker_new(plan, ret_form, /* by_row= */ false, err);
    if (m == NULL) {
        return ERR_NOMEM;
    }
    m->blocks_count = plan->shape->batches_count * plan->panels_a_batch;
    m->slices_a_block = (plan->matrix->columns + SLICE - 1) / SLICE;
    m->items_max = m->slices_a_block * SLICE;
    ret_form->slices_count = m->blocks_count * m->slices_a_block;
    return make(m, make_cells, err);
}

void sparse_form_free(struct sparse_form *form)
{
    free(form->slices);
    free(form->order);
    free(form->lengths);
    memset(form, 0, sizeof(*form));
}
