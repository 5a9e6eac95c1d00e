/* Softmax over rows of scores, and streaming attention: no matrix of scores, one row of them at a
 * time in blocks of BLOCK, with the running largest and sum of Milakov and Gimelshein, "Online
 * normalizer calculation for softmax" (2018), and Dao et al., "FlashAttention" (2022). */
#include "gpu/model/cpu_math.h"
#include "gpu/model/cpu_programs.h"

#define BLOCK 64

/* item: a row of scores */
CPU_WIDTHS void cpu_softmax_forward(const struct model_launch *launch, void *const operand[],
                                    size_t item)
{
    size_t length = launch->shape.length;
    const float *restrict x = (const float *)operand[0] + item * length;
    float *restrict p = (float *)operand[1] + item * length;
    size_t seen = item % length + 1;
    for (size_t j = 0; j < seen; j++) {
        p[j] = launch->scale * x[j];
    }
    float most = max32(p, seen);
    memset(p + seen, 0, (length - seen) * sizeof(float));
    if (most == -INFINITY) {
        memset(p, 0, seen * sizeof(float));
        return;
    }
    for (size_t j = 0; j < seen; j++) {
        p[j] = exp32(p[j] - most);
    }
    float sum = sum32(p, seen);
    for (size_t j = 0; j < seen; j++) {
        p[j] /= sum;
    }
}

CPU_WIDTHS void cpu_softmax_backward(const struct model_launch *launch, void *const operand[],
                                     size_t item)
{
    size_t length = launch->shape.length;
    const float *restrict p = (const float *)operand[0] + item * length;
    const float *restrict dp = (const float *)operand[1] + item * length;
    float *restrict out = (float *)operand[2] + item * length;
    size_t seen = item % length + 1;
    float sum = dot32(p, dp, seen);
    for (size_t j = 0; j < seen; j++) {
        out[j] = launch->scale * p[j] * (dp[j] - sum);
    }
    memset(out + seen, 0, (length - seen) * sizeof(float));
}

/* item: a query */
CPU_WIDTHS void cpu_attention_forward(const struct model_launch *launch, void *const operand[],
                                      size_t item)
{
    size_t length = launch->shape.length;
    size_t head = launch->shape.head;
    const float *q = (const float *)operand[0] + item * head;
    const float *k = (const float *)operand[1] + item / length * length * head;
    const float *v = (const float *)operand[2] + item / length * length * head;
    float *restrict out = (float *)operand[3] + item * head;
    size_t seen = item % length + 1;
    float most = -INFINITY;
    float sum = 0.0F;
    memset(out, 0, head * sizeof(float));
    for (size_t first = 0; first < seen; first += BLOCK) {
        size_t count = seen - first < BLOCK ? seen - first : BLOCK;
        float p[BLOCK];
        for (size_t j = 0; j < count; j++) {
            p[j] = launch->scale * dot32(q, k + (first + j) * head, head);
        }
        float larger = fmaxf(most, max32(p, count));
        if (larger == -INFINITY) {
            continue;
        }
        float kept = exp32(most - larger);
        most = larger;
        for (size_t j = 0; j < count; j++) {
            p[j] = exp32(p[j] - most);
        }
        sum = sum * kept + sum32(p, count);
        for (size_t i = 0; i < head; i++) {
            out[i] *= kept;
        }
        for (size_t j = 0; j < count; j++) {
            const float *restrict row = v + (first + j) * head;
            for (size_t i = 0; i < head; i++) {
                out[i] += p[j] * row[i];
            }
        }
    }
    for (size_t i = 0; i < head; i++) {
        out[i] /= sum;
    }
    ((float *)operand[4])[item] = most + logf(sum);
}

/* item: a query */
CPU_WIDTHS void cpu_attention_query(const struct model_launch *launch, void *const operand[],
                                    size_t item)
{
    size_t length = launch->shape.length;
    size_t head = launch->shape.head;
    float scale = launch->scale;
    const float *q = (const float *)operand[0] + item * head;
    const float *k = (const float *)operand[1] + item / length * length * head;
    const float *v = (const float *)operand[2] + item / length * length * head;
    const float *dout = (const float *)operand[4] + item * head;
    float lse = ((const float *)operand[5])[item];
    float *restrict dq = (float *)operand[6] + item * head;
    float delta = dot32(dout, (const float *)operand[3] + item * head, head);
    memset(dq, 0, head * sizeof(float));
    for (size_t j = 0; j < item % length + 1; j++) {
        const float *restrict key = k + j * head;
        float p = exp32(scale * dot32(q, key, head) - lse);
        float ds = scale * (p * (dot32(dout, v + j * head, head) - delta));
        for (size_t i = 0; i < head; i++) {
            dq[i] += ds * key[i];
        }
    }
    ((float *)operand[7])[item] = delta;
}

/* item: a key */
CPU_WIDTHS void cpu_attention_key(const struct model_launch *launch, void *const operand[],
                                  size_t item)
{
    size_t length = launch->shape.length;
    size_t head = launch->shape.head;
    float scale = launch->scale;
    const float *k = (const float *)operand[1] + item * head;
    const float *v = (const float *)operand[2] + item * head;
    float *restrict dk = (float *)operand[6] + item * head;
    float *restrict dv = (float *)operand[7] + item * head;
    memset(dk, 0, head * sizeof(float));
    memset(dv, 0, head * sizeof(float));
    for (size_t i = item; i < item / length * length + length; i++) {
        const float *restrict q = (const float *)operand[0] + i * head;
        const float *restrict dout = (const float *)operand[3] + i * head;
        float p = exp32(scale * dot32(q, k, head) - ((const float *)operand[4])[i]);
        float ds = scale * (p * (dot32(dout, v, head) - ((const float *)operand[5])[i]));
        for (size_t t = 0; t < head; t++) {
            dk[t] += ds * q[t];
            dv[t] += p * dout[t];
        }
    }
}
