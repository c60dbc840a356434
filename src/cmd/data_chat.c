/* ashlar data chat: conversations, completions and pairs as examples with marked targets. */
#include "cmd/data_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/file.h"
#include "post/chat/file.h"
#include "storage/commit/commit.h"
#include "train/data/examples.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar data chat --tokenizer DIR --out DIR FILE.jsonl...",
    .about =
        "Turns JSON lines into examples for `ashlar sft`, `ashlar dpo` and `ashlar reward`. Columns are TRL's: text;\n"
        "messages (with tools); prompt and completion; chosen and rejected. The model's chat template writes\n"
        "conversations. What an assistant says is learned: the template's {% generation %} blocks, or what an answer\n"
        "adds to the conversation before it. A line without anything to learn is an error.",
    .examples = "  ashlar data chat --tokenizer models/qwen3 --out data/chat chat.jsonl\n"
                "  ashlar data chat --tokenizer models/qwen3 --out data/pairs --on-error skip pairs.jsonl\n"
                "  ashlar data show data/chat",
};

static const char *const on_error_names[] = {"stop", "skip", NULL};

struct settings {
    const char *tokenizer, *out, *eos;
    int on_error;
    bool overwrite;
};

static const struct ash_opt opts_list[] = {
    {"tokenizer", ASH_OPT_STRING, offsetof(struct settings, tokenizer), NULL,
     "model folder with tokenizer.json and chat template", 0, 0, NULL},
    {"out", ASH_OPT_STRING, offsetof(struct settings, out), NULL, "folder for the examples", 0, 0, NULL},
    {"eos", ASH_OPT_STRING, offsetof(struct settings, eos), NULL,
     "token after texts and completions; default: the tokenizer's own", 0, 0, NULL},
    {"on_error", ASH_OPT_CHOICE, offsetof(struct settings, on_error), "stop",
     "a line that cannot be used: end, or leave it out", 0, 0, on_error_names},
    {"overwrite", ASH_OPT_BOOL, offsetof(struct settings, overwrite), NULL,
     "replace examples that are there; a folder with anything else in it is never replaced", 0, 0, NULL},
};

/* Before the first line is read: may the folder be written? */
static int check_folder(const struct settings *settings, struct ash_err *err)
{
    int rc = ash_commit_check_replace(settings->out, ASH_EXAMPLES_FILE, err);

    if (rc < 0 || settings->overwrite || !ash_path_exists(settings->out) || ash_dir_is_empty(settings->out)) return rc;
    return ash_err_set(err, -EEXIST, "'%s' holds examples already: choose another folder, or give --overwrite",
                       settings->out);
}

static int write_folder(const struct settings *settings, const char *const *paths, size_t count)
{
    struct ash_chat_file_opts opts = {
        .tokenizer_dir = settings->tokenizer, .eos = settings->eos, .skip_bad = settings->on_error == 1};
    struct ash_chat_file_result result = {0};
    struct ash_err err = {0};

    if (check_folder(settings, &err) < 0) return ash_cmd_fail(&err);
    if (ash_chat_write(paths, count, &opts, settings->out, &result, &err) < 0) return ash_cmd_fail(&err);
    printf("%s: %zu %s, %zu tokens, %zu of them learned (%.1f %%)\n", settings->out,
           result.pairs > 0 ? result.pairs : result.examples, result.pairs > 0 ? "pairs" : "examples", result.tokens,
           result.learned, 100.0 * (double)result.learned / (double)result.tokens);
    if (result.same > 0) printf("%zu pairs have the same answer twice: nothing is learned from those\n", result.same);
    if (result.skipped > 0) printf("%zu lines left out; the first: %s\n", result.skipped, result.first_skipped);
    return 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *const *paths, size_t count)
{
    const struct settings *settings = ctx;

    (void)opts;
    if (settings->tokenizer == NULL)
        return ash_cmd_misuse("data chat", "--tokenizer is missing: name the model's folder");
    if (settings->out == NULL) return ash_cmd_misuse("data chat", "--out is missing: name a folder for the examples");
    if (count == 0) return ash_cmd_misuse("data chat", "what to read? name a file of JSON lines");
    return write_folder(settings, paths, count);
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table table = {"", "flags", opts_list, ASH_COUNT(opts_list)};
    struct settings settings = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&table, &settings}}, .respond_words = respond, .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_data_chat = {"chat", "conversations and pairs as examples with marked targets", run};
