/* Log lines on stderr, one write a line: `<6>run.step run=iris step=40 loss=0.31`.
 *
 * The number is the journal's level; the event name is stable and what people grep for; the rest is
 * key=value. Any thread. A sink can be set (once, at start) that also receives each line: the
 * daemon keeps its last minutes there for `coppeliusctl logs`. */
#ifndef COPPELIUS_BASE_LOG_H
#define COPPELIUS_BASE_LOG_H

#include <stddef.h>

enum log_level {
    LOG_LEVEL_ERROR = 3,
    LOG_LEVEL_WARNING = 4,
    LOG_LEVEL_NOTICE = 5,
    LOG_LEVEL_INFO = 6,
    LOG_LEVEL_DEBUG = 7,
};

#define LOG_LINE_SIZE 1024 /* a longer line is cut */

typedef void log_sink_fn(void *context, enum log_level level, const char *line, size_t line_size);

/* Lines above the level are dropped; LOG_LEVEL_INFO at start. */
void log_set_level(enum log_level level);
/* Called for every line that passes the level, from the thread that logs; before threads start. */
void log_set_sink(log_sink_fn *sink, void *context);

void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(event, ...)   log_event(LOG_LEVEL_ERROR, event, __VA_ARGS__)
#define log_warning(event, ...) log_event(LOG_LEVEL_WARNING, event, __VA_ARGS__)
#define log_notice(event, ...)  log_event(LOG_LEVEL_NOTICE, event, __VA_ARGS__)
#define log_info(event, ...)    log_event(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_debug(event, ...)   log_event(LOG_LEVEL_DEBUG, event, __VA_ARGS__)

#endif
