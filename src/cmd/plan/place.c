/* ashlar plan place: does a job's placement suit the network's topology, and would waiting or another order pay? */
#include "cmd/plan/place_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "cmd/plan/plan_priv.h"

#define LIST_BYTES_MAX ((size_t)64 << 20)

struct flags {
    const char *topology, *model, *machine, *layout, *hosts, *free_hosts;
    double tokens, wait_minutes, uplink_share;
    int64_t nodes, global_batch, seq;
    bool overlap_dispatch, json;
    struct ash_plan_flags plan;
};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt place_opts[] = {
    {"topology", ASH_OPT_STRING, FIELD(topology), NULL,
     "Slurm's topology.conf or topology.yaml, EC2's instance topology, kubectl's nodes or HyperPod's resource config "
     "as JSON, or lines of 'host spine1/leaf3'",
     0, 0, NULL},
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    {"machine", ASH_OPT_STRING, FIELD(machine), NULL, "what a host is (ashlar catalog ls)", 0, 0, NULL},
    {"layout", ASH_OPT_STRING, FIELD(layout), NULL, "as in plan train: tp=8,pp=4,...; dp follows from the hosts", 0, 0,
     NULL},
    {"hosts", ASH_OPT_STRING, FIELD(hosts), NULL, "hosts of a running job in the order of ranks: a file, or n[0-7],n9",
     0, 0, NULL},
    {"nodes", ASH_OPT_INT, FIELD(nodes), NULL, "hosts that a waiting job wants", 1, ASH_TOPOLOGY_NODES_MAX, NULL},
    {"free", ASH_OPT_STRING, FIELD(free_hosts), NULL, "hosts that are free: a file, or n[0-7],n9", 0, 0, NULL},
    {"wait-minutes", ASH_OPT_DOUBLE, FIELD(wait_minutes), NULL, "minutes until the better place is expected to be free",
     0, 1e7, NULL},
    {"tokens", ASH_OPT_DOUBLE, FIELD(tokens), NULL, "tokens to train on in all (15T, 15e12): what waiting may cost", 1,
     1e18, NULL},
    {"uplink-share", ASH_OPT_DOUBLE, FIELD(uplink_share), "0.5",
     "share of the rate below that a host gets across a layer of switches (an assumption: measure yours)", 0.001, 1,
     NULL},
    ASH_PLAN_OPT_GLOBAL_BATCH(FIELD(global_batch), "sequences per step"),
    ASH_PLAN_OPT_SEQ(FIELD(seq), "8192"),
    {"overlap-dispatch", ASH_OPT_BOOL, FIELD(overlap_dispatch), NULL, "expert traffic overlaps with other compute", 0,
     0, NULL},
    ASH_PLAN_OPT_JSON(FIELD(json)),
};

