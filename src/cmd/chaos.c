/* ashlar chaos run: a job as a user launches it, disturbed at drawn moments. */
#include "cmd/chaos_job.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rng.h"
#include "train/run/control.h"

#define LOOK_S 0.01

struct flags {
    int64_t seed, kills, leave, steps;
    double every, first, sleep;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt run_opts[] = {
    {"seed", ASH_OPT_INT, FIELD(seed), "1", "moments and victims are drawn from it", 0, 9e15, NULL},
    {"kills", ASH_OPT_INT, FIELD(kills), "0", "ranks that are killed (SIGKILL); 0: no limit", 0, 1e9, NULL},
    {"every", ASH_OPT_DOUBLE, FIELD(every), "30", "mean seconds between two faults", 0.001, 1e6, NULL},
    {"first", ASH_OPT_DOUBLE, FIELD(first), "1", "seconds before the first one", 0, 1e6, NULL},
    {"leave", ASH_OPT_INT, FIELD(leave), "1", "ranks that are left alone: with so few no more is killed", 1, 1e6, NULL},
    {"steps", ASH_OPT_INT, FIELD(steps), "0",
     "steps that the run in the job's --out makes between two faults, at least, with more ranks than --leave", 0, 1e9,
     NULL},
    {"sleep", ASH_OPT_DOUBLE, FIELD(sleep), "0",
     "half of the faults put a rank to sleep (SIGSTOP) for this many seconds instead; 0: none", 0, 3600, NULL},
};

static const struct ash_opt_table run_table = {
    .section = "", .help = "flags", .opts = run_opts, .count = ASH_COUNT(run_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar chaos run [--seed S] [--every SECONDS] [--kills K] launch ...",
    .about =
        "Launches a job and kills its ranks by real signals, at moments that are drawn from a seed. What it did is "
        "printed;\nthe exit code is the job's.",
    .examples =
        "  ashlar chaos run --seed 7 --every 5 --kills 3 launch --procs 4 train job.yaml mesh.fsdp=4 --out run\n"
        "  ashlar chaos run --steps 2 --every 0.1 --leave 3 --kills 1000 \\\n"
        "      launch --procs 4 --restarts 1000000 --back-off 0 train job.yaml mesh.fsdp=4 --out run\n"
        "  ashlar chaos run --sleep 5 launch --procs 4 --nodes 2 train job.yaml --out run",
};

/* How many words, from argv[1] on, are flags of this command: the rest is the job. */
static int count_flags(int argc, char **argv)
{
    int at = 1;

    while (at < argc && argv[at][0] == '-')
        at += strchr(argv[at], '=') != NULL || strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0 ? 1 : 2;
    return (at < argc ? at : argc) - 1;
}

struct faults {
    const struct flags *flags;
    const char *out; /* the run's folder; NULL: not known */
    uint64_t drawn, killed, start_ns;
    uint64_t step; /* at which the run was when it was last disturbed */
    int64_t epoch; /* in which the last rank was killed; -1: none was */
    pid_t victim;  /* that one: it may take a moment to end */
    pid_t asleep;  /* 0: none */
    uint64_t wake_ns;
};

static double draw(struct faults *faults)
{
    return ash_rng_uniform((uint64_t)faults->flags->seed, 1, faults->drawn++);
}

static double since_start_s(const struct faults *faults)
{
    return (double)(ash_clock_ns() - faults->start_ns) * 1e-9;
}

static void wake(struct faults *faults)
{
    if (faults->asleep == 0) return;
    kill(faults->asleep, SIGCONT);
    printf("chaos: %7.2f s: process %d wakes\n", since_start_s(faults), (int)faults->asleep);
    faults->asleep = 0;
}

/* The job's --out; NULL: it has none. */
static const char *find_out(char *const *words)
{
    for (; *words != NULL; words++) {
        if (strncmp(*words, "--out=", 6) == 0) return *words + 6;
        if (strcmp(*words, "--out") == 0) return words[1];
    }
    return NULL;
}

/* Has the run made steps since it was last disturbed, and are enough ranks in it? */
static bool is_ready(const struct faults *faults)
{
    struct ash_run_status status;

    if (faults->flags->steps == 0) return true;
    return ash_run_status_read(faults->out, &status, NULL) == 0 && status.ranks > faults->flags->leave &&
           status.epoch > faults->epoch &&
           ash_run_newest_step(faults->out, NULL, NULL) >= faults->step + (uint64_t)faults->flags->steps;
}

/* One fault, where enough ranks are left for it. */
static void strike(struct faults *faults, const struct ash_chaos_job *job)
{
    pid_t pids[ASH_CHAOS_RANKS_MAX];
    size_t count = ash_chaos_job_ranks(job, pids);
    pid_t victim = count > 0 ? pids[(size_t)(draw(faults) * (double)count)] : 0;
    bool sleeps = faults->flags->sleep > 0 && faults->asleep == 0 && draw(faults) < 0.5;
    struct ash_run_status status;

    if (count <= (size_t)faults->flags->leave || victim == faults->asleep || victim == faults->victim) return;
    if (sleeps) {
        faults->asleep = victim;
        faults->wake_ns = ash_clock_ns() + (uint64_t)(faults->flags->sleep * 1e9);
    } else {
        faults->killed++;
        faults->victim = victim;
        if (faults->out != NULL && ash_run_status_read(faults->out, &status, NULL) == 0) faults->epoch = status.epoch;
    }
    if (faults->out != NULL) faults->step = ash_run_newest_step(faults->out, NULL, NULL);
    kill(victim, sleeps ? SIGSTOP : SIGKILL);
    printf("chaos: %7.2f s: process %d %s, %zu ranks are left\n", since_start_s(faults), (int)victim,
           sleeps ? "sleeps" : "killed", count - !sleeps);
    fflush(stdout);
}

static int disturb(const struct flags *flags, char *const *words, struct ash_err *err)
{
    struct faults faults = {.flags = flags, .out = find_out(words), .epoch = -1, .start_ns = ash_clock_ns()};
    struct ash_chaos_job job;
    uint64_t next_ns = faults.start_ns + (uint64_t)(flags->first * 1e9);
    int rc;

    if (flags->steps > 0 && faults.out == NULL)
        return ash_err_set(err, -EINVAL, "--steps looks at the run's folder, and the job has no --out DIR");
    rc = ash_chaos_job_start(&job, words, NULL, err);
    if (rc < 0) return rc;
    while (!ash_chaos_job_ended(&job)) {
        bool more = flags->kills == 0 || faults.killed < (uint64_t)flags->kills;

        if (faults.asleep != 0 && ash_clock_ns() >= faults.wake_ns) wake(&faults);
        if (more && ash_clock_ns() >= next_ns && is_ready(&faults)) {
            strike(&faults, &job);
            next_ns = ash_clock_ns() + (uint64_t)(-log(1.0 - draw(&faults)) * flags->every * 1e9);
        }
        ash_chaos_pause(LOOK_S);
    }
    wake(&faults);
    printf("chaos: %" PRIu64 " ranks killed (seed %" PRId64 ")\n", faults.killed, flags->seed);
    return job.code;
}

static int run_run(int argc, char **argv)
{
    struct flags flags = {0};
    struct ash_opt_binding binding = {&run_table, &flags};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    char name[] = "ashlar";
    int own = count_flags(argc, argv), code;
    size_t count = 0;

    if (ash_opts_open(&binding, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, own + 1, argv, NULL, 0, &count);
    if (code == ASH_CMD_GO && (own + 1 >= argc || strcmp(argv[own + 1], "launch") != 0))
        code = ash_cmd_misuse("chaos run",
                              "it takes a job to disturb, such as `launch --procs 4 train job.yaml --out DIR`");
    if (code == ASH_CMD_GO) {
        argv[own] = name; /* argv[0] or a flag, which have been read */
        code = disturb(&flags, argv + own, &err);
        if (code < 0) code = ash_cmd_fail(&err);
    }
    ash_opts_close(opts);
    return code;
}

static const struct ash_cmd command_run = {"run", "launch a job and kill its ranks at drawn moments", run_run};
static const struct ash_cmd *const commands[] = {&command_run};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar chaos", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_chaos = {"chaos", "make faults happen, and see that jobs survive them", run};
