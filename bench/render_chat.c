/* Renders conversations by chat templates and says how long one takes: our side of the comparison with other renderers.
 *   render_chat CASES     CASES is a JSON list of {"template", "bos_token", "eos_token", "variables": [{…}, …]};
 * standard output gets a JSON list with, for each case, a list of {"text"} or {"error"}, and the microseconds of a
 * rendering */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "text/chat_template/chat_template.h"

#define ROUNDS 20

static json_t *render_one(const struct ash_chat_template *template, const json_t *variables)
{
    struct ash_str text = {0};
    struct ash_err err = {0};
    json_t *result;

    if (ash_chat_template_render_json(template, variables, &text, &err) < 0)
        result = json_pack("{s:s}", "error", err.text);
    else
        result = json_pack("{s:s%}", "text", text.data != NULL ? text.data : "", text.size_bytes);
    ash_str_fini(&text);
    return result;
}

/* Microseconds of one rendering over all variables that can be rendered, the mean of some rounds. */
static double time_one(const struct ash_chat_template *template, const json_t *list)
{
    uint64_t start = ash_clock_ns();
    struct ash_str text = {0};
    size_t index, count = 0;
    json_t *variables;

    for (int round = 0; round < ROUNDS; round++) {
        json_array_foreach(list, index, variables) {
            ash_str_clear(&text);
            if (ash_chat_template_render_json(template, variables, &text, NULL) == 0) count++;
        }
    }
    ash_str_fini(&text);
    return count > 0 ? (double)(ash_clock_ns() - start) * 1e-3 / (double)count : 0;
}

static json_t *render_case(const json_t *item)
{
    const char *source = json_string_value(json_object_get(item, "template"));
    const json_t *list = json_object_get(item, "variables");
    struct ash_chat_template *template = NULL;
    struct ash_err err = {0};
    json_t *results = json_array(), *variables;
    size_t index;

    if (source == NULL || ash_chat_template_parse(
                              source, strlen(source), "template", json_string_value(json_object_get(item, "bos_token")),
                              json_string_value(json_object_get(item, "eos_token")), &template, &err) < 0) {
        json_decref(results);
        return json_pack("{s:s}", "error", source != NULL ? err.text : "no template");
    }
    json_array_foreach(list, index, variables)
        json_array_append_new(results, render_one(template, variables));
    results = json_pack("{s:o, s:f}", "results", results, "microseconds", time_one(template, list));
    ash_chat_template_close(template);
    return results;
}

int main(int argc, char **argv)
{
    json_t *cases = NULL, *out = json_array(), *item;
    struct ash_err err = {0};
    size_t index;

    if (argc != 2) {
        fprintf(stderr, "usage: render_chat CASES\n");
        return 2;
    }
    if (ash_json_load(argv[1], &cases, &err) < 0) {
        fprintf(stderr, "render_chat: %s\n", err.text);
        return 1;
    }
    json_array_foreach(cases, index, item)
        json_array_append_new(out, render_case(item));
    json_dumpf(out, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(out);
    json_decref(cases);
    return 0;
}
