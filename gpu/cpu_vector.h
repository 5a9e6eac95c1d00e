/* The loops with W binary64 elements side by side, for the file that includes this once, with
 *   CPU_W    elements of a vector (4: AVX2, 8: AVX-512)
 *   CPU_ACC  accumulators of a pass of the backward loop (they must fit the registers)
 *   CPU_WIDEN(x), CPU_SPLAT(x)   W floats to doubles; one float in all W
 *   CPU_ISA  the table's name, CPU_ISA_NAME its text
 * defined and the compiler's flags set. Vector types and hardly an intrinsic: the same text for
 * both widths; no operation here may be contracted (the project's flags see to it). */
#include "gpu/cpu_kernels.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "numerics/lane.h"

typedef float vf __attribute__((vector_size(CPU_W * sizeof(float))));
typedef double vd __attribute__((vector_size(CPU_W * sizeof(double))));

struct two {
    vd a; /* rows i .. i + W - 1 */
    vd b; /* the W rows behind */
};

#define INLINE static inline __attribute__((always_inline))

INLINE vf load_f(const float *from)
{
    vf value;
    memcpy(&value, from, sizeof(value));
    return value;
}

INLINE vd load_d(const double *from)
{
    vd value;
    memcpy(&value, from, sizeof(value));
    return value;
}

INLINE void store_d(double *to, vd value)
{
    memcpy(to, &value, sizeof(value));
}

/* A product rounds in binary32 and is widened exactly. */
INLINE vd products(vf a, vf b)
{
    vf rounded = a * b;
    return CPU_WIDEN(rounded);
}

INLINE struct two tree1(const struct cpu_group *group, unsigned j, size_t i)
{
    const float *x = group->columns[j] + i;
    vf weight = CPU_SPLAT(group->weights[j]);
    return (struct two){products(load_f(x), weight), products(load_f(x + CPU_W), weight)};
}

/* left + right, where left covers the lower columns. */
#define TREE(count, half)                                                              \
    INLINE struct two tree##count(const struct cpu_group *group, unsigned j, size_t i) \
    {                                                                                  \
        struct two left = tree##half(group, j, i);                                     \
        struct two right = tree##half(group, j + (half), i);                           \
        return (struct two){left.a + right.a, left.b + right.b};                       \
    }
TREE(2, 1)
TREE(4, 2)
TREE(8, 4)
TREE(16, 8)

#define FORWARD(count)                                        \
    static void forward##count(const struct cpu_group *group) \
    {                                                         \
        double *out = group->out;                             \
        size_t rows = group->rows;                            \
        unsigned pending_count = group->pending_count;        \
        for (size_t i = 0; i < rows; i += 2 * CPU_W) {        \
            struct two sum = tree##count(group, 0, i);        \
            for (unsigned p = 0; p < pending_count; p++) {    \
                const double *left = group->pending[p] + i;   \
                sum.a = load_d(left) + sum.a;                 \
                sum.b = load_d(left + CPU_W) + sum.b;         \
            }                                                 \
            store_d(out + i, sum.a);                          \
            store_d(out + i + CPU_W, sum.b);                  \
        }                                                     \
    }
FORWARD(1)
FORWARD(2)
FORWARD(4)
FORWARD(8)
FORWARD(16)

static void forward(const struct cpu_group *group)
{
    ASSERT(group->rows % CPU_STRIP == 0);
    switch (group->count) {
    case 1:
        forward1(group);
        return;
    case 2:
        forward2(group);
        return;
    case 4:
        forward4(group);
        return;
    case 8:
        forward8(group);
        return;
    default:
        ASSERT(group->count == 16);
        forward16(group);
        return;
    }
}

static void backward(const float *x, const float *residual, size_t rows, double *lanes, bool fresh)
{
    ASSERT(rows % CPU_STRIP == 0);
    size_t whole = rows - rows % PANEL_LANES;
    enum { PASS = CPU_ACC * CPU_W };
    static_assert(PANEL_LANES % PASS == 0, "passes cover the lanes");
    for (size_t lane = 0; lane < PANEL_LANES; lane += PASS) {
        vd sum[CPU_ACC];
#pragma GCC unroll 16
        for (unsigned k = 0; k < CPU_ACC; k++) {
            sum[k] = fresh ? (vd){0} : load_d(lanes + lane + k * CPU_W);
        }
        for (size_t i = lane; i < whole; i += PANEL_LANES) {
#pragma GCC unroll 16
            for (unsigned k = 0; k < CPU_ACC; k++) {
                sum[k] += products(load_f(residual + i + k * CPU_W), load_f(x + i + k * CPU_W));
            }
        }
#pragma GCC unroll 16
        for (unsigned k = 0; k < CPU_ACC; k++) {
            store_d(lanes + lane + k * CPU_W, sum[k]);
        }
    }
    for (size_t i = whole; i < rows; i += CPU_W) { /* the last rows of a batch */
        double *lane = lanes + (i - whole);
        store_d(lane, load_d(lane) + products(load_f(residual + i), load_f(x + i)));
    }
}

/* Elements 0, 2, 4 … and 1, 3, 5 … of two vectors. */
#if CPU_W == 8
#define EVENS(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODDS(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define EVENS(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODDS(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

static double root(double *lanes)
{
    /* Neighbours join until one vector is left … */
    for (unsigned width = PANEL_LANES / 2; width >= CPU_W; width /= 2) {
        for (unsigned lane = 0; lane < width; lane += CPU_W) {
            vd a = load_d(lanes + 2 * lane);
            vd b = load_d(lanes + 2 * lane + CPU_W);
            store_d(lanes + lane, EVENS(a, b) + ODDS(a, b));
        }
    }
    /* … and then inside it. */
    for (unsigned width = CPU_W / 2; width > 0; width /= 2) {
        for (unsigned lane = 0; lane < width; lane++) {
            lanes[lane] = lanes[2 * lane] + lanes[2 * lane + 1];
        }
    }
    return lanes[0];
}

const struct cpu_isa CPU_ISA = {
    .name = CPU_ISA_NAME, .forward = forward, .backward = backward, .root = root};
