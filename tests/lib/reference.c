#include "tests/lib/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rand.h"

enum { PANEL = 2048, LANES = 128 };

/* Level by level, index 0 first; an absent right child passes its left sibling through. */
static double dyadic(double *t, size_t count)
{
    while (count > 1) {
        for (size_t i = 0; i < count / 2; i++) {
            t[i] = t[2 * i] + t[2 * i + 1];
        }
        if (count % 2 == 1) {
            t[count / 2] = t[count - 1];
        }
        count = (count + 1) / 2;
    }
    return t[0];
}

static double canon(double x)
{
    return x + 0.0;
}

static double product(float a, float b)
{
    volatile float rounded = a * b;
    return (double)rounded;
}

static double lane_sum(const double *terms, size_t count)
{
    size_t panels_count = (count + PANEL - 1) / PANEL;
    double *panels = calloc(panels_count, sizeof(*panels));
    ASSERT(panels != NULL);
    for (size_t p = 0; p < panels_count; p++) {
        double lanes[LANES] = {0.0};
        for (size_t i = p * PANEL; i < count && i < (p + 1) * PANEL; i++) {
            lanes[(i - p * PANEL) % LANES] += terms[i];
        }
        panels[p] = dyadic(lanes, LANES);
    }
    double sum = canon(dyadic(panels, panels_count));
    free(panels);
    return sum;
}

static float feature(const struct reference_job *job, size_t i, size_t j)
{
    return j < job->features ? job->x[i * job->features + j] : 1.0F;
}

void reference_forward(const struct reference_job *job, const double *w, size_t first, size_t count,
                       double *z)
{
    size_t coordinates = job->features + (job->intercept ? 1 : 0);
    double *terms = calloc(coordinates, sizeof(*terms));
    ASSERT(terms != NULL);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < coordinates; j++) {
            terms[j] = product((float)w[j], feature(job, first + i, j));
        }
        z[i] = canon(dyadic(terms, coordinates));
    }
    free(terms);
}

static bool in_range(double loss, const double *w, size_t coordinates, const double *r,
                     size_t count)
{
    bool good = isfinite(loss) != 0;
    for (size_t j = 0; j < coordinates; j++) {
        good = good && isfinite((float)w[j]);
    }
    for (size_t i = 0; i < count; i++) {
        good = good && isfinite((float)r[i]);
    }
    return good;
}

size_t reference_train(const struct reference_job *job, double *w, double *acc, double *losses)
{
    size_t coordinates = job->features + (job->intercept ? 1 : 0);
    size_t batch = job->batch == 0 || job->batch > job->rows ? job->rows : job->batch;
    size_t batches = (job->rows + batch - 1) / batch;
    double *r = calloc(batch, sizeof(*r));
    double *terms = calloc(batch, sizeof(*terms));
    ASSERT(r != NULL);
    ASSERT(terms != NULL);
    size_t step = 0;
    for (; step < job->steps; step++) {
        size_t first = step % batches * batch;
        size_t count = job->rows - first < batch ? job->rows - first : batch;
        reference_forward(job, w, first, count, r);
        for (size_t i = 0; i < count; i++) {
            r[i] = r[i] - job->y[first + i];
            terms[i] = 0.5 * (r[i] * r[i]);
        }
        losses[step] = lane_sum(terms, count) / (double)count;
        for (size_t j = 0; j < coordinates; j++) {
            for (size_t i = 0; i < count; i++) {
                terms[i] = product((float)r[i], feature(job, first + i, j));
            }
            double g = lane_sum(terms, count) / (double)count;
            g = g + (j < job->features ? job->l2 : 0.0) * w[j];
            acc[j] = canon(job->decay * acc[j] + g);
            w[j] = canon(w[j] - job->rate * acc[j]);
        }
        if (!in_range(losses[step], w, coordinates, r, count)) {
            break;
        }
    }
    free(terms);
    free(r);
    return step;
}

void reference_standardize(float *x, size_t rows, size_t features)
{
    double *terms = calloc(rows, sizeof(*terms));
    ASSERT(terms != NULL);
    for (size_t j = 0; j < features; j++) {
        for (size_t i = 0; i < rows; i++) {
            terms[i] = (double)x[i * features + j];
        }
        double mean = lane_sum(terms, rows) / (double)rows;
        for (size_t i = 0; i < rows; i++) {
            double centred = (double)x[i * features + j] - mean;
            terms[i] = centred * centred;
        }
        double var = lane_sum(terms, rows) / (double)rows;
        double scale = var > 0.0 ? sqrt(var) : 1.0;
        for (size_t i = 0; i < rows; i++) {
            x[i * features + j] = (float)(((double)x[i * features + j] - mean) / scale);
        }
    }
    free(terms);
}

void reference_shuffle(size_t rows, uint64_t seed, size_t *order)
{
    struct rand rand = {seed};
    for (size_t i = 0; i < rows; i++) {
        order[i] = i;
    }
    for (size_t i = rows - 1; i > 0; i--) {
        size_t j = (size_t)rand_below(&rand, i + 1);
        size_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}
