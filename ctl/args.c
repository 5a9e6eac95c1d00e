#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ctl/command.h"
#include "ctl/terminal.h"
#include "proto/yaml.h"

#define NAMES_MAX 128

int problem_set(struct problem *problem, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(problem->err.text, sizeof(problem->err.text), format, arguments);
    va_end(arguments);
    problem->err.code = code;
    return code;
}

void problem_hint(struct problem *problem, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(problem->hint, sizeof(problem->hint), format, arguments);
    va_end(arguments);
}

void problem_faults(struct problem *problem, const char *lines)
{
    terminal_say_lines(lines);
    buf_print(&problem->faults, "%s%s", lines,
              lines[0] != '\0' && lines[strlen(lines) - 1] == '\n' ? "" : "\n");
}

void problem_done(struct problem *problem)
{
    buf_done(&problem->faults);
}

static const struct ctl_command *find(const char *first, const char *second, int *ret_words)
{
    for (size_t i = 0; i < commands_count; i++) {
        const struct ctl_command *command = &commands[i];
        if (command->alias != NULL && strcmp(command->alias, first) == 0) {
            *ret_words = 1;
            return command;
        }
        if (strcmp(command->noun, first) != 0) {
            continue;
        }
        if (command->verb == NULL) {
            *ret_words = 1;
            return command;
        }
        if (second != NULL && strcmp(command->verb, second) == 0) {
            *ret_words = 2;
            return command;
        }
    }
    return NULL;
}

static bool is_noun(const char *word)
{
    for (size_t i = 0; i < commands_count; i++) {
        if (strcmp(commands[i].noun, word) == 0) {
            return true;
        }
    }
    return false;
}

/* No command has these words: say which one was meant, or which verbs there are. */
static int unknown(const char *first, const char *second, struct problem *problem)
{
    const char *names[NAMES_MAX];
    size_t count = 0;
    bool noun = is_noun(first);
    for (size_t i = 0; i < commands_count && count + 2 < NAMES_MAX; i++) {
        if (noun && strcmp(commands[i].noun, first) == 0) {
            names[count++] = commands[i].verb;
        } else if (!noun) {
            names[count++] = commands[i].noun;
            if (commands[i].alias != NULL) {
                names[count++] = commands[i].alias;
            }
        }
    }
    if (noun) {
        char list[256] = "";
        for (size_t i = 0; i < count; i++) {
            size_t used = strlen(list);
            (void)snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", names[i]);
        }
        const char *near = second != NULL ? yaml_nearest(second, names, count) : NULL;
        problem_hint(problem, near != NULL ? "did you mean 'coppeliusctl %s %s'?" : "%s has: %s",
                     first, near != NULL ? near : list);
        return second == NULL
                   ? problem_set(problem, ERR_USAGE, "'%s' needs a verb", first)
                   : problem_set(problem, ERR_USAGE, "'%s %s' is not a command", first, second);
    }
    const char *near = yaml_nearest(first, names, count);
    if (near != NULL) {
        problem_hint(problem, "did you mean 'coppeliusctl %s'?", near);
    } else {
        problem_hint(problem, "'coppeliusctl help' lists the commands");
    }
    return problem_set(problem, ERR_USAGE, "'%s' is not a command", first);
}

/* The flags that may be given: global ones, and the command's. */
static size_t collect(const struct ctl_command *command, enum flag *list)
{
    size_t count = 0;
    for (const enum flag *flag = flags_global; *flag != FLAG_END; flag++) {
        list[count++] = *flag;
    }
    for (size_t i = 0; command != NULL && command->flags[i] != FLAG_END; i++) {
        list[count++] = command->flags[i];
    }
    return count;
}

static int wrong_flag(const enum flag *list, size_t count, const char *given, int why,
                      struct problem *problem)
{
    const char *names[NAMES_MAX];
    for (size_t i = 0; i < count; i++) {
        names[i] = flags_about[list[i]].name;
    }
    if (why == ':') {
        problem_hint(problem, "give it as in '%s VALUE'", given);
        return problem_set(problem, ERR_USAGE, "%s needs a value", given);
    }
    const char *near = strncmp(given, "--", 2) == 0 ? yaml_nearest(given + 2, names, count) : NULL;
    if (near != NULL) {
        problem_hint(problem, "did you mean --%s?", near);
    } else {
        problem_hint(problem, "add --help to see the flags");
    }
    return problem_set(problem, ERR_USAGE, "%s is not a flag here", given);
}

