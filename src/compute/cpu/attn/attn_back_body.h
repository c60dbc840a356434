/* attn_back_body - the backward pass of attention of one instruction set. A unit is one kv head of one document: it
 * owns dk and dv of that head and dq of the heads that read it. Blocks of keys are the outer loop, ascending, so dq's
 * chains run over keys in order; inside, query heads and query rows ascend, as dk's and dv's chains want. Each pair of
 * blocks is computed once. */
#ifndef ASH_COMPUTE_ATTN_BACK_BODY_H
#define ASH_COMPUTE_ATTN_BACK_BODY_H

#ifndef ASH_COMPUTE_ATTN_BODY_H
#error "include attn_body.h first"
#endif

/* A block of keys and a block of query rows, in scratch. pad_k, pad_v: the padded dims. */
struct attn_back {
    const struct ash_attn_args *args;
    const struct ash_attn_seq *seq;
    size_t base, count; /* keys of the block */
    size_t first, rows; /* query rows of the block */
    size_t h, g;        /* query head, kv head */
    size_t pad_k, pad_v;
    float *keys_transposed, *values_transposed; /* [dim, block] */
    float *keys_copy, *q_copy;                  /* [block, pad_k] */
    float *dout_copy;                           /* [block, pad_v] */
    float *dk, *dv;                             /* sums of this block's keys: [block, pad] */
    float *p, *ds;                              /* [query row, key], each [block, block] */
    float *delta; /* [query head of the group, query row of the document]: dot of dout and out */
    size_t delta_stride;
};

static void attn_back_init(struct attn_back *back, const struct attn_op *op, int worker)
{
    const struct ash_attn_args *args = op->args;
    size_t block = ASH_ATTN_BLOCK, pad_k = attn_pad(args->dim_k), pad_v = attn_pad(args->dim_v), longest = 0, floats;
    float *memory;

    for (size_t s = 0; s < args->seq_count; s++)
        if (args->seqs[s].q_count > longest) longest = args->seqs[s].q_count;
    floats = block * (4 * pad_k + 3 * pad_v + 2 * block) + op->group * longest;
    memory = ash_exec_scratch(op->exec, worker, floats * sizeof(*memory));
    *back = (struct attn_back){.args = args, .pad_k = pad_k, .pad_v = pad_v, .delta_stride = longest};
    back->keys_transposed = memory;
    back->keys_copy = back->keys_transposed + block * pad_k;
    back->q_copy = back->keys_copy + block * pad_k;
    back->dk = back->q_copy + block * pad_k;
    back->values_transposed = back->dk + block * pad_k;
    back->dout_copy = back->values_transposed + block * pad_v;
    back->dv = back->dout_copy + block * pad_v;
    back->p = back->dv + block * pad_v;
    back->ds = back->p + block * block;
    back->delta = back->ds + block * block;
    ash_assert(back->delta + op->group * longest == memory + floats);
}

/* The dots of dout and out of every row and head of the unit. */
static void attn_back_deltas(const struct attn_back *back)
{
    const struct ash_attn_args *args = back->args;
    size_t group = args->heads / args->kv_heads;

    for (size_t i = 0; i < back->seq->q_count; i++)
        for (size_t h = 0; h < group; h++) {
            size_t at = (back->seq->q_row + i) * args->out_stride + (back->g * group + h) * args->dim_v;

            back->delta[h * back->delta_stride + i] = dot_row(args->dout + at, args->out + at, args->dim_v);
        }
}

/* p and ds of query row i, from the dots of its q with the keys (in p) and of its dout with the values (in ds). Keys
 * that the row does not see get values too, which are not read. */
static void attn_back_scores(const struct attn_back *back, size_t i, size_t width, float *p, float *ds)
{
    const struct ash_attn_args *args = back->args;
    size_t h = back->h % (args->heads / args->kv_heads);
    struct wide delta = wide_set(back->delta[h * back->delta_stride + i]), scale = wide_set(args->scale);
    struct wide lse = wide_set(args->lse[(back->seq->q_row + i) * args->heads + back->h]);

    for (size_t n = 0; n < width; n += ASH_LANES) {
        struct wide weight = wide_exp(wide_sub(wide_mul(wide_load(p + n), scale), lse)), dp = wide_load(ds + n);

        wide_store(p + n, weight);
        wide_store(ds + n, wide_mul(wide_mul(weight, wide_sub(dp, delta)), scale));
    }
}

