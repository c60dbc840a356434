/* ashlar serve: a model behind the HTTP forms of OpenAI, Anthropic and llama.cpp. */
#include "cmd/cmd.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "record/metrics_page.h"
#include "base/thread.h"
#include "cmd/publish.h"
#include "cmd/rank_flags.h"
#include "cmd/jobs_priv.h"
#include "cmd/serve_priv.h"
#include "model/files/find.h"
#include "serve/engine/ranks.h"
#include "serve/fingerprint.h"

#define FIELD(name) offsetof(struct ash_serve_flags, name)
#define POLL_NS 100000000
#define CUT_SECONDS 2 /* for answers that were cut to reach their clients */

static const struct ash_opt serve_opts[] = {
    {"model", ASH_OPT_TEXTS, FIELD(models), NULL,
     ASH_CMD_MODEL_HELP "; NAME=PATH, as often as needed: several models, loaded when requests name them", 0, 0, NULL},
    {"served_model_name", ASH_OPT_LIST, FIELD(served_model_name), NULL,
     "names that requests may use; default: the last part of --model", 0, 0, NULL},
    {"lora_modules", ASH_OPT_LIST, FIELD(lora_modules), NULL,
     "adapters as NAME=DIR (PEFT folders over --model): requests choose one with model=NAME; more can be loaded at run "
     "time with --admin-key",
     0, 0, NULL},
    {"verifier", ASH_OPT_LIST, FIELD(verifier), NULL,
     "what weighs answers of requests with strategy best or weighted, as rl.rewards has it: program=COMMAND, "
     "model=DIR, regex=PATTERN, ...; default: their probability",
     0, 0, NULL},
    {"max_model_len", ASH_OPT_INT, FIELD(max_model_len), "0",
     "tokens of prompt and answer together; 0: what the model can", 0, INFINITY, NULL},
    {"max_num_seqs", ASH_OPT_INT, FIELD(max_num_seqs), "256", "answers that are written at the same time", 1, 65536,
     NULL},
    {"max_num_batched_tokens", ASH_OPT_INT, FIELD(max_num_batched_tokens), "0",
     "rows of one step; 0: 512, on a GPU 2048. Changes the speed, never an answer", 0, 1 << 20, NULL},
    {"kv_cache_memory", ASH_OPT_INT, FIELD(kv_cache_memory), "0",
     "bytes of the cache of keys and values; 0: as needed, half of the free memory at most", 0, INFINITY, NULL},
    {"kv_dtype", ASH_OPT_CHOICE, FIELD(kv_dtype), "auto", ASH_CMD_KV_DTYPE_HELP, 0, 0, ash_cmd_kv_dtypes},
    {"enable_prefix_caching", ASH_OPT_BOOL, FIELD(enable_prefix_caching), "true",
     "reuse the cache of equal beginnings of prompts", 0, 0, NULL},
    {"step_ms", ASH_OPT_DOUBLE, FIELD(step_ms), "200",
     "a step with parts of new prompts takes about this long at most; 0: no limit", 0, 60000, NULL},
    {"num_speculative_tokens", ASH_OPT_INT, FIELD(num_speculative_tokens), "0",
     "tokens that are drafted at most; 0: 4 by a model or a head, none from the text. Changes the speed, never an "
     "answer",
     0, 64, NULL},
    {"draft", ASH_OPT_CHOICE, FIELD(draft), "auto",
     "who drafts tokens: mtp (the folder's head of multi-token prediction), ngram (earlier runs of the same words), "
     "none; auto: the head if there is one, else ngram with --num-speculative-tokens",
     0, 0, ash_serve_drafts},
    {"draft_model", ASH_OPT_STRING, FIELD(draft_model), NULL,
     "a small model of the same vocabulary, or a head of EAGLE-3 for this model; it drafts up to "
     "--num-speculative-tokens (0: 4), and changes the speed, never an answer",
     0, 0, NULL},
    {"chat_template", ASH_OPT_STRING, FIELD(chat_template), NULL, "a Jinja file instead of the model's own template", 0,
     0, NULL},
    {"tool_call_parser", ASH_OPT_STRING, FIELD(tool_call_parser), NULL,
     "format of tool calls, or none; default: by the template (docs/constrained-output.md lists them)", 0, 0, NULL},
    {"reasoning_parser", ASH_OPT_STRING, FIELD(reasoning_parser), NULL,
     "think (thoughts between <think> and </think>) or none; default: by the template", 0, 0, NULL},
    {"think_min", ASH_OPT_INT, FIELD(think_min), "0",
     "tokens of thoughts at least, in chats that do not say (think_min): an earlier end is replaced by \"Wait\"", 0,
     INT32_MAX, NULL},
    {"think_max", ASH_OPT_INT, FIELD(think_max), "0",
     "tokens of thoughts at most, in chats that do not say (think_max); 0: no limit", 0, INT32_MAX, NULL},
    {"pages", ASH_OPT_STRING, FIELD(pages), ASH_METRICS_PAGE_DIR,
     "folder for metrics, requests and passes of this server in mapped files, for `ashlar agent`, `dash` and `trace`; "
     "empty: none",
     0, 0, NULL},
    {"strict", ASH_OPT_BOOL, FIELD(strict), NULL, "refuse requests with unknown fields instead of naming them", 0, 0,
     NULL},
    {"max_queued_requests", ASH_OPT_INT, FIELD(max_queued_requests), "1024",
     "requests that wait for the engine; more get 429; 0: no limit", 0, INFINITY, NULL},
    {"clamp_max_tokens", ASH_OPT_BOOL, FIELD(clamp_max_tokens), NULL,
     "answers that may be longer than the context has room for end there, instead of being refused", 0, 0, NULL},
    {"responses_memory", ASH_OPT_INT, FIELD(responses_memory), "64mi",
     "memory for the last responses of /v1/responses, which the next may refer to; 0: none are kept", 0, INFINITY,
     NULL},
    {"max_choices", ASH_OPT_INT, FIELD(max_choices), "128", "prompts times n of one request", 1, 65536, NULL},
    {"health_seconds", ASH_OPT_DOUBLE, FIELD(health_seconds), "30", "/health is 503 after so long without a step", 0.1,
     86400, NULL},
};

