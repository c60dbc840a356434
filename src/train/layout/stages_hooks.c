/* stages: what happens between the layers of a pass. Weights and gradients that are dealt out come and go there (fsdp);
 * and where the sums over replicas go between nodes, those of a layer set out as soon as the rank's last batch has left
 * it, while the layers before it are at work. */
#include "train/layout/stages_priv.h"

#include <errno.h>
#include <stdlib.h>

/* Are its sums over ranks those of stage->grains? Those of experts that serve several ranks are not. */
static bool is_summed(const struct ash_stage *stage, const struct ash_shard_unit *unit)
{
    return unit->whole.first < stage->grains.opts.sum_size;
}

/* Elements of a unit that each rank updates, where they are equally many and no two ranks' are the same; else 0. */
static size_t wanted_part(const struct ash_stage *stage, const struct ash_shard_unit *unit)
{
    size_t size = stage->state.shards->size;

    return size > 1 && stage->wanted_count > 0 && unit->part * size == unit->whole.count ? unit->part : 0;
}

/* The unit's sums set out. */
static int join_unit(struct ash_stage *stage, size_t index, struct ash_err *err)
{
    const struct ash_shard_unit *unit = &stage->state.shards->units[index];

    if (stage->joined[index] || !is_summed(stage, unit)) return 0;
    stage->joined[index] = true;
    ash_grains_end_run(&stage->grains, unit->whole);
    return ash_grains_start(&stage->grains, unit->whole, wanted_part(stage, unit), err);
}

static int need(void *ctx, int unit, bool backward, struct ash_err *err)
{
    struct ash_stage *stage = ctx;

    return ash_fsdp_need(&stage->fsdp, unit, backward, err);
}

static int done(void *ctx, int unit, bool backward, struct ash_err *err)
{
    struct ash_stage *stage = ctx;
    int rc;

    ash_call_note_work();
    rc = ash_fsdp_done(&stage->fsdp, unit, backward, err);

    if (!backward || !stage->joins || !stage->ends || !ash_fsdp_completes(stage->state.model, unit)) return rc;
    if (!stage->leads) return rc;
    for (size_t i = 0; rc == 0 && i < stage->state.shards->unit_count; i++)
        if (stage->state.shards->units[i].unit == unit) rc = join_unit(stage, i, err);
    return rc;
}

struct ash_pass_hooks ash_stages_hooks(struct ash_stage *stage)
{
    if (!stage->joins && !ash_fsdp_has_hooks(&stage->fsdp)) return (struct ash_pass_hooks){0};
    return (struct ash_pass_hooks){need, done, stage};
}

int ash_stages_open_joins(const struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err)
{
    const struct ash_group *data = stages->mesh->data;

    stage->joins = stages->mesh->zero < 2 && data != NULL && ash_group_nodes(data) > 1;
    stage->leads = ash_mesh_leads(stages->mesh);
    if (!stage->joins) return 0;
    stage->joined = calloc(stage->state.shards->unit_count, sizeof(*stage->joined));
    return stage->joined != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for a model's layers");
}

int ash_stages_join_rest(struct ash_stage *stage, struct ash_err *err)
{
    for (size_t i = 0; stage->leads && i < stage->state.shards->unit_count; i++) {
        int rc = join_unit(stage, i, err);
        if (rc < 0) return rc;
    }
    ash_grains_move(&stage->grains, 0, 1);
    return 0;
}
