/* Prompts and answers on different replicas: prompts no longer interrupt answers, caches travel, and the two kinds must
 * be bought in the right proportion. */
#include "plan/serve.h"

#include <math.h>

#define UTILISATION 0.8 /* prompt replicas are not kept busier: their queue would grow */
#define TRIED_MAX 8     /* cuts of each kind */

static double out_tokens(const struct ash_serve_job *job)
{
    return job->thinking_tokens + job->answer_tokens;
}

/* A replica that only reads prompts (and scores answers). */
static void prompt_replica(const struct ash_consts *consts, const struct ash_serve_job *job,
                           const struct ash_infer *infer, struct ash_serve_point *point)
{
    double work = ash_infer_prefill(consts, infer, 1, job->in_tokens, 0);

    *point = (struct ash_serve_point){.infer = *infer, .batch = 1};
    point->ttft_s = work + UTILISATION * work / (2 * (1 - UTILISATION));
    if (job->verify_passes > 0)
        work +=
            job->samples * job->verify_passes * ash_infer_prefill(consts, infer, 1, out_tokens(job), job->in_tokens);
    point->requests_s = UTILISATION / work;
}

/* A replica that only decodes: the largest batch whose steps keep the limit. */
static bool decode_replica(const struct ash_consts *consts, const struct ash_serve_job *job,
                           const struct ash_infer *infer, struct ash_serve_point *point)
{
    double out = out_tokens(job), batch = floor(ash_infer_requests(consts, infer, job->in_tokens / job->samples + out));
    struct ash_infer_time step;

    batch = fmin(batch, consts->infer_batch * fmax(1, infer->attn_dp));
    for (; batch >= job->samples; batch = floor(batch * 0.95)) {
        ash_infer_pass(consts, infer, batch, 1, job->in_tokens + out / 2, &step);
        if (job->itl_limit_s <= 0 || step.total <= job->itl_limit_s) break;
    }
    if (batch < job->samples) return false;
    *point = (struct ash_serve_point){.infer = *infer, .batch = batch, .itl_s = step.total};
    point->tokens_s = batch / step.total;
    point->requests_s = point->tokens_s / out / job->samples;
    return true;
}

/* How many of each the cluster holds when the slower kind decides: whole numbers around the point where neither waits.
 */
static void balance(const struct ash_serve_job *job, struct ash_serve_split *split)
{
    double prompt_gpus = ash_infer_gpus(&split->prompt.infer), decode_gpus = ash_infer_gpus(&split->decode.infer);
    double in = split->prompt.requests_s, out = split->decode.requests_s, gpus = job->cluster.gpus;
    double even = floor(gpus * out / (prompt_gpus * out + decode_gpus * in));

    for (double prompts = fmax(1, even - 1); prompts <= fmax(1, even + 2); prompts++) {
        double decodes = floor((gpus - prompts * prompt_gpus) / decode_gpus), rate;

        if (decodes < 1) continue;
        rate = fmin(prompts * in, decodes * out);
        if (rate <= split->requests_s) continue;
        split->requests_s = rate;
        split->prompt_replicas = prompts;
        split->decode_replicas = ceil(rate / out - 1e-9);
    }
}

static double network_rate(const struct ash_serve_job *job, const struct ash_infer *infer)
{
    const struct ash_machine *machine = &job->cluster.machine;

    return machine->net_bandwidth / machine->gpus * ash_infer_gpus(infer);
}

static void complete(const struct ash_serve_job *job, struct ash_serve_split *split)
{
    static const double element_bytes[ASH_PRECISION_COUNT] = {2, 1, 0.5625};
    double gpus = split->prompt_replicas * ash_infer_gpus(&split->prompt.infer) +
                  split->decode_replicas * ash_infer_gpus(&split->decode.infer);
    double network = network_rate(job, &split->prompt.infer);

    split->cache_bytes = ash_shape_cache_bytes(&job->shape, element_bytes[job->cache]) * job->in_tokens;
    if (network > 0) split->transfer_s = split->cache_bytes / (0.8 * network) + job->cluster.machine.net_latency_s;
    split->ttft_s = split->prompt.ttft_s + split->transfer_s + split->decode.itl_s;
    split->itl_s = split->decode.itl_s;
    split->tokens_s = split->requests_s * out_tokens(job) * job->samples;
    split->tokens_s_gpu = split->tokens_s / gpus;
    split->usd_million = job->usd_gpu_hour / 3600 * gpus / split->tokens_s * 1e6;
    split->meets = (job->ttft_limit_s <= 0 || split->ttft_s <= job->ttft_limit_s) &&
                   (job->itl_limit_s <= 0 || split->itl_s <= job->itl_limit_s);
}

static bool better(const struct ash_serve_split *a, const struct ash_serve_split *b)
{
    return a->meets != b->meets ? a->meets : a->tokens_s_gpu > b->tokens_s_gpu;
}

bool ash_serve_split(const struct ash_consts *consts, const struct ash_serve_job *job,
                     const struct ash_serve_point *points, size_t count, struct ash_serve_split *split_out)
{
    bool found = false;

    if (count > TRIED_MAX) count = TRIED_MAX;
    for (size_t p = 0; p < count; p++) {
        for (size_t d = 0; d < count; d++) {
            struct ash_serve_split split = {0};

            prompt_replica(consts, job, &points[p].infer, &split.prompt);
            if (!decode_replica(consts, job, &points[d].infer, &split.decode)) continue;
            balance(job, &split);
            if (split.requests_s <= 0) continue;
            complete(job, &split);
            if (found && !better(&split, split_out)) continue;
            *split_out = split;
            found = true;
        }
    }
    return found;
}