static const struct ash_opt_table place_table = {
    .section = "", .help = "flags", .opts = place_opts, .count = ASH_COUNT(place_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan place --topology FILE --model DIR|NAME --machine NAME --layout tp=8,... "
                "(--hosts LIST | --nodes N --free LIST) [flags]",
    .about =
        "Says whether a job's hosts sit well in the tree of switches. For a running job (--hosts): hops between\n"
        "hosts that talk, bytes that cross each layer, the ranks on the busiest link, and what another order of\n"
        "the same ranks would gain. For a waiting one (--nodes, --free): the best domain now, the reason it waits,\n"
        "and how many minutes of waiting pay. And when none of it matters.",
    .examples =
        "  ashlar plan place --topology /etc/slurm/topology.conf --model llama-3.1-70b --machine p5.48xlarge \\\n"
        "    --layout tp=8,pp=4 --hosts hosts.txt\n"
        "  ashlar plan place --topology ec2.json --model deepseek-v3 --machine p5en.48xlarge \\\n"
        "    --layout pp=8,ep=32 --nodes 32 --free free.txt --tokens 1e12 --wait-minutes 90",
};

/* ---- flags ------------------------------------------------------------------------------------------------------- */

static int misused(const void *ctx, const struct ash_opts *opts)
{
    const struct flags *flags = ctx;
    bool waiting = flags->nodes > 0 || flags->free_hosts != NULL;

    (void)opts;
    if (flags->topology == NULL || flags->model == NULL || flags->machine == NULL || flags->layout == NULL)
        return ash_cmd_misuse("plan place", "--topology, --model, --machine and --layout are needed");
    if ((flags->hosts != NULL) == waiting)
        return ash_cmd_misuse("plan place", "give --hosts (a running job) or --nodes and --free (one that waits)");
    if (waiting && (flags->nodes == 0 || flags->free_hosts == NULL))
        return ash_cmd_misuse("plan place", "a job that waits needs both --nodes and --free");
    if (!waiting && flags->wait_minutes > 0)
        return ash_cmd_misuse("plan place", "--wait-minutes is for a job that waits (--nodes and --free)");
    return 0;
}

/* Hosts from a file of that name, or from the words themselves. */
static int read_hosts(const struct ash_topology *topology, const char *words, int **hosts_out, int *count_out,
                      struct ash_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc;

    if (!ash_path_exists(words)) return ash_topology_hosts(topology, words, hosts_out, count_out, err);
    rc = ash_file_read(words, LIST_BYTES_MAX, &text, &bytes, err);
    if (rc < 0) return rc;
    rc = ash_topology_hosts(topology, text, hosts_out, count_out, err);
    free(text);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", words) : 0;
}

static int read_job(const struct flags *flags, const struct ash_plan_facts *facts, int machines,
                    struct ash_placement_job *job, struct ash_err *err)
{
    const struct ash_machine *machine = NULL;
    char cluster[256];
    int rc = ash_shape_find(flags->model, &job->job.shape, err);

    if (rc == 0) rc = ash_catalog_machine(facts->catalog, flags->machine, &machine, err);
    if (rc < 0) return rc;
    snprintf(cluster, sizeof(cluster), "%dx%s", machines, machine->name);
    rc = ash_cluster_parse(facts->catalog, cluster, &job->job.cluster, err);
    if (rc < 0) return rc;
    job->consts = &facts->consts;
    job->uplink_share = flags->uplink_share;
    job->job.seq_tokens = (double)flags->seq;
    job->job.global_batch = (double)flags->global_batch;
    job->job.tokens = flags->tokens;
    job->job.dedup_dispatch = true;
    job->job.overlap_dispatch = flags->overlap_dispatch;
    job->layout = (struct ash_layout){.tp = 1, .pp = 1, .cp = 1, .ep = 1, .chunks = 1, .zero = 1, .micro_batch = 1};
    job->layout.recompute = ASH_PLAN_RECOMPUTE_FIT;
    rc = ash_layout_parse(flags->layout, &job->layout, err);
    if (rc == 0) rc = ash_layout_check(&job->job, &job->layout, err);
    return rc == 0 ? ash_placement_check(job, err) : rc;
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

static int examine_running(struct ash_placement_answer *answer)
{
    const struct ash_placement_job *job = &answer->job;
    struct ash_room_domain same;
    size_t count = (size_t)job->job.cluster.machines;
    int rc;

    answer->order = calloc(count, sizeof(*answer->order));
    answer->crossing = calloc(count, sizeof(*answer->crossing));
    if (answer->order == NULL || answer->crossing == NULL) return -ENOMEM;
    answer->span = answer->hosts[0];
    for (size_t i = 1; i < count; i++)
        answer->span = ash_topology_meet(answer->topology, answer->span, answer->hosts[i]);
    ash_room_find(answer->all, (int)count, &answer->best, &same);
    rc = ash_placement_measure(job, answer->topology, answer->hosts, &answer->given);
    if (rc == 0) rc = ash_placement_reorder(job, answer->topology, answer->hosts, answer->order, &answer->reordered);
    if (rc == 0 && answer->given.worst_link >= 0)
        ash_placement_crossing(job, answer->topology, answer->hosts, answer->given.worst_link, answer->crossing);
    return rc;
}

/* The best that hosts of a domain could do, in their best order; those that are free, or any. */
static int measure_domain(struct ash_placement_answer *answer, int domain, const struct ash_room *room,
                          struct ash_placement *place_out)
{
    int wanted = answer->job.job.cluster.machines, rc;
    int *order = calloc((size_t)wanted, sizeof(*order));

    rc = order == NULL ? -ENOMEM : ash_room_choose(room, domain, 1, wanted, answer->hosts);
    if (rc == 0) rc = ash_placement_reorder(&answer->job, answer->topology, answer->hosts, order, place_out);
    if (rc == 0) memcpy(answer->hosts, order, (size_t)wanted * sizeof(*order));
    free(order);
    return rc;
}

/* The hosts of best.domain that are not free: some of them must become so. */
static int list_busy(struct ash_placement_answer *answer)
{
    const struct ash_topology *topology = answer->topology;
    bool *is_free = calloc((size_t)topology->count, sizeof(*is_free));

    answer->busy_hosts = calloc((size_t)topology->count, sizeof(*answer->busy_hosts));
    if (is_free == NULL || answer->busy_hosts == NULL) {
        free(is_free);
        return -ENOMEM;
    }
    for (int i = 0; i < answer->free_count; i++)
        is_free[answer->free_hosts[i]] = true;
    for (int node = 1; node < topology->count; node++)
        if (topology->nodes[node].is_host && !is_free[node] && ash_topology_holds(topology, answer->best.domain, node))
            answer->busy_hosts[answer->busy_count++] = node;
    free(is_free);
    return 0;
}

/* hosts are left as those to start on now. */
static int examine_queued(struct ash_placement_answer *answer)
{
    const struct ash_plan_job *job = &answer->job.job;
    int rc;

    ash_room_find(answer->open, job->cluster.machines, &answer->now, &answer->best);
    answer->hosts = calloc((size_t)job->cluster.machines, sizeof(*answer->hosts));
    if (answer->hosts == NULL) return -ENOMEM;
    rc = list_busy(answer);
    if (rc == 0) rc = measure_domain(answer, answer->best.domain, answer->all, &answer->place_best);
    if (rc < 0 || answer->now.domain < 0) return rc;
    rc = measure_domain(answer, answer->now.domain, answer->open, &answer->place_now);
    if (rc == 0 && answer->best.missing == 0) answer->place_best = answer->place_now; /* there is nothing to wait for */
    answer->worth_minutes = job->tokens / (job->global_batch * job->seq_tokens) *
                            (answer->place_now.step.time.total - answer->place_best.step.time.total) / 60;
    if (answer->worth_minutes < 0) answer->worth_minutes = 0;
    return rc;
}

/* Every host, and the ones that are free. */
static int open_rooms(struct ash_placement_answer *answer)
{
    int rc = ash_room_open(answer->topology, 1, &answer->all);

    if (rc == 0) rc = ash_room_open(answer->topology, 1, &answer->open);
    for (int node = 1; node < answer->topology->count && rc == 0; node++)
        if (answer->topology->nodes[node].is_host) ash_room_set(answer->all, node, 1);
    for (int i = 0; i < answer->free_count && rc == 0; i++)
        ash_room_set(answer->open, answer->free_hosts[i], 1);
    return rc;
}

static int examine(const struct flags *flags, const struct ash_plan_facts *facts, struct ash_placement_answer *answer,
                   struct ash_err *err)
{
    int count = (int)flags->nodes, rc;

    rc = ash_topology_open(flags->topology, &answer->topology, err);
    if (rc < 0) return rc;
    if (count > answer->topology->nodes[0].hosts)
        return ash_err_set(err, -EINVAL, "%d hosts are wanted and the topology has %d", count,
                           answer->topology->nodes[0].hosts);
    answer->queued = flags->hosts == NULL;
    answer->wait_minutes = flags->wait_minutes;
    if (answer->queued)
        rc = read_hosts(answer->topology, flags->free_hosts, &answer->free_hosts, &answer->free_count, err);
    else
        rc = read_hosts(answer->topology, flags->hosts, &answer->hosts, &count, err);
    if (rc == 0) rc = read_job(flags, facts, count, &answer->job, err);
    if (rc < 0) return rc;
    rc = open_rooms(answer);
    if (rc == 0) rc = answer->queued ? examine_queued(answer) : examine_running(answer);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : rc;
}

static void close_answer(struct ash_placement_answer *answer)
{
    free(answer->hosts);
    free(answer->order);
    free(answer->crossing);
    free(answer->free_hosts);
    free(answer->busy_hosts);
    ash_room_close(answer->all);
    ash_room_close(answer->open);
    ash_topology_close(answer->topology);
}

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    static struct ash_placement_answer answer; /* large; one command per process */
    const struct flags *flags = ctx;
    int rc = examine(flags, facts, &answer, err);

    (void)word;
    if (rc == 0 && flags->json) rc = ash_placement_print_json(&answer, err);
    if (rc == 0 && !flags->json) ash_placement_print_table(&answer);
    close_answer(&answer);
    return rc;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};

    return ash_plan_run(&(struct ash_plan_question){&usage, &place_table, &flags, &flags.plan, misused, answer_it},
                        argc, argv);
}

const struct ash_cmd ash_cmd_plan_place = {"place", "is a job placed for the network's topology, and does it pay", run};
