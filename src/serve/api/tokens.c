/* POST /tokenize, /detokenize and /apply-template: what vLLM and llama.cpp both have, with the fields of both. */
#include "serve/api/openai.h"

#include <stdlib.h>

#include "base/json_put.h"
#include "serve/api/conversation.h"
#include "serve/api/handlers.h"

/* The text as llama.cpp ("content") or vLLM ("prompt", "messages") name it. */
static void read_text(struct ash_api_request *request, struct ash_ids *ids)
{
    struct ash_fields *fields = &request->fields;
    const char *key = ash_fields_has(fields, "content") ? "content" : "prompt";
    struct ash_conversation conversation = {0};
    struct ash_err err = {0};
    struct ash_str text = {0};
    bool is_chat = ash_fields_has(fields, "messages");
    bool adds = ash_fields_bool(fields, ash_fields_has(fields, "add_special") ? "add_special" : "add_special_tokens",
                                !is_chat && key[0] == 'p');
    const json_t *value = ash_fields_any(fields, key);

    if (is_chat) {
        ash_conversation_read(&conversation, request);
        ash_conversation_render(&conversation, request, &text);
        ash_conversation_fini(&conversation);
    } else if (!json_is_string(value)) {
        ash_api_err_set(&request->err, 400, value == NULL ? "missing_required_parameter" : "invalid_type", key,
                        "'%s' must be a text", key);
    } else if (ash_str_add(&text, json_string_value(value), json_string_length(value)) < 0) {
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the text");
    }
    if (request->err.status == 0 &&
        ash_tokenizer_encode(request->api->engine.tokenizer, text.data != NULL ? text.data : "", text.size_bytes, adds,
                             ids, &err) < 0)
        ash_api_err_take(&request->err, key, &err);
    ash_str_fini(&text);
}

/* llama.cpp's pieces: a text, or bytes if it is not UTF-8. */
static void write_piece(const struct ash_api *api, int32_t id, struct ash_str *out)
{
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_int(out, "id", id);
    ash_openai_write_token(api, "piece", id, out);
    ash_json_put_end(out, '}');
}

/* "token_strs":[…]: as the vocabulary has them. */
static void write_contents(const struct ash_api *api, const struct ash_ids *ids, struct ash_str *out)
{
    ash_json_put_begin(out, "token_strs", '[');
    for (size_t i = 0; i < ids->count; i++) {
        const char *content = ash_tokenizer_content(api->engine.tokenizer, ids->data[i]);

        ash_json_put_text(out, NULL, content != NULL ? content : "");
    }
    ash_json_put_end(out, ']');
}

static int write_tokens(const struct ash_api *api, const struct ash_ids *ids, bool has_pieces, bool has_texts,
                        struct ash_str *out)
{
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_begin(out, "tokens", '[');
    for (size_t i = 0; i < ids->count; i++) {
        if (has_pieces)
            write_piece(api, ids->data[i], out);
        else
            ash_json_put_int(out, NULL, ids->data[i]);
    }
    ash_json_put_end(out, ']');
    ash_json_put_int(out, "count", (int64_t)ids->count);
    ash_json_put_int(out, "max_model_len", (int64_t)api->engine.context_tokens);
    if (has_texts) write_contents(api, ids, out);
    ash_json_put_end(out, '}');
    return out->rc;
}

void ash_api_tokenize(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_ids ids = {0};
    struct ash_str body = {0};
    bool has_pieces, has_texts;

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    ash_api_check_model(&request);
    has_pieces = ash_fields_bool(&request.fields, "with_pieces", false);
    has_texts = ash_fields_bool(&request.fields, "return_token_strs", false);
    ash_fields_ignore(&request.fields, "parse_special"); /* special tokens in a text are always read as such */
    read_text(&request, &ids);
    ash_api_check_unknown(&request);
    if (!ash_api_request_failed(&request))
        ash_api_respond_text(exchange, write_tokens(ctx, &ids, has_pieces, has_texts, &body), &body);
    ash_str_fini(&body);
    ash_ids_fini(&ids);
    ash_api_request_fini(&request);
}

static void read_ids(struct ash_api_request *request, struct ash_ids *ids)
{
    const json_t *tokens = ash_fields_array(&request->fields, "tokens");
    size_t vocab = ash_tokenizer_vocab_size(request->api->engine.tokenizer);

    if (tokens == NULL && request->err.status == 0)
        ash_api_err_set(&request->err, 400, "missing_required_parameter", "tokens", "'tokens' is missing");
    for (size_t i = 0; i < json_array_size(tokens) && request->err.status == 0; i++) {
        const json_t *item = json_array_get(tokens, i);
        json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;

        if (id < 0 || (uint64_t)id >= vocab)
            ash_fields_wrong(&request->fields, "tokens", "must hold token ids from 0 to %zu", vocab - 1);
        else if (ash_ids_add(ids, (int32_t)id) < 0)
            ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the ids");
    }
}

/* "content" is llama.cpp's name of the answer, "prompt" vLLM's. */
static int write_text(const struct ash_str *text, struct ash_str *out)
{
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_string(out, "prompt", text->data, text->size_bytes);
    ash_json_put_string(out, "content", text->data, text->size_bytes);
    ash_json_put_end(out, '}');
    return out->rc;
}

void ash_api_detokenize(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_ids ids = {0};
    struct ash_str text = {0}, body = {0};
    struct ash_err err = {0};

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    ash_api_check_model(&request);
    read_ids(&request, &ids);
    ash_api_check_unknown(&request);
    if (request.err.status == 0 &&
        ash_tokenizer_decode(request.api->engine.tokenizer, ids.data, ids.count, false, &text, &err) < 0)
        ash_api_err_take(&request.err, "tokens", &err);
    if (!ash_api_request_failed(&request)) ash_api_respond_text(exchange, write_text(&text, &body), &body);
    ash_str_fini(&body);
    ash_str_fini(&text);
    ash_ids_fini(&ids);
    ash_api_request_fini(&request);
}

void ash_api_apply_template(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_conversation conversation = {0};
    struct ash_str text = {0}, body = {0};

    if (!ash_api_request_init(&request, ctx, exchange)) return;
    ash_api_check_model(&request);
    ash_conversation_read(&conversation, &request);
    ash_conversation_render(&conversation, &request, &text);
    ash_api_check_unknown(&request);
    if (!ash_api_request_failed(&request)) {
        ash_json_put_begin(&body, NULL, '{');
        ash_json_put_string(&body, "prompt", text.data, text.size_bytes);
        ash_json_put_end(&body, '}');
        ash_api_respond_text(exchange, body.rc, &body);
    }
    ash_str_fini(&body);
    ash_str_fini(&text);
    ash_conversation_fini(&conversation);
    ash_api_request_fini(&request);
}
