/* Channels between nodes. A channel is a mailbox of two; the sender offers its address by a control, the receiver
 * answers with its own, and messages go from memory to memory. Messages of ash_group_send go through the group's
 * mailbox of messages, which is there from the start, so that small ones wait for no other rank. */
#include "collective/core/channel_ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "collective/net/net_priv.h"

#define LINE ((size_t)64)
#define NEWS_NS 1500000000ull /* the watch knows better the state of a rank that the network has lost */

/* In front of a message. */
struct head {
    uint64_t size_bytes, message_bytes;
};

/* What the two ends send each other to open a channel. */
struct control_message {
    struct ash_mailbox_address address;
    uint64_t slot_bytes, slots;
};

struct ash_net_link {
    struct ash_channel *channel;
    struct ash_net *net;
    struct ash_mailbox *mailbox;
    bool own;       /* the mailbox is this channel's is_alone */
    bool connected; /* the other end is known */
    size_t peer;    /* in the mailbox */
    size_t buffer;  /* that is being filled */
    uint8_t *data;
    struct ash_net_link *next; /* among those that wait to be accepted */
};

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

struct wait {
    struct ash_channel *channel;
    const char *text; /* what for: "rank 1 has waited 2.0 s for rank 0 to TEXT" */
    struct ash_err *err;
};

/* What waits ask (mailbox.h). */
static int on_timeout(void *ctx, size_t rank, uint64_t waited_ns, int gone)
{
    const struct wait *wait = ctx;
    struct ash_channel *channel = wait->channel;
    struct ash_net *net = channel->comm;
    char why[ASH_ERR_TEXT_BYTES];
    int rc = ash_local_check(net->opts.local, wait->err);

    (void)rank;
    if (rc < 0) return rc;
    if (gone == -EPIPE || (gone == -ESHUTDOWN && waited_ns > NEWS_NS))
        return ash_err_set(wait->err, -EPIPE, "%s has closed its end of a channel that rank %zu %s", channel->peer_text,
                           channel->own, channel->sends ? "sends into" : "receives from");
    if (gone < 0 && waited_ns > NEWS_NS) {
        snprintf(why, sizeof(why), "%s cannot be reached any more: the network has lost it", channel->peer_text);
        return channel->fail(channel, -ECONNRESET, why, wait->err);
    }
    rc = ash_wait_limits_check(&net->opts.limits, waited_ns);
    if (rc == 0) return 0;
    snprintf(why, sizeof(why), "rank %zu %s %.1f s for %s to %s (message %llu)", channel->own, ash_wait_limits_text(rc),
             (double)waited_ns * 1e-9, channel->peer_text, wait->text,
             (unsigned long long)(channel->sends ? channel->posted : channel->taken) + 1);
    return channel->fail(channel, rc, why, wait->err);
}

/* ---- control messages -------------------------------------------------------------------------------------------- */

static size_t peer_of(const struct ash_channel *channel)
{
    return channel->sends ? channel->to : channel->from;
}

static int send_control(struct ash_channel *channel, int kind, const struct control_message *control,
                        struct ash_err *err)
{
    struct ash_net_link *link = channel->link;
    struct ash_mailbox *mailbox = link->net->mailboxes.mailboxes[kind];
    struct wait wait = {channel, "open its end of a channel", err};
    struct ash_mailbox_wait timeout = {on_timeout, &wait};
    uint8_t *data;
    size_t buffer;
    int rc = ash_mailbox_buffer(mailbox, &timeout, &buffer, &data);

    ash_assert(kind >= 0);
    ash_assert(kind < ASH_NET_MAILBOXES);
    if (rc < 0) return rc;
    memcpy(data, control, sizeof(*control));
    return ash_mailbox_send(mailbox, buffer, peer_of(channel), sizeof(*control), &timeout);
}

static int receive_control(struct ash_channel *channel, int kind, struct control_message *control, struct ash_err *err)
{
    struct ash_net_link *link = channel->link;
    struct ash_mailbox *mailbox = link->net->mailboxes.mailboxes[kind];
    struct wait wait = {channel, "open its end of a channel", err};
    struct ash_mailbox_wait timeout = {on_timeout, &wait};
    const uint8_t *data;
    int rc = ash_mailbox_receive(mailbox, peer_of(channel), 0, &timeout, &data);

    ash_assert(kind >= 0);
    ash_assert(kind < ASH_NET_MAILBOXES);
    if (rc < 0) return rc;
    memcpy(control, data, sizeof(*control));
    return ash_mailbox_release(mailbox, peer_of(channel), &timeout);
}

