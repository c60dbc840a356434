/* Figures for Prometheus. Names, labels and buckets are vLLM's, so that dashboards and gateways made for it work;
 * figures that it does not have begin with ashlar_. */
#include "serve/api/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "record/metrics.h"
#include "serve/api/metrics_tiers.h"

static const double token_bounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double first_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                      1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
static const double inter_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                      0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double latency_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
static const double choice_bounds[] = {1, 2, 5, 10, 20};

#define GAUGE(var, name, help) ASH_GAUGE(var, "vllm:" name, help)
#define COUNTER(var, name, help) ASH_COUNTER(var, "vllm:" name, help)
#define HISTOGRAM(var, name, help, bounds) ASH_HISTOGRAM(var, "vllm:" name, help, bounds)

GAUGE(running, "num_requests_running", "Requests that the engine runs now.");
GAUGE(waiting, "num_requests_waiting", "Requests that wait for the engine.");
GAUGE(usage, "kv_cache_usage_perc", "Share of the cache's pages that sequences hold. 1 means all.");
COUNTER(queries, "prefix_cache_queries_total", "Tokens looked up in the prefix cache.");
COUNTER(hits, "prefix_cache_hits_total", "Tokens found in the prefix cache.");
COUNTER(preemptions, "num_preemptions_total", "Times that a running sequence gave its pages back.");
COUNTER(prompt_tokens, "prompt_tokens_total", "Tokens of prompts.");
COUNTER(cached_tokens, "prompt_tokens_cached_total", "Tokens of prompts that were not computed again.");
COUNTER(answer_tokens, "generation_tokens_total", "Tokens of answers.");
COUNTER(success, "request_success_total", "Requests that ended well, by the reason.");
COUNTER(drafted, "spec_decode_num_draft_tokens_total", "Tokens that speculation proposed.");
COUNTER(accepted, "spec_decode_num_accepted_tokens_total", "Proposed tokens that were kept.");
HISTOGRAM(request_prompt, "request_prompt_tokens", "Tokens of a prompt.", token_bounds);
HISTOGRAM(request_answer, "request_generation_tokens", "Tokens of an answer.", token_bounds);
HISTOGRAM(request_most, "request_params_max_tokens", "The limit that a request sets.", token_bounds);
HISTOGRAM(request_n, "request_params_n", "Answers that a request asks for.", choice_bounds);
HISTOGRAM(first_token, "time_to_first_token_seconds", "From the request to its first token.", first_bounds);
HISTOGRAM(inter_token, "inter_token_latency_seconds", "From one token to the next.", inter_bounds);
HISTOGRAM(per_token, "request_time_per_output_token_seconds", "Mean time of a token after the first.", inter_bounds);
HISTOGRAM(end_to_end, "e2e_request_latency_seconds", "From the request to its last token.", latency_bounds);
HISTOGRAM(queue_time, "request_queue_time_seconds", "Time that a request waits for the engine.", latency_bounds);
HISTOGRAM(inference_time, "request_inference_time_seconds", "From its first row to its last token.", latency_bounds);
HISTOGRAM(prefill_time, "request_prefill_time_seconds", "Time that a prompt takes.", latency_bounds);
HISTOGRAM(decode_time, "request_decode_time_seconds", "Time that an answer takes after its first token.",
          latency_bounds);
ASH_COUNTER(failed, "ashlar_request_failures_total", "Requests that ended with an error.");
ASH_COUNTER(cancelled, "ashlar_request_cancellations_total", "Requests whose client left.");
ASH_COUNTER(engine_steps, "ashlar_engine_steps_total", "Steps of the engine.");
ASH_GAUGE(pages, "ashlar_kv_cache_pages", "Pages of the cache, by state.");

/* The instruments with the model's labels. */
struct series {
    struct ash_metric *running, *waiting, *usage, *queries, *hits, *preemptions, *prompt_tokens, *cached_tokens,
        *answer_tokens, *drafted, *accepted, *request_prompt, *request_answer, *request_most, *request_n, *first_token,
        *inter_token, *per_token, *end_to_end, *queue_time, *inference_time, *prefill_time, *decode_time, *failed,
        *cancelled, *engine_steps, *stop, *length, *abort, *pages_free, *pages_cached, *pages_held;
};

struct ash_api_metrics {
    struct series series;
    char *model;
    pthread_mutex_t lock; /* for seen */
    struct ash_core_stats seen;
};

/* A family and where its instrument goes. */
struct place {
    struct ash_metric *family;
    size_t offset;
    const char *label, *value; /* one more label, or NULL */
};

#define PLACE(field)                                                                                                   \
    {                                                                                                                  \
        &field, offsetof(struct series, field), NULL, NULL                                                             \
    }
static const struct place places[] = {
    PLACE(running),
    PLACE(waiting),
    PLACE(usage),
    PLACE(queries),
    PLACE(hits),
    PLACE(preemptions),
    PLACE(prompt_tokens),
    PLACE(cached_tokens),
    PLACE(answer_tokens),
    PLACE(drafted),
    PLACE(accepted),
    PLACE(request_prompt),
    PLACE(request_answer),
    PLACE(request_most),
    PLACE(request_n),
    PLACE(first_token),
    PLACE(inter_token),
    PLACE(per_token),
    PLACE(end_to_end),
    PLACE(queue_time),
    PLACE(inference_time),
    PLACE(prefill_time),
    PLACE(decode_time),
    PLACE(failed),
    PLACE(cancelled),
    PLACE(engine_steps),
    {&success, offsetof(struct series, stop), "finished_reason", "stop"},
    {&success, offsetof(struct series, length), "finished_reason", "length"},
    {&success, offsetof(struct series, abort), "finished_reason", "abort"},
    {&pages, offsetof(struct series, pages_free), "state", "free"},
    {&pages, offsetof(struct series, pages_cached), "state", "cached"},
    {&pages, offsetof(struct series, pages_held), "state", "held"},
};

