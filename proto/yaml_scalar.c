#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/yaml_tree.h"

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Digits at *text as a u64; false where there is none or it does not fit. */
static bool take_digits(const char **text, uint64_t *ret_value)
{
    const char *at = *text;
    uint64_t value = 0;
    if (!is_digit(*at)) {
        return false;
    }
    for (; is_digit(*at); at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *text = at;
    *ret_value = value;
    return true;
}

const char *yaml_scalar_integer(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (!take_digits(&text, &value) || *text != '\0') {
        return "a whole number";
    }
    *ret_value = value;
    return NULL;
}

const char *yaml_scalar_number(const char *text, double *ret_value)
{
    /* [+-] digits [. digits] [e [+-] digits]: no hexadecimal, no infinity, no locale. */
    const char *at = text;
    size_t digits = 0;
    at += *at == '+' || *at == '-';
    for (; is_digit(*at); at++) {
        digits++;
    }
    if (*at == '.') {
        for (at++; is_digit(*at); at++) {
            digits++;
        }
    }
    if (digits > 0 && (*at == 'e' || *at == 'E')) {
        at++;
        at += *at == '+' || *at == '-';
        if (!is_digit(*at)) {
            return "a number";
        }
        for (; is_digit(*at); at++) {
        }
    }
    if (digits == 0 || *at != '\0') {
        return "a number";
    }
    double value = strtod(text, NULL);
    if (!isfinite(value)) {
        return "a number within binary64's range";
    }
    *ret_value = value;
    return NULL;
}

const char *yaml_scalar_yes_no(const char *text, bool *ret_value)
{
    if (strcmp(text, "yes") == 0 || strcmp(text, "true") == 0) {
        *ret_value = true;
        return NULL;
    }
    if (strcmp(text, "no") == 0 || strcmp(text, "false") == 0) {
        *ret_value = false;
        return NULL;
    }
    return "yes or no";
}

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit durations[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
static const struct unit sizes[] = {{"", 1},
                                    {"K", UINT64_C(1) << 10},
                                    {"M", UINT64_C(1) << 20},
                                    {"G", UINT64_C(1) << 30},
                                    {"T", UINT64_C(1) << 40}};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct unit *unit_at(const char *text, const struct unit *units, size_t count,
                                  size_t *ret_size)
{
    size_t size = 0;
    while (isalpha((unsigned char)text[size])) {
        size++;
    }
    *ret_size = size;
    for (size_t i = 0; i < count; i++) {
        if (strlen(units[i].name) == size && memcmp(units[i].name, text, size) == 0) {
            return &units[i];
        }
    }
    return NULL;
}

const char *yaml_scalar_duration(const char *text, uint64_t *ret_ms)
{
    static const char expected[] = "a duration such as 90s, 10min or 2h";
    uint64_t total = 0;
    if (strcmp(text, "0") == 0) {
        *ret_ms = 0;
        return NULL;
    }
    if (*text == '\0') {
        return expected;
    }
    while (*text != '\0') {
        uint64_t value = 0;
        size_t unit_size = 0;
        if (!take_digits(&text, &value)) {
            return expected;
        }
        const struct unit *unit = unit_at(text, durations, COUNT(durations), &unit_size);
        if (unit == NULL || value > (UINT64_MAX - total) / unit->factor) {
            return expected;
        }
        total += value * unit->factor;
        text += unit_size;
    }
    *ret_ms = total;
    return NULL;
}

const char *yaml_scalar_size(const char *text, uint64_t *ret_bytes)
{
    static const char expected[] = "a size such as 512M or 4G";
    uint64_t value = 0;
    size_t unit_size = 0;
    if (!take_digits(&text, &value)) {
        return expected;
    }
    const struct unit *unit = unit_at(text, sizes, COUNT(sizes), &unit_size);
    if (unit == NULL || text[unit_size] != '\0' || value > UINT64_MAX / unit->factor) {
        return expected;
    }
    *ret_bytes = value * unit->factor;
    return NULL;
}

void yaml_print_number(double value, struct buf *out)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (memcmp(&back, &value, sizeof(back)) == 0) {
            break;
        }
    }
    buf_print(out, "%s", text);
}

static void print_unit(uint64_t value, const struct unit *units, size_t count, struct buf *out)
{
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        if (value != 0 && value % units[i].factor == 0) {
            best = i;
        }
    }
    buf_print(out, "%llu%s", (unsigned long long)(value / units[best].factor), units[best].name);
}

void yaml_print_duration(uint64_t ms, struct buf *out)
{
    print_unit(ms, durations, COUNT(durations), out);
}

void yaml_print_size(uint64_t bytes, struct buf *out)
{
    print_unit(bytes, sizes, COUNT(sizes), out);
}

#define WORD_MAX 63

/* Insertions, deletions, replacements and swaps of neighbours (optimal string alignment). */
static size_t distance(const char *a, const char *b)
{
    size_t a_size = strlen(a);
    size_t b_size = strlen(b);
    size_t rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= b_size; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t *now = rows[i % 3];
        const size_t *before = rows[(i + 2) % 3];
        const size_t *earlier = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            int x = tolower((unsigned char)a[i - 1]);
            int y = tolower((unsigned char)b[j - 1]);
            size_t best = before[j - 1] + (x != y ? 1 : 0);
            best = before[j] + 1 < best ? before[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == y && earlier[j - 2] + 1 < best) {
                best = earlier[j - 2] + 1;
            }
            now[j] = best;
        }
    }
    return rows[a_size % 3][b_size];
}

const char *yaml_nearest(const char *word, const char *const *names, size_t names_count)
{
    size_t size = strlen(word);
    size_t best = size < 2 ? 0 : size < 6 ? 1 : size / 3; /* edits that are still a typo */
    const char *nearest = NULL;
    if (size > WORD_MAX) {
        return NULL;
    }
    for (size_t i = 0; i < names_count; i++) {
        if (strlen(names[i]) > WORD_MAX) {
            continue;
        }
        size_t edits = distance(word, names[i]);
        if (edits < best || (edits == best && nearest == NULL)) {
            best = edits;
            nearest = names[i];
        }
    }
    return nearest;
}
