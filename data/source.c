#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "data/unpack.h"

#define WINDOW_SIZE  (1U << 20)
#define READ_SIZE    (256U << 10)
#define METER_STRIDE (4U << 20)

void meter_start(struct meter *meter, const struct data_progress *progress, const char *phase,
                 uint64_t total)
{
    *meter = (struct meter){.progress = progress, .phase = phase, .total = total};
}

int meter_add(struct meter *meter, uint64_t bytes, struct err *err)
{
    meter->done += bytes;
    if (meter->progress == NULL || meter->progress->on_progress == NULL) {
        return 0;
    }
    if (meter->done - meter->told < METER_STRIDE && meter->done < meter->total) {
        return 0;
    }
    meter->told = meter->done;
    uint64_t shown = meter->done < meter->total ? meter->done : meter->total;
    if (!meter->progress->on_progress(meter->progress->context, meter->phase, shown,
                                      meter->total)) {
        return err_set(err, ERR_CANCELED, "stopped while %s", meter->phase);
    }
    return 0;
}

int source_open(struct source *source, const char *path, struct meter *meter, struct err *err)
{
    struct source made = SOURCE_NONE;
    made.path = path;
    made.meter = meter;
    made.line = 0;
    made.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (made.fd < 0) {
        int code = errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK;
        return err_set(err, code, "%s: %s", path, err_errno(errno));
    }
    int code = 0;
    struct stat status;
    if (fstat(made.fd, &status) != 0) {
        code = err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
    } else if (!S_ISREG(status.st_mode)) {
        code = err_set(err, ERR_DATA, "%s: is not a regular file%s", path,
                       S_ISDIR(status.st_mode) ? " but a folder" : "");
    } else {
        (void)posix_fadvise(made.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        made.capacity = WINDOW_SIZE;
        made.window = malloc(made.capacity + 1);
        if (made.window == NULL) {
            code = err_set(err, ERR_NOMEM, "no memory for a window of %u bytes", WINDOW_SIZE);
        }
    }
    if (code == 0) {
        code = unpack_new(made.fd, path, &made.unpack, err);
    }
    if (code != 0) {
        source_close(&made);
        return code;
    }
    *source = made;
    return 0;
}

void source_close(struct source *source)
{
    if (source->fd >= 0) {
        (void)close(source->fd);
        source->fd = -1;
    }
    unpack_free(source->unpack);
    source->unpack = NULL;
    free(source->window);
    source->window = NULL;
}

/* Room behind the window's end: moves the record to the front, then grows up to the limit. */
static int make_room(struct source *source, struct err *err)
{
    if (source->record > 0) {
        size_t kept = source->end - source->record;
        memmove(source->window, source->window + source->record, kept);
        source->next -= source->record;
        source->end = kept;
        source->record = 0;
    }
    if (source->capacity - source->end >= READ_SIZE) {
        return 0;
    }
    if (source->end > DATA_LINE_SIZE_MAX) {
        bool has_return = memchr(source->window, '\r', source->end) != NULL &&
                          memchr(source->window, '\n', source->end) == NULL;
        return err_set(err, ERR_DATA, "%s:%llu:1: a line of more than %u MiB%s", source->path,
                       (unsigned long long)source->line, DATA_LINE_SIZE_MAX >> 20,
                       has_return ? "; lines that end with a carriage return alone are not read: "
                                    "convert them to line feeds"
                                  : "; does it lack line feeds, or is a quote left open?");
    }
    size_t capacity = source->capacity * 2;
    uint8_t *window = realloc(source->window, capacity + 1);
    if (window == NULL) {
        return err_set(err, ERR_NOMEM, "%s:%llu: no memory for a line of %zu bytes", source->path,
                       (unsigned long long)source->line, source->end);
    }
    source->window = window;
    source->capacity = capacity;
    return 0;
}

/* The line feed at or behind `from` (an offset from the record), reading more as needed: 1 and the
 * offset; 0 where the file ends before one. */
static int find_feed(struct source *source, size_t from, size_t *ret_feed, struct err *err)
{
    for (;;) {
        size_t start = source->record + from;
        const uint8_t *feed = memchr(source->window + start, '\n', source->end - start);
        if (feed != NULL) {
            *ret_feed = (size_t)(feed - source->window) - source->record;
            return 1;
        }
        from = source->end - source->record;
        if (source->ended) {
            *ret_feed = from;
            source->window[source->end] = '\n'; /* The scanner's stop; not counted in end. */
            return 0;
        }
        int code = make_room(source, err);
        size_t got = 0;
        uint64_t stored = 0;
        if (code == 0) {
            code = unpack_read(source->unpack, source->window + source->end,
                               source->capacity - source->end, &got, &stored, err);
        }
        if (code == 0) {
            code = meter_add(source->meter, stored, err);
        }
        if (code != 0) {
            return code;
        }
        source->end += got;
        source->ended = got == 0;
    }
}

int source_next(struct source *source, struct err *err)
{
    source->record = source->next;
    source->line += source->lines == 0 ? 1 : source->lines;
    source->lines = 1;
    size_t feed = 0;
    int found = find_feed(source, 0, &feed, err);
    if (found < 0) {
        return found;
    }
    source->record_size = feed;
    source->next = source->record + feed + (found == 1 ? 1 : 0);
    return found == 1 || feed > 0 ? 1 : 0;
}

int source_extend(struct source *source, struct err *err)
{
    size_t from = source->next - source->record;
    if (from == source->record_size) {
        return 0; /* The record ends with the file. */
    }
    size_t feed = 0;
    int found = find_feed(source, from, &feed, err);
    if (found < 0) {
        return found;
    }
    if (found == 0 && feed == from) {
        return 0;
    }
    if (feed > DATA_LINE_SIZE_MAX) {
        return 0; /* As if the file ended: the quote is reported where it opened. */
    }
    source->record_size = feed;
    source->next = source->record + feed + (found == 1 ? 1 : 0);
    source->lines++;
    return 1;
}

void source_cut(struct source *source)
{
    if (source->lines > 1) {
        const uint8_t *feed = memchr(source_bytes(source), '\n', source->record_size);
        ASSERT(feed != NULL);
        source->record_size = (size_t)(feed - source_bytes(source));
        source->next = source->record + source->record_size + 1;
        source->lines = 1;
    }
}
