/* Reduce-scatter, all-gather, broadcast and all-to-all inside a node. The same pipeline as all-reduce; where each rank
 * has other data for each rank, a bounce buffer holds one part for each. */
#include "collective/host/pipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* The largest piece of a bounce buffer that each rank can have for each of `parts` parts. */
static size_t part_bytes(const struct ash_local *local, size_t parts)
{
    ash_assert(parts > 0 && local->size > 0);
    return local->piece_bytes / local->size / parts / 64 * 64;
}

/* ---- reduce-scatter ---------------------------------------------------------------------------------------------- */

/* A bounce buffer holds, for each of this rank's parts, a piece for each rank. */
static void copy_in_parts(const struct ash_pipe *pipe, size_t first, size_t bytes, uint8_t *bounce)
{
    const struct ash_local *local = pipe->local;
    size_t count = pipe->shares->first[local->rank + 1] - pipe->shares->first[local->rank];

    for (size_t i = 0; i < count; i++)
        for (size_t r = 0; r < local->size; r++)
            if (r != local->rank)
                memcpy(bounce + (i * local->size + r) * pipe->piece_bytes,
                       (const char *)pipe->parts[i] + r * pipe->size_bytes + first, bytes);
}

static void join_part(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    const struct ash_local *local = pipe->local;
    const void *parts[ASH_TREE_PARTS_MAX];

    for (size_t r = 0; r < local->size; r++)
        for (size_t p = pipe->shares->first[r], i = 0; p < pipe->shares->first[r + 1]; p++, i++)
            parts[p] = r == local->rank
                           ? (const void *)((const char *)pipe->parts[i] + local->rank * pipe->size_bytes + first)
                           : local->controls[r]->bounce[slot] + (i * local->size + local->rank) * pipe->piece_bytes;
    ash_coll_reduce(pipe->dtype, pipe->op, &pipe->shares->tree, parts, bytes / ash_coll_dtype_bytes(pipe->dtype),
                    pipe->out + first);
}

int ash_local_reduce_scatter_parts(struct ash_local *local, const void *const *parts, const struct ash_shares *shares,
                                   void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                                   struct ash_err *err)
{
    size_t bytes = count * ash_coll_dtype_bytes(dtype), most = ash_shares_most(shares, local->size);
    struct ash_pipe pipe = {.local = local,
                            .parts = parts,
                            .shares = shares,
                            .out = out,
                            .size_bytes = bytes,
                            .piece_bytes = part_bytes(local, most),
                            .dtype = dtype,
                            .op = op,
                            .copy_in = copy_in_parts,
                            .reduce = join_part};
    struct ash_coll_call call = {.kind = ASH_CALL_REDUCE_SCATTER, .dtype = dtype, .op = op, .size_bytes = bytes};
    int rc;

    ash_assert(shares->first[local->size] == shares->tree.part_count && shares->tree.part_count <= ASH_TREE_PARTS_MAX);
    if (pipe.piece_bytes == 0)
        return ash_err_set(err, -E2BIG, "a reduce-scatter of %zu parts from each of %zu ranks is too finely cut", most,
                           local->size);
    rc = ash_control_begin(local, call, err);
    return rc < 0 ? rc : ash_pipe_run(&pipe, err);
}

int ash_local_reduce_scatter(struct ash_local *local, const void *in, void *out, size_t count,
                             enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    return ash_local_reduce_scatter_parts(local, &in, &local->even, out, count, dtype, op, err);
}

/* ---- all-gather -------------------------------------------------------------------------------------------------- */

/* Copy the blocks of the others out of their bounce buffers, side by side. */
static void copy_out_blocks(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    const struct ash_local *local = pipe->local;

    for (size_t r = 0; r < local->size; r++)
        if (r != local->rank) memcpy(pipe->out + r * pipe->size_bytes + first, local->controls[r]->bounce[slot], bytes);
}

int ash_local_all_gather(struct ash_local *local, const void *in, void *out, size_t size_bytes, struct ash_err *err)
{
    struct ash_pipe pipe = {.local = local,
                            .in = in,
                            .out = out,
                            .size_bytes = size_bytes,
                            .piece_bytes = local->piece_bytes,
                            .copy_in = ash_pipe_copy_in,
                            .reduce = copy_out_blocks};
    int rc =
        ash_control_begin(local, (struct ash_coll_call){.kind = ASH_CALL_ALL_GATHER, .size_bytes = size_bytes}, err);

    if (rc < 0) return rc;
    if (size_bytes > 0) memmove((char *)out + local->rank * size_bytes, in, size_bytes);
    return ash_pipe_run(&pipe, err);
}

/* ---- broadcast --------------------------------------------------------------------------------------------------- */

static void reduce_root(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    ash_assert(pipe->root < pipe->local->size);
    if (pipe->root != pipe->local->rank)
        memcpy(pipe->out + first, pipe->local->controls[pipe->root]->bounce[slot], bytes);
}

