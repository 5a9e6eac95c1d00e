#include <math.h>

#include "base/rand.h"
#include "gpu/model/half.h"
#include "gpu/model/philox.h"
#include "tests/lib/unit.h"

/* The value of a binary16, by its definition. */
static double fp16_value(uint16_t half)
{
    int exponent = half >> 10 & 0x1f;
    int fraction = half & 0x3ff;
    double magnitude = exponent == 31  ? (fraction == 0 ? HUGE_VAL : (double)NAN)
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(1024 + fraction, exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

START_TEST(every_fp16_widens_to_its_value_and_comes_back)
{
    for (unsigned bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        float wide = half_from_fp16(half);
        if (isnan(fp16_value(half))) {
            ck_assert(isnan(wide));
            ck_assert(isnan(half_from_fp16(half_to_fp16(wide))));
            continue;
        }
        ck_assert_double_eq((double)wide, fp16_value(half));
        ck_assert_int_eq(signbit(wide) != 0, half >> 15);
        ck_assert_uint_eq(half_to_fp16(wide), half);
    }
}
END_TEST

START_TEST(fp16_rounds_to_nearest_and_ties_to_even)
{
    for (uint16_t low = 0; low < 0x7bff; low++) {
        uint16_t high = (uint16_t)(low + 1);
        float middle = (float)((fp16_value(low) + fp16_value(high)) / 2.0); /* exact in binary32 */
        uint16_t even = low % 2 == 0 ? low : high;
        ck_assert_uint_eq(half_to_fp16(middle), even);
        ck_assert_uint_eq(half_to_fp16(-middle), even | 0x8000U);
        ck_assert_uint_eq(half_to_fp16(nextafterf(middle, 0.0F)), low);
        ck_assert_uint_eq(half_to_fp16(nextafterf(middle, INFINITY)), high);
    }
    ck_assert_uint_eq(half_to_fp16(65519.996F), 0x7bff);
    ck_assert_uint_eq(half_to_fp16(65520.0F), 0x7c00);
    ck_assert_uint_eq(half_to_fp16(1e30F), 0x7c00);
    ck_assert_uint_eq(half_to_fp16(-INFINITY), 0xfc00);
    ck_assert_uint_eq(half_to_fp16(1e-30F), 0);
    ck_assert_uint_eq(half_to_fp16(0x1p-25F), 0);
    ck_assert_uint_eq(half_to_fp16(0x1.8p-25F), 1);
}
END_TEST

START_TEST(bf16_rounds_to_nearest_and_ties_to_even)
{
    for (uint32_t low = 0; low < 0x7f7f; low++) {
        uint16_t even = (uint16_t)(low + (low & 1));
        ck_assert_uint_eq(half_to_bf16(half_value(low << 16)), low);
        ck_assert_uint_eq(half_to_bf16(half_value(low << 16 | 0x8000U)), even);
        ck_assert_uint_eq(half_to_bf16(half_value(low << 16 | 0x7fffU)), low);
        ck_assert_uint_eq(half_to_bf16(half_value(low << 16 | 0x8001U)), low + 1);
    }
    ck_assert_uint_eq(half_to_bf16(half_value(0x7f7fffffU)), 0x7f80);
    ck_assert_uint_eq(half_to_bf16(INFINITY), 0x7f80);
    ck_assert(isnan(half_from_bf16(half_to_bf16(half_value(0x7f800001U)))));
    ck_assert(isnan(half_from_bf16(half_to_bf16(half_value(0xffffffffU)))));
}
END_TEST

START_TEST(philox_gives_the_vectors_of_its_authors)
{
    /* Random123's known answers for philox4x32-10: counter and key of zeros. */
    struct philox zero = philox_block(0, 0);
    ck_assert_uint_eq(zero.word[0], 0x6627e8d5U);
    ck_assert_uint_eq(zero.word[1], 0xe169c58dU);
    ck_assert_uint_eq(zero.word[2], 0xbc57ac4cU);
    ck_assert_uint_eq(zero.word[3], 0x9b00dbd8U);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("model_half");
    TCase *tcase = tcase_create("half");
    tcase_add_test(tcase, every_fp16_widens_to_its_value_and_comes_back);
    tcase_add_test(tcase, fp16_rounds_to_nearest_and_ties_to_even);
    tcase_add_test(tcase, bf16_rounds_to_nearest_and_ties_to_even);
    tcase_add_test(tcase, philox_gives_the_vectors_of_its_authors);
    suite_add_tcase(suite, tcase);
    return suite;
}
