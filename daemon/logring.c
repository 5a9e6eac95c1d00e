#include "daemon/logring.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

int log_ring_init(struct log_ring *ring, size_t lines_max, struct err *err)
{
    ASSERT(lines_max > 0);
    *ring = (struct log_ring){.lines_max = lines_max};
    ring->lines = calloc(lines_max, sizeof(*ring->lines));
    if (ring->lines == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu log lines", lines_max);
    }
    ASSERT(pthread_mutex_init(&ring->lock, NULL) == 0);
    return 0;
}

void log_ring_done(struct log_ring *ring)
{
    if (ring->lines != NULL) {
        (void)pthread_mutex_destroy(&ring->lock);
        free(ring->lines);
    }
    *ring = (struct log_ring){.lines = NULL};
}

void log_ring_sink(void *context, enum log_level level, const char *line, size_t line_size)
{
    struct log_ring *ring = context;
    if (line_size > 3 && line[0] == '<' && line[2] == '>') { /* The journal's level. */
        line += 3;
        line_size -= 3;
    }
    int64_t wall_ms = clock_wall_ms();
    ASSERT(pthread_mutex_lock(&ring->lock) == 0);
    struct log_ring_line *place = &ring->lines[ring->last % ring->lines_max];
    ring->last++;
    place->sequence = ring->last;
    place->wall_ms = wall_ms;
    place->level = level;
    size_t size = line_size < sizeof(place->text) ? line_size : sizeof(place->text) - 1;
    memcpy(place->text, line, size);
    place->text[size] = '\0';
    ASSERT(pthread_mutex_unlock(&ring->lock) == 0);
}

/* A needle counts as a whole word: "job=1" is not in "job=12". */
static bool holds(const char *text, const char *needle)
{
    size_t size = strlen(needle);
    for (const char *at = strstr(text, needle); at != NULL; at = strstr(at + 1, needle)) {
        bool begins = at == text || at[-1] == ' ';
        if (begins && (at[size] == '\0' || at[size] == ' ')) {
            return true;
        }
    }
    return false;
}

static bool matches(const char *text, const char *const *needles, size_t needles_count)
{
    for (size_t i = 0; i < needles_count; i++) {
        if (holds(text, needles[i])) {
            return true;
        }
    }
    return needles_count == 0;
}

static uint64_t oldest(const struct log_ring *ring)
{
    return ring->last > ring->lines_max ? ring->last - ring->lines_max + 1 : 1;
}

size_t log_ring_read(struct log_ring *ring, uint64_t after, const char *const *needles,
                     size_t needles_count, struct log_ring_line *ret_lines, size_t lines_max,
                     uint64_t *ret_seen)
{
    size_t count = 0;
    ASSERT(pthread_mutex_lock(&ring->lock) == 0);
    uint64_t sequence = after + 1 > oldest(ring) ? after + 1 : oldest(ring);
    for (; sequence <= ring->last && count < lines_max; sequence++) {
        const struct log_ring_line *line = &ring->lines[(sequence - 1) % ring->lines_max];
        ASSERT(line->sequence == sequence);
        if (matches(line->text, needles, needles_count)) {
            ret_lines[count++] = *line;
        }
    }
    *ret_seen = sequence - 1;
    ASSERT(pthread_mutex_unlock(&ring->lock) == 0);
    return count;
}

uint64_t log_ring_before_last(struct log_ring *ring, size_t lines, const char *const *needles,
                              size_t needles_count)
{
    ASSERT(pthread_mutex_lock(&ring->lock) == 0);
    uint64_t first = oldest(ring);
    uint64_t sequence = ring->last + 1;
    size_t count = 0;
    while (sequence > first && (lines == 0 || count < lines)) {
        sequence--;
        count +=
            matches(ring->lines[(sequence - 1) % ring->lines_max].text, needles, needles_count);
    }
    ASSERT(pthread_mutex_unlock(&ring->lock) == 0);
    return sequence - 1;
}
