/* What `ashlar plan serve` found, as tables, as JSON and as a picture. */
#include "cmd/plan/serve_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "cmd/cmd.h"
#include "cmd/units.h"
#include "plan/chart.h"

#define DRAWN_MAX 4
#define DRAWN_POINTS 40

static double out_tokens(const struct ash_serve_job *job)
{
    return job->thinking_tokens + job->answer_tokens;
}

static const char *dollars(double value, char *buf, size_t bytes)
{
    if (value > 0)
        snprintf(buf, bytes, value < 0.1 ? "$%.4f" : "$%.2f", value);
    else
        snprintf(buf, bytes, "-");
    return buf;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void print_points(const struct serve_answer *answer)
{
    printf("%-12s %5s %9s %8s %6s %9s %8s %9s %10s %9s %9s\n", "replica", "GPUs", "weights", "caches", "batch",
           "TTFT ms", "ITL ms", "stall ms", "tok/s", "tok/s/GPU", "$/M out");
    for (size_t i = 0; i < answer->shown; i++) {
        const struct ash_serve_point *point = &answer->points[i];
        char cut[32], price[24], weights[ASH_UNITS_BYTES];

        printf("%-12s %5d %9s %8.0f %6.0f %9.0f %8.1f %9.0f %10.0f %9.0f %9s%s\n",
               ash_serve_cut(&point->infer, cut, sizeof(cut)), ash_infer_gpus(&point->infer),
               ash_units_bytes((size_t)ash_infer_weight_bytes(&point->infer), weights, sizeof(weights)),
               point->capacity, point->batch, point->ttft_s * 1e3, point->itl_s * 1e3, point->stall_s * 1e3,
               point->tokens_s, point->tokens_s_gpu, dollars(point->usd_million, price, sizeof(price)),
               point->meets ? "" : "  misses the limits");
    }
}

static void print_curve(const struct serve_answer *answer)
{
    char cut[32];

    printf("\n%s over batch sizes\n%6s %9s %8s %10s %9s %9s\n",
           ash_serve_cut(&answer->points[0].infer, cut, sizeof(cut)), "batch", "TTFT ms", "ITL ms", "tok/s",
           "tok/s/GPU", "$/M out");
    for (size_t i = 0; i < answer->curve_count; i++) {
        const struct ash_serve_point *point = &answer->curve[i];
        char price[24];

        printf("%6.0f %9.0f %8.1f %10.0f %9.0f %9s\n", point->batch, point->ttft_s * 1e3, point->itl_s * 1e3,
               point->tokens_s, point->tokens_s_gpu, dollars(point->usd_million, price, sizeof(price)));
    }
}

/* Are prompts on replicas of their own worth it? */
static bool pays(const struct serve_answer *answer)
{
    const struct ash_serve_split *split = &answer->split;
    const struct ash_serve_point *best = &answer->points[0];

    return answer->has_split && split->meets && (!best->meets || split->tokens_s_gpu > best->tokens_s_gpu);
}

static void print_ratios(const struct serve_answer *answer)
{
    printf("%8s %8s %9s %8s %10s %10s %9s %9s\n", "prompts", "answers", "TTFT ms", "ITL ms", "requests/s", "tok/s",
           "tok/s/GPU", "$/M out");
    for (size_t i = 0; i < answer->ratio_count; i++) {
        const struct ash_serve_split *split = &answer->ratios[i];
        char price[24];

        printf("%8.0f %8.0f %9.0f %8.1f %10.3g %10.0f %9.0f %9s%s%s%s\n", split->prompt_replicas,
               split->decode_replicas, split->ttft_s * 1e3, split->itl_s * 1e3, split->requests_s, split->tokens_s,
               split->tokens_s_gpu, dollars(split->usd_million, price, sizeof(price)),
               split->prompt_replicas == answer->split.prompt_replicas ? "  best" : "",
               split->prompts_wait ? "  answers are the limit" : "  prompts are the limit",
               split->meets ? "" : ", misses the limits");
    }
}

static void print_split(const struct serve_answer *answer)
{
    const struct ash_serve_split *split = &answer->split;
    const struct ash_serve_point *best = &answer->points[0];
    char prompt[32], decode[32], cache[ASH_UNITS_BYTES];

    if (!answer->has_split) {
        printf("\ndisaggregated: the cluster is too small for a replica of each kind\n");
        return;
    }
    printf("\ndisaggregated: %s for prompts, %s for answers (batch %.0f); %s of cache per request, %.1f ms over %s\n",
           ash_serve_cut(&split->prompt.infer, prompt, sizeof(prompt)),
           ash_serve_cut(&split->decode.infer, decode, sizeof(decode)), split->decode.batch,
           ash_units_bytes((size_t)split->cache_bytes, cache, sizeof(cache)), split->transfer_s * 1e3,
           answer->job.cluster.machine.network);
    print_ratios(answer);
    if (!split->meets) {
        printf("  it misses the limits%s\n", best->meets ? ", which a unified replica meets" : ", too");
        return;
    }
    printf("  it %s: %+.0f %% tokens/s per GPU beside the best unified replica, longest gap %.0f instead of %.0f ms\n",
           pays(answer) ? "pays" : "does not pay", 100 * (split->tokens_s_gpu / best->tokens_s_gpu - 1),
           split->itl_s * 1e3, best->stall_s * 1e3);
}

/* What a request with several answers and long thinking comes to. */
static void print_request(const struct serve_answer *answer)
{
    const struct ash_serve_job *job = &answer->job;
    const struct ash_serve_point *best = &answer->points[0];
    char price[24];

    printf("\na request: %g answer%s of %g tokens (%g of thinking), %g verifier pass%s each: %.1f s, %s, %.3g "
           "requests/s per "
           "replica\n",
           job->samples, job->samples == 1 ? "" : "s", out_tokens(job), job->thinking_tokens, job->verify_passes,
           job->verify_passes == 1 ? "" : "es", best->request_s, dollars(best->usd_request, price, sizeof(price)),
           best->requests_s);
}

static void print_verdict(const struct serve_answer *answer)
{
    const struct ash_serve_job *job = &answer->job;
    const struct ash_serve_point *best = &answer->points[0];
    char cut[32];

    printf("\nverdict: %.0f x %s with %.0f sequences each: %.0f tok/s, %.3g requests/s on %d GPUs", answer->replicas,
           ash_serve_cut(&best->infer, cut, sizeof(cut)), best->batch, answer->replicas * best->tokens_s,
           answer->replicas * best->requests_s, job->cluster.gpus);
    if (!best->meets) printf("; no cut meets the limits, this is the nearest");
    if (answer->replicas_needed > 0)
        printf("; %g requests/s need %.0f of them%s", job->arrivals_s, answer->replicas_needed,
               answer->replicas_needed > answer->replicas ? ", more than there are" : "");
    printf("\n");
}

void ash_serve_print_table(const struct serve_answer *answer)
{
    const struct ash_serve_job *job = &answer->job;
    char cache[ASH_UNITS_BYTES];

    printf("%s on %d x %s (%d GPUs %s), prompts of %g, answers of %g tokens\n", job->shape.name, job->cluster.machines,
           job->cluster.machine.name, job->cluster.gpus, job->cluster.machine.gpu->name, job->in_tokens,
           job->answer_tokens);
    printf("a token's cache takes %s over all layers; `caches` counts the sequences of a replica whose cache fits\n\n",
           ash_units_bytes((size_t)ash_serve_cache_bytes(job), cache, sizeof(cache)));
    print_points(answer);
    print_curve(answer);
    if (job->samples > 1 || job->verify_passes > 0 || job->thinking_tokens > 0) print_request(answer);
    print_split(answer);
    print_verdict(answer);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *encode_point(const struct ash_serve_job *job, const struct ash_serve_point *point)
{
    double sequence = job->in_tokens / job->samples + out_tokens(job); /* the prompt is held once for all samples */
    char cut[32];

    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "cut",
                     ash_serve_cut(&point->infer, cut, sizeof(cut)), "gpus", ash_infer_gpus(&point->infer), "batch",
                     point->batch, "capacity", point->capacity, "cache_tokens", point->capacity * sequence,
                     "weight_bytes", ash_infer_weight_bytes(&point->infer), "ttft_s", point->ttft_s, "itl_s",
                     point->itl_s, "stall_s", point->stall_s, "request_s", point->request_s, "tokens_s",
                     point->tokens_s, "tokens_s_gpu", point->tokens_s_gpu, "requests_s", point->requests_s,
                     "usd_million", point->usd_million, "usd_request", point->usd_request, "meets", (int)point->meets);
}

static json_t *encode_points(const struct ash_serve_job *job, const struct ash_serve_point *points, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, encode_point(job, &points[i]));
    return list;
}

