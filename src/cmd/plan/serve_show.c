/* What `ashlar plan serve` found, as tables, as JSON and as a picture. */
#include "cmd/plan/serve_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/table.h"
#include "cmd/cmd.h"
#include "cmd/plan/text.h"
#include "cmd/units.h"
#include "plan/chart.h"
#include "plan/train/layout.h"

#define DRAWN_MAX 4
#define DRAWN_POINTS 40
#define HOURS_PER_MONTH 730

/* Has the plan replicas for prompts alone? */
static bool is_disaggregated(const struct ash_serve_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        if (plan->parts[i].is_split) return true;
    return false;
}

#define READING_ITL_S 0.05 /* between tokens: 20 a second are faster than one reads */

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
    struct ash_table table = {
        .heads = "replica|>GPUs|>weights|>caches|>batch|>TTFT|>ITL|>stall|>tok/s|>tok/s/GPU|>$/M out|"};

    for (size_t i = 0; i < answer->shown; i++) {
        const struct ash_serve_point *point = &answer->points[i];
        char cut[32], price[24], weights[ASH_UNITS_BYTES];
        char ttft[ASH_PLAN_TEXT_BYTES], itl[ASH_PLAN_TEXT_BYTES], stall[ASH_PLAN_TEXT_BYTES];

        ash_table_row(&table, "%s|%d|%s|%.0f|%.0f|%s|%s|%s|%.0f|%.0f|%s|%s",
                      ash_serve_cut(&point->infer, cut, sizeof(cut)), ash_infer_gpus(&point->infer),
                      ash_units_bytes((size_t)ash_infer_weight_bytes(&point->infer), weights, sizeof(weights)),
                      point->capacity, point->batch, ash_plan_text_seconds(point->ttft_s, ttft),
                      ash_plan_text_seconds(point->itl_s, itl), ash_plan_text_seconds(point->stall_s, stall),
                      point->tokens_s, point->tokens_s_gpu, dollars(point->usd_million, price, sizeof(price)),
                      point->meets ? "" : "misses the limits");
    }
    ash_table_print(&table, stdout);
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
           is_disaggregated(&answer->advice.whole) ? "pays" : "does not pay", 100 * answer->advice.split_gain,
           ash_plan_text_seconds(split->itl_s, gap), ash_plan_text_seconds(best->stall_s, stall));
}

/* The cost of a request with several answers and long thinking. */
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

/* The replicas of a plan: "2 x tp4 with 64 sequences each + 1 x tp8 ...". */
static void print_parts(const struct ash_serve_plan *plan)
{
    char cut[32], prompt[32];

    for (size_t i = 0; i < plan->count; i++) {
        const struct ash_serve_part *part = &plan->parts[i];
        const struct ash_serve_split *split = &part->split;

        printf("%s", i > 0 ? " + " : "");
        if (part->is_split)
            printf("%.0f x %s for prompts and %.0f x %s for answers with %.0f sequence%s each", split->prompt_replicas,
                   ash_serve_cut(&split->prompt.infer, prompt, sizeof(prompt)), split->decode_replicas,
                   ash_serve_cut(&split->decode.infer, cut, sizeof(cut)), split->decode.batch,
                   ash_plan_plural(split->decode.batch));
        else
            printf("%.0f x %s with %.0f sequence%s each", part->replicas,
                   ash_serve_cut(&part->point.infer, cut, sizeof(cut)), part->point.batch,
                   ash_plan_plural(part->point.batch));
    }
}

/* The price of all machines of a plan. */
static void print_price(const struct ash_serve_plan *plan)
{
    char million[24];

    if (plan->usd_hour <= 0) return;
    printf(", $%.2f an hour, $%.0f a month, %s per million tokens", plan->usd_hour, plan->usd_hour * HOURS_PER_MONTH,
           dollars(plan->usd_million, million, sizeof(million)));
}

/* Replicas, GPUs and machines for the required requests. */
static void print_needed(const struct ash_serve_answer *answer)
{
    const struct ash_serve_plan *needed = &answer->advice.needed;
    const struct ash_cluster *cluster = &answer->job.cluster;
    double arrivals = answer->job.arrivals_s;

    if (needed->count == 0) return;
    printf("%g request%s/s need%s ", arrivals, ash_plan_plural(arrivals), arrivals == 1 ? "s" : "");
    print_parts(needed);
    printf(" = %.0f GPU%s = %.0f x %s", needed->gpus, ash_plan_plural(needed->gpus), needed->machines,
           cluster->machine.name);
    if (needed->gpus > cluster->gpus)
        printf(", more than the %d GPU%s there are", cluster->gpus, ash_plan_plural(cluster->gpus));
    print_price(needed);
    printf("\n");
}

