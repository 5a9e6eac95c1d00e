/* One launch of an image of the language model with fresh random operands and the oracle's answer,
 * for whoever runs the image: the CPU session's test and the GPU's. Memory: a case owns its arrays.
 */
#ifndef COPPELIUS_TESTS_LIB_MODEL_CASE_H
#define COPPELIUS_TESTS_LIB_MODEL_CASE_H

#include "base/rand.h"
#include "gpu/model/model.h"

enum case_flavour {
    CASE_RANDOM,
    /* The first operand (logits, scores; of attention the queries, never masked) is … */
    CASE_EQUAL,   /* one value everywhere: ties */
    CASE_ONE_HOT, /* 0 but for one element a row */
    CASE_HUGE,    /* of the size 10^4 */
    CASE_MASKED,  /* -infinity for half of the elements, never for the first of a row */
    /* Tokens are … */
    CASE_SAME,     /* all equal */
    CASE_DISTINCT, /* all distinct, as far as the vocabulary goes */
    CASE_ZIPF,     /* token t with a probability that goes by 1 / (t + 1) */
};
#define CASE_FLAVOURS 8

struct model_case {
    const struct model_image *image;
    struct model_launch launch;
    enum model_half half;
    size_t operands_count;
    uint64_t count[MODEL_OPERANDS_MAX];
    double *input[MODEL_OPERANDS_MAX];    /* rounded to the operand's kind; NULL where none */
    double *expected[MODEL_OPERANDS_MAX]; /* what the oracle wrote; NULL for inputs */
};

/* A launch with every field at a value of use; rows and count are the whole of the shape's. */
struct model_launch case_launch(const struct model_shape *shape);
/* Aborts where the name is unknown or memory is short. */
void model_case_init(struct model_case *one, const char *name, const struct model_launch *launch,
                     enum model_half half, enum case_flavour flavour, uint64_t seed);
void model_case_done(struct model_case *one);

/* Bytes of an element of operand i. */
size_t model_case_element(const struct model_case *one, size_t i);
/* Writes operand i's input in its kind; where it is no input, poison (all bits set: NaN). */
void model_case_write(const struct model_case *one, size_t i, void *to);
/* Relative error (norm) of operand i of a run against the oracle; infinity where an element was not
 * written or is NaN where the oracle's is none. */
double model_case_error(const struct model_case *one, size_t i, const void *from);
/* The most it may be. */
double model_case_tolerance(const struct model_case *one, size_t i);
/* A digest of operand i's bytes, for comparing runs. */
uint64_t model_case_digest(const struct model_case *one, size_t i, const void *from);

#endif
