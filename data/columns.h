/* Which column of a file is what: made once from the header (or the number of fields), the drops
 * and the target. Private to data. */
#ifndef COPPELIUS_DATA_COLUMNS_H
#define COPPELIUS_DATA_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "data/data.h"

enum column_role {
    COLUMN_DROPPED,
    COLUMN_FEATURE,
    COLUMN_TARGET,
};

struct columns {
    size_t count;      /* fields of a line */
    uint8_t *roles;    /* count of enum column_role */
    struct buf names;  /* zero-terminated, in file order; built by columns_add_name */
    uint64_t *offsets; /* count: where each name begins in names */
    size_t capacity;   /* of offsets */
    uint64_t features;
    bool has_target;
    size_t target; /* column, where there is one */
};

#define COLUMNS_NONE \
    {                \
        .count = 0   \
    }

void columns_done(struct columns *columns);
/* Appends a column with its name as it stands in the file. ERR_NOMEM. */
int columns_add_name(struct columns *columns, const uint8_t *name, size_t size, struct err *err);
/* Appends `count` columns named 1, 2, … */
int columns_number(struct columns *columns, size_t count, struct err *err);
const char *columns_name(const struct columns *columns, size_t column);
/* Decides the roles; what cannot be decided is a fault at line (0: the file). ERR_DATA then.
 * target_elsewhere: the targets are in a file of their own, so that every kept column is a feature.
 */
int columns_plan(struct columns *columns, const struct data_settings *settings,
                 bool target_elsewhere, const char *path, uint64_t line, struct data_faults *faults,
                 struct err *err);

#endif
