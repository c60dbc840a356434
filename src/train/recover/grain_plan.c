/* grain_plan: salvaged subtrees cost nothing and cannot be divided, all other grains cost the same. Ranks take such
 * items in order, up to the smallest cost with which all are taken; then salvaged subtrees slide towards the ranks that
 * have them. */
#include "train/recover/grain_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "train/layout/grains.h"

/* A kept subtree or a grain. */
struct item {
    struct ash_range span;
    size_t home;
    bool is_kept;
};

/* Items, and the first of each rank. */
struct split {
    struct item *items; /* [count] */
    size_t *first;      /* [ranks + 1] */
    size_t count, ranks, grains;
};

static int by_place(const void *a, const void *b)
{
    const struct ash_range *x = &((const struct ash_grain_offer *)a)->span,
                           *y = &((const struct ash_grain_offer *)b)->span;

    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->count > y->count ? -1 : x->count < y->count; /* the larger one first */
}

/* Those that do not overlap. */
static void choose(struct ash_grain_plan *plan, struct ash_grain_offer *offers, size_t count)
{
    size_t end = 0;

    if (count > 0) qsort(offers, count, sizeof(*offers), by_place);
    for (size_t i = 0; i < count; i++) {
        if (offers[i].span.first < end) continue;
        plan->kept[plan->kept_count++] = offers[i];
        plan->kept_grains += offers[i].span.count;
        end = ash_range_end(offers[i].span);
    }
}

/* Every rank needs something: give up the largest. */
static void drop_largest(struct ash_grain_plan *plan)
{
    size_t largest = 0;

    for (size_t i = 1; i < plan->kept_count; i++)
        if (plan->kept[i].span.count > plan->kept[largest].span.count) largest = i;
    plan->kept_grains -= plan->kept[largest].span.count;
    plan->kept_count--;
    memmove(plan->kept + largest, plan->kept + largest + 1, (plan->kept_count - largest) * sizeof(*plan->kept));
}

static void list_items(const struct ash_grain_plan *plan, struct split *split)
{
    size_t at = 0;

    for (size_t grain = 0; grain < split->grains;) {
        bool is_kept = at < plan->kept_count && plan->kept[at].span.first == grain;
        struct item item = {.span = {grain, 1}, .home = SIZE_MAX, .is_kept = is_kept};

        if (is_kept) {
            item.span = plan->kept[at].span;
            item.home = plan->kept[at++].home;
        }
        split->items[split->count++] = item;
        grain = ash_range_end(item.span);
    }
}

/* Ranks take up to `most` grains each, and no more than in any other step. Returns false where some are left. */
static bool try_split(struct split *split, size_t most)
{
    size_t at = 0;

    for (size_t r = 0; r < split->ranks; r++) {
        size_t limit = ash_min(most, ash_grains_partition(split->grains, r, split->ranks).count), cost = 0;

        split->first[r] = at;
        while (split->count - at > split->ranks - r - 1) { /* one for each of the others */
            if (!split->items[at].is_kept && cost == limit) break;
            cost += !split->items[at].is_kept;
            at++;
        }
        if (at == split->first[r]) return false;
    }
    split->first[split->ranks] = split->count;
    return at == split->count;
}

/* Salvaged subtrees at the edges between ranks go to the side of the ranks that have them. */
static void slide(struct split *split)
{
    for (size_t r = 1; r < split->ranks; r++) {
        size_t *edge = &split->first[r];

        while (*edge - 1 > split->first[r - 1] && split->items[*edge - 1].is_kept &&
               split->items[*edge - 1].home != SIZE_MAX && split->items[*edge - 1].home >= r)
            --*edge;
        while (*edge + 1 < split->first[r + 1] && split->items[*edge].is_kept && split->items[*edge].home < r)
            ++*edge;
    }
}

static void set_parts(struct ash_grain_plan *plan, const struct split *split)
{
    for (size_t r = 0; r < split->ranks; r++) {
        size_t begin = split->items[split->first[r]].span.first, todo = 0,
               end = ash_range_end(split->items[split->first[r + 1] - 1].span);

        plan->parts[r] = (struct ash_range){begin, end - begin};
        for (size_t i = split->first[r]; i < split->first[r + 1]; i++)
            todo += !split->items[i].is_kept;
        plan->most = ash_max(plan->most, todo);
    }
}

int ash_grain_plan_make(struct ash_grain_plan *plan, struct ash_grain_offer *offers, size_t count, size_t grains,
                        size_t ranks)
{
    struct split split = {.items = calloc(grains, sizeof(*split.items)),
                          .first = calloc(ranks + 1, sizeof(*split.first)),
                          .ranks = ranks,
                          .grains = grains};
    size_t most;
    int rc = 0;

    ash_assert(ranks > 0 && ranks <= grains);
    memset(plan, 0, sizeof(*plan));
    plan->kept = calloc(count + 1, sizeof(*plan->kept));
    plan->parts = calloc(ranks, sizeof(*plan->parts));
    if (split.items == NULL || split.first == NULL || plan->kept == NULL || plan->parts == NULL) {
        rc = -ENOMEM;
        goto out;
    }
    choose(plan, offers, count);
    while (plan->kept_count + (grains - plan->kept_grains) < ranks)
        drop_largest(plan);
    list_items(plan, &split);
    most = ash_div_up(grains - plan->kept_grains, ranks);
    while (!try_split(&split, most)) {
        most++;
        ash_assert(most <= grains);
    }
    slide(&split);
    set_parts(plan, &split);

out:
    free(split.items);
    free(split.first);
    if (rc < 0) ash_grain_plan_fini(plan);
    return rc;
}

void ash_grain_plan_fini(struct ash_grain_plan *plan)
{
    free(plan->kept);
    free(plan->parts);
    memset(plan, 0, sizeof(*plan));
}
