/* trainer: grains that an interrupted step had finished are not computed again. The remaining ranks list the subtrees
 * of grains that they have sums of. Complete ones, with their losses, are salvaged: they move to the ranks that need
 * them in the new mesh, checksummed like the state, and the step computes the others. In doubt a grain is computed. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train/recover/grain_plan.h"
#include "train/recover/range_index.h"
#include "train/recover/rank_lists.h"

/* A rank's entry for a subtree that it has. Plain data. */
struct note {
    uint64_t first, count;
    uint32_t has_losses;
    uint32_t column; /* of this rank among those that share the sequences in the new mesh; UINT32_MAX: it is a spare */
};

/* One that this process has, of one chunk. */
struct held {
    struct note note; /* first */
    const struct ash_stage *stage;
    const float *sums;
    const double *losses;
};

struct keeper {
    struct ash_trainer *trainer;
    uint64_t step;
    size_t grains, params;
    struct held *held; /* [held_count] */
    size_t held_count;
    struct ash_rank_lists notes;
    struct ash_grain_offer *offers; /* [offer_count]: all subtrees on any rank, each once */
    size_t offer_count;
    struct ash_grain_plan plan;
    const struct ash_stage *stage; /* being listed */
    bool reports;
};

/* ---- subtrees of all ranks--------------------------------------------------------------------------------------- */

static int add_held(void *ctx, struct ash_range span, const float *sums, const double *losses)
{
    struct keeper *keeper = ctx;
    const struct ash_trainer *trainer = keeper->trainer;
    struct held *held = realloc(keeper->held, (keeper->held_count + 1) * sizeof(*held));
    bool is_spare = ash_trainer_is_spare(trainer);

    if (held == NULL) return -ENOMEM;
    keeper->held = held;
    held[keeper->held_count++] =
        (struct held){.note = {.first = span.first,
                               .count = span.count,
                               .has_losses = keeper->reports && losses != NULL,
                               .column = is_spare ? UINT32_MAX : (uint32_t)ash_mesh_data_rank(&trainer->now->mesh)},
                      .stage = keeper->stage,
                      .sums = sums,
                      .losses = losses};
    return 0;
}

/* Losses are with the last chunk. */
static int list_held(struct keeper *keeper, struct ash_err *err)
{
    const struct ash_trainer *trainer = keeper->trainer;

    for (size_t i = 0; i < trainer->kept_count; i++) {
        const struct ash_kept_state *kept = &trainer->kept[i];

        if (kept->stages.summed_step != keeper->step + 1) continue;
        for (size_t c = 0; c < kept->stages.chunk_count; c++) {
            keeper->stage = &kept->stages.chunks[c];
            keeper->reports = kept->reports && c + 1 == kept->stages.chunk_count;
            if (ash_stages_list_finished(&kept->stages, c, kept->losses, add_held, keeper) < 0)
                return ash_err_set(err, -ENOMEM, "out of memory for kept grains");
        }
    }
    return 0;
}

bool ash_trainer_has_grains(const struct ash_trainer *trainer)
{
    bool has = false;

    for (size_t i = 0; i < trainer->kept_count; i++) {
        const struct ash_stages *stages = &trainer->kept[i].stages;

        has = has || (stages->summed_step > 0 && stages->summed_step == stages->chunks[0].state.step + 1);
    }
    return has;
}

/* Which number a subtree has among the offers; SIZE_MAX: it is none of them. */
static size_t find_offer(const struct keeper *keeper, const struct note *note)
{
    for (size_t i = 0; i < keeper->offer_count; i++)
        if (keeper->offers[i].span.first == note->first && keeper->offers[i].span.count == note->count) return i;
    return SIZE_MAX;
}

/* The subtrees of all ranks, once each. */
static int list_offers(struct keeper *keeper, struct ash_err *err)
{
    struct ash_group *root = keeper->trainer->root;
    const struct note *notes;
    size_t count;
    int rc = ash_rank_lists_gather(&keeper->notes, root, keeper->held, keeper->held_count,
                                   (struct ash_rank_item){sizeof(*keeper->held), sizeof(keeper->held->note)}, err);

    if (rc < 0) return rc;
    notes = keeper->notes.items;
    count = keeper->notes.first[ash_group_size(root)];
    keeper->offers = calloc(count + 1, sizeof(*keeper->offers));
    if (keeper->offers == NULL) return ash_err_set(err, -ENOMEM, "out of memory for kept grains");
    for (size_t i = 0; i < count; i++) {
        const struct note *note = &notes[i];
        bool is_right = note->count > 0 && note->first < keeper->grains && note->count <= keeper->grains - note->first;

        if (!is_right || find_offer(keeper, note) != SIZE_MAX) continue;
        keeper->offers[keeper->offer_count++] = (struct ash_grain_offer){
            {(size_t)note->first, (size_t)note->count}, note->column != UINT32_MAX ? note->column : SIZE_MAX};
    }
    return 0;
}

