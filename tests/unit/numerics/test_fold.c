#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "numerics/dyadic.h"
#include "numerics/lane.h"
#include "numerics/nodes.h"
#include "numerics/product.h"
#include "tests/lib/unit.h"

/* A term of any magnitude and sign, zeros of both signs among them. */
static double draw_term(struct rand *rand)
{
    uint64_t kind = rand_below(rand, 8);
    double magnitude = (double)(rand_next(rand) >> 11) / 9007199254740992.0;
    if (kind == 0) {
        return rand_below(rand, 2) == 0 ? 0.0 : -0.0;
    }
    static const double scale[] = {1.0, -1.0, 1e16, -1e16, 1e-300, 1e8, -3.0, 1e-8};
    return magnitude * scale[kind];
}

/* NUMERICS.md to the letter: level by level, odd ends pass through. Destroys the terms. */
static double dyadic_plain(double *terms, size_t count)
{
    if (count == 0) {
        return 0.0;
    }
    while (count > 1) {
        for (size_t i = 0; i < count / 2; i++) {
            terms[i] = terms[2 * i] + terms[2 * i + 1];
        }
        if (count % 2 != 0) {
            terms[count / 2] = terms[count - 1];
        }
        count = (count + 1) / 2;
    }
    return terms[0];
}

static int same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

START_TEST(the_binary_counter_adds_in_tree_order)
{
    struct rand rand = {1};
    for (size_t count = 0; count < 300; count++) {
        double terms[300];
        struct dyadic sum;
        dyadic_start(&sum);
        for (size_t i = 0; i < count; i++) {
            terms[i] = draw_term(&rand);
            dyadic_add(&sum, terms[i]);
        }
        ck_assert(same_bits(dyadic_root(&sum), dyadic_plain(terms, count)));
    }
}
END_TEST

START_TEST(skipping_zeros_changes_no_bit_of_the_canonical_root)
{
    struct rand rand = {2};
    for (unsigned round = 0; round < 2000; round++) {
        double terms[513];
        size_t count = 1 + rand_below(&rand, 513);
        uint64_t density = 1 + rand_below(&rand, 20);
        struct dyadic_sparse sum;
        dyadic_sparse_start(&sum);
        for (size_t i = 0; i < count; i++) {
            terms[i] = 0.0;
            if (rand_below(&rand, density) == 0) {
                terms[i] = draw_term(&rand);
                dyadic_sparse_add(&sum, i, terms[i]);
            }
        }
        ck_assert(same_bits(canon(dyadic_sparse_root(&sum)), canon(dyadic_plain(terms, count))));
    }
}
END_TEST

START_TEST(nodes_cover_their_range_without_gap_and_are_few)
{
    struct rand rand = {3};
    for (unsigned round = 0; round < 20000; round++) {
        unsigned bits = 1 + (unsigned)rand_below(&rand, 61);
        uint64_t a = rand_next(&rand) >> (64 - bits);
        uint64_t b = rand_next(&rand) >> (64 - bits);
        uint64_t first = a < b ? a : b;
        uint64_t end = a < b ? b : a;
        struct node nodes[NODES_MAX];
        size_t count = nodes_cover(first, end, nodes);
        uint64_t at = first;
        for (size_t i = 0; i < count; i++) {
            ck_assert_uint_eq(node_first(nodes[i]), at);
            at = node_end(nodes[i]);
        }
        ck_assert_uint_eq(at, end);
        if (end > first) {
            unsigned log2 = arith_highest_bit(end - first);
            ck_assert_uint_le(count, log2 == 0 ? 1 : 2 * log2);
        }
    }
    struct node nodes[NODES_MAX];
    ck_assert_uint_eq(nodes_cover(0, NODES_INDEX_END, nodes), 1);
    ck_assert_uint_le(nodes_cover(1, NODES_INDEX_END - 1, nodes), 122);
    ck_assert_uint_eq(nodes_cover(5, 5, nodes), 0);
}
END_TEST

