/* ashlar launch: several processes of one program on this machine, as the ranks of a job. */
#include "cmd/cmd.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "orchestrate/local/launch.h"

struct launch_flags {
    int64_t procs, nodes;
    double grace;
    const char *link_rate;
    bool program, netns;
};

#define FIELD(name) offsetof(struct launch_flags, name)
static const struct ash_opt launch_opts[] = {
    {"procs", ASH_OPT_INT, FIELD(procs), "2", "processes: the ranks of the job", 1, 4096, NULL},
    {"nodes", ASH_OPT_INT, FIELD(nodes), "1",
     "failure domains that they are spread over, each a process group of its own", 1, 4096, NULL},
    {"netns", ASH_OPT_BOOL, FIELD(netns), NULL,
     "each node has a network namespace of its own, joined by veth to a bridge (needs root and iproute2)", 0, 0, NULL},
    {"link_rate", ASH_OPT_STRING, FIELD(link_rate), NULL,
     "with --netns: what a node sends is limited to this, as tc reads it (1gbit); default: not limited", 0, 0, NULL},
    {"grace", ASH_OPT_DOUBLE, FIELD(grace), "5", "seconds between the first failure and the end of the others by force",
     0, 3600, NULL},
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
             "that of the first process that failed. Nothing is left running.",
    .examples = "  ashlar launch --procs 4 train job.yaml mesh.dp=2 mesh.tp=2 --out run\n"
                "  ashlar launch --procs 4 --nodes 2 --netns --link-rate 1gbit bench collective\n"
                "  ashlar launch --procs 2 --program python3 train.py",
};

/* How many words, from argv[1] on, are flags of launch itself: the rest belongs to the command. */
static int count_flags(int argc, char **argv)
{
    int at = 1;

    while (at < argc && argv[at][0] == '-') {
        bool alone = strchr(argv[at], '=') != NULL || strcmp(argv[at], "--program") == 0 ||
                     strcmp(argv[at], "--netns") == 0 || strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0;
        at += alone ? 1 : 2;
    }
    return (at < argc ? at : argc) - 1;
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
    if (code == ASH_CMD_GO) {
        struct ash_launch launch = {.procs = (size_t)flags.procs,
                                    .nodes = (size_t)flags.nodes,
                                    .netns = flags.netns,
                                    .link_rate = flags.link_rate,
                                    .grace_s = flags.grace};

        argv[own] = name; /* argv[0] or a flag, which have been read: its place is free for the program's name */
        launch.argv = argv + own + (flags.program ? 1 : 0);
        launch.program = flags.program ? launch.argv[0] : "/proc/self/exe";
        code = ash_launch_run(&launch, &err);
        if (code < 0) code = ash_cmd_fail(&err);
    }
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_launch = {"launch", "run a command as several processes that work together", run_launch};
