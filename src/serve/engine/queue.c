/* What waits: a heap per owner, and the owners in a list. The next sequence is found by looking at the first of each
 * heap, so it costs the owners and not the requests. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"
#include "serve/engine/core_priv.h"

/* Served rows of the owner that has got least, among those with work. */
static double least_served(const struct ash_queue *queue)
{
    double least = INFINITY;

    for (const struct ash_owner *owner = queue->owners; owner != NULL; owner = owner->next)
        if (owner->alive > 0 && owner->served < least) least = owner->served;
    return isinf(least) ? 0.0 : least;
}

/* An owner without work that got no more than others would start like a new one: forget it. */
static void forget_owners(struct ash_queue *queue, double least)
{
    struct ash_owner **link = &queue->owners;

    while (*link != NULL) {
        struct ash_owner *owner = *link;

        if (owner->alive > 0 || (owner->served > least && least > 0.0)) {
            link = &owner->next;
            continue;
        }
        *link = owner->next;
        free(owner->heap);
        free(owner);
    }
}

struct ash_owner *ash_queue_owner(struct ash_queue *queue, uint64_t id)
{
    double least = least_served(queue);
    struct ash_owner *owner;

    forget_owners(queue, least);
    for (owner = queue->owners; owner != NULL; owner = owner->next)
        if (owner->id == id) return owner;
    owner = calloc(1, sizeof(*owner));
    if (owner == NULL) return NULL;
    owner->id = id;
    owner->served = least; /* who had nothing to do has not saved up for now */
    owner->next = queue->owners;
    queue->owners = owner;
    return owner;
}

int ash_queue_reserve(struct ash_owner *owner)
{
    /* all that are alive may have to wait again */
    return ash_array_reserve(&owner->heap, &owner->capacity, owner->alive + 1, sizeof(struct ash_seq *));
}

static bool is_before(const struct ash_seq *a, const struct ash_seq *b)
{
    if (a->request->priority != b->request->priority) return a->request->priority < b->request->priority;
    return a->number < b->number;
}

static void place(struct ash_owner *owner, size_t at, struct ash_seq *seq)
{
    ash_assert(at < owner->count);
    owner->heap[at] = seq;
    seq->heap_place = at;
}

static void sift_up(struct ash_owner *owner, size_t at, struct ash_seq *seq)
{
    for (; at > 0 && is_before(seq, owner->heap[(at - 1) / 2]); at = (at - 1) / 2)
        place(owner, at, owner->heap[(at - 1) / 2]);
    place(owner, at, seq);
}

static void sift_down(struct ash_owner *owner, size_t at, struct ash_seq *seq)
{
    ash_assert(at < owner->count);
    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= owner->count) break;
        if (child + 1 < owner->count && is_before(owner->heap[child + 1], owner->heap[child])) child++;
        if (!is_before(owner->heap[child], seq)) break;
        place(owner, at, owner->heap[child]);
        at = child;
    }
    place(owner, at, seq);
}

void ash_queue_push(struct ash_queue *queue, struct ash_seq *seq)
{
    struct ash_owner *owner = seq->owner;

    ash_assert(owner->count < owner->capacity);
    seq->state = ASH_SEQ_WAITING;
    sift_up(owner, owner->count++, seq);
    queue->count++;
}

struct ash_seq *ash_queue_first(struct ash_queue *queue)
{
    struct ash_seq *best = NULL;

    for (struct ash_owner *owner = queue->owners; owner != NULL; owner = owner->next) {
        struct ash_seq *seq = owner->count > 0 ? owner->heap[0] : NULL;

        if (seq == NULL) continue;
        if (best == NULL || seq->request->priority < best->request->priority ||
            (seq->request->priority == best->request->priority &&
             (owner->served < best->owner->served ||
              (!(owner->served > best->owner->served) && seq->number < best->number))))
            best = seq;
    }
    return best;
}

void ash_queue_remove(struct ash_queue *queue, struct ash_seq *seq)
{
    struct ash_owner *owner = seq->owner;
    size_t at = seq->heap_place;
    struct ash_seq *last = owner->heap[--owner->count];

    ash_assert(seq->state == ASH_SEQ_WAITING && at <= owner->count);
    queue->count--;
    if (last == seq) return;
    if (at > 0 && is_before(last, owner->heap[(at - 1) / 2]))
        sift_up(owner, at, last);
    else
        sift_down(owner, at, last);
}

void ash_queue_fini(struct ash_queue *queue)
{
    while (queue->owners != NULL) {
        struct ash_owner *owner = queue->owners;

        queue->owners = owner->next;
        free(owner->heap);
        free(owner);
    }
}
