/* train_tokenizer: words are cut by the tokenizer that is being made, before it has a merge; each thread has a
 * table. */
#include "train/data/train_tokenizer.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/math.h"
#include "base/workers.h"
#include "text/learn/bpe_learner.h"
#include "text/learn/tokenizer_form.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/tokenize_priv.h"

#define BATCH_BYTES_PER_THREAD ((size_t)1 << 20)
#define BATCH_BYTES_MIN ((size_t)2 << 20)
#define MERGES_PER_STEP ((size_t)16)
#define VOCAB_MAX 4194303.0 /* of ids that a tokenizer.json may use here */

static const char *const split_names[] = {"none", "blank-line", "line", NULL};
static const char *const format_names[] = {"auto", "text", "jsonl", "parquet", NULL};
static const char *const on_error_names[] = {"stop", "skip", NULL};

#define FIELD(name) offsetof(struct ash_train_tokenizer_opts, name)

static const struct ash_opt opts_list[] = {
    {"out", ASH_OPT_STRING, FIELD(out), NULL, "folder for tokenizer.json and tokenizer_config.json", 0, 0, NULL},
    {"vocab", ASH_OPT_INT, FIELD(vocab), "32000", "tokens, the 256 bytes and special tokens among them", 257, VOCAB_MAX,
     NULL},
    {"min_frequency", ASH_OPT_INT, FIELD(min_frequency), "2",
     "how often two neighbours must occur in the text to become one token", 1, 1e15, NULL},
    {"special", ASH_OPT_TEXTS, FIELD(special), NULL,
     "a token that text never becomes; may be repeated, the first ends a text; default: <|endoftext|>", 0, 0, NULL},
    {"pattern", ASH_OPT_CHOICE, FIELD(pattern), "llama3",
     "how text is cut into words, across which nothing merges: as the tokenizers of this family do", 0, 0,
     ash_learned_patterns},
    {"split", ASH_OPT_CHOICE, FIELD(split), "line",
     "what a document is in a text file: the whole file, a block between blank lines, or a line with its end", 0, 0,
     split_names},
    {"format", ASH_OPT_CHOICE, FIELD(format), "auto",
     "of the files: text, jsonl (a JSON object per line is a document) or parquet (a row is a document); auto: by the "
     "file's ending or beginning",
     0, 0, format_names},
    {"field", ASH_OPT_STRING, FIELD(field), "text", "jsonl: the key of the text; parquet: its column", 0, 0, NULL},
    {"max_document", ASH_OPT_INT, FIELD(max_document), "256mi",
     "bytes of the longest document that is accepted: it is held in memory", 1, 4294967296.0, NULL},
    {"threads", ASH_OPT_INT, FIELD(threads), "0", "threads; 0: one per core. The output does not depend on it", 0,
     ASH_WORKERS_MAX, NULL},
    {"on_error", ASH_OPT_CHOICE, FIELD(on_error), "stop",
     "at a document that is not UTF-8 or not JSON: stop, or skip and count it", 0, 0, on_error_names},
    {"overwrite", ASH_OPT_BOOL, FIELD(overwrite), "false", "replace the tokenizer that is in the folder", 0, 0, NULL},
};

const struct ash_opt_table ash_train_tokenizer_table = {"", "options", opts_list, ASH_COUNT(opts_list)};

/* What one thread counts. */
struct counter {
    struct ash_words words;
    uint64_t text_bytes, word_count;
    char padding[64]; /* counters of two threads share no cache line */
};

struct ash_train_tokenizer {
    struct ash_train_tokenizer_opts opts;
    struct ash_tokenizer_form form;
    struct ash_words reserved;
    struct ash_tokenizer *cutter;
    struct ash_workers *workers;
    struct ash_input *input;
    struct ash_input_batch batch;
    struct ash_encoder *encoder;
    struct counter *counters; /* one per thread */
    struct ash_bpe_learner *learner;
    size_t batch_bytes, distinct_words;
    uint64_t bytes_done, bytes_total, skipped, text_tokens;
    bool has_stream;
    struct ash_err first_skipped;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int set_form(struct ash_train_tokenizer *job, struct ash_err *err)
{
    static const char *const usual[] = {"<|endoftext|>"};
    const struct ash_opt_list *special = &job->opts.special;

