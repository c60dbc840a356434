/* The API's life: from the first 503 over the model that it serves to the drain. */
#include "serve/api/api_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "serve/api/errors.h"
#include "serve/api/grammars.h"
#include "serve/api/metrics.h"
#include "serve/api/responses_memory.h"
#include "serve/engine/page_events.h"

struct ash_api_opts ash_api_defaults(void)
{
    return (struct ash_api_opts){.queue_max = 1024,
                                 .choices_max = 128,
                                 .depth_max = 128,
                                 .schema_bytes_max = (size_t)1 << 20,
                                 .responses_bytes = (size_t)64 << 20,
                                 .stall_seconds = 30};
}

int ash_api_open(const struct ash_api_opts *opts, struct ash_api **api_out, struct ash_err *err)
{
    struct ash_api *api = calloc(1, sizeof(*api));
    int rc;

    ash_assert(opts->name_count > 0);
    if (api == NULL) return ash_err_set(err, -ENOMEM, "no memory for the server");
    api->opts = *opts;
    rc = ash_api_metrics_open(opts->names[0], &api->metrics, err);
    if (rc < 0) goto fail;
    api->responses = ash_responses_memory_open(opts->responses_bytes);
    if (api->responses == NULL) {
        rc = ash_err_set(err, -ENOMEM, "no memory for responses");
        goto fail;
    }
    *api_out = api;
    return 0;

fail:
    ash_api_close(api);
    return rc;
}

void ash_api_close(struct ash_api *api)
{
    if (api == NULL) return;
    ash_api_grammars_close(api->grammars);
    ash_responses_memory_close(api->responses);
    ash_think_words_fini(&api->think_words);
    ash_api_metrics_close(api->metrics);
    free(api);
}

static int unknown_parser(const char *name, struct ash_err *err)
{
    struct ash_str names = {0};
    int rc = 0;

    for (int i = ASH_TOOLS_NONE + 1; i < ASH_TOOL_FORMATS && rc == 0; i++)
        rc = ash_str_addf(&names, "%s, ", ash_tool_format_name((enum ash_tool_format)i));
    rc = ash_err_set(err, -EINVAL, "--tool-call-parser %.40s: there are %snone", name, rc == 0 ? names.data : "");
    ash_str_fini(&names);
    return rc;
}

/* How tool calls and thoughts are written: as the options say, or as the template does. */
static int choose_parsers(struct ash_api *api, struct ash_err *err)
{
    const char *tools = api->opts.tool_parser, *thoughts = api->opts.reasoning_parser;
    const char *source = api->engine.chat_source != NULL ? api->engine.chat_source : "";
    int format = tools != NULL ? ash_tool_format_find(tools) : (int)ash_tool_format_detect(source);

    if (format < 0) return unknown_parser(tools, err);
    api->tool_format = (enum ash_tool_format)format;
    if (thoughts == NULL)
        api->thought_tags = ash_thought_tags_detect(source);
    else if (strcmp(thoughts, "think") == 0 || strcmp(thoughts, "deepseek_r1") == 0 || strcmp(thoughts, "qwen3") == 0)
        api->thought_tags = (struct ash_thought_tags){"<think>", "</think>"};
    else if (strcmp(thoughts, "none") != 0)
        return ash_err_set(err, -EINVAL, "--reasoning-parser %.40s: there are think, qwen3, deepseek_r1 and none",
                           thoughts);
    return 0;
}

/* What ends thoughts: without it there can be no budget. */
static int find_words(struct ash_api *api, struct ash_err *err)
{
    const struct ash_tokenizer *tokenizer = api->engine.tokenizer;
    size_t min = api->opts.think_min, max = api->opts.think_max;
    int rc = ash_think_check(min, max, err);

    if (rc == 0 && tokenizer != NULL)
        rc = ash_think_words_init(&api->think_words, api->thought_tags.close, NULL, tokenizer, err);
    if (rc == -ENOTSUP && min == 0 && max == 0) return 0;
    return rc < 0 ? ash_err_prefix(err, rc, "--think-min, --think-max") : 0;
}

int ash_api_serve(struct ash_api *api, const struct ash_api_engine *engine, struct ash_err *err)
{
    int rc;

    api->engine = *engine;
    api->created_s = ash_clock_wall_s();
    rc = choose_parsers(api, err);
    if (rc == 0) rc = find_words(api, err);
    if (rc < 0) return rc;
    rc = ash_api_grammars_open(api, &api->grammars, err);
    if (rc < 0) return rc;
    atomic_store(&api->is_ready, true);
    return 0;
}

void ash_api_drain(struct ash_api *api)
{
    atomic_store(&api->is_draining, true);
    if (atomic_load(&api->is_ready)) ash_page_events_end(api->engine.page_events);
}

void ash_api_set_fingerprint(struct ash_api *api, uint64_t hash)
{
    api->fingerprint = hash;
    atomic_store(&api->has_fingerprint, true);
}

void ash_api_refuse(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code, const char *text)
{
    struct ash_api_err err = {0};
    struct ash_str body = {0};

    (void)ctx;
    ash_api_err_set(&err, status, code, NULL, "%s", text);
    if (status >= 400) (void)ash_api_err_write(&err, ash_http_path(exchange), ash_http_id(exchange), &body);
    ash_http_respond(exchange, status, status >= 400 ? "application/json" : NULL, &body);
}
