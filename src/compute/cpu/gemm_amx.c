/* Products of bf16 matrices with AMX, to the bit as ref/tdpbf16.c computes them: the kernel for gemm_blocks.h, and the
 * way for few rows. Compiled for machines with the instructions. */
#if defined(__x86_64__)

#include "compute/cpu/cpu_priv.h"

#include <string.h>
#include "base/assert.h"
#include "compute/cpu/amx_pack.h"
#include "compute/cpu/amx_rows.h"

static void use_whole_tiles(void)
{
    static const struct tile_config whole = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

    tile_use(&whole);
}

/* c[PANEL_LINES, PANEL_LINES] = a b, or += where add, over k_count. */
static void tile(size_t k_count, const void *left, const void *right, bool add, float *c, size_t c_stride)
{
    const uint16_t *a = left, *b = right;
    const size_t row_bytes = TILE_K * sizeof(*a), c_bytes = c_stride * sizeof(*c);
    float *below = c + TILE_SIDE * c_stride;

    if (add) {
        TILE_LOAD(0, c, c_bytes);
        TILE_LOAD(1, c + TILE_SIDE, c_bytes);
        TILE_LOAD(2, below, c_bytes);
        TILE_LOAD(3, below + TILE_SIDE, c_bytes);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (size_t k = 0; k < k_count; k += TILE_K, a += 2 * TILE_SIZE, b += 2 * TILE_SIZE) {
        TILE_LOAD(6, b, row_bytes);
        TILE_LOAD(4, a, row_bytes);
        TILE_MULTIPLY(0, 4, 6);
        TILE_LOAD(7, b + TILE_SIZE, row_bytes);
        TILE_MULTIPLY(1, 4, 7);
        TILE_LOAD(5, a + TILE_SIZE, row_bytes);
        TILE_MULTIPLY(2, 5, 6);
        TILE_MULTIPLY(3, 5, 7);
    }
    TILE_STORE(0, c, c_bytes);
    TILE_STORE(1, c + TILE_SIDE, c_bytes);
    TILE_STORE(2, below, c_bytes);
    TILE_STORE(3, below + TILE_SIDE, c_bytes);
}

static const struct gemm_kernel kernel = {.tile_rows = PANEL_LINES,
                                          .tile_cols = PANEL_LINES,
                                          .k_step = TILE_K,
                                          .element_bytes = sizeof(uint16_t),
                                          .block_k = 2048, /* more than L1 holds, but each pass over c costs more */
                                          .pack = pack_block,
                                          .begin = use_whole_tiles,
                                          .end = tile_release,
                                          .tile = tile};

void ash_gemm_amx(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_assert(args->bias == NULL || !args->accumulate);
    if (args->M == 0 || args->N == 0) return;
    if (rows_fit(args))
        rows_gemm(exec, args);
    else
        ash_gemm_blocks(exec, args, &kernel);
}

const struct ash_few_kernel ash_few_amx = {
    .rows_max = ASH_FEW_ROWS, .left_bytes = few_left_bytes, .prepare = few_prepare, .sums = few_sums};

#endif