/* Prefetch a row. */
static void attn_fetch_row(const float *row, size_t dim)
{
    for (size_t d = 0; d < dim; d += ATTN_ALIGN)
        prefetch_read(row + d);
}

/* Prefetch what the next block of query rows takes: count of them from i on, as far as they exist. */
static void attn_fetch_queries(const struct attn_back *back, size_t i, size_t count)
{
    const struct ash_attn_args *args = back->args;

    for (size_t row = back->seq->q_row + i; i < back->seq->q_count && count > 0; i++, row++, count--) {
        attn_fetch_row(args->q + row * args->q_stride + back->h * args->dim_k, args->dim_k);
        attn_fetch_row(args->dout + row * args->out_stride + back->h * args->dim_v, args->dim_v);
    }
}

/* Scores of count query rows from i on, and what they add to dq. */
static void attn_back_queries(const struct attn_back *back, size_t i, size_t count, struct chain_right keys,
                              struct chain_right queries, struct chain_right douts)
{
    const struct ash_attn_args *args = back->args;
    size_t row = back->seq->q_row + i, at = row * args->q_stride + back->h * args->dim_k, first = i - back->first,
           width;
    float *p = back->p + first * ASH_ATTN_BLOCK, *ds = back->ds + first * ASH_ATTN_BLOCK;
    float sums[CHAIN_ROWS * ASH_ATTN_HEAD_MAX];
    struct chain_range seen[CHAIN_ROWS];

    memset(sums, 0, count * back->pad_k * sizeof(*sums));
    for (size_t r = 0; r < count; r++) {
        attn_fetch_row(args->dq + at + r * args->q_stride, args->dim_k);
        seen[r] = attn_in_block(attn_visible_keys(args, i + r), back->base);
    }
    attn_fetch_queries(back, i + ASH_ATTN_BLOCK, count);
    width = attn_pad(seen[count - 1].end);
    attn_dot_block(queries.data + first * queries.stride, queries.stride, count, args->dim_k,
                   (struct chain_right){back->keys_transposed, ASH_ATTN_BLOCK}, width, p);
    attn_dot_block(douts.data + first * douts.stride, douts.stride, count, args->dim_v,
                   (struct chain_right){back->values_transposed, ASH_ATTN_BLOCK}, width, ds);
    for (size_t r = 0; r < count; r++) {
        attn_back_scores(back, i + r, width, p + r * ASH_ATTN_BLOCK, ds + r * ASH_ATTN_BLOCK);
        if (attn_visible_keys(args, i + r).begin < back->base) /* else this is the row's first block */
            memcpy(sums + r * back->pad_k, args->dq + at + r * args->q_stride, args->dim_k * sizeof(*sums));
    }
    chain_rows(sums, back->pad_k, back->pad_k, (struct chain_left){ds, ASH_ATTN_BLOCK, 1}, keys, seen, count);
    attn_store_padded(sums, back->pad_k, args->dq + at, args->q_stride, count, args->dim_k);
}

/* What the query rows of the block add to dk and dv of count keys from n on: the rows that see a key are adjacent. */
static void attn_back_rows(const struct attn_back *back, size_t n, size_t count, struct chain_right queries,
                           struct chain_right douts)
{
    struct chain_range see[CHAIN_ROWS];

    for (size_t r = 0; r < count; r++) {
        size_t j = back->base + n + r, end = back->first + back->rows;

        if (back->args->window != 0 && end > j + back->args->window) end = j + back->args->window;
        see[r].begin = j > back->first ? j - back->first : 0;
        see[r].end = end > back->first ? end - back->first : 0;
    }
    chain_rows(back->dk + n * back->pad_k, back->pad_k, back->pad_k,
               (struct chain_left){back->ds + n, 1, ASH_ATTN_BLOCK}, queries, see, count);
    chain_rows(back->dv + n * back->pad_v, back->pad_v, back->pad_v,
               (struct chain_left){back->p + n, 1, ASH_ATTN_BLOCK}, douts, see, count);
}

