/* ahead - which weights the next product of a step reads. A product of a few rows takes as long as its weights need to
 * come from memory, and memory is idle while one ends and the next begins. So a product is told what comes after it,
 * and asks for the first lines of that in time (tile/ahead.cuh).
 *
 * Nobody says in advance which product comes next. The first step of a shape is watched: each product's weights are
 * linked to those of the one before it. The second is recorded with these links. Weights of a step are there as long as
 * what was recorded of it is replayed. */
#ifndef ASH_COMPUTE_CUDA_AHEAD_H
#define ASH_COMPUTE_CUDA_AHEAD_H

#include "compute/cuda/host/backend_priv.h"

#define ASH_CUDA_AHEAD_BYTES ((size_t)16 << 20) /* of the next product's weights: a third of an H200's L2 cache */

enum ash_cuda_links_way { ASH_LINKS_OFF, ASH_LINKS_WATCH, ASH_LINKS_USE };

/* A step begins that is watched, or that is recorded; or one has ended. */
void ash_cuda_links_turn(struct ash_cuda_backend *backend, enum ash_cuda_links_way way);
/* A product is enqueued whose weights `reads` describes: the lines that it reads first, and all bytes of each. Returns
 * what its kernel asks for: the next product's, not more than the limit; none where that is not known. */
struct ash_cuda_ahead ash_cuda_links_next(struct ash_cuda_backend *backend, const struct ash_cuda_ahead *reads);
/* Products ask for so many bytes at most, from now on; ASH_CUDA_AHEAD_BYTES by default, 0: for none. */
void ash_cuda_links_limit(struct ash_cuda_backend *backend, size_t bytes);
/* Free the links. */
void ash_cuda_links_close(struct ash_cuda_backend *backend);

#endif
