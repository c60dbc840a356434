/* ashlar bench serve: load on any server that speaks OpenAI's API, and what its clients see. */
#include "cmd/bench_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/interrupt.h"
#include "base/table.h"
#include "serve/client/figures.h"

static const char *const endpoints[] = {"completions", "chat", NULL};

struct flags {
    const char *url, *model, *api_key, *trace, *json;
    int endpoint;
    int64_t requests, clients, prompt_tokens, answer_tokens, prefixes, prefix_tokens, vocab, seed, connections, warmup;
    double rate, spread, trace_speed, trace_scale, temperature, timeout;
    bool ignore_eos;
    struct ash_load_limits limits;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt bench_opts[] = {
    {"url", ASH_OPT_STRING, FIELD(url), "http://127.0.0.1:8000", "where the server is", 0, 0, NULL},
    {"model", ASH_OPT_STRING, FIELD(model), NULL, "its model; default: the first that it lists", 0, 0, NULL},
    {"api_key", ASH_OPT_STRING, FIELD(api_key), NULL, "sent as a bearer token (better: ASHLAR_API_KEY)", 0, 0, NULL},
    {"endpoint", ASH_OPT_CHOICE, FIELD(endpoint), "completions", "kind of request", 0, 0, endpoints},
    {"requests", ASH_OPT_INT, FIELD(requests), "100", "how many; of a trace, 0: all", 0, 1e9, NULL},
    {"clients", ASH_OPT_INT, FIELD(clients), "16", "closed loop: each sends the next request after its last answer", 1,
     65536, NULL},
    {"rate", ASH_OPT_DOUBLE, FIELD(rate), "0", "instead, requests a second, as a Poisson process; 0: closed loop", 0,
     1e6, NULL},
    {"prompt_tokens", ASH_OPT_INT, FIELD(prompt_tokens), "256", "of each prompt, after a shared prefix", 1, 1 << 24,
     NULL},
    {"answer_tokens", ASH_OPT_INT, FIELD(answer_tokens), "128", "of each answer", 1, 1 << 24, NULL},
    {"spread", ASH_OPT_DOUBLE, FIELD(spread), "0", "lengths are uniform within this share of the above", 0, 1, NULL},
    {"prefixes", ASH_OPT_INT, FIELD(prefixes), "0", "how many shared prefixes prompts begin with; 0: none", 0, 1e6,
     NULL},
    {"prefix_tokens", ASH_OPT_INT, FIELD(prefix_tokens), "1024", "of each shared prefix", 1, 1 << 24, NULL},
    {"trace", ASH_OPT_STRING, FIELD(trace), NULL,
     "replay JSON lines with timestamp (ms), input_length, output_length and hash_ids (512 tokens each)", 0, 0, NULL},
    {"trace_speed", ASH_OPT_DOUBLE, FIELD(trace_speed), "1", "replay faster by this factor; 0: as a closed loop", 0,
     1e9, NULL},
    {"trace_scale", ASH_OPT_DOUBLE, FIELD(trace_scale), "1", "multiply the lengths of the trace", 1e-6, 1000, NULL},
    {"vocab", ASH_OPT_INT, FIELD(vocab), "0",
     "prompts are ids below this, of exact length; 0: words, as many as the server needs for the length", 0, 1 << 24,
     NULL},
    {"temperature", ASH_OPT_DOUBLE, FIELD(temperature), "0", "of the sampling", 0, 2, NULL},
    {"ignore_eos", ASH_OPT_BOOL, FIELD(ignore_eos), "true", "answers have their full length (not OpenAI's own field)",
     0, 0, NULL},
    {"seed", ASH_OPT_INT, FIELD(seed), "0", "of lengths, times and prompts", 0, INFINITY, NULL},
    {"warmup", ASH_OPT_INT, FIELD(warmup), "0", "requests of the same kind before the measurement", 0, 1e6, NULL},
    {"slo_ttft_ms", ASH_OPT_DOUBLE, FIELD(limits.ttft_ms), "0", "goodput: first token within; 0: any time", 0, 1e9,
     NULL},
    {"slo_tpot_ms", ASH_OPT_DOUBLE, FIELD(limits.tpot_ms), "0", "goodput: each further token within, on average", 0,
     1e9, NULL},
    {"slo_e2e_ms", ASH_OPT_DOUBLE, FIELD(limits.e2e_ms), "0", "goodput: whole answer within", 0, 1e9, NULL},
    {"timeout", ASH_OPT_DOUBLE, FIELD(timeout), "600", "seconds after which a request has failed", 0.01, 1e6, NULL},
    {"max_connections", ASH_OPT_INT, FIELD(connections), "1000", "requests on their way at the same time, at most", 1,
     65536, NULL},
    {"json", ASH_OPT_STRING, FIELD(json), NULL, "write all figures, and a row per request, to this file", 0, 0, NULL},
};
static const struct ash_opt_table bench_table = {
    .section = "", .help = "flags", .opts = bench_opts, .count = ASH_COUNT(bench_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar bench serve [--url URL] [--clients N | --rate R | --trace FILE] [flags]",
    .about = "Sends requests to a server that speaks OpenAI's API (ashlar serve, llama-server, vLLM, SGLang) and\n"
             "measures what clients see. --clients is a closed loop, --rate and --trace send on time whatever the\n"
             "server does; times then count from when a request was due. TTFT ends with the first text, E2E with the\n"
             "response; TPOT is the time from first to last text for each token but the first; ITL is between events.\n"
             "Tokens are those that the server counts. Exit code 1 when no request was answered.",
    .examples = "  ashlar bench serve --clients 16 --prompt-tokens 256 --answer-tokens 128\n"
                "  ashlar bench serve --rate 4 --prefixes 4 --prefix-tokens 1024 --slo-ttft-ms 500 --slo-tpot-ms 50\n"
                "  ashlar bench serve --trace conversation_trace.jsonl --trace-speed 10 --json result.json",
};

/* ---- facts of the server ----------------------------------------------------------------------------------------- */

/* The first model of the server's list, as a new string. */
static int find_model(const struct ash_load_opts *opts, char **name_out, struct ash_err *err)
{
    json_t *json = NULL;
    const char *id;
    int rc = ash_load_fetch(opts, "/v1/models", NULL, &json, err);

    if (rc < 0) return rc;
    id = json_string_value(json_object_get(json_array_get(json_object_get(json, "data"), 0), "id"));
    *name_out = id != NULL ? strdup(id) : NULL;
    if (id == NULL) rc = ash_err_set(err, -ENOENT, "the server lists no model: give --model");
    json_decref(json);
    return rc;
}

/* How many tokens the server makes of all words, repeated. */
static int count_tokens(const struct ash_load_opts *opts, size_t times, double *tokens_out, struct ash_err *err)
{
    struct ash_str body = {0}, words = {0};
    json_t *request = NULL, *json = NULL;
    char *text = NULL;
    int rc = ash_prompt_add_all_words(times, &words);

    if (rc == 0 && opts->is_chat)
        request = json_pack("{s:s, s:[{s:s, s:s}], s:i}", "model", opts->model, "messages", "role", "user", "content",
                            words.data, "max_tokens", 1);
    else if (rc == 0)
        request = json_pack("{s:s, s:s, s:i}", "model", opts->model, "prompt", words.data, "max_tokens", 1);
    if (request != NULL) text = json_dumps(request, 0);
    rc = text != NULL ? ash_str_adds(&body, text) : -ENOMEM;
    if (rc < 0) ash_err_set(err, rc, "no memory for a request");
    if (rc == 0)
        rc = ash_load_fetch(opts, opts->is_chat ? "/v1/chat/completions" : "/v1/completions", &body, &json, err);
    if (rc == 0) {
        *tokens_out = json_number_value(json_object_get(json_object_get(json, "usage"), "prompt_tokens"));
        if (*tokens_out <= 0) rc = ash_err_set(err, -EPROTO, "the server does not count tokens: give --vocab");
    }
    json_decref(json);
    json_decref(request);
    free(text);
    ash_str_fini(&body);
    ash_str_fini(&words);
    return rc;
}

/* Two prompts give the tokens per word, and the fixed tokens of a prompt. */
static int calibrate(struct ash_load_opts *opts, struct ash_err *err)
{
    double few = 0, many = 0;
    int rc = count_tokens(opts, 1, &few, err);

    if (rc == 0) rc = count_tokens(opts, 3, &many, err);
    if (rc < 0) return rc;
    if (many <= few) return ash_err_set(err, -EPROTO, "the server counts no more tokens for more words: give --vocab");
    opts->form.word_tokens = (many - few) / (2 * ASH_PROMPT_WORDS);
    opts->form.overhead_tokens = fmax(0, few - (many - few) / 2);
    return 0;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int warm_up(const struct ash_load_opts *opts, const struct ash_workload_opts *like, size_t requests,
                   struct ash_err *err)
{
    struct ash_workload_opts draw = *like;
    struct ash_workload workload = {0};
    struct ash_load_results results = {0};
    int rc;

    draw.requests = requests;
    draw.rate = draw.trace_speed = 0;
    draw.seed = like->seed + 1; /* so that nothing of it is in the cache afterwards */
    rc = ash_workload_make(&draw, &workload, err);
    if (rc == 0) rc = ash_load_run(opts, &workload, &results, err);
    ash_load_results_fini(&results);
    ash_workload_fini(&workload);
    return rc;
}

static const struct {
    const char *key, *name;
} latencies[] = {{"ttft_ms", "first token (TTFT)"},
                 {"tpot_ms", "per output token (TPOT)"},
                 {"itl_ms", "between events (ITL)"},
                 {"e2e_ms", "whole answer (E2E)"},
                 {"lateness_ms", "sent too late"}};

static double number(const json_t *figures, const char *key)
{
    return json_number_value(json_object_get(figures, key));
}

static void print(const json_t *figures)
{
    const json_t *slo = json_object_get(figures, "slo");
    struct ash_table table = {.heads = "milliseconds|>mean|>p50|>p90|>p95|>p99|>max"};
    bool has_slo = number(slo, "ttft_ms") + number(slo, "tpot_ms") + number(slo, "e2e_ms") > 0;

    printf("requests        %.0f sent, %.0f completed, %.0f failed in %.2f s\n", number(figures, "requests"),
           number(figures, "completed"), number(figures, "failed"), number(figures, "seconds"));
    printf("tokens          %.0f of prompts (%.0f from the cache), %.0f of answers in %.0f events\n",
           number(figures, "prompt_tokens"), number(figures, "cached_tokens"), number(figures, "output_tokens"),
           number(figures, "chunks"));
    printf("throughput      %.2f requests/s, %.1f output tokens/s, %.1f tokens/s\n", number(figures, "requests_per_s"),
           number(figures, "output_tokens_per_s"), number(figures, "tokens_per_s"));
    if (has_slo)
        printf("goodput         %.2f requests/s within the limits (%.1f%%)\n",
               number(figures, "goodput_requests_per_s"), 100 * number(figures, "good_share"));
    if (number(figures, "completed") == 0) return;
    for (size_t i = 0; i < ASH_COUNT(latencies); i++) {
        const json_t *row = json_object_get(figures, latencies[i].key);

        if (json_is_object(row))
            ash_table_row(&table, "%s|%.2f|%.2f|%.2f|%.2f|%.2f|%.2f", latencies[i].name, number(row, "mean"),
                          number(row, "p50"), number(row, "p90"), number(row, "p95"), number(row, "p99"),
                          number(row, "max"));
    }
    printf("\n");
    ash_table_print(&table, stdout);
}

static int report(const struct flags *flags, const struct ash_load_opts *opts, const struct ash_load_results *results,
                  struct ash_err *err)
{
    json_t *figures = ash_load_figures(results, &flags->limits);
    int rc = 0;

    if (figures == NULL) return ash_err_set(err, -ENOMEM, "no memory for the figures");
    print(figures);
    if (flags->json != NULL) {
        json_object_set_new(figures, "url", json_string(flags->url));
        json_object_set_new(figures, "model", json_string(opts->model));
        json_object_set_new(figures, "mode",
                            json_string(flags->trace != NULL && flags->trace_speed > 0 ? "trace"
                                        : flags->trace == NULL && flags->rate > 0      ? "poisson"
                                                                                       : "closed"));
        json_object_set_new(figures, "clients", json_integer(flags->clients));
        json_object_set_new(figures, "rate", json_real(flags->rate));
        json_object_set_new(figures, "seed", json_integer(flags->seed));
        rc = ash_json_save(flags->json, figures, err);
    }
    if (rc == 0 && json_integer_value(json_object_get(figures, "completed")) == 0 && !ash_interrupt_requested())
        rc = ash_err_set(err, -EREMOTEIO, "no request was answered: %s",
                         results->has_error ? results->first.text : "nothing came");
    else if (results->has_error)
        fprintf(stderr, "ashlar: the first of the failures: %s\n", results->first.text);
    json_decref(figures);
    return rc;
}

static int measure(const struct flags *flags, struct ash_load_opts *opts, const struct ash_workload *workload,
                   const struct ash_workload_opts *draw, struct ash_err *err)
{
    struct ash_load_results results = {0};
    char *name = NULL;
    int rc = 0;

    if (opts->model == NULL) rc = find_model(opts, &name, err);
    if (name != NULL) opts->model = name;
    if (rc == 0 && flags->vocab == 0) rc = calibrate(opts, err);
    if (rc == 0 && flags->warmup > 0) rc = warm_up(opts, draw, (size_t)flags->warmup, err);
    if (rc == 0) rc = ash_load_run(opts, workload, &results, err);
    if (rc == 0) rc = report(flags, opts, &results, err);
    ash_load_results_fini(&results);
    free(name);
    return rc;
}

static int check_flags(const struct flags *flags, struct ash_err *err)
{
    if (flags->trace == NULL && flags->requests == 0) return ash_err_set(err, -EINVAL, "--requests: at least 1");
    if (flags->vocab > 0 && flags->vocab < 16)
        return ash_err_set(err, -EINVAL, "--vocab %" PRId64 ": at least 16 ids are needed", flags->vocab);
    if (flags->vocab > 0 && flags->endpoint == 1)
        return ash_err_set(err, -EINVAL, "--vocab goes with --endpoint completions: chats are text");
    if (flags->trace != NULL && flags->rate > 0)
        return ash_err_set(err, -EINVAL,
                           "--trace has the arrival times: leave --rate out (--trace-speed changes them)");
    if (flags->api_key != NULL && strpbrk(flags->api_key, "\r\n") != NULL)
        return ash_err_set(err, -EINVAL, "--api-key: a key is one line");
    return 0;
}

static int run_bench(const struct flags *flags, const struct ash_opts *set, struct ash_err *err)
{
    const struct ash_workload_opts draw = {
        .requests = flags->trace != NULL && !ash_opts_is_set(set, "requests") ? 0 : (size_t)flags->requests,
        .rate = flags->rate,
        .prompt_tokens = (size_t)flags->prompt_tokens,
        .answer_tokens = (size_t)flags->answer_tokens,
        .spread = flags->spread,
        .prefixes = (size_t)flags->prefixes,
        .prefix_tokens = (size_t)flags->prefix_tokens,
        .trace = flags->trace,
        .trace_speed = flags->trace_speed,
        .trace_scale = flags->trace_scale,
        .seed = (uint64_t)flags->seed};
    struct ash_load_opts opts = {.api_key = flags->api_key,
                                 .model = flags->model,
                                 .is_chat = flags->endpoint == 1,
                                 .ignores_eos = flags->ignore_eos,
                                 .temperature = flags->temperature,
                                 .clients = (size_t)flags->clients,
                                 .connections_max = (size_t)flags->connections,
                                 .timeout_s = flags->timeout,
                                 .form = {.vocab = (size_t)flags->vocab, .seed = (uint64_t)flags->seed}};
    struct ash_workload workload = {0};
    int rc = check_flags(flags, err);

    if (rc == 0) rc = ash_load_url_parse(flags->url, &opts.url, err);
    if (rc == 0) rc = ash_workload_make(&draw, &workload, err);
    if (rc == 0) {
        ash_interrupt_install();
        rc = measure(flags, &opts, &workload, &draw, err);
    }
    ash_workload_fini(&workload);
    return rc;
}

static int respond(const void *object, const struct ash_opts *opts, const char *word)
{
    struct ash_err err = {0};

    (void)word;
    if (run_bench(object, opts, &err) < 0) return ash_cmd_fail(&err);
    return ash_interrupt_requested() ? ash_cmd_stopped() : 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&bench_table, &flags}}, .respond = respond, .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_bench_serve = {"serve", "latency and throughput of a server that speaks OpenAI's API",
                                            run};
