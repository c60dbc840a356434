/* ashlar - the one program: finds the subcommand and runs it. */
#include "cmd/cmd.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/assert.h"
#include "base/log.h"

/* In the order of `ashlar --help`. */
/* clang-format off */
static const struct ash_cmd *const commands[] = {
    &ash_cmd_data,
    &ash_cmd_train,
    &ash_cmd_sft,
    &ash_cmd_dpo,
    &ash_cmd_reward,
    &ash_cmd_distill,
    &ash_cmd_rl,
    &ash_cmd_launch,
    &ash_cmd_runs,
    &ash_cmd_submit,
    &ash_cmd_jobs,
    &ash_cmd_policy,
    &ash_cmd_generate,
    &ash_cmd_serve,
    &ash_cmd_route,
    &ash_cmd_eval,
    &ash_cmd_scaling,
    &ash_cmd_model,
    &ash_cmd_store,
    &ash_cmd_checkpoint,
    &ash_cmd_catalog,
    &ash_cmd_plan,
    &ash_cmd_agent,
    &ash_cmd_check,
    &ash_cmd_dash,
    &ash_cmd_flight,
    &ash_cmd_trace,
    &ash_cmd_diagnose,
    &ash_cmd_xid,
    &ash_cmd_chaos,
    &ash_cmd_bench,
    &ash_cmd_version,
    &ash_cmd_completion,
};
/* clang-format on */

const struct ash_cmd *const *ash_cmd_all(size_t *count_out)
{
    *count_out = ASH_COUNT(commands);
    return commands;
}

/* A reader of our output (`| head`) may stop: that ends the program without a word. A full disk is reported. */
static int flush_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    if (errno != EPIPE) ash_log(ASH_LOG_ERROR, "cannot write to standard output: %s", strerror(errno));
    return code != 0 ? code : 1;
}

int main(int argc, char **argv)
{
    static char version[] = "version";
    int code;

    prctl(PR_SET_NAME, "ashlar"); /* started as /proc/self/exe it would be named exe */
    signal(SIGPIPE, SIG_DFL);
    if (argc > 1 && strcmp(argv[1], "--version") == 0) argv[1] = version;
    code = flush_output(ash_cmd_dispatch("ashlar", commands, ASH_COUNT(commands), argc, argv));
    ash_cmd_leave_launch();
    return code;
}
