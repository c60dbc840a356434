/* Parts of parameters that are neighbours in the whole tensor, too. */
#include "base/assert.h"
#include "model/model_priv.h"

size_t ash_param_piece_count(const struct ash_param *param)
{
    return param->cut < 0 ? 1 : param->cut == 0 ? param->run_count : param->dims[0] * param->run_count;
}

struct ash_piece ash_param_piece(const struct ash_param *param, size_t index)
{
    size_t cols = param->dim_count == 2 ? param->dims[1] : 1, run = index % (param->cut < 0 ? 1 : param->run_count);
    size_t row = param->cut == 1 ? index / param->run_count : 0, before = 0;

    ash_assert(index < ash_param_piece_count(param));
    if (param->cut < 0) return (struct ash_piece){0, 0, param->count};
    for (size_t i = 0; i < run; i++)
        before += param->runs[i].count;
    if (param->cut == 0)
        return (struct ash_piece){before * cols, param->runs[run].first * cols, param->runs[run].count * cols};
    return (struct ash_piece){row * cols + before, row * param->full[1] + param->runs[run].first,
                              param->runs[run].count};
}

size_t ash_param_full_count(const struct ash_param *param)
{
    return param->full[0] * (param->dim_count == 2 ? param->full[1] : 1);
}

/* The local part of a piece: the rest of the buffer is never touched, so it takes no memory. */
struct ash_piece ash_model_held(const struct ash_model *model, const struct ash_param *param, size_t index)
{
    struct ash_piece piece = ash_param_piece(param, index);
    struct ash_shard_part part;
    struct ash_range held;

    if (!model->slice.shard_weights) return piece;
    part = ash_shards_part(&model->shards, param);
    held = ash_range_overlap((struct ash_range){piece.local, piece.count}, (struct ash_range){part.first, part.count});
    if (held.count == 0) return (struct ash_piece){0};
    return (struct ash_piece){held.first, piece.full + (held.first - piece.local), held.count};
}
