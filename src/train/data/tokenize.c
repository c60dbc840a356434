/* The tokenizing run: read a batch of documents, encode it on all threads, write it in order; after each shard note
 * where the next one begins. A run is a loop over step, so that the caller can show progress and stop between two
 * steps. */
#include "train/data/tokenize.h"
#include "train/data/tokenize_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/workers.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/dataset_folder.h"
#include "train/data/tokenize_eos.h"
#include "train/data/tokenizer_files.h"

#define BATCH_BYTES_PER_THREAD ((size_t)1 << 20)
#define BATCH_BYTES_MIN ((size_t)2 << 20)
#define LISTED_FILES_MAX 1000

static const char *const split_names[] = {"none", "blank-line", "line", NULL};
static const char *const format_names[] = {"auto", "text", "jsonl", "parquet", NULL};
static const char *const on_error_names[] = {"stop", "skip", NULL};

static const struct ash_opt opts_list[] = {
    {"tokenizer", ASH_OPT_STRING, offsetof(struct ash_tokenize_opts, tokenizer), NULL,
     "folder with a tokenizer.json (a model's folder will do), or the file itself", 0, 0, NULL},
    {"out", ASH_OPT_STRING, offsetof(struct ash_tokenize_opts, out), NULL,
     "folder for the shards, or s3://bucket/prefix; the same command again continues where it stopped", 0, 0, NULL},
    {"split", ASH_OPT_CHOICE, offsetof(struct ash_tokenize_opts, split), "none",
     "what a document is in a text file: the whole file, a block between blank lines, or a line", 0, 0, split_names},
    {"format", ASH_OPT_CHOICE, offsetof(struct ash_tokenize_opts, format), "auto",
     "of the files: text, jsonl (a JSON object per line is a document) or parquet (a row is a document); auto: by the "
     "file's ending or beginning",
     0, 0, format_names},
    {"field", ASH_OPT_STRING, offsetof(struct ash_tokenize_opts, field), "text",
     "jsonl: the key of the text; parquet: its column", 0, 0, NULL},
    {"eos", ASH_OPT_STRING, offsetof(struct ash_tokenize_opts, eos), "auto",
     "token after each document: its content, none, or auto (what the tokenizer's folder names, else <|endoftext|>, "
     "</s>)",
     0, 0, NULL},
    {"add_special", ASH_OPT_BOOL, offsetof(struct ash_tokenize_opts, add_special), "false",
     "add what the tokenizer puts around a text (a beginning-of-text token)", 0, 0, NULL},
    {"shard_tokens", ASH_OPT_INT, offsetof(struct ash_tokenize_opts, shard_tokens), "100m",
     "tokens per shard; a document is never cut, so a shard may be longer", 1, 1e12, NULL},
    {"max_document", ASH_OPT_INT, offsetof(struct ash_tokenize_opts, max_document), "256mi",
     "bytes of the longest document that is accepted: it is held in memory", 1, 4294967296.0, NULL},
    {"threads", ASH_OPT_INT, offsetof(struct ash_tokenize_opts, threads), "0",
     "threads; 0: one per core. The output does not depend on it", 0, ASH_WORKERS_MAX, NULL},
    {"on_error", ASH_OPT_CHOICE, offsetof(struct ash_tokenize_opts, on_error), "stop",
     "at a document that is not UTF-8 or not JSON: stop, or skip and count it", 0, 0, on_error_names},
    {"overwrite", ASH_OPT_BOOL, offsetof(struct ash_tokenize_opts, overwrite), "false",
     "replace the data that is in the folder", 0, 0, NULL},
};

const struct ash_opt_table ash_tokenize_table = {"", "options", opts_list, ASH_COUNT(opts_list)};

struct ash_tokenize {
    struct ash_tokenize_opts opts;
    struct ash_tokenizer *tokenizer;
    char tokenizer_dir[PATH_MAX];
    struct ash_workers *workers;
    struct ash_input *input;
    struct ash_input_batch batch;
    struct ash_encoder *encoder;
    struct ash_folder *folder;
    json_t *key;
    size_t batch_bytes;
    struct ash_input_pos pos; /* after the last document that was added */
    struct ash_tokenize_status status;
    struct ash_err first_skipped;
    bool done;
};

