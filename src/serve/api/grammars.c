/* Constrained output under all its names: OpenAI's response_format, vLLM's structured_outputs and guided_*, SGLang's
 * and llama.cpp's json_schema, regex and grammar. */
#include "serve/api/grammars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_put.h"
#include "serve/grammar/grammar.h"
#include "serve/tools/tools.h"

#define CACHE_COUNT 64
#define CHOICES_MAX 4096
#define PATIENCE_S 0.02 /* to compile on a thread that others wait for */

struct ash_api_grammars {
    struct ash_grammar_cache *cache;
    struct ash_grammar_opts opts;
};

int ash_api_grammars_open(struct ash_api *api, struct ash_api_grammars **grammars_out, struct ash_err *err)
{
    struct ash_api_grammars *grammars = calloc(1, sizeof(*grammars));

    if (grammars != NULL) grammars->cache = ash_grammar_cache_open(CACHE_COUNT);
    if (grammars == NULL || grammars->cache == NULL) {
        ash_api_grammars_close(grammars);
        return ash_err_set(err, -ENOMEM, "no memory for grammars");
    }
    grammars->opts = ash_grammar_default_opts();
    grammars->opts.limits.source_bytes = api->opts.schema_bytes_max;
    *grammars_out = grammars;
    return 0;
}

void ash_api_grammars_close(struct ash_api_grammars *grammars)
{
    if (grammars == NULL) return;
    ash_grammar_cache_close(grammars->cache);
    free(grammars);
}

/* ---- one grammar ------------------------------------------------------------------------------------------------- */

/* Grammars that take longer to compile make way for other requests, on a thread of their own. */
static struct ash_grammar_opts opts_of(const struct ash_api_request *request)
{
    struct ash_grammar_opts opts = request->api->grammars->opts;

    if (ash_http_may_defer(request->exchange)) opts.patience_s = PATIENCE_S;
    return opts;
}

static void fail(struct ash_api_request *request, const char *param, const struct ash_err *err, int rc)
{
    if (rc == -EAGAIN)
        ash_api_err_set(&request->err, ASH_API_LATER, NULL, NULL, "it is being compiled");
    else if (err->code == -ENOTSUP)
        ash_api_err_set(&request->err, 400, "unsupported_schema", param, "'%s': %s", param, err->text);
    else if (err->code == -ENOMEM)
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "%s", err->text);
    else
        ash_api_err_set(&request->err, 400, "invalid_grammar", param, "'%s': %s", param, err->text);
}

/* Only one field may say what the answer looks like. */
static bool is_first(struct ash_api_call *call, struct ash_api_request *request, const char *param)
{
    if (call->grammar == NULL) return request->err.status == 0;
    ash_api_err_set(&request->err, 400, "invalid_value", param, "'%s' and another field both constrain the answer",
                    param);
    return false;
}

static void set_source(struct ash_api_call *call, struct ash_api_request *request, const char *param,
                       const struct ash_grammar_source *source, bool is_lenient)
{
    struct ash_api_grammars *grammars = request->api->grammars;
    struct ash_grammar_opts opts = opts_of(request);
    struct ash_err err = {0};
    int rc;

    opts.is_lenient = is_lenient;
    if (!is_first(call, request, param)) return;
    rc = ash_grammar_cache_get(grammars->cache, source, &opts, &call->grammar, &err);
    if (rc < 0) fail(request, param, &err, rc);
}

static void set_text(struct ash_api_call *call, struct ash_api_request *request, const char *param,
                     enum ash_grammar_kind kind, const char *text)
{
    set_source(call, request, param, &(struct ash_grammar_source){kind, text, strlen(text)}, false);
}

void ash_api_grammars_set_schema(struct ash_api_call *call, struct ash_api_request *request, const json_t *schema,
                                 const char *param, bool is_lenient)
{
    struct ash_str text = {0};

    if (json_is_string(schema)) { /* vLLM takes it as text too */
        set_text(call, request, param, ASH_GRAMMAR_JSON_SCHEMA, json_string_value(schema));
        return;
    }
    if (!json_is_object(schema) && !json_is_boolean(schema))
        ash_api_err_set(&request->err, 400, "invalid_type", param, "'%s' must be a JSON schema", param);
    else if (ash_json_put_json(&text, NULL, schema) < 0)
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the schema");
    else
        set_source(call, request, param,
                   &(struct ash_grammar_source){ASH_GRAMMAR_JSON_SCHEMA, text.data, text.size_bytes}, is_lenient);
    ash_str_fini(&text);
}

void ash_api_grammars_set_object(struct ash_api_call *call, struct ash_api_request *request, const char *param)
{
    set_text(call, request, param, ASH_GRAMMAR_JSON_OBJECT, "");
}

