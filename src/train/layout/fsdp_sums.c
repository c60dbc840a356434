/* fsdp: sums of sharded gradients. In each round every rank computes one grain; those of the ranks that share a slice
 * are neighbours in the tree, in the order of the ranks. The owner of a part gets it from all and adds it to its sums,
 * unit by unit (on one node in place, fsdp_grads.c; else as it arrives, fsdp_send.c); the sums advance when the round
 * ends. Ranks along ep, like replicas, have other grains: a block of neighbours each, of which a round has the next. */
#include "train/layout/fsdp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

/* ---- which grain when -------------------------------------------------------------------------------------------- */

/* Grains of the ranks that share a slice with the rank at ep of this replica. */
static struct ash_range block_of(const struct ash_mesh *mesh, size_t grain_count, size_t ep)
{
    size_t strands = mesh->size[ASH_MESH_EP];

    return ash_grains_partition(grain_count, mesh->at[ASH_MESH_DP] * strands + ep, mesh->size[ASH_MESH_DP] * strands);
}

size_t ash_fsdp_rounds(const struct ash_mesh *mesh, size_t grain_count)
{
    size_t size = mesh->size[ASH_MESH_FSDP], most = 0;

    for (size_t ep = 0; ep < mesh->size[ASH_MESH_EP]; ep++) {
        most = ash_max(most, ash_div_up(block_of(mesh, grain_count, ep).count, size));
    }
    return most;
}

size_t ash_fsdp_grain(const struct ash_mesh *mesh, size_t grain_count, size_t round)
{
    struct ash_range block = block_of(mesh, grain_count, mesh->at[ASH_MESH_EP]);
    size_t place = round * mesh->size[ASH_MESH_FSDP] + mesh->at[ASH_MESH_FSDP];

    ash_assert(mesh->at[ASH_MESH_FSDP] < mesh->size[ASH_MESH_FSDP]);
    return place < block.count ? block.first + place : SIZE_MAX;
}

