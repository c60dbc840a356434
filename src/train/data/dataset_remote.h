/* dataset_remote - the shards of a data folder at s3://bucket/prefix: small files are brought here, tokens are read by
 * ranges and fetched ahead. Thread-safe after open. */
#ifndef ASH_TRAIN_DATASET_REMOTE_H
#define ASH_TRAIN_DATASET_REMOTE_H

#include <stdbool.h>
#include "train/data/dataset_folder.h"

struct ash_dataset_remote;

/* url: the place of a folder as `ashlar data` writes it, or one shard (its name ends with .safetensors). ASHLAR_S3_*
 * and AWS_* configure the server. The caller owns *remote_out. */
int ash_dataset_remote_open(const char *url, struct ash_dataset_remote **remote_out, struct ash_err *err);
/* Free; NULL is a no-op. Shards that read from it must be closed before. */
void ash_dataset_remote_close(struct ash_dataset_remote *remote);
/* The folder's manifest, or NULL for one shard. Borrowed. */
const struct ash_data_manifest *ash_dataset_remote_manifest(const struct ash_dataset_remote *remote);
/* How many shards there are. */
size_t ash_dataset_remote_count(const struct ash_dataset_remote *remote);
/* Where shard index is read from. Borrowed. */
const struct ash_shard_source *ash_dataset_remote_source(const struct ash_dataset_remote *remote, size_t index);
/* The local folder with its tokenizer's files, if there are any. Borrowed. */
const char *ash_dataset_remote_folder(const struct ash_dataset_remote *remote);
/* Bytes of shard index will be read; order and is_kept as ash_ahead_want has them. */
void ash_dataset_remote_want(struct ash_dataset_remote *remote, size_t index, uint64_t offset, size_t size_bytes,
                             uint64_t order, bool is_kept);

#endif
