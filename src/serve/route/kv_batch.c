/* Batches of cache events, vLLM's in JSON. Only our addition to them, prompt_blocks, says what a text's beginning is;
 * a server without it holds nothing that the router could name. */
#include "serve/route/kv_batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define HASH_DIGITS 16

/* Sixteen hex digits. Returns whether it is such a hash. */
static bool read_hash(const json_t *json, uint64_t *hash_out)
{
    const char *text = json_string_value(json);
    char *end = NULL;

    if (text == NULL || json_string_length(json) != HASH_DIGITS || strspn(text, "0123456789abcdef") != HASH_DIGITS)
        return false;
    *hash_out = strtoull(text, &end, 16);
    return true;
}

/* Add or remove all blocks of an event. The set has each block once: to hold it twice is to hold it. */
static int apply_blocks(struct ash_route_held *held, const json_t *pages, bool adds)
{
    int rc = 0;

    for (size_t page = 0; rc == 0 && page < json_array_size(pages); page++) {
        const json_t *blocks = json_array_get(pages, page);

        for (size_t i = 0; rc == 0 && i < json_array_size(blocks); i++) {
            uint64_t hash = 0;

            if (!read_hash(json_array_get(blocks, i), &hash)) return -EBADMSG;
            if (!adds)
                ash_route_held_remove(held, hash);
            else if (!ash_route_held_has(held, hash))
                rc = ash_route_held_add(held, hash);
        }
    }
    return rc;
}

static int apply_event(struct ash_route_held *held, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *blocks = json_object_get(event, "prompt_blocks");

    if (type == NULL) return -EBADMSG;
    if (strcmp(type, "AllBlocksCleared") == 0) {
        ash_route_held_clear(held);
        return 0;
    }
    if (strcmp(type, "BlockStored") == 0) return apply_blocks(held, blocks, true);
    return strcmp(type, "BlockRemoved") == 0 ? apply_blocks(held, blocks, false) : 0;
}

int ash_route_kv_batch_apply(struct ash_route_held *held, const char *bytes, size_t size_bytes)
{
    static const char field[] = "data:";
    const json_t *events;
    json_t *json;
    int rc = 0;

    if (size_bytes < sizeof(field) || memcmp(bytes, field, sizeof(field) - 1) != 0) return 0; /* a comment */
    json = ash_json_load_text(bytes + sizeof(field) - 1, size_bytes - (sizeof(field) - 1), 0, &(json_error_t){0});
    events = json_object_get(json, "events");
    if (!json_is_array(events)) rc = -EBADMSG;
    for (size_t i = 0; rc == 0 && i < json_array_size(events); i++)
        rc = apply_event(held, json_array_get(events, i));
    json_decref(json);
    return rc;
}
