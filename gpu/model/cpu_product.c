/* C = A B, + R: an item is CPU_ROWS rows of C. The summed dimension goes in blocks of DEPTH, each
 * summed in order from +0.0 and added to C's element, so that an error of many terms does not grow
 * with all of them; B's block is packed (DEPTH, COLUMNS), which makes the inner loop the same for
 * both storages. A row's result depends on its own row of A only. */
#include "gpu/model/cpu_math.h"
#include "gpu/model/cpu_programs.h"

#define DEPTH   128
#define COLUMNS 32

struct block {
    float a[CPU_ROWS][DEPTH];
    float b[DEPTH][COLUMNS];
};

static void pack(const struct model_launch *launch, void *const operand[], struct block *block,
                 size_t row, size_t rows, size_t column, size_t columns, size_t from, size_t depth)
{
    const float *a = operand[0];
    const float *b = operand[1];
    for (size_t r = 0; r < CPU_ROWS; r++) {
        for (size_t t = 0; t < depth; t++) {
            size_t at = launch->a_columns ? (from + t) * launch->m + row + r
                                          : (row + r) * launch->k + from + t;
            block->a[r][t] = r < rows ? a[at] : 0.0F;
        }
    }
    for (size_t t = 0; t < depth; t++) {
        for (size_t c = 0; c < COLUMNS; c++) {
            size_t at = launch->b_columns ? (from + t) * launch->n + column + c
                                          : (column + c) * launch->k + from + t;
            block->b[t][c] = c < columns ? b[at] : 0.0F;
        }
    }
}

/* sums += the block's A B, CPU_ROWS x COLUMNS. */
CPU_WIDTHS static void multiply(const struct block *block, size_t depth,
                                float sums[CPU_ROWS][COLUMNS])
{
    for (size_t r = 0; r < CPU_ROWS; r++) {
        float inner[COLUMNS] = {0};
        for (size_t t = 0; t < depth; t++) {
            float a = block->a[r][t];
            for (size_t c = 0; c < COLUMNS; c++) {
                inner[c] += a * block->b[t][c];
            }
        }
        for (size_t c = 0; c < COLUMNS; c++) {
            sums[r][c] += inner[c];
        }
    }
}

void cpu_product(const struct model_launch *launch, void *const operand[], size_t item)
{
    struct block block;
    const float *add = operand[2];
    float *out = launch->half_out ? operand[4] : operand[3];
    size_t n = launch->n;
    size_t row = item * CPU_ROWS;
    size_t rows = launch->m - row < CPU_ROWS ? launch->m - row : CPU_ROWS;
    for (size_t column = 0; column < n; column += COLUMNS) {
        size_t columns = n - column < COLUMNS ? n - column : COLUMNS;
        float sums[CPU_ROWS][COLUMNS] = {{0}};
        for (size_t from = 0; from < launch->k; from += DEPTH) {
            size_t depth = launch->k - from < DEPTH ? launch->k - from : DEPTH;
            pack(launch, operand, &block, row, rows, column, columns, from, depth);
            multiply(&block, depth, sums);
        }
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < columns; c++) {
                size_t at = (row + r) * n + column + c;
                out[at] = launch->add ? sums[r][c] + add[at] : sums[r][c];
            }
        }
    }
}
