/* Layer norm (Ba, Kiros and Hinton, 2016) over the rows of x (rows, width):
 * mean = sum x / width, variance = sum (x - mean)^2 / width, rstd = 1 / sqrt(variance + epsilon),
 * xhat = (x - mean) rstd, out = scale xhat + bias. */
#include <math.h>

#include "gpu/model/oracle.h"

/* x, scale (width), bias (width) -> out, mean (rows), rstd (rows) */
void oracle_layernorm_forward(const struct model_launch *launch, double *const operand[])
{
    size_t width = launch->shape.width;
    for (size_t row = 0; row < launch->rows; row++) {
        const double *x = operand[0] + row * width;
        double mean = 0.0;
        for (size_t j = 0; j < width; j++) {
            mean += x[j] / (double)width;
        }
        double variance = 0.0;
        for (size_t j = 0; j < width; j++) {
            variance += (x[j] - mean) * (x[j] - mean) / (double)width;
        }
        double rstd = 1.0 / sqrt(variance + (double)launch->epsilon);
        for (size_t j = 0; j < width; j++) {
            operand[3][row * width + j] = operand[1][j] * (x[j] - mean) * rstd + operand[2][j];
        }
        operand[4][row] = mean;
        operand[5][row] = rstd;
    }
}

/* dy, x, scale, mean, rstd -> dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy scale */
void oracle_layernorm_backward(const struct model_launch *launch, double *const operand[])
{
    size_t width = launch->shape.width;
    for (size_t row = 0; row < launch->rows; row++) {
        const double *dy = operand[0] + row * width;
        const double *x = operand[1] + row * width;
        double mean = operand[3][row];
        double rstd = operand[4][row];
        double mean_g = 0.0;
        double mean_gx = 0.0;
        for (size_t j = 0; j < width; j++) {
            double g = dy[j] * operand[2][j];
            mean_g += g / (double)width;
            mean_gx += g * (x[j] - mean) * rstd / (double)width;
        }
        for (size_t j = 0; j < width; j++) {
            double g = dy[j] * operand[2][j];
            operand[5][row * width + j] = rstd * (g - mean_g - (x[j] - mean) * rstd * mean_gx);
        }
    }
}

/* dy, x, mean, rstd, scratch -> dscale (width) = sum over rows of dy xhat, dbias (width) = of dy */
void oracle_layernorm_parameters(const struct model_launch *launch, double *const operand[])
{
    size_t width = launch->shape.width;
    for (size_t j = 0; j < width; j++) {
        double dscale = 0.0;
        double dbias = 0.0;
        for (size_t row = 0; row < launch->rows; row++) {
            double dy = operand[0][row * width + j];
            double x = operand[1][row * width + j];
            dscale += dy * (x - operand[2][row]) * operand[3][row];
            dbias += dy;
        }
        operand[5][j] = dscale;
        operand[6][j] = dbias;
    }
}
