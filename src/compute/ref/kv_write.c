/* Rotating queries and keys and writing keys and values to cache pages, as separate ops: the specification. */
#include "compute/ref/ref_priv.h"

#include "base/math.h"
#include "base/assert.h"
#include "compute/attn_pages.h"

static size_t row_count(const struct ash_attn_args *attn)
{
    size_t rows = 0;

    for (size_t s = 0; s < attn->seq_count; s++) {
        ash_assert(attn->seqs[s].pages != NULL && attn->seqs[s].q_row == rows);
        rows += attn->seqs[s].q_count;
    }
    return rows;
}

/* Keys of count tokens become columns of their heads. */
static void write_keys(struct ash_exec *exec, const struct ash_kv_write_args *args, const float *from, size_t count,
                       void *to)
{
    const struct ash_attn_args *attn = args->attn;
    struct ash_copy_args copy = {.rows = count,
                                 .blocks = attn->kv_heads * attn->dim_k,
                                 .cols = 1,
                                 .src = from,
                                 .src_row = args->q_stride,
                                 .src_block = 1,
                                 .dst = to,
                                 .dst_dtype = attn->kv_dtype,
                                 .dst_row = 1,
                                 .dst_block = ASH_ATTN_BLOCK};

    exec->ops->row->copy(exec, &copy);
}

static void write_values(struct ash_exec *exec, const struct ash_kv_write_args *args, const float *from, size_t count,
                         void *to)
{
    const struct ash_attn_args *attn = args->attn;
    struct ash_copy_args copy = {.rows = count,
                                 .blocks = attn->kv_heads,
                                 .cols = attn->dim_v,
                                 .src = from,
                                 .src_row = args->q_stride,
                                 .src_block = attn->dim_v,
                                 .dst = to,
                                 .dst_dtype = attn->kv_dtype,
                                 .dst_row = attn->dim_v,
                                 .dst_block = ASH_ATTN_BLOCK * attn->dim_v};

    exec->ops->row->copy(exec, &copy);
}

/* Rows of a document, as many at a time as fit into a page. */
static void write_document(struct ash_exec *exec, const struct ash_kv_write_args *args, const struct ash_attn_seq *seq)
{
    const struct ash_attn_args *attn = args->attn;

    for (size_t row = 0, count; row < seq->q_count; row += count) {
        size_t token = seq->pos + row, fit = ASH_ATTN_BLOCK - token % ASH_ATTN_BLOCK;
        const float *k = args->q + (seq->q_row + row) * args->q_stride + attn->heads * attn->dim_k;

        count = ash_min(seq->q_count - row, fit);
        write_keys(exec, args, k, count, ash_attn_keys(attn, seq, token, 0).data);
        write_values(exec, args, k + attn->kv_heads * attn->dim_k, count, ash_attn_values(attn, seq, token, 0).data);
    }
}

void ash_ref_kv_write(struct ash_exec *exec, const struct ash_kv_write_args *args)
{
    const struct ash_attn_args *attn = args->attn;
    size_t rows = row_count(attn);
    struct ash_rope_args rope = {.rows = rows,
                                 .heads = attn->heads + attn->kv_heads,
                                 .head_stride = attn->dim_k,
                                 .row_stride = args->q_stride,
                                 .dims = args->dims,
                                 .interleaved_in = args->interleaved_in,
                                 .positions = args->positions,
                                 .cos = args->cos,
                                 .sin = args->sin,
                                 .x = args->q,
                                 .round_bf16 = args->round_bf16};

    if (args->dims > 0) exec->ops->rope->apply(exec, &rope);
    for (size_t r = 0; r < rows && args->round_bf16; r++) {
        float *q = args->q + r * args->q_stride;

        exec->ops->row->round_bf16(exec, q, attn->heads * attn->dim_k, q);
    }
    for (size_t s = 0; s < attn->seq_count; s++)
        write_document(exec, args, &attn->seqs[s]);
}
