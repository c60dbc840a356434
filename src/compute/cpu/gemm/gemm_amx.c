/* Products of bf16 matrices with AMX, to the bit as ref/tdpbf16.c computes them: the kernel for gemm_blocks.h, and the
 * one for small M. Compiled for machines with the instructions. */
#if defined(__x86_64__)

#include "compute/cpu/gemm/gemm_bf16.h"

#include <string.h>
#include "base/math.h"
#include "base/assert.h"
#include "compute/gemm_parts.h"
#include "compute/cpu/gemm/amx_pack.h"
#include "compute/cpu/gemm/amx_mapped.h"
#include "compute/cpu/gemm/amx_packed.h"
#include "compute/cpu/gemm/amx_vector.h"

/* Fetch the bytes [done, end) of what is ahead into L2. */
INLINE void fetch_lines(const struct gemm_ahead *ahead, size_t done, size_t end)
{
    for (; done < end; done += 64)
        _mm_prefetch((const char *)ahead->from + done, _MM_HINT_T1);
}

/* Fetch the rows [row, end) of c for writing: an instruction that no option of ours lets the compiler use. */
INLINE void fetch_rows(const float *c, size_t c_stride, size_t row, size_t end)
{
    for (; row < end; row++)
        __asm__ volatile("prefetchw (%0)\n\tprefetchw 64(%0)" : : "r"(c + row * c_stride));
}

/* Load a tile of a panel, which stays in L1 or bypasses it. */
#define LOAD(tile, from, stays)                                                                                        \
    do {                                                                                                               \
        if (stays)                                                                                                     \
            TILE_LOAD(tile, from, TILE_K * sizeof(uint16_t));                                                          \
        else                                                                                                           \
            TILE_LOAD_PASSING(tile, from, TILE_K * sizeof(uint16_t));                                                  \
    } while (0)

/* The sums of all steps. Each operand is loaded again as soon as the last instruction that reads it has been issued;
 * what is fetched is spread over the steps, because the lines on their way to L1 are few. left_stays is ahead's, as a
 * constant. */
INLINE void multiply_steps(size_t steps, const uint16_t *a, const uint16_t *b, const float *c, size_t c_stride,
                           const struct gemm_ahead *ahead, size_t c_rows, bool left_stays)
{
    size_t piece = ash_round_up(ahead->size_bytes / steps + 1, 64), rows = ash_div_up(c_rows, steps);

    LOAD(4, a, left_stays);
    LOAD(6, b, !left_stays);
    LOAD(7, b + TILE_SIZE, !left_stays);
    LOAD(5, a + TILE_SIZE, left_stays);
    for (size_t step = 1; step < steps; step++) {
        a += 2 * TILE_SIZE;
        b += 2 * TILE_SIZE;
        TILE_MULTIPLY(0, 4, 6);
        fetch_lines(ahead, ash_min((step - 1) * piece, ahead->size_bytes), ash_min(step * piece, ahead->size_bytes));
        TILE_MULTIPLY(1, 4, 7);
        LOAD(4, a, left_stays);
        TILE_MULTIPLY(3, 5, 7);
        fetch_rows(c, c_stride, ash_min((step - 1) * rows, c_rows), ash_min(step * rows, c_rows));
        TILE_MULTIPLY(2, 5, 6);
        LOAD(6, b, !left_stays);
        LOAD(7, b + TILE_SIZE, !left_stays);
        LOAD(5, a + TILE_SIZE, left_stays);
    }
    TILE_MULTIPLY(0, 4, 6);
    TILE_MULTIPLY(1, 4, 7);
    TILE_MULTIPLY(3, 5, 7);
    TILE_MULTIPLY(2, 5, 6);
}

/* c[PANEL_LINES, PANEL_LINES] = a b, or += where add, over k_count. */
static void tile_ahead(size_t k_count, const void *left, const void *right, bool add, float *c, size_t c_stride,
                       const struct gemm_ahead *ahead)
{
    const size_t c_bytes = c_stride * sizeof(*c);
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
    if (k_count > 0 && ahead->left_stays)
        multiply_steps(k_count / TILE_K, left, right, c, c_stride, ahead, add ? 0 : PANEL_LINES, true);
    else if (k_count > 0)
        multiply_steps(k_count / TILE_K, left, right, c, c_stride, ahead, add ? 0 : PANEL_LINES, false);
    TILE_STORE(0, c, c_bytes);
    TILE_STORE(1, c + TILE_SIDE, c_bytes);
    TILE_STORE(2, below, c_bytes);
    TILE_STORE(3, below + TILE_SIDE, c_bytes);
}

