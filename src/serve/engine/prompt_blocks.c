/* A prompt's text is every string and number of the fields that prompts are made of, in the order of their rendering.
 * It is not the text that the model sees, but two requests whose texts begin alike here begin alike there. */
#include "serve/engine/prompt_blocks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

/* The text, cut into blocks as it comes. */
struct cutter {
    struct ash_prompt_blocks *blocks;
    size_t capacity, filled;
    uint64_t hash; /* of all blocks so far */
    char block[ASH_PROMPT_BLOCK_BYTES];
};

static int end_block(struct cutter *cutter)
{
    struct ash_prompt_blocks *blocks = cutter->blocks;
    int rc = ash_array_reserve(&blocks->hashes, &cutter->capacity, blocks->count + 1, sizeof(*blocks->hashes));

    if (rc < 0) return rc;
    cutter->hash = ash_hash_bytes(cutter->block, sizeof(cutter->block), cutter->hash);
    blocks->hashes[blocks->count++] = cutter->hash;
    cutter->filled = 0;
    return 0;
}

static int push(struct cutter *cutter, const void *text, size_t size_bytes)
{
    const char *bytes = text;
    int rc = 0;

    cutter->blocks->text_bytes += size_bytes;
    while (size_bytes > 0 && rc == 0) {
        size_t take = ash_min(size_bytes, sizeof(cutter->block) - cutter->filled);

        memcpy(cutter->block + cutter->filled, bytes, take);
        cutter->filled += take;
        bytes += take;
        size_bytes -= take;
        if (cutter->filled == sizeof(cutter->block)) rc = end_block(cutter);
    }
    return rc;
}

/* A string with its end, so that "ab", "c" is not "a", "bc". */
static int push_text(struct cutter *cutter, const char *text, size_t size_bytes)
{
    int rc = push(cutter, text, size_bytes);

    return rc == 0 ? push(cutter, "", 1) : rc;
}

/* Everything in a value. The parser has bounded its depth. */
static int push_value(struct cutter *cutter, json_t *value)
{
    const char *key;
    json_t *item;
    int rc = 0;

    if (json_is_string(value)) return push_text(cutter, json_string_value(value), json_string_length(value));
    if (json_is_integer(value)) {
        int32_t number = (int32_t)json_integer_value(value);

        return push(cutter, &number, sizeof(number));
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(value); i++)
        rc = push_value(cutter, json_array_get(value, i));
    json_object_foreach(value, key, item) {
        if (rc == 0) rc = push_text(cutter, key, strlen(key));
        if (rc == 0) rc = push_value(cutter, item);
    }
    return rc;
}

int ash_prompt_blocks_read(const json_t *json, uint64_t salt, struct ash_prompt_blocks *blocks_out)
{
    static const char *const fields[] = {"cache_salt",   "previous_response_id",
                                         "tools",        "system",
                                         "instructions", "input_prefix",
                                         "prompt",       "messages",
                                         "input",        "content"};
    struct cutter cutter = {.blocks = blocks_out, .hash = salt};
    const char *model = json_string_value(json_object_get(json, "model"));
    int rc = 0;

    *blocks_out = (struct ash_prompt_blocks){0};
    if (model != NULL) cutter.hash = ash_hash_bytes(model, strlen(model), salt);
    for (size_t i = 0; rc == 0 && i < ASH_COUNT(fields); i++) {
        json_t *value = json_object_get(json, fields[i]);

        if (value != NULL) rc = push_value(&cutter, value);
    }
    return rc;
}

void ash_prompt_blocks_fini(struct ash_prompt_blocks *blocks)
{
    free(blocks->hashes);
    *blocks = (struct ash_prompt_blocks){0};
}

size_t ash_prompt_blocks_end(const struct ash_prompt_blocks *blocks, size_t index, size_t tokens)
{
    double end_bytes = (double)((index + 1) * ASH_PROMPT_BLOCK_BYTES);

    ash_assert(index < blocks->count && blocks->text_bytes >= blocks->count * ASH_PROMPT_BLOCK_BYTES);
    return ash_min(tokens, (size_t)ceil(end_bytes * (double)tokens / (double)blocks->text_bytes));
}
