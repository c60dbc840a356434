/* grains: strands of partial sums, and which of them each rank contributes to the reduction. */
#include "train/layout/grains.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/assert.h"
#include "collective/host/window.h"
#include "compute/backends/backends.h"
#include "train/layout/grains_priv.h"

#define SHARE_FLOATS ((size_t)1024) /* shares begin on pages */

/* ---- life -------------------------------------------------------------------------------------------------------- */

static size_t group_size(const struct ash_grains_opts *opts)
{
    return ash_group_size(opts->group);
}

/* Is this the first of the peers? */
static bool is_leader(const struct ash_grains *grains)
{
    return ash_group_rank(grains->opts.peers) == 0;
}

/* Of elements that all peers process, those of this rank. */
static struct ash_range share_of(const struct ash_grains *grains, struct ash_range run)
{
    struct ash_group *peers = grains->opts.peers;
    struct ash_range share = run;

    if (peers == NULL) return run;
    share = ash_range_split(run.count, SHARE_FLOATS, ash_group_rank(peers), ash_group_size(peers));
    share.first += run.first;
    return share;
}

struct ash_range ash_grains_strand_of(const struct ash_grains_opts *opts, size_t rank, size_t strand)
{
    ash_assert(strand < opts->strand_count);
    return ash_grains_partition(opts->grain_count, rank * opts->strand_count + strand,
                                group_size(opts) * opts->strand_count);
}

static int check(const struct ash_grains_opts *opts, struct ash_err *err)
{
    size_t size = group_size(opts), strands = size * opts->strand_count, end = opts->unused.first + opts->unused.count;

    if (opts->grain_count == 0 || opts->sum_size > opts->leaf_size || end > opts->leaf_size ||
        (opts->unused.count > 0 && opts->unused.first < opts->sum_size))
        return ash_err_set(err, -EINVAL, "gradient sums over %zu grains of %zu values make no sense", opts->grain_count,
                           opts->leaf_size);
    if (strands > opts->grain_count || size > ASH_SHARES_RANKS_MAX || opts->grain_count > ASH_GRAINS_MAX)
        return ash_err_set(err, -EINVAL,
                           "%zu grains cannot be shared by %zu ranks: set train.grains to at least the number of ranks",
                           opts->grain_count, strands);
    return 0;
}

int ash_grains_plan_shares(struct ash_shares *shares, const struct ash_grains_opts *opts, const struct ash_range *parts,
                           struct ash_err *err)
{
    struct ash_range spans[ASH_TREE_PARTS_MAX];
    size_t count = 0;

    for (size_t r = 0; r < group_size(opts); r++) {
        for (size_t strand = 0; strand < opts->strand_count; strand++) {
            struct ash_range cover[ASH_TREE_COVER_MAX];
            struct ash_range own = parts != NULL ? parts[r] : ash_grains_strand_of(opts, r, strand);
            size_t covers = ash_tree_cover(opts->grain_count, own, cover);

            if (count + covers > ASH_TREE_PARTS_MAX)
                return ash_err_set(err, -EINVAL, "%zu grains over %zu ranks make too many partial sums",
                                   opts->grain_count, group_size(opts) * opts->strand_count);
            ash_assert(covers <= ASH_TREE_COVER_MAX);
            memcpy(spans + count, cover, covers * sizeof(*cover));
            count += covers;
        }
        shares->first[r + 1] = (uint32_t)count;
    }
    return ash_tree_of_spans(&shares->tree, spans, count, opts->grain_count);
}

/* The memory of the first peer is that of all: it has a window with them, or (in_group) shows them the one that it has
 * with its group. */
static int open_peers(struct ash_grains *grains, struct ash_grains_strand *strand, bool in_group, struct ash_err *err)
{
    struct ash_group *peers = grains->opts.peers;

    for (size_t i = 0; i < strand->buffer_count; i++) {
        int rc = in_group
                     ? ash_group_window_show(peers, grains->windows[i], ASH_WINDOW_OWN, &strand->shared[i], err)
                     : ash_group_window_open(peers, grains->opts.leaf_size * sizeof(float), &strand->shared[i], err);

        if (rc < 0) return rc;
        if (!in_group && ash_group_rank(peers) == 0 && grains->opts.unused.count == 0)
            ash_window_fill(strand->shared[i]);
        strand->sums[i] = ash_window_data_of(strand->shared[i], 0);
    }
    return 0;
}

