/* The calls, as rounds over pieces. A small all-reduce is one round: each rank adds all of it up. A large one is two:
 * each adds its share, and then takes the shares of the others. Which it is changes no bit. */
#include "collective/host/device_calls.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "collective/host/control.h"
#include "collective/host/device_rounds.h"

#define ONE_ROUND_BYTES ((size_t)64 << 10) /* of a part, at most, between more than two ranks */

/* A reduction, and how it lies in slots. */
struct sums {
    struct ash_device_calls *calls;
    struct ash_device_reduction what;
    size_t own;    /* parts of this rank */
    size_t width;  /* bytes of an element */
    size_t bytes;  /* of the result */
    size_t most;   /* parts of any rank */
    size_t stride; /* bytes between the parts of a rank in a slot */
};

static void copy(const struct ash_device_calls *calls, void *dst, const void *src, size_t size_bytes)
{
    if (dst != src) calls->ops->copy(calls->queue, dst, src, size_bytes);
}

static struct sums sums_of(struct ash_device_calls *calls, const struct ash_device_reduction *what)
{
    const struct ash_shares *shares = what->shares;
    size_t rank = calls->local->rank, width = ash_coll_dtype_bytes(what->dtype);

    ash_assert(shares->first[calls->local->size] == shares->tree.part_count);
    return (struct sums){.calls = calls,
                         .what = *what,
                         .own = shares->first[rank + 1] - shares->first[rank],
                         .width = width,
                         .bytes = what->count * width,
                         .most = ash_shares_most(shares, calls->local->size)};
}

/* Add up count elements that are at `begin` bytes of every part of a round. */
static void add_up(const struct sums *sums, uint64_t round, size_t begin, size_t count, void *out, void *also)
{
    const struct ash_device_calls *calls = sums->calls;
    struct ash_device_sum sum = {.dtype = (int)sums->what.dtype,
                                 .op = (int)sums->what.op,
                                 .joins = sums->what.shares->tree.joins,
                                 .part_count = sums->what.shares->tree.part_count,
                                 .count = count,
                                 .out = out,
                                 .also = also};

    if (count == 0) return;
    for (size_t r = 0; r < calls->local->size; r++)
        for (size_t p = sums->what.shares->first[r], i = 0; p < sums->what.shares->first[r + 1]; p++, i++)
            sum.parts[p] = ash_device_slot(calls, round, r) + i * sums->stride + begin;
    calls->ops->sum(calls->queue, &sum);
}

/* The bytes of a slot that each of `pieces` pieces can have. */
static size_t piece_bytes(const struct ash_device_calls *calls, size_t pieces)
{
    return calls->slot_bytes / pieces / ASH_DEVICE_ALIGN * ASH_DEVICE_ALIGN;
}

/* ---- all-reduce -------------------------------------------------------------------------------------------------- */

/* Where rank r's share of `bytes` begins; r = size gives the end. */
static size_t share_begin(size_t bytes, size_t r, size_t size)
{
    size_t lines = ash_div_up(bytes, ASH_DEVICE_ALIGN);

    return ash_min(lines * r / size * ASH_DEVICE_ALIGN, bytes);
}

/* The first `bytes` of a round's parts, to out. Own shares go to the next round's slots. */
static void reduce_shares(const struct sums *sums, uint64_t round, size_t bytes, char *out)
{
    struct ash_device_calls *calls = sums->calls;
    const struct ash_local *local = calls->local;
    size_t begin = share_begin(bytes, local->rank, local->size), end = share_begin(bytes, local->rank + 1, local->size);
    uint64_t next = ash_device_round_fill(calls);

    add_up(sums, round, begin, (end - begin) / sums->width, ash_device_slot(calls, next, local->rank) + begin,
           out + begin);
    ash_device_round_done(calls, round);
    ash_device_round_meet(calls, next);
    for (size_t r = 0; r < local->size; r++) {
        size_t from = share_begin(bytes, r, local->size), to = share_begin(bytes, r + 1, local->size);

        if (r != local->rank) copy(calls, out + from, ash_device_slot(calls, next, r) + from, to - from);
    }
    ash_device_round_done(calls, next);
}

