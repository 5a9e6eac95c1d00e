/* Decimal text to the nearest binary64, whatever the locale: [+-] digits [mark digits] [e [+-]
 * digits], with digits on at least one side of the mark. No nan, inf or hexadecimal.
 *
 * Up to 19 digits and powers of ten from -27 to 27 are rounded here, exactly: with integers (64
 * bits of mantissa, times or divided by a power of five that fits 64 bits, and a sticky bit). All
 * else goes through strtod_l in the C locale, with at most 800 digits and a sticky one. Private to
 * data. */
#ifndef COPPELIUS_DATA_NUMBER_H
#define COPPELIUS_DATA_NUMBER_H

#include <stddef.h>
#include <stdint.h>

enum number_status {
    NUMBER_OK,
    NUMBER_NONE,  /* no number begins here */
    NUMBER_RANGE, /* beyond binary64 */
};

/* Reads the longest number at text; the bytes must hold one that is part of no number (a line feed)
 * behind it. mark is '.' or ','. *ret_end is behind the number. */
enum number_status number_parse(const uint8_t *text, uint8_t mark, const uint8_t **ret_end,
                                double *ret_value);

/* Rounds to binary32; -1 where that leaves its range. */
static inline int number_to_f32(double value, float *ret_value)
{
    float rounded = (float)value;
    *ret_value = rounded;
    return rounded - rounded == 0.0F ? 0 : -1;
}

#endif
