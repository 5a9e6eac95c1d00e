/* The oracles against themselves: what a backward oracle says is what finite differences of the
 * forward oracle say; inverses invert; streaming attention is the softmax path; and extreme inputs.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "gpu/model/oracle.h"
#include "tests/lib/model_case.h"
#include "tests/lib/unit.h"

static const struct model_shape shape = {2, 6, 8, 2, 4, 10, 14};

enum { ARRAYS = 10, ROOM = 4096 };
static double room[ARRAYS][ROOM];

static double *random_array(size_t i, struct rand *rand)
{
    for (size_t at = 0; at < ROOM; at++) {
        room[i][at] = (double)(rand_next(rand) >> 11) * 0x1p-52 - 1.0;
    }
    return room[i];
}

/* d(sum over out of weight * out) / d in[at], where `forward` writes out from in by operand[]. */
struct differences {
    model_oracle *forward;
    struct model_launch launch;
    double *operand[MODEL_OPERANDS_MAX];
    const double *weight;
    double *out;
    size_t out_count;
};

static double weighed(const struct differences *d)
{
    double sum = 0.0;
    d->forward(&d->launch, d->operand);
    for (size_t i = 0; i < d->out_count; i++) {
        sum += d->weight[i] * d->out[i];
    }
    return sum;
}

static void assert_gradient(const struct differences *d, double *in, size_t count,
                            const double *gradient)
{
    for (size_t at = 0; at < count; at++) {
        double kept = in[at];
        double step = 1e-5;
        in[at] = kept + step;
        double above = weighed(d);
        in[at] = kept - step;
        double below = weighed(d);
        in[at] = kept;
        ck_assert_double_eq_tol((above - below) / (2.0 * step), gradient[at], 2e-7);
    }
}

START_TEST(layer_norm)
{
    struct rand rand = {1};
    struct model_launch launch = case_launch(&shape);
    size_t width = shape.width;
    size_t count = launch.rows * width;
    double *x = random_array(0, &rand);
    double *scale = random_array(1, &rand);
    double *bias = random_array(2, &rand);
    double *weight = random_array(3, &rand);
    double *mean = room[5];
    double *rstd = room[6];
    struct differences d = {oracle_layernorm_forward,
                            launch,
                            {x, scale, bias, room[4], mean, rstd},
                            weight,
                            room[4],
                            count};
    (void)weighed(&d);
    double *dx = room[7];
    oracle_layernorm_backward(&launch, (double *[]){weight, x, scale, mean, rstd, dx});
    oracle_layernorm_parameters(&launch,
                                (double *[]){weight, x, mean, rstd, NULL, room[8], room[9]});
    assert_gradient(&d, x, count, dx);
    assert_gradient(&d, scale, width, room[8]);
    assert_gradient(&d, bias, width, room[9]);
}
END_TEST

START_TEST(gated_gelu)
{
    struct rand rand = {2};
    struct model_launch launch = case_launch(&shape);
    size_t count = (size_t)launch.rows * shape.feed;
    double *gate = random_array(0, &rand);
    double *up = random_array(1, &rand);
    double *weight = random_array(2, &rand);
    for (size_t i = 0; i < count; i++) {
        gate[i] *= 4.0;
    }
    struct differences d = {
        oracle_gated_gelu_forward, launch, {gate, up, room[3]}, weight, room[3], count};
    oracle_gated_gelu_backward(&launch, (double *[]){gate, up, weight, room[4], room[5]});
    assert_gradient(&d, gate, count, room[4]);
    assert_gradient(&d, up, count, room[5]);
    /* gelu(1) = 0.841192 in the tanh form */
    gate[0] = 1.0;
    up[0] = 2.0;
    oracle_gated_gelu_forward(&launch, (double *[]){gate, up, room[3]});
    ck_assert_double_eq_tol(room[3][0], 2.0 * 0.8411919906082768, 1e-12);
}
END_TEST

