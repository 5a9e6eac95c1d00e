/* What the host makes of a sparse matrix, summed as the device's stack does, has the bits of the
 * dense sums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "gpu/cpu_pool.h"
#include "gpu/sparse_form.h"
#include "gpu/sparse_order.h"
#include "numerics/dyadic.h"
#include "numerics/lane.h"
#include "numerics/product.h"
#include "tests/lib/unit.h"

struct problem {
    struct session_shape shape;
    struct session_matrix matrix;
    float *dense; /* [column][row] */
    uint64_t *starts;
    uint32_t *row;
    float *value;
    float *w;
    uint64_t window;
    uint64_t panels_a_batch;
};

struct made {
    struct sparse_form form;
    uint64_t *entries;
    size_t count;
};

static void *room(uint64_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

/* one_in: of the elements, on average, is not zero. */
static void make_problem(struct problem *p, uint64_t rows, uint64_t columns, uint64_t first,
                         bool intercept, uint64_t batch_rows, uint64_t one_in, uint64_t seed)
{
    struct rand rand = {seed};
    memset(p, 0, sizeof(*p));
    p->dense = room(rows * columns, sizeof(float));
    p->starts = room(columns + 1, sizeof(*p->starts));
    p->row = room(rows * columns, sizeof(*p->row));
    p->value = room(rows * columns, sizeof(*p->value));
    p->w = room(columns + 1, sizeof(*p->w));
    uint64_t entries = 0;
    for (uint64_t j = 0; j < columns; j++) {
        p->starts[j] = entries;
        for (uint64_t i = 0; i < rows; i++) {
            if (rand_below(&rand, one_in) != 0 && !(j == 3 && columns > 5)) {
                continue;
            }
            float value = (float)(int64_t)(rand_next(&rand) >> 30) * 0x1p-33F - 0.7F;
            p->dense[j * rows + i] = value;
            p->row[entries] = (uint32_t)i;
            p->value[entries++] = value;
        }
    }
    p->starts[columns] = entries;
    for (uint64_t j = 0; j <= columns; j++) {
        p->w[j] = (float)(int64_t)(rand_next(&rand) >> 30) * 0x1p-33F - 0.3F;
    }
    p->matrix = (struct session_matrix){.storage = SESSION_CSC,
                                        .rows = rows,
                                        .columns = columns,
                                        .starts = p->starts,
                                        .row = p->row,
                                        .value = p->value};
    struct session_shape *shape = &p->shape;
    shape->columns = columns;
    shape->coordinates = columns + (intercept ? 1 : 0);
    shape->plan.coordinate_first = first;
    shape->plan.coordinate_end = first + shape->coordinates;
    shape->plan.intercept = intercept;
    shape->plan.whole = true;
    shape->plan.rows = rows;
    shape->plan.entries = entries;
    shape->plan.batch_rows = batch_rows;
    shape->nodes_count = nodes_cover(first, shape->plan.coordinate_end, shape->nodes);
    shape->batches_count = (rows + batch_rows - 1) / batch_rows;
    p->panels_a_batch = panels_of(batch_rows);
    p->window = batch_rows % PANEL_ROWS == 0 || batch_rows == rows ? PANEL_ROWS : SLICE;
}

static void free_problem(struct problem *p)
{
    free(p->dense);
    free(p->starts);
    free(p->row);
    free(p->value);
    free(p->w);
}

static int keep(void *context, const uint64_t *entries, size_t count, struct err *err)
{
    struct made *made = context;
    (void)err;
    made->entries = realloc(made->entries, (made->count + count + 1) * sizeof(*entries));
    ck_assert_ptr_nonnull(made->entries);
    memcpy(made->entries + made->count, entries, count * sizeof(*entries));
    made->count += count;
    return 0;
}

static void make_form(const struct problem *p, bool by_row, unsigned threads, struct made *made)
{
    struct err err = {0};
    memset(made, 0, sizeof(*made));
    const struct sparse_plan plan = {.shape = &p->shape,
                                     .matrix = &p->matrix,
                                     .window = p->window,
                                     .panels_a_batch = p->panels_a_batch,
                                     .threads = threads,
                                     .take = keep,
                                     .context = made};
    int code = by_row ? sparse_form_rows(&plan, &made->form, &err)
                      : sparse_form_cells(&plan, &made->form, &err);
    ck_assert_msg(code == 0, "%s", err.text);
    ck_assert_uint_eq(made->count, made->form.entries_count);
}

static void free_made(struct made *made)
{
    sparse_form_free(&made->form);
    free(made->entries);
}

/* As the device: a lane's entries by rank, its stack, and what remains of it folded at the end.
 * ends: where the stack is emptied into parts[]; none: one sum. */
static double sum_lane(const struct made *made, uint64_t slice, unsigned lane, const float *factor,
                       uint32_t mask, size_t *ret_depth)
{
    const uint32_t *lengths = made->form.lengths + slice * SLICE;
    const uint64_t *next = made->entries + made->form.slices[slice];
    double stack[300];
    size_t depth = 0;
    size_t most = 0;
    bool falling = true;
    bool enough = true;
    for (uint32_t rank = 0; rank < lengths[lane]; rank++) {
        unsigned here = 0;
        while (here < SLICE && lengths[here] > rank) {
            falling = falling && (here == 0 || lengths[here] <= lengths[here - 1]);
            here++;
        }
        uint64_t entry = next[lane];
        next += here;
        uint32_t bits = (uint32_t)entry;
        float value = 0.0F;
        memcpy(&value, &bits, sizeof(value));
        stack[depth++] = product(factor[(uint32_t)(entry >> 32) & mask], value);
        for (uint64_t folds = entry >> ENTRY_FOLDS; folds > 0; folds--) {
            enough = enough && depth >= 2;
            if (!enough) {
                break;
            }
            stack[depth - 2] = stack[depth - 2] + stack[depth - 1];
            depth--;
        }
        most = depth > most ? depth : most; /* the last term itself is in a register */
    }
    ck_assert(falling);
    ck_assert(enough);
    double sum = depth > 0 ? stack[depth - 1] : 0.0;
    while (depth > 1) {
        depth--;
        sum = stack[depth - 1] + sum;
    }
    *ret_depth = most > *ret_depth ? most : *ret_depth;
    return canon(sum);
}

/* The dense sum of a row: nodes by themselves, then folded from the right. */
static double dense_row(const struct problem *p, uint64_t i)
{
    double nodes[NODES_MAX];
    for (size_t n = 0; n < p->shape.nodes_count; n++) {
        struct dyadic sum;
        dyadic_start(&sum);
        uint64_t first = p->shape.plan.coordinate_first;
        for (uint64_t j = node_first(p->shape.nodes[n]) - first;
             j < node_end(p->shape.nodes[n]) - first; j++) {
            float x = j < p->matrix.columns ? p->dense[j * p->matrix.rows + i] : 1.0F;
            dyadic_add(&sum, product(p->w[j], x));
        }
        nodes[n] = dyadic_root(&sum);
    }
    double z = nodes[p->shape.nodes_count - 1];
    for (size_t n = p->shape.nodes_count - 1; n > 0; n--) {
        z = nodes[n - 1] + z;
    }
    return canon(z);
}

static void check_rows(const struct problem *p, const struct made *made)
{
    uint8_t *seen = room(p->matrix.rows, 1);
    size_t depth = 0;
    uint64_t found = 0;
    for (uint64_t slice = 0; slice < made->form.slices_count; slice++) {
        for (unsigned lane = 0; lane < SLICE; lane++) {
            uint32_t row = made->form.order[slice * SLICE + lane];
            if (row == UINT32_MAX) {
                ck_assert_uint_eq(made->form.lengths[slice * SLICE + lane], 0);
                continue;
            }
            ck_assert(row < p->matrix.rows && row / p->window == slice * SLICE / p->window);
            ck_assert(seen[row]++ == 0);
            found++;
            double z = sum_lane(made, slice, lane, p->w, (uint32_t)ENTRY_COLUMNS - 1, &depth);
            double dense = dense_row(p, row);
            ck_assert_msg(memcmp(&z, &dense, sizeof(z)) == 0, "row %u: %a, dense %a", row, z,
                          dense);
        }
    }
    ck_assert_uint_eq(found, p->matrix.rows);
    ck_assert_uint_le(depth, made->form.depth);
    free(seen);
}

static void check_cells(const struct problem *p, const struct made *made)
{
    uint64_t columns = p->matrix.columns;
    uint64_t slices = (columns + SLICE - 1) / SLICE;
    uint64_t panels = p->shape.batches_count * p->panels_a_batch;
    uint8_t *seen = room(panels * columns, 1);
    float *residual = room(p->matrix.rows + PANEL_ROWS, sizeof(*residual));
    struct rand rand = {99};
    size_t depth = 0;
    for (uint64_t i = 0; i < p->matrix.rows; i++) {
        residual[i] = (float)(int64_t)(rand_next(&rand) >> 30) * 0x1p-33F - 0.5F;
    }
    ck_assert_uint_eq(made->form.slices_count, panels * slices);
    for (uint64_t at = 0; at < made->form.slices_count * SLICE; at++) {
        uint32_t column = made->form.order[at];
        uint64_t panel = at / (slices * SLICE);
        if (column == UINT32_MAX) {
            ck_assert_uint_eq(made->form.lengths[at], 0);
            continue;
        }
        ck_assert(column < columns && seen[panel * columns + column]++ == 0);
        uint64_t batch = panel / p->panels_a_batch * p->shape.plan.batch_rows;
        uint64_t first = batch + panel % p->panels_a_batch * PANEL_ROWS;
        uint64_t end = batch + p->shape.plan.batch_rows;
        end = end < p->matrix.rows ? end : p->matrix.rows;
        double lanes[PANEL_LANES] = {0.0};
        for (uint64_t i = first; i < end && i < first + PANEL_ROWS; i++) {
            lanes[(i - first) % PANEL_LANES] +=
                product(residual[i], p->dense[column * p->matrix.rows + i]);
        }
        double dense = canon(lanes_root(lanes));
        first = first < p->matrix.rows ? first : p->matrix.rows;
        double sum =
            sum_lane(made, at / SLICE, at % SLICE, residual + first, PANEL_ROWS - 1, &depth);
        ck_assert_msg(memcmp(&sum, &dense, sizeof(sum)) == 0, "panel %llu column %u: %a, dense %a",
                      (unsigned long long)panel, column, sum, dense);
    }
    uint64_t found = 0;
    for (uint64_t cell = 0; cell < panels * columns; cell++) {
        found += seen[cell];
    }
    ck_assert_uint_eq(found, panels * columns);
    ck_assert_uint_le(depth, 8); /* what the backward pass has room for */
    free(seen);
    free(residual);
}

static void check(uint64_t rows, uint64_t columns, uint64_t first, bool intercept, uint64_t batch,
                  uint64_t one_in)
{
    struct problem p;
    struct made one;
    struct made three;
    make_problem(&p, rows, columns, first, intercept, batch, one_in, rows + columns + first);
    for (int by_row = 0; by_row < 2; by_row++) {
        make_form(&p, by_row == 1, 1, &one);
        make_form(&p, by_row == 1, 3, &three);
        if (by_row == 1) {
            check_rows(&p, &one);
        } else {
            check_cells(&p, &one);
        }
        size_t tables = one.form.slices_count * SLICE * sizeof(uint32_t);
        ck_assert_uint_eq(one.count, three.count);
        ck_assert_mem_eq(one.entries, three.entries, one.count * sizeof(*one.entries));
        ck_assert_mem_eq(one.form.slices, three.form.slices, one.form.slices_count * 8);
        ck_assert_mem_eq(one.form.order, three.form.order, tables);
        ck_assert_mem_eq(one.form.lengths, three.form.lengths, tables);
        ck_assert_uint_eq(one.form.depth, three.form.depth);
        free_made(&one);
        free_made(&three);
    }
    free_problem(&p);
}

START_TEST(both_forms_have_the_bits_of_dense_sums)
{
    check(1, 1, 0, false, 1, 1);
    check(1, 1, 0, true, 1, 3);
    check(70, 9, 0, true, 70, 2);
    check(5000, 40, 0, true, 5000, 1); /* every element is there */
    check(5000, 300, 0, true, 5000, 20);
    check(4096, 700, 37, false, 2048, 50); /* a node that owns columns from 37 on */
    check(6001, 129, 1000, true, 4096, 7);
    check(3000, 65, 3, true, 777, 3); /* batches begin inside panels */
    check(3000, 33, 0, false, 31, 4);
    check(9000, 31, 8, false, 5000, 400); /* many empty rows and cells */
}
END_TEST

START_TEST(a_matrix_without_stored_columns_has_intercepts_only)
{
    check(2500, 0, 0, true, 2500, 1);
}
END_TEST

START_TEST(a_node_that_is_summed_by_itself_leaves_the_stack)
{
    struct node nodes[NODES_MAX];
    uint64_t entries[100];
    uint64_t out[100];
    ck_assert_uint_ge(nodes_cover(1, 101, nodes), 6);
    for (int whole = 0; whole < 2; whole++) {
        for (size_t i = 0; i < 100; i++) {
            entries[i] = sparse_entry(i, 1.0F);
        }
        uint64_t depth = sparse_order_row(entries, 100, nodes, 1, whole == 1, out);
        /* The nodes of 32: 5 slots; as a whole six wait before the second one. */
        ck_assert_uint_eq(depth, whole == 1 ? 11 : 5);
    }
}
END_TEST

START_TEST(few_terms_wait_on_the_stack)
{
    const struct node node = {.index = 0, .level = 20};
    uint64_t entries[4096];
    uint64_t out[4096];
    struct rand rand = {5};
    for (size_t count = 1; count <= 4096; count *= 2) {
        uint64_t column = 0;
        for (size_t i = 0; i < count; i++) {
            column += 1 + rand_below(&rand, 200);
            entries[i] = sparse_entry(column, 1.0F);
        }
        uint64_t depth = sparse_order_row(entries, count, &node, 0, true, out);
        ck_assert_uint_eq(depth, sparse_order_depth(entries, count));
        ck_assert_uint_le(depth, arith_highest_bit(count) + 1);
    }
}
END_TEST

static int stop(void *context, const uint64_t *entries, size_t count, struct err *err)
{
    (void)context;
    (void)entries;
    (void)count;
    return err_set(err, ERR_DEVICE, "the device is gone");
}

START_TEST(what_the_taker_says_comes_back)
{
    struct problem p;
    struct err err = {0};
    struct sparse_form form;
    make_problem(&p, 100, 10, 0, true, 100, 2, 1);
    const struct sparse_plan plan = {.shape = &p.shape,
                                     .matrix = &p.matrix,
                                     .window = p.window,
                                     .panels_a_batch = p.panels_a_batch,
                                     .threads = 2,
                                     .take = stop};
    ck_assert_int_eq(sparse_form_rows(&plan, &form, &err), ERR_DEVICE);
    ck_assert_str_eq(err.text, "the device is gone");
    sparse_form_free(&form);
    free_problem(&p);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("sparse_form");
    TCase *tcase = tcase_create("sparse_form");
    tcase_add_test(tcase, both_forms_have_the_bits_of_dense_sums);
    tcase_add_test(tcase, a_matrix_without_stored_columns_has_intercepts_only);
    tcase_add_test(tcase, a_node_that_is_summed_by_itself_leaves_the_stack);
    tcase_add_test(tcase, few_terms_wait_on_the_stack);
    tcase_add_test(tcase, what_the_taker_says_comes_back);
    suite_add_tcase(suite, tcase);
    return suite;
}
