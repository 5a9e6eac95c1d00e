/* Sparse blocks stay sparse: the columns' entries are split into training and test rows. Shuffled
 * training rows are collected by row (CSR) and dealt out in the new order, so that the rows of each
 * column ascend again without a sort. */
#include "data/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define ENTRIES_PIECE 65536U

/* The training entries by row of the file. */
struct by_row {
    uint64_t *ends; /* train rows + 1 */
    uint32_t *columns;
    float *values;
};

int load_entries(const struct dataset *dataset, uint64_t first, size_t count, uint64_t *rows,
                 float *values, struct err *err)
{
    const struct dataset_file *data = &dataset->data;
    const struct dataset_file *indices = &dataset->indices;
    ASSERT(count <= ENTRIES_PIECE);
    int code = dataset_pread(dataset, data, data->npy.offset + first * sizeof(float), values,
                             count * sizeof(float), err);
    uint8_t *narrow = (uint8_t *)rows; /* 4-byte indices are read to the front and widened. */
    code = code == 0
               ? dataset_pread(dataset, indices, indices->npy.offset + first * indices->npy.item,
                               narrow, count * indices->npy.item, err)
               : code;
    if (code != 0) {
        return code;
    }
    for (size_t i = count; i > 0 && indices->npy.item == 4; i--) {
        int32_t row = 0;
        memcpy(&row, narrow + (i - 1) * 4, sizeof(row));
        rows[i - 1] = row < 0 ? UINT64_MAX : (uint64_t)row;
    }
    for (size_t i = 0; i < count; i++) {
        if (rows[i] >= dataset->info.rows) {
            return err_set(err, ERR_DAMAGED, "%s: element %llu is no row of %llu", indices->path,
                           (unsigned long long)first + i, (unsigned long long)dataset->info.rows);
        }
        if (values[i] - values[i] != 0.0F) {
            return err_set(err, ERR_DATA, "%s: element %llu is not finite", data->path,
                           (unsigned long long)first + i);
        }
    }
    return 0;
}

static int alloc_matrix(struct dataset_matrix *matrix, bool wide, struct err *err)
{
    size_t count = (size_t)matrix->nonzeros + 1;
    matrix->sparse = true;
    matrix->values = malloc(count * sizeof(float));
    if (wide) {
        matrix->row64 = malloc(count * sizeof(uint64_t));
    } else {
        matrix->row32 = malloc(count * sizeof(uint32_t));
    }
    if (matrix->values == NULL || (matrix->row32 == NULL && matrix->row64 == NULL)) {
        return err_set(err, ERR_NOMEM, "no memory for %llu entries",
                       (unsigned long long)matrix->nonzeros);
    }
    return 0;
}

static inline void set_entry(struct dataset_matrix *matrix, uint64_t at, uint64_t row, float value)
{
    matrix->values[at] = value;
    if (matrix->row32 != NULL) {
        matrix->row32[at] = (uint32_t)row;
    } else {
        matrix->row64[at] = row;
    }
}

/* Called with each piece of a column's entries, in order. */
typedef void on_entries_fn(struct load *load, void *context, uint64_t column, const uint64_t *rows,
                           const float *values, size_t count);

/* Reads all entries of the block once, in pieces that span columns; checks that rows ascend. */
static int walk(struct load *load, const uint64_t *ends, on_entries_fn *on_entries, void *context,
                bool count_progress, struct err *err)
{
    uint64_t *rows = malloc(ENTRIES_PIECE * sizeof(*rows));
    float *values = malloc(ENTRIES_PIECE * sizeof(*values));
    ASSERT(rows != NULL);
    ASSERT(values != NULL);
    int code = 0;
    uint64_t columns = load->block->end - load->block->first;
    uint64_t piece = ends[0]; /* The piece in memory: entries piece .. piece_end-1. */
    uint64_t piece_end = ends[0];
    for (uint64_t j = 0; j < columns && code == 0; j++) {
        uint64_t next_row = 0;
        for (uint64_t at = ends[j]; at < ends[j + 1] && code == 0;) {
            if (at == piece_end) {
                uint64_t left = ends[columns] - at;
                piece = at;
                piece_end = at + (left < ENTRIES_PIECE ? left : ENTRIES_PIECE);
                code = load_entries(load->dataset, at, (size_t)(piece_end - at), rows, values, err);
            }
            uint64_t end = ends[j + 1] < piece_end ? ends[j + 1] : piece_end;
            for (uint64_t i = at - piece; i < end - piece && code == 0; i++) {
                if (rows[i] < next_row) {
                    code = load_order_fault(load->dataset, load->block->first + j, rows[i], err);
                }
                next_row = rows[i] + 1;
            }
            if (code == 0) {
                on_entries(load, context, j, rows + (at - piece), values + (at - piece),
                           (size_t)(end - at));
            }
            at = end;
        }
        if (code == 0 && count_progress) {
            code = meter_add(&load->meter, load->dataset->info.rows * sizeof(float), err);
        }
    }
    free(rows);
    free(values);
    return code;
}

