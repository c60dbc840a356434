/* The compressed formats that text may come in, recognised by their first bytes. */
#include "train/data/unpack.h"

#include <string.h>

#include "base/assert.h"

const struct ash_unpack_ops *ash_unpack_find(const uint8_t *head, size_t size_bytes)
{
    static const struct ash_unpack_ops *const formats[] = {&ash_unpack_gzip, &ash_unpack_zstd};

    for (size_t i = 0; i < ASH_COUNT(formats); i++)
        if (size_bytes >= formats[i]->magic_bytes && memcmp(head, formats[i]->magic, formats[i]->magic_bytes) == 0)
            return formats[i];
    return NULL;
}
