/* The pipeline of large calls. A stage is used again once every rank has taken what it held. */
#include "collective/host/pipe.h"

#include <string.h>

static int wait_all(struct ash_local *local, size_t counter_offset, uint64_t value, struct ash_err *err)
{
    for (size_t r = 0; r < local->size; r++) {
        const _Atomic uint64_t *counter = (const void *)((const char *)local->boards[r] + counter_offset);
        int rc = r == local->rank ? 0 : ash_board_wait(local, r, counter, value, err);

        if (rc < 0) return rc;
    }
    return 0;
}

#define WAIT_ALL(local, counter, value, err) wait_all(local, offsetof(struct ash_board, counter), value, err)

static int stage_piece(const struct ash_pipe *pipe, size_t piece, size_t first, size_t bytes, struct ash_err *err)
{
    struct ash_local *local = pipe->local;
    struct ash_board *own = local->boards[local->rank];
    uint64_t number = local->pieces + piece;
    int rc;

    if (number >= ASH_BOARD_STAGES && (rc = WAIT_ALL(local, taken, number - ASH_BOARD_STAGES + 1, err)) < 0) return rc;
    if (pipe->stage != NULL) pipe->stage(pipe, first, bytes, own->stage[number % ASH_BOARD_STAGES]);
    ash_board_say(local, &own->staged, number + 1);
    return 0;
}

static int join_piece(const struct ash_pipe *pipe, size_t piece, size_t first, size_t bytes, struct ash_err *err)
{
    struct ash_local *local = pipe->local;
    struct ash_board *own = local->boards[local->rank];
    uint64_t number = local->pieces + piece;
    int rc = WAIT_ALL(local, staged, number + 1, err);

    if (rc < 0) return rc;
    pipe->join(pipe, first, bytes, number % ASH_BOARD_STAGES);
    ash_board_say(local, pipe->collect != NULL ? &own->summed : &own->taken, number + 1);
    return 0;
}

static int collect_piece(const struct ash_pipe *pipe, size_t piece, size_t first, size_t bytes, struct ash_err *err)
{
    struct ash_local *local = pipe->local;
    uint64_t number = local->pieces + piece;
    int rc = WAIT_ALL(local, summed, number + 1, err);

    if (rc < 0) return rc;
    pipe->collect(pipe, first, bytes, number % ASH_BOARD_STAGES);
    ash_board_say(local, &local->boards[local->rank]->taken, number + 1);
    return 0;
}

/* Is everyone in this call? */
static int compare_call(struct ash_local *local, struct ash_err *err)
{
    int rc = 0;

    for (size_t r = 0; r < local->size && rc == 0; r++)
        if (r != local->rank) rc = ash_board_wait_flag(local, r, &local->boards[r]->flag, err);
    return rc;
}

/* Run the pieces through the steps, each one piece behind the step before it. */
int ash_pipe_run(const struct ash_pipe *pipe, struct ash_err *err)
{
    struct ash_local *local = pipe->local;
    size_t count = (pipe->size_bytes + pipe->piece_bytes - 1) / pipe->piece_bytes,
           depth = pipe->collect != NULL ? 3 : 2;
    int (*const steps[])(const struct ash_pipe *, size_t, size_t, size_t, struct ash_err *) = {stage_piece, join_piece,
                                                                                               collect_piece};
    int rc;

    ash_board_say(local, &local->boards[local->rank]->flag, local->check);
    if (count == 0) return compare_call(local, err);
    for (size_t at = 0; at < count + depth - 1; at++)
        for (size_t step = 0; step < depth; step++) {
            size_t piece = at - step, first = piece * pipe->piece_bytes, left;

            if (at < step || piece >= count) continue;
            left = pipe->size_bytes - first;
            rc = steps[step](pipe, piece, first, left < pipe->piece_bytes ? left : pipe->piece_bytes, err);
            if (rc == 0 && at == 0) rc = compare_call(local, err); /* while the first piece waits to be read */
            if (rc < 0) return rc;
        }
    local->pieces += count;
    if (pipe->collect == NULL) atomic_store(&local->boards[local->rank]->summed, local->pieces);
    return 0;
}

void ash_pipe_stage_same(const struct ash_pipe *pipe, size_t first, size_t bytes, uint8_t *stage)
{
    memcpy(stage, pipe->in + first, bytes);
}
