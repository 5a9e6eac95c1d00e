/* Images over flat arrays. */
#include <math.h>

#include "gpu/model/oracle.h"
#include "gpu/model/philox.h"

/* out (count). Element first + i comes of Philox block (first + i) / 4 under the key seed: words 0,
 * 1 make elements 0, 1 of the block, words 2, 3 elements 2, 3, by Box and Muller (1958): sqrt(-2 ln
 * u) times the cosine and the sine of 2 pi v, u = (word / 256 + 1) / 2^24 in (0, 1], v = (word' /
 * 256) / 2^24. Times scale. */
void oracle_random_normal(const struct model_launch *launch, double *const operand[])
{
    double *out = operand[0];
    for (uint64_t i = 0; i < launch->count; i++) {
        uint64_t number = launch->first + i;
        struct philox block = philox_block(number / 4, launch->seed);
        unsigned pair = number % 4 / 2 * 2;
        double u = ((double)(block.word[pair] >> 8) + 1.0) * 0x1p-24;
        double v = (double)(block.word[pair + 1] >> 8) * 0x1p-24;
        double angle = 2.0 * M_PI * v;
        double turned = number % 2 == 0 ? cos(angle) : sin(angle);
        out[i] = (double)launch->scale * sqrt(-2.0 * log(u)) * turned;
    }
}

/* out (count) = value */
void oracle_fill(const struct model_launch *launch, double *const operand[])
{
    for (uint64_t i = 0; i < launch->count; i++) {
        operand[0][i] = (double)launch->value;
    }
}

/* out (count) = in: copy, and both casts, whose rounding is the operand's kind. */
void oracle_copy(const struct model_launch *launch, double *const operand[])
{
    for (uint64_t i = 0; i < launch->count; i++) {
        operand[1][i] = operand[0][i];
    }
}

/* out (count) = a + b */
void oracle_add(const struct model_launch *launch, double *const operand[])
{
    for (uint64_t i = 0; i < launch->count; i++) {
        operand[2][i] = operand[0][i] + operand[1][i];
    }
}

/* out (count) = scale * in */
void oracle_scale(const struct model_launch *launch, double *const operand[])
{
    for (uint64_t i = 0; i < launch->count; i++) {
        operand[1][i] = (double)launch->scale * operand[0][i];
    }
}

/* Decoupled weight decay, Loshchilov and Hutter, "Decoupled weight decay regularization" (2019),
 * algorithm 2, over the flat bank: parameter p, moments m and v, gradient g (count each), decay
 * mask (count / 4, one for a quad), factor (1) of the gradient, half copy of the parameter. g' =
 * factor g;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2 p = p - rate (c1 m / (sqrt(c2 v) +
 * epsilon) + mask decay p),  c = 1 / (1 - b^step) */
void oracle_adamw(const struct model_launch *launch, double *const operand[])
{
    double *p = operand[0];
    double *m = operand[1];
    double *v = operand[2];
    const double *gradient = operand[3];
    const double *mask = operand[4];
    double factor = operand[5][0];
    double *copy = operand[6];
    double b1 = (double)launch->beta1;
    double b2 = (double)launch->beta2;
    for (uint64_t i = 0; i < launch->count; i++) {
        double g = factor * gradient[i];
        m[i] = b1 * m[i] + (1.0 - b1) * g;
        v[i] = b2 * v[i] + (1.0 - b2) * g * g;
        double step = (double)launch->correction1 * m[i] /
                      (sqrt((double)launch->correction2 * v[i]) + (double)launch->epsilon);
        double decay = mask[i / 4] != 0.0 ? (double)launch->decay : 0.0;
        p[i] -= (double)launch->rate * (step + decay * p[i]);
        copy[i] = p[i];
    }
}

/* out (1) = scale * sum of losses (count). operand[1] is scratch. */
void oracle_loss_sum(const struct model_launch *launch, double *const operand[])
{
    double sum = 0.0;
    for (uint64_t i = 0; i < launch->count; i++) {
        sum += operand[0][i];
    }
    operand[2][0] = (double)launch->scale * sum;
}

/* out (2): the norm of scale * gradient (count), and the factor that makes it at most value: scale
 * where value is 0 or the norm is within it, else scale * value / norm. operand[1] is scratch. */
void oracle_gradient_norm(const struct model_launch *launch, double *const operand[])
{
    double sum = 0.0;
    for (uint64_t i = 0; i < launch->count; i++) {
        sum += operand[0][i] * operand[0][i];
    }
    double scale = (double)launch->scale;
    double most = (double)launch->value;
    double norm = fabs(scale) * sqrt(sum);
    operand[2][0] = norm;
    operand[2][1] = most > 0.0 && norm > most ? scale * most / norm : scale;
}

/* The tanh form of Hendrycks and Gimpel, "Gaussian error linear units" (2016), with
 * (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)): gelu(x) = x s, s = 1 / (1 + exp(-2u)),
 * u = sqrt(2 / pi) (x + 0.044715 x^3). */
static double gelu_sigmoid(double x)
{
    double u = sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
    return 1.0 / (1.0 + exp(-2.0 * u));
}

/* Gated as in Shazeer, "GLU variants improve transformer" (2020): out = gelu(gate) up, each
 * (rows, feed). */
void oracle_gated_gelu_forward(const struct model_launch *launch, double *const operand[])
{
    const double *gate = operand[0];
    const double *up = operand[1];
    uint64_t count = (uint64_t)launch->rows * launch->shape.feed;
    for (uint64_t i = 0; i < count; i++) {
        operand[2][i] = gate[i] * gelu_sigmoid(gate[i]) * up[i];
    }
}

/* dgate = dout up (s + x s' ), s' = 2 u' s (1 - s); dup = dout gelu(gate). */
void oracle_gated_gelu_backward(const struct model_launch *launch, double *const operand[])
{
    const double *gate = operand[0];
    const double *up = operand[1];
    const double *dout = operand[2];
    uint64_t count = (uint64_t)launch->rows * launch->shape.feed;
    for (uint64_t i = 0; i < count; i++) {
        double x = gate[i];
        double s = gelu_sigmoid(x);
        double du = sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
        operand[3][i] = dout[i] * up[i] * (s + x * 2.0 * du * s * (1.0 - s));
        operand[4][i] = dout[i] * x * s;
    }
}
