/* commit - a folder that is whole or does not count: its manifest, with sizes and checksums of all files, is written
 * last, when they are on disk. A killed process or a full disk leaves older folders as they were.
 *
 *     in place     several processes write the files of a folder (claim, then seal by one of them): checkpoints
 *     as a whole   one process writes into a hidden sibling, and a rename puts it in place: models that others open
 *
 * One save of a folder at a time; any number of readers. */
#ifndef ASH_STORAGE_COMMIT_COMMIT_H
#define ASH_STORAGE_COMMIT_COMMIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "storage/io/pieces.h"

#define ASH_COMMIT_MANIFEST "manifest.json"

struct ash_commit; /* a save that is under way */

/* A file whose bytes are on disk already, and their sums. */
struct ash_commit_sums {
    const char *name; /* in the folder */
    const struct ash_pieces *pieces;
};

/* ---- as a whole -------------------------------------------------------------------------------------------------- */

/* Make the hidden folder next to dir_final (and the folders above it). dir_final itself is untouched until finish.
 * The caller owns *commit_out and ends it with finish or abort. */
int ash_commit_begin(const char *dir_final, struct ash_commit **commit_out, struct ash_err *err);
/* Where to write the files, and folders of files; borrowed until the commit ends. */
const char *ash_commit_dir(const struct ash_commit *commit);
/* Flush and checksum every file, write the manifest with state (an object, borrowed; NULL: empty) and move the folder
 * into place, in exchange for an older one. Frees commit in every case. On error dir_final is as it was and the hidden
 * folder is gone; only when the last flush fails may the new one be in place already. */
int ash_commit_finish(struct ash_commit *commit, json_t *state, struct ash_err *err);
/* The same where the sums of some files are known: those are on disk already and not read. */
int ash_commit_finish_known(struct ash_commit *commit, const struct ash_commit_sums *known, size_t known_count,
                            json_t *state, struct ash_err *err);
/* Remove the written files and free commit. NULL is a no-op. */
void ash_commit_abort(struct ash_commit *commit);

/* ---- in place ---------------------------------------------------------------------------------------------------- */

/* Make dir (and the folders above it) and mark it as unfinished; an old manifest is removed. All writers of its files
 * call it before they write, in any order. */
int ash_commit_claim(const char *dir, struct ash_err *err);
/* All files are written: flush and sum those that are not known, write the manifest with state (an object, borrowed;
 * NULL: empty), and take the mark away. When it returns 0 the folder survives a loss of power. */
int ash_commit_seal(const char *dir, const struct ash_commit_sums *known, size_t known_count, json_t *state,
                    struct ash_err *err);
/* The files of a folder are on disk, copied from another whose manifest this text is: write it, and take the mark
 * away. */
int ash_commit_adopt(const char *dir, const char *text, size_t size_bytes, struct ash_err *err);
/* Remove a folder, giving it a hidden name first, so that a removal that is cut short leaves nothing that looks like a
 * save. A missing one is success. */
int ash_commit_discard(const char *path, struct ash_err *err);

/* May a save with this file in it replace dir? Returns 0 if dir is missing, empty, or an older save that has the file
 * and holds nothing else than its manifest lists; -EEXIST with a sentence if anything in it would be lost. */
int ash_commit_check_replace(const char *dir, const char *file, struct ash_err *err);

/* Is dir a save that was killed: no manifest, and a mark or nothing at all in it? */
bool ash_commit_is_unfinished(const char *dir);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Is dir complete: the manifest intact, every file there with its size and, with deep, its checksum? Files that the
 * manifest does not list are ignored. Returns 0, -ENOENT (no folder or no manifest), -EBADMSG (damaged: err names the
 * file) or a system error. *manifest_out (may be NULL) is the caller's, to be json_decref'd: {"version", "files":
 * [{"name", "size", "pieces": [...]}], "state": {...}, "manifest_xxh3"}; version 1 has "xxh3" instead of pieces. */
int ash_commit_verify(const char *dir, bool deep, json_t **manifest_out, struct ash_err *err);

/* Is text a manifest whose own checksum is right and whose list of files makes sense? name is for messages. Returns 0
 * or -EBADMSG, -ENOTSUP or -ENOMEM. The caller owns *manifest_out. */
int ash_commit_parse(const char *text, size_t size_bytes, const char *name, json_t **manifest_out, struct ash_err *err);
/* A file of a manifest: its name (borrowed) and sums, which the caller frees. Returns 0, -EBADMSG or -ENOMEM, or
 * -ENOTSUP for version 1, which has no sums of pieces. */
int ash_commit_file(const json_t *manifest, size_t index, const char **name_out, struct ash_pieces *pieces_out,
                    struct ash_err *err);
/* How many files a manifest lists. */
size_t ash_commit_file_count(const json_t *manifest);

struct ash_commit_found {
    char *path;       /* the folder */
    uint64_t number;  /* from its name */
    json_t *manifest; /* as ash_commit_verify gives it */
    char *skipped;    /* a sentence a line for each newer folder that was skipped; NULL when there was none */
};

/* The complete folder parent/<prefix><digits> with the highest number. Returns -ENOENT when there is none; err then has
 * the newest one's fault, if there was one. End *found_out with ash_commit_found_fini. */
int ash_commit_latest(const char *parent, const char *prefix, bool deep, struct ash_commit_found *found_out,
                      struct ash_err *err);
/* Free the members; a zeroed struct is a no-op. */
void ash_commit_found_fini(struct ash_commit_found *found);

/* Remove all folders parent/<prefix><digits> but the newest `keep` (at least 1) complete ones, and what killed
 * saves left behind. Folders that were never a save (no manifest and no mark), or that cannot be read now, stay;
 * damaged ones stay while there is no complete one. No save below parent may be under way. A missing parent is
 * success. */
int ash_commit_prune(const char *parent, const char *prefix, size_t keep, struct ash_err *err);
/* The same of complete folders alone, while another save may be under way. Number `pinned` stays (UINT64_MAX: none). */
int ash_commit_prune_complete(const char *parent, const char *prefix, size_t keep, uint64_t pinned,
                              struct ash_err *err);

#endif
