/* ashlar plan queue: simulate a scheduling policy, and export it for other schedulers. */
#include "cmd/plan/queue_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "cmd/plan/plan_priv.h"
#include "queue/policy/export.h"

#define NODES_BYTES_MAX ((size_t)64 << 20)
#define HOUR_S 3600.0
#define DAY_S 86400.0

struct flags {
    const char *generate, *cluster, *topology, *policy, *page;
    struct ash_opt_list compare;
    int64_t jobs, seed, required, group, spares, seeds;
    double load, mtbf_days, repair_hours, save_minutes, comm_share, uplink_share;
    int exports;
    bool json, failures, peer_copies, fill;
    struct ash_plan_flags plan;
};

#define FIELD(name) offsetof(struct flags, name)

static const char *const export_names[] = {"none", "slurm", "kueue", "volcano", "kai", NULL};

static const struct ash_opt queue_opts[] = {
    {"generate", ASH_OPT_STRING, FIELD(generate), NULL,
     "draw jobs as on acme, helios or philly instead of reading a trace", 0, 0, NULL},
    {"jobs", ASH_OPT_INT, FIELD(jobs), "100000", "jobs to draw", 1, ASH_TRACE_JOBS_MAX, NULL},
    {"load", ASH_OPT_DOUBLE, FIELD(load), "0.9", "GPUs that drawn jobs ask for on average, over those of the cluster",
     0.01, 10, NULL},
    {"cluster", ASH_OPT_STRING, FIELD(cluster), NULL,
     "hosts: 10000xp5.48xlarge (ashlar catalog ls), 100x8 (hosts x GPUs), or a table of openb's nodes", 0, 0, NULL},
    {"topology", ASH_OPT_STRING, FIELD(topology), NULL,
     "a topology file (ashlar plan place), or hosts per rack, block, ...: 16,160", 0, 0, NULL},
    {"policy", ASH_OPT_STRING, FIELD(policy), "ashlar",
     "a YAML file, or fifo, greedy, easy, conservative, slurm, kueue, kai, ashlar", 0, 0, NULL},
    {"compare", ASH_OPT_LIST, FIELD(compare), NULL, "other policies for the same jobs: files or names", 0, 0, NULL},
    {"failures", ASH_OPT_BOOL, FIELD(failures), NULL, "hosts fail and are repaired", 0, 0, NULL},
    {"mtbf-days", ASH_OPT_DOUBLE, FIELD(mtbf_days), "264",
     "between failures of one host (Llama 3: 419 stops in 54 days of 2,048 hosts)", 0.01, 1e6, NULL},
    {"repair-hours", ASH_OPT_DOUBLE, FIELD(repair_hours), "4",
     "until a failed host is back (an assumption: measure yours)", 0, 1e5, NULL},
    {"save-minutes", ASH_OPT_DOUBLE, FIELD(save_minutes), "30",
     "between saves of jobs on several hosts; 0: they never save", 0, 1e5, NULL},
    {"peer-copies", ASH_OPT_BOOL, FIELD(peer_copies), NULL, "state has copies in peers' memory: a stop loses no work",
     0, 0, NULL},
    {"comm-share", ASH_OPT_DOUBLE, FIELD(comm_share), "0.15",
     "of a step on several hosts that is exposed communication inside one rack (an assumption; ashlar plan train "
     "says yours)",
     0, 0.99, NULL},
    {"uplink-share", ASH_OPT_DOUBLE, FIELD(uplink_share), "0.5",
     "share of the rate below that a host gets across a layer of switches (an assumption: measure yours)", 0.001, 1,
     NULL},
    {"required-level", ASH_OPT_INT, FIELD(required), NULL,
     "jobs on several hosts must fit one domain of this height (1: rack); 0: any place", 0, ASH_POLICY_LEVELS_MAX,
     NULL},
    {"group", ASH_OPT_INT, FIELD(group), NULL,
     "each run of this many nodes of a job shares a rack, where its nodes are a multiple", 0, 1024, NULL},
    {"spares", ASH_OPT_INT, FIELD(spares), NULL, "spare hosts of jobs of 16 hosts and more", 0, 64, NULL},
    {"fill", ASH_OPT_BOOL, FIELD(fill), NULL,
     "jobs arrive until they ask for 130 %, none ends: how much is allocated (the openb experiment)", 0, 0, NULL},
    {"seeds", ASH_OPT_INT, FIELD(seeds), "1", "with --fill: orders to draw", 1, 1000, NULL},
    {"seed", ASH_OPT_INT, FIELD(seed), "1", "of all draws", 0, 0, NULL},
    {"export", ASH_OPT_CHOICE, FIELD(exports), "none",
     "print the policy as that scheduler's configuration, and the parts without an equal there", 0, 0, export_names},
    {"page", ASH_OPT_STRING, FIELD(page), NULL, "write a page of charts to this file", 0, 0, NULL},
    ASH_PLAN_OPT_JSON(FIELD(json)),
};

