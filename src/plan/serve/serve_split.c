/* Prompts and answers on different replicas: prompts no longer interrupt answers, caches travel, and the two kinds must
 * be bought in the right proportion. */
#include "plan/serve/serve.h"

#include <math.h>

#include "base/assert.h"

#define UTILISATION 0.8   /* prompt replicas are not kept busier: their queue would grow */
#define NETWORK_SHARE 0.8 /* of the network's rate at which caches travel */
#define TRIED_MAX 8       /* cuts of each kind */
#define BISECTIONS 40

static double out_tokens(const struct ash_serve_job *job)
{
    return job->thinking_tokens + job->answer_tokens;
}

/* Requests that one prefill pass takes together: one for each attention group, as on a unified replica. */
static double pass_requests(const struct ash_infer *infer)
{
    return fmax(1, infer->attn_dp);
}

/* Seconds of one prefill pass with all of its requests. */
static double prompt_pass_s(const struct ash_consts *consts, const struct ash_serve_job *job,
                            const struct ash_infer *infer)
{
    return ash_infer_prefill(consts, infer, pass_requests(infer), job->in_tokens, 0);
}

/* Seconds that one request takes of a replica that only reads prompts (and scores answers). */
static double prompt_work(const struct ash_consts *consts, const struct ash_serve_job *job,
                          const struct ash_infer *infer)
{
    double requests = pass_requests(infer), pass_s = prompt_pass_s(consts, job, infer);

    if (job->verify_passes > 0)
        pass_s += job->verify_passes *
                  ash_infer_prefill(consts, infer, requests * job->samples, out_tokens(job), job->in_tokens);
    return pass_s / requests;
}

