#include "gpu/model/cpu_math.h"
#include "gpu/model/cpu_programs.h"

static size_t head_index(const struct model_shape *shape, size_t token, size_t head)
{
    size_t sequence = token / shape->length;
    return ((sequence * shape->heads + head) * shape->length + token % shape->length) * shape->head;
}

/* item: a position. In binary64: an angle of thousands has no correct digits left in binary32. */
void cpu_rotary_table(const struct model_launch *launch, void *const operand[], size_t item)
{
    size_t half = launch->shape.head / 2;
    for (size_t i = 0; i < half; i++) {
        double angle = (double)item * pow(launch->base, -(double)i / (double)half);
        ((float *)operand[0])[item * half + i] = (float)cos(angle);
        ((float *)operand[1])[item * half + i] = (float)sin(angle);
    }
}

/* The items below: a token. */

void cpu_qk_rope(const struct model_launch *launch, void *const operand[], size_t item)
{
    const struct model_shape *shape = &launch->shape;
    size_t half = shape->head / 2;
    const float *restrict c = (const float *)operand[1] + item % shape->length * half;
    const float *restrict s = (const float *)operand[2] + item % shape->length * half;
    for (size_t part = 0; part < 2; part++) {
        for (size_t head = 0; head < shape->heads; head++) {
            const float *restrict from =
                (const float *)operand[0] + (item * 3 + part) * shape->width + head * shape->head;
            float *restrict to = (float *)operand[3 + part] + head_index(shape, item, head);
            for (size_t i = 0; i < half; i++) {
                to[i] = from[i] * c[i] - from[i + half] * s[i];
                to[i + half] = from[i] * s[i] + from[i + half] * c[i];
            }
        }
    }
}

void cpu_value_transpose(const struct model_launch *launch, void *const operand[], size_t item)
{
    const struct model_shape *shape = &launch->shape;
    const float *from = (const float *)operand[0] + (item * 3 + 2) * shape->width;
    for (size_t head = 0; head < shape->heads; head++) {
        memcpy((float *)operand[1] + head_index(shape, item, head), from + head * shape->head,
               shape->head * sizeof(float));
    }
}

void cpu_head_to_token(const struct model_launch *launch, void *const operand[], size_t item)
{
    const struct model_shape *shape = &launch->shape;
    float *to = (float *)operand[1] + item * shape->width;
    for (size_t head = 0; head < shape->heads; head++) {
        memcpy(to + head * shape->head, (const float *)operand[0] + head_index(shape, item, head),
               shape->head * sizeof(float));
    }
}

void cpu_token_to_head(const struct model_launch *launch, void *const operand[], size_t item)
{
    const struct model_shape *shape = &launch->shape;
    const float *from = (const float *)operand[0] + item * shape->width;
    for (size_t head = 0; head < shape->heads; head++) {
        memcpy((float *)operand[1] + head_index(shape, item, head), from + head * shape->head,
               shape->head * sizeof(float));
    }
}

void cpu_inverse_rope_qkv(const struct model_launch *launch, void *const operand[], size_t item)
{
    const struct model_shape *shape = &launch->shape;
    size_t half = shape->head / 2;
    const float *restrict c = (const float *)operand[3] + item % shape->length * half;
    const float *restrict s = (const float *)operand[4] + item % shape->length * half;
    for (size_t part = 0; part < 3; part++) {
        for (size_t head = 0; head < shape->heads; head++) {
            const float *restrict from =
                (const float *)operand[part] + head_index(shape, item, head);
            float *restrict to =
                (float *)operand[5] + (item * 3 + part) * shape->width + head * shape->head;
            if (part == 2) {
                memcpy(to, from, shape->head * sizeof(float));
                continue;
            }
            for (size_t i = 0; i < half; i++) {
                to[i] = from[i] * c[i] + from[i + half] * s[i];
                to[i + half] = from[i + half] * c[i] - from[i] * s[i];
            }
        }
    }
}

/* item: a group */
void cpu_transpose(const struct model_launch *launch, void *const operand[], size_t item)
{
    size_t size = (size_t)launch->m * launch->n;
    const float *restrict from = (const float *)operand[0] + item * size;
    float *restrict to = (float *)operand[1] + item * size;
    for (size_t r = 0; r < launch->m; r++) {
        for (size_t c = 0; c < launch->n; c++) {
            to[c * launch->m + r] = from[r * launch->n + c];
        }
    }
}
