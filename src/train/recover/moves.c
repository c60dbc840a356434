/* moves: a sweep over every needed range. An index of all ranks' lists finds the holders of its next element. */
#include "train/recover/moves.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/math.h"
#include "train/recover/range_index.h"

struct plan {
    const struct ash_moves_opts *opts;
    struct ash_range_index all;    /* of all ranks; ids count the ranges of rank 0, rank 1, ... */
    struct ash_range_index *ranks; /* [ranks]: what each has that needs anything */
    uint64_t *given;               /* [ranks] bytes */
    struct ash_move *moves;
    size_t count, room;
};

/* Sender of an element. */
struct source {
    uint32_t rank;
    uint64_t end; /* of the range that it is in */
};

/* The best sender found so far. */
struct choice {
    const struct plan *plan;
    size_t to;
    bool is_made;
    struct source best;
};

static int by_order(const void *a, const void *b)
{
    const struct ash_move *x = a, *y = b;

    if (x->range.param != y->range.param) return x->range.param < y->range.param ? -1 : 1;
    if (x->range.first != y->range.first) return x->range.first < y->range.first ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static int index_sources(struct plan *plan)
{
    const struct ash_patch_lists *have = &plan->opts->have, *need = &plan->opts->need;
    size_t ranks = plan->opts->ranks, size = sizeof(*have->ranges);
    int rc = ash_range_index_init(&plan->all, have->ranges, have->first[ranks], size);

    for (size_t r = 0; rc == 0 && r < ranks; r++)
        if (need->first[r + 1] > need->first[r])
            rc = ash_range_index_init(&plan->ranks[r], have->ranges + have->first[r],
                                      have->first[r + 1] - have->first[r], size);
    return rc;
}

static void free_indexes(struct plan *plan)
{
    for (size_t r = 0; plan->ranks != NULL && r < plan->opts->ranks; r++)
        ash_range_index_fini(&plan->ranks[r]);
    free(plan->ranks);
    ash_range_index_fini(&plan->all);
}

/* Whose range is that? */
static uint32_t rank_of(const struct plan *plan, size_t id)
{
    const size_t *first = plan->opts->have.first;
    size_t low = 0, high = plan->opts->ranks;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (first[middle] <= id)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/* Is rank a better than rank b for what `to` needs? */
static bool is_better(const struct plan *plan, size_t a, size_t b, size_t to)
{
    const uint32_t *nodes = plan->opts->nodes;
    bool near_a = nodes[a] == nodes[to], near_b = nodes[b] == nodes[to];

    if ((a == to) != (b == to)) return a == to;
    if (near_a != near_b) return near_a;
    return plan->given[a] < plan->given[b];
}

static void consider(void *ctx, const struct ash_range_entry *entry)
{
    struct choice *choice = ctx;
    uint32_t rank = rank_of(choice->plan, entry->id);

    if (choice->is_made && !is_better(choice->plan, rank, choice->best.rank, choice->to)) return;
    choice->is_made = true;
    choice->best = (struct source){rank, entry->range.first + entry->range.count};
}

/* The sender of the element at which a need begins. Returns false if no rank has it. */
static bool best_source(const struct plan *plan, const struct ash_patch_range *need, size_t to, struct source *best_out)
{
    struct choice choice = {.plan = plan, .to = to};
    struct ash_patch_range element = *need;

    element.count = 1;
    ash_range_index_find(&plan->all, &element, consider, &choice);
    if (choice.is_made) *best_out = choice.best;
    return choice.is_made;
}

/* Where a source ends for a need of `to`: at its own end, or where the process has the rest itself. */
static size_t source_end(const struct plan *plan, const struct source *source, const struct ash_patch_range *need,
                         size_t to)
{
    const struct ash_range_index *own = &plan->ranks[to];

    ash_assert(to < plan->opts->ranks);
    if (source->rank == to) return (size_t)source->end;
    for (size_t i = ash_range_index_at(own, need->param, need->first + 1); i < own->count; i++) {
        const struct ash_patch_range *range = &own->entries[i].range;

        if (range->param != need->param || range->first >= source->end) break;
        if (range->has_moments >= need->has_moments) return (size_t)range->first;
    }
    return (size_t)source->end;
}

static int add_move(struct plan *plan, const struct ash_move *move)
{
    if (ash_array_reserve(&plan->moves, &plan->room, plan->count + 1, sizeof(*plan->moves)) < 0) return -ENOMEM;
    plan->moves[plan->count++] = *move;
    return 0;
}

/* All of one needed range. */
static int cover(struct plan *plan, struct ash_patch_range need, size_t to, struct ash_patch_range *missing_out)
{
    ash_assert(to < plan->opts->ranks);
    while (need.count > 0) {
        struct source source;
        struct ash_move move = {.to = (uint32_t)to, .range = need};
        size_t end;
        int rc;

        if (!best_source(plan, &need, to, &source)) {
            *missing_out = need;
            return -ENODATA;
        }
        end = source_end(plan, &source, &need, to);
        move.from = source.rank;
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
    struct plan plan = {.opts = opts,
                        .ranks = calloc(opts->ranks, sizeof(*plan.ranks)),
                        .given = calloc(opts->ranks, sizeof(*plan.given))};
    int rc = plan.ranks != NULL && plan.given != NULL ? index_sources(&plan) : -ENOMEM;

    ash_assert(opts->ranks > 0);
    if (rc == 0) rc = cover_all(&plan, missing_out);
    free_indexes(&plan);
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
