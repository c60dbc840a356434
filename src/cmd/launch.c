/* ashlar launch: several processes of one program on this machine, as the ranks of a job. */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/command.h"
#include "base/clock.h"
#include "base/opts.h"
#include "base/file.h"
#include "base/own_dir.h"
#include "base/log.h"
#include "base/number.h"
#include "collective/member/membership.h"
#include "orchestrate/job/spec.h"
#include "orchestrate/job/submission.h"
#include "orchestrate/local/launch.h"
#include "orchestrate/node/ends.h"
#include "train/checkpoint.h"
#include "train/run/control.h"

struct launch_flags {
    int64_t procs, nodes, elastic, restarts, spares;
    bool replace_slow;
    double grace, notice, back_off;
    const char *link_rate, *node_rank, *master, *job_dir;
    int check; /* enum ash_spec_check */
    bool program, netns;
};

static const char *const check_names[] = {"none", "quick", "deep", NULL}; /* as enum ash_spec_check */
#define KIND "launch"                                                     /* of folders (base/own_dir.h) */
#define TEMP "/tmp"
#define HOLD "ASHLAR_LAUNCH_HOLD" /* to ranks: the descriptor that holds the job's folder in TEMP */
#define CHECK_LIMIT_S 300.0
#define ANSWER_S 1.0            /* for ranks elsewhere to answer, once their hosts have */
#define LEAVE_NS 60000000000ull /* for ranks that leave to end */
#define FIELD(name) offsetof(struct launch_flags, name)
static const struct ash_opt launch_opts[] = {
    {"procs", ASH_OPT_INT, FIELD(procs), "2", "processes: the ranks of the job", 1, 4096, NULL},
    {"nodes", ASH_OPT_INT, FIELD(nodes), "1", "failure domains that they are spread over, each its own process group",
     1, 4096, NULL},
    {"netns", ASH_OPT_BOOL, FIELD(netns), NULL,
     "each node has its own network namespace, joined by veth to a bridge (needs root and iproute2)", 0, 0, NULL},
    {"link_rate", ASH_OPT_STRING, FIELD(link_rate), NULL,
     "with --netns: what a node sends is limited to this, as tc reads it (1gbit); default: not limited", 0, 0, NULL},
    {"grace", ASH_OPT_DOUBLE, FIELD(grace), "5", "seconds between the first failure and the end of the others by force",
     0, 3600, NULL},
    {"notice", ASH_OPT_DOUBLE, FIELD(notice), "0",
     "seconds between being told to stop and the end by force; 0: processes save for as long as they need", 0, 1e6,
     NULL},
    {"elastic", ASH_OPT_INT, FIELD(elastic), "-1",
     "fewest processes that may continue when others are lost; 0: the first failure ends all; -1: 1, and 0 with "
     "--program",
     -1, 65536, NULL},
    {"restarts", ASH_OPT_INT, FIELD(restarts), "0",
     "equal failures in a row after which nothing is started again. Before that a lost process is, and joins the "
     "others; where none is left all are (train: from the newest checkpoint). Bad settings never are",
     0, 1e6, NULL},
    {"back_off", ASH_OPT_DOUBLE, FIELD(back_off), "1",
     "seconds before a process that fails soon after its start is started a second time; then twice as long each time, "
     "up to a minute; 0: at once",
     0, 60, NULL},
    {"spares", ASH_OPT_INT, FIELD(spares), "0",
     "processes beyond --procs that wait to take the place of lost ones (train: recover.spares)", 0, 4096, NULL},
    {"replace_slow", ASH_OPT_BOOL, FIELD(replace_slow), NULL,
     "a rank that is slower than its peers for 5 steps gives its place to a spare (train: recover.replace_slow)", 0, 0,
     NULL},
    {"node_rank", ASH_OPT_STRING, FIELD(node_rank), NULL,
     "which of the nodes this machine is, from 0, or hostname: the number at the end of its name; default: all", 0, 0,
     NULL},
    {"master", ASH_OPT_STRING, FIELD(master), NULL, "HOST:PORT where the first rank listens, with --node-rank", 0, 0,
     NULL},
    {"job_dir", ASH_OPT_STRING, FIELD(job_dir), NULL,
     "with --node-rank: folder that all nodes share, such as that of the run; `" ASH_SUBMISSION_MEMBERS
     "` is made in it. If ranks of the job run already, processes here join them",
     0, 0, NULL},
    {"check", ASH_OPT_CHOICE, FIELD(check), "none",
     "look at this machine before anything starts (ashlar check node); one that is not fit ends with exit code 78", 0,
     0, check_names},
    {"program", ASH_OPT_BOOL, FIELD(program), NULL, "the words name any program instead of an ashlar command", 0, 0,
     NULL},
};

