/* restore_priv - between the search for a checkpoint (restore.c) and its check (restore_check.c). */
#ifndef ASH_TRAIN_RESTORE_PRIV_H
#define ASH_TRAIN_RESTORE_PRIV_H

#include "base/str.h"
#include "train/save/place.h"
#include "train/save/restore.h"

/* The search. */
struct ash_restore_search {
    const struct ash_restore_opts *opts;
    size_t rank, size; /* of those who share the reading */
    bool is_first;
    struct ash_place *root;
    struct ash_place **others; /* [other_count]; NULL: not opened, or not reachable */
    uint64_t *steps;           /* first rank: all there are, newest first */
    size_t step_count;
    struct ash_str skipped;
};

/* What the first rank proposes. */
struct ash_restore_proposal {
    uint64_t step;
    uint64_t text_bytes; /* 0: nothing is left */
    int32_t is_here;     /* the root has a manifest of it; where nothing is left: there was something */
};

/* This rank's share of the pieces of a checkpoint: is each right in dir? What is not is mended from another place.
 * Returns 0, or what is wrong. */
int ash_restore_check(struct ash_restore_search *search, const struct ash_restore_proposal *proposal,
                      const json_t *manifest, const char *dir, struct ash_err *err);

#endif