START_TEST(rotary_positions)
{
    struct rand rand = {3};
    struct model_launch launch = case_launch(&shape);
    size_t tokens = launch.rows;
    size_t width = shape.width;
    double *qkv = random_array(0, &rand);
    double *weight = random_array(1, &rand); /* of q, then of k */
    double *cosines = room[2];
    double *sines = room[3];
    double *q = room[4];
    double *k = q + tokens * width;
    oracle_rotary_table(&launch, (double *[]){cosines, sines});
    struct differences d = {oracle_qk_rope, launch, {qkv, cosines, sines, q, k},
                            weight,         q,      2 * tokens * width};
    double *none = random_array(5, &rand); /* of v: not in the sum above */
    double *dqkv = room[6];
    oracle_inverse_rope_qkv(
        &launch, (double *[]){weight, weight + tokens * width, none, cosines, sines, dqkv});
    oracle_value_transpose(&launch, (double *[]){dqkv, room[7]});
    ck_assert_mem_eq(room[7], none, tokens * width * sizeof(double));
    for (size_t i = 0; i < tokens; i++) {
        memset(dqkv + (i * 3 + 2) * width, 0, width * sizeof(double));
    }
    assert_gradient(&d, qkv, 3 * tokens * width, dqkv);
    /* The inverse inverts, and values go and come unchanged. */
    oracle_value_transpose(&launch, (double *[]){qkv, room[7]});
    oracle_qk_rope(&launch, (double *[]){qkv, cosines, sines, q, k});
    oracle_inverse_rope_qkv(&launch, (double *[]){q, k, room[7], cosines, sines, room[8]});
    for (size_t i = 0; i < 3 * tokens * width; i++) {
        ck_assert_double_eq_tol(room[8][i], qkv[i], 1e-14);
    }
    /* A rotation by the position: q_i . k_j depends on i - j only. */
    ck_assert_double_eq_tol(cosines[2 * 2 + 1], cos(2.0 * 0.01), 1e-15);
}
END_TEST

START_TEST(layouts_and_transposes_invert)
{
    struct rand rand = {4};
    struct model_launch launch = case_launch(&shape);
    size_t count = (size_t)launch.rows * shape.width;
    double *x = random_array(0, &rand);
    oracle_token_to_head(&launch, (double *[]){x, room[1]});
    oracle_head_to_token(&launch, (double *[]){room[1], room[2]});
    ck_assert_mem_eq(room[2], x, count * sizeof(double));
    ck_assert(memcmp(room[1], x, count * sizeof(double)) != 0);
    /* (sequence 1, position 2, head 1, element 3) */
    ck_assert_double_eq(room[1][((2 + 1) * 6 + 2) * 4 + 3], x[(6 + 2) * 8 + 4 + 3]);
    launch.groups = 3;
    launch.m = 4;
    launch.n = 7;
    oracle_transpose(&launch, (double *[]){x, room[3]});
    launch.m = 7;
    launch.n = 4;
    oracle_transpose(&launch, (double *[]){room[3], room[4]});
    ck_assert_mem_eq(room[4], x, sizeof(double) * 3 * 4 * 7);
    ck_assert_double_eq(room[3][28 + 5 * 4 + 2], x[28 + 2 * 7 + 5]);
}
END_TEST

START_TEST(softmax)
{
    struct rand rand = {5};
    struct model_launch launch = case_launch(&shape);
    launch.scale = 0.75F;
    size_t length = shape.length;
    size_t count = (size_t)shape.sequences * shape.heads * length * length;
    double *scores = random_array(0, &rand);
    double *weight = random_array(1, &rand);
    struct differences d = {
        oracle_softmax_forward, launch, {scores, room[2]}, weight, room[2], count};
    (void)weighed(&d);
    oracle_softmax_backward(&launch, (double *[]){room[2], weight, room[3]});
    assert_gradient(&d, scores, count, room[3]);
    for (size_t row = 0; row < count / length; row++) {
        double sum = 0.0;
        for (size_t j = 0; j < length; j++) {
            sum += room[2][row * length + j];
            ck_assert(j <= row % length || room[2][row * length + j] == 0.0);
        }
        ck_assert_double_eq_tol(sum, 1.0, 1e-14);
    }
    for (size_t j = 0; j < length; j++) {
        scores[5 * length + j] = -HUGE_VAL; /* a row that sees nothing */
    }
    oracle_softmax_forward(&launch, (double *[]){scores, room[2]});
    for (size_t j = 0; j < length; j++) {
        ck_assert_double_eq(room[2][5 * length + j], 0.0);
    }
}
END_TEST

