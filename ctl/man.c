/* Prints coppeliusctl(1) from the table that parsing and --help come from. Run by the build. */
#include <stdio.h>
#include <stdlib.h>

#include "base/roff.h"
#include "ctl/client.h"
#include "ctl/command.h"

static void put_flag(enum flag flag, struct buf *out)
{
    char left[HELP_LEFT_SIZE];
    const char *text = help_flag(flag, left);
    roff_item(out, left, text);
}

static void put_command(const struct ctl_command *command, struct buf *out)
{
    struct buf title = BUF_NONE;
    help_usage(command, &title);
    roff_subsection(out, (const char *)title.bytes);
    buf_done(&title);
    roff_text(out, command->about);
    if (command->alias != NULL) {
        buf_print(&title, "Short: coppeliusctl %s", command->alias);
        roff_text(out, (const char *)title.bytes);
        buf_done(&title);
    }
    if (command->details != NULL) {
        roff_text(out, command->details);
    }
    for (size_t i = 0; command->flags[i] != FLAG_END; i++) {
        put_flag(command->flags[i], out);
    }
    if (command->examples != NULL) {
        roff_lines(out, command->examples);
    }
}

int main(void)
{
    struct buf out = BUF_NONE;
    roff_begin(&out, "coppeliusctl", 1, CTL_VERSION, "submit jobs to coppeliusd and look at them");
    roff_section(&out, "SYNOPSIS");
    roff_text(&out, "coppeliusctl [global flags] COMMAND");
    roff_section(&out, "GLOBAL FLAGS");
    for (const enum flag *flag = flags_global; *flag != FLAG_END; flag++) {
        put_flag(*flag, &out);
    }
    roff_section(&out, "COMMANDS");
    for (size_t i = 0; i < commands_count; i++) {
        put_command(&commands[i], &out);
    }
    roff_section(&out, "EXIT STATUS");
    roff_text(&out, help_exits);
    roff_section(&out, "ENVIRONMENT");
    roff_item(&out, CLIENT_ENDPOINT_ENV,
              "the daemon, where --endpoint is not given; else " CLIENT_ENDPOINT_DEFAULT);
    roff_item(&out, CLIENT_IDENTITY_ENV,
              "the folder of certificates, where --identity is not given");
    roff_item(&out, "COPPELIUSD", "the daemon's program, for what starts a throw-away one");
    roff_section(&out, "SEE ALSO");
    roff_text(&out, "coppeliusd(8)");
    bool good = fwrite(out.bytes, 1, out.size, stdout) == out.size && fflush(stdout) == 0;
    buf_done(&out);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
