/* mix: documents of mapped shards, copied one by one. */
#include "train/data/mix.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "train/data/dataset_folder.h"
#include "train/data/tokenizer_files.h"

/* A source with its shards mapped. */
struct source {
    struct ash_mix_source *of;
    struct ash_data_manifest manifest;
    struct ash_shard **shards;
    uint64_t *firsts;       /* [shards + 1]: documents before each */
    uint64_t tokens, taken; /* tokens in all; documents taken so far */
};

struct mix {
    struct source *sources;
    size_t count;
    const struct ash_mix_opts *opts;
    const char *dir;
    json_t *key;
    struct ash_folder *folder;
    int32_t *ids; /* of the current document */
    size_t capacity;
};

/* ---- sources ----------------------------------------------------------------------------------------------------- */

static void close_source(struct source *source)
{
    for (size_t i = 0; source->shards != NULL && i < source->manifest.shard_count; i++)
        ash_shard_close(source->shards[i]);
    free(source->shards);
    free(source->firsts);
    ash_data_manifest_fini(&source->manifest);
}

static int open_source(struct source *source, struct ash_err *err)
{
    const char *dir = source->of->dir;
    int rc = ash_data_manifest_load(dir, &source->manifest, err);
    size_t count = source->manifest.shard_count;

    if (rc < 0) return rc;
    source->shards = calloc(count + 1, sizeof(struct ash_shard *));
    source->firsts = calloc(count + 1, sizeof(*source->firsts));
    if (source->shards == NULL || source->firsts == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", dir);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        char path[PATH_MAX];

        rc = ash_path_join(path, sizeof(path), dir, source->manifest.shards[i].file);
        if (rc == 0) rc = ash_shard_open(path, &source->shards[i], err);
        if (rc == 0) rc = ash_data_manifest_check(&source->manifest, i, source->shards[i], path, err);
        source->firsts[i + 1] = source->firsts[i] + source->manifest.shards[i].documents;
        source->tokens += source->manifest.shards[i].tokens;
    }
    if (rc == 0 && source->tokens == 0) rc = ash_err_set(err, -EINVAL, "%s: there are no documents", dir);
    return rc;
}

