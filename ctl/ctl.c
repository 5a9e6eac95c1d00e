#include "ctl/ctl.h"

#include <string.h>
#include <unistd.h>

#include "ctl/document.h"
#include "ctl/terminal.h"
#include "proto/frame.h"
#include "proto/job.h"

int run_help(struct ctl *ctl, struct problem *problem)
{
    struct buf out = BUF_NONE;
    const char *noun = ctl->args.words_count > 0 ? ctl->args.words[0] : NULL;
    const char *verb = ctl->args.words_count > 1 ? ctl->args.words[1] : NULL;
    bool found = false;
    int code = 0;
    if (noun == NULL) {
        help_overview(&out);
        found = true;
    }
    for (size_t i = 0; !found && verb != NULL && i < commands_count; i++) {
        if (strcmp(commands[i].noun, noun) == 0 && commands[i].verb != NULL &&
            strcmp(commands[i].verb, verb) == 0) {
            help_command(&commands[i], &out);
            found = true;
        }
    }
    if (!found && (verb != NULL || !help_noun(noun, &out))) {
        problem_hint(problem, "'coppeliusctl help' lists the commands");
        code = problem_set(problem, ERR_USAGE, "'%s%s%s' is not a command", noun,
                           verb != NULL ? " " : "", verb != NULL ? verb : "");
    } else {
        code = output_bytes(&out, problem);
    }
    buf_done(&out);
    return code;
}

int run_completion(struct ctl *ctl, struct problem *problem)
{
    struct buf out = BUF_NONE;
    int code = 0;
    if (strcmp(ctl->args.words[0], "bash") == 0) {
        (void)completion_bash(&out);
    } else if (strcmp(ctl->args.words[0], "zsh") == 0) {
        (void)completion_zsh(&out);
    } else {
        problem_hint(problem, "give bash or zsh");
        code = problem_set(problem, ERR_USAGE, "no completion for '%s'", ctl->args.words[0]);
    }
    if (code == 0) {
        code = output_bytes(&out, problem);
    }
    buf_done(&out);
    return code;
}

static void draw_version(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    buf_print(out, "coppeliusctl %s, protocol %lld, numerics %s\n",
              document_text(document, "version"), (long long)document_integer(document, "protocol"),
              json_string_value(json_array_get(document_list(document, "policies"), 0)));
    (void)ctl;
}

int run_version(struct ctl *ctl, struct problem *problem)
{
    json_t *document = json_pack("{s:i, s:s, s:i, s:[s]}", "schema", 1, "version", CTL_VERSION,
                                 "protocol", FRAME_PROTOCOL_VERSION, "policies", JOB_POLICY);
    int code = output_document(ctl, document, NULL, "version", draw_version, problem);
    json_decref(document);
    return code;
}

/* An error for a script that asked for JSON: on stdout, where it looks. */
static void print_error_document(const struct ctl *ctl, const struct problem *problem, int status)
{
    struct problem unused = {0};
    json_t *document =
        json_pack("{s:i, s:{s:s, s:s%, s:s, s:i}}", "schema", 1, "error", "code",
                  err_label(problem->err.code), "text", problem->err.text,
                  strlen(problem->err.text), "hint", problem->hint, "status", status);
    json_t *faults = json_array();
    const char *line = problem->faults.size > 0 ? (const char *)problem->faults.bytes : "";
    while (*line != '\0') {
        size_t size = strcspn(line, "\n");
        (void)json_array_append_new(faults, json_stringn(line, size));
        line += size + (line[size] == '\n' ? 1 : 0);
    }
    (void)json_object_set_new(json_object_get(document, "error"), "faults", faults);
    if (document != NULL) { /* NULL: a text that is no UTF-8; stderr has it. */
        (void)output_json(ctl, document, &unused);
        json_decref(document);
    }
}

static int finish(const struct ctl *ctl, int code, const struct problem *problem)
{
    int status = err_exit_status(code);
    if (code == 0 || problem->err.text[0] == '\0') {
        return status;
    }
    (void)fprintf(stderr, "coppeliusctl: ");
    terminal_say_lines(problem->err.text);
    if (problem->hint[0] != '\0') {
        (void)fprintf(stderr, "hint: ");
        terminal_say_lines(problem->hint);
    }
    bool job_ended = code == ERR_JOB_FAILED; /* Its document was printed. */
    if (!job_ended && !problem->printed && code != ERR_UNHEALTHY &&
        (ctl->args.output == OUTPUT_JSON || ctl->args.output == OUTPUT_JSONL)) {
        print_error_document(ctl, problem, status);
    }
    return status;
}

/* No command: help was asked for, or nothing was said. */
static int overview(const struct ctl *ctl, struct problem *problem)
{
    struct buf out = BUF_NONE;
    int code = 0;
    bool asked = ctl->args.value[FLAG_HELP] != NULL || ctl->args.about != NULL;
    if (ctl->args.about != NULL && !help_noun(ctl->args.about, &out)) {
        code = problem_set(problem, ERR_USAGE, "'%s' is not a command", ctl->args.about);
    } else if (ctl->args.about == NULL) {
        help_overview(&out);
    }
    if (code == 0 && asked) {
        code = output_bytes(&out, problem);
    } else if (code == 0) {
        (void)fwrite(out.bytes, 1, out.size, stderr);
        code = ERR_USAGE;
    }
    buf_done(&out);
    return code;
}

static int run_all(int argc, char **argv, struct problem *problem)
{
    struct ctl ctl = {0};
    terminal_init();
    int code = args_parse(argc, argv, &ctl.args, problem);
    if (code != 0) {
        for (int i = 1; i < argc; i++) { /* The flag could not be read in its place. */
            if (strcmp(argv[i], "--json") == 0) {
                ctl.args.output = OUTPUT_JSON;
            }
        }
        return finish(&ctl, code, problem);
    }
    ctl.quiet = ctl.args.value[FLAG_QUIET] != NULL;
    ctl.color = terminal_has_color(STDOUT_FILENO, ctl.args.value[FLAG_NO_COLOR] != NULL);
    if (ctl.args.command == NULL) {
        code = overview(&ctl, problem);
    } else if (ctl.args.value[FLAG_HELP] != NULL) {
        struct buf out = BUF_NONE;
        help_command(ctl.args.command, &out);
        code = output_bytes(&out, problem);
        buf_done(&out);
    } else {
        code = ctl.args.command->run(&ctl, problem);
    }
    return finish(&ctl, code, problem);
}

int ctl_main(int argc, char **argv)
{
    struct problem problem = {0};
    int status = run_all(argc, argv, &problem);
    problem_done(&problem);
    return status;
}
