/* Values of the JSON documents; private to documents*.c. What is not known is null, and so is a
 * number that is not finite. All end the process where there is no memory: see documents.h. */
#ifndef COPPELIUS_DAEMON_DOCUMENT_VALUES_H
#define COPPELIUS_DAEMON_DOCUMENT_VALUES_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/assert.h"
#include "daemon/documents.h"

static inline json_t *must(json_t *made)
{
    ASSERT(made != NULL); /* No memory: see documents.h. */
    return made;
}

static inline json_t *text(const char *value)
{
    json_t *made = json_string(value);
    if (made != NULL) {
        return made;
    }
    char *clean = strdup(value); /* Not UTF-8: a file's name, say. */
    ASSERT(clean != NULL);
    for (char *at = clean; *at != '\0'; at++) {
        *at = (unsigned char)*at >= 0x80 ? '?' : *at;
    }
    made = must(json_string(clean));
    free(clean);
    return made;
}

static inline json_t *text_or_null(const char *value)
{
    return value[0] == '\0' ? json_null() : text(value);
}

static inline json_t *integer(uint64_t value)
{
    return must(json_integer((json_int_t)value));
}

static inline json_t *integer_if(bool known, uint64_t value)
{
    return known ? integer(value) : json_null();
}

static inline json_t *number(double value)
{
    json_t *made = json_real(value); /* NULL where it is not finite. */
    return made == NULL ? json_null() : made;
}

static inline json_t *number_if(bool known, double value)
{
    return known ? number(value) : json_null();
}

static inline json_t *hex_if(bool known, double value)
{
    char hex[64];
    (void)snprintf(hex, sizeof(hex), "%a", value);
    return known ? text(hex) : json_null();
}

static inline json_t *time_or_null(int64_t wall_ms)
{
    return wall_ms == 0 ? json_null() : must(json_integer(wall_ms));
}

static inline void set(json_t *object, const char *name, json_t *value)
{
    int status = json_object_set_new(object, name, value);
    ASSERT(status == 0);
}

static inline void add(json_t *list, json_t *value)
{
    int status = json_array_append_new(list, value);
    ASSERT(status == 0);
}

static inline json_t *document(void)
{
    json_t *object = must(json_object());
    set(object, "schema", integer(1));
    return object;
}

static inline json_t *boolean(bool value)
{
    return json_boolean(value);
}

static inline void set_name(json_t *object, const struct facts_job *job)
{
    set(object, "job", integer(job->id));
    set(object, "name", text(job->name));
}

#endif