int ash_local_broadcast(struct ash_local *local, void *data, size_t size_bytes, size_t root, struct ash_err *err)
{
    struct ash_pipe pipe = {.local = local,
                            .in = data,
                            .out = data,
                            .size_bytes = size_bytes,
                            .piece_bytes = local->piece_bytes,
                            .root = root,
                            .copy_in = root == local->rank ? ash_pipe_copy_in : NULL,
                            .reduce = reduce_root};
    struct ash_coll_call call = {.kind = ASH_CALL_BROADCAST, .root = (uint16_t)root, .size_bytes = size_bytes};
    int rc;

    ash_assert(root < local->size);
    if (root >= local->size) return ash_err_set(err, -EINVAL, "a broadcast from rank %zu of %zu", root, local->size);
    rc = ash_control_begin(local, call, err);
    return rc < 0 ? rc : ash_pipe_run(&pipe, err);
}

/* ---- all-to-all -------------------------------------------------------------------------------------------------- */

/* Bytes of a pair's data that lie in a piece of the pipeline, which is as long as the longest pair. */
static size_t overlap(size_t pair_bytes, size_t first, size_t bytes)
{
    size_t left = pair_bytes > first ? pair_bytes - first : 0;

    return left < bytes ? left : bytes;
}

static void copy_in_pairs(const struct ash_pipe *pipe, size_t first, size_t bytes, uint8_t *bounce)
{
    size_t at = 0;

    for (size_t r = 0; r < pipe->local->size; at += pipe->send_bytes[r], r++)
        if (r != pipe->local->rank)
            memcpy(bounce + r * pipe->piece_bytes, pipe->in + at + first, overlap(pipe->send_bytes[r], first, bytes));
}

static void reduce_pairs(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot)
{
    const struct ash_local *local = pipe->local;
    size_t at = 0;

    for (size_t r = 0; r < local->size; at += pipe->recv_bytes[r], r++)
        if (r != local->rank)
            memcpy(pipe->out + at + first, local->controls[r]->bounce[slot] + local->rank * pipe->piece_bytes,
                   overlap(pipe->recv_bytes[r], first, bytes));
}

/* Copy what stays here. */
static void move_own(const struct ash_pipe *pipe)
{
    size_t from = 0, to = 0;

    for (size_t r = 0; r < pipe->local->rank; r++) {
        from += pipe->send_bytes[r];
        to += pipe->recv_bytes[r];
    }
    memcpy(pipe->out + to, pipe->in + from, pipe->send_bytes[pipe->local->rank]);
}

/* Compare what the ranks send with what they expect (matrix[from * size + to]); the longest pair. */
static int check_pairs(struct ash_local *local, const size_t *matrix, const size_t *recv_bytes, size_t *longest_out,
                       struct ash_err *err)
{
    char why[ASH_ERR_TEXT_BYTES];

    *longest_out = 0;
    for (size_t from = 0; from < local->size; from++) {
        const size_t *row = matrix + from * local->size;

        if (row[local->rank] != recv_bytes[from]) {
            snprintf(why, sizeof(why), "all-to-all: rank %u sends %zu bytes to rank %u, which expects %zu",
                     local->labels[from], row[local->rank], local->labels[local->rank], recv_bytes[from]);
            return ash_local_fail(local, -EPROTO, local->labels[from], why, err);
        }
        for (size_t to = 0; to < local->size; to++)
            if (to != from && row[to] > *longest_out) *longest_out = row[to];
    }
    return 0;
}

int ash_local_pairs(struct ash_local *local, const size_t *send_bytes, const size_t *recv_bytes, size_t *longest_out,
                    struct ash_err *err)
{
    size_t *matrix = malloc(local->size * local->size * sizeof(*matrix));
    int rc;

    if (matrix == NULL) return ash_err_set(err, -ENOMEM, "out of memory for an all-to-all of %zu ranks", local->size);
    rc = ash_local_all_gather(local, send_bytes, matrix, local->size * sizeof(*matrix), err);
    if (rc == 0) rc = check_pairs(local, matrix, recv_bytes, longest_out, err);
    free(matrix);
    return rc;
}

int ash_local_all_to_all(struct ash_local *local, const void *in, const size_t *send_bytes, void *out,
                         const size_t *recv_bytes, struct ash_err *err)
{
    struct ash_pipe pipe = {.local = local,
                            .in = in,
                            .out = out,
                            .send_bytes = send_bytes,
                            .recv_bytes = recv_bytes,
                            .piece_bytes = part_bytes(local, 1),
                            .copy_in = copy_in_pairs,
                            .reduce = reduce_pairs};
    int rc = ash_local_pairs(local, send_bytes, recv_bytes, &pipe.size_bytes, err);

    if (rc == 0)
        rc = ash_control_begin(local,
                               (struct ash_coll_call){.kind = ASH_CALL_ALL_TO_ALL, .size_bytes = pipe.size_bytes}, err);
    if (rc < 0) return rc;
    move_own(&pipe);
    return ash_pipe_run(&pipe, err);
}
