/* One line on standard error that fills while something takes its time. Nothing is shown where
 * standard error is no terminal, or with --quiet, or within the first quarter of a second. */
#ifndef COPPELIUS_CTL_BAR_H
#define COPPELIUS_CTL_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct bar {
    bool quiet;
    uint64_t began_ms; /* 0: not yet */
    uint64_t shown_ms;
    bool open; /* the line is there, without a line feed */
};

/* A data_progress_fn (context: the bar) that asks to stop once a signal came. total 0: not known.
 */
bool bar_progress(void *context, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
/* The same for what is not counted in bytes: the text stands behind the bar. A fraction below 0 is
 * not known: no bar then. */
void bar_show(struct bar *bar, const char *phase, double fraction, const char *text);
/* Takes the line away; twice is fine. */
void bar_end(struct bar *bar);

#endif
