/* Numbers as text: always in the C locale, because a file means the same whatever language its reader speaks. */
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

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

int ash_number_add(struct ash_str *str, double value)
{
    locale_t locale = c_locale(), before = locale != NONE ? uselocale(locale) : NONE;
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        double back = 0;
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (ash_number_parse(text, &back) == 0 && back == value) break;
    }
    if (before != NONE) uselocale(before);
    return ash_str_adds(str, text);
}