/* Know the other end by its address. */
static int connect_link(struct ash_net_link *link, const struct ash_mailbox_address *address, struct ash_err *err)
{
    struct ash_mailbox_address addresses[2];
    int rc;

    ash_assert(link->peer < 2 && !link->connected);
    addresses[link->peer] = *address;
    ash_mailbox_get_address(link->mailbox, &addresses[1 - link->peer]);
    rc = ash_mailbox_connect(link->mailbox, addresses, err);
    link->connected = rc == 0;
    return rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_mailbox(struct ash_channel *channel, struct ash_err *err)
{
    struct ash_net_link *link = channel->link;
    const uint32_t *all = link->net->opts.members, members[2] = {all[channel->from], all[channel->to]};
    const struct ash_mailbox_opts opts = {.progress = link->net->opts.progress,
                                          .rank = channel->sends ? 0 : 1,
                                          .size = 2,
                                          .members = members,
                                          .slot_bytes =
                                              ASH_MAILBOX_HEAD_BYTES + ash_round_up(channel->slot_bytes, LINE),
                                          .slots = channel->slots,
                                          .credit_batch = 1};

    link->own = true;
    link->peer = channel->sends ? 1 : 0;
    return ash_mailbox_open(&opts, &link->mailbox, err);
}

static struct control_message make_control(const struct ash_channel *channel)
{
    const struct ash_net_link *link = channel->link;
    struct control_message control = {.slot_bytes = channel->slot_bytes, .slots = channel->slots};

    ash_mailbox_get_address(link->mailbox, &control.address);
    return control;
}

/* A receiver answers in the order of the offers: the next answer is for the oldest of them. */
static int take_accept(struct ash_channel *channel, struct ash_err *err)
{
    struct ash_net_link *link = channel->link, **at = &link->net->offered, *oldest;
    struct control_message control;
    int rc = receive_control(channel, ASH_NET_ACCEPTS, &control, err);

    if (rc < 0) return rc;
    while (*at != NULL && peer_of((*at)->channel) != peer_of(channel))
        at = &(*at)->next;
    oldest = *at;
    if (oldest == NULL) return ash_err_set(err, -EPROTO, "an answer to no offer of a channel");
    *at = oldest->next;
    return connect_link(oldest, &control.address, err);
}

/* Offers to the channel's receiver that it has not answered. */
static size_t count_offered(const struct ash_channel *channel)
{
    const struct ash_net_link *link = channel->link;
    size_t count = 0;

    for (const struct ash_net_link *at = link->net->offered; at != NULL; at = at->next)
        count += peer_of(at->channel) == peer_of(channel);
    return count;
}

static int offer(struct ash_channel *channel, struct ash_err *err)
{
    struct ash_net_link *link = channel->link, **at = &link->net->offered;
    const struct control_message control = make_control(channel);
    int rc = 0;

    pthread_mutex_lock(&link->net->control_lock);
    while (rc == 0 && count_offered(channel) >= ASH_NET_CONTROL_SLOTS) /* slots for that many answers */
        rc = take_accept(channel, err);
    if (rc == 0) rc = send_control(channel, ASH_NET_OFFERS, &control, err);
    while (rc == 0 && *at != NULL)
        at = &(*at)->next;
    if (rc == 0) *at = link;
    pthread_mutex_unlock(&link->net->control_lock);
    return rc;
}

static int disagree(struct ash_channel *channel, const struct control_message *control, struct ash_err *err)
{
    char why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "%s opens a channel of %llu slots of %llu bytes where rank %zu opens one of %zu of %zu",
             channel->peer_text, (unsigned long long)control->slots, (unsigned long long)control->slot_bytes,
             channel->own, channel->slots, channel->slot_bytes);
    return channel->fail(channel, -EPROTO, why, err);
}

static int accept_offer(struct ash_channel *channel, struct ash_err *err)
{
    struct control_message taken, answer = make_control(channel);
    int rc = receive_control(channel, ASH_NET_OFFERS, &taken, err);

    if (rc < 0) return rc;
    if (taken.slot_bytes != channel->slot_bytes || taken.slots != channel->slots) return disagree(channel, &taken, err);
    rc = connect_link(channel->link, &taken.address, err);
    return rc < 0 ? rc : send_control(channel, ASH_NET_ACCEPTS, &answer, err);
}