/* Such a replica as busy as it may be. */
static void prompt_replica(const struct ash_consts *consts, const struct ash_serve_job *job,
                           const struct ash_infer *infer, struct ash_serve_point *point)
{
    *point = (struct ash_serve_point){.infer = *infer, .batch = pass_requests(infer)};
    point->requests_s = UTILISATION / prompt_work(consts, job, infer);
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

/* ---- how many of each -------------------------------------------------------------------------------------------- */

/* Requests per second of this many prefill replicas with as many decode replicas as the rest of the cluster holds. */
static double rate_of(const struct ash_serve_job *job, const struct ash_serve_split *split, double prompts,
                      double *decodes_out)
{
    double prompt_gpus = ash_infer_gpus(&split->prompt.infer), decode_gpus = ash_infer_gpus(&split->decode.infer);
    double decodes = floor((job->cluster.gpus - prompts * prompt_gpus) / decode_gpus), rate;

    if (decodes < 1) return 0;
    rate = fmin(prompts * split->prompt.requests_s, decodes * split->decode.requests_s);
    *decodes_out = decodes;
    return rate;
}

/* The number of prompt replicas at which neither kind waits for the other, in whole numbers; 0: there is no room. */
static double balanced(const struct ash_serve_job *job, const struct ash_serve_split *split)
{
    double prompt_gpus = ash_infer_gpus(&split->prompt.infer), decode_gpus = ash_infer_gpus(&split->decode.infer);
    double in = split->prompt.requests_s, out = split->decode.requests_s, gpus = job->cluster.gpus;
    double even = floor(gpus * out / (prompt_gpus * out + decode_gpus * in)), best = 0, best_rate = 0, decodes;

    for (double prompts = fmax(1, even - 1); prompts <= fmax(1, even + 2); prompts++) {
        double rate = rate_of(job, split, prompts, &decodes);

        if (rate <= best_rate) continue;
        best_rate = rate;
        best = prompts;
    }
    return best;
}

static double network_rate(const struct ash_serve_job *job, const struct ash_infer *infer)
{
    const struct ash_machine *machine = &job->cluster.machine;

    return machine->net_bandwidth / machine->gpus * ash_infer_gpus(infer);
}

/* Mean time to a first token on replicas that are not busier than the requests make them. A request waits for whole
 * passes. */
static double first_token_s(const struct ash_consts *consts, const struct ash_serve_job *job,
                            const struct ash_serve_split *split)
{
    double work = prompt_work(consts, job, &split->prompt.infer), service = work * pass_requests(&split->prompt.infer);
    double busy = split->requests_s * work / split->prompt_replicas;

    return prompt_pass_s(consts, job, &split->prompt.infer) + busy * service / (2 * (1 - busy)) + split->transfer_s +
           split->itl_s;
}

/* The time of a step with no more sequences under way than the requests keep there. */
static double step_s(const struct ash_consts *consts, const struct ash_serve_job *job,
                     const struct ash_serve_split *split)
{
    double out = out_tokens(job), tokens_s = split->requests_s / split->decode_replicas * out * job->samples;
    double low = job->samples, high = split->decode.batch;
    struct ash_infer_time step;

    for (int i = 0; i < BISECTIONS && high - low > 1; i++) {
        double middle = floor((low + high) / 2);

        ash_infer_pass(consts, &split->decode.infer, middle, 1, job->in_tokens + out / 2, &step);
        if (middle / step.total < tokens_s)
            low = middle;
        else
            high = middle;
    }
    ash_infer_pass(consts, &split->decode.infer, high, 1, job->in_tokens + out / 2, &step);
    return step.total;
}

/* Fill what follows from the two kinds of replicas and the number for prefill. Returns false where there is no room. */
static bool complete(const struct ash_consts *consts, const struct ash_serve_job *job, double prompts,
                     struct ash_serve_split *split)
{
    double network = network_rate(job, &split->prompt.infer), gpus;

    split->requests_s = rate_of(job, split, prompts, &split->decode_replicas);
    if (split->requests_s <= 0) return false;
    split->prompt_replicas = prompts;
    split->prompts_wait = prompts * split->prompt.requests_s > split->requests_s * (1 + 1e-9);
    gpus =
        prompts * ash_infer_gpus(&split->prompt.infer) + split->decode_replicas * ash_infer_gpus(&split->decode.infer);
    split->cache_bytes = ash_serve_cache_bytes(job) * job->in_tokens;
    if (network > 0)
        split->transfer_s = split->cache_bytes / (NETWORK_SHARE * network) + job->cluster.machine.net_latency_s;
    split->itl_s = step_s(consts, job, split);
    split->ttft_s = first_token_s(consts, job, split);
    split->tokens_s = split->requests_s * out_tokens(job) * job->samples;
    split->tokens_s_gpu = split->tokens_s / gpus;
    split->usd_million = job->usd_gpu_hour / 3600 * gpus / split->tokens_s * 1e6;
    split->meets = (job->ttft_limit_s <= 0 || split->ttft_s <= job->ttft_limit_s) &&
                   (job->itl_limit_s <= 0 || split->itl_s <= job->itl_limit_s);
    return true;
}

static bool better(const struct ash_serve_split *a, const struct ash_serve_split *b)
{
    return a->meets != b->meets ? a->meets : a->tokens_s_gpu > b->tokens_s_gpu;
}

bool ash_serve_split_find(const struct ash_consts *consts, const struct ash_serve_job *job,
                          const struct ash_serve_point *points, size_t count, struct ash_serve_split *split_out)
{
    bool found = false;

    if (out_tokens(job) <= 1) return false; /* the prefill pass gives the only token */
    if (count > TRIED_MAX) count = TRIED_MAX;
    for (size_t p = 0; p < count; p++) {
        for (size_t d = 0; d < count; d++) {
            struct ash_serve_split split = {0};

            prompt_replica(consts, job, &points[p].infer, &split.prompt);
            if (!decode_replica(consts, job, &points[d].infer, &split.decode)) continue;
            if (!complete(consts, job, balanced(job, &split), &split)) continue;
            if (found && !better(&split, split_out)) continue;
            *split_out = split;
            found = true;
        }
    }
    return found;
}

size_t ash_serve_ratios(const struct ash_consts *consts, const struct ash_serve_job *job,
                        const struct ash_serve_split *best, struct ash_serve_split *splits, size_t max)
{
    double most =
        floor((double)(job->cluster.gpus - ash_infer_gpus(&best->decode.infer)) / ash_infer_gpus(&best->prompt.infer));
    size_t count = 0;

    for (double prompts = 1; prompts <= most && count < max;) {
        double next = fmax(prompts + 1, floor(prompts * 2));

        splits[count] = *best;
        if (complete(consts, job, prompts, &splits[count])) count++;
        /* twice as many each time, and the best so far */
        prompts = prompts < best->prompt_replicas && next > best->prompt_replicas ? best->prompt_replicas : next;
    }
    return count;
}

/* Replicas that answer this many requests per second. */
static double replicas_for(double arrivals_s, double requests_s)
{
    return arrivals_s > 0 ? ceil(arrivals_s / requests_s) : 0;
}

static void advise_split(const struct ash_serve_job *job, const struct ash_serve_split *split,
                         struct ash_serve_advice *advice)
{
    advice->is_disaggregated = true;
    advice->replicas = split->decode_replicas;
    advice->prompt_replicas = split->prompt_replicas;
    advice->tokens_s = split->tokens_s;
    advice->requests_s = split->requests_s;
    advice->meets = split->meets;
    advice->replicas_needed = replicas_for(job->arrivals_s, split->decode.requests_s);
    advice->prompt_replicas_needed = replicas_for(job->arrivals_s, split->prompt.requests_s);
    advice->gpus_needed = advice->replicas_needed * ash_infer_gpus(&split->decode.infer) +
                          advice->prompt_replicas_needed * ash_infer_gpus(&split->prompt.infer);
}

static void advise_unified(const struct ash_serve_job *job, const struct ash_serve_point *best,
                           struct ash_serve_advice *advice)
{
    advice->tokens_s = advice->replicas * best->tokens_s;
    advice->requests_s = advice->replicas * best->requests_s;
    advice->meets = best->meets;
    advice->replicas_needed = replicas_for(job->arrivals_s, best->requests_s);
    advice->gpus_needed = advice->replicas_needed * ash_infer_gpus(&best->infer);
}

void ash_serve_advise(const struct ash_serve_job *job, const struct ash_serve_point *best,
                      const struct ash_serve_split *split, struct ash_serve_advice *advice_out)
{
    struct ash_serve_advice advice = {.replicas = floor((double)job->cluster.gpus / ash_infer_gpus(&best->infer))};
    double unified_tokens_s = advice.replicas * best->tokens_s;

    ash_assert(advice.replicas >= 1);
    if (split != NULL) advice.split_gain = split->tokens_s / unified_tokens_s - 1;
    if (split != NULL && split->meets && (!best->meets || split->tokens_s > unified_tokens_s))
        advise_split(job, split, &advice);
    else
        advise_unified(job, best, &advice);
    advice.machines_needed = ceil(advice.gpus_needed / job->cluster.machine.gpus);
    *advice_out = advice;
}
