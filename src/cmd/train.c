/* ashlar train: a job file and overrides in, a folder with a trained model out. Only composes: see train/run/run.h. */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "collective/group.h"
#include "record/metrics_page.h"
#include "record/ring_file.h"
#include "cmd/publish.h"
#include "cmd/rl_samplers.h"
#include "observe/exporter/exporter.h"
#include "orchestrate/node/ends.h"
#include "post/post.h"
#include "train/job/job.h"
#include "train/run/control.h"
#include "train/run/run.h"

#define STOPPING "ashlar: stopping after this step (Ctrl-C again: at once, without saving)\n"
#define CLEAR_LINE "\r\033[K"

struct flags {
    const char *out;
    bool resume, allow_change;
    int64_t metrics_port;
    const char *metrics_address;
    const char *cpu, *profile, *pages;
    double peak_tflops;
    bool sampler;
};

static const struct ash_opt flag_opts[] = {
    {"out", ASH_OPT_STRING, offsetof(struct flags, out), NULL,
     "folder of the run: checkpoints, log.jsonl, report.html, model", 0, 0, NULL},
    {"resume", ASH_OPT_BOOL, offsetof(struct flags, resume), NULL,
     "continue from the newest checkpoint in --out (JOB.yaml may be left out)", 0, 0, NULL},
    {"allow_change", ASH_OPT_BOOL, offsetof(struct flags, allow_change), NULL,
     "resume although the job or the data changed in something that changes results", 0, 0, NULL},
    {"metrics_port", ASH_OPT_INT, offsetof(struct flags, metrics_port), "-1",
     "serve Prometheus metrics on this port; 0: a free one; -1: do not", -1, 65535, NULL},
    {"metrics_address", ASH_OPT_STRING, offsetof(struct flags, metrics_address), "127.0.0.1",
     "address to serve metrics on; 0.0.0.0 or ::: all of this machine, for a Prometheus elsewhere", 0, 0, NULL},
    {"pages", ASH_OPT_STRING, offsetof(struct flags, pages), ASH_METRICS_PAGE_DIR,
     "folder in memory where every rank publishes metrics, steps and collective calls (ashlar agent, ashlar flight); "
     "empty: nowhere",
     0, 0, NULL},
    {"peak_tflops", ASH_OPT_DOUBLE, offsetof(struct flags, peak_tflops), "0",
     "what one rank's device can do, in 10^12 operations per second, for the MFU in metrics; 0: as the catalog says "
     "of a GPU",
     0, 1e9, NULL},
    {"cpu", ASH_OPT_STRING, offsetof(struct flags, cpu), NULL,
     "which kernels to use where runtime.backend does not say: ASHLAR_CPU=NAME in the environment holds for every "
     "command",
     0, 0, NULL},
    {"profile", ASH_OPT_STRING, offsetof(struct flags, profile), NULL,
     "write every op with its time to this file, a Chrome trace, and print a table; slows steps down", 0, 0, NULL},
    {"sampler", ASH_OPT_BOOL, offsetof(struct flags, sampler), NULL,
     "rl with rollout.mode=apart: sample for the run in --out, in addition to its own samplers", 0, 0, NULL},
};
static const struct ash_opt_table flag_table = {"", "flags", flag_opts, ASH_COUNT(flag_opts)};

static const struct ash_cmd_usage train_usage = {
    .synopsis = "ashlar train JOB.yaml [section.setting=value ...] --out DIR\nashlar train --resume --out DIR",
    .about =
        "Trains a language model. JOB.yaml holds the settings below, as one map per section; words of the form\n"
        "section.setting=value override them. Ctrl-C saves and ends, --resume continues as if nothing had happened:\n"
        "results depend on the job and the data alone, never on threads, micro-batches or interruptions.",
    .examples = "  ashlar train examples/quickstart.yaml --out runs/quickstart\n"
                "  ashlar train job.yaml optimizer.lr=1e-3 train.steps=2000 --out runs/lr-1e-3 --metrics-port 9780\n"
                "  ashlar train --resume --out runs/quickstart runtime.threads=4",
};

static const struct ash_cmd_usage sft_usage = {
    .synopsis = "ashlar sft JOB.yaml [section.setting=value ...] --out DIR\nashlar sft --resume --out DIR",
    .about = "Fine-tunes a model on examples that `ashlar data chat` wrote: `ashlar train` with train.method=sft. The\n"
             "loss is the mean over learned tokens of a step, however examples are packed.",
    .examples = "  ashlar sft job.yaml model.from=models/qwen3 data.train=data/chat data.seq=2048 --out runs/chat",
};

