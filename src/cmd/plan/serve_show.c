/* What `ashlar plan serve` found, as tables, as JSON and as a picture. */
#include "cmd/plan/serve_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "cmd/cmd.h"
#include "cmd/plan/text.h"
#include "cmd/units.h"
#include "plan/chart.h"
#include "plan/train/layout.h"

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

static void print_points(const struct ash_serve_answer *answer)
{
    printf("%-12s %5s %9s %8s %6s %9s %9s %9s %10s %9s %9s\n", "replica", "GPUs", "weights", "caches", "batch", "TTFT",
           "ITL", "stall", "tok/s", "tok/s/GPU", "$/M out");
    for (size_t i = 0; i < answer->shown; i++) {
        const struct ash_serve_point *point = &answer->points[i];
        char cut[32], price[24], weights[ASH_UNITS_BYTES];
        char ttft[ASH_PLAN_TEXT_BYTES], itl[ASH_PLAN_TEXT_BYTES], stall[ASH_PLAN_TEXT_BYTES];

        printf("%-12s %5d %9s %8.0f %6.0f %9s %9s %9s %10.0f %9.0f %9s%s\n",
               ash_serve_cut(&point->infer, cut, sizeof(cut)), ash_infer_gpus(&point->infer),
               ash_units_bytes((size_t)ash_infer_weight_bytes(&point->infer), weights, sizeof(weights)),
               point->capacity, point->batch, ash_plan_text_seconds(point->ttft_s, ttft),
               ash_plan_text_seconds(point->itl_s, itl), ash_plan_text_seconds(point->stall_s, stall), point->tokens_s,
               point->tokens_s_gpu, dollars(point->usd_million, price, sizeof(price)),
               point->meets ? "" : "  misses the limits");
    }
}

static void print_curve(const struct ash_serve_answer *answer)
{
    char cut[32];

    printf("\n%s over batch sizes\n%6s %9s %9s %10s %9s %9s\n",
           ash_serve_cut(&answer->points[0].infer, cut, sizeof(cut)), "batch", "TTFT", "ITL", "tok/s", "tok/s/GPU",
           "$/M out");
    for (size_t i = 0; i < answer->curve_count; i++) {
        const struct ash_serve_point *point = &answer->curve[i];
        char price[24], ttft[ASH_PLAN_TEXT_BYTES], itl[ASH_PLAN_TEXT_BYTES];

        printf("%6.0f %9s %9s %10.0f %9.0f %9s\n", point->batch, ash_plan_text_seconds(point->ttft_s, ttft),
               ash_plan_text_seconds(point->itl_s, itl), point->tokens_s, point->tokens_s_gpu,
               dollars(point->usd_million, price, sizeof(price)));
    }
}

static void print_ratios(const struct ash_serve_answer *answer)
{
    printf("%8s %8s %9s %9s %10s %10s %9s %9s\n", "prompts", "answers", "TTFT", "ITL", "requests/s", "tok/s",
           "tok/s/GPU", "$/M out");
    for (size_t i = 0; i < answer->ratio_count; i++) {
        const struct ash_serve_split *split = &answer->ratios[i];
        char price[24], ttft[ASH_PLAN_TEXT_BYTES], itl[ASH_PLAN_TEXT_BYTES], rate[ASH_PLAN_TEXT_BYTES];

        printf("%8.0f %8.0f %9s %9s %10s %10.0f %9.0f %9s%s%s%s\n", split->prompt_replicas, split->decode_replicas,
               ash_plan_text_seconds(split->ttft_s, ttft), ash_plan_text_seconds(split->itl_s, itl),
               ash_plan_text_rate(split->requests_s, rate), split->tokens_s, split->tokens_s_gpu,
               dollars(split->usd_million, price, sizeof(price)),
               split->prompt_replicas == answer->split.prompt_replicas ? "  best" : "",
               split->prompts_wait ? "  answers are the limit" : "  prompts are the limit",
               split->meets ? "" : ", misses the limits");
    }
}

