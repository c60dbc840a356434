/* Channels through shared memory. The sender owns a segment with a counter for each end, a futex and the slots; it
 * offers the segment's key on its control block, where the receiver finds it. */
#include "collective/core/channel_ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/math.h"
#include "collective/host/control.h"

#define LINE ((size_t)64)
#define NEWS_MS 1000 /* that the reason of a loss may take to get here */

/* A slot is one line of this and then the data. */
struct slot {
    uint64_t size_bytes, message_bytes;
};

/* The start of the segment. Counters only grow. */
struct head {
    _Alignas(64) _Atomic uint64_t posted;
    _Alignas(64) _Atomic uint64_t released;
    _Alignas(64) _Atomic uint32_t closed[2]; /* by the sender, by the receiver */
    _Alignas(64) struct ash_futex futex;
};

struct link {
    struct ash_local *local;
    size_t peer; /* among the ranks of the node */
    enum ash_channel_order order;
    uint64_t number; /* of this channel among those of its order and pair, from 1 */
    struct ash_segment segment;
    struct head *head;
};

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

struct wait {
    struct ash_channel *channel;
    const _Atomic uint64_t *counter;
    uint64_t value;
    const char *text; /* what for: "rank 1 has waited 2.0 s TEXT" with the peer and the number of the message */
};

static int too_long(const struct wait *wait, uint64_t waited_ns, int code, struct ash_err *err)
{
    struct ash_channel *channel = wait->channel;
    char why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "rank %zu %s %.1f s for %s to %s (message %llu)", channel->own,
             ash_wait_limits_text(code), (double)waited_ns * 1e-9, channel->peer_text, wait->text,
             (unsigned long long)(channel->sends ? channel->posted : channel->taken) + 1);
    return channel->fail(channel, code, why, err);
}

/* Has the other end been closed, or the other rank left the group? */
static bool is_gone(const struct ash_channel *channel)
{
    const struct link *link = channel->link;

    return atomic_load(&link->local->controls[link->peer]->left) != 0 ||
           (link->head != NULL && atomic_load(&link->head->closed[channel->sends ? 1 : 0]) != 0);
}

static int on_progress(void *ctx, uint64_t waited_ns, struct ash_err *err)
{
    const struct wait *wait = ctx;
    struct ash_channel *channel = wait->channel;
    struct link *link = channel->link;
    int rc = ash_local_check_node(link->local, err);

    if (rc < 0) return rc;
    if (is_gone(channel) && atomic_load(wait->counter) < wait->value)
        return ash_err_set(err, -EPIPE, "%s has closed its end of a channel that rank %zu %s", channel->peer_text,
                           channel->own, channel->sends ? "sends into" : "receives from");
    rc = ash_wait_limits_check(&link->local->limits, waited_ns);
    return rc < 0 ? too_long(wait, waited_ns, rc, err) : 0;
}

/* Wait for a counter of the peer, on the futex that it wakes. */
static int wait_for(struct ash_channel *channel, struct ash_futex *futex, const _Atomic uint64_t *counter,
                    uint64_t value, const char *text, struct ash_err *err)
{
    struct link *link = channel->link;
    struct wait wait = {channel, counter, value, text};

    return ash_futex_wait(futex, counter, value, link->local->oversubscribed, on_progress, &wait, err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static size_t slot_stride(const struct ash_channel *channel)
{
    return LINE + ash_round_up(channel->slot_bytes, LINE);
}

static struct slot *slot_of(const struct ash_channel *channel, uint64_t number)
{
    const struct link *link = channel->link;

    return (void *)((char *)link->head + sizeof(struct head) + number % channel->slots * slot_stride(channel));
}

static size_t segment_bytes(const struct ash_channel *channel)
{
    return sizeof(struct head) + channel->slots * slot_stride(channel);
}

static int wait_accepted(struct ash_channel *channel, uint64_t number, struct ash_err *err)
{
    struct link *link = channel->link;
    struct ash_control *theirs = link->local->controls[link->peer];

    return wait_for(channel, &theirs->futex, &theirs->accepted[link->order][link->local->rank], number,
                    "open its end of a channel", err);
}

static int offer(struct ash_channel *channel, struct ash_err *err)
{
    struct link *link = channel->link;
    struct ash_control *own = link->local->controls[link->local->rank];
    _Atomic uint64_t *offered = &own->offered[link->order][link->peer];
    uint64_t number = atomic_load(offered);
    struct ash_control_offer *place = &own->offers[link->order][link->peer][number % ASH_CONTROL_OFFERS];
    int rc = number >= ASH_CONTROL_OFFERS ? wait_accepted(channel, number - ASH_CONTROL_OFFERS + 1, err) : 0;

    if (rc == 0) rc = ash_segment_create(&link->segment, segment_bytes(channel), "ashlar-channel", err);
    if (rc < 0) return rc;
    rc = ash_segment_get_key(&link->segment, &place->key);
    if (rc < 0) return ash_err_set(err, rc, "a channel's memory cannot be shared: %s", strerror(-rc));
    place->slot_bytes = channel->slot_bytes;
    place->slots = channel->slots;
    ash_assert(link->head == NULL); /* a channel is offered once */
    link->head = link->segment.data;
    link->number = number + 1;
    ash_control_signal(link->local, offered, link->number);
    return 0;
}

static int disagree(struct ash_channel *channel, const struct ash_control_offer *offer, struct ash_err *err)
{
    char why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s opens a channel of %llu slots of %llu bytes where rank %zu opens one of %zu of %zu",
             channel->peer_text, (unsigned long long)offer->slots, (unsigned long long)offer->slot_bytes, channel->own,
             channel->slots, channel->slot_bytes);
    return channel->fail(channel, -EPROTO, why, err);
}

/* The sender's memory cannot be had, most likely because it has ended: the reason will arrive soon. */
static int owner_gone(struct ash_channel *channel, int rc, struct ash_err *err)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct link *link = channel->link;
    char why[ASH_ERR_TEXT_BYTES];

    for (int tries = 0; tries < NEWS_MS; tries++) {
        if (ash_local_check_node(link->local, NULL) < 0) return ash_local_check(link->local, err);
        nanosleep(&pause, NULL);
    }
    snprintf(why, sizeof(why), "rank %zu cannot open its end of a channel: the memory of %s cannot be had (%s)",
             channel->own, channel->peer_text, strerror(-rc));
    return channel->fail(channel, rc, why, err);
}

