/* Every image: its name, oracle, operands in order, CPU stages, and what its launch reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/model/cpu_programs.h"
#include "gpu/model/oracle.h"

/* -- counts, as functions of a launch --------------------------------------------------------- */

#define COUNT(name, expression)                        \
    static uint64_t name(const struct model_launch *l) \
    {                                                  \
        return (uint64_t)(expression);                 \
    }
#define WIDE(x) ((uint64_t)(x))

static uint64_t parts(uint64_t count, uint64_t size)
{
    return (count + size - 1) / size;
}

static uint64_t one(const struct model_launch *l)
{
    (void)l;
    return 1;
}

static uint64_t two(const struct model_launch *l)
{
    (void)l;
    return 2;
}

COUNT(flat, l->count)
COUNT(quads, l->count / 4)
COUNT(flat_items, parts(l->count, CPU_FLAT))
COUNT(sum_leaves, parts(l->count, MODEL_SUM_LEAF))
COUNT(rows, l->rows)
COUNT(rows_pairs, WIDE(l->rows) * 2)
COUNT(rows_width, WIDE(l->rows) * l->shape.width)
COUNT(rows_feed, WIDE(l->rows) * l->shape.feed)
COUNT(feed_items, parts(WIDE(l->rows) * l->shape.feed, CPU_FLAT))
COUNT(rows_vocabulary, WIDE(l->rows) * l->shape.vocabulary)
COUNT(norm_leaves, parts(l->rows, MODEL_NORM_LEAF))
COUNT(norm_partials, parts(l->rows, MODEL_NORM_LEAF) * 2 * l->shape.width)
COUNT(scatter_leaves, parts(l->rows, MODEL_SCATTER_LEAF))
COUNT(scatter_places, scatter_leaves(l) * l->shape.vocabulary)
COUNT(width, l->shape.width)
COUNT(vocabulary, l->shape.vocabulary)
COUNT(table, WIDE(l->shape.vocabulary) * l->shape.width)
COUNT(length, l->shape.length)
COUNT(angles, WIDE(l->shape.length) * (l->shape.head / 2))
COUNT(tokens, WIDE(l->shape.sequences) * l->shape.length)
COUNT(tokens_width, WIDE(l->shape.sequences) * l->shape.length * l->shape.width)
COUNT(tokens_qkv, WIDE(l->shape.sequences) * l->shape.length * l->shape.width * 3)
COUNT(score_rows, WIDE(l->shape.sequences) * l->shape.heads * l->shape.length)
COUNT(scores, WIDE(l->shape.sequences) * l->shape.heads * l->shape.length * l->shape.length)
COUNT(groups, l->groups)
COUNT(grouped, WIDE(l->groups) * l->m * l->n)
COUNT(product_a, WIDE(l->m) * l->k)
COUNT(product_b, WIDE(l->n) * l->k)
COUNT(product_r, l->add != 0 ? WIDE(l->m) * l->n : 0)
COUNT(product_c, l->half_out != 0 ? 0 : WIDE(l->m) * l->n)
COUNT(product_half, l->half_out != 0 ? WIDE(l->m) * l->n : 0)
COUNT(product_parts, l->split > 1 ? WIDE(l->m) * l->n * l->split : 0)
COUNT(product_items, parts(l->m, CPU_ROWS))
COUNT(product_terms, l->k)

#define IN(name, kind, count)               \
    {                                       \
        name, MODEL_##kind, MODEL_IN, count \
    }
#define OUT(name, kind, count)               \
    {                                        \
        name, MODEL_##kind, MODEL_OUT, count \
    }
#define INOUT(name, kind, count)               \
    {                                          \
        name, MODEL_##kind, MODEL_INOUT, count \
    }
#define SCRATCH(name, kind, count)               \
    {                                            \
        name, MODEL_##kind, MODEL_SCRATCH, count \
    }