static int fill(struct series *series, const char *model)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ASH_COUNT(places); i++) {
        struct ash_str labels = {0};
        struct ash_metric **at = (struct ash_metric **)(void *)((char *)series + places[i].offset);

        rc = ash_metric_add_label(&labels, "model_name", model);
        if (rc == 0) rc = ash_metric_add_label(&labels, "engine", "0");
        if (rc == 0 && places[i].label != NULL) rc = ash_metric_add_label(&labels, places[i].label, places[i].value);
        if (rc == 0) *at = ash_metric_with(places[i].family, labels.data);
        ash_str_fini(&labels);
    }
    return rc;
}

int ash_api_metrics_open(const char *model, struct ash_api_metrics **metrics_out, struct ash_err *err)
{
    struct ash_api_metrics *metrics = calloc(1, sizeof(*metrics));

    if (metrics != NULL) metrics->model = strdup(model);
    if (metrics == NULL || metrics->model == NULL || fill(&metrics->series, model) < 0) {
        if (metrics != NULL) free(metrics->model);
        free(metrics);
        return ash_err_set(err, -ENOMEM, "no memory for metrics");
    }
    pthread_mutex_init(&metrics->lock, NULL);
    *metrics_out = metrics;
    return 0;
}

void ash_api_metrics_close(struct ash_api_metrics *metrics)
{
    if (metrics == NULL) return;
    pthread_mutex_destroy(&metrics->lock);
    free(metrics->model);
    free(metrics);
}

void ash_api_metrics_token(struct ash_api_metrics *metrics, struct ash_api_choice *choice)
{
    uint64_t now_ns = ash_clock_ns();

    if (choice->last_token_ns != 0)
        ash_metric_observe(metrics->series.inter_token, (double)(now_ns - choice->last_token_ns) / 1e9);
    choice->last_token_ns = now_ns;
    ash_metric_add(metrics->series.answer_tokens, 1);
}

void ash_api_metrics_call(struct ash_api_metrics *metrics, const struct ash_api_call *call)
{
    ash_metric_observe(metrics->series.request_n, (double)call->sampling.n);
    if (call->sampling.max_tokens != ASH_SAMPLING_UNLIMITED)
        ash_metric_observe(metrics->series.request_most, (double)call->sampling.max_tokens);
}

void ash_api_metrics_done(struct ash_api_metrics *metrics, const struct ash_api_choice *choice)
{
    const struct series *series = &metrics->series;
    const struct ash_request_end *end = &choice->end;
    double before_s = (double)(ash_clock_ns() - ash_http_started_ns(choice->call->exchange)) / 1e9;
    const char *reason = ash_api_choice_reason(choice);

    ash_metric_add(series->prompt_tokens, (double)end->prompt_tokens);
    ash_metric_add(series->cached_tokens, (double)end->cached_tokens);
    if (end->rc < 0 || end->finish == ASH_FINISH_CANCELLED) {
        ash_metric_add(end->rc < 0 ? series->failed : series->cancelled, 1);
        if (end->rc == 0) ash_metric_add(series->abort, 1);
        return;
    }
    ash_metric_add(strcmp(reason, "length") == 0 ? series->length : series->stop, 1);
    ash_metric_observe(series->request_prompt, (double)end->prompt_tokens);
    ash_metric_observe(series->request_answer, (double)end->answer_tokens);
    ash_metric_observe(series->end_to_end, before_s);
    ash_metric_observe(series->queue_time, end->queued_s);
    ash_metric_observe(series->inference_time, end->prefill_s + end->decode_s);
    ash_metric_observe(series->prefill_time, end->prefill_s);
    ash_metric_observe(series->decode_time, end->decode_s);
    if (end->answer_tokens > 0) ash_metric_observe(series->first_token, end->first_token_s);
    if (end->answer_tokens > 1) ash_metric_observe(series->per_token, end->decode_s / (double)(end->answer_tokens - 1));
}

void ash_api_metrics_engine(struct ash_api_metrics *metrics, const struct ash_core_stats *stats)
{
    const struct series *series = &metrics->series;
    struct ash_core_stats *seen = &metrics->seen;

    pthread_mutex_lock(&metrics->lock);
    ash_metric_set(series->running, (double)stats->running);
    ash_metric_set(series->waiting, (double)stats->waiting);
    ash_metric_set(series->usage, stats->pages > 0 ? (double)stats->pages_held / (double)stats->pages : 0);
    ash_metric_set(series->pages_free, (double)stats->pages_free);
    ash_metric_set(series->pages_cached, (double)stats->pages_cached);
    ash_metric_set(series->pages_held, (double)stats->pages_held);
    if (stats->steps >= seen->steps) { /* another scrape may have brought newer ones */
        ash_metric_add(series->queries, (double)(stats->prefix_queries - seen->prefix_queries));
        ash_metric_add(series->hits, (double)(stats->prefix_hits - seen->prefix_hits));
        ash_metric_add(series->preemptions, (double)(stats->preemptions - seen->preemptions));
        ash_metric_add(series->drafted, (double)(stats->drafted - seen->drafted));
        ash_metric_add(series->accepted, (double)(stats->accepted - seen->accepted));
        ash_metric_add(series->engine_steps, (double)(stats->steps - seen->steps));
        ash_api_metrics_tiers(metrics->model, &stats->kv, &seen->kv);
        *seen = *stats;
    }
    pthread_mutex_unlock(&metrics->lock);
}
