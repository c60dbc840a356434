/* seals - checksums of this process's memory. A checksum of every tensor's part is made at the end of a step and
 * compared before the next update overwrites the part. The process itself finds a bit that has changed in between, so
 * another rank's copy is known to be right. One owner thread. */
#ifndef ASH_TRAIN_RECOVER_SEALS_H
#define ASH_TRAIN_RECOVER_SEALS_H

#include "train/recover/copies.h"

#define ASH_DAMAGES_MAX 8

/* A corrupted part of the state. Plain data. */
struct ash_damage {
    struct ash_patch_range range;
    uint32_t is_copy; /* of another rank's part: this rank's own is good */
};

/* Ranges that a process must not send to others. Plain data; zero: none. */
struct ash_damages {
    uint32_t count; /* more than ASH_DAMAGES_MAX: all of its ranges */
    struct ash_damage items[ASH_DAMAGES_MAX];
};

/* Sums of a patch: each kind of its values, and the bf16 copy of its weights. */
struct ash_seal {
    uint64_t sums[ASH_PATCH_KINDS + 1];
};

/* Zero-initialise; free with ash_seals_fini. */
struct ash_seals {
    struct ash_patches patches; /* the ranges that this rank updates, then the copies that it holds */
    size_t own;                 /* of them */
    struct ash_seal *sums;      /* [patches.room] */
    size_t room;
    bool is_made;
};

/* Free; a zeroed struct is a no-op. */
void ash_seals_fini(struct ash_seals *seals);
/* Forget them: values will be written. */
void ash_seals_break(struct ash_seals *seals);
/* Compute the checksums of stages and copies. Returns 0 or -ENOMEM. */
int ash_seals_make(struct ash_seals *seals, const struct ash_stages *stages, const struct ash_copies *copies,
                   const struct ash_model *outline, struct ash_err *err);
/* Compare the checksums. Seals that are not made match. stages: the same. Returns 0, or -EILSEQ: damages gets the
 * corrupted ranges, and err names the first. If only bf16 weights have changed damages stays unchanged: they are
 * converted again. */
int ash_seals_check(const struct ash_seals *seals, const struct ash_stages *stages, const struct ash_model *outline,
                    struct ash_damages *damages, struct ash_err *err);

/* Take away, from the patch `from` on, those that overlap one of the damages to own parts (is_copy: to copies). */
void ash_damages_drop(const struct ash_damages *damages, bool is_copy, struct ash_patches *patches, size_t from);

#endif