static int open_tools(struct ash_tokenize *job, struct ash_err *err)
{
    const struct ash_tokenize_opts *opts = &job->opts;
    size_t threads_bytes;
    int rc = ash_tokenizer_open(opts->tokenizer, &job->tokenizer, err);

    if (rc < 0) return rc;
    rc = ash_tokenizer_files_dir(opts->tokenizer, job->tokenizer_dir, err);
    if (rc < 0) return rc;
    rc = ash_tokenizer_find_eos(job->tokenizer_dir, job->tokenizer, opts->eos, &job->status.eos_id, err);
    if (rc < 0) return rc;
    if (job->status.eos_id >= 0) job->status.eos = ash_tokenizer_content(job->tokenizer, job->status.eos_id);
    rc = ash_workers_open((int)opts->threads, &job->workers, err);
    if (rc < 0) return rc;
    threads_bytes = (size_t)ash_workers_count(job->workers) * BATCH_BYTES_PER_THREAD;
    job->batch_bytes = threads_bytes > BATCH_BYTES_MIN ? threads_bytes : BATCH_BYTES_MIN;
    return ash_encoder_open(&(struct ash_encoder_opts){.tokenizer = job->tokenizer,
                                                       .workers = job->workers,
                                                       .field = opts->field,
                                                       .eos_id = job->status.eos_id,
                                                       .add_special = opts->add_special,
                                                       .skip = opts->on_error == ASH_ON_ERROR_SKIP},
                            &job->encoder, err);
}

static int open_input(struct ash_tokenize *job, const char *const *paths, size_t count, struct ash_err *err)
{
    const struct ash_input_opts opts = {.format = (enum ash_tokenize_format)job->opts.format,
                                        .split = (enum ash_tokenize_split)job->opts.split,
                                        .field = job->opts.field,
                                        .document_bytes_max = (size_t)job->opts.max_document};
    int rc = ash_input_open(paths, count, &opts, &job->input, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < ash_input_file_count(job->input); i++) {
        const struct ash_input_file *file = ash_input_file_at(job->input, i);

        job->status.bytes_total += file->size_bytes;
        job->status.has_stream = job->status.has_stream || file->is_stream;
    }
    if (job->status.bytes_total == 0 && !job->status.has_stream)
        return ash_err_set(err, -EINVAL, "%s: there is no text in the input", paths[0]);
    return 0;
}

/* The files in one number: any other name, size or time is another input. */
static json_t *summarize_inputs(const struct ash_tokenize *job)
{
    size_t count = ash_input_file_count(job->input);
    uint64_t hash = count;
    char text[24];

    for (size_t i = 0; i < count; i++) {
        const struct ash_input_file *file = ash_input_file_at(job->input, i);

        hash = ash_hash_bytes(file->path, strlen(file->path), hash);
        hash = ash_hash_mix(hash ^ file->size_bytes);
        hash = ash_hash_mix(hash ^ (uint64_t)file->mtime_ns);
    }
    snprintf(text, sizeof(text), "%016" PRIx64, hash);
    return json_pack("{s:I, s:I, s:s}", "files", (json_int_t)count, "bytes", (json_int_t)job->status.bytes_total,
                     "hash", text);
}

/* The first files by name, for people. A name that is not UTF-8 is left out. */
static json_t *list_inputs(const struct ash_input *input)
{
    json_t *list = json_array();
    size_t count = ash_input_file_count(input);

    for (size_t i = 0; i < count && i < LISTED_FILES_MAX; i++)
        json_array_append_new(list, json_string(ash_input_file_at(input, i)->path));
    return list;
}

/* Everything that decides the output. */
static int make_key(struct ash_tokenize *job, struct ash_err *err)
{
    const struct ash_tokenize_opts *opts = &job->opts;
    char hash[24];

    snprintf(hash, sizeof(hash), "%016" PRIx64, ash_tokenizer_hash(job->tokenizer));
    job->key = json_pack("{s:s, s:s, s:I, s:i, s:b, s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "kind", "tokenize",
                         "tokenizer_hash", hash, "vocab_size", (json_int_t)ash_tokenizer_vocab_size(job->tokenizer),
                         "eos", (int)job->status.eos_id, "add_special", (int)opts->add_special, "split",
                         split_names[opts->split], "format", format_names[opts->format], "field", opts->field,
                         "on_error", on_error_names[opts->on_error], "shard_tokens", (json_int_t)opts->shard_tokens,
                         "max_document", (json_int_t)opts->max_document, "inputs", summarize_inputs(job));
    if (job->key == NULL) return ash_err_set(err, -EINVAL, "--field is not UTF-8, or memory is short");
    return 0;
}

