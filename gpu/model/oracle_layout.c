/* Layouts, and rotary positions (Su et al., "RoFormer", 2021) in the form that pairs element i of a
 * head with element i + head / 2: both turn by position * base^(-2i / head). */
#include <math.h>

#include "gpu/model/oracle.h"

/* Where element (token, head, i) of a head layout is: (sequence, head, position, i). */
static size_t head_index(const struct model_shape *shape, size_t token, size_t head, size_t i)
{
    size_t sequence = token / shape->length;
    size_t position = token % shape->length;
    return ((sequence * shape->heads + head) * shape->length + position) * shape->head + i;
}

static size_t tokens_of(const struct model_shape *shape)
{
    return (size_t)shape->sequences * shape->length;
}

/* cosines, sines (length, head / 2) */
void oracle_rotary_table(const struct model_launch *launch, double *const operand[])
{
    size_t half = launch->shape.head / 2;
    for (size_t position = 0; position < launch->shape.length; position++) {
        for (size_t i = 0; i < half; i++) {
            double angle = (double)position * pow(launch->base, -(double)i / (double)half);
            operand[0][position * half + i] = cos(angle);
            operand[1][position * half + i] = sin(angle);
        }
    }
}

/* qkv (tokens, 3, heads, head), cosines, sines -> q, k (head layout), each pair (a, b) turned:
 * (a cos - b sin, a sin + b cos) */
void oracle_qk_rope(const struct model_launch *launch, double *const operand[])
{
    const struct model_shape *shape = &launch->shape;
    size_t half = shape->head / 2;
    for (size_t token = 0; token < tokens_of(shape); token++) {
        for (size_t part = 0; part < 2; part++) {
            for (size_t head = 0; head < shape->heads; head++) {
                const double *from =
                    operand[0] + (token * 3 + part) * shape->width + head * shape->head;
                double *to = operand[3 + part] + head_index(shape, token, head, 0);
                for (size_t i = 0; i < half; i++) {
                    double c = operand[1][token % shape->length * half + i];
                    double s = operand[2][token % shape->length * half + i];
                    to[i] = from[i] * c - from[i + half] * s;
                    to[i + half] = from[i] * s + from[i + half] * c;
                }
            }
        }
    }
}

/* qkv -> v (head layout) */
void oracle_value_transpose(const struct model_launch *launch, double *const operand[])
{
    const struct model_shape *shape = &launch->shape;
    for (size_t token = 0; token < tokens_of(shape); token++) {
        for (size_t head = 0; head < shape->heads; head++) {
            for (size_t i = 0; i < shape->head; i++) {
                operand[1][head_index(shape, token, head, i)] =
                    operand[0][(token * 3 + 2) * shape->width + head * shape->head + i];
            }
        }
    }
}

/* in (head layout) -> out (tokens, width) */
void oracle_head_to_token(const struct model_launch *launch, double *const operand[])
{
    const struct model_shape *shape = &launch->shape;
    for (size_t token = 0; token < tokens_of(shape); token++) {
        for (size_t j = 0; j < shape->width; j++) {
            operand[1][token * shape->width + j] =
                operand[0][head_index(shape, token, j / shape->head, j % shape->head)];
        }
    }
}

/* in (tokens, width) -> out (head layout) */
void oracle_token_to_head(const struct model_launch *launch, double *const operand[])
{
    const struct model_shape *shape = &launch->shape;
    for (size_t token = 0; token < tokens_of(shape); token++) {
        for (size_t j = 0; j < shape->width; j++) {
            operand[1][head_index(shape, token, j / shape->head, j % shape->head)] =
                operand[0][token * shape->width + j];
        }
    }
}

/* dq, dk, dv (head layout), cosines, sines -> dqkv (tokens, 3, heads, head): queries and keys
 * turned back, (a cos + b sin, b cos - a sin); values as they are */
void oracle_inverse_rope_qkv(const struct model_launch *launch, double *const operand[])
{
    const struct model_shape *shape = &launch->shape;
    size_t half = shape->head / 2;
    for (size_t token = 0; token < tokens_of(shape); token++) {
        for (size_t part = 0; part < 3; part++) {
            for (size_t head = 0; head < shape->heads; head++) {
                const double *from = operand[part] + head_index(shape, token, head, 0);
                double *to = operand[5] + (token * 3 + part) * shape->width + head * shape->head;
                for (size_t i = 0; i < half; i++) {
                    double c = part < 2 ? operand[3][token % shape->length * half + i] : 1.0;
                    double s = part < 2 ? operand[4][token % shape->length * half + i] : 0.0;
                    to[i] = from[i] * c + from[i + half] * s;
                    to[i + half] = from[i + half] * c - from[i] * s;
                }
            }
        }
    }
}

/* in (groups, m, n) -> out (groups, n, m) */
void oracle_transpose(const struct model_launch *launch, double *const operand[])
{
    size_t size = (size_t)launch->m * launch->n;
    for (size_t group = 0; group < launch->groups; group++) {
        for (size_t r = 0; r < launch->m; r++) {
            for (size_t c = 0; c < launch->n; c++) {
                operand[1][group * size + c * launch->m + r] =
                    operand[0][group * size + r * launch->n + c];
            }
        }
    }
}
