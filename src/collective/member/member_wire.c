/* A fixed head, then the announced parts: dead ids, a view, a card, a sentence. Everything is checked: it comes from
 * the network. Both ends are little-endian. */
#include "collective/member/member_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 2u

struct head {
    uint32_t version, kind;
    uint64_t from, proposal, subject, suspect;
    uint32_t epoch, accepted_epoch;
    int32_t loss, code;
    uint32_t flags; /* is_ready, is_confirmed, leaves, network_fails */
    uint32_t dead_count, has_card, why_bytes;
    uint32_t view_size, view_epoch, view_has_cards, unused;
    uint64_t view_proposal;
};

int ash_member_wire_encode(const struct ash_member_msg *msg, size_t card_bytes, struct ash_str *bytes)
{
    const struct ash_view *view = msg->view;
    struct head head = {.version = VERSION,
                        .kind = (uint32_t)msg->kind,
                        .from = msg->from,
                        .proposal = msg->proposal,
                        .subject = msg->subject,
                        .suspect = msg->suspect,
                        .epoch = msg->epoch,
                        .accepted_epoch = msg->accepted_epoch,
                        .loss = (int32_t)msg->loss,
                        .code = msg->code,
                        .flags = (uint32_t)msg->is_ready | (uint32_t)msg->is_confirmed << 1 |
                                 (uint32_t)msg->leaves << 2 | (uint32_t)msg->network_fails << 3,
                        .dead_count = msg->dead_count,
                        .has_card = msg->card != NULL,
                        .why_bytes = msg->why != NULL ? (uint32_t)strnlen(msg->why, ASH_ERR_TEXT_BYTES - 1) : 0};
    int rc;

    if (view != NULL) {
        head.view_size = (uint32_t)view->size;
        head.view_epoch = view->epoch;
        head.view_proposal = view->proposal;
        head.view_has_cards = view->cards != NULL && msg->kind != ASH_MEMBER_HELLO; /* there only ids count */
    }
    rc = ash_str_add(bytes, &head, sizeof(head));
    if (rc == 0) rc = ash_str_add(bytes, msg->dead, msg->dead_count * sizeof(msg->dead[0]));
    if (rc == 0 && view != NULL) rc = ash_str_add(bytes, view->members, view->size * sizeof(*view->members));
    if (rc == 0 && head.view_has_cards) rc = ash_str_add(bytes, view->cards, view->size * card_bytes);
    if (rc == 0 && msg->card != NULL) rc = ash_str_add(bytes, msg->card, card_bytes);
    if (rc == 0 && head.why_bytes > 0) rc = ash_str_add(bytes, msg->why, head.why_bytes);
    return rc;
}

/* Do the parts that a head announces make up exactly what there is? */
static bool is_whole(const struct head *head, size_t size_bytes, size_t card_bytes)
{
    size_t bytes = sizeof(*head);

    if (head->version != VERSION || head->kind >= ASH_MEMBER_KINDS || head->dead_count > ASH_MEMBER_DEAD_MAX ||
        head->view_size > ASH_VIEW_SIZE_MAX || head->why_bytes >= ASH_ERR_TEXT_BYTES || head->has_card > 1 ||
        head->view_has_cards > 1 || head->loss < 0 || head->loss > ASH_MEMBER_RESTRUCTURED)
        return false;
    if (head->view_has_cards && (head->view_size == 0 || card_bytes == 0)) return false;
    bytes += head->dead_count * sizeof(uint64_t) + head->view_size * sizeof(struct ash_view_member);
    bytes += (head->view_has_cards ? head->view_size * card_bytes : 0) + (head->has_card ? card_bytes : 0);
    return bytes + head->why_bytes == size_bytes;
}

static int read_view(const struct head *head, const char **at, size_t card_bytes, struct ash_view **view_out)
{
    struct ash_view *view = ash_view_new(head->view_size, head->view_has_cards ? card_bytes : 0);
    size_t members_bytes = head->view_size * sizeof(*view->members);

    if (view == NULL) return -ENOMEM;
    view->epoch = head->view_epoch;
    view->proposal = head->view_proposal;
    memcpy(view->members, *at, members_bytes);
    *at += members_bytes;
    if (head->view_has_cards) memcpy(view->cards, *at, head->view_size * card_bytes);
    if (head->view_has_cards) *at += head->view_size * card_bytes;
    if (ash_view_seal(view) < 0) {
        ash_view_put(view);
        return -EPROTO;
    }
    *view_out = view;
    return 0;
}

int ash_member_wire_decode(const void *data, size_t size_bytes, size_t card_bytes, struct ash_member_wire *wire_out)
{
    struct ash_member_msg *msg = &wire_out->msg;
    const char *at = (const char *)data + sizeof(struct head);
    struct head head;
    int rc = 0;

    if (size_bytes < sizeof(head)) return -EPROTO;
    memcpy(&head, data, sizeof(head));
    if (!is_whole(&head, size_bytes, card_bytes)) return -EPROTO;
    memset(wire_out, 0, sizeof(*wire_out));
    *msg = (struct ash_member_msg){.kind = (enum ash_member_kind)head.kind,
                                   .from = head.from,
                                   .proposal = head.proposal,
                                   .subject = head.subject,
                                   .suspect = head.suspect,
                                   .epoch = head.epoch,
                                   .accepted_epoch = head.accepted_epoch,
                                   .loss = (enum ash_member_loss)head.loss,
                                   .code = head.code,
                                   .is_ready = (head.flags & 1) != 0,
                                   .is_confirmed = (head.flags & 2) != 0,
                                   .leaves = (head.flags & 4) != 0,
                                   .network_fails = (head.flags & 8) != 0,
                                   .dead_count = head.dead_count};
    memcpy(msg->dead, at, head.dead_count * sizeof(uint64_t));
    at += head.dead_count * sizeof(uint64_t);
    if (head.view_size > 0) rc = read_view(&head, &at, card_bytes, &msg->view);
    if (rc < 0) return rc;
    if (head.has_card) {
        msg->card = at;
        at += card_bytes;
    }
    if (head.why_bytes > 0) {
        memcpy(wire_out->why, at, head.why_bytes);
        msg->why = wire_out->why;
    }
    return 0;
}

void ash_member_wire_fini(struct ash_member_wire *wire)
{
    ash_view_put(wire->msg.view);
    wire->msg.view = NULL;
}
