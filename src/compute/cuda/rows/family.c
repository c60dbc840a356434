/* The ops of some families of models on the GPU: gates, sinks, caps. */
#include "compute/cuda/host/backend_priv.h"

static void gated(struct ash_exec *exec, const struct ash_gated_args *args)
{
    ash_cuda_run(exec, ASH_KERNEL_family_gated, ash_cuda_grid_elements(args->rows * args->cols), args);
}

static void sink_forward(struct ash_exec *exec, const struct ash_sink_args *args)
{
    ash_cuda_run(exec, ASH_KERNEL_family_sink_forward, ash_cuda_grid_rows(args->rows * args->heads), args);
}

static void sink_backward(struct ash_exec *exec, const struct ash_sink_args *args)
{
    ash_cuda_run(exec, ASH_KERNEL_family_sink_backward, ash_cuda_grid_rows(args->heads), args);
}

static void cap_forward(struct ash_exec *exec, float *x, float cap, size_t count)
{
    struct ash_cuda_cap op = {.x = x, .cap = cap, .count = count};

    ash_cuda_run(exec, ASH_KERNEL_family_cap, ash_cuda_grid_elements(count), &op);
}

static void cap_backward(struct ash_exec *exec, const float *y, float cap, size_t count, float *dx)
{
    struct ash_cuda_cap op = {.y = y, .x = dx, .cap = cap, .count = count};

    ash_cuda_run(exec, ASH_KERNEL_family_cap, ash_cuda_grid_elements(count), &op);
}

const struct ash_family_ops ash_cuda_family = {.gated_forward = gated,
                                               .gated_backward = gated,
                                               .sink_forward = sink_forward,
                                               .sink_backward = sink_backward,
                                               .cap_forward = cap_forward,
                                               .cap_backward = cap_backward};