struct choices {
    const char **items;
    size_t count;
};

static int compile_choices(void *ctx, const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out,
                           struct ash_err *err)
{
    const struct choices *choices = ctx;

    return ash_grammar_from_choice(choices->items, choices->count, opts, grammar_out, err);
}

static void compile_choice(struct ash_api_call *call, struct ash_api_request *request, const json_t *list,
                           const char *param, struct choices *choices)
{
    struct ash_grammar_opts opts = opts_of(request);
    struct ash_str key = {0};
    struct ash_err err = {0};
    int rc = ash_str_adds(&key, "choice ");

    if (rc == 0) rc = ash_json_put_json(&key, NULL, list);
    if (rc == 0)
        rc = ash_grammar_cache_make(request->api->grammars->cache,
                                    &(struct ash_grammar_maker){compile_choices, choices, &key}, &opts, &call->grammar,
                                    &err);
    else
        ash_err_set(&err, rc, "no memory for the choices");
    if (rc < 0) fail(request, param, &err, rc);
    ash_str_fini(&key);
}

static void set_choice(struct ash_api_call *call, struct ash_api_request *request, const json_t *list,
                       const char *param)
{
    struct choices choices = {.count = json_array_size(list)};

    choices.items = calloc(choices.count + 1, sizeof(*choices.items));
    if (choices.items == NULL) ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the choices");
    if (choices.count == 0 || choices.count > CHOICES_MAX)
        ash_api_err_set(&request->err, 400, "invalid_value", param, "'%s' must hold 1 to %d texts", param, CHOICES_MAX);
    for (size_t i = 0; i < choices.count && request->err.status == 0; i++) {
        const json_t *item = json_array_get(list, i);

        choices.items[i] = json_string_value(item);
        if (choices.items[i] == NULL || strlen(choices.items[i]) != json_string_length(item))
            ash_api_err_set(&request->err, 400, "invalid_type", param, "'%s' must hold texts", param);
    }
    if (request->err.status == 0 && is_first(call, request, param))
        compile_choice(call, request, list, param, &choices);
    free(choices.items);
}

/* ---- the fields -------------------------------------------------------------------------------------------------- */

