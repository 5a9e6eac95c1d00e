/* Every image of the CPU session against its oracle: fresh random operands, poisoned outputs, odd
 * and ordinary shapes, extreme inputs, f32 and both half types; and the same bits for any number of
 * threads and whatever other rows there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/model_case.h"
#include "tests/lib/unit.h"

static const struct model_shape shapes[] = {
    {1, 1, 2, 1, 2, 1, 1},      {2, 5, 12, 2, 6, 7, 19},        {1, 130, 64, 1, 64, 128, 256},
    {3, 64, 96, 3, 32, 40, 77}, {2, 128, 128, 2, 64, 128, 512},
};

struct run {
    struct model_case one;
    void *operand[MODEL_OPERANDS_MAX];
};

static void run_init(struct run *run)
{
    for (size_t i = 0; i < run->one.operands_count; i++) {
        run->operand[i] = NULL;
        if (run->one.count[i] != 0) {
            run->operand[i] = malloc(run->one.count[i] * model_case_element(&run->one, i));
            ck_assert_ptr_nonnull(run->operand[i]);
            model_case_write(&run->one, i, run->operand[i]);
        }
    }
}

static void run_done(struct run *run)
{
    for (size_t i = 0; i < run->one.operands_count; i++) {
        free(run->operand[i]);
    }
    model_case_done(&run->one);
}

static void launch(struct model_session *session, const char *name, struct run *run)
{
    struct err err = {0};
    int status = model_session_launch(session, name, &run->one.launch, run->operand,
                                      run->one.operands_count, &err);
    ck_assert_msg(status == 0, "%s", err.text);
}

static void check(const char *name, const struct run *run)
{
    for (size_t i = 0; i < run->one.operands_count; i++) {
        if (run->one.expected[i] == NULL) {
            continue;
        }
        double error = model_case_error(&run->one, i, run->operand[i]);
        double most = model_case_tolerance(&run->one, i);
        ck_assert_msg(error <= most, "%s, %s: relative error %.3g above %.3g (%ux%u)", name,
                      run->one.image->operands[i].name, error, most,
                      run->one.launch.shape.sequences, run->one.launch.shape.length);
    }
}

static void check_image(struct model_session *session, const char *name,
                        const struct model_launch *with, enum model_half half,
                        enum case_flavour flavour)
{
    static uint64_t seed = 1;
    struct run run;
    model_case_init(&run.one, name, with, half, flavour, seed++);
    run_init(&run);
    launch(session, name, &run);
    check(name, &run);
    run_done(&run);
}

static void check_all(const struct model_shape *shape, enum model_half half)
{
    struct model_session *session;
    struct err err = {0};
    ck_assert_int_eq(model_session_new(shape, half, 3, &session, &err), 0);
    const struct images *images = model_session_images(session);
    struct model_launch with = case_launch(shape);
    with.count = with.count / 4 * 4 + (with.count % 4 != 0 ? 4 : 0);
    for (size_t i = 0; i < images->count; i++) {
        check_image(session, images->list[i].name, &with, half, CASE_RANDOM);
        with.half_out = 1; /* products again, with C in the half type */
        if (strncmp(images->list[i].name, "tiled", 5) == 0) {
            check_image(session, images->list[i].name, &with, half, CASE_RANDOM);
        }
        with.half_out = 0;
    }
    model_session_free(session);
}

START_TEST(every_image_is_its_oracle_in_f32)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_all(&shapes[i], MODEL_HALF_F32);
    }
}
END_TEST

START_TEST(every_image_is_its_oracle_in_fp16_and_bf16)
{
    check_all(&shapes[1], MODEL_HALF_FP16);
    check_all(&shapes[3], MODEL_HALF_FP16);
    check_all(&shapes[1], MODEL_HALF_BF16);
    check_all(&shapes[3], MODEL_HALF_BF16);
}
END_TEST

START_TEST(extreme_inputs)
{
    static const char *const images[] = {"argmax", "cross-entropy", "cross-entropy-backward",
                                         "loss-target-gather", "softmax-forward"};
    struct model_shape shape = {1, 64, 64, 1, 64, 128, 12288};
    struct model_session *session;
    struct err err = {0};
    ck_assert_int_eq(model_session_new(&shape, MODEL_HALF_F32, 2, &session, &err), 0);
    struct model_launch with = case_launch(&shape);
    for (int flavour = CASE_EQUAL; flavour <= CASE_MASKED; flavour++) {
        for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
            check_image(session, images[i], &with, MODEL_HALF_F32, (enum case_flavour)flavour);
        }
    }
    model_session_free(session);
}
END_TEST

START_TEST(the_scatter_is_right_for_same_distinct_and_zipf)
{
    /* 5 leaves: the tree's last two levels are incomplete. */
    struct model_shape shape = {5, 1000, 8, 2, 4, 8, 6007};
    struct model_session *session;
    struct err err = {0};
    ck_assert_int_eq(model_session_new(&shape, MODEL_HALF_F32, 2, &session, &err), 0);
    struct model_launch with = case_launch(&shape);
    for (int flavour = CASE_SAME; flavour <= CASE_ZIPF; flavour++) {
        check_image(session, "embedding-scatter", &with, MODEL_HALF_F32,
                    (enum case_flavour)flavour);
    }
    with.rows = 1025;
    check_image(session, "embedding-scatter", &with, MODEL_HALF_F32, CASE_SAME);
    model_session_free(session);
}
END_TEST

