/* Causal attention (Vaswani et al., 2017): for each sequence and head, with q, k, v (length, head),
 * P = softmax over j <= i of scale q_i . k_j, out_i = sum_j P_ij v_j. Row i of a softmax sees
 * columns 0 .. i; a row that is -infinity throughout is 0 throughout. */
#include <math.h>

#include "gpu/model/oracle.h"

static size_t groups_of(const struct model_shape *shape)
{
    return (size_t)shape->sequences * shape->heads;
}

static double dot(const double *a, const double *b, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* scores (groups, length, length) -> P of the same shape, +0.0 above the diagonal */
void oracle_softmax_forward(const struct model_launch *launch, double *const operand[])
{
    size_t length = launch->shape.length;
    double scale = (double)launch->scale;
    for (size_t row = 0; row < groups_of(&launch->shape) * length; row++) {
        const double *x = operand[0] + row * length;
        double *p = operand[1] + row * length;
        size_t seen = row % length + 1;
        double most = -HUGE_VAL;
        double sum = 0.0;
        for (size_t j = 0; j < seen; j++) {
            most = fmax(most, scale * x[j]);
        }
        for (size_t j = 0; j < length; j++) {
            p[j] = j < seen && most > -HUGE_VAL ? exp(scale * x[j] - most) : 0.0;
            sum += p[j];
        }
        for (size_t j = 0; j < length; j++) {
            p[j] = sum > 0.0 ? p[j] / sum : 0.0;
        }
    }
}

/* P, dP -> dscores = scale P (dP - sum_j P dP), +0.0 above the diagonal, where dP is not read */
void oracle_softmax_backward(const struct model_launch *launch, double *const operand[])
{
    size_t length = launch->shape.length;
    for (size_t row = 0; row < groups_of(&launch->shape) * length; row++) {
        const double *p = operand[0] + row * length;
        const double *dp = operand[1] + row * length;
        size_t seen = row % length + 1;
        double sum = dot(p, dp, seen);
        for (size_t j = 0; j < length; j++) {
            operand[2][row * length + j] =
                j < seen ? (double)launch->scale * p[j] * (dp[j] - sum) : 0.0;
        }
    }
}

/* q, k, v -> out, lse (groups, length): log sum exp of the scaled scores */
void oracle_attention_forward(const struct model_launch *launch, double *const operand[])
{
    size_t length = launch->shape.length;
    size_t head = launch->shape.head;
    double scale = (double)launch->scale;
    for (size_t row = 0; row < groups_of(&launch->shape) * length; row++) {
        const double *q = operand[0] + row * head;
        const double *k = operand[1] + row / length * length * head;
        const double *v = operand[2] + row / length * length * head;
        double *out = operand[3] + row * head;
        size_t seen = row % length + 1;
        double most = -HUGE_VAL;
        double sum = 0.0;
        for (size_t j = 0; j < seen; j++) {
            most = fmax(most, scale * dot(q, k + j * head, head));
        }
        for (size_t j = 0; j < seen; j++) {
            sum += exp(scale * dot(q, k + j * head, head) - most);
        }
        for (size_t i = 0; i < head; i++) {
            out[i] = 0.0;
        }
        for (size_t j = 0; j < seen; j++) {
            double p = exp(scale * dot(q, k + j * head, head) - most) / sum;
            for (size_t i = 0; i < head; i++) {
                out[i] += p * v[j * head + i];
            }
        }
        operand[4][row] = most + log(sum);
    }
}

/* q, k, v, out, dout, lse -> dq, delta (groups, length).
 * delta_i = dout_i . out_i;  P_ij = exp(scale q_i . k_j - lse_i);
 * dS_ij = P_ij (dout_i . v_j - delta_i);  dq_i = scale sum_j dS_ij k_j */
void oracle_attention_query(const struct model_launch *launch, double *const operand[])
{
    size_t length = launch->shape.length;
    size_t head = launch->shape.head;
    double scale = (double)launch->scale;
    for (size_t row = 0; row < groups_of(&launch->shape) * length; row++) {
        const double *q = operand[0] + row * head;
        const double *k = operand[1] + row / length * length * head;
        const double *v = operand[2] + row / length * length * head;
        const double *dout = operand[4] + row * head;
        double *dq = operand[6] + row * head;
        double delta = dot(dout, operand[3] + row * head, head);
        for (size_t i = 0; i < head; i++) {
            dq[i] = 0.0;
        }
        for (size_t j = 0; j < row % length + 1; j++) {
            double p = exp(scale * dot(q, k + j * head, head) - operand[5][row]);
            double ds = p * (dot(dout, v + j * head, head) - delta);
            for (size_t i = 0; i < head; i++) {
                dq[i] += scale * ds * k[j * head + i];
            }
        }
        operand[7][row] = delta;
    }
}

/* q, k, v, dout, lse, delta -> dk_j = scale sum_{i >= j} dS_ij q_i, dv_j = sum_{i >= j} P_ij dout_i
 */
void oracle_attention_key(const struct model_launch *launch, double *const operand[])
{
    size_t length = launch->shape.length;
    size_t head = launch->shape.head;
    double scale = (double)launch->scale;
    for (size_t row = 0; row < groups_of(&launch->shape) * length; row++) {
        size_t group = row / length * length;
        const double *k = operand[1] + row * head;
        const double *v = operand[2] + row * head;
        double *dk = operand[6] + row * head;
        double *dv = operand[7] + row * head;
        for (size_t t = 0; t < head; t++) {
            dk[t] = 0.0;
            dv[t] = 0.0;
        }
        for (size_t i = row; i < group + length; i++) {
            const double *q = operand[0] + i * head;
            const double *dout = operand[3] + i * head;
            double p = exp(scale * dot(q, k, head) - operand[4][i]);
            double ds = p * (dot(dout, v, head) - operand[5][i]);
            for (size_t t = 0; t < head; t++) {
                dk[t] += scale * ds * q[t];
                dv[t] += p * dout[t];
            }
        }
    }
}
