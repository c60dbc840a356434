/* serve: every cut of a replica that divides, every batch size, and what users see. */
#include "plan/serve/serve.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH_STEP 1.15
#define RANKS_MAX 1024

const char *ash_serve_cut(const struct ash_infer *infer, char *buf, size_t buf_bytes)
{
    char pipeline[16] = "";

    if (infer->pp > 1) snprintf(pipeline, sizeof(pipeline), " pp%d", infer->pp);
    if (infer->attn_dp > 1)
        snprintf(buf, buf_bytes, "dp%d ep%d%s", infer->attn_dp, infer->ep, pipeline);
    else if (infer->ep > 1)
        snprintf(buf, buf_bytes, "tp%d ep%d%s", infer->tp, infer->ep, pipeline);
    else
        snprintf(buf, buf_bytes, "tp%d%s", infer->tp, pipeline);
    return buf;
}

double ash_serve_cache_bytes(const struct ash_serve_job *job)
{
    static const double element_bytes[ASH_GPU_PRECISIONS] = {2, 1, 0.5625}; /* fp4: a scale of 8 bits per 16 */

    return ash_shape_cache_bytes(&job->shape, element_bytes[job->cache]);
}

/* ---- one point --------------------------------------------------------------------------------------------------- */

static double out_tokens(const struct ash_serve_job *job)
{
    return job->thinking_tokens + job->answer_tokens;
}

/* Requests whose prompts one pass takes together: one for each group that attention is split into. */
static double together(const struct ash_serve_job *job, const struct ash_infer *infer, double batch)
{
    return fmax(1, fmin(batch / job->samples, infer->attn_dp));
}

/* Seconds of a replica for scoring the answers of these requests once each: their prompts are in the cache. */
static double verify_s(const struct ash_consts *consts, const struct ash_serve_job *job, const struct ash_infer *infer,
                       double requests)
{
    if (job->verify_passes <= 0) return 0;
    return job->verify_passes *
           ash_infer_prefill(consts, infer, requests * job->samples, out_tokens(job), job->in_tokens);
}

/* The longest pass that a step of the others may have to wait for: a prompt or an answer to be scored, or a chunk of
 * it. */
static double longest_pass_s(const struct ash_consts *consts, const struct ash_serve_job *job,
                             const struct ash_infer *infer)
{
    double tokens = fmax(job->in_tokens, job->verify_passes > 0 ? out_tokens(job) : 0);

    return ash_infer_prefill(consts, infer, 1, fmin(tokens, consts->infer_chunk), 0);
}

static void add_price(const struct ash_serve_job *job, struct ash_serve_point *point)
{
    double usd_s = job->usd_gpu_hour / 3600 * ash_infer_gpus(&point->infer);

    point->tokens_s_gpu = point->tokens_s / ash_infer_gpus(&point->infer);
    point->usd_million = usd_s / point->tokens_s * 1e6;
    point->usd_request = usd_s / point->requests_s;
}

static bool meets(const struct ash_serve_job *job, double ttft_s, double itl_s)
{
    return (job->ttft_limit_s <= 0 || ttft_s <= job->ttft_limit_s) &&
           (job->itl_limit_s <= 0 || itl_s <= job->itl_limit_s);
}

/* Waiting for the prompts of others: one server, equal service times, busy that share of the time. */
static double queue_s(double busy, double service_s)
{
    return busy < 0.99 ? busy * service_s / (2 * (1 - busy)) : service_s * 50;
}