/* Memory of this process alone. */
static int open_buffers(struct ash_grains *grains, struct ash_grains_strand *strand, struct ash_err *err)
{
    if (grains->opts.peers != NULL) return open_peers(grains, strand, false, err);
    for (size_t i = 0; i < strand->buffer_count; i++) {
        if (strand->sums[i] != NULL) continue;
        int rc = ash_buffer_init(&strand->buffers[i], grains->opts.exec->memory, grains->opts.leaf_size * sizeof(float),
                                 "gradients", err);

        if (rc < 0) return rc;
        strand->sums[i] = strand->buffers[i].data;
    }
    return 0;
}

/* Memory that the ranks reduce in place. All open as many windows as the one that needs most; pages that a rank does
 * not touch cost nothing. */
static int open_windows(struct ash_grains *grains, struct ash_grains_strand *strand, size_t most, struct ash_err *err)
{
    const struct ash_grains_opts *opts = &grains->opts;

    for (size_t i = 0; i < most; i++) {
        if (grains->windows[i] != NULL) continue;
        int rc = ash_group_window_open(opts->group, opts->leaf_size * sizeof(float), &grains->windows[i], err);

        if (rc < 0) return rc;
        if (i < strand->buffer_count && opts->unused.count == 0 && is_leader(grains))
            ash_window_fill(grains->windows[i]);
        strand->sums[i] = ash_window_data(grains->windows[i]);
    }
    return opts->peers != NULL ? open_peers(grains, strand, true, err) : 0;
}

int ash_grains_open_strand(struct ash_grains *grains, struct ash_grains_strand *strand, size_t most,
                           struct ash_err *err)
{
    const struct ash_grains_opts *opts = &grains->opts;

    if (ash_max(most, strand->buffer_count) > ASH_GRAINS_DEPTH_MAX)
        return ash_err_set(err, -EINVAL, "%zu grains are too many", opts->grain_count);
    return opts->in_windows && opts->group != NULL ? open_windows(grains, strand, most, err)
                                                   : open_buffers(grains, strand, err);
}

static int open_strand(struct ash_grains *grains, size_t index, struct ash_err *err)
{
    struct ash_grains_strand *strand = &grains->strands[index];
    const struct ash_grains_opts *opts = &grains->opts;
    size_t most = 1;

    strand->grains = ash_grains_strand_of(opts, ash_group_rank(opts->group), index);
    strand->buffer_count = ash_grains_buffers_for(opts->grain_count, strand->grains, opts->add_count);
    for (size_t r = 0; opts->in_windows && r < group_size(opts); r++)
        most =
            ash_max(most, ash_grains_buffers_for(opts->grain_count, ash_grains_strand_of(opts, r, 0), opts->add_count));
    return ash_grains_open_strand(grains, strand, most, err);
}

int ash_grains_init(struct ash_grains *grains, const struct ash_grains_opts *opts, struct ash_err *err)
{
    int rc;

    memset(grains, 0, sizeof(*grains));
    rc = check(opts, err);
    if (rc < 0) return rc;
    ash_assert(!opts->in_windows || opts->strand_count == 1);
    grains->opts = *opts;
    grains->strands = calloc(opts->strand_count, sizeof(*grains->strands));
    rc = grains->strands != NULL ? ash_grains_plan_shares(&grains->shares, opts, NULL, err)
                                 : ash_err_set(err, -ENOMEM, "out of memory for gradient sums");
    for (size_t strand = 0; rc == 0 && strand < opts->strand_count; strand++)
        rc = open_strand(grains, strand, err);
    if (rc == 0 && opts->range_count > 0) {
        grains->requests = calloc(opts->range_count, sizeof(*grains->requests));
        if (grains->requests == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for gradient sums");
    }
    if (rc < 0) ash_grains_fini(grains);
    return rc;
}

/* Wait for all requests in flight; the first error counts. */
static int wait_requests(struct ash_grains *grains, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < grains->request_count; i++) {
        int round_ended = ash_call_wait(grains->requests[i].call, rc == 0 ? err : NULL);
        if (rc == 0) rc = round_ended;
    }
    grains->request_count = 0;
    return rc;
}