START_TEST(attention)
{
    struct rand rand = {6};
    struct model_launch launch = case_launch(&shape);
    launch.scale = 0.6F;
    size_t count = (size_t)launch.rows * shape.width;
    double *q = random_array(0, &rand);
    double *k = random_array(1, &rand);
    double *v = random_array(2, &rand);
    double *weight = random_array(3, &rand);
    double *out = room[4];
    double *lse = room[5];
    struct differences d = {
        oracle_attention_forward, launch, {q, k, v, out, lse}, weight, out, count};
    (void)weighed(&d);
    double *dq = room[6];
    double *dk = room[7];
    double *dv = room[8];
    oracle_attention_query(&launch, (double *[]){q, k, v, out, weight, lse, dq, room[9]});
    oracle_attention_key(&launch, (double *[]){q, k, v, weight, lse, room[9], dk, dv});
    assert_gradient(&d, q, count, dq);
    assert_gradient(&d, k, count, dk);
    assert_gradient(&d, v, count, dv);
}
END_TEST

START_TEST(streaming_attention_is_the_softmax_path)
{
    struct rand rand = {7};
    struct model_launch launch = case_launch(&shape);
    size_t length = shape.length;
    size_t head = shape.head;
    size_t groups = (size_t)shape.sequences * shape.heads;
    double *q = random_array(0, &rand);
    double *k = random_array(1, &rand);
    double *v = random_array(2, &rand);
    struct model_launch scores = {.m = 6, .n = 6, .k = 4};                /* Q K^T */
    struct model_launch mixed = {.m = 6, .n = 4, .k = 6, .b_columns = 1}; /* P V */
    for (size_t g = 0; g < groups; g++) {
        oracle_product(&scores, (double *[]){q + g * length * head, k + g * length * head, NULL,
                                             room[3] + g * length * length, NULL});
    }
    oracle_softmax_forward(&launch, (double *[]){room[3], room[4]});
    for (size_t g = 0; g < groups; g++) {
        oracle_product(&mixed, (double *[]){room[4] + g * length * length, v + g * length * head,
                                            NULL, room[5] + g * length * head, NULL});
    }
    oracle_attention_forward(&launch, (double *[]){q, k, v, room[6], room[7]});
    for (size_t i = 0; i < groups * length * head; i++) {
        ck_assert_double_eq_tol(room[5][i], room[6][i], 1e-14);
    }
}
END_TEST

START_TEST(cross_entropy)
{
    struct rand rand = {8};
    struct model_launch launch = case_launch(&shape);
    launch.scale = 1.0F;
    size_t rows = launch.rows;
    size_t count = rows * shape.vocabulary;
    double *logits = random_array(0, &rand);
    double targets[12] = {3, 0, 13, -1, 5, 5, 1, 2, 3, 12, -1, 7};
    double ones[12];
    for (size_t i = 0; i < rows; i++) {
        ones[i] = 1.0;
    }
    double *loss = room[1];
    struct differences d = {
        oracle_cross_entropy, launch, {logits, targets, loss, room[2]}, ones, loss, rows};
    (void)weighed(&d);
    oracle_cross_entropy_backward(&launch, (double *[]){logits, targets, room[2], room[3]});
    assert_gradient(&d, logits, count, room[3]);
    /* loss = lse - the target's logit */
    (void)weighed(&d);
    oracle_loss_target_gather(&launch, (double *[]){logits, targets, room[4]});
    for (size_t i = 0; i < rows; i++) {
        double expected = room[2][2 * i] + room[2][2 * i + 1] - room[4][i];
        ck_assert_double_eq_tol(loss[i], targets[i] < 0.0 ? 0.0 : expected, 1e-14);
    }
    /* All equal: log of the vocabulary; huge: no overflow; a mask: the others only. */
    for (size_t j = 0; j < shape.vocabulary; j++) {
        logits[j] = 1e300;
        logits[shape.vocabulary + j] = j < 4 ? 2.0 : -HUGE_VAL;
    }
    oracle_cross_entropy(&launch, (double *[]){logits, targets, loss, room[2]});
    ck_assert_double_eq_tol(loss[0], log(14.0), 1e-14);
    ck_assert_double_eq_tol(loss[1], log(4.0), 1e-14);
}
END_TEST

