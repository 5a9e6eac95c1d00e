/* The terminal and the signals of a command-line program.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGQUIT set a flag that every wait looks at, so that each path out is
 * an ordinary return that restores the screen and stops what was started. A second one ends the
 * process at once, screen restored; so does a failed assertion. */
#ifndef COPPELIUS_CTL_TERMINAL_H
#define COPPELIUS_CTL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Once, first. */
void terminal_init(void);
bool terminal_interrupted(void);

/* Whether the stream is a terminal that understands cursor movements. */
bool terminal_is_tty(int fd);
/* Colours: a TTY, not TERM=dumb, NO_COLOR empty, and not refused by a flag. */
bool terminal_has_color(int fd, bool refused);
/* Whether block and braille characters may be written (the locale's character set is UTF-8). */
bool terminal_is_utf8(void);
/* Columns and lines; 80 and 24 where unknown. Follows SIGWINCH by asking each time. */
void terminal_size(int fd, int *ret_columns, int *ret_lines);

/* The alternate screen with a hidden cursor, on fd; leave restores what there was, and is called by
 * atexit and by the second signal too. */
void terminal_enter_screen(int fd);
void terminal_leave_screen(void);

/* stderr: lines as they are, each a line of its own; control characters become '?'. */
void terminal_say_lines(const char *text);

#endif
