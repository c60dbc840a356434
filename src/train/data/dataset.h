/* dataset - token shards as an endless, randomly ordered, directly addressable sequence of training samples.
 * Which tokens sample (step, slot) holds is a pure function of (seed, step, slot) and the data: it does not depend on
 * the reader, the order of reads, or earlier reads. Thread-safe after open. */
#ifndef ASH_TRAIN_DATASET_H
#define ASH_TRAIN_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "model/model.h"
#include "model/pass/pass.h"

struct ash_dataset;

/* One sequence of seq_tokens rows. Storage belongs to the caller: ids and targets hold seq_tokens, docs holds
 * seq_tokens. */
struct ash_sample {
    int32_t *ids;
    int32_t *targets;      /* the next token of the same document, or -1 at its end */
    struct ash_kept *kept; /* zeroed: all ids; NULL: the source has no such sets (struct ash_train_source) */
    struct ash_doc *docs;  /* row counts from 0 in this sample; pos 0: documents do not see each other */
    size_t doc_count;
};

/* path: a token shard, or a folder of them as `ashlar data` writes it; s3://bucket/prefix names the same in S3. The
 * shards of a folder are one sequence of tokens in the order of its manifest; window w is the tokens [w * seq_tokens,
 * (w + 1) * seq_tokens), a shorter rest at the end is left out. Every epoch visits every window once, in the order of
 * the permutation named by (seed, epoch). Bounds of documents are checked here, ids when they are read (a pass over
 * terabytes would keep a job from starting). Empty or too short data is -EINVAL. */
int ash_dataset_open(const char *path, size_t seq_tokens, uint64_t seed, struct ash_dataset **dataset_out,
                     struct ash_err *err);
/* NULL is a no-op. */
void ash_dataset_close(struct ash_dataset *dataset);

/* The same windows in block order: windows come in blocks of block_tokens consecutive tokens (at least one window). A
 * permutation named by (seed, epoch) orders the blocks; the windows of mixed_blocks blocks at a time are mixed. So an
 * epoch reads every byte once with room for those blocks alone. Both counts are above 0. Before the first read. */
void ash_dataset_order_by_blocks(struct ash_dataset *dataset, size_t block_tokens, size_t mixed_blocks);

/* Of all shards together. */
size_t ash_dataset_tokens(const struct ash_dataset *dataset);
size_t ash_dataset_windows(const struct ash_dataset *dataset);    /* samples per epoch */
size_t ash_dataset_vocab_size(const struct ash_dataset *dataset); /* one more than the largest id its shards may hold */
uint64_t ash_dataset_hash(const struct ash_dataset *dataset);     /* of the data's identity: a resumed run checks it */
/* Of the tokenizer that made the tokens, as ash_tokenizer_hash gives it. */
uint64_t ash_dataset_tokenizer_hash(const struct ash_dataset *dataset);
int32_t ash_dataset_eos_id(const struct ash_dataset *dataset); /* what ends each document, or -1: none, or not known */

/* Fill sample for slot (< slots_per_step) of step (from 0): the window at place n % windows in the order of epoch n /
 * windows, with n = step * slots_per_step + slot. Returns 0, or -EBADMSG when the shard holds an id outside its
 * vocabulary (it was damaged after it was written); err then names shard and token, and what sample points to is
 * undefined. */
int ash_dataset_read(const struct ash_dataset *dataset, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                     struct ash_sample *sample, struct ash_err *err);

/* Sample (step, slot) will be read: data that are not here are fetched ahead. Of data in block order, whole blocks are
 * (unless ash_dataset_share_blocks says otherwise). */
void ash_dataset_want(const struct ash_dataset *dataset, uint64_t step, uint64_t slot, uint64_t slots_per_step);
/* Are the data in S3? */
bool ash_dataset_is_remote(const struct ash_dataset *dataset);
/* Other machines read other windows of the same blocks: fetch windows, not blocks. Before the first read. */
void ash_dataset_share_blocks(struct ash_dataset *dataset);
/* The folder of this machine that has the files of a tokenizer next to remote data, or NULL. Borrowed. */
const char *ash_dataset_folder(const struct ash_dataset *dataset);

/* Rows of a sample that have a target, from the bounds of documents alone: no id is read. */
size_t ash_dataset_count_targets(const struct ash_dataset *dataset, uint64_t step, uint64_t slot,
                                 uint64_t slots_per_step);

#endif
