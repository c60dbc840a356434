/* moves: a sweep over every needed range. What ranks have is sorted by parameter and element first, so that a sweep
 * looks only at ranges of its own parameter. */
#include "train/recover/moves.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

struct source {
    struct ash_patch_range range;
    uint32_t rank;
};

struct plan {
    const struct ash_moves_opts *opts;
    struct source *sources; /* sorted by parameter, element, rank */
    size_t source_count;
    uint64_t *given; /* [ranks] bytes */
    struct ash_move *moves;
    size_t count, room;
};

static int by_place(const void *a, const void *b)
{
    const struct source *x = a, *y = b;

    if (x->range.param != y->range.param) return x->range.param < y->range.param ? -1 : 1;
    if (x->range.first != y->range.first) return x->range.first < y->range.first ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_order(const void *a, const void *b)
{
    const struct ash_move *x = a, *y = b;

    if (x->range.param != y->range.param) return x->range.param < y->range.param ? -1 : 1;
    if (x->range.first != y->range.first) return x->range.first < y->range.first ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static int sort_sources(struct plan *plan)
{
    const struct ash_patch_lists *have = &plan->opts->have;
    size_t count = have->first[plan->opts->ranks];

    plan->sources = calloc(count + 1, sizeof(*plan->sources));
    if (plan->sources == NULL) return -ENOMEM;
    for (size_t r = 0; r < plan->opts->ranks; r++)
        for (size_t i = have->first[r]; i < have->first[r + 1]; i++)
            plan->sources[plan->source_count++] = (struct source){have->ranges[i], (uint32_t)r};
    qsort(plan->sources, plan->source_count, sizeof(*plan->sources), by_place);
    return 0;
}

/* The first source of a parameter. */
static size_t first_source(const struct plan *plan, uint32_t param)
{
    size_t low = 0, high = plan->source_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (plan->sources[middle].range.param < param)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Is a better than b (NULL: nothing yet) for what `to` needs? */
static bool is_better(const struct plan *plan, const struct source *a, const struct source *b, size_t to)
{
    const uint32_t *nodes = plan->opts->nodes;
    bool near_a, near_b;

    if (b == NULL) return true;
    if ((a->rank == to) != (b->rank == to)) return a->rank == to;
    near_a = nodes[a->rank] == nodes[to];
    near_b = nodes[b->rank] == nodes[to];
    if (near_a != near_b) return near_a;
    return plan->given[a->rank] < plan->given[b->rank];
}

/* Who gives the element at which a need begins; NULL: nobody. */
static const struct source *best_source(const struct plan *plan, const struct ash_patch_range *need, size_t to)
{
    const struct source *best = NULL;

    for (size_t i = first_source(plan, need->param); i < plan->source_count; i++) {
        const struct source *source = &plan->sources[i];

        if (source->range.param != need->param || source->range.first > need->first) break;
        if (source->range.first + source->range.count <= need->first || source->range.has_moments < need->has_moments)
            continue;
        if (is_better(plan, source, best, to)) best = source;
    }
    return best;
}

/* Where a source ends for a need of `to`: at its own end, or where the process has the rest itself. */
static size_t source_end(const struct plan *plan, const struct source *source, const struct ash_patch_range *need,
                         size_t to)
{
    size_t end = (size_t)(source->range.first + source->range.count);

    for (size_t i = first_source(plan, need->param); source->rank != to && i < plan->source_count; i++) {
        const struct source *own = &plan->sources[i];

        if (own->range.param != need->param || own->range.first >= end) break;
        if (own->rank == to && own->range.first > need->first && own->range.has_moments >= need->has_moments)
            return (size_t)own->range.first;
    }
    return end;
}

static int add_move(struct plan *plan, const struct ash_move *move)
{
    if (plan->count == plan->room) {
        size_t room = 2 * plan->room + 256;
        struct ash_move *moves = realloc(plan->moves, room * sizeof(*moves));

        if (moves == NULL) return -ENOMEM;
        plan->moves = moves;
        plan->room = room;
    }
    plan->moves[plan->count++] = *move;
    return 0;
}

/* All of one needed range. */
static int cover(struct plan *plan, struct ash_patch_range need, size_t to, struct ash_patch_range *missing_out)
{
    while (need.count > 0) {
        const struct source *source = best_source(plan, &need, to);
        struct ash_move move = {.to = (uint32_t)to, .range = need};
        size_t end;
        int rc;

        if (source == NULL) {
            *missing_out = need;
            return -ENODATA;
        }
        end = source_end(plan, source, &need, to);
        move.from = source->rank;
        move.range.count = ash_min(ash_min(end - (size_t)need.first, (size_t)need.count), ASH_MOVE_MAX);
        rc = add_move(plan, &move);
        if (rc < 0) return rc;
        if (move.from != to) plan->given[move.from] += ash_patch_bytes(&move.range);
        need.first += move.range.count;
        need.count -= move.range.count;
    }
    return 0;
}

static int cover_all(struct plan *plan, struct ash_patch_range *missing_out)
{
    const struct ash_patch_lists *need = &plan->opts->need;
    int rc = 0;

    for (size_t r = 0; rc == 0 && r < plan->opts->ranks; r++)
        for (size_t i = need->first[r]; rc == 0 && i < need->first[r + 1]; i++)
            rc = cover(plan, need->ranges[i], r, missing_out);
    return rc;
}

int ash_moves_plan(const struct ash_moves_opts *opts, struct ash_move **moves_out, size_t *count_out,
                   struct ash_patch_range *missing_out)
{
    struct plan plan = {.opts = opts, .given = calloc(opts->ranks, sizeof(*plan.given))};
    int rc = plan.given != NULL ? sort_sources(&plan) : -ENOMEM;

    ash_assert(opts->ranks > 0);
    if (rc == 0) rc = cover_all(&plan, missing_out);
    free(plan.sources);
    free(plan.given);
    if (rc < 0) {
        free(plan.moves);
        return rc;
    }
    if (plan.count > 0) qsort(plan.moves, plan.count, sizeof(*plan.moves), by_order);
    *moves_out = plan.moves;
    *count_out = plan.count;
    return 0;
}