void ash_grains_settle(struct ash_grains *grains)
{
    wait_requests(grains, NULL);
}

void ash_grains_fini(struct ash_grains *grains)
{
    wait_requests(grains, NULL);
    free(grains->requests);
    for (size_t strand = 0; grains->strands != NULL && strand < grains->opts.strand_count; strand++)
        for (size_t i = 0; i < grains->strands[strand].buffer_count; i++) {
            ash_buffer_fini(&grains->strands[strand].buffers[i]);
            ash_window_close(grains->strands[strand].shared[i]);
        }
    for (size_t i = 0; i < ASH_GRAINS_DEPTH_MAX; i++)
        ash_window_close(grains->windows[i]);
    free(grains->strands);
    memset(grains, 0, sizeof(*grains));
}

size_t ash_grains_bytes(const struct ash_grains *grains)
{
    size_t buffers = 0;

    for (size_t strand = 0; strand < grains->opts.strand_count; strand++)
        buffers += grains->strands[strand].buffer_count;
    return (buffers * (grains->opts.leaf_size - grains->opts.unused.count) + grains->opts.unused.count) *
           sizeof(float) / ash_group_size(grains->opts.peers);
}

struct ash_range ash_grains_of(const struct ash_grains *grains, size_t strand)
{
    ash_assert(strand < grains->opts.strand_count);
    return grains->strands[strand].grains;
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

void ash_grains_reset(struct ash_grains *grains)
{
    wait_requests(grains, NULL);
    for (size_t strand = 0; strand < grains->opts.strand_count; strand++)
        grains->strands[strand].stack.depth = 0;
    grains->is_reduced = grains->is_by_range = false;
    ash_grains_forget_kept(grains);
}

float *ash_grains_begin(struct ash_grains *grains, size_t strand, bool zeroed)
{
    const struct ash_grains_opts *opts = &grains->opts;
    size_t depth = grains->strands[strand].stack.depth, unused_end = opts->unused.first + opts->unused.count;

    ash_assert(strand < opts->strand_count && depth < grains->strands[strand].buffer_count);
    float *leaf = grains->strands[strand].sums[depth];
    if (!zeroed) return leaf;
    struct ash_range before = share_of(grains, (struct ash_range){0, opts->unused.first}),
                     rest = share_of(grains, (struct ash_range){unused_end, opts->leaf_size - unused_end});
    ash_exec_zero(opts->exec, leaf + before.first, before.count * sizeof(float));
    ash_exec_zero(opts->exec, leaf + rest.first, rest.count * sizeof(float));
    return leaf;
}

void ash_grains_add_on_top(const struct ash_grains *grains, const struct ash_grains_strand *strand,
                           struct ash_grains_stack *stack, struct ash_range run)
{
    struct ash_exec *exec = grains->opts.exec;

