/* shards: units of a model's flat buffers, and this rank's part of each. */
#include "model/shards.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/model_priv.h"

#define PART_ALIGN 16 /* elements: parts start on cache lines, and bf16 ones on half of one */

/* Close the unit that started at first: it ends at end. */
static void add_unit(struct ash_shards *shards, int id, size_t first, size_t end)
{
    size_t count = end - first, part = ash_round_up(ash_div_up(count, shards->size), PART_ALIGN);
    struct ash_shard_unit *unit = &shards->units[shards->unit_count];
    size_t own, own_end;

    ash_assert(end >= first);
    if (count == 0) return;
    own = ash_min(part * shards->rank, count);
    own_end = ash_min(own + part, count);
    *unit = (struct ash_shard_unit){
        .unit = id, .whole = {first, count}, .part = part, .own = {first + own, own_end - own}, .at = shards->total};
    shards->total += own_end - own;
    shards->unit_count++;
}

/* What comes before the layers starts the buffers. */
static int unit_of(const struct ash_param *param)
{
    return param->layer >= 0 ? param->layer : param->before_layers ? ASH_UNIT_EMBED : ASH_UNIT_HEAD;
}

int ash_shards_init(struct ash_shards *shards, const struct ash_model *model, size_t rank, size_t size,
                    struct ash_err *err)
{
    size_t count = model->param_count, first = 0;
    int unit = INT_MIN;

    ash_assert(rank < size);
    *shards = (struct ash_shards){.rank = rank, .size = size};
    shards->units = calloc(2 * count + 1, sizeof(*shards->units));
    if (shards->units == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a shard's parts");
    for (int expert = 0; expert < 2; expert++) { /* experts come after the others */
        for (size_t i = 0; i < count; i++) {
            const struct ash_param *param = &model->params[i];
            int next = unit_of(param);
            if (param->is_expert != (expert == 1) || (next == unit && param->offset > 0)) continue;
            add_unit(shards, unit, first, param->offset);
            first = param->offset;
            unit = next;
        }
        if (expert == 0) {
            add_unit(shards, unit, first, model->dense_size);
            first = model->dense_size;
            unit = INT_MIN;
        }
    }
    add_unit(shards, unit, first, model->size);
    return 0;
}

void ash_shards_fini(struct ash_shards *shards)
{
    free(shards->units);
    memset(shards, 0, sizeof(*shards));
}

struct ash_shard_part ash_shards_part(const struct ash_shards *shards, const struct ash_param *param)
{
    const struct ash_shard_unit *unit = shards->units;
    struct ash_range here;

    while (param->offset >= ash_range_end(unit->whole)) {
        unit++;
        ash_assert(unit < shards->units + shards->unit_count);
    }
    here = ash_range_overlap((struct ash_range){param->offset, param->count}, unit->own);
    if (here.count == 0) return (struct ash_shard_part){0};
    return (struct ash_shard_part){here.first - param->offset, here.count, unit->at + (here.first - unit->own.first)};
}

struct ash_shard_part ash_shards_part_in(const struct ash_shards *shards, const struct ash_param *param,
                                         struct ash_range run)
{
    struct ash_shard_part part = ash_shards_part(shards, param);
    struct ash_range here = ash_range_overlap((struct ash_range){part.at, part.count}, run);

    if (here.count == 0) return (struct ash_shard_part){0};
    return (struct ash_shard_part){part.first + (here.first - part.at), here.count, here.first};
}
