/* dataset_priv - a data folder under construction, shared by the files that build it. */
#ifndef ASH_TRAIN_DATASET_PRIV_H
#define ASH_TRAIN_DATASET_PRIV_H

#include "train/data/dataset_folder.h"

struct ash_folder {
    char *dir, *description;
    int lock_fd;
    json_t *key; /* identity of the claimed run */
    bool complete;
    struct ash_data_manifest manifest;
    struct ash_shard_writer *writer; /* the shard being filled, or NULL between two */
    size_t shard_tokens;
};

/* Remove manifest, state and shards, in this order, and nothing else. */
int ash_folder_clear(struct ash_folder *folder, struct ash_err *err);
/* 1 when there are files named like shards, 0 when not, or a negative errno. */
int ash_folder_has_shards(struct ash_folder *folder, struct ash_err *err);

#endif
