/* ashlar model convert: the same model in another precision. A child process writes a hidden folder next to the target;
 * the parent puts it in place when all went well, and removes it when the child failed, was interrupted or crashed. */
#include "cmd/model_priv.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/str.h"
#include "cmd/cmd.h"
#include "cmd/progress_bar.h"
#include "cmd/remote.h"
#include "cmd/units.h"
#include "model/files/convert.h"
#include "model/files/open.h"
#include "model/files/save.h"
#include "model/pass/compare.h"
#include "model/pass/observe.h"
#include "storage/commit/commit.h"
#include "storage/tier/tier.h"
#include "text/tokenizer/tokenizer.h"

#define EVAL_BYTES_MAX ((size_t)64 << 20) /* of --eval's text */

struct convert {
    int dtype; /* index into dtypes */
    int quant; /* index into quants, or -1: not quantised */
    bool gguf; /* one file instead of a folder of safetensors; always when quantised as GGUF files are */
    const char *eval, *calibrate;
    int64_t max_shard_size;
    const char *source, *target;
    struct ash_commit *commit; /* the folder that is written */
    struct ash_progress_bar progress;
};

static const char *const dtype_names[] = {"f32", "bf16", "f16", NULL};
static const enum ash_dtype dtypes[] = {ASH_F32, ASH_BF16, ASH_F16};
static const char *const quant_names[] = {"q8", "q4", "q8w", "fp8", "mxfp4", "nvfp4", "awq", NULL};

/* What each is: a type of GGUF files, or an encoding of folders. */
static const struct {
    enum ash_dtype dtype;
    const struct ash_encoding *encoding;
} quants[] = {{ASH_Q8_0, NULL},
              {ASH_Q4_0, NULL},
              {ASH_Q8_W, NULL},
              {ASH_BF16, &ash_encoding_fp8},
              {ASH_BF16, &ash_encoding_mxfp4},
              {ASH_BF16, &ash_encoding_nvfp4},
              {ASH_BF16, &ash_encoding_awq128}};

#define FIELD(name) offsetof(struct convert, name)

static const struct ash_opt convert_opts[] = {
    {"dtype", ASH_OPT_CHOICE, FIELD(dtype), NULL, "precision of the new weights", 0, 0, dtype_names},
    {"quant", ASH_OPT_CHOICE, FIELD(quant), NULL,
     "quantise instead: q8, q4 and q8w into DST/model.gguf, fp8, mxfp4, nvfp4 and awq into safetensors", 0, 0,
     quant_names},
    {"calibrate", ASH_OPT_STRING, FIELD(calibrate), NULL,
     "with --quant awq: a text like those that the model will read; weights of its large inputs get finer", 0, 0, NULL},
    {"eval", ASH_OPT_STRING, FIELD(eval), NULL,
     "with --quant fp8, mxfp4, nvfp4 or awq: a text on which SRC and DST are compared: perplexities and divergence", 0,
     0, NULL},
    {"gguf", ASH_OPT_BOOL, FIELD(gguf), "false",
     "write DST/model.gguf, which llama.cpp reads too, instead of safetensors", 0, 0, NULL},
    {"max_shard_size", ASH_OPT_INT, FIELD(max_shard_size), "5g", "bytes of one file at most (500m, 5g); 0: one file", 0,
     INFINITY, NULL},
};

