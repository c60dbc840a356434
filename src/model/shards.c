/* shards: units of a model's flat buffers, and this rank's part of each. */
#include "model/shards.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PART_ALIGN 16 /* elements: parts start on cache lines, and bf16 ones on half of one */

/* Close the unit that started at first: it ends at end. */
static void add_unit(struct ash_shards *shards, int id, size_t first, size_t end)
{
    size_t count = end - first, part = (count + shards->size - 1) / shards->size;
    struct ash_shard_unit *unit = &shards->units[shards->unit_count];
    size_t own, own_end;

    if (count == 0) return;
    part = (part + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    own = part * shards->rank < count ? part * shards->rank : count;
    own_end = own + part < count ? own + part : count;
    *unit = (struct ash_shard_unit){
        .unit = id, .whole = {first, count}, .part = part, .own = {first + own, own_end - own}, .at = shards->total};
    shards->total += own_end - own;
    shards->unit_count++;
}

/* What stands before the layers starts the buffers. */
static int unit_of(const struct ash_param *param)
{
    return param->layer >= 0 ? param->layer : param->before_layers ? ASH_UNIT_EMBED : ASH_UNIT_HEAD;
}

int ash_shards_init(struct ash_shards *shards, const struct ash_model *model, size_t rank, size_t size,
                    struct ash_err *err)
{
    size_t count = ash_model_param_count(model), first = 0;
    int unit = INT_MIN;

    *shards = (struct ash_shards){.rank = rank, .size = size};
    shards->units = calloc(2 * count + 1, sizeof(*shards->units));
    if (shards->units == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a shard's parts");
    for (int expert = 0; expert < 2; expert++) { /* experts lie behind the others */
        for (size_t i = 0; i < count; i++) {
            const struct ash_param *param = ash_model_param(model, i);
            int next = unit_of(param);
            if (param->expert != (expert == 1) || (next == unit && param->offset > 0)) continue;
            add_unit(shards, unit, first, param->offset);
            first = param->offset;
            unit = next;
        }
        if (expert == 0) {
            add_unit(shards, unit, first, ash_model_dense_size(model));
            first = ash_model_dense_size(model);
            unit = INT_MIN;
        }
    }
    add_unit(shards, unit, first, ash_model_size(model));
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
    size_t begin = param->offset, end = begin + param->count, own_end;

    while (begin >= unit->whole.first + unit->whole.count)
        unit++;
    own_end = unit->own.first + unit->own.count;
    if (begin < unit->own.first) begin = unit->own.first;
    if (end > own_end) end = own_end;
    if (begin >= end) return (struct ash_shard_part){0};
    return (struct ash_shard_part){begin - param->offset, end - begin, unit->at + (begin - unit->own.first)};
}

struct ash_shard_part ash_shards_part_in(const struct ash_shards *shards, const struct ash_param *param,
                                         struct ash_range run)
{
    struct ash_shard_part part = ash_shards_part(shards, param);
    size_t begin = part.at > run.first ? part.at : run.first, end = part.at + part.count;

    if (end > run.first + run.count) end = run.first + run.count;
    if (begin >= end) return (struct ash_shard_part){0};
    return (struct ash_shard_part){part.first + (begin - part.at), end - begin, begin};
}
