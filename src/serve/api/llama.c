/* POST /completion and /infill: llama.cpp's own forms. */
#include "serve/api/openai.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "serve/api/grammars.h"
#include "serve/api/write.h"

/* What only this form knows. */
struct llama {
    size_t probs;                               /* n_probs */
    bool returns_tokens, has_timings, has_many; /* many: the answer is a list */
};

static void free_state(struct ash_api_call *call)
{
    free(call->state);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* "completion_probabilities":[{id, token, bytes, logprob, top_logprobs}]: as llama.cpp writes them. */
static int write_entry(const struct ash_api *api, int32_t id, float logprob, struct ash_str *out)
{
    struct ash_str text = {0};
    int rc = ash_openai_token_text(api, id, &text);

    if (rc == 0) rc = ash_str_addf(out, "{\"id\":%d,\"token\":", id);
    if (rc == 0) rc = ash_write_string(out, text.data != NULL ? text.data : "", text.size_bytes);
    if (rc == 0) rc = ash_str_adds(out, ",\"bytes\":[");
    for (size_t i = 0; i < text.size_bytes && rc == 0; i++)
        rc = ash_str_addf(out, "%s%d", i > 0 ? "," : "", (unsigned char)text.data[i]);
    if (rc == 0) rc = ash_str_adds(out, "],\"logprob\":");
    if (rc == 0) rc = ash_write_float(out, logprob);
    ash_str_fini(&text);
    return rc;
}

static int write_probs(const struct ash_api_call *call, const struct ash_delta *delta, struct ash_str *out)
{
    const struct llama *llama = call->state;
    int rc = ash_str_adds(out, ",\"completion_probabilities\":[");

    for (size_t i = 0; i < delta->token_count && rc == 0; i++) {
        const struct ash_token *token = &delta->tokens[i];

        if (i > 0) rc = ash_str_adds(out, ",");
        if (rc == 0) rc = write_entry(call->api, token->id, token->logprob, out);
        if (rc == 0) rc = ash_str_adds(out, ",\"top_logprobs\":[");
        for (size_t t = 0; t < token->top_count && t < llama->probs && rc == 0; t++) {
            if (t > 0) rc = ash_str_adds(out, ",");
            if (rc == 0) rc = write_entry(call->api, token->top[t].id, token->top[t].logprob, out);
            if (rc == 0) rc = ash_str_adds(out, "}");
        }
        if (rc == 0) rc = ash_str_adds(out, "]}");
    }
    return rc == 0 ? ash_str_adds(out, "]") : rc;
}

/* "content":…,"tokens":…: of what is new. */
static int write_content(const struct ash_api_call *call, const struct ash_delta *delta, bool is_stream,
                         struct ash_str *out)
{
    const struct llama *llama = call->state;
    bool has_ids = llama->returns_tokens || is_stream;
    int rc = ash_str_adds(out, "\"content\":");

    if (rc == 0) rc = ash_write_string(out, delta->text, delta->size_bytes);
    if (rc == 0) rc = ash_str_adds(out, ",\"tokens\":");
    if (rc == 0) rc = ash_openai_write_token_ids(delta->tokens, has_ids ? delta->token_count : 0, out);
    return rc == 0 && llama->probs > 0 ? write_probs(call, delta, out) : rc;
}

static double per_second(size_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static int write_timings(const struct ash_request_end *end, struct ash_str *out)
{
    size_t computed = end->prompt_tokens - end->cached_tokens;

    return ash_str_addf(
        out,
        ",\"timings\":{\"cache_n\":%zu,\"prompt_n\":%zu,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.3f,"
        "\"prompt_per_second\":%.3f,\"predicted_n\":%zu,\"predicted_ms\":%.3f,"
        "\"predicted_per_token_ms\":%.3f,\"predicted_per_second\":%.3f}",
        end->cached_tokens, computed, end->prefill_s * 1e3, computed > 0 ? end->prefill_s * 1e3 / (double)computed : 0,
        per_second(computed, end->prefill_s), end->answer_tokens, end->decode_s * 1e3,
        end->answer_tokens > 0 ? end->decode_s * 1e3 / (double)end->answer_tokens : 0,
        per_second(end->answer_tokens, end->decode_s));
}

static int write_settings(const struct ash_api_call *call, const struct ash_api_choice *choice, struct ash_str *out)
{
    const struct ash_sampler_opts *sampler = &choice->request.sampler;

    return ash_str_addf(out,
                        ",\"generation_settings\":{\"seed\":%lld,\"temperature\":%.9g,\"top_k\":%zu,\"top_p\":%.9g,"
                        "\"min_p\":%.9g,\"typical_p\":%.9g,\"repeat_last_n\":%zu,\"repeat_penalty\":%.9g,"
                        "\"presence_penalty\":%.9g,\"frequency_penalty\":%.9g,\"n_predict\":%zu,\"ignore_eos\":%s,"
                        "\"stream\":%s}",
                        (long long)sampler->seed, sampler->temperature, sampler->top_k, sampler->top_p, sampler->min_p,
                        sampler->typical_p, sampler->repeat_last_n, sampler->repetition_penalty,
                        sampler->presence_penalty, sampler->frequency_penalty, choice->request.max_tokens,
                        call->sampling.ignores_eos ? "true" : "false", call->is_stream ? "true" : "false");
}

static int write_ending(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    const struct llama *llama = call->state;
    const char *type = choice->has_stopped ? "word" : choice->end.finish == ASH_FINISH_EOS ? "eos" : "limit";
    int rc =
        ash_str_addf(out,
                     ",\"stop\":true,\"id_slot\":0,\"index\":%zu,\"tokens_predicted\":%zu,"
                     "\"tokens_evaluated\":%zu,\"tokens_cached\":%zu,\"has_new_line\":%s,\"truncated\":false,"
                     "\"stop_type\":\"%s\",\"stopping_word\":",
                     choice->index, choice->tokens.count, choice->end.prompt_tokens,
                     choice->end.prompt_tokens + choice->tokens.count,
                     choice->text.data != NULL && strchr(choice->text.data, '\n') != NULL ? "true" : "false", type);

    if (rc == 0) rc = ash_write_text(out, choice->has_stopped ? call->sampling.stops.items[choice->stop_index] : "");
    if (rc == 0) rc = ash_str_adds(out, ",\"model\":");
    if (rc == 0) rc = ash_write_text(out, call->model);
    if (rc == 0) rc = write_settings(call, choice, out);
    return rc == 0 && llama->has_timings ? write_timings(&choice->end, out) : rc;
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    const struct llama *llama = call->state;
    int rc = llama->has_many ? ash_str_adds(out, "[") : 0;

    for (size_t i = 0; i < call->choice_count && rc == 0; i++) {
        struct ash_api_choice *choice = &call->choices[i];
        struct ash_delta delta = {choice->text.data != NULL ? choice->text.data : "", choice->text.size_bytes,
                                  ash_token_list_view(&choice->tokens), choice->tokens.count, 0};

        rc = ash_str_adds(out, i > 0 ? ",{" : "{");
        if (rc == 0) rc = write_content(call, &delta, false, out);
        if (rc == 0) rc = write_ending(call, choice, out);
        if (rc == 0) rc = ash_str_adds(out, "}");
    }
    return rc == 0 && llama->has_many ? ash_str_adds(out, "]") : rc;
}

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    (void)call, (void)out;
    return 0;
}

static int write_delta(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out)
{
    int rc = ash_str_addf(out, "data: {\"index\":%zu,", choice->index);

    if (rc == 0) rc = write_content(call, delta, true, out);
    return rc == 0
               ? ash_str_addf(out,
                              ",\"stop\":false,\"id_slot\":0,\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu}\n\n",
                              delta->first_token + delta->token_count, choice->request.prompt_count)
               : rc;
}

static int write_finish(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    int rc = ash_str_adds(out, "data: {\"content\":\"\",\"tokens\":[]");

    if (rc == 0) rc = write_ending(call, choice, out);
    return rc == 0 ? ash_str_adds(out, "}\n\n") : rc;
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    (void)call, (void)out; /* the event with "stop": true was the last */
    return 0;
}

static const struct ash_form form = {.write = write_all,
                                     .write_start = write_start,
                                     .write_delta = write_delta,
                                     .write_finish = write_finish,
                                     .write_end = write_end,
                                     .free_state = free_state};

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void read_settings(struct ash_api_call *call, struct ash_api_request *request, struct llama *llama)
{
    static const char *const max_keys[] = {"n_predict", "max_tokens", NULL};
    struct ash_fields *fields = &request->fields;

    ash_api_check_model(request);
    ash_openai_read_stream(call, request);
    ash_sampling_read(&call->sampling, request, ASH_DIALECT_LLAMA);
    ash_sampling_read_stops(&call->sampling, request, "stop");
    ash_sampling_read_max(&call->sampling, request, max_keys, ASH_SAMPLING_UNLIMITED);
    llama->probs = (size_t)ash_fields_int(fields, "n_probs", 0, ASH_SAMPLING_LOGPROBS_MAX, 0);
    llama->returns_tokens = ash_fields_bool(fields, "return_tokens", false);
    llama->has_timings = ash_fields_bool(fields, "timings_per_token", false) || !ash_fields_has(fields, "timings") ||
                         ash_fields_bool(fields, "timings", true);
    if (llama->probs > 0) call->sampling.top_logprobs = (int)llama->probs;
    ash_api_grammars_read(call, request);
    ash_fields_ignore(fields, "id_slot samplers response_fields t_max_predict_ms n_keep n_indent post_sampling_probs "
                              "n_discard penalize_nl min_keep");
}

/* Finish reading, and start. */
static void start(struct ash_api_call *call, struct ash_api_request *request, const char *prompt_key)
{
    struct llama *llama = call->state;

    if (request->err.status == 0) ash_prompts_fit(&call->prompts, request, &call->sampling, prompt_key);
    ash_api_check_unknown(request);
    llama->has_many = call->prompts.count * call->sampling.n > 1;
}

/* A call with its state, or NULL after saying what is wrong. */
static struct ash_api_call *open_call(struct ash_api_request *request)
{
    struct ash_api_call *call = ash_call_open(request, &form, "cmpl-");

    if (call == NULL) return NULL;
    call->state = calloc(1, sizeof(struct llama));
    if (call->state != NULL) return call;
    ash_call_close(call);
    ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
    return NULL;
}

static void finish(struct ash_api_call *call, struct ash_api_request *request)
{
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
    call = open_call(&request);
    if (call != NULL) {
        read_settings(call, &request, call->state);
        ash_prompts_read(&call->prompts, &request, "prompt", true);
        start(call, &request, "prompt");
    }
    finish(call, &request);
}

/* ---- filling a gap ----------------------------------------------------------------------------------------------- */

/* The ids of the marks that a model was trained with, under the names that families give them. */
static int32_t find_mark(const struct ash_api *api, const char *const *names)
{
    for (; *names != NULL; names++) {
        int32_t id = ash_tokenizer_id(api->engine.tokenizer, *names);

        if (id >= 0) return id;
    }
    return -1;
}

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
static void build_infill(struct ash_prompts *prompts, struct ash_api_request *request)
{
    static const char *const prefixes[] = {
        "<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "▁<PRE>", "<｜fim▁begin｜>", NULL};
    static const char *const suffixes[] = {
        "<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<SUF>", "▁<SUF>", "<｜fim▁hole｜>", NULL};
    static const char *const middles[] = {
        "<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<MID>", "▁<MID>", "<｜fim▁end｜>", NULL};
    const struct ash_api *api = request->api;
    int32_t marks[3] = {find_mark(api, prefixes), find_mark(api, suffixes), find_mark(api, middles)};
    struct ash_ids ids = {0};
    int rc = 0;

    if (marks[0] < 0 || marks[1] < 0 || marks[2] < 0) {
        ash_api_err_set(&request->err, 501, "not_supported", NULL,
                        "this model's vocabulary has no marks for filling a gap (<|fim_prefix|> and the like)");
        return;
    }
    if (api->engine.bos >= 0) rc = ash_ids_add(&ids, api->engine.bos);
    if (rc == 0) rc = ash_ids_add(&ids, marks[0]);
    add_text(&ids, request, "input_prefix");
    add_text(&ids, request, "prompt");
    if (rc == 0) rc = ash_ids_add(&ids, marks[1]);
    add_text(&ids, request, "input_suffix");
    if (rc == 0) rc = ash_ids_add(&ids, marks[2]);
    if (rc == 0) rc = ash_prompts_add_ids(prompts, &ids);
    if (rc < 0) ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the prompt");
    ash_ids_fini(&ids);
}

void ash_api_infill(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_api_call *call;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    call = open_call(&request);
    if (call != NULL) {
        read_settings(call, &request, call->state);
        if (!ash_fields_has(&request.fields, "input_prefix") && !ash_fields_has(&request.fields, "input_suffix"))
            ash_api_err_set(&request.err, 400, "missing_required_parameter", "input_prefix",
                            "'input_prefix' and 'input_suffix' are missing");
        if (ash_fields_has(&request.fields, "input_extra"))
            ash_fields_wrong(&request.fields, "input_extra", "is not supported");
        if (request.err.status == 0) build_infill(&call->prompts, &request);
        start(call, &request, "input_prefix");
    }
    finish(call, &request);
}
