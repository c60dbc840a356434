/* What goes to a peer, and in which order. Transfers are given to the network in the order of posting, large ones cut
 * over the rails. A notification waits until earlier messages have arrived; where the rail keeps messages
 * after writes, until it has been given to the network. */
#include <errno.h>
#include <rdma/fi_errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "fabric/ofi/ofi_priv.h"

#define STRIPE_ALIGN ((size_t)4096)

static void progress_link(struct ash_ofi_link *link);

static void make_busy(struct ash_ofi_link *link)
{
    if (link->busy) return;
    link->busy = true;
    link->ofi->busy[link->ofi->busy_count++] = link;
}

/* ---- transfers that have not ended, oldest first ----------------------------------------------------------------- */

static void append(struct ash_ofi_link *link, struct ash_ofi_op *op)
{
    op->blocks = true;
    op->prev = link->last;
    if (link->last != NULL)
        link->last->next = op;
    else
        link->first = op;
    link->last = op;
    if (link->blocker == NULL) link->blocker = op;
}

/* Notifications may overtake op. */
static void unblock(struct ash_ofi_link *link, struct ash_ofi_op *op)
{
    op->blocks = false;
    while (link->blocker != NULL && !link->blocker->blocks)
        link->blocker = link->blocker->next;
    if (link->notifications != NULL) make_busy(link);
}

