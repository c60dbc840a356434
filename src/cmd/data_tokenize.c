/* ashlar data tokenize: drives a tokenizing run step by step, shows its progress, and stops between two steps on
 * request. */
#include "cmd/data_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "cmd/data_upload.h"
#include "cmd/progress_bar.h"
#include "storage/tier/tier.h"
#include "train/data/tokenize.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar data tokenize --tokenizer DIR --out DIR FILE|FOLDER|-...",
    .about =
        "Turns text (UTF-8), JSON lines and Parquet files into a folder of token shards that `ashlar train` reads.\n"
        "Text and JSON lines may be compressed (gzip, zstd), and may come from pipes, or - for standard input. Of a\n"
        "folder the .parquet files below it are read; if there are none, its .txt, .md, .jsonl and .json files.\n"
        "The work may be interrupted at any time: the same command again keeps the shards that are complete. Only a\n"
        "run that reads a pipe must begin again, with --overwrite.",
    .examples =
        "  ashlar data tokenize --tokenizer models/gpt2 --out data/books books/*.txt\n"
        "  ashlar data tokenize --tokenizer models/qwen3 --out data/web --field content --on-error skip web-*.jsonl\n"
        "  ashlar data tokenize --tokenizer models/qwen3 --out data/fineweb fineweb/sample/10BT/*.parquet\n"
        "  ashlar data tokenize --tokenizer models/gpt2 --out data/tales --split blank-line tales.txt.gz\n"
        "  zcat dump-*.gz | ashlar data tokenize --tokenizer models/gpt2 --out data/dump --split line -\n"
        "  ashlar data tokenize --tokenizer models/gpt2 --out s3://data/books books/*.txt",
};

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* began: what an earlier run had done already is no part of the speed. */
static void show(struct ash_progress_bar *progress, const struct ash_tokenize_status *began,
                 const struct ash_tokenize_status *now)
{
    double seconds = ash_progress_bar_seconds(progress);
    double speed = (double)(now->tokens - began->tokens) / (seconds > 0 ? seconds : 1) / 1e6;
    char left[32];

    if (!ash_progress_bar_due(progress)) return;
    if (now->has_stream) { /* the total is unknown */
        ash_progress_bar_say(progress, "%.2f m tokens  %.2f m tokens/s  %zu shard%s", (double)now->tokens / 1e6, speed,
                             now->shards, plural(now->shards));
        return;
    }
    ash_progress_bar_left(progress, (double)(now->bytes_done - began->bytes_done),
                          (double)(now->bytes_total - now->bytes_done), left, sizeof(left));
    ash_progress_bar_say(progress, "%5.1f %%  %.2f m tokens  %.2f m tokens/s  %zu shard%s  %s left",
                         100.0 * (double)now->bytes_done / (double)now->bytes_total, (double)now->tokens / 1e6, speed,
                         now->shards, plural(now->shards), left);
}

/* 0 when the work is done, -ECANCELED when it was interrupted. */
static int drive(struct ash_tokenize *job, struct ash_data_upload *upload, struct ash_err *err)
{
    struct ash_tokenize_status began, now;
    struct ash_progress_bar progress;
    int rc;

    ash_tokenize_get_status(job, &began);
    ash_progress_bar_init(&progress);
    while ((rc = ash_tokenize_step(job, err)) > 0) {
        ash_tokenize_get_status(job, &now);
        show(&progress, &began, &now);
        if (upload != NULL && now.shards > 0 && ash_data_upload_shards(upload, now.shards, err) < 0) {
            rc = err->code;
            break;
        }
        if (ash_interrupt_requested()) {
            rc = -ECANCELED;
            break;
        }
    }
    if (rc == -EINTR && ash_interrupt_requested()) rc = -ECANCELED;
    ash_progress_bar_clear(&progress);
    return rc;
}

static void report_begin(const struct ash_tokenize_status *status, const char *out)
{
    if (status->complete) {
        ash_log(ASH_LOG_INFO, "%s: complete already, nothing to do", out);
        return;
    }
    if (status->kept_shards > 0)
        ash_log(ASH_LOG_INFO, "%s: keeping %zu finished shard%s (%" PRIu64 " tokens) of an earlier run", out,
                status->kept_shards, plural(status->kept_shards), status->tokens);
    if (status->eos != NULL)
        ash_log(ASH_LOG_INFO, "each document ends with %s (%" PRId32 ")", status->eos, status->eos_id);
    else
        ash_log(ASH_LOG_INFO, "documents have no end token");
}

static void report_left_out(const struct ash_tokenize_status *status)
{
    if (status->skipped > 0)
        ash_log(ASH_LOG_WARN, "skipped %" PRIu64 " broken document%s%s%s", status->skipped, plural(status->skipped),
                status->first_skipped != NULL ? "; the first: " : "",
                status->first_skipped != NULL ? status->first_skipped : "");
    if (status->empty > 0)
        ash_log(ASH_LOG_INFO, "left out %" PRIu64 " document%s without a token", status->empty, plural(status->empty));
}

/* upload (may be NULL): where finished shards go. */
static int tokenize(const struct ash_tokenize_opts *opts, const char *const *paths, size_t count,
                    struct ash_data_upload *upload)
{
    struct ash_tokenize *job = NULL;
    struct ash_tokenize_status status;
    struct ash_err err = {0};
    int rc = ash_tokenize_open(opts, paths, count, &job, &err);

    if (rc < 0) return ash_cmd_fail(&err);
    ash_tokenize_get_status(job, &status);
    report_begin(&status, opts->out);
    rc = drive(job, upload, &err);
    ash_tokenize_get_status(job, &status);
    if (rc == 0) report_left_out(&status);
    if (rc == 0 && upload != NULL) rc = ash_data_upload_finish(upload, &err);
    ash_tokenize_close(job);
    if (rc == -ECANCELED) {
        ash_log(ASH_LOG_INFO, "stopped with %zu finished shard%s; the same command continues after %s", status.shards,
                plural(status.shards), status.shards == 1 ? "it" : "them");
        return ash_cmd_stopped();
    }
    return rc < 0 ? ash_cmd_fail(&err) : ash_cmd_data_describe(opts->out);
}

/* The same into S3: shards are written to a folder here, and leave it as they are finished. */
static int tokenize_remote(struct ash_tokenize_opts *opts, const char *const *paths, size_t count)
{
    struct ash_data_upload *upload = NULL;
    struct ash_err err = {0};
    int code;

    if (ash_data_upload_open(opts->out, opts->overwrite, &upload, &err) < 0) return ash_cmd_fail(&err);
    opts->out = ash_data_upload_folder(upload);
    code = tokenize(opts, paths, count, upload);
    ash_data_upload_close(upload);
    return code;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *const *paths, size_t count)
{
    struct ash_tokenize_opts settings = *(const struct ash_tokenize_opts *)ctx;

    (void)opts;
    if (settings.tokenizer == NULL || settings.out == NULL || count == 0)
        return ash_cmd_misuse("data tokenize", "%s",
                              settings.tokenizer == NULL ? "--tokenizer is missing: name a folder with a tokenizer.json"
                              : settings.out == NULL     ? "--out is missing: name a folder for the shards"
                                                         : "no input: name files or folders, or - for standard input");
    ash_interrupt_install();
    return ash_tier_is_url(settings.out) ? tokenize_remote(&settings, paths, count)
                                         : tokenize(&settings, paths, count, NULL);
}

static int run(int argc, char **argv)
{
    struct ash_tokenize_opts settings = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&ash_tokenize_table, &settings}}, .respond_words = respond, .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_data_tokenize = {"tokenize", "text, JSON lines and Parquet to token shards", run};
