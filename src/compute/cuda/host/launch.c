/* Launching of kernels: grids, arguments, scratch memory. */
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/host/backend_priv.h"

#define THREADS 256
#define BLOCKS_MAX 65536         /* of a grid over elements; more of them walk in strides */
#define REDUCTION_BLOCKS_MAX 528 /* each adds to one place at its end */

static const char *const names[] = {
#define KERNEL(image, name) #name,
#include "compute/cuda/host/kernels_list.h"
#undef KERNEL
};
_Static_assert(ASH_COUNT(names) == ASH_CUDA_KERNEL_COUNT, "each kernel has a name");

void ash_cuda_run(struct ash_exec *exec, enum ash_cuda_kernel_id id, struct ash_cuda_grid grid, const void *args)
{
    grid.is_early = grid.is_early && exec->cuda->has_wgmma;
    ash_cuda_launch(exec->cuda->cuda, exec->cuda->kernels[id], names[id], grid, args);
}

struct ash_cuda_grid ash_cuda_grid_elements(size_t count)
{
    return (struct ash_cuda_grid){.x = ash_min(ash_div_up(count, THREADS), BLOCKS_MAX), .y = 1, .threads = THREADS};
}

struct ash_cuda_grid ash_cuda_grid_reduction(size_t count)
{
    return (struct ash_cuda_grid){
        .x = ash_min(ash_div_up(count, 4 * THREADS), REDUCTION_BLOCKS_MAX), .y = 1, .threads = THREADS};
}

struct ash_cuda_grid ash_cuda_grid_rows(size_t rows)
{
    return (struct ash_cuda_grid){.x = ash_div_up(rows * ASH_LANES, THREADS), .y = 1, .threads = THREADS};
}

struct ash_cuda_grid ash_cuda_grid_chains(size_t cols)
{
    return (struct ash_cuda_grid){
        .x = ash_div_up(cols, ASH_CUDA_CHAIN_COLS), .y = 1, .threads = 288, .shared_bytes = ASH_CUDA_CHAIN_BYTES};
}

void *ash_cuda_scratch(struct ash_exec *exec, size_t size_bytes)
{
    struct ash_buffer *scratch = &exec->cuda->scratch;

    return scratch->size_bytes >= size_bytes ? scratch->data : ash_cuda_grow(exec, scratch, size_bytes);
}

void *ash_cuda_grow(struct ash_exec *exec, struct ash_buffer *buffer, size_t size_bytes)
{
    struct ash_cuda_backend *backend = exec->cuda;
    struct ash_err err = {0};

    ash_cuda_wait(backend->cuda, NULL); /* kernels may still read it; a failure stays until it is asked for */
    ash_buffer_fini(buffer);
    if (ash_buffer_init(buffer, &ash_memory_cuda, size_bytes, "compute scratch", &err) == 0) return buffer->data;
    ash_cuda_fail(backend->cuda, &err);
    return backend->results.data; /* no kernel runs any more that would write there */
}