const struct model_image model_images[] = {
    /* -- flat: count ------------------------------------------------------------------------- */
    {"random-normal", /* first, seed, scale */
     oracle_random_normal,
     {OUT("out", F32, flat)},
     {{cpu_random_normal, flat_items}},
     NULL},
    {"fill", oracle_fill, {OUT("out", F32, flat)}, {{cpu_fill, flat_items}}, NULL}, /* value */
    {"copy",
     oracle_copy,
     {IN("in", F32, flat), OUT("out", F32, flat)},
     {{cpu_copy, flat_items}},
     NULL},
    {"cast-down",
     oracle_copy,
     {IN("in", F32, flat), OUT("out", HALF, flat)},
     {{cpu_copy, flat_items}},
     NULL},
    {"cast-up",
     oracle_copy,
     {IN("in", HALF, flat), OUT("out", F32, flat)},
     {{cpu_copy, flat_items}},
     NULL},
    {"add",
     oracle_add,
     {IN("a", F32, flat), IN("b", F32, flat), OUT("out", F32, flat)},
     {{cpu_add, flat_items}},
     NULL},
    {"scale", /* scale */
     oracle_scale,
     {IN("in", F32, flat), OUT("out", F32, flat)},
     {{cpu_scale, flat_items}},
     NULL},
    {"adamw", /* epsilon … correction2; count is a multiple of 4 */
     oracle_adamw,
     {INOUT("parameter", F32, flat), INOUT("first moment", F32, flat),
      INOUT("second moment", F32, flat), IN("gradient", F32, flat), IN("decay mask", U8, quads),
      IN("factor", F32, one), OUT("half copy", HALF, flat)},
     {{cpu_adamw, flat_items}},
     NULL},
    {"loss-sum", /* scale */
     oracle_loss_sum,
     {IN("losses", F32, flat), SCRATCH("leaves", F64, sum_leaves), OUT("loss", F32, one)},
     {{cpu_loss_leaf, sum_leaves}, {cpu_loss_root, one}},
     NULL},
    {"gradient-norm", /* scale, value */
     oracle_gradient_norm,
     {IN("gradient", F32, flat), SCRATCH("leaves", F64, sum_leaves),
      OUT("norm and factor", F32, two)},
     {{cpu_norm_leaf, sum_leaves}, {cpu_norm_root, one}},
     NULL},
    /* -- rows -------------------------------------------------------------------------------- */
    {"layernorm-forward", /* epsilon */
     oracle_layernorm_forward,
     {IN("x", F32, rows_width), IN("scale", F32, width), IN("bias", F32, width),
      OUT("out", HALF, rows_width), OUT("mean", F32, rows), OUT("rstd", F32, rows)},
     {{cpu_layernorm_forward, rows}},
     width},
    {"layernorm-backward",
     oracle_layernorm_backward,
     {IN("dy", F32, rows_width), IN("x", F32, rows_width), IN("scale", F32, width),
      IN("mean", F32, rows), IN("rstd", F32, rows), OUT("dx", F32, rows_width)},
     {{cpu_layernorm_backward, rows}},
     width},
    {"layernorm-parameters",
     oracle_layernorm_parameters,
     {IN("dy", F32, rows_width), IN("x", F32, rows_width), IN("mean", F32, rows),
      IN("rstd", F32, rows), SCRATCH("leaves", F32, norm_partials), OUT("dscale", F32, width),
      OUT("dbias", F32, width)},
     {{cpu_layernorm_leaf, norm_leaves}, {cpu_layernorm_root, one}},
     rows},
    {"gated-gelu-forward",
     oracle_gated_gelu_forward,
     {IN("gate", HALF, rows_feed), IN("up", HALF, rows_feed), OUT("out", HALF, rows_feed)},
     {{cpu_gated_gelu_forward, feed_items}},
     NULL},
    {"gated-gelu-backward",
     oracle_gated_gelu_backward,
     {IN("gate", HALF, rows_feed), IN("up", HALF, rows_feed), IN("dout", HALF, rows_feed),
      OUT("dgate", HALF, rows_feed), OUT("dup", HALF, rows_feed)},
     {{cpu_gated_gelu_backward, feed_items}},
     NULL},
    /* -- rows, vocabulary -------------------------------------------------------------------- */
    {"argmax",
     oracle_argmax,
     {IN("logits", F32, rows_vocabulary), OUT("token", I32, rows)},
     {{cpu_argmax, rows}},
     NULL},
    {"gather",
     oracle_gather,
     {IN("tokens", I32, rows), IN("table", F32, table), OUT("out", F32, rows_width)},
     {{cpu_gather, rows}},
     NULL},
    {"embedding-scatter",
     oracle_embedding_scatter,
     {IN("tokens", I32, rows), IN("dx", F32, rows_width), SCRATCH("order", I32, rows_pairs),
      SCRATCH("leaves", F32, rows_width), INOUT("dtable", F32, table),
      SCRATCH("places", I32, scatter_places)},
     {{cpu_scatter_order, scatter_leaves},
      {cpu_scatter_leaf, scatter_leaves},
      {cpu_scatter_root, vocabulary}},
     rows},
    {"cross-entropy",
     oracle_cross_entropy,
     {IN("logits", F32, rows_vocabulary), IN("targets", I32, rows), OUT("loss", F32, rows),
      OUT("lse", F32, rows_pairs)},
     {{cpu_cross_entropy, rows}},
     vocabulary},
    {"cross-entropy-backward", /* scale */
     oracle_cross_entropy_backward,
     {IN("logits", F32, rows_vocabulary), IN("targets", I32, rows), IN("lse", F32, rows_pairs),
      OUT("dlogits", HALF, rows_vocabulary)},
     {{cpu_cross_entropy_backward, rows}},
     NULL},
    {"loss-target-gather",
     oracle_loss_target_gather,
     {IN("logits", F32, rows_vocabulary), IN("targets", I32, rows), OUT("out", F32, rows)},
     {{cpu_loss_target_gather, rows}},
     NULL},
    /* -- sequences --------------------------------------------------------------------------- */
    {"rotary-table", /* base */
     oracle_rotary_table,
     {OUT("cosines", F32, angles), OUT("sines", F32, angles)},
     {{cpu_rotary_table, length}},
     NULL},
    {"qk-rope",
     oracle_qk_rope,
     {IN("qkv", HALF, tokens_qkv), IN("cosines", F32, angles), IN("sines", F32, angles),
      OUT("q", HALF, tokens_width), OUT("k", HALF, tokens_width)},
     {{cpu_qk_rope, tokens}},
     NULL},
    {"value-transpose",
     oracle_value_transpose,
     {IN("qkv", HALF, tokens_qkv), OUT("v", HALF, tokens_width)},
     {{cpu_value_transpose, tokens}},
     NULL},
    {"head-to-token",
     oracle_head_to_token,
     {IN("in", HALF, tokens_width), OUT("out", HALF, tokens_width)},
     {{cpu_head_to_token, tokens}},
     NULL},
    {"token-to-head",
     oracle_token_to_head,
     {IN("in", HALF, tokens_width), OUT("out", HALF, tokens_width)},
     {{cpu_token_to_head, tokens}},
     NULL},
    {"inverse-rope-qkv",
     oracle_inverse_rope_qkv,
     {IN("dq", HALF, tokens_width), IN("dk", HALF, tokens_width), IN("dv", HALF, tokens_width),
      IN("cosines", F32, angles), IN("sines", F32, angles), OUT("dqkv", HALF, tokens_qkv)},
     {{cpu_inverse_rope_qkv, tokens}},
     NULL},
    /* scale, from here on */
    {"softmax-forward",
     oracle_softmax_forward,
     {IN("scores", F32, scores), OUT("p", HALF, scores)},
     {{cpu_softmax_forward, score_rows}},
     length},
    {"softmax-backward",
     oracle_softmax_backward,
     {IN("p", HALF, scores), IN("dp", F32, scores), OUT("dscores", HALF, scores)},
     {{cpu_softmax_backward, score_rows}},
     length},
    {"attention-forward",
     oracle_attention_forward,
     {IN("q", HALF, tokens_width), IN("k", HALF, tokens_width), IN("v", HALF, tokens_width),
      OUT("out", HALF, tokens_width), OUT("lse", F32, score_rows)},
     {{cpu_attention_forward, score_rows}},
     length},
    {"attention-query",
     oracle_attention_query,
     {IN("q", HALF, tokens_width), IN("k", HALF, tokens_width), IN("v", HALF, tokens_width),
      IN("out", HALF, tokens_width), IN("dout", HALF, tokens_width), IN("lse", F32, score_rows),
      OUT("dq", HALF, tokens_width), OUT("delta", F32, score_rows)},
     {{cpu_attention_query, score_rows}},
     length},
    {"attention-key",
     oracle_attention_key,
     {IN("q", HALF, tokens_width), IN("k", HALF, tokens_width), IN("v", HALF, tokens_width),
      IN("dout", HALF, tokens_width), IN("lse", F32, score_rows), IN("delta", F32, score_rows),
      OUT("dk", HALF, tokens_width), OUT("dv", HALF, tokens_width)},
     {{cpu_attention_key, score_rows}},
     length},
    /* -- families ---------------------------------------------------------------------------- */
    {"transpose", /* groups, m, n */
     oracle_transpose,
     {IN("in", HALF, grouped), OUT("out", HALF, grouped)},
     {{cpu_transpose, groups}},
     NULL},
    {"tiled", /* m, n, k, a_columns, b_columns, add, half_out, split */
     oracle_product,
     {IN("a", HALF, product_a), IN("b", HALF, product_b), IN("r", F32, product_r),
      OUT("c", F32, product_c), OUT("half c", HALF, product_half),
      SCRATCH("parts", F32, product_parts)},
     {{cpu_product, product_items}},
     product_terms},
};
const size_t model_images_count = sizeof(model_images) / sizeof(model_images[0]);