/* One block of query rows of one head against the block of keys. */
static void attn_back_pair(const struct attn_back *back, struct chain_right keys)
{
    const struct ash_attn_args *args = back->args;
    size_t row = back->seq->q_row + back->first;
    struct chain_right queries = attn_padded_rows(args->q + row * args->q_stride + back->h * args->dim_k, ASH_F32,
                                                  args->q_stride, back->rows, args->dim_k, back->q_copy);
    struct chain_right douts = attn_padded_rows(args->dout + row * args->out_stride + back->h * args->dim_v, ASH_F32,
                                                args->out_stride, back->rows, args->dim_v, back->dout_copy);

    for (size_t r = 0; r < back->rows; r += CHAIN_ROWS)
        attn_back_queries(back, back->first + r, ash_min(back->rows - r, CHAIN_ROWS), keys, queries, douts);
    for (size_t n = 0; n < back->count; n += CHAIN_ROWS)
        attn_back_rows(back, n, ash_min(back->count - n, CHAIN_ROWS), queries, douts);
}

/* One block of keys with every query row that sees one of them. */
static void attn_back_keys(struct attn_back *back)
{
    const struct ash_attn_args *args = back->args;
    const struct ash_attn_seq *seq = back->seq;
    size_t group = args->heads / args->kv_heads, end = seq->q_count;
    size_t at_k = back->base * args->k_stride + back->g * args->dim_k,
           at_v = back->base * args->v_stride + back->g * args->dim_v;
    const float *k = (const float *)seq->k + at_k, *v = (const float *)seq->v + at_v;
    struct chain_right keys = attn_padded_rows(k, ASH_F32, args->k_stride, back->count, args->dim_k, back->keys_copy);

    attn_transposed_rows(k, args->k_stride, back->count, args->dim_k, back->keys_transposed);
    attn_transposed_rows(v, args->v_stride, back->count, args->dim_v, back->values_transposed);
    attn_load_padded(back->dk, back->pad_k, seq->dk + at_k, args->k_stride, back->count, args->dim_k);
    attn_load_padded(back->dv, back->pad_v, seq->dv + at_v, args->v_stride, back->count, args->dim_v);
    if (args->window != 0 && end > back->base + back->count - 1 + args->window)
        end = back->base + back->count - 1 + args->window;
    for (back->h = back->g * group; back->h < (back->g + 1) * group; back->h++)
        for (back->first = back->base; back->first < end; back->first += ASH_ATTN_BLOCK) {
            back->rows = ash_min(end - back->first, ASH_ATTN_BLOCK);
            attn_back_pair(back, keys);
        }
    attn_store_padded(back->dk, back->pad_k, seq->dk + at_k, args->k_stride, back->count, args->dim_k);
    attn_store_padded(back->dv, back->pad_v, seq->dv + at_v, args->v_stride, back->count, args->dim_v);
}

static void attn_backward_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct attn_op *op = ctx;
    struct attn_back back;

    attn_back_init(&back, op, worker);
    for (size_t unit = begin; unit < end; unit++) {
        back.seq = &op->args->seqs[unit / op->args->kv_heads];
        back.g = unit % op->args->kv_heads;
        attn_back_deltas(&back);
        for (back.base = 0; back.base < back.seq->q_count; back.base += ASH_ATTN_BLOCK) {
            size_t left = back.seq->q_count - back.base;

            back.count = left < ASH_ATTN_BLOCK ? left : ASH_ATTN_BLOCK;
            attn_back_keys(&back);
        }
    }
}

static void attn_backward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct attn_op op;

    ash_assert(args->kv_dtype == ASH_F32 && args->lse != NULL && args->dout != NULL && args->dq != NULL);
    for (size_t s = 0; s < args->seq_count; s++)
        ash_assert(!args->both_ways && args->seqs[s].pos == 0 && args->seqs[s].pages == NULL);
    if (args->cap != 0 || args->chunk != 0) {
        ash_ref_attn.backward(exec, args);
        return;
    }
    attn_init(&op, exec, args);
    ash_workers_run(exec->workers, args->seq_count * args->kv_heads, 1, attn_backward_units, &op);
}

#endif