static const struct ash_cmd_usage dpo_usage = {
    .synopsis = "ashlar dpo JOB.yaml [section.setting=value ...] --out DIR\nashlar dpo --resume --out DIR",
    .about =
        "Tunes a model on pairs of answers: `ashlar train` with train.method=dpo. Log-probabilities of the frozen\n"
        "reference are computed once and kept with the data, under a hash of the model.",
    .examples = "  ashlar dpo job.yaml model.from=runs/chat/model data.train=data/pairs dpo.beta=0.1 --out runs/dpo",
};

static const struct ash_cmd_usage reward_usage = {
    .synopsis = "ashlar reward JOB.yaml [section.setting=value ...] --out DIR\nashlar reward --resume --out DIR",
    .about = "Trains a reward model on pairs of answers: `ashlar train` with train.method=reward. The result is a\n"
             "...ForSequenceClassification folder with one label, as transformers reads it.",
    .examples = "  ashlar reward job.yaml model.from=runs/chat/model data.train=data/pairs --out runs/reward",
};

static const struct ash_cmd_usage distill_usage = {
    .synopsis = "ashlar distill JOB.yaml [section.setting=value ...] --out DIR\nashlar distill --resume --out DIR",
    .about = "Trains a model on another model's distributions over examples of `ashlar data chat`, or over token\n"
             "shards of `ashlar data tokenize`: `ashlar train` with train.method=distill. Losses and names are those\n"
             "of TRL's GKD.",
    .examples =
        "  ashlar distill job.yaml model.from=models/small distill.teacher=models/large data.train=data/chat \\\n"
        "      --out runs/small",
};

static const struct ash_cmd_usage rl_usage = {
    .synopsis = "ashlar rl JOB.yaml [section.setting=value ...] --out DIR\nashlar rl --resume --out DIR",
    .about =
        "Trains a model on its own answers and their rewards: `ashlar train` with train.method=rl. The sampler's\n"
        "log-probabilities are the trainer's to the bit; a run that finds another ratio than 1 where both have the\n"
        "same weights ends and names the token.",
    .examples = "  ashlar rl examples/rl.yaml model.from=runs/quickstart/model --out runs/rl",
};

/* A command of training: its name, its help, and the method that it sets. */
struct method {
    const char *name;
    const struct ash_cmd_usage *usage;
    enum ash_job_method method;
};

/* The job file: the one named, or the one that the run to resume left in its folder. */
static int load_job(struct ash_opts *opts, const struct flags *flags, const char *path, struct ash_err *err)
{
    char left[PATH_MAX];

    if (path != NULL) return ash_opts_load_yaml(opts, path, err);
    if (ash_path_join(left, sizeof(left), flags->out, "job.yaml") < 0)
        return ash_err_set(err, -ENAMETOOLONG, "--out: the path is too long");
    if (!ash_path_exists(left))
        return ash_err_set(err, -ENOENT, "'%s' holds no run to resume: give a job file to begin one", flags->out);
    return ash_opts_load_yaml(opts, left, err);
}

/* Settings come from defaults, then the job file, then the environment, then the command line, which is read a second
 * time because it names the file. Returns ASH_CMD_GO or an exit code. */
static int read_settings(const struct method *method, struct ash_opts *opts, const struct flags *flags, int argc,
                         char **argv)
{
    const char *words[1] = {NULL};
    struct ash_err err = {0};
    size_t count = 0;
    bool help;
    int rc = ash_cmd_parse(method->usage, opts, argc, argv, words, ASH_COUNT(words), &count);

    if (rc != ASH_CMD_GO) return rc;
    if (flags->out == NULL) return ash_cmd_misuse(method->name, "where to? give --out DIR");
    if (count == 0 && !flags->resume) return ash_cmd_misuse(method->name, "what to train? give a job file");
    if (load_job(opts, flags, words[0], &err) < 0 || ash_opts_set_env(opts, &err) < 0 ||
        ash_opts_parse_args(opts, argc - 1, argv + 1, words, ASH_COUNT(words), &count, &help, &err) < 0) {
        ash_log(ASH_LOG_ERROR, "%s", err.text);
        return 2;
    }
    return ASH_CMD_GO;
}

/* Where this process stands among others. */
struct train_ranks {
    struct ash_launch_env env;
    const struct ash_group_opts *opts;
    char labels[ASH_RING_LABELS_BYTES];
    struct ash_group *group; /* NULL: alone, or without a place yet */
};

/* Meet the other ranks, where this process was launched as one of several. One that joins does so when it is ready; one
 * without others but samplers can be joined. */
