/* kv_write_body - rotates queries and keys, and writes keys and values to cache pages, between the products that make
 * them and attention: one pass over a row that is still in the caches. */
#ifndef ASH_COMPUTE_KV_WRITE_BODY_H
#define ASH_COMPUTE_KV_WRITE_BODY_H

#if !defined(ASH_COMPUTE_ROW_BODY_H) || !defined(ASH_COMPUTE_ATTN_BACK_BODY_H)
#error "include row_body.h and attn_back_body.h first"
#endif

struct kv_write_op {
    struct ash_exec *exec;
    const struct ash_kv_write_args *args;
    struct ash_rope_args rope; /* of one row */
};

/* Rotate heads next to each other, at x, by the angles of row r. */
static void kv_write_rotate(const struct kv_write_op *op, float *x, size_t heads, size_t r, float *copy)
{
    const struct ash_kv_write_args *args = op->args;
    size_t angles = args->dims > 0 ? (size_t)args->positions[r] * (args->dims / 2) : 0;

    for (size_t h = 0; h < heads && args->dims > 0; h++)
        rope_head(&op->rope, x + h * args->attn->dim_k, copy, args->cos + angles, args->sin + angles);
}

INLINE void kv_write_narrow_step(uint16_t *to, const float *x, size_t count)
{
    wide_store_bf16(to, wide_round_bf16(wide_load_n(x, count)), count);
}

/* count floats in the dtype of the pages. */
static void kv_write_store(enum ash_dtype dtype, void *to, const float *x, size_t count)
{
    uint16_t *narrow = to;
    size_t i = 0;

    if (dtype == ASH_F32) {
        memcpy(to, x, count * sizeof(*x));
        return;
    }
    for (; i + ASH_LANES <= count; i += ASH_LANES)
        kv_write_narrow_step(narrow + i, x + i, ASH_LANES);
    if (i < count) kv_write_narrow_step(narrow + i, x + i, count - i);
}

/* The key of one token: a column of each head. x becomes what is stored. */
static void kv_write_key(const struct ash_attn_args *attn, const struct ash_attn_seq *seq, size_t token, float *x)
{
    void *to = ash_attn_keys(attn, seq, token, 0).data;
    size_t count = attn->kv_heads * attn->dim_k;
    uint16_t *narrow = (uint16_t *)(void *)x;

    for (size_t d = 0; d < count && attn->kv_dtype == ASH_F32; d++)
        ((float *)to)[d * ASH_ATTN_BLOCK] = x[d];
    if (attn->kv_dtype == ASH_F32) return;
    kv_write_store(ASH_BF16, narrow, x, count); /* in place: what is written was read before */
    for (size_t d = 0; d < count; d++)
        ((uint16_t *)to)[d * ASH_ATTN_BLOCK] = narrow[d];
}

static void kv_write_value(const struct ash_attn_args *attn, const struct ash_attn_seq *seq, size_t token,
                           const float *x)
{
    for (size_t g = 0; g < attn->kv_heads; g++)
        kv_write_store(attn->kv_dtype, ash_attn_values(attn, seq, token, g).data, x + g * attn->dim_v, attn->dim_v);
}

static void kv_write_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct kv_write_op *op = ctx;
    const struct ash_kv_write_args *args = op->args;
    const struct ash_attn_args *attn = args->attn;
    const struct ash_attn_seq *seq = attn->seqs;
    size_t queries = attn->heads * attn->dim_k, width = attn->kv_heads * attn->dim_k;
    float *copy = ash_exec_scratch(op->exec, worker, (args->dims + 1) * sizeof(*copy));

    for (size_t r = begin; r < end; r++) {
        float *q = args->q + r * args->q_stride, *k = q + queries;
        struct row_op round = {.a = q, .out = q};
        size_t token;

        while (r >= seq->q_row + seq->q_count)
            seq++;
        token = seq->pos + r - seq->q_row;
        kv_write_rotate(op, q, attn->heads + attn->kv_heads, r, copy);
        if (args->round_bf16) row_round_range(&round, 0, queries, worker);
        kv_write_value(attn, seq, token, k + width);
        kv_write_key(attn, seq, token, k);
    }
}

static void attn_kv_write(struct ash_exec *exec, const struct ash_kv_write_args *args)
{
    struct kv_write_op op = {
        .exec = exec, .args = args, .rope = {.dims = args->dims, .interleaved_in = args->interleaved_in}};
    const struct ash_attn_args *attn = args->attn;
    size_t rows = 0;

    ash_assert(args->dims % 2 == 0 && args->dims <= attn->dim_k && attn->dim_k == attn->dim_v);
    ash_assert(args->dims == 0 || (args->positions != NULL && args->cos != NULL && args->sin != NULL));
    ash_assert(args->q_stride >= (attn->heads + 2 * attn->kv_heads) * attn->dim_k && attn->pool != NULL);
    ash_assert(attn->kv_dtype == ASH_F32 || attn->kv_dtype == ASH_BF16);
    for (size_t s = 0; s < attn->seq_count; s++) {
        ash_assert(attn->seqs[s].pages != NULL && attn->seqs[s].q_row == rows);
        rows += attn->seqs[s].q_count;
    }
    ash_workers_run(exec->workers, rows, ROW_MIN_ROWS, kv_write_rows, &op);
}

static const struct ash_attn_ops vec_attn = {
    .forward = attn_forward, .backward = attn_backward, .kv_write = attn_kv_write};

#endif