size_t model_operands_count(const struct model_image *image)
{
    size_t count = 0;
    while (count < MODEL_OPERANDS_MAX && image->operands[count].name != NULL) {
        count++;
    }
    return count;
}

/* -- names ------------------------------------------------------------------------------------ */

static const struct model_image *family(const char *name)
{
    size_t i = 0;
    while (strcmp(model_images[i].name, name) != 0) {
        i++;
        ASSERT(i < model_images_count);
    }
    return &model_images[i];
}

/* Is what follows `letter` at *at a number without leading zeros, 1 .. 2^31 - 1? Moves past it. */
static bool take_number(const char **at, const char *letter, uint32_t *ret)
{
    size_t size = strlen(letter);
    if (strncmp(*at, letter, size) != 0 || (*at)[size] < '1' || (*at)[size] > '9') {
        return false;
    }
    char *end;
    unsigned long long number = strtoull(*at + size, &end, 10);
    if (number > INT32_MAX) {
        return false;
    }
    *ret = (uint32_t)number;
    *at = end;
    return true;
}

static bool parse_transpose(const char *name, struct model_launch *launch)
{
    const char *at = name;
    return take_number(&at, "transpose-g", &launch->groups) && take_number(&at, "-r", &launch->m) &&
           take_number(&at, "-c", &launch->n) && *at == '\0';
}

