/* Pieces of OpenAI's JSON that completions and chat share. */
#include "serve/api/openai.h"

#include <inttypes.h>

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

int ash_openai_write_head(const struct ash_api_call *call, const char *object, struct ash_str *out)
{
    int rc = ash_str_addf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", call->id, object,
                          call->created_s);
    uint64_t hash;

    if (rc == 0) rc = ash_write_text(out, call->model);
    if (rc < 0 || !atomic_load(&call->api->has_fingerprint))
        return rc == 0 ? ash_str_adds(out, ",\"system_fingerprint\":null") : rc;
    hash = call->api->fingerprint;
    if (call->adapter != NULL) hash = ash_hash_bytes(&call->adapter->hash, sizeof(call->adapter->hash), hash);
    return ash_str_addf(out, ",\"system_fingerprint\":\"fp_%016llx\"", (unsigned long long)hash);
}

int ash_openai_write_usage(struct ash_api_call *call, struct ash_str *out)
{
    struct ash_usage usage = ash_call_usage(call);

    return ash_str_addf(out,
                        ",\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
                        "\"prompt_tokens_details\":{\"cached_tokens\":%zu},"
                        "\"completion_tokens_details\":{\"reasoning_tokens\":%zu}}",
                        usage.prompt_tokens, usage.answer_tokens, usage.prompt_tokens + usage.answer_tokens,
                        usage.cached_tokens, usage.thought_tokens);
}

int ash_openai_write_stop_reason(const struct ash_api_call *call, const struct ash_api_choice *choice,
                                 struct ash_str *out)
{
    int rc = ash_str_adds(out, ",\"stop_reason\":");

    if (rc == 0 && choice->has_stopped) return ash_write_text(out, call->sampling.stops.items[choice->stop_index]);
    if (rc == 0 && choice->end.stop_id >= 0) return ash_str_addf(out, "%d", choice->end.stop_id);
    return rc == 0 ? ash_str_adds(out, "null") : rc;
}

int ash_openai_write_running_usage(struct ash_api_call *call, struct ash_str *out)
{
    if (call->wants_usage_always) return ash_openai_write_usage(call, out);
    return call->wants_usage ? ash_str_adds(out, ",\"usage\":null") : 0;
}