int ash_device_all_reduce(struct ash_device_calls *calls, const struct ash_device_reduction *what, struct ash_err *err)
{
    struct sums sums = sums_of(calls, what);
    size_t bytes = sums.bytes, rank = calls->local->rank;
    int rc = ash_device_rounds_begin(calls, sums.most * ash_round_up(bytes, ASH_DEVICE_ALIGN), sums.most, err);

    if (rc < 0) return rc;
    sums.stride = piece_bytes(calls, sums.most);
    for (size_t at = 0, some; at < bytes; at += some) {
        uint64_t round = ash_device_round_fill(calls);
        char *out = (char *)what->out + at;

        some = ash_min(bytes - at, sums.stride);
        for (size_t i = 0; i < sums.own; i++)
            copy(calls, ash_device_slot(calls, round, rank) + i * sums.stride, (const char *)what->parts[i] + at, some);
        ash_device_round_meet(calls, round);
        if (calls->local->size == 2 || some <= ONE_ROUND_BYTES) {
            add_up(&sums, round, 0, some / sums.width, out, NULL);
            ash_device_round_done(calls, round);
        } else {
            reduce_shares(&sums, round, some, out);
        }
    }
    return ash_device_rounds_end(calls, err);
}

/* ---- reduce-scatter ---------------------------------------------------------------------------------------------- */

/* Own parts, `some` bytes from `at` on of what goes to each rank, one rank's after the other's. */
static void fill_parts(const struct sums *sums, char *slot, size_t place_bytes, size_t at, size_t some)
{
    size_t size = sums->calls->local->size, bytes = sums->bytes;

    for (size_t i = 0; i < sums->own; i++) {
        const char *part = sums->what.parts[i];
        char *to = slot + i * sums->stride;

        if (some == place_bytes && some == bytes)
            copy(sums->calls, to, part, size * bytes); /* all of it, as it lies */
        else
            for (size_t r = 0; r < size; r++)
                copy(sums->calls, to + r * place_bytes, part + r * bytes + at, some);
    }
}

int ash_device_reduce_scatter(struct ash_device_calls *calls, const struct ash_device_reduction *what,
                              struct ash_err *err)
{
    struct sums sums = sums_of(calls, what);
    size_t bytes = sums.bytes, rank = calls->local->rank, pieces = sums.most * calls->local->size, place_bytes;
    int rc = ash_device_rounds_begin(calls, pieces * ash_round_up(bytes, ASH_DEVICE_ALIGN), pieces, err);

    if (rc < 0) return rc;
    place_bytes = ash_min(piece_bytes(calls, pieces), ash_round_up(bytes, ASH_DEVICE_ALIGN));
    sums.stride = calls->local->size * place_bytes;
    for (size_t at = 0, some; at < bytes; at += some) {
        uint64_t round = ash_device_round_fill(calls);

        some = ash_min(bytes - at, place_bytes);
        fill_parts(&sums, ash_device_slot(calls, round, rank), place_bytes, at, some);
        ash_device_round_meet(calls, round);
        add_up(&sums, round, rank * place_bytes, some / sums.width, (char *)what->out + at, NULL);
        ash_device_round_done(calls, round);
    }
    return ash_device_rounds_end(calls, err);
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

int ash_device_all_gather(struct ash_device_calls *calls, const void *in, void *out, size_t size_bytes,
                          struct ash_err *err)
{
    const struct ash_local *local = calls->local;
    int rc = ash_device_rounds_begin(calls, size_bytes, 1, err);

