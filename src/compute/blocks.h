/* blocks - how ref-wgmma adds rows of a bf16 model, and sums over its tokens.
 *   - A row: blocks of ASH_SUM_BLOCK adjacent columns, filled up with zeros. Each is added by neighbours (0 + 1, 2 + 3,
 *     ...; then these pairs, and so on); two products are fma(a1, b1, a0 * b0). Block b goes to partial sum b modulo
 *     ASH_SUM_LANES, ascending from 0. Then halves are added pairwise (l with l + 16, then + 8, + 4, + 2, + 1).
 *     A warp does that with 16-byte reads, and the kernel that makes a row can leave its blocks' sums.
 *   - A row of exponentials of logits: blocks of ASH_LOSS_BLOCK columns. Column c belongs to class c modulo
 *     ASH_LOSS_CLASSES; a class is one chain, ascending from 0, and the classes are added by neighbours. Blocks go to
 *     partial sums as above. So tensor cores leave them in registers, two classes in each of four threads.
 *   - Over tokens: blocks of ASH_K_GROUP rows of a sequence. Sequences start a new block, wherever a call begins. */
#ifndef ASH_COMPUTE_BLOCKS_H
#define ASH_COMPUTE_BLOCKS_H

#include <math.h>
#include "base/device_code.h"
#include "compute/ops.h"

#define ASH_SUM_BLOCK 16
#define ASH_SUM_LANES 32
#define ASH_LOSS_BLOCK 128
#define ASH_LOSS_CLASSES 8

/* The sum of count values (a power of two), neighbours first. Destroys them. */
ASH_INLINE float ash_sum_neighbours(float *values, int count)
{
    for (int left = count / 2; left > 0; left /= 2)
        for (int i = 0; i < left; i++)
            values[i] = values[2 * i] + values[2 * i + 1];
    return values[0];
}

/* Fold the partial sums into one. Destroys them. */
ASH_INLINE float ash_sum_fold(float lanes[ASH_SUM_LANES])
{
    for (int half = ASH_SUM_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] = lanes[l] + lanes[l + half];
    return lanes[0];
}

/* The sum of a row's products a[c] b[c]. cols is a multiple of ASH_SUM_BLOCK. */
ASH_INLINE float ash_sum_products(const float *a, const float *b, size_t cols)
{
    float lanes[ASH_SUM_LANES] = {0}, pairs[ASH_SUM_BLOCK / 2];

    for (size_t c = 0; c < cols; c += ASH_SUM_BLOCK) {
        size_t lane = c / ASH_SUM_BLOCK % ASH_SUM_LANES;

        for (size_t i = 0; i < ASH_SUM_BLOCK / 2; i++)
            pairs[i] = fmaf(a[c + 2 * i + 1], b[c + 2 * i + 1], a[c + 2 * i] * b[c + 2 * i]);
        lanes[lane] = lanes[lane] + ash_sum_neighbours(pairs, ASH_SUM_BLOCK / 2);
    }
    return ash_sum_fold(lanes);
}

/* ---- rows of sequences ------------------------------------------------------------------------------------------- */

/* Rows that a call has, in their sequences. */
struct ash_seq_rows {
    size_t rows, seq_rows, seq_first; /* as in ash_norm_args, seq_rows above 0 */
};

/* A block of them. */
struct ash_row_block {
    size_t first, count;
};

/* Blocks of one sequence. */
ASH_INLINE size_t ash_seq_blocks(size_t seq_rows)
{
    return (seq_rows + ASH_K_GROUP - 1) / ASH_K_GROUP;
}

/* Blocks that end in or before the first `row` rows of sequences. */
ASH_INLINE size_t ash_blocks_before(size_t seq_rows, size_t row)
{
    return row / seq_rows * ash_seq_blocks(seq_rows) + (row % seq_rows + ASH_K_GROUP - 1) / ASH_K_GROUP;
}

/* How many blocks a call has. */
ASH_INLINE size_t ash_row_blocks(const struct ash_seq_rows *of)
{
    return ash_blocks_before(of->seq_rows, of->seq_first + of->rows) - ash_blocks_before(of->seq_rows, of->seq_first);
}

/* One of them. */
ASH_INLINE struct ash_row_block ash_row_block(const struct ash_seq_rows *of, size_t index)
{
    size_t block = ash_blocks_before(of->seq_rows, of->seq_first) + index, each = ash_seq_blocks(of->seq_rows);
    size_t in_sequence = block % each * ASH_K_GROUP;
    size_t first = block / each * of->seq_rows + in_sequence - of->seq_first, count = of->seq_rows - in_sequence;
    struct ash_row_block rows = {first, count < ASH_K_GROUP ? count : ASH_K_GROUP};

    if (rows.count > of->rows - first) rows.count = of->rows - first;
    return rows;
}

/* A norm's rows. */
ASH_INLINE struct ash_seq_rows ash_norm_seq_rows(const struct ash_norm_args *args)
{
    struct ash_seq_rows rows = {args->rows, args->seq_rows != 0 ? args->seq_rows : args->rows, args->seq_first};

    return rows;
}

#endif
