#include "ctl/terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static volatile sig_atomic_t signals_seen;
static volatile sig_atomic_t screen_fd = -1;

static const char leave_sequence[] = "\033[?25h\033[?1049l";

void terminal_leave_screen(void)
{
    int fd = screen_fd;
    screen_fd = -1;
    if (fd >= 0) {
        ssize_t written = write(fd, leave_sequence, sizeof(leave_sequence) - 1);
        (void)written;
    }
}

static void on_signal(int number)
{
    if (signals_seen++ > 0) {
        terminal_leave_screen(); /* write() and _exit() may be called here. */
        _exit(128 + number);
    }
}

static void on_abort(int number)
{
    (void)number;
    terminal_leave_screen(); /* An assertion failed: abort() goes on behind this. */
}

void terminal_init(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* No SA_RESTART: waits must end. */
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
    (void)sigaction(SIGQUIT, &action, NULL);
    action.sa_handler = on_abort;
    (void)sigaction(SIGABRT, &action, NULL);
    (void)setlocale(LC_CTYPE, ""); /* Only the character set: numbers stay as C writes them. */
    (void)atexit(terminal_leave_screen);
}

bool terminal_interrupted(void)
{
    return signals_seen > 0;
}

static bool is_dumb(void)
{
    const char *term = getenv("TERM");
    return term == NULL || term[0] == '\0' || strcmp(term, "dumb") == 0;
}

bool terminal_is_tty(int fd)
{
    return isatty(fd) == 1 && !is_dumb();
}

bool terminal_has_color(int fd, bool refused)
{
    const char *no_color = getenv("NO_COLOR");
    return !refused && (no_color == NULL || no_color[0] == '\0') && terminal_is_tty(fd);
}

bool terminal_is_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void terminal_size(int fd, int *ret_columns, int *ret_lines)
{
    struct winsize size = {0};
    int got = ioctl(fd, TIOCGWINSZ, &size);
    *ret_columns = got == 0 && size.ws_col > 0 ? size.ws_col : 80;
    *ret_lines = got == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

void terminal_enter_screen(int fd)
{
    static const char enter_sequence[] = "\033[?1049h\033[?25l\033[H\033[2J";
    ssize_t written = write(fd, enter_sequence, sizeof(enter_sequence) - 1);
    (void)written;
    screen_fd = fd;
}

void terminal_say_lines(const char *text)
{
    size_t size = strlen(text);
    for (size_t i = 0; i < size; i++) {
        char byte = (unsigned char)text[i] < ' ' && text[i] != '\n' ? '?' : text[i];
        (void)fputc(byte, stderr);
    }
    if (size > 0 && text[size - 1] != '\n') {
        (void)fputc('\n', stderr);
    }
}
