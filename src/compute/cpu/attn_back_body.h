/* attn_back_body - the backward pass of attention of one instruction set. Include after attn_body.h.
 * A unit is one kv head of one document: it owns dk and dv of that head and dq of the heads that read it. Blocks of
 * keys are the outer loop, ascending, so dq's chains run over keys in order; inside, query heads and query rows ascend,
 * as dk's and dv's chains want. Each pair of blocks is computed once. */
#ifndef ASH_COMPUTE_ATTN_BACK_BODY_H
#define ASH_COMPUTE_ATTN_BACK_BODY_H

/* A block of keys and a block of query rows, in scratch. pad_k, pad_v: the padded dims. */
struct back {
    const struct ash_attn_args *args;
    const struct ash_attn_seq *seq;
    size_t base, count; /* keys of the block */
    size_t first, rows; /* query rows of the block */
    size_t h, g;        /* query head, kv head */
    size_t pad_k, pad_v;
    float *keys_turned, *values_turned; /* [dim, block] */
    float *keys_copy, *q_copy;          /* [block, pad_k] */
    float *dout_copy;                   /* [block, pad_v] */
    float *dk, *dv;                     /* sums of this block's keys: [block, pad] */
    float *p, *ds;                      /* [query row, key], each [block, block] */
};

static void back_init(struct back *back, struct ash_exec *exec, const struct ash_attn_args *args, int worker)
{
    size_t block = ASH_ATTN_BLOCK, pad_k = attn_pad(args->dim_k), pad_v = attn_pad(args->dim_v);
    float *memory = ash_exec_scratch(exec, worker, block * (4 * pad_k + 3 * pad_v + 2 * block) * sizeof(*memory));

    *back = (struct back){.args = args, .pad_k = pad_k, .pad_v = pad_v};
    back->keys_turned = memory;
    back->keys_copy = back->keys_turned + block * pad_k;
    back->q_copy = back->keys_copy + block * pad_k;
    back->dk = back->q_copy + block * pad_k;
    back->values_turned = back->dk + block * pad_k;
    back->dout_copy = back->values_turned + block * pad_v;
    back->dv = back->dout_copy + block * pad_v;
    back->p = back->dv + block * pad_v;
    back->ds = back->p + block * block;
}

/* Copy count rows of dim floats between a tensor and padded scratch rows. */
static void load_padded(float *to, size_t pad, const float *from, size_t stride, size_t count, size_t dim)
{
    for (size_t r = 0; r < count; r++) {
        memcpy(to + r * pad, from + r * stride, dim * sizeof(*to));
        memset(to + r * pad + dim, 0, (pad - dim) * sizeof(*to));
    }
}

static void store_padded(const float *from, size_t pad, float *to, size_t stride, size_t count, size_t dim)
{
    for (size_t r = 0; r < count; r++)
        memcpy(to + r * stride, from + r * pad, dim * sizeof(*to));
}

/* p and ds of one query row with the keys that it sees in the block. */
static void back_scores(const struct back *back, const float *q, const float *dout, size_t row, struct keys seen,
                        float *p, float *ds)
{
    const struct ash_attn_args *args = back->args;
    float delta = dot_row(dout, args->out + row * args->out_stride + back->h * args->dim_v, args->dim_v);
    vf lse = vf_set(args->lse[row * args->heads + back->h]), scale = vf_set(args->scale), off = vf_set(delta);
    size_t width = score_row(args, q, (struct rows){back->keys_turned, ASH_ATTN_BLOCK}, seen, p);

    memset(ds, 0, width * sizeof(*ds));
    chain_row(ds, width, dout, 1, (struct rows){back->values_turned, ASH_ATTN_BLOCK}, args->dim_v);
    for (size_t n = 0; n < width; n += VF_WIDTH) {
        vf weight = vf_exp(vf_sub(vf_load(p + n), lse));

        vf_store(p + n, weight);
        vf_store(ds + n, vf_mul(vf_mul(weight, vf_sub(vf_load(ds + n), off)), scale));
    }
}

/* Scores of one query row, and what they add to its dq. */
static void back_query(const struct back *back, size_t i, struct rows keys)
{
    const struct ash_attn_args *args = back->args;
    struct keys visible = visible_keys(args, i), seen = in_block(visible, back->base);
    size_t row = back->seq->q_row + i, at = row * args->q_stride + back->h * args->dim_k;
    float *p = back->p + (i - back->first) * ASH_ATTN_BLOCK, *ds = back->ds + (i - back->first) * ASH_ATTN_BLOCK;
    float sum[ASH_ATTN_HEAD_MAX + ATTN_ALIGN];

    if (seen.begin >= seen.end) return;
    back_scores(back, args->q + at, args->dout + row * args->out_stride + back->h * args->dim_v, row, seen, p, ds);
    memset(sum, 0, back->pad_k * sizeof(*sum));
    if (visible.begin < back->base) memcpy(sum, args->dq + at, args->dim_k * sizeof(*sum));
    keys.data += seen.begin * keys.stride;
    chain_row(sum, back->pad_k, ds + seen.begin, 1, keys, seen.end - seen.begin);
    memcpy(args->dq + at, sum, args->dim_k * sizeof(*sum));
}

