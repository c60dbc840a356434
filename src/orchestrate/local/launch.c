/* Addresses, ranks and networks of a node's processes: the supervisor does the rest. */
#include "orchestrate/local/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/socket.h"
#include "orchestrate/local/netns.h"
#include "orchestrate/node/supervisor.h"

#define HOST_BYTES 256
#define ALONE_S 5.0 /* without an answer of ranks elsewhere */

static int enter_netns(void *ctx, size_t node)
{
    return ash_netns_enter(ctx, node);
}

/* "host:port" into the job; host is the buffer for it. */
static int read_master(const char *master, char host[HOST_BYTES], struct ash_process_job *job, struct ash_err *err)
{
    const char *colon = strrchr(master, ':');
    long port = colon != NULL ? strtol(colon + 1, NULL, 10) : 0;

    if (colon == NULL || colon == master || colon - master >= HOST_BYTES || port < 1 || port > 65535)
        return ash_err_set(err, -EINVAL, "--master is '%.100s': write HOST:PORT, where the first rank is to listen",
                           master);
    snprintf(host, HOST_BYTES, "%.*s", (int)(colon - master), master);
    job->master = host;
    job->port = (int)port;
    return 0;
}

static int check(const struct ash_launch *launch, struct ash_err *err)
{
    if (launch->procs == 0 || launch->nodes == 0 || launch->procs % launch->nodes != 0)
        return ash_err_set(err, -EINVAL, "%zu processes cannot be spread evenly over %zu nodes", launch->procs,
                           launch->nodes);
    if (!launch->is_one_node) return 0;
    if (launch->node_rank >= launch->nodes)
        return ash_err_set(err, -EINVAL, "--node-rank is %zu, but the nodes are 0 to %zu", launch->node_rank,
                           launch->nodes - 1);
    if (launch->master == NULL)
        return ash_err_set(err, -EINVAL, "--node-rank needs --master HOST:PORT: the nodes meet there");
    return 0;
}

/* The supervisor's options of a job whose nodes are all here. */
static struct ash_supervisor describe(const struct ash_launch *launch)
{
    return (struct ash_supervisor){.job = {.world = launch->procs,
                                           .master = "127.0.0.1",
                                           .has_nodes = launch->nodes > 1,
                                           .saves_alone = launch->saves_alone,
                                           .program = launch->program,
                                           .argv = launch->argv},
                                   .count = launch->procs,
                                   .grace_s = launch->grace_s,
                                   .notice_s = launch->notice_s,
                                   .least = launch->least,
                                   .restarts = launch->restarts,
                                   .back_off_s = launch->back_off_s,
                                   .again = launch->again,
                                   .job_dir = launch->job_dir,
                                   .joins = launch->joins,
                                   .passes_hangups = launch->passes_hangups,
                                   .has_others = launch->has_others,
                                   .alone_s = ALONE_S,
                                   .progress = launch->progress,
                                   .is_over = launch->is_over,
                                   .epoch = launch->epoch,
                                   .wanted = launch->wanted,
                                   .renew = launch->renew,
                                   .ctx = launch->ctx};
}

int ash_launch_run(const struct ash_launch *launch, struct ash_err *err)
{
    struct ash_supervisor supervisor = describe(launch);
    char host[HOST_BYTES];
    struct ash_netns *netns = NULL;
    int rc = check(launch, err), reserved = -1;

    ash_assert(launch->program != NULL && launch->argv != NULL && launch->argv[0] != NULL);
    if (rc < 0) return rc;
    supervisor.job.per_node = launch->procs / launch->nodes;
    if (launch->is_one_node) {
        supervisor.count = supervisor.job.per_node;
        supervisor.first_rank = launch->node_rank * supervisor.count;
        if (supervisor.least > supervisor.count) supervisor.least = 1; /* the ranks elsewhere count, too */
    }
    if (launch->netns) {
        rc = ash_netns_open(launch->nodes, launch->link_rate, &netns, err);
        if (rc < 0) return rc;
        supervisor.job.master = ash_netns_address(0, host, sizeof(host));
        supervisor.job.enter = enter_netns;
        supervisor.job.enter_ctx = netns;
    }
    if (launch->master != NULL) {
        rc = read_master(launch->master, host, &supervisor.job, err);
    } else {
        rc = reserved = ash_socket_reserve(&supervisor.job.port, err); /* until the first rank listens, and longer */
    }
    if (rc >= 0) rc = ash_supervise(&supervisor, err);
    if (reserved >= 0) close(reserved);
    ash_netns_close(netns);
    return rc;
}

int ash_launch_rank_by_name(size_t *rank_out, struct ash_err *err)
{
    char name[HOST_BYTES] = "";
    size_t at;

    if (gethostname(name, sizeof(name) - 1) < 0) return ash_err_set(err, -errno, "no host name: %s", strerror(errno));
    name[strcspn(name, ".")] = '\0';
    at = strlen(name);
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    if (name[at] == '\0')
        return ash_err_set(err, -EINVAL,
                           "--node-rank hostname: this machine is called '%s', without a number at its end", name);
    *rank_out = (size_t)strtoul(name + at, NULL, 10);
    return 0;
}