static int save_state(struct ash_tokenize *job, struct ash_err *err)
{
    json_t *state = json_pack("{s:I, s:I, s:I, s:I, s:I}", "input", (json_int_t)job->pos.file, "offset",
                              (json_int_t)job->pos.offset, "line", (json_int_t)job->pos.line, "empty",
                              (json_int_t)job->status.empty, "skipped", (json_int_t)job->status.skipped);
    int rc;

    if (state == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_folder_save_state(job->folder, state, err);
    json_decref(state);
    return rc;
}

static int load_state(struct ash_tokenize *job, const json_t *state, struct ash_err *err)
{
    static const char *const keys[] = {"input", "offset", "line", "empty", "skipped"};
    int64_t values[ASH_COUNT(keys)] = {0};

    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        int rc = ash_json_int(state, keys[i], 0, INT64_MAX, &values[i], err);

        if (rc < 0) return ash_err_prefix(err, rc, "%s/" ASH_FOLDER_STATE, job->opts.out);
    }
    job->pos =
        (struct ash_input_pos){.file = (size_t)values[0], .offset = (uint64_t)values[1], .line = (uint64_t)values[2]};
    job->status.empty = (uint64_t)values[3];
    job->status.skipped = (uint64_t)values[4];
    return ash_input_seek(job->input, &job->pos, err);
}

/* Count the shards on disk, and continue after them. */
static int resume(struct ash_tokenize *job, const json_t *state, struct ash_err *err)
{
    const struct ash_data_manifest *manifest = ash_folder_manifest(job->folder);

    for (size_t i = 0; i < manifest->shard_count; i++) {
        job->status.tokens += manifest->shards[i].tokens;
        job->status.documents += manifest->shards[i].documents;
    }
    job->status.kept_shards = manifest->shard_count;
    if (!ash_folder_is_complete(job->folder)) return state != NULL ? load_state(job, state, err) : 0;
    job->pos = (struct ash_input_pos){.file = ash_input_file_count(job->input)};
    job->done = true;
    return 0;
}

static int open_folder(struct ash_tokenize *job, struct ash_err *err)
{
    json_t *state = NULL;
    int rc = ash_folder_open(job->opts.out, &job->folder, err);

    if (rc < 0) return rc;
    rc = ash_folder_claim(job->folder, job->key, job->opts.overwrite, &state, err);
    if (rc < 0) return rc;
    rc = ash_folder_begin(job->folder,
                          &(struct ash_folder_opts){.vocab_size = ash_tokenizer_vocab_size(job->tokenizer),
                                                    .tokenizer_hash = ash_tokenizer_hash(job->tokenizer),
                                                    .eos_id = job->status.eos_id,
                                                    .shard_tokens = (size_t)job->opts.shard_tokens},
                          err);
    if (rc == 0) rc = resume(job, state, err);
    json_decref(state);
    return rc;
}

int ash_tokenize_open(const struct ash_tokenize_opts *opts, const char *const *paths, size_t count,
                      struct ash_tokenize **job_out, struct ash_err *err)
{
    struct ash_tokenize *job = NULL;
    int rc;

