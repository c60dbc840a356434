/* Collectives on boards. Tiny and small calls: everyone writes its data beside its flag, reads everyone's and joins
 * them. Large ones go through the pipeline. */
#include "collective/host/pipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_local_open(uint64_t timeout_ns, struct ash_local **local_out, struct ash_err *err)
{
    struct ash_local *local = calloc(1, sizeof(*local));
    int rc;

    if (local == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a group");
    local->timeout_ns = timeout_ns;
    rc = ash_segment_create(&local->own, sizeof(struct ash_board), "ashlar-board", err);
    if (rc < 0) {
        ash_local_close(local);
        return rc;
    }
    *local_out = local;
    return 0;
}

struct ash_segment_key ash_local_key(const struct ash_local *local)
{
    struct ash_segment_key key = {0};

    ash_assert(ash_segment_key(&local->own, &key) == 0);
    return key;
}

/* Map the board of one peer. */
static int connect_peer(struct ash_local *local, size_t peer, const struct ash_segment_key *key, struct ash_err *err)
{
    int rc = ash_segment_map(&local->peers[peer], key, err);

    if (rc == 0 && local->peers[peer].size_bytes < sizeof(struct ash_board))
        rc = ash_err_set(err, -EPROTO, "its board is of another version of this program");
    if (rc < 0) return ash_err_prefix(err, rc, "rank %u", local->labels[peer]);
    local->boards[peer] = local->peers[peer].data;
    return 0;
}

int ash_local_connect(struct ash_local *local, size_t rank, size_t size, bool crowded,
                      const struct ash_segment_key *keys, const uint32_t *labels, struct ash_err *err)
{
    int rc = 0;

    if (size > ASH_LOCAL_RANKS_MAX)
        return ash_err_set(err, -EINVAL, "%zu ranks on one node: at most %d can share memory", size,
                           ASH_LOCAL_RANKS_MAX);
    local->rank = rank;
    local->size = size;
    local->crowded = crowded;
    local->boards[rank] = local->own.data;
    for (size_t r = 0; r < size; r++)
        local->labels[r] = labels != NULL ? labels[r] : (uint32_t)r;
    for (size_t r = 0; r < size && rc == 0; r++)
        if (r != rank) rc = connect_peer(local, r, &keys[r], err);
    return rc;
}

void ash_local_close(struct ash_local *local)
{
    if (local == NULL) return;
    for (size_t r = 0; r < local->size; r++)
        ash_segment_fini(&local->peers[r]);
    ash_segment_fini(&local->own);
    free(local);
}

/* ---- tiny and small calls ---------------------------------------------------------------------------------------- */

/* Publish size_bytes of in and collect everyone's: parts_out[r] points at rank r's, valid until the next call but one.
 * in may be NULL for nothing. */
static int exchange(struct ash_local *local, const void *in, size_t size_bytes, const void **parts_out,
                    struct ash_err *err)
{
    size_t parity = local->call.number % 2;
    struct ash_board *own = local->boards[local->rank];
    bool tiny = size_bytes <= ASH_BOARD_TINY;
    int rc;

    if (size_bytes > 0) memcpy(tiny ? own->tiny[parity].data : own->small[parity], in, size_bytes);
    ash_board_say(local, tiny ? &own->tiny[parity].flag : &own->flag, local->check);
    for (size_t r = 0; r < local->size; r++) {
        struct ash_board *board = local->boards[r];

        parts_out[r] = tiny ? board->tiny[parity].data : board->small[parity];
        if (r == local->rank) continue;
        rc = ash_board_wait_flag(local, r, tiny ? &board->tiny[parity].flag : &board->flag, err);
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_local_barrier(struct ash_local *local, struct ash_err *err)
{
    const void *parts[ASH_LOCAL_RANKS_MAX];
    int rc = ash_board_begin(local, (struct ash_call){.kind = ASH_CALL_BARRIER}, err);

    return rc < 0 ? rc : exchange(local, NULL, 0, parts, err);
}

/* ---- all-reduce -------------------------------------------------------------------------------------------------- */

/* Everyone joins the whole piece: as many bytes cross as with two ranks that join halves, in one step. */
static void join_whole(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    const struct ash_local *local = pipe->local;
    const void *parts[ASH_LOCAL_RANKS_MAX];

    for (size_t r = 0; r < local->size; r++)
        parts[r] = r == local->rank ? (const void *)(pipe->in + first) : local->boards[r]->stage[slot];
    ash_coll_reduce(pipe->dtype, pipe->op, parts, local->size, bytes / ash_coll_dtype_bytes(pipe->dtype),
                    pipe->out + first);
}

/* Rank r's share of a piece: begin in bytes; r = size gives the end. */
static size_t share(const struct ash_pipe *pipe, size_t bytes, size_t r)
{
    size_t width = ash_coll_dtype_bytes(pipe->dtype), count = bytes / width;

    return count * r / pipe->local->size * width;
}

/* With more ranks each joins its share of the piece, */
static void join_share(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    const struct ash_local *local = pipe->local;
    size_t begin = share(pipe, bytes, local->rank), end = share(pipe, bytes, local->rank + 1);
    const void *parts[ASH_LOCAL_RANKS_MAX];
    uint8_t *result = local->boards[local->rank]->result[slot] + begin;

    for (size_t r = 0; r < local->size; r++)
        parts[r] = r == local->rank ? (const void *)(pipe->in + first + begin) : local->boards[r]->stage[slot] + begin;
    ash_coll_reduce(pipe->dtype, pipe->op, parts, local->size, (end - begin) / ash_coll_dtype_bytes(pipe->dtype),
                    result);
    memcpy(pipe->out + first + begin, result, end - begin);
}

/* and collects the others' shares. */
static void collect_shares(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    const struct ash_local *local = pipe->local;

    for (size_t r = 0; r < local->size; r++) {
        size_t begin = share(pipe, bytes, r), end = share(pipe, bytes, r + 1);

        if (r != local->rank) memcpy(pipe->out + first + begin, local->boards[r]->result[slot] + begin, end - begin);
    }
}

int ash_local_all_reduce(struct ash_local *local, const void *in, void *out, size_t count, enum ash_coll_dtype dtype,
                         enum ash_coll_op op, struct ash_err *err)
{
    size_t bytes = count * ash_coll_dtype_bytes(dtype);
    const void *parts[ASH_LOCAL_RANKS_MAX];
    struct ash_pipe pipe = {.local = local,
                            .in = in,
                            .out = out,
                            .size_bytes = bytes,
                            .piece_bytes = ASH_BOARD_PIECE,
                            .dtype = dtype,
                            .op = op,
                            .stage = ash_pipe_stage_same,
                            .join = local->size == 2 ? join_whole : join_share,
                            .collect = local->size == 2 ? NULL : collect_shares};
    int rc = ash_board_begin(
        local, (struct ash_call){.kind = ASH_CALL_ALL_REDUCE, .dtype = dtype, .op = op, .size_bytes = bytes}, err);

    if (rc < 0) return rc;
    if (bytes > ASH_BOARD_SMALL && local->size > 1) return ash_pipe_run(&pipe, err);
    if (local->size == 1) {
        memmove(out, in, bytes);
        return 0;
    }
    if ((rc = exchange(local, in, bytes, parts, err)) < 0) return rc;
    ash_coll_reduce(dtype, op, parts, local->size, count, out);
    return 0;
}