/* Without a limit the verdict is for throughput alone: print the latency for a reader. */
static void print_reading(const struct ash_serve_answer *answer)
{
    const struct ash_serve_plan *whole = &answer->advice.whole;
    char gap[ASH_PLAN_TEXT_BYTES];
    double itl_s = 0;

    for (size_t i = 0; i < whole->count; i++)
        itl_s = fmax(itl_s, whole->parts[i].is_split ? whole->parts[i].split.itl_s : whole->parts[i].point.itl_s);
    if (answer->job.itl_limit_s > 0 || itl_s <= READING_ITL_S) return;
    printf("note: that is %s between tokens, %.2g tokens/s for a user; --itl-ms %.0f plans for readers\n",
           ash_plan_text_seconds(itl_s, gap), 1 / itl_s, READING_ITL_S * 1e3);
}

static void print_verdict(const struct ash_serve_answer *answer)
{
    const struct ash_serve_plan *whole = &answer->advice.whole;
    int gpus = answer->job.cluster.gpus;
    char rate[ASH_PLAN_TEXT_BYTES], tokens[ASH_PLAN_TEXT_BYTES];

    printf("\nverdict: ");
    print_parts(whole);
    printf(": %s tok/s, %s requests/s on %d GPU%s", ash_plan_text_rate(whole->tokens_s, tokens),
           ash_plan_text_rate(whole->requests_s, rate), gpus, ash_plan_plural(gpus));
    if (whole->gpus < gpus) printf(" (%.0f idle)", gpus - whole->gpus);
    print_price(whole);
    if (!whole->meets) printf("; no cut meets the limits, this is the nearest");
    printf("\n");
    print_reading(answer);
    print_needed(answer);
}

/* Requested features that the model or the GPU lacks. */
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

static json_t *encode_part(const struct ash_serve_part *part)
{
    const struct ash_infer *infer = part->is_split ? &part->split.decode.infer : &part->point.infer;
    char cut[32], prompt[32];
    json_t *json = json_pack("{s:b, s:s, s:f, s:f, s:f, s:f}", "disaggregated", (int)part->is_split, "cut",
                             ash_serve_cut(infer, cut, sizeof(cut)), "replicas",
                             part->is_split ? part->split.decode_replicas : part->replicas, "batch",
                             part->is_split ? part->split.decode.batch : part->point.batch, "gpus", part->gpus,
                             "requests_s", part->requests_s);

    if (json == NULL || !part->is_split) return json;
    json_object_set_new(json, "prompt_cut",
                        json_string(ash_serve_cut(&part->split.prompt.infer, prompt, sizeof(prompt))));
    json_object_set_new(json, "prompt_replicas", json_real(part->split.prompt_replicas));
    return json;
}

/* The plan of given machines; null: none were given. */
static json_t *encode_plan(const struct ash_serve_plan *plan)
{
    json_t *parts = json_array();

    if (plan->count == 0) {
        json_decref(parts);
        return json_null();
    }
    for (size_t i = 0; i < plan->count; i++)
        json_array_append_new(parts, encode_part(&plan->parts[i]));
    return json_pack("{s:b, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "disaggregated", (int)is_disaggregated(plan),
                     "parts", parts, "gpus", plan->gpus, "machines", plan->machines, "tokens_s", plan->tokens_s,
                     "requests_s", plan->requests_s, "usd_hour", plan->usd_hour, "usd_million", plan->usd_million,
                     "meets", (int)plan->meets);
}

int ash_serve_print_json(const struct ash_serve_answer *answer, struct ash_err *err)
{
    const struct ash_serve_job *job = &answer->job;
    json_t *json = json_pack(
        "{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "model",
        job->shape.name, "machine", job->cluster.machine.name, "gpus", job->cluster.gpus, "in_tokens", job->in_tokens,
        "answer_tokens", job->answer_tokens, "thinking_tokens", job->thinking_tokens, "samples", job->samples,
        "verify_passes", job->verify_passes, "context_tokens", job->shape.context, "cache_bytes_per_token",
        ash_serve_cache_bytes(job), "disaggregation_pays", (int)is_disaggregated(&answer->advice.whole),
        "recommendation", encode_plan(&answer->advice.whole), "needed", encode_plan(&answer->advice.needed), "cuts",
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
