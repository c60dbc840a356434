/* grains: lanes of partial sums, and which of them each rank brings to the join. */
#include "train/layout/grains.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "collective/host/window.h"

#define SHARE_FLOATS ((size_t)1024) /* shares begin on pages */

struct ash_range ash_grains_dealt(size_t grain_count, size_t rank, size_t size)
{
    size_t first = grain_count * rank / size;

    return (struct ash_range){first, grain_count * (rank + 1) / size - first};
}

double ash_grains_fold(const double *values, size_t grain_count)
{
    size_t half = 1;

    if (grain_count == 1) return values[0];
    while (2 * half < grain_count)
        half *= 2;
    return ash_grains_fold(values, half) + ash_grains_fold(values + half, grain_count - half);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

/* Put the next leaf of a lane on its stack. */
static void push(struct ash_grains_stack *stack, struct ash_range lane)
{
    size_t depth = stack->depth, first = lane.first;

    if (depth > 0) first = stack->spans[depth - 1].first + stack->spans[depth - 1].count;
    stack->spans[stack->depth++] = (struct ash_range){first, 1};
}

/* Are the two on top the halves of a subtree? Then they become one. */
static bool merge(struct ash_grains_stack *stack, size_t total)
{
    struct ash_range *spans = stack->spans;
    size_t depth = stack->depth;

    if (depth < 2 || !ash_tree_halves(total, spans[depth - 2], spans[depth - 1])) return false;
    spans[depth - 2].count += spans[depth - 1].count;
    stack->depth--;
    return true;
}

/* Buffers that a lane's partial sums need; more than there may be where it has too many grains. Leaves that come from
 * elsewhere, at_once at a time (0: they are made here), need none while they are added up. */
static size_t buffers_for(size_t total, struct ash_range lane, size_t at_once)
{
    struct ash_grains_stack stack = {0};
    size_t most = 1;

    for (size_t i = 0; i < lane.count && stack.depth <= ASH_GRAINS_DEPTH_MAX; i++) {
        push(&stack, lane);
        if (at_once == 0 && stack.depth > most) most = stack.depth;
        while (merge(&stack, total))
            if (stack.depth > most) most = stack.depth;
        if (at_once > 0 && (i + 1) % at_once == 0 && stack.depth > most) most = stack.depth;
    }
    return stack.depth > most ? stack.depth : most;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static size_t group_size(const struct ash_grains_opts *opts)
{
    return opts->group != NULL ? ash_group_size(opts->group) : 1;
}

/* Of those who make leaves together, the first. */
static bool leads(const struct ash_grains *grains)
{
    return grains->opts.along == NULL || ash_group_rank(grains->opts.along) == 0;
}

/* Of elements that all of them go over, those of this rank. */
static struct ash_range share_of(const struct ash_grains *grains, struct ash_range run)
{
    struct ash_group *along = grains->opts.along;
    struct ash_range share = run;

    if (along == NULL) return run;
    share = ash_range_split(run.count, SHARE_FLOATS, ash_group_rank(along), ash_group_size(along));
    share.first += run.first;
    return share;
}

/* Grains of a lane of rank `rank`. */
static struct ash_range lane_of(const struct ash_grains_opts *opts, size_t rank, size_t lane)
{
    return ash_grains_dealt(opts->grain_count, rank * opts->lane_count + lane, group_size(opts) * opts->lane_count);
}

static int check(const struct ash_grains_opts *opts, struct ash_err *err)
{
    size_t size = group_size(opts), lanes = size * opts->lane_count, end = opts->unused.first + opts->unused.count;

    if (opts->grain_count == 0 || opts->sum_size > opts->leaf_size || end > opts->leaf_size ||
        (opts->unused.count > 0 && opts->unused.first < opts->sum_size))
        return ash_err_set(err, -EINVAL, "gradient sums over %zu grains of %zu values make no sense", opts->grain_count,
                           opts->leaf_size);
    if (lanes > opts->grain_count || size > ASH_SHARES_RANKS_MAX || opts->grain_count > ASH_GRAINS_MAX)
        return ash_err_set(err, -EINVAL,
                           "%zu grains cannot be shared by %zu ranks: set train.grains to at least the number of ranks",
                           opts->grain_count, lanes);
    return 0;
}

/* Which partial sums each rank ends with, and how they are joined. */
static int plan_shares(struct ash_grains *grains, struct ash_err *err)
{
    const struct ash_grains_opts *opts = &grains->opts;
    struct ash_range spans[ASH_TREE_PARTS_MAX];
    size_t count = 0;

    for (size_t r = 0; r < group_size(opts); r++) {
        for (size_t lane = 0; lane < opts->lane_count; lane++) {
            struct ash_range cover[ASH_TREE_COVER_MAX];
            size_t parts = ash_tree_cover(opts->grain_count, lane_of(opts, r, lane), cover);

            if (count + parts > ASH_TREE_PARTS_MAX)
                return ash_err_set(err, -EINVAL, "%zu grains over %zu ranks make too many partial sums",
                                   opts->grain_count, group_size(opts) * opts->lane_count);
            memcpy(spans + count, cover, parts * sizeof(*cover));
            count += parts;
        }
        grains->shares.first[r + 1] = (uint32_t)count;
    }
    return ash_tree_of_spans(&grains->shares.tree, spans, count, opts->grain_count);
}

/* What the first of those who make leaves together has is the memory of all: it has a window with them, or (in_group)
 * shows them the one that it has with its group. */
static int open_along(struct ash_grains *grains, struct ash_grains_lane *lane, bool in_group, struct ash_err *err)
{
    struct ash_group *along = grains->opts.along;

    for (size_t i = 0; i < lane->buffer_count; i++) {
        int rc = in_group ? ash_group_window_show(along, grains->windows[i], ASH_WINDOW_OWN, &lane->along[i], err)
                          : ash_group_window_open(along, grains->opts.leaf_size * sizeof(float), &lane->along[i], err);

        if (rc < 0) return rc;
        if (!in_group && ash_group_rank(along) == 0 && grains->opts.unused.count == 0) ash_window_fill(lane->along[i]);
        lane->sums[i] = ash_window_data_of(lane->along[i], 0);
    }
    return 0;
}

/* Memory of this process alone. */
static int open_buffers(struct ash_grains *grains, struct ash_grains_lane *lane, struct ash_err *err)
{
    if (grains->opts.along != NULL) return open_along(grains, lane, false, err);
    for (size_t i = 0; i < lane->buffer_count; i++) {
        int rc = ash_buffer_init(&lane->buffers[i], grains->opts.exec->memory, grains->opts.leaf_size * sizeof(float),
                                 "gradients", err);

        if (rc < 0) return rc;
        lane->sums[i] = lane->buffers[i].data;
    }
    return 0;
}

/* Memory in which the ranks can add up. All open as many as the one that needs most; pages that a rank does not touch
 * cost nothing. */
static int open_windows(struct ash_grains *grains, struct ash_grains_lane *lane, struct ash_err *err)
{
    const struct ash_grains_opts *opts = &grains->opts;
    size_t most = lane->buffer_count;

    for (size_t r = 0; r < group_size(opts); r++) {
        size_t count = buffers_for(opts->grain_count, lane_of(opts, r, 0), opts->at_once);
        if (count > most) most = count;
    }
    for (size_t i = 0; i < most; i++) {
        int rc = ash_group_window_open(opts->group, opts->leaf_size * sizeof(float), &grains->windows[i], err);

        if (rc < 0) return rc;
        if (i < lane->buffer_count && opts->unused.count == 0 && leads(grains)) ash_window_fill(grains->windows[i]);
        lane->sums[i] = ash_window_data(grains->windows[i]);
    }
    return opts->along != NULL ? open_along(grains, lane, true, err) : 0;
}

static int open_lane(struct ash_grains *grains, size_t index, struct ash_err *err)
{
    struct ash_grains_lane *lane = &grains->lanes[index];
    const struct ash_grains_opts *opts = &grains->opts;

    lane->grains = lane_of(opts, opts->group != NULL ? ash_group_rank(opts->group) : 0, index);
    lane->buffer_count = buffers_for(opts->grain_count, lane->grains, opts->at_once);
    if (lane->buffer_count > ASH_GRAINS_DEPTH_MAX)
        return ash_err_set(err, -EINVAL, "%zu grains are too many", opts->grain_count);
    return opts->in_windows && opts->group != NULL ? open_windows(grains, lane, err) : open_buffers(grains, lane, err);
}

int ash_grains_init(struct ash_grains *grains, const struct ash_grains_opts *opts, struct ash_err *err)
{
    int rc;

    memset(grains, 0, sizeof(*grains));
    if ((rc = check(opts, err)) < 0) return rc;
    ash_assert(!opts->in_windows || opts->lane_count == 1);
    grains->opts = *opts;
    grains->lanes = calloc(opts->lane_count, sizeof(*grains->lanes));
    rc =
        grains->lanes != NULL ? plan_shares(grains, err) : ash_err_set(err, -ENOMEM, "out of memory for gradient sums");
    for (size_t lane = 0; rc == 0 && lane < opts->lane_count; lane++)
        rc = open_lane(grains, lane, err);
    if (rc == 0 && opts->runs > 0) {
        grains->flights = calloc(opts->runs, sizeof(*grains->flights));
        if (grains->flights == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for gradient sums");
    }
    if (rc < 0) ash_grains_fini(grains);
    return rc;
}

/* Wait for all that has been started; the first error counts. */
static int land(struct ash_grains *grains, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < grains->flight_count; i++) {
        int ended = ash_call_wait(grains->flights[i].call, rc == 0 ? err : NULL);
        if (rc == 0) rc = ended;
    }
    grains->flight_count = 0;
    return rc;
}

void ash_grains_fini(struct ash_grains *grains)
{
    land(grains, NULL);
    free(grains->flights);
    for (size_t lane = 0; grains->lanes != NULL && lane < grains->opts.lane_count; lane++)
        for (size_t i = 0; i < grains->lanes[lane].buffer_count; i++) {
            ash_buffer_fini(&grains->lanes[lane].buffers[i]);
            ash_window_close(grains->lanes[lane].along[i]);
        }
    for (size_t i = 0; i < ASH_GRAINS_DEPTH_MAX; i++)
        ash_window_close(grains->windows[i]);
    free(grains->lanes);
    memset(grains, 0, sizeof(*grains));
}

size_t ash_grains_bytes(const struct ash_grains *grains)
{
    size_t buffers = 0;

    for (size_t lane = 0; lane < grains->opts.lane_count; lane++)
        buffers += grains->lanes[lane].buffer_count;
    return (buffers * (grains->opts.leaf_size - grains->opts.unused.count) + grains->opts.unused.count) *
           sizeof(float) / (grains->opts.along != NULL ? ash_group_size(grains->opts.along) : 1);
}

struct ash_range ash_grains_lane(const struct ash_grains *grains, size_t lane)
{
    return grains->lanes[lane].grains;
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

void ash_grains_reset(struct ash_grains *grains)
{
    land(grains, NULL);
    for (size_t lane = 0; lane < grains->opts.lane_count; lane++)
        grains->lanes[lane].stack.depth = 0;
}

float *ash_grains_begin(struct ash_grains *grains, size_t lane, bool zeroed)
{
    const struct ash_grains_opts *opts = &grains->opts;
    size_t depth = grains->lanes[lane].stack.depth, behind = opts->unused.first + opts->unused.count;

    ash_assert(depth < grains->lanes[lane].buffer_count);
    float *leaf = grains->lanes[lane].sums[depth];
    if (!zeroed) return leaf;
    struct ash_range before = share_of(grains, (struct ash_range){0, opts->unused.first}),
                     rest = share_of(grains, (struct ash_range){behind, opts->leaf_size - behind});
    ash_exec_zero(opts->exec, leaf + before.first, before.count * sizeof(float));
    ash_exec_zero(opts->exec, leaf + rest.first, rest.count * sizeof(float));
    return leaf;
}

/* The leaf behind the last one is on a lane's sums: add up elements run of what has become a subtree. */
static void take_leaf(const struct ash_grains *grains, const struct ash_grains_lane *lane,
                      struct ash_grains_stack *stack, struct ash_range run)
{
    struct ash_exec *exec = grains->opts.exec;

    push(stack, lane->grains);
    while (merge(stack, grains->opts.grain_count)) {
        float *left = lane->sums[stack->depth - 1], *right = lane->sums[stack->depth];
        if (run.count > 0) exec->ops->row->add(exec, left + run.first, right + run.first, run.count, left + run.first);
    }
}

void ash_grains_end(struct ash_grains *grains, size_t lane)
{
    struct ash_grains_lane *taken = &grains->lanes[lane];

    take_leaf(grains, taken, &taken->stack, share_of(grains, (struct ash_range){0, grains->opts.sum_size}));
}

void ash_grains_end_run(struct ash_grains *grains, struct ash_range run)
{
    struct ash_grains_stack stack = grains->lanes[0].stack;

    take_leaf(grains, &grains->lanes[0], &stack, run);
}

/* A leaf is read where it lies when it is added to its neighbour; only what has none yet is copied. */
void ash_grains_put(struct ash_grains *grains, size_t lane, struct ash_range run, const float *const *leaves,
                    size_t count)
{
    const struct ash_grains_lane *taken = &grains->lanes[lane];
    struct ash_exec *exec = grains->opts.exec;
    struct ash_grains_stack stack = taken->stack;
    const float *parts[ASH_GRAINS_DEPTH_MAX + 1];

    for (size_t d = 0; d < stack.depth; d++)
        parts[d] = taken->sums[d] + run.first;
    for (size_t i = 0; i < count; i++) {
        ash_assert(stack.depth <= ASH_GRAINS_DEPTH_MAX);
        parts[stack.depth] = leaves[i];
        push(&stack, taken->grains);
        while (merge(&stack, grains->opts.grain_count)) {
            ash_assert(stack.depth <= taken->buffer_count);
            float *sum = taken->sums[stack.depth - 1] + run.first;
            if (run.count > 0) exec->ops->row->add(exec, parts[stack.depth - 1], parts[stack.depth], run.count, sum);
            parts[stack.depth - 1] = sum;
        }
    }
    ash_assert(stack.depth <= taken->buffer_count);
    for (size_t d = 0; d < stack.depth; d++)
        if (parts[d] != taken->sums[d] + run.first)
            memcpy(taken->sums[d] + run.first, parts[d], run.count * sizeof(float));
}

void ash_grains_move(struct ash_grains *grains, size_t lane, size_t count)
{
    struct ash_grains_lane *taken = &grains->lanes[lane];

    for (size_t i = 0; i < count; i++)
        take_leaf(grains, taken, &taken->stack, (struct ash_range){0});
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

float *ash_grains_sum(const struct ash_grains *grains)
{
    return grains->lanes[0].sums[0];
}

int ash_grains_start(struct ash_grains *grains, struct ash_range run, size_t part, struct ash_err *err)
{
    const struct ash_grains_opts *opts = &grains->opts;
    const struct ash_grains_lane *lane = &grains->lanes[0];
    size_t rank = ash_group_rank(opts->group), parts = grains->shares.first[rank + 1] - grains->shares.first[rank];
    struct ash_grains_flight *flight = &grains->flights[grains->flight_count];
    float *sum = lane->sums[0] + run.first;
    int rc;

    ash_assert(part == 0 || part * ash_group_size(opts->group) == run.count);
    ash_assert(opts->lane_count == 1 && grains->flight_count < opts->runs && parts <= lane->buffer_count);
    if (run.count == 0) return 0;
    for (size_t i = 0; i < parts; i++)
        flight->parts[i] = lane->sums[i] + run.first;
    if (part > 0)
        rc = ash_group_reduce_scatter_parts_start(opts->group, flight->parts, &grains->shares, sum + rank * part, part,
                                                  ASH_COLL_F32, ASH_COLL_SUM, &flight->call, err);
    else
        rc = ash_group_all_reduce_parts_start(opts->group, flight->parts, &grains->shares, sum, run.count, ASH_COLL_F32,
                                              ASH_COLL_SUM, &flight->call, err);
    if (rc == 0) grains->flight_count++;
    return rc;
}

int ash_grains_finish(struct ash_grains *grains, float *out, struct ash_err *err)
{
    const struct ash_grains_opts *opts = &grains->opts;
    const void *parts[ASH_TREE_PARTS_MAX];
    size_t count = 0;

    if (grains->flight_count > 0) {
        ash_assert(out == NULL);
        return land(grains, err);
    }
    if (grains->windows[0] != NULL && opts->wanted_count > 0)
        return ash_group_window_reduce(opts->group, grains->windows, &grains->shares, opts->sum_size, opts->wanted,
                                       opts->wanted_count, ASH_COLL_F32, ASH_COLL_SUM, err);
    if (grains->windows[0] != NULL)
        return ash_group_window_all_reduce(opts->group, grains->windows, &grains->shares, opts->sum_size, ASH_COLL_F32,
                                           ASH_COLL_SUM, err);
    for (size_t lane = 0; lane < opts->lane_count; lane++)
        for (size_t i = 0; i < grains->lanes[lane].stack.depth; i++)
            parts[count++] = grains->lanes[lane].sums[i];
    if (out == NULL) out = ash_grains_sum(grains);
    if (opts->group != NULL)
        return ash_group_all_reduce_parts(opts->group, parts, &grains->shares, out, opts->sum_size, ASH_COLL_F32,
                                          ASH_COLL_SUM, err);
    ash_assert(count == grains->shares.tree.part_count);
    if (count > 1 || out != parts[0])
        ash_coll_reduce(ASH_COLL_F32, ASH_COLL_SUM, &grains->shares.tree, parts, opts->sum_size, out);
    return 0;
}
