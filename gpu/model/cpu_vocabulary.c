#include "gpu/model/cpu_math.h"
#include "gpu/model/cpu_programs.h"

/* The items: a row. */

void cpu_argmax(const struct model_launch *launch, void *const operand[], size_t item)
{
    size_t vocabulary = launch->shape.vocabulary;
    const float *logits = (const float *)operand[0] + item * vocabulary;
    size_t best = 0;
    for (size_t j = 1; j < vocabulary; j++) {
        if (logits[j] > logits[best]) {
            best = j;
        }
    }
    ((int32_t *)operand[1])[item] = (int32_t)best;
}

void cpu_gather(const struct model_launch *launch, void *const operand[], size_t item)
{
    size_t width = launch->shape.width;
    size_t token = (size_t)((const int32_t *)operand[0])[item];
    memcpy((float *)operand[2] + item * width, (const float *)operand[1] + token * width,
           width * sizeof(float));
}

CPU_WIDTHS void cpu_cross_entropy(const struct model_launch *launch, void *const operand[],
                                  size_t item)
{
    size_t vocabulary = launch->shape.vocabulary;
    const float *restrict logits = (const float *)operand[0] + item * vocabulary;
    int32_t target = ((const int32_t *)operand[1])[item];
    float most = max32(logits, vocabulary);
    float lanes[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= vocabulary; j += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += exp32(logits[j + lane] - most);
        }
    }
    for (; j < vocabulary; j++) {
        lanes[j % LANES] += exp32(logits[j] - most);
    }
    float past = logf(lanes_sum(lanes));
    float *lse = (float *)operand[3] + 2 * item;
    lse[0] = most;
    lse[1] = past;
    ((float *)operand[2])[item] = target < 0 ? 0.0F : (most - logits[target]) + past;
}

CPU_WIDTHS void cpu_cross_entropy_backward(const struct model_launch *launch, void *const operand[],
                                           size_t item)
{
    size_t vocabulary = launch->shape.vocabulary;
    const float *restrict logits = (const float *)operand[0] + item * vocabulary;
    int32_t target = ((const int32_t *)operand[1])[item];
    float most = ((const float *)operand[2])[2 * item];
    float past = ((const float *)operand[2])[2 * item + 1];
    float *restrict out = (float *)operand[3] + item * vocabulary;
    if (target < 0) {
        memset(out, 0, vocabulary * sizeof(float));
        return;
    }
    float scale = launch->scale;
    for (size_t j = 0; j < vocabulary; j++) {
        out[j] = scale * exp32(logits[j] - most - past);
    }
    out[target] = scale * (exp32(logits[target] - most - past) - 1.0F);
}

void cpu_loss_target_gather(const struct model_launch *launch, void *const operand[], size_t item)
{
    int32_t target = ((const int32_t *)operand[1])[item];
    const float *logits = (const float *)operand[0] + item * launch->shape.vocabulary;
    ((float *)operand[2])[item] = target < 0 ? 0.0F : logits[target];
}
