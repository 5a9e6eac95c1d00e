/* CSV files and whitespace tables: records to rows of numbers. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/advice.h"
#include "data/fields.h"
#include "data/intake.h"
#include "data/number.h"

struct table {
    struct intake *intake;
    const struct data_settings *settings;
    struct fields fields;
    uint8_t mark;
    bool missing_first[256]; /* a missing value may begin with this byte */
    float *values;           /* the row: features */
    double target;
    uint64_t feature; /* next in values */
    bool row_missing; /* a kept field of the row is missing: the row goes */
    bool numbered;    /* no header: the columns were counted in line 1 */
};

static bool is_missing(const struct table *table, const uint8_t *text, size_t size)
{
    if (size == 0) {
        return true;
    }
    if (!table->missing_first[text[0]]) {
        return false;
    }
    for (size_t i = 0; i < table->settings->missing_values_count; i++) {
        const char *value = table->settings->missing_values[i];
        if (strlen(value) == size && memcmp(value, text, size) == 0) {
            return true;
        }
    }
    return false;
}

static void take_missing(struct table *table, size_t column, size_t at, const uint8_t *text,
                         size_t size)
{
    if (table->settings->missing == DATA_MISSING_DROP_ROW) {
        table->row_missing = true;
        return;
    }
    char shown[EXCERPT_SIZE];
    const char *name = columns_name(&table->intake->columns, column);
    if (size == 0) {
        fields_fault(&table->fields, at,
                     "column '%.64s' is empty; give a value, drop the column, or set missing to "
                     "drop-row",
                     name);
    } else {
        fields_fault(&table->fields, at,
                     "column '%.64s' is missing ('%s'); drop the column or set missing to drop-row",
                     name, excerpt(shown, text, size));
    }
}

static void take_number(struct table *table, size_t column, size_t at, double value)
{
    if (table->intake->columns.roles[column] == COLUMN_TARGET) {
        table->target = value;
        return;
    }
    if (number_to_f32(value, &table->values[table->feature]) != 0) {
        fields_fault(&table->fields, at, "%.9g is beyond the range of binary32 (column '%.64s')",
                     value, columns_name(&table->intake->columns, column));
    }
}

static void not_a_number(struct table *table, size_t column, size_t at, const uint8_t *text,
                         size_t size, enum number_status status)
{
    char shown[EXCERPT_SIZE];
    const char *name = columns_name(&table->intake->columns, column);
    (void)excerpt(shown, text, size);
    if (status == NUMBER_RANGE) {
        fields_fault(&table->fields, at, "'%s' is beyond the range of binary64 (column '%.64s')",
                     shown, name);
        return;
    }
    bool first = table->numbered && table->fields.source.line == 1;
    char sentence[ADVICE_SIZE];
    const char *advice = advice_number(&table->fields, table->mark, text, size, sentence);
    fields_fault(&table->fields, at, "'%s' is not a number (column '%.64s'); %s%s", shown, name,
                 advice != NULL ? advice : "drop the column or list the text in missing_values",
                 first && advice == NULL ? "; is line 1 a header (header: yes)?" : "");
}

/* A field that the fast path did not take: quoted, missing, or no number. */
static void take_text(struct table *table, size_t column, const struct field *field)
{
    const uint8_t *text = field->text;
    size_t size = field->size;
    struct fields *fields = &table->fields;
    while (size > 0 && fields->blank[text[size - 1]]) {
        size--;
    }
    while (size > 0 && fields->blank[text[0]]) {
        text++;
        size--;
    }
    if (is_missing(table, text, size)) {
        take_missing(table, column, field->at, text, size);
        return;
    }
    /* In the record a quote, separator or line feed stops the scanner; in the copy without doubled
     * quotes there is none, but such a text has a quote in it and is no number. */
    enum number_status status = NUMBER_NONE;
    double value = 0;
    const uint8_t *end = text;
    if (memchr(text, '"', size) == NULL) {
        status = number_parse(text, table->mark, &end, &value);
    }
    if (status == NUMBER_OK && end == text + size) {
        take_number(table, column, field->at, value);
        return;
    }
    bool range = status == NUMBER_RANGE && end == text + size;
    not_a_number(table, column, field->at, text, size, range ? NUMBER_RANGE : NUMBER_NONE);
}

