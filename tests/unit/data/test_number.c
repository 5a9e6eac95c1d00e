#include <math.h>

#include "base/rand.h"
#include "data/number.h"
#include "tests/unit/data/helper.h"

static enum number_status parse(const char *text, double *value, size_t *used)
{
    char line[2048];
    (void)snprintf(line, sizeof(line), "%s\n", text);
    const uint8_t *end = NULL;
    enum number_status status = number_parse((const uint8_t *)line, '.', &end, value);
    *used = (size_t)(end - (const uint8_t *)line);
    return status;
}

static void same_as_libc(const char *text)
{
    double value = 0;
    size_t used = 0;
    enum number_status status = parse(text, &value, &used);
    double wanted = strtod(text, NULL);
    ck_assert_msg(used == strlen(text), "%s: stopped at %zu", text, used);
    if (isinf(wanted)) {
        ck_assert_msg(status == NUMBER_RANGE, "%s", text);
        return;
    }
    ck_assert_msg(status == NUMBER_OK && memcmp(&value, &wanted, sizeof(value)) == 0,
                  "%s: %a, not %a", text, value, wanted);
}

START_TEST(rounds_every_text_to_the_nearest_binary64)
{
    static const char *const texts[] = {"0",
                                        "-0",
                                        "+1",
                                        "1.",
                                        ".5",
                                        "-.5e1",
                                        "1e0",
                                        "3504.",
                                        "1e22",
                                        "1e23",
                                        "9007199254740993",
                                        "9007199254740992.5",
                                        "9007199254740991.5",
                                        "1.7976931348623157e308",
                                        "1.7976931348623159e308",
                                        "1e309",
                                        "-1e400",
                                        "4.9406564584124654e-324",
                                        "1e-400",
                                        "2.2250738585072011e-308",
                                        "2.2250738585072014e-308",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "9999999999999999999",
                                        "0.000000000000000000000000001234567890123456789",
                                        "8.5e-1",
                                        "123456789012345678e-27",
                                        "123456789012345678e27",
                                        "1234567890123456789e-27",
                                        "0e99999999999999999999",
                                        "1e-99999999999999999999",
                                        "1e99999999999999999999",
                                        "1.00000017881393432617187499",
                                        "1.00000017881393432617187500",
                                        "0.1",
                                        "0.3",
                                        "1e5",
                                        "1E-5"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        same_as_libc(texts[i]);
    }
}
END_TEST

START_TEST(agrees_with_libc_on_random_texts)
{
    struct rand rand = {1};
    for (unsigned i = 0; i < 60000; i++) {
        char text[64];
        int digits = (int)rand_below(&rand, 20) + 1;
        uint64_t mantissa = rand_next(&rand);
        int power = (int)rand_below(&rand, 60) - 30;
        switch (rand_below(&rand, 6)) {
        case 0:
            (void)snprintf(text, sizeof(text), "%llue%d", (unsigned long long)mantissa, power);
            break;
        case 1:
            (void)snprintf(text, sizeof(text), "%.*e", digits,
                           ldexp((double)mantissa, (int)rand_below(&rand, 2000) - 1030));
            break;
        case 2:
            (void)snprintf(text, sizeof(text), "%.*f", digits,
                           ldexp((double)mantissa, -power - 60));
            break;
        case 3: /* More digits than 64 bits hold, as "%.17f" prints them. */
            (void)snprintf(text, sizeof(text), "%.*f", 17 + digits % 8,
                           ((double)(mantissa >> 11) * 0x1p-53 - 0.5) * 2000.0);
            break;
        case 4:
            (void)snprintf(text, sizeof(text), "0.000%llu%llue%d", (unsigned long long)mantissa,
                           (unsigned long long)mantissa, power);
            break;
        default: /* Next to the middle between two binary64 numbers, where rounding is decided. */
            (void)snprintf(text, sizeof(text), "%llu.5",
                           (unsigned long long)((mantissa >> 11) | (UINT64_C(1) << 52)));
            break;
        }
        if (strchr(text, 'n') == NULL) { /* what ldexp made infinite is no number */
            same_as_libc(text);
        }
    }
}
END_TEST

