/* Prompts: OpenAI's forms (a text, texts, ids, lists of ids) and llama.cpp's mix of ids and texts. */
#include "serve/api/prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static void no_memory(struct ash_api_request *request)
{
    ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
}

int ash_prompts_add_ids(struct ash_prompts *prompts, struct ash_ids *ids)
{
    if (ash_array_reserve(&prompts->items, &prompts->capacity, prompts->count + 1, sizeof(*prompts->items)) < 0)
        return -ENOMEM;
    prompts->items[prompts->count++] = *ids;
    *ids = (struct ash_ids){0};
    return 0;
}

/* A new prompt, empty, or NULL with an error set. */
static struct ash_ids *add_prompt(struct ash_prompts *prompts, struct ash_api_request *request)
{
    struct ash_ids none = {0};

    if (ash_prompts_add_ids(prompts, &none) == 0) return &prompts->items[prompts->count - 1];
    no_memory(request);
    return NULL;
}

static void add_text(struct ash_ids *ids, struct ash_api_request *request, const char *key, const char *text,
                     size_t size_bytes, bool add_special)
{
    struct ash_err err = {0};

    if (ash_tokenizer_encode(request->api->engine.tokenizer, text, size_bytes, add_special, ids, &err) < 0)
        ash_api_err_take(&request->err, key, &err);
}

static void add_id(struct ash_ids *ids, struct ash_api_request *request, const char *key, json_int_t id)
{
    size_t vocab = request->api->engine.vocab;

    if (id < 0 || (uint64_t)id >= vocab)
        ash_fields_wrong(&request->fields, key, "has token id %lld, but ids are from 0 to %zu", (long long)id,
                         vocab - 1);
    else if (ash_ids_add(ids, (int32_t)id) < 0)
        no_memory(request);
}

/* One prompt: a text, or a list of ids and texts. */
static void add_one(struct ash_prompts *prompts, struct ash_api_request *request, const char *key, const json_t *value,
                    bool add_special)
{
    struct ash_ids *ids = add_prompt(prompts, request);

    if (ids == NULL) return;
    if (json_is_string(value)) {
        add_text(ids, request, key, json_string_value(value), json_string_length(value), add_special);
        return;
    }
    for (size_t i = 0; i < json_array_size(value) && request->err.status == 0; i++) {
        const json_t *item = json_array_get(value, i);

        if (json_is_integer(item))
            add_id(ids, request, key, json_integer_value(item));
        else if (json_is_string(item))
            add_text(ids, request, key, json_string_value(item), json_string_length(item), add_special && i == 0);
        else
            ash_fields_wrong(&request->fields, key, "must be a text, token ids, or a list of such");
    }
}

/* A list that holds a number is one prompt; any other list is one of prompts. */
static bool is_one(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++)
        if (json_is_number(json_array_get(value, i))) return true;
    return !json_is_array(value);
}

void ash_prompts_read(struct ash_prompts *prompts, struct ash_api_request *request, const char *key, bool add_special)
{
    const json_t *value = ash_fields_any(&request->fields, key);
    size_t most = request->api->opts.choices_max;

    if (value == NULL) {
        ash_api_err_set(&request->err, 400, "missing_required_parameter", key, "'%s' is missing", key);
    } else if (!json_is_string(value) && !json_is_array(value)) {
        ash_fields_wrong(&request->fields, key, "must be a text, token ids, or a list of such");
    } else if (is_one(value)) {
        add_one(prompts, request, key, value, add_special);
    } else if (json_array_size(value) == 0 || json_array_size(value) > most) {
        ash_fields_wrong(&request->fields, key, "must hold 1 to %zu prompts, but it has %zu", most,
                         json_array_size(value));
    } else {
        for (size_t i = 0; i < json_array_size(value) && request->err.status == 0; i++) {
            const json_t *item = json_array_get(value, i);

            if (json_is_string(item) || json_is_array(item))
                add_one(prompts, request, key, item, add_special);
            else
                ash_fields_wrong(&request->fields, key, "must be a text, token ids, or a list of such");
        }
    }
}

void ash_prompts_add_text(struct ash_prompts *prompts, struct ash_api_request *request, const struct ash_str *text,
                          bool add_special)
{
    struct ash_ids *ids = add_prompt(prompts, request);

    if (ids != NULL)
        add_text(ids, request, "messages", text->data != NULL ? text->data : "", text->size_bytes, add_special);
}

/* Keep the last tokens. */
static void truncate_ids(struct ash_ids *ids, size_t most)
{
    if (ids->count <= most) return;
    memmove(ids->data, ids->data + ids->count - most, most * sizeof(*ids->data));
    ids->count = most;
}

void ash_prompts_fit(struct ash_prompts *prompts, struct ash_api_request *request, const struct ash_sampling *sampling,
                     const char *prompt_key)
{
    size_t context = request->api->engine.context_tokens;
    size_t answer = ash_sampling_least(sampling);

    for (size_t i = 0; i < prompts->count && request->err.status == 0; i++) {
        struct ash_ids *ids = &prompts->items[i];

        if (sampling->truncate_tokens > 0) truncate_ids(ids, (size_t)sampling->truncate_tokens);
        if (sampling->truncate_tokens < 0 && answer < context) truncate_ids(ids, context - answer);
        if (ids->count == 0)
            ash_fields_wrong(&request->fields, prompt_key, "has no tokens: there is nothing to answer");
        else if (ids->count + answer > context)
            ash_api_err_too_long(&request->err, prompt_key, context, ids->count, answer);
    }
    if (prompts->count * sampling->best_of > request->api->opts.choices_max)
        ash_fields_wrong(&request->fields, prompt_key, "asks for %zu answers, and %zu are the most",
                         prompts->count * sampling->best_of, request->api->opts.choices_max);
}

void ash_prompts_fini(struct ash_prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++)
        ash_ids_fini(&prompts->items[i]);
    free(prompts->items);
    *prompts = (struct ash_prompts){0};
}
