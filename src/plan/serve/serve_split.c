/* Prompts and answers on different replicas: prompts no longer interrupt answers, caches travel, and the two kinds must
 * be bought in the right proportion. */
#include "plan/serve/serve.h"

#include <math.h>

#include "base/assert.h"

#define UTILISATION 0.8   /* prompt replicas are not kept busier: their queue would grow */
#define NETWORK_SHARE 0.8 /* of the network's rate at which caches travel */
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

/* Requests per second of this many prefill replicas with as many decode replicas as the rest of the GPUs holds. */
static double rate_of(const struct ash_serve_split *split, double gpus, double prompts, double *decodes_out)
{
    double prompt_gpus = ash_infer_gpus(&split->prompt.infer), decode_gpus = ash_infer_gpus(&split->decode.infer);
    double decodes = floor((gpus - prompts * prompt_gpus) / decode_gpus), rate;

    if (decodes < 1) return 0;
    rate = fmin(prompts * split->prompt.requests_s, decodes * split->decode.requests_s);
    *decodes_out = decodes;
    return rate;
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

/* Fill what follows from the two kinds of replicas, all GPUs and the number of replicas for prefill. Returns false if
 * there is no room. */
static bool complete(const struct ash_consts *consts, const struct ash_serve_job *job, double gpus, double prompts,
                     struct ash_serve_split *split)
{
    double network = network_rate(job, &split->prompt.infer);

    split->requests_s = rate_of(split, gpus, prompts, &split->decode_replicas);
    if (split->requests_s <= 0) return false;
    split->prompt_replicas = prompts;
    split->prompts_wait = prompts * split->prompt.requests_s > split->requests_s * (1 + 1e-9);
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

/* ---- the best split ---------------------------------------------------------------------------------------------- */

/* Is replica `a` as good as b at every size? Both are powers of two: copies of a small one fill the place of a large
 * one. */
static bool dominates(const struct ash_serve_point *a, const struct ash_serve_point *b, bool by_latency)
{
    double a_gpus = ash_infer_gpus(&a->infer), b_gpus = ash_infer_gpus(&b->infer);

    if (by_latency && a->ttft_s > b->ttft_s) return false;
    return a_gpus <= b_gpus && a->requests_s / a_gpus >= b->requests_s / b_gpus;
}

/* Keep a replica that no other dominates. Returns how many there are. */
static size_t add_kind(struct ash_serve_point *kinds, size_t count, const struct ash_serve_point *kind, bool by_latency)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (dominates(&kinds[i], kind, by_latency)) return count;
    for (size_t i = 0; i < count; i++)
        if (!dominates(kind, &kinds[i], by_latency)) kinds[kept++] = kinds[i];
    if (kept < ASH_SERVE_KINDS_MAX) kinds[kept++] = *kind;
    ash_assert(kept <= ASH_SERVE_KINDS_MAX);
    return kept;
}

void ash_serve_kinds_find(const struct ash_consts *consts, const struct ash_serve_job *job,
                          const struct ash_serve_point *points, size_t count, struct ash_serve_kinds *kinds_out)
{
    kinds_out->prompt_count = kinds_out->decode_count = 0;
    if (out_tokens(job) <= 1) return; /* the prefill pass gives the only token */
    for (size_t i = 0; i < count; i++) {
        struct ash_serve_point prompt, decode;

        prompt_replica(consts, job, &points[i].infer, &prompt);
        prompt.ttft_s = prompt_pass_s(consts, job, &points[i].infer);
        if (job->ttft_limit_s <= 0 || prompt.ttft_s < job->ttft_limit_s)
            kinds_out->prompt_count =
                add_kind(kinds_out->prompts, kinds_out->prompt_count, &prompt, job->ttft_limit_s > 0);
        if (decode_replica(consts, job, &points[i].infer, &decode))
            kinds_out->decode_count = add_kind(kinds_out->decodes, kinds_out->decode_count, &decode, false);
    }
}

/* Try every number of prompt replicas around the one at which neither kind waits for the other. */
static bool try_pair(const struct ash_consts *consts, const struct ash_serve_job *job, double gpus,
                     struct ash_serve_split *split, struct ash_serve_split *best)
{
    double prompt_gpus = ash_infer_gpus(&split->prompt.infer), decode_gpus = ash_infer_gpus(&split->decode.infer);
    double in = split->prompt.requests_s, out = split->decode.requests_s, decodes;
    double even = floor(gpus * out / (prompt_gpus * out + decode_gpus * in));
    bool found = false;

    for (double prompts = fmax(1, even - 1); prompts <= fmax(1, even + 2); prompts++) {
        double rate = rate_of(split, gpus, prompts, &decodes);

        if (rate <= 0 || (best->meets && rate <= best->requests_s * (1 + 1e-9))) continue;
        if (!complete(consts, job, gpus, prompts, split)) continue;
        if (!split->meets && (best->meets || rate <= best->requests_s * (1 + 1e-9))) continue;
        *best = *split;
        found = true;
    }
    return found;
}

bool ash_serve_split_find(const struct ash_consts *consts, const struct ash_serve_job *job,
                          const struct ash_serve_kinds *kinds, double gpus, struct ash_serve_split *split_out)
{
    struct ash_serve_split best = {0};
    bool found = false;

    for (size_t p = 0; p < kinds->prompt_count; p++) {
        for (size_t d = 0; d < kinds->decode_count; d++) {
            struct ash_serve_split split = {.prompt = kinds->prompts[p], .decode = kinds->decodes[d]};

            if (try_pair(consts, job, gpus, &split, &best)) found = true;
        }
    }
    if (found) *split_out = best;
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
        if (complete(consts, job, job->cluster.gpus, prompts, &splits[count])) count++;
        /* twice as many each time, and the best so far */
        prompts = prompts < best->prompt_replicas && next > best->prompt_replicas ? best->prompt_replicas : next;
    }
    ash_assert(count <= max);
    return count;
}
