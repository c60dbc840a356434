/* Products of bf16 matrices with BFMMLA, to the bit as ref/bfmmla.c computes them: the kernel for gemm_blocks.h, and the
 * way for few rows. Compiled for machines with the instruction. No bf16 vector here is a constant: gcc 12 builds those
 * as half floats. */
#if defined(__aarch64__)

#include "compute/cpu/cpu_priv.h"

#include "base/assert.h"
#include "compute/cpu/bfmmla_pack.h"
#include "compute/cpu/bfmmla_rows.h"
#include "compute/cpu/gemm_blocks.h"
#include "compute/cpu/tile_bfmmla.h"

static void tile(size_t k_count, const void *a, const void *b, bool add, float *c, size_t c_stride)
{
    tile_bfmmla(k_count / GROUP, a, b, add, c, c_stride);
}

static const struct gemm_kernel kernel = {.tile_rows = TILE_BFMMLA_ROWS,
                                          .tile_cols = TILE_BFMMLA_COLS,
                                          .k_step = GROUP,
                                          .element_bytes = sizeof(uint16_t),
                                          .block_k = 1024,
                                          .pack = pack_block,
                                          .tile = tile};

void ash_gemm_bfmmla(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_assert(args->bias == NULL || !args->accumulate);
    if (args->M == 0 || args->N == 0) return;
    if (rows_fit(args))
        rows_gemm(exec, args);
    else
        ash_gemm_blocks(exec, args, &kernel);
}

#endif
