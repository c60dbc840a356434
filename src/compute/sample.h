/* sample - the arithmetic of ops_sample.h, for every backend. */
#ifndef ASH_COMPUTE_SAMPLE_H
#define ASH_COMPUTE_SAMPLE_H

#include "base/device_code.h"
#include "compute/mathf.h"
#include "compute/ops_sample.h"

/* exp((logit - top) / temperature): 1 for the best token. */
ASH_INLINE float ash_sample_weight(float logit, float top, double temperature)
{
    return ash_expf((float)(((double)logit - (double)top) / temperature));
}

/* A weight (0 to 1) in units. */
ASH_INLINE uint64_t ash_sample_units(float weight)
{
    return (uint64_t)(weight * 0x1p40f);
}

/* Units that reach a share (above 0) of total. */
ASH_INLINE uint64_t ash_sample_need(double share, uint64_t total)
{
    double exact = share * (double)total;
    uint64_t whole = (uint64_t)exact;

    return (double)whole < exact ? whole + 1 : whole;
}

/* p of a token among tokens whose units are total. */
ASH_INLINE float ash_sample_share(float weight, uint64_t total)
{
    return (float)((double)weight / ((double)total * 0x1p-40));
}

/* A token's part of the expected surprise, in units. */
ASH_INLINE uint64_t ash_sample_surprise(float p)
{
    return p > 0.0f && p < 1.0f ? ash_sample_units(-p * ash_logf(p)) : 0;
}

/* The distance of a token's surprise from the expected one, which has sum units. */
ASH_INLINE float ash_sample_distance(float p, uint64_t sum)
{
    float gap = -ash_logf(p) - (float)((double)sum * 0x1p-40);

    return gap < 0.0f ? -gap : gap;
}

/* The logit of a token that occurred: once for occurring, and where asked for each time. */
ASH_INLINE float ash_sample_penalise(float logit, const struct ash_token_count *count, float repetition, float presence,
                                     float frequency)
{
    if (count->in_text > 0) logit = logit > 0.0f ? logit / repetition : logit * repetition;
    if (count->in_answer > 0) logit = logit - frequency * (float)count->in_answer - presence;
    return logit;
}

/* Do filters want tokens in the order of logits? Without them the draw is in the order of ids. */
ASH_INLINE bool ash_sample_sorts(const struct ash_sample_row *row, size_t vocab)
{
    return (row->top_k > 0 && row->top_k < vocab) || row->top_p < 1.0 || row->typical_p < 1.0;
}

#if !defined(__CUDACC__)

/* The unit at which to draw: random of 2^64 parts of total. */
static inline uint64_t ash_sample_mark(uint64_t random, uint64_t total)
{
    return (uint64_t)((unsigned __int128)random * total >> 64);
}

/* The row's logits, edited: its own where there is no edit, else edited, [vocab]. spare [vocab] is written. */
const float *ash_sample_edit(const struct ash_sample_row *row, const float *logits, size_t vocab, float *edited,
                             float *spare);
/* The most likely token, or what ash_sample_ops.choose says instead of one. */
int32_t ash_sample_best(const float *logits, size_t vocab);

#endif
#endif
