/* dataset_folder - a data folder: shard-00000.safetensors ..., tokenizer.json, and manifest.json, which is written last
 * and so marks a complete folder. Building one (shards that roll over at a size) and reading its manifest. */
#ifndef ASH_TRAIN_DATASET_FOLDER_H
#define ASH_TRAIN_DATASET_FOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "train/data/shard.h"

#define ASH_FOLDER_FORMAT "ashlar-data-1"
#define ASH_FOLDER_MANIFEST "manifest.json"
#define ASH_FOLDER_STATE "state.json" /* which run writes or wrote the folder, and how far it came */
#define ASH_FOLDER_AWAY ".away"       /* FILE.away: FILE was complete, and has been moved to another place since */
#define ASH_FOLDER_SHARDS_MAX 100000
#define ASH_FOLDER_NAME_BYTES 64

struct ash_folder_shard {
    char file[ASH_FOLDER_NAME_BYTES]; /* inside the folder */
    size_t tokens, documents;
    uint64_t hash;
};

/* Contents of manifest.json. Zero-initialise, free with ash_data_manifest_fini. */
struct ash_data_manifest {
    size_t vocab_size;
    uint64_t tokenizer_hash;
    int32_t eos_id; /* -1: documents have no end token */
    struct ash_folder_shard *shards;
    size_t shard_count, shard_capacity;
    json_t *source; /* where the tokens come from, for people and for the next run; owned, may be NULL */
};

/* Free the members and zero them. */
void ash_data_manifest_fini(struct ash_data_manifest *manifest);
/* Append a shard named by its number. Returns 0, -ENOMEM, or -EFBIG beyond ASH_FOLDER_SHARDS_MAX. */
int ash_data_manifest_add(struct ash_data_manifest *manifest, const struct ash_shard_info *info);
/* Read and check dir's manifest.json. A missing one is -ENOENT: the data is not complete. */
int ash_data_manifest_load(const char *dir, struct ash_data_manifest *manifest_out, struct ash_err *err);
/* Write dir's manifest.json in one step. */
int ash_data_manifest_save(const char *dir, const struct ash_data_manifest *manifest, struct ash_err *err);
/* The list of shards as JSON: manifest.json and state.json share it. NULL when out of memory. */
json_t *ash_data_manifest_shards_json(const struct ash_data_manifest *manifest);
/* Append the shards of such a list. -EINVAL if it is malformed. */
int ash_data_manifest_parse_shards(struct ash_data_manifest *manifest, const json_t *shards, struct ash_err *err);
/* Does shard, open from path, match entry index of manifest? -EINVAL if not. */
int ash_data_manifest_check(const struct ash_data_manifest *manifest, size_t index, const struct ash_shard *shard,
                            const char *path, struct ash_err *err);
/* The same for every shard of dir that has not been moved away. */
int ash_data_manifest_check_all(const struct ash_data_manifest *manifest, const char *dir, struct ash_err *err);

/* ---- building ---------------------------------------------------------------------------------------------------- */

struct ash_folder; /* one owner thread, and one builder at a time: dir is locked against other processes */

/* Lock dir (created if missing) for building. -EBUSY if another process holds it. Its files stay, except for the
 * temporary files of a killed process. */
int ash_folder_open(const char *dir, struct ash_folder **folder_out, struct ash_err *err);
/* Unlock; a shard that is not complete is dropped, complete ones stay. NULL is a no-op. */
void ash_folder_close(struct ash_folder *folder);

/* Make the folder that of the run that key (an object, borrowed until close) describes: everything that decides the
 * output. Returns 0 when the run begins here, and 1 when it began earlier: *state_out is then its last saved state
 * (json_decref), or NULL. A folder of another run or with other data is -EEXIST and err names what differs, unless
 * overwrite: then manifest, state and shards are removed, and nothing else. A folder that is no data folder and has a
 * file which would be replaced (a model with its tokenizer, a checkpoint) is -EEXIST in any case. */
int ash_folder_claim(struct ash_folder *folder, json_t *key, bool overwrite, json_t **state_out, struct ash_err *err);
/* Record state (borrowed; an object, or NULL) and the shards on disk, so that the same run can continue after them. */
int ash_folder_save_state(struct ash_folder *folder, const json_t *state, struct ash_err *err);
/* Had the claimed run written its manifest? */
bool ash_folder_is_complete(const struct ash_folder *folder);

struct ash_folder_opts {
    size_t vocab_size; /* this and the next two: as in ash_shard_writer_open */
    uint64_t tokenizer_hash;
    const char *description;
    int32_t eos_id;      /* -1: none */
    size_t shard_tokens; /* a shard is complete with the first document that brings it there */
};
/* Start writing, after the shards of the claimed run when it has saved some. Returns 0 or an error with a sentence. */
int ash_folder_begin(struct ash_folder *folder, const struct ash_folder_opts *opts, struct ash_err *err);
/* Add one document. Returns 1 when it completed a shard, which is now on disk, else 0. */
int ash_folder_add(struct ash_folder *folder, const int32_t *ids, size_t count, struct ash_err *err);
/* Complete the last shard and write the manifest with source (borrowed, may be NULL). No document at all is -EINVAL. */
int ash_folder_finish(struct ash_folder *folder, json_t *source, struct ash_err *err);
/* The shards on disk so far. Borrowed. */
const struct ash_data_manifest *ash_folder_manifest(const struct ash_folder *folder);

#endif
