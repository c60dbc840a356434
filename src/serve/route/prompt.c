/* A request as the router sees it. Its prompt's text is not what the model sees, but two requests whose texts begin
 * alike here begin alike there. */
#include "serve/route/prompt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

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
    json_t *json = ash_json_load_text(body, size_bytes, 0, &(json_error_t){0});
    const char *model = json_string_value(json_object_get(json, "model"));
    int rc;

    *prompt_out = (struct ash_route_prompt){.is_stream = json_is_true(json_object_get(json, "stream")),
                                            .is_empty = is_empty(json),
                                            .keep_seconds = read_keep(json_object_get(json, "keep_alive"))};
    if (model != NULL && strlen(model) < sizeof(prompt_out->model))
        snprintf(prompt_out->model, sizeof(prompt_out->model), "%s", model);
    rc = ash_prompt_blocks_read(json, salt, &prompt_out->blocks);
    json_decref(json);
    return rc;
}

void ash_route_prompt_fini(struct ash_route_prompt *prompt)
{
    ash_prompt_blocks_fini(&prompt->blocks);
    *prompt = (struct ash_route_prompt){0};
}
