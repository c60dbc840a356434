/* ashlar eval: how good is a model? Mean loss on token shards, right answers to arithmetic problems, tasks. */
#include "cmd/cmd.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/interrupt.h"
#include "cmd/eval_priv.h"
#include "cmd/rank_flags.h"
#include "serve/votes.h"

#define PROBLEM_FLAGS_MAX 32

static const char *const tasks[] = {"none", "arithmetic", NULL};
enum { TASK_NONE, TASK_ARITHMETIC };

#define FIELD(name) offsetof(struct ash_eval, name)

static const struct ash_opt eval_opts[] = {
    {"model", ASH_OPT_STRING, FIELD(model), NULL, ASH_CMD_MODEL_HELP, 0, 0, NULL},
    {"lora", ASH_OPT_STRING, FIELD(computing.lora), NULL, ASH_CMD_LORA_HELP, 0, 0, NULL},
    {"data", ASH_OPT_STRING, FIELD(data), NULL, "token shards, as `ashlar data` writes them: measure the loss", 0, 0,
     NULL},
    {"seq", ASH_OPT_INT, FIELD(seq_tokens), "0",
     "with --data: tokens of one window; 0: the model's context, at most 1024. A run validates with its data.seq", 0,
     INFINITY, NULL},
    {"windows", ASH_OPT_INT, FIELD(windows), "0", "with --data: how many windows, drawn evenly; 0: all", 0, INFINITY,
     NULL},
    {"task", ASH_OPT_CHOICE, FIELD(task), "none", "arithmetic: count exact answers to generated problems", 0, 0, tasks},
    {"tasks", ASH_OPT_LIST, FIELD(tasks), NULL,
     "tasks of lm-evaluation-harness as YAML files, over local JSON lines, JSON or CSV", 0, 0, NULL},
    {"limit", ASH_OPT_INT, FIELD(limit), "0", "with --tasks: only the first documents; 0: all", 0, INFINITY, NULL},
    {"num_fewshot", ASH_OPT_INT, FIELD(num_fewshot), "-1", "with --tasks: examples before each; -1: as the task says",
     -1, 10000, NULL},
    {"output", ASH_OPT_STRING, FIELD(output), NULL, "with --tasks: write the harness's JSON to this file", 0, 0, NULL},
    {"strategy", ASH_OPT_CHOICE, FIELD(strategy), "greedy",
     "with --task: several answers to each problem, of which one counts", 0, 0, ash_strategy_names},
    {"n", ASH_OPT_LIST, FIELD(n), "1,2,4,8,16", "with --strategy: how many answers", 0, 0, NULL},
    {"verifier", ASH_OPT_LIST, FIELD(verifier), NULL,
     "with --strategy best or weighted: what gives answers their weights, a list as rl.rewards has it; default: the "
     "right answer (best), the model's own probabilities (weighted)",
     0, 0, NULL},
    {"temperature", ASH_OPT_DOUBLE, FIELD(temperature), "1", "with --strategy: of the answers", 0.01, 100, NULL},
    {"think_min", ASH_OPT_INT, FIELD(think_min), "0",
     "with --tasks or --strategy: tokens of thoughts at least: an earlier </think> is replaced by \"Wait\"", 0,
     INT32_MAX, NULL},
    {"think_max", ASH_OPT_INT, FIELD(think_max), "0",
     "with --tasks or --strategy: tokens of thoughts at most: then </think> is put in; answers are what follows", 0,
     INT32_MAX, NULL},
    {"plot", ASH_OPT_STRING, FIELD(plot), NULL, "with --strategy: draw accuracy over tokens to this SVG file", 0, 0,
     NULL},
    {"count", ASH_OPT_INT, FIELD(count), "1000", "with --task: how many problems", 1, INFINITY, NULL},
    {"show", ASH_OPT_INT, FIELD(show), "5", "with --task: how many wrong answers to show", 0, INFINITY, NULL},
    {"batch", ASH_OPT_INT, FIELD(batch), "64",
     "with --task: problems answered at once. Changes the speed, never the result", 1, 4096, NULL},
    {"kv_dtype", ASH_OPT_CHOICE, FIELD(kv_dtype), "auto", ASH_CMD_KV_DTYPE_HELP, 0, 0, ash_cmd_kv_dtypes},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};

