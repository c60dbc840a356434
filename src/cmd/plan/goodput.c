/* ashlar plan goodput: what failures leave of a job's time under four ways to keep its state. */
#include "cmd/plan/plan_priv.h"

#include <stdio.h>

#include "cmd/plan/goodput_priv.h"

#define SIM_FAILURES 20000.0
#define SIM_EVENTS 1000000.0

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan goodput --model NAME|DIR --cluster COUNTxNAME [flags]\n"
                "ashlar plan goodput --params N --gpus N [flags]\n"
                "ashlar plan goodput --ledger DIR/ledger.json [--mtbf-hours H]",
    .about =
        "Says which part of its time a training job spends on steps that count, under four ways to keep its state:\n"
        "checkpoints to shared storage that stop the job (sync) or are written while it trains (async), copies in\n"
        "the memory and on the disks of the nodes (tiered), and a second copy of the state on other GPUs\n"
        "(checkpointless). Prints the best interval, losses by cause, the memory that each takes, and where one\n"
        "way overtakes another, by formula and by simulation.",
    .examples =
        "  ashlar plan goodput --model llama-3.1-405b --cluster 2048xp5.48xlarge\n"
        "  ashlar plan goodput --model llama-3.1-405b --cluster 2048xp5.48xlarge --storage fsx-persistent2-1000 "
        "--storage-tib 500\n"
        "  ashlar plan goodput --params 70B --gpus 1024 --mtbf-hours 7.9 --svg goodput.svg\n"
        "  ashlar plan goodput --params 1T --gpus 131072 --write-gb-s 2000 --spares 64 --json\n"
        "  ashlar plan goodput --ledger runs/a/ledger.json --mtbf-hours 3",
};

static int choose_rate(const struct ash_goodput_flags *flags, const struct ash_opts *opts,
                       struct ash_goodput_answer *answer)
{
    bool by_rate = ash_opts_is_set(opts, "failure-rate"), by_mtbf = ash_opts_is_set(opts, "mtbf-hours");

    if (by_rate + by_mtbf + ash_opts_is_set(opts, "failures") > 1)
        return ash_cmd_misuse("plan goodput", "give one of --failures, --failure-rate and --mtbf-hours, not several");
    answer->rate_source = ash_goodput_rate_names[flags->failures];
    if (by_rate || by_mtbf) answer->rate_source = "given";
    if (by_rate) answer->job.failures_per_gpu_hour = flags->failure_rate;
    if (by_mtbf) answer->job.failures_per_gpu_hour = 1 / (flags->mtbf_hours * answer->job.gpus);
    return 0;
}

static void solve(const struct ash_goodput_flags *flags, struct ash_goodput_answer *answer)
{
    const struct ash_goodput_job *job = &answer->job;
    double best = -1;

    for (enum ash_goodput_kind k = 0; k < ASH_GOODPUT_KINDS; k++) {
        ash_goodput_plan(job, k, &answer->way[k]);
        ash_goodput_solve(&answer->way[k], &answer->result[k]);
        ash_goodput_simulate(&answer->way[k], flags->days * 86400, SIM_FAILURES, SIM_EVENTS, (uint64_t)flags->seed,
                             &answer->sim[k]);
        ash_goodput_memory_of(job, k, &answer->memory[k]);
        if (k == ASH_GOODPUT_SYNC)
            ash_goodput_break_even_of(job, ASH_GOODPUT_SYNC, ASH_GOODPUT_PEERS, &answer->even[k]);
        else
            ash_goodput_break_even_of(job, k - 1, k, &answer->even[k]);
        if (!answer->memory[k].fits || answer->result[k].shares.useful <= best) continue;
        best = answer->result[k].shares.useful;
        answer->best = k;
    }
}

/* Check storage flags that are missing or contradict each other: the exit code, or 0. */
static int misused_storage(const struct ash_goodput_flags *flags, const struct ash_opts *opts)
{
    bool rates = ash_opts_is_set(opts, "write-gb-s") || ash_opts_is_set(opts, "read-gb-s");

    if (flags->storage == NULL && flags->storage_tib > 0)
        return ash_cmd_misuse("plan goodput", "--storage-tib needs --storage: TiB of what?");
    if (flags->storage != NULL && flags->cluster == NULL)
        return ash_cmd_misuse("plan goodput", "--storage needs a --cluster: its machines are the clients");
    if (flags->storage != NULL && rates)
        return ash_cmd_misuse("plan goodput", "give --storage or the rates --write-gb-s and --read-gb-s, not both");
    return 0;
}

/* Check flags that are missing or contradict each other: the exit code, or 0. */
static int misused(const struct ash_goodput_flags *flags, const struct ash_opts *opts)
{
    if (flags->model != NULL && flags->params > 0)
        return ash_cmd_misuse("plan goodput", "give --model or --params, not both");
    if (flags->cluster != NULL && flags->gpus > 0)
        return ash_cmd_misuse("plan goodput", "give --cluster or --gpus, not both");
    if (flags->model == NULL && flags->params == 0)
        return ash_cmd_misuse("plan goodput", "say which model (--model llama-3.1-405b, or --params 405B)");
    if (flags->cluster == NULL && flags->gpus == 0)
        return ash_cmd_misuse("plan goodput", "say which machines (--cluster 2048xp5.48xlarge, or --gpus 16384)");
    return misused_storage(flags, opts);
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct ash_goodput_flags *flags = ctx;
    struct ash_goodput_answer answer = {0};
    struct ash_err err = {0};
    int code = flags->ledger != NULL ? 0 : misused(flags, opts);

    (void)word;
    if (flags->ledger != NULL) return ash_goodput_answer_ledger(flags, opts);
    if (code != 0) return code;
    ash_goodput_fill(flags, &answer.job);
    answer.storage = flags->storage;
    if (ash_goodput_look_up(flags, &answer.job, &err) < 0) return ash_cmd_fail(&err);
    code = choose_rate(flags, opts, &answer);
    if (code != 0) return code;
    if (ash_goodput_check(&answer.job, &err) < 0) return ash_cmd_fail(&err);
    solve(flags, &answer);
    if (flags->svg != NULL && ash_goodput_draw(&answer, flags->svg, &err) < 0) return ash_cmd_fail(&err);
    if (!flags->json) {
        ash_goodput_print_table(&answer);
        return 0;
    }
    return ash_goodput_print_json(&answer, &err) < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    struct ash_goodput_flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&ash_goodput_table, &flags}, {&ash_catalog_table, &flags.machines}},
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_plan_goodput = {"goodput",
                                             "what failures leave of a job's time, and which checkpoints pay", run};
