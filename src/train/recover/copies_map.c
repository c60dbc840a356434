/* copies: where they are. Every rank computes the same map. */
#include "train/recover/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct map_ctx {
    const uint32_t *nodes, *slices;
    size_t ranks;
    bool by_node;  /* failure domains are nodes */
    size_t *loads; /* [ranks] copies on each */
};

static bool same_domain(const struct map_ctx *ctx, size_t a, size_t b)
{
    ash_assert(a < ctx->ranks);
    ash_assert(b < ctx->ranks);
    return a == b || (ctx->by_node && ctx->nodes[a] == ctx->nodes[b]);
}

/* Replicas of a rank in other failure domains. */
static size_t free_copies(const struct map_ctx *ctx, size_t rank)
{
    size_t count = 0;

    ash_assert(rank < ctx->ranks);
    for (size_t r = 0; r < ctx->ranks; r++)
        count += ctx->slices[r] == ctx->slices[rank] && !same_domain(ctx, r, rank);
    return count;
}

/* How good is r as the next holder? 0: it must not be one. Best in a failure domain that has nothing of it yet, then in
 * another process of one that has a copy, then in another process of the rank's own domain. */
static int suits(const struct map_ctx *ctx, size_t rank, const uint32_t *holders, size_t count, size_t r)
{
    int suit = same_domain(ctx, r, rank) ? 1 : 3;

    ash_assert(r < ctx->ranks);
    ash_assert(rank < ctx->ranks);
    if (r == rank || ctx->slices[r] == ctx->slices[rank]) return 0;
    for (size_t k = 0; k < count; k++) {
        if (holders[k] == ASH_COPIES_NOBODY) continue;
        if (holders[k] == r) return 0;
        if (suit > 2 && same_domain(ctx, holders[k], r)) suit = 2;
    }
    return suit;
}

/* The one with the fewest copies that may hold one, from the next rank on; ASH_COPIES_NOBODY: there is none. */
static uint32_t choose_holder(const struct map_ctx *ctx, size_t rank, const uint32_t *holders, size_t count)
{
    uint32_t best = ASH_COPIES_NOBODY;
    int best_suit = 0;

    ash_assert(rank < ctx->ranks);
    for (size_t i = 1; i < ctx->ranks; i++) {
        size_t r = (rank + i) % ctx->ranks;
        int suit = suits(ctx, rank, holders, count, r);

        if (suit == 0 || suit < best_suit) continue;
        if (suit == best_suit && ctx->loads[r] >= ctx->loads[best]) continue;
        best = (uint32_t)r;
        best_suit = suit;
    }
    return best;
}

int ash_copies_map_init(struct ash_copies_map *map, size_t ranks, size_t copies, const uint32_t *nodes,
                        const uint32_t *slices)
{
    struct map_ctx ctx = {nodes, slices, ranks, false, calloc(ranks, sizeof(*ctx.loads))};
    uint32_t *holders = calloc(ranks * copies + 1, sizeof(*holders));

    ash_assert(ranks > 0);
    if (ctx.loads == NULL || holders == NULL) {
        free(ctx.loads);
        free(holders);
        return -ENOMEM;
    }
    for (size_t r = 0; r < ranks; r++)
        ctx.by_node = ctx.by_node || nodes[r] != nodes[0];
    for (size_t r = 0; r < ranks; r++) {
        size_t there = free_copies(&ctx, r);

        for (size_t k = 0; k < copies; k++) {
            uint32_t holder = k < there ? ASH_COPIES_NOBODY : choose_holder(&ctx, r, holders + r * copies, k);

            holders[r * copies + k] = holder;
            if (holder != ASH_COPIES_NOBODY) ctx.loads[holder]++;
        }
    }
    free(ctx.loads);
    *map = (struct ash_copies_map){.ranks = ranks, .copies = copies, .holders = holders};
    return 0;
}

void ash_copies_map_fini(struct ash_copies_map *map)
{
    free(map->holders);
    memset(map, 0, sizeof(*map));
}
