#include "data/faults.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void data_fault_add(struct data_faults *faults, const char *path, uint64_t line, uint64_t column,
                    const char *format, ...)
{
    if (faults_full(faults)) {
        return;
    }
    char sentence[ERR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);

    struct data_fault *fault = &faults->list[faults->count];
    fault->path = path;
    fault->structure = false;
    fault->line = line;
    fault->column = line > 0 ? column : 0;
    struct err err = {0};
    (void)err_set(&err, ERR_DATA, "%s", sentence);
    if (line > 0) {
        (void)err_prefix(&err, "%s:%llu:%llu: ", path, (unsigned long long)line,
                         (unsigned long long)column);
    } else {
        (void)err_prefix(&err, "%s: ", path);
    }
    memcpy(fault->text, err.text, sizeof(fault->text));
    faults->count++;
}

size_t utf8_step(const uint8_t *bytes, size_t size)
{
    if (size == 0) {
        return 0;
    }
    uint8_t lead = bytes[0];
    if (lead < 0x80) {
        return 1;
    }
    size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || size < length) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    if ((lead == 0xE0 && bytes[1] < 0xA0) || (lead == 0xED && bytes[1] > 0x9F) ||
        (lead == 0xF0 && bytes[1] < 0x90) || (lead == 0xF4 && bytes[1] > 0x8F)) {
        return 0; /* overlong, a surrogate, or past U+10FFFF */
    }
    return length;
}

const char *excerpt(char text[EXCERPT_SIZE], const uint8_t *bytes, size_t size)
{
    size_t used = 0;
    size_t at = 0;
    while (at < size && used < 32) {
        size_t step = utf8_step(bytes + at, size - at);
        if (step == 0 || bytes[at] < 0x20 || bytes[at] == 0x7F) {
            text[used] = '?';
            used++;
            at++;
            continue;
        }
        memcpy(text + used, bytes + at, step);
        used += step;
        at += step;
    }
    (void)snprintf(text + used, EXCERPT_SIZE - used, "%s", at < size ? "…" : "");
    return text;
}
