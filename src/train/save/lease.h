/* lease - keeps a process that was left behind from a bucket's checkpoints, as fence.h does in folders. A small object
 * holds the token of the writer. It is taken with a conditional write (compare-and-swap against its value when the
 * epoch began): of two concurrent writers, one gets it. A server without conditions gets plain writes. Check and write
 * are two requests, so a race between them is possible. One owner thread. */
#ifndef ASH_TRAIN_LEASE_H
#define ASH_TRAIN_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include "storage/tier/tier.h"

/* Zero-initialise; free with ash_lease_fini. One whose word is 0 lets everything pass. */
struct ash_lease {
    struct ash_tier *tier;
    const char *url; /* borrowed */
    uint64_t word;
    bool is_seen, is_taken;
    char version[ASH_TIER_VERSION_BYTES]; /* of the object when it was looked at; "": there was none */
};

/* An epoch begins, with this token: read the object at url (borrowed, as s3 is) and take it. If a server does not
 * answer within a few seconds, ash_lease_hold retries. */
void ash_lease_begin(struct ash_lease *lease, const char *url, const struct ash_s3_opts *s3, uint64_t word);
/* Is it still this epoch's? Takes it if begin could not. Returns 0, also if the server does not answer; -ESTALE with a
 * sentence if another has it. */
int ash_lease_hold(struct ash_lease *lease, struct ash_err *err);
/* Free the members; the object keeps the token. */
void ash_lease_fini(struct ash_lease *lease);

#endif
