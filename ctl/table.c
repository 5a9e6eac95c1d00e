#include "ctl/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define CELL_SIZE 4096

void table_init(struct table *table, const struct table_column *columns, size_t columns_count,
                bool wide)
{
    ASSERT(columns_count > 0);
    ASSERT(columns_count <= TABLE_COLUMNS_MAX);
    *table = (struct table){.columns = columns, .columns_count = columns_count, .wide = wide};
}

void table_done(struct table *table)
{
    for (size_t i = 0; i < table->cells_count; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    table->cells = NULL;
    table->cells_count = 0;
}

void table_cell(struct table *table, const char *format, ...)
{
    char text[CELL_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f) {
            *at = '?';
        }
    }
    if ((table->cells_count & (table->cells_count - 1)) == 0) { /* full at each power of two */
        size_t capacity = table->cells_count == 0 ? 1 : 2 * table->cells_count;
        table->cells = realloc(table->cells, capacity * sizeof(*table->cells));
        ASSERT(table->cells != NULL);
    }
    char *cell = strdup(text[0] != '\0' ? text : "-");
    ASSERT(cell != NULL);
    table->cells[table->cells_count++] = cell;
}

size_t text_width(const char *text)
{
    size_t width = 0;
    for (const char *at = text; *at != '\0'; at++) {
        width += ((unsigned char)*at & 0xc0) != 0x80 && (unsigned char)*at >= ' ' ? 1 : 0;
    }
    return width;
}

static void print_row(const struct table *table, const size_t *widths, const char *const *cells,
                      struct buf *out)
{
    size_t last = 0;
    size_t pad = 0; /* spaces owed; none is written behind the last cell */
    for (size_t i = 0; i < table->columns_count; i++) {
        last = table->wide || !table->columns[i].wide ? i : last;
    }
    for (size_t i = 0; i <= last; i++) {
        const struct table_column *column = &table->columns[i];
        if (column->wide && !table->wide) {
            continue;
        }
        size_t fill = widths[i] - text_width(cells[i]);
        if (column->right) {
            pad += fill;
        }
        buf_print(out, "%*s%s", (int)pad, "", cells[i]);
        pad = 2 + (column->right ? 0 : fill);
    }
    buf_print(out, "\n");
}

void table_print(const struct table *table, struct buf *out)
{
    size_t widths[TABLE_COLUMNS_MAX];
    const char *heads[TABLE_COLUMNS_MAX];
    ASSERT(table->cells_count % table->columns_count == 0);
    for (size_t i = 0; i < table->columns_count; i++) {
        heads[i] = table->columns[i].head;
        widths[i] = text_width(heads[i]);
    }
    for (size_t i = 0; i < table->cells_count; i++) {
        size_t width = text_width(table->cells[i]);
        size_t column = i % table->columns_count;
        widths[column] = width > widths[column] ? width : widths[column];
    }
    print_row(table, widths, heads, out);
    for (size_t i = 0; i < table->cells_count; i += table->columns_count) {
        const char *cells[TABLE_COLUMNS_MAX];
        for (size_t j = 0; j < table->columns_count; j++) {
            cells[j] = table->cells[i + j];
        }
        print_row(table, widths, cells, out);
    }
}

void text_duration(double seconds, char *text, size_t capacity)
{
    if (!isfinite(seconds) || seconds < 0) {
        (void)snprintf(text, capacity, "-");
    } else if (seconds < 9.95) {
        (void)snprintf(text, capacity, "%.1fs", seconds);
    } else if (seconds < 59.5) {
        (void)snprintf(text, capacity, "%.0fs", seconds);
    } else {
        unsigned long whole = (unsigned long)(seconds + 0.5);
        if (whole < 3600) {
            (void)snprintf(text, capacity, "%lum%02lus", whole / 60, whole % 60);
        } else if (whole < 86400) {
            (void)snprintf(text, capacity, "%luh%02lum", whole / 3600, whole % 3600 / 60);
        } else {
            (void)snprintf(text, capacity, "%lud%02luh", whole / 86400, whole % 86400 / 3600);
        }
    }
}

static void text_scaled(double value, double base, const char *const *units, size_t count,
                        char *text, size_t capacity)
{
    size_t unit = 0;
    while (value >= base * 0.9995 && unit + 1 < count) {
        value /= base;
        unit++;
    }
    if (unit == 0) {
        (void)snprintf(text, capacity, "%.0f%s", value, units[0]);
    } else {
        (void)snprintf(text, capacity, "%.3g%s", value, units[unit]);
    }
}

void text_bytes(double bytes, char *text, size_t capacity)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
    text_scaled(bytes, 1024, units, 6, text, capacity);
}

void text_count(double count, char *text, size_t capacity)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    text_scaled(count, 1000, units, 6, text, capacity);
}
