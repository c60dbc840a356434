/* api_form - a request form for fuzzing: bytes become the body of a request, the engine answers at once with tokens drawn
 * from the body. Every answer must be JSON, or events that are, and no input is the server's fault. */
#ifndef ASH_TESTS_FUZZ_API_FORM_H
#define ASH_TESTS_FUZZ_API_FORM_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/api/api.h"
#include "serve/grammar/grammar.h"
#include "serve/pooled.h"
#include "http/detached.h"

#define FORM_VOCAB 259 /* <unk>, <s>, </s>, then every byte */

struct form {
    struct ash_tokenizer *tokenizer;
    struct ash_chat_template *chat;
    struct ash_defaults defaults;
    struct ash_vocab_trie *trie;
    struct ash_keys_opts keys_opts;
    struct ash_keys *keys;
    struct ash_api *api;
    const struct ash_http_route *route;
    uint64_t seed; /* of the answer */
};

/* The engine: a few tokens, some with alternatives, then the end. */
static inline int form_submit(void *ctx, struct ash_request *request, struct ash_err *err)
{
    static const char words[] =
        "<think>a</think><tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\xc3\xa9\xf0\x9f";
    struct form *form = ctx;
    struct ash_request_end end = {.finish = ASH_FINISH_EOS, .stop_id = 2, .prompt_tokens = request->prompt_count};
    size_t most = request->max_tokens < 80 ? request->max_tokens : 80;
    struct ash_top_logprob top[2] = {{5, -1.5f}, {300, -2.25f}};

    (void)err;
    for (size_t i = 1; request->wants_prompt_logprobs && i < request->prompt_count; i++)
        request->take_prompt(
            request->ctx, i,
            &(struct ash_token){.id = request->prompt[i], .logprob = -0.5f, .top = top, .top_count = 1});
    for (size_t i = 0; i < most; i++) {
        size_t at = form->seed % 7 == 0 ? (size_t)(form->seed >> 8) + i * 31 : i;
        struct ash_token token = {
            .id = 3 + (unsigned char)words[at % (sizeof(words) - 1)], .logprob = -0.25f, .top = top, .top_count = 1};

        if (!request->wants_logprobs) token.top_count = 0;
        end.answer_tokens++;
        if (request->take(request->ctx, &token) != 0) {
            end.finish = ASH_FINISH_STOP;
            break;
        }
    }
    request->done(request->ctx, &end);
    return 0;
}

static inline void form_cancel(void *ctx, struct ash_request *request)
{
    (void)ctx, (void)request;
}

static inline void form_get_stats(void *ctx, struct ash_core_stats *stats_out)
{
    (void)ctx;
    *stats_out = (struct ash_core_stats){0};
}

static inline double form_get_stalled(void *ctx)
{
    (void)ctx;
    return 0;
}

/* A vocabulary of bytes. */
static inline struct ash_tokenizer *form_tokenizer(void)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};

    ash_str_adds(
        &text, "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true},{\"id\":2,\"content\":\"</s>\","
               "\"special\":true}],\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":"
               "{\"id\":\"A\"}}],\"pair\":[{\"Sequence\":{\"id\":\"A\"}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}]},"
               "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
               "{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,"
               "\"merges\":[],\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2");
    for (int i = 0; i < 256; i++)
        ash_str_addf(&text, ",\"<0x%02X>\":%d", (unsigned)i, i + 3);
    ash_str_adds(&text, "}}}");
    if (ash_tokenizer_parse(text.data, text.size_bytes, "bytes", &tokenizer, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    ash_str_fini(&text);
    return tokenizer;
}

static inline void form_open(struct form *form, const char *path)
{
    static const char source[] =
        "{# <tool_call> <think> #}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}";
    static const char *const name = "fuzz";
    static const struct ash_pooled pooled = {.embedding = ASH_POOLING_LAST, .score = ASH_POOLING_LAST};
    struct ash_api_opts opts = ash_api_defaults();
    struct ash_api_engine engine = {.ctx = form, .submit = form_submit, .cancel = form_cancel};
    struct ash_err err = {0};
    size_t count = 0;
    const struct ash_http_route *routes = ash_api_routes(&count);

    ash_log_set_level(ASH_LOG_ERROR);
    form->tokenizer = form_tokenizer();
    form->defaults = (struct ash_defaults){.sampler = ash_sampler_defaults(), .eos = {2}, .eos_count = 1};
    opts.names = &name;
    opts.name_count = 1;
    if (ash_chat_template_parse(source, sizeof(source) - 1, "fuzz", "<s>", "</s>", &form->chat, &err) < 0 ||
        ash_vocab_trie_open(form->tokenizer, FORM_VOCAB, form->defaults.eos, 1, &form->trie, &err) < 0 ||
        ash_keys_open(&form->keys_opts, &form->keys, &err) < 0 || ash_api_open(&opts, &form->api, &err) < 0)
        abort();
    engine.get_stats = form_get_stats;
    engine.get_stalled_seconds = form_get_stalled;
    engine.tokenizer = form->tokenizer;
    engine.defaults = &form->defaults;
    engine.chat = form->chat;
    engine.chat_source = source;
    engine.vocab = FORM_VOCAB;
    engine.hidden = 4;
    engine.context_tokens = 4096;
    engine.sequences_max = 4;
    engine.bos = 1;
    engine.pooled = &pooled;
    engine.trie = form->trie;
    if (ash_api_serve(form->api, &engine, &err) < 0) abort();
    for (size_t i = 0; i < count; i++)
        if (strcmp(routes[i].path, path) == 0) form->route = &routes[i];
    if (form->route == NULL) abort();
}

static inline void form_check_json(const char *text, size_t size_bytes)
{
    json_error_t where;
    json_t *json = json_loadb(text, size_bytes, 0, &where);

    if (json == NULL) {
        fprintf(stderr, "%s: %.*s\n", where.text, (int)size_bytes, text);
        abort();
    }
    json_decref(json);
}

/* JSON, lines of it, or lines of events whose data is JSON. */
static inline void form_check(const struct ash_str *out)
{
    const char *text = out->data != NULL ? out->data : "";
    bool has_events = strncmp(text, "data: ", 6) == 0 || strncmp(text, "event: ", 7) == 0;

    if (strstr(text, "\\u0000") != NULL) return; /* fine, but jansson reads no key that has it */
    if (*text == '\0') form_check_json(text, 0);
    for (const char *line = text; *line != '\0';) {
        size_t bytes = strcspn(line, "\n");

        if (!has_events) form_check_json(line, bytes);
        if (has_events && strncmp(line, "data: {", 7) == 0) form_check_json(line + 6, bytes - 6);
        line += bytes + (line[bytes] == '\n');
    }
}

/* One input to the form at path. */
static inline int form_run(const char *path, const uint8_t *data, size_t size)
{
    static struct form form;
    struct ash_str out = {0};
    int status;

    if (form.api == NULL) form_open(&form, path);
    form.seed = size > 0 ? size * 2654435761u + data[size - 1] : 0;
    status = ash_http_detached_call(form.route, form.api, form.keys, (const char *)data, size, &out);
    if (status != 200 && status != 400 && status != 404 && status != 501) {
        fprintf(stderr, "status %d: %s\n", status, out.data != NULL ? out.data : "");
        abort();
    }
    form_check(&out);
    ash_str_fini(&out);
    return 0;
}

#endif
