#include "gpu/model/cpu_math.h"
#include "gpu/model/cpu_programs.h"

CPU_WIDTHS void cpu_layernorm_forward(const struct model_launch *launch, void *const operand[],
                                      size_t item)
{
    size_t width = launch->shape.width;
    const float *restrict x = (const float *)operand[0] + item * width;
    const float *restrict scale = operand[1];
    const float *restrict bias = operand[2];
    float *restrict out = (float *)operand[3] + item * width;
    float mean = sum32(x, width) / (float)width;
    for (size_t j = 0; j < width; j++) {
        out[j] = x[j] - mean;
    }
    float variance = dot32(out, out, width) / (float)width;
    float rstd = 1.0F / sqrtf(variance + launch->epsilon);
    for (size_t j = 0; j < width; j++) {
        out[j] = scale[j] * (out[j] * rstd) + bias[j];
    }
    ((float *)operand[4])[item] = mean;
    ((float *)operand[5])[item] = rstd;
}

CPU_WIDTHS void cpu_layernorm_backward(const struct model_launch *launch, void *const operand[],
                                       size_t item)
{
    size_t width = launch->shape.width;
    const float *restrict dy = (const float *)operand[0] + item * width;
    const float *restrict x = (const float *)operand[1] + item * width;
    const float *restrict scale = operand[2];
    float mean = ((const float *)operand[3])[item];
    float rstd = ((const float *)operand[4])[item];
    float *restrict dx = (float *)operand[5] + item * width;
    float g[LANES] = {0};
    float gx[LANES] = {0};
    for (size_t j = 0; j < width; j++) {
        float gradient = dy[j] * scale[j];
        g[j % LANES] += gradient;
        gx[j % LANES] += gradient * ((x[j] - mean) * rstd);
    }
    float mean_g = lanes_sum(g) / (float)width;
    float mean_gx = lanes_sum(gx) / (float)width;
    for (size_t j = 0; j < width; j++) {
        dx[j] = rstd * (dy[j] * scale[j] - mean_g - (x[j] - mean) * rstd * mean_gx);
    }
}

/* partials (leaves, 2, width): the rows of a leaf in order. */
CPU_WIDTHS void cpu_layernorm_leaf(const struct model_launch *launch, void *const operand[],
                                   size_t item)
{
    size_t width = launch->shape.width;
    size_t first = item * MODEL_NORM_LEAF;
    size_t end = launch->rows - first < MODEL_NORM_LEAF ? launch->rows : first + MODEL_NORM_LEAF;
    float *restrict dscale = (float *)operand[4] + item * 2 * width;
    float *restrict dbias = dscale + width;
    memset(dscale, 0, 2 * width * sizeof(float));
    for (size_t row = first; row < end; row++) {
        const float *restrict dy = (const float *)operand[0] + row * width;
        const float *restrict x = (const float *)operand[1] + row * width;
        float mean = ((const float *)operand[2])[row];
        float rstd = ((const float *)operand[3])[row];
        for (size_t j = 0; j < width; j++) {
            dscale[j] += dy[j] * ((x[j] - mean) * rstd);
            dbias[j] += dy[j];
        }
    }
}

/* The leaves as a dyadic tree, in place. */
CPU_WIDTHS void cpu_layernorm_root(const struct model_launch *launch, void *const operand[],
                                   size_t item)
{
    (void)item;
    size_t width = launch->shape.width;
    size_t both = 2 * width;
    size_t count = (launch->rows + MODEL_NORM_LEAF - 1) / MODEL_NORM_LEAF;
    float *partials = operand[4];
    while (count > 1) {
        for (size_t i = 0; i < count / 2; i++) {
            for (size_t j = 0; j < both; j++) {
                partials[i * both + j] =
                    partials[2 * i * both + j] + partials[(2 * i + 1) * both + j];
            }
        }
        if (count % 2 != 0) {
            memmove(partials + count / 2 * both, partials + (count - 1) * both,
                    both * sizeof(float));
        }
        count = (count + 1) / 2;
    }
    memcpy(operand[5], partials, width * sizeof(float));
    memcpy(operand[6], partials + width, width * sizeof(float));
}
