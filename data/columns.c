#include "data/columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "data/faults.h"

void columns_done(struct columns *columns)
{
    free(columns->roles);
    free(columns->offsets);
    buf_done(&columns->names);
    *columns = (struct columns)COLUMNS_NONE;
}

int columns_add_name(struct columns *columns, const uint8_t *name, size_t size, struct err *err)
{
    if (columns->count == columns->capacity) {
        size_t capacity = columns->capacity == 0 ? 64 : columns->capacity * 2;
        uint64_t *offsets = realloc(columns->offsets, capacity * sizeof(*offsets));
        if (offsets == NULL) {
            return err_set(err, ERR_NOMEM, "no memory for %zu columns", capacity);
        }
        columns->offsets = offsets;
        columns->capacity = capacity;
    }
    columns->offsets[columns->count] = columns->names.size;
    buf_put(&columns->names, name, size);
    buf_put_u8(&columns->names, 0);
    columns->count++;
    return 0;
}

int columns_number(struct columns *columns, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        char name[24];
        int size = snprintf(name, sizeof(name), "%zu", i + 1);
        int code = columns_add_name(columns, (const uint8_t *)name, (size_t)size, err);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

const char *columns_name(const struct columns *columns, size_t column)
{
    ASSERT(column < columns->count);
    return (const char *)columns->names.bytes + columns->offsets[column];
}

/* "'a', 'b', 'c', …" for a message, or the one that differs in case only. */
static const char *suggest(const struct columns *columns, const char *wanted, char *text,
                           size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < columns->count; i++) {
        if (strcasecmp(columns_name(columns, i), wanted) == 0) {
            (void)snprintf(text, capacity, "did you mean '%.64s'?", columns_name(columns, i));
            return text;
        }
    }
    used += (size_t)snprintf(text, capacity, "the columns are ");
    for (size_t i = 0; i < columns->count; i++) {
        char shown[EXCERPT_SIZE];
        const char *name = columns_name(columns, i);
        (void)excerpt(shown, (const uint8_t *)name, strlen(name));
        if (used + strlen(shown) + 16 > capacity) {
            (void)snprintf(text + used, capacity - used, ", …");
            break;
        }
        used += (size_t)snprintf(text + used, capacity - used, "%s'%s'", i > 0 ? ", " : "", shown);
    }
    return text;
}

/* A 1-based column of the file; 0 where the text is no such number. */
static size_t column_number(const struct columns *columns, const char *text)
{
    size_t value = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || value > columns->count) {
            return 0;
        }
        value = value * 10 + (size_t)(*at - '0');
    }
    return value <= columns->count ? value : 0;
}

static void drop_columns(struct columns *columns, const struct data_settings *settings,
                         const char *path, uint64_t line, struct data_faults *faults)
{
    for (size_t d = 0; d < settings->drop_count; d++) {
        const char *wanted = settings->drop[d];
        bool found = false;
        for (size_t i = 0; i < columns->count; i++) {
            if (strcmp(columns_name(columns, i), wanted) == 0) {
                columns->roles[i] = COLUMN_DROPPED;
                found = true;
            }
        }
        size_t number = found ? 0 : column_number(columns, wanted);
        if (number > 0) {
            columns->roles[number - 1] = COLUMN_DROPPED;
            found = true;
        }
        if (!found && settings->expect_features == 0) { /* A file to predict may lack it. */
            char text[256];
            data_fault_add(faults, path, line, 1, "no column '%.64s' to drop; %s", wanted,
                           suggest(columns, wanted, text, sizeof(text)));
        }
    }
}

