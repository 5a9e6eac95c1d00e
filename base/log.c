#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int level_most = LOG_LEVEL_INFO;
static log_sink_fn *sink_function;
static void *sink_context;

void log_set_level(enum log_level level)
{
    atomic_store(&level_most, (int)level);
}

void log_set_sink(log_sink_fn *sink, void *context)
{
    sink_function = sink;
    sink_context = context;
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    if ((int)level > atomic_load(&level_most)) {
        return;
    }
    char line[LOG_LINE_SIZE];
    int head = snprintf(line, sizeof(line) - 1, "<%d>%s ", (int)level, event);
    size_t size = head < 0 ? 0 : (size_t)head;
    if (size > sizeof(line) - 2) {
        size = sizeof(line) - 2;
    }
    va_list arguments;
    va_start(arguments, format);
    int body = vsnprintf(line + size, sizeof(line) - 1 - size, format, arguments);
    va_end(arguments);
    if (body > 0) {
        size_t wanted = size + (size_t)body;
        size = wanted < sizeof(line) - 2 ? wanted : sizeof(line) - 2;
    }
    for (size_t i = 0; i < size; i++) {
        if (line[i] == '\n' || line[i] == '\r') {
            line[i] = ' '; /* A hostile name must not forge a line of its own. */
        }
    }
    line[size++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, size);
    (void)written; /* Nobody is left to be told. */
    if (sink_function != NULL) {
        sink_function(sink_context, level, line, size - 1);
    }
}
