/* stages: grains that an interrupted step had finished. Their sums outlive the mesh that made them: the ranks that redo
 * the step put them into their trees, and compute the other grains only. To balance the work, ranks have other grains
 * than usual in that step. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "train/layout/stages_priv.h"

bool ash_stages_can_keep(const struct ash_stages *stages)
{
    const struct ash_mesh *mesh = stages->mesh;

    return mesh->zero <= 1 && mesh->size[ASH_MESH_CP] == 1 && mesh->size[ASH_MESH_EP] == 1;
}

int ash_stages_list_finished(const struct ash_stages *stages, size_t chunk, const double *losses,
                             ash_stages_finished_fn each, void *ctx)
{
    const struct ash_stages_kept *kept = &stages->kept;
    const struct ash_grains *grains = &stages->chunks[chunk].grains;
    struct ash_range spans[ASH_GRAINS_DEPTH_MAX];
    const float *sums[ASH_GRAINS_DEPTH_MAX];
    size_t count = stages->summed_step > 0 ? ash_grains_finished(grains, spans, sums) : 0, end = 0;
    int rc = 0;

    ash_assert(chunk < stages->chunk_count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = each(ctx, spans[i], sums[i], losses);
        end = ash_range_end(spans[i]);
    }
    /* those whose turn had not come */
    for (size_t i = 0; rc == 0 && kept->is_set && !grains->is_reduced && i < kept->own.count; i++) {
        struct ash_range span = kept->spans[kept->own.first + i];

        if (span.first >= end) rc = each(ctx, span, kept->values[chunk * kept->own.count + i], kept->losses);
    }
    return rc;
}

/* ---- before the step --------------------------------------------------------------------------------------------- */

/* This rank's grains that are not kept, and its kept subtrees. */
static void split_part(struct ash_stages_kept *kept, struct ash_range part)
{
    for (size_t i = 0; i < kept->span_count; i++) {
        if (kept->spans[i].first < part.first) kept->own.first++;
        if (ash_range_overlap(kept->spans[i], part).count > 0) kept->own.count++;
    }
    for (size_t grain = part.first, i = kept->own.first; grain < ash_range_end(part);) {
        bool is_kept = i < kept->own.first + kept->own.count && kept->spans[i].first == grain;

        if (!is_kept) kept->todo[kept->todo_count++] = grain;
        grain += is_kept ? kept->spans[i++].count : 1;
    }
}

static int open_sums(struct ash_stages *stages, struct ash_err *err)
{
    struct ash_stages_kept *kept = &stages->kept;
    size_t count = kept->own.count;
    int rc = 0;

    kept->sums = calloc(stages->chunk_count * count + 1, sizeof(*kept->sums));
    kept->values = calloc(stages->chunk_count * count + 1, sizeof(*kept->values));
    if (kept->sums == NULL || kept->values == NULL) return ash_err_set(err, -ENOMEM, "out of memory for kept grains");
    for (size_t i = 0; rc == 0 && i < stages->chunk_count * count; i++) {
        size_t size = stages->chunks[i / count].grains.opts.sum_size;

        rc = ash_buffer_init(&kept->sums[i], stages->exec->memory, size * sizeof(float), "kept gradients", err);
        kept->values[i] = kept->sums[i].data;
    }
    return rc;
}

/* Are there as many micro-batches as the pipeline was opened for, or fewer, on every rank? */
static bool fits(const struct ash_stages *stages, const struct ash_grains_kept *kept)
{
    size_t grains = (size_t)stages->job->train.grains, ranks = ash_mesh_data_size(stages->mesh), at = 0;
    bool is_right =
        ash_stages_can_keep(stages) && stages->chunk_count == 1 && ash_grains_can_keep(&stages->chunks[0].grains, kept);

    for (size_t r = 0; is_right && r < ranks; r++) {
        size_t todo = kept->parts[r].count;

        for (; at < kept->count && kept->spans[at].first < ash_range_end(kept->parts[r]); at++)
            todo -= kept->spans[at].count;
        is_right = todo <= ash_grains_partition(grains, r, ranks).count;
    }
    return is_right;
}

int ash_stages_open_kept(struct ash_stages *stages, const struct ash_grains_kept *kept, uint64_t step, bool *can_out,
                         struct ash_err *err)
{
    size_t grains = (size_t)stages->job->train.grains, ranks = ash_mesh_data_size(stages->mesh);
    struct ash_stages_kept *own = &stages->kept;
    int rc;

    ash_stages_drop_kept(stages);
    *can_out = fits(stages, kept);
    if (!*can_out) return 0;
    own->step = step;
    own->parts = calloc(ranks, sizeof(*own->parts));
    own->spans = calloc(kept->count, sizeof(*own->spans));
    own->losses = calloc(grains, sizeof(*own->losses));
    own->todo = calloc(grains, sizeof(*own->todo));
    if (own->parts == NULL || own->spans == NULL || own->losses == NULL || own->todo == NULL) {
        ash_stages_drop_kept(stages);
        return ash_err_set(err, -ENOMEM, "out of memory for kept grains");
    }
    memcpy(own->parts, kept->parts, ranks * sizeof(*own->parts));
    memcpy(own->spans, kept->spans, kept->count * sizeof(*own->spans));
    own->span_count = kept->count;
    split_part(own, own->parts[ash_mesh_data_rank(stages->mesh)]);
    rc = open_sums(stages, err);
    if (rc < 0) ash_stages_drop_kept(stages);
    return rc;
}

float *ash_stages_kept_sums(const struct ash_stages *stages, size_t chunk, size_t index)
{
    ash_assert(chunk < stages->chunk_count && index < stages->kept.own.count);
    return stages->kept.sums[chunk * stages->kept.own.count + index].data;
}

int ash_stages_set_kept(struct ash_stages *stages, const double *losses, struct ash_err *err)
{
    struct ash_stages_kept *kept = &stages->kept;
    const struct ash_grains_kept all = {kept->parts, kept->spans, kept->span_count};

    for (size_t i = 0; i < stages->chunk_count; i++) {
        int rc = ash_grains_make_room(&stages->chunks[i].grains, &all, err);
        if (rc < 0) return rc;
    }
    memcpy(kept->losses, losses, (size_t)stages->job->train.grains * sizeof(*losses));
    kept->is_set = true;
    stages->summed_step = kept->step + 1;
    return 0;
}

void ash_stages_drop_kept(struct ash_stages *stages)
{
    struct ash_stages_kept *kept = &stages->kept;

    for (size_t i = 0; kept->sums != NULL && i < stages->chunk_count * kept->own.count; i++)
        ash_buffer_fini(&kept->sums[i]);
    free(kept->sums);
    free(kept->values);
    free(kept->parts);
    free(kept->spans);
    free(kept->losses);
    free(kept->todo);
    memset(kept, 0, sizeof(*kept));
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

bool ash_stages_begin_kept(struct ash_stages *stages, uint64_t step, double *losses)
{
    const struct ash_stages_kept *kept = &stages->kept;
    const struct ash_grains_kept all = {kept->parts, kept->spans, kept->span_count};

    if (kept->is_set && kept->step != step) ash_stages_drop_kept(stages);
    if (!kept->is_set) return false;
    for (size_t i = 0; i < stages->chunk_count; i++)
        ash_grains_keep(&stages->chunks[i].grains, &all, kept->values + i * kept->own.count);
    for (size_t i = 0; i < kept->own.count; i++) {
        struct ash_range span = kept->spans[kept->own.first + i];

        memcpy(losses + span.first, kept->losses + span.first, span.count * sizeof(*losses));
    }
    return true;
}