static bool parse_tiled(const char *name, struct model_launch *launch)
{
    static const char *const patterns[] = {"tiled-rr-m", "tiled-rc-m", "tiled-cc-m"};
    for (unsigned pattern = 0; pattern < 3; pattern++) {
        const char *at = name;
        if (take_number(&at, patterns[pattern], &launch->m) && take_number(&at, "-n", &launch->n) &&
            take_number(&at, "-k", &launch->k)) {
            launch->a_columns = pattern == 2;
            launch->b_columns = pattern >= 1;
            launch->add = strcmp(at, "-add") == 0;
            return *at == '\0' || launch->add != 0;
        }
    }
    return false;
}

int model_image_find(const char *name, struct model_launch *launch,
                     const struct model_image **ret_image, struct err *err)
{
    struct model_launch parsed = {0};
    if (launch != NULL) {
        parsed = *launch;
    }
    const struct model_image *found = NULL;
    if (parse_transpose(name, &parsed)) {
        found = family("transpose");
    } else if (parse_tiled(name, &parsed)) {
        found = family("tiled");
    } else if (strcmp(name, "transpose") != 0 && strcmp(name, "tiled") != 0) {
        for (size_t i = 0; i < model_images_count && found == NULL; i++) {
            found = strcmp(model_images[i].name, name) == 0 ? &model_images[i] : NULL;
        }
    }
    if (found == NULL) {
        return err_set(err, ERR_NOT_FOUND, "the language model has no device image '%.80s'", name);
    }
    if (launch != NULL) {
        *launch = parsed;
    }
    *ret_image = found;
    return 0;
}

