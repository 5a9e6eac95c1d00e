#include "gpu/model/cpu_math.h"
#include "gpu/model/cpu_programs.h"
#include "gpu/model/philox.h"

struct range {
    size_t first;
    size_t end;
};

static struct range range_of(uint64_t count, size_t item)
{
    size_t first = item * CPU_FLAT;
    return (struct range){first, count - first < CPU_FLAT ? (size_t)count : first + CPU_FLAT};
}

void cpu_random_normal(const struct model_launch *launch, void *const operand[], size_t item)
{
    float *out = operand[0];
    struct range range = range_of(launch->count, item);
    for (size_t i = range.first; i < range.end; i++) {
        uint64_t number = launch->first + i;
        struct philox block = philox_block(number / 4, launch->seed);
        unsigned pair = number % 4 / 2 * 2;
        float u = ((float)(block.word[pair] >> 8) + 1.0F) * 0x1p-24F;
        float v = (float)(block.word[pair + 1] >> 8) * 0x1p-24F;
        float angle = (float)(2.0 * M_PI) * v;
        float turned = number % 2 == 0 ? cosf(angle) : sinf(angle);
        out[i] = launch->scale * sqrtf(-2.0F * logf(u)) * turned;
    }
}

void cpu_fill(const struct model_launch *launch, void *const operand[], size_t item)
{
    float *out = operand[0];
    struct range range = range_of(launch->count, item);
    for (size_t i = range.first; i < range.end; i++) {
        out[i] = launch->value;
    }
}

void cpu_copy(const struct model_launch *launch, void *const operand[], size_t item)
{
    struct range range = range_of(launch->count, item);
    memcpy((float *)operand[1] + range.first, (const float *)operand[0] + range.first,
           (range.end - range.first) * sizeof(float));
}

CPU_WIDTHS void cpu_add(const struct model_launch *launch, void *const operand[], size_t item)
{
    const float *a = operand[0];
    const float *b = operand[1];
    float *out = operand[2];
    struct range range = range_of(launch->count, item);
    for (size_t i = range.first; i < range.end; i++) {
        out[i] = a[i] + b[i];
    }
}

CPU_WIDTHS void cpu_scale(const struct model_launch *launch, void *const operand[], size_t item)
{
    const float *in = operand[0];
    float *out = operand[1];
    struct range range = range_of(launch->count, item);
    for (size_t i = range.first; i < range.end; i++) {
        out[i] = launch->scale * in[i];
    }
}

CPU_WIDTHS void cpu_adamw(const struct model_launch *launch, void *const operand[], size_t item)
{
    float *restrict p = operand[0];
    float *restrict m = operand[1];
    float *restrict v = operand[2];
    const float *restrict gradient = operand[3];
    const uint8_t *restrict mask = operand[4];
    float factor = *(const float *)operand[5];
    float *restrict copy = operand[6];
    const struct model_launch l = *launch;
    struct range range = range_of(launch->count, item);
    for (size_t i = range.first; i < range.end; i++) {
        float g = factor * gradient[i];
        m[i] = l.beta1 * m[i] + (1.0F - l.beta1) * g;
        v[i] = l.beta2 * v[i] + (1.0F - l.beta2) * g * g;
        float step = l.correction1 * m[i] / (sqrtf(l.correction2 * v[i]) + l.epsilon);
        float decay = mask[i / 4] != 0 ? l.decay : 0.0F;
        p[i] -= l.rate * (step + decay * p[i]);
        copy[i] = p[i];
    }
}

static inline float gelu_sigmoid(float x)
{
    float u = 0.797884561F * (x + 0.044715F * x * x * x);
    return 1.0F / (1.0F + exp32(-2.0F * u));
}

