/* Collectives through control blocks. Inline and small calls: every rank writes its data next to its flag, reads
 * all others' and reduces them. Large ones go through the pipeline. */
#include "collective/host/pipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_local_open(const struct ash_wait_limits *limits, struct ash_local **local_out, struct ash_err *err)
{
    struct ash_local *local = calloc(1, sizeof(*local));
    int rc;

    if (local == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a group");
    local->limits = *limits;
    local->piece_bytes = ASH_CONTROL_BOUNCE_BYTES;
    local->cost = ash_cost_default;
    rc = ash_segment_create(&local->own, sizeof(struct ash_control), "ashlar-control", err);
    if (rc < 0) {
        ash_local_close(local);
        return rc;
    }
    *local_out = local;
    return 0;
}

void ash_local_set_cost(struct ash_local *local, const struct ash_cost *cost)
{
    local->cost = *cost;
}

struct ash_segment_key ash_local_key(const struct ash_local *local)
{
    struct ash_segment_key key = {0};

    ash_assert(ash_segment_get_key(&local->own, &key) == 0);
    return key;
}

/* Map the control block of one peer. */
static int connect_peer(struct ash_local *local, size_t peer, const struct ash_segment_key *key, struct ash_err *err)
{
    int rc = ash_segment_map(&local->peers[peer], key, err);

    ash_assert(peer < local->size);
    ash_assert(peer != local->rank);
    if (rc == 0 && local->peers[peer].size_bytes < sizeof(struct ash_control))
        rc = ash_err_set(err, -EPROTO, "its control block is of another version of this program");
    if (rc < 0) return ash_err_prefix(err, rc, "rank %u", local->labels[peer]);
    local->controls[peer] = local->peers[peer].data;
    return 0;
}

int ash_local_connect(struct ash_local *local, size_t rank, size_t size, bool oversubscribed,
                      const struct ash_segment_key *keys, const uint32_t *labels, struct ash_err *err)
{
    int rc = 0;

    if (size > ASH_LOCAL_RANKS_MAX)
        return ash_err_set(err, -EINVAL, "%zu ranks on one node: at most %d can share memory", size,
                           ASH_LOCAL_RANKS_MAX);
    ash_assert(rank < size && local->size == 0);
    local->rank = rank;
    local->size = size;
    local->oversubscribed = oversubscribed;
    local->controls[rank] = local->own.data;
    ash_tree_of(&local->even.tree, size);
    for (size_t r = 0; r <= size; r++)
        local->even.first[r] = (uint32_t)r;
    for (size_t r = 0; r < size; r++)
        local->labels[r] = labels != NULL ? labels[r] : (uint32_t)r;
    for (size_t r = 0; r < size && rc == 0; r++)
        if (r != rank) rc = connect_peer(local, r, &keys[r], err);
    return rc;
}

void ash_local_close(struct ash_local *local)
{
    if (local == NULL) return;
    if (local->size > 0 && atomic_load(&local->state) == 0) { /* after an error the others get that instead */
        atomic_store(&local->controls[local->rank]->left, 1);
        ash_futex_wake(&local->controls[local->rank]->futex);
    }
    for (size_t r = 0; r < local->size; r++)
        ash_segment_fini(&local->peers[r]);
    ash_segment_fini(&local->own);
    free(local);
}

/* ---- inline and small calls -------------------------------------------------------------------------------------- */

/* Publish part_count parts of part_bytes each, and wait for those of all ranks. Rank r's parts are then at
 * small_data(r), one after the other, until the next call but one. */
static int exchange(struct ash_local *local, const void *const *parts, size_t part_count, size_t part_bytes,
                    bool is_inline, struct ash_err *err)
{
    size_t parity = local->call.number % 2;
    struct ash_control *own = local->controls[local->rank];
    uint8_t *to = is_inline ? own->inlined[parity].data : own->small[parity];
    int rc = 0;

    ash_assert(part_count * part_bytes <= (is_inline ? sizeof(own->inlined[0].data) : sizeof(own->small[0])));
    for (size_t i = 0; i < part_count; i++)
        memcpy(to + i * part_bytes, parts[i], part_bytes);
    ash_control_signal(local, is_inline ? &own->inlined[parity].flag : &own->flag, local->check);
    for (size_t r = 0; r < local->size && rc == 0; r++)
        if (r != local->rank)
            rc = ash_control_wait_flag(
                local, r, is_inline ? &local->controls[r]->inlined[parity].flag : &local->controls[r]->flag, err);
    return rc;
}

static const uint8_t *small_data(const struct ash_local *local, size_t rank, bool is_inline)
{
    size_t parity = local->call.number % 2;

    ash_assert(rank < local->size);
    return is_inline ? local->controls[rank]->inlined[parity].data : local->controls[rank]->small[parity];
}

int ash_local_compare(struct ash_local *local, struct ash_coll_call call, struct ash_err *err)
{
    int rc = ash_control_begin(local, call, err);

    return rc < 0 ? rc : exchange(local, NULL, 0, 0, true, err);
}

int ash_local_agree(struct ash_local *local, struct ash_coll_call call, uint8_t bits, uint8_t *common_out,
                    struct ash_err *err)
{
    const void *const parts[] = {&bits};
    uint8_t common = bits;
    int rc = ash_control_begin(local, call, err);

    if (rc == 0) rc = exchange(local, parts, 1, sizeof(bits), true, err);
    if (rc < 0) return rc;
    for (size_t r = 0; r < local->size; r++)
        common &= small_data(local, r, true)[0];
    *common_out = common;
    return 0;
}

int ash_local_barrier(struct ash_local *local, struct ash_err *err)
{
    return ash_local_compare(local, (struct ash_coll_call){.kind = ASH_CALL_BARRIER}, err);
}

void ash_local_set_limits(struct ash_local *local, struct ash_wait_limits limits)
{
    local->limits = limits;
}

/* ---- all-reduce -------------------------------------------------------------------------------------------------- */

/* Rank r's share of a piece: begin in bytes; r = size gives the end. */
static size_t share(const struct ash_pipe *pipe, size_t bytes, size_t r)
{
    size_t width = ash_coll_dtype_bytes(pipe->dtype), count = bytes / width;

    ash_assert(r <= pipe->local->size);
    return count * r / pipe->local->size * width;
}

/* Copy a rank's parts to its bounce buffer, all but its own share, which it reduces from memory: the result goes
 * there. */
static void copy_in_parts(const struct ash_pipe *pipe, size_t first, size_t bytes, uint8_t *bounce)
{
    size_t rank = pipe->local->rank, count = pipe->shares->first[rank + 1] - pipe->shares->first[rank],
           begin = share(pipe, bytes, rank), end = share(pipe, bytes, rank + 1);

    for (size_t i = 0; i < count; i++) {
        const char *part = (const char *)pipe->parts[i] + first;
        uint8_t *place = bounce + i * pipe->piece_bytes;

        memcpy(place, part, begin);
        memcpy(place + end, part + end, bytes - end);
    }
}

/* Reduce a rank's own share of a piece, from its own memory and the others' bounce buffers, to out and to its own
 * bounce buffer, */
static void reduce_share(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    const struct ash_local *local = pipe->local;
    size_t begin = share(pipe, bytes, local->rank), end = share(pipe, bytes, local->rank + 1);
    void *const outs[] = {pipe->out + first + begin, local->controls[local->rank]->bounce[slot] + begin};
    const void *parts[ASH_TREE_PARTS_MAX];

    for (size_t r = 0; r < local->size; r++)
        for (size_t p = pipe->shares->first[r], i = 0; p < pipe->shares->first[r + 1]; p++, i++)
            parts[p] = r == local->rank ? (const void *)((const char *)pipe->parts[i] + first + begin)
                                        : local->controls[r]->bounce[slot] + i * pipe->piece_bytes + begin;
    ash_coll_reduce_to(pipe->dtype, pipe->op, &pipe->shares->tree, parts,
                       (end - begin) / ash_coll_dtype_bytes(pipe->dtype), outs, local->size > 1 ? 2 : 1);
}

/* and copy the others' shares from theirs. */
static void copy_out_shares(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    const struct ash_local *local = pipe->local;

    for (size_t r = 0; r < local->size; r++) {
        size_t begin = share(pipe, bytes, r), end = share(pipe, bytes, r + 1);

        if (r != local->rank) memcpy(pipe->out + first + begin, local->controls[r]->bounce[slot] + begin, end - begin);
    }
}

/* One-shot: every rank reads all parts and reduces them. Of pipe only the operands are used. */
static int reduce_small(const struct ash_pipe *pipe, bool is_inline, struct ash_err *err)
{
    struct ash_local *local = pipe->local;
    const struct ash_shares *shares = pipe->shares;
    size_t bytes = pipe->size_bytes, own = shares->first[local->rank + 1] - shares->first[local->rank];
    const void *all[ASH_TREE_PARTS_MAX];
    int rc = exchange(local, pipe->parts, own, bytes, is_inline, err);

    if (rc < 0) return rc;
    for (size_t r = 0; r < local->size; r++)
        for (size_t p = shares->first[r], i = 0; p < shares->first[r + 1]; p++, i++)
            all[p] = small_data(local, r, is_inline) + i * bytes;
    ash_coll_reduce(pipe->dtype, pipe->op, &shares->tree, all, bytes / ash_coll_dtype_bytes(pipe->dtype), pipe->out);
    return 0;
}

/* Is this large enough to be cut into pieces and shares? Equal on all ranks. */
static bool in_shares(const struct ash_local *local, size_t bytes)
{
    if (bytes <= ASH_CONTROL_INLINE_BYTES || bytes > ASH_CONTROL_SMALL_BYTES) return bytes > ASH_CONTROL_INLINE_BYTES;
    return ash_cost_choose_intra_node(&local->cost, local->size, bytes) == ASH_COST_TWO_SHOT;
}

int ash_local_all_reduce_parts(struct ash_local *local, const void *const *parts, const struct ash_shares *shares,
                               void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                               struct ash_err *err)
{
    size_t bytes = count * ash_coll_dtype_bytes(dtype), most = ash_shares_most(shares, local->size);
    struct ash_pipe pipe = {.local = local,
                            .parts = parts,
                            .shares = shares,
                            .out = out,
                            .size_bytes = bytes,
                            .piece_bytes = local->piece_bytes / most / 64 * 64,
                            .dtype = dtype,
                            .op = op,
                            .copy_in = copy_in_parts,
                            .reduce = reduce_share,
                            .copy_out = local->size > 1 ? copy_out_shares : NULL};
    struct ash_coll_call call = {.kind = ASH_CALL_ALL_REDUCE, .dtype = dtype, .op = op, .size_bytes = bytes};
    int rc;

    ash_assert(most <= ASH_CONTROL_PARTS_MAX && shares->first[local->size] == shares->tree.part_count);
    ash_assert(shares->tree.part_count <= ASH_TREE_PARTS_MAX);
    rc = ash_control_begin(local, call, err);
    if (rc < 0) return rc;
    if (in_shares(local, most * bytes)) return ash_pipe_run(&pipe, err);
    return reduce_small(&pipe, most * bytes <= ASH_CONTROL_INLINE_BYTES, err);
}

int ash_local_all_reduce(struct ash_local *local, const void *in, void *out, size_t count, enum ash_coll_dtype dtype,
                         enum ash_coll_op op, struct ash_err *err)
{
    return ash_local_all_reduce_parts(local, &in, &local->even, out, count, dtype, op, err);
}
