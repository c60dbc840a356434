/* Errors in the shapes that official clients parse: OpenAI's for all forms but Anthropic's and Ollama's. */
#include "serve/api/errors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_put.h"

void ash_api_param_set(char param[ASH_API_PARAM_BYTES], const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(param, ASH_API_PARAM_BYTES, fmt, args);
    va_end(args);
}

int ash_api_err_set(struct ash_api_err *err, unsigned status, const char *code, const char *param, const char *fmt, ...)
{
    va_list args;

    if (err->status != 0) return -EINVAL;
    err->status = status;
    err->code = code;
    snprintf(err->param, sizeof(err->param), "%s", param != NULL ? param : "");
    va_start(args, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    return -EINVAL;
}

int ash_api_err_take(struct ash_api_err *err, const char *param, const struct ash_err *cause)
{
    if (cause->code == -ENOMEM)
        ash_api_err_set(err, 503, "out_of_memory", NULL, "%s", cause->text);
    else
        ash_api_err_set(err, 400, "invalid_value", param, "%s", cause->text);
    return cause->code;
}

void ash_api_err_too_long(struct ash_api_err *err, const char *param, size_t context, size_t prompt, size_t answer)
{
    if (err->status != 0) return;
    err->prompt_tokens = prompt;
    err->context_tokens = context;
    ash_api_err_set(err, 400, "context_length_exceeded", param,
                    "This model's maximum context length is %zu tokens. However, you requested %zu tokens (%zu in the "
                    "prompt, at least %zu in the completion).",
                    context, prompt + answer, prompt, answer);
}

void ash_api_err_no_model(struct ash_api_err *err, const char *served, const char *name)
{
    ash_api_err_set(err, 404, "model_not_found", "model", "The model `%.100s` does not exist: this server has `%.100s`",
                    name, served);
}

static const char *openai_type(unsigned status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static const char *anthropic_type(unsigned status)
{
    switch (status) {
    case 413:
        return "request_too_large";
    case 503:
        return "overloaded_error";
    default:
        return status < 500 ? openai_type(status) : "api_error";
    }
}

static void write_anthropic(const struct ash_api_err *err, const char *id, struct ash_str *out)
{
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "type", "error");
    ash_json_put_begin(out, "error", '{');
    ash_json_put_text(out, "type", anthropic_type(err->status));
    ash_json_put_text(out, "message", err->text);
    ash_json_put_end(out, '}');
    ash_json_put_text(out, "request_id", id);
    ash_json_put_end(out, '}');
}

int ash_api_err_write(const struct ash_api_err *err, const char *path, const char *id, struct ash_str *out)
{
    if (strncmp(path, "/v1/messages", 12) == 0) {
        write_anthropic(err, id, out);
        return out->rc;
    }
    ash_json_put_begin(out, NULL, '{');
    if (strncmp(path, "/api/", 5) == 0) { /* Ollama's */
        ash_json_put_text(out, "error", err->text);
        return ash_str_adds(out, "}");
    }
    ash_json_put_begin(out, "error", '{');
    ash_json_put_text(out, "message", err->text);
    ash_json_put_text(out, "type", openai_type(err->status));
    ash_json_put_text(out, "param", err->param[0] != '\0' ? err->param : NULL);
    ash_json_put_text(out, "code", err->code);
    if (err->context_tokens > 0) { /* llama.cpp's clients cut by these */
        ash_json_put_int(out, "n_prompt_tokens", (int64_t)err->prompt_tokens);
        ash_json_put_int(out, "n_ctx", (int64_t)err->context_tokens);
    }
    return ash_str_adds(out, "}}");
}

void ash_api_respond_err(struct ash_http_exchange *exchange, const struct ash_api_err *err)
{
    struct ash_str body = {0};

    if (err->status == 429 || err->status == 503) ash_http_add_header(exchange, "Retry-After", "1");
    (void)ash_api_err_write(err, ash_http_path(exchange), ash_http_id(exchange), &body); /* without memory: no body */
    ash_http_respond(exchange, err->status, "application/json", &body);
}
