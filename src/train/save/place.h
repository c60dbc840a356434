/* place - where checkpoints are: a folder, or a prefix of a bucket, with step-NNNNNN/ in it. A checkpoint counts
 * when its manifest is there, which is written last and removed first. One owner thread. */
#ifndef ASH_TRAIN_PLACE_H
#define ASH_TRAIN_PLACE_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "storage/io/pieces.h"
#include "storage/tier/tier.h"

struct ash_place;

/* Open a place: a path or s3://bucket/prefix. No server is contacted. s3 is borrowed until close. The caller owns
 * *place_out. */
int ash_place_open(const char *url, const struct ash_s3_opts *s3, struct ash_place **place_out, struct ash_err *err);
/* Free; NULL is a no-op. */
void ash_place_close(struct ash_place *place);
/* As it was opened. Borrowed. */
const char *ash_place_url(const struct ash_place *place);

/* The folder of a step in a place that is a folder: root/step-NNNNNN. Returns 0 or -ENAMETOOLONG. */
int ash_place_dir(const char *root, uint64_t step, char *buf, size_t buf_bytes);
/* The steps of all checkpoints that have a manifest, newest first. The caller frees *steps_out. A place that is not
 * there has none. */
int ash_place_steps(struct ash_place *place, uint64_t **steps_out, size_t *count_out, struct ash_err *err);

/* A manifest as it was read. Zero-initialise, free with ash_place_manifest_fini. */
struct ash_place_manifest {
    char *text;
    size_t size_bytes;
    json_t *json; /* as ash_commit_parse gives it */
};
/* Read and check the manifest of a step. Returns 0, -ENOENT, -EBADMSG or the place's error. */
int ash_place_read_manifest(struct ash_place *place, uint64_t step, struct ash_place_manifest *manifest_out,
                            struct ash_err *err);
/* Free the members. */
void ash_place_manifest_fini(struct ash_place_manifest *manifest);

#define ASH_PLACE_RUN "run" /* in a manifest's state: the run, in hexadecimal digits */

/* The run that made the checkpoint of a manifest; 0: unknown. */
uint64_t ash_place_manifest_run(const json_t *manifest);
/* Does a place hold nothing but checkpoints of this run, or of none? Returns 0, -EEXIST with a sentence, or the place's
 * error. */
int ash_place_check_run(struct ash_place *place, uint64_t run, struct ash_err *err);

/* A file of a checkpoint; borrowed. */
struct ash_place_file {
    uint64_t step;
    const char *name;
    const struct ash_pieces *pieces;
};
/* One piece of a file into buf [ASH_PIECE_BYTES, aligned to 4], compared with its checksum: -EBADMSG if that is wrong,
 * -ENOENT if the file is missing. */
int ash_place_piece(struct ash_place *place, const struct ash_place_file *file, size_t index, void *buf,
                    struct ash_err *err);
#define ASH_PLACE_PIECES_MAX 8 /* that are read together */

/* A piece and its destination. */
struct ash_place_want {
    size_t index;
    void *buf;     /* [ASH_PIECE_BYTES], aligned to 4 */
    bool is_right; /* its checksum matches */
};
/* Some pieces of a file (ASH_PLACE_PIECES_MAX at most), several at a time where the place can. Returns 0
 * where all were read, right or not; else the place's error. */
int ash_place_pieces(struct ash_place *place, const struct ash_place_file *file, struct ash_place_want *wants,
                     size_t count, struct ash_err *err);
/* Remove a checkpoint, its manifest first. One that is not there is success. */
int ash_place_remove(struct ash_place *place, uint64_t step, struct ash_err *err);
/* Of the checkpoints of a run (0: of all), remove all but the newest keep (0: keep all); those of other runs are left
 * alone. *count_out (may be NULL): how many were removed. */
int ash_place_prune(struct ash_place *place, size_t keep, uint64_t run, size_t *count_out, struct ash_err *err);

/* Called while bytes are read, and (0 bytes) before a manifest is written. A negative result ends it. */
typedef int (*ash_place_progress_fn)(void *ctx, uint64_t bytes, struct ash_err *err);

/* Read all of a checkpoint and hold it to its sums. Returns 0, -EBADMSG naming the first file that is damaged, -ENOENT
 * or the place's error. progress may be NULL. */
int ash_place_verify(struct ash_place *place, uint64_t step, ash_place_progress_fn progress, void *ctx,
                     struct ash_err *err);
/* Copy a checkpoint, each piece held to its sum on the way, the manifest last. Returns as ash_place_verify. */
int ash_place_copy(struct ash_place *from, struct ash_place *to, uint64_t step, ash_place_progress_fn progress,
                   void *ctx, struct ash_err *err);
/* A rank's share of a copy. Zero-initialise. */
struct ash_place_share {
    size_t index, count; /* this rank's number, and how many share; 0 is the one that copies */
    uint64_t done;       /* a bit for each file of the manifest: nothing is left to do for it */
    size_t share_count;  /* files of which it has sent its share */
    const atomic_bool *is_stopping;
};
/* Send this rank's share of the large files of a checkpoint that another rank copies from `from` to the bucket `to`
 * now, each piece held to its sum. Returns 0 where nothing is left to do, -EAGAIN where the other has not come so far,
 * -ENOENT where `from` has no such checkpoint yet, or another error. */
int ash_place_help(struct ash_place *from, struct ash_place *to, uint64_t step, struct ash_place_share *help,
                   struct ash_err *err);
/* Bytes of all files that a manifest lists. */
uint64_t ash_place_manifest_bytes(const json_t *manifest);

#endif