static json_t *encode_split(const struct ash_serve_split *split)
{
    char prompt[32], decode[32];

    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "prompt_cut",
                     ash_serve_cut(&split->prompt.infer, prompt, sizeof(prompt)), "decode_cut",
                     ash_serve_cut(&split->decode.infer, decode, sizeof(decode)), "prompt_replicas",
                     split->prompt_replicas, "decode_replicas", split->decode_replicas, "batch", split->decode.batch,
                     "cache_bytes", split->cache_bytes, "transfer_s", split->transfer_s, "ttft_s", split->ttft_s,
                     "itl_s", split->itl_s, "requests_s", split->requests_s, "tokens_s", split->tokens_s,
                     "tokens_s_gpu", split->tokens_s_gpu, "usd_million", split->usd_million, "meets",
                     (int)split->meets);
}

static json_t *encode_ratios(const struct serve_answer *answer)
{
    json_t *list = json_array();

    for (size_t i = 0; i < answer->ratio_count; i++)
        json_array_append_new(list, encode_split(&answer->ratios[i]));
    return list;
}

int ash_serve_print_json(const struct serve_answer *answer, struct ash_err *err)
{
    const struct ash_serve_job *job = &answer->job;
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:o, s:o, s:o, s:o}", "model",
                  job->shape.name, "machine", job->cluster.machine.name, "gpus", job->cluster.gpus, "in_tokens",
                  job->in_tokens, "answer_tokens", job->answer_tokens, "thinking_tokens", job->thinking_tokens,
                  "samples", job->samples, "verify_passes", job->verify_passes, "replicas", answer->replicas,
                  "replicas_needed", answer->replicas_needed, "cache_bytes_per_token", ash_serve_cache_bytes(job),
                  "disaggregation_pays", (int)pays(answer), "cuts", encode_points(job, answer->points, answer->shown),
                  "curve", encode_points(job, answer->curve, answer->curve_count), "disaggregated",
                  answer->has_split ? encode_split(&answer->split) : json_null(), "ratios", encode_ratios(answer));

    return ash_cmd_print_json(json, err);
}