static const struct ash_opt_table convert_table = {
    .section = "", .help = "flags", .opts = convert_opts, .count = ASH_COUNT(convert_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar model convert SRC DST --dtype f32|bf16|f16 [--gguf] [flags]\n"
                "ashlar model convert SRC DST --quant q8|q4|q8w|fp8|mxfp4|nvfp4 [--eval TEXT] [flags]\n"
                "ashlar model convert SRC DST --quant awq --calibrate TEXT [--eval TEXT] [flags]",
    .about = "Writes the model folder SRC as the new folder DST, with its tokenizer and other small files. DST\n"
             "appears complete or not at all: a failure or Ctrl-C leaves nothing behind. A GGUF file (llama,\n"
             "mistral, qwen2, qwen3) holds vocabulary and chat template too and can be moved alone. q4 looks\n"
             "for the scales that lose least, among those that prompts are read fast with. q8w is q8 with one\n"
             "scale per 256 inputs instead of 32: prompts are read faster, a little less exactly. fp8, mxfp4,\n"
             "nvfp4 and awq quantise linear layers as vLLM and transformers read them, and print what that\n"
             "cost. SRC and DST may be s3://bucket/prefix.",
    .examples = "  ashlar model convert stories stories-bf16 --dtype bf16\n"
                "  ashlar model convert stories stories-q8 --quant q8 && ashlar generate --model stories-q8\n"
                "  ashlar model convert models/qwen3 qwen3-fp8 --quant fp8 --eval book.txt",
};

/* ---- the child: writes the folder -------------------------------------------------------------------------------- */

/* Each line of notes is a warning. */
static void print_notes(char *notes)
{
    char *rest = notes, *line;

    while (notes != NULL && (line = strsep(&rest, "\n")) != NULL)
        if (line[0] != '\0') ash_log(ASH_LOG_WARN, "%s", line);
}

static void show_saved(void *ctx, size_t count, size_t total)
{
    struct ash_progress_bar *progress = ctx;
    char left[32];

    if (!ash_progress_bar_due(progress)) return;
    ash_progress_bar_left(progress, (double)count, (double)(total - count), left, sizeof(left));
    ash_progress_bar_say(progress, "%5.1f %%  %.1f m weights/s  %s left", 100.0 * (double)count / (double)total,
                         (double)count / ash_progress_bar_seconds(progress) / 1e6, left);
}

/* Does --quant name an encoding of folders? */
static const struct ash_encoding *encoding_of(const struct convert *convert)
{
    return convert->quant >= 0 ? quants[convert->quant].encoding : NULL;
}

static void print_cost(const struct convert *convert, size_t weights, const struct ash_publish_cost *cost)
{
    char count[ASH_UNITS_BYTES], all[ASH_UNITS_BYTES];

    printf("%s: %s of %s parameters, %zu tensors, as %s: %.2f bits a weight, %.2f %% of the weights' size lost\n",
           convert->target, ash_units_count(cost->weights, count, sizeof(count)),
           ash_units_count(weights, all, sizeof(all)), cost->tensors, encoding_of(convert)->name, cost->bits,
           100.0 * cost->error);
}

/* The tokens of a text. */
static int read_text(const struct convert *convert, const char *path, struct ash_ids *ids, struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t size_bytes = 0;
    int rc = ash_tokenizer_open(convert->source, &tokenizer, err);

    if (rc == 0) rc = ash_file_read(path, EVAL_BYTES_MAX, &text, &size_bytes, err);
    if (rc == 0) rc = ash_tokenizer_encode(tokenizer, text, size_bytes, true, ids, err);
    if (rc == -EILSEQ) ash_err_prefix(err, rc, "%s", path);
    free(text);
    ash_tokenizer_close(tokenizer);
    return rc;
}

static int compare_folders(const struct convert *convert, const struct ash_ids *ids, struct ash_pass_distance *distance,
                           struct ash_err *err)
{
    struct ash_model *before = NULL, *after = NULL;
    int rc = ash_model_open(convert->source, &before, err);

    if (rc == 0) rc = ash_model_open(ash_commit_dir(convert->commit), &after, err);
    if (rc == 0) rc = ash_pass_compare_text(before, after, ids->data, ids->count, distance, err);
    ash_model_close(after);
    ash_model_close(before);
    return rc;
}

/* --eval, over the new folder before it has its name. */
static int evaluate(const struct convert *convert, struct ash_err *err)
{
    struct ash_pass_distance distance;
    struct ash_ids ids = {0};
    int rc = read_text(convert, convert->eval, &ids, err);

    if (rc == 0) rc = compare_folders(convert, &ids, &distance, err);
    if (rc == 0)
        printf("%s: %zu tokens, perplexity %.4f before, %.4f after, divergence %.6f nats a token\n", convert->eval,
               distance.tokens, exp(distance.loss_a), exp(distance.loss_b), distance.divergence);
    ash_ids_fini(&ids);
    return rc;
}

/* --calibrate. */
static int observe(void *ctx, struct ash_model *model, struct ash_inputs *inputs, struct ash_err *err)
{
    const struct convert *convert = ctx;
    struct ash_ids ids = {0};
    int rc = read_text(convert, convert->calibrate, &ids, err);

    if (rc == 0) rc = ash_pass_observe(model, ids.data, ids.count, inputs, err);
    ash_ids_fini(&ids);
    return rc;
}

static int write_folder(struct convert *convert, struct ash_err *err)
{
    struct ash_save_watch watch = {show_saved, &convert->progress};
    const struct ash_convert_opts opts = {.source = convert->source,
                                          .dir = ash_commit_dir(convert->commit),
                                          .dtype = convert->quant >= 0 ? quants[convert->quant].dtype
                                                                       : dtypes[convert->dtype],
                                          .encoding = encoding_of(convert),
                                          .is_gguf = convert->gguf,
                                          .max_shard_bytes = (size_t)convert->max_shard_size,
                                          .watch = &watch,
                                          .observe = convert->calibrate != NULL ? observe : NULL,
                                          .observe_ctx = convert};
    struct ash_str notes = {0};
    char count[ASH_UNITS_BYTES];
    struct ash_publish_cost cost = {0};
    size_t weights = 0;
    int rc = ash_convert_folder(&opts, &notes, &weights, &cost, err);

    ash_progress_bar_clear(&convert->progress);
    if (rc == 0) print_notes(notes.data);
    if (rc == 0 && opts.encoding != NULL) print_cost(convert, weights, &cost);
    if (rc == 0 && opts.encoding == NULL)
        printf("%s%s: %s parameters as %s\n", convert->target, convert->gguf ? "/model.gguf" : "",
               ash_units_count(weights, count, sizeof(count)), ash_dtype_name(opts.dtype));
    if (rc == 0 && convert->eval != NULL) rc = evaluate(convert, err);
    ash_str_fini(&notes);
    return rc;
}

/* ---- the parent: names the folder or removes it ------------------------------------------------------------------ */

static volatile sig_atomic_t child_pid; /* for the handler; set before signals are let through */
static volatile sig_atomic_t interrupted;

static void pass_on(int number)
{
    interrupted = number;
    if (child_pid > 0) kill((pid_t)child_pid, SIGTERM);
}

static const int ends[] = {SIGINT, SIGTERM, SIGHUP}; /* signals that ask a program to end */

static void set_handler(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ASH_COUNT(ends); i++)
        sigaction(ends[i], &action, NULL);
}

