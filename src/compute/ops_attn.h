/* ops_attn - the ops of rotary positions and attention: part of ops.h, whose contract holds here too. */
#ifndef ASH_COMPUTE_OPS_ATTN_H
#define ASH_COMPUTE_OPS_ATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/dtype.h"

#define ASH_ATTN_BLOCK 64 /* keys of a cache page, and of a block of the softmax */
/* Of bf16 attention on GPUs (ref/attn_wgmma.c): keys of a block and of a span, and classes of their weights. */
#define ASH_ATTN_KEYS 128
#define ASH_ATTN_SPAN 512
#define ASH_ATTN_CLASSES 8
#define ASH_ATTN_HEAD_MAX 512 /* largest head dimension */

struct ash_exec;

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

struct ash_rope_args {
    size_t rows, heads;
    size_t head_stride, row_stride; /* element d of head h of row r: x[r * row_stride + h * head_stride + d] */
    size_t dims;                    /* rotated dims of each head (even), from x */
    bool interleaved_in; /* pairs are (2i, 2i+1) in x and halves (i, i + dims/2) in the result, as transformers does for
                            deepseek. The inverse undoes both. */
    const int32_t *positions; /* [rows] */
    const float *cos, *sin;   /* tables [max position, dims/2] */
    float *x;                 /* in place, unless */
    uint16_t *x_bf16;         /* instead of x: rows that are rounded to bf16 already, in place. With round_bf16 only */
    uint16_t *out_bf16;       /* [rows, out_cols]: then x stays as it is, and its first out_cols columns go here,
                                 rounded to bf16, those of heads rotated. Heads are the first columns, without gaps */
    size_t out_cols;
    bool round_bf16; /* of a bf16 model, forward: ref-wgmma rounds what it rotates to bf16 as it is read; others ignore
                        it */
    bool inverse;    /* backward: rotate by the negative angle (and scatter back to interleaved pairs) */
};

struct ash_rope_ops {
    /* Rotate pairs of dims of every head by the angles of the row's position. */
    void (*apply)(struct ash_exec *exec, const struct ash_rope_args *args);
};

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* One document: q_count query rows that start at row q_row of q and out. The first has position pos; key j has position
 * j. Query i sees keys j with j <= pos + i and, under a window, j > pos + i - window. With both_ways pos is 0 and query
 * i sees all q_count keys or, under a window, those at most `window` away on either side. */
struct ash_attn_seq {
    size_t q_row, q_count, pos;
    const void *k, *v; /* key 0 of this document; not used with pages */
    /* Its block table, in host memory: page number pages[j / ASH_ATTN_BLOCK] of the pool holds key j and its value.
     * NULL: one run at k and v. Forward only. */
    const int32_t *pages;
    float *dk, *dv; /* backward: likewise, += */
};

struct ash_attn_args {
    size_t heads, kv_heads; /* query head h reads kv head h / (heads / kv_heads) */
    size_t dim_k, dim_v;    /* per head; at most ASH_ATTN_HEAD_MAX */
    float scale;
    float cap;      /* of scaled scores: cap * tanh(score / cap); 0: none */
    size_t window;  /* 0: none */
    size_t chunk;   /* queries see only keys in the same chunk of this many positions. On the CPU alone; 0: none */
    bool both_ways; /* queries see later keys, too (encoders). On the CPU alone, forward only, without pages */
    /* The model computes in bf16: products of attention may, too. Backends whose reference multiplies float32 here do
     * not look at it. */
    bool round_bf16;
    enum ash_dtype kv_dtype; /* of k and v: F32 or BF16 (a cache may be narrower; backward only with q_bf16) */
    size_t q_stride, k_stride, v_stride, out_stride; /* between rows; heads are adjacent. Of k and v: without pages */
    /* With pages: page n is at pool + n * page_bytes. From its element k_page on it has keys [kv_heads, dim_k,
     * ASH_ATTN_BLOCK], a key is a column of its head, and from element v_page on values [kv_heads, ASH_ATTN_BLOCK,
     * dim_v]. See attn_pages.h. */
    void *pool;
    size_t page_bytes, k_page, v_page;
    const float *q;
    const uint16_t *q_bf16; /* instead of q, rounded to bf16 already; or NULL */
    float *out;
    uint16_t
        *out_bf16; /* out rounded to bf16, of the same stride; out is NULL then, or wanted, too. NULL: not wanted */
    float *lse;    /* [query rows, heads]: log of the sum of exponentials; NULL: not wanted. Backward reads it. */
    const struct ash_attn_seq *seqs;
    size_t seq_count;
    /* backward (pos of every sequence is 0): */
    const float *dout;         /* strides like out */
    const uint16_t *dout_bf16; /* instead of dout, rounded to bf16 already; or NULL */
    float *dq;                 /* strides like q, written */
};

/* Between the products that make q, k and v and attention, in inference: queries and keys are rotated, queries are
 * rounded, keys and values are written to their cache pages. To the bit what rope->apply, row->round_bf16 and row->copy
 * give. */
struct ash_kv_write_args {
    const struct ash_attn_args *attn; /* its seqs have pages and follow each other from row 0 of q on; dim_k is dim_v */
    float *q; /* row r: query heads, key heads, value heads, adjacent. Keys and values need not be there afterwards. */
    size_t q_stride;
    size_t dims; /* rotated dims of each head, 0 for none; the rest as in ash_rope_args */
    bool interleaved_in;
    const int32_t *positions;
    const float *cos, *sin;
    bool round_bf16; /* the queries; keys and values take the dtype of the pages */
};

struct ash_attn_ops {
    /* out = softmax(scale q k^T, masked) v for every sequence; writes lse if asked. */
    void (*forward)(struct ash_exec *exec, const struct ash_attn_args *args);
    /* dq (written), dk and dv (added to) from q, k, v, out, lse and dout. No pages. */
    void (*backward)(struct ash_exec *exec, const struct ash_attn_args *args);
    /* backward and then rope->apply(rope), in one: rope turns the gradients of q, k and v, adjacent columns of rows
     * from dq on, back and rounds them. dk and dv need not be zeros before, and the float32 gradients not be there
     * after. Returns false, and has done nothing, if it cannot; NULL: it never can. */
    bool (*backward_rounded)(struct ash_exec *exec, const struct ash_attn_args *args, const struct ash_rope_args *rope);
    /* Rotate and round q, write k and v to their pages: see ash_kv_write_args. */
    void (*kv_write)(struct ash_exec *exec, const struct ash_kv_write_args *args);
};

#endif
