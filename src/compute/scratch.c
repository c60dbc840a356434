/* Scratch memory of ops, grown on demand: of a worker, of an op, and the ring that workers read from each other. */
#include "base/assert.h"
#include "base/math.h"
#include "compute/ops.h"

#define BROADCAST_SLOT_BYTES ((size_t)4096) /* slots are multiples of it */
#define BROADCAST_BYTES ((size_t)3 << 20)   /* of the ring, for each thread: more than its own caches hold */
#define BROADCAST_BYTES_MAX ((size_t)96 << 20)
#define BROADCAST_THREADS_MIN 8 /* with fewer there is one slot: little is gained, and the caches have it already */

static void *grown(struct ash_exec *exec, struct ash_buffer *buffer, size_t size_bytes)
{
    int rc;

    if (buffer->size_bytes >= size_bytes && buffer->data != NULL) return buffer->data;
    if (size_bytes > ASH_MEMORY_HUGE / 2) /* packed lines are walked again and again: whole huge pages */
        size_bytes = ash_round_up(size_bytes, ASH_MEMORY_HUGE);
    size_bytes = ash_max(size_bytes, 1);
    if (exec->ops->grow != NULL) return exec->ops->grow(exec, buffer, size_bytes);
    ash_buffer_fini(buffer);
    rc = ash_buffer_init(buffer, exec->memory, size_bytes, "compute scratch", NULL);
    ash_assert(rc == 0);
    return buffer->data;
}

void *ash_exec_scratch(struct ash_exec *exec, int worker, size_t size_bytes)
{
    ash_assert(worker >= 0 && worker < ash_workers_count(exec->workers));
    return grown(exec, &exec->scratch[worker], size_bytes);
}

void *ash_exec_shared(struct ash_exec *exec, size_t size_bytes)
{
    return grown(exec, &exec->shared, size_bytes);
}

size_t ash_exec_broadcast_bytes(const struct ash_exec *exec)
{
    size_t threads = (size_t)ash_workers_count(exec->workers), bytes = threads * BROADCAST_BYTES;

    if (threads < BROADCAST_THREADS_MIN) return 0;
    return ash_min(bytes, BROADCAST_BYTES_MAX);
}

void *ash_exec_broadcast(struct ash_exec *exec, size_t size_bytes)
{
    size_t slot_bytes = ash_round_up(size_bytes, BROADCAST_SLOT_BYTES), all = ash_exec_broadcast_bytes(exec);
    unsigned char *data = grown(exec, &exec->broadcast, ash_max(all, slot_bytes));

    if (all == 0 || exec->broadcast_at + slot_bytes > exec->broadcast.size_bytes) exec->broadcast_at = 0;
    data += exec->broadcast_at;
    exec->broadcast_at += slot_bytes;
    return data;
}