    job->form = (struct ash_tokenizer_form){.pattern = (enum ash_learned_pattern)job->opts.pattern,
                                            .special = special->count > 0 ? special->items : usual,
                                            .special_count = special->count > 0 ? special->count : 1};
    if ((uint64_t)job->opts.vocab < ASH_BPE_BYTES + job->form.special_count)
        return ash_err_set(err, -EINVAL, "--vocab %" PRId64 " has no room for 256 bytes and %zu special tokens",
                           job->opts.vocab, job->form.special_count);
    return ash_tokenizer_form_check(&job->form, &job->reserved, err);
}

static int check_out(const struct ash_train_tokenizer *job, struct ash_err *err)
{
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), job->opts.out, "tokenizer.json");

    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", job->opts.out);
    if (!job->opts.overwrite && ash_path_exists(path))
        return ash_err_set(err, -EEXIST, "%s: it exists; choose another folder, or give --overwrite", path);
    return ash_dir_make(job->opts.out, err);
}

/* Learn from words, until vocab is full: none at all gives the tokenizer that cuts. */
static int open_learner(const struct ash_train_tokenizer *job, const struct ash_words *words,
                        struct ash_bpe_learner **learner_out, struct ash_err *err)
{
    return ash_bpe_learner_open(
        words,
        &(struct ash_bpe_learner_opts){.tokens_max = (size_t)job->opts.vocab - job->form.special_count,
                                       .min_frequency = (uint64_t)job->opts.min_frequency,
                                       .reserved = &job->reserved},
        learner_out, err);
}

static int open_cutter(struct ash_train_tokenizer *job, struct ash_err *err)
{
    struct ash_bpe_learner *bytes = NULL;
    struct ash_str text = {0};
    json_t *json = NULL;
    int rc = open_learner(job, &(struct ash_words){0}, &bytes, err);

    if (rc == 0) {
        json = ash_tokenizer_form_json(&job->form, bytes);
        if (json == NULL || ash_json_add_text(json, &text) < 0) rc = ash_err_set(err, -ENOMEM, "out of memory");
    }
    if (rc == 0) rc = ash_tokenizer_parse(text.data, text.size_bytes, "tokenizer", &job->cutter, err);
    json_decref(json);
    ash_str_fini(&text);
    ash_bpe_learner_close(bytes);
    return rc;
}

static int open_input(struct ash_train_tokenizer *job, const char *const *paths, size_t count, struct ash_err *err)
{
    const struct ash_input_opts opts = {.format = (enum ash_tokenize_format)job->opts.format,
                                        .split = (enum ash_tokenize_split)job->opts.split,
                                        .field = job->opts.field,
                                        .document_bytes_max = (size_t)job->opts.max_document,
                                        .keeps_line_ends = true};
    int rc = ash_input_open(paths, count, &opts, &job->input, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < ash_input_file_count(job->input); i++) {
        const struct ash_input_file *file = ash_input_file_at(job->input, i);

        job->bytes_total += file->size_bytes;
        job->has_stream = job->has_stream || file->is_stream;
    }
    if (job->bytes_total == 0 && !job->has_stream)
        return ash_err_set(err, -EINVAL, "%s: there is no text in the input", paths[0]);
    return 0;
}

static int count_word(void *ctx, const char *bytes, size_t size_bytes)
{
    struct counter *counter = ctx;

    counter->word_count++;
    return ash_words_add(&counter->words, bytes, size_bytes, 1) < 0 ? -ENOMEM : 0;
}

/* ash_encoder_text_fn */
static int count_text(void *ctx, int worker, const char *text, size_t size_bytes, struct ash_err *err)
{
    struct ash_train_tokenizer *job = ctx;
    struct counter *counter = &job->counters[worker];

    counter->text_bytes += size_bytes;
    return ash_tokenizer_cut(job->cutter, text, size_bytes, count_word, counter, err);
}

