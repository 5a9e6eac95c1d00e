#include <string.h>

#include "ctl/command.h"

const char help_exits[] =
    "0 done, 1 failed, 2 usage or refused input, 3 not healthy, 4 no such\n"
    "object, 5 cannot reach or authenticate, 6 the job failed, 7 damaged, 124 timed out,\n"
    "130 interrupted.";

void help_usage(const struct ctl_command *command, struct buf *out)
{
    buf_print(out, "coppeliusctl %s%s%s%s%s%s", command->noun, command->verb != NULL ? " " : "",
              command->verb != NULL ? command->verb : "",
              command->flags[0] != FLAG_END ? " [flags]" : "", command->words[0] != '\0' ? " " : "",
              command->words);
}

const char *help_flag(enum flag flag, char left[HELP_LEFT_SIZE])
{
    const struct flag_about *about = &flags_about[flag];
    if (flag == FLAG_OUTPUT_AS) {
        (void)snprintf(left, HELP_LEFT_SIZE, "-o FORM");
    } else if (flag == FLAG_QUIET || flag == FLAG_HELP || flag == FLAG_FOLLOW) {
        (void)snprintf(left, HELP_LEFT_SIZE, "-%c, --%s", about->name[0], about->name);
    } else {
        (void)snprintf(left, HELP_LEFT_SIZE, "--%s%s%s", about->name,
                       about->value != NULL ? " " : "", about->value != NULL ? about->value : "");
    }
    const char *text = about->about;
    if (text[0] == '-' && strchr(text, ':') != NULL) {
        text = strchr(text, ':') + 2; /* "-q: nothing but …" */
    }
    return text;
}

static void flag_line(enum flag flag, struct buf *out)
{
    char left[HELP_LEFT_SIZE];
    const char *text = help_flag(flag, left);
    buf_print(out, "  %-26s %s\n", left, text);
}

void help_command(const struct ctl_command *command, struct buf *out)
{
    buf_print(out, "%s\n\nUsage: ", command->about);
    help_usage(command, out);
    buf_print(out, "\n");
    if (command->alias != NULL) {
        buf_print(out, "Short: coppeliusctl %s\n", command->alias);
    }
    if (command->details != NULL) {
        buf_print(out, "\n%s\n", command->details);
    }
    if (command->flags[0] != FLAG_END) {
        buf_print(out, "\nFlags:\n");
        for (size_t i = 0; command->flags[i] != FLAG_END; i++) {
            flag_line(command->flags[i], out);
        }
    }
    buf_print(out, "\nGlobal flags:\n");
    for (const enum flag *flag = flags_global; *flag != FLAG_END; flag++) {
        flag_line(*flag, out);
    }
    if (command->examples != NULL) {
        buf_print(out, "\nExamples:\n");
        for (const char *at = command->examples; *at != '\0';) {
            size_t size = strcspn(at, "\n");
            buf_print(out, "  %.*s\n", (int)size, at);
            at += size + (at[size] == '\n' ? 1 : 0);
        }
    }
}

static void list_line(const struct ctl_command *command, struct buf *out)
{
    char left[64];
    (void)snprintf(left, sizeof(left), "%s%s%s %s", command->noun, command->verb != NULL ? " " : "",
                   command->verb != NULL ? command->verb : "", command->words);
    buf_print(out, "  %-26s %s%s%s%s\n", left, command->about,
              command->alias != NULL ? "  (short: " : "",
              command->alias != NULL ? command->alias : "", command->alias != NULL ? ")" : "");
}

bool help_noun(const char *noun, struct buf *out)
{
    bool any = false;
    for (size_t i = 0; i < commands_count; i++) {
        if (strcmp(commands[i].noun, noun) == 0 ||
            (commands[i].alias != NULL && strcmp(commands[i].alias, noun) == 0)) {
            any = true;
            if (commands[i].verb == NULL || strcmp(commands[i].noun, noun) != 0) {
                help_command(&commands[i], out);
            } else {
                list_line(&commands[i], out);
            }
        }
    }
    return any;
}

void help_overview(struct buf *out)
{
    buf_print(out, "coppeliusctl: submit jobs to coppeliusd and look at them\n\n"
                   "Usage: coppeliusctl [global flags] COMMAND\n\nCommands:\n");
    for (size_t i = 0; i < commands_count; i++) {
        list_line(&commands[i], out);
    }
    buf_print(out, "\nGlobal flags:\n");
    for (const enum flag *flag = flags_global; *flag != FLAG_END; flag++) {
        flag_line(*flag, out);
    }
    buf_print(out, "\nExit status: %s 'coppeliusctl help COMMAND' has flags and examples.\n",
              help_exits);
}

/* Whether the noun (or alias) of command i was printed before. */
static bool seen_before(size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (strcmp(commands[j].noun, commands[i].noun) == 0) {
            return true;
        }
    }
    return false;
}

static void words_of_all(struct buf *out)
{
    for (size_t i = 0; i < commands_count; i++) {
        if (!seen_before(i)) {
            buf_print(out, "%s ", commands[i].noun);
        }
        if (commands[i].alias != NULL) {
            buf_print(out, "%s ", commands[i].alias);
        }
    }
}