    if (opts->tokenizer == NULL)
        return ash_err_set(err, -EINVAL, "--tokenizer is missing: name a folder with a tokenizer.json");
    if (opts->out == NULL) return ash_err_set(err, -EINVAL, "--out is missing: name a folder for the shards");
    if (count == 0) return ash_err_set(err, -EINVAL, "no input: name files or folders, or - for standard input");
    job = calloc(1, sizeof(*job));
    if (job == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    job->opts = *opts;
    job->pos.line = 1;
    rc = open_input(job, paths, count, err);
    if (rc < 0) goto fail;
    rc = open_tools(job, err);
    if (rc < 0) goto fail;
    rc = make_key(job, err);
    if (rc < 0) goto fail;
    rc = open_folder(job, err);
    if (rc < 0) goto fail;
    *job_out = job;
    return 0;

fail:
    ash_tokenize_close(job);
    return rc;
}

void ash_tokenize_close(struct ash_tokenize *job)
{
    if (job == NULL) return;
    ash_folder_close(job->folder);
    json_decref(job->key);
    ash_encoder_close(job->encoder);
    ash_input_batch_fini(&job->batch);
    ash_input_close(job->input);
    ash_workers_close(job->workers);
    ash_tokenizer_close(job->tokenizer);
    free(job);
}

static int add_doc(struct ash_tokenize *job, size_t index, struct ash_err *err)
{
    struct ash_encoded encoded = ash_encoder_doc(job->encoder, index);
    int rc;

    job->pos = job->batch.docs[index].next;
    job->status.empty += encoded.state == ASH_ENCODED_EMPTY;
    job->status.skipped += encoded.state == ASH_ENCODED_BAD;
    if (encoded.state != ASH_ENCODED) return 0;
    rc = ash_folder_add(job->folder, encoded.ids, encoded.count, err);
    if (rc < 0) return rc;
    job->status.tokens += encoded.count;
    job->status.documents++;
    return rc == 1 ? save_state(job, err) : 0;
}

/* The tokenizer may have been named by its file, whatever that is called. */
static int copy_tokenizer(const struct ash_tokenize *job, struct ash_err *err)
{
    const char *name = strcmp(job->tokenizer_dir, job->opts.tokenizer) == 0 ? NULL : job->opts.tokenizer;
    char path[PATH_MAX], *data = NULL;
    size_t size_bytes = 0;
    int rc = ash_tokenizer_files_copy(job->tokenizer_dir, job->opts.out, NULL, err);

    if (rc < 0 || name == NULL) return rc;
    rc = ash_path_join(path, sizeof(path), job->opts.out, "tokenizer.json");
    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", job->opts.out);
    rc = ash_file_read(name, ASH_JSON_MAX_BYTES, &data, &size_bytes, err);
    if (rc == 0) rc = ash_file_replace(path, data, size_bytes, err);
    free(data);
    return rc;
}

static int finish(struct ash_tokenize *job, struct ash_err *err)
{
    json_t *source;
    int rc;

    if (job->status.documents == 0)
        return ash_err_set(err, -EINVAL, "there is no document in the input (%" PRIu64 " empty, %" PRIu64 " skipped)",
                           job->status.empty, job->status.skipped);
    rc = copy_tokenizer(job, err);
    if (rc < 0) return rc;
    source = json_copy(job->key);
    if (source == NULL || json_object_set_new(source, "paths", list_inputs(job->input)) < 0 ||
        json_object_set_new(source, "empty", json_integer((json_int_t)job->status.empty)) < 0 ||
        json_object_set_new(source, "skipped", json_integer((json_int_t)job->status.skipped)) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc == 0) rc = ash_folder_finish(job->folder, source, err);
    json_decref(source);
    if (rc < 0) return rc;
    job->pos = (struct ash_input_pos){.file = ash_input_file_count(job->input)};
    job->done = true;
    return 0;
}

int ash_tokenize_step(struct ash_tokenize *job, struct ash_err *err)
{
    struct ash_err skipped = {0};
    int rc;

    if (job->done) return 0;
    rc = ash_input_next(job->input, job->batch_bytes, &job->batch, err);
    if (rc < 0) return rc;
    if (rc == 0) return finish(job, err);
    rc = ash_encoder_run(job->encoder, job->input, &job->batch, &skipped);
    if (rc < 0) {
        if (err != NULL) *err = skipped;
        return rc;
    }
    if (job->first_skipped.code == 0) job->first_skipped = skipped;
    for (size_t d = 0; d < job->batch.count; d++) {
        rc = add_doc(job, d, err);
        if (rc < 0) return rc;
    }
    return 1;
}

void ash_tokenize_get_status(const struct ash_tokenize *job, struct ash_tokenize_status *status_out)
{
    *status_out = job->status;
    status_out->complete = job->done;
    status_out->shards = ash_folder_manifest(job->folder)->shard_count;
    status_out->first_skipped = job->first_skipped.code != 0 ? job->first_skipped.text : NULL;
    status_out->bytes_done = ash_input_done_bytes(job->input, &job->pos);
}
