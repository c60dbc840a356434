/* Arithmetic problems as a data folder. It takes seconds, so an interrupted run starts over; a finished one is
 * recognised. */
#include "train/data/arithmetic.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/dataset_folder.h"

#define STREAM_MISTAKES 0x6d697374616b65u /* which answers are wrong, and how */
#define STREAM_DIGITS 0x64696769747332u   /* of which digits of them are others */

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
    size_t vocab_size;
    uint64_t tokenizer_hash;
};

static int write_file(const char *dir, const char *name, const char *text, struct ash_err *err)
{
    char path[PATH_MAX];

    if (ash_path_join(path, sizeof(path), dir, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    return ash_file_replace(path, text, strlen(text), err);
}

static int read_alphabet(struct alphabet *alphabet, struct ash_err *err)
{
    const char *json = ash_arithmetic_tokenizer();
    struct ash_tokenizer *tokenizer = NULL;
    int rc = ash_tokenizer_parse(json, strlen(json), "the arithmetic tokenizer", &tokenizer, err);

    if (rc < 0) return rc;
    for (int c = 0; c < 128; c++)
        alphabet->ids[c] = ash_tokenizer_id(tokenizer, (char[]){(char)c, '\0'});
    alphabet->eos = ash_tokenizer_id(tokenizer, ASH_ARITHMETIC_EOS);
    alphabet->vocab_size = ash_tokenizer_vocab_size(tokenizer);
    alphabet->tokenizer_hash = ash_tokenizer_hash(tokenizer);
    ash_tokenizer_close(tokenizer);
    return 0;
}

static json_t *describe(const struct ash_arithmetic *arithmetic, uint64_t count, size_t shard_tokens)
{
    static const char *const splits[] = {"train", "valid", "all"};
    static const char *const sizes[] = {"digits", "values"};
    char ops[ASH_ARITHMETIC_OPS_MAX + 1] = {0};

    memcpy(ops, arithmetic->ops, (size_t)arithmetic->op_count);
    json_t *json = json_pack(
        "{s:s, s:I, s:I, s:s, s:i, s:i, s:i, s:s, s:b, s:s, s:I}", "kind", "arithmetic", "count", (json_int_t)count,
        "seed", (json_int_t)arithmetic->seed, "ops", ops, "min_digits", arithmetic->min_digits, "max_digits",
        arithmetic->max_digits, "mul_digits", arithmetic->mul_digits, "sizes", sizes[arithmetic->sizes], "negative",
        (int)arithmetic->negative, "split", splits[arithmetic->split], "shard_tokens", (json_int_t)shard_tokens);

    if (json != NULL && arithmetic->mistakes > 0) {
        json_object_set_new(json, "mistakes", json_real(arithmetic->mistakes));
        json_object_set_new(json, "mistakes_kind", json_string("carries (3 of 4), digits"));
    }
    if (json != NULL && arithmetic->work) json_object_set_new(json, "work", json_true());
    return json;
}

/* a + b or a - b with every digit on its own: nothing is carried or borrowed, as children begin. */
static int64_t without_carry(int64_t a, char op, int64_t b)
{
    int64_t large = a > b ? a : b, small = a > b ? b : a, value = 0;

    for (int64_t unit = 1; large / unit > 0; unit *= 10) {
        int64_t x = large / unit % 10, y = small / unit % 10;

        value += unit * (op == '+' ? (x + y) % 10 : (x + 10 - y) % 10);
    }
    return op == '-' && a < b ? -value : value;
}

/* Another digit in one place of a number's text; no number begins with a zero that it did not have. */
static void change_digit(const struct ash_arithmetic *arithmetic, uint64_t index, char *text)
{
    size_t sign = text[0] == '-', digits = strlen(text) - sign;
    size_t place = ash_rng_below(arithmetic->seed, STREAM_DIGITS, 2 * index, (uint64_t)digits);
    uint64_t lowest = place == 0 && digits > 1; /* 1 to 9 there, 0 to 9 elsewhere */
    uint64_t value = lowest + ash_rng_below(arithmetic->seed, STREAM_DIGITS, 2 * index + 1, 9 - lowest);
    char *digit = &text[sign + place];

    ash_assert(digits > 0);
    *digit = (char)('0' + value + (value >= (uint64_t)(*digit - '0')));
}

/* A wrong answer to problem index, if it gets one: three in four drop the carry or borrow, if there is one; the others
 * change a digit. With three in four wrong, the forgotten carry is more than twice as frequent as the right answer. A
 * model trained on them gets sums without carries right, and samples right answers to the others often enough to learn
 * from rewards. */
static void spoil(const struct ash_arithmetic *arithmetic, uint64_t index, struct ash_problem *problem)
{
    bool forgets = ash_rng_below(arithmetic->seed, STREAM_MISTAKES, 2 * index + 1, 4) > 0;
    long long a = 0, b = 0, value = 0, wrong;
    char op = 0;

    if (ash_rng_uniform(arithmetic->seed, STREAM_MISTAKES, 2 * index) >= arithmetic->mistakes) return;
    if (sscanf(problem->prompt, "%lld%c%lld", &a, &op, &b) != 3) return;
    if (sscanf(problem->answer, "%lld", &value) != 1) return;
    wrong = forgets && op != '*' ? without_carry(a, op, b) : value;
    if (wrong == value)
        change_digit(arithmetic, index, problem->answer);
    else
        snprintf(problem->answer, sizeof(problem->answer), "%lld", wrong);
}

static int add_problem(struct ash_folder *folder, const struct ash_arithmetic *arithmetic,
                       const struct alphabet *alphabet, uint64_t index, struct ash_err *err)
{
    int32_t ids[ASH_ARITHMETIC_TEXT_BYTES + ASH_ARITHMETIC_ANSWER_MAX];
    struct ash_problem problem;
    size_t count = 0;

    ash_arithmetic_problem(arithmetic, index, &problem);
    spoil(arithmetic, index, &problem);
    for (const char *c = problem.prompt; *c != '\0'; c++)
        ids[count++] = alphabet->ids[(unsigned char)*c];
    for (const char *c = problem.work; *c != '\0'; c++)
        ids[count++] = alphabet->ids[(unsigned char)*c];
    for (const char *c = problem.answer; *c != '\0'; c++)
        ids[count++] = alphabet->ids[(unsigned char)*c];
    ash_assert(count < ASH_COUNT(ids));
    ids[count++] = alphabet->eos;
    return ash_folder_add(folder, ids, count, err);
}

/* The folder that is being written. */
struct job {
    const struct ash_arithmetic *arithmetic;
    const char *dir;
    uint64_t count;
    size_t shard_tokens;
    struct alphabet alphabet;
    json_t *source; /* describes all of the above */
    struct ash_folder *folder;
};

static int fill(const struct job *job, struct ash_err *err)
{
    const struct alphabet *alphabet = &job->alphabet;
    char *description = json_dumps(job->source, JSON_COMPACT);
    int rc;

    if (description == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", job->dir);
    rc = ash_folder_begin(job->folder,
                          &(struct ash_folder_opts){.vocab_size = alphabet->vocab_size,
                                                    .tokenizer_hash = alphabet->tokenizer_hash,
                                                    .eos_id = alphabet->eos,
                                                    .shard_tokens = job->shard_tokens,
                                                    .description = description},
                          err);
    free(description);
    for (uint64_t i = 0; rc >= 0 && i < job->count; i++)
        rc = add_problem(job->folder, job->arithmetic, alphabet, i, err);
    if (rc >= 0) rc = write_file(job->dir, "tokenizer.json", ash_arithmetic_tokenizer(), err);
    if (rc >= 0) rc = write_file(job->dir, "tokenizer_config.json", tokenizer_config, err);
    if (rc >= 0) rc = ash_folder_finish(job->folder, job->source, err);
    return rc;
}

/* 1: the folder is complete already. 0: it is empty now, and ours. */
static int claim(const struct job *job, bool overwrite, struct ash_err *err)
{
    const struct ash_data_manifest *manifest = ash_folder_manifest(job->folder);
    json_t *state = NULL;
    int rc = ash_folder_claim(job->folder, job->source, overwrite, &state, err);

    json_decref(state);
    if (rc <= 0) return rc;
    if (ash_folder_is_complete(job->folder) && manifest->tokenizer_hash == job->alphabet.tokenizer_hash &&
        ash_data_manifest_check_all(manifest, job->dir, NULL) == 0)
        return 1;
    return ash_folder_claim(job->folder, job->source, true, &state, err);
}

int ash_arithmetic_write(const struct ash_arithmetic *arithmetic, const char *dir, uint64_t count, size_t shard_tokens,
                         bool overwrite, struct ash_err *err)
{
    struct job job = {.arithmetic = arithmetic, .dir = dir, .count = count, .shard_tokens = shard_tokens};
    int rc;

    if (count == 0 || shard_tokens == 0)
        return ash_err_set(err, -EINVAL, "%s: the number of problems and the tokens of a shard must be above zero",
                           dir);
    rc = read_alphabet(&job.alphabet, err);
    if (rc < 0) return rc;
    job.source = describe(arithmetic, count, shard_tokens);
    if (job.source == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", dir);
    rc = ash_folder_open(dir, &job.folder, err);
    if (rc == 0) rc = claim(&job, overwrite, err);
    if (rc == 0) rc = fill(&job, err);
    ash_folder_close(job.folder);
    json_decref(job.source);
    return rc;
}