START_TEST(the_fold_gives_the_root_of_one_node_wherever_the_cuts_are)
{
    struct rand rand = {4};
    for (unsigned round = 0; round < 3000; round++) {
        size_t count = 1 + rand_below(&rand, 200);
        size_t participants = 1 + rand_below(&rand, 6);
        uint64_t bounds[7] = {0};
        for (size_t p = 1; p < participants; p++) {
            bounds[p] = rand_below(&rand, count + 1);
        }
        bounds[participants] = count;
        for (size_t p = 1; p < participants; p++) { /* sorted, empty ranges allowed */
            for (size_t q = p; q > 1 && bounds[q] < bounds[q - 1]; q--) {
                uint64_t swap = bounds[q];
                bounds[q] = bounds[q - 1];
                bounds[q - 1] = swap;
            }
        }
        double terms[200];
        for (size_t i = 0; i < count; i++) {
            terms[i] = draw_term(&rand);
        }
        enum { ELEMENTS = 131 }; /* more than one block; all but the last are decoys */
        static double values[6 * NODES_MAX][ELEMENTS];
        const double *inputs[6 * NODES_MAX];
        size_t inputs_count = 0;
        for (size_t p = 0; p < participants; p++) {
            struct node nodes[NODES_MAX];
            size_t nodes_count = nodes_cover(bounds[p], bounds[p + 1], nodes);
            for (size_t n = 0; n < nodes_count; n++) {
                double copy[200];
                size_t size = (size_t)(node_end(nodes[n]) - node_first(nodes[n]));
                memcpy(copy, terms + node_first(nodes[n]), size * sizeof(*copy));
                for (size_t e = 0; e < ELEMENTS; e++) {
                    values[inputs_count][e] = (double)e;
                }
                values[inputs_count][ELEMENTS - 1] = dyadic_plain(copy, size);
                inputs[inputs_count] = values[inputs_count];
                inputs_count++;
            }
        }
        struct fold_plan plan = FOLD_PLAN_NONE;
        struct err err = {0};
        ck_assert_int_eq(fold_plan_init_bounds(&plan, bounds, participants, &err), 0);
        ck_assert_uint_eq(plan.inputs_count, inputs_count);
        double out[ELEMENTS];
        fold_plan_run(&plan, inputs, out, ELEMENTS);
        ck_assert(same_bits(out[ELEMENTS - 1], canon(dyadic_plain(terms, count))));
        ck_assert(same_bits(out[7], 7.0 * (double)inputs_count));
        fold_plan_done(&plan);
        fold_plan_done(&plan);
    }
}
END_TEST

START_TEST(a_gap_between_nodes_is_refused)
{
    struct fold_plan plan = FOLD_PLAN_NONE;
    struct err err = {0};
    struct node gap[] = {{.index = 0, .level = 2}, {.index = 5, .level = 0}};
    ck_assert_int_eq(fold_plan_init(&plan, gap, 2, &err), ERR_PROTO);
    ck_assert_str_eq(err.text, "node 1 begins at coordinate 5, the one before it ends at 4");
    struct node off[] = {{.index = 1, .level = 63}};
    ck_assert_int_eq(fold_plan_init(&plan, off, 1, &err), ERR_PROTO);
    double out[3] = {1.0, 2.0, 3.0};
    ck_assert_int_eq(fold_plan_init(&plan, NULL, 0, &err), 0);
    fold_plan_run(&plan, NULL, out, 3);
    ck_assert(same_bits(out[2], 0.0));
    fold_plan_done(&plan);
}
END_TEST

START_TEST(lanes_are_summed_as_a_dyadic_tree)
{
    struct rand rand = {5};
    for (unsigned round = 0; round < 200; round++) {
        double lanes[PANEL_LANES];
        double copy[PANEL_LANES];
        for (unsigned i = 0; i < PANEL_LANES; i++) {
            lanes[i] = copy[i] = draw_term(&rand);
        }
        ck_assert(same_bits(lanes_root(lanes), dyadic_plain(copy, PANEL_LANES)));
    }
    ck_assert_uint_eq(panels_of(1), 1);
    ck_assert_uint_eq(panels_of(2048), 1);
    ck_assert_uint_eq(panels_of(2049), 2);
}
END_TEST

START_TEST(products_round_in_binary32_and_keep_subnormals)
{
    ck_assert(same_bits(product(0x1.fffffep-1F, 0x1.fffffep-1F), 0x1.fffffcp-1));
    ck_assert(same_bits(product(0x1p-149F, 1.0F), 0x1p-149));
    ck_assert(same_bits(product(0x1p-75F, 0x1p-75F), 0.0)); /* ties to even: zero */
    ck_assert(same_bits(product(0x1.8p-75F, 0x1p-75F), 0x1p-149));
    ck_assert(same_bits(canon(-0.0), 0.0));
    ck_assert(!finite32(rn32(1e39)));
    ck_assert(finite32(rn32(3.4e38)));
    ck_assert(!finite64(1.0 / (canon(-0.0))));
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("numerics");
    TCase *tcase = tcase_create("numerics");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_binary_counter_adds_in_tree_order);
    tcase_add_test(tcase, skipping_zeros_changes_no_bit_of_the_canonical_root);
    tcase_add_test(tcase, nodes_cover_their_range_without_gap_and_are_few);
    tcase_add_test(tcase, the_fold_gives_the_root_of_one_node_wherever_the_cuts_are);
    tcase_add_test(tcase, a_gap_between_nodes_is_refused);
    tcase_add_test(tcase, lanes_are_summed_as_a_dyadic_tree);
    tcase_add_test(tcase, products_round_in_binary32_and_keep_subnormals);
    suite_add_tcase(suite, tcase);
    return suite;
}
