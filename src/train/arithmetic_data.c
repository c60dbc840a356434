/* Arithmetic problems as a data folder. It takes seconds, so an interrupted run starts anew; a finished one is recognised. */
#include "train/arithmetic.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/tokenizer.h"
#include "train/dataset.h"
#include "train/dataset_folder.h"

static const char tokenizer_config[] = "{\n"
                                       "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                                       "  \"eos_token\": \"" ASH_ARITHMETIC_EOS "\",\n"
                                       "  \"pad_token\": \"<pad>\",\n"
                                       "  \"clean_up_tokenization_spaces\": false\n"
                                       "}\n";

/* The ids of the characters of a problem; every other character has -1. */
struct alphabet {
    int32_t ids[128];
    int32_t eos;
};

static int write_file(const char *dir, const char *name, const char *text, struct ash_err *err)
{
    char path[PATH_MAX];

    if (ash_path_join(path, sizeof(path), dir, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    return ash_file_replace(path, text, strlen(text), err);
}

static int read_alphabet(struct alphabet *alphabet, struct ash_manifest *manifest, struct ash_err *err)
{
    const char *json = ash_arithmetic_tokenizer();
    struct ash_tokenizer *tokenizer = NULL;
    int rc = ash_tokenizer_parse(json, strlen(json), "the arithmetic tokenizer", &tokenizer, err);

    if (rc < 0) return rc;
    for (int c = 0; c < 128; c++)
        alphabet->ids[c] = ash_tokenizer_id(tokenizer, (char[]){(char)c, '\0'});
    alphabet->eos = ash_tokenizer_id(tokenizer, ASH_ARITHMETIC_EOS);
    manifest->vocab_size = ash_tokenizer_vocab_size(tokenizer);
    manifest->tokenizer_hash = ash_tokenizer_hash(tokenizer);
    manifest->eos_id = alphabet->eos;
    ash_tokenizer_close(tokenizer);
    return 0;
}

static json_t *describe(const struct ash_arithmetic *arithmetic, uint64_t count, size_t shard_tokens)
{
    static const char *const splits[] = {"train", "valid", "all"};
    static const char *const sizes[] = {"digits", "values"};
    char ops[ASH_ARITHMETIC_OPS_MAX + 1] = {0};

    memcpy(ops, arithmetic->ops, (size_t)arithmetic->op_count);
    return json_pack("{s:s, s:I, s:I, s:s, s:i, s:i, s:i, s:s, s:b, s:s, s:I}", "kind", "arithmetic", "count", (json_int_t)count,
                     "seed", (json_int_t)arithmetic->seed, "ops", ops, "min_digits", arithmetic->min_digits, "max_digits",
                     arithmetic->max_digits, "mul_digits", arithmetic->mul_digits, "sizes", sizes[arithmetic->sizes], "negative",
                     (int)arithmetic->negative, "split", splits[arithmetic->split], "shard_tokens", (json_int_t)shard_tokens);
}

/* 1: dir holds exactly what source describes. 0: it holds no data, or none that counts. -EEXIST: it holds other data. */
static int look(const char *dir, const json_t *source, bool overwrite, struct ash_err *err)
{
    struct ash_manifest manifest = {0};
    struct ash_dataset *dataset = NULL;
    char state[PATH_MAX];
    bool same;
    int rc = ash_path_join(state, sizeof(state), dir, ASH_FOLDER_STATE);

    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", dir);
    if (overwrite) return 0;
    rc = ash_manifest_load(dir, &manifest, NULL);
    same = rc == 0 && json_equal(manifest.source, source);
    ash_manifest_fini(&manifest);
    if (same && ash_dataset_open(dir, 1, 0, &dataset, NULL) == 0) {
        ash_dataset_close(dataset);
        return 1;
    }
    if (same || (rc == -ENOENT && !ash_path_exists(state))) return 0;
    return ash_err_set(err, -EEXIST, "%s: it holds other data; choose another folder, or replace it with --overwrite", dir);
}

static int add_problem(struct ash_folder *folder, const struct ash_arithmetic *arithmetic, const struct alphabet *alphabet,
                       uint64_t index, struct ash_err *err)
{
    int32_t ids[2 * ASH_ARITHMETIC_TEXT_BYTES];
    struct ash_problem problem;
    size_t count = 0;

    ash_arithmetic_problem(arithmetic, index, &problem);
    for (const char *c = problem.prompt; *c != '\0'; c++)
        ids[count++] = alphabet->ids[(unsigned char)*c];
    for (const char *c = problem.answer; *c != '\0'; c++)
        ids[count++] = alphabet->ids[(unsigned char)*c];
    ids[count++] = alphabet->eos;
    return ash_folder_add(folder, ids, count, err);
}

static int fill(struct ash_folder *folder, const struct ash_arithmetic *arithmetic, const char *dir, uint64_t count,
                size_t shard_tokens, json_t *source, struct ash_err *err)
{
    struct ash_manifest manifest = {0};
    struct alphabet alphabet;
    char *description = NULL;
    int rc = read_alphabet(&alphabet, &manifest, err);

    if (rc < 0) return rc;
    rc = ash_folder_clear(folder, err);
    if (rc < 0) return rc;
    description = json_dumps(source, JSON_COMPACT);
    if (description == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", dir);
    rc = ash_folder_begin(folder, &manifest, shard_tokens, description, err);
    free(description);
    for (uint64_t i = 0; rc >= 0 && i < count; i++)
        rc = add_problem(folder, arithmetic, &alphabet, i, err);
    if (rc >= 0) rc = write_file(dir, "tokenizer.json", ash_arithmetic_tokenizer(), err);
    if (rc >= 0) rc = write_file(dir, "tokenizer_config.json", tokenizer_config, err);
    if (rc >= 0) rc = ash_folder_finish(folder, source, err);
    return rc;
}

int ash_arithmetic_write(const struct ash_arithmetic *arithmetic, const char *dir, uint64_t count, size_t shard_tokens,
                         bool overwrite, struct ash_err *err)
{
    struct ash_folder *folder = NULL;
    json_t *source;
    int rc;

    if (count == 0 || shard_tokens == 0)
        return ash_err_set(err, -EINVAL, "%s: the number of problems and the tokens of a shard must be above zero", dir);
    source = describe(arithmetic, count, shard_tokens);
    if (source == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", dir);
    rc = ash_folder_open(dir, &folder, err);
    if (rc == 0) rc = look(dir, source, overwrite, err);
    if (rc == 0) rc = fill(folder, arithmetic, dir, count, shard_tokens, source, err);
    ash_folder_close(folder);
    json_decref(source);
    return rc;
}
