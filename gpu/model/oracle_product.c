/* C (m, n) = A B, + R with add. A (m, k) or, by columns, (k, m); B (n, k), transposed, or, by
 * columns, (k, n). Forward X W^T: rows, rows. Data gradient dY W: rows, columns. Weight gradient
 * dY^T X: columns, columns. */
#include "gpu/model/oracle.h"

void oracle_product(const struct model_launch *launch, double *const operand[])
{
    const double *a = operand[0];
    const double *b = operand[1];
    double *out = launch->half_out ? operand[4] : operand[3];
    size_t m = launch->m;
    size_t n = launch->n;
    size_t k = launch->k;
    size_t a_row = launch->a_columns ? 1 : k;
    size_t a_step = launch->a_columns ? m : 1;
    size_t b_row = launch->b_columns ? 1 : k;
    size_t b_step = launch->b_columns ? n : 1;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (size_t t = 0; t < k; t++) {
                sum += a[i * a_row + t * a_step] * b[j * b_row + t * b_step];
            }
            out[i * n + j] = launch->add ? sum + operand[2][i * n + j] : sum;
        }
    }
}
