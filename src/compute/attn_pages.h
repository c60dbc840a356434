/* attn_pages - where keys and values are: in one run, or in the pages of a cache. A page has its keys in the order in
 * which scores are summed, so they are read in place. */
#ifndef ASH_COMPUTE_ATTN_PAGES_H
#define ASH_COMPUTE_ATTN_PAGES_H

#include "compute/ops.h"

/* Some keys (or values) of one head: element d of the n-th is number n * token_stride + d * dim_stride. */
struct ash_attn_run {
    void *data;
    size_t token_stride, dim_stride;
};

/* Element `element` of the page that holds token j. */
static inline void *ash_attn_page_at(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t j,
                                     size_t element)
{
    size_t page = (size_t)seq->pages[j / ASH_ATTN_BLOCK];

    return (char *)args->pool + page * args->page_bytes + element * ash_dtype_bytes(args->kv_dtype);
}

/* Keys of kv head g from token j on, to the end of its block. */
static inline struct ash_attn_run ash_attn_keys(const struct ash_attn_args *args, const struct ash_attn_seq *seq,
                                                size_t j, size_t g)
{
    size_t element = args->k_page + g * args->dim_k * ASH_ATTN_BLOCK + j % ASH_ATTN_BLOCK;

    if (seq->pages != NULL) return (struct ash_attn_run){ash_attn_page_at(args, seq, j, element), 1, ASH_ATTN_BLOCK};
    element = j * args->k_stride + g * args->dim_k;
    return (struct ash_attn_run){(char *)seq->k + element * ash_dtype_bytes(args->kv_dtype), args->k_stride, 1};
}

/* The same of values. */
static inline struct ash_attn_run ash_attn_values(const struct ash_attn_args *args, const struct ash_attn_seq *seq,
                                                  size_t j, size_t g)
{
    size_t element = args->v_page + (g * ASH_ATTN_BLOCK + j % ASH_ATTN_BLOCK) * args->dim_v;

    if (seq->pages != NULL) return (struct ash_attn_run){ash_attn_page_at(args, seq, j, element), args->dim_v, 1};
    element = j * args->v_stride + g * args->dim_v;
    return (struct ash_attn_run){(char *)seq->v + element * ash_dtype_bytes(args->kv_dtype), args->v_stride, 1};
}

#endif
