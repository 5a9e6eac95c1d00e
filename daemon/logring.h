/* The last log lines of this process, for `coppeliusctl logs`.
 *
 * Lines come from every thread that logs, so this one object has a lock, held for one copy of a
 * line. Memory is taken at start; the oldest lines give way. A reader follows by sequence numbers
 * and sees a gap where it was too slow. */
#ifndef COPPELIUS_DAEMON_LOGRING_H
#define COPPELIUS_DAEMON_LOGRING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"

struct log_ring_line {
    uint64_t sequence; /* from 1 */
    int64_t wall_ms;
    enum log_level level;
    char text[LOG_LINE_SIZE]; /* without the level's number, terminated */
};

struct log_ring {
    pthread_mutex_t lock;
    struct log_ring_line *lines; /* a line with sequence s is at (s - 1) % lines_max */
    size_t lines_max;
    uint64_t last; /* sequence of the newest; 0: none */
};

int log_ring_init(struct log_ring *ring, size_t lines_max, struct err *err);
void log_ring_done(struct log_ring *ring);

/* For log_set_sink(); context is the ring. Any thread. */
void log_ring_sink(void *context, enum log_level level, const char *line, size_t line_size);

/* Copies lines with a sequence above `after`, oldest first, that hold one of the needles as a whole
 * word
 * ("job=1" is not in "job=12"; no needles take all); returns how many. *ret_seen is the sequence up
 * to which was looked: the next call's `after`. */
size_t log_ring_read(struct log_ring *ring, uint64_t after, const char *const *needles,
                     size_t needles_count, struct log_ring_line *ret_lines, size_t lines_max,
                     uint64_t *ret_seen);
/* The sequence after which the last `lines` matching lines come; 0 lines: everything kept. */
uint64_t log_ring_before_last(struct log_ring *ring, size_t lines, const char *const *needles,
                              size_t needles_count);

#endif