/* {"type": "json_schema", "json_schema": {"schema": …}} and its relatives. */
static void read_response_format(struct ash_api_call *call, struct ash_api_request *request)
{
    const json_t *format = ash_fields_object(&request->fields, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *named = json_object_get(format, "json_schema"), *schema = json_object_get(format, "schema");

    if (format == NULL) return;
    if (type == NULL) type = "";
    if (schema == NULL) schema = json_object_get(named, "schema");
    if (strcmp(type, "text") == 0) return;
    if (strcmp(type, "json_object") == 0 && schema == NULL)
        ash_api_grammars_set_object(call, request, "response_format");
    else if (strcmp(type, "json_schema") == 0 || strcmp(type, "json_object") == 0)
        ash_api_grammars_set_schema(call, request, schema != NULL ? schema : json_null(),
                                    "response_format.json_schema.schema",
                                    !json_is_true(json_object_get(named, "strict")));
    else
        ash_fields_wrong(&request->fields, "response_format", "must be of type text, json_object or json_schema");
}

/* One set of names: vLLM's structured_outputs has them as they are, guided_* with that prefix. */
struct names {
    const char *json, *regex, *choice, *grammar, *json_object;
};

static void read_named(struct ash_api_call *call, struct ash_api_request *request, struct ash_fields *fields,
                       const struct names *names)
{
    const json_t *schema = ash_fields_any(fields, names->json);
    const char *regex = ash_fields_string(fields, names->regex);
    const json_t *choice = ash_fields_array(fields, names->choice);
    const char *grammar = ash_fields_string(fields, names->grammar);

    if (schema != NULL) ash_api_grammars_set_schema(call, request, schema, names->json, false);
    if (regex != NULL) set_text(call, request, names->regex, ASH_GRAMMAR_REGEX, regex);
    if (choice != NULL) set_choice(call, request, choice, names->choice);
    if (grammar != NULL) set_text(call, request, names->grammar, ASH_GRAMMAR_GBNF, grammar);
    if (ash_fields_bool(fields, names->json_object, false))
        ash_api_grammars_set_object(call, request, names->json_object);
}

void ash_api_grammars_read(struct ash_api_call *call, struct ash_api_request *request)
{
    static const struct names structured = {"json", "regex", "choice", "grammar", "json_object"};
    static const struct names guided = {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                                        "guided_json_object"};
    static const struct names plain = {"json_schema", "regex", "choice", "grammar", "json_object"};
    const json_t *object = ash_fields_object(&request->fields, "structured_outputs");
    struct ash_fields inner;
    struct ash_str unknown = {0};

    read_response_format(call, request);
    if (object != NULL) {
        ash_fields_init(&inner, object, "structured_outputs.", &request->err);
        read_named(call, request, &inner, &structured);
        ash_fields_ignore(&inner, "disable_fallback disable_any_whitespace disable_additional_properties "
                                  "whitespace_pattern");
        if (ash_fields_unknown(&inner, &unknown) == 0 && unknown.size_bytes > 0)
            ash_fields_wrong(&request->fields, "structured_outputs", "has fields that are not known: %.200s",
                             unknown.data);
        ash_str_fini(&unknown);
    }
    read_named(call, request, &request->fields, &guided);
    read_named(call, request, &request->fields, &plain);
    ash_fields_ignore(&request->fields, "guided_decoding_backend guided_whitespace_pattern");
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

/* Keep the tools that may be called. Returns how many; *is_strict_out: one asks for
 * it. */
static size_t choose_tools(const struct ash_chat_call *chat, struct ash_tool *tools, bool *is_strict_out)
{
    size_t count = 0;

    *is_strict_out = false;
    for (size_t i = 0; i < chat->parts.tool_count; i++) {
        const json_t *function = json_object_get(json_array_get(chat->conversation.tools, i), "function");

        if (!ash_tool_policy_allows(&chat->policy, chat->tools[i].name)) continue;
        tools[count++] = chat->tools[i];
        if (json_is_true(json_object_get(function, "strict"))) *is_strict_out = true;
    }
    return count;
}

static int compile_tools(void *ctx, const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out,
                         struct ash_err *err)
{
    return ash_tool_grammar(ctx, opts, grammar_out, err);
}

static int make_tools(struct ash_api_call *call, struct ash_api_request *request, const struct ash_chat_call *chat,
                      struct ash_tool_grammar_opts *tools, struct ash_err *err)
{
    struct ash_grammar_opts opts = opts_of(request);
    struct ash_str key = {0};
    int rc = ash_str_addf(&key, "tools %d %d %d %d ", (int)tools->format, (int)tools->choice, tools->is_parallel,
                          tools->is_thinking);

    for (size_t i = 0; i < tools->count && rc == 0; i++)
        rc = ash_str_addf(&key, "%s ", tools->tools[i].name);
    if (rc == 0) rc = ash_json_put_json(&key, NULL, chat->conversation.tools);
    if (rc == 0)
        rc =
            ash_grammar_cache_make(request->api->grammars->cache,
                                   &(struct ash_grammar_maker){compile_tools, tools, &key}, &opts, &call->grammar, err);
    else
        ash_err_set(err, rc, "no memory for the tools");
    ash_str_fini(&key);
    return rc;
}

/* Does a grammar of tools have a place here? */
static bool wants_tools(const struct ash_api_call *call, struct ash_api_request *request,
                        const struct ash_chat_call *chat)
{
    bool is_auto = chat->policy.mode == ASH_TOOL_MODE_AUTO;

    if (chat->policy.mode == ASH_TOOL_MODE_NONE || (is_auto && call->grammar != NULL)) return false;
    if (request->api->tool_format != ASH_TOOLS_NONE) return true;
    if (!is_auto)
        ash_fields_wrong(&request->fields, "tool_choice",
                         "asks for a call, but this model's template has no tool calls (--tool-call-parser)");
    return false;
}

void ash_api_grammars_read_tools(struct ash_api_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    bool is_auto = chat->policy.mode == ASH_TOOL_MODE_AUTO, is_strict = false;
    struct ash_tool_grammar_opts opts = {.format = request->api->tool_format,
                                         .choice = is_auto ? ASH_TOOL_AUTO : ASH_TOOL_REQUIRED,
                                         .is_parallel = chat->policy.is_parallel,
                                         .tags = request->api->thought_tags,
                                         .is_thinking = chat->parts.is_thinking,
                                         .trie = request->api->engine.trie};
    struct ash_tool *tools;
    struct ash_err err = {0};
    int rc;

    if (!wants_tools(call, request, chat) || !is_first(call, request, "tool_choice")) return;
    tools = calloc(chat->parts.tool_count + 1, sizeof(*tools));
    if (tools == NULL) {
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the tools");
        return;
    }
    opts.tools = tools;
    opts.count = choose_tools(chat, tools, &is_strict);
    rc = make_tools(call, request, chat, &opts, &err);
    /* Where nothing was promised, a schema that cannot be enforced leaves the model free. */
    if (rc < 0 && (!is_auto || is_strict || rc != -ENOTSUP)) fail(request, "tools", &err, rc);
    free(tools);
}