static void take_out(struct ash_ofi_link *link, struct ash_ofi_op *op)
{
    unblock(link, op);
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        link->first = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    else
        link->last = op->prev;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

int ash_flow_post(struct ash_ofi_link *link, const struct ash_transfer *transfer, bool write)
{
    struct ash_ofi *ofi = link->ofi;
    struct ash_ofi_op *op = ash_pool_get(ofi->ops, NULL);
    size_t size = transfer->size_bytes;

    ash_assert(transfer->size_bytes > 0 && link->rail_count > 0);
    if (op == NULL) return -EAGAIN;
    *op = (struct ash_ofi_op){.link = link,
                              .write = write,
                              .queued = true,
                              .striped = link->rail_count > 1 && size >= ofi->stripe_bytes,
                              .number = link->number++,
                              .region = transfer->local,
                              .cookie = transfer->cookie,
                              .local = transfer->local_offset,
                              .remote = transfer->remote_offset,
                              .key = transfer->remote->key,
                              .size_bytes = size,
                              .part_bytes = size};
    if (op->striped) {
        op->part_bytes = ash_round_up(ash_div_up(size, link->rail_count), STRIPE_ALIGN);
    }
    append(link, op);
    if (link->queue == NULL) link->queue = op;
    progress_link(link);
    return 0;
}

/* Say that a transfer has ended. */
static void finish(struct ash_ofi_op *op, int status)
{
    take_out(op->link, op);
    ash_fabric_done(op->link->peer, op->cookie, status);
    op->link = NULL;
}

/* Nothing of op is in the queue any more, or a part of it has come back: is that all? */
static void end_if_done(struct ash_ofi *ofi, struct ash_ofi_op *op)
{
    if (op->out > 0) return;
    if (op->link != NULL && (op->given < op->size_bytes || op->queued)) return;
    if (op->link != NULL) finish(op, op->failed);
    ash_pool_put(ofi->ops, op);
}

/* The rail of the next part: stripes take turns, and so does everything where no rail keeps an order anyway. */
static size_t next_rail(struct ash_ofi_link *link, const struct ash_ofi_op *op)
{
    if (link->rail_count == 1) return 0;
    if (op->striped) return op->given / op->part_bytes % link->rail_count;
    return link->ofi->rails[0].ordered ? 0 : link->rail_round_robin++ % link->rail_count;
}

/* A write on the first rail that keeps order need not be waited for. */
static bool stays_ahead(const struct ash_ofi_link *link, const struct ash_ofi_op *op)
{
    return op->write && !op->striped && link->ofi->rails[0].ordered;
}

/* Give the next part to the network. Returns 0 or a negative fi error. */
static int give_part(struct ash_ofi_link *link, struct ash_ofi_op *op, struct ash_ofi_part *part)
{
    size_t r = next_rail(link, op), left = op->size_bytes - op->given,
           size = left < op->part_bytes ? left : op->part_bytes;
    struct ash_ofi_rail *rail = &link->ofi->rails[r];
    struct fid_mr *const *mrs = op->region->states[ASH_OFI_STATE];
    void *desc = fi_mr_desc(mrs[r]);
    uint64_t base = (rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? op->key.base : 0;
    struct iovec local;
    struct fi_rma_iov remote = {.addr = base + op->remote + op->given, .key = op->key.rails[r]};
    struct fi_msg_rma message = {.msg_iov = &local,
                                 .desc = &desc,
                                 .iov_count = 1,
                                 .addr = link->to[r],
                                 .rma_iov = &remote,
                                 .rma_iov_count = 1,
                                 .context = &part->context};
    int rc;

    if (size > rail->info->ep_attr->max_msg_size) size = rail->info->ep_attr->max_msg_size;
    local = (struct iovec){.iov_base = (uint8_t *)op->region->data + op->local + op->given, .iov_len = size};
    remote.len = size;
    part->context.kind = ASH_OFI_PART;
    part->op = op;
    if (op->write)
        rc = (int)fi_writemsg(rail->ep, &message, FI_COMPLETION | (stays_ahead(link, op) ? 0 : FI_DELIVERY_COMPLETE));
    else
        rc = (int)fi_readmsg(rail->ep, &message, FI_COMPLETION);
    if (rc == 0) {
        op->given += size;
        op->out++;
        link->out++;
    }
    return rc;
}

/* Give as much of a transfer as the network takes. False: it takes no more now. */
static bool give_op(struct ash_ofi_link *link, struct ash_ofi_op *op)
{
    while (op->given < op->size_bytes) {
        struct ash_ofi_part *part = ash_pool_get(link->ofi->parts, NULL);
        bool lost;
        int rc;

        if (part == NULL) return false;
        rc = give_part(link, op, part);
        if (rc == 0) continue;
        ash_pool_put(link->ofi->parts, part);
        if (rc == -FI_EAGAIN) {
            link->peer->stats.retries++;
            return false;
        }
        rc = ash_ofi_status(-rc, &lost);
        ash_flow_lose(link, rc); /* what cannot even be posted is not going to be */
        return false;
    }
    if (stays_ahead(link, op)) unblock(link, op);
    return true;
}

void ash_flow_part_done(struct ash_ofi *ofi, struct ash_ofi_part *part, int fi_error)
{
    struct ash_ofi_op *op = part->op;
    bool lost = false;
    int status = fi_error == 0 ? 0 : ash_ofi_status(fi_error, &lost);

    ash_pool_put(ofi->parts, part);
    if (op->link != NULL) op->link->out--;
    if (op->link != NULL && lost) {
        ash_flow_lose(op->link, status); /* ends op too */
    } else if (status < 0) {
        op->failed = status;
        op->size_bytes = op->given; /* the rest is not sent */
    }
    op->out--;
    end_if_done(ofi, op);
}

/* ---- notifications ----------------------------------------------------------------------------------------------- */

int ash_flow_notify(struct ash_ofi_link *link, uint64_t word)
{
    struct ash_ofi_notification *notification = ash_pool_get(link->ofi->notifications, NULL);

    if (notification == NULL) return -EAGAIN;
    *notification = (struct ash_ofi_notification){.word = word, .after = link->number};
    if (link->notifications == NULL)
        link->notifications = notification;
    else
        link->notifications_end->next = notification;
    link->notifications_end = notification;
    progress_link(link);
    return 0;
}

/* Send the oldest notification. False: not now. */
static bool give_notification(struct ash_ofi_link *link)
{
    struct ash_ofi *ofi = link->ofi;
    struct ash_ofi_notification *notification = link->notifications;
    struct ash_ofi_eager *eager = ofi->free_eager;
    struct ash_ofi_rail *rail = &ofi->rails[0];
    int rc;

    if (eager == NULL || (link->blocker != NULL && link->blocker->number < notification->after)) return false;
    eager->message = (struct ash_ofi_message){.magic = ASH_OFI_MESSAGE_MAGIC,
                                              .from = ash_fabric_id(ofi->fabric),
                                              .to = link->peer->id,
                                              .word = notification->word};
    eager->context.kind = ASH_OFI_EAGER_SEND;
    rc = (int)fi_send(rail->ep, &eager->message, sizeof(eager->message), fi_mr_desc(rail->eager_mr), link->to[0],
                      &eager->context);
    if (rc == -FI_EAGAIN) {
        link->peer->stats.retries++;
        return false;
    }
    if (rc < 0) {
        bool lost;

        ash_flow_lose(link, ash_ofi_status(-rc, &lost));
        return false;
    }
    ofi->free_eager = eager->next;
    eager->link = link;
    link->out++;
    link->notifications = notification->next;
    ash_pool_put(ofi->notifications, notification);
    return true;
}

void ash_flow_eager_done(struct ash_ofi *ofi, struct ash_ofi_eager *eager, int fi_error)
{
    struct ash_ofi_link *link = eager->link;
    bool lost;

    eager->next = ofi->free_eager;
    ofi->free_eager = eager;
    eager->link = NULL;
    if (link == NULL) return;
    link->out--;
    if (fi_error != 0) ash_flow_lose(link, ash_ofi_status(fi_error, &lost));
}

/* ---- all links --------------------------------------------------------------------------------------------------- */

static void progress_link(struct ash_ofi_link *link)
{
    while (link->queue != NULL) {
        struct ash_ofi_op *op = link->queue;

        if (!give_op(link, op)) break;
        link->queue = op->next;
        op->queued = false;
        end_if_done(link->ofi, op);
    }
    while (link->notifications != NULL && give_notification(link))
        ;
    if (link->queue != NULL || link->notifications != NULL) make_busy(link);
}

void ash_flow_progress(struct ash_ofi *ofi)
{
    size_t count = ofi->busy_count;

    ofi->busy_count = 0; /* those that stay busy are added again, after they were read */
    for (size_t i = 0; i < count; i++) {
        struct ash_ofi_link *link = ofi->busy[i];

        link->busy = false;
        progress_link(link);
    }
}

void ash_flow_forget(struct ash_ofi *ofi, const struct ash_region *region)
{
    for (size_t i = 0; i < ofi->link_count; i++)
        for (struct ash_ofi_op *op = ofi->links[i]->first; op != NULL; op = op->next) {
            if (op->region != region || !op->queued) continue;
            op->failed = -ECANCELED;
            op->size_bytes = op->given; /* it ends when its turn comes */
        }
}

void ash_flow_fail(struct ash_ofi_link *link)
{
    struct ash_ofi *ofi = link->ofi;

    link->queue = NULL;
    while (link->first != NULL) {
        struct ash_ofi_op *op = link->first;

        finish(op, -ECONNRESET);
        if (op->out == 0) ash_pool_put(ofi->ops, op); /* else when the network gives the parts back */
    }
    while (link->notifications != NULL) {
        struct ash_ofi_notification *notification = link->notifications;

        link->notifications = notification->next;
        ash_pool_put(ofi->notifications, notification);
    }
    for (size_t i = 0; i < ASH_OFI_EAGER_SENDS; i++)
        if (ofi->eager_buffers[i].link == link) ofi->eager_buffers[i].link = NULL;
    link->out = 0;
}

void ash_flow_lose(struct ash_ofi_link *link, int status)
{
    ash_flow_fail(link);
    ash_fabric_lost(link->peer, status);
}
