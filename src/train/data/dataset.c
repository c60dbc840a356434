/* Token shards as windows in a random order. Nothing is shuffled in memory: window numbers go through a permutation
 * that is a pure function, and a window is cut out of the mapped shards when it is read. */
#include "train/data/dataset.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/rng.h"
#include "storage/tier/tier.h"
#include "train/data/dataset_folder.h"
#include "train/data/dataset_remote.h"
#include "train/data/shard.h"
#include "train/data/source.h"

struct ash_dataset {
    struct ash_shard **shards;
    size_t *starts; /* [shard_count + 1]: the first token of each shard in the whole sequence */
    size_t shard_count;
    size_t seq_tokens, windows, vocab_size;
    size_t block_windows, mixed_blocks; /* 0: full order */
    uint64_t seed, hash, tokenizer_hash;
    int32_t eos_id;
    struct ash_dataset_remote *remote; /* NULL: the shards are mapped files */
    bool shares_blocks;
};

static int alloc_shards(struct ash_dataset *dataset, size_t count, struct ash_err *err)
{
    dataset->shards = calloc(count, sizeof(struct ash_shard *));
    dataset->starts = calloc(count + 1, sizeof(*dataset->starts));
    if (dataset->shards == NULL || dataset->starts == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for %zu shards", count);
    return 0;
}

/* Put an open shard after the ones already there. */
static void append_shard(struct ash_dataset *dataset, struct ash_shard *shard)
{
    const struct ash_shard_info *info = ash_shard_get_info(shard);
    size_t s = dataset->shard_count++;

    ash_assert(dataset->starts[s] + info->tokens > dataset->starts[s]); /* a shard has tokens: starts ascend */
    dataset->shards[s] = shard;
    dataset->starts[s + 1] = dataset->starts[s] + info->tokens;
    dataset->hash = ash_hash_mix(dataset->hash ^ info->hash) + info->tokens;
}

static void set_vocabulary(struct ash_dataset *dataset, size_t vocab_size, uint64_t tokenizer_hash, int32_t eos_id)
{
    dataset->vocab_size = vocab_size;
    dataset->eos_id = eos_id;
    dataset->tokenizer_hash = tokenizer_hash;
    dataset->hash = ash_hash_mix(tokenizer_hash + vocab_size);
}

static int open_file(struct ash_dataset *dataset, const char *path, struct ash_err *err)
{
    struct ash_shard *shard = NULL;
    int rc = alloc_shards(dataset, 1, err);

    if (rc < 0) return rc;
    rc = ash_shard_open(path, &shard, err);
    if (rc < 0) return rc;
    set_vocabulary(dataset, ash_shard_get_info(shard)->vocab_size, ash_shard_get_info(shard)->tokenizer_hash, -1);
    append_shard(dataset, shard);
    return 0;
}

static int open_listed(struct ash_dataset *dataset, const char *dir, const struct ash_data_manifest *manifest,
                       struct ash_err *err)
{
    int rc = alloc_shards(dataset, manifest->shard_count, err);

    if (rc < 0) return rc;
    set_vocabulary(dataset, manifest->vocab_size, manifest->tokenizer_hash, manifest->eos_id);
    for (size_t i = 0; i < manifest->shard_count; i++) {
        struct ash_shard *shard = NULL;
        char path[PATH_MAX];

        if (ash_path_join(path, sizeof(path), dir, manifest->shards[i].file) < 0)
            return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
        rc = ash_shard_open(path, &shard, err);
        if (rc < 0) return rc;
        append_shard(dataset, shard);
        rc = ash_data_manifest_check(manifest, i, shard, path, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int open_folder(struct ash_dataset *dataset, const char *dir, struct ash_err *err)
{
    struct ash_data_manifest manifest = {0};
    int rc = ash_data_manifest_load(dir, &manifest, err);

    if (rc < 0) return rc;
    rc = open_listed(dataset, dir, &manifest, err);
    ash_data_manifest_fini(&manifest);
    return rc;
}

static int open_remote(struct ash_dataset *dataset, const char *url, struct ash_err *err)
{
    const struct ash_data_manifest *manifest;
    size_t count;
    int rc = ash_dataset_remote_open(url, &dataset->remote, err);

    if (rc < 0) return rc;
    manifest = ash_dataset_remote_manifest(dataset->remote);
    count = ash_dataset_remote_count(dataset->remote);
    rc = alloc_shards(dataset, count, err);
    if (rc == 0 && manifest != NULL)
        set_vocabulary(dataset, manifest->vocab_size, manifest->tokenizer_hash, manifest->eos_id);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const char *name = manifest != NULL ? manifest->shards[i].file : url;
        struct ash_shard *shard = NULL;

        rc = ash_shard_open_source(ash_dataset_remote_source(dataset->remote, i), name, &shard, err);
        if (rc < 0) return rc;
        if (manifest == NULL)
            set_vocabulary(dataset, ash_shard_get_info(shard)->vocab_size, ash_shard_get_info(shard)->tokenizer_hash,
                           -1);
        append_shard(dataset, shard);
        if (manifest != NULL) rc = ash_data_manifest_check(manifest, i, shard, name, err);
    }
    return rc;
}

/* A place in S3, a folder or a file. */
static int open_path(struct ash_dataset *dataset, const char *path, struct ash_err *err)
{
    struct stat st;

    if (ash_tier_is_url(path)) return open_remote(dataset, path, err);
    if (stat(path, &st) < 0) return ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? open_folder(dataset, path, err) : open_file(dataset, path, err);
}

int ash_dataset_open(const char *path, size_t seq_tokens, uint64_t seed, struct ash_dataset **dataset_out,
                     struct ash_err *err)
{
    struct ash_dataset *dataset = NULL;
    int rc;

    if (seq_tokens == 0) return ash_err_set(err, -EINVAL, "%s: a sequence needs at least one token", path);
    dataset = calloc(1, sizeof(*dataset));
    if (dataset == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", path);
    rc = open_path(dataset, path, err);
    if (rc < 0) goto fail;
    dataset->seq_tokens = seq_tokens;
    dataset->seed = seed;
    dataset->windows = ash_dataset_tokens(dataset) / seq_tokens;
    if (dataset->windows == 0) {
        rc = ash_err_set(err, -EINVAL,
                         "%s: %zu tokens are fewer than one sequence of %zu; give more data or shorter sequences", path,
                         ash_dataset_tokens(dataset), seq_tokens);
        goto fail;
    }
    *dataset_out = dataset;
    return 0;

fail:
    ash_dataset_close(dataset);
    return rc;
}

void ash_dataset_close(struct ash_dataset *dataset)
{
    if (dataset == NULL) return;
    for (size_t i = 0; i < dataset->shard_count; i++)
        ash_shard_close(dataset->shards[i]);
    ash_dataset_remote_close(dataset->remote);
    free(dataset->shards);
    free(dataset->starts);
    free(dataset);
}

size_t ash_dataset_tokens(const struct ash_dataset *dataset)
{
    return dataset->starts[dataset->shard_count];
}

size_t ash_dataset_windows(const struct ash_dataset *dataset)
{
    return dataset->windows;
}

size_t ash_dataset_vocab_size(const struct ash_dataset *dataset)
{
    return dataset->vocab_size;
}

uint64_t ash_dataset_hash(const struct ash_dataset *dataset)
{
    return dataset->hash;
}

uint64_t ash_dataset_tokenizer_hash(const struct ash_dataset *dataset)
{
    return dataset->tokenizer_hash;
}

int32_t ash_dataset_eos_id(const struct ash_dataset *dataset)
{
    return dataset->eos_id;
}

/* The shard that holds token (< all tokens). */
static size_t shard_at(const struct ash_dataset *dataset, size_t token)
{
    size_t low = 0, high = dataset->shard_count - 1;

    ash_assert(token < dataset->starts[dataset->shard_count]);
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (dataset->starts[middle + 1] > token)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Rows [row, row + count) of sample are tokens [first, first + count) of shard: note the documents that they belong to.
 * Returns the shard's end of the last one. */
static size_t cut_docs(const struct ash_shard *shard, size_t first, size_t row, size_t count, struct ash_sample *sample)
{
    size_t doc = ash_shard_doc_at(shard, first), last = first + count;
    size_t end = ash_shard_doc_end(shard, doc);

    ash_assert(count > 0);
    for (;;) {
        size_t stop = end < last ? end : last;

        sample->docs[sample->doc_count++] = (struct ash_doc){.row = row, .count = stop - first};
        row += stop - first;
        first = stop;
        if (first == last) return end;
        end = ash_shard_doc_end(shard, ++doc);
    }
}

/* Each target is the id one row on, except at a document's end, where next (the id after the window, or -1) or nothing
 * follows. */
static void set_targets(struct ash_sample *sample, size_t rows, int32_t next)
{
    ash_assert(rows > 0 && sample->doc_count > 0);
    memcpy(sample->targets, sample->ids + 1, (rows - 1) * sizeof(*sample->targets));
    for (size_t d = 0; d + 1 < sample->doc_count; d++)
        sample->targets[sample->docs[d].row + sample->docs[d].count - 1] = -1;
    sample->targets[rows - 1] = next;
}

void ash_dataset_order_by_blocks(struct ash_dataset *dataset, size_t block_tokens, size_t mixed_blocks)
{
    ash_assert(block_tokens > 0 && mixed_blocks > 0);
    dataset->block_windows = ash_max(block_tokens / dataset->seq_tokens, 1);
    dataset->mixed_blocks = mixed_blocks;
}

/* Block order: the window at place index of an epoch. Whole blocks come first, mixed group by group; the windows after
 * the last whole block come at the end, as a group of their own. */
static size_t block_window(const struct ash_dataset *dataset, uint64_t epoch, uint64_t index)
{
    size_t block = dataset->block_windows, blocks = dataset->windows / block, whole = blocks * block;
    size_t group_windows = dataset->mixed_blocks * block;
    uint64_t group = index / group_windows, mixing;
    size_t first = (size_t)group * group_windows, at, count;

    if (index >= whole) {
        group = blocks; /* no other group has this number */
        first = whole;
    }
    mixing = ash_hash_mix(dataset->seed ^ ash_hash_mix(group + 1));
    count = ash_min(group_windows, (index >= whole ? dataset->windows : whole) - first);
    ash_assert(index >= first && index - first < count); /* the window is of this group */
    at = (size_t)ash_rng_permute(mixing, epoch, index - first, count);
    if (index >= whole) return first + at;
    return (size_t)ash_rng_permute(dataset->seed, epoch, (first + at) / block, blocks) * block + at % block;
}

/* The first token of sample (step, slot). */
static size_t sample_token(const struct ash_dataset *dataset, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    uint64_t number = step * slots_per_step + slot;
    uint64_t epoch = number / dataset->windows, index = number % dataset->windows;
    size_t window;

    ash_assert(slots_per_step > 0 && slot < slots_per_step);
    if (dataset->block_windows > 0)
        window = block_window(dataset, epoch, index);
    else
        window = (size_t)ash_rng_permute(dataset->seed, epoch, index, dataset->windows);
    return window * dataset->seq_tokens;
}

bool ash_dataset_is_remote(const struct ash_dataset *dataset)
{
    return dataset->remote != NULL;
}

void ash_dataset_share_blocks(struct ash_dataset *dataset)
{
    dataset->shares_blocks = true;
}

const char *ash_dataset_folder(const struct ash_dataset *dataset)
{
    return dataset->remote != NULL ? ash_dataset_remote_folder(dataset->remote) : NULL;
}

/* Want tokens [token, end) and, inside a shard, the one after them: the last target. */
static void want_tokens(const struct ash_dataset *dataset, size_t token, size_t end, uint64_t order, bool is_kept)
{
    for (size_t s = shard_at(dataset, token); token < end; s++) {
        size_t stop = ash_min(end, dataset->starts[s + 1]), bytes;
        size_t next = ash_min(stop + 1, dataset->starts[s + 1]);
        uint64_t offset = ash_shard_bytes_of(dataset->shards[s], token - dataset->starts[s], next - token, &bytes);

        ash_dataset_remote_want(dataset->remote, s, offset, bytes, order, is_kept);
        token = stop;
    }
}

void ash_dataset_want(const struct ash_dataset *dataset, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    uint64_t number = step * slots_per_step + slot, index = number % dataset->windows;
    size_t token = sample_token(dataset, step, slot, slots_per_step), seq = dataset->seq_tokens;
    size_t block_tokens = dataset->block_windows * seq, first;

    if (dataset->remote == NULL) return;
    if (block_tokens == 0 || dataset->shares_blocks) {
        want_tokens(dataset, token, token + seq, number, false);
        return;
    }
    first = token / block_tokens * block_tokens;
    want_tokens(dataset, first, ash_min(first + block_tokens, dataset->windows * seq),
                number - index % (dataset->mixed_blocks * dataset->block_windows), true);
}

size_t ash_dataset_count_targets(const struct ash_dataset *dataset, uint64_t step, uint64_t slot,
                                 uint64_t slots_per_step)
{
    size_t token = sample_token(dataset, step, slot, slots_per_step), targets = dataset->seq_tokens;

    for (size_t s = shard_at(dataset, token), left = dataset->seq_tokens, count; left > 0; left -= count, s++) {
        size_t first = token - dataset->starts[s], doc;

        count = ash_min(left, dataset->starts[s + 1] - token);
        doc = ash_shard_doc_at(dataset->shards[s], first + count - 1);
        targets -= doc - ash_shard_doc_at(dataset->shards[s], first);
        targets -= ash_shard_doc_end(dataset->shards[s], doc) == first + count; /* ends with the window or the shard */
        token += count;
    }
    return targets;
}

int ash_dataset_read(const struct ash_dataset *dataset, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                     struct ash_sample *sample, struct ash_err *err)
{
    size_t token = sample_token(dataset, step, slot, slots_per_step);
    size_t s = shard_at(dataset, token), first = 0, end = 0;
    int32_t next = -1;
    int rc;

    ash_assert(s < dataset->shard_count);
    sample->doc_count = 0;
    for (size_t row = 0, count; row < dataset->seq_tokens; row += count, s++) {
        size_t left = dataset->starts[s + 1] - token;

        first = token - dataset->starts[s];
        count = dataset->seq_tokens - row < left ? dataset->seq_tokens - row : left;
        rc = ash_shard_read(dataset->shards[s], first, count, sample->ids + row, err);
        if (rc < 0) return rc;
        end = cut_docs(dataset->shards[s], first, row, count, sample);
        token += count;
        first += count;
    }
    if (first < end) { /* the last document continues after the window */
        rc = ash_shard_read(dataset->shards[s - 1], first, 1, &next, err);
        if (rc < 0) return rc;
    }
    set_targets(sample, dataset->seq_tokens, next);
    return 0;
}

/* ---- as a source ------------------------------------------------------------------------------------------------- */

static int read_source(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                       struct ash_sample *sample, struct ash_err *err)
{
    return ash_dataset_read(ctx, step, slot, slots_per_step, sample, err);
}

static uint64_t count_source(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    return ash_dataset_count_targets(ctx, step, slot, slots_per_step);
}

static void want_source(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    ash_dataset_want(ctx, step, slot, slots_per_step);
}

static const struct ash_source_ops source_ops = {.read = read_source, .count = count_source},
                                   remote_ops = {.read = read_source, .count = count_source, .want = want_source};

struct ash_train_source ash_dataset_source(const struct ash_dataset *dataset)
{
    return (struct ash_train_source){.ops = ash_dataset_is_remote(dataset) ? &remote_ops : &source_ops,
                                     .ctx = dataset,
                                     .tokens = ash_dataset_tokens(dataset),
                                     .windows = ash_dataset_windows(dataset),
                                     .vocab_size = ash_dataset_vocab_size(dataset),
                                     .hash = ash_dataset_hash(dataset),
                                     .tokenizer_hash = ash_dataset_tokenizer_hash(dataset),
                                     .eos_id = ash_dataset_eos_id(dataset)};
}
