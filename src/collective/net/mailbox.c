/* Queues of slots, with counters on both sides. A word that is sent to a rank names the mailbox that it is for, and
 * whether a message has come or slots are free again. Handles are never used twice, so words for a closed mailbox are
 * dropped. */
#include "collective/net/mailbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "collective/core/wait_limits.h"

#define SLICE_NS 20000000ull /* between calls of the timeout callback */
#define CLOSE_NS 1000000000ull
#define KIND_MESSAGE 0u
#define KIND_CREDITS 1u
#define KIND_CLOSED 2u
#define COUNT_MAX 0xffffu /* that a word holds */

struct queue {
    struct ash_remote *remote; /* the peer's inbox */
    uint32_t handle;           /* of the peer's mailbox */
    uint64_t sent;
    _Atomic uint64_t credits; /* messages that may have been sent: grows as slots are given back */
    _Atomic uint64_t arrived; /* messages that have come */
    uint64_t taken, credited; /* of them: given back here, and returned to the peer as credits */
    _Atomic int gone;         /* not 0: the network has lost the peer */
    _Atomic uint64_t gone_ns; /* since when */
};

/* The peer is lost for this reason; the first time counts. */
static void lose(struct queue *queue, int status)
{
    if (atomic_load(&queue->gone) != 0) return;
    atomic_store(&queue->gone_ns, ash_clock_ns());
    atomic_store(&queue->gone, status);
}

struct ash_mailbox {
    struct ash_progress *progress;
    struct ash_mailbox *next;
    uint32_t handle;
    size_t rank, size, slot_bytes, slots, credit_batch, buffer_count, buffer_next;
    uint32_t *members;
    struct queue *queues; /* [size] */
    struct ash_region *inbox, *outbox;
    uint64_t *posted;           /* of each buffer: times that it was sent */
    _Atomic uint64_t *finished; /* ... and times that the network has finished with it */
    bool has_failed;
};

/* A notification: 32 bits of handle, 16 of kind, 16 of count. */
static uint64_t word_of(uint32_t handle, uint32_t kind, uint32_t count)
{
    ash_assert(kind <= UINT16_MAX);
    ash_assert(count <= UINT16_MAX);
    return (uint64_t)handle << 32 | (uint64_t)kind << 16 | count;
}

/* ---- events (the lock of the progress engine is held) ------------------------------------------------------------ */

static struct ash_mailbox *find_mailbox(const struct ash_progress *progress, uint32_t handle)
{
    struct ash_mailbox *mailbox = progress->mailboxes;

    while (mailbox != NULL && mailbox->handle != handle)
        mailbox = mailbox->next;
    return mailbox;
}

static struct queue *find_queue(struct ash_mailbox *mailbox, uint32_t member)
{
    for (size_t r = 0; r < mailbox->size; r++)
        if (mailbox->members[r] == member) return &mailbox->queues[r];
    return NULL;
}

static void on_lost(struct ash_progress *progress, uint32_t member, int status)
{
    for (struct ash_mailbox *mailbox = progress->mailboxes; mailbox != NULL; mailbox = mailbox->next) {
        struct queue *queue = find_queue(mailbox, member);

        if (queue != NULL) lose(queue, status);
    }
}

static void on_word(struct ash_progress *progress, uint32_t member, uint64_t word)
{
    struct ash_mailbox *mailbox = find_mailbox(progress, (uint32_t)(word >> 32));
    struct queue *queue = mailbox != NULL ? find_queue(mailbox, member) : NULL;

    if (queue == NULL) return;
    switch (word >> 16 & 0xffff) {
    case KIND_MESSAGE:
        atomic_fetch_add(&queue->arrived, 1);
        break;
    case KIND_CREDITS:
        atomic_fetch_add(&queue->credits, word & COUNT_MAX);
        break;
    case KIND_CLOSED:
        lose(queue, (word & COUNT_MAX) != 0 ? -ECONNABORTED : -EPIPE);
        break;
    }
}

static void on_done(struct ash_progress *progress, const struct ash_fabric_event *event)
{
    struct ash_mailbox *mailbox = find_mailbox(progress, (uint32_t)(event->word >> 32));
    size_t buffer = event->word & 0xffffffffu;
    struct queue *queue;

    if (mailbox == NULL || buffer >= mailbox->buffer_count) return;
    atomic_fetch_add(&mailbox->finished[buffer], 1);
    queue = event->status < 0 ? find_queue(mailbox, event->peer) : NULL;
    if (queue != NULL) lose(queue, event->status);
}

