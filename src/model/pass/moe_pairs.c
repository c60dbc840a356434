/* moe_pairs: which pairs go where, and the rows that they are of. */
#include "model/pass/moe_pairs.h"

#include "base/assert.h"
#include "model/pass/split.h"

#define RESERVE_STEP ((size_t)16) /* pairs: keeps what lies after them aligned */

struct ash_range ash_moe_pairs_of(const struct ash_pass_step *step, size_t layer, size_t ep_rank, size_t tp_rank)
{
    const size_t *offsets = step->moe->routes[layer].offsets;
    struct ash_range experts = ash_split_experts(step->model, step->axes, ep_rank, tp_rank);

    ash_assert(offsets != NULL);
    return (struct ash_range){offsets[experts.first], offsets[ash_range_end(experts)] - offsets[experts.first]};
}

size_t ash_moe_max_pairs(const struct ash_model *model, const struct ash_pass_opts *opts, const struct ash_axes *axes)
{
    return ash_split_max_rows(opts, axes) * model->config.expert.choices;
}

void ash_moe_gather_rows(const struct ash_pass_step *step, size_t layer, const float *x, struct ash_range pairs,
                         bool weighted, float *out)
{
    const struct ash_row_ops *row = step->exec->ops->row;
    const struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    size_t hidden = step->model->config.hidden;
    float *weight = step->acts->scratch.pair_weight;

    if (pairs.count == 0) return;
    ash_assert(x != NULL && out != NULL);
    if (!weighted) {
        row->gather(step->exec, x, hidden, moe->order + pairs.first, pairs.count, out);
        return;
    }
    row->gather(step->exec, moe->weight, 1, moe->flat + pairs.first, pairs.count, weight);
    row->combine(step->exec, &(struct ash_slots_args){.rows = pairs.count,
                                                      .slots = 1,
                                                      .cols = hidden,
                                                      .y = x,
                                                      .where = moe->order + pairs.first,
                                                      .weight = weight,
                                                      .out = out});
}

int ash_moe_reserve(struct ash_growing *growing, const struct ash_exec *exec, size_t count, size_t width,
                    struct ash_err *err)
{
    size_t most = (count + count / 4 + RESERVE_STEP) / RESERVE_STEP * RESERVE_STEP;
    int rc;

    if (count <= growing->capacity) return 0;
    ash_buffer_fini(&growing->memory);
    growing->capacity = 0;
    rc =
        ash_buffer_init(&growing->memory, exec->memory, most * width * sizeof(float), "the tokens of other ranks", err);
    if (rc < 0) return rc;
    growing->capacity = most;
    return 0;
}
