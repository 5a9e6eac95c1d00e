#include "tests/lib/model_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/model/half.h"
#include "gpu/model/oracle.h"

static double uniform(struct rand *rand)
{
    return (double)(rand_next(rand) >> 11) * 0x1p-53;
}

/* Near enough to a normal deviate: twelve uniform ones. */
static double deviate(struct rand *rand)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += uniform(rand);
    }
    return sum;
}

static double round_half(enum model_half half, double value)
{
    float single = (float)value;
    switch (half) {
    case MODEL_HALF_FP16:
        return (double)half_from_fp16(half_to_fp16(single));
    case MODEL_HALF_BF16:
        return (double)half_from_bf16(half_to_bf16(single));
    case MODEL_HALF_F32:
    default:
        return (double)single;
    }
}

static double round_kind(const struct model_case *one, size_t i, double value)
{
    switch (one->image->operands[i].kind) {
    case MODEL_F32:
        return (double)(float)value;
    case MODEL_HALF:
        return round_half(one->half, value);
    case MODEL_I32:
    case MODEL_U8:
    case MODEL_F64:
    default:
        return value;
    }
}

static bool named(const struct model_case *one, size_t i, const char *name)
{
    return strcmp(one->image->operands[i].name, name) == 0;
}

static bool is(const struct model_case *one, const char *name)
{
    return strcmp(one->image->name, name) == 0;
}

static double *doubles(uint64_t count)
{
    double *made = calloc(count, sizeof(*made));
    ASSERT(made != NULL);
    return made;
}

static double token_of(enum case_flavour flavour, struct rand *rand, uint64_t row,
                       uint32_t vocabulary)
{
    switch ((int)flavour) {
    case CASE_SAME:
        return (double)(vocabulary / 3);
    case CASE_DISTINCT:
        return (double)(row * 5 % vocabulary);
    case CASE_ZIPF: /* the inverse of log(1 + t) / log(1 + vocabulary) */
        return fmin(floor(pow((double)vocabulary + 1.0, uniform(rand)) - 1.0),
                    (double)vocabulary - 1.0);
    default:
        return (double)rand_below(rand, vocabulary);
    }
}

static double element(const struct model_case *one, size_t i, enum case_flavour flavour,
                      struct rand *rand, uint64_t at)
{
    uint32_t vocabulary = one->launch.shape.vocabulary;
    uint64_t row = is(one, "softmax-forward") ? one->launch.shape.length : vocabulary;
    if (named(one, i, "tokens")) {
        return token_of(flavour, rand, at, vocabulary);
    }
    if (named(one, i, "targets")) {
        return at % 7 == 3 ? -1.0 : (double)rand_below(rand, vocabulary);
    }
    if (named(one, i, "decay mask")) {
        return (double)(rand_next(rand) & 1);
    }
    if (named(one, i, "factor")) {
        return 0.75;
    }
    if (named(one, i, "rstd")) {
        return 0.5 + uniform(rand);
    }
    if (named(one, i, "second moment")) {
        return uniform(rand);
    }
    if (named(one, i, "logits") || named(one, i, "scores")) {
        switch ((int)flavour) {
        case CASE_EQUAL:
            return 0.625;
        case CASE_ONE_HOT:
            return at % row == at / row * 37 % row ? 30.0 : 0.0;
        case CASE_HUGE:
            return 1e4 * deviate(rand);
        case CASE_MASKED:
            return at % row != 0 && rand_next(rand) % 2 == 0 ? -HUGE_VAL : deviate(rand);
        default:
            return 3.0 * deviate(rand);
        }
    }
    if (named(one, i, "q")) {
        const uint64_t head = one->launch.shape.head;
        switch ((int)flavour) {
        case CASE_EQUAL:
            return 0.625;
        case CASE_ONE_HOT:
            return at % head == at / head * 37 % head ? 30.0 : 0.0;
        case CASE_HUGE:
            return 100.0 * deviate(rand);
        default:
            break;
        }
    }
    return deviate(rand);
}

/* Operands that are results of another image, so that they fit the rest: lse, p, out, the angles.
 */
