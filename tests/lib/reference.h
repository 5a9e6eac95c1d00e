/* numerics/reference.py again, in slow and literal C: what the random cases are held against. Rows
 * first (x[i * features + j]); one node; no vectors, no tricks. */
#ifndef COPPELIUS_TESTS_REFERENCE_H
#define COPPELIUS_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reference_job {
    size_t rows;
    size_t features;
    const float *x;
    const double *y;
    bool intercept;
    double rate;
    double decay;
    double l2;
    size_t batch; /* 0: all */
    size_t steps;
};

/* w and acc: features + intercept values, given the start (zeros as a rule); losses: steps values.
 * Returns the steps done before one diverged: job->steps when all is well. */
size_t reference_train(const struct reference_job *job, double *w, double *acc, double *losses);
/* In place; rows first. */
void reference_standardize(float *x, size_t rows, size_t features);
void reference_shuffle(size_t rows, uint64_t seed, size_t *order);
/* canon(dyadic(product(w, x))) of each row. */
void reference_forward(const struct reference_job *job, const double *w, size_t first, size_t count,
                       double *z);

#endif
