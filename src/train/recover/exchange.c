/* exchange: all-gather the lists of all ranks, and plan the same moves everywhere. */
#include "train/recover/exchange_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "train/recover/rank_lists.h"

/* ---- lists of all ranks ------------------------------------------------------------------------------------------ */

/* All ranks' lists. */
static int gather_lists(struct ash_group *group, const struct ash_patches *own, struct ash_rank_lists *lists,
                        struct ash_err *err)
{
    return ash_rank_lists_gather(lists, group, own->items, own->count,
                                 (struct ash_rank_item){sizeof(*own->items), sizeof(own->items->range)}, err);
}

static int plan_moves(struct ash_exchange *exchange, const struct ash_model *outline, struct ash_err *err)
{
    struct ash_rank_lists have = {0}, need = {0};
    struct ash_moves_opts opts = {.ranks = exchange->ranks};
    uint32_t *nodes = calloc(exchange->ranks, sizeof(*nodes));
    struct ash_patch_range missing = {0};
    int rc = nodes != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", exchange->ranks);

    for (size_t r = 0; rc == 0 && r < exchange->ranks; r++)
        nodes[r] = (uint32_t)ash_group_get_member(exchange->group, r).node_index;
    if (rc == 0) rc = gather_lists(exchange->group, exchange->have, &have, err);
    if (rc == 0) rc = gather_lists(exchange->group, exchange->need, &need, err);
    if (rc < 0) goto out;
    opts.nodes = nodes;
    opts.have = (struct ash_patch_lists){have.items, have.first};
    opts.need = (struct ash_patch_lists){need.items, need.first};
    rc = ash_moves_plan(&opts, &exchange->moves, &exchange->move_count, &missing);
    if (rc == -ENODATA)
        ash_err_set(err, rc, "no process that is left holds elements %llu to %llu of %s",
                    (unsigned long long)missing.first, (unsigned long long)(missing.first + missing.count - 1),
                    ash_model_param(outline, missing.param % ash_model_param_count(outline))->name);
    else if (rc < 0)
        ash_err_set(err, rc, "out of memory for the moves between %zu ranks", exchange->ranks);

out:
    ash_rank_lists_fini(&have);
    ash_rank_lists_fini(&need);
    free(nodes);
    return rc;
}

static void reverse_moves(struct ash_exchange *exchange)
{
    for (size_t i = 0; i < exchange->move_count / 2; i++) {
        struct ash_move *a = &exchange->moves[i], *b = &exchange->moves[exchange->move_count - 1 - i], other = *a;

        *a = *b;
        *b = other;
    }
}

int ash_exchange_run(struct ash_group *group, const struct ash_model *outline, const struct ash_exchange_sides *sides,
                     struct ash_exchange_counts *counts_out, struct ash_err *err)
{
    const struct ash_patches *have = sides->have, *need = sides->need;
    struct ash_exchange exchange = {.group = group,
                                    .have = have,
                                    .need = need,
                                    .gate = sides->gate,
                                    .rank = ash_group_rank(group),
                                    .ranks = ash_group_size(group)};
    struct ash_exchange_counts counts = {0};
    int rc = ash_range_index_init(&exchange.have_index, have->items, have->count, sizeof(*have->items));

    if (rc == 0) rc = ash_range_index_init(&exchange.need_index, need->items, need->count, sizeof(*need->items));
    if (rc < 0) ash_err_set(err, rc, "out of memory for %zu parts of a state", have->count + need->count);
    if (rc == 0) rc = plan_moves(&exchange, outline, err);
    if (rc == 0 && sides->last_first) reverse_moves(&exchange);
    if (rc == 0) rc = ash_exchange_move(&exchange, &counts, err);
    ash_range_index_fini(&exchange.have_index);
    ash_range_index_fini(&exchange.need_index);
    free(exchange.moves);
    if (rc == 0) *counts_out = counts;
    return rc;
}