static void tile(size_t k_count, const void *left, const void *right, bool add, float *c, size_t c_stride)
{
    tile_ahead(k_count, left, right, add, c, c_stride, &(struct gemm_ahead){0});
}

static const struct gemm_kernel kernel = {.tile_rows = PANEL_LINES,
                                          .tile_cols = PANEL_LINES,
                                          .k_step = TILE_K,
                                          .element_bytes = sizeof(uint16_t),
                                          .block_k = 2048, /* more than L1 holds, but each pass over c costs more */
                                          .pack = pack_block,
                                          .begin = tile_use_whole,
                                          .end = tile_release,
                                          .tile = tile,
                                          .tile_ahead = tile_ahead,
                                          .rows_ahead = true,
                                          .l1_k = 768, /* 48 KiB: all of L1, past which the other panel goes */
                                          .unit_panels = 4};

void ash_gemm_amx(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_gemm_check(args);
    if (args->M == 0 || args->N == 0) return;
    if (ash_gemm_has_epilogue(args))
        ash_gemm_parts(exec, args, ash_gemm_amx);
    else if (mapped_gemm_fits(args))
        mapped_gemm(exec, args);
    else
        ash_gemm_blocks(exec, args, &kernel);
}

/* ---- weights that are packed already ----------------------------------------------------------------------------- */

static void gemm_packed(struct ash_exec *exec, const struct ash_gemm_args *args, size_t first)
{
    struct gemm_kernel packed_kernel = kernel;
    struct ash_gemm_args panels = *args;
    size_t k_padded = ash_round_up(args->K, TILE_K);

    ash_assert(args->a.dtype == ASH_F32 && first % TILE_SIDE == 0);
    if (args->M == 0 || args->N == 0) return;
    packed_kernel.pack = pack_either;
    panels.b = (struct ash_mat){(const uint16_t *)args->b.data + first * k_padded, ASH_BF16, TILE_SIDE, k_padded};
    ash_gemm_blocks(exec, &panels, &packed_kernel);
}

/* ---- small M ----------------------------------------------------------------------------------------------------- */

/* x twice: for mapped rows of w, where it is the right operand; after that for packed ones, as floats for vectors or as
 * tiles of the left operand (for each TILE_K, M rows). */
static size_t small_m_plain_bytes(size_t M, size_t K)
{
    return M * ash_round_up(K, TILE_K) * sizeof(uint16_t);
}

static size_t small_m_left_bytes(size_t M, size_t K)
{
    return small_m_plain_bytes(M, K) * (M <= VECTOR_ROWS ? 3 : 2); /* a float is two bf16 */
}

static void small_m_prepare(const float *x, size_t M, size_t K, bool round_bf16, void *left)
{
    const __m512i pairs = _mm512_mullo_epi32(_mm512_set1_epi32((int)M),
                                             _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    char *packed = (char *)left + small_m_plain_bytes(M, K);
    int32_t *plain = left;

    ash_assert(round_bf16 && M <= TILE_SIDE);
    for (size_t k = 0; k < K; k += TILE_K, plain += M * TILE_SIDE)
        for (size_t m = 0; m < M; m++) {
            __m512i line = load_line(x, ASH_F32, m * K + k, low_bits(K - k));

            _mm512_i32scatter_epi32(plain + m, pairs, line, sizeof(*plain));
            if (M <= VECTOR_ROWS)
                vector_x(line, (float *)(void *)packed);
            else
                _mm512_storeu_si512(packed, line);
            packed += TILE_K * (M <= VECTOR_ROWS ? sizeof(float) : sizeof(uint16_t));
        }
}

static void small_m_sums(const struct ash_small_m *job)
{
    const void *packed = (const char *)job->left + small_m_plain_bytes(job->M, job->K);

    if (!job->w->packed)
        mapped_sums(job);
    else if (job->M <= VECTOR_ROWS)
        vector_sums(job, packed);
    else
        packed_sums(job, packed);
}

const struct ash_small_m_kernel ash_small_m_amx = {.group_rows = TILE_SIDE,
                                                   .packed_rows = TILE_SIDE,
                                                   .groups_max = 2,
                                                   .left_bytes = small_m_left_bytes,
                                                   .prepare = small_m_prepare,
                                                   .sums = small_m_sums,
                                                   .packed_gemm = gemm_packed,
                                                   .packed_bytes = packed_bytes,
                                                   .pack = pack_weight};

#endif