/* A number at the cursor with nothing but blanks around it: 1, and the cursor is behind it. */
static inline int take_fast(struct table *table, size_t column, const uint8_t *bytes, size_t size)
{
    struct fields *fields = &table->fields;
    size_t at = fields->at;
    while (fields->blank[bytes[at]]) {
        at++;
    }
    const uint8_t *end = NULL;
    double value = 0;
    if (number_parse(bytes + at, table->mark, &end, &value) != NUMBER_OK) {
        return 0;
    }
    size_t after = (size_t)(end - bytes);
    size_t next = after;
    while (fields->blank[bytes[next]]) {
        next++;
    }
    bool last = next >= size;
    if (!last && (fields->space ? next == after : bytes[next] != fields->separator)) {
        return 0;
    }
    if (table->missing_first[bytes[at]] && is_missing(table, bytes + at, after - at)) {
        take_missing(table, column, at, bytes + at, after - at);
    } else {
        take_number(table, column, at, value);
    }
    fields->at = next + (fields->space ? 0 : 1);
    fields->finished = last;
    return 1;
}

/* The fields of one record. 0, FIELD_BAD, or an error. */
static int read_fields(struct table *table, size_t *ret_count, struct err *err)
{
    const struct columns *columns = &table->intake->columns;
    struct fields *fields = &table->fields;
    const uint8_t *bytes = source_bytes(&fields->source);
    size_t size = fields_record_size(fields);
    size_t column = 0;
    while (!fields->finished) {
        bool kept = column < columns->count && columns->roles[column] != COLUMN_DROPPED;
        if (!kept || take_fast(table, column, bytes, size) == 0) {
            struct field field;
            int status = fields_next(fields, &field, err);
            if (status == FIELD_END) {
                break;
            }
            if (status != FIELD_OK) {
                return status;
            }
            if (kept) {
                take_text(table, column, &field);
            }
            bytes = source_bytes(&fields->source); /* A quoted field may have moved it. */
            size = fields_record_size(fields);
        }
        table->feature += kept && columns->roles[column] == COLUMN_FEATURE ? 1 : 0;
        column++;
    }
    *ret_count = column;
    return 0;
}

static int read_row(struct table *table, struct err *err)
{
    struct intake *intake = table->intake;
    size_t faults_before = intake->faults->count;
    table->feature = 0;
    table->row_missing = false;
    size_t count = 0;
    int code = read_fields(table, &count, err);
    if (code == FIELD_BAD) {
        return 0;
    }
    if (code < 0) {
        return code;
    }
    if (count != intake->columns.count) {
        intake->faults->count = faults_before; /* The columns have shifted: only that is said. */
        fields_fault(&table->fields, fields_record_size(&table->fields),
                     "expected %zu fields, found %zu", intake->columns.count, count);
        fields_structure(&table->fields);
        return 0;
    }
    if (table->row_missing) {
        intake->faults->count = faults_before; /* What else is in a dropped row does not matter. */
        intake->rows_dropped++;
        return 0;
    }
    if (intake->faults->count > 0) {
        return 0;
    }
    intake->rows++;
    return sink_dense_row(&intake->sink, table->values, table->target, err);
}

/* A name must be what a file of names can hold. Returns false after a fault. */
static bool name_is_fine(struct table *table, const struct field *field)
{
    size_t at = 0;
    size_t base = field->at + (field->quoted ? 1 : 0);
    while (at < field->size) {
        size_t step = utf8_step(field->text + at, field->size - at);
        if (step == 0) {
            fields_fault(&table->fields, base + at,
                         "the column name is not UTF-8 (byte %02X); convert the file",
                         field->text[at]);
            return false;
        }
        if (field->text[at] < 0x20 || field->text[at] == 0x7F) {
            fields_fault(&table->fields, base + at, "a control character in a column name%s",
                         field->text[at] == '\t' && !field->quoted
                             ? "; set data.separator: \"\\t\" (--separator '\\t')"
                             : "");
            return false;
        }
        at += step;
    }
    if (field->size > DATA_NAME_SIZE_MAX) {
        fields_fault(&table->fields, base, "a column name of %zu bytes; the most is %u",
                     field->size, DATA_NAME_SIZE_MAX);
        return false;
    }
    return true;
}

/* The fields of the current record as names (header) or numbers; 0, FIELD_BAD or an error. */
static int read_names(struct table *table, struct columns *columns, struct err *err)
{
    size_t count = 0;
    for (;;) {
        struct field field;
        int status = fields_next(&table->fields, &field, err);
        if (status == FIELD_END) {
            break;
        }
        if (status != FIELD_OK) {
            return status;
        }
        if (table->settings->header) {
            if (!name_is_fine(table, &field)) {
                return FIELD_BAD;
            }
            int code = columns_add_name(columns, field.text, field.size, err);
            if (code != 0) {
                return code;
            }
        }
        count++;
    }
    return table->settings->header ? 0 : columns_number(columns, count, err);
}

