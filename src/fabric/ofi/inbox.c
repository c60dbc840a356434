/* What the network has for this process: completions, and notifications, some of them from senders that are not known
 * here yet; those are kept until they are. */
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "fabric/ofi/ofi_priv.h"

#define BATCH ((size_t)16)
#define ROUNDS 8 /* batches of a rail in one poll */

void ash_inbox_give(struct ash_ofi *ofi, struct ash_ofi_eager *recv_buffer)
{
    struct ash_ofi_rail *rail = &ofi->rails[0];

    recv_buffer->context.kind = ASH_OFI_EAGER_RECV;
    if (fi_recv(rail->ep, &recv_buffer->message, sizeof(recv_buffer->message), fi_mr_desc(rail->eager_mr),
                FI_ADDR_UNSPEC, &recv_buffer->context) == 0)
        return;
    recv_buffer->next = ofi->idle_recvs; /* the next poll tries again */
    ofi->idle_recvs = recv_buffer;
}

static void give_idle(struct ash_ofi *ofi)
{
    struct ash_ofi_eager *recv_buffer = ofi->idle_recvs;

    ofi->idle_recvs = NULL;
    while (recv_buffer != NULL) {
        struct ash_ofi_eager *next = recv_buffer->next;

        ash_inbox_give(ofi, recv_buffer);
        recv_buffer = next;
    }
}

/* ---- notifications ----------------------------------------------------------------------------------------------- */

static struct ash_ofi_link *sender(const struct ash_ofi *ofi, uint64_t id)
{
    for (size_t i = 0; i < ofi->link_count; i++)
        if (ofi->links[i]->peer->id == id) return ofi->links[i];
    return NULL;
}

static struct ash_fabric_event notified(const struct ash_ofi_link *link, uint64_t word)
{
    return (struct ash_fabric_event){.kind = ASH_FABRIC_NOTIFIED, .peer = link->peer->number, .word = word};
}

/* Keep a message for a peer that may come; the oldest ones give way to it, their senders have had their time. */
static void keep(struct ash_ofi *ofi, const struct ash_ofi_message *message)
{
    if (ofi->early_count == ASH_OFI_EARLY) {
        ofi->early_count -= ASH_OFI_EARLY / 4;
        memmove(ofi->early, ofi->early + ASH_OFI_EARLY / 4, ofi->early_count * sizeof(*ofi->early));
    }
    if (ash_array_reserve(&ofi->early, &ofi->early_room, ofi->early_count + 1, sizeof(*ofi->early)) < 0) return;
    ofi->early[ofi->early_count++] = *message;
}

/* Deliver the kept messages of those that are peers now. */
static size_t take_early(struct ash_ofi *ofi, struct ash_fabric_event *events, size_t max)
{
    size_t count = 0, kept = 0;

    ofi->early_changed = false;
    for (size_t i = 0; i < ofi->early_count; i++) {
        const struct ash_ofi_link *link = sender(ofi, ofi->early[i].from);

        if (link != NULL && count < max) {
            events[count++] = notified(link, ofi->early[i].word);
            continue;
        }
        if (link != NULL) ofi->early_changed = true;
        ofi->early[kept++] = ofi->early[i];
    }
    ofi->early_count = kept;
    return count;
}

/* A message has come. Returns how many events it gave. */
static size_t receive(struct ash_ofi *ofi, struct ash_ofi_eager *recv_buffer, size_t size,
                      struct ash_fabric_event *event)
{
    struct ash_ofi_message message = recv_buffer->message;
    const struct ash_ofi_link *link;

    ash_inbox_give(ofi, recv_buffer);
    if (size != sizeof(message) || message.magic != ASH_OFI_MESSAGE_MAGIC || message.to != ash_fabric_id(ofi->fabric))
        return 0;
    link = sender(ofi, message.from);
    if (link == NULL) {
        keep(ofi, &message);
        return 0;
    }
    if (link->peer->status < 0) return 0;
    *event = notified(link, message.word);
    return 1;
}

/* ---- completions ------------------------------------------------------------------------------------------------- */

static size_t complete(struct ash_ofi *ofi, struct ash_ofi_context *context, size_t size, int fi_error,
                       struct ash_fabric_event *event)
{
    if (context == NULL) return 0; /* the provider's own trouble; its effects are reported elsewhere */
    switch (context->kind) {
    case ASH_OFI_PART:
        ash_flow_part_done(ofi, (struct ash_ofi_part *)(void *)context, fi_error);
        return 0;
    case ASH_OFI_EAGER_SEND:
        ash_flow_eager_done(ofi, (struct ash_ofi_eager *)(void *)context, fi_error);
        return 0;
    case ASH_OFI_EAGER_RECV:
        return receive(ofi, (struct ash_ofi_eager *)(void *)context, fi_error == 0 ? size : 0, event);
    }
    return 0;
}

static void take_error(struct ash_ofi *ofi, struct ash_ofi_rail *rail)
{
    struct fi_cq_err_entry entry = {0};
    struct ash_fabric_event none;

    if (fi_cq_readerr(rail->cq, &entry, 0) == 1)
        complete(ofi, entry.op_context, 0, entry.err != 0 ? entry.err : FI_EIO, &none);
}

static size_t poll_rail(struct ash_ofi *ofi, struct ash_ofi_rail *rail, struct ash_fabric_event *events, size_t max)
{
    size_t count = 0;

    for (size_t round = 0; round < ROUNDS && count < max; round++) {
        struct fi_cq_msg_entry entries[BATCH];
        size_t room = max - count < BATCH ? max - count : BATCH;
        ssize_t got = fi_cq_read(rail->cq, entries, room);

        if (got == -FI_EAVAIL) {
            take_error(ofi, rail);
            ofi->quiet = false;
            continue;
        }
        if (got <= 0) break;
        ofi->quiet = false;
        for (ssize_t i = 0; i < got; i++)
            count += complete(ofi, entries[i].op_context, entries[i].len, 0, events + count);
    }
    return count;
}

size_t ash_inbox_poll(struct ash_ofi *ofi, struct ash_fabric_event *events, size_t max)
{
    size_t count = 0;

    if (ofi->idle_recvs != NULL) give_idle(ofi);
    if (ofi->early_changed) count = take_early(ofi, events, max);
    ofi->quiet = !ofi->early_changed;
    if (ofi->early_changed) return count; /* newer ones come after these */
    for (size_t r = 0; r < ofi->rail_count; r++)
        count += poll_rail(ofi, &ofi->rails[r], events + count, max - count);
    return count;
}
