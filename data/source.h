/* The lines of a text file, plain or compressed, one at a time, in bounded memory.
 *
 * gzip (all members) and zstd (all frames) are known by their magic bytes. A line is borrowed until
 * the next call, and is always followed by a line feed in memory, also where the file lacks its
 * last one, so that a scanner stops there without looking at the size. Private to data; one thread.
 *
 *      source_open ── source_next ─┬─ (source_extend)* ─ (source_cut) ─┬── source_close
 *                         ^        └───────────────────────────────────┤
 *                         └─────────────────────────────────────────────┘ */
#ifndef COPPELIUS_DATA_SOURCE_H
#define COPPELIUS_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/data.h"

/* Counts stored bytes over all files and asks the caller now and then whether to go on. */
struct meter {
    const struct data_progress *progress; /* NULL: nobody listens */
    const char *phase;
    uint64_t done;
    uint64_t told;
    uint64_t total;
};

/* Adds to done; ERR_CANCELED where the listener wants to stop. */
int meter_add(struct meter *meter, uint64_t bytes, struct err *err);
void meter_start(struct meter *meter, const struct data_progress *progress, const char *phase,
                 uint64_t total);

struct unpack; /* one of the decompressors, or plain */

struct source {
    const char *path; /* borrowed */
    int fd;
    struct meter *meter; /* borrowed */
    struct unpack *unpack;
    uint8_t *window;
    size_t capacity;
    size_t end;         /* bytes in the window */
    bool ended;         /* nothing more to come from the file */
    size_t record;      /* where the current record begins */
    size_t record_size; /* without its last line feed */
    size_t next;        /* where the next record begins */
    uint64_t line;      /* number of the record's first line, from 1 */
    uint64_t lines;     /* lines that the record spans */
};

#define SOURCE_NONE \
    {               \
        .fd = -1    \
    }

/* ERR_NOT_FOUND, ERR_DATA (a folder or a pipe, damaged compression), ERR_DISK. */
int source_open(struct source *source, const char *path, struct meter *meter, struct err *err);
void source_close(struct source *source); /* NONE and twice are fine */

/* The next line: 1, 0 at the end, or an error. A last line without a line feed is a line; an empty
 * rest is not. A carriage return before the line feed is part of the line. */
int source_next(struct source *source, struct err *err);
/* Makes the record one line longer (a quoted field spans lines): 1, 0 at the end. Moves the bytes.
 */
int source_extend(struct source *source, struct err *err);
/* Takes back extensions: the record is its first line again. */
void source_cut(struct source *source);

static inline const uint8_t *source_bytes(const struct source *source)
{
    return source->window + source->record;
}

#endif
