/* dataset_folder - a data folder: shard-00000.safetensors ..., tokenizer.json, and manifest.json, which is written last and so says
 * that all the rest is there. Building one (shards that roll over at a size) and reading its manifest. */
#ifndef ASH_TRAIN_DATASET_FOLDER_H
#define ASH_TRAIN_DATASET_FOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "train/shard.h"

#define ASH_FOLDER_FORMAT "ashlar-data-1"
#define ASH_FOLDER_MANIFEST "manifest.json"
#define ASH_FOLDER_STATE "state.json" /* progress of a tokenizing run */
#define ASH_FOLDER_SHARDS_MAX 100000
#define ASH_FOLDER_NAME_BYTES 64

struct ash_folder_shard {
    char file[ASH_FOLDER_NAME_BYTES]; /* inside the folder */
    size_t tokens, documents;
    uint64_t hash;
};

/* What manifest.json says. Zero-initialise, free with ash_manifest_fini. */
struct ash_manifest {
    size_t vocab_size;
    uint64_t tokenizer_hash;
    int32_t eos_id; /* -1: documents have no end token */
    struct ash_folder_shard *shards;
    size_t shard_count, shard_capacity;
    json_t *source; /* where the tokens come from, for people and for the next run; owned, may be NULL */
};

void ash_manifest_fini(struct ash_manifest *manifest);
/* Append a shard named by its number. Returns 0, -ENOMEM, or -EFBIG beyond ASH_FOLDER_SHARDS_MAX. */
int ash_manifest_add(struct ash_manifest *manifest, const struct ash_shard_info *info);
/* Read and check dir's manifest.json. A missing one is -ENOENT: the data is not complete. */
int ash_manifest_load(const char *dir, struct ash_manifest *manifest_out, struct ash_err *err);
int ash_manifest_save(const char *dir, const struct ash_manifest *manifest, struct ash_err *err);
/* The list of shards as JSON and back: manifest.json and state.json share it. NULL when out of memory. */
json_t *ash_manifest_shards_json(const struct ash_manifest *manifest);
int ash_manifest_parse_shards(struct ash_manifest *manifest, const json_t *shards, struct ash_err *err);

/* ---- building ---------------------------------------------------------------------------------------------------- */

struct ash_folder; /* one owner thread, and one builder at a time: dir is locked against other processes */

/* Lock dir (made when missing) for building. -EBUSY when another process does. What is in it stays, except for the temporary files
 * of a process that was killed. */
int ash_folder_open(const char *dir, struct ash_folder **folder_out, struct ash_err *err);
/* Unlock; a shard that is not complete is dropped, complete ones stay. NULL is a no-op. */
void ash_folder_close(struct ash_folder *folder);
/* Remove manifest, state and shards, in this order, and nothing else. */
int ash_folder_clear(struct ash_folder *folder, struct ash_err *err);

/* Start writing with manifest's vocabulary and hash, behind the shards that it already lists (copied). A shard is
 * complete with the first document that brings it to shard_tokens. description as in ash_shard_writer_open. */
int ash_folder_begin(struct ash_folder *folder, const struct ash_manifest *manifest, size_t shard_tokens, const char *description,
                     struct ash_err *err);
/* Add one document. Returns 1 when it completed a shard, which is now on disk, else 0. */
int ash_folder_add(struct ash_folder *folder, const int32_t *ids, size_t count, struct ash_err *err);
/* Complete the last shard and write the manifest with source (borrowed). No document at all is -EINVAL. */
int ash_folder_finish(struct ash_folder *folder, json_t *source, struct ash_err *err);
/* The shards on disk so far. Borrowed. */
const struct ash_manifest *ash_folder_manifest(const struct ash_folder *folder);

#endif