/* What the query rows of the block add to dk and dv of one key: those that see it are adjacent. */
static void back_key(const struct back *back, size_t n, struct rows queries, struct rows douts)
{
    size_t j = back->base + n, begin = j > back->first ? j : back->first, end = back->first + back->rows, skip;

    if (back->args->window != 0 && end > j + back->args->window) end = j + back->args->window;
    if (begin >= end) return;
    skip = begin - back->first;
    queries.data += skip * queries.stride;
    douts.data += skip * douts.stride;
    chain_row(back->dk + n * back->pad_k, back->pad_k, back->ds + skip * ASH_ATTN_BLOCK + n, ASH_ATTN_BLOCK, queries,
              end - begin);
    chain_row(back->dv + n * back->pad_v, back->pad_v, back->p + skip * ASH_ATTN_BLOCK + n, ASH_ATTN_BLOCK, douts,
              end - begin);
}

/* One block of query rows of one head against the block of keys. */
static void back_pair(const struct back *back, struct rows keys)
{
    const struct ash_attn_args *args = back->args;
    size_t row = back->seq->q_row + back->first;
    struct rows queries = padded_rows(args->q + row * args->q_stride + back->h * args->dim_k, ASH_F32, args->q_stride,
                                      back->rows, args->dim_k, back->q_copy);
    struct rows douts = padded_rows(args->dout + row * args->out_stride + back->h * args->dim_v, ASH_F32,
                                    args->out_stride, back->rows, args->dim_v, back->dout_copy);

    for (size_t i = back->first; i < back->first + back->rows; i++)
        back_query(back, i, keys);
    for (size_t n = 0; n < back->count; n++)
        back_key(back, n, queries, douts);
}

/* One block of keys with every query row that sees one of them. */
static void back_keys(struct back *back)
{
    const struct ash_attn_args *args = back->args;
    const struct ash_attn_seq *seq = back->seq;
    size_t group = args->heads / args->kv_heads, end = seq->q_count;
    size_t at_k = back->base * args->k_stride + back->g * args->dim_k,
           at_v = back->base * args->v_stride + back->g * args->dim_v;
    const float *k = (const float *)seq->k + at_k, *v = (const float *)seq->v + at_v;
    struct rows keys = padded_rows(k, ASH_F32, args->k_stride, back->count, args->dim_k, back->keys_copy);

    turned_rows(k, ASH_F32, args->k_stride, back->count, args->dim_k, back->keys_turned);
    turned_rows(v, ASH_F32, args->v_stride, back->count, args->dim_v, back->values_turned);
    load_padded(back->dk, back->pad_k, seq->dk + at_k, args->k_stride, back->count, args->dim_k);
    load_padded(back->dv, back->pad_v, seq->dv + at_v, args->v_stride, back->count, args->dim_v);
    if (args->window != 0 && end > back->base + back->count - 1 + args->window)
        end = back->base + back->count - 1 + args->window;
    for (back->h = back->g * group; back->h < (back->g + 1) * group; back->h++)
        for (back->first = back->base; back->first < end; back->first += ASH_ATTN_BLOCK) {
            back->rows = end - back->first < ASH_ATTN_BLOCK ? end - back->first : ASH_ATTN_BLOCK;
            back_pair(back, keys);
        }
    store_padded(back->dk, back->pad_k, seq->dk + at_k, args->k_stride, back->count, args->dim_k);
    store_padded(back->dv, back->pad_v, seq->dv + at_v, args->v_stride, back->count, args->dim_v);
}

static void backward_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct attn *op = ctx;
    struct back back;

    back_init(&back, op->exec, op->args, worker);
    for (size_t unit = begin; unit < end; unit++) {
        back.seq = &op->args->seqs[unit / op->args->kv_heads];
        back.g = unit % op->args->kv_heads;
        for (back.base = 0; back.base < back.seq->q_count; back.base += ASH_ATTN_BLOCK) {
            size_t left = back.seq->q_count - back.base;

            back.count = left < ASH_ATTN_BLOCK ? left : ASH_ATTN_BLOCK;
            back_keys(&back);
        }
    }
}

static void attn_backward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct attn op;

    ash_assert(args->kv_dtype == ASH_F32);
    attn_init(&op, exec, args);
    ash_workers_run(exec->workers, args->seq_count * args->kv_heads, 1, backward_units, &op);
}

static const struct ash_attn_ops vec_attn = {.forward = attn_forward, .backward = attn_backward};

#endif
