/* number - doubles as text, the same in every locale and without losing a bit. */
#ifndef ASH_BASE_NUMBER_H
#define ASH_BASE_NUMBER_H

#include "base/str.h"

/* The whole text as a finite number. Returns 0, -EINVAL (not a number, NaN, space around it) or -ERANGE (infinite). */
int ash_number_parse(const char *text, double *value_out);
/* Append value as the shortest of 15 to 17 digits that reads back as the same double. Returns 0 or -ENOMEM. */
int ash_number_add(struct ash_str *str, double value);

#endif
