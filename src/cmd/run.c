/* ashlar run: a training run seen and steered from outside, by its folder. */
#include "cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/number.h"
#include "cmd/run_priv.h"
#include "train/run/control.h"

#define LOOK_NS 50000000

struct run_flags {
    double wait;
};

static const struct ash_opt run_opts[] = {
    {"wait", ASH_OPT_DOUBLE, offsetof(struct run_flags, wait), "60",
     "seconds to wait until it has happened; 0: leave the request and return", 0, 86400, NULL},
};
static const struct ash_opt_table run_table = {"", "flags", run_opts, ASH_COUNT(run_opts)};

static const struct ash_cmd_usage status_usage = {
    .synopsis = "ashlar run status DIR",
    .about = "What the run in this folder is at: step, loss, layout, ranks and spares. Exit code 3 where none is "
             "running.",
    .examples = "  ashlar run status runs/quickstart",
};
static const struct ash_cmd_usage resize_usage = {
    .synopsis = "ashlar run resize DIR RANKS",
    .about = "Ranks beyond RANKS hand over what they hold and leave at a step's edge; nothing is redone. More ranks "
             "than there\nare come from `ashlar launch`, which starts up to --procs and --spares again. The bits stay.",
    .examples = "  ashlar run resize runs/big 2\n  ashlar run resize runs/big 4",
};
static const struct ash_cmd_usage stop_usage = {
    .synopsis = "ashlar run stop DIR",
    .about = "The run saves after the step that it is in, and ends well. `ashlar train --resume` continues it.",
    .examples = "  ashlar run stop runs/big",
};

#define NOT_RUNNING 3

