/* member_wire - messages of the membership machine as bytes. */
#ifndef ASH_COLLECTIVE_MEMBER_MEMBER_WIRE_H
#define ASH_COLLECTIVE_MEMBER_MEMBER_WIRE_H

#include "ashlar/err.h"
#include "base/str.h"
#include "collective/member/member.h"

#define ASH_MEMBER_WIRE_MAX ((size_t)256 << 20)

/* A message that was read. Caller's storage; msg points into it. */
struct ash_member_wire {
    struct ash_member_msg msg; /* view is owned: fini puts it */
    char why[ASH_ERR_TEXT_BYTES];
};

/* Append msg to bytes. card_bytes is what cards of this job have. Returns 0 or -ENOMEM. */
int ash_member_wire_encode(const struct ash_member_msg *msg, size_t card_bytes, struct ash_str *bytes);
/* Read a message of exactly size_bytes. Its card points into data. Returns 0, -EPROTO or -ENOMEM; on 0 call fini. */
int ash_member_wire_decode(const void *data, size_t size_bytes, size_t card_bytes, struct ash_member_wire *wire_out);
/* Drop the view. */
void ash_member_wire_fini(struct ash_member_wire *wire);

#endif
