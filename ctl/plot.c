#include "ctl/plot.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define LABEL_SIZE 10 /* characters left of the axis */
#define LOG_SPAN   5.0

struct canvas {
    size_t columns, rows;                          /* cells */
    uint8_t dots[PLOT_ROWS_MAX][PLOT_COLUMNS_MAX]; /* bits of U+2800 */
};

struct scale {
    double x_first, x_last, y_least, y_most;
    bool logarithmic;
};

static double y_of(const struct scale *scale, double y)
{
    return scale->logarithmic ? log10(y) : y;
}

/* Column and row count from the left and from the top, in dots. */
static void dot(struct canvas *canvas, size_t column, size_t row)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    ASSERT(column / 2 < canvas->columns);
    ASSERT(row / 4 < canvas->rows);
    canvas->dots[row / 4][column / 2] |= bits[row % 4][column % 2];
}

static bool find_scale(const struct plot_point *points, size_t count, struct scale *scale)
{
    size_t finite = 0;
    *scale = (struct scale){0};
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(points[i].y) || !isfinite(points[i].x)) {
            continue;
        }
        if (finite++ == 0) {
            *scale = (struct scale){points[i].x, points[i].x, points[i].y, points[i].y, false};
        }
        scale->x_last = fmax(scale->x_last, points[i].x);
        scale->y_least = fmin(scale->y_least, points[i].y);
        scale->y_most = fmax(scale->y_most, points[i].y);
    }
    if (finite == 0) {
        return false;
    }
    scale->logarithmic = scale->y_least > 0 && scale->y_most / scale->y_least > LOG_SPAN;
    return true;
}

static size_t place(double value, double from, double to, size_t count)
{
    double fraction = to > from ? (value - from) / (to - from) : 0.5;
    double at = floor(fraction * (double)(count - 1) + 0.5);
    return at < 0 ? 0 : at > (double)(count - 1) ? count - 1 : (size_t)at;
}

static void draw(struct canvas *canvas, const struct plot_point *points, size_t count,
                 const struct scale *scale)
{
    size_t wide = 2 * canvas->columns;
    size_t high = 4 * canvas->rows;
    double low = y_of(scale, scale->y_least);
    double top = y_of(scale, scale->y_most);
    bool has_before = false;
    size_t x_before = 0;
    size_t y_before = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(points[i].y) || !isfinite(points[i].x)) {
            has_before = false;
            continue;
        }
        size_t x = place(points[i].x, scale->x_first, scale->x_last, wide);
        size_t y = high - 1 - place(y_of(scale, points[i].y), low, top, high);
        dot(canvas, x, y);
        /* A line from the point before: a dot in each column between, and no gap in height. */
        size_t y_drawn = y_before;
        for (size_t column = x_before; has_before && column <= x; column++) {
            double part = x > x_before ? (double)(column - x_before) / (double)(x - x_before) : 1;
            double between = (double)y_before + part * ((double)y - (double)y_before);
            size_t to = (size_t)(between + 0.5);
            while (y_drawn != to) {
                y_drawn += y_drawn < to ? 1 : (size_t)-1;
                dot(canvas, column, y_drawn);
            }
            dot(canvas, column, to);
        }
        has_before = true;
        x_before = x;
        y_before = y;
    }
}

static void put_cell(uint8_t dots, bool utf8, struct buf *out)
{
    if (!utf8) {
        char mark = dots == 0 ? ' ' : (dots & 0x1b) != 0 && (dots & 0xe4) == 0 ? '\'' : '*';
        buf_print(out, "%c", mark);
        return;
    }
    /* U+2800 + dots, in UTF-8. */
    uint8_t bytes[3] = {0xe2, (uint8_t)(0xa0 | dots >> 6), (uint8_t)(0x80 | (dots & 0x3f))};
    buf_put(out, bytes, sizeof(bytes));
}

void plot_curve(const struct plot_point *points, size_t count, size_t columns, size_t rows,
                bool utf8, struct buf *out)
{
    struct scale scale;
    struct canvas canvas = {.columns = columns > LABEL_SIZE + 2 ? columns - LABEL_SIZE - 2 : 0,
                            .rows = rows};
    canvas.columns = canvas.columns > PLOT_COLUMNS_MAX ? PLOT_COLUMNS_MAX : canvas.columns;
    canvas.rows = canvas.rows > PLOT_ROWS_MAX ? PLOT_ROWS_MAX : canvas.rows;
    if (canvas.columns < 4 || canvas.rows < 2 || !find_scale(points, count, &scale)) {
        return;
    }
    draw(&canvas, points, count, &scale);
    for (size_t row = 0; row < canvas.rows; row++) {
        char label[LABEL_SIZE + 1] = "";
        if (row == 0) {
            (void)snprintf(label, sizeof(label), "%.4g", scale.y_most);
        } else if (row + 1 == canvas.rows) {
            (void)snprintf(label, sizeof(label), "%.4g", scale.y_least);
        } else if (row == 1 && scale.logarithmic) {
            (void)snprintf(label, sizeof(label), "(log)");
        }
        buf_print(out, "%*s %s", LABEL_SIZE, label, utf8 ? "│" : "|");
        for (size_t column = 0; column < canvas.columns; column++) {
            put_cell(canvas.dots[row][column], utf8, out);
        }
        buf_print(out, "\n");
    }
    char first[32];
    char last[32];
    (void)snprintf(first, sizeof(first), "%.15g", scale.x_first);
    (void)snprintf(last, sizeof(last), "%.15g", scale.x_last);
    int gap = (int)canvas.columns - (int)strlen(first) - (int)strlen(last);
    buf_print(out, "%*s  %s%*s%s\n", LABEL_SIZE, "", first, gap > 1 ? gap : 1, "", last);
}

void plot_spark(const double *values, size_t count, bool utf8, struct buf *out)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char ascii[] = "_.-~=+*#";
    double least = HUGE_VAL;
    double most = -HUGE_VAL;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(values[i])) {
            least = fmin(least, values[i]);
            most = fmax(most, values[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        size_t level = isfinite(values[i]) ? place(values[i], least, most, 8) : 7;
        if (utf8) {
            buf_print(out, "%s", blocks[level]);
        } else {
            buf_print(out, "%c", ascii[level]);
        }
    }
}

void plot_bar(double fraction, size_t columns, bool utf8, struct buf *out)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double clamped = fraction > 0 ? fmin(fraction, 1) : 0; /* a NaN is 0 */
    size_t parts = (size_t)(clamped * (double)columns * 8 + 0.5);
    size_t whole = parts / 8;
    size_t used = whole;
    buf_print(out, "[");
    for (size_t i = 0; i < whole; i++) {
        buf_print(out, "%s", utf8 ? "█" : "#");
    }
    if (utf8 && parts % 8 > 0) {
        buf_print(out, "%s", eighths[parts % 8]);
        used++;
    }
    buf_print(out, "%*s]", (int)(columns - used), "");
}