/* ---- complete subtrees ------------------------------------------------------------------------------------------- */

/* A list of this process's ranges of the sums of all offers. */
static int list_sums(const struct keeper *keeper, struct ash_patches *have, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < keeper->held_count; i++) {
        const struct held *held = &keeper->held[i];
        size_t offer = find_offer(keeper, &held->note);

        if (offer != SIZE_MAX) /* sums are read, though patches can be written, too */
            rc = ash_patches_add_sums(have, held->stage, keeper->trainer->outline, (float *)(uintptr_t)held->sums,
                                      offer * keeper->params, err);
    }
    return rc;
}

/* Is all of a parameter there? */
static bool is_whole(const struct ash_range_index *index, uint32_t param, size_t count)
{
    uint64_t end = 0;

    for (size_t i = ash_range_index_at(index, param, 0); i < index->count && end < count; i++) {
        const struct ash_patch_range *range = &index->entries[i].range;

        if (range->param != param || range->first > end) break;
        if (range->first + range->count > end) end = range->first + range->count;
    }
    return end >= count;
}

/* A rank has its losses, and together the ranks have all of its sums. */
static bool is_complete(const struct keeper *keeper, const struct ash_range_index *index, size_t offer)
{
    const struct ash_model *outline = keeper->trainer->outline;
    const struct note *notes = keeper->notes.items;
    bool has_losses = false, whole = true;

    for (size_t i = 0; !has_losses && i < keeper->notes.first[ash_group_size(keeper->trainer->root)]; i++)
        has_losses = notes[i].has_losses != 0 && find_offer(keeper, &notes[i]) == offer;
    for (size_t p = 0; has_losses && whole && p < keeper->params; p++) {
        const struct ash_param *param = ash_model_param(outline, p);

        if (param->is_trained && !param->is_tied_copy)
            whole = is_whole(index, (uint32_t)(offer * keeper->params + p), param->count);
    }
    return has_losses && whole;
}

/* Drop offers that are not. */
static int check_offers(struct keeper *keeper, struct ash_err *err)
{
    struct ash_group *root = keeper->trainer->root;
    struct ash_patches have = {0};
    struct ash_rank_lists all = {0};
    struct ash_range_index index = {0};
    bool *complete = calloc(keeper->offer_count + 1, sizeof(*complete));
    size_t left = 0;
    int rc =
        complete != NULL ? list_sums(keeper, &have, err) : ash_err_set(err, -ENOMEM, "out of memory for kept grains");

    if (rc == 0)
        rc = ash_rank_lists_gather(&all, root, have.items, have.count,
                                   (struct ash_rank_item){sizeof(*have.items), sizeof(have.items->range)}, err);
    if (rc == 0) {
        rc = ash_range_index_init(&index, all.items, all.first[ash_group_size(root)], sizeof(have.items->range));
        if (rc < 0) ash_err_set(err, rc, "out of memory for kept grains");
    }
    for (size_t i = 0; rc == 0 && i < keeper->offer_count; i++)
        complete[i] = is_complete(keeper, &index, i);
    for (size_t i = 0; rc == 0 && i < keeper->offer_count; i++)
        if (complete[i]) keeper->offers[left++] = keeper->offers[i];
    if (rc == 0) keeper->offer_count = left;
    ash_range_index_fini(&index);
    ash_rank_lists_fini(&all);
    ash_patches_fini(&have);
    free(complete);
    return rc;
}

/* ---- move to the new mesh ---------------------------------------------------------------------------------------- */

/* Memory in the new mesh; *agreed_out: all ranks have allocated theirs. */
static int open_kept(struct keeper *keeper, bool *agreed_out, struct ash_err *err)
{
    struct ash_trainer *trainer = keeper->trainer;
    struct ash_grain_plan *plan = &keeper->plan;
    struct ash_range *spans = calloc(plan->kept_count + 1, sizeof(*spans));
    struct ash_grains_kept kept = {.parts = plan->parts, .spans = spans, .count = plan->kept_count};
    bool can = true;
    int64_t all;
    int rc = spans != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for kept grains");

    for (size_t i = 0; rc == 0 && i < plan->kept_count; i++)
        spans[i] = plan->kept[i].span;
    if (rc == 0 && !ash_trainer_is_spare(trainer))
        rc = ash_stages_open_kept(&trainer->now->stages, &kept, keeper->step, &can, err);
    free(spans);
    if (rc < 0) return rc;
    all = can;
    rc = ash_group_all_reduce(trainer->root, &all, &all, 1, ASH_COLL_I64, ASH_COLL_MIN, err);
    *agreed_out = rc == 0 && all != 0;
    return rc;
}

