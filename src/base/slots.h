/* slots - a text with {{name}} in places that others fill. */
#ifndef ASH_BASE_SLOTS_H
#define ASH_BASE_SLOTS_H

#include <stddef.h>
#include "base/str.h"

struct ash_slot {
    const char *name, *text;
};

/* Append text with its slots filled; each must be among slots [count]. What fills one is not looked at. Returns 0 or
 * -ENOMEM. */
int ash_slots_fill(const char *text, const struct ash_slot *slots, size_t count, struct ash_str *out);

#endif
