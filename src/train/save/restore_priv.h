/* restore_priv - between the search for a checkpoint (restore.c), its check (restore_check.c) and the reading of its
 * values (restore_load.c). */
#ifndef ASH_TRAIN_RESTORE_PRIV_H
#define ASH_TRAIN_RESTORE_PRIV_H

#include "base/str.h"
#include "train/save/place.h"
#include "train/save/restore.h"

/* The search. */
struct ash_restore {
    const struct ash_restore_opts *opts;
    size_t rank, size; /* of the ranks that share the reading */
    bool is_first;
    bool has_nodes; /* several: each may have its own disk */
    struct ash_place *root;
    struct ash_place **others; /* [other_count]; NULL: not opened, or not reachable */
    uint64_t *steps;           /* first rank: all there are, newest first */
    size_t step_count, next;   /* next: the first that was not proposed yet */
    uint64_t noted;            /* unfinished saves of this step and newer ones are in skipped */
    struct ash_str skipped;
};

/* The first rank's proposal. */
struct ash_restore_proposal {
    uint64_t step;
    uint64_t text_bytes; /* 0: nothing is left */
    int32_t is_here;     /* the root has a manifest of it; where nothing is left: there was something */
};

/* A file of a checkpoint in the folder that ranks load from. */
struct ash_restore_file {
    struct ash_restore *search;
    uint64_t step;
    const char *name;
    const struct ash_pieces *pieces;
    char path[PATH_MAX];
    int fd;            /* -1: not there */
    bool is_here;      /* the folder has the whole checkpoint, by its manifest */
    bool is_elsewhere; /* its values stay in other places: of large files, the header alone is wanted here */
    bool is_mended, is_resized;
    bool is_told; /* the missing checkpoint was reported already: nothing of this step was here */
};

/* Several pieces (ASH_PLACE_PIECES_MAX at most) from the nearest other place that can be read; is_right marks the valid
 * ones. */
void ash_restore_fetch_some(struct ash_restore_file *file, struct ash_place_want *wants, size_t count);
/* A piece from the nearest other place that has it right into buf [ASH_PIECE_BYTES]. Returns 0 or -EBADMSG. */
int ash_restore_fetch(struct ash_restore_file *file, size_t index, void *buf, struct ash_err *err);
/* Write a piece that fetch gave to the file. Returns 0 or the error. */
int ash_restore_mend(struct ash_restore_file *file, size_t index, const void *buf, struct ash_err *err);

/* This rank's share of the pieces of a checkpoint: is each right in dir? Wrong ones are repaired from another place. Of
 * large files that are in the folder anyway, or elsewhere for good, only the header is checked: the rest is verified
 * when it is read. restored has step, folder, manifest. Returns 0, or a negative errno. */
int ash_restore_check(struct ash_restore *search, const struct ash_restore_proposal *proposal,
                      const struct ash_restored *restored, struct ash_err *err);
/* This rank's values of a checkpoint. Returns 0, or a negative errno. */
int ash_restore_load(struct ash_restore *search, const struct ash_restored *restored, const struct ash_stages *stages,
                     const struct ash_model *outline, struct ash_err *err);

#endif
