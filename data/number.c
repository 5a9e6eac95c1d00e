#include "data/number.h"

#include <locale.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

__extension__ typedef unsigned __int128 wide;

#define DIGITS_KEPT    800U /* binary64 never needs more than 767 and a sticky one */
#define EXPONENT_CLAMP 100000

/* 5^k for k of 0 .. 27: the last one below 2^63. */
static const uint64_t fives[28] = {
    1U,
    5U,
    25U,
    125U,
    625U,
    3125U,
    15625U,
    78125U,
    390625U,
    1953125U,
    9765625U,
    48828125U,
    244140625U,
    1220703125U,
    6103515625U,
    30517578125U,
    152587890625U,
    762939453125U,
    3814697265625U,
    19073486328125U,
    95367431640625U,
    476837158203125U,
    2384185791015625U,
    11920928955078125U,
    59604644775390625U,
    298023223876953125U,
    1490116119384765625U,
    7450580596923828125U,
};

static const double tens[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    ASSERT(c_locale != (locale_t)0);
}

/* mantissa (top bit set) * 2^exponent, with a sticky bit for what lies below, to the nearest. The
 * result is a normal number: the caller's powers are small. */
static double round_to_nearest(uint64_t mantissa, int exponent, bool sticky)
{
    uint64_t kept = mantissa >> 11;
    uint64_t rest = mantissa & 0x7FFU;
    if (rest > 0x400U || (rest == 0x400U && (sticky || (kept & 1U) != 0))) {
        kept++; /* 2^53 is fine: the addition below carries into the exponent. */
    }
    uint64_t bits = ((uint64_t)(exponent + 11 + 52 + 1023) << 52) + (kept - (UINT64_C(1) << 52));
    double value = 0;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* mantissa * 10^power, |power| <= 27, mantissa > 0. */
static double scale_exactly(uint64_t mantissa, int power)
{
    int shift = __builtin_clzll(mantissa);
    uint64_t top = mantissa << shift;
    if (power >= 0) {
        wide product = (wide)top * fives[power];
        uint64_t high = (uint64_t)(product >> 64);
        uint64_t low = (uint64_t)product;
        if (high == 0) {
            return round_to_nearest(low, power - shift, false);
        }
        int more = __builtin_clzll(high);
        uint64_t value = more == 0 ? high : (high << more) | (low >> (64 - more));
        return round_to_nearest(value, 64 - more - shift + power, (low << more) != 0);
    }
    int divisor_shift = __builtin_clzll(fives[-power]);
    uint64_t divisor = fives[-power] << divisor_shift;
    /* top * 2^63 / divisor lies in 2^62 .. 2^64: one bit of normalisation at most. */
    wide dividend = (wide)top << 63;
    uint64_t quotient = (uint64_t)(dividend / divisor);
    bool sticky = (wide)quotient * divisor != dividend;
    int exponent = power - shift - 63 + divisor_shift;
    if (quotient >> 63 == 0) {
        /* One more bit of the quotient, or 63 bits would round as if the 64th were 0. */
        uint64_t rest = (uint64_t)(dividend - (wide)quotient * divisor);
        uint64_t bit = rest >= divisor - rest ? 1U : 0U;
        sticky = bit != 0 ? rest != divisor - rest : rest != 0;
        quotient = (quotient << 1) | bit;
        exponent--;
    }
    return round_to_nearest(quotient, exponent, sticky);
}

/* The first 19 digits from `text` (a digit that is not 0) decide where both they and they plus one
 * in the last place round to the same number. power is that of the number's last digit; digits are
 * counted from text. 1 where they decide. */
static int parse_front(const uint8_t *text, uint8_t mark, size_t digits, int64_t power,
                       double *ret_value)
{
    uint64_t mantissa = 0;
    for (unsigned taken = 0; taken < 19; text++) {
        if (*text != mark) {
            mantissa = mantissa * 10U + (uint64_t)(*text - '0');
            taken++;
        }
    }
    power += (int64_t)digits - 19;
    if (power < -27 || power > 27) {
        return 0;
    }
    double below = scale_exactly(mantissa, (int)power);
    double above = scale_exactly(mantissa + 1, (int)power);
    *ret_value = below;
    return below == above;
}

/* Any number of digits: text up to end is known to be well formed. power is the written exponent.
 */
static enum number_status parse_long(const uint8_t *text, const uint8_t *end, uint8_t mark,
                                     int64_t power, double *ret_value)
{
    char digits[DIGITS_KEPT + 40];
    size_t kept = 0;
    bool negative = *text == '-';
    bool sticky = false;
    bool after_mark = false;
    size_t used = 0;
    digits[used++] = negative ? '-' : '+';
    for (; text < end && (*text | 0x20) != 'e'; text++) {
        if (*text == mark) {
            after_mark = true;
            continue;
        }
        if (*text < '0' || *text > '9') {
            continue; /* the sign */
        }
        if (kept > 0 || *text != '0') {
            if (kept < DIGITS_KEPT) {
                digits[used++] = (char)*text;
                kept++;
                power -= after_mark ? 1 : 0;
            } else {
                sticky = sticky || *text != '0';
                power += after_mark ? 0 : 1;
            }
        } else {
            power -= after_mark ? 1 : 0; /* a zero in front */
        }
    }
    if (kept == 0) {
        *ret_value = negative ? -0.0 : 0.0;
        return NUMBER_OK;
    }
    if (sticky) {
        digits[used++] = '1';
        power--;
    }
    if (power > EXPONENT_CLAMP || power < -EXPONENT_CLAMP) {
        power = power > 0 ? EXPONENT_CLAMP : -EXPONENT_CLAMP;
    }
    (void)snprintf(digits + used, sizeof(digits) - used, "e%d", (int)power);
    (void)pthread_once(&c_locale_once, make_locale);
    double value = strtod_l(digits, NULL, c_locale);
    if (value - value != 0.0) {
        return NUMBER_RANGE;
    }
    *ret_value = value;
    return NUMBER_OK;
}

enum number_status number_parse(const uint8_t *text, uint8_t mark, const uint8_t **ret_end,
                                double *ret_value)
{
    const uint8_t *at = text;
    bool negative = *at == '-';
    at += negative || *at == '+' ? 1 : 0;
    const uint8_t *first = at;
    uint64_t mantissa = 0;
    for (; (unsigned)(*at - '0') <= 9U; at++) {
        mantissa =
            mantissa * 10U + (uint64_t)(*at - '0'); /* Wraps past 19 digits: not used then. */
    }
    size_t digits = (size_t)(at - first);
    int64_t power = 0;
    if (*at == mark) {
        at++;
        const uint8_t *fraction = at;
        for (; (unsigned)(*at - '0') <= 9U; at++) {
            mantissa = mantissa * 10U + (uint64_t)(*at - '0');
        }
        size_t fraction_digits = (size_t)(at - fraction);
        digits += fraction_digits;
        power = -(int64_t)fraction_digits;
    }
    if (digits == 0) {
        *ret_end = text;
        return NUMBER_NONE;
    }
    const uint8_t *last = at; /* behind the digits */
    int64_t written = 0;
    if ((*at | 0x20) == 'e') {
        const uint8_t *exponent = at + 1;
        bool down = *exponent == '-';
        exponent += down || *exponent == '+' ? 1 : 0;
        if ((unsigned)(*exponent - '0') <= 9U) {
            for (; (unsigned)(*exponent - '0') <= 9U; exponent++) {
                written = written < (INT64_C(1) << 40) ? written * 10 + (*exponent - '0') : written;
            }
            written = down ? -written : written;
            at = exponent;
        }
    }
    *ret_end = at;
    power += written;
    if (digits > 19) { /* Zeros in front (0.000123) do not count. */
        for (; first < last && (*first == '0' || *first == mark); first++) {
            digits -= *first == '0' ? 1 : 0;
        }
    }
    if (digits <= 19 && power >= -27 && power <= 27) {
        double value = 0;
        if (mantissa == 0) {
            value = 0.0;
        } else if (mantissa <= UINT64_C(1) << 53 && power >= -22 && power <= 22) {
            /* Both exact in binary64, so one operation rounds once (Clinger, 1990). */
            value = power < 0 ? (double)mantissa / tens[-power] : (double)mantissa * tens[power];
        } else {
            value = scale_exactly(mantissa, (int)power);
        }
        *ret_value = negative ? -value : value;
        return NUMBER_OK;
    }
    double value = 0;
    if (digits > 19 && parse_front(first, mark, digits, power, &value) == 1) {
        *ret_value = negative ? -value : value;
        return NUMBER_OK;
    }
    return parse_long(text, at, mark, written, ret_value);
}
