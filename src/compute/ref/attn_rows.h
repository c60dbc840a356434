/* attn_rows - which keys a query row sees, and what both references of attention ask about rows. */
#ifndef ASH_COMPUTE_REF_ATTN_ROWS_H
#define ASH_COMPUTE_REF_ATTN_ROWS_H

#include <math.h>
#include "base/assert.h"
#include "compute/lanes.h"
#include "compute/ref/ref_priv.h"

#define ASH_REF_ATTN_MIN_UNITS 1

/* A range of keys, [begin, end). */
struct ash_ref_keys {
    size_t begin, end;
};

/* The keys that the query at position sees. */
static inline struct ash_ref_keys ash_ref_visible_keys(const struct ash_attn_args *args, size_t position)
{
    struct ash_ref_keys keys = {.begin = 0, .end = position + 1};

    if (args->window != 0 && keys.end > args->window) keys.begin = keys.end - args->window;
    if (args->chunk != 0) keys.begin = position / args->chunk * args->chunk;
    return keys;
}

/* The keys that query row i of a document sees. */
static inline struct ash_ref_keys ash_ref_seen_keys(const struct ash_attn_args *args, const struct ash_attn_seq *seq,
                                                    size_t i)
{
    struct ash_ref_keys keys = {.begin = 0, .end = seq->q_count};

    if (!args->both_ways) return ash_ref_visible_keys(args, seq->pos + i);
    ash_assert(seq->pos == 0 && seq->pages == NULL && args->chunk == 0);
    if (args->window != 0 && i > args->window) keys.begin = i - args->window;
    if (args->window != 0 && i + args->window + 1 < keys.end) keys.end = i + args->window + 1;
    return keys;
}

static inline size_t ash_ref_query_rows(const struct ash_attn_args *args)
{
    size_t rows = 0;

    for (size_t s = 0; s < args->seq_count; s++)
        rows += args->seqs[s].q_count;
    return rows;
}

/* The document of the n-th query row; *i_out is the row's number in it. */
static inline const struct ash_attn_seq *ash_ref_find_seq(const struct ash_attn_args *args, size_t n, size_t *i_out)
{
    const struct ash_attn_seq *seq = args->seqs;

    while (n >= seq->q_count)
        n -= seq++->q_count;
    *i_out = n;
    return seq;
}

/* Row sum of dout * out: what the softmax takes off every gradient of the row. */
static inline float ash_ref_row_delta(const struct ash_attn_args *args, size_t row, size_t h)
{
    size_t at = row * args->out_stride + h * args->dim_v;
    float lanes[ASH_LANES] = {0};

    for (size_t d = 0; d < args->dim_v; d++)
        lanes[d % ASH_LANES] = fmaf(args->dout[at + d], args->out[at + d], lanes[d % ASH_LANES]);
    return ash_lanes_fold(lanes);
}

static inline void ash_ref_check_attn(const struct ash_attn_args *args)
{
    ash_assert(args->dim_k <= ASH_ATTN_HEAD_MAX && args->dim_v <= ASH_ATTN_HEAD_MAX);
    ash_assert(args->kv_heads > 0 && args->heads % args->kv_heads == 0);
}

/* Run units over all query rows and heads. */
static inline void ash_ref_attn_forward(struct ash_exec *exec, const struct ash_attn_args *args,
                                        void (*units)(void *ctx, size_t begin, size_t end, int worker))
{
    ash_ref_check_attn(args);
    ash_workers_run(exec->workers, ash_ref_query_rows(args) * args->heads, ASH_REF_ATTN_MIN_UNITS, units, (void *)args);
}

/* Run queries over all query rows and heads, then keys over all keys and kv heads. */
static inline void ash_ref_attn_backward(struct ash_exec *exec, const struct ash_attn_args *args,
                                         void (*queries)(void *ctx, size_t begin, size_t end, int worker),
                                         void (*keys)(void *ctx, size_t begin, size_t end, int worker))
{
    size_t rows = ash_ref_query_rows(args);

    ash_ref_check_attn(args);
    ash_assert(args->kv_dtype == ASH_F32 || args->q_bf16 != NULL);
    ash_workers_run(exec->workers, rows * args->heads, ASH_REF_ATTN_MIN_UNITS, queries, (void *)args);
    ash_workers_run(exec->workers, rows * args->kv_heads, ASH_REF_ATTN_MIN_UNITS, keys, (void *)args);
}

#endif
