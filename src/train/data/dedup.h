/* dedup - which of many texts was there before: to the byte, or nearly (MinHash over runs of words, as
 * locality-sensitive bands; candidates are compared by their whole signatures). A pure function of the texts in their
 * order: the first of several stays. One owner thread. */
#ifndef ASH_TRAIN_DEDUP_H
#define ASH_TRAIN_DEDUP_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_DEDUP_HASHES 128 /* of a signature */

struct ash_dedup;

struct ash_dedup_opts {
    double
        near; /* texts whose runs of words overlap by this share (Jaccard) or more are the same; 0: only equal ones */
    size_t words; /* in a run; 0: 5 */
};

enum ash_dedup_verdict { ASH_DEDUP_NEW, ASH_DEDUP_EQUAL, ASH_DEDUP_NEAR };

/* Nothing seen yet. Returns 0, -EINVAL (near is no share) or -ENOMEM. */
int ash_dedup_open(const struct ash_dedup_opts *opts, struct ash_dedup **dedup_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_dedup_close(struct ash_dedup *dedup);
/* Look at the next text; a new one is remembered. *verdict_out is the verdict, *like_out (if it is not new) the number,
 * from 0, of the new text that it resembles. Returns 0 or -ENOMEM. */
int ash_dedup_add(struct ash_dedup *dedup, const char *text, size_t size_bytes, enum ash_dedup_verdict *verdict_out,
                  size_t *like_out);

/* The signature of a text: signature [ASH_DEDUP_HASHES]. The share of equal places of two is an estimate of the
 * share of runs that they have in common. */
void ash_dedup_sign(const char *text, size_t size_bytes, size_t words, uint32_t *signature);

#endif
