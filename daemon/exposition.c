#include "daemon/exposition.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* Appends a label value; backslash, quote and line feed are escaped. What does not fit is cut
 * between characters. */
static void put_value(char *text, size_t *size, size_t capacity, const char *value)
{
    for (; *value != '\0'; value++) {
        char pair[3] = {*value, '\0', '\0'};
        if (*value == '\\' || *value == '"') {
            pair[0] = '\\';
            pair[1] = *value;
        } else if (*value == '\n') {
            pair[0] = '\\';
            pair[1] = 'n';
        }
        size_t more = strlen(pair);
        if (capacity - *size <= more + 1) { /* The closing quote must fit too. */
            return;
        }
        memcpy(text + *size, pair, more);
        *size += more;
    }
}

struct exposition_labels exposition_labels(const char *name, ...)
{
    struct exposition_labels labels = {""};
    size_t size = 0;
    va_list arguments;
    va_start(arguments, name);
    while (name != NULL) {
        const char *value = va_arg(arguments, const char *);
        ASSERT(value != NULL);
        ASSERT(strlen(name) + 8 < sizeof(labels.text) - size);
        int wrote = snprintf(labels.text + size, sizeof(labels.text) - size, "%s%s=\"",
                             size > 0 ? "," : "", name);
        size += (size_t)wrote;
        put_value(labels.text, &size, sizeof(labels.text) - 64, value);
        labels.text[size++] = '"';
        labels.text[size] = '\0';
        name = va_arg(arguments, const char *);
    }
    va_end(arguments);
    return labels;
}

void exposition_init(struct exposition *exposition, struct buf *out, bool openmetrics)
{
    *exposition = (struct exposition){.out = out, .openmetrics = openmetrics};
}

void exposition_family(struct exposition *exposition, const char *name, enum exposition_type type,
                       const char *help)
{
    static const char *const types[] = {
        [EXPOSITION_GAUGE] = "gauge",
        [EXPOSITION_COUNTER] = "counter",
        [EXPOSITION_HISTOGRAM] = "histogram",
    };
    const char *prefix = strncmp(name, "process_", strlen("process_")) == 0 ? "" : "coppelius_";
    int size = snprintf(exposition->name, sizeof(exposition->name), "%s%s", prefix, name);
    ASSERT(size > 0 && (size_t)size < sizeof(exposition->name));
    int family_size = size;
    if (type == EXPOSITION_COUNTER) {
        static const char total[] = "_total";
        int total_size = (int)sizeof(total) - 1;
        ASSERT(size > total_size && strcmp(exposition->name + size - total_size, total) == 0);
        if (exposition
                ->openmetrics) { /* There the family's name drops the suffix, samples keep it. */
            family_size -= total_size;
        }
    }
    buf_print(exposition->out, "# HELP %.*s %s\n# TYPE %.*s %s\n", family_size, exposition->name,
              help, family_size, exposition->name, types[type]);
}

static void put_name(struct exposition *exposition, const char *suffix,
                     const struct exposition_labels *labels)
{
    ASSERT(exposition->name[0] != '\0');
    if (labels == NULL || labels->text[0] == '\0') {
        buf_print(exposition->out, "%s%s ", exposition->name, suffix);
    } else {
        buf_print(exposition->out, "%s%s{%s} ", exposition->name, suffix, labels->text);
    }
}

static void put_f64(struct exposition *exposition, double value)
{
    if (isnan(value)) {
        buf_print(exposition->out, "NaN\n");
    } else if (isinf(value)) {
        buf_print(exposition->out, "%sInf\n", value > 0 ? "+" : "-");
    } else {
        buf_print(exposition->out, "%.17g\n", value);
    }
}

void exposition_u64(struct exposition *exposition, const struct exposition_labels *labels,
                    uint64_t value)
{
    put_name(exposition, "", labels);
    buf_print(exposition->out, "%" PRIu64 "\n", value);
}

void exposition_f64(struct exposition *exposition, const struct exposition_labels *labels,
                    double value)
{
    put_name(exposition, "", labels);
    put_f64(exposition, value);
}

void exposition_histogram(struct exposition *exposition, const struct exposition_labels *labels,
                          const struct histogram *histogram)
{
    const char *own = labels == NULL ? "" : labels->text;
    const char *comma = own[0] == '\0' ? "" : ",";
    uint64_t count = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        count += histogram->counts[i];
        buf_print(exposition->out, "%s_bucket{%s%sle=\"%.9g\"} %" PRIu64 "\n", exposition->name,
                  own, comma, histogram_bound(histogram, i), count);
    }
    count += histogram->counts[HISTOGRAM_BUCKETS];
    buf_print(exposition->out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", exposition->name, own,
              comma, count);
    put_name(exposition, "_sum", labels);
    put_f64(exposition, histogram->sum);
    put_name(exposition, "_count", labels);
    buf_print(exposition->out, "%" PRIu64 "\n", count);
}

void exposition_end(struct exposition *exposition)
{
    if (exposition->openmetrics) {
        buf_print(exposition->out, "# EOF\n");
    }
    exposition->name[0] = '\0';
}
