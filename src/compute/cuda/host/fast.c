/* What runtime.mode=fast runs in the place of exact kernels. All that it changes is here, but for the library, which
 * may then split k (library.c). */
#include "compute/cuda/host/fast.h"

#include "base/assert.h"

/* Kernels with the arguments and the grid of the exact ones. */
static const struct {
    enum ash_cuda_kernel_id exact, fast;
} instead[] = {
    {ASH_KERNEL_cross_entropy_row, ASH_KERNEL_cross_entropy_fast},
};

enum ash_cuda_kernel_id ash_cuda_fast_kernel(enum ash_cuda_kernel_id exact)
{
    for (size_t i = 0; i < ASH_COUNT(instead); i++)
        if (instead[i].exact == exact) return instead[i].fast;
    return exact;
}

const struct ash_ops ash_ops_cuda_fast = {
    .name = "cuda-fast",
    .reference = &ash_ops_cuda_fast, /* nothing else has its bits */
    .takes_bf16 = true,
    .matrix = &ash_cuda_matrix,
    .embed = &ash_cuda_embed,
    .norm = &ash_cuda_norm,
    .rope = &ash_cuda_rope,
    .attn = &ash_cuda_attn,
    .act = &ash_cuda_act,
    .row = &ash_cuda_row,
    .loss = &ash_cuda_loss,
    .route = &ash_cuda_route,
    .optim = &ash_cuda_optim,
    .sample = &ash_cuda_sample,
};
