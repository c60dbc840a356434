/* The settings of llama.cpp's forms, and POST /completion. */
#include "serve/api/llama.h"

#include <stdlib.h>

#include "serve/api/grammars.h"
#include "serve/api/handlers.h"
#include "serve/api/openai.h"

/* A list of paths. */
static void read_response_fields(struct ash_llama_call *llama, struct ash_api_request *request)
{
    const json_t *list = ash_fields_array(&request->fields, "response_fields");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            ash_fields_wrong(&request->fields, "response_fields", "must be a list of strings");
    if (request->err.status == 0 && json_array_size(list) > 0)
        llama->response_fields = json_incref((json_t *)(uintptr_t)list);
}

/* Slots are what runs at the same time. Which one it is changes nothing: all see the same prefix cache. */
static void read_slot(struct ash_llama_call *llama, struct ash_api_request *request)
{
    int64_t most = (int64_t)request->api->engine.sequences_max - 1;

    llama->slot = (int)ash_fields_int(&request->fields, "id_slot", -1, most, -1);
    if (llama->slot < 0) llama->slot = 0;
}

/* Settings that would change an answer in a way that is not supported: only their neutral value is taken. */
static void refuse_others(struct ash_fields *fields)
{
    static const char *const counts[] = {"t_max_predict_ms", "n_indent", "min_keep", NULL};

    for (size_t i = 0; counts[i] != NULL; i++)
        if (ash_fields_int(fields, counts[i], INT32_MIN, INT32_MAX, 0) > 0)
            ash_fields_wrong(fields, counts[i], "is not supported: leave it out, or send 0");
    if (ash_fields_bool(fields, "post_sampling_probs", false))
        ash_fields_wrong(fields, "post_sampling_probs", "is not supported: probabilities are the model's own");
}

static void read_settings(struct ash_api_call *call, struct ash_api_request *request, struct ash_llama_call *llama)
{
    static const char *const max_keys[] = {"n_predict", "max_tokens", NULL};
    struct ash_fields *fields = &request->fields;

    ash_api_check_model(request);
    ash_openai_read_stream(call, request);
    ash_sampling_read(&call->sampling, request, ASH_DIALECT_LLAMA);
    ash_llama_samplers_read(&call->sampling.sampler, request);
    ash_sampling_read_stops(&call->sampling, request, "stop");
    ash_sampling_read_max(&call->sampling, request, max_keys, ASH_SAMPLING_UNLIMITED);
    call->sampling.clamps_max = true;
    llama->probs = (size_t)ash_fields_int(fields, "n_probs", 0, ASH_SAMPLING_LOGPROBS_MAX, 0);
    llama->returns_tokens = ash_fields_bool(fields, "return_tokens", false);
    llama->has_timings = ash_fields_bool(fields, "timings_per_token", false) || !ash_fields_has(fields, "timings") ||
                         ash_fields_bool(fields, "timings", true);
    if (llama->probs > 0) call->sampling.top_logprobs = (int)llama->probs;
    read_response_fields(llama, request);
    read_slot(llama, request);
    refuse_others(fields);
    ash_api_grammars_read(call, request);
    /* A text that is too long is refused, never shifted; of dry, xtc, mirostat and dynamic temperature only "off". */
    ash_fields_ignore(fields, "n_keep n_discard penalize_nl dry_base dry_allowed_length dry_penalty_last_n "
                              "dry_sequence_breakers xtc_threshold mirostat_tau mirostat_eta dynatemp_exponent");
}

struct ash_api_call *ash_llama_call_open(struct ash_api_request *request)
{
    struct ash_api_call *call = ash_call_open(request, &ash_llama_form, "cmpl-");

    if (call == NULL) return NULL;
    call->state = calloc(1, sizeof(struct ash_llama_call));
    if (call->state != NULL) {
        read_settings(call, request, call->state);
        return call;
    }
    ash_call_close(call);
    ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
    return NULL;
}

void ash_llama_call_start(struct ash_api_call *call, struct ash_api_request *request, const char *prompt_key)
{
    if (request->err.status == 0) ash_prompts_fit(&call->prompts, request, &call->sampling, prompt_key);
    ash_api_check_unknown(request);
    if (ash_api_request_failed(request))
        ash_call_close(call);
    else
        ash_call_start(call);
    ash_api_request_fini(request);
}

void ash_api_llama_completion(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_api_call *call;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    call = ash_llama_call_open(&request);
    if (call != NULL) ash_prompts_read(&call->prompts, &request, "prompt", true);
    ash_llama_call_start(call, &request, "prompt");
}
