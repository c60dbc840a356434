/* responses_memory - the last responses, for clients that refer to them instead of sending all again. Their memory is
 * bounded; the oldest goes first. A key sees its own responses alone. */
#ifndef ASH_SERVE_API_RESPONSES_MEMORY_H
#define ASH_SERVE_API_RESPONSES_MEMORY_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct ash_responses_memory; /* any thread */

/* For at most limit_bytes of JSON. NULL when out of memory. */
struct ash_responses_memory *ash_responses_memory_open(size_t limit_bytes);
/* NULL is a no-op. */
void ash_responses_memory_close(struct ash_responses_memory *memory);
/* Keep the items of a conversation up to the end of a response, as the text of a JSON array. One that is larger than
 * the limit is not kept, nor anything without memory. */
void ash_responses_memory_add(struct ash_responses_memory *memory, uint64_t owner, const char *id, const char *items,
                              size_t size_bytes);
/* The items of a response of this owner, a new reference; NULL: it is not there. */
json_t *ash_responses_memory_get(struct ash_responses_memory *memory, uint64_t owner, const char *id);
/* The item of this id in any of the owner's responses, a new reference; NULL: it is not there. */
json_t *ash_responses_memory_find_item(struct ash_responses_memory *memory, uint64_t owner, const char *id);

#endif
