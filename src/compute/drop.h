/* drop - which values of a row are left out (struct ash_drop_args): one draw of 64 bits decides for ASH_DROP_DRAWS
 * columns, 16 bits each. */
#ifndef ASH_COMPUTE_DROP_H
#define ASH_COMPUTE_DROP_H

#include "base/rng_draw.h"
#include "compute/ops.h"

#define ASH_DROP_DRAWS 4

/* The draw for the columns ASH_DROP_DRAWS * group and after it, of all ranks' columns, in row r of args. */
ASH_INLINE uint64_t ash_drop_draw(const struct ash_drop_args *args, size_t r, size_t group)
{
    size_t in_batch = args->first_row + r, groups = (args->all_cols + ASH_DROP_DRAWS - 1) / ASH_DROP_DRAWS;
    uint64_t key = ash_rng_draw_key(args->seed, args->sequences[in_batch / args->seq_rows], 0);

    return ash_rng_draw(key, in_batch % args->seq_rows * groups + group);
}

/* Column c of row r of args, of the columns of that draw. */
ASH_INLINE void ash_drop_put(const struct ash_drop_args *args, size_t r, size_t c, uint64_t draw)
{
    unsigned shift = 16 * (unsigned)((args->first_col + c) % ASH_DROP_DRAWS);
    float value = (draw >> shift & 0xffff) < args->threshold ? 0.0f : args->x[r * args->x_stride + c] * args->scale;
    float *out = args->out + r * args->out_stride + c;

    *out = args->add ? *out + value : value;
}

#endif
