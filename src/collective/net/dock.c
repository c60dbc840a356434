/* Lanes: counters on both sides of a queue of slots. A word that is told to a rank says whose dock it is for and
 * whether a message has come or slots are free again; handles are never used twice, so words for a dock that has been
 * closed find nobody. */
#include "collective/net/dock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "collective/core/wait_limits.h"

#define SLICE_NS 20000000ull /* between questions */
#define CLOSE_NS 1000000000ull
#define KIND_MESSAGE 0u
#define KIND_ROOM 1u
#define KIND_CLOSED 2u

struct lane {
    struct ash_remote *remote; /* the peer's inbox */
    uint32_t handle;           /* of the peer's dock */
    uint64_t sent;
    _Atomic uint64_t room;    /* messages that may have been sent: grows as slots are given back */
    _Atomic uint64_t arrived; /* messages that have come */
    uint64_t taken, told;     /* of them: given back here, and told to the peer */
    _Atomic int gone;         /* not 0: the network has lost the peer */
    _Atomic uint64_t gone_ns; /* since when */
};

static void lose(struct lane *lane, int status)
{
    if (atomic_load(&lane->gone) == 0) atomic_store(&lane->gone_ns, ash_clock_ns());
    atomic_store(&lane->gone, status);
}

struct ash_dock {
    struct ash_harbor *harbor;
    struct ash_dock *next;
    uint32_t handle;
    size_t rank, size, slot_bytes, slots, give_back, buffer_count, buffer_next;
    uint32_t *members;
    struct lane *lanes; /* [size] */
    struct ash_region *inbox, *outbox;
    uint64_t *posted;           /* of each buffer: times that it was sent */
    _Atomic uint64_t *finished; /* ... and that the network is through with it */
};

static uint64_t word_of(uint32_t handle, uint32_t kind, uint32_t count)
{
    return (uint64_t)handle << 32 | (uint64_t)kind << 16 | count;
}

/* ---- events (the harbor's lock is held) -------------------------------------------------------------------------- */

static struct ash_dock *find_dock(const struct ash_harbor *harbor, uint32_t handle)
{
    struct ash_dock *dock = harbor->docks;

    while (dock != NULL && dock->handle != handle)
        dock = dock->next;
    return dock;
}

static struct lane *find_lane(struct ash_dock *dock, uint32_t member)
{
    for (size_t r = 0; r < dock->size; r++)
        if (dock->members[r] == member) return &dock->lanes[r];
    return NULL;
}

static void on_lost(struct ash_harbor *harbor, uint32_t member, int status)
{
    for (struct ash_dock *dock = harbor->docks; dock != NULL; dock = dock->next) {
        struct lane *lane = find_lane(dock, member);

        if (lane != NULL) lose(lane, status);
    }
}

static void on_word(struct ash_harbor *harbor, uint32_t member, uint64_t word)
{
    struct ash_dock *dock = find_dock(harbor, (uint32_t)(word >> 32));
    struct lane *lane = dock != NULL ? find_lane(dock, member) : NULL;

    if (lane == NULL) return;
    switch (word >> 16 & 0xffff) {
    case KIND_MESSAGE:
        atomic_fetch_add(&lane->arrived, 1);
        break;
    case KIND_ROOM:
        atomic_fetch_add(&lane->room, word & 0xffff);
        break;
    case KIND_CLOSED:
        lose(lane, -EPIPE);
        break;
    }
}

static void on_done(struct ash_harbor *harbor, const struct ash_fabric_event *event)
{
    struct ash_dock *dock = find_dock(harbor, (uint32_t)(event->word >> 32));
    size_t buffer = event->word & 0xffffffffu;
    struct lane *lane;

    if (dock == NULL || buffer >= dock->buffer_count) return;
    atomic_fetch_add(&dock->finished[buffer], 1);
    lane = event->status < 0 ? find_lane(dock, event->peer) : NULL;
    if (lane != NULL) lose(lane, event->status);
}