static const struct ash_opt_table queue_table = {
    .section = "", .help = "flags", .opts = queue_opts, .count = ASH_COUNT(queue_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan queue (TRACE | --generate NAME) --cluster N [--policy FILE] [--compare LIST] [flags]",
    .about = "Simulates a queue of jobs under a scheduling policy: utilisation, waits by size, class and team, jobs\n"
             "across domains and what that costs their steps, GPU hours lost to preemption and failures. Reads traces\n"
             "of Philly, Helios, Acme and openb, SWF, and `sacct -P`. --export writes the policy for Slurm, Kueue,\n"
             "Volcano or KAI.",
    .examples =
        "  ashlar plan queue --generate acme --jobs 1e5 --cluster 1000x8 --topology 16,160 --compare fifo,easy\n"
        "  sacct -aPX -o JobID,User,Account,QOS,Submit,Elapsed,Timelimit,NNodes,AllocTRES -S now-30days > jobs\n"
        "  ashlar plan queue jobs --cluster 64xp5.48xlarge --policy mine.yaml --page queue.html\n"
        "  ashlar plan queue --policy mine.yaml --cluster 64xp5.48xlarge --export slurm",
};

/* ---- flags ------------------------------------------------------------------------------------------------------- */

static bool is_export(const struct flags *flags)
{
    return flags->exports > 0;
}

static int read_nodes(const char *path, struct ash_site *site, struct ash_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = ash_file_read(path, NODES_BYTES_MAX, &text, &bytes, err);

    if (rc == 0) rc = ash_site_parse(text, bytes, path, site, err);
    free(text);
    return rc;
}

/* "100x8", or an entry of the catalog. */
static int read_size(const struct flags *flags, const struct ash_plan_facts *facts, int *hosts_out, int *gpus_out,
                     struct ash_err *err)
{
    struct ash_cluster cluster;
    char after;
    int rc;

    if (sscanf(flags->cluster, "%dx%d%c", hosts_out, gpus_out, &after) == 2) {
        if (*hosts_out >= 1 && *hosts_out <= ASH_TOPOLOGY_NODES_MAX / 2 && *gpus_out >= 1 &&
            *gpus_out <= ASH_POLICY_HOST_GPUS_MAX)
            return 0;
        return ash_err_set(err, -EINVAL, "--cluster %s: 1 to %d hosts of 1 to %d GPUs", flags->cluster,
                           ASH_TOPOLOGY_NODES_MAX / 2, ASH_POLICY_HOST_GPUS_MAX);
    }
    rc = ash_cluster_parse(facts->catalog, flags->cluster, &cluster, err);
    if (rc < 0) return rc;
    *hosts_out = cluster.machines;
    *gpus_out = cluster.machine.gpus;
    if (*gpus_out > ASH_POLICY_HOST_GPUS_MAX)
        return ash_err_set(err, -EINVAL, "%s has %d GPUs: name its trays as hosts, at most %d GPUs each",
                           cluster.machine.name, *gpus_out, ASH_POLICY_HOST_GPUS_MAX);
    return 0;
}

static int read_site(const struct flags *flags, const struct ash_plan_facts *facts, struct ash_site *site,
                     struct ash_err *err)
{
    bool is_file = flags->topology != NULL && ash_path_exists(flags->topology);
    struct ash_topology *topology = NULL;
    int hosts = 0, gpus = 0, rc;

    if (ash_path_exists(flags->cluster)) return read_nodes(flags->cluster, site, err);
    rc = read_size(flags, facts, &hosts, &gpus, err);
    if (rc < 0) return rc;
    if (!is_file) return ash_site_make(hosts, gpus, flags->topology, site, err);
    rc = ash_topology_open(flags->topology, &topology, err);
    if (rc < 0) return rc;
    if (topology->nodes[0].hosts != hosts) {
        rc = ash_err_set(err, -EINVAL, "--cluster has %d hosts and %s has %d", hosts, flags->topology,
                         topology->nodes[0].hosts);
        ash_topology_close(topology);
        return rc;
    }
    return ash_site_take(topology, gpus, site, err);
}

static int read_trace(const struct flags *flags, const char *word, const struct ash_site *site,
                      struct ash_trace **trace_out, struct ash_err *err)
{
    const struct ash_trace_model *model;

    if (word != NULL) return ash_trace_open(word, trace_out, err);
    model = ash_trace_model_find(flags->generate);
    if (model == NULL)
        return ash_err_set(err, -EINVAL, "--generate is acme, helios or philly, not '%.40s'", flags->generate);
    return ash_trace_draw(model, (size_t)flags->jobs, flags->load * ash_site_gpus(site), (uint64_t)flags->seed,
                          trace_out, err);
}

/* ---- simulating -------------------------------------------------------------------------------------------------- */

static int fill_cluster(const struct flags *flags, struct ash_replay_opts *opts, double *fill, struct ash_err *err)
{
    double once[ASH_QUEUE_FILL_STEPS];
    int rc = 0;

    for (int64_t seed = 0; seed < flags->seeds && rc == 0; seed++) {
        opts->seed = (uint64_t)(flags->seed + seed);
        rc = ash_replay_fill(opts, (ASH_QUEUE_FILL_STEPS - 1) / 100.0, once, ASH_QUEUE_FILL_STEPS, err);
        for (int i = 0; i < ASH_QUEUE_FILL_STEPS && rc == 0; i++)
            fill[i] += once[i] / (double)flags->seeds;
    }
    return rc;
}

static int run_policy(const struct flags *flags, struct ash_queue_answer *answer, int which, struct ash_err *err)
{
    struct ash_policy_conf *conf = &answer->conf[which];
    int *queue_of = NULL, *class_of = NULL, rc = ash_queue_adopt_names(conf, answer->trace, err);
    struct ash_replay_opts opts = {.conf = conf,
                                   .topology = answer->site.topology,
                                   .hosts = answer->site.hosts,
                                   .host_count = answer->site.host_count,
                                   .trace = answer->trace,
                                   .save_s = flags->save_minutes * 60,
                                   .has_peer_copies = flags->peer_copies,
                                   .host_mtbf_s = flags->failures ? flags->mtbf_days * DAY_S : 0,
                                   .repair_s = flags->repair_hours * HOUR_S,
                                   .comm_share = flags->comm_share,
                                   .uplink_share = flags->uplink_share,
                                   .required = (int)flags->required,
                                   .group = (int)flags->group,
                                   .spares = (int)flags->spares,
                                   .seed = (uint64_t)flags->seed};
    uint64_t start_ns = ash_clock_ns();

    if (rc == 0 && ash_queue_map_names(answer, conf, &queue_of, &class_of) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    opts.queue_of = queue_of;
    opts.class_of = class_of;
    conf->seed = (uint64_t)flags->seed;
    if (rc == 0)
        rc = flags->fill ? fill_cluster(flags, &opts, answer->fill[which], err)
                         : ash_replay(&opts, &answer->report[which], err);
    answer->seconds[which] = (double)(ash_clock_ns() - start_ns) * 1e-9;
    free(queue_of);
    free(class_of);
    return rc;
}

static int open_policies(const struct flags *flags, struct ash_queue_answer *answer, struct ash_err *err)
{
    int rc = ash_policy_conf_open(flags->policy, &answer->conf[0], err);

    answer->count = rc == 0;
    for (size_t i = 0; i < flags->compare.count && rc == 0; i++) {
        if (answer->count == ASH_QUEUE_POLICIES_MAX)
            return ash_err_set(err, -EINVAL, "at most %d policies at once", ASH_QUEUE_POLICIES_MAX);
        rc = ash_policy_conf_open(flags->compare.items[i], &answer->conf[answer->count], err);
        answer->count += rc == 0;
    }
    return rc;
}

static int simulate_all(const struct flags *flags, const char *word, struct ash_queue_answer *answer,
                        struct ash_err *err)
{
    int rc = read_trace(flags, word, &answer->site, &answer->trace, err);

    answer->is_fill = flags->fill;
    for (int i = 0; i < answer->count && rc == 0; i++)
        rc = run_policy(flags, answer, i, err);
    if (rc == 0 && flags->page != NULL) rc = ash_queue_write_page(answer, flags->page, err);
    if (rc == 0 && flags->json) return ash_queue_print_json(answer, err);
    if (rc == 0) ash_queue_print_table(answer);
    return rc;
}

static int print_export(const struct flags *flags, struct ash_queue_answer *answer, struct ash_err *err)
{
    static const enum ash_policy_target targets[] = {ASH_POLICY_SLURM, ASH_POLICY_SLURM, ASH_POLICY_KUEUE,
                                                     ASH_POLICY_VOLCANO, ASH_POLICY_KAI};
    struct ash_str text = {0};
    int rc = ash_policy_export(&answer->conf[0], answer->site.topology, targets[flags->exports], &text);

    if (rc == 0) fputs(text.data, stdout);
    ash_str_fini(&text);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

static void close_answer(struct ash_queue_answer *answer)
{
    for (int i = 0; i < ASH_QUEUE_POLICIES_MAX; i++) {
        ash_policy_conf_fini(&answer->conf[i]);
        ash_replay_fini(&answer->report[i]);
    }
    ash_trace_close(answer->trace);
    ash_site_fini(&answer->site);
}

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    static struct ash_queue_answer answer; /* large; one command per process */
    const struct flags *flags = ctx;
    int rc = open_policies(flags, &answer, err);

    if (rc == 0) rc = read_site(flags, facts, &answer.site, err);
    if (rc == 0) rc = is_export(flags) ? print_export(flags, &answer, err) : simulate_all(flags, word, &answer, err);
    close_answer(&answer);
    return rc;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Flags that are missing or mean nothing together: the exit code, or 0. */
static int misused(const struct flags *flags, const char *word)
{
    if (flags->cluster == NULL) return ash_cmd_misuse("plan queue", "say which cluster: --cluster 64xp5.48xlarge");
    if (is_export(flags)) return 0;
    if ((word != NULL) == (flags->generate != NULL))
        return ash_cmd_misuse("plan queue", "give a trace, or --generate acme, helios or philly");
    return 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = ctx;
    int code = misused(flags, word);

    (void)opts;
    return code != 0 ? code : ash_plan_answer(&flags->plan, answer_it, flags, word);
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&queue_table, &flags}, {&ash_plan_table, &flags.plan}},
                                      .takes_word = true,
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_plan_queue = {"queue", "what a scheduling policy does to jobs, and its configuration",
                                           run};