static const struct ash_opt_table serve_table = {
    .section = "", .help = "flags", .opts = serve_opts, .count = ASH_COUNT(serve_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar serve --model DIR|FILE.gguf [--port 8000] [flags]\n"
                "ashlar serve --models-dir DIR [--model NAME=PATH ...] [flags]",
    .about = "Serves a model over HTTP as vLLM, SGLang and llama.cpp's server do: clients of the OpenAI,\n"
             "Anthropic and Ollama APIs work as they are. An answer depends on the model, the prompt and its\n"
             "settings, never on what else runs. docs/serving.md lists routes, fields and metrics. SIGTERM\n"
             "finishes what is being answered and ends; SIGHUP reads --api-key-file again.",
    .examples = "  ashlar serve --model qwen\n"
                "  ashlar serve --model qwen --replicas 4\n"
                "  ashlar serve --models-dir models --model small=qwen --memory 64gi\n"
                "  ashlar serve --model model-Q4_K_M.gguf --host 0.0.0.0 --port 8080 --api-key-file keys.txt\n"
                "  curl localhost:8000/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 32}'",
};

/* The server while it runs. */
struct server {
    const struct ash_serve_flags *flags;
    struct ash_keys *keys;
    struct ash_api *api;
    struct ash_http *http;
    struct ash_serve_model model;
    pthread_t loader;
    bool has_loader;
    uint64_t start_ns;
    _Atomic int load_state; /* 0: loading, 1: loaded, negative: failed */
    struct ash_err load_err;
};

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static void set_fingerprint(void *ctx, uint64_t hash)
{
    ash_api_set_fingerprint(ctx, hash);
}

/* Weights are loaded while the port is open already: health checks see 503 instead of nothing. */
static void *load(void *arg)
{
    struct server *server = arg;
    struct ash_err err = {0};
    uint64_t hash = 0;
    int rc = ash_serve_model_open(server->flags, &server->model, &server->load_err);

    server->model.set_fingerprint = set_fingerprint;
    server->model.set_ctx = server->api;
    if (rc == 0) rc = ash_api_serve(server->api, &server->model.api, &server->load_err);
    atomic_store(&server->load_state, rc < 0 ? rc : 1);
    if (rc < 0) return NULL;
    ash_serve_model_warn(server->flags, &server->model);
    ash_log(ASH_LOG_INFO, "ready after %.2f s: http%s://%s:%d/v1 context=%zu",
            (double)(ash_clock_ns() - server->start_ns) / 1e9,
            ash_http_flags_opts(&server->flags->http).cert_file != NULL ? "s" : "", server->flags->http.host,
            ash_http_port(server->http), server->model.api.context_tokens);
    if (ash_engine_fingerprint(server->model.engine, &hash, &err) < 0) {
        ash_log(ASH_LOG_WARN, "answers have no fingerprint, and the cache no tiers: %s", err.text);
        return NULL;
    }
    ash_api_set_fingerprint(server->api, hash);
    if (server->model.kv != NULL) ash_kv_arm(server->model.kv, hash);
    return NULL;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_api(struct server *server, const char *const *name, struct ash_err *err)
{
    const struct ash_serve_flags *flags = server->flags;
    struct ash_api_opts opts = ash_api_defaults();
    bool has_names = flags->served_model_name.count > 0;
    int rc;

    opts.names = has_names ? flags->served_model_name.items : name;
    opts.name_count = has_names ? flags->served_model_name.count : 1;
    opts.model_path = flags->model;
    opts.is_strict = flags->strict;
    opts.queue_max = (size_t)flags->max_queued_requests;
    opts.clamps_max = flags->clamp_max_tokens;
    opts.responses_bytes = (size_t)flags->responses_memory;
    opts.choices_max = (size_t)flags->max_choices;
    opts.stall_seconds = flags->health_seconds;
    opts.tool_parser = flags->tool_call_parser;
    opts.reasoning_parser = flags->reasoning_parser;
    opts.think_min = (size_t)flags->think_min;
    opts.think_max = (size_t)flags->think_max;
    opts.role = (enum ash_api_role)flags->kv.role;
    rc = ash_serve_pages_key(flags, &opts.pages_key, err);
    if (rc < 0) return rc;
    return ash_api_open(&opts, &server->api, err);
}

static int open_http(struct server *server, struct ash_err *err)
{
    struct ash_http_opts opts = ash_http_flags_opts(&server->flags->http);

    opts.slow_workers = (opts.workers + 1) / 2;
    opts.keys = server->keys;
    opts.routes = ash_api_routes(&opts.route_count);
    opts.refuse = ash_api_refuse;
    opts.ctx = server->api;
    return ash_http_open(&opts, &server->http, err);
}

static int open_server(struct server *server, const char *const *name, struct ash_err *err)
{
    const struct ash_serve_flags *flags = server->flags;
    int rc;

    rc = ash_http_flags_open_keys(&flags->http, ash_serve_kv_lasts(flags), &server->keys, err);
    if (rc < 0) return rc;
    rc = open_api(server, name, err);
    if (rc < 0) return rc;
    rc = open_http(server, err);
    if (rc < 0) return rc;
    /* Before the loader starts: a small model is ready at once, and the port must come first in the log. */
    ash_http_flags_report(&flags->http, server->http, server->keys);
    rc = ash_thread_start(&server->loader, load, server);
    if (rc < 0) return ash_err_set(err, rc, "cannot start a thread: %s", strerror(-rc));
    server->has_loader = true;
    return 0;
}

/* Labels that distinguish this server from others of the machine. */
static void publish(struct server *server, const char *name)
{
    const struct ash_serve_flags *flags = server->flags;
    struct ash_str labels = {0};
    char place[256];

    if (flags->http.port != 0)
        snprintf(place, sizeof(place), "%s:%d", name, (int)flags->http.port);
    else
        snprintf(place, sizeof(place), "%s:pid-%ld", name, (long)getpid());
    if (ash_metric_add_label(&labels, "server", place) == 0)
        server->model.recorder = ash_publish_server(flags->pages, labels.data);
    ash_str_fini(&labels);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Without one of its ranks the server ends; streams get the error of their step first. */
static void check_ranks(struct server *server)
{
    int rc = ash_ranks_watch(server->model.ranks, &server->load_err);

    if (rc == 0) return;
    ash_log(ASH_LOG_ERROR, "the server ends: %s", server->load_err.text);
    ash_api_drain(server->api);
    (void)ash_http_drain(server->http, CUT_SECONDS);
    atomic_store(&server->load_state, rc);
}

/* Wait for a signal that ends the server, for loading to fail, or for a rank to be lost. Returns the signal, or 0. */
static int wait_for_end(struct server *server, const sigset_t *signals)
{
    const struct timespec poll = {.tv_nsec = POLL_NS};

    for (;;) {
        int number = sigtimedwait(signals, NULL, &poll);

        if (number == SIGHUP)
            ash_http_flags_reload_keys(server->keys);
        else if (number > 0)
            return number;
        if (atomic_load(&server->load_state) == 1) check_ranks(server);
        if (atomic_load(&server->load_state) < 0) return 0;
        ash_api_refresh_metrics(server->api);
    }
}

/* Answers that are being written may end; a second signal ends them now. Those that are cut get an error. */
static void finish(struct server *server, const sigset_t *signals)
{
    const struct timespec none = {0};
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(server->flags->http.shutdown_timeout * 1e9);
    bool is_idle = false;

    ash_log(ASH_LOG_INFO, "shutting down: open requests: %zu; they have %g s at most",
            ash_http_get_stats(server->http).exchanges, server->flags->http.shutdown_timeout);
    ash_api_drain(server->api);
    while (!is_idle && ash_clock_ns() < end_ns) {
        int number = sigtimedwait(signals, NULL, &none);

        if (number == SIGINT || number == SIGTERM) break;
        is_idle = ash_http_drain(server->http, 0.1) == 0;
    }
    if (is_idle) return;
    ash_serve_model_cancel(&server->model);
    (void)ash_http_drain(server->http, CUT_SECONDS);
}

static void close_server(struct server *server)
{
    if (server->has_loader) pthread_join(server->loader, NULL);
    if (server->http != NULL) ash_http_stop(server->http);
    ash_serve_model_stop(&server->model);
    ash_http_close(server->http);
    ash_api_close(server->api);
    ash_serve_model_close(&server->model);
    ash_keys_close(server->keys);
}

static int serve(const struct ash_serve_flags *flags)
{
    struct server server = {.flags = flags, .start_ns = ash_clock_ns()};
    char *name = ash_model_default_name(flags->model);
    struct ash_recorder *recorder;
    struct ash_err err = {0};
    sigset_t signals;
    int rc, number = 0;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    /* Requests are made on one thread and freed on another: with a heap per thread, each of them grows to the most
     * that ever met there. A step allocates nothing, so one heap is no bottleneck. */
    mallopt(M_ARENA_MAX, 1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is a page that is not kept, not the end */
    ash_http_flags_raise_limit(&flags->http, 1);
    if (name != NULL) publish(&server, flags->served_model_name.count > 0 ? flags->served_model_name.items[0] : name);
    recorder = server.model.recorder;
    rc = name != NULL ? open_server(&server, (const char *const *)&name, &err)
                      : ash_err_set(&err, -ENOMEM, "out of memory");
    if (rc == 0) {
        number = wait_for_end(&server, &signals);
        if (number != 0 && atomic_load(&server.load_state) == 0) _exit(ASH_CMD_EXIT_SIGNAL + number);
        if (number != 0) finish(&server, &signals);
        rc = atomic_load(&server.load_state) < 0 ? -1 : 0;
        err = server.load_err;
    }
    close_server(&server);
    ash_recorder_close(recorder, rc < 0);
    ash_metrics_page_withdraw();
    free(name);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int open_opts(struct ash_serve_flags *flags, struct ash_opts **opts_out, struct ash_err *err)
{
    struct ash_opt_binding bindings[] = {{&serve_table, flags},
                                         {&ash_rank_flags_table, &flags->computing},
                                         {&ash_serve_replicas_table, &flags->replicas},
                                         {&ash_serve_models_table, &flags->several},
                                         {&ash_route_flags_table, &flags->replicas.route},
                                         {&ash_http_flags_table, &flags->http},
                                         {&ash_serve_kv_table, &flags->kv},
                                         {&ash_engine_table, &flags->computing}};

    return ash_opts_open(bindings, ASH_COUNT(bindings), opts_out, err);
}

int ash_cmd_serve_check(const char *const *words, size_t count, struct ash_err *err)
{
    struct ash_serve_flags flags = {0};
    struct ash_opts *opts = NULL;
    int rc = open_opts(&flags, &opts, err);

    for (size_t i = 0; i < count && rc == 0; i++) {
        char key[256];
        size_t length = strcspn(words[i], "=");

        snprintf(key, sizeof(key), "%.*s", (int)length, words[i]);
        rc = ash_opts_set(opts, key, words[i] + length + (words[i][length] == '='), NULL, err);
    }
    ash_opts_close(opts);
    return rc < 0 ? ash_err_prefix(err, rc, "serve") : 0;
}

/* An empty --model forgets those before it: so a server of several models makes one of them the only one. */
static void take_models(struct ash_serve_flags *flags)
{
    struct ash_opt_list *models = &flags->models;

    for (size_t i = models->count; i > 0; i--)
        if (models->items[i - 1][0] == '\0') {
            *models = (struct ash_opt_list){models->items + i, models->count - i};
            break;
        }
    flags->model = models->count > 0 ? models->items[0] : NULL;
}

static int run(int argc, char **argv)
{
    struct ash_serve_flags flags = {0};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t positional_count = 0;
    int code;

    if (open_opts(&flags, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, NULL, 0, &positional_count);
    take_models(&flags);
    if (code == ASH_CMD_GO && flags.model == NULL && !ash_serve_models_wanted(&flags))
        code = ash_cmd_misuse("serve", "--model DIR is missing");
    if (code == ASH_CMD_GO && flags.kv.role != ASH_API_BOTH &&
        (flags.replicas.count > 1 || ash_serve_models_wanted(&flags)))
        code = ash_cmd_misuse("serve", "--role is of one server of one model: start each by itself, and name them to "
                                       "`ashlar route --to`");
    if (code == ASH_CMD_GO) code = ash_serve_models_run(&flags, argc, argv);
    if (code == ASH_CMD_GO) code = ash_serve_replicas_run(&flags, argc, argv);
    if (code == ASH_CMD_GO)
        code = ash_cmd_ranks_begin(&flags.computing, &(struct ash_rank_job){flags.model, flags.kv_dtype, argc, argv});
    if (code == ASH_CMD_GO) code = serve(&flags);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_serve = {"serve", "answer OpenAI, Anthropic, Ollama and llama.cpp clients over HTTP", run};
