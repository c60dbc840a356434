/* Fuzz target: the file of drains that nodes share. No more nodes are counted than there are lines. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "orchestrate/budget/drains.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_drains drains = {0};
    size_t lines = 1;

    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    if (size == 0 || ash_drains_parse((const char *)data, size, "n1", 5000, &drains) < 0) return 0;
    if (drains.out > lines || drains.hour > lines) abort();
    return 0;
}
