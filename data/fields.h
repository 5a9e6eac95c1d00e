/* Cuts the records of a CSV file or a whitespace table into fields. Private to data.
 *
 * Offsets are from the record's first byte, because the record moves when a quoted field makes it
 * longer. */
#ifndef COPPELIUS_DATA_FIELDS_H
#define COPPELIUS_DATA_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "data/faults.h"
#include "data/source.h"

struct fields {
    struct source source;
    struct data_faults *faults; /* borrowed */
    bool space;                 /* whitespace table */
    uint8_t separator;          /* CSV */
    bool blank[256];            /* what may surround a field */
    struct buf text;            /* the last field without doubled quotes */
    size_t at;                  /* of the next field */
    bool finished;              /* the record has no further field */
};

struct field {
    size_t at;           /* its first byte, quote included */
    const uint8_t *text; /* borrowed until the next field; blanks around an unquoted one cut off */
    size_t size;
    bool quoted;
};

enum field_status {
    FIELD_OK,
    FIELD_END, /* the record has no more */
    FIELD_BAD, /* a fault was added; the record is cut to its first line */
};

/* The next record that is not blank: 1, 0 at the end, an error. Skips a byte order mark. */
int fields_next_record(struct fields *fields, struct err *err);
/* FIELD_OK …, or an error below 0. */
int fields_next(struct fields *fields, struct field *ret_field, struct err *err);
/* Adds a fault at an offset of the record. */
void fields_fault(struct fields *fields, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The last fault is one of structure. */
void fields_structure(struct fields *fields);

/* Bytes of the record without a carriage return at its end. */
static inline size_t fields_record_size(const struct fields *fields)
{
    size_t size = fields->source.record_size;
    return size > 0 && source_bytes(&fields->source)[size - 1] == '\r' ? size - 1 : size;
}

#endif
