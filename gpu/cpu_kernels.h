/* The CPU's inner loops, three times: plain C, AVX2, AVX-512. All give the same bits, since each
 * element's operations are the same ones in the same order; only how many elements go side by side
 * differs. They are registered as device images by name and launched through the registry.
 * Private to the room and its tests. */
#ifndef COPPELIUS_GPU_CPU_KERNELS_H
#define COPPELIUS_GPU_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "gpu/images.h"

#define CPU_STRIP      16 /* heights of blocks are multiples of so many rows */
#define CPU_GROUP      16 /* columns that the forward pass joins in registers */
#define CPU_LEVELS_MAX 64

/* 2^k columns of a canonical node of the tree, joined over `rows` rows, and joined on with the
 * nodes to their left that are complete: out = pending[n-1] + (… + (pending[0] + tree)). out may be
 * one of the pending. */
struct cpu_group {
    const float *columns[CPU_GROUP]; /* each 64-byte aligned where rows allow; rows floats */
    const float *weights;            /* count of them */
    unsigned count;                  /* 1, 2, 4, 8 or 16 */
    unsigned pending_count;
    const double *pending[CPU_LEVELS_MAX]; /* nearest first; rows doubles */
    double *out;
    size_t rows; /* a multiple of CPU_STRIP */
};

typedef void cpu_forward_fn(const struct cpu_group *group);

/* lanes[i mod 128] += product(residual[i], x[i]), rows in order, i from 0; fresh: the lanes start
 * at +0.0 instead of what they hold. rows is a multiple of CPU_STRIP. */
typedef void cpu_backward_fn(const float *x, const float *residual, size_t rows, double *lanes,
                             bool fresh);

/* lanes_root() of numerics/lane.h. Destroys the lanes. */
typedef double cpu_root_fn(double *lanes);

struct cpu_isa {
    const char *name; /* "plain", "avx2", "avx512" */
    cpu_forward_fn *forward;
    cpu_backward_fn *backward;
    cpu_root_fn *root;
};

extern const struct cpu_isa cpu_isa_plain;
extern const struct cpu_isa cpu_isa_avx2;
extern const struct cpu_isa cpu_isa_avx512;

/* By name ("plain", "avx2", "avx512"), or with NULL or "" the best that this machine has:
 * ERR_CONFIG where the name is unknown or the machine cannot run it. */
int cpu_isa_find(const char *name, const struct cpu_isa **ret_isa, struct err *err);

#endif
