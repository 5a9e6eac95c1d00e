/* The lane sum over the rows of a batch: panels of 2048 rows; in a panel row i adds to lane i mod
 * 128, in row order, each lane starting at +0.0. A panel is the dyadic sum of its 128 lanes, the
 * batch the dyadic sum of its panels, canonical at the root (NUMERICS.md). */
#ifndef COPPELIUS_NUMERICS_LANE_H
#define COPPELIUS_NUMERICS_LANE_H

#include <stddef.h>

#include "numerics/arith.h"

#define PANEL_ROWS  2048
#define PANEL_LANES 128

/* Panels of a batch of that many rows. */
ARITH size_t panels_of(size_t rows_count)
{
    return (rows_count + PANEL_ROWS - 1) / PANEL_ROWS;
}

/* The panel's value: the dyadic sum of all its lanes (rows that are not there leave +0.0). Destroys
 * the lanes. */
ARITH double lanes_root(double lanes[PANEL_LANES])
{
    for (unsigned width = PANEL_LANES / 2; width > 0; width /= 2) {
        for (unsigned lane = 0; lane < width; lane++) {
            lanes[lane] = lanes[2 * lane] + lanes[2 * lane + 1];
        }
    }
    return lanes[0];
}

#endif