START_TEST(takes_hundreds_of_digits_with_a_sticky_end)
{
    /* 2^-1074 / 2 exactly, then a digit far behind: the tie is broken upwards. */
    char text[1400];
    (void)snprintf(text, sizeof(text), "%.1080f", 0x1p-1074);
    same_as_libc(text);
    (void)snprintf(text, sizeof(text), "%.1075f", 0x1.8p-1073);
    same_as_libc(text);
    char many[1200];
    memset(many, '7', sizeof(many));
    memcpy(many, "0.", 2);
    many[1199] = '\0';
    same_as_libc(many);
    memset(many, '0', sizeof(many));
    memcpy(many, "9007199254740993.", 17); /* a tie … */
    many[1198] = '1';                      /* … broken by the digit at the end */
    many[1199] = '\0';
    same_as_libc(many);
    many[1198] = '0';
    same_as_libc(many);
}
END_TEST

START_TEST(features_are_rounded_from_binary64_to_binary32)
{
    double value = 0;
    size_t used = 0;
    float rounded = 0;
    ck_assert_int_eq(parse("1.00000017881393432617187499", &value, &used), NUMBER_OK);
    ck_assert_int_eq(number_to_f32(value, &rounded), 0);
    ck_assert(rounded == 0x1.000004p+0F);
    ck_assert_int_eq(number_to_f32(3.4028235677973366e38, &rounded), -1);
    ck_assert_int_eq(number_to_f32(3.4028235677973362e38, &rounded), 0);
    ck_assert_int_eq(number_to_f32(-1e39, &rounded), -1);
}
END_TEST

START_TEST(stops_where_the_number_ends)
{
    static const struct {
        const char *text;
        enum number_status status;
        size_t used;
    } cases[] = {{"", NUMBER_NONE, 0},
                 {"nan", NUMBER_NONE, 0},
                 {"inf", NUMBER_NONE, 0},
                 {"-inf", NUMBER_NONE, 0},
                 {"-", NUMBER_NONE, 0},
                 {".", NUMBER_NONE, 0},
                 {"e5", NUMBER_NONE, 0},
                 {"0x10", NUMBER_OK, 1},
                 {"1e", NUMBER_OK, 1},
                 {"1e+", NUMBER_OK, 1},
                 {"1,5", NUMBER_OK, 1},
                 {"1.5.2", NUMBER_OK, 3},
                 {"18.00.00", NUMBER_OK, 5},
                 {"--1", NUMBER_NONE, 0},
                 {"1_000", NUMBER_OK, 1},
                 {"1 2", NUMBER_OK, 1},
                 {"0000000000000000000000.0.01", NUMBER_OK, 24},
                 {"1e400x", NUMBER_RANGE, 5}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double value = 0;
        size_t used = 0;
        ck_assert_msg(parse(cases[i].text, &value, &used) == cases[i].status, "%s", cases[i].text);
        ck_assert_msg(used == cases[i].used, "%s: %zu", cases[i].text, used);
    }
    const uint8_t *end = NULL;
    double value = 0;
    ck_assert_int_eq(number_parse((const uint8_t *)"-13,6;", ',', &end, &value), NUMBER_OK);
    ck_assert(value == -13.6);
    ck_assert_int_eq(*end, ';');
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("number");
    TCase *tests = tcase_create("number");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, rounds_every_text_to_the_nearest_binary64);
    tcase_add_test(tests, agrees_with_libc_on_random_texts);
    tcase_add_test(tests, takes_hundreds_of_digits_with_a_sticky_end);
    tcase_add_test(tests, features_are_rounded_from_binary64_to_binary32);
    tcase_add_test(tests, stops_where_the_number_ends);
    suite_add_tcase(suite, tests);
    return suite;
}
