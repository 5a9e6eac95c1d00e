#include <string.h>

#include "ctl/watch.h"
#include "tests/lib/unit.h"

static const char *frame(const char *drawn, int columns, int lines)
{
    static struct buf out;
    struct buf in = BUF_NONE;
    buf_put(&in, drawn, strlen(drawn));
    buf_clear(&out);
    watch_frame(&in, columns, lines, &out);
    buf_put_u8(&out, 0);
    buf_done(&in);
    return (const char *)out.bytes;
}

START_TEST(lines_are_cut_at_the_last_column_by_characters)
{
    ck_assert_str_eq(frame("abcdef\n\342\226\217\342\226\217x\n", 2, 9),
                     "\033[Hab\033[K\n\342\226\217\342\226\217\033[K\n\033[J");
}
END_TEST

START_TEST(colours_take_no_column_and_are_whole)
{
    ck_assert_str_eq(frame("a\033[32mbcd\033[0m", 2, 9), "\033[Ha\033[32mb\033[0m\033[J");
    ck_assert_str_eq(frame("a\033[32", 2, 9), "\033[Ha\033[32m\033[J");
}
END_TEST

START_TEST(nothing_scrolls)
{
    ck_assert_str_eq(frame("a\nb\nc\n", 9, 2), "\033[Ha\033[K\nb\033[J");
}
END_TEST

START_TEST(an_event_of_work_shows_how_far_reading_is)
{
    struct watch watch;
    struct buf line = BUF_NONE;
    watch_init(&watch);
    json_t *event =
        json_loads("{\"event\":\"progress\",\"name\":\"a\",\"state\":\"placed\",\"step\":0,"
                   "\"work\":\"reading\",\"work_done_bytes\":1048576,\"work_total_bytes\":4194304}",
                   0, NULL);
    watch_take(&watch, event);
    watch_line(&watch, &line);
    ck_assert_str_eq((const char *)line.bytes, "a: placed  step 0  reading 25 % of 4 MiB");
    buf_done(&line);
    json_decref(event);
    watch_done(&watch);
}
END_TEST

static void take(struct watch *watch, const char *text)
{
    json_t *event = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(event);
    watch_take(watch, event);
    json_decref(event);
}

START_TEST(what_is_read_is_of_the_state_it_was_said_in)
{
    struct watch watch;
    struct buf line = BUF_NONE;
    watch_init(&watch);
    take(&watch, "{\"event\":\"progress\",\"name\":\"a\",\"state\":\"loading\",\"step\":0,"
                 "\"work\":\"digest\",\"work_done_bytes\":1048576,\"work_total_bytes\":1048576}");
    take(&watch, "{\"event\":\"state\",\"name\":\"a\",\"state\":\"running\",\"step\":72}");
    watch_line(&watch, &line);
    ck_assert_str_eq((const char *)line.bytes, "a: running  step 72");
    buf_done(&line);
    watch_done(&watch);
}
END_TEST

START_TEST(a_line_has_the_loss_of_its_own_step_or_none)
{
    struct watch watch;
    struct buf line = BUF_NONE;
    watch_init(&watch);
    take(&watch, "{\"event\":\"progress\",\"name\":\"a\",\"state\":\"running\",\"step\":299,"
                 "\"steps\":300,\"loss\":38.4465}");
    take(&watch, "{\"event\":\"state\",\"name\":\"a\",\"state\":\"succeeded\",\"step\":300,"
                 "\"steps\":300}");
    watch_line(&watch, &line);
    ck_assert_str_eq((const char *)line.bytes, "a: succeeded  step 300/300 100 %");
    buf_clear(&line);
    take(&watch, "{\"event\":\"state\",\"name\":\"a\",\"state\":\"succeeded\",\"step\":300,"
                 "\"steps\":300,\"loss\":38.4456}");
    watch_line(&watch, &line);
    ck_assert_str_eq((const char *)line.bytes, "a: succeeded  step 300/300 100 %  loss 38.4456");
    buf_done(&line);
    watch_done(&watch);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("watch");
    TCase *tests = tcase_create("frame");
    tcase_add_test(tests, lines_are_cut_at_the_last_column_by_characters);
    tcase_add_test(tests, colours_take_no_column_and_are_whole);
    tcase_add_test(tests, nothing_scrolls);
    tcase_add_test(tests, an_event_of_work_shows_how_far_reading_is);
    tcase_add_test(tests, a_line_has_the_loss_of_its_own_step_or_none);
    tcase_add_test(tests, what_is_read_is_of_the_state_it_was_said_in);
    suite_add_tcase(suite, tests);
    return suite;
}