void ash_serve_evaluate(const struct ash_consts *consts, const struct ash_serve_job *job, const struct ash_infer *infer,
                        double batch, struct ash_serve_point *point_out)
{
    double out = out_tokens(job), users = batch / job->samples, group = together(job, infer, batch);
    double prompt = ash_infer_prefill(consts, infer, group, job->in_tokens, 0);
    double verify = verify_s(consts, job, infer, group), work = (prompt + verify) / group; /* per request */
    struct ash_serve_point point = {.infer = *infer, .batch = batch};
    struct ash_infer_time step = {0};

    if (out > 1) ash_infer_pass(consts, infer, batch, 1, job->in_tokens + out / 2, &step);
    point.capacity = ash_infer_requests(consts, infer, job->in_tokens / job->samples + out);
    point.tokens_s = batch * out / (users * work + out * step.total);
    point.requests_s = point.tokens_s / out / job->samples;
    if (out > 1) point.itl_s = step.total + fmax(0, users - 1) * work / out;
    point.stall_s = step.total;
    if (users > 1 && out > 1) point.stall_s += longest_pass_s(consts, job, infer);
    point.ttft_s = prompt + step.total / 2 + queue_s(point.requests_s * work, work);
    point.request_s = point.ttft_s + out * point.itl_s + verify;
    point.meets = meets(job, point.ttft_s, point.itl_s);
    add_price(job, &point);
    *point_out = point;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static bool better(const struct ash_serve_point *a, const struct ash_serve_point *b)
{
    if (a->meets != b->meets) return a->meets;
    if (!a->meets) return a->itl_s * (1 + a->ttft_s) < b->itl_s * (1 + b->ttft_s);
    return a->tokens_s_gpu > b->tokens_s_gpu;
}

/* The best batch of one cut. Returns false where not even one request fits. */
static bool best_batch(const struct ash_consts *consts, const struct ash_serve_job *job, const struct ash_infer *infer,
                       struct ash_serve_point *point_out)
{
    double fit = floor(ash_infer_requests(consts, infer, job->in_tokens / job->samples + out_tokens(job)));
    double most = fmin(fit, consts->infer_batch * fmax(1, infer->attn_dp));
    struct ash_serve_point point;
    bool found = false;

    if (fit < job->samples) return false;
    for (double batch = job->samples; batch <= most; batch = fmax(batch + 1, floor(batch * BATCH_STEP))) {
        ash_serve_evaluate(consts, job, infer, batch, &point);
        if (found && !better(&point, point_out)) continue;
        *point_out = point;
        found = true;
    }
    ash_serve_evaluate(consts, job, infer, most, &point);
    if (!found || better(&point, point_out)) *point_out = point;
    return true;
}

static bool allowed(int wanted, int value)
{
    return wanted <= 0 || wanted == value;
}

/* Does this cut divide the model and fit the machines, and is it as requested? */
static bool possible(const struct ash_serve_job *job, const struct ash_infer *infer)
{
    const struct ash_shape *shape = &job->shape;
    int gpus = ash_infer_gpus(infer), ranks = gpus / infer->pp;

    if (gpus > job->cluster.gpus || infer->pp > shape->layers) return false;
    if (!allowed(job->tp, infer->tp) || !allowed(job->pp, infer->pp) || !allowed(job->ep, infer->ep) ||
        !allowed(job->attn_dp, infer->attn_dp))
        return false;
    if (infer->tp > 1 && fmod(shape->heads, infer->tp) != 0) return false;
    if (infer->ep > 1 && (shape->sparse_layers <= 0 || fmod(shape->experts, infer->ep) != 0)) return false;
    return infer->attn_dp > 1 ||
           ranks <= (job->cluster.domain_gpus > 1 ? job->cluster.domain_gpus : job->cluster.machine.gpus);
}

static struct ash_infer replica(const struct ash_serve_job *job, int tp, int pp, int ep, int attn_dp)
{
    return (struct ash_infer){.shape = job->shape,
                              .cluster = job->cluster,
                              .tp = tp,
                              .pp = pp,
                              .ep = ep,
                              .attn_dp = attn_dp,
                              .weights = job->weights,
                              .cache = job->cache,
                              .compute = job->compute};
}

typedef bool (*cut_fn)(const struct ash_infer *infer, void *ctx);

/* Call fn with every possible cut: tensor-parallel, and for experts also with attention split by requests. Stops where
 * fn returns false. */
static void each_cut(const struct ash_serve_job *job, cut_fn fn, void *ctx)
{
    static const int stages[] = {1, 2, 4, 8, 16};
    bool go = true;

    for (int ranks = 1; ranks <= RANKS_MAX && ranks <= job->cluster.gpus && go; ranks *= 2) {
        for (size_t s = 0; s < sizeof(stages) / sizeof(stages[0]) && go; s++) {
            struct ash_infer whole = replica(job, ranks, stages[s], 1, 1);
            struct ash_infer spread = replica(job, 1, stages[s], ranks, ranks);
            struct ash_infer mixed = replica(job, ranks, stages[s], ranks, 1);

            if (possible(job, &whole)) go = fn(&whole, ctx);
            if (go && ranks > 1 && possible(job, &spread)) go = fn(&spread, ctx);
            if (go && ranks > 1 && job->ep > 1 && possible(job, &mixed)) go = fn(&mixed, ctx);
        }
    }
}

struct search {
    const struct ash_consts *consts;
    const struct ash_serve_job *job;
    struct ash_serve_point *points;
    size_t count, max;
};

static bool add_cut(const struct ash_infer *infer, void *ctx)
{
    struct search *search = ctx;

    if (best_batch(search->consts, search->job, infer, &search->points[search->count])) search->count++;
    return search->count < search->max;
}

static int by_worth(const void *a, const void *b)
{
    const struct ash_serve_point *x = a, *y = b;

    return better(x, y) ? -1 : better(y, x);
}

size_t ash_serve_search(const struct ash_consts *consts, const struct ash_serve_job *job,
                        struct ash_serve_point *points, size_t max)
{
    struct search search = {consts, job, points, 0, max};

    if (max == 0) return 0;
    each_cut(job, add_cut, &search);
    qsort(points, search.count, sizeof(points[0]), by_worth);
    return search.count;
}

/* ---- what cannot be ---------------------------------------------------------------------------------------------- */

struct probe {
    const struct ash_consts *consts;
    const struct ash_serve_job *job;
    int cuts; /* that divide */
    bool fits;
    double least; /* bytes of weights per GPU over all cuts */
};

static bool look_at(const struct ash_infer *infer, void *ctx)
{
    struct probe *probe = ctx;
    double bytes = ash_infer_weight_bytes(infer), out = out_tokens(probe->job);

    probe->cuts++;
    probe->least = fmin(probe->least, bytes);
    if (ash_infer_requests(probe->consts, infer, probe->job->in_tokens / probe->job->samples + out) >=
        probe->job->samples)
        probe->fits = true;
    return true;
}

static int check_degrees(const struct ash_serve_job *job, struct ash_err *err)
{
    const struct ash_shape *shape = &job->shape;

    if ((job->ep > 1 || job->attn_dp > 1) && shape->sparse_layers <= 0)
        return ash_err_set(err, -EINVAL,
                           "%s has no experts: it cannot be cut by --ep or --attn-dp, only by --tp and --pp",
                           shape->name);
    if (job->tp > 1 && fmod(shape->heads, job->tp) != 0)
        return ash_err_set(err, -EINVAL, "--tp %d does not divide the %g heads of %s", job->tp, shape->heads,
                           shape->name);
    if (job->ep > 1 && fmod(shape->experts, job->ep) != 0)
        return ash_err_set(err, -EINVAL, "--ep %d does not divide the %g experts of %s", job->ep, shape->experts,
                           shape->name);
    if (job->tp > 1 && job->attn_dp > 1)
        return ash_err_set(err, -EINVAL,
                           "--tp cuts attention and --attn-dp splits its requests: give one of them, not both");
    if (fmax(1, job->pp) * fmax(fmax(job->tp, job->ep), job->attn_dp) > job->cluster.gpus)
        return ash_err_set(err, -EINVAL, "a replica of %g GPUs does not fit into a cluster of %d",
                           fmax(1, job->pp) * fmax(fmax(job->tp, job->ep), job->attn_dp), job->cluster.gpus);
    return 0;
}

/* GPUs of this kind over which the weights would fit with room for one request. */
static double gpus_needed(const struct ash_consts *consts, const struct ash_serve_job *job)
{
    struct ash_infer one = replica(job, 1, 1, 1, 1);
    double least = ash_infer_weight_bytes(&one) / ash_infer_usable_bytes(consts, job->cluster.machine.gpu);

    return exp2(ceil(log2(fmax(1, least)))); /* cuts are powers of two */
}

int ash_serve_check(const struct ash_consts *consts, const struct ash_serve_job *job, struct ash_err *err)
{
    struct probe probe = {.consts = consts, .job = job, .least = INFINITY};
    int rc = check_degrees(job, err);

    if (rc < 0) return rc;
    each_cut(job, look_at, &probe);
    if (probe.cuts == 0)
        return ash_err_set(err, -EINVAL,
                           "no cut of %s over %d GPUs divides its %g heads, %g layers and %g experts as asked; leave "
                           "out --tp, --pp, --ep or --attn-dp",
                           job->shape.name, job->cluster.gpus, job->shape.heads, job->shape.layers, job->shape.experts);
    if (probe.fits) return 0;
    return ash_err_set(err, -EINVAL,
                       "%s needs at least %.1f GB per GPU for its weights on %d x %s (%.0f GB each) and room for %g "
                       "tokens of cache: take about %.0f GPUs, fp8 or fp4 weights, an fp8 cache, or shorter requests",
                       job->shape.name, probe.least * 1e-9, job->cluster.gpus, job->cluster.machine.gpu->name,
                       job->cluster.machine.gpu->memory_bytes * 1e-9, job->in_tokens + job->samples * out_tokens(job),
                       gpus_needed(consts, job));
}
