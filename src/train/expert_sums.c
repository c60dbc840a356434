/* expert_sums: a lane per rank that is served; the lanes of a rank are neighbours in the order of grains, and so are
 * the ranks of mesh->experts. */
#include "train/expert_sums.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The grains of the rank that lane stands for, of owner number `owner` of the same experts. */
static struct ash_span lane_span(const struct ash_expert_sums *sums, size_t owner, size_t lane)
{
    size_t data_rank = owner * sums->lane_count + lane;

    return ash_grains_dealt(sums->grain_count, data_rank, ash_mesh_data_size(sums->mesh));
}

static int plan_shares(struct ash_expert_sums *sums, struct ash_err *err)
{
    struct ash_span spans[ASH_TREE_PARTS_MAX];
    size_t owners = sums->mesh->size[ASH_MESH_DP] * sums->mesh->size[ASH_MESH_FSDP], count = 0;

    for (size_t owner = 0; owner < owners; owner++) {
        for (size_t lane = 0; lane < sums->lane_count; lane++) {
            struct ash_span cover[ASH_TREE_COVER_MAX];
            size_t parts = ash_tree_cover(sums->grain_count, lane_span(sums, owner, lane), cover);

            if (owner >= ASH_SHARES_RANKS_MAX || count + parts > ASH_TREE_PARTS_MAX)
                return ash_err_set(err, -EINVAL, "%zu grains over %zu ranks make too many partial sums",
                                   sums->grain_count, ash_mesh_data_size(sums->mesh));
            memcpy(spans + count, cover, parts * sizeof(*cover));
            count += parts;
        }
        sums->shares.first[owner + 1] = (uint32_t)count;
    }
    return ash_tree_of_spans(&sums->shares.tree, spans, count, sums->grain_count);
}

int ash_expert_sums_init(struct ash_expert_sums *sums, const struct ash_mesh *mesh, const struct ash_model *model,
                         struct ash_exec *exec, size_t grain_count, struct ash_err *err)
{
    size_t size = ash_model_expert_size(model);
    int rc;

    *sums = (struct ash_expert_sums){.mesh = mesh, .model = model, .exec = exec, .grain_count = grain_count};
    if (mesh->size[ASH_MESH_EP] == 1) return 0;
    sums->lane_count = mesh->size[ASH_MESH_EP];
    sums->lanes = calloc(sums->lane_count, sizeof(*sums->lanes));
    sums->leaves = calloc(sums->lane_count, sizeof(*sums->leaves));
    if (sums->lanes == NULL || sums->leaves == NULL) {
        rc = ash_err_set(err, -ENOMEM, "out of memory for the experts' gradients");
        goto fail;
    }
    if ((rc = plan_shares(sums, err)) < 0) goto fail;
    if ((rc = ash_buffer_init(&sums->sum, exec->memory, size * sizeof(float), "experts' gradients", err)) < 0)
        goto fail;
    for (size_t lane = 0; lane < sums->lane_count; lane++) {
        struct ash_span own =
            lane_span(sums, mesh->at[ASH_MESH_DP] * mesh->size[ASH_MESH_FSDP] + mesh->at[ASH_MESH_FSDP], lane);
        if ((rc = ash_grains_init_part(&sums->lanes[lane], exec, own, size, grain_count, err)) < 0) goto fail;
    }
    return 0;

fail:
    ash_expert_sums_fini(sums);
    return rc;
}

void ash_expert_sums_fini(struct ash_expert_sums *sums)
{
    for (size_t lane = 0; sums->lanes != NULL && lane < sums->lane_count; lane++)
        ash_grains_fini(&sums->lanes[lane]);
    ash_buffer_fini(&sums->sum);
    free(sums->lanes);
    free(sums->leaves);
    memset(sums, 0, sizeof(*sums));
}

void ash_expert_sums_reset(struct ash_expert_sums *sums)
{
    for (size_t lane = 0; lane < sums->lane_count; lane++)
        ash_grains_reset(&sums->lanes[lane]);
}

void ash_expert_sums_begin(struct ash_expert_sums *sums, size_t round)
{
    for (size_t lane = 0; lane < sums->lane_count; lane++)
        if (round < ash_grains_own(&sums->lanes[lane]).count) sums->leaves[lane] = ash_grains_begin(&sums->lanes[lane]);
}

void ash_expert_sums_end(struct ash_expert_sums *sums, size_t round)
{
    for (size_t lane = 0; lane < sums->lane_count; lane++)
        if (round < ash_grains_own(&sums->lanes[lane]).count) ash_grains_end(&sums->lanes[lane]);
}

static int join(struct ash_expert_sums *sums, struct ash_err *err)
{
    const void *parts[ASH_TREE_PARTS_MAX];
    size_t count = 0, size = ash_model_expert_size(sums->model);

    for (size_t lane = 0; lane < sums->lane_count; lane++)
        count += ash_grains_parts(&sums->lanes[lane], parts + count);
    if (sums->mesh->experts != NULL)
        return ash_group_all_reduce_parts(sums->mesh->experts, parts, &sums->shares, sums->sum.data, size, ASH_COLL_F32,
                                          ASH_COLL_SUM, err);
    ash_coll_reduce(ASH_COLL_F32, ASH_COLL_SUM, &sums->shares.tree, parts, size, sums->sum.data);
    return 0;
}

int ash_expert_sums_finish(struct ash_expert_sums *sums, float *grads, struct ash_err *err)
{
    int rc;

    if (sums->lane_count == 0) return 0;
    if ((rc = join(sums, err)) < 0) return rc;
    for (size_t i = 0; i < ash_model_param_count(sums->model); i++) {
        const struct ash_param *param = ash_model_param(sums->model, i);
        if (!param->expert) continue;
        rc = sums->exec->memory->copy(grads + param->offset, (const float *)sums->sum.data + param->expert_offset,
                                      param->count * sizeof(float));
        if (rc < 0) return ash_err_set(err, rc, "cannot copy the experts' gradients");
    }
    return 0;
}
