/* Rotary positions on the GPU: which kernel takes which rows. */
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/host/backend_priv.h"

#define THREADS 256
#define ROUND_THREADS 128

/* Can rows of bf16 be rotated eight pairs at a time? */
static bool is_eights(const struct ash_rope_args *args)
{
    uintptr_t places = (uintptr_t)args->x_bf16 | (uintptr_t)args->cos | (uintptr_t)args->sin;

    return !args->interleaved_in && !args->inverse && args->dims % 16 == 0 &&
           (args->row_stride | args->head_stride) % 8 == 0 && places % 16 == 0;
}

static void apply(struct ash_exec *exec, const struct ash_rope_args *args)
{
    size_t heads = args->rows * args->heads;
    struct ash_cuda_grid warps = {.x = ash_div_up(heads * 32, THREADS), .y = 1, .threads = THREADS};

    ash_assert(args->dims <= ASH_ATTN_HEAD_MAX);
    if (args->x_bf16 != NULL && is_eights(args))
        ash_cuda_run(exec, ASH_KERNEL_rope_eight, ash_cuda_grid_elements(heads * args->dims / 16), args);
    else if (args->x_bf16 != NULL)
        ash_cuda_run(exec, ASH_KERNEL_rope_bf16_any, warps, args);
    else if (args->out_bf16 != NULL)
        ash_cuda_run(exec, ASH_KERNEL_rope_round,
                     (struct ash_cuda_grid){.x = args->rows, .y = 1, .threads = ROUND_THREADS}, args);
    else
        ash_cuda_run(exec, ASH_KERNEL_rope_apply, warps, args);
}

const struct ash_rope_ops ash_cuda_rope = {.apply = apply};
