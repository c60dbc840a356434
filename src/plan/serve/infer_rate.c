/* From passes to what users see: throughput, time to the first token and between tokens, under a load. */
#include "plan/serve/infer_time.h"

#include <math.h>

#include "base/assert.h"

#define LITTLE_ROUNDS 60

static double pass_s(const struct ash_consts *consts, const struct ash_infer *infer, double batch, double new_tokens,
                     double context)
{
    struct ash_infer_time time;

    ash_infer_pass(consts, infer, batch, new_tokens, context, &time);
    return time.total;
}

double ash_infer_prefill(const struct ash_consts *consts, const struct ash_infer *infer, double requests,
                         double new_tokens, double context_tokens)
{
    double groups = fmax(1, infer->attn_dp), passes;

    ash_assert(infer->pp >= 1);
    if (requests < groups) { /* each has a group to itself */
        passes = ceil(new_tokens / consts->infer_chunk);
        return passes *
               pass_s(consts, infer, requests, new_tokens / passes, context_tokens + new_tokens * (1 - 1 / passes) / 2);
    }
    passes = fmax(1, ceil(requests * new_tokens / consts->infer_chunk / groups));
    return passes * pass_s(consts, infer, requests / passes, new_tokens, context_tokens);
}

static double prefill_s(const struct ash_consts *consts, const struct ash_infer *infer, double requests, double tokens)
{
    return ash_infer_prefill(consts, infer, requests, tokens, 0);
}

/* A decode step of `batch` sequences in the middle of their answers. */
static double decode_s(const struct ash_consts *consts, const struct ash_infer *infer,
                       const struct ash_infer_load *load, double batch)
{
    return pass_s(consts, infer, batch, 1, load->in_tokens + load->out_tokens / 2);
}

/* Batch after batch, all of whose answers are equally long. */
static double batches_s(const struct ash_consts *consts, const struct ash_infer *infer,
                        const struct ash_infer_load *load, double batch)
{
    return prefill_s(consts, infer, batch, load->in_tokens) + load->out_tokens * decode_s(consts, infer, load, batch);
}

/* A table of work done at once: whole batches, then the rest. */
static void predict_offline(const struct ash_consts *consts, const struct ash_infer *infer,
                            const struct ash_infer_load *load, double batch, struct ash_infer_rate *rate)
{
    double requests = load->requests > 0 && load->continuous ? fmax(load->requests, batch) : batch;
    double whole = floor(requests / batch), rest = requests - whole * batch;
    double seconds = whole * batches_s(consts, infer, load, batch);

    if (rest >= 1) seconds += batches_s(consts, infer, load, rest);
    rate->out_tokens_s = requests * load->out_tokens / seconds;
    rate->tpot_s = decode_s(consts, infer, load, batch);
    rate->ttft_s = prefill_s(consts, infer, load->continuous ? 1 : batch, load->in_tokens);
}

/* A steady stream: as one request ends the next begins, and its prompt is read between the steps of the others. */
static void predict_steady(const struct ash_consts *consts, const struct ash_infer *infer,
                           const struct ash_infer_load *load, double batch, struct ash_infer_rate *rate)
{
    double together = fmin(batch, fmax(1, infer->attn_dp)), step = decode_s(consts, infer, load, batch);
    double prompt = prefill_s(consts, infer, together, load->in_tokens), each = prompt / together;

    rate->out_tokens_s = batch * load->out_tokens / (batch * each + load->out_tokens * step);
    rate->ttft_s = prompt;
    rate->tpot_s = step + each * (batch - 1) / load->out_tokens;
}

/* Seconds that a prompt costs a busy replica, which reads as many together as a pass takes. */
static double shared_prompt_s(const struct ash_consts *consts, const struct ash_infer *infer, double tokens)
{
    double together = fmax(1, floor(consts->infer_chunk / tokens)) * fmax(1, infer->attn_dp);

    return prefill_s(consts, infer, together, tokens) / together;
}

/* Tokens/s from the first arrival until the last answer is there: requests that come to an end leave a tail. */
static double until_answered(const struct ash_infer_load *load, double tpot_s)
{
    double wanted = load->arrivals_s * load->out_tokens;

    if (load->requests <= 0) return wanted;
    return load->requests * load->out_tokens / (load->requests / load->arrivals_s + tpot_s * load->out_tokens);
}

/* Requests arrive by themselves: how many are under way follows from how long they take (Little's law). */
static void predict_arrivals(const struct ash_consts *consts, const struct ash_infer *infer,
                             const struct ash_infer_load *load, double batch_max, struct ash_infer_rate *rate)
{
    double batch = 1, tpot = 0, busy = load->arrivals_s * shared_prompt_s(consts, infer, load->in_tokens);
    double wanted = load->arrivals_s * load->out_tokens;

    predict_offline(consts, infer, load, batch_max, rate); /* the most there can be */
    rate->saturated = wanted >= rate->out_tokens_s || busy > 0.9;
    if (rate->saturated) {
        rate->out_tokens_s = fmin(rate->out_tokens_s, until_answered(load, rate->tpot_s));
        return;
    }
    for (int i = 0; i < LITTLE_ROUNDS; i++) {
        tpot = decode_s(consts, infer, load, fmax(1, batch)) / (1 - busy);
        batch = (batch + fmin(batch_max, wanted * tpot)) / 2;
    }
    rate->tpot_s = tpot;
    rate->ttft_s = prefill_s(consts, infer, 1, load->in_tokens) / (1 - busy);
    rate->concurrency = fmax(1, batch);
    rate->out_tokens_s = fmin(until_answered(load, tpot), rate->out_tokens_s);
}

void ash_infer_predict(const struct ash_consts *consts, const struct ash_infer *infer,
                       const struct ash_infer_load *load, struct ash_infer_rate *rate_out)
{
    double fit = ash_infer_requests(consts, infer, load->in_tokens + load->out_tokens);
    double batch = fmin(fit, consts->infer_batch * fmax(1, infer->attn_dp));
    struct ash_infer_rate rate = {.fits = fit >= 1};

    if (load->concurrency > 0)
        batch = rate.fits && !load->continuous ? load->concurrency : fmin(fit, load->concurrency);
    if (load->requests > 0) batch = fmin(batch, load->requests);
    if (!rate.fits) {
        *rate_out = rate;
        return;
    }
    batch = fmax(1, batch);
    rate.concurrency = batch;
    if (load->arrivals_s > 0)
        predict_arrivals(consts, infer, load, batch, &rate);
    else if (load->continuous && load->concurrency > 0 && load->requests <= 0)
        predict_steady(consts, infer, load, batch, &rate);
    else
        predict_offline(consts, infer, load, batch, &rate);
    rate.out_tokens_s_gpu = rate.out_tokens_s / ash_infer_gpus(infer);
    rate.requests_s = rate.out_tokens_s / load->out_tokens;
    *rate_out = rate;
}