static _Noreturn void run_child(struct convert *convert, const sigset_t *mask)
{
    struct ash_err err = {0};
    int code;

    set_handler(SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    code = write_folder(convert, &err) < 0 ? ash_cmd_fail(&err) : 0;
    fflush(stdout);
    _exit(code);
}

/* Start run_child; no signal arrives before the handler knows the child. Returns its id, or a negative errno. */
static pid_t start_child(struct convert *convert)
{
    sigset_t held, mask;
    pid_t pid;
    int cause;

    sigemptyset(&held);
    for (size_t i = 0; i < ASH_COUNT(ends); i++)
        sigaddset(&held, ends[i]);
    sigprocmask(SIG_BLOCK, &held, &mask);
    pid = interrupted == 0 ? fork() : -1;
    cause = interrupted == 0 ? errno : EINTR;
    if (pid == 0) run_child(convert, &mask);
    child_pid = pid;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return pid < 0 ? -cause : pid;
}

/* Run write_folder in a child and wait for its end. Returns the exit code. */
static int run_and_wait(struct convert *convert)
{
    pid_t pid = start_child(convert);
    int status = 0;

    if (pid < 0 && interrupted == 0) ash_log(ASH_LOG_ERROR, "cannot start a process: %s", strerror(-pid));
    if (pid < 0) return interrupted != 0 ? ASH_CMD_EXIT_SIGNAL + (int)interrupted : 1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFEXITED(status)) ash_progress_bar_clear(&convert->progress); /* the child could not */
    if (interrupted != 0) return ASH_CMD_EXIT_SIGNAL + (int)interrupted;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) return ASH_CMD_EXIT_SIGNAL + SIGINT;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    ash_log(ASH_LOG_ERROR, "the conversion ended by signal %d: nothing was written", WTERMSIG(status));
    return 1;
}

