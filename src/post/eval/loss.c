/* Loss on token shards: every window once, in the order of the data's permutation; sums are doubles added in that
 * order, so the result depends on neither threads nor how many windows share a pass. */
#include "post/eval/loss.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/str.h"
#include "compute/backends/backends.h"
#include "post/eval/loss_ranks.h"
#include "train/data/dataset.h"
#include "train/data/tokenizer_files.h"

#define SEQ_TOKENS_DEFAULT 1024
#define PASS_ROWS 1024 /* several short windows share a pass */

/* A pass over a few windows, and their storage. */
struct measure {
    const struct ash_tokenizer *tokenizer;
    const struct ash_dataset *dataset;
    struct ash_pass *pass;        /* of a model that is whole */
    struct ash_loss_ranks *ranks; /* of one that ranks share */
    const struct ash_exec *exec;
    size_t seq_tokens, windows_per_pass;
    int32_t *ids, *targets; /* [windows_per_pass * seq_tokens] */
    int32_t *kept;          /* [seq_tokens]: targets of one document */
    struct ash_doc *docs;   /* likewise */
    float *losses;
    struct ash_str text;
};

static int open_measure(struct measure *measure, struct ash_engine *engine, struct ash_err *err)
{
    size_t rows = measure->seq_tokens * measure->windows_per_pass;
    struct ash_pass_opts opts = {.max_rows = rows};

    measure->tokenizer = ash_engine_tokenizer(engine);
    measure->exec = ash_engine_exec(engine);
    measure->ids = calloc(rows, sizeof(*measure->ids));
    measure->targets = calloc(rows, sizeof(*measure->targets));
    measure->kept = calloc(measure->seq_tokens, sizeof(*measure->kept));
    measure->docs = calloc(rows, sizeof(*measure->docs));
    measure->losses = calloc(rows, sizeof(*measure->losses));
    if (measure->ids == NULL || measure->targets == NULL || measure->kept == NULL || measure->docs == NULL ||
        measure->losses == NULL)
        return ash_err_set(err, -ENOMEM, "no memory for windows of %zu tokens", measure->seq_tokens);
    if (ash_engine_ranks(engine) != NULL) return ash_loss_ranks_open(engine, measure->seq_tokens, &measure->ranks, err);
    return ash_pass_open(ash_engine_model(engine), ash_engine_exec(engine), &opts, &measure->pass, err);
}

static void close_measure(struct measure *measure)
{
    ash_pass_close(measure->pass);
    ash_loss_ranks_close(measure->ranks);
    free(measure->ids);
    free(measure->targets);
    free(measure->kept);
    free(measure->docs);
    free(measure->losses);
    ash_str_fini(&measure->text);
}

/* Bytes of text that the targets of one document stand for. */
static int count_bytes(struct measure *measure, const struct ash_doc *doc, struct ash_loss_totals *totals,
                       struct ash_err *err)
{
    size_t count = 0;
    int rc;

    for (size_t row = doc->row; row < doc->row + doc->count; row++)
        if (measure->targets[row] >= 0) measure->kept[count++] = measure->targets[row];
    ash_str_clear(&measure->text);
    rc = ash_tokenizer_decode(measure->tokenizer, measure->kept, count, true, &measure->text, err);
    totals->bytes += measure->text.size_bytes;
    return rc;
}

/* Fill a pass with windows [first, first + count) of the permuted order. */
static int read_windows(struct measure *measure, size_t first, size_t count, struct ash_batch *batch,
                        struct ash_err *err)
{
    size_t doc_count = 0;

    for (size_t w = 0; w < count; w++) {
        size_t row = w * measure->seq_tokens;
        struct ash_sample sample = {
            .ids = measure->ids + row, .targets = measure->targets + row, .docs = measure->docs + doc_count};
        int rc = ash_dataset_read(measure->dataset, first + w, 0, 1, &sample, err);

        if (rc < 0) return rc;
        for (size_t d = 0; d < sample.doc_count; d++)
            sample.docs[d].row += row;
        doc_count += sample.doc_count;
    }
    *batch = (struct ash_batch){.rows = count * measure->seq_tokens,
                                .ids = measure->ids,
                                .targets = measure->targets,
                                .docs = measure->docs,
                                .doc_count = doc_count};
    return 0;
}

static int measure_windows(struct measure *measure, size_t first, size_t count, struct ash_loss_totals *totals,
                           struct ash_err *err)
{
    struct ash_batch batch = {0};
    int rc = read_windows(measure, first, count, &batch, err);

