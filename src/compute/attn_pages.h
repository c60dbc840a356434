/* attn_pages - where keys and values are: in one run, or in the pages of a cache. */
#ifndef ASH_COMPUTE_ATTN_PAGES_H
#define ASH_COMPUTE_ATTN_PAGES_H

#include "compute/ops.h"

static inline const void *ash_attn_at(const struct ash_attn_args *args, const void *run, void *const *pages, size_t j,
                                      size_t stride, size_t page_first)
{
    size_t element = pages == NULL ? j * stride : page_first + j % args->page_tokens * stride;
    const unsigned char *base = pages == NULL ? run : pages[j / args->page_tokens];

    return base + element * ash_dtype_bytes(args->kv_dtype);
}

/* Key j of a document, all heads. The keys of its block follow. */
static inline const void *ash_attn_key(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t j)
{
    return ash_attn_at(args, seq->k, seq->pages, j, args->k_stride, args->k_page);
}

static inline const void *ash_attn_value(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t j)
{
    return ash_attn_at(args, seq->v, seq->pages, j, args->v_stride, args->v_page);
}

/* Where to write the key and the value of token j in their page; the next tokens of the page follow. */
static inline void *ash_attn_key_slot(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t j)
{
    size_t element = args->k_page + j % args->page_tokens * args->k_stride;

    return (char *)seq->pages[j / args->page_tokens] + element * ash_dtype_bytes(args->kv_dtype);
}

static inline void *ash_attn_value_slot(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t j)
{
    size_t element = args->v_page + j % args->page_tokens * args->v_stride;

    return (char *)seq->pages[j / args->page_tokens] + element * ash_dtype_bytes(args->kv_dtype);
}

#endif