static int open_tools(struct ash_train_tokenizer *job, struct ash_err *err)
{
    size_t threads;
    int rc = ash_workers_open((int)job->opts.threads, &job->workers, err);

    if (rc < 0) return rc;
    threads = (size_t)ash_workers_count(job->workers);
    job->batch_bytes = ash_max(threads * BATCH_BYTES_PER_THREAD, BATCH_BYTES_MIN);
    job->counters = calloc(threads, sizeof(*job->counters));
    if (job->counters == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = open_cutter(job, err);
    if (rc < 0) return rc;
    return ash_encoder_open(&(struct ash_encoder_opts){.workers = job->workers,
                                                       .field = job->opts.field,
                                                       .eos_id = -1,
                                                       .skip = job->opts.on_error == ASH_ON_ERROR_SKIP,
                                                       .text = count_text,
                                                       .text_ctx = job},
                            &job->encoder, err);
}

int ash_train_tokenizer_open(const struct ash_train_tokenizer_opts *opts, const char *const *paths, size_t count,
                             struct ash_train_tokenizer **job_out, struct ash_err *err)
{
    struct ash_train_tokenizer *job = calloc(1, sizeof(*job));
    int rc;

    if (job == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    job->opts = *opts;
    rc = set_form(job, err);
    if (rc == 0) rc = open_input(job, paths, count, err);
    if (rc == 0) rc = check_out(job, err);
    if (rc == 0) rc = open_tools(job, err);
    if (rc < 0) {
        ash_train_tokenizer_close(job);
        return rc;
    }
    *job_out = job;
    return 0;
}

void ash_train_tokenizer_close(struct ash_train_tokenizer *job)
{
    if (job == NULL) return;
    for (size_t i = 0; job->counters != NULL && i < (size_t)ash_workers_count(job->workers); i++)
        ash_words_fini(&job->counters[i].words);
    free(job->counters);
    ash_bpe_learner_close(job->learner);
    ash_encoder_close(job->encoder);
    ash_input_batch_fini(&job->batch);
    ash_input_close(job->input);
    ash_workers_close(job->workers);
    ash_tokenizer_close(job->cutter);
    ash_words_fini(&job->reserved);
    free(job);
}

/* ---- the work ---------------------------------------------------------------------------------------------------- */

static int count_batch(struct ash_train_tokenizer *job, struct ash_err *err)
{
    struct ash_err skipped = {0};
    int rc = ash_encoder_run(job->encoder, job->input, &job->batch, &skipped);

    if (rc < 0) {
        if (err != NULL) *err = skipped;
        return rc;
    }
    if (skipped.code != 0 && job->first_skipped.code == 0) job->first_skipped = skipped;
    for (size_t d = 0; d < job->batch.count; d++)
        job->skipped += ash_encoder_doc(job->encoder, d).state == ASH_ENCODED_BAD;
    job->bytes_done = ash_input_done_bytes(job->input, &job->batch.docs[job->batch.count - 1].next);
    return 1;
}

/* All words are counted: one table, and the pairs in it. */
static int begin_learning(struct ash_train_tokenizer *job, struct ash_err *err)
{
    struct ash_words *all = &job->counters[0].words;
    int rc;

    for (size_t i = 1; i < (size_t)ash_workers_count(job->workers); i++) {
        if (ash_words_merge(all, &job->counters[i].words) < 0)
            return ash_err_set(err, -ENOMEM, "out of memory for the words of the input");
        ash_words_fini(&job->counters[i].words);
    }
    if (all->count == 0)
        return ash_err_set(err, -EINVAL, "there is no text in the input (%" PRIu64 " documents skipped)", job->skipped);
    job->distinct_words = all->count;
    rc = open_learner(job, all, &job->learner, err);
    ash_words_fini(all);
    return rc < 0 ? rc : 1;
}

static int save(const struct ash_train_tokenizer *job, const char *name, json_t *json, struct ash_err *err)
{
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), job->opts.out, name);

    if (rc == 0 && json == NULL) rc = -ENOMEM;
    rc = rc < 0 ? ash_err_set(err, rc, "cannot write %s", name) : ash_json_save(path, json, err);
    json_decref(json);
    return rc;
}

/* tokenizer.json comes last: where it is, the other one is too. */
static int finish(struct ash_train_tokenizer *job, struct ash_err *err)
{
    int rc = save(job, "tokenizer_config.json", ash_tokenizer_form_config(&job->form), err);

    job->text_tokens = ash_bpe_learner_text_tokens(job->learner);
    return rc < 0 ? rc : save(job, "tokenizer.json", ash_tokenizer_form_json(&job->form, job->learner), err);
}

int ash_train_tokenizer_step(struct ash_train_tokenizer *job, struct ash_err *err)
{
    int rc;

    if (job->learner == NULL) {
        rc = ash_input_next(job->input, job->batch_bytes, &job->batch, err);
        if (rc < 0) return rc;
        return rc > 0 ? count_batch(job, err) : begin_learning(job, err);
    }
    rc = ash_bpe_learner_step(job->learner, MERGES_PER_STEP, err);
    return rc != 0 ? rc : finish(job, err);
}

void ash_train_tokenizer_get_status(const struct ash_train_tokenizer *job,
                                    struct ash_train_tokenizer_status *status_out)
{
    struct ash_train_tokenizer_status status = {.bytes_done = job->bytes_done,
                                                .bytes_total = job->bytes_total,
                                                .has_stream = job->has_stream,
                                                .distinct_words = job->distinct_words,
                                                .tokens_max = (size_t)job->opts.vocab,
                                                .text_tokens = job->text_tokens,
                                                .skipped = job->skipped};

    for (size_t i = 0; i < (size_t)ash_workers_count(job->workers); i++) {
        status.text_bytes += job->counters[i].text_bytes;
        status.words += job->counters[i].word_count;
    }
    if (job->learner != NULL) status.tokens = ash_bpe_learner_tokens(job->learner)->count + job->form.special_count;
    if (job->first_skipped.code != 0) status.first_skipped = job->first_skipped.text;
    *status_out = status;
}