START_TEST(the_scatter_adds_in_position_order_in_leaves_and_leaves_as_a_tree)
{
    enum { ROWS = 4 * MODEL_SCATTER_LEAF };
    struct model_shape shape = {1, ROWS, 2, 1, 2, 1, 3};
    struct model_session *session;
    struct err err = {0};
    ck_assert_int_eq(model_session_new(&shape, MODEL_HALF_F32, 2, &session, &err), 0);
    struct model_launch with = case_launch(&shape);
    static int32_t tokens[ROWS];
    static int32_t order[2 * ROWS];
    static int32_t places[4 * 3];
    static float dx[ROWS][2];
    static float leaves[ROWS][2];
    float table[3][2] = {{0}};
    struct rand rand = {3};
    float leaf[4] = {0};
    for (int i = 0; i < ROWS; i++) {
        /* Token 1 in leaves 0, 2 and 3; others elsewhere. */
        tokens[i] = i / MODEL_SCATTER_LEAF == 1 || rand_next(&rand) % 3 == 0 ? 2 : 1;
        dx[i][0] = (float)(rand_next(&rand) >> 40) * 0x1p-20F - 8.0F;
        dx[i][1] = 1.0F;
        leaf[i / MODEL_SCATTER_LEAF] += tokens[i] == 1 ? dx[i][0] : 0.0F;
    }
    void *operands[] = {tokens, dx, order, leaves, table, places};
    ck_assert_int_eq(model_session_launch(session, "embedding-scatter", &with, operands, 6, &err),
                     0);
    float root = leaf[0] + (leaf[2] + leaf[3]); /* leaf 1 is absent */
    ck_assert(table[1][0] == root);
    ck_assert(table[0][1] == 0.0F);
    ck_assert(table[1][1] + table[2][1] == (float)ROWS);
    model_session_free(session);
}
END_TEST

START_TEST(no_bit_depends_on_the_threads)
{
    const struct model_shape *shape = &shapes[4];
    struct model_launch with = case_launch(shape);
    struct err err = {0};
    struct model_session *one;
    struct model_session *many;
    ck_assert_int_eq(model_session_new(shape, MODEL_HALF_F32, 1, &one, &err), 0);
    ck_assert_int_eq(model_session_new(shape, MODEL_HALF_F32, 7, &many, &err), 0);
    const struct images *images = model_session_images(one);
    for (size_t n = 0; n < images->count; n++) {
        struct run first;
        struct run second;
        const char *name = images->list[n].name;
        model_case_init(&first.one, name, &with, MODEL_HALF_F32, CASE_RANDOM, n);
        model_case_init(&second.one, name, &with, MODEL_HALF_F32, CASE_RANDOM, n);
        run_init(&first);
        run_init(&second);
        launch(one, name, &first);
        launch(many, name, &second);
        for (size_t i = 0; i < first.one.operands_count; i++) {
            if (first.one.expected[i] != NULL) {
                ck_assert_msg(model_case_digest(&first.one, i, first.operand[i]) ==
                                  model_case_digest(&second.one, i, second.operand[i]),
                              "%s", name);
            }
        }
        run_done(&first);
        run_done(&second);
    }
    model_session_free(one);
    model_session_free(many);
}
END_TEST

/* An image of two sequences gives each the bits that it gets alone. */
START_TEST(a_rows_result_does_not_depend_on_the_other_rows)
{
    static const struct {
        const char *name;
        size_t operand;
    } images[] = {{"tiled-rr-m128-n384-k128", 3},
                  {"tiled-rc-m128-n128-k384", 3},
                  {"attention-forward", 3},
                  {"layernorm-forward", 3},
                  {"cross-entropy", 2},
                  {"gated-gelu-forward", 2},
                  {"qk-rope", 3},
                  {"argmax", 1}};
    struct err err = {0};
    struct model_session *session;
    ck_assert_int_eq(model_session_new(&shapes[4], MODEL_HALF_F32, 2, &session, &err), 0);
    struct model_launch both = case_launch(&shapes[4]);
    for (size_t n = 0; n < sizeof(images) / sizeof(images[0]); n++) {
        struct run run;
        model_case_init(&run.one, images[n].name, &both, MODEL_HALF_F32, CASE_RANDOM, n + 50);
        run_init(&run);
        launch(session, images[n].name, &run);
        size_t bytes = run.one.count[images[n].operand] * sizeof(float);
        char *kept = malloc(bytes);
        ck_assert_ptr_nonnull(kept);
        memcpy(kept, run.operand[images[n].operand], bytes);
        memset(run.operand[images[n].operand], 0xFF, bytes);
        run.one.launch.shape.sequences = 1;
        run.one.launch.rows /= 2;
        launch(session, images[n].name, &run);
        ck_assert_msg(memcmp(kept, run.operand[images[n].operand], bytes / 2) == 0, "%s",
                      images[n].name);
        ck_assert_msg(memcmp(kept, run.operand[images[n].operand], bytes) != 0, "%s",
                      images[n].name); /* the second half was not computed */
        free(kept);
        run.one.launch.shape.sequences = 2;
        run_done(&run);
    }
    model_session_free(session);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("model_cpu");
    TCase *tcase = tcase_create("cpu");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, every_image_is_its_oracle_in_f32);
    tcase_add_test(tcase, every_image_is_its_oracle_in_fp16_and_bf16);
    tcase_add_test(tcase, extreme_inputs);
    tcase_add_test(tcase, the_scatter_is_right_for_same_distinct_and_zipf);
    tcase_add_test(tcase, the_scatter_adds_in_position_order_in_leaves_and_leaves_as_a_tree);
    tcase_add_test(tcase, no_bit_depends_on_the_threads);
    tcase_add_test(tcase, a_rows_result_does_not_depend_on_the_other_rows);
    suite_add_tcase(suite, tcase);
    return suite;
}