    if (rc < 0) return rc;
    copy(calls, (char *)out + local->rank * size_bytes, in, size_bytes);
    for (size_t at = 0, some; at < size_bytes; at += some) {
        uint64_t round = ash_device_round_fill(calls);

        some = ash_min(size_bytes - at, calls->slot_bytes);
        copy(calls, ash_device_slot(calls, round, local->rank), (const char *)in + at, some);
        ash_device_round_meet(calls, round);
        for (size_t r = 0; r < local->size; r++)
            if (r != local->rank)
                copy(calls, (char *)out + r * size_bytes + at, ash_device_slot(calls, round, r), some);
        ash_device_round_done(calls, round);
    }
    return ash_device_rounds_end(calls, err);
}

int ash_device_broadcast(struct ash_device_calls *calls, void *data, size_t size_bytes, size_t root,
                         struct ash_err *err)
{
    size_t rank = calls->local->rank;
    int rc = ash_device_rounds_begin(calls, size_bytes, 1, err);

    ash_assert(root < calls->local->size);
    if (rc < 0) return rc;
    for (size_t at = 0, some; at < size_bytes; at += some) {
        uint64_t round = ash_device_round_fill(calls);

        some = ash_min(size_bytes - at, calls->slot_bytes);
        if (rank == root) copy(calls, ash_device_slot(calls, round, rank), (char *)data + at, some);
        ash_device_round_meet(calls, round);
        if (rank != root) copy(calls, (char *)data + at, ash_device_slot(calls, round, root), some);
        ash_device_round_done(calls, round);
    }
    return ash_device_rounds_end(calls, err);
}

/* What each pair of ranks exchanges: one after the other, in and out. */
struct pairs {
    const char *in;
    char *out;
    const size_t *send_bytes, *recv_bytes;
    size_t place_bytes; /* of a slot, for each pair */
};

/* A piece of it, from byte `at` on. */
static void exchange_piece(struct ash_device_calls *calls, struct pairs pairs, size_t at)
{
    const struct ash_local *local = calls->local;
    uint64_t round = ash_device_round_fill(calls);
    char *slot = ash_device_slot(calls, round, local->rank);

    for (size_t r = 0; r < local->size; pairs.in += pairs.send_bytes[r++])
        if (r != local->rank && pairs.send_bytes[r] > at)
            copy(calls, slot + r * pairs.place_bytes, pairs.in + at,
                 ash_min(pairs.send_bytes[r] - at, pairs.place_bytes));
    ash_device_round_meet(calls, round);
    for (size_t r = 0; r < local->size; pairs.out += pairs.recv_bytes[r++])
        if (r != local->rank && pairs.recv_bytes[r] > at)
            copy(calls, pairs.out + at, ash_device_slot(calls, round, r) + local->rank * pairs.place_bytes,
                 ash_min(pairs.recv_bytes[r] - at, pairs.place_bytes));
    ash_device_round_done(calls, round);
}

int ash_device_all_to_all(struct ash_device_calls *calls, const void *in, const size_t *send_bytes, void *out,
                          const size_t *recv_bytes, struct ash_err *err)
{
    struct ash_local *local = calls->local;
    struct pairs pairs = {in, out, send_bytes, recv_bytes, 0};
    size_t longest = 0, from = 0, to = 0;
    int rc = ash_local_pairs(local, send_bytes, recv_bytes, &longest, err);

    if (rc < 0) return rc;
    local->call.kind = ASH_CALL_ALL_TO_ALL;
    rc = ash_device_rounds_begin(calls, local->size * ash_round_up(longest, ASH_DEVICE_ALIGN), local->size, err);
    if (rc < 0) return rc;
    for (size_t r = 0; r < local->rank; r++) {
        from += send_bytes[r];
        to += recv_bytes[r];
    }
    copy(calls, (char *)out + to, (const char *)in + from, send_bytes[local->rank]);
    pairs.place_bytes = piece_bytes(calls, local->size);
    for (size_t at = 0; at < longest; at += pairs.place_bytes)
        exchange_piece(calls, pairs, at);
    return ash_device_rounds_end(calls, err);
}