static int open_link(struct ash_channel *channel, enum ash_channel_order order, struct ash_err *err)
{
    struct ash_net *net = channel->comm;
    struct ash_net_link *link = calloc(1, sizeof(*link));
    int rc;

    if (link == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a channel");
    *link = (struct ash_net_link){.channel = channel, .net = net};
    channel->link = link;
    rc = ash_local_check(net->opts.local, err);
    if (rc == 0 && order == ASH_CHANNEL_ORDER_GROUP) { /* slots of at most ASH_NET_MESSAGE_BYTES */
        link->mailbox = net->mailboxes.mailboxes[ASH_NET_MESSAGES];
        link->peer = peer_of(channel);
        link->connected = true;
        return 0;
    }
    if (rc == 0) rc = open_mailbox(channel, err);
    if (rc < 0) return rc;
    return channel->sends ? offer(channel, err) : accept_offer(channel, err);
}

/* Until the receiver has opened its end. */
static int await_accept(struct ash_channel *channel, struct ash_err *err)
{
    struct ash_net_link *link = channel->link;
    int rc = 0;

    pthread_mutex_lock(&link->net->control_lock);
    while (rc == 0 && !link->connected)
        rc = take_accept(channel, err);
    pthread_mutex_unlock(&link->net->control_lock);
    return rc;
}

static void close_link(struct ash_channel *channel)
{
    struct ash_net_link *link = channel->link;

    if (link == NULL) return;
    if (link->own && link->mailbox != NULL && channel->sends)
        await_accept(channel, NULL); /* so that it learns of the end */
    pthread_mutex_lock(&link->net->control_lock);
    for (struct ash_net_link **at = &link->net->offered; *at != NULL; at = &(*at)->next)
        if (*at == link) {
            *at = link->next;
            break;
        }
    pthread_mutex_unlock(&link->net->control_lock);
    if (link->own && ash_local_check(link->net->opts.local, NULL) < 0) ash_mailbox_fail(link->mailbox);
    if (link->own) ash_mailbox_close(link->mailbox);
    free(link);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static int fill(struct ash_channel *channel, void **slot_out, struct ash_err *err)
{
    struct ash_net_link *link = channel->link;
    struct wait wait = {channel, "release a slot of a channel", err};
    int rc = ash_local_check(link->net->opts.local, err);

    if (rc == 0) rc = await_accept(channel, err);
    if (rc == 0 && link->data == NULL)
        rc = ash_mailbox_buffer(link->mailbox, &(struct ash_mailbox_wait){on_timeout, &wait}, &link->buffer,
                                &link->data);
    if (rc == 0) *slot_out = link->data + ASH_MAILBOX_HEAD_BYTES;
    return rc;
}

static int post(struct ash_channel *channel, size_t size_bytes, size_t message_bytes, struct ash_err *err)
{
    struct ash_net_link *link = channel->link;
    struct head head = {.size_bytes = size_bytes, .message_bytes = message_bytes};
    struct wait wait = {channel, "release a slot of a channel", err};
    int rc;

    ash_assert(link->data != NULL && size_bytes <= channel->slot_bytes); /* a slot was filled */
    memcpy(link->data, &head, sizeof(head));
    rc = ash_mailbox_send(link->mailbox, link->buffer, link->peer, ASH_MAILBOX_HEAD_BYTES + size_bytes,
                          &(struct ash_mailbox_wait){on_timeout, &wait});
    link->data = NULL;
    return rc;
}

static int take(struct ash_channel *channel, struct ash_channel_piece *piece_out, struct ash_err *err)
{
    struct ash_net_link *link = channel->link;
    struct wait wait = {channel, "send", err};
    struct head head;
    const uint8_t *data;
    int rc = ash_local_check(link->net->opts.local, err);

    if (rc == 0)
        rc = ash_mailbox_receive(link->mailbox, link->peer, channel->taken - channel->released,
                                 &(struct ash_mailbox_wait){on_timeout, &wait}, &data);
    if (rc < 0) return rc;
    memcpy(&head, data, sizeof(head));
    if (head.size_bytes > channel->slot_bytes)
        return ash_err_set(err, -EPROTO, "a message of %llu bytes in a slot of %zu",
                           (unsigned long long)head.size_bytes, channel->slot_bytes);
    *piece_out = (struct ash_channel_piece){
        .data = data + ASH_MAILBOX_HEAD_BYTES, .size_bytes = head.size_bytes, .message_bytes = head.message_bytes};
    return 0;
}

static void release(struct ash_channel *channel)
{
    struct ash_net_link *link = channel->link;
    struct wait wait = {channel, "take a slot of a channel back", NULL};

    ash_mailbox_release(link->mailbox, link->peer, &(struct ash_mailbox_wait){on_timeout, &wait});
}

const struct ash_channel_ops ash_net_channel_ops = {.size = sizeof(ash_net_channel_ops),
                                                    .open = open_link,
                                                    .close = close_link,
                                                    .fill = fill,
                                                    .post = post,
                                                    .take = take,
                                                    .release = release};
