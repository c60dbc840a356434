/* Figures of a load test: rates, percentiles of latencies, goodput. */
#include "serve/client/figures.h"

#include <math.h>
#include <stdlib.h>

#include "base/assert.h"

/* Values of one latency, in milliseconds. */
struct sample {
    double *values;
    size_t count;
};

static const struct {
    const char *name;
    double share;
} percentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"max", 1}};

enum latency { LATENCY_TTFT, LATENCY_TPOT, LATENCY_ITL, LATENCY_E2E, LATENCY_LATENESS, LATENCY_COUNT };
static const char *const latency_keys[] = {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "lateness_ms"};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Nearest rank: the smallest value that at least this share of the values does not exceed. */
static double percentile(const struct sample *sample, double share)
{
    size_t rank = (size_t)ceil(share * (double)sample->count);

    return sample->values[rank > 0 ? rank - 1 : 0];
}

/* Sorts the sample. */
static json_t *summarise(struct sample *sample)
{
    json_t *json = json_object();
    double sum = 0;

    if (sample->count == 0) {
        json_decref(json);
        return json_null();
    }
    qsort(sample->values, sample->count, sizeof(*sample->values), by_value);
    for (size_t i = 0; i < sample->count; i++)
        sum += sample->values[i];
    json_object_set_new(json, "mean", json_real(sum / (double)sample->count));
    for (size_t i = 0; i < ASH_COUNT(percentiles); i++)
        json_object_set_new(json, percentiles[i].name, json_real(percentile(sample, percentiles[i].share)));
    return json;
}

static double ttft_ms(const struct ash_load_result *result)
{
    return ((result->chunks > 0 ? result->first_s : result->end_s) - result->due_s) * 1e3;
}

static double e2e_ms(const struct ash_load_result *result)
{
    return (result->end_s - result->due_s) * 1e3;
}

/* The tokens of an answer: the server's count, or events if it has none. */
static size_t tokens_of(const struct ash_load_result *result)
{
    return result->answer_tokens > 0 ? result->answer_tokens : result->chunks;
}

/* An answer of one token has no time between tokens. */
static bool has_tpot(const struct ash_load_result *result)
{
    return tokens_of(result) > 1 && result->chunks > 0;
}

/* From the first text to the last one, for each token but the first; 0 if there is none. */
static double tpot_ms(const struct ash_load_result *result)
{
    return has_tpot(result) ? (result->last_s - result->first_s) * 1e3 / (double)(tokens_of(result) - 1) : 0;
}

static bool is_good(const struct ash_load_result *result, const struct ash_load_limits *limits)
{
    return result->is_ok && (limits->ttft_ms == 0 || ttft_ms(result) <= limits->ttft_ms) &&
           (limits->tpot_ms == 0 || tpot_ms(result) <= limits->tpot_ms) &&
           (limits->e2e_ms == 0 || e2e_ms(result) <= limits->e2e_ms);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

struct sums {
    size_t sent, ok, failed, good, prompt_tokens, cached_tokens, answer_tokens, chunks;
};

static struct sums sum_up(const struct ash_load_results *results, const struct ash_load_limits *limits)
{
    struct sums sums = {0};

    for (size_t i = 0; i < results->count; i++) {
        const struct ash_load_result *result = &results->items[i];
        bool has_ended = result->end_s > 0;

        sums.sent += result->is_sent;
        sums.failed += has_ended && !result->is_ok;
        if (!result->is_ok) continue;
        sums.ok++;
        sums.good += is_good(result, limits);
        sums.prompt_tokens += result->prompt_tokens;
        sums.cached_tokens += result->cached_tokens;
        sums.answer_tokens += tokens_of(result);
        sums.chunks += result->chunks;
    }
    return sums;
}

/* The values of a latency, over the answers that came. */
static void collect(const struct ash_load_results *results, enum latency latency, struct sample *sample)
{
    sample->count = 0;
    if (latency == LATENCY_ITL) {
        for (size_t i = 0; i < results->gap_count; i++)
            sample->values[sample->count++] = (double)results->gaps_s[i] * 1e3;
        return;
    }
    for (size_t i = 0; i < results->count; i++) {
        const struct ash_load_result *result = &results->items[i];
        double value = latency == LATENCY_TTFT   ? ttft_ms(result)
                       : latency == LATENCY_TPOT ? tpot_ms(result)
                       : latency == LATENCY_E2E  ? e2e_ms(result)
                                                 : (result->sent_s - result->due_s) * 1e3;

        if (!result->is_ok || (latency == LATENCY_TPOT && !has_tpot(result))) continue;
        sample->values[sample->count++] = value;
    }
}

static json_t *list_requests(const struct ash_load_results *results)
{
    json_t *list = json_array();

    for (size_t i = 0; i < results->count; i++) {
        const struct ash_load_result *result = &results->items[i];

        if (!result->is_sent) continue;
        json_array_append_new(list, json_pack("{s:b, s:i, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "ok", result->is_ok,
                                              "status", (int)result->status, "due_s", result->due_s, "sent_s",
                                              result->sent_s, "first_s", result->first_s, "end_s", result->end_s,
                                              "prompt_tokens", (json_int_t)result->prompt_tokens, "cached_tokens",
                                              (json_int_t)result->cached_tokens, "output_tokens",
                                              (json_int_t)tokens_of(result), "chunks", (json_int_t)result->chunks));
    }
    return list;
}

json_t *ash_load_figures(const struct ash_load_results *results, const struct ash_load_limits *limits)
{
    struct sums sums = sum_up(results, limits);
    double seconds = results->seconds;
    struct sample sample = {.values = calloc(results->gap_count + results->count + 1, sizeof(double))};
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "requests", (json_int_t)sums.sent,
        "completed", (json_int_t)sums.ok, "failed", (json_int_t)sums.failed, "seconds", seconds, "prompt_tokens",
        (json_int_t)sums.prompt_tokens, "cached_tokens", (json_int_t)sums.cached_tokens, "output_tokens",
        (json_int_t)sums.answer_tokens, "chunks", (json_int_t)sums.chunks, "requests_per_s", (double)sums.ok / seconds,
        "output_tokens_per_s", (double)sums.answer_tokens / seconds, "tokens_per_s",
        (double)(sums.prompt_tokens + sums.answer_tokens) / seconds, "goodput_requests_per_s",
        (double)sums.good / seconds, "good_share", sums.sent > 0 ? (double)sums.good / (double)sums.sent : 0);

    if (sample.values == NULL || json == NULL) {
        free(sample.values);
        json_decref(json);
        return NULL;
    }
    for (enum latency latency = LATENCY_TTFT; latency < LATENCY_COUNT; latency++) {
        collect(results, latency, &sample);
        json_object_set_new(json, latency_keys[latency], summarise(&sample));
    }
    json_object_set_new(
        json, "slo",
        json_pack("{s:f, s:f, s:f}", "ttft_ms", limits->ttft_ms, "tpot_ms", limits->tpot_ms, "e2e_ms", limits->e2e_ms));
    json_object_set_new(json, "error", results->has_error ? json_string(results->first.text) : json_null());
    json_object_set_new(json, "each", list_requests(results));
    free(sample.values);
    return json;
}
