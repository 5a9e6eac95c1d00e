#include <math.h>
#include <string.h>

#include "ctl/plot.h"
#include "tests/lib/unit.h"

START_TEST(a_falling_line_falls_in_braille)
{
    struct buf out = BUF_NONE;
    const struct plot_point points[] = {{1, 4}, {16, 1}};
    plot_curve(points, 2, 20, 3, true, &out);
    ck_assert_str_eq((const char *)out.bytes, "         4 │⠑⠢⡀⠀⠀⠀⠀⠀\n"
                                              "           │⠀⠀⠈⠑⢄⡀⠀⠀\n"
                                              "         1 │⠀⠀⠀⠀⠀⠈⠢⢄\n"
                                              "            1     16\n");
    buf_done(&out);
}
END_TEST

START_TEST(a_steep_curve_is_drawn_by_its_logarithm)
{
    struct buf out = BUF_NONE;
    const struct plot_point points[] = {{0, 1000}, {1, 100}, {2, 10}, {3, 1}};
    plot_curve(points, 4, 20, 3, false, &out);
    /* Equal factors are equal heights: the line is straight. */
    ck_assert_str_eq((const char *)out.bytes, "      1000 |'**     \n     (log) |  ''**  \n"
                                              "         1 |     ''*\n            0      3\n");
    buf_done(&out);
}
END_TEST

START_TEST(odd_inputs_are_drawn_without_harm)
{
    struct buf out = BUF_NONE;
    const struct plot_point flat[] = {{1, 5}, {2, 5}, {3, (double)NAN}, {4, 5}};
    const struct plot_point nothing[] = {{1, (double)NAN}, {2, (double)INFINITY}};
    plot_curve(nothing, 2, 40, 8, true, &out);
    ck_assert_uint_eq(out.size, 0);
    plot_curve(flat, 4, 4, 8, true, &out); /* no room */
    ck_assert_uint_eq(out.size, 0);
    plot_curve(flat, 4, 10000, 10000, true, &out);
    ck_assert_uint_gt(out.size, 0);
    buf_clear(&out);
    plot_curve(flat, 1, 30, 4, true, &out);
    ck_assert_uint_gt(out.size, 0);
    buf_done(&out);
}
END_TEST

START_TEST(sparks_and_bars_have_the_heights_of_their_values)
{
    struct buf out = BUF_NONE;
    const double values[] = {8, 4, 2, 1, 1, (double)NAN};
    plot_spark(values, 6, true, &out);
    ck_assert_str_eq((const char *)out.bytes, "█▄▂▁▁█");
    buf_clear(&out);
    plot_spark(values, 5, false, &out);
    ck_assert_str_eq((const char *)out.bytes, "#~.__");
    buf_clear(&out);
    plot_bar(0.5, 4, false, &out);
    plot_bar(0.3125, 4, true, &out);
    plot_bar((double)NAN, 2, true, &out);
    plot_bar(7, 2, true, &out);
    ck_assert_str_eq((const char *)out.bytes, "[##  ][█▎  ][  ][██]");
    buf_done(&out);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("plot");
    TCase *tcase = tcase_create("plot");
    tcase_add_test(tcase, a_falling_line_falls_in_braille);
    tcase_add_test(tcase, a_steep_curve_is_drawn_by_its_logarithm);
    tcase_add_test(tcase, odd_inputs_are_drawn_without_harm);
    tcase_add_test(tcase, sparks_and_bars_have_the_heights_of_their_values);
    suite_add_tcase(suite, tcase);
    return suite;
}