static int take(struct args *args, enum flag flag, const char *value, struct problem *problem)
{
    static const char *const outputs[] = {"table", "wide", "json", "jsonl", "name"};
    const char *text = value != NULL ? value : "";
    if (flag == FLAG_SET) {
        if (args->sets_count == ARGS_SETS_MAX) {
            return problem_set(problem, ERR_USAGE, "--set is given more than %d times",
                               ARGS_SETS_MAX);
        }
        args->sets[args->sets_count++] = text;
    } else if (flag == FLAG_JSON) {
        args->output = OUTPUT_JSON;
    } else if (flag == FLAG_OUTPUT_AS) {
        for (size_t i = 0; i < 5; i++) {
            if (strcmp(text, outputs[i]) == 0) {
                args->output = (enum output)i;
                args->value[flag] = text;
                return 0;
            }
        }
        problem_hint(problem, "give table, wide, json, jsonl or name; files go by --output");
        return problem_set(problem, ERR_USAGE, "-o %s is not a form of output", text);
    } else if (flag == FLAG_TIMEOUT) {
        uint64_t ms = 0;
        static const struct yaml_key key = {.name = "t", .type = YAML_DURATION, .offset = 0};
        static const struct yaml_schema schema = {&key, 1, sizeof(uint64_t)};
        struct yaml_override override = {"--timeout", "t", text};
        struct yaml_input input = {.text = "",
                                   .size = 0,
                                   .file_name = "--timeout",
                                   .overrides = &override,
                                   .overrides_count = 1};
        struct faults faults = FAULTS_NONE;
        int code = yaml_read(&schema, &input, &ms, NULL, &faults);
        faults_done(&faults);
        if (code != 0) {
            problem_hint(problem, "give it as 500ms, 10s or 10min");
            return problem_set(problem, ERR_USAGE, "--timeout %s is not a duration", text);
        }
        args->timeout_ms = ms;
    }
    args->value[flag] = text;
    return 0;
}

/* One getopt pass over argv. in_order: stop at the first word (the command's name). */
static int pass(int argc, char **argv, bool in_order, struct args *args, int *ret_rest,
                struct problem *problem)
{
    enum flag list[NAMES_MAX];
    struct option options[NAMES_MAX + 1] = {0};
    size_t count = collect(args->command, list);
    for (size_t i = 0; i < count; i++) {
        const struct flag_about *about = &flags_about[list[i]];
        options[i].name = about->name;
        options[i].has_arg = about->value != NULL ? required_argument : no_argument;
        options[i].val = 256 + (int)list[i];
    }
    opterr = 0;
    optind = 0; /* glibc: begin anew */
    for (;;) {
        int at = optind > 0 ? optind : 1;
        int got = getopt_long(argc, argv, in_order ? "+:o:qhf" : ":o:qhf", options, NULL);
        enum flag flag = got >= 256   ? (enum flag)(got - 256)
                         : got == 'o' ? FLAG_OUTPUT_AS
                         : got == 'q' ? FLAG_QUIET
                         : got == 'f' ? FLAG_FOLLOW
                                      : FLAG_HELP;
        if (got == -1) {
            break;
        }
        if (got == '?' || got == ':') {
            const char *given = argv[optind > at ? optind - 1 : at];
            return wrong_flag(list, count, given, got, problem);
        }
        int code = take(args, flag, optarg, problem);
        if (code != 0) {
            return code;
        }
    }
    *ret_rest = optind;
    return 0;
}

int args_parse(int argc, char **argv, struct args *ret_args, struct problem *problem)
{
    struct args args = {.timeout_ms = UINT64_MAX};
    int rest = 0;
    int words = 0;
    int code = pass(argc, argv, true, &args, &rest, problem);
    if (code != 0) {
        return code;
    }
    if (rest >= argc) { /* flags alone: the overview, asked for or not */
        *ret_args = args;
        return 0;
    }
    const char *second = rest + 1 < argc ? argv[rest + 1] : NULL;
    args.command = find(argv[rest], second, &words);
    if (args.command == NULL) {
        bool asks = second != NULL && strcmp(second, "--help") == 0;
        if (asks || (args.value[FLAG_HELP] != NULL && second == NULL)) {
            args.about = argv[rest];
            *ret_args = args;
            return 0;
        }
        return unknown(argv[rest], second != NULL && second[0] != '-' ? second : NULL, problem);
    }
    int base = rest + words - 1; /* its place is argv[0] of the second pass */
    code = pass(argc - base, argv + base, false, &args, &rest, problem);
    if (code != 0) {
        return code;
    }
    args.words = argv + base + rest;
    args.words_count = argc - base - rest;
    const struct ctl_command *command = args.command;
    if (args.value[FLAG_HELP] == NULL &&
        (args.words_count < command->words_least || args.words_count > command->words_most)) {
        problem_hint(problem, "usage: coppeliusctl %s%s%s [flags] %s", command->noun,
                     command->verb != NULL ? " " : "", command->verb != NULL ? command->verb : "",
                     command->words);
        if (args.words_count > command->words_most) {
            return problem_set(problem, ERR_USAGE, "'%s' is one word too many",
                               args.words[command->words_most]);
        }
        return problem_set(problem, ERR_USAGE, "%s is missing", command->words);
    }
    *ret_args = args;
    return 0;
}
