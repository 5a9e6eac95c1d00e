/* Pictures of characters: a curve in braille dots (2 x 4 a cell) with axis labels, a sparkline of
 * blocks, a bar. Each has an ASCII form for terminals without UTF-8. */
#ifndef COPPELIUS_CTL_PLOT_H
#define COPPELIUS_CTL_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct plot_point {
    double x;
    double y; /* points that are not finite are skipped */
};

#define PLOT_COLUMNS_MAX 400
#define PLOT_ROWS_MAX    100

/* `rows` lines of `columns` characters at most, labels of y left and of x below (one line more).
 * Points ascend in x. Where all y are positive and span more than a factor of 5, y is logarithmic
 * and the first label says so. Too small a place gives nothing. */
void plot_curve(const struct plot_point *points, size_t count, size_t columns, size_t rows,
                bool utf8, struct buf *out);
/* `columns` blocks, lowest to highest of the values. */
void plot_spark(const double *values, size_t count, bool utf8, struct buf *out);
/* fraction 0 .. 1 as a bar of `columns` characters. */
void plot_bar(double fraction, size_t columns, bool utf8, struct buf *out);

#endif