START_TEST(gather_and_scatter_are_each_others_transpose)
{
    struct rand rand = {9};
    struct model_launch launch = case_launch(&shape);
    size_t count = (size_t)launch.rows * shape.width;
    double tokens[12] = {3, 3, 0, 13, 3, 5, 5, 1, 2, 3, 12, 3};
    double *table = random_array(0, &rand);
    double *weight = random_array(1, &rand);
    struct differences d = {oracle_gather, launch,  {tokens, table, room[2]},
                            weight,        room[2], count};
    memset(room[3], 0, sizeof(room[3]));
    oracle_embedding_scatter(&launch, (double *[]){tokens, weight, NULL, NULL, room[3]});
    assert_gradient(&d, table, (size_t)shape.vocabulary * shape.width, room[3]);
}
END_TEST

START_TEST(products_and_their_gradients)
{
    struct rand rand = {10};
    struct model_launch forward = {.m = 5, .n = 7, .k = 9, .add = 1}; /* X W^T + R */
    double *x = random_array(0, &rand);
    double *w = random_array(1, &rand);
    double *r = random_array(2, &rand);
    double *dy = random_array(3, &rand);
    struct differences d = {oracle_product, forward, {x, w, r, room[4], NULL}, dy, room[4], 35};
    struct model_launch data = {.m = 5, .n = 9, .k = 7, .b_columns = 1}; /* dY W */
    oracle_product(&data, (double *[]){dy, w, NULL, room[5], NULL});
    assert_gradient(&d, x, 45, room[5]);
    struct model_launch weight = {.m = 7, .n = 9, .k = 5, .a_columns = 1, .b_columns = 1};
    oracle_product(&weight, (double *[]){dy, x, NULL, room[6], NULL}); /* dY^T X */
    assert_gradient(&d, w, 63, room[6]);
    assert_gradient(&d, r, 35, dy);
}
END_TEST

START_TEST(argmax_takes_the_first_of_12288_ties)
{
    struct model_shape wide = shape;
    wide.vocabulary = 12288;
    struct model_launch launch = case_launch(&wide);
    launch.rows = 4;
    double *logits = calloc(4UL * 12288, sizeof(*logits));
    ck_assert_ptr_nonnull(logits);
    logits[12288 + 12287] = 1.0; /* row 1: the last */
    for (size_t j = 0; j < 12288; j++) {
        logits[2 * 12288 + j] = -HUGE_VAL; /* row 2: nothing */
        logits[3 * 12288 + j] = j >= 777 ? 5.0 : -HUGE_VAL;
    }
    oracle_argmax(&launch, (double *[]){logits, room[0]});
    ck_assert_double_eq(room[0][0], 0.0);
    ck_assert_double_eq(room[0][1], 12287.0);
    ck_assert_double_eq(room[0][2], 0.0);
    ck_assert_double_eq(room[0][3], 777.0);
    free(logits);
}
END_TEST

