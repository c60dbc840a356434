/* seals - does this process's memory still have what was written to it? A checksum of every tensor's part is made at
 * the end of a step and compared before the next update overwrites what it was made of. A bit that has changed in
 * between is found by the process itself, so there is no doubt who is right: another rank's copy. One owner thread. */
#ifndef ASH_TRAIN_RECOVER_SEALS_H
#define ASH_TRAIN_RECOVER_SEALS_H

#include "train/recover/copies.h"

#define ASH_DAMAGES_MAX 8

/* A part of the state that is not what was written. Plain data. */
struct ash_damage {
    struct ash_patch_range range;
    uint32_t is_copy; /* of another rank's part: this rank's own is good */
};

/* What a process must not give to others. Plain data; zero: nothing. */
struct ash_damages {
    uint32_t count; /* more than ASH_DAMAGES_MAX: all that it holds */
    struct ash_damage items[ASH_DAMAGES_MAX];
};

/* Sums of a patch: each kind of its values, and the bf16 copy of its weights. */
struct ash_seal {
    uint64_t sums[ASH_PATCH_KINDS + 1];
};

/* Zero-initialise; free with ash_seals_fini. */
struct ash_seals {
    struct ash_patches patches; /* what this rank updates, then the copies that it holds */
    size_t own;                 /* of them */
    struct ash_seal *sums;      /* [patches.room] */
    size_t room;
    bool is_made;
};

/* Free; a zeroed struct is a no-op. */
void ash_seals_fini(struct ash_seals *seals);
/* Forget them: values will be written. */
void ash_seals_break(struct ash_seals *seals);
/* Sum up what is here of stages and copies. Returns 0 or -ENOMEM. */
int ash_seals_make(struct ash_seals *seals, const struct ash_stages *stages, const struct ash_copies *copies,
                   const struct ash_model *outline, struct ash_err *err);
/* Is all as it was? Seals that are not made hold. stages: the same. Returns 0, or -EILSEQ: damages gets what is not,
 * and err names the first. Where only the bf16 weights have changed damages stays as it is: they are made anew. */
int ash_seals_check(const struct ash_seals *seals, const struct ash_stages *stages, const struct ash_model *outline,
                    struct ash_damages *damages, struct ash_err *err);

/* Take away, from the patch `from` on, those that overlap one of the damages to own parts (is_copy: to copies). */
void ash_damages_drop(const struct ash_damages *damages, bool is_copy, struct ash_patches *patches, size_t from);

#endif