void ash_dock_event(struct ash_harbor *harbor, const struct ash_fabric_event *event)
{
    switch (event->kind) {
    case ASH_FABRIC_DONE:
        on_done(harbor, event);
        break;
    case ASH_FABRIC_NOTIFIED:
        on_word(harbor, event->peer, event->word);
        break;
    case ASH_FABRIC_LOST:
        on_lost(harbor, event->peer, event->status);
        break;
    }
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int make_room(struct ash_dock *dock, struct ash_err *err)
{
    int rc;

    dock->members = calloc(dock->size, sizeof(*dock->members));
    dock->lanes = calloc(dock->size, sizeof(*dock->lanes));
    dock->posted = calloc(dock->buffer_count, sizeof(*dock->posted));
    dock->finished = calloc(dock->buffer_count, sizeof(*dock->finished));
    if (dock->members == NULL || dock->lanes == NULL || dock->posted == NULL || dock->finished == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for messages between %zu ranks", dock->size);
    pthread_mutex_lock(&dock->harbor->lock);
    rc = ash_region_alloc(dock->harbor->fabric, dock->size * dock->slots * dock->slot_bytes, &dock->inbox, err);
    if (rc == 0) rc = ash_region_alloc(dock->harbor->fabric, dock->buffer_count * dock->slot_bytes, &dock->outbox, err);
    pthread_mutex_unlock(&dock->harbor->lock);
    return rc;
}

int ash_dock_open(const struct ash_dock_opts *opts, struct ash_dock **dock_out, struct ash_err *err)
{
    struct ash_harbor *harbor = opts->harbor;
    struct ash_dock *dock = calloc(1, sizeof(*dock));
    int rc;

    ash_assert(opts->slot_bytes % 64 == 0 && opts->slot_bytes >= ASH_DOCK_HEAD_BYTES && opts->give_back <= opts->slots);
    if (dock == NULL) return ash_err_set(err, -ENOMEM, "out of memory for messages");
    dock->harbor = harbor;
    dock->rank = opts->rank;
    dock->size = opts->size;
    dock->slot_bytes = opts->slot_bytes;
    dock->slots = opts->slots;
    dock->give_back = opts->give_back;
    dock->buffer_count = opts->slots * opts->size;
    rc = make_room(dock, err);
    if (rc < 0) {
        ash_dock_close(dock);
        return rc;
    }
    memcpy(dock->members, opts->members, opts->size * sizeof(*opts->members));
    for (size_t r = 0; r < dock->size; r++)
        atomic_store(&dock->lanes[r].room, dock->slots);
    pthread_mutex_lock(&harbor->lock);
    dock->handle = ++harbor->handle;
    dock->next = harbor->docks;
    harbor->docks = dock;
    pthread_mutex_unlock(&harbor->lock);
    *dock_out = dock;
    return 0;
}

void ash_dock_card(const struct ash_dock *dock, struct ash_dock_card *card_out)
{
    memset(card_out, 0, sizeof(*card_out));
    card_out->handle = dock->handle;
    ash_region_key(dock->inbox, &card_out->key);
}

int ash_dock_connect(struct ash_dock *dock, const struct ash_dock_card *cards, struct ash_err *err)
{
    int rc = 0;

    pthread_mutex_lock(&dock->harbor->lock);
    for (size_t r = 0; r < dock->size && rc == 0; r++) {
        struct lane *lane = &dock->lanes[r];

        if (r == dock->rank) continue;
        lane->handle = cards[r].handle;
        rc = ash_remote_open(dock->harbor->fabric, dock->members[r], &cards[r].key, &lane->remote, err);
    }
    pthread_mutex_unlock(&dock->harbor->lock);
    return rc;
}

/* The network may still read what was sent last; peers that do not answer are waited for no longer than this. */
static void finish_sends(struct ash_dock *dock)
{
    uint64_t until_ns = ash_clock_ns() + CLOSE_NS;

    for (size_t b = 0; dock->posted != NULL && dock->finished != NULL && b < dock->buffer_count; b++)
        ash_harbor_wait(dock->harbor, &dock->finished[b], dock->posted[b], until_ns);
}

void ash_dock_close(struct ash_dock *dock)
{
    if (dock == NULL) return;
    finish_sends(dock);
    pthread_mutex_lock(&dock->harbor->lock);
    for (struct ash_dock **at = &dock->harbor->docks; *at != NULL; at = &(*at)->next)
        if (*at == dock) {
            *at = dock->next;
            break;
        }
    for (size_t r = 0; dock->lanes != NULL && r < dock->size; r++) {
        const struct lane *lane = &dock->lanes[r];

        if (lane->remote != NULL) /* a peer that cannot be told now finds out by itself */
            ash_fabric_notify(dock->harbor->fabric, dock->members[r], word_of(lane->handle, KIND_CLOSED, 0));
        ash_remote_close(lane->remote);
    }
    ash_region_close(dock->inbox);
    ash_region_close(dock->outbox);
    pthread_mutex_unlock(&dock->harbor->lock);
    free(dock->finished);
    free(dock->posted);
    free(dock->lanes);
    free(dock->members);
    free(dock);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Ask whoever waits. Of a peer that is gone, how long it has been: news of why may still be on its way. */
static int ask(struct ash_dock *dock, size_t rank, uint64_t since_ns, const struct ash_dock_wait *wait)
{
    struct lane *lane = &dock->lanes[rank];
    int gone = atomic_load(&lane->gone);
    uint64_t gone_ns = atomic_load(&lane->gone_ns);

    if (gone < 0 && gone_ns > since_ns) since_ns = gone_ns;
    return wait->ask(wait->ctx, rank, ash_clock_ns() - since_ns, gone);
}

/* Until the counter is at least value, or whoever is asked says that it will not be. */
static int wait_for(struct ash_dock *dock, size_t rank, const _Atomic uint64_t *counter, uint64_t value,
                    const struct ash_dock_wait *wait)
{
    uint64_t since_ns = ash_clock_ns(), now_ns = since_ns;
    int rc;

    if (atomic_load_explicit(counter, memory_order_acquire) >= value) return 0;
    while (!ash_harbor_wait(dock->harbor, counter, value, now_ns + SLICE_NS)) {
        now_ns = ash_clock_ns();
        rc = ask(dock, rank, since_ns, wait);
        if (rc < 0) return rc;
    }
    ash_wait_limits_note(now_ns - since_ns);
    return 0;
}

/* Try again what the endpoint had no room for. */
static int again(struct ash_dock *dock, size_t rank, uint64_t since_ns, const struct ash_dock_wait *wait)
{
    ash_harbor_poll(dock->harbor);
    return ask(dock, rank, since_ns, wait);
}

/* Tell a rank one word. */
static int tell(struct ash_dock *dock, size_t rank, uint32_t kind, uint32_t count, const struct ash_dock_wait *wait)
{
    uint64_t since_ns = ash_clock_ns(), word = word_of(dock->lanes[rank].handle, kind, count);
    int rc;

    for (;;) {
        pthread_mutex_lock(&dock->harbor->lock);
        rc = ash_fabric_notify(dock->harbor->fabric, dock->members[rank], word);
        pthread_mutex_unlock(&dock->harbor->lock);
        if (rc == 0) return 0;
        if (rc != -EAGAIN) lose(&dock->lanes[rank], rc);
        rc = again(dock, rank, since_ns, wait);
        if (rc < 0) return rc;
    }
}

int ash_dock_buffer(struct ash_dock *dock, const struct ash_dock_wait *wait, size_t *buffer_out, uint8_t **data_out)
{
    size_t buffer = dock->buffer_next++ % dock->buffer_count;
    int rc = wait_for(dock, dock->rank, &dock->finished[buffer], dock->posted[buffer], wait);

    if (rc < 0) return rc;
    *buffer_out = buffer;
    *data_out = (uint8_t *)ash_region_data(dock->outbox) + buffer * dock->slot_bytes;
    return 0;
}

int ash_dock_send(struct ash_dock *dock, size_t buffer, size_t rank, size_t size_bytes,
                  const struct ash_dock_wait *wait)
{
    struct lane *lane = &dock->lanes[rank];
    struct ash_transfer transfer = {.local = dock->outbox,
                                    .local_offset = buffer * dock->slot_bytes,
                                    .remote = lane->remote,
                                    .remote_offset =
                                        (dock->rank * dock->slots + lane->sent % dock->slots) * dock->slot_bytes,
                                    .size_bytes = size_bytes,
                                    .cookie = (uint64_t)dock->handle << 32 | buffer};
    uint64_t since_ns;
    int rc = wait_for(dock, rank, &lane->room, lane->sent + 1, wait);

    ash_assert(size_bytes <= dock->slot_bytes);
    since_ns = ash_clock_ns();
    while (rc == 0) {
        pthread_mutex_lock(&dock->harbor->lock);
        rc = ash_fabric_write(dock->harbor->fabric, &transfer);
        pthread_mutex_unlock(&dock->harbor->lock);
        if (rc == 0) break;
        if (rc != -EAGAIN) lose(lane, rc);
        rc = again(dock, rank, since_ns, wait);
    }
    if (rc < 0) return rc;
    dock->posted[buffer]++;
    lane->sent++;
    return tell(dock, rank, KIND_MESSAGE, 1, wait);
}

static const uint8_t *slot_of(const struct ash_dock *dock, size_t rank, uint64_t number)
{
    return (const uint8_t *)ash_region_data(dock->inbox) +
           (rank * dock->slots + number % dock->slots) * dock->slot_bytes;
}

int ash_dock_receive(struct ash_dock *dock, size_t rank, size_t ahead, const struct ash_dock_wait *wait,
                     const uint8_t **data_out)
{
    struct lane *lane = &dock->lanes[rank];
    uint64_t number = lane->taken + ahead;
    int rc = wait_for(dock, rank, &lane->arrived, number + 1, wait);

    if (rc == 0) *data_out = slot_of(dock, rank, number);
    return rc;
}

const uint8_t *ash_dock_peek(const struct ash_dock *dock, size_t rank)
{
    const struct lane *lane = &dock->lanes[rank];

    return atomic_load(&lane->arrived) > lane->taken ? slot_of(dock, rank, lane->taken) : NULL;
}

int ash_dock_release(struct ash_dock *dock, size_t rank, const struct ash_dock_wait *wait)
{
    struct lane *lane = &dock->lanes[rank];
    uint64_t count = ++lane->taken - lane->told;

    if (count < dock->give_back) return 0;
    lane->told = lane->taken;
    return tell(dock, rank, KIND_ROOM, (uint32_t)count, wait);
}

uint64_t ash_dock_arrived(const struct ash_dock *dock, size_t rank)
{
    return atomic_load(&dock->lanes[rank].arrived);
}
