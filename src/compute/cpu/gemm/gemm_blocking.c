/* The sizes of blocks, once per product. The limits are measured: a block of the shared operand stays in L3, a thread's
 * own panels in L2, a panel in L1. */
#include "compute/cpu/gemm/gemm_blocking.h"

#include "base/assert.h"
#include "base/math.h"

#define SHARED_LINES 1024           /* at most, of the operand that all threads read: its block stays in L3 */
#define PART_LINES 192              /* at most, that a thread packs and multiplies at once: its panels stay in L2 */
#define PART_L2_BYTES (1280u << 10) /* where panels pass: of packed lines that stay in L2, half of them shared ones */
#define ALONE_BYTES ((512u << 10) + GEMM_SLACK_BYTES) /* of the shared operand, see packs_alone */
#define ALONE_LINES 128                               /* of the other one, a thread */
#define PANELS_EVEN 8                                 /* panels a thread from which on units come out even */
#define LEVELS_MAX 7                                  /* of units, see unit_start */
#define ADJACENT_LINES 96                             /* adjacent lines that are packed at once: whole cache lines */

/* Is an operand of this many lines small enough for every thread to pack it for itself? */
static bool packs_small(const struct ash_gemm_args *args, const struct gemm_kernel *kernel, size_t lines)
{
    return lines * ash_min(ash_round_up(args->K, kernel->k_step), kernel->block_k) * kernel->element_bytes <=
           ALONE_BYTES;
}

/* The operand with fewer lines is the shared one. Of two alike, if it is small, the one that is fewer bytes, because
 * every thread reads all of it; else the left one, unless the right one has too few panels to be split evenly. */
static bool shares_rows(const struct ash_gemm_args *args, const struct gemm_kernel *kernel, size_t threads)
{
    size_t col_panels = ash_div_up(args->N, kernel->tile_cols);
    size_t a_bytes = ash_dtype_bytes(args->a.dtype), b_bytes = ash_dtype_bytes(args->b.dtype);

    if (args->M != args->N) return args->M < args->N;
    if (a_bytes != b_bytes && packs_small(args, kernel, args->N)) return a_bytes < b_bytes;
    return col_panels >= threads * PANELS_EVEN;
}

static struct gemm_side side_of(const struct ash_mat *mat, size_t line_stride, size_t k_stride, size_t lines,
                                size_t width)
{
    size_t panels = line_stride == 1 && width < ADJACENT_LINES ? ADJACENT_LINES / width : 1;

    return (struct gemm_side){.mat = mat,
                              .line_stride = line_stride,
                              .k_stride = k_stride,
                              .lines = lines,
                              .width = width,
                              .together = panels * width};
}

/* Levels of units, down to one of about a panel (or a few) for each thread. */
static size_t level_count(const struct gemm_side *own, size_t threads, const struct gemm_kernel *kernel)
{
    size_t panels = ash_div_up(own->lines, own->width), levels = 1;
    size_t least = threads * ash_max(kernel->unit_panels, 1);

    while (threads > 1 && levels < LEVELS_MAX && panels >> levels >= least)
        levels++;
    return levels;
}

/* Own lines that a thread packs and multiplies at once, next to a block of cut->shared_lines shared lines. */
static size_t part_lines(const struct gemm_blocking *cut, const struct gemm_side *own, size_t line_bytes)
{
    size_t most = PART_LINES, shared;

    if (cut->passing) {
        shared = ash_min(cut->shared_lines * line_bytes, PART_L2_BYTES / 2);
        most = ash_max((PART_L2_BYTES - shared) / line_bytes, own->width);
    }
    return gemm_block_size(own->lines, most, own->width);
}

/* Whether every thread packs all of the shared operand for itself: where that is little compared with what it
 * multiplies, it costs less than waiting for the others, and than reading lines that lie in their caches. */
static bool packs_alone(const struct gemm_blocking *cut, const struct gemm_side *own)
{
    return cut->threads > 1 && cut->shared_bytes <= ALONE_BYTES && own->lines >= cut->threads * ALONE_LINES;
}

void ash_gemm_operands_init(struct gemm_operands *in, const struct ash_gemm_args *args,
                            const struct gemm_kernel *kernel, size_t threads)
{
    ash_assert(threads > 0);
    in->rows = side_of(&args->a, args->a.row_stride, args->a.col_stride, args->M, kernel->tile_rows);
    in->cols = side_of(&args->b, args->b.col_stride, args->b.row_stride, args->N, kernel->tile_cols);
    in->threads = threads;
    in->share_rows = shares_rows(args, kernel, threads);
    in->shared = in->share_rows ? &in->rows : &in->cols;
    in->own = in->share_rows ? &in->cols : &in->rows;
}

void ash_gemm_choose_blocking(struct gemm_blocking *cut, const struct gemm_operands *in,
                              const struct ash_gemm_args *args, const struct gemm_kernel *kernel)
{
    size_t line_bytes;

    cut->threads = in->threads;
    cut->passing = kernel->tile_ahead != NULL && (!in->share_rows || kernel->rows_ahead);
    cut->levels = level_count(in->own, cut->threads, kernel);
    cut->block_k = gemm_block_size(args->K, kernel->block_k, ash_round_up(ASH_K_GROUP, kernel->k_step));
    line_bytes = cut->block_k * kernel->element_bytes;
    cut->shared_lines = gemm_block_size(in->shared->lines, SHARED_LINES, in->shared->together);
    cut->shared_bytes = cut->shared_lines * line_bytes + GEMM_SLACK_BYTES;
    cut->part_lines = part_lines(cut, in->own, line_bytes);
    cut->own_bytes = ash_round_up(cut->part_lines * line_bytes + GEMM_SLACK_BYTES, ASH_MEMORY_ALIGN);
    cut->alone = packs_alone(cut, in->own);
}