static const struct ash_opt_table launch_table = {
    .section = "", .help = "flags", .opts = launch_opts, .count = ASH_COUNT(launch_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar launch [--procs P] [--nodes N] COMMAND [arguments]\nashlar launch --program [flags] PROGRAM "
                "[arguments]",
    .about = "Starts P processes that find each other by the variables that torchrun sets (RANK, WORLD_SIZE, "
             "LOCAL_RANK, MASTER_ADDR,\n"
             "MASTER_PORT). The first one has the terminal; lines of the others come with their rank before them. The "
             "exit code is\n"
             "0 where those that are left at the end did well and no rank failed before all had met, else that of the "
             "first\nprocess that failed. Nothing is left running.",
    .examples = "  ashlar launch --procs 4 train job.yaml mesh.dp=2 mesh.tp=2 --out run\n"
                "  ashlar launch --procs 4 --nodes 2 --netns --link-rate 1gbit bench collective\n"
                "  ashlar launch --procs 2 --program python3 train.py",
};

/* How many words, from argv[1] on, are flags of launch itself: the rest belongs to the command. */
static int count_flags(int argc, char **argv)
{
    static const char *const alone[] = {"--program", "--netns", "--replace-slow", "--help", "-h"};
    int at = 1;

    while (at < argc && argv[at][0] == '-') {
        bool is_alone = strchr(argv[at], '=') != NULL;

        for (size_t i = 0; i < ASH_COUNT(alone); i++)
            is_alone = is_alone || strcmp(argv[at], alone[i]) == 0;
        at += is_alone ? 1 : 2;
    }
    return (at < argc ? at : argc) - 1;
}

/* Which node this is: a number, the one in its name, or all of them. */
static int read_node_rank(const char *text, size_t *rank_out, struct ash_err *err)
{
    int64_t rank = 0;

    if (text == NULL) return 0;
    if (strcmp(text, "hostname") == 0) return ash_launch_rank_by_name(rank_out, err);
    if (ash_number_parse_whole(text, &rank) < 0 || rank < 0)
        return ash_err_set(err, -EINVAL, "--node-rank is '%.60s': give a number, or hostname", text);
    *rank_out = (size_t)rank;
    return 0;
}

/* Returns 0 if the machine is fit, else the exit code of `ashlar check node`. */
static int check_machine(int how, struct ash_err *err)
{
    const char *const words[] = {"/proc/self/exe", "check", "node", how == ASH_SPEC_CHECK_QUICK ? "--quick" : "--deep",
                                 NULL};
    struct ash_command_result result;
    int rc;

    if (how == ASH_SPEC_CHECK_NONE) return 0;
    rc = ash_command_run(&(struct ash_command){.argv = words, .limit_s = CHECK_LIMIT_S}, &result, err);
    if (rc == 0 && result.code != 0)
        rc = ash_err_set(err, -ENODEV, "this machine is not fit for the job: %s%s", result.out.data, result.err.data);
    ash_command_free(&result);
    return rc;
}

/* Does a command train into a folder, with --resume? */
static bool is_training(const char *command)
{
    static const char *const names[] = {"train", "sft", "dpo", "reward", "distill", "rl"};

    for (size_t i = 0; command != NULL && i < ASH_COUNT(names); i++)
        if (strcmp(command, names[i]) == 0) return true;
    return false;
}

/* argv with --resume after it, for a command that has runs to continue with. NULL: argv as it is. The caller frees
 * it. */
static char **words_again(char *const *argv, bool is_program)
{
    static char resume[] = "--resume";
    size_t count = 0;
    bool has_run = !is_program && is_training(argv[1]), has_resume = false;
    char **words;

    for (; argv[count] != NULL; count++)
        has_resume = has_resume || strcmp(argv[count], resume) == 0;
    if (!has_run || has_resume) return NULL;
    words = calloc(count + 2, sizeof(*words));
    if (words == NULL) return NULL;
    memcpy(words, argv, count * sizeof(*words));
    words[count] = resume;
    return words;
}

/* Facts of a job for the supervisor's callbacks. */
struct job_facts {
    char dir[PATH_MAX]; /* the job's folder; empty: it has none */
    int hold;           /* of a folder in /tmp; -1: none */
    int64_t resizes;    /* of that run that have been heeded */
    int64_t process;    /* the process of the previous status; 0: none */
    uint64_t waits_ns;  /* until when the next one waits for ranks that are leaving; 0: none does */
    const char *out;    /* of a training run; NULL: it is none, or without --out */
};

/* The folder decides which ranks continue after losses, even if most of them are lost. Epochs restart with each start
 * of all. */
static int renew_folder(void *ctx)
{
    struct job_facts *facts = ctx;
    int rc;

    if (facts->dir[0] == '\0') return 0;
    rc = ash_own_dir_renew(facts->dir, KIND, NULL);
    return rc < 0 ? rc : ash_membership_make_job_dir(facts->dir, NULL);
}

static uint64_t read_progress(void *ctx)
{
    const struct job_facts *facts = ctx;

    return ash_run_newest_step(facts->out, NULL, NULL);
}

/* Has the run ended, in this launch? The reporting rank writes that at its very end. */
static bool is_over(void *ctx)
{
    const struct job_facts *facts = ctx;
    struct ash_run_status status = {0};

    return ash_run_status_read(facts->out, &status, NULL) == 0 && status.process != facts->process &&
           (strcmp(status.state, "finished") == 0 || strcmp(status.state, "stopped") == 0);
}

/* Has the last checkpoint stayed in its folder? */
static bool is_uncopied(const struct job_facts *facts)
{
    struct ash_run_status status = {0};

    return facts->out != NULL && ash_run_status_read(facts->out, &status, NULL) == 0 && status.is_uncopied != 0;
}

/* How often its ranks have changed. */
static uint64_t read_epoch(void *ctx)
{
    const struct job_facts *facts = ctx;
    struct ash_run_status status = {0};

    return ash_run_status_read(facts->out, &status, NULL) < 0 ? 0 : (uint64_t)status.epoch;
}

/* Are there processes that leave the run, as far as visible from here? They end in a moment; waiting joiners look the
 * same, so the wait is bounded. */
static bool are_some_leaving(struct job_facts *facts, const struct ash_run_status *status, size_t running)
{
    uint64_t now_ns = ash_clock_ns();

    if (running <= (size_t)status->ranks) return false;
    if (facts->waits_ns == 0) facts->waits_ns = now_ns + LEAVE_NS;
    return now_ns < facts->waits_ns;
}

/* Ranks requested by `ashlar run resize` and accepted by the run. */
static size_t read_wanted(void *ctx, size_t running)
{
    struct job_facts *facts = ctx;
    struct ash_run_status status;

    if (ash_run_status_read(facts->out, &status, NULL) < 0 || status.wanted_ranks > ASH_RUN_RANKS_MAX) return 0;
    if (status.resizes == facts->resizes || are_some_leaving(facts, &status, running)) return 0;
    facts->resizes = status.resizes;
    facts->waits_ns = 0;
    return (size_t)status.wanted_ranks;
}

/* Do ranks elsewhere answer? */
static bool has_others(void *ctx)
{
    const struct job_facts *facts = ctx;

    return ash_membership_is_answered(facts->dir, ANSWER_S);
}

/* A folder that nodes share: either ranks of the job answer, and this node joins them, or the job starts over. Then the
 * first node makes the folder, before its first rank listens; the others read it after the rendezvous. Processes of an
 * earlier start find another key there, and are out of the job. Returns 0 or a negative errno. */
static int use_shared_folder(const char *shared, struct ash_launch *launch, struct job_facts *facts,
                             struct ash_err *err)
{
    int rc;

    if (ash_path_join(facts->dir, sizeof(facts->dir), shared, ASH_SUBMISSION_MEMBERS) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "--job-dir: the path is too long");
    launch->has_others = has_others;
    launch->joins = has_others(facts);
    if (launch->joins) ash_log(ASH_LOG_INFO, "ranks of the job run already: this node joins them");
    if (launch->joins || launch->node_rank > 0) return 0;
    rc = ash_own_dir_renew(facts->dir, KIND, err);
    return rc < 0 ? rc : ash_membership_make_job_dir(facts->dir, err);
}

/* The folder of a run, in the words of its command. */
static const char *find_out(char *const *argv)
{
    for (size_t i = 0; argv[i] != NULL; i++) {
        if (strcmp(argv[i], "--out") == 0) return argv[i + 1];
        if (strncmp(argv[i], "--out=", strlen("--out=")) == 0) return argv[i] + strlen("--out=");
    }
    return NULL;
}

static void remove_own_folder(struct job_facts *facts)
{
    if (facts->hold < 0) return;
    ash_own_dir_remove(facts->dir, KIND, NULL);
    close(facts->hold);
    facts->dir[0] = '\0';
}

/* A folder of this machine, for a job whose ranks are all here. It is held until they have ended: what killed launchers
 * have left is swept before. */
static void make_own_folder(const struct ash_launch *launch, bool is_program, struct job_facts *facts)
{
    char hold[24];

    facts->dir[0] = '\0';
    facts->hold = -1;
    if (launch->master != NULL || launch->procs == 1 || is_program) return;
    ash_own_dir_sweep(TEMP, KIND);
    if (ash_own_dir_new(TEMP, KIND, facts->dir, sizeof(facts->dir), &facts->hold, NULL) < 0) return;
    if (ash_membership_make_job_dir(facts->dir, NULL) < 0) {
        remove_own_folder(facts);
        return;
    }
    snprintf(hold, sizeof(hold), "%d", facts->hold);
    setenv(HOLD, hold, 1);
}

/* Callbacks that read the folder of a run. */
static void follow_run(struct ash_launch *launch, struct job_facts *facts)
{
    struct ash_run_status before;

    launch->progress = read_progress;
    launch->epoch = read_epoch;
    launch->wanted = read_wanted;
    launch->is_over = is_over;
    launch->saves_alone = true;
    read_wanted(facts, 0); /* requests to an earlier part of the run are void */
    if (ash_run_status_read(facts->out, &before, NULL) == 0) facts->process = before.process;
}

/* All ranks were killed: none of them could say how to continue. */
static void say_resume(const struct ash_launch *launch, const struct launch_flags *flags, const struct job_facts *facts)
{
    struct ash_run_status status = {0};
    char checkpoints[PATH_MAX];

    if (facts->out == NULL || !is_training(launch->argv[1]) || launch->is_one_node) return;
    if (ash_run_status_read(facts->out, &status, NULL) < 0 || status.process == facts->process ||
        strcmp(status.state, "running") != 0)
        return;
    if (ash_path_join(checkpoints, sizeof(checkpoints), facts->out, "checkpoints") < 0) return;
    if (ash_checkpoint_count(checkpoints) == 0)
        printf("all ranks are gone, and nothing was saved\n");
    else
        printf("all ranks are gone; resume with: ashlar launch --procs %lld %s --resume --out %s\n",
               (long long)flags->procs, launch->argv[1], facts->out);
}

static int run_with_folder(const struct ash_launch *asked, const struct launch_flags *flags, struct ash_err *err)
{
    struct ash_launch launch = *asked;
    struct job_facts facts = {.hold = -1, .out = flags->program ? NULL : find_out(launch.argv)};
    bool is_shared = flags->job_dir != NULL && launch.is_one_node;
    int rc = 0;

    if (is_shared)
        rc = use_shared_folder(flags->job_dir, &launch, &facts, err);
    else
        make_own_folder(&launch, flags->program, &facts);
    if (rc < 0) return rc;
    if (facts.dir[0] != '\0') setenv("ASHLAR_GROUP_JOB_DIR", facts.dir, 0);
    launch.job_dir = facts.dir[0] != '\0' ? facts.dir : flags->program ? NULL : ash_env_get("ASHLAR_GROUP_JOB_DIR");
    launch.renew = renew_folder;
    launch.ctx = &facts;
    if (facts.out != NULL) follow_run(&launch, &facts);
    rc = ash_launch_run(&launch, err);
    remove_own_folder(&facts);
    if (rc != 0) say_resume(&launch, flags, &facts);
    return rc == 0 && is_uncopied(&facts) ? ASH_END_SAVED : rc;
}

static int launch(const struct launch_flags *flags, char *const *argv, struct ash_err *err)
{
    struct ash_launch launch = {.is_one_node = flags->node_rank != NULL,
                                .procs = (size_t)(flags->procs + flags->spares),
                                .nodes = (size_t)flags->nodes,
                                .master = flags->master,
                                .netns = flags->netns,
                                .link_rate = flags->link_rate,
                                .grace_s = flags->grace,
                                .notice_s = flags->notice,
                                .least = flags->elastic >= 0 ? (size_t)flags->elastic
                                         : flags->program    ? 0
                                                             : 1,
                                .restarts = (size_t)flags->restarts,
                                .back_off_s = flags->back_off,
                                .argv = argv,
                                .program = flags->program ? argv[0] : "/proc/self/exe"};
    char **again = words_again(argv, flags->program), spares[24], ranks[24];
    int rc = read_node_rank(flags->node_rank, &launch.node_rank, err);

    launch.again = again;
    snprintf(spares, sizeof(spares), "%lld", (long long)flags->spares);
    snprintf(ranks, sizeof(ranks), "%zu", launch.procs);
    if (flags->spares > 0) setenv("ASHLAR_RECOVER_SPARES", spares, 0);
    setenv(ASH_RUN_MOST_RANKS, ranks, 1);
    if (flags->replace_slow) setenv("ASHLAR_RECOVER_REPLACE_SLOW", "true", 0);
    if (rc == 0) rc = check_machine(flags->check, err);
    if (rc == 0) rc = run_with_folder(&launch, flags, err);
    free(again);
    return rc;
}

static int run_launch(int argc, char **argv)
{
    struct launch_flags flags = {0};
    struct ash_opt_binding binding = {&launch_table, &flags};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    char name[] = "ashlar";
    int own = count_flags(argc, argv), code;
    size_t count = 0;

    if (ash_opts_open(&binding, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, own + 1, argv, NULL, 0, &count);
    if (code == ASH_CMD_GO && own + 1 >= argc)
        code = ash_cmd_misuse("launch", "it takes the command to run, such as `train job.yaml`");
    if (code == ASH_CMD_GO && flags.link_rate != NULL && !flags.netns)
        code = ash_cmd_misuse("launch", "--link-rate limits the links that --netns makes: give both");
    if (code == ASH_CMD_GO && flags.job_dir != NULL && flags.node_rank == NULL)
        code = ash_cmd_misuse("launch", "--job-dir is for nodes that are started one by one: give --node-rank, too");
    if (code == ASH_CMD_GO) {
        argv[own] = name; /* argv[0] or a flag, which have been read: its place is free for the program's name */
        code = launch(&flags, argv + own + (flags.program ? 1 : 0), &err);
        if (code < 0) code = code == -ENODEV ? (ash_cmd_fail(&err), ASH_END_BAD_MACHINE) : ash_cmd_fail(&err);
    }
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_launch = {"launch", "run a command as several processes that work together", run_launch};

void ash_cmd_leave_launch(void)
{
    const char *hold = ash_env_get(HOLD);
    int64_t fd;

    if (hold != NULL && ash_number_parse_whole(hold, &fd) == 0) ash_own_dir_leave((int)fd, TEMP, KIND);
}
