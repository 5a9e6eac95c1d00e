#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "proto/yaml_tree.h"

static bool is_safe(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '_' || byte == '.' || byte == '/' || byte == '-';
}

static bool is_plain(const char *text)
{
    if (*text == '\0' || *text == '-' || *text == '.') {
        return false;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (!is_safe(*at)) {
            return false;
        }
    }
    return true;
}

/* One UTF-8 character's code point and size; 0 bytes where it is none. */
static size_t code_point(const unsigned char *at, uint32_t *ret_point)
{
    size_t size = at[0] < 0x80                    ? 1
                  : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                  : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                  : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                  : 0;
    uint32_t point = size == 1 ? at[0] : at[0] & (0x7fU >> size);
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (at[i] & 0x3fU);
    }
    *ret_point = point;
    return size;
}

/* What a YAML reader takes as it is. */
static bool is_printable(uint32_t point)
{
    return (point >= 0x20 && point < 0x7f) ||
           (point >= 0xa0 && point < 0xd800 && point != 0x2028 && point != 0x2029) ||
           (point >= 0xe000 && point < 0xfffe && point != 0xfeff) ||
           (point >= 0x10000 && point < 0x110000);
}

static void write_text(const char *text, struct buf *out)
{
    if (is_plain(text)) {
        buf_print(out, "%s", text);
        return;
    }
    buf_put(out, "\"", 1);
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        uint32_t point = 0;
        size_t size = code_point(at, &point);
        if (size == 0) { /* Not UTF-8: only a caller's own text can be so. */
            buf_print(out, "\\ufffd");
            at++;
        } else if (point == '"' || point == '\\') {
            buf_print(out, "\\%c", (char)point);
            at += size;
        } else if (is_printable(point)) {
            buf_put(out, at, size);
            at += size;
        } else {
            buf_print(out,
                      point < 0x100     ? "\\x%02x"
                      : point < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                      point);
            at += size;
        }
    }
    buf_print(out, "\"");
}

static bool is_given(const struct yaml_key *key, const void *object)
{
    if (key->nullable &&
        *(char *const *)(const void *)((const char *)object + key->offset) == NULL) {
        return false;
    }
    return key->given == 0 || *(const bool *)((const char *)object + key->given - 1);
}

void yaml_write_value(const struct yaml_key *key, const void *object, struct buf *out)
{
    const void *field = (const char *)object + key->offset;
    const struct yaml_texts *texts = field;
    uint64_t whole = 0;
    if (key->type == YAML_INTEGER || key->type == YAML_DURATION || key->type == YAML_SIZE) {
        whole = *(const uint64_t *)field;
        if (key->word != NULL && whole == key->word_value) {
            buf_print(out, "%s", key->word);
            return;
        }
    }
    switch (key->type) {
    case YAML_TEXT:
        write_text(*(char *const *)field, out);
        break;
    case YAML_TEXTS:
        buf_put(out, "[", 1);
        for (size_t i = 0; i < texts->count; i++) {
            buf_put(out, ", ", i > 0 ? 2 : 0);
            write_text(texts->items[i], out);
        }
        buf_print(out, "]");
        break;
    case YAML_INTEGER:
        buf_print(out, "%llu", (unsigned long long)whole);
        break;
    case YAML_DURATION:
        yaml_print_duration(whole, out);
        break;
    case YAML_SIZE:
        yaml_print_size(whole, out);
        break;
    case YAML_NUMBER:
        yaml_print_number(*(const double *)field, out);
        break;
    case YAML_YES_NO:
        buf_print(out, "%s", *(const bool *)field ? "yes" : "no");
        break;
    case YAML_CHOICE:
        buf_print(out, "%s", key->choices[*(const int *)field]);
        break;
    case YAML_MAP:
    case YAML_MAPS:
    default:
        ASSERT(key->type < YAML_MAP); /* Not one value. */
    }
}

static void write_map(const struct yaml_schema *schema, const void *object, int indent,
                      bool first_in_line, struct buf *out);

static void write_key(const struct yaml_key *key, const void *object, int indent, struct buf *out)
{
    const void *field = (const char *)object + key->offset;
    if (key->type == YAML_MAP && key->word != NULL && !is_given(key, object)) {
        buf_print(out, "%s: %s\n", key->name, key->word);
    } else if (key->type == YAML_MAP) {
        buf_print(out, "%s:\n", key->name);
        write_map(key->schema, field, indent + 2, false, out);
    } else if (key->type == YAML_MAPS) {
        const struct yaml_items *items = field;
        buf_print(out, "%s:%s\n", key->name, items->count == 0 ? " []" : "");
        for (size_t i = 0; i < items->count; i++) {
            buf_print(out, "%*s- ", indent + 2, "");
            write_map(key->schema, (const char *)items->items + i * key->schema->size, indent + 4,
                      true, out);
        }
    } else {
        buf_print(out, "%s: ", key->name);
        yaml_write_value(key, object, out);
        buf_print(out, "\n");
    }
}

static void write_map(const struct yaml_schema *schema, const void *object, int indent,
                      bool first_in_line, struct buf *out)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct yaml_key *key = &schema->keys[i];
        if (key->hidden || (!is_given(key, object) && !(key->type == YAML_MAP))) {
            continue;
        }
        buf_print(out, "%*s", first_in_line ? 0 : indent, "");
        first_in_line = false;
        write_key(key, object, indent, out);
    }
}

void yaml_write(const struct yaml_schema *schema, const void *object, struct buf *out)
{
    write_map(schema, object, 0, false, out);
}

static void show_line(const char *path, const struct yaml_places *places, const char *parent,
                      struct buf *out)
{
    const char *place = yaml_place_of(places, path);
    if (place == NULL && parent[0] != '\0') {
        place = yaml_place_of(places, parent); /* of the list that it is a member of */
    }
    buf_print(out, "\t%s\n", place != NULL ? place : "default");
}

static void show_map(const struct yaml_schema *schema, const void *object, const char *parent,
                     const char *list, const struct yaml_places *places, struct buf *out)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct yaml_key *key = &schema->keys[i];
        const void *field = (const char *)object + key->offset;
        char path[YAML_PATH_SIZE];
        (void)snprintf(path, sizeof(path), "%s%s%s", parent, parent[0] != '\0' ? "." : "",
                       key->name);
        if (key->type == YAML_MAP && (key->word == NULL || is_given(key, object))) {
            show_map(key->schema, field, path, list, places, out);
        } else if (key->type == YAML_MAPS) {
            const struct yaml_items *items = field;
            for (size_t j = 0; j < items->count; j++) {
                char member[YAML_PATH_SIZE];
                (void)snprintf(member, sizeof(member), "%.200s[%zu]", path, j + 1);
                show_map(key->schema, (const char *)items->items + j * key->schema->size, member,
                         path, places, out);
            }
        } else if (key->type == YAML_MAP) {
            buf_print(out, "%s\t%s", path, key->word);
            show_line(path, places, list, out);
        } else if (is_given(key, object)) {
            buf_print(out, "%s\t", path);
            if (key->hidden) {
                buf_print(out, "(hidden)");
            } else {
                yaml_write_value(key, object, out);
            }
            show_line(path, places, list, out);
        }
    }
}

void yaml_show(const struct yaml_schema *schema, const void *object,
               const struct yaml_places *places, struct buf *out)
{
    show_map(schema, object, "", "", places, out);
}
