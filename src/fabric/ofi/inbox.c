/* What the network has for this process: completions, and notifications, some of them from senders that are not known
 * here yet; those are kept until they are. */
#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/ofi/ofi_priv.h"

#define BATCH ((size_t)16)
#define ROUNDS 8 /* batches of a rail in one poll */

void ash_inbox_give(struct ash_ofi *ofi, struct ash_ofi_mail *receipt)
{
    struct ash_ofi_rail *rail = &ofi->rails[0];

    receipt->context.kind = ASH_OFI_RECEIPT;
    if (fi_recv(rail->ep, &receipt->text, sizeof(receipt->text), fi_mr_desc(rail->mail_mr), FI_ADDR_UNSPEC,
                &receipt->context) == 0)
        return;
    receipt->next = ofi->idle_receipts; /* the next poll tries again */
    ofi->idle_receipts = receipt;
}

static void give_idle(struct ash_ofi *ofi)
{
    struct ash_ofi_mail *receipt = ofi->idle_receipts;

    ofi->idle_receipts = NULL;
    while (receipt != NULL) {
        struct ash_ofi_mail *next = receipt->next;

        ash_inbox_give(ofi, receipt);
        receipt = next;
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
static void keep(struct ash_ofi *ofi, const struct ash_ofi_text *text)
{
    if (ofi->early_count == ASH_OFI_EARLY) {
        ofi->early_count -= ASH_OFI_EARLY / 4;
        memmove(ofi->early, ofi->early + ASH_OFI_EARLY / 4, ofi->early_count * sizeof(*ofi->early));
    }
    if (ofi->early_count == ofi->early_room) {
        size_t room = ofi->early_room == 0 ? 256 : 2 * ofi->early_room;
        struct ash_ofi_text *early = realloc(ofi->early, room * sizeof(*early));

        if (early == NULL) return;
        ofi->early = early;
        ofi->early_room = room;
    }
    ofi->early[ofi->early_count++] = *text;
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
static size_t receive(struct ash_ofi *ofi, struct ash_ofi_mail *receipt, size_t size, struct ash_fabric_event *event)
{
    struct ash_ofi_text text = receipt->text;
    const struct ash_ofi_link *link;

    ash_inbox_give(ofi, receipt);
    if (size != sizeof(text) || text.magic != ASH_OFI_TEXT_MAGIC || text.to != ash_fabric_id(ofi->fabric)) return 0;
    link = sender(ofi, text.from);
    if (link == NULL) {
        keep(ofi, &text);
        return 0;
    }
    if (link->peer->status < 0) return 0;
    *event = notified(link, text.word);
    return 1;
}

/* ---- completions ------------------------------------------------------------------------------------------------- */

static size_t complete(struct ash_ofi *ofi, struct ash_ofi_context *context, size_t size, int fi_error,
                       struct ash_fabric_event *event)
{
    if (context == NULL) return 0; /* the provider's own trouble; what it breaks is reported by itself */
    switch (context->kind) {
    case ASH_OFI_PART:
        ash_flow_part(ofi, (struct ash_ofi_part *)(void *)context, fi_error);
        return 0;
    case ASH_OFI_MAIL:
        ash_flow_mail(ofi, (struct ash_ofi_mail *)(void *)context, fi_error);
        return 0;
    case ASH_OFI_RECEIPT:
        return receive(ofi, (struct ash_ofi_mail *)(void *)context, fi_error == 0 ? size : 0, event);
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

    if (ofi->idle_receipts != NULL) give_idle(ofi);
    if (ofi->early_changed) count = take_early(ofi, events, max);
    ofi->quiet = !ofi->early_changed;
    if (ofi->early_changed) return count; /* newer ones come after these */
    for (size_t r = 0; r < ofi->rail_count; r++)
        count += poll_rail(ofi, &ofi->rails[r], events + count, max - count);
    return count;
}