static int accept_offer(struct ash_channel *channel, struct ash_err *err)
{
    struct link *link = channel->link;
    struct ash_control *own = link->local->controls[link->local->rank], *theirs = link->local->controls[link->peer];
    _Atomic uint64_t *accepted = &own->accepted[link->order][link->peer];
    uint64_t number = atomic_load(accepted);
    struct ash_control_offer taken;
    int rc = wait_for(channel, &theirs->futex, &theirs->offered[link->order][link->local->rank], number + 1,
                      "open its end of a channel", err);

    if (rc < 0) return rc;
    taken = theirs->offers[link->order][link->local->rank][number % ASH_CONTROL_OFFERS];
    if (taken.slot_bytes != channel->slot_bytes || taken.slots != channel->slots) return disagree(channel, &taken, err);
    rc = ash_segment_map(&link->segment, &taken.key, err);
    if (rc < 0) return owner_gone(channel, rc, err);
    if (link->segment.size_bytes < segment_bytes(channel))
        return ash_err_set(err, -EPROTO, "a channel's memory is %zu bytes where %zu are needed",
                           link->segment.size_bytes, segment_bytes(channel));
    link->head = link->segment.data;
    link->number = number + 1;
    ash_control_signal(link->local, accepted, link->number);
    return 0;
}

static int open_link(struct ash_channel *channel, enum ash_channel_order order, struct ash_err *err)
{
    struct link *link = calloc(1, sizeof(*link));
    int rc;

    if (link == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a channel");
    *link = (struct link){.local = channel->comm, .peer = channel->peer_place, .order = order};
    channel->link = link;
    rc = ash_local_check(link->local, err);
    if (rc < 0) return rc;
    return channel->sends ? offer(channel, err) : accept_offer(channel, err);
}

static void close_link(struct ash_channel *channel)
{
    struct link *link = channel->link;

    if (link == NULL) return;
    if (link->head != NULL && channel->sends)
        wait_accepted(channel, link->number, NULL); /* until then its memory is found through this process */
    if (link->head != NULL && ash_local_check(link->local, NULL) == 0) { /* else the other end gets the error */
        atomic_store(&link->head->closed[channel->sends ? 0 : 1], 1);
        ash_futex_wake(&link->head->futex);
    }
    ash_segment_fini(&link->segment);
    free(link);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static int fill(struct ash_channel *channel, void **slot_out, struct ash_err *err)
{
    struct link *link = channel->link;
    int rc = ash_local_check(link->local, err);

    if (rc == 0 && channel->posted >= channel->slots)
        rc = wait_for(channel, &link->head->futex, &link->head->released, channel->posted - channel->slots + 1,
                      "release a slot of a channel", err);
    if (rc < 0) return rc;
    *slot_out = (char *)slot_of(channel, channel->posted) + LINE;
    return 0;
}

static int post(struct ash_channel *channel, size_t size_bytes, size_t message_bytes, struct ash_err *err)
{
    struct link *link = channel->link;
    struct slot *slot = slot_of(channel, channel->posted);
    int rc = ash_local_check(link->local, err);

    if (rc < 0) return rc;
    slot->size_bytes = size_bytes;
    slot->message_bytes = message_bytes;
    atomic_store(&link->head->posted, channel->posted + 1);
    ash_futex_wake(&link->head->futex);
    return 0;
}

static int take(struct ash_channel *channel, struct ash_channel_piece *piece_out, struct ash_err *err)
{
    struct link *link = channel->link;
    const struct slot *slot = slot_of(channel, channel->taken);
    int rc = ash_local_check(link->local, err);

    if (rc == 0) rc = wait_for(channel, &link->head->futex, &link->head->posted, channel->taken + 1, "send", err);
    if (rc < 0) return rc;
    *piece_out = (struct ash_channel_piece){(const char *)slot + LINE, slot->size_bytes, slot->message_bytes};
    if (piece_out->size_bytes <= channel->slot_bytes) return 0;
    return ash_err_set(err, -EPROTO, "a message of %zu bytes in a slot of %zu: the channel's memory is damaged",
                       piece_out->size_bytes, channel->slot_bytes);
}

static void release(struct ash_channel *channel)
{
    struct link *link = channel->link;

    atomic_store(&link->head->released, channel->released);
    ash_futex_wake(&link->head->futex);
}

const struct ash_channel_ops ash_local_channel_ops = {.size = sizeof(ash_local_channel_ops),
                                                      .open = open_link,
                                                      .close = close_link,
                                                      .fill = fill,
                                                      .post = post,
                                                      .take = take,
                                                      .release = release};
