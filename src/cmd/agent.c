/* ashlar agent: one daemon per node that watches every layer, says what is wrong, and acts where it is told to. */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cmd/node_flags.h"
#include "observe/agent/agent.h"
#include "orchestrate/remediation.h"
#include "record/metrics_page.h"

enum { JOBS_LEAVE, JOBS_STAY };

#define FILES_WANTED 16384
#define TOKENS_MAX 64

struct flags {
    const char *address, *pages, *state, *name, *gpu_jobs, *command, *admin_token, *drains;
    int64_t port, nodes;
    int act, scheduler, jobs;
    double judge_seconds, share, slurm_queue;
    struct ash_opt_list tokens, allowed_hosts;
    struct ash_node_flags node;
};

#define FIELD(name) offsetof(struct flags, name)
static const char *const acts[] = {"none", "dry-run", "drain", "full", NULL}; /* enum ash_remediation_mode */
static const char *const manners[] = {"leave", "stay", NULL};
static const char *const schedulers[] = {"none", "slurm", "kubernetes", "command", NULL};

static const struct ash_opt agent_opts[] = {
    {"address", ASH_OPT_STRING, FIELD(address), "127.0.0.1",
     "address to serve on; 0.0.0.0 or ::: all of this machine, then give --token", 0, 0, NULL},
    {"allowed_hosts", ASH_OPT_LIST, FIELD(allowed_hosts), NULL, ASH_CMD_HOSTS_HELP, 0, 0, NULL},
    {"port", ASH_OPT_INT, FIELD(port), "9470", "port to serve on; 0: a free one", 0, 65535, NULL},
    {"token", ASH_OPT_LIST, FIELD(tokens), NULL,
     "requests must send one of these (Authorization: Bearer), or the first line of @FILE; none: all who "
     "reaches the port",
     0, 0, NULL},
    {"admin_token", ASH_OPT_STRING, FIELD(admin_token), NULL,
     "opens POST /v1/clear, which says that the node is good again; @FILE as above", 0, 0, NULL},
    {"pages", ASH_OPT_STRING, FIELD(pages), ASH_METRICS_PAGE_DIR, "folder where Ashlar's processes publish themselves",
     0, 0, NULL},
    {"state", ASH_OPT_STRING, FIELD(state), "/var/lib/ashlar/agent.json",
     "file that keeps the node's verdict across restarts; empty: nothing is kept", 0, 0, NULL},
    {"node", ASH_OPT_STRING, FIELD(name), NULL, "the node's name for the scheduler; default: the host's", 0, 0, NULL},
    {"gpu_jobs", ASH_OPT_STRING, FIELD(gpu_jobs), NULL,
     "folder where a prolog writes the job's id to a file named by GPU index: the label hpc_job", 0, 0, NULL},
    {"slurm_queue", ASH_OPT_DOUBLE, FIELD(slurm_queue), "0",
     "also serve Slurm's queue (squeue, sinfo), asked once in this time: on one node of a cluster; 0: no", 0, 86400,
     NULL},
    {"judge_seconds", ASH_OPT_DOUBLE, FIELD(judge_seconds), "15",
     "seconds between two looks at the node's own counters; the kernel log is judged at once", 0.1, 3600, NULL},
    {"act", ASH_OPT_CHOICE, FIELD(act), "none",
     "what to do about a bad node: nothing, print it, drain it, or drain it and take it back when it is good", 0, 0,
     acts},
    {"scheduler", ASH_OPT_CHOICE, FIELD(scheduler), "none",
     "whom to tell: slurm (scontrol), kubernetes (its API, as kubectl is set up or a pod's account may), command", 0, 0,
     schedulers},
    {"jobs", ASH_OPT_CHOICE, FIELD(jobs), "leave",
     "what ranks of Ashlar on a node that is drained are told first: leave (they hand over at a step's edge, spares "
     "take over; a job without other ranks saves and ends) or stay",
     0, 0, manners},
    {"command", ASH_OPT_STRING, FIELD(command), NULL,
     "with --scheduler command: run by sh, with NODE, FATE and REASON in its environment", 0, 0, NULL},
    {"share", ASH_OPT_DOUBLE, FIELD(share), "0.1",
     "share of the cluster's nodes that may be out at once, and go out within an hour; beyond it nothing is done", 0, 1,
     NULL},
    {"drains", ASH_OPT_STRING, FIELD(drains), NULL,
     "file on storage that all nodes share: drains of the last hour (slurm, command; kubernetes remembers itself)", 0,
     0, NULL},
    {"nodes", ASH_OPT_INT, FIELD(nodes), "0",
     "with --scheduler command: how many nodes the cluster has, of which --share is a part", 0, 1000000, NULL},
};
static const struct ash_opt_table agent_table = {"", "flags", agent_opts, ASH_COUNT(agent_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar agent [flags]",
    .about =
        "Watches one node: processors, memory, disks, mounts, network, InfiniBand and EFA, Lustre, NVMe, GPUs, jobs,\n"
        "the kernel log, and every rank of Ashlar that runs there. Serves all of it to Prometheus under the names of\n"
        "node_exporter, DCGM and AWS's EFA exporter, keeps one verdict with its evidence, and can drain the node.",
    .examples = "  ashlar agent\n"
                "  ashlar agent --machine p5.48xlarge --act drain --scheduler slurm --address 0.0.0.0 --token $TOKEN\n"
                "  ashlar agent --act dry-run --scheduler kubernetes --root /host",
};

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

/* The folder of the state file is made. */
static int prepare_state(const char *path, struct ash_err *err)
{
    char folder[PATH_MAX];
    char *slash;

    if (path[0] == '\0') return 0;
    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder) return 0;
    *slash = '\0';
    return ash_dir_make(folder, err);
}