    while (ash_grains_merge(stack, grains->opts.grain_count)) {
        float *left = strand->sums[stack->depth - 1], *right = strand->sums[stack->depth];
        if (run.count > 0) exec->ops->row->add(exec, left + run.first, right + run.first, run.count, left + run.first);
    }
}

/* The next leaf is in a strand's sums: add elements `run` of the subtrees that it completes. */
static void add_leaf(const struct ash_grains *grains, const struct ash_grains_strand *strand,
                     struct ash_grains_stack *stack, struct ash_range run)
{
    ash_grains_push(stack, (struct ash_range){ash_grains_next(strand, stack), 1});
    ash_grains_add_on_top(grains, strand, stack, run);
}

void ash_grains_end(struct ash_grains *grains, size_t strand)
{
    struct ash_grains_strand *taken = &grains->strands[strand];

    ash_assert(strand < grains->opts.strand_count);
    add_leaf(grains, taken, &taken->stack, share_of(grains, (struct ash_range){0, grains->opts.sum_size}));
    ash_grains_take_kept(grains);
}

/* Sums below a leaf that comes by ranges can stay unchanged: the result goes into the leaf's buffer. Not if peers have
 * to find it, or if one copy has floats that no leaf has. */
static bool can_stay_below(const struct ash_grains *grains)
{
    return grains->opts.peers == NULL && grains->opts.unused.count == 0;
}

void ash_grains_end_range(struct ash_grains *grains, struct ash_range run)
{
    const struct ash_grains_strand *strand = &grains->strands[0];
    struct ash_exec *exec = grains->opts.exec;
    struct ash_grains_stack stack = strand->stack;
    float *top = strand->sums[stack.depth] + run.first;

    ash_assert(ash_range_end(run) <= grains->opts.sum_size);
    grains->is_by_range = can_stay_below(grains);
    if (!grains->is_by_range) {
        add_leaf(grains, strand, &stack, run);
        return;
    }
    ash_grains_push(&stack, (struct ash_range){ash_grains_next(strand, &stack), 1});
    while (ash_grains_merge(&stack, grains->opts.grain_count))
        if (run.count > 0) exec->ops->row->add(exec, strand->sums[stack.depth - 1] + run.first, top, run.count, top);
}

/* A leaf is read in place when it is added to its neighbour; only one without a neighbour yet is copied. */
void ash_grains_add(struct ash_grains *grains, size_t strand, struct ash_range run, const float *const *leaves,
                    size_t count)
{
    const struct ash_grains_strand *taken = &grains->strands[strand];
    struct ash_exec *exec = grains->opts.exec;
    struct ash_grains_stack stack = taken->stack;
    const float *parts[ASH_GRAINS_DEPTH_MAX + 1];

    ash_assert(strand < grains->opts.strand_count && ash_range_end(run) <= grains->opts.sum_size);
    ash_assert(count <= grains->opts.add_count);
    for (size_t d = 0; d < stack.depth; d++)
        parts[d] = taken->sums[d] + run.first;
    for (size_t i = 0; i < count; i++) {
        ash_assert(stack.depth <= ASH_GRAINS_DEPTH_MAX);
        parts[stack.depth] = leaves[i];
        ash_grains_push(&stack, (struct ash_range){ash_grains_next(taken, &stack), 1});
        while (ash_grains_merge(&stack, grains->opts.grain_count)) {
            ash_assert(stack.depth <= taken->buffer_count);
            float *sum = taken->sums[stack.depth - 1] + run.first;
            if (run.count > 0) exec->ops->row->add(exec, parts[stack.depth - 1], parts[stack.depth], run.count, sum);
            parts[stack.depth - 1] = sum;
        }
    }
    ash_assert(stack.depth <= taken->buffer_count);
    for (size_t d = 0; d < stack.depth; d++)
        if (parts[d] != taken->sums[d] + run.first)
            ash_backend_copy(exec, taken->sums[d] + run.first, parts[d], run.count * sizeof(float));
}

void ash_grains_advance(struct ash_grains *grains, size_t strand, size_t count)
{
    struct ash_grains_strand *taken = &grains->strands[strand];

    ash_assert(strand < grains->opts.strand_count);
    if (grains->is_by_range) return; /* the stack holds the sums below */
    for (size_t i = 0; i < count; i++)
        add_leaf(grains, taken, &taken->stack, (struct ash_range){0});
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

float *ash_grains_sum(const struct ash_grains *grains)
{
    return grains->strands[0].sums[grains->is_by_range ? grains->strands[0].stack.depth : 0];
}

int ash_grains_start_reduce(struct ash_grains *grains, struct ash_range run, size_t part, struct ash_err *err)
{
    const struct ash_grains_opts *opts = &grains->opts;
    const struct ash_grains_strand *strand = &grains->strands[0];
    size_t rank = ash_group_rank(opts->group), parts = grains->shares.first[rank + 1] - grains->shares.first[rank];
    struct ash_grains_request *request = &grains->requests[grains->request_count];
    float *sum = ash_grains_sum(grains) + run.first;
    int rc = 0;

    ash_assert(ash_range_end(run) <= opts->sum_size);
    ash_assert(part == 0 || part * group_size(opts) == run.count);
    ash_assert(opts->strand_count == 1 && grains->request_count < opts->range_count && parts <= strand->buffer_count);
    if (run.count == 0) return 0;
    grains->is_reduced = grains->is_reduced || !grains->is_by_range;
    request->call = NULL;
    request->range = run;
    for (size_t i = 0; i < parts; i++)
        request->parts[i] = grains->is_by_range && i + 1 == parts ? sum : strand->sums[i] + run.first;
    if (opts->group == NULL)
        ash_assert(parts == 1); /* the root */
    else if (part > 0)
        rc = ash_group_reduce_scatter_parts_start(opts->group, request->parts, &grains->shares, sum + rank * part, part,
                                                  ASH_COLL_F32, ASH_COLL_SUM, &request->call, err);
    else
        rc = ash_group_all_reduce_parts_start(opts->group, request->parts, &grains->shares, sum, run.count,
                                              ASH_COLL_F32, ASH_COLL_SUM, &request->call, err);
    if (rc == 0) grains->request_count++;
    return rc;
}

bool ash_grains_has_sum(const struct ash_grains *grains, struct ash_range range)
{
    for (size_t i = 0; i < grains->request_count; i++) {
        const struct ash_grains_request *request = &grains->requests[i];

        if (range.first < request->range.first || ash_range_end(range) > ash_range_end(request->range)) continue;
        return request->call == NULL || ash_call_done(request->call);
    }
    return false;
}

/* Add the strands' partial sums in the order of the tree, in place, and copy the root to out. The list of them becomes
 * the stack: it holds no more than were read. */
static void reduce_alone(const struct ash_grains *grains, float **sums, size_t count, float *out)
{
    const struct ash_tree *tree = &grains->shares.tree;
    struct ash_exec *exec = grains->opts.exec;
    size_t size = grains->opts.sum_size, depth = 0;

    ash_assert(count == tree->part_count);
    for (size_t i = 0; i < count; i++) {
        sums[depth++] = sums[i];
        for (size_t join = 0; join < tree->joins[i]; join++, depth--)
            exec->ops->row->add(exec, sums[depth - 2], sums[depth - 1], size, sums[depth - 2]);
    }
    if (out != sums[0]) ash_backend_copy(exec, out, sums[0], size * sizeof(*out));
}

int ash_grains_reduce(struct ash_grains *grains, float *out, struct ash_err *err)
{
    const struct ash_grains_opts *opts = &grains->opts;
    const void *parts[ASH_TREE_PARTS_MAX];
    float *sums[ASH_TREE_PARTS_MAX];
    size_t count = 0;

    if (grains->request_count > 0) {
        ash_assert(out == NULL);
        return wait_requests(grains, err);
    }
    if (grains->windows[0] != NULL) { /* a rank lost before this barrier has changed no sums */
        int rc = ash_group_barrier(opts->group, err);
        if (rc < 0) return rc;
    }
    grains->is_reduced = true;
    if (grains->windows[0] != NULL && opts->wanted_count > 0)
        return ash_group_window_reduce(opts->group, grains->windows, &grains->shares, opts->sum_size, opts->wanted,
                                       opts->wanted_count, ASH_COLL_F32, ASH_COLL_SUM, err);
    if (grains->windows[0] != NULL)
        return ash_group_window_all_reduce(opts->group, grains->windows, &grains->shares, opts->sum_size, ASH_COLL_F32,
                                           ASH_COLL_SUM, err);
    for (size_t strand = 0; strand < opts->strand_count; strand++)
        for (size_t i = 0; i < grains->strands[strand].stack.depth; i++)
            parts[count] = sums[count] = grains->strands[strand].sums[i], count++;
    if (out == NULL) out = ash_grains_sum(grains);
    if (opts->group != NULL)
        return ash_group_all_reduce_parts(opts->group, parts, &grains->shares, out, opts->sum_size, ASH_COLL_F32,
                                          ASH_COLL_SUM, err);
    reduce_alone(grains, sums, count, out);
    return 0;
}