static void verbs_of(const char *noun, struct buf *out)
{
    for (size_t i = 0; i < commands_count; i++) {
        if (strcmp(commands[i].noun, noun) == 0 && commands[i].verb != NULL) {
            buf_print(out, "%s ", commands[i].verb);
        }
    }
}

static void flags_of(const struct ctl_command *command, struct buf *out)
{
    for (size_t i = 0; command->flags[i] != FLAG_END; i++) {
        buf_print(out, "--%s ", flags_about[command->flags[i]].name);
    }
}

int completion_bash(struct buf *out)
{
    buf_print(out, "# bash completion for coppeliusctl; printed from its command table.\n"
                   "_coppeliusctl()\n{\n"
                   "    local cur=${COMP_WORDS[COMP_CWORD]} noun='' verb='' flags i\n"
                   "    COMPREPLY=()\n"
                   "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                   "        case ${COMP_WORDS[i]} in\n"
                   "            --endpoint | --timeout | -o) ((i++)) ;;\n"
                   "            -*) ;;\n"
                   "            *) if [[ -z $noun ]]; then noun=${COMP_WORDS[i]}; "
                   "elif [[ -z $verb ]]; then verb=${COMP_WORDS[i]}; fi ;;\n"
                   "        esac\n    done\n"
                   "    flags='");
    for (const enum flag *flag = flags_global; *flag != FLAG_END; flag++) {
        if (*flag != FLAG_OUTPUT_AS) {
            buf_print(out, "--%s ", flags_about[*flag].name);
        }
    }
    buf_print(out, "-o'\n    if [[ -z $noun && $cur != -* ]]; then\n"
                   "        COMPREPLY=($(compgen -W '");
    words_of_all(out);
    buf_print(out, "' -- \"$cur\"))\n        return\n    fi\n    case \"$noun $verb\" in\n");
    for (size_t i = 0; i < commands_count; i++) {
        const struct ctl_command *command = &commands[i];
        buf_print(out, "        '%s %s'*", command->noun,
                  command->verb != NULL ? command->verb : "");
        if (command->alias != NULL) {
            buf_print(out, " | '%s '*", command->alias);
        }
        buf_print(out, ") flags+=' ");
        flags_of(command, out);
        buf_print(out, "' ;;\n");
    }
    buf_print(out, "    esac\n    case $noun in\n");
    for (size_t i = 0; i < commands_count; i++) {
        if (commands[i].verb != NULL && !seen_before(i)) {
            buf_print(out, "        %s) [[ -z $verb && $cur != -* ]] && COMPREPLY=($(compgen -W '",
                      commands[i].noun);
            verbs_of(commands[i].noun, out);
            buf_print(out, "' -- \"$cur\")) && return ;;\n");
        }
    }
    buf_print(out,
              "    esac\n    if [[ $cur == -* ]]; then\n"
              "        COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
              "    elif [[ \"$noun $verb\" =~ ^(job|watch|logs|show|wait) ]]; then\n"
              "        COMPREPLY=($(compgen -W \"$(coppeliusctl job list -o name --timeout 300ms "
              "2>/dev/null)\" -- \"$cur\"))\n"
              "    fi\n"
              "    [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- \"$cur\"))\n}\n"
              "complete -o filenames -F _coppeliusctl coppeliusctl\n");
    return 0;
}

int completion_zsh(struct buf *out)
{
    buf_print(out, "#compdef coppeliusctl\n# zsh completion; printed from the command table.\n"
                   "_coppeliusctl() {\n    local -a words_all\n    words_all=(\n");
    for (size_t i = 0; i < commands_count; i++) {
        if (!seen_before(i)) {
            buf_print(out, "        '%s:%s'\n", commands[i].noun,
                      commands[i].verb == NULL ? commands[i].about : "more verbs");
        }
        if (commands[i].alias != NULL) {
            buf_print(out, "        '%s:%s'\n", commands[i].alias, commands[i].about);
        }
    }
    buf_print(out, "    )\n    if (( CURRENT == 2 )); then\n"
                   "        _describe command words_all\n        return\n    fi\n"
                   "    case $words[2] in\n");
    for (size_t i = 0; i < commands_count; i++) {
        if (commands[i].verb != NULL && !seen_before(i)) {
            buf_print(out, "        %s) if (( CURRENT == 3 )); then compadd ", commands[i].noun);
            verbs_of(commands[i].noun, out);
            buf_print(out, "; return; fi ;;\n");
        }
    }
    buf_print(out, "    esac\n    case \"$words[2] $words[3]\" in\n");
    for (size_t i = 0; i < commands_count; i++) {
        const struct ctl_command *command = &commands[i];
        if (command->flags[0] == FLAG_END) {
            continue;
        }
        buf_print(out, "        '%s %s'*", command->noun,
                  command->verb != NULL ? command->verb : "");
        if (command->alias != NULL) {
            buf_print(out, "|'%s '*", command->alias);
        }
        buf_print(out, ") [[ $PREFIX == -* ]] && compadd -- ");
        flags_of(command, out);
        buf_print(out, ";;\n");
    }
    buf_print(out, "    esac\n    _files\n}\n_coppeliusctl \"$@\"\n");
    return 0;
}