static void print_split(const struct ash_serve_answer *answer)
{
    const struct ash_serve_split *split = &answer->split;
    const struct ash_serve_point *best = &answer->points[0];
    char prompt[32], decode[32], cache[ASH_UNITS_BYTES], sent[ASH_PLAN_TEXT_BYTES], gap[ASH_PLAN_TEXT_BYTES],
        stall[ASH_PLAN_TEXT_BYTES];

    if (!answer->has_split) {
        printf("\ndisaggregated: %s\n", out_tokens(&answer->job) <= 1
                                            ? "answers of one token leave nothing to decode"
                                            : "the cluster is too small for a replica of each kind");
        return;
    }
    printf("\ndisaggregated: %s for prompts, %s for answers (batch %.0f); %s of cache per request, %s over %s\n",
           ash_serve_cut(&split->prompt.infer, prompt, sizeof(prompt)),
           ash_serve_cut(&split->decode.infer, decode, sizeof(decode)), split->decode.batch,
           ash_units_bytes((size_t)split->cache_bytes, cache, sizeof(cache)),
           ash_plan_text_seconds(split->transfer_s, sent), answer->job.cluster.machine.network);
    print_ratios(answer);
    if (!split->meets) {
        printf("  it misses the limits%s\n", best->meets ? ", which a unified replica meets" : ", too");
        return;
    }
    printf("  it %s: %+.0f %% tokens/s on the same GPUs compared with unified replicas, longest gap %s instead of %s\n",
           answer->advice.is_disaggregated ? "pays" : "does not pay", 100 * answer->advice.split_gain,
           ash_plan_text_seconds(split->itl_s, gap), ash_plan_text_seconds(best->stall_s, stall));
}

/* What a request with several answers and long thinking comes to. */
static void print_request(const struct ash_serve_answer *answer)
{
    const struct ash_serve_job *job = &answer->job;
    const struct ash_serve_point *best = &answer->points[0];
    char price[24], rate[ASH_PLAN_TEXT_BYTES];

    printf("\na request: %g answer%s of %g token%s (%g of thinking), %g verifier pass%s each: %.1f s, %s, "
           "%s requests/s per replica\n",
           job->samples, ash_plan_plural(job->samples), out_tokens(job), ash_plan_plural(out_tokens(job)),
           job->thinking_tokens, job->verify_passes, job->verify_passes == 1 ? "" : "es", best->request_s,
           dollars(best->usd_request, price, sizeof(price)), ash_plan_text_rate(best->requests_s, rate));
}

/* The replicas that are recommended. */
static void print_choice(const struct ash_serve_answer *answer)
{
    const struct ash_serve_advice *advice = &answer->advice;
    const struct ash_serve_split *split = &answer->split;
    const struct ash_serve_point *best = &answer->points[0];
    char cut[32], prompt[32];

    if (advice->is_disaggregated)
        printf("%.0f x %s for prompts and %.0f x %s for answers with %.0f sequence%s each", advice->prompt_replicas,
               ash_serve_cut(&split->prompt.infer, prompt, sizeof(prompt)), advice->replicas,
               ash_serve_cut(&split->decode.infer, cut, sizeof(cut)), split->decode.batch,
               ash_plan_plural(split->decode.batch));
    else
        printf("%.0f x %s with %.0f sequence%s each", advice->replicas, ash_serve_cut(&best->infer, cut, sizeof(cut)),
               best->batch, ash_plan_plural(best->batch));
}

/* What the requests that must be answered need: replicas, GPUs and machines. */
static void print_needed(const struct ash_serve_answer *answer)
{
    const struct ash_serve_advice *advice = &answer->advice;
    const struct ash_cluster *cluster = &answer->job.cluster;

    if (advice->gpus_needed <= 0) return;
    printf("; %g requests/s need ", answer->job.arrivals_s);
    if (advice->is_disaggregated)
        printf("%.0f + %.0f replicas", advice->prompt_replicas_needed, advice->replicas_needed);
    else
        printf("%.0f replica%s", advice->replicas_needed, ash_plan_plural(advice->replicas_needed));
    printf(" = %.0f GPU%s = %.0f x %s", advice->gpus_needed, ash_plan_plural(advice->gpus_needed),
           advice->machines_needed, cluster->machine.name);
    if (advice->gpus_needed > cluster->gpus)
        printf(", more than the %d GPU%s there are", cluster->gpus, ash_plan_plural(cluster->gpus));
}

static void print_verdict(const struct ash_serve_answer *answer)
{
    const struct ash_serve_advice *advice = &answer->advice;
    int gpus = answer->job.cluster.gpus;
    char rate[ASH_PLAN_TEXT_BYTES];

    printf("\nverdict: ");
    print_choice(answer);
    printf(": %.0f tok/s, %s requests/s on %d GPU%s", advice->tokens_s, ash_plan_text_rate(advice->requests_s, rate),
           gpus, ash_plan_plural(gpus));
    if (!advice->meets) printf("; no cut meets the limits, this is the nearest");
    print_needed(answer);
    printf("\n");
}

