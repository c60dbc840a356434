/* POST /infill: fill the gap between two texts, with the marks that the model was trained with. */
#include "serve/api/llama.h"
#include "serve/api/handlers.h"

/* Append the ids of a text field. */
static void add_text(struct ash_ids *ids, struct ash_api_request *request, const char *key)
{
    const json_t *text = ash_fields_any(&request->fields, key);
    struct ash_err err = {0};

    if (text == NULL) return;
    if (!json_is_string(text))
        ash_fields_wrong(&request->fields, key, "must be a text");
    else if (ash_tokenizer_encode(request->api->engine.tokenizer, json_string_value(text), json_string_length(text),
                                  false, ids, &err) < 0)
        ash_api_err_take(&request->err, key, &err);
}

/* prefix, suffix and prompt between the marks, in the order that all such families know: prefix, suffix, middle. */
static void build_prompt(struct ash_prompts *prompts, struct ash_api_request *request)
{
    const struct ash_api *api = request->api;
    struct ash_fim_marks marks = ash_tokenizer_fim_marks(api->engine.tokenizer);
    struct ash_ids ids = {0};
    int rc = 0;

    if (marks.prefix < 0 || marks.suffix < 0 || marks.middle < 0) {
        ash_api_err_set(&request->err, 501, "not_supported", NULL,
                        "this model's vocabulary has no marks for filling a gap (<|fim_prefix|> and the like)");
        return;
    }
    if (api->engine.bos >= 0) rc = ash_ids_add(&ids, api->engine.bos);
    if (rc == 0) rc = ash_ids_add(&ids, marks.prefix);
    add_text(&ids, request, "input_prefix");
    add_text(&ids, request, "prompt");
    if (rc == 0) rc = ash_ids_add(&ids, marks.suffix);
    add_text(&ids, request, "input_suffix");
    if (rc == 0) rc = ash_ids_add(&ids, marks.middle);
    if (rc == 0) rc = ash_prompts_add_ids(prompts, &ids);
    if (rc < 0) ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the prompt");
    ash_ids_fini(&ids);
}

void ash_api_infill(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_api_call *call;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    call = ash_llama_call_open(&request);
    if (!ash_fields_has(&request.fields, "input_prefix") && !ash_fields_has(&request.fields, "input_suffix"))
        ash_api_err_set(&request.err, 400, "missing_required_parameter", "input_prefix",
                        "'input_prefix' and 'input_suffix' are missing");
    if (json_array_size(ash_fields_array(&request.fields, "input_extra")) > 0)
        ash_fields_wrong(&request.fields, "input_extra", "is not supported");
    if (call != NULL && request.err.status == 0) build_prompt(&call->prompts, &request);
    ash_llama_call_start(call, &request, "input_prefix");
}