int ash_openai_write_end(struct ash_api_call *call, const char *object, struct ash_str *out)
{
    int rc = 0;

    if (call->wants_usage) {
        rc = ash_event_begin(out);
        if (rc == 0) rc = ash_openai_write_head(call, object, out);
        if (rc == 0) rc = ash_str_adds(out, ",\"choices\":[]");
        if (rc == 0) rc = ash_openai_write_usage(call, out);
        if (rc == 0) rc = ash_str_adds(out, "}\n\n");
    }
    return rc == 0 ? ash_str_adds(out, "data: [DONE]\n\n") : rc;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

int ash_openai_token_text(const struct ash_api *api, int32_t id, struct ash_str *out)
{
    return ash_tokenizer_add_bytes(api->engine.tokenizer, id, out);
}

/* "token":…,"logprob":…,"bytes":[…] */
static int write_entry(const struct ash_api *api, int32_t id, float logprob, struct ash_str *out)
{
    struct ash_str text = {0};
    int rc = ash_openai_token_text(api, id, &text);

    if (rc == 0) rc = ash_str_adds(out, "{\"token\":");
    if (rc == 0) rc = ash_write_string(out, text.data != NULL ? text.data : "", text.size_bytes);
    if (rc == 0) rc = ash_str_adds(out, ",\"logprob\":");
    if (rc == 0) rc = ash_write_float(out, logprob);
    if (rc == 0) rc = ash_str_adds(out, ",\"bytes\":[");
    for (size_t i = 0; i < text.size_bytes && rc == 0; i++)
        rc = ash_str_addf(out, "%s%d", i > 0 ? "," : "", (unsigned char)text.data[i]);
    ash_str_fini(&text);
    return rc == 0 ? ash_str_adds(out, "]") : rc;
}

int ash_openai_write_logprobs(const struct ash_api *api, const struct ash_token *tokens, size_t count, size_t top,
                              struct ash_str *out)
{
    int rc = ash_str_adds(out, "{\"content\":[");

    for (size_t i = 0; i < count && rc == 0; i++) {
        if (i > 0) rc = ash_str_adds(out, ",");
        if (rc == 0) rc = write_entry(api, tokens[i].id, tokens[i].logprob, out);
        if (rc == 0) rc = ash_str_adds(out, ",\"top_logprobs\":[");
        for (size_t t = 0; t < tokens[i].top_count && t < top && rc == 0; t++) {
            if (t > 0) rc = ash_str_adds(out, ",");
            if (rc == 0) rc = write_entry(api, tokens[i].top[t].id, tokens[i].top[t].logprob, out);
            if (rc == 0) rc = ash_str_adds(out, "}");
        }
        if (rc == 0) rc = ash_str_adds(out, "]}");
    }
    return rc == 0 ? ash_str_adds(out, "],\"refusal\":null}") : rc;
}

/* "5":{"logprob":-1,"rank":2,"decoded_token":"a"}; rank 0: not known. */
static int write_ranked(const struct ash_api *api, int32_t id, float logprob, size_t rank, struct ash_str *out)
{
    struct ash_str text = {0};
    int rc = ash_openai_token_text(api, id, &text);

    if (rc == 0) rc = ash_str_addf(out, "\"%d\":{\"logprob\":", id);
    if (rc == 0) rc = ash_write_float(out, logprob);
    if (rc == 0 && rank > 0) rc = ash_str_addf(out, ",\"rank\":%zu", rank);
    if (rc == 0 && rank == 0) rc = ash_str_adds(out, ",\"rank\":null");
    if (rc == 0) rc = ash_str_adds(out, ",\"decoded_token\":");
    if (rc == 0) rc = ash_write_string(out, text.data != NULL ? text.data : "", text.size_bytes);
    ash_str_fini(&text);
    return rc == 0 ? ash_str_adds(out, "}") : rc;
}

int ash_openai_write_prompt_logprobs(const struct ash_api *api, struct ash_api_choice *choice, struct ash_str *out)
{
    const struct ash_token *tokens = ash_token_list_view(&choice->prompt_tokens);
    int rc = ash_str_adds(out, "[null"); /* nothing comes before the first token */

    for (size_t i = 0; i < choice->prompt_tokens.count && rc == 0; i++) {
        bool is_shown = false;

        rc = ash_str_adds(out, ",{");
        for (size_t t = 0; t < tokens[i].top_count && rc == 0; t++) {
            if (t > 0) rc = ash_str_adds(out, ",");
            if (rc == 0) rc = write_ranked(api, tokens[i].top[t].id, tokens[i].top[t].logprob, t + 1, out);
            is_shown = is_shown || tokens[i].top[t].id == tokens[i].id;
        }
        if (!is_shown && rc == 0 && tokens[i].top_count > 0) rc = ash_str_adds(out, ",");
        if (!is_shown && rc == 0) rc = write_ranked(api, tokens[i].id, tokens[i].logprob, 0, out);
        if (rc == 0) rc = ash_str_adds(out, "}");
    }
    return rc == 0 ? ash_str_adds(out, "]") : rc;
}

int ash_openai_write_ids(const int32_t *ids, size_t count, struct ash_str *out)
{
    int rc = ash_str_adds(out, "[");

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ash_str_addf(out, "%s%d", i > 0 ? "," : "", ids[i]);
    return rc == 0 ? ash_str_adds(out, "]") : rc;
}

int ash_openai_write_token_ids(const struct ash_token *tokens, size_t count, struct ash_str *out)
{
    int rc = ash_str_adds(out, "[");

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ash_str_addf(out, "%s%d", i > 0 ? "," : "", tokens[i].id);
    return rc == 0 ? ash_str_adds(out, "]") : rc;
}