void ash_mailbox_event(struct ash_progress *progress, const struct ash_fabric_event *event)
{
    switch (event->kind) {
    case ASH_FABRIC_DONE:
        on_done(progress, event);
        break;
    case ASH_FABRIC_NOTIFIED:
        on_word(progress, event->peer, event->word);
        break;
    case ASH_FABRIC_LOST:
        on_lost(progress, event->peer, event->status);
        break;
    }
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int make_room(struct ash_mailbox *mailbox, struct ash_err *err)
{
    int rc;

    mailbox->members = calloc(mailbox->size, sizeof(*mailbox->members));
    mailbox->queues = calloc(mailbox->size, sizeof(*mailbox->queues));
    mailbox->posted = calloc(mailbox->buffer_count, sizeof(*mailbox->posted));
    mailbox->finished = calloc(mailbox->buffer_count, sizeof(*mailbox->finished));
    if (mailbox->members == NULL || mailbox->queues == NULL || mailbox->posted == NULL || mailbox->finished == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for messages between %zu ranks", mailbox->size);
    pthread_mutex_lock(&mailbox->progress->lock);
    rc = ash_region_alloc(mailbox->progress->fabric, mailbox->size * mailbox->slots * mailbox->slot_bytes,
                          &mailbox->inbox, err);
    if (rc == 0)
        rc = ash_region_alloc(mailbox->progress->fabric, mailbox->buffer_count * mailbox->slot_bytes, &mailbox->outbox,
                              err);
    pthread_mutex_unlock(&mailbox->progress->lock);
    return rc;
}

int ash_mailbox_open(const struct ash_mailbox_opts *opts, struct ash_mailbox **mailbox_out, struct ash_err *err)
{
    struct ash_progress *progress = opts->progress;
    struct ash_mailbox *mailbox = calloc(1, sizeof(*mailbox));
    int rc;

    ash_assert(opts->slot_bytes % 64 == 0 && opts->slot_bytes >= ASH_MAILBOX_HEAD_BYTES);
    ash_assert(opts->slots > 0 && opts->slots <= COUNT_MAX && opts->credit_batch <= opts->slots);
    ash_assert(opts->rank < opts->size && opts->members != NULL);
    if (mailbox == NULL) return ash_err_set(err, -ENOMEM, "out of memory for messages");
    mailbox->progress = progress;
    mailbox->rank = opts->rank;
    mailbox->size = opts->size;
    mailbox->slot_bytes = opts->slot_bytes;
    mailbox->slots = opts->slots;
    mailbox->credit_batch = opts->credit_batch;
    mailbox->buffer_count = opts->slots * opts->size;
    rc = make_room(mailbox, err);
    if (rc < 0) {
        ash_mailbox_close(mailbox);
        return rc;
    }
    memcpy(mailbox->members, opts->members, opts->size * sizeof(*opts->members));
    for (size_t r = 0; r < mailbox->size; r++)
        atomic_store(&mailbox->queues[r].credits, mailbox->slots);
    pthread_mutex_lock(&progress->lock);
    mailbox->handle = ++progress->handle;
    mailbox->next = progress->mailboxes;
    progress->mailboxes = mailbox;
    pthread_mutex_unlock(&progress->lock);
    *mailbox_out = mailbox;
    return 0;
}

void ash_mailbox_get_address(const struct ash_mailbox *mailbox, struct ash_mailbox_address *address_out)
{
    memset(address_out, 0, sizeof(*address_out));
    address_out->handle = mailbox->handle;
    ash_region_key(mailbox->inbox, &address_out->key);
}

int ash_mailbox_connect(struct ash_mailbox *mailbox, const struct ash_mailbox_address *addresses, struct ash_err *err)
{
    int rc = 0;

    pthread_mutex_lock(&mailbox->progress->lock);
    for (size_t r = 0; r < mailbox->size && rc == 0; r++) {
        struct queue *queue = &mailbox->queues[r];

        if (r == mailbox->rank) continue;
        queue->handle = addresses[r].handle;
        rc = ash_remote_open(mailbox->progress->fabric, mailbox->members[r], &addresses[r].key, &queue->remote, err);
    }
    pthread_mutex_unlock(&mailbox->progress->lock);
    return rc;
}

/* The network may still read the last message; peers that do not answer are waited for no longer than this. */
static void finish_sends(struct ash_mailbox *mailbox)
{
    uint64_t until_ns = ash_clock_ns() + CLOSE_NS;

    for (size_t b = 0; mailbox->posted != NULL && mailbox->finished != NULL && b < mailbox->buffer_count; b++)
        ash_progress_wait(mailbox->progress, &mailbox->finished[b], mailbox->posted[b], until_ns);
}

void ash_mailbox_fail(struct ash_mailbox *mailbox)
{
    if (mailbox != NULL) mailbox->has_failed = true;
}

void ash_mailbox_close(struct ash_mailbox *mailbox)
{
    if (mailbox == NULL) return;
    finish_sends(mailbox);
    pthread_mutex_lock(&mailbox->progress->lock);
    for (struct ash_mailbox **at = &mailbox->progress->mailboxes; *at != NULL; at = &(*at)->next)
        if (*at == mailbox) {
            *at = mailbox->next;
            break;
        }
    for (size_t r = 0; mailbox->queues != NULL && r < mailbox->size; r++) {
        const struct queue *queue = &mailbox->queues[r];

        if (queue->remote != NULL) /* a peer that cannot be notified now finds out by itself */
            ash_fabric_notify(mailbox->progress->fabric, mailbox->members[r],
                              word_of(queue->handle, KIND_CLOSED, mailbox->has_failed));
        ash_remote_close(queue->remote);
    }
    ash_region_close(mailbox->inbox);
    ash_region_close(mailbox->outbox);
    pthread_mutex_unlock(&mailbox->progress->lock);
    free(mailbox->finished);
    free(mailbox->posted);
    free(mailbox->queues);
    free(mailbox->members);
    free(mailbox);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Call the timeout callback. For a lost peer, with the time since its loss: the reason may still arrive. */
static int on_timeout(struct ash_mailbox *mailbox, size_t rank, uint64_t since_ns, const struct ash_mailbox_wait *wait)
{
    struct queue *queue = &mailbox->queues[rank];
    int gone = atomic_load(&queue->gone);
    uint64_t gone_ns = atomic_load(&queue->gone_ns);

    ash_assert(rank < mailbox->size);
    if (gone < 0 && gone_ns > since_ns) since_ns = gone_ns;
    return wait->on_timeout(wait->ctx, rank, ash_clock_ns() - since_ns, gone);
}

/* Until the counter is at least value, or the timeout callback ends the wait. */
static int wait_for(struct ash_mailbox *mailbox, size_t rank, const _Atomic uint64_t *counter, uint64_t value,
                    const struct ash_mailbox_wait *wait)
{
    uint64_t since_ns = ash_clock_ns(), now_ns = since_ns;
    int rc;

    if (atomic_load_explicit(counter, memory_order_acquire) >= value) return 0;
    while (!ash_progress_wait(mailbox->progress, counter, value, now_ns + SLICE_NS)) {
        now_ns = ash_clock_ns();
        rc = on_timeout(mailbox, rank, since_ns, wait);
        if (rc < 0) return rc;
    }
    ash_wait_limits_note(now_ns - since_ns);
    return 0;
}

/* Make progress before another try of what the endpoint had no room for. */
static int make_progress(struct ash_mailbox *mailbox, size_t rank, uint64_t since_ns,
                         const struct ash_mailbox_wait *wait)
{
    ash_progress_poll(mailbox->progress);
    return on_timeout(mailbox, rank, since_ns, wait);
}

/* Send a rank one word. */
static int notify(struct ash_mailbox *mailbox, size_t rank, uint32_t kind, uint32_t count,
                  const struct ash_mailbox_wait *wait)
{
    uint64_t since_ns = ash_clock_ns(), word = word_of(mailbox->queues[rank].handle, kind, count);
    int rc;

    ash_assert(rank < mailbox->size);
    for (;;) {
        pthread_mutex_lock(&mailbox->progress->lock);
        rc = ash_fabric_notify(mailbox->progress->fabric, mailbox->members[rank], word);
        pthread_mutex_unlock(&mailbox->progress->lock);
        if (rc == 0) return 0;
        if (rc != -EAGAIN) lose(&mailbox->queues[rank], rc);
        rc = make_progress(mailbox, rank, since_ns, wait);
        if (rc < 0) return rc;
    }
}

int ash_mailbox_buffer(struct ash_mailbox *mailbox, const struct ash_mailbox_wait *wait, size_t *buffer_out,
                       uint8_t **data_out)
{
    size_t buffer = mailbox->buffer_next++ % mailbox->buffer_count;
    int rc = wait_for(mailbox, mailbox->rank, &mailbox->finished[buffer], mailbox->posted[buffer], wait);

    if (rc < 0) return rc;
    ash_assert(atomic_load(&mailbox->finished[buffer]) == mailbox->posted[buffer]); /* the network has let go of it */
    *buffer_out = buffer;
    *data_out = (uint8_t *)ash_region_data(mailbox->outbox) + buffer * mailbox->slot_bytes;
    return 0;
}

int ash_mailbox_send(struct ash_mailbox *mailbox, size_t buffer, size_t rank, size_t size_bytes,
                     const struct ash_mailbox_wait *wait)
{
    struct queue *queue = &mailbox->queues[rank];
    struct ash_transfer transfer = {.local = mailbox->outbox,
                                    .local_offset = buffer * mailbox->slot_bytes,
                                    .remote = queue->remote,
                                    .remote_offset = (mailbox->rank * mailbox->slots + queue->sent % mailbox->slots) *
                                                     mailbox->slot_bytes,
                                    .size_bytes = size_bytes,
                                    .cookie = (uint64_t)mailbox->handle << 32 | buffer};
    uint64_t since_ns;
    int rc;

    ash_assert(size_bytes <= mailbox->slot_bytes && rank < mailbox->size && rank != mailbox->rank);
    ash_assert(buffer < mailbox->buffer_count && queue->remote != NULL);
    rc = wait_for(mailbox, rank, &queue->credits, queue->sent + 1, wait);
    since_ns = ash_clock_ns();
    while (rc == 0) {
        pthread_mutex_lock(&mailbox->progress->lock);
        rc = ash_fabric_write(mailbox->progress->fabric, &transfer);
        pthread_mutex_unlock(&mailbox->progress->lock);
        if (rc == 0) break;
        if (rc != -EAGAIN) lose(queue, rc);
        rc = make_progress(mailbox, rank, since_ns, wait);
    }
    if (rc < 0) return rc;
    mailbox->posted[buffer]++;
    queue->sent++;
    return notify(mailbox, rank, KIND_MESSAGE, 1, wait);
}

static const uint8_t *slot_of(const struct ash_mailbox *mailbox, size_t rank, uint64_t number)
{
    ash_assert(rank < mailbox->size);
    return (const uint8_t *)ash_region_data(mailbox->inbox) +
           (rank * mailbox->slots + number % mailbox->slots) * mailbox->slot_bytes;
}

int ash_mailbox_receive(struct ash_mailbox *mailbox, size_t rank, size_t ahead, const struct ash_mailbox_wait *wait,
                        const uint8_t **data_out)
{
    struct queue *queue = &mailbox->queues[rank];
    uint64_t number = queue->taken + ahead;
    int rc;

    ash_assert(rank < mailbox->size && ahead < mailbox->slots);
    rc = wait_for(mailbox, rank, &queue->arrived, number + 1, wait);
    if (rc < 0) return rc;
    *data_out = slot_of(mailbox, rank, number);
    return 0;
}

const uint8_t *ash_mailbox_peek(const struct ash_mailbox *mailbox, size_t rank)
{
    const struct queue *queue = &mailbox->queues[rank];

    ash_assert(rank < mailbox->size);
    return atomic_load(&queue->arrived) > queue->taken ? slot_of(mailbox, rank, queue->taken) : NULL;
}

int ash_mailbox_release(struct ash_mailbox *mailbox, size_t rank, const struct ash_mailbox_wait *wait)
{
    struct queue *queue = &mailbox->queues[rank];
    uint64_t count;

    ash_assert(rank < mailbox->size && queue->taken < atomic_load(&queue->arrived));
    count = ++queue->taken - queue->credited;
    if (count < mailbox->credit_batch) return 0;
    queue->credited = queue->taken;
    return notify(mailbox, rank, KIND_CREDITS, (uint32_t)count, wait);
}

uint64_t ash_mailbox_arrived(const struct ash_mailbox *mailbox, size_t rank)
{
    ash_assert(rank < mailbox->size);
    return atomic_load(&mailbox->queues[rank].arrived);
}
