/* Products of bf16 matrices with BFMMLA, to the bit as ref/bfmmla.c computes them: the kernel for gemm_blocks.h, and
 * small M with mapped weights. Compiled for machines with the instruction. No bf16 vector here is a constant: gcc 12
 * builds those as half floats. */
#if defined(__aarch64__)

#include "compute/cpu/gemm/gemm_bf16.h"

#include "base/math.h"
#include "base/assert.h"
#include "compute/gemm_parts.h"
#include "compute/cpu/gemm/bfmmla_pack.h"
#include "compute/cpu/gemm/bfmmla_mapped.h"
#include "compute/cpu/gemm/gemm_small_m.h"
#include "compute/cpu/gemm/gemm_blocks.h"
#include "compute/cpu/gemm/tile_bfmmla.h"

static void tile(size_t k_count, const void *a, const void *b, bool add, float *c, size_t c_stride)
{
    tile_bfmmla(k_count / GROUP, a, b, add, c, c_stride);
}

_Static_assert(TILE_BFMMLA_SLACK_BYTES <= GEMM_SLACK_BYTES, "a tile reads so far after a panel");

static const struct gemm_kernel kernel = {.tile_rows = TILE_BFMMLA_ROWS,
                                          .tile_cols = TILE_BFMMLA_COLS,
                                          .k_step = GROUP,
                                          .element_bytes = sizeof(uint16_t),
                                          .block_k = 1024,
                                          .pack = pack_block,
                                          .tile = tile};

void ash_gemm_bfmmla(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_gemm_check(args);
    if (args->M == 0 || args->N == 0) return;
    if (ash_gemm_has_epilogue(args))
        ash_gemm_parts(exec, args, ash_gemm_bfmmla);
    else if (mapped_gemm_fits(args))
        mapped_gemm(exec, args);
    else
        ash_gemm_blocks(exec, args, &kernel);
}

/* ---- weights that are packed already ----------------------------------------------------------------------------- */

/* Panels of ASH_BFMMLA_PANEL lines become panels of width lines (a multiple of that). A panel's group lies where
 * element (line, k) of a matrix with these strides would. */
static void repack(const struct pack *lines, uint16_t *out, size_t width)
{
    const uint16_t *from = lines->data;
    size_t groups = ash_div_up(lines->k_count, GROUP), step = ASH_BFMMLA_PANEL * GROUP;

    for (size_t line = 0; line < lines->count; line += width, from += width * lines->line_stride)
        for (size_t g = 0; g < groups; g++)
            for (size_t i = 0; i < width; i += ASH_BFMMLA_PANEL, out += step) {
                const uint16_t *at = from + i * lines->line_stride + g * step;

                __builtin_prefetch(at + width * lines->line_stride, 0, 2); /* the next panel, for later */
                if (line + i < lines->count)
                    memcpy(out, at, step * sizeof(*out));
                else
                    memset(out, 0, step * sizeof(*out));
            }
}

/* Rows of x are float32, packed weights are not. */
static void pack_either(const struct pack *lines, void *out, size_t width)
{
    if (lines->dtype == ASH_F32)
        pack_block(lines, out, width);
    else
        repack(lines, out, width);
}

static const struct gemm_kernel packed_kernel = {.tile_rows = TILE_BFMMLA_ROWS,
                                                 .tile_cols = TILE_BFMMLA_COLS,
                                                 .k_step = GROUP,
                                                 .element_bytes = sizeof(uint16_t),
                                                 .block_k = 1024,
                                                 .pack = pack_either,
                                                 .tile = tile};

void ash_gemm_bfmmla_packed(struct ash_exec *exec, const struct ash_gemm_args *args, size_t first)
{
    struct ash_gemm_args panels = *args;
    size_t k_padded = ash_round_up(args->K, GROUP);

    ash_assert(args->a.dtype == ASH_F32 && first % ASH_BFMMLA_PANEL == 0);
    if (args->M == 0 || args->N == 0) return;
    panels.b =
        (struct ash_mat){(const uint16_t *)args->b.data + first * k_padded, ASH_BF16, ASH_BFMMLA_PANEL, k_padded};
    ash_gemm_blocks(exec, &panels, &packed_kernel);
}

#endif
