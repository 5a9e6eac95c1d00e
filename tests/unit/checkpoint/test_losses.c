#include "checkpoint/losses.h"

#include <math.h>
#include <string.h>

#include "tests/lib/unit.h"

static struct losses whole;
static struct losses other;

static double loss_of(uint64_t step)
{
    return 1.0 / (double)step;
}

static void put_range(struct losses *losses, uint64_t first, uint64_t end)
{
    for (uint64_t step = first; step < end; step++) {
        losses_put(losses, step, loss_of(step));
    }
}

/* What the header says, in other words: the smallest power of two with which they are few enough.
 */
static void expected(uint64_t newest, struct losses *ret)
{
    uint64_t stride = 1;
    while ((newest + stride - 1) / stride > LOSSES_MAX - 1) {
        stride *= 2;
    }
    memset(ret, 0, sizeof(*ret));
    ret->stride = stride;
    for (uint64_t step = 1; step <= newest; step++) {
        if ((step - 1) % stride == 0 || step == newest) {
            ret->steps[ret->count] = step;
            ret->values[ret->count++] = loss_of(step);
        }
    }
}

static void same(const struct losses *a, const struct losses *b)
{
    ck_assert_uint_eq(a->count, b->count);
    ck_assert_uint_eq(a->stride, b->stride);
    ck_assert_mem_eq(a->steps, b->steps, a->count * sizeof(a->steps[0]));
    ck_assert_mem_eq(a->values, b->values, a->count * sizeof(a->values[0]));
}

static void begin(void)
{
    memset(&whole, 0, sizeof(whole));
    memset(&other, 0, sizeof(other));
}

START_TEST(what_is_kept_is_a_function_of_the_newest_step)
{
    begin();
    for (uint64_t step = 1; step <= 5 * LOSSES_MAX; step++) {
        losses_put(&whole, step, loss_of(step));
        ck_assert_uint_le(whole.count, LOSSES_MAX);
        ck_assert_uint_eq(losses_newest(&whole), step);
        if (step % 997 < 3 || step % (LOSSES_MAX / 2) < 3 || step < 10) {
            expected(step, &other);
            same(&whole, &other);
        }
    }
}
END_TEST

START_TEST(cut_anywhere_and_gone_on_with_they_are_the_undisturbed_ones)
{
    static const uint64_t cuts[] = {1, 2, 4094, 4095, 4096, 4097, 8190, 8191, 8192, 12000};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        begin();
        put_range(&whole, 1, 20001);
        put_range(&other, 1, cuts[i] + 1);
        other.stride = 77; /* Not written to the file. */
        ck_assert_ptr_null(losses_settle(&other, cuts[i]));
        put_range(&other, cuts[i] + 1, 20001);
        same(&whole, &other);
    }
}
END_TEST

START_TEST(without_the_beginning_the_rest_is_kept_as_otherwise)
{
    begin();
    put_range(&whole, 9000, 9100);
    ck_assert_uint_eq(whole.stride, 4);
    ck_assert_uint_eq(whole.steps[0], 9001);
    ck_assert_uint_eq(losses_newest(&whole), 9099);
    ck_assert_uint_eq(whole.count, 26);
}
END_TEST

START_TEST(what_is_not_newer_or_not_finite_is_left_out)
{
    begin();
    put_range(&whole, 1, 11);
    losses_put(&whole, 10, 7.0);
    losses_put(&whole, 3, 7.0);
    losses_put(&whole, 11, (double)NAN);
    losses_put(&whole, 11, (double)INFINITY);
    ck_assert_uint_eq(whole.count, 10);
    ck_assert_double_eq(whole.values[9], loss_of(10));
    ck_assert_uint_eq(losses_newest(&(struct losses){.count = 0}), 0);
}
END_TEST

START_TEST(what_came_from_outside_is_held_against_every_rule)
{
    static const struct {
        uint64_t steps[3];
        double values[3];
        uint64_t step_max;
        const char *wrong;
    } cases[] = {
        {{1, 2, 3}, {1, 2, 3}, 3, NULL},
        {{1, 2, 3}, {1, 2, 3}, 2, "loss_steps"},
        {{0, 2, 3}, {1, 2, 3}, 3, "loss_steps"},
        {{1, 3, 3}, {1, 2, 3}, 3, "loss_steps"},
        {{3, 2, 4}, {1, 2, 3}, 4, "loss_steps"},
        {{1, 2, UINT64_MAX}, {1, 2, 3}, 4, "loss_steps"},
        {{1, 2, 3}, {1, (double)NAN, 3}, 3, "losses"},
        {{1, 2, 3}, {1, 2, -(double)INFINITY}, 3, "losses"},
        {{1, 2, UINT64_MAX}, {1, 2, 3}, UINT64_MAX, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        whole.count = 3;
        memcpy(whole.steps, cases[i].steps, sizeof(cases[i].steps));
        memcpy(whole.values, cases[i].values, sizeof(cases[i].values));
        const char *wrong = losses_settle(&whole, cases[i].step_max);
        ck_assert_msg((wrong == NULL) == (cases[i].wrong == NULL), "case %zu", i);
        ck_assert(wrong == NULL || strcmp(wrong, cases[i].wrong) == 0);
    }
    ck_assert_uint_eq(whole.count, 2); /* The last one: 2 is not on so wide a stride. */
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("losses");
    TCase *tests = tcase_create("losses");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, what_is_kept_is_a_function_of_the_newest_step);
    tcase_add_test(tests, cut_anywhere_and_gone_on_with_they_are_the_undisturbed_ones);
    tcase_add_test(tests, without_the_beginning_the_rest_is_kept_as_otherwise);
    tcase_add_test(tests, what_is_not_newer_or_not_finite_is_left_out);
    tcase_add_test(tests, what_came_from_outside_is_held_against_every_rule);
    suite_add_tcase(suite, tests);
    return suite;
}
