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
#include "train/recover/range_index.h"

#define ROUND_BYTES ((size_t)32 << 20) /* that a rank sends or gets in a round, but for a last move */
#define TRIES 3
#define SUM_BYTES sizeof(uint64_t)

static _Atomic bool damages_next;

struct exchange {
    struct ash_group *group;
    const struct ash_patches *have, *need;
    struct ash_range_index have_index, need_index;
    size_t rank, ranks;
    struct ash_move *moves;
    size_t move_count;
    size_t *send, *recv;        /* [ranks] bytes of a round */
    size_t *load_in, *load_out; /* [ranks] bytes of a round, of every rank */
    char **at;                  /* [ranks] places in the blocks to or from each */
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

/* A range, and where its values are. */
struct values {
    const struct exchange *exchange;
    const struct ash_patch_range *range;
    const void *kinds[ASH_PATCH_KINDS]; /* NULL: not found yet */
};

/* A patch here that needs them. */
static void put(void *ctx, const struct ash_range_entry *entry)
{
    const struct values *values = ctx;
    const struct ash_patch *to = &values->exchange->need->items[entry->id];

    for (size_t kind = 0; kind < kinds_of(values->range); kind++)
        if (place_of(to, values->range, kind) != values->kinds[kind])
            memcpy(place_of(to, values->range, kind), values->kinds[kind],
                   (size_t)values->range->count * sizeof(float));
}

/* A patch here that has them. Several may: what all ranks of tp have is in a rank's own part and in its copy of
 * another's. The first is as good as any. */
static void get(void *ctx, const struct ash_range_entry *entry)
{
    struct values *values = ctx;

    if (values->kinds[0] != NULL) return;
    for (size_t kind = 0; kind < kinds_of(values->range); kind++)
        values->kinds[kind] = place_of(&values->exchange->have->items[entry->id], values->range, kind);
}

static struct values find_values(const struct exchange *exchange, const struct ash_patch_range *range)
{
    struct values values = {.exchange = exchange, .range = range};

    ash_range_index_find(&exchange->have_index, range, get, &values);
    ash_assert(values.kinds[0] != NULL);
    return values;
}

/* Inside this process. */
static void copy_own(const struct exchange *exchange, const struct ash_patch_range *range)
{
    struct values values = find_values(exchange, range);

    ash_range_index_find(&exchange->need_index, range, put, &values);
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

/* Where the blocks to or from each rank begin; NULL: there is none. */
static void place_blocks(const struct exchange *exchange, char *buffer, const size_t *bytes)
{
    for (size_t r = 0; r < exchange->ranks; buffer += bytes[r++])
        exchange->at[r] = bytes[r] > 0 ? buffer : NULL;
}

/* What goes to others. */
static void pack(const struct exchange *exchange, size_t begin, size_t end)
{
    place_blocks(exchange, exchange->out, exchange->send);
    for (size_t i = begin; i < end; i++) {
        const struct ash_move *move = &exchange->moves[i];
        size_t bytes = (size_t)move->range.count * sizeof(float);
        struct values values;

        if (move->from != exchange->rank || move->to == exchange->rank) continue;
        values = find_values(exchange, &move->range);
        for (size_t kind = 0; kind < kinds_of(&move->range); kind++, exchange->at[move->to] += bytes)
            memcpy(exchange->at[move->to], values.kinds[kind], bytes);
    }
    for (size_t r = 0; r < exchange->ranks; r++) {
        size_t bytes = exchange->send[r] - SUM_BYTES;
        uint64_t sum;

        if (exchange->at[r] == NULL) continue;
        sum = ash_hash_bytes(exchange->at[r] - bytes, bytes, begin);
        memcpy(exchange->at[r], &sum, sizeof(sum));
    }
}

/* Compare what has come with its checksums. A block that is damaged has no place any more. Returns the last rank whose
 * is; SIZE_MAX: none. */
static size_t check_blocks(const struct exchange *exchange, size_t begin)
{
    size_t damaged = SIZE_MAX;

    place_blocks(exchange, exchange->in, exchange->recv);
    for (size_t r = 0; r < exchange->ranks; r++) {
        size_t bytes = exchange->recv[r] - SUM_BYTES;
        uint64_t sum;

        if (exchange->at[r] == NULL) continue;
        memcpy(&sum, exchange->at[r] + bytes, sizeof(sum));
        if (sum == ash_hash_bytes(exchange->at[r], bytes, begin)) continue;
        exchange->at[r] = NULL;
        damaged = r;
    }
    return damaged;
}

/* What has come from others, as far as it is good. */
static void unpack(const struct exchange *exchange, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        const struct ash_move *move = &exchange->moves[i];
        size_t bytes = (size_t)move->range.count * sizeof(float);
        struct values values = {.exchange = exchange, .range = &move->range};

        if (move->to != exchange->rank || move->from == exchange->rank || exchange->at[move->from] == NULL) continue;
        for (size_t kind = 0; kind < kinds_of(&move->range); kind++, exchange->at[move->from] += bytes)
            values.kinds[kind] = exchange->at[move->from];
        ash_range_index_find(&exchange->need_index, &move->range, put, &values);
    }
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
    int64_t damaged = 0;
    size_t from;
    int rc;

    pack(exchange, begin, end);
    damage_block(exchange);
    rc = ash_group_all_to_all(exchange->group, exchange->out, exchange->send, exchange->in, exchange->recv, err);
    if (rc < 0) return rc;
    from = check_blocks(exchange, begin);
    unpack(exchange, begin, end);
    if (from != SIZE_MAX) damaged = 1 + (int64_t)(from * exchange->ranks + exchange->rank);
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
    exchange.at = calloc(ranks, sizeof(*exchange.at));
    if (exchange.send == NULL || exchange.at == NULL ||
        ash_range_index_init(&exchange.have_index, have->items, have->count, sizeof(*have->items)) < 0 ||
        ash_range_index_init(&exchange.need_index, need->items, need->count, sizeof(*need->items)) < 0) {
        ash_err_set(err, rc, "out of memory for an exchange between %zu ranks", ranks);
        goto out;
    }
    exchange.recv = exchange.send + ranks;
    exchange.load_in = exchange.recv + ranks;
    exchange.load_out = exchange.load_in + ranks;
    rc = plan_moves(&exchange, outline, err);
    if (rc == 0) rc = run_rounds(&exchange, &counts, err);

out:
    ash_range_index_fini(&exchange.have_index);
    ash_range_index_fini(&exchange.need_index);
    free(exchange.moves);
    free(exchange.send);
    free(exchange.at);
    free(exchange.out);
    free(exchange.in);
    if (rc == 0) *counts_out = counts;
    return rc;
}

void ash_exchange_damage_next(void)
{
    atomic_store(&damages_next, true);
}
