/* gemm_blocks - how a matrix product is blocked for caches and threads, the same for every instruction set; the kernel
 * of one multiplies. Operands are copied ("packed") into panels of lines, in the order in which the kernel's tile reads
 * them; a line is a row of the left operand or a column of the right one.
 *
 * k is cut into blocks, between which the sums wait in c, so every chain stays in order. The operand with fewer lines
 * is the shared one: all threads pack a block of it together, and all read it (ash_exec_broadcast). The lines of the
 * other one are split into units. The thread that takes a unit packs it, panel by panel as it goes (with tile_ahead
 * part by part), and multiplies. So each element is packed once, but for shared operands so small that each thread
 * packs them for itself. */
#ifndef ASH_COMPUTE_GEMM_BLOCKS_H
#define ASH_COMPUTE_GEMM_BLOCKS_H

#include <string.h>
#include "base/math.h"
#include "compute/ops.h"

#define GEMM_SLACK_BYTES 128 /* that a tile may read, and not use, after a panel */

/* A block of count lines of k_count elements: element k of line i is at data[i * line_stride + k * k_stride]. */
struct pack {
    const void *data;
    enum ash_dtype dtype;
    bool round_bf16; /* elements are rounded to bf16 */
    bool right;      /* lines are columns of the right operand */
    size_t line_stride, k_stride;
    size_t count, k_count;
};

/* What a tile_ahead also does: memory to prefetch, and which of the two panels the next tile reuses. */
struct gemm_ahead {
    const unsigned char *from;
    size_t size_bytes;
    bool left_stays; /* the left panel, else the right one */
};

struct gemm_kernel {
    size_t tile_rows, tile_cols;
    size_t k_step;        /* k of one instruction: panels are padded with zeros to whole steps */
    size_t element_bytes; /* of a packed element */
    size_t block_k;       /* at most; whole steps. A panel of it and a tile of c leave room in L1 for another panel. */
    /* Write panels of width lines, one after the other; the last is padded with zeros. */
    void (*pack)(const struct pack *lines, void *out, size_t width);
    /* What a thread does before its tiles and after them; or NULL. */
    void (*begin)(void);
    void (*end)(void);
    /* c[tile_rows, tile_cols] = a b, or += where add, over k_count (whole steps) of one panel each. */
    void (*tile)(size_t k_count, const void *a, const void *b, bool add, float *c, size_t c_stride);
    /* The same of the first cols columns alone, a multiple of part_cols: what is left of c at its edge. Or NULL. */
    void (*tile_part)(size_t k_count, const void *a, const void *b, bool add, float *c, size_t c_stride, size_t cols);
    size_t part_cols;
    /* The same, which also prefetches what ahead says into L2, or NULL: for an instruction that is faster than L3 is,
     * or (rows_ahead false) where panels of columns are large and used for a few tiles only. Such a kernel multiplies
     * panel by panel of the shared operand: each is read from L3 once per part of a thread's own lines, and the part is
     * as large as L2 allows. Of a panel, l1_k at a time: they stay in L1 while the own lines stream past. */
    void (*tile_ahead)(size_t k_count, const void *a, const void *b, bool add, float *c, size_t c_stride,
                       const struct gemm_ahead *ahead);
    bool rows_ahead;    /* also where the left operand is the shared one */
    size_t l1_k;        /* whole steps */
    size_t unit_panels; /* own ones of the smallest unit, each of which walks through all shared ones; 0: one */
};

/* The product of args (M, N > 0), which kernel multiplies. Runs on the workers of exec. */
void ash_gemm_blocks(struct ash_exec *exec, const struct ash_gemm_args *args, const struct gemm_kernel *kernel);

/* count cut into as few equal blocks as max allows, each a multiple of step (for a count of 0, one step). */
static inline size_t gemm_block_size(size_t count, size_t max, size_t step)
{
    size_t blocks = ash_div_up(count, max);

    return blocks == 0 ? step : ash_round_up(ash_div_up(count, blocks), step);
}

/* Copy rows x cols floats between blocks of different strides. */
static inline void copy_block(const float *from, size_t from_stride, float *to, size_t to_stride, size_t rows,
                              size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, cols * sizeof(*to));
}

#endif
