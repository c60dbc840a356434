/* exchange: rounds of an all-to-all. Every rank knows all moves, so each knows how many bytes it gets from whom. A
 * round's block from one rank to another ends with a checksum of it. */
#include "train/recover/exchange.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define ROUND_BYTES ((size_t)32 << 20) /* that a rank sends or gets in a round, but for a last move */
#define TRIES 3
#define SUM_BYTES sizeof(uint64_t)

static _Atomic bool damages_next;

struct exchange {
    struct ash_group *group;
    const struct ash_patches *have, *need;
    size_t rank, ranks;
    struct ash_move *moves;
    size_t move_count;
    size_t *send, *recv;        /* [ranks] bytes of a round */
    size_t *load_in, *load_out; /* [ranks] bytes of a round, of every rank */
    char *out, *in;             /* what is sent, what arrives */
    size_t out_room, in_room;
};

/* ---- who has and needs what -------------------------------------------------------------------------------------- */

/* Lists of all ranks. */
struct lists {
    struct ash_patch_range *ranges;
    size_t *first; /* [ranks + 1] */
};

static void lists_fini(struct lists *lists)
{
    free(lists->ranges);
    free(lists->first);
}

/* Everyone's list: how long each is, then all of them, each with room for the longest. */
static int gather_lists(struct ash_group *group, const struct ash_patches *own, struct lists *lists,
                        struct ash_err *err)
{
    size_t ranks = ash_group_size(group), most = 1;
    uint64_t count = own->count, *counts = calloc(ranks, sizeof(*counts));
    struct ash_patch_range *mine = NULL, *all = NULL;
    int rc = -ENOMEM;

    lists->first = calloc(ranks + 1, sizeof(*lists->first));
    if (counts == NULL || lists->first == NULL) goto out;
    rc = ash_group_all_gather(group, &count, counts, sizeof(count), err);
    if (rc < 0) goto out;
    for (size_t r = 0; r < ranks; r++) {
        most = ash_max(most, (size_t)counts[r]);
        lists->first[r + 1] = lists->first[r] + (size_t)counts[r];
    }
    rc = -ENOMEM;
    mine = calloc(most, sizeof(*mine));
    all = calloc(ranks * most, sizeof(*all));
    lists->ranges = calloc(lists->first[ranks] + 1, sizeof(*lists->ranges));
    if (mine == NULL || all == NULL || lists->ranges == NULL) goto out;
    for (size_t i = 0; i < own->count; i++)
        mine[i] = own->items[i].range;
    rc = ash_group_all_gather(group, mine, all, most * sizeof(*mine), err);
    for (size_t r = 0; rc == 0 && r < ranks; r++)
        memcpy(lists->ranges + lists->first[r], all + r * most, (size_t)counts[r] * sizeof(*all));

out:
    free(counts);
    free(mine);
    free(all);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for what %zu ranks hold", ranks) : rc;
}

