/* Growing lists of ids. */
#include "text/tokenizer/tokenizer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"

void ash_ids_fini(struct ash_ids *ids)
{
    free(ids->data);
    *ids = (struct ash_ids){0};
}

int ash_ids_add(struct ash_ids *ids, int32_t id)
{
    ash_assert(ids->count <= ids->capacity);
    if (ash_array_reserve(&ids->data, &ids->capacity, ids->count + 1, sizeof(*ids->data)) < 0) return -ENOMEM;
    ids->data[ids->count++] = id;
    return 0;
}
