/* stream_copy - a copy with non-temporal stores: the bound of an all_reduce in shared memory. */
#ifndef ASH_PROBE_STREAM_COPY_H
#define ASH_PROBE_STREAM_COPY_H

#include <stddef.h>

/* Copy size_bytes between 64-byte aligned buffers, past the caches if the machine has stores for that. */
void ash_stream_copy(void *to, const void *from, size_t size_bytes);

#endif
