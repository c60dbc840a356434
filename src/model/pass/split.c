/* split: who has which part, from sizes and rank numbers alone. */
#include "model/pass/split.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/blocks.h"

struct ash_range ash_split_rows_cp(const struct ash_axes *axes, size_t batch_rows, size_t cp_rank)
{
    return ash_range_split(batch_rows, ASH_K_GROUP, cp_rank, axes->cp.size);
}

/* The first row of a block. */
static size_t block_row(size_t rows, size_t seq_rows, size_t block)
{
    size_t each = ash_seq_blocks(seq_rows);

    return ash_min(rows, block / each * seq_rows + block % each * ASH_K_GROUP);
}

struct ash_range ash_split_rows_tp(const struct ash_axes *axes, size_t rows, size_t seq_rows, size_t tp_rank)
{
    size_t count = axes->row_blocks && rows > 0 ? ash_blocks_before(seq_rows, rows) : rows;
    size_t first = count * tp_rank / axes->tp.size, end = count * (tp_rank + 1) / axes->tp.size;

    ash_assert(tp_rank < axes->tp.size);
    if (axes->row_blocks && rows > 0) {
        first = block_row(rows, seq_rows, first);
        end = block_row(rows, seq_rows, end);
    }
    return (struct ash_range){first, end - first};
}

struct ash_range ash_split_heads_cp(const struct ash_model *model, const struct ash_axes *axes, size_t cp_rank)
{
    return ash_range_split(model->config.kv_heads, 1, cp_rank, axes->cp.size);
}

struct ash_range ash_split_heads_tp(const struct ash_model *model, const struct ash_axes *axes, size_t tp_rank)
{
    return ash_range_split(model->whole.kv_heads, 1, tp_rank, axes->tp.size);
}

struct ash_range ash_split_vocab_tp(const struct ash_model *model, const struct ash_axes *axes, size_t tp_rank)
{
    struct ash_slice slice = {.tp_rank = tp_rank, .tp_size = axes->tp.size};

    return ash_slice_vocab(&model->whole, &slice);
}

size_t ash_split_seq_rows(const struct ash_batch *batch, size_t rows)
{
    return batch->seq_rows != 0 ? ash_min(batch->seq_rows, rows) : rows;
}

/* What ash_range_split gives at most. */
size_t ash_split_max_rows(const struct ash_pass_opts *opts, const struct ash_axes *axes)
{
    size_t groups = opts->max_rows / ASH_K_GROUP;
    size_t rows = ash_div_up(groups, axes->cp.size) * ASH_K_GROUP + ASH_K_GROUP;

    return axes->cp.size > 1 ? ash_min(rows, opts->max_rows) : opts->max_rows;
}

size_t ash_split_max_own_rows(const struct ash_pass_opts *opts, const struct ash_axes *axes)
{
    size_t rows = ash_split_max_rows(opts, axes), own = ash_div_up(rows, axes->tp.size);

    /* Blocks are of up to ASH_K_GROUP rows, and the sequence that one begins in may have a short one at its end. */
    return axes->row_blocks ? ash_min(rows, own + 2 * ASH_K_GROUP) : own;
}

bool ash_split_has_embed(const struct ash_model *model)
{
    return model->slice.embed && (model->layer_ids[0] == 0 || model->config.fuses_states);
}

bool ash_split_has_head(const struct ash_model *model)
{
    return model->slice.head && model->layer_ids[model->config.layers - 1] + 1 == model->whole.layers;
}

size_t ash_split_expert_parts(const struct ash_model *model, const struct ash_axes *axes)
{
    return model->slice.expert_size > 1 ? axes->tp.size : 1;
}

struct ash_range ash_split_experts(const struct ash_model *model, const struct ash_axes *axes, size_t ep_rank,
                                   size_t tp_rank)
{
    size_t parts = ash_split_expert_parts(model, axes), rank = ep_rank * parts + (parts > 1 ? tp_rank : 0);

    if (model->slice.gathers) return model->experts;
    return ash_range_split(model->config.expert.experts, 1, rank, model->slice.expert_size);
}

bool ash_split_shares_pairs(const struct ash_model *model, const struct ash_axes *axes)
{
    return axes->tp.same_node && ash_split_expert_parts(model, axes) > 1;
}
