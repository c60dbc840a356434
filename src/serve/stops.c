/* Stop strings: the held-back end is at most one byte shorter than the longest of them, so plain search is cheap
 * enough. */
#include "serve/stops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

int ash_stops_init(struct ash_stops *stops, const char *const *items, size_t count, struct ash_err *err)
{
    struct ash_stops built = {0};

    if (count > ASH_STOPS_MAX)
        return ash_err_set(err, -EINVAL, "%zu stop strings are more than %d", count, ASH_STOPS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (items[i][0] == '\0')
            return ash_err_set(err, -EINVAL, "a stop string is empty: it would end every answer at once");
        if (strlen(items[i]) > ASH_STOP_BYTES_MAX)
            return ash_err_set(err, -EINVAL, "a stop string of %zu bytes is longer than %d", strlen(items[i]),
                               ASH_STOP_BYTES_MAX);
    }
    built.items = calloc(count + 1, sizeof(*built.items));
    if (built.items == NULL) goto fail;
    for (size_t i = 0; i < count; i++) {
        built.items[i] = strdup(items[i]);
        if (built.items[i] == NULL) goto fail;
        built.count++;
    }
    *stops = built;
    return 0;

fail:
    ash_stops_fini(&built);
    return ash_err_set(err, -ENOMEM, "no memory for %zu stop strings", count);
}

void ash_stops_fini(struct ash_stops *stops)
{
    for (size_t i = 0; i < stops->count; i++)
        free(stops->items[i]);
    free(stops->items);
    *stops = (struct ash_stops){0};
}

/* Bytes at the end of text that are the beginning of stop, but not all of it. */
static size_t overlap(const char *text, size_t size_bytes, const char *stop)
{
    size_t most = strlen(stop) - 1;

    for (size_t n = most < size_bytes ? most : size_bytes; n > 0; n--)
        if (memcmp(text + size_bytes - n, stop, n) == 0) return n;
    return 0;
}

size_t ash_stops_scan(const struct ash_stops *stops, const char *text, size_t size_bytes, bool *found_out)
{
    size_t first = size_bytes, first_end = size_bytes + 1, held = 0;

    ash_assert(text != NULL || size_bytes == 0);
    for (size_t i = 0; i < stops->count && size_bytes > 0; i++) {
        size_t bytes = strlen(stops->items[i]);
        const char *at = memmem(text, size_bytes, stops->items[i], bytes);
        size_t begin = at != NULL ? (size_t)(at - text) : size_bytes, end = begin + bytes;

        if (at == NULL || end > first_end || (end == first_end && begin > first)) continue;
        first = begin;
        first_end = end;
    }
    *found_out = first_end <= size_bytes;
    if (*found_out) return first;
    for (size_t i = 0; i < stops->count; i++) {
        size_t bytes = overlap(text, size_bytes, stops->items[i]);

        held = bytes > held ? bytes : held;
    }
    return size_bytes - held;
}
