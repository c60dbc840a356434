/* array: room is doubled, so that n items cost O(n) copies. */
#include "base/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

#define FIRST_CAPACITY 8

int ash_array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes)
{
    size_t room = ash_max(FIRST_CAPACITY, ash_max(2 * *capacity, wanted));
    void *old, *grown;

    if (wanted <= *capacity) return 0;
    memcpy(&old, items, sizeof(old)); /* whatever it points to */
    grown = room <= SIZE_MAX / item_bytes ? realloc(old, room * item_bytes) : NULL;
    if (grown == NULL) return -ENOMEM;
    memcpy(items, &grown, sizeof(grown));
    *capacity = room;
    return 0;
}