    if (rc < 0) return rc;
    rc = measure->ranks != NULL ? ash_loss_ranks_eval(measure->ranks, &batch, measure->losses, err)
                                : ash_pass_eval(measure->pass, &batch, measure->losses, err);
    rc = ash_backend_outcome(measure->exec, rc, err);
    if (rc < 0) return rc;
    for (size_t row = 0; row < batch.rows; row++) {
        if (measure->targets[row] < 0) continue;
        totals->loss += (double)measure->losses[row];
        totals->tokens++;
    }
    for (size_t d = 0; d < batch.doc_count && rc == 0; d++)
        rc = count_bytes(measure, &batch.docs[d], totals, err);
    totals->windows += count;
    return rc;
}

static int measure_all(struct measure *measure, size_t windows, const struct ash_eval_progress *progress,
                       struct ash_loss_totals *totals, struct ash_err *err)
{
    int rc = 0;

    for (size_t first = 0; first < windows && rc == 0; first += measure->windows_per_pass) {
        rc = measure_windows(measure, first, ash_min(measure->windows_per_pass, windows - first), totals, err);
        if (rc == 0) rc = ash_eval_progress_report(progress, totals->windows, windows);
    }
    if (rc == 0 && totals->tokens == 0)
        rc = ash_err_set(err, -EINVAL, "the data has no token with a successor: nothing to measure");
    return rc;
}

static size_t window_tokens(const struct ash_loss_opts *opts)
{
    size_t context = ash_engine_context(opts->engine);

    return opts->seq_tokens > 0 ? opts->seq_tokens : ash_min(context, SEQ_TOKENS_DEFAULT);
}

/* Do the first ids of both mean the same tokens? Another file format has another hash. */
static bool same_tokens(const struct ash_tokenizer *a, const struct ash_tokenizer *b, size_t count)
{
    if (count > ash_tokenizer_vocab_size(a) || count > ash_tokenizer_vocab_size(b)) return false;
    for (size_t id = 0; id < count; id++) {
        const char *left = ash_tokenizer_content(a, (int32_t)id), *right = ash_tokenizer_content(b, (int32_t)id);

        if (left == NULL || right == NULL ? left != right : strcmp(left, right) != 0) return false;
    }
    return true;
}

/* A loss means something only where the model reads the ids as the tokenizer of the data wrote them. */
static int check_tokenizer(const struct ash_loss_opts *opts, const struct ash_dataset *dataset, struct ash_err *err)
{
    const struct ash_tokenizer *of_model = ash_engine_tokenizer(opts->engine);
    struct ash_tokenizer *of_data = NULL;
    bool same = ash_tokenizer_hash(of_model) == ash_dataset_tokenizer_hash(dataset);
    char dir[PATH_MAX];

    if (!same && ash_tokenizer_files_dir(opts->data, dir, NULL) == 0 && ash_tokenizer_open(dir, &of_data, NULL) == 0)
        same = same_tokens(of_data, of_model, ash_dataset_vocab_size(dataset));
    ash_tokenizer_close(of_data);
    if (same) return 0;
    return ash_err_set(err, -EINVAL, "'%s' was not made with the tokenizer of '%s': tokenize the text again with it",
                       opts->data, opts->model);
}

static int check_data(const struct ash_loss_opts *opts, const struct ash_dataset *dataset, size_t seq_tokens,
                      struct ash_err *err)
{
    size_t vocab = ash_model_get_config(ash_engine_model(opts->engine))->vocab;

    if (seq_tokens > ash_engine_context(opts->engine))
        return ash_err_set(err, -EINVAL, "--seq %zu is more than the model's context of %zu", seq_tokens,
                           ash_engine_context(opts->engine));
    if (ash_dataset_vocab_size(dataset) > vocab)
        return ash_err_set(
            err, -EINVAL,
            "'%s' has ids up to %zu, but the model's vocabulary ends at %zu: it was made with another tokenizer",
            opts->data, ash_dataset_vocab_size(dataset) - 1, vocab - 1);
    return check_tokenizer(opts, dataset, err);
}

int ash_loss_measure(const struct ash_loss_opts *opts, struct ash_loss_totals *totals_out, struct ash_err *err)
{
    size_t seq_tokens = window_tokens(opts), windows;
    struct measure measure = {.seq_tokens = seq_tokens,
                              .windows_per_pass = seq_tokens < PASS_ROWS ? PASS_ROWS / seq_tokens : 1};
    struct ash_dataset *dataset = NULL;
    struct ash_loss_totals totals = {.seq_tokens = seq_tokens};
    int rc = ash_dataset_open(opts->data, seq_tokens, opts->seed, &dataset, err);

    if (rc < 0) return rc;
    measure.dataset = dataset;
    windows = ash_dataset_windows(dataset);
    if (opts->windows > 0) windows = ash_min(opts->windows, windows);
    rc = check_data(opts, dataset, seq_tokens, err);
    if (rc == 0) rc = open_measure(&measure, opts->engine, err);
    if (rc == 0) rc = measure_all(&measure, windows, &opts->progress, &totals, err);
    if (rc == 0) *totals_out = totals;
    close_measure(&measure);
    ash_dataset_close(dataset);
    return rc;
}
