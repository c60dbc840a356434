/* number - numbers as text, the same in every locale and without losing a bit. */
#ifndef ASH_BASE_NUMBER_H
#define ASH_BASE_NUMBER_H

#include <stdint.h>
#include "base/str.h"

/* The whole text as a finite number. Returns 0, -EINVAL (not a number, NaN, space around it) or -ERANGE (infinite). */
int ash_number_parse(const char *text, double *value_out);
/* The whole text as an integer, however people write one: 1000000, 1_000_000, 1e6, 1m, 0.5g, 1.5T, 64ki. Suffixes, in
 * either case: k, m, g or b, t are powers of 1,000; ki, mi, gi, ti of 1,024. Exact: nothing is rounded. Returns 0,
 * -EINVAL (no number, or one that is not whole) or -ERANGE (it does not fit 64 bits). */
int ash_number_parse_whole(const char *text, int64_t *value_out);
#define ASH_NUMBER_BYTES 40

/* value as the shortest of 15 to 17 digits that reads back as the same double, in buf (ASH_NUMBER_BYTES), which it
 * returns. */
const char *ash_number_format(double value, char *buf);
/* Append the same to str. Returns 0 or -ENOMEM. */
int ash_number_add(struct ash_str *str, double value);

/* "100-105" or "100": two whole numbers, the first not above the last. Returns 0 or -EINVAL. */
int ash_number_range(const char *text, uint64_t *first_out, uint64_t *last_out);

#endif
