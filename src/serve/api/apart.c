/* Headers of requests whose prompt is computed by one server and whose answer comes from another. */
#include "serve/api/apart.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "record/metrics.h"
#include "serve/api/request.h"

#define PAGE ASH_CACHE_PAGE_TOKENS

ASH_COUNTER(strange_total, "ashlar_serve_strange_pages_total",
            "Prompts that a prefill server of other weights had computed, and this one computed itself.");

const char *const ash_api_roles[] = {"both", "prefill", "decode", NULL};

int ash_api_source_write(const struct ash_kv_source *source, struct ash_str *out)
{
    static const char digits[] = "0123456789abcdef";
    char hex[2 * sizeof(source->shelf.bytes)];

    for (size_t i = 0; i < sizeof(source->shelf.bytes); i++) {
        hex[2 * i] = digits[source->shelf.bytes[i] >> 4];
        hex[2 * i + 1] = digits[source->shelf.bytes[i] & 15];
    }
    return ash_str_addf(out, "%zu %016" PRIx64 " %016" PRIx64 " %.*s", source->tokens, source->fingerprint, source->job,
                        (int)sizeof(hex), hex);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 16 digits and a space. Returns what follows, or NULL. */
static const char *read_number(const char *text, uint64_t *number_out)
{
    if (strspn(text, "0123456789abcdef") != 16 || text[16] != ' ') return NULL;
    *number_out = strtoull(text, NULL, 16);
    return text + 17;
}

bool ash_api_source_read(const char *text, struct ash_kv_source *source_out)
{
    struct ash_kv_source source = {0};
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > 10 || text[digits] != ' ') return false;
    source.tokens = strtoull(text, NULL, 10);
    text = read_number(text + digits + 1, &source.fingerprint);
    if (text != NULL) text = read_number(text, &source.job);
    if (text == NULL || source.job > UINT32_MAX) return false;
    if (strlen(text) != 2 * sizeof(source.shelf.bytes)) return false;
    for (size_t i = 0; i < sizeof(source.shelf.bytes); i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

        if (high < 0 || low < 0) return false;
        source.shelf.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *source_out = source;
    return true;
}

/* ---- a prefill server -------------------------------------------------------------------------------------------- */

static bool wants_pages(struct ash_api_call *call)
{
    const struct ash_api *api = call->api;
    struct ash_kv_source source;

    if (api->opts.role != ASH_API_PREFILL)
        ash_api_err_set(&call->err, 409, "wrong_role", NULL,
                        "this server computes no prompts for others: start it with --role prefill");
    else if (!ash_kv_describe(api->engine.kv, &source))
        ash_api_err_set(&call->err, 503, "model_loading", NULL,
                        "the weights have no fingerprint yet, which names pages: try again");
    else
        call->wants_pages = true;
    if (!call->wants_pages) return false;
    call->job = ash_kv_open_job(api->engine.kv);
    call->is_stream = true;
    call->frames_tokens = false;
    call->sampling.n = call->sampling.best_of = 1;
    return true;
}

/* What libmicrohttpd's thread pulls: something at once, so that the headers go, and the rest at the end. */
static int read_pages_end(void *ctx, struct ash_str *out)
{
    struct ash_api_call *call = ctx;
    struct ash_request_end end;
    bool is_done;
    int rc = call->has_started ? 0 : ash_str_adds(out, "{\"object\": \"prefill\"");

    call->has_started = true;
    pthread_mutex_lock(&call->lock);
    is_done = call->done_count == call->choice_count;
    end = call->choices[0].end;
    pthread_mutex_unlock(&call->lock);
    if (rc < 0 || !is_done) return rc < 0 ? rc : 1;
    rc = ash_str_addf(out, ", \"is_whole\": %s, \"prompt_tokens\": %zu, \"cached_tokens\": %zu}\n",
                      end.rc == 0 ? "true" : "false", end.prompt_tokens, end.cached_tokens);
    return rc < 0 ? rc : 0;
}

void ash_call_stream_pages(struct ash_api_call *call)
{
    struct ash_kv_source source = {0};
    struct ash_str text = {0};

    /* while weights are replaced the fingerprint of zeroes is that of no server */
    (void)ash_kv_describe(call->api->engine.kv, &source);
    source.tokens = call->choices[0].request.prompt_count;
    source.job = call->job;
    if (ash_api_source_write(&source, &text) == 0) ash_http_add_header(call->exchange, ASH_API_PAGES_HEADER, text.data);
    ash_str_fini(&text);
    ash_http_stream(call->exchange, 200, "application/json", read_pages_end, call);
}

/* ---- a decode server --------------------------------------------------------------------------------------------- */

/* May this request say where pages are? Its pages become those of all who share its salt. */
static bool is_trusted(const struct ash_api_call *call)
{
    const char *key = call->api->opts.pages_key;
    const char *given = ash_http_request_header(call->exchange, ASH_API_PAGES_KEY_HEADER);

    return key == NULL || (given != NULL && ash_hash_str(given) == ash_hash_str(key) && strcmp(given, key) == 0);
}

static void read_pages(struct ash_api_call *call, const char *text)
{
    const struct ash_api *api = call->api;
    struct ash_kv_source source;

    if (api->opts.role != ASH_API_DECODE || !is_trusted(call) || !ash_api_source_read(text, &source)) return;
    if (!atomic_load(&api->has_fingerprint) || call->prompts.count != 1) return;
    if (source.fingerprint == atomic_load(&api->fingerprint)) {
        call->source = source;
        return;
    }
    ash_metric_add(&strange_total, 1);
    ash_log(ASH_LOG_WARN,
            "a prefill server has other weights or settings than this server (fingerprint %016" PRIx64
            ", here %016" PRIx64
            "): its prompts are computed here; give both the same --model, --precision and --kv-dtype",
            source.fingerprint, atomic_load(&api->fingerprint));
}

void ash_call_set_apart(const struct ash_api_call *call, struct ash_request *request)
{
    if (call->source.tokens > 0) request->source = &call->source;
    if (!call->wants_pages) return;
    request->job = call->job;
    request->max_tokens = request->min_tokens = 0; /* nothing but its keys and values */
    if (request->prompt_count > PAGE)              /* whole pages: the rest is computed where the answer is written */
        request->prompt_count = (request->prompt_count - 1) / PAGE * PAGE;
    request->wants_logprobs = request->wants_prompt_logprobs = false;
    request->top_logprobs = request->prompt_top_logprobs = 0;
}

bool ash_call_read_apart(struct ash_api_call *call)
{
    const char *pages = ash_http_request_header(call->exchange, ASH_API_PAGES_HEADER);

    if (ash_http_request_header(call->exchange, ASH_API_PREFILL_HEADER) != NULL) return wants_pages(call);
    if (pages != NULL) read_pages(call, pages);
    return true;
}
