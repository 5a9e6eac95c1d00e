#include <stdlib.h>
#include <string.h>

#include "ctl/command.h"
#include "tests/lib/unit.h"

static struct args args;
static struct problem problem;
static char *argv[16];
static char line_copy[512];

static int parse(const char *line)
{
    int argc = 1;
    char *rest = NULL;
    static char name[] = "coppeliusctl";
    (void)snprintf(line_copy, sizeof(line_copy), "%s", line);
    argv[0] = name;
    for (char *word = strtok_r(line_copy, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    memset(&problem, 0, sizeof(problem));
    return args_parse(argc, argv, &args, &problem);
}

static void expect_refused(const char *line, const char *text, const char *hint)
{
    ck_assert_int_eq(parse(line), ERR_USAGE);
    ck_assert_str_eq(problem.err.text, text);
    ck_assert_str_eq(problem.hint, hint);
}

START_TEST(nouns_and_short_forms_are_the_same_command)
{
    ck_assert_int_eq(parse("job submit a.yaml"), 0);
    const struct ctl_command *command = args.command;
    ck_assert_int_eq(parse("submit a.yaml"), 0);
    ck_assert_ptr_eq(args.command, command);
    ck_assert_str_eq(args.words[0], "a.yaml");
    ck_assert_int_eq(parse("nodes"), 0);
    ck_assert_str_eq(args.command->noun, "node");
}
END_TEST

START_TEST(flags_stand_before_and_behind_the_command)
{
    ck_assert_int_eq(parse("--endpoint unix:/s -q job show iris --json --timeout 1min30s"), 0);
    ck_assert_str_eq(args.value[FLAG_ENDPOINT], "unix:/s");
    ck_assert_ptr_nonnull(args.value[FLAG_QUIET]);
    ck_assert_int_eq(args.output, OUTPUT_JSON);
    ck_assert_uint_eq(args.timeout_ms, 90000);
    ck_assert_int_eq(args.words_count, 1);
    ck_assert_int_eq(parse("local a.yaml --nodes 3 --set a=1 --set b=2 -o wide"), 0);
    ck_assert_str_eq(args.value[FLAG_NODES], "3");
    ck_assert_uint_eq(args.sets_count, 2);
    ck_assert_str_eq(args.sets[1], "b=2");
    ck_assert_int_eq(args.output, OUTPUT_WIDE);
    ck_assert_str_eq(args.words[0], "a.yaml");
}
END_TEST

START_TEST(what_is_misspelt_gets_a_suggestion)
{
    expect_refused("jbos", "'jbos' is not a command", "did you mean 'coppeliusctl jobs'?");
    expect_refused("job shwo", "'job shwo' is not a command",
                   "did you mean 'coppeliusctl job show'?");
    expect_refused("job", "'job' needs a verb",
                   "job has: submit, list, show, watch, wait, logs, pause, resume, cancel");
    expect_refused("xyzzy", "'xyzzy' is not a command", "'coppeliusctl help' lists the commands");
    expect_refused("jobs --jsn", "--jsn is not a flag here", "did you mean --json?");
    expect_refused("jobs --nodes 3", "--nodes is not a flag here", "add --help to see the flags");
    expect_refused("jobs --endpoint", "--endpoint needs a value",
                   "give it as in '--endpoint VALUE'");
    expect_refused("jobs -o xml", "-o xml is not a form of output",
                   "give table, wide, json, jsonl or name; files go by --output");
    expect_refused("jobs --timeout soon", "--timeout soon is not a duration",
                   "give it as 500ms, 10s or 10min");
    expect_refused("submit", "JOB.yaml is missing",
                   "usage: coppeliusctl job submit [flags] JOB.yaml");
    expect_refused("jobs a", "'a' is one word too many", "usage: coppeliusctl job list [flags] ");
}
END_TEST

START_TEST(every_command_has_help_with_examples_and_completion)
{
    struct buf bash = BUF_NONE;
    struct buf zsh = BUF_NONE;
    (void)completion_bash(&bash);
    (void)completion_zsh(&zsh);
    for (size_t i = 0; i < commands_count; i++) {
        struct buf help = BUF_NONE;
        help_command(&commands[i], &help);
        ck_assert_ptr_nonnull(strstr((const char *)help.bytes, "Usage: coppeliusctl "));
        ck_assert_ptr_nonnull(strstr((const char *)help.bytes, "Examples:"));
        ck_assert_ptr_nonnull(strstr((const char *)bash.bytes, commands[i].noun));
        ck_assert_ptr_nonnull(strstr((const char *)zsh.bytes, commands[i].noun));
        buf_done(&help);
    }
    buf_done(&bash);
    buf_done(&zsh);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("args");
    TCase *tcase = tcase_create("args");
    tcase_add_test(tcase, nouns_and_short_forms_are_the_same_command);
    tcase_add_test(tcase, flags_stand_before_and_behind_the_command);
    tcase_add_test(tcase, what_is_misspelt_gets_a_suggestion);
    tcase_add_test(tcase, every_command_has_help_with_examples_and_completion);
    suite_add_tcase(suite, tcase);
    return suite;
}