size_t model_products(const struct model_shape *shape, struct model_name ret[MODEL_PRODUCTS_MAX])
{
    const uint32_t l = shape->length;
    const uint32_t w = shape->width;
    const uint32_t f = shape->feed;
    const uint32_t v = shape->vocabulary;
    const struct {
        const char *pattern;
        uint32_t m;
        uint32_t n;
        uint32_t k;
        const char *add;
    } products[MODEL_PRODUCTS_MAX] =
        {
            {"rr", l, 3 * w, w, ""}, /* queries, keys and values */
            {"rr", l, w, w, "-add"}, /* attention's output, onto the residual stream */
            {"rr", l, f, w, ""},     /* gate, and up */
            {"rr", l, w, f, "-add"}, /* down, onto the residual stream */
            {"rr", l, v, w, ""},     /* logits */
            {"rc", l, w, 3 * w, ""}, /* and their data gradients … */
            {"rc", l, w, w, ""},     {"rc", l, w, f, ""}, /* of the gate … */
            {"rc", l, w, f, "-add"},                      /* … and of up, onto it */
            {"rc", l, f, w, ""},     {"rc", l, w, v, ""},
            {"cc", 3 * w, w, l, ""}, /* and their weight gradients */
            {"cc", w, w, l, ""},     {"cc", f, w, l, ""},
            {"cc", w, f, l, ""},     {"cc", v, w, l, ""},
        };
    size_t count = 0;
    for (size_t i = 0; i < MODEL_PRODUCTS_MAX; i++) {
        (void)snprintf(ret[count].text, sizeof(ret[count].text), "tiled-%s-m%u-n%u-k%u%s",
                       products[i].pattern, products[i].m, products[i].n, products[i].k,
                       products[i].add);
        bool seen = false;
        for (size_t before = 0; before < count; before++) {
            seen = seen || strcmp(ret[before].text, ret[count].text) == 0;
        }
        count += seen ? 0 : 1;
    }
    return count;
}

size_t model_transposes(const struct model_shape *shape, struct model_name ret[2])
{
    (void)snprintf(ret[0].text, sizeof(ret[0].text), "transpose-g%u-r%u-c%u", shape->heads,
                   shape->length, shape->head);
    (void)snprintf(ret[1].text, sizeof(ret[1].text), "transpose-g%u-r%u-c%u", shape->heads,
                   shape->head, shape->length);
    return strcmp(ret[0].text, ret[1].text) == 0 ? 1 : 2;
}

void model_launch_sequences(struct model_launch *launch, uint32_t sequences)
{
    if (launch->groups != 0) {
        launch->groups *= sequences;
    } else if (launch->a_columns != 0) {
        launch->k *= sequences;
    } else {
        launch->m *= sequences;
    }
}