/* First walk: how many entries each column has among training and test rows, and each row has. */
static void on_count(struct load *load, void *context, uint64_t column, const uint64_t *rows,
                     const float *values, size_t count)
{
    (void)values;
    struct by_row *by_row = context;
    uint64_t train_rows = load->rows.split.train_rows;
    for (size_t i = 0; i < count; i++) {
        bool train = rows[i] < train_rows;
        struct dataset_matrix *matrix = train ? &load->block->train : &load->block->test;
        matrix->indptr[column + 1]++;
        if (train && by_row->ends != NULL) {
            by_row->ends[rows[i] + 1]++;
        }
    }
}

/* Second walk: test entries (and unshuffled training ones) to their places, the others by row. */
static void on_place(struct load *load, void *context, uint64_t column, const uint64_t *rows,
                     const float *values, size_t count)
{
    struct by_row *by_row = context;
    struct dataset_block *block = load->block;
    uint64_t train_rows = load->rows.split.train_rows;
    for (size_t i = 0; i < count; i++) {
        if (rows[i] >= train_rows) {
            set_entry(&block->test, block->test.nonzeros++, rows[i] - train_rows, values[i]);
        } else if (by_row->ends == NULL) {
            set_entry(&block->train, block->train.nonzeros++, rows[i], values[i]);
        } else {
            uint64_t at = by_row->ends[rows[i]]++; /* ends[r] runs to where row r + 1 began. */
            by_row->columns[at] = (uint32_t)column;
            by_row->values[at] = values[i];
        }
    }
}

/* Rows in their new order; indptr serves as the columns' cursors and is moved back after. */
static void deal_rows(struct load *load, const struct by_row *by_row)
{
    struct dataset_matrix *train = &load->block->train;
    for (uint64_t i = 0; i < train->rows; i++) {
        uint64_t row = load->rows.order[i];
        uint64_t at = row == 0 ? 0 : by_row->ends[row - 1];
        for (; at < by_row->ends[row]; at++) {
            set_entry(train, train->indptr[by_row->columns[at]]++, i, by_row->values[at]);
            train->nonzeros++;
        }
    }
    for (uint64_t j = train->columns; j > 0; j--) {
        train->indptr[j] = train->indptr[j - 1];
    }
    train->indptr[0] = 0;
}

static uint64_t running_sum(uint64_t *counts, uint64_t count)
{
    for (uint64_t i = 1; i <= count; i++) {
        counts[i] += counts[i - 1];
    }
    return counts[count];
}

static int alloc_counts(struct load *load, struct by_row *by_row, uint64_t **ret_ends,
                        struct err *err)
{
    struct dataset_block *block = load->block;
    uint64_t columns = block->end - block->first;
    *ret_ends = malloc((size_t)(columns + 1) * sizeof(uint64_t));
    block->train.indptr = calloc((size_t)columns + 1, sizeof(uint64_t));
    block->test.indptr = calloc((size_t)columns + 1, sizeof(uint64_t));
    if (load->rows.order != NULL) {
        by_row->ends = calloc((size_t)block->train.rows + 1, sizeof(uint64_t));
    }
    if (*ret_ends == NULL || block->train.indptr == NULL || block->test.indptr == NULL ||
        (load->rows.order != NULL && by_row->ends == NULL)) {
        return err_set(err, ERR_NOMEM, "no memory for the counts of %llu columns",
                       (unsigned long long)columns);
    }
    return 0;
}

int load_sparse(struct load *load, struct err *err)
{
    struct dataset_block *block = load->block;
    struct by_row by_row = {.ends = NULL};
    uint64_t *ends = NULL;
    uint64_t columns = block->end - block->first;
    bool wide = load->dataset->info.rows >= UINT64_C(1) << 32;
    int code = alloc_counts(load, &by_row, &ends, err);
    code = code == 0 ? dataset_indptr(load->dataset, block->first, columns + 1, ends, err) : code;
    code = code == 0 ? walk(load, ends, on_count, &by_row, false, err) : code;
    if (code == 0) {
        block->train.nonzeros = running_sum(block->train.indptr, columns);
        block->test.nonzeros = running_sum(block->test.indptr, columns);
        code = alloc_matrix(&block->train, wide, err);
        code = code == 0 ? alloc_matrix(&block->test, wide, err) : code;
    }
    if (code == 0 && by_row.ends != NULL) {
        (void)running_sum(by_row.ends, block->train.rows);
        by_row.columns = malloc((size_t)(block->train.nonzeros + 1) * sizeof(uint32_t));
        by_row.values = malloc((size_t)(block->train.nonzeros + 1) * sizeof(float));
        if (by_row.columns == NULL || by_row.values == NULL) {
            code = err_set(err, ERR_NOMEM, "no memory to shuffle %llu entries",
                           (unsigned long long)block->train.nonzeros);
        }
    }
    if (code == 0) {
        uint64_t train_nonzeros = block->train.nonzeros;
        uint64_t test_nonzeros = block->test.nonzeros;
        block->train.nonzeros = 0;
        block->test.nonzeros = 0;
        code = walk(load, ends, on_place, &by_row, true, err);
        if (code == 0 && by_row.ends != NULL) {
            deal_rows(load, &by_row);
        }
        ASSERT(code != 0 || block->train.nonzeros == train_nonzeros);
        ASSERT(code != 0 || block->test.nonzeros == test_nonzeros);
    }
    free(ends);
    free(by_row.ends);
    free(by_row.columns);
    free(by_row.values);
    return code;
}
