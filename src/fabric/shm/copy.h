/* copy - moving large blocks between memories that another core reads next. */
#ifndef ASH_FABRIC_SHM_COPY_H
#define ASH_FABRIC_SHM_COPY_H

#include <stddef.h>

/* As memcpy. Blocks that no cache would hold go past the caches where that is faster. */
void ash_copy(void *restrict dst, const void *restrict src, size_t size_bytes);

#endif