static int meet_ranks(struct train_ranks *ranks, const struct flags *flags, struct ash_err *err)
{
    ash_publish_start(flags->pages, ash_publish_labels(&ranks->env, flags->out, ranks->labels, ASH_RING_LABELS_BYTES));
    if ((ranks->env.size == 1 && ranks->env.places == 1) || ranks->env.joins) return 0;
    return ash_group_open(&ranks->env, ranks->opts, &ranks->group, err);
}

/* See ash_run_opts. */
static int join_run(void *ctx, struct ash_group **group_out, struct ash_err *err)
{
    struct train_ranks *ranks = ctx;
    int rc = ash_group_open(&ranks->env, ranks->opts, group_out, err);

    if (rc == 0) ash_cmd_mark_placed(ranks->opts->job_dir);
    return rc;
}

/* Serve metrics if requested: from the first rank, whose steps are those of all. */
static int serve_metrics(const struct flags *flags, struct ash_exporter **exporter_out, struct ash_err *err)
{
    int rc;

    if (flags->metrics_port < 0) return 0;
    rc = ash_exporter_open(flags->metrics_address, (int)flags->metrics_port, exporter_out, err);
    if (rc < 0) return ash_err_prefix(err, rc, "--metrics-address, --metrics-port");
    bool v6 = strchr(flags->metrics_address, ':') != NULL;
    printf("metrics: http://%s%s%s:%d/metrics\n", v6 ? "[" : "", flags->metrics_address, v6 ? "]" : "",
           ash_exporter_port(*exporter_out));
    fflush(stdout);
    return 0;
}

/* The source that replaces data.train. A joining process reads the others' results. */
static int open_post(const struct ash_job *job, const struct flags *flags, const struct train_ranks *ranks,
                     struct ash_post **post_out, struct ash_err *err)
{
    return ash_post_open(job, ranks->group, flags->out, ranks->env.joins ? NULL : stdout, post_out, err);
}

/* The exit code of a run that was stopped before its last step. */
static int stopped_code(const struct ash_run_result *result)
{
    if (ash_interrupt_signal() == 0 && !result->has_left) return 0;              /* ashlar run stop */
    return ash_interrupt_signal() == SIGINT ? ash_cmd_stopped() : ASH_END_SAVED; /* a scheduler starts it again */
}

/* Train with the ranks that have met. Returns a negative errno or the exit code. */
static int train(const struct ash_job *job, const struct flags *flags, struct train_ranks *ranks, struct ash_err *err)
{
    struct ash_group **group = &ranks->group;
    bool joins = ranks->env.joins, is_first = !joins && (*group == NULL || ash_group_rank(*group) == 0);
    struct ash_run_opts opts = {.dir = flags->out,
                                .pages = flags->pages,
                                .labels = ranks->labels,
                                .peak_flops = flags->peak_tflops * 1e12,
                                .resume = flags->resume,
                                .allow_change = flags->allow_change,
                                .screen = stdout,
                                .terminal = isatty(STDOUT_FILENO),
                                .stop = ash_interrupt_requested,
                                .profile = flags->profile,
                                .group = *group != NULL || joins ? group : NULL,
                                .join = joins ? join_run : NULL,
                                .join_ctx = ranks,
                                .here = ranks->env.local_size};
    struct ash_run_result result = {0};
    struct ash_exporter *exporter = NULL;
    struct ash_post *post = NULL;
    int rc = ash_run_judge_start(open_post(job, flags, ranks, &post, err));

    if (rc < 0) return rc;
    opts.parts = ash_post_parts(post);
    rc = is_first ? serve_metrics(flags, &exporter, err) : 0;
    if (rc < 0) {
        ash_post_close(post);
        return rc;
    }
    if (is_first) ash_interrupt_announce(isatty(STDERR_FILENO) ? CLEAR_LINE STOPPING : STOPPING);
    rc = ash_run_job(job, &opts, &result, err);
    ash_exporter_close(exporter);
    ash_post_close(post);
    if (rc < 0) return rc;
    if (result.is_uncopied) return ASH_END_SAVED; /* --resume copies it */
    return result.stopped ? stopped_code(&result) : 0;
}

/* The exit code where the folder has another owner. A process of this machine lives for certain. The lock of another
 * machine's may be left from one that lost its power, until the file system notices: that is tried again. */
static int taken_code(const char *out)
{
    struct ash_run_status status = {0};
    char host[sizeof(status.host)] = "";

    gethostname(host, sizeof(host) - 1);
    return ash_run_status_read(out, &status, NULL) == 0 && strcmp(status.host, host) != 0 ? ASH_END_TAKEN
                                                                                          : ASH_END_BAD_SETTINGS;
}

