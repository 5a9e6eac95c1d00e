#include "data/advice.h"

#include <stdio.h>
#include <string.h>

#include "data/number.h"

/* The separator that the bytes have most of and that is not the one in use; 0: none. */
static uint8_t separator_in(const struct fields *fields, uint8_t mark, const uint8_t *bytes,
                            size_t size)
{
    static const char usual[] = ";\t|,";
    uint8_t found = 0;
    size_t most = 0;
    for (const char *at = usual; *at != '\0'; at++) {
        uint8_t byte = (uint8_t)*at;
        bool used = fields->space ? fields->blank[byte] : byte == fields->separator;
        size_t count = 0;
        for (size_t i = 0; i < size && !used && byte != mark; i++) {
            count += bytes[i] == byte ? 1 : 0;
        }
        if (count > most) {
            most = count;
            found = byte;
        }
    }
    return found;
}

static const char *set_format(const char *format, char sentence[ADVICE_SIZE])
{
    (void)snprintf(sentence, ADVICE_SIZE, "set data.format: %s (--format %s)", format, format);
    return sentence;
}

static const char *set_separator(const struct fields *fields, uint8_t separator,
                                 char sentence[ADVICE_SIZE])
{
    if (fields->space) {
        return set_format("csv", sentence);
    }
    char shown[3] = {(char)separator};
    if (separator == '\t') {
        memcpy(shown, "\\t", 3);
    }
    (void)snprintf(sentence, ADVICE_SIZE, "set data.separator: \"%s\" (--separator '%s')", shown,
                   shown);
    return sentence;
}

const char *advice_number(const struct fields *fields, uint8_t mark, const uint8_t *text,
                          size_t size, char sentence[ADVICE_SIZE])
{
    const uint8_t *end = text;
    double value = 0;
    uint8_t other = mark == '.' ? ',' : '.';
    const char *named = other == ',' ? "comma" : "point";
    if (memchr(text, '"', size) == NULL && number_parse(text, other, &end, &value) != NUMBER_NONE &&
        end == text + size) {
        if (!fields->space && fields->separator == other) {
            (void)snprintf(sentence, ADVICE_SIZE,
                           "a decimal %s needs another separator: write the file with ';' between "
                           "the fields",
                           named);
        } else {
            (void)snprintf(sentence, ADVICE_SIZE,
                           "where the %s is the decimal mark set data.decimal: \"%c\" (--decimal "
                           "%c)",
                           named, other, other);
        }
        return sentence;
    }
    uint8_t separator = separator_in(fields, mark, text, size);
    bool numeric = (text[0] >= '0' && text[0] <= '9') || memchr("+-.", text[0], 3) != NULL;
    return numeric && separator != 0 ? set_separator(fields, separator, sentence) : NULL;
}

const char *advice_line(const struct fields *fields, uint8_t mark, const uint8_t *line, size_t size,
                        char sentence[ADVICE_SIZE])
{
    uint8_t separator = separator_in(fields, mark, line, size);
    if (separator != 0) {
        return set_separator(fields, separator, sentence);
    }
    bool blanks = !fields->space && memchr(line, ' ', size) != NULL;
    return blanks ? set_format("space", sentence) : NULL;
}