static void fit(struct model_case *one)
{
    double **in = one->input;
    if (is(one, "qk-rope") || is(one, "inverse-rope-qkv")) {
        size_t first = is(one, "qk-rope") ? 1 : 3;
        oracle_rotary_table(&one->launch, &in[first]);
    } else if (is(one, "cross-entropy-backward")) {
        double *loss = doubles(one->launch.rows);
        oracle_cross_entropy(&one->launch, (double *[]){in[0], in[1], loss, in[2]});
        free(loss);
    } else if (is(one, "softmax-backward")) {
        double *scores = doubles(one->count[0]);
        memcpy(scores, in[0], one->count[0] * sizeof(*scores));
        oracle_softmax_forward(&one->launch, (double *[]){scores, in[0]});
        free(scores);
    } else if (is(one, "attention-query")) {
        oracle_attention_forward(&one->launch, (double *[]){in[0], in[1], in[2], in[3], in[5]});
    } else if (is(one, "attention-key")) {
        double *out = doubles(one->count[0]);
        oracle_attention_forward(&one->launch, (double *[]){in[0], in[1], in[2], out, in[4]});
        free(out);
    }
}

struct model_launch case_launch(const struct model_shape *shape)
{
    return (struct model_launch){
        .shape = *shape,
        .rows = shape->sequences * shape->length,
        .count = (uint64_t)shape->sequences * shape->length * shape->width,
        .first = 2,
        .seed = 0x5EED,
        .value = 2.5F,
        .scale = 0.125F,
        .epsilon = 1e-5F,
        .rate = 0.01F,
        .beta1 = 0.9F,
        .beta2 = 0.95F,
        .decay = 0.1F,
        .correction1 = 1.0F / (1.0F - 0.9F * 0.9F * 0.9F),
        .correction2 = 1.0F / (1.0F - 0.95F * 0.95F * 0.95F),
        .base = 10000.0,
    };
}

void model_case_init(struct model_case *one, const char *name, const struct model_launch *launch,
                     enum model_half half, enum case_flavour flavour, uint64_t seed)
{
    struct err err = {0};
    memset(one, 0, sizeof(*one));
    one->launch = *launch;
    one->half = half;
    int status = model_image_find(name, &one->launch, &one->image, &err);
    ASSERT(status == 0);
    if (is(one, "tiled") || is(one, "transpose")) {
        model_launch_sequences(&one->launch, launch->shape.sequences);
    }
    if (is(one, "cross-entropy-backward")) {
        one->launch.scale = 1.0F;
    }
    one->operands_count = model_operands_count(one->image);
    struct rand rand = {seed};
    double *operand[MODEL_OPERANDS_MAX] = {NULL};
    for (size_t i = 0; i < one->operands_count; i++) {
        enum model_direction direction = one->image->operands[i].direction;
        one->count[i] = one->image->operands[i].count(&one->launch);
        if (one->count[i] == 0 || (direction != MODEL_IN && direction != MODEL_INOUT)) {
            continue;
        }
        one->input[i] = doubles(one->count[i]);
        for (uint64_t at = 0; at < one->count[i]; at++) {
            one->input[i][at] = round_kind(one, i, element(one, i, flavour, &rand, at));
        }
    }
    fit(one);
    for (size_t i = 0; i < one->operands_count; i++) {
        enum model_direction direction = one->image->operands[i].direction;
        for (uint64_t at = 0; one->input[i] != NULL && at < one->count[i]; at++) {
            one->input[i][at] = round_kind(one, i, one->input[i][at]);
        }
        if (direction != MODEL_IN && direction != MODEL_SCRATCH && one->count[i] != 0) {
            one->expected[i] = doubles(one->count[i]);
            if (direction == MODEL_INOUT) {
                memcpy(one->expected[i], one->input[i], one->count[i] * sizeof(double));
            }
        }
        operand[i] = direction == MODEL_IN ? one->input[i] : one->expected[i];
    }
    one->image->oracle(&one->launch, operand);
}

