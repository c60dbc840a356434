/* Transfers from and to memory that only its owner can touch: cut into chunks that travel through shared memory. The
 * requester fills a chunk and puts its number into the ring; the owner of the memory executes it when it polls. */
#include "fabric/shm/shm_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

int ash_bounce_post(struct ash_shm_link *link, const struct ash_transfer *transfer, bool write)
{
    struct ash_shm_move *move = ash_pool_get(link->shm->moves, NULL);

    ash_assert(transfer->size_bytes > 0);
    if (move == NULL) return -EAGAIN;
    *move = (struct ash_shm_move){.local = (uint8_t *)transfer->local->data + transfer->local_offset,
                                  .region = transfer->remote->key.region,
                                  .offset = transfer->remote_offset,
                                  .size_bytes = transfer->size_bytes,
                                  .cookie = transfer->cookie,
                                  .write = write};
    if (link->moves == NULL)
        link->moves = move;
    else
        link->moves_end->next = move;
    link->moves_end = move;
    ash_bounce_progress(link);
    return 0;
}

bool ash_bounce_pending(const struct ash_shm_link *link)
{
    for (const struct ash_shm_move *move = link->moves; move != NULL; move = move->next)
        if (move->issued < move->size_bytes) return true;
    return false;
}

/* ---- the one who asks -------------------------------------------------------------------------------------------- */

static bool issue(struct ash_shm_link *link, struct ash_shm_move *move)
{
    size_t index = link->chunks_issued % ASH_BOX_CHUNKS, size = move->size_bytes - move->issued;
    struct ash_box_chunk *chunk = &link->out->chunks[index];

    if (size > ASH_BOX_CHUNK_BYTES) size = ASH_BOX_CHUNK_BYTES;
    chunk->write = move->write;
    chunk->region = move->region;
    chunk->offset = move->offset + move->issued;
    chunk->size_bytes = size;
    if (move->write) memcpy(chunk->data, move->local + move->issued, size);
    link->chunks[index].move = move;
    link->chunks[index].size_bytes = size;
    link->chunks[index].mark = link->out_cursor.next + 1;
    if (!ash_box_put(link->out, &link->out_cursor, ASH_BOX_CHUNK, index)) return false;
    move->issued += size;
    link->chunks_issued++;
    ash_shm_wake(link);
    return true;
}

/* The oldest transfer is complete: give it up. */
static void finish(struct ash_shm_link *link)
{
    struct ash_shm_move *move = link->moves;

    link->moves = move->next;
    ash_fabric_done(link->peer, move->cookie, move->status);
    ash_pool_put(link->shm->moves, move);
}

/* Take the answer to the oldest chunk, if there is one. Answers come in order. */
static bool take_answer(struct ash_shm_link *link)
{
    size_t index = link->chunks_answered % ASH_BOX_CHUNKS, size = link->chunks[index].size_bytes;
    struct ash_box_chunk *chunk = &link->out->chunks[index];
    struct ash_shm_move *move = link->chunks[index].move;

    if (link->chunks_answered == link->chunks_issued ||
        atomic_load_explicit(&chunk->answered, memory_order_acquire) != link->chunks[index].mark)
        return false;
    if (chunk->status < 0) {
        move->status = chunk->status;
        move->size_bytes = move->issued; /* the rest would fail too */
    } else if (!move->write) {
        memcpy(move->local + move->answered, chunk->data, size);
    }
    move->answered += size;
    link->chunks_answered++;
    if (move->answered == move->size_bytes) finish(link);
    return true;
}

void ash_bounce_progress(struct ash_shm_link *link)
{
    struct ash_shm_move *move;

    while (take_answer(link))
        ;
    for (move = link->moves; move != NULL; move = move->next)
        while (move->issued < move->size_bytes) {
            if (link->chunks_issued - link->chunks_answered == ASH_BOX_CHUNKS || !issue(link, move)) return;
        }
}

void ash_bounce_fail(struct ash_shm_link *link, int status)
{
    while (link->moves != NULL) {
        link->moves->status = status;
        finish(link);
    }
    link->chunks_answered = link->chunks_issued;
}

/* ---- the owner of the memory ------------------------------------------------------------------------------------- */

/* A peer may write anything into a chunk, and change it while it is read. */
static int carry_out(struct ash_shm_link *link, struct ash_box_chunk *chunk)
{
    uint64_t offset = *(volatile uint64_t *)&chunk->offset, size = *(volatile uint64_t *)&chunk->size_bytes,
             number = *(volatile uint64_t *)&chunk->region;
    struct ash_region *region = ash_fabric_region(link->shm->fabric, number);

    if (region == NULL) return -ESTALE;
    if (size > ASH_BOX_CHUNK_BYTES || offset > region->size_bytes || size > region->size_bytes - offset) return -ERANGE;
    if (chunk->write)
        memcpy((uint8_t *)region->data + offset, chunk->data, size);
    else
        memcpy(chunk->data, (uint8_t *)region->data + offset, size);
    return 0;
}

void ash_bounce_serve(struct ash_shm_link *link, uint64_t index, uint64_t mark)
{
    struct ash_box_chunk *chunk;

    if (index >= ASH_BOX_CHUNKS) return;
    chunk = &link->in->chunks[index];
    chunk->status = carry_out(link, chunk);
    atomic_store(&chunk->answered, mark);
    ash_shm_wake(link);
}
