/* exchange: run the planned moves in rounds. Every rank has all moves, so each has the sends and receives of every
 * round. A round's block from one rank to another is written into a slot of a channel between the two and read from
 * there, so that one rank packs a block while the other unpacks the one before. It ends with a checksum. In a round
 * every rank sends first, and waits only for readers of earlier rounds' slots: so waits cannot form a circle. */
#include "train/recover/exchange_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "collective/channel.h"

#define ROUND_BYTES ((size_t)1 << 20) /* that a rank sends or gets in a round, but for a last move */
#define SLOTS 3                       /* rounds that a sender may be ahead */
#define TRIES 3
#define SUM_BYTES sizeof(uint64_t)

static _Atomic bool damages_next;

struct mover {
    const struct ash_exchange *exchange;
    size_t *rounds; /* [round_count + 1]: the first move of each */
    size_t round_count;
    int64_t *damaged;                /* [round_count]: 0, or 1 + from * ranks + to, of a block that arrived damaged */
    bool *is_open;                   /* [round_count]: it is still to be run */
    size_t *send, *recv;             /* [ranks] bytes of a round */
    size_t *load_in, *load_out;      /* [ranks] bytes of a round, of every rank; then those of the largest block */
    struct ash_channel **to, **from; /* [ranks]; NULL: nothing goes there, or comes */
    char **at;                       /* [ranks]: places in the blocks to or from each */
    bool moves_any;                  /* does anything go between processes? */
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Where elements of a range are in a patch that has them. */
static float *place_of(const struct ash_patch *patch, const struct ash_patch_range *range, size_t kind)
{
    ash_assert(kind < ASH_PATCH_KINDS);
    ash_assert(range->first >= patch->range.first);
    return patch->values[kind] + (range->first - patch->range.first);
}

static size_t kinds_of(const struct ash_patch_range *range)
{
    return range->has_moments != 0 ? ASH_PATCH_KINDS : 1;
}

/* A range, and where its values are. */
struct values {
    const struct ash_exchange *exchange;
    const struct ash_patch_range *range;
    size_t patch; /* here that has them; SIZE_MAX: not found yet */
    const void *kinds[ASH_PATCH_KINDS];
    int rc; /* of put */
    struct ash_err *err;
};

/* A patch here that needs them. */
static void put(void *ctx, const struct ash_range_entry *entry)
{
    struct values *values = ctx;
    const struct ash_patch *to = &values->exchange->need->items[entry->id];

    for (size_t kind = 0; values->rc == 0 && kind < kinds_of(values->range); kind++)
        if (place_of(to, values->range, kind) != values->kinds[kind])
            values->rc = ash_group_copy(values->exchange->group, place_of(to, values->range, kind), values->kinds[kind],
                                        (size_t)values->range->count * sizeof(float), values->err);
}

/* A patch here that has them. Several may: what all ranks of tp have is in a rank's own part and in its copy of
 * another's. The first is as good as any. */
static void get(void *ctx, const struct ash_range_entry *entry)
{
    struct values *values = ctx;

    if (values->patch == SIZE_MAX) values->patch = entry->id;
}

/* Find them, and wait until they are there. */
static int find_values(const struct ash_exchange *exchange, const struct ash_patch_range *range, struct values *values,
                       struct ash_err *err)
{
    int rc = 0;