/* The target's column, or count where there is none; faults where it cannot be told. */
static size_t find_target(const struct columns *columns, const struct data_settings *settings,
                          uint64_t kept, const char *path, uint64_t line,
                          struct data_faults *faults)
{
    size_t none = columns->count;
    bool optional = settings->expect_features > 0;
    if (settings->target == DATA_TARGET_NAME) {
        size_t found = none;
        for (size_t i = 0; i < columns->count; i++) {
            if (columns->roles[i] == COLUMN_DROPPED ||
                strcmp(columns_name(columns, i), settings->target_name) != 0) {
                continue;
            }
            if (found != none) {
                data_fault_add(faults, path, line, 1, "two columns are named '%.64s', the target",
                               settings->target_name);
                return none;
            }
            found = i;
        }
        if (found == none && !optional) {
            char text[256];
            data_fault_add(faults, path, line, 1, "no column '%.64s' for the target; %s",
                           settings->target_name,
                           suggest(columns, settings->target_name, text, sizeof(text)));
        }
        return found;
    }
    if (optional && kept == settings->expect_features) {
        return none;
    }
    if (settings->target == DATA_TARGET_COLUMN) {
        uint64_t wanted = settings->target_column;
        if (wanted < 1 || wanted > columns->count) {
            data_fault_add(faults, path, line, 1,
                           "the target is column %llu, but there are %zu columns",
                           (unsigned long long)wanted, columns->count);
            return none;
        }
        if (columns->roles[wanted - 1] == COLUMN_DROPPED) {
            data_fault_add(faults, path, line, 1, "the target, column %llu, is dropped",
                           (unsigned long long)wanted);
            return none;
        }
        return (size_t)wanted - 1;
    }
    for (size_t k = 0; k < columns->count; k++) {
        size_t i = settings->target == DATA_TARGET_FIRST ? k : columns->count - 1 - k;
        if (columns->roles[i] != COLUMN_DROPPED) {
            return i;
        }
    }
    return none;
}

static void check_expected(const struct columns *columns, const struct data_settings *settings,
                           const char *path, uint64_t line, struct data_faults *faults)
{
    if (settings->expect_features == 0) {
        return;
    }
    if (columns->features != settings->expect_features) {
        data_fault_add(
            faults, path, line, 1,
            "%llu feature columns are kept; the model has %llu: drop the others or add the "
            "missing ones",
            (unsigned long long)columns->features, (unsigned long long)settings->expect_features);
        return;
    }
    if (settings->expect_names == NULL || !settings->header) {
        return;
    }
    uint64_t feature = 0;
    for (size_t i = 0; i < columns->count; i++) {
        if (columns->roles[i] != COLUMN_FEATURE) {
            continue;
        }
        if (strcmp(columns_name(columns, i), settings->expect_names[feature]) != 0) {
            data_fault_add(faults, path, line, 1,
                           "feature %llu is '%.64s' here and '%.64s' in the model",
                           (unsigned long long)feature + 1, columns_name(columns, i),
                           settings->expect_names[feature]);
            return;
        }
        feature++;
    }
}

int columns_plan(struct columns *columns, const struct data_settings *settings,
                 bool target_elsewhere, const char *path, uint64_t line, struct data_faults *faults,
                 struct err *err)
{
    size_t before = faults->count;
    columns->roles = malloc(columns->count > 0 ? columns->count : 1);
    if (columns->roles == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu columns", columns->count);
    }
    memset(columns->roles, COLUMN_FEATURE, columns->count);
    drop_columns(columns, settings, path, line, faults);
    uint64_t kept = 0;
    for (size_t i = 0; i < columns->count; i++) {
        kept += columns->roles[i] == COLUMN_FEATURE ? 1 : 0;
    }
    if (faults->count == before) {
        columns->target = target_elsewhere
                              ? columns->count
                              : find_target(columns, settings, kept, path, line, faults);
        columns->has_target = columns->target < columns->count;
        if (columns->has_target) {
            columns->roles[columns->target] = COLUMN_TARGET;
        }
        columns->features = kept - (columns->has_target ? 1 : 0);
    }
    if (faults->count == before && columns->features == 0) {
        data_fault_add(faults, path, line, 1,
                       "no feature columns: the target is the only column kept");
    }
    if (faults->count == before && columns->features > DATA_FEATURES_MAX) {
        data_fault_add(faults, path, line, 1, "%llu feature columns; the most is %llu",
                       (unsigned long long)columns->features,
                       (unsigned long long)DATA_FEATURES_MAX);
    }
    if (faults->count == before) {
        check_expected(columns, settings, path, line, faults);
    }
    return faults->count == before ? 0 : err_set(err, ERR_DATA, "the columns do not fit");
}