/* What the model or the GPU cannot do as it is asked for. */
static void print_notes(const struct ash_serve_job *job)
{
    double tokens = job->in_tokens + out_tokens(job);

    if (job->shape.context > 0 && tokens > job->shape.context)
        printf("note: a request takes %.0f tokens, and %s was made for %.0f at most\n", tokens, job->shape.name,
               job->shape.context);
    if (job->compute < job->weights)
        printf("note: %s has no %s arithmetic: products run in %s, and %s weights only save memory\n",
               job->cluster.machine.gpu->name, ash_plan_precision_name(job->weights),
               ash_plan_precision_name(job->compute), ash_plan_precision_name(job->weights));
}

void ash_serve_print_table(const struct ash_serve_answer *answer)
{
    const struct ash_serve_job *job = &answer->job;
    char cache[ASH_UNITS_BYTES];

    printf("%s on %d x %s (%d GPU%s %s), prompts of %g, answers of %g token%s\n", job->shape.name,
           job->cluster.machines, job->cluster.machine.name, job->cluster.gpus, ash_plan_plural(job->cluster.gpus),
           job->cluster.machine.gpu->name, job->in_tokens, job->answer_tokens, ash_plan_plural(job->answer_tokens));
    printf("a token's cache takes %s over all layers; `caches` counts the sequences of a replica whose cache fits\n",
           ash_units_bytes((size_t)ash_serve_cache_bytes(job), cache, sizeof(cache)));
    print_notes(job);
    printf("\n");
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

static json_t *encode_ratios(const struct ash_serve_answer *answer)
{
    json_t *list = json_array();

    for (size_t i = 0; i < answer->ratio_count; i++)
        json_array_append_new(list, encode_split(&answer->ratios[i]));
    return list;
}

/* What the cluster should run, in one object. */
static json_t *encode_advice(const struct ash_serve_answer *answer)
{
    const struct ash_serve_advice *advice = &answer->advice;
    const struct ash_infer *infer = advice->is_disaggregated ? &answer->split.decode.infer : &answer->points[0].infer;
    char cut[32], prompt[32];
    json_t *json =
        json_pack("{s:b, s:s, s:f, s:f, s:f, s:f, s:b, s:f, s:f, s:f}", "disaggregated", (int)advice->is_disaggregated,
                  "cut", ash_serve_cut(infer, cut, sizeof(cut)), "replicas", advice->replicas, "prompt_replicas",
                  advice->prompt_replicas, "tokens_s", advice->tokens_s, "requests_s", advice->requests_s, "meets",
                  (int)advice->meets, "replicas_needed", advice->replicas_needed, "gpus_needed", advice->gpus_needed,
                  "machines_needed", advice->machines_needed);

    if (json != NULL && advice->is_disaggregated) {
        json_object_set_new(json, "prompt_cut",
                            json_string(ash_serve_cut(&answer->split.prompt.infer, prompt, sizeof(prompt))));
        json_object_set_new(json, "prompt_replicas_needed", json_real(advice->prompt_replicas_needed));
    }
    return json;
}

int ash_serve_print_json(const struct ash_serve_answer *answer, struct ash_err *err)
{
    const struct ash_serve_job *job = &answer->job;
    json_t *json = json_pack(
        "{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:o, s:o, s:o, s:o, s:o}", "model", job->shape.name,
        "machine", job->cluster.machine.name, "gpus", job->cluster.gpus, "in_tokens", job->in_tokens, "answer_tokens",
        job->answer_tokens, "thinking_tokens", job->thinking_tokens, "samples", job->samples, "verify_passes",
        job->verify_passes, "context_tokens", job->shape.context, "cache_bytes_per_token", ash_serve_cache_bytes(job),
        "disaggregation_pays", (int)answer->advice.is_disaggregated, "recommendation", encode_advice(answer), "cuts",
        encode_points(job, answer->points, answer->shown), "curve",
        encode_points(job, answer->curve, answer->curve_count), "disaggregated",
        answer->has_split ? encode_split(&answer->split) : json_null(), "ratios", encode_ratios(answer));

    return ash_cmd_print_json(json, err);
}

/* ---- picture ----------------------------------------------------------------------------------------------------- */

/* Tokens/s per GPU of a cut where the time between tokens is itl_s: the batch that gives it, or the largest below. */
static double at_latency(const struct ash_serve_answer *answer, const struct ash_serve_point *cut, double itl_s)
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

int ash_serve_draw(const struct ash_serve_answer *answer, const char *path, struct ash_err *err)
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
