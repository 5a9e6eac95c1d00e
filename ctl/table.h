/* Columns for people: upper-case heads, two spaces between, numbers to the right, nothing cut.
 * And the texts of durations, sizes and counts. */
#ifndef COPPELIUS_CTL_TABLE_H
#define COPPELIUS_CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define TABLE_COLUMNS_MAX 24

struct table_column {
    const char *head;
    bool right; /* a number */
    bool wide;  /* only with -o wide */
};

struct table {
    const struct table_column *columns;
    size_t columns_count;
    bool wide;
    char **cells; /* columns_count a row */
    size_t cells_count;
};

void table_init(struct table *table, const struct table_column *columns, size_t columns_count,
                bool wide);
void table_done(struct table *table);
/* The next cell, row by row; NULL or "" shows "-". Control characters become '?'. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *table, struct buf *out);

/* Characters that a terminal shows (UTF-8 code points; control characters none). */
size_t text_width(const char *text);
/* "3m12s", "2h05m", "4d03h", "0.4s"; "-" for a negative or unknown one. */
void text_duration(double seconds, char *text, size_t capacity);
/* "1.5 GiB" */
void text_bytes(double bytes, char *text, size_t capacity);
/* "1.2M", "340" */
void text_count(double count, char *text, size_t capacity);

#endif
