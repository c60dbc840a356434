/* ashlar data train-tokenizer: drives the job step by step, shows its progress, and ends between two steps on
 * request. */
#include "cmd/data_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "cmd/progress_bar.h"
#include "storage/tier/tier.h"
#include "train/data/train_tokenizer.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar data train-tokenizer --out DIR FILE|FOLDER|-...",
    .about =
        "Learns a byte-level BPE tokenizer from text, JSON lines or Parquet files, the same files that\n"
        "`ashlar data tokenize` reads, and writes tokenizer.json and tokenizer_config.json as the Hugging Face\n"
        "library reads them. The result is the same for any number of threads and any order of the documents, and\n"
        "has the merges of that library's own trainer.",
    .examples =
        "  ashlar data train-tokenizer --out models/mine books/*.txt\n"
        "  ashlar data train-tokenizer --out models/code --vocab 50k --pattern qwen2 code.jsonl\n"
        "  ashlar data train-tokenizer --out models/chat --special '<|endoftext|>' --special '<|im_start|>' \\\n"
        "      --special '<|im_end|>' fineweb/sample/10BT/*.parquet\n"
        "  zcat dump-*.gz | ashlar data train-tokenizer --out models/dump -",
};

static void show(struct ash_progress_bar *progress, const struct ash_train_tokenizer_status *now)
{
    double seconds = ash_progress_bar_seconds(progress), megabytes = (double)now->text_bytes / 1e6;
    double speed = megabytes / (seconds > 0 ? seconds : 1);
    char left[32];

    if (!ash_progress_bar_due(progress)) return;
    if (now->tokens > 0) {
        ash_progress_bar_say(progress, "%zu of %zu tokens learned from %zu distinct words", now->tokens,
                             now->tokens_max, now->distinct_words);
        return;
    }
    if (now->has_stream) { /* the total is unknown */
        ash_progress_bar_say(progress, "%.1f MB of text  %.1f MB/s", megabytes, speed);
        return;
    }
    ash_progress_bar_left(progress, (double)now->bytes_done, (double)(now->bytes_total - now->bytes_done), left,
                          sizeof(left));
    ash_progress_bar_say(progress, "%5.1f %%  %.1f MB of text  %.1f MB/s  %s left",
                         100.0 * (double)now->bytes_done / (double)now->bytes_total, megabytes, speed, left);
}

static int drive(struct ash_train_tokenizer *job, struct ash_err *err)
{
    struct ash_train_tokenizer_status now;
    struct ash_progress_bar progress;
    int rc;

    ash_progress_bar_init(&progress);
    while ((rc = ash_train_tokenizer_step(job, err)) > 0) {
        ash_train_tokenizer_get_status(job, &now);
        show(&progress, &now);
        if (ash_interrupt_requested()) {
            rc = -ECANCELED;
            break;
        }
    }
    if (rc == -EINTR && ash_interrupt_requested()) rc = -ECANCELED;
    ash_progress_bar_clear(&progress);
    return rc;
}

static void report(const struct ash_train_tokenizer_status *status, const char *out)
{
    if (status->skipped > 0)
        ash_log(ASH_LOG_WARN, "skipped %" PRIu64 " broken document%s; the first: %s", status->skipped,
                status->skipped == 1 ? "" : "s", status->first_skipped != NULL ? status->first_skipped : "unknown");
    if (status->tokens < status->tokens_max)
        ash_log(ASH_LOG_WARN,
                "%zu tokens instead of %zu: no other pair of neighbours is frequent enough; give more text, or a "
                "smaller --vocab or --min-frequency",
                status->tokens, status->tokens_max);
    printf("%s: %zu tokens, learned from %.1f MB of text (%zu distinct words); it has %.2f bytes per token\n", out,
           status->tokens, (double)status->text_bytes / 1e6, status->distinct_words,
           (double)status->text_bytes / (double)status->text_tokens);
}

static int train(const struct ash_train_tokenizer_opts *opts, const char *const *paths, size_t count)
{
    struct ash_train_tokenizer *job = NULL;
    struct ash_train_tokenizer_status status;
    struct ash_err err = {0};
    int rc = ash_train_tokenizer_open(opts, paths, count, &job, &err);

    if (rc < 0) return ash_cmd_fail(&err);
    rc = drive(job, &err);
    ash_train_tokenizer_get_status(job, &status);
    if (rc == 0) report(&status, opts->out);
    ash_train_tokenizer_close(job);
    if (rc == -ECANCELED) {
        ash_log(ASH_LOG_INFO, "stopped: nothing was written");
        return ash_cmd_stopped();
    }
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *const *paths, size_t count)
{
    const struct ash_train_tokenizer_opts *settings = ctx;

    (void)opts;
    if (settings->out == NULL || count == 0)
        return ash_cmd_misuse("data train-tokenizer", "%s",
                              settings->out == NULL ? "--out is missing: name a folder for tokenizer.json"
                                                    : "no input: name files or folders, or - for standard input");
    if (ash_tier_is_url(settings->out))
        return ash_cmd_misuse("data train-tokenizer", "--out must be a folder here; `ashlar store put` sends it on");
    ash_interrupt_install();
    return train(settings, paths, count);
}

static int run(int argc, char **argv)
{
    struct ash_train_tokenizer_opts settings = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&ash_train_tokenizer_table, &settings}},
                                      .respond_words = respond,
                                      .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_data_train_tokenizer = {"train-tokenizer", "a byte-level BPE tokenizer learned from text",
                                                     run};
