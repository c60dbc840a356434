/* memory - where tensors live. Floors above ask a memory for bytes and never assume that the host may touch them;
 * the host memory is the plain implementation, a device adds another. */
#ifndef ASH_INFRA_MEMORY_H
#define ASH_INFRA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

struct ash_memory_ops {
    size_t size; /* of this struct, for binary growth */
    const char *name;
    bool host_visible;                 /* may the host read and write it directly? */
    void *(*alloc)(size_t size_bytes); /* aligned to ASH_MEMORY_ALIGN, zeros; NULL when full */
    void (*free)(void *ptr, size_t size_bytes);
    int (*copy)(void *dst, const void *src, size_t size_bytes); /* within, into or out of this memory */
    int (*zero)(void *dst, size_t size_bytes);
};

#define ASH_MEMORY_ALIGN ((size_t)64)
#define ASH_MEMORY_HUGE ((size_t)2 << 20) /* a huge page */

/* Host memory. From ASH_MEMORY_HUGE on it sits on borders of huge pages, of which whole ones serve it, and is taken
 * from the system when it is first touched. */
extern const struct ash_memory_ops ash_memory_host;

/* A block owned by the caller, or (memory NULL) borrowed. */
struct ash_buffer {
    void *data;
    size_t size_bytes;
    const struct ash_memory_ops *memory;
};

/* Allocate zeroed bytes. size_bytes 0 is allowed (data NULL). Returns 0 or -ENOMEM; err names what and how much. */
int ash_buffer_init(struct ash_buffer *buffer, const struct ash_memory_ops *memory, size_t size_bytes, const char *what,
                    struct ash_err *err);
/* Free; a zeroed struct is a no-op, and a borrowed one is let go. */
void ash_buffer_fini(struct ash_buffer *buffer);
/* Zero size_bytes of a buffer from first_byte on; whole pages go back to the system and are zero when touched again. */
void ash_buffer_drop(const struct ash_buffer *buffer, size_t first_byte, size_t size_bytes);
/* Before it is touched: only parts of it will be, here and there, so it takes small pages (a huge one costs 2 MiB for a
 * single byte). */
void ash_buffer_sparse(const struct ash_buffer *buffer);
/* Bytes allocated through buffers now, over all memories: for reports and tests. */
size_t ash_memory_used_bytes(void);
/* The most that they ever were. */
size_t ash_memory_peak_bytes(void);

#endif
