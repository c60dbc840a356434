/* array - arrays that grow. */
#ifndef ASH_BASE_ARRAY_H
#define ASH_BASE_ARRAY_H

#include <stddef.h>

/* Make room for `wanted` items of item_bytes in the array that `items` points to (a T ** to memory of malloc, or to
 * NULL): it has room for *capacity, and grows to twice that at least. Returns 0 or -ENOMEM; then it is as it was. */
int ash_array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes);

#endif