/* The columns from the first record of the first file. The cursor is at the first row afterwards.
 */
static int start_columns(struct table *table, struct err *err)
{
    struct intake *intake = table->intake;
    struct fields *fields = &table->fields;
    size_t at = fields->at;
    int code = read_names(table, &intake->columns, err);
    if (code != 0) {
        return code;
    }
    size_t faults_before = intake->faults->count;
    code = columns_plan(&intake->columns, table->settings, false, fields->source.path,
                        fields->source.line, intake->faults, err);
    if (code != 0 && intake->columns.count == 1) {
        const uint8_t *line = source_bytes(&fields->source) + at;
        size_t size = fields_record_size(fields) - at;
        char sentence[ADVICE_SIZE];
        char shown[EXCERPT_SIZE];
        const char *advice = advice_line(fields, table->mark, line, size, sentence);
        if (advice != NULL) {
            intake->faults->count = faults_before; /* All else follows from it. */
            fields_fault(fields, at, "the line is one field, '%s'; %s", excerpt(shown, line, size),
                         advice);
            fields_structure(fields);
        }
    }
    if (code != 0) {
        return intake->faults->count > 0 ? FIELD_BAD : code;
    }
    table->values = calloc(intake->columns.features, sizeof(float));
    if (table->values == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu features",
                       (unsigned long long)intake->columns.features);
    }
    code = intake_open_sink(intake, table->settings->storage == DATA_STORAGE_SPARSE,
                            intake->columns.has_target, intake->columns.features, err);
    fields->at = at;
    fields->finished = false;
    return code;
}

/* A further file's header must be the first one's. */
static int compare_header(struct table *table, struct err *err)
{
    struct columns other = COLUMNS_NONE;
    const struct columns *ours = &table->intake->columns;
    int code = read_names(table, &other, err);
    if (code == 0) {
        bool same = other.count == ours->count && other.names.size == ours->names.size &&
                    memcmp(other.names.bytes, ours->names.bytes, ours->names.size) == 0;
        if (!same) {
            fields_fault(&table->fields, 0, "another header than in %s", table->settings->paths[0]);
            code = FIELD_BAD;
        }
    }
    columns_done(&other);
    return code;
}

static int read_file(struct table *table, const char *path, struct err *err)
{
    struct intake *intake = table->intake;
    bool first_file = table->values == NULL;
    int code = source_open(&table->fields.source, path, &intake->meter, err);
    if (code != 0) {
        return code;
    }
    int got = fields_next_record(&table->fields, err);
    if (got == 0) {
        data_fault_add(intake->faults, path, 0, 0, "no data: the file is empty");
    }
    if (got == 1 && first_file) {
        code = start_columns(table, err);
    } else if (got == 1 && table->settings->header) {
        code = compare_header(table, err);
    }
    if (code == FIELD_BAD) {
        return 0; /* Nothing else can be told of the file. */
    }
    if (got == 1 && code == 0 && table->settings->header) {
        got = fields_next_record(&table->fields, err);
    }
    while (got == 1 && code == 0 && !faults_full(intake->faults)) {
        code = read_row(table, err);
        if (code == 0) {
            got = fields_next_record(&table->fields, err);
        }
    }
    return code != 0 ? code : got < 0 ? got : 0;
}

int table_read(struct intake *intake, struct err *err)
{
    const struct data_settings *settings = intake->settings;
    struct table table = {
        .intake = intake,
        .settings = settings,
        .fields = {.source = SOURCE_NONE,
                   .faults = intake->faults,
                   .space = settings->format == DATA_FORMAT_SPACE,
                   .separator = settings->separator != 0 ? (uint8_t)settings->separator : ','},
        .mark = settings->decimal != 0 ? (uint8_t)settings->decimal : '.',
        .numbered = !settings->header,
    };
    table.fields.blank[' '] = table.fields.space || table.fields.separator != ' ';
    table.fields.blank['\t'] = table.fields.space || table.fields.separator != '\t';
    for (size_t i = 0; i < settings->missing_values_count; i++) {
        table.missing_first[(uint8_t)settings->missing_values[i][0]] = true;
    }
    table.missing_first[0] = false; /* of the empty text */
    int code = 0;
    for (size_t i = 0; i < settings->paths_count && code == 0 && intake->faults->count == 0; i++) {
        code = read_file(&table, settings->paths[i], err);
        source_close(&table.fields.source);
    }
    free(table.values);
    buf_done(&table.fields.text);
    return code;
}