static void wait_for_end(void)
{
    while (!ash_interrupt_requested())
        poll(NULL, 0, 1000); /* a signal ends it */
}

static void print_address(const char *node, const char *address, int port)
{
    bool is_ipv6 = strchr(address, ':') != NULL;

    printf("agent of %s: http://%s%s%s:%d/\n", node, is_ipv6 ? "[" : "", address, is_ipv6 ? "]" : "", port);
    fflush(stdout);
}

/* Tokens as they are used, from files where flags name them. */
struct secrets {
    const char *tokens[TOKENS_MAX], *admin;
};

static int read_secrets(const struct flags *flags, struct secrets *secrets, struct ash_err *err)
{
    int rc = 0;

    if (flags->tokens.count > TOKENS_MAX) return ash_err_set(err, -E2BIG, "more than %d tokens", TOKENS_MAX);
    for (size_t i = 0; i < flags->tokens.count && rc == 0; i++) {
        secrets->tokens[i] = flags->tokens.items[i];
        rc = ash_cmd_read_secret(&secrets->tokens[i], err);
    }
    secrets->admin = flags->admin_token;
    if (rc == 0) rc = ash_cmd_read_secret(&secrets->admin, err);
    if (rc == 0 && flags->tokens.count == 0 && strncmp(flags->address, "127.", 4) != 0 &&
        strcmp(flags->address, "::1") != 0 && strcmp(flags->address, "localhost") != 0)
        ash_log(ASH_LOG_WARN, "all who reach %s can read this agent: --token @FILE asks for a token", flags->address);
    return rc;
}

static bool act(void *ctx, const struct ash_node_state *state, const struct ash_node_finding *reason)
{
    return ash_remediation_act(ctx, state->status, reason != NULL ? reason->key : "no finding is left");
}

static int serve(const struct flags *flags, const char *node, const struct ash_node_marks *marks,
                 const struct secrets *secrets, struct ash_err *err)
{
    struct ash_remediation remediation = {.mode = (enum ash_remediation_mode)flags->act,
                                          .action = {.scheduler = (enum ash_scheduler)flags->scheduler,
                                                     .command = flags->command,
                                                     .share_max = flags->share,
                                                     .drains = flags->drains,
                                                     .nodes = (size_t)flags->nodes,
                                                     .seconds = 10},
                                          .node = node,
                                          .ranks = flags->jobs == JOBS_LEAVE && flags->pages[0] != '\0' ? flags->pages
                                                                                                        : NULL};
    struct ash_agent_opts opts = {.source = {.root = flags->node.root,
                                             .pages = flags->pages[0] != '\0' ? flags->pages : NULL,
                                             .nvml = flags->node.nvml,
                                             .gpu_jobs = flags->gpu_jobs,
                                             .queue_seconds = flags->slurm_queue},
                                  .host = flags->address,
                                  .port = (int)flags->port,
                                  .names = flags->allowed_hosts.items,
                                  .name_count = flags->allowed_hosts.count,
                                  .tokens = secrets->tokens,
                                  .token_count = flags->tokens.count,
                                  .admin_token = secrets->admin,
                                  .kernel_log = flags->node.kernel_log,
                                  .state_file = flags->state[0] != '\0' ? flags->state : NULL,
                                  .node = node,
                                  .judge_seconds = flags->judge_seconds,
                                  .wanted = {marks->gpus, marks->network_devices},
                                  .act = flags->act != ASH_REMEDIATION_NONE ? act : NULL,
                                  .ctx = &remediation};
    struct ash_agent *agent = NULL;
    int rc = prepare_state(flags->state, err);

    if (rc == 0) rc = ash_agent_open(&opts, &agent, err);
    if (rc < 0) return rc;
    print_address(node, flags->address, ash_agent_port(agent));
    wait_for_end();
    ash_agent_close(agent);
    return 0;
}

/* Counters of network cards and cores are held open: thousands on a large node, where 1,024 are the usual limit. */
static void allow_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= FILES_WANTED || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int respond(const void *given, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = given;
    struct ash_err err = {0};
    char host[HOST_NAME_MAX + 1] = "localhost";
    struct ash_node_marks marks;
    struct secrets secrets = {0};

    (void)opts, (void)word;
    if (flags->act >= ASH_REMEDIATION_DRAIN && flags->scheduler == ASH_SCHEDULER_NONE)
        return ash_cmd_misuse("agent", "--act %s needs --scheduler slurm, kubernetes or command", acts[flags->act]);
    if (flags->scheduler == ASH_SCHEDULER_COMMAND && flags->command == NULL)
        return ash_cmd_misuse("agent", "--scheduler command needs --command");
    if (flags->act >= ASH_REMEDIATION_DRAIN && flags->scheduler == ASH_SCHEDULER_COMMAND &&
        (flags->drains == NULL || flags->nodes == 0))
        return ash_cmd_misuse("agent", "--scheduler command needs --drains FILE, which all nodes share, and --nodes: "
                                       "the share that may be out is counted there");
    gethostname(host, sizeof(host) - 1);
    signal(SIGPIPE, SIG_IGN);
    ash_interrupt_install();
    allow_files();
    mallopt(M_ARENA_MAX, 1); /* a thread for each source, and none of them in a hurry: one heap is enough */
    if (ash_node_flags_read(&flags->node, &marks, &err) < 0 || read_secrets(flags, &secrets, &err) < 0 ||
        serve(flags, flags->name != NULL ? flags->name : host, &marks, &secrets, &err) < 0)
        return ash_cmd_fail(&err);
    return 0;
}

static int run(int argc, char **argv)
{
    static struct flags flags;
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&agent_table, &flags}, {&ash_node_table, &flags.node}},
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_agent = {"agent", "watch a node: metrics, kernel log, verdict", run};
