/* A prompt's text is every string and number of the fields that prompts are made of, in the order of their rendering.
 * It is not the text that the model sees, but two requests whose texts begin alike here begin alike there. */
#include "serve/route/prompt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/math.h"

/* The text, cut into blocks as it comes. */
struct cutter {
    struct ash_route_prompt *prompt;
    size_t capacity, filled;
    uint64_t hash; /* of all blocks so far */
    char block[ASH_ROUTE_BLOCK_BYTES];
};

static int end_block(struct cutter *cutter)
{
    struct ash_route_prompt *prompt = cutter->prompt;
    int rc = ash_array_reserve(&prompt->blocks, &cutter->capacity, prompt->block_count + 1, sizeof(*prompt->blocks));

    if (rc < 0) return rc;
    cutter->hash = ash_hash_bytes(cutter->block, sizeof(cutter->block), cutter->hash);
    prompt->blocks[prompt->block_count++] = cutter->hash;
    cutter->filled = 0;
    return 0;
}

static int push(struct cutter *cutter, const void *text, size_t size_bytes)
{
    const char *bytes = text;
    int rc = 0;

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

/* Seconds, as a number or as a text with a unit. */
static double read_keep(const json_t *value)
{
    const char *text = json_string_value(value);
    bool is_negative = text != NULL && text[0] == '-';
    double seconds;

    if (json_is_number(value)) return json_number_value(value);
    if (text == NULL || ash_clock_parse(text + is_negative, &seconds) < 0) return NAN;
    return is_negative ? -1 : seconds;
}

static bool is_empty(const json_t *json)
{
    const json_t *prompt = json_object_get(json, "prompt");

    if (json_array_size(json_object_get(json, "messages")) > 0) return false;
    return prompt == NULL || (json_is_string(prompt) && json_string_length(prompt) == 0);
}

int ash_route_prompt_read(const char *body, size_t size_bytes, uint64_t salt, struct ash_route_prompt *prompt_out)
{
    static const char *const fields[] = {"cache_salt", "tools",    "system", "instructions", "input_prefix",
                                         "prompt",     "messages", "input",  "content"};
    struct cutter cutter = {.prompt = prompt_out, .hash = salt};
    json_t *json = ash_json_load_text(body, size_bytes, 0, &(json_error_t){0});
    const char *model = json_string_value(json_object_get(json, "model"));
    int rc = 0;

    *prompt_out = (struct ash_route_prompt){.is_stream = json_is_true(json_object_get(json, "stream")),
                                            .is_empty = is_empty(json),
                                            .keep_seconds = read_keep(json_object_get(json, "keep_alive"))};
    if (model != NULL && strlen(model) < sizeof(prompt_out->model))
        snprintf(prompt_out->model, sizeof(prompt_out->model), "%s", model);
    if (model != NULL) cutter.hash = ash_hash_bytes(model, strlen(model), salt);
    for (size_t i = 0; rc == 0 && i < ASH_COUNT(fields); i++) {
        json_t *value = json_object_get(json, fields[i]);

        if (value != NULL) rc = push_value(&cutter, value);
    }
    json_decref(json);
    return rc;
}

void ash_route_prompt_fini(struct ash_route_prompt *prompt)
{
    free(prompt->blocks);
    *prompt = (struct ash_route_prompt){0};
}
