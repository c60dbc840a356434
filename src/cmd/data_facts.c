/* Facts of a folder of token shards: gathered once as JSON, which --json prints and the text is made from. */
#include "cmd/data_priv.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cmd/units.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/dataset_folder.h"

#define SHOWN_PATHS 3

static uint64_t file_bytes(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    if (ash_path_join(path, sizeof(path), dir, name) < 0 || stat(path, &st) < 0) return 0;
    return (uint64_t)st.st_size;
}

/* [{"file": ..., "tokens": ..., "documents": ..., "hash": ..., "bytes": ...}, ...], and their sums in facts. */
static json_t *shard_facts(const char *dir, const struct ash_data_manifest *manifest, json_t *facts)
{
    json_t *list = ash_data_manifest_shards_json(manifest), *shard;
    uint64_t tokens = 0, documents = 0, total_bytes = 0;
    size_t i;

    json_array_foreach(list, i, shard) {
        uint64_t bytes = file_bytes(dir, manifest->shards[i].file);

        json_object_set_new(shard, "bytes", json_integer((json_int_t)bytes));
        tokens += manifest->shards[i].tokens;
        documents += manifest->shards[i].documents;
        total_bytes += bytes;
    }
    json_object_set_new(facts, "tokens", json_integer((json_int_t)tokens));
    json_object_set_new(facts, "documents", json_integer((json_int_t)documents));
    json_object_set_new(facts, "bytes", json_integer((json_int_t)total_bytes));
    return list;
}

/* The content of the end token, by the folder's tokenizer; null if there is none. */
static json_t *eos_text(const char *dir, int32_t eos_id)
{
    struct ash_tokenizer *tokenizer = NULL;
    const char *content = NULL;
    json_t *text;

    if (eos_id >= 0 && ash_tokenizer_open(dir, &tokenizer, NULL) == 0)
        content = ash_tokenizer_content(tokenizer, eos_id);
    text = content != NULL ? json_string(content) : json_null();
    ash_tokenizer_close(tokenizer);
    return text;
}

json_t *ash_cmd_data_facts(const char *dir, const struct ash_data_manifest *manifest)
{
    json_t *facts = json_object(), *shards = shard_facts(dir, manifest, facts);
    char hash[24];

    snprintf(hash, sizeof(hash), "%016" PRIx64, manifest->tokenizer_hash);
    json_object_set_new(facts, "folder", json_string(dir));
    json_object_set_new(facts, "vocab_size", json_integer((json_int_t)manifest->vocab_size));
    json_object_set_new(facts, "eos_token_id", manifest->eos_id < 0 ? json_null() : json_integer(manifest->eos_id));
    json_object_set_new(facts, "eos_token", eos_text(dir, manifest->eos_id));
    json_object_set_new(facts, "tokenizer_hash", json_string(hash));
    json_object_set_new(facts, "shards", shards);
    if (manifest->source != NULL) json_object_set(facts, "source", manifest->source);
    return facts;
}

/* ---- in words ---------------------------------------------------------------------------------------------------- */

static json_int_t number(const json_t *facts, const char *key)
{
    return json_integer_value(json_object_get(facts, key));
}

static const char *plural(json_int_t count)
{
    return count == 1 ? "" : "s";
}

void ash_cmd_data_print_summary(const json_t *facts)
{
    json_int_t tokens = number(facts, "tokens"), documents = number(facts, "documents");
    size_t shards = json_array_size(json_object_get(facts, "shards"));

    printf("%s: %lld token%s in %lld document%s, %zu shard%s, vocabulary of %lld\n",
           json_string_value(json_object_get(facts, "folder")), (long long)tokens, plural(tokens), (long long)documents,
           plural(documents), shards, plural((json_int_t)shards), (long long)number(facts, "vocab_size"));
}

/* "3 files, 1.20 MB: a.txt, b.txt, c.txt"; what generated data was made from is its settings. */
static void print_source(const json_t *source)
{
    const json_t *inputs = json_object_get(source, "inputs"), *paths = json_object_get(source, "paths");
    json_int_t files = number(inputs, "files");
    char text[32];
    size_t i;
    json_t *path;

    if (inputs == NULL) {
        char *settings = json_dumps(source, JSON_COMPACT);

        printf("  made from    %s\n", settings != NULL ? settings : "");
        free(settings);
        return;
    }
    printf("  made from    %lld file%s, %s", (long long)files, plural(files),
           ash_units_bytes((size_t)number(inputs, "bytes"), text, sizeof(text)));
    json_array_foreach(paths, i, path) {
        if (i == SHOWN_PATHS) break;
        printf("%s%s", i == 0 ? ": " : ", ", json_string_value(path));
    }
    puts(files > SHOWN_PATHS ? ", ..." : "");
    printf("  left out     %lld without a token, %lld broken\n", (long long)number(source, "empty"),
           (long long)number(source, "skipped"));
}

void ash_cmd_data_print_details(const json_t *facts)
{
    const json_t *eos = json_object_get(facts, "eos_token"), *source = json_object_get(facts, "source");
    json_int_t tokens = number(facts, "tokens"), documents = number(facts, "documents");
    char text[32];

    if (json_is_null(json_object_get(facts, "eos_token_id")))
        printf("  end token    none\n");
    else
        printf("  end token    %s (%lld)\n", json_is_string(eos) ? json_string_value(eos) : "?",
               (long long)number(facts, "eos_token_id"));
    printf("  documents    %.1f tokens each on average\n", documents > 0 ? (double)tokens / (double)documents : 0.0);
    printf("  on disk      %s\n", ash_units_bytes((size_t)number(facts, "bytes"), text, sizeof(text)));
    printf("  tokenizer    %s\n", json_string_value(json_object_get(facts, "tokenizer_hash")));
    if (json_is_object(source)) print_source(source);
}
