/* ashlar dash: one page for runs, ranks and nodes. */
#include "cmd/cmd.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/interrupt.h"
#include "observe/page/board.h"
#include "record/metrics_page.h"

#define RUNS_MAX 64

struct flags {
    const char *address, *token, *pages, *board, *topology;
    int64_t port;
    struct ash_opt_list agents, allowed_hosts;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt dash_opts[] = {
    {"agents", ASH_OPT_LIST, FIELD(agents), NULL, "agents to ask, HOST:PORT or https://HOST:PORT each", 0, 0, NULL},
    {"token", ASH_OPT_STRING, FIELD(token), NULL, "what the agents ask for; @FILE: its first line", 0, 0, NULL},
    {"pages", ASH_OPT_STRING, FIELD(pages), ASH_METRICS_PAGE_DIR,
     "folder where ranks of this machine publish themselves, of which those of RUNs are shown, or all; empty: none", 0,
     0, NULL},
    {"board", ASH_OPT_STRING, FIELD(board), NULL, "show this file, a saved GET /v1/board, and nothing else", 0, 0,
     NULL},
    {"topology", ASH_OPT_STRING, FIELD(topology), NULL,
     "nodes below their switches, blocks or racks: topology.conf or another file of ashlar plan place", 0, 0, NULL},
    {"address", ASH_OPT_STRING, FIELD(address), "127.0.0.1", "address to serve on", 0, 0, NULL},
    {"allowed_hosts", ASH_OPT_LIST, FIELD(allowed_hosts), NULL, ASH_CMD_HOSTS_HELP, 0, 0, NULL},
    {"port", ASH_OPT_INT, FIELD(port), "9480", "port to serve on; 0: a free one", 0, 65535, NULL},
};
static const struct ash_opt_table dash_table = {"", "flags", dash_opts, ASH_COUNT(dash_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar dash [RUN ...] [--agents HOST:PORT,...] [flags]",
    .about =
        "Serves one page: runs (loss, validation, tokens/s, where time goes), ranks by steps, nodes by verdict with\n"
        "their findings. It follows as things change, and needs nothing from elsewhere. Agents serve the same page\n"
        "of their node.",
    .examples = "  ashlar dash runs/quickstart\n"
                "  ashlar dash runs/big --agents node1:9470,node2:9470 --token $TOKEN",
};

static int serve(const struct flags *flags, const char *const *runs, size_t run_count)
{
    struct ash_board_opts opts = {.host = flags->address,
                                  .port = (int)flags->port,
                                  .names = flags->allowed_hosts.items,
                                  .name_count = flags->allowed_hosts.count,
                                  .agents = flags->agents.items,
                                  .agent_count = flags->agents.count,
                                  .token = flags->token,
                                  .runs = runs,
                                  .run_count = run_count,
                                  .topology = flags->topology,
                                  .pages = flags->pages[0] != '\0' ? flags->pages : NULL,
                                  .frozen = flags->board};
    struct ash_board *board = NULL;
    struct ash_err err = {0};

    signal(SIGPIPE, SIG_IGN);
    ash_interrupt_install();
    if (ash_board_open(&opts, &board, &err) < 0) return ash_cmd_fail(&err);
    printf("page: http://%s:%d/\n", flags->address, ash_board_port(board));
    fflush(stdout);
    while (!ash_interrupt_requested())
        poll(NULL, 0, 1000); /* a signal ends it */
    ash_board_close(board);
    return 0;
}

static int run(int argc, char **argv)
{
    const char *runs[RUNS_MAX];
    struct flags flags;
    struct ash_opt_binding bindings[] = {{&dash_table, &flags}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, runs, RUNS_MAX, &count);
    if (code == ASH_CMD_GO && ash_cmd_read_secret(&flags.token, &err) < 0) code = ash_cmd_fail(&err);
    if (code == ASH_CMD_GO) code = serve(&flags, runs, count);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_dash = {"dash", "a page for runs, ranks and nodes", run};
