/* lease - keeps a process that was left behind from a bucket's checkpoints, as fence.h does in folders. A small object
 * holds the word of whoever may write. It is taken with a conditional write, on condition that it is what it was when
 * the epoch began: of two that begin at a time, one has it. A server without conditions gets plain writes. Looking and
 * writing are two requests: what lies between them is not excluded. One owner thread. */
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

/* An epoch begins, with this word: look at the place at url (borrowed, as s3 is) and take it. A server that does not
 * answer within a few seconds is asked again by ash_lease_hold. */
void ash_lease_begin(struct ash_lease *lease, const char *url, const struct ash_s3_opts *s3, uint64_t word);
/* Is it still this epoch's? Takes it where begin could not. Returns 0, also where the server does not say; -ESTALE with
 * a sentence where another has it. */
int ash_lease_hold(struct ash_lease *lease, struct ash_err *err);
/* Free what it holds; the place keeps the word. */
void ash_lease_fini(struct ash_lease *lease);

#endif