/* Meet the other ranks and train. Returns the exit code. */
static int meet_and_train(const struct ash_job *job, const struct flags *flags, const struct ash_group_opts *group_opts,
                          const struct ash_launch_env *env)
{
    struct train_ranks ranks = {.opts = group_opts, .env = *env};
    struct ash_err err = {0};
    int rc, exit_code;

    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is a failed save, not the end */
    signal(SIGPIPE, SIG_IGN); /* nor is a closed standard output */
    ash_interrupt_install();
    rc = meet_ranks(&ranks, flags, &err);
    if (rc == 0) rc = train(job, flags, &ranks, &err);
    exit_code = rc < 0 ? ash_cmd_fail(&err) : rc;
    if (rc == -EBADE) exit_code = ASH_END_BAD_SETTINGS;
    if (rc == -EBUSY) exit_code = taken_code(flags->out);
    if (rc == -EINTR) exit_code = ash_cmd_stopped(); /* a wait for other ranks that a signal has ended */
    ash_group_close(ranks.group);
    ash_publish_stop(rc < 0);
    return exit_code;
}

/* Train, or sample for those that train. Returns the exit code. */
static int run_job(struct ash_job *job, const struct flags *flags, const struct ash_group_opts *group_opts, int argc,
                   char **argv)
{
    struct ash_launch_env env;
    struct ash_err err = {0};
    bool samples = flags->sampler;
    int rc;

    if (ash_launch_env_read(&env, &err) < 0) return ash_cmd_fail(&err);
    rc = ash_cmd_rl_part(job, argc, argv, &env, &samples, &err);
    if (rc < 0) return rc == -EINVAL ? ash_cmd_misuse(argv[0], "%s", err.text) : ash_cmd_fail(&err);
    return samples ? ash_cmd_rl_sample(job, flags->out, &env, group_opts->job_dir)
                   : meet_and_train(job, flags, group_opts, &env);
}

static int run_method(const struct method *method, int argc, char **argv)
{
    struct flags flags;
    struct ash_job job;
    struct ash_group_opts group_opts;
    struct ash_fabric_opts fabric_opts = {0};
    struct ash_opt_binding bindings[3 + ASH_JOB_SECTIONS] = {
        {&flag_table, &flags}, {&ash_group_table, &group_opts}, {&ash_fabric_table, &fabric_opts}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    int exit_code;

    ash_job_bind(&job, bindings + 3);
    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    exit_code = read_settings(method, opts, &flags, argc, argv);
    if (exit_code == ASH_CMD_GO) {
        ash_log_set_level((enum ash_log_level)job.runtime.log_level);
        if (job.runtime.backend == NULL) job.runtime.backend = flags.cpu;
        if (method->method != ASH_METHOD_PRETRAIN) job.train.method = method->method;
        group_opts.fabric = &fabric_opts;
        exit_code = ash_job_resolve(&job, &err) < 0 ? ash_cmd_misuse(method->name, "%s", err.text)
                                                    : run_job(&job, &flags, &group_opts, argc, argv);
    }
    ash_opts_close(opts);
    return exit_code;
}

static int run_train(int argc, char **argv)
{
    return run_method(&(struct method){"train", &train_usage, ASH_METHOD_PRETRAIN}, argc, argv);
}

static int run_sft(int argc, char **argv)
{
    return run_method(&(struct method){"sft", &sft_usage, ASH_METHOD_SFT}, argc, argv);
}

static int run_dpo(int argc, char **argv)
{
    return run_method(&(struct method){"dpo", &dpo_usage, ASH_METHOD_DPO}, argc, argv);
}

static int run_reward(int argc, char **argv)
{
    return run_method(&(struct method){"reward", &reward_usage, ASH_METHOD_REWARD}, argc, argv);
}

static int run_distill(int argc, char **argv)
{
    return run_method(&(struct method){"distill", &distill_usage, ASH_METHOD_DISTILL}, argc, argv);
}

static int run_rl(int argc, char **argv)
{
    return run_method(&(struct method){"rl", &rl_usage, ASH_METHOD_RL}, argc, argv);
}

const struct ash_cmd ash_cmd_train = {"train", "train a model from a job file", run_train};
const struct ash_cmd ash_cmd_sft = {"sft", "fine-tune a model on examples", run_sft};
const struct ash_cmd ash_cmd_dpo = {"dpo", "tune a model on pairs of answers", run_dpo};
const struct ash_cmd ash_cmd_reward = {"reward", "train a reward model on pairs of answers", run_reward};
const struct ash_cmd ash_cmd_distill = {"distill", "train a model on the distributions of another", run_distill};
const struct ash_cmd ash_cmd_rl = {"rl", "train a model on its own answers and their rewards", run_rl};
