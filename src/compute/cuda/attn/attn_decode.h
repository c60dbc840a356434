/* attn_decode - attention over the pages of a cache: a batch's documents and block tables are the same in all layers,
 * so they are copied to the GPU once; rows that decode have a kernel of their own. */
#ifndef ASH_COMPUTE_CUDA_ATTN_DECODE_H
#define ASH_COMPUTE_CUDA_ATTN_DECODE_H

#include "compute/cuda/host/backend_priv.h"

#define ASH_CUDA_DONE_MAX ((size_t)1 << 18) /* documents times kv heads of attn_spans */

/* A batch on the GPU. */
struct ash_cuda_tables {
    const struct ash_cuda_attn_seq *seqs;
    /* Documents of one row, which attn_spans takes, as spans; and tiles of the others. */
    const struct ash_cuda_attn_batch *batch;
    const struct ash_cuda_attn_tile *long_tiles;
    size_t short_count, span_count, long_count;
    /* Pages of the other documents, where their keys become rows first; kv_rows: of these. None: long_tiles have 64
     * query rows; else 128. */
    const struct ash_cuda_attn_tile *page_tiles;
    size_t page_count, kv_rows;
    bool has_wgmma; /* else all documents are long, and read where they are */
    /* what they were made of, to tell whether they are still right */
    char *key;
    size_t key_bytes, key_room;
    struct ash_attn_args last; /* that asked for them; its seqs may be gone */
    struct ash_buffer place;   /* where they are on the GPU */
    /* What attn_spans keeps between spans of a document: ASH_CUDA_DONE_MAX counters, and part_floats for each span. */
    struct ash_buffer parts;
    size_t part_floats;
};

/* What the kernels are told of an attention. */
struct ash_cuda_attn ash_cuda_attn_args(const struct ash_attn_args *args);
/* Are all keys and values in pages? */
bool ash_cuda_attn_paged(const struct ash_attn_args *args);
/* The batch's tables: those of the call before, or new ones. Valid until the next call. Aborts without memory. */
struct ash_cuda_tables *ash_cuda_tables_of(struct ash_exec *exec, const struct ash_attn_args *args);
/* New tables for the batch that comes next, before its ops ask. Returns whether all its documents are short. */
bool ash_cuda_tables_refresh(struct ash_exec *exec, const struct ash_attn_seq *seqs, size_t count);
/* Enqueue the documents of `batch`. */
void ash_cuda_attn_decode(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_tables *tables);
/* ash_attn_ops.kv_write. */
void ash_cuda_attn_write(struct ash_exec *exec, const struct ash_kv_write_args *args);
/* Free what the backend remembers of the last batch. Before the first there is nothing. */
void ash_cuda_tables_close(struct ash_cuda_backend *backend);

#endif