static int plan_moves(struct exchange *exchange, const struct ash_model *outline, struct ash_err *err)
{
    struct lists have = {0}, need = {0};
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
    opts.have = (struct ash_patch_lists){have.ranges, have.first};
    opts.need = (struct ash_patch_lists){need.ranges, need.first};
    rc = ash_moves_plan(&opts, &exchange->moves, &exchange->move_count, &missing);
    if (rc == -ENODATA)
        ash_err_set(err, rc, "no process that is left holds elements %llu to %llu of %s",
                    (unsigned long long)missing.first, (unsigned long long)(missing.first + missing.count - 1),
                    ash_model_param(outline, missing.param)->name);
    else if (rc < 0)
        ash_err_set(err, rc, "out of memory for the moves between %zu ranks", exchange->ranks);

out:
    lists_fini(&have);
    lists_fini(&need);
    free(nodes);
    return rc;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* Where elements of a range are in a patch that has them. */
static float *place_of(const struct ash_patch *patch, const struct ash_patch_range *range, size_t kind)
{
    return patch->values[kind] + (range->first - patch->range.first);
}

static size_t kinds_of(const struct ash_patch_range *range)
{
    return range->has_moments != 0 ? ASH_PATCH_KINDS : 1;
}

/* Values of a kind go everywhere where this process needs them. */
static void put(const struct exchange *exchange, const struct ash_patch_range *range, size_t kind, const void *values)
{
    const struct ash_patches *need = exchange->need;
    const struct ash_patch *to = ash_patches_find(need, range, 0);

    ash_assert(to != NULL);
    for (; to != NULL; to = ash_patches_find(need, range, (size_t)(to - need->items) + 1))
        if (place_of(to, range, kind) != values)
            memcpy(place_of(to, range, kind), values, (size_t)range->count * sizeof(float));
}

/* Inside this process. */
static void copy_own(const struct exchange *exchange, const struct ash_patch_range *range)
{
    const struct ash_patch *from = ash_patches_find(exchange->have, range, 0);

    ash_assert(from != NULL);
    for (size_t kind = 0; kind < kinds_of(range); kind++)
        put(exchange, range, kind, place_of(from, range, kind));
}

/* The moves of the next round, from `begin` on: as many as nobody has to send or to get too much for. Returns their
 * end. */
static size_t cut_round(struct exchange *exchange, size_t begin)
{
    size_t end = begin;

    memset(exchange->load_in, 0, exchange->ranks * sizeof(*exchange->load_in));
    memset(exchange->load_out, 0, exchange->ranks * sizeof(*exchange->load_out));
    for (; end < exchange->move_count; end++) {
        const struct ash_move *move = &exchange->moves[end];

        if (move->from == move->to) continue;
        if (exchange->load_out[move->from] >= ROUND_BYTES || exchange->load_in[move->to] >= ROUND_BYTES) break;
        exchange->load_out[move->from] += ash_patch_bytes(&move->range);
        exchange->load_in[move->to] += ash_patch_bytes(&move->range);
    }
    return end;
}

/* Bytes to and from each rank in a round, with checksums. */
static void count_bytes(struct exchange *exchange, size_t begin, size_t end)
{
    memset(exchange->send, 0, exchange->ranks * sizeof(*exchange->send));
    memset(exchange->recv, 0, exchange->ranks * sizeof(*exchange->recv));
    for (size_t i = begin; i < end; i++) {
        const struct ash_move *move = &exchange->moves[i];

        if (move->from == move->to) continue;
        if (move->from == exchange->rank) exchange->send[move->to] += ash_patch_bytes(&move->range);
        if (move->to == exchange->rank) exchange->recv[move->from] += ash_patch_bytes(&move->range);
    }
    for (size_t r = 0; r < exchange->ranks; r++) {
        if (exchange->send[r] > 0) exchange->send[r] += SUM_BYTES;
        if (exchange->recv[r] > 0) exchange->recv[r] += SUM_BYTES;
    }
}

static int make_room(char **buffer, size_t *room, const size_t *bytes, size_t ranks, struct ash_err *err)
{
    size_t sum = 1; /* a place even for nothing: others count from it */

    for (size_t r = 0; r < ranks; r++)
        sum += bytes[r];
    if (sum <= *room) return 0;
    free(*buffer);
    *buffer = malloc(sum);
    *room = *buffer != NULL ? sum : 0;
    return *buffer != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu bytes of a state", sum);
}

/* What goes to one rank, at `at`. */
static void pack(const struct exchange *exchange, size_t begin, size_t end, size_t to, char *at)
{
    const char *block = at;
    uint64_t sum;

    for (size_t i = begin; i < end; i++) {
        const struct ash_move *move = &exchange->moves[i];
        size_t bytes = (size_t)move->range.count * sizeof(float);
        const struct ash_patch *patch;

        if (move->from != exchange->rank || move->to != to) continue;
        patch = ash_patches_find(exchange->have, &move->range, 0);
        ash_assert(patch != NULL);
        for (size_t kind = 0; kind < kinds_of(&move->range); kind++, at += bytes)
            memcpy(at, place_of(patch, &move->range, kind), bytes);
    }
    sum = ash_hash_bytes(block, (size_t)(at - block), begin);
    memcpy(at, &sum, sizeof(sum));
}

/* What has come from one rank. Returns false where it is damaged. */
static bool unpack(const struct exchange *exchange, size_t begin, size_t end, size_t from, const char *at)
{
    size_t size_bytes = exchange->recv[from] - SUM_BYTES;
    uint64_t sum;

    memcpy(&sum, at + size_bytes, sizeof(sum));
    if (sum != ash_hash_bytes(at, size_bytes, begin)) return false;
    for (size_t i = begin; i < end; i++) {
        const struct ash_move *move = &exchange->moves[i];
        size_t bytes = (size_t)move->range.count * sizeof(float);

        if (move->from != from || move->to != exchange->rank) continue;
        for (size_t kind = 0; kind < kinds_of(&move->range); kind++, at += bytes)
            put(exchange, &move->range, kind, at);
    }
    return true;
}

/* Somebody has asked for it: the first block on its way is not what it was. */
static void damage_block(const struct exchange *exchange)
{
    size_t at = 0;

    for (size_t r = 0; r < exchange->ranks; at += exchange->send[r++]) {
        if (exchange->send[r] == 0 || !atomic_exchange(&damages_next, false)) continue;
        exchange->out[at + exchange->send[r] / 2] ^= 1;
        return;
    }
}

/* Send and receive once. *damaged_out: 0, or 1 + from * ranks + to, of a block that has arrived damaged anywhere. */
static int try_round(struct exchange *exchange, size_t begin, size_t end, int64_t *damaged_out, struct ash_err *err)
{
    size_t at = 0, arrived = 0; /* where there is nothing to move, there is no memory either */
    int64_t damaged = 0;
    int rc;

    for (size_t r = 0; r < exchange->ranks; at += exchange->send[r++])
        if (exchange->send[r] > 0) pack(exchange, begin, end, r, exchange->out + at);
    damage_block(exchange);
    rc = ash_group_all_to_all(exchange->group, exchange->out, exchange->send, exchange->in, exchange->recv, err);
    if (rc < 0) return rc;
    for (size_t r = 0; r < exchange->ranks; arrived += exchange->recv[r++])
        if (exchange->recv[r] > 0 && !unpack(exchange, begin, end, r, exchange->in + arrived))
            damaged = 1 + (int64_t)(r * exchange->ranks + exchange->rank);
    return ash_group_all_reduce(exchange->group, &damaged, damaged_out, 1, ASH_COLL_I64, ASH_COLL_MAX, err);
}

static int run_round(struct exchange *exchange, size_t begin, size_t end, struct ash_exchange_counts *counts,
                     struct ash_err *err)
{
    int64_t damaged = 0;
    int rc;

    for (size_t i = begin; i < end; i++) {
        const struct ash_move *move = &exchange->moves[i];

        if (move->from == move->to && move->to == exchange->rank) copy_own(exchange, &move->range);
        *(move->from == move->to ? &counts->kept_bytes : &counts->moved_bytes) += ash_patch_bytes(&move->range);
    }
    count_bytes(exchange, begin, end);
    rc = make_room(&exchange->out, &exchange->out_room, exchange->send, exchange->ranks, err);
    if (rc == 0) rc = make_room(&exchange->in, &exchange->in_room, exchange->recv, exchange->ranks, err);
    for (size_t tried = 0; rc == 0 && tried < TRIES; tried++) {
        rc = try_round(exchange, begin, end, &damaged, err);
        if (rc < 0 || damaged == 0) return rc;
        counts->repeated++;
        counts->damaged_from = (uint32_t)((damaged - 1) / (int64_t)exchange->ranks);
        counts->damaged_to = (uint32_t)((damaged - 1) % (int64_t)exchange->ranks);
    }
    return rc < 0
               ? rc
               : ash_err_set(err, -EBADMSG, "a part of the state has arrived damaged %d times, from rank %u at rank %u",
                             TRIES, counts->damaged_from, counts->damaged_to);
}

/* Is anything left for others to send? Where a process is alone, or keeps all, no round is needed. */
static int run_rounds(struct exchange *exchange, struct ash_exchange_counts *counts, struct ash_err *err)
{
    int rc = 0;

    for (size_t begin = 0, end; rc == 0 && begin < exchange->move_count; begin = end) {
        end = cut_round(exchange, begin);
        ash_assert(end > begin);
        rc = run_round(exchange, begin, end, counts, err);
    }
    return rc;
}

int ash_exchange_run(struct ash_group *group, const struct ash_model *outline, const struct ash_patches *have,
                     const struct ash_patches *need, struct ash_exchange_counts *counts_out, struct ash_err *err)
{
    size_t ranks = ash_group_size(group);
    struct exchange exchange = {
        .group = group, .have = have, .need = need, .rank = ash_group_rank(group), .ranks = ranks};
    struct ash_exchange_counts counts = {0};
    int rc = -ENOMEM;

    exchange.send = calloc(4 * ranks, sizeof(*exchange.send));
    if (exchange.send == NULL) return ash_err_set(err, rc, "out of memory for %zu ranks", ranks);
    exchange.recv = exchange.send + ranks;
    exchange.load_in = exchange.recv + ranks;
    exchange.load_out = exchange.load_in + ranks;
    rc = plan_moves(&exchange, outline, err);
    if (rc == 0) rc = run_rounds(&exchange, &counts, err);
    free(exchange.moves);
    free(exchange.send);
    free(exchange.out);
    free(exchange.in);
    if (rc == 0) *counts_out = counts;
    return rc;
}

void ash_exchange_damage_next(void)
{
    atomic_store(&damages_next, true);
}
