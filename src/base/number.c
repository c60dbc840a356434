/* Numbers as text: always in the C locale, because a file means the same whatever language its reader speaks. */
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/assert.h"

#define NONE ((locale_t)0)

/* Made once and kept. NONE when the system has no memory for it: then the current locale must do. */
static locale_t c_locale(void)
{
    static locale_t shared;
    locale_t known = __atomic_load_n(&shared, __ATOMIC_ACQUIRE), fresh;

    if (known != NONE) return known;
    fresh = newlocale(LC_ALL_MASK, "C", NONE);
    if (fresh == NONE || __atomic_compare_exchange_n(&shared, &known, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return fresh;
    freelocale(fresh); /* another thread was first */
    return known;
}

int ash_number_parse(const char *text, double *value_out)
{
    locale_t locale = c_locale();
    char *end = NULL;
    double value;

    if (text[0] == '\0' || isspace((unsigned char)text[0])) return -EINVAL;
    value = locale != NONE ? strtod_l(text, &end, locale) : strtod(text, &end);
    if (*end != '\0' || isnan(value)) return -EINVAL;
    if (isinf(value)) return -ERANGE;
    *value_out = value;
    return 0;
}

/* A decimal as digits * 10^exponent10 * 2^exponent2. */
struct decimal {
    uint64_t digits;
    int exponent10, exponent2;
};

#define EXPONENT_MAX 400 /* beyond it nothing but zero fits */

/* Digits with '_' between them, and a fraction. Returns where they end, or NULL: there are none, or too many. */
static const char *take_digits(const char *text, struct decimal *decimal)
{
    bool has_digit = false, in_fraction = false;

    for (;; text++) {
        if (isdigit((unsigned char)*text)) {
            if (__builtin_mul_overflow(decimal->digits, 10, &decimal->digits) ||
                __builtin_add_overflow(decimal->digits, (uint64_t)(*text - '0'), &decimal->digits))
                return NULL;
            decimal->exponent10 -= in_fraction;
            has_digit = true;
        } else if (*text == '.' && !in_fraction) {
            in_fraction = true;
        } else if (*text != '_' || !has_digit || !isdigit((unsigned char)text[1])) {
            return has_digit ? text : NULL;
        }
    }
}

/* An exponent ("e6"), if there is one. Returns its end. */
static const char *take_exponent(const char *text, struct decimal *decimal)
{
    const char *digits = text + 1;
    char *end = NULL;
    long exponent;

    if (*text != 'e' && *text != 'E') return text;
    if (*digits == '+' || *digits == '-') digits++;
    if (!isdigit((unsigned char)*digits)) return text;
    exponent = strtol(text + 1, &end, 10);
    if (exponent > EXPONENT_MAX) exponent = EXPONENT_MAX;
    if (exponent < -EXPONENT_MAX) exponent = -EXPONENT_MAX;
    decimal->exponent10 += (int)exponent;
    return end;
}

static int take_suffix(const char *suffix, struct decimal *decimal)
{
    static const struct {
        const char *text;
        int exponent10, exponent2;
    } known[] = {{"", 0, 0},   {"k", 3, 0},   {"m", 6, 0},   {"g", 9, 0},   {"b", 9, 0},
                 {"t", 12, 0}, {"ki", 0, 10}, {"mi", 0, 20}, {"gi", 0, 30}, {"ti", 0, 40}};

    for (size_t i = 0; i < ASH_COUNT(known); i++) {
        if (strcasecmp(known[i].text, suffix) != 0) continue;
        decimal->exponent10 += known[i].exponent10;
        decimal->exponent2 += known[i].exponent2;
        return 0;
    }
    return -EINVAL;
}

/* digits * 10^exponent10 * 2^exponent2, if that is whole. As ash_number_parse_whole. */
static int evaluate(struct decimal decimal, uint64_t *value_out)
{
    uint64_t value = decimal.digits;

    if (value == 0) decimal.exponent10 = 0;
    for (; decimal.exponent10 < 0 && value % 10 == 0; decimal.exponent10++)
        value /= 10;
    for (; decimal.exponent2 > 0; decimal.exponent2--)
        if (__builtin_mul_overflow(value, 2, &value)) return -ERANGE;
    for (; decimal.exponent10 < 0; decimal.exponent10++, value /= 10)
        if (value % 10 != 0) return -EINVAL;
    for (; decimal.exponent10 > 0; decimal.exponent10--)
        if (__builtin_mul_overflow(value, 10, &value)) return -ERANGE;
    *value_out = value;
    return 0;
}

/* Why take_digits refused: too many digits for 64 bits, or none at all. */
static int refuse_digits(const char *text)
{
    return isdigit((unsigned char)text[text[0] == '.']) ? -ERANGE : -EINVAL;
}

int ash_number_parse_whole(const char *text, int64_t *value_out)
{
    const char *digits = text[0] == '-' || text[0] == '+' ? text + 1 : text, *end;
    struct decimal decimal = {0};
    uint64_t magnitude = 0;
    int rc;

    end = take_digits(digits, &decimal);
    if (end == NULL) return refuse_digits(digits);
    rc = take_suffix(take_exponent(end, &decimal), &decimal);
    if (rc < 0) return rc;
    rc = evaluate(decimal, &magnitude);
    if (rc < 0) return rc;
    if (magnitude > (uint64_t)INT64_MAX + (text[0] == '-')) return -ERANGE;
    *value_out = text[0] == '-' ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return 0;
}

const char *ash_number_format(double value, char *buf)
{
    locale_t locale = c_locale(), before = locale != NONE ? uselocale(locale) : NONE;

    for (int digits = 15; digits <= 17; digits++) {
        double back = 0;
        snprintf(buf, ASH_NUMBER_BYTES, "%.*g", digits, value);
        if (ash_number_parse(buf, &back) == 0 && back == value) break;
    }
    if (before != NONE) uselocale(before);
    return buf;
}

int ash_number_add(struct ash_str *str, double value)
{
    char text[ASH_NUMBER_BYTES];

    return ash_str_adds(str, ash_number_format(value, text));
}

int ash_number_range(const char *text, uint64_t *first_out, uint64_t *last_out)
{
    char *end = NULL;
    uint64_t first, last;

    if (!isdigit((unsigned char)text[0])) return -EINVAL;
    errno = 0;
    first = last = strtoull(text, &end, 10);
    if (*end == '-' && isdigit((unsigned char)end[1])) last = strtoull(end + 1, &end, 10);
    if (errno != 0 || *end != '\0' || first > last) return -EINVAL;
    *first_out = first;
    *last_out = last;
    return 0;
}