/* ---- picture ----------------------------------------------------------------------------------------------------- */

/* Tokens/s per GPU of a cut where the time between tokens is itl_s: the batch that gives it, or the largest below. */
static double at_latency(const struct serve_answer *answer, const struct ash_serve_point *cut, double itl_s)
{
    double most = fmin(floor(cut->capacity), answer->consts.infer_batch * fmax(1, cut->infer.attn_dp)), best = 0;

    for (double batch = answer->job.samples; batch <= most; batch = fmax(batch + 1, floor(batch * 1.2))) {
        struct ash_serve_point point;

        ash_serve_evaluate(&answer->consts, &answer->job, &cut->infer, batch, &point);
        if (point.itl_s <= itl_s) best = fmax(best, point.tokens_s_gpu);
    }
    return best;
}

/* The next value whose tenths make ticks that are easily read. */
static double round_top(double top)
{
    static const double tops[] = {1, 2, 5, 10};
    double unit = pow(10, floor(log10(top)));
    size_t i = 0;

    while (i + 1 < ASH_COUNT(tops) && tops[i] * unit < top)
        i++;
    return tops[i] * unit;
}

int ash_serve_draw(const struct serve_answer *answer, const char *path, struct ash_err *err)
{
    double x[DRAWN_POINTS], y[DRAWN_MAX][DRAWN_POINTS], top = 1;
    size_t count = answer->count < DRAWN_MAX ? answer->count : DRAWN_MAX;
    struct ash_chart_line lines[DRAWN_MAX];
    char names[DRAWN_MAX][32];
    struct ash_chart chart = {
        .title = "output tokens per second and GPU, by milliseconds between tokens",
        .x_label = "milliseconds between tokens",
        .y_label = "tokens/s per GPU",
        .x = x,
        .count = DRAWN_POINTS,
        .lines = lines,
        .line_count = count,
        .here = answer->job.itl_limit_s * 1e3,
        .y_scale = 1,
    };

    for (size_t i = 0; i < DRAWN_POINTS; i++)
        x[i] = 2 * pow(2, (double)i / 5);
    for (size_t l = 0; l < count; l++) {
        for (size_t i = 0; i < DRAWN_POINTS; i++) {
            y[l][i] = at_latency(answer, &answer->points[l], x[i] * 1e-3);
            top = fmax(top, y[l][i]);
        }
        lines[l] = (struct ash_chart_line){ash_serve_cut(&answer->points[l].infer, names[l], sizeof(names[l])), y[l]};
    }
    chart.y_max = round_top(top);
    return ash_chart_write(path, &chart, err);
}
