#include "ctl/bar.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl/plot.h"
#include "ctl/table.h"
#include "ctl/terminal.h"

#define EVERY_MS    250
#define COLUMNS_MAX 30

void bar_show(struct bar *bar, const char *phase, double fraction, const char *text)
{
    uint64_t now = clock_now_ms();
    if (bar->began_ms == 0) {
        bar->began_ms = now;
        bar->shown_ms = now;
    }
    if (bar->quiet || now - bar->shown_ms < EVERY_MS || !terminal_is_tty(STDERR_FILENO)) {
        return;
    }
    int columns = 0;
    int lines = 0;
    char after[32];
    struct buf line = BUF_NONE;
    terminal_size(STDERR_FILENO, &columns, &lines);
    text_duration((double)(now - bar->began_ms) / 1000, after, sizeof(after));
    buf_print(&line, "%s ", phase);
    if (fraction >= 0 && columns >= 60) { /* Narrower ones get no bar: a line must not wrap. */
        plot_bar(fraction, COLUMNS_MAX, terminal_is_utf8(), &line);
        buf_print(&line, " %3.0f %% ", 100 * (fraction < 1 ? fraction : 1));
    }
    buf_print(&line, "%s after %s", text, after);
    (void)fprintf(stderr, "\r\033[K%s", (const char *)line.bytes);
    (void)fflush(stderr);
    buf_done(&line);
    bar->shown_ms = now;
    bar->open = true;
}

bool bar_progress(void *context, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
    char done[32];
    text_bytes((double)done_bytes, done, sizeof(done));
    bar_show(context, phase, total_bytes > 0 ? (double)done_bytes / (double)total_bytes : -1, done);
    return !terminal_interrupted();
}

void bar_end(struct bar *bar)
{
    if (bar->open) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
        bar->open = false;
    }
}