size_t ash_fsdp_round_grains(const struct ash_fsdp *fsdp, struct ash_range block)
{
    size_t size = fsdp->shards->size, before = fsdp->round * size;

    return block.count <= before ? 0 : ash_min(block.count - before, size);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

bool ash_fsdp_serves_experts(const struct ash_fsdp *fsdp)
{
    return fsdp->mesh->size[ASH_MESH_EP] > 1 && ash_model_expert_size(fsdp->state->model) > 0;
}

bool ash_fsdp_is_expert(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit)
{
    return unit->whole.first >= ash_model_dense_size(fsdp->state->model);
}

static size_t dense_size(const struct ash_fsdp *fsdp)
{
    size_t size = 0;

    for (size_t i = 0; i < fsdp->shards->unit_count; i++)
        if (!ash_fsdp_is_expert(fsdp, &fsdp->shards->units[i])) size += fsdp->shards->units[i].own.count;
    return size;
}

/* Gradient buffers and sums of the experts, for every rank that is served. */
static int open_experts(struct ash_fsdp *fsdp, struct ash_err *err)
{
    size_t strands = fsdp->mesh->size[ASH_MESH_EP], own = fsdp->shards->total - fsdp->dense;
    struct ash_grains_opts opts = {.exec = fsdp->state->exec,
                                   .group = fsdp->mesh->groups[ASH_MESH_DP],
                                   .grain_count = fsdp->grain_count,
                                   .strand_count = strands,
                                   .add_count = fsdp->shards->size,
                                   .sum_size = own,
                                   .leaf_size = own};
    int rc = ash_grains_init(&fsdp->experts, &opts, err);

    if (rc < 0) return rc;
    fsdp->expert_grad_buffers = calloc(strands, sizeof(*fsdp->expert_grad_buffers));
    if (fsdp->expert_grad_buffers == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", strands);
    for (size_t strand = 0; rc == 0 && strand < strands; strand++)
        rc = ash_buffer_init(&fsdp->expert_grad_buffers[strand], fsdp->state->exec->memory,
                             ash_model_expert_size(fsdp->state->model) * sizeof(float), "experts' gradients", err);
    return rc;
}

static int open_sharded(struct ash_fsdp *fsdp, struct ash_err *err)
{
    size_t total = fsdp->shards->total;
    struct ash_grains_opts opts = {.exec = fsdp->state->exec,
                                   .group = fsdp->mesh->blocks,
                                   .grain_count = fsdp->grain_count,
                                   .strand_count = 1,
                                   .add_count = fsdp->shards->size,
                                   .leaf_size = total};
    int rc;

    fsdp->dense = dense_size(fsdp);
    if (opts.group == NULL || !ash_group_shares_memory(opts.group)) opts.range_count = fsdp->shards->unit_count;
    opts.sum_size = ash_fsdp_serves_experts(fsdp) ? fsdp->dense : total;
    if (ash_fsdp_serves_experts(fsdp)) opts.unused = (struct ash_range){fsdp->dense, total - fsdp->dense};
    rc = ash_grains_init(&fsdp->sums, &opts, err);
    if (rc < 0) return rc;
    if (ash_fsdp_serves_experts(fsdp)) {
        rc = open_experts(fsdp, err);
        if (rc < 0) return rc;
    }
    rc = ash_fsdp_open_grad_buffer(fsdp, err);
    if (rc < 0) return rc;
    if (fsdp->window != NULL && !ash_fsdp_serves_experts(fsdp)) return 0; /* nothing is sent */
    return ash_fsdp_open_requests(fsdp, err);
}

int ash_fsdp_open_sums(struct ash_fsdp *fsdp, struct ash_err *err)
{
    return fsdp->mesh->zero > 1 ? open_sharded(fsdp, err) : 0;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

void ash_fsdp_reset(struct ash_fsdp *fsdp)
{
    ash_grains_reset(&fsdp->sums);
    ash_grains_reset(&fsdp->experts);
    ash_fsdp_drop_requests(fsdp);
    fsdp->round = 0;
    fsdp->published_count = 0;
    fsdp->round_ended = false;
}

static void advance(const struct ash_fsdp *fsdp, struct ash_grains *sums)
{
    for (size_t strand = 0; strand < sums->opts.strand_count; strand++)
        ash_grains_advance(sums, strand, ash_fsdp_round_grains(fsdp, ash_grains_of(sums, strand)));
}

/* Reduce the published and sent units of the last round; if it has ended, go to the next. */
static int end_round(struct ash_fsdp *fsdp, struct ash_err *err)
{
    int rc = ash_fsdp_reduce_published(fsdp, err);

    if (rc == 0) rc = ash_fsdp_receive(fsdp, err);
    if (rc < 0 || !fsdp->round_ended) return rc;
    advance(fsdp, &fsdp->sums);
    advance(fsdp, &fsdp->experts);
    fsdp->round++;
    fsdp->round_ended = false;
    return 0;
}

int ash_fsdp_begin(struct ash_fsdp *fsdp, float **grad_buffer_out, float **expert_grad_buffers, struct ash_err *err)
{
    int rc = end_round(fsdp, err);

    ash_assert(fsdp->mesh->zero > 1);
    if (rc < 0) return rc;
    rc = ash_fsdp_clear_rest(fsdp, err);
    if (rc < 0) return rc;
    for (size_t strand = 0; strand < fsdp->experts.opts.strand_count; strand++)
        expert_grad_buffers[strand] = fsdp->expert_grad_buffers[strand].data;
    *grad_buffer_out = fsdp->grad_buffer.data;
    return 0;
}

/* Between nodes, a part that is complete is reduced over the replicas while others are still to come. */
int ash_fsdp_reduce_parts(struct ash_fsdp *fsdp, const struct ash_fsdp_delivery *to, size_t count, struct ash_err *err)
{
    struct ash_range run = {to->at, to->unit->own.count};
    size_t end = (fsdp->round + 1) * fsdp->shards->size;

    ash_grains_add(to->sums, to->strand, run, fsdp->grad_parts, count);
    if (to->sums->opts.range_count == 0 || count == 0 || ash_grains_of(to->sums, to->strand).count > end) return 0;
    return ash_grains_start_reduce(to->sums, run, 0, err);
}

/* Record a unit's gradients for audits. */
static void note_unit(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, bool expert)
{
    const struct ash_exec *exec = fsdp->state->exec;
    uint64_t place = (uint64_t)(unit - fsdp->shards->units);
    size_t first;

    if (fsdp->leaf_sums == NULL) return;
    if (!expert) {
        float *values = (float *)fsdp->grad_buffer.data + ash_fsdp_grad_offset(fsdp, unit);

        ash_leaf_sums_note(fsdp->leaf_sums, exec, place, values, unit->whole.count);
        return;
    }
    first = unit->whole.first - ash_model_dense_size(fsdp->state->model);
    for (size_t strand = 0; strand < fsdp->experts.opts.strand_count; strand++)
        ash_leaf_sums_note(fsdp->leaf_sums, exec, place + ((uint64_t)(strand + 1) << 32),
                           (float *)fsdp->expert_grad_buffers[strand].data + first, unit->whole.count);
}

int ash_fsdp_send_unit(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, struct ash_err *err)
{
    struct ash_fsdp_delivery to = {.unit = unit, .from = &fsdp->grad_buffer, .sums = &fsdp->sums, .at = unit->at};
    bool expert = ash_fsdp_serves_experts(fsdp) && ash_fsdp_is_expert(fsdp, unit);
    int rc = 0;

    note_unit(fsdp, unit, expert);
    if (!expert && fsdp->window != NULL) {
        ash_fsdp_publish(fsdp, unit);
        return 0;
    }
    to.first = expert ? unit->whole.first - ash_model_dense_size(fsdp->state->model) : ash_fsdp_grad_offset(fsdp, unit);
    if (!expert) return ash_fsdp_send(fsdp, &to, err);
    to.sums = &fsdp->experts;
    to.at = unit->at - fsdp->dense;
    to.releases = true;
    for (to.strand = 0; rc == 0 && to.strand < fsdp->experts.opts.strand_count; to.strand++) {
        to.from = &fsdp->expert_grad_buffers[to.strand];
        rc = ash_fsdp_send(fsdp, &to, err);
    }
    return rc;
}

int ash_fsdp_end(struct ash_fsdp *fsdp, struct ash_err *err)
{
    ash_assert(!fsdp->round_ended);
    for (size_t i = 0; i < fsdp->shards->unit_count; i++) {
        const struct ash_shard_unit *unit = &fsdp->shards->units[i];
        if (ash_fsdp_completes(fsdp->state->model, unit->unit)) continue; /* gone already */
        int rc = ash_fsdp_send_unit(fsdp, unit, err);
        if (rc < 0) return rc;
    }
    fsdp->round_ended = true;
    return 0;
}

int ash_fsdp_finish(struct ash_fsdp *fsdp, float **sum_out, struct ash_err *err)
{
    float *sum = ash_grains_sum(&fsdp->sums);
    int rc = end_round(fsdp, err);

    if (rc == 0) rc = ash_grains_reduce(&fsdp->sums, NULL, err);
    if (rc == 0 && ash_fsdp_serves_experts(fsdp)) rc = ash_grains_reduce(&fsdp->experts, sum + fsdp->dense, err);
    if (rc == 0) *sum_out = sum;
    return rc;
}