/* From now on the offers are the planned ones. */
static int move_sums(struct keeper *keeper, struct ash_exchange_counts *counts, struct ash_err *err)
{
    struct ash_trainer *trainer = keeper->trainer;
    const struct ash_stages *stages = &trainer->now->stages;
    struct ash_patches have = {0}, need = {0};
    const struct ash_exchange_sides sides = {.have = &have, .need = &need};
    int rc;

    memcpy(keeper->offers, keeper->plan.kept, keeper->plan.kept_count * sizeof(*keeper->offers));
    keeper->offer_count = keeper->plan.kept_count;
    rc = list_sums(keeper, &have, err);
    for (size_t c = 0; c < stages->chunk_count; c++)
        for (size_t i = 0; rc == 0 && i < stages->kept.own.count; i++)
            rc = ash_patches_add_sums(&need, &stages->chunks[c], trainer->outline, ash_stages_kept_sums(stages, c, i),
                                      (stages->kept.own.first + i) * keeper->params, err);
    if (rc == 0) rc = ash_exchange_run(trainer->root, trainer->outline, &sides, counts, err);
    ash_patches_fini(&have);
    ash_patches_fini(&need);
    return rc;
}

/* The first rank that has the losses of a subtree contributes them; the others add zeros. */
static int share_losses(const struct keeper *keeper, int64_t *bits, struct ash_err *err)
{
    struct ash_group *root = keeper->trainer->root;
    const struct note *notes = keeper->notes.items;
    size_t own = ash_group_rank(root);

    for (size_t offer = 0; offer < keeper->offer_count; offer++) {
        size_t i = 0;

        while (notes[i].has_losses == 0 || find_offer(keeper, &notes[i]) != offer)
            i++;
        if (i < keeper->notes.first[own] || i >= keeper->notes.first[own + 1]) continue;
        const struct held *held = &keeper->held[i - keeper->notes.first[own]];
        memcpy(bits + held->note.first, held->losses + held->note.first, held->note.count * sizeof(*bits));
    }
    return ash_group_all_reduce(root, bits, bits, keeper->grains, ASH_COLL_I64, ASH_COLL_SUM, err);
}

static int take(struct keeper *keeper, struct ash_recovery *recovery, struct ash_err *err)
{
    struct ash_trainer *trainer = keeper->trainer;
    struct ash_exchange_counts counts = {0};
    double *losses = calloc(keeper->grains, sizeof(*losses));
    int64_t *bits = calloc(keeper->grains, sizeof(*bits));
    int rc = losses != NULL && bits != NULL ? move_sums(keeper, &counts, err)
                                            : ash_err_set(err, -ENOMEM, "out of memory for kept grains");

    if (rc == 0) rc = share_losses(keeper, bits, err);
    if (rc == 0) memcpy(losses, bits, keeper->grains * sizeof(*losses));
    if (rc == 0 && !ash_trainer_is_spare(trainer)) rc = ash_stages_set_kept(&trainer->now->stages, losses, err);
    free(losses);
    free(bits);
    if (rc < 0) return rc;
    recovery->moved_bytes += counts.moved_bytes;
    recovery->kept_grains = keeper->plan.kept_grains;
    return 0;
}

static int keep(struct keeper *keeper, size_t ranks, struct ash_recovery *recovery, struct ash_err *err)
{
    bool agreed = false;
    int rc = list_held(keeper, err);

    if (rc == 0) rc = list_offers(keeper, err);
    if (rc == 0) rc = check_offers(keeper, err);
    if (rc < 0 || keeper->offer_count == 0) return rc;
    rc = ash_grain_plan_make(&keeper->plan, keeper->offers, keeper->offer_count, keeper->grains, ranks);
    if (rc < 0) return ash_err_set(err, rc, "out of memory for kept grains");
    if (keeper->plan.kept_count == 0) return 0;
    rc = open_kept(keeper, &agreed, err);
    if (rc == 0 && agreed) return take(keeper, recovery, err);
    if (!ash_trainer_is_spare(keeper->trainer)) ash_stages_drop_kept(&keeper->trainer->now->stages);
    return rc;
}

int ash_trainer_keep_grains(struct ash_trainer *trainer, uint64_t step, struct ash_recovery *recovery,
                            struct ash_err *err)
{
    const struct ash_job_mesh *mesh = &trainer->now->job.mesh;
    size_t ranks = (size_t)(mesh->dp * mesh->fsdp * mesh->ep), even;
    struct keeper keeper = {.trainer = trainer,
                            .step = step,
                            .grains = (size_t)trainer->job->train.grains,
                            .params = ash_model_param_count(trainer->outline)};
    int rc = keep(&keeper, ranks, recovery, err);

    even = ash_grains_partition(keeper.grains, ranks - 1, ranks).count;
    if (rc == 0 && recovery->kept_grains > 0) recovery->kept_share = 1.0 - (double)keeper.plan.most / (double)even;
    ash_grain_plan_fini(&keeper.plan);
    ash_rank_lists_fini(&keeper.notes);
    free(keeper.offers);
    free(keeper.held);
    return rc;
}
