/* Images over the vocabulary: logits (rows, vocabulary); tokens and targets (rows) are indices. A
 * negative target is no target: its row has loss 0 and no gradient. */
#include <math.h>

#include "gpu/model/oracle.h"

/* logits -> out (rows): the lowest index among the largest */
void oracle_argmax(const struct model_launch *launch, double *const operand[])
{
    size_t vocabulary = launch->shape.vocabulary;
    for (size_t row = 0; row < launch->rows; row++) {
        const double *logits = operand[0] + row * vocabulary;
        size_t best = 0;
        for (size_t j = 1; j < vocabulary; j++) {
            if (logits[j] > logits[best]) {
                best = j;
            }
        }
        operand[1][row] = (double)best;
    }
}

/* tokens, table (vocabulary, width) -> out (rows, width) */
void oracle_gather(const struct model_launch *launch, double *const operand[])
{
    size_t width = launch->shape.width;
    for (size_t row = 0; row < launch->rows; row++) {
        size_t token = (size_t)operand[0][row];
        for (size_t j = 0; j < width; j++) {
            operand[2][row * width + j] = operand[1][token * width + j];
        }
    }
}

/* logits, targets -> loss (rows) = log sum exp(logits) - logits[target], lse (rows, 2): the largest
 * logit and log sum exp(logits - largest), apart, so that huge logits do not swallow the second. A
 * row that is -infinity throughout has no loss: NaN. */
void oracle_cross_entropy(const struct model_launch *launch, double *const operand[])
{
    size_t vocabulary = launch->shape.vocabulary;
    for (size_t row = 0; row < launch->rows; row++) {
        const double *logits = operand[0] + row * vocabulary;
        double target = operand[1][row];
        double most = -HUGE_VAL;
        double sum = 0.0;
        for (size_t j = 0; j < vocabulary; j++) {
            most = fmax(most, logits[j]);
        }
        for (size_t j = 0; j < vocabulary; j++) {
            sum += exp(logits[j] - most);
        }
        operand[2][row] = target < 0.0 ? 0.0 : most - logits[(size_t)target] + log(sum);
        operand[3][2 * row] = most;
        operand[3][2 * row + 1] = log(sum);
    }
}

/* logits, targets, lse -> dlogits = scale (exp(logits - largest - log sum) - [j is the target]) */
void oracle_cross_entropy_backward(const struct model_launch *launch, double *const operand[])
{
    size_t vocabulary = launch->shape.vocabulary;
    for (size_t row = 0; row < launch->rows; row++) {
        double target = operand[1][row];
        const double *lse = operand[2] + 2 * row;
        for (size_t j = 0; j < vocabulary; j++) {
            double p = exp(operand[0][row * vocabulary + j] - lse[0] - lse[1]);
            double d = (double)launch->scale * (p - ((double)j == target ? 1.0 : 0.0));
            operand[3][row * vocabulary + j] = target < 0.0 ? 0.0 : d;
        }
    }
}

/* logits, targets -> out (rows): each row's target logit, 0 without a target */
void oracle_loss_target_gather(const struct model_launch *launch, double *const operand[])
{
    for (size_t row = 0; row < launch->rows; row++) {
        double target = operand[1][row];
        operand[2][row] =
            target < 0.0 ? 0.0 : operand[0][row * launch->shape.vocabulary + (size_t)target];
    }
}

/* tokens, dx (rows, width), 2 scratches -> dtable (vocabulary, width) += dx over each token's rows
 */
void oracle_embedding_scatter(const struct model_launch *launch, double *const operand[])
{
    size_t width = launch->shape.width;
    for (size_t row = 0; row < launch->rows; row++) {
        size_t token = (size_t)operand[0][row];
        for (size_t j = 0; j < width; j++) {
            operand[4][token * width + j] += operand[1][row * width + j];
        }
    }
}
