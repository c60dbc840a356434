/* grains: sums of subtrees that an interrupted step has left. When the step is redone they are put into the tree in
 * order, as if their grains had just been computed. */
#include "train/layout/grains_priv.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/backends/backends.h"

static size_t rank_of(const struct ash_grains *grains)
{
    return ash_group_rank(grains->opts.group);
}

static size_t ranks_of(const struct ash_grains *grains)
{
    return ash_group_size(grains->opts.group);
}

/* Of the subtrees of all ranks, those in one rank's grains. */
static struct ash_range spans_in(const struct ash_grains_kept *kept, struct ash_range part)
{
    struct ash_range some = {0};

    while (some.first < kept->count && kept->spans[some.first].first < part.first)
        some.first++;
    while (some.first + some.count < kept->count &&
           kept->spans[some.first + some.count].first < part.first + part.count)
        some.count++;
    return some;
}

/* Partial sums that a rank has at a time. */
static size_t depth_of(const struct ash_grains *grains, const struct ash_grains_kept *kept, struct ash_range part)
{
    struct ash_range some = spans_in(kept, part);
    struct ash_grains_stack stack = {0};
    size_t most = 1;

    for (size_t grain = part.first; grain < ash_range_end(part) && stack.depth < ASH_GRAINS_DEPTH_MAX;) {
        bool is_kept = some.count > 0 && kept->spans[some.first].first == grain;
        struct ash_range span = is_kept ? kept->spans[some.first] : (struct ash_range){grain, 1};

        ash_grains_push(&stack, span);
        most = ash_max(most, stack.depth);
        while (ash_grains_merge(&stack, grains->opts.grain_count)) {
        }
        grain = ash_range_end(span);
        some.first += is_kept;
        some.count -= is_kept;
    }
    return most;
}

static size_t most_depth(const struct ash_grains *grains, const struct ash_grains_kept *kept)
{
    size_t most = 1;

    for (size_t r = 0; r < ranks_of(grains); r++)
        most = ash_max(most, depth_of(grains, kept, kept->parts[r]));
    return most;
}

bool ash_grains_can_keep(const struct ash_grains *grains, const struct ash_grains_kept *kept)
{
    struct ash_shares shares = {0};

    return grains->opts.strand_count == 1 && grains->opts.peers == NULL && grains->opts.add_count == 0 &&
           most_depth(grains, kept) < ASH_GRAINS_DEPTH_MAX &&
           ash_grains_plan_shares(&shares, &grains->opts, kept->parts, NULL) == 0;
}

int ash_grains_make_room(struct ash_grains *grains, const struct ash_grains_kept *kept, struct ash_err *err)
{
    struct ash_grains_strand *strand = &grains->strands[0];

    ash_assert(grains->opts.strand_count == 1 && grains->opts.peers == NULL);
    strand->buffer_count = ash_max(strand->buffer_count, depth_of(grains, kept, kept->parts[rank_of(grains)]));
    return ash_grains_open_strand(grains, strand, most_depth(grains, kept), err);
}

void ash_grains_take_kept(struct ash_grains *grains)
{
    struct ash_grains_strand *strand = &grains->strands[0];
    size_t size = grains->opts.sum_size;

    while (grains->taken < grains->kept.count &&
           grains->kept.spans[grains->taken].first == ash_grains_next(strand, &strand->stack)) {
        ash_assert(strand->stack.depth < strand->buffer_count);
        ash_backend_copy(grains->opts.exec, strand->sums[strand->stack.depth], grains->values[grains->taken],
                         size * sizeof(float));
        ash_grains_push(&strand->stack, grains->kept.spans[grains->taken++]);
        ash_grains_add_on_top(grains, strand, &strand->stack, (struct ash_range){0, size});
    }
}

void ash_grains_keep(struct ash_grains *grains, const struct ash_grains_kept *kept, const float *const *values)
{
    struct ash_range part = kept->parts[rank_of(grains)], some = spans_in(kept, part);
    int rc;

    ash_assert(grains->strands[0].stack.depth == 0 && grains->kept.parts == NULL);
    grains->kept = (struct ash_grains_kept){.parts = kept->parts, .spans = kept->spans + some.first, some.count};
    grains->values = values;
    grains->strands[0].grains = part;
    rc = ash_grains_plan_shares(&grains->shares, &grains->opts, kept->parts, NULL);
    ash_assert(rc == 0); /* ash_grains_can_keep */
    ash_grains_take_kept(grains);
}

void ash_grains_forget_kept(struct ash_grains *grains)
{
    int rc;

    if (grains->kept.parts == NULL) return;
    grains->kept = (struct ash_grains_kept){0};
    grains->taken = 0;
    grains->strands[0].grains = ash_grains_strand_of(&grains->opts, rank_of(grains), 0);
    rc = ash_grains_plan_shares(&grains->shares, &grains->opts, NULL, NULL);
    ash_assert(rc == 0); /* as when it was opened */
}

size_t ash_grains_finished(const struct ash_grains *grains, struct ash_range *spans_out, const float **sums_out)
{
    const struct ash_grains_strand *strand = &grains->strands[0];
    size_t depth = grains->opts.strand_count == 1 && !grains->is_reduced ? strand->stack.depth : 0;

    for (size_t i = 0; i < depth; i++) {
        spans_out[i] = strand->stack.spans[i];
        sums_out[i] = strand->sums[i];
    }
    return depth;
}
