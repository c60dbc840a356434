/* How llama.cpp writes an answer: what /completion and /infill share. */
#include "serve/api/llama.h"

#include "serve/api/openai.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/write.h"

static void free_state(struct ash_api_call *call)
{
    struct ash_llama_call *llama = call->state;

    if (llama != NULL) json_decref(llama->response_fields);
    free(llama);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* {"id":…,"token":…,"bytes":[…],"logprob":… — without the closing brace. */
static void write_entry(const struct ash_api *api, int32_t id, float logprob, struct ash_str *out)
{
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_int(out, "id", id);
    ash_openai_write_token(api, "token", id, out);
    ash_openai_write_bytes(api, id, out);
    ash_write_float(out, "logprob", logprob);
}

/* "completion_probabilities":[{id, token, bytes, logprob, top_logprobs}]: as llama.cpp writes them. */
static void write_probs(const struct ash_api_call *call, const struct ash_delta *delta, struct ash_str *out)
{
    const struct ash_llama_call *llama = call->state;

    ash_json_put_begin(out, "completion_probabilities", '[');
    for (size_t i = 0; i < delta->token_count; i++) {
        const struct ash_token *token = &delta->tokens[i];

        write_entry(call->api, token->id, token->logprob, out);
        ash_json_put_begin(out, "top_logprobs", '[');
        for (size_t t = 0; t < token->top_count && t < llama->probs; t++) {
            write_entry(call->api, token->top[t].id, token->top[t].logprob, out);
            ash_json_put_end(out, '}');
        }
        ash_str_adds(out, "]}");
    }
    ash_json_put_end(out, ']');
}

/* "content":…,"tokens":…: of the new text. */
static void write_content(const struct ash_api_call *call, const struct ash_delta *delta, bool is_stream,
                          struct ash_str *out)
{
    const struct ash_llama_call *llama = call->state;
    bool has_ids = llama->returns_tokens || is_stream;

    ash_json_put_string(out, "content", delta->text, delta->size_bytes);
    ash_openai_write_token_ids("tokens", delta->tokens, has_ids ? delta->token_count : 0, out);
    if (llama->probs > 0) write_probs(call, delta, out);
}

static double per_second(size_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static void write_timings(const struct ash_request_end *end, struct ash_str *out)
{
    size_t computed = end->prompt_tokens - end->cached_tokens;
    size_t steps = end->answer_tokens > 0 ? end->answer_tokens - 1 : 0; /* the prompt's pass gave the first token */

    ash_str_addf(out,
                 ",\"timings\":{\"cache_n\":%zu,\"prompt_n\":%zu,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.3f,"
                 "\"prompt_per_second\":%.3f,\"predicted_n\":%zu,\"predicted_ms\":%.3f,"
                 "\"predicted_per_token_ms\":%.3f,\"predicted_per_second\":%.3f}",
                 end->cached_tokens, computed, end->prefill_s * 1e3,
                 computed > 0 ? end->prefill_s * 1e3 / (double)computed : 0, per_second(computed, end->prefill_s),
                 end->answer_tokens, end->decode_s * 1e3, steps > 0 ? end->decode_s * 1e3 / (double)steps : 0,
                 per_second(steps, end->decode_s));
}

static void write_settings(const struct ash_api_call *call, const struct ash_api_choice *choice, struct ash_str *out)
{
    const struct ash_sampler_opts *sampler = &choice->request.sampler;
    const struct ash_llama_call *llama = call->state;

    ash_str_addf(out,
                 ",\"generation_settings\":{\"seed\":%lld,\"temperature\":%.9g,\"top_k\":%zu,\"top_p\":%.9g,"
                 "\"min_p\":%.9g,\"typical_p\":%.9g,\"repeat_last_n\":%zu,\"repeat_penalty\":%.9g,"
                 "\"presence_penalty\":%.9g,\"frequency_penalty\":%.9g,\"n_predict\":%zu,\"max_tokens\":%zu,"
                 "\"n_keep\":0,\"n_discard\":0,\"n_probs\":%zu,\"min_keep\":0,\"dynatemp_range\":0,"
                 "\"dynatemp_exponent\":1,\"top_n_sigma\":-1,\"xtc_probability\":0,\"xtc_threshold\":0.1,"
                 "\"dry_multiplier\":0,\"mirostat\":0,\"post_sampling_probs\":false,\"ignore_eos\":%s,"
                 "\"stream\":%s,\"timings_per_token\":false",
                 (long long)sampler->seed, sampler->temperature, sampler->top_k, sampler->top_p, sampler->min_p,
                 sampler->typical_p, sampler->repeat_last_n, sampler->repetition_penalty, sampler->presence_penalty,
                 sampler->frequency_penalty, choice->request.max_tokens, choice->request.max_tokens, llama->probs,
                 call->sampling.ignores_eos ? "true" : "false", call->is_stream ? "true" : "false");
    ash_json_put_begin(out, "stop", '[');
    for (size_t i = 0; i < call->sampling.stops.count; i++)
        ash_json_put_text(out, NULL, call->sampling.stops.items[i]);
    ash_json_put_end(out, ']');
    ash_json_put_end(out, '}');
}

/* Did the context end the answer? */
static bool is_truncated(const struct ash_api_choice *choice)
{
    return strcmp(ash_api_choice_reason(choice), "length") == 0 &&
           choice->end.prompt_tokens + choice->tokens.count >= choice->call->api->engine.context_tokens;
}

/* The prompt as the model saw it. */
static void write_prompt(const struct ash_api_choice *choice, struct ash_str *out)
{
    struct ash_str text = {0};
    struct ash_err err = {0};

    if (ash_tokenizer_decode(choice->call->api->engine.tokenizer, choice->request.prompt, choice->request.prompt_count,
                             false, &text, &err) == 0)
        ash_json_put_string(out, "prompt", text.data, text.size_bytes);
    ash_str_fini(&text);
}

static void write_ending(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    const struct ash_llama_call *llama = call->state;
    const char *type = choice->has_stopped ? "word" : choice->end.finish == ASH_FINISH_EOS ? "eos" : "limit";

    ash_str_addf(out,
                 ",\"stop\":true,\"id_slot\":%d,\"index\":%zu,\"tokens_predicted\":%zu,"
                 "\"tokens_evaluated\":%zu,\"tokens_cached\":%zu,\"has_new_line\":%s,\"truncated\":%s,"
                 "\"stop_type\":\"%s\"",
                 llama->slot, choice->index, choice->tokens.count, choice->end.prompt_tokens,
                 choice->end.prompt_tokens + choice->tokens.count,
                 choice->text.data != NULL && strchr(choice->text.data, '\n') != NULL ? "true" : "false",
                 is_truncated(choice) ? "true" : "false", type);
    write_prompt(choice, out);
    ash_json_put_text(out, "stopping_word", choice->has_stopped ? call->sampling.stops.items[choice->stop_index] : "");
    ash_json_put_text(out, "model", call->model);
    write_settings(call, choice, out);
    if (llama->has_timings) write_timings(&choice->end, out);
}

/* The answer as an object. */
static void write_object(struct ash_api_call *call, struct ash_api_choice *choice, bool has_content,
                         struct ash_str *out)
{
    struct ash_delta delta = {
        choice->text.data != NULL && has_content ? choice->text.data : "", has_content ? choice->text.size_bytes : 0,
        has_content ? ash_token_list_view(&choice->tokens) : NULL, has_content ? choice->tokens.count : 0, 0};

    ash_json_put_begin(out, NULL, '{');
    write_content(call, &delta, false, out);
    write_ending(call, choice, out);
    ash_json_put_end(out, '}');
}

/* The value at a path of keys with slashes between them, or NULL. Borrowed. */
static json_t *find_path(json_t *json, const char *path)
{
    while (json != NULL) {
        size_t bytes = strcspn(path, "/");

        json = json_object_getn(json, path, bytes);
        if (path[bytes] == '\0') break;
        path += bytes + 1;
    }
    return json;
}

/* Only what response_fields names, each under its whole path, as llama.cpp does. */
static void write_fields(const json_t *fields, const struct ash_str *object, struct ash_str *out)
{
    json_t *json = json_loadb(object->data, object->size_bytes, JSON_DECODE_ANY, NULL), *kept = json_object();

    if (json == NULL || kept == NULL) ash_str_fail(out, -ENOMEM);
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const char *path = json_string_value(json_array_get(fields, i));
        json_t *value = find_path(json, path);

        if (value != NULL && json_object_set(kept, path, value) < 0) ash_str_fail(out, -ENOMEM);
    }
    ash_json_put_json(out, NULL, kept);
    json_decref(kept);
    json_decref(json);
}

/* The last word on a choice: all of it, or without the content that was streamed. */
static void write_final(struct ash_api_call *call, struct ash_api_choice *choice, bool has_content, struct ash_str *out)
{
    const struct ash_llama_call *llama = call->state;
    struct ash_str object = {0};

    if (llama->response_fields == NULL) {
        write_object(call, choice, has_content, out);
        return;
    }
    write_object(call, choice, has_content, &object);
    if (ash_str_fail(out, object.rc) == 0) write_fields(llama->response_fields, &object, out);
    ash_str_fini(&object);
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    bool has_many = call->choice_count > 1;

    if (has_many) ash_json_put_begin(out, NULL, '[');
    for (size_t i = 0; i < call->choice_count; i++)
        write_final(call, &call->choices[i], true, out);
    if (has_many) ash_json_put_end(out, ']');
    return out->rc;
}

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    (void)call, (void)out;
    return 0;
}

static int write_delta(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out)
{
    const struct ash_llama_call *llama = call->state;

    ash_str_addf(out, "data: {\"index\":%zu", choice->index);
    write_content(call, delta, true, out);
    return ash_str_addf(out, ",\"stop\":false,\"id_slot\":%d,\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu}\n\n",
                        llama->slot, delta->first_token + delta->token_count, choice->request.prompt_count);
}

static int write_finish(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    ash_event_begin(out);
    write_final(call, choice, false, out);
    return ash_event_end(out);
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    (void)call, (void)out; /* the event with "stop": true was the last */
    return 0;
}

const struct ash_form ash_llama_form = {.write = write_all,
                                        .write_start = write_start,
                                        .write_delta = write_delta,
                                        .write_finish = write_finish,
                                        .write_end = write_end,
                                        .free_state = free_state};