/* The target must not exist, unless as an empty folder. */
static int prepare(struct convert *convert, struct ash_err *err)
{
    if (ash_path_exists(convert->target) && rmdir(convert->target) < 0)
        return ash_err_set(err, -EEXIST, "'%s' already exists: remove it or choose another name", convert->target);
    return ash_commit_begin(convert->target, &convert->commit, err);
}

static int convert_folder(struct convert *convert)
{
    struct ash_err err = {0};
    int code;

    set_handler(pass_on);
    if (prepare(convert, &err) < 0) return ash_cmd_fail(&err);
    ash_progress_bar_init(&convert->progress);
    code = run_and_wait(convert);
    if (code == 0) return ash_commit_finish(convert->commit, NULL, &err) < 0 ? ash_cmd_fail(&err) : 0;
    ash_commit_abort(convert->commit);
    return code;
}

/* The same where SRC or DST is in S3: a copy of SRC is brought here, DST is written here and sent. */
static int convert_remote(struct convert *convert)
{
    const char *url = convert->target;
    bool is_sent = ash_tier_is_url(url);
    struct ash_str source = {0}, stage = {0};
    struct ash_err err = {0};
    int code = 1, rc;

    ash_interrupt_install();
    rc = ash_cmd_fetch(convert->source, &source, &err);
    if (rc == 0 && is_sent) rc = ash_cmd_is_there(url, "config.json", &err);
    if (rc == 1) rc = ash_err_set(&err, -EEXIST, "'%s' already exists: remove it or choose another name", url);
    if (rc == 0 && is_sent) rc = ash_cmd_stage(url, &stage, &err);
    if (rc == 0 && is_sent) rc = ash_dir_remove(stage.data, &err);
    if (rc == 0) {
        convert->source = source.data;
        if (is_sent) convert->target = stage.data;
        code = convert_folder(convert);
    }
    if (rc == 0 && code == 0 && is_sent) {
        ash_interrupt_install();
        rc = ash_cmd_send_folder(stage.data, url, "config.json", &err);
        if (rc == 0) printf("sent to %s\n", url);
    }
    ash_str_fini(&source);
    ash_str_fini(&stage);
    return rc < 0 ? ash_cmd_fail(&err) : code;
}

/* Do the flags go together? Fills what follows from them. */
static int settle_flags(struct convert *convert, const struct ash_opts *opts)
{
    bool has_quant = ash_opts_is_set(opts, "quant");

    if (ash_opts_is_set(opts, "dtype") && has_quant)
        return ash_cmd_misuse("model convert", "--dtype or --quant, not both");
    if (!ash_opts_is_set(opts, "dtype") && !has_quant)
        return ash_cmd_misuse("model convert", "which precision? Give --dtype or --quant");
    if (!has_quant) convert->quant = -1;
    if (encoding_of(convert) != NULL && convert->gguf)
        return ash_cmd_misuse("model convert", "--quant fp8, mxfp4, nvfp4 and awq write safetensors, not --gguf");
    if (encoding_of(convert) == NULL && convert->eval != NULL)
        return ash_cmd_misuse("model convert", "--eval goes with --quant fp8, mxfp4, nvfp4 or awq");
    if ((encoding_of(convert) == &ash_encoding_awq128) != (convert->calibrate != NULL))
        return ash_cmd_misuse("model convert", "--quant awq and --calibrate TEXT go together");
    convert->gguf |= convert->quant >= 0 && encoding_of(convert) == NULL;
    return ASH_CMD_GO;
}

int ash_model_convert(int argc, char **argv)
{
    struct convert convert = {0};
    struct ash_opt_binding binding = {&convert_table, &convert};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    const char *dirs[2] = {NULL};
    size_t count = 0;
    int code;

    if (ash_opts_open(&binding, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, dirs, 2, &count);
    if (code == ASH_CMD_GO && count != 2) code = ash_cmd_misuse("model convert", "it takes two folders, SRC and DST");
    if (code == ASH_CMD_GO) code = settle_flags(&convert, opts);
    if (code == ASH_CMD_GO) {
        convert.source = dirs[0];
        convert.target = dirs[1];
        code =
            ash_tier_is_url(dirs[0]) || ash_tier_is_url(dirs[1]) ? convert_remote(&convert) : convert_folder(&convert);
    }
    ash_opts_close(opts);
    return code;
}