START_TEST(random_normals_are_normal_and_know_their_place)
{
    struct model_launch launch = case_launch(&shape);
    launch.count = ROOM;
    launch.first = 0;
    launch.scale = 0.02F;
    oracle_random_normal(&launch, (double *[]){room[0]});
    double mean = 0.0;
    double square = 0.0;
    for (size_t i = 0; i < ROOM; i++) {
        mean += room[0][i] / ROOM;
        square += room[0][i] * room[0][i] / ROOM;
    }
    ck_assert_double_eq_tol(mean, 0.0, 0.02 * 4.0 / 64.0);
    ck_assert_double_eq_tol(sqrt(square), 0.02, 0.02 * 0.05);
    launch.first = 1001;
    launch.count = 99;
    oracle_random_normal(&launch, (double *[]){room[1]});
    ck_assert_mem_eq(room[1], room[0] + 1001, 99 * sizeof(double));
    launch.seed++;
    oracle_random_normal(&launch, (double *[]){room[1]});
    ck_assert_double_ne(room[1][0], room[0][1001]);
}
END_TEST

START_TEST(adamw_first_step_is_the_sign_and_the_mask_keeps_from_decay)
{
    struct model_launch launch = case_launch(&shape);
    launch.count = 8;
    launch.epsilon = 0.0F;
    launch.correction1 = 1.0F / (1.0F - launch.beta1);
    launch.correction2 = 1.0F / (1.0F - launch.beta2);
    double p[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    double m[8] = {0};
    double v[8] = {0};
    double g[8] = {3, -3, 1e-3, -1e-3, 3, -3, 1e-3, -1e-3};
    double copy[8];
    oracle_adamw(&launch, (double *[]){p, m, v, g, (double[]){1, 0}, (double[]){0.5}, copy});
    for (size_t i = 0; i < 8; i++) {
        double rate = (double)launch.rate;
        double decayed = i < 4 ? 1.0 - rate * (double)launch.decay : 1.0;
        ck_assert_double_eq_tol(p[i], decayed - (g[i] > 0.0 ? rate : -rate), 1e-7);
        ck_assert_double_eq(copy[i], p[i]);
        ck_assert_double_eq_tol(m[i], 0.5 * g[i] * 0.1, 1e-7);
    }
}
END_TEST

START_TEST(the_norm_gives_the_factor_that_keeps_it_in_bounds)
{
    struct model_launch launch = case_launch(&shape);
    launch.count = 2;
    launch.scale = 0.5F;
    launch.value = 1.0F;
    double out[2];
    oracle_gradient_norm(&launch, (double *[]){(double[]){3, 4}, NULL, out});
    ck_assert_double_eq(out[0], 2.5);
    ck_assert_double_eq(out[1], 0.2);
    launch.value = 0.0F;
    oracle_gradient_norm(&launch, (double *[]){(double[]){3, 4}, NULL, out});
    ck_assert_double_eq(out[1], 0.5);
    oracle_loss_sum(&launch, (double *[]){(double[]){3, 4}, NULL, out});
    ck_assert_double_eq(out[0], 3.5);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("model_oracle");
    TCase *tcase = tcase_create("oracle");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, layer_norm);
    tcase_add_test(tcase, gated_gelu);
    tcase_add_test(tcase, rotary_positions);
    tcase_add_test(tcase, layouts_and_transposes_invert);
    tcase_add_test(tcase, softmax);
    tcase_add_test(tcase, attention);
    tcase_add_test(tcase, streaming_attention_is_the_softmax_path);
    tcase_add_test(tcase, cross_entropy);
    tcase_add_test(tcase, gather_and_scatter_are_each_others_transpose);
    tcase_add_test(tcase, products_and_their_gradients);
    tcase_add_test(tcase, argmax_takes_the_first_of_12288_ties);
    tcase_add_test(tcase, random_normals_are_normal_and_know_their_place);
    tcase_add_test(tcase, adamw_first_step_is_the_sign_and_the_mask_keeps_from_decay);
    tcase_add_test(tcase, the_norm_gives_the_factor_that_keeps_it_in_bounds);
    suite_add_tcase(suite, tcase);
    return suite;
}