static const struct ash_opt_table eval_table = {
    .section = "", .help = "flags", .opts = eval_opts, .count = ASH_COUNT(eval_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis =
        "ashlar eval --model DIR --data SHARDS [flags]\nashlar eval --model DIR --task arithmetic [--count N] [flags]\n"
        "ashlar eval --model DIR --tasks TASK.yaml,... [flags]",
    .about =
        "With --data: mean loss, perplexity and bits per byte of the model on token shards.\n"
        "With --task arithmetic: exact-match accuracy on generated problems, by default held-out ones\n"
        "(--split valid), with a 95 % confidence interval (Wilson).\n"
        "With --tasks: scores of tasks of lm-evaluation-harness, with its JSON. Python in a task is refused.\n"
        "With --strategy: accuracy over the number of answers: the best by the checker (an upper bound), the most\n"
        "frequent one, or the most frequent one weighed by log-probability; and unbiased pass@k. With --verifier the\n"
        "weights are those of programs, reward models or checks.",
    .examples = "  ashlar eval --model run/model --task arithmetic --count 1000\n"
                "  ashlar eval --model run/model --data data/valid --json\n"
                "  ashlar eval --model run/model --tasks task.yaml --output results.json\n"
                "  ashlar eval --model run/model --task arithmetic --strategy majority --n 1,4,16 --plot curve.svg",
};

static int check_flags(const struct ash_eval *eval)
{
    if (eval->model == NULL) return ash_cmd_misuse("eval", "--model DIR is missing");
    if (eval->data == NULL && eval->task == TASK_NONE && eval->tasks.count == 0)
        return ash_cmd_misuse("eval", "say what to measure: --data DIR, --task arithmetic or --tasks FILE.yaml");
    if ((eval->data != NULL) + (eval->task != TASK_NONE) + (eval->tasks.count > 0) > 1)
        return ash_cmd_misuse("eval", "--data, --task and --tasks exclude each other");
    if ((eval->think_min > 0 || eval->think_max > 0) && eval->tasks.count == 0 && eval->strategy == 0)
        return ash_cmd_misuse("eval", "--think-min and --think-max are for --tasks and --strategy");
    if (eval->strategy != 0 && eval->task == TASK_NONE)
        return ash_cmd_misuse("eval", "--strategy needs answers that can be checked: give --task arithmetic");
    if (eval->verifier.count > 0 && eval->strategy != ASH_STRATEGY_BEST && eval->strategy != ASH_STRATEGY_WEIGHTED)
        return ash_cmd_misuse("eval", "--verifier gives weights: it goes with --strategy best or weighted");
    return ASH_CMD_GO;
}

/* The problems' own settings as plain flags; here the held-out ones are the default. */
static size_t problem_flags(struct ash_opt *flags, size_t max)
{
    ash_assert(ash_arithmetic_table.count <= max);
    for (size_t i = 0; i < ash_arithmetic_table.count; i++) {
        flags[i] = ash_arithmetic_table.opts[i];
        if (strcmp(flags[i].name, "split") == 0) flags[i].default_text = "valid";
    }
    return ash_arithmetic_table.count;
}

static int measure(struct ash_eval *eval, struct ash_err *err)
{
    if (eval->tasks.count > 0) return ash_eval_tasks(eval, err);
    if (eval->strategy != 0) return ash_eval_strategy(eval, err);
    return eval->task == TASK_ARITHMETIC ? ash_eval_arithmetic(eval, err) : ash_eval_data(eval, err);
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    struct ash_eval eval = *(const struct ash_eval *)ctx;
    struct ash_err err = {0};
    int rc = check_flags(&eval), code;

    (void)opts;
    (void)word;
    if (rc == ASH_CMD_GO)
        rc = ash_cmd_ranks_begin(&eval.computing,
                                 &(struct ash_rank_job){eval.model, eval.kv_dtype, eval.argc, eval.argv});
    if (rc != ASH_CMD_GO) return rc;
    ash_interrupt_install();
    rc = ash_cmd_engine_open(&eval.computing, eval.model, &eval.engine, &err);
    if (rc == 0) ash_cmd_use_kv_dtype(eval.engine, eval.kv_dtype);
    if (rc == 0) rc = measure(&eval, &err);
    code = ash_cmd_engine_close(&eval.computing, eval.engine);
    if (rc == -ECANCELED) return ash_cmd_stopped();
    return rc < 0 ? ash_cmd_fail(&err) : code;
}

static int run(int argc, char **argv)
{
    struct ash_opt flags[PROBLEM_FLAGS_MAX];
    const struct ash_opt_table arithmetic_table = {"", "with --task arithmetic", flags,
                                                   problem_flags(flags, ASH_COUNT(flags))};
    struct ash_eval eval = {.argc = argc, .argv = argv};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&eval_table, &eval},
                                                   {&ash_engine_table, &eval.computing},
                                                   {&ash_rank_flags_table, &eval.computing},
                                                   {&arithmetic_table, &eval.arithmetic}},
                                      .respond = respond,
                                      .flags = &eval};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_eval = {"eval", "measure a model: loss on data, or right answers", run};