void model_case_done(struct model_case *one)
{
    for (size_t i = 0; i < MODEL_OPERANDS_MAX; i++) {
        free(one->input[i]);
        free(one->expected[i]);
    }
    memset(one, 0, sizeof(*one));
}

size_t model_case_element(const struct model_case *one, size_t i)
{
    switch (one->image->operands[i].kind) {
    case MODEL_HALF:
        return one->half == MODEL_HALF_F32 ? sizeof(float) : sizeof(uint16_t);
    case MODEL_U8:
        return 1;
    case MODEL_F64:
        return sizeof(double);
    case MODEL_F32:
    case MODEL_I32:
    default:
        return sizeof(float);
    }
}

void model_case_write(const struct model_case *one, size_t i, void *to)
{
    memset(to, 0xFF, one->count[i] * model_case_element(one, i));
    enum model_kind kind = one->image->operands[i].kind;
    for (uint64_t at = 0; one->input[i] != NULL && at < one->count[i]; at++) {
        double value = one->input[i][at];
        if (kind == MODEL_I32) {
            ((int32_t *)to)[at] = (int32_t)value;
        } else if (kind == MODEL_U8) {
            ((uint8_t *)to)[at] = (uint8_t)value;
        } else if (kind == MODEL_F64) {
            ((double *)to)[at] = value;
        } else if (kind == MODEL_HALF && one->half == MODEL_HALF_FP16) {
            ((uint16_t *)to)[at] = half_to_fp16((float)value);
        } else if (kind == MODEL_HALF && one->half == MODEL_HALF_BF16) {
            ((uint16_t *)to)[at] = half_to_bf16((float)value);
        } else {
            ((float *)to)[at] = (float)value;
        }
    }
}

static double read_element(const struct model_case *one, size_t i, const void *from, uint64_t at)
{
    enum model_kind kind = one->image->operands[i].kind;
    if (kind == MODEL_I32) {
        return (double)((const int32_t *)from)[at];
    }
    if (kind == MODEL_HALF && one->half == MODEL_HALF_FP16) {
        return (double)half_from_fp16(((const uint16_t *)from)[at]);
    }
    if (kind == MODEL_HALF && one->half == MODEL_HALF_BF16) {
        return (double)half_from_bf16(((const uint16_t *)from)[at]);
    }
    ASSERT(kind == MODEL_F32 || kind == MODEL_HALF);
    return (double)((const float *)from)[at];
}

double model_case_error(const struct model_case *one, size_t i, const void *from)
{
    double wrong = 0.0;
    double size = 0.0;
    for (uint64_t at = 0; at < one->count[i]; at++) {
        double expected = one->expected[i][at];
        double got = read_element(one, i, from, at);
        if (isnan(got) || isinf(got)) {
            if (got == expected) {
                continue; /* the same infinity */
            }
            return HUGE_VAL;
        }
        wrong += (got - expected) * (got - expected);
        size += expected * expected;
    }
    return wrong == 0.0 ? 0.0 : sqrt(wrong / size); /* infinity where all should be zero */
}

double model_case_tolerance(const struct model_case *one, size_t i)
{
    enum model_kind kind = one->image->operands[i].kind;
    if (kind == MODEL_I32) {
        return 0.0;
    }
    if (kind == MODEL_HALF && one->half != MODEL_HALF_F32) {
        bool product = is(one, "tiled") || strncmp(one->image->name, "attention-", 10) == 0;
        if (one->half == MODEL_HALF_FP16) {
            return product ? 2e-3 : 5e-4; /* a rounding is 2^-11 at most */
        }
        return product ? 1.2e-2 : 4e-3; /* 2^-8 */
    }
    double terms = one->image->terms != NULL ? (double)one->image->terms(&one->launch) : 1.0;
    return 1e-6 * sqrt(terms);
}

uint64_t model_case_digest(const struct model_case *one, size_t i, const void *from)
{
    const uint8_t *byte = from;
    uint64_t digest = 0xCBF29CE484222325U; /* FNV-1a */
    for (uint64_t at = 0; at < one->count[i] * model_case_element(one, i); at++) {
        digest = (digest ^ byte[at]) * 0x100000001B3U;
    }
    return digest;
}
