#include "data/fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fields_fault(struct fields *fields, size_t at, const char *format, ...)
{
    char sentence[ERR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    const uint8_t *bytes = source_bytes(&fields->source);
    uint64_t line = fields->source.line;
    size_t begin = 0;
    for (size_t i = 0; i < at && fields->source.lines > 1; i++) {
        if (bytes[i] == '\n') {
            line++;
            begin = i + 1;
        }
    }
    data_fault_add(fields->faults, fields->source.path, line, at - begin + 1, "%s", sentence);
}

void fields_structure(struct fields *fields)
{
    fields->faults->list[fields->faults->count - 1].structure = true;
}

int fields_next_record(struct fields *fields, struct err *err)
{
    static const uint8_t mark[3] = {0xEF, 0xBB, 0xBF};
    for (;;) {
        int got = source_next(&fields->source, err);
        if (got != 1) {
            return got;
        }
        const uint8_t *bytes = source_bytes(&fields->source);
        size_t size = fields_record_size(fields);
        bool marked = fields->source.line == 1 && size >= sizeof(mark) &&
                      memcmp(bytes, mark, sizeof(mark)) == 0;
        fields->at = marked ? sizeof(mark) : 0;
        fields->finished = false;
        if (fields->space) {
            while (fields->at < size && fields->blank[bytes[fields->at]]) {
                fields->at++;
            }
        }
        if (fields->at < size) {
            return 1;
        }
    }
}

/* The offset of the quote that closes the field opened at `at`; the record grows where the field
 * spans lines (CSV). 1 and the offset, 0 where none closes it, or an error. */
static int find_close(struct fields *fields, size_t at, size_t *ret_close, bool *ret_doubled,
                      struct err *err)
{
    size_t scan = at + 1;
    *ret_doubled = false;
    for (;;) {
        const uint8_t *bytes = source_bytes(&fields->source);
        size_t size = fields->source.record_size;
        const uint8_t *quote = memchr(bytes + scan, '"', size - scan);
        if (quote == NULL) {
            scan = size;
            int more = fields->space ? 0 : source_extend(&fields->source, err);
            if (more != 1) {
                return more;
            }
            continue;
        }
        size_t offset = (size_t)(quote - bytes);
        if (offset + 1 < size && quote[1] == '"') {
            *ret_doubled = true;
            scan = offset + 2;
            continue;
        }
        *ret_close = offset;
        return 1;
    }
}

/* Where the record went wrong: said at the opening quote, then forgotten beyond its first line. */
static int quote_fault(struct fields *fields, size_t at, size_t close)
{
    if (close == 0) {
        fields_fault(fields, at, "the quoted field that opens here is never closed");
    } else {
        const uint8_t *bytes = source_bytes(&fields->source);
        char shown[EXCERPT_SIZE];
        uint64_t line = fields->source.line;
        size_t begin = 0;
        for (size_t i = 0; i < close; i++) {
            if (bytes[i] == '\n') {
                line++;
                begin = i + 1;
            }
        }
        fields_fault(fields, at,
                     "the quoted field that opens here closes at line %llu column %zu, but '%s' "
                     "follows instead of a separator: is a quote missing or not doubled?",
                     (unsigned long long)line, close - begin + 1,
                     excerpt(shown, bytes + close + 1, 1));
    }
    fields_structure(fields);
    source_cut(&fields->source);
    return FIELD_BAD;
}

static int quoted_field(struct fields *fields, struct field *field, struct err *err)
{
    size_t at = fields->at;
    size_t close = 0;
    bool doubled = false;
    int found = find_close(fields, at, &close, &doubled, err);
    if (found < 0) {
        return found;
    }
    if (found == 0) {
        return quote_fault(fields, at, 0);
    }
    const uint8_t *bytes = source_bytes(&fields->source);
    size_t size = fields_record_size(fields);
    size_t after = close + 1;
    if (after < size &&
        !(fields->space ? fields->blank[bytes[after]] : bytes[after] == fields->separator)) {
        return quote_fault(fields, at, close);
    }
    field->at = at;
    field->quoted = true;
    field->text = bytes + at + 1;
    field->size = close - at - 1;
    fields->finished = after >= size;
    fields->at = after + (fields->space ? 0 : 1);
    if (doubled) {
        buf_clear(&fields->text);
        for (size_t i = 0; i < field->size; i++) {
            buf_put_u8(&fields->text, field->text[i]);
            i += field->text[i] == '"' ? 1 : 0;
        }
        field->text = fields->text.bytes;
        field->size = fields->text.size;
    }
    return FIELD_OK;
}

int fields_next(struct fields *fields, struct field *ret_field, struct err *err)
{
    const uint8_t *bytes = source_bytes(&fields->source);
    size_t size = fields_record_size(fields);
    size_t at = fields->at;
    if (fields->space) {
        while (at < size && fields->blank[bytes[at]]) {
            at++;
        }
        fields->at = at;
        fields->finished = at >= size;
    }
    if (fields->finished) {
        return FIELD_END;
    }
    if (at < size && bytes[at] == '"') {
        return quoted_field(fields, ret_field, err);
    }
    size_t end = at;
    if (fields->space) {
        while (end < size && !fields->blank[bytes[end]]) {
            end++;
        }
        fields->at = end;
    } else {
        const uint8_t *separator = memchr(bytes + at, fields->separator, size - at);
        end = separator != NULL ? (size_t)(separator - bytes) : size;
        fields->at = end + 1;
        fields->finished = separator == NULL;
    }
    ret_field->at = at;
    ret_field->quoted = false;
    while (at < end && fields->blank[bytes[at]]) {
        at++;
    }
    while (end > at && fields->blank[bytes[end - 1]]) {
        end--;
    }
    ret_field->text = bytes + at;
    ret_field->size = end - at;
    if (memchr(bytes + at, '\r', end - at) != NULL) {
        const uint8_t *found = memchr(bytes + at, '\r', end - at);
        fields_fault(fields, (size_t)(found - bytes),
                     "a carriage return inside a line: lines end with LF or CRLF; convert a file "
                     "whose lines end with CR alone");
        return FIELD_BAD;
    }
    return FIELD_OK;
}
