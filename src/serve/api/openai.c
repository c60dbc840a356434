/* Pieces of OpenAI's JSON that completions and chat share. */
#include "serve/api/openai.h"

#include <stdio.h>

#include "base/hash.h"
#include "serve/api/write.h"

void ash_openai_read_stream(struct ash_api_call *call, struct ash_api_request *request)
{
    struct ash_fields *fields = &request->fields, options;
    const json_t *object = ash_fields_object(fields, "stream_options");

    call->is_stream = ash_fields_bool(fields, "stream", false);
    if (object == NULL) return;
    if (!call->is_stream) {
        ash_fields_wrong(fields, "stream_options", "goes with stream=true only");
        return;
    }
    ash_fields_init(&options, object, "stream_options.", &request->err);
    call->wants_usage = ash_fields_bool(&options, "include_usage", false);
    call->wants_usage_always = ash_fields_bool(&options, "continuous_usage_stats", false);
}

void ash_openai_write_head(const struct ash_api_call *call, const char *object, struct ash_str *out)
{
    uint64_t hash = call->fingerprint != 0 ? call->fingerprint : call->api->fingerprint;

    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "id", call->id);
    ash_json_put_text(out, "object", object);
    ash_json_put_int(out, "created", call->created_s);
    ash_json_put_text(out, "model", call->model);
    if (!atomic_load(&call->api->has_fingerprint)) {
        ash_json_put_null(out, "system_fingerprint");
        return;
    }
    if (call->adapter != NULL) hash = ash_hash_bytes(&call->adapter->hash, sizeof(call->adapter->hash), hash);
    ash_str_addf(out, ",\"system_fingerprint\":\"fp_%016llx\"", (unsigned long long)hash);
}

void ash_openai_write_usage(struct ash_api_call *call, struct ash_str *out)
{
    struct ash_usage usage = ash_call_usage(call);

    ash_str_addf(out,
                 ",\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":%zu},"
                 "\"completion_tokens_details\":{\"reasoning_tokens\":%zu}}",
                 usage.prompt_tokens, usage.answer_tokens, usage.prompt_tokens + usage.answer_tokens,
                 usage.cached_tokens, usage.thought_tokens);
}

void ash_openai_write_stop_reason(const struct ash_api_call *call, const struct ash_api_choice *choice,
                                  struct ash_str *out)
{
    if (!choice->has_stopped && choice->end.stop_id >= 0)
        ash_json_put_int(out, "stop_reason", choice->end.stop_id);
    else
        ash_json_put_text(out, "stop_reason",
                          choice->has_stopped ? call->sampling.stops.items[choice->stop_index] : NULL);
}

void ash_openai_write_running_usage(struct ash_api_call *call, struct ash_str *out)
{
    if (call->wants_usage_always)
        ash_openai_write_usage(call, out);
    else if (call->wants_usage)
        ash_json_put_null(out, "usage");
}

void ash_openai_write_end(struct ash_api_call *call, const char *object, struct ash_str *out)
{
    if (call->wants_usage) {
        ash_event_begin(out);
        ash_openai_write_head(call, object, out);
        ash_str_adds(out, ",\"choices\":[]");
        ash_openai_write_usage(call, out);
        ash_json_put_end(out, '}');
        ash_event_end(out);
    }
    ash_str_adds(out, "data: [DONE]\n\n");
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

void ash_openai_write_token(const struct ash_api *api, const char *key, int32_t id, struct ash_str *out)
{
    struct ash_str text = {0};

    ash_str_fail(out, ash_tokenizer_add_bytes(api->engine.tokenizer, id, &text));
    ash_json_put_string(out, key, text.data, text.size_bytes);
    ash_str_fini(&text);
}

void ash_openai_write_bytes(const struct ash_api *api, int32_t id, struct ash_str *out)
{
    struct ash_str text = {0};

    ash_str_fail(out, ash_tokenizer_add_bytes(api->engine.tokenizer, id, &text));
    ash_json_put_begin(out, "bytes", '[');
    for (size_t i = 0; i < text.size_bytes; i++)
        ash_json_put_int(out, NULL, (unsigned char)text.data[i]);
    ash_json_put_end(out, ']');
    ash_str_fini(&text);
}

/* {"token":…,"logprob":…,"bytes":[…] — without the closing brace. */
static void write_entry(const struct ash_api *api, int32_t id, float logprob, struct ash_str *out)
{
    ash_json_put_begin(out, NULL, '{');
    ash_openai_write_token(api, "token", id, out);
    ash_write_float(out, "logprob", logprob);
    ash_openai_write_bytes(api, id, out);
}

void ash_openai_write_logprobs(const struct ash_api *api, const struct ash_token *tokens, size_t count, size_t top,
                               struct ash_str *out)
{
    ash_json_put_begin(out, "logprobs", '{');
    ash_json_put_begin(out, "content", '[');
    for (size_t i = 0; i < count; i++) {
        write_entry(api, tokens[i].id, tokens[i].logprob, out);
        ash_json_put_begin(out, "top_logprobs", '[');
        for (size_t t = 0; t < tokens[i].top_count && t < top; t++) {
            write_entry(api, tokens[i].top[t].id, tokens[i].top[t].logprob, out);
            ash_json_put_end(out, '}');
        }
        ash_str_adds(out, "]}");
    }
    ash_str_adds(out, "],\"refusal\":null}");
}

/* "5":{"logprob":-1,"rank":2,"decoded_token":"a"}; rank 0: not known. */
static void write_ranked(const struct ash_api *api, int32_t id, float logprob, size_t rank, struct ash_str *out)
{
    char key[16];

    snprintf(key, sizeof(key), "%d", id);
    ash_json_put_begin(out, key, '{');
    ash_write_float(out, "logprob", logprob);
    if (rank > 0)
        ash_json_put_int(out, "rank", (int64_t)rank);
    else
        ash_json_put_null(out, "rank");
    ash_openai_write_token(api, "decoded_token", id, out);
    ash_json_put_end(out, '}');
}

void ash_openai_write_prompt_logprobs(const struct ash_api *api, struct ash_api_choice *choice, struct ash_str *out)
{
    const struct ash_token *tokens = ash_token_list_view(&choice->prompt_tokens);

    ash_json_put_begin(out, "prompt_logprobs", '[');
    ash_json_put_null(out, NULL); /* nothing comes before the first token */
    for (size_t i = 0; i < choice->prompt_tokens.count; i++) {
        bool is_shown = false;

        ash_json_put_begin(out, NULL, '{');
        for (size_t t = 0; t < tokens[i].top_count; t++) {
            write_ranked(api, tokens[i].top[t].id, tokens[i].top[t].logprob, t + 1, out);
            is_shown = is_shown || tokens[i].top[t].id == tokens[i].id;
        }
        if (!is_shown) write_ranked(api, tokens[i].id, tokens[i].logprob, 0, out);
        ash_json_put_end(out, '}');
    }
    ash_json_put_end(out, ']');
}

void ash_openai_write_ids(const char *key, const int32_t *ids, size_t count, struct ash_str *out)
{
    ash_json_put_begin(out, key, '[');
    for (size_t i = 0; i < count; i++)
        ash_json_put_int(out, NULL, ids[i]);
    ash_json_put_end(out, ']');
}

void ash_openai_write_token_ids(const char *key, const struct ash_token *tokens, size_t count, struct ash_str *out)
{
    ash_json_put_begin(out, key, '[');
    for (size_t i = 0; i < count; i++)
        ash_json_put_int(out, NULL, tokens[i].id);
    ash_json_put_end(out, ']');
}
