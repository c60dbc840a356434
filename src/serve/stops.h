/* stops - strings that end an answer. A stop string may be spread over several tokens, so text that could still become
 * one is held back: no part of a stop string is ever shown. */
#ifndef ASH_SERVE_STOPS_H
#define ASH_SERVE_STOPS_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

#define ASH_STOPS_MAX 64
#define ASH_STOP_BYTES_MAX 4096

struct ash_stops {
    char **items; /* NUL-terminated, not empty */
    size_t count;
};

/* Copy items. -EINVAL for an empty one, one that is too long, or too many. */
int ash_stops_init(struct ash_stops *stops, const char *const *items, size_t count, struct ash_err *err);
/* A zeroed struct is a no-op. */
void ash_stops_fini(struct ash_stops *stops);

/* How many bytes of text (decoded, not given out yet) may be given out: all before the stop string that ends first, and
 * then *found_out is set; else all but the longest end that is the beginning of a stop string. Text held back must be
 * at the front of the next call's text. How the text is cut into calls changes nothing. */
size_t ash_stops_scan(const struct ash_stops *stops, const char *text, size_t size_bytes, bool *found_out);

#endif
