/* Growing lists of ids. */
#include "text/tokenizer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

void ash_ids_fini(struct ash_ids *ids)
{
    free(ids->data);
    *ids = (struct ash_ids){0};
}

int ash_ids_add(struct ash_ids *ids, int32_t id)
{
    ash_assert(ids->count <= ids->capacity);
    if (ids->count == ids->capacity) {
        size_t capacity = ids->capacity > 0 ? ids->capacity * 2 : 64;
        int32_t *grown = realloc(ids->data, capacity * sizeof(*grown));
        if (grown == NULL) return -ENOMEM;
        ids->data = grown;
        ids->capacity = capacity;
    }
    ids->data[ids->count++] = id;
    return 0;
}
