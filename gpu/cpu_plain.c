/* The loops in plain C: what runs where there is no AVX2, and what the others are held against. */
#include "gpu/cpu_kernels.h"

#include "base/assert.h"
#include "numerics/lane.h"
#include "numerics/product.h"

static void forward(const struct cpu_group *group)
{
    ASSERT(group->rows % CPU_STRIP == 0);
    for (size_t i = 0; i < group->rows; i++) {
        double node[CPU_GROUP];
        for (unsigned j = 0; j < group->count; j++) {
            node[j] = product(group->weights[j], group->columns[j][i]);
        }
        for (unsigned width = group->count / 2; width > 0; width /= 2) {
            for (unsigned j = 0; j < width; j++) {
                node[j] = node[2 * j] + node[2 * j + 1];
            }
        }
        double sum = node[0];
        for (unsigned p = 0; p < group->pending_count; p++) {
            sum = group->pending[p][i] + sum;
        }
        group->out[i] = sum;
    }
}

static void backward(const float *x, const float *residual, size_t rows, double *lanes, bool fresh)
{
    ASSERT(rows % CPU_STRIP == 0);
    if (fresh) {
        for (unsigned lane = 0; lane < PANEL_LANES; lane++) {
            lanes[lane] = 0.0;
        }
    }
    for (size_t i = 0; i < rows; i++) {
        lanes[i % PANEL_LANES] += product(residual[i], x[i]);
    }
}

static double root(double *lanes)
{
    return lanes_root(lanes);
}

const struct cpu_isa cpu_isa_plain = {
    .name = "plain", .forward = forward, .backward = backward, .root = root};