/* Words: DIR and more. Returns ASH_CMD_GO or an exit code. */
static int parse(const struct ash_cmd_usage *usage, struct run_flags *flags, int argc, char **argv, const char *words[],
                 size_t wanted)
{
    struct ash_opt_binding binding = {&run_table, flags};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(&binding, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(usage, opts, argc, argv, words, wanted, &count);
    ash_opts_close(opts);
    if (code != ASH_CMD_GO || count == wanted) return code;
    return ash_cmd_misuse("run", "it takes %s",
                          wanted == 1 ? "the folder of a run" : "the folder of a run and a number of ranks");
}

static void print_status(const char *dir, const struct ash_run_status *status, bool is_going)
{
    double loss = NAN, speed = NAN;
    uint64_t step = ash_run_newest_step(dir, &loss, &speed);
    bool was_killed = !is_going && strcmp(status->state, "running") == 0;

    printf("%-9s %s\n", "state", was_killed ? "not running: it was killed" : status->state);
    printf("%-9s %" PRIu64 " of %" PRId64, "step", step, status->steps);
    if (step > 0) printf(", loss %.4f, %.0f tokens a second", loss, speed);
    printf("\n%-9s %" PRId64 " as %s", "ranks", status->ranks, status->mesh);
    if (status->ranks > status->mesh_ranks) printf(", and %" PRId64 " spare", status->ranks - status->mesh_ranks);
    if (status->wanted_ranks > 0 && status->wanted_ranks != status->ranks)
        printf(" (wanted: %" PRId64 ")", status->wanted_ranks);
    printf("\n%-9s process %" PRId64 " on %s\n", "first", status->process, status->host);
    printf("%-9s ranks have changed %" PRId64 " time%s\n", "epoch", status->epoch, status->epoch == 1 ? "" : "s");
}

static int run_status(int argc, char **argv)
{
    struct run_flags flags = {0};
    struct ash_run_status status;
    struct ash_err err = {0};
    const char *words[1] = {NULL};
    int code = parse(&status_usage, &flags, argc, argv, words, 1);
    bool is_going;

    if (code != ASH_CMD_GO) return code;
    if (ash_run_status_read(words[0], &status, &err) < 0) return ash_cmd_fail(&err);
    is_going = ash_run_is_going(words[0]);
    print_status(words[0], &status, is_going);
    return is_going ? 0 : NOT_RUNNING;
}

/* Has it happened? */
static bool is_done(const char *dir, const struct ash_run_request *request)
{
    struct ash_run_status status;

    if (request->stop) return !ash_run_is_going(dir);
    return ash_run_status_read(dir, &status, NULL) == 0 && status.wanted_ranks == request->ranks &&
           status.ranks == request->ranks;
}

/* Is there a run that can do it? */
static int check_request(const char *dir, const struct ash_run_request *request, struct ash_err *err)
{
    struct ash_run_status status;
    int rc = ash_run_status_read(dir, &status, err);

    if (rc < 0) return rc;
    if (!ash_run_is_going(dir)) return ash_err_set(err, -ESRCH, "nothing is running in %s", dir);
    if (request->stop) return 0;
    if (request->ranks < status.min_ranks)
        return ash_err_set(err, -EINVAL, "the run ends with fewer than %" PRId64 " ranks (recover.min_ranks)",
                           status.min_ranks);
    if (status.most_ranks == 1 && request->ranks > 1)
        return ash_err_set(err, -EINVAL,
                           "it is one process: stop it, and continue with `ashlar launch --procs %" PRId64
                           " train --resume --out %s`",
                           request->ranks, dir);
    if (status.most_ranks > 0 && request->ranks > status.most_ranks)
        return ash_err_set(err, -EINVAL, "the launcher of the run has %" PRId64 " processes (--procs and --spares)",
                           status.most_ranks);
    return 0;
}

static int say_done(const char *dir, const struct ash_run_request *request)
{
    if (request->stop)
        printf("%s %s\n", dir, ash_run_is_going(dir) ? "saves and ends" : "has ended");
    else
        printf("%s %s %" PRId64 " rank%s\n", dir, is_done(dir, request) ? "has" : "shall have", request->ranks,
               request->ranks == 1 ? "" : "s");
    return 0;
}

/* Leave a request and see it through. Returns the exit code. */
static int ask(const char *dir, const struct ash_run_request *request, double wait_s)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(wait_s * 1e9);
    struct ash_run_status status;
    struct ash_err err = {0};

    if (check_request(dir, request, &err) < 0 || ash_run_request_write(dir, request, &err) < 0)
        return ash_cmd_fail(&err);
    ash_interrupt_install();
    while (!is_done(dir, request) && ash_clock_ns() < end_ns && !ash_interrupt_requested())
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    if (wait_s == 0 || is_done(dir, request)) return say_done(dir, request);
    if (ash_interrupt_requested()) return ash_cmd_stopped();
    if (ash_run_status_read(dir, &status, &err) < 0) return ash_cmd_fail(&err);
    if (request->stop)
        ash_err_set(&err, -ETIMEDOUT, "it has not ended within %.0f s: a step may take longer", wait_s);
    else
        ash_err_set(&err, -ETIMEDOUT,
                    "it has %" PRId64 " ranks after %.0f s: a step may take longer, or no more processes were started",
                    status.ranks, wait_s);
    return ash_cmd_fail(&err);
}

static int run_resize(int argc, char **argv)
{
    struct run_flags flags = {0};
    struct ash_run_request request = {0};
    const char *words[2] = {NULL, NULL};
    int code = parse(&resize_usage, &flags, argc, argv, words, 2);

    if (code != ASH_CMD_GO) return code;
    if (ash_number_parse_whole(words[1], &request.ranks) < 0 || request.ranks < 1 || request.ranks > ASH_RUN_RANKS_MAX)
        return ash_cmd_misuse("run resize", "'%.60s' is no number of ranks: give 1 to %d", words[1], ASH_RUN_RANKS_MAX);
    return ask(words[0], &request, flags.wait);
}

static int run_stop(int argc, char **argv)
{
    struct run_flags flags = {0};
    const struct ash_run_request request = {.stop = true};
    const char *words[1] = {NULL};
    int code = parse(&stop_usage, &flags, argc, argv, words, 1);

    return code == ASH_CMD_GO ? ask(words[0], &request, flags.wait) : code;
}

static const struct ash_cmd cmd_status = {"status", "what a run is at", run_status},
                            cmd_resize = {"resize", "let a run continue with fewer or more ranks", run_resize},
                            cmd_stop = {"stop", "let a run save and end", run_stop};
static const struct ash_cmd *const commands[] = {&cmd_status, &cmd_resize, &cmd_stop, &ash_cmd_run_cost};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar run", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_runs = {"run", "see, resize and stop a training run, find its cost", run};
