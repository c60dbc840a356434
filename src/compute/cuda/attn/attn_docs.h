/* attn_docs - the documents of a batch that trains, on the GPU. They are in the same places from batch to batch, so
 * that a batch's work can be recorded and replayed with other documents: grids have room for more tiles than there are,
 * and tiles that are left over belong to a document without rows. */
#ifndef ASH_COMPUTE_CUDA_ATTN_DOCS_H
#define ASH_COMPUTE_CUDA_ATTN_DOCS_H

#include "compute/cuda/host/backend_priv.h"

/* What decides where documents are on the GPU, next to the batch's rows. */
struct ash_cuda_docs_key {
    size_t room; /* documents that there is room for */
    const void *place;
};

/* Copy the documents of the batch that comes next to the GPU, unless they are there; its attention finds them until
 * ash_cuda_docs_end. Returns false where they are not whole documents, one after the other from row 0 on, or the GPU
 * has no room. */
bool ash_cuda_docs_begin(struct ash_exec *exec, const struct ash_attn_seq *seqs, size_t count,
                         struct ash_cuda_docs_key *key_out);
/* The batch is enqueued. */
void ash_cuda_docs_end(struct ash_exec *exec);
/* The documents of an attention as its kernels read them; enqueues what points them at its keys and values. Valid for
 * work that is enqueued before the next call. NULL: they are not those of the batch at hand. */
const struct ash_cuda_attn_seq *ash_cuda_docs_seqs(struct ash_exec *exec, const struct ash_attn_args *args);
/* Sort tiles by their first row: those that see the most keys come last. */
void ash_cuda_sort_tiles(struct ash_cuda_attn_tile *tiles, size_t count);
/* Tiles of `rows` rows of these documents. Returns how many, left-over ones among them; 0: the caller makes them, and
 * the next batch will have them. */
size_t ash_cuda_docs_tiles(struct ash_exec *exec, const struct ash_attn_args *args, size_t rows,
                           const struct ash_cuda_attn_tile **tiles_out);
/* Free what the backend remembers. Before the first batch there is nothing. */
void ash_cuda_docs_close(struct ash_cuda_backend *backend);

#endif