    *values = (struct values){.exchange = exchange, .range = range, .patch = SIZE_MAX, .err = err};
    ash_range_index_find(&exchange->have_index, range, get, values);
    ash_assert(values->patch != SIZE_MAX);
    if (exchange->gate != NULL) rc = exchange->gate->wait(exchange->gate->ctx, values->patch, err);
    for (size_t kind = 0; rc == 0 && kind < kinds_of(range); kind++)
        values->kinds[kind] = place_of(&exchange->have->items[values->patch], range, kind);
    return rc;
}

/* Inside this process. */
static int copy_own(const struct ash_exchange *exchange, const struct ash_patch_range *range, struct ash_err *err)
{
    struct values values;
    int rc = find_values(exchange, range, &values, err);

    if (rc < 0) return rc;
    ash_range_index_find(&exchange->need_index, range, put, &values);
    return values.rc;
}

/* ---- sends and receives of a round------------------------------------------------------------------------------- */

/* The moves of the next round, from `begin` on: as many as stay within every rank's limit of sent and received bytes.
 * Returns their end. */
static size_t cut_round(struct mover *mover, size_t begin)
{
    const struct ash_exchange *exchange = mover->exchange;
    size_t end = begin;

    memset(mover->load_in, 0, exchange->ranks * sizeof(*mover->load_in));
    memset(mover->load_out, 0, exchange->ranks * sizeof(*mover->load_out));
    for (; end < exchange->move_count; end++) {
        const struct ash_move *move = &exchange->moves[end];

        if (move->from == move->to) continue;
        if (mover->load_out[move->from] >= ROUND_BYTES || mover->load_in[move->to] >= ROUND_BYTES) break;
        mover->load_out[move->from] += ash_patch_bytes(&move->range);
        mover->load_in[move->to] += ash_patch_bytes(&move->range);
    }
    return end;
}

static int cut_rounds(struct mover *mover, struct ash_err *err)
{
    size_t moves = mover->exchange->move_count, room = 0;

    for (size_t begin = 0; begin < moves; mover->round_count++) {
        if (ash_array_reserve(&mover->rounds, &room, mover->round_count + 2, sizeof(*mover->rounds)) < 0)
            return ash_err_set(err, -ENOMEM, "out of memory for the rounds of an exchange");
        mover->rounds[mover->round_count] = begin;
        begin = cut_round(mover, begin);
        mover->rounds[mover->round_count + 1] = begin;
    }
    return 0;
}

/* Bytes to and from each rank in a round, with checksums. */
static void count_bytes(struct mover *mover, size_t round)
{
    const struct ash_exchange *exchange = mover->exchange;

    memset(mover->send, 0, exchange->ranks * sizeof(*mover->send));
    memset(mover->recv, 0, exchange->ranks * sizeof(*mover->recv));
    for (size_t i = mover->rounds[round]; i < mover->rounds[round + 1]; i++) {
        const struct ash_move *move = &exchange->moves[i];

        if (move->from == move->to) continue;
        if (move->from == exchange->rank) mover->send[move->to] += ash_patch_bytes(&move->range);
        if (move->to == exchange->rank) mover->recv[move->from] += ash_patch_bytes(&move->range);
    }
    for (size_t r = 0; r < exchange->ranks; r++) {
        if (mover->send[r] > 0) mover->send[r] += SUM_BYTES;
        if (mover->recv[r] > 0) mover->recv[r] += SUM_BYTES;
    }
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

/* Slots have room for the largest block of a channel. Every rank opens its sending ends first, as channels require. */
static int open_channels(struct mover *mover, struct ash_err *err)
{
    const struct ash_exchange *exchange = mover->exchange;
    size_t rank = exchange->rank, *most_out = mover->load_out, *most_in = mover->load_in;
    int rc = 0;

    memset(most_out, 0, exchange->ranks * sizeof(*most_out));
    memset(most_in, 0, exchange->ranks * sizeof(*most_in));
    for (size_t i = 0; i < mover->round_count; i++) {
        count_bytes(mover, i);
        for (size_t r = 0; r < exchange->ranks; r++) {
            most_out[r] = ash_max(most_out[r], mover->send[r]);
            most_in[r] = ash_max(most_in[r], mover->recv[r]);
        }
    }
    for (size_t r = 0; rc == 0 && r < exchange->ranks; r++)
        if (most_out[r] > 0) rc = ash_channel_open(exchange->group, rank, r, most_out[r], SLOTS, &mover->to[r], err);
    for (size_t r = 0; rc == 0 && r < exchange->ranks; r++)
        if (most_in[r] > 0) rc = ash_channel_open(exchange->group, r, rank, most_in[r], SLOTS, &mover->from[r], err);
    return rc;
}

static void close_channels(struct mover *mover)
{
    for (size_t r = 0; mover->from != NULL && r < mover->exchange->ranks; r++)
        ash_channel_close(mover->from[r]);
    for (size_t r = 0; mover->to != NULL && r < mover->exchange->ranks; r++)
        ash_channel_close(mover->to[r]);
}

static int failure_of(const struct ash_err *err)
{
    return err->code < 0 ? err->code : -EIO;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

/* The blocks are packed: compute their checksums and send them. Injected fault: a bit may change in transit. */
static int post_blocks(const struct mover *mover, size_t round, struct ash_err *err)
{
    int rc = 0;

    for (size_t r = 0; rc == 0 && r < mover->exchange->ranks; r++) {
        size_t bytes = mover->send[r] - SUM_BYTES;
        uint64_t sum;
        char *block;

        if (mover->send[r] == 0) continue;
        block = mover->at[r] - bytes;
        sum = ash_hash_bytes(block, bytes, round);
        memcpy(mover->at[r], &sum, sizeof(sum));
        if (atomic_exchange(&damages_next, false)) block[mover->send[r] / 2] ^= 1;
        rc = ash_channel_post(mover->to[r], mover->send[r], err);
    }
    return rc;
}

/* Send blocks to others, and copy local ones. */
static int send_blocks(const struct mover *mover, size_t round, struct ash_err *err)
{
    const struct ash_exchange *exchange = mover->exchange;

    for (size_t r = 0; r < exchange->ranks; r++) {
        if (mover->send[r] == 0) continue;
        mover->at[r] = ash_channel_fill(mover->to[r], err);
        if (mover->at[r] == NULL) return failure_of(err);
    }
    for (size_t i = mover->rounds[round]; i < mover->rounds[round + 1]; i++) {
        const struct ash_move *move = &exchange->moves[i];
        size_t bytes = (size_t)move->range.count * sizeof(float);
        struct values values;
        int rc;

        if (move->from != exchange->rank) continue;
        if (move->to == exchange->rank) {
            rc = copy_own(exchange, &move->range, err);
            if (rc < 0) return rc;
            continue;
        }
        rc = find_values(exchange, &move->range, &values, err);
        for (size_t kind = 0; rc == 0 && kind < kinds_of(&move->range); kind++, mover->at[move->to] += bytes)
            rc = ash_group_copy(exchange->group, mover->at[move->to], values.kinds[kind], bytes, err);
        if (rc < 0) return rc;
    }
    return post_blocks(mover, round, err);
}

/* Wait for a rank's block, and compare it with its checksum. One that is damaged has no place. */
static int take_block(const struct mover *mover, size_t round, size_t r, struct ash_err *err)
{
    const struct ash_exchange *exchange = mover->exchange;
    size_t size = 0, bytes = mover->recv[r] - SUM_BYTES;
    const char *block = ash_channel_take(mover->from[r], &size, err);
    uint64_t sum;

    ash_assert(mover->recv[r] >= SUM_BYTES);
    if (block == NULL) return failure_of(err);
    if (size != mover->recv[r])
        return ash_err_set(err, -EPROTO, "rank %zu sends %zu bytes of a state to rank %zu, which expects %zu", r, size,
                           exchange->rank, mover->recv[r]);
    memcpy(&sum, block + bytes, sizeof(sum));
    mover->at[r] = (char *)block;
    if (sum == ash_hash_bytes(block, bytes, round)) return 0;
    mover->at[r] = NULL;
    mover->damaged[round] = 1 + (int64_t)(r * exchange->ranks + exchange->rank);
    return 0;
}

/* Receive blocks of others. */
static int receive_blocks(const struct mover *mover, size_t round, struct ash_err *err)
{
    const struct ash_exchange *exchange = mover->exchange;

    for (size_t r = 0; r < exchange->ranks; r++) {
        int rc = mover->recv[r] > 0 ? take_block(mover, round, r, err) : 0;

        if (rc < 0) return rc;
    }
    for (size_t i = mover->rounds[round]; i < mover->rounds[round + 1]; i++) {
        const struct ash_move *move = &exchange->moves[i];
        size_t bytes = (size_t)move->range.count * sizeof(float);
        struct values values = {.exchange = exchange, .range = &move->range, .err = err};

        if (move->to != exchange->rank || move->from == exchange->rank || mover->at[move->from] == NULL) continue;
        for (size_t kind = 0; kind < kinds_of(&move->range); kind++, mover->at[move->from] += bytes)
            values.kinds[kind] = mover->at[move->from];
        ash_range_index_find(&exchange->need_index, &move->range, put, &values);
        if (values.rc < 0) return values.rc;
    }
    for (size_t r = 0; r < exchange->ranks; r++)
        if (mover->recv[r] > 0) ash_channel_release(mover->from[r]);
    return 0;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Run the rounds that are open; those of which nothing was damaged anywhere are done. */
static int run_rounds(struct mover *mover, struct ash_exchange_counts *counts, bool *done_out, struct ash_err *err)
{
    const struct ash_exchange *exchange = mover->exchange;
    int rc = 0;

    memset(mover->damaged, 0, mover->round_count * sizeof(*mover->damaged));
    for (size_t i = 0; rc == 0 && i < mover->round_count; i++) {
        if (!mover->is_open[i]) continue;
        count_bytes(mover, i);
        rc = send_blocks(mover, i, err);
        if (rc == 0) rc = receive_blocks(mover, i, err);
    }
    if (rc == 0 && mover->moves_any)
        rc = ash_group_all_reduce(exchange->group, mover->damaged, mover->damaged, mover->round_count, ASH_COLL_I64,
                                  ASH_COLL_MAX, err);
    *done_out = true;
    for (size_t i = 0; rc == 0 && i < mover->round_count; i++) {
        mover->is_open[i] = mover->damaged[i] != 0;
        if (!mover->is_open[i]) continue;
        *done_out = false;
        counts->repeated++;
        counts->damaged_from = (uint32_t)((mover->damaged[i] - 1) / (int64_t)exchange->ranks);
        counts->damaged_to = (uint32_t)((mover->damaged[i] - 1) % (int64_t)exchange->ranks);
    }
    return rc;
}

static int run_all(struct mover *mover, struct ash_exchange_counts *counts, struct ash_err *err)
{
    bool is_done = false;
    int rc = 0;

    memset(mover->is_open, 1, mover->round_count * sizeof(*mover->is_open));
    for (size_t tried = 0; rc == 0 && tried < TRIES && !is_done; tried++)
        rc = run_rounds(mover, counts, &is_done, err);
    return rc < 0 || is_done
               ? rc
               : ash_err_set(err, -EBADMSG, "a part of the state has arrived damaged %d times, from rank %u at rank %u",
                             TRIES, counts->damaged_from, counts->damaged_to);
}

static void count_moves(struct mover *mover, struct ash_exchange_counts *counts)
{
    for (size_t i = 0; i < mover->exchange->move_count; i++) {
        const struct ash_move *move = &mover->exchange->moves[i];
        bool is_kept = move->from == move->to;

        *(is_kept ? &counts->kept_bytes : &counts->moved_bytes) += ash_patch_bytes(&move->range);
        mover->moves_any = mover->moves_any || !is_kept;
    }
}

static int open_mover(struct mover *mover, struct ash_err *err)
{
    size_t ranks = mover->exchange->ranks;
    int rc;

    mover->send = calloc(4 * ranks, sizeof(*mover->send));
    mover->at = calloc(ranks, sizeof(*mover->at));
    mover->to = calloc(2 * ranks, sizeof(struct ash_channel *));
    if (mover->send == NULL || mover->at == NULL || mover->to == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for an exchange between %zu ranks", ranks);
    mover->recv = mover->send + ranks;
    mover->load_in = mover->recv + ranks;
    mover->load_out = mover->load_in + ranks;
    mover->from = mover->to + ranks;
    rc = cut_rounds(mover, err);
    if (rc < 0) return rc;
    mover->damaged = calloc(mover->round_count + 1, sizeof(*mover->damaged));
    mover->is_open = calloc(mover->round_count + 1, sizeof(*mover->is_open));
    if (mover->damaged == NULL || mover->is_open == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for %zu rounds of an exchange", mover->round_count);
    return open_channels(mover, err);
}

int ash_exchange_move(const struct ash_exchange *exchange, struct ash_exchange_counts *counts, struct ash_err *err)
{
    struct mover mover = {.exchange = exchange};
    struct ash_err why = {0};
    int rc;

    count_moves(&mover, counts);
    rc = open_mover(&mover, &why);
    if (rc == 0) rc = run_all(&mover, counts, &why);
    close_channels(&mover);
    free(mover.rounds);
    free(mover.damaged);
    free(mover.is_open);
    free(mover.send);
    free(mover.at);
    free(mover.to);
    if (rc < 0 && err != NULL) *err = why;
    return rc;
}

void ash_exchange_damage_next(void)
{
    atomic_store(&damages_next, true);
}