/* Document `number` of a source as ids in mix->ids; returns how many, or an error. */
static ssize_t read_document(struct mix *mix, const struct source *source, uint64_t number, struct ash_err *err)
{
    size_t shard = 0, document, first, count;
    int rc;

    while (source->firsts[shard + 1] <= number)
        shard++;
    document = (size_t)(number - source->firsts[shard]);
    ash_assert(shard < source->manifest.shard_count && document < source->manifest.shards[shard].documents);
    first = document > 0 ? ash_shard_doc_end(source->shards[shard], document - 1) : 0;
    count = ash_shard_doc_end(source->shards[shard], document) - first;
    if (ash_array_reserve(&mix->ids, &mix->capacity, count, sizeof(*mix->ids)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for a document of %zu tokens", count);
    rc = ash_shard_read(source->shards[shard], first, count, mix->ids, err);
    return rc < 0 ? rc : (ssize_t)count;
}

/* ---- the mixture ------------------------------------------------------------------------------------------------- */

/* The source that is furthest behind its weight; of several, the first. */
static struct source *next_source(struct mix *mix)
{
    struct source *best = &mix->sources[0];

    for (size_t i = 1; i < mix->count; i++) {
        struct source *source = &mix->sources[i];

        if ((double)source->of->tokens / source->of->weight < (double)best->of->tokens / best->of->weight)
            best = source;
    }
    return best;
}

static int copy_documents(struct mix *mix, struct ash_err *err)
{
    uint64_t written = 0, wanted = mix->opts->tokens;

    for (;;) {
        struct source *source = next_source(mix);
        uint64_t documents = source->firsts[source->manifest.shard_count], epoch = source->taken / documents;
        uint64_t stream = (uint64_t)(source - mix->sources) + ASH_MIX_SOURCES_MAX * epoch;
        ssize_t count;
        int rc;

        if (wanted > 0 ? written >= wanted : epoch > 0) return 0;
        count = read_document(mix, source,
                              ash_rng_permute(mix->opts->seed, stream, source->taken % documents, documents), err);
        if (count < 0) return ash_err_prefix(err, (int)count, "%s", source->of->dir);
        rc = ash_folder_add(mix->folder, mix->ids, (size_t)count, err);
        if (rc < 0) return rc;
        source->taken++;
        source->of->tokens += (uint64_t)count;
        written += (uint64_t)count;
    }
}

static json_t *describe(const struct mix *mix)
{
    json_t *list = json_array();

    for (size_t i = 0; i < mix->count; i++) {
        const struct source *source = &mix->sources[i];
        json_t *shards = ash_data_manifest_shards_json(&source->manifest);

        json_array_append_new(
            list, json_pack("{s:s, s:f, s:o}", "dir", source->of->dir, "weight", source->of->weight, "shards", shards));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:o}", "kind", "mix", "seed", (json_int_t)mix->opts->seed, "tokens",
                     (json_int_t)mix->opts->tokens, "shard_tokens", (json_int_t)mix->opts->shard_tokens, "sources",
                     list);
}

static int open_all(struct mix *mix, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < mix->count; i++) {
        struct source *source = &mix->sources[i];

        rc = open_source(source, err);
        if (rc == 0 && source->manifest.tokenizer_hash != mix->sources[0].manifest.tokenizer_hash)
            rc = ash_err_set(err, -EINVAL, "'%s' and '%s' were made with different tokenizers", mix->sources[0].of->dir,
                             source->of->dir);
    }
    if (rc == 0 && (mix->key = describe(mix)) == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory");
    return rc;
}

/* Claim the folder: 1 if it is complete already. */
static int claim(struct mix *mix, struct ash_err *err)
{
    json_t *state = NULL;
    int rc = ash_folder_open(mix->dir, &mix->folder, err);

    if (rc == 0) rc = ash_folder_claim(mix->folder, mix->key, mix->opts->overwrite, &state, err);
    json_decref(state);
    if (rc <= 0) return rc;
    if (ash_folder_is_complete(mix->folder)) return 1;
    state = NULL;
    rc = ash_folder_claim(mix->folder, mix->key, true, &state, err); /* begun and not finished: from the start */
    json_decref(state);
    return rc;
}

static int write_all(struct mix *mix, struct ash_err *err)
{
    const struct ash_data_manifest *first = &mix->sources[0].manifest;
    int rc = claim(mix, err);

    if (rc != 0) return rc;
    rc = ash_folder_begin(mix->folder,
                          &(struct ash_folder_opts){.vocab_size = first->vocab_size,
                                                    .tokenizer_hash = first->tokenizer_hash,
                                                    .description = NULL,
                                                    .eos_id = first->eos_id,
                                                    .shard_tokens = mix->opts->shard_tokens},
                          err);
    if (rc >= 0) rc = copy_documents(mix, err);
    if (rc >= 0) rc = ash_tokenizer_files_copy(mix->sources[0].of->dir, mix->dir, NULL, err);
    if (rc >= 0) rc = ash_folder_finish(mix->folder, mix->key, err);
    return rc < 0 ? rc : 0;
}

int ash_mix_write(struct ash_mix_source *sources, size_t count, const struct ash_mix_opts *opts, const char *dir,
                  struct ash_err *err)
{
    struct mix mix = {.count = count, .opts = opts, .dir = dir};
    int rc = 0;

    ash_assert(count > 0 && count <= ASH_MIX_SOURCES_MAX && opts->shard_tokens > 0);
    mix.sources = calloc(count, sizeof(*mix.sources));
    if (mix.sources == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        ash_assert(sources[i].weight > 0);
        sources[i].tokens = 0;
        mix.sources[i].of = &sources[i];
    }
    rc = open_all(&mix, err);
    if (rc == 0) rc = write_all(&mix, err);
    for (size_t i = 0; i < count; i++) {
        sources[i].epochs = mix.sources[i].tokens > 0 ? (double)sources[i].tokens / (double)mix.sources[i].tokens : 0.0;
        close_source(&mix.sources[i]);
    }
    ash_folder_close(mix.folder);
    json_decref(mix.key);
    free(mix.ids);
    free(mix.sources);
    return rc;
}