CPU_WIDTHS void cpu_gated_gelu_forward(const struct model_launch *launch, void *const operand[],
                                       size_t item)
{
    const float *restrict gate = operand[0];
    const float *restrict up = operand[1];
    float *restrict out = operand[2];
    struct range range = range_of((uint64_t)launch->rows * launch->shape.feed, item);
    for (size_t i = range.first; i < range.end; i++) {
        out[i] = gate[i] * gelu_sigmoid(gate[i]) * up[i];
    }
}

CPU_WIDTHS void cpu_gated_gelu_backward(const struct model_launch *launch, void *const operand[],
                                        size_t item)
{
    const float *restrict gate = operand[0];
    const float *restrict up = operand[1];
    const float *restrict dout = operand[2];
    float *restrict dgate = operand[3];
    float *restrict dup = operand[4];
    struct range range = range_of((uint64_t)launch->rows * launch->shape.feed, item);
    for (size_t i = range.first; i < range.end; i++) {
        float x = gate[i];
        float s = gelu_sigmoid(x);
        float du = 0.797884561F * (1.0F + 0.134145F * x * x);
        /* s is exactly 0 or 1 far out: the product with x^2 must not decide what 0 * inf is. */
        float slope = s * (1.0F - s);
        dgate[i] = dout[i] * up[i] * (s + (slope == 0.0F ? 0.0F : 2.0F * x * du * slope));
        dup[i] = dout[i] * x * s;
    }
}

/* -- sums ------------------------------------------------------------------------------------- */

/* A leaf in binary64: element i adds to lane i mod MODEL_SUM_LANES, in order; the lanes are a tree
 * of halves. */
static double leaf_sum(const float *in, size_t count, bool squares)
{
    double lanes[MODEL_SUM_LANES] = {0};
    for (size_t i = 0; i < count; i++) {
        double x = (double)in[i];
        lanes[i % MODEL_SUM_LANES] += squares ? x * x : x;
    }
    for (size_t width = MODEL_SUM_LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            lanes[i] += lanes[i + width];
        }
    }
    return lanes[0];
}

static void leaf(const struct model_launch *launch, void *const operand[], size_t item,
                 bool squares)
{
    size_t first = item * MODEL_SUM_LEAF;
    size_t left = (size_t)launch->count - first;
    ((double *)operand[1])[item] = leaf_sum((const float *)operand[0] + first,
                                            left < MODEL_SUM_LEAF ? left : MODEL_SUM_LEAF, squares);
}

void cpu_loss_leaf(const struct model_launch *launch, void *const operand[], size_t item)
{
    leaf(launch, operand, item, false);
}

void cpu_norm_leaf(const struct model_launch *launch, void *const operand[], size_t item)
{
    leaf(launch, operand, item, true);
}

/* The leaves as a dyadic tree, in place: neighbours join, an odd last one goes up alone. */
static double leaves_root(double *leaves, size_t count)
{
    while (count > 1) {
        for (size_t i = 0; i < count / 2; i++) {
            leaves[i] = leaves[2 * i] + leaves[2 * i + 1];
        }
        if (count % 2 != 0) {
            leaves[count / 2] = leaves[count - 1];
        }
        count = (count + 1) / 2;
    }
    return leaves[0];
}

void cpu_loss_root(const struct model_launch *launch, void *const operand[], size_t item)
{
    (void)item;
    size_t count = (size_t)(launch->count + MODEL_SUM_LEAF - 1) / MODEL_SUM_LEAF;
    *(float *)operand[2] = (float)((double)launch->scale * leaves_root(operand[1], count));
}

void cpu_norm_root(const struct model_launch *launch, void *const operand[], size_t item)
{
    (void)item;
    size_t count = (size_t)(launch->count + MODEL_SUM_LEAF - 1) / MODEL_SUM_LEAF;
    double scale = (double)launch->scale;
    double most = (double)launch->value;
    double norm = fabs(scale) * sqrt(leaves_root(operand[1], count));
    float *out = operand[2];
    out[0] = (float)norm;
    out[1] = (float)(most > 0.0 && norm > most ? scale * most / norm : scale);
}
