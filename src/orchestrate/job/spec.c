/* The settings of the `job:` section, and checks between them. */
#include "orchestrate/job/spec.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

#define NODES_MAX 65536

static const char *const check_names[] = {"none", "quick", "deep", NULL}; /* as enum ash_spec_check */

#define SPEC(field) offsetof(struct ash_spec, field)
static const struct ash_opt spec_opts[] = {
    {"name", ASH_OPT_STRING, SPEC(name), NULL, "name of the job: small letters, digits and -; default: the job file's",
     0, 0, NULL},
    {"command", ASH_OPT_STRING, SPEC(command), "train", "the ashlar command that every process runs on this job file",
     0, 0, NULL},
    {"out", ASH_OPT_STRING, SPEC(out), NULL, "folder of the run, on storage that all nodes see; default: runs/NAME", 0,
     0, NULL},
    {"nodes", ASH_OPT_INT, SPEC(nodes), "1", "nodes that compute", 1, NODES_MAX, NULL},
    {"min_nodes", ASH_OPT_INT, SPEC(min_nodes), "0",
     "fewest nodes to continue with after losses; 0: the remaining ones continue", 0, NODES_MAX, NULL},
    {"spares", ASH_OPT_INT, SPEC(spares), "0", "nodes beyond these that wait to take the place of a lost one", 0,
     NODES_MAX, NULL},
    {"procs", ASH_OPT_INT, SPEC(procs), "0",
     "processes of a node; of a server: of a pod; 0: one per GPU, or one; of a server: all", 0, 4096, NULL},
    {"gpus", ASH_OPT_INT, SPEC(gpus), "0", "GPUs of a node", 0, 1024, NULL},
    {"efa", ASH_OPT_INT, SPEC(efa), "0", "EFA devices of a node (Kubernetes hands them out one by one)", 0, 1024, NULL},
    {"cpus", ASH_OPT_INT, SPEC(cpus), "0", "cores of a node; 0: as the cluster gives them", 0, 65536, NULL},
    {"memory", ASH_OPT_STRING, SPEC(memory), NULL, "memory of a node (64G); default: as the cluster gives it", 0, 0,
     NULL},
    {"time", ASH_OPT_STRING, SPEC(time), NULL, "time limit (24h, 1d12h, 90m); default: the queue's", 0, 0, NULL},
    {"notice", ASH_OPT_STRING, SPEC(notice), "120s",
     "time between being told to stop and being killed: the job saves in it", 0, 0, NULL},
    {"price", ASH_OPT_DOUBLE, SPEC(price), "0",
     "dollars an hour of a node: for the cost of runs (ashlar run cost); 0: not known", 0, 1e6, NULL},
    {"queue", ASH_OPT_STRING, SPEC(queue), NULL, "Slurm's partition, Kueue's local queue, Volcano's or KAI's queue", 0,
     0, NULL},
    {"account", ASH_OPT_STRING, SPEC(account), NULL, "who pays (Slurm)", 0, 0, NULL},
    {"class", ASH_OPT_STRING, SPEC(priority), NULL, "priority class: Slurm's QOS, Kubernetes' priority class", 0, 0,
     NULL},
    {"restarts", ASH_OPT_INT, SPEC(restarts), "10", "failures of processes or nodes that the job outlives", 0, 1e6,
     NULL},
    {"check", ASH_OPT_CHOICE, SPEC(check), "none", "look at each node before the job starts (ashlar check node)", 0, 0,
     check_names},
    {"image", ASH_OPT_STRING, SPEC(image), NULL, "container image (Kubernetes)", 0, 0, NULL},
    {"namespace", ASH_OPT_STRING, SPEC(kube_namespace), NULL, "Kubernetes namespace; default: the context's", 0, 0,
     NULL},
    {"service_account", ASH_OPT_STRING, SPEC(service_account), NULL, "Kubernetes service account of the pods", 0, 0,
     NULL},
    {"mounts", ASH_OPT_TEXTS, SPEC(mounts), NULL,
     "what pods see: CLAIM:/path (persistent volume claim) or /host/path:/path, :ro after it for reading only", 0, 0,
     NULL},
    {"env", ASH_OPT_TEXTS, SPEC(env), NULL, "environment of every process: a map, or NAME=VALUE", 0, 0, NULL},
    {"exclude", ASH_OPT_LIST, SPEC(exclude), NULL, "nodes that the job must not get", 0, 0, NULL},
    {"slurm", ASH_OPT_TEXTS, SPEC(slurm), NULL,
     "words for sbatch as they are: --array=0-3, --dependency=afterok:12, --reservation=NAME", 0, 0, NULL},
};

#define TOPOLOGY(field) offsetof(struct ash_spec_topology, field)
static const struct ash_opt topology_opts[] = {
    {"required", ASH_OPT_STRING, TOPOLOGY(required), NULL,
     "level of the network whose one domain must hold all nodes: switch or block (Slurm), a node label (Kubernetes)", 0,
     0, NULL},
    {"preferred", ASH_OPT_STRING, TOPOLOGY(preferred), NULL, "level in as few of whose domains as possible", 0, 0,
     NULL},
    {"group", ASH_OPT_INT, TOPOLOGY(group), "0", "nodes in rank order that share a preferred domain; 0: no groups", 0,
     NODES_MAX, NULL},
};

static const struct ash_opt_table spec_table = {"job", "what the job asks of a cluster (ashlar submit)", spec_opts,
                                                ASH_COUNT(spec_opts)};
static const struct ash_opt_table topology_table = {"job.topology", "where its nodes are in the network", topology_opts,
                                                    ASH_COUNT(topology_opts)};

#define ELASTIC(field) offsetof(struct ash_spec_elastic, field)
static const struct ash_opt elastic_opts[] = {
    {"min", ASH_OPT_INT, ELASTIC(min), "0", "nodes that it keeps; ashlar jobs balance gives the others away; 0: all", 0,
     NODES_MAX, NULL},
    {"max", ASH_OPT_INT, ELASTIC(max), "0", "nodes that it gets back: those that it starts with (job.nodes)", 0,
     NODES_MAX, NULL},
};
static const struct ash_opt_table elastic_table = {
    "job.elastic", "nodes that a job gives to others and gets back (Slurm)", elastic_opts, ASH_COUNT(elastic_opts)};

void ash_spec_bind(struct ash_spec *spec, struct ash_opt_binding bindings[ASH_SPEC_SECTIONS])
{
    *spec = (struct ash_spec){0};
    bindings[0] = (struct ash_opt_binding){&spec_table, spec};
    bindings[1] = (struct ash_opt_binding){&topology_table, &spec->topology};
    bindings[2] = (struct ash_opt_binding){&elastic_table, &spec->elastic};
}

/* ---- resolving --------------------------------------------------------------------------------------------------- */

/* The job file's name without folder and ending, as a name that every scheduler takes. */
static void name_after(const char *job_file, char buf[ASH_SPEC_NAME_MAX + 1])
{
    const char *base = strrchr(job_file, '/') != NULL ? strrchr(job_file, '/') + 1 : job_file;
    size_t length = strcspn(base, "."), used = 0;

    for (size_t i = 0; i < length && used < ASH_SPEC_NAME_MAX; i++) {
        unsigned char c = (unsigned char)tolower((unsigned char)base[i]);

        if (isalnum(c) || (c == '-' && used > 0))
            buf[used++] = (char)c;
        else if (used > 0 && buf[used - 1] != '-')
            buf[used++] = '-';
    }
    while (used > 0 && buf[used - 1] == '-')
        used--;
    buf[used] = '\0';
    if (used == 0) memcpy(buf, "job", sizeof("job"));
}

static int check_name(const char *name, struct ash_err *err)
{
    size_t length = strlen(name);
    bool is_good = length > 0 && length <= ASH_SPEC_NAME_MAX && name[0] != '-' && name[length - 1] != '-';

    for (size_t i = 0; i < length && is_good; i++)
        is_good = islower((unsigned char)name[i]) || isdigit((unsigned char)name[i]) || name[i] == '-';
    if (is_good) return 0;
    return ash_err_set(err, -EINVAL,
                       "job.name is '%.100s': a name has small letters, digits and '-', at most %d of them", name,
                       ASH_SPEC_NAME_MAX);
}

static int read_duration(const char *setting, const char *text, double *seconds_out, struct ash_err *err)
{
    if (text == NULL) return 0;
    if (ash_clock_parse(text, seconds_out) == 0 && *seconds_out > 0) return 0;
    return ash_err_set(err, -EINVAL, "%s is '%.100s': a duration is written as 90s, 30m, 24h or 1d12h", setting, text);
}

static int check_nodes(const struct ash_spec *spec, struct ash_err *err)
{
    if (spec->min_nodes > spec->nodes)
        return ash_err_set(err, -EINVAL, "job.min_nodes is %lld, but the job has %lld nodes",
                           (long long)spec->min_nodes, (long long)spec->nodes);
    if (spec->topology.group > 0 && spec->nodes % spec->topology.group != 0)
        return ash_err_set(err, -EINVAL,
                           "job.nodes (%lld) is not a multiple of job.topology.group (%lld): groups must be whole",
                           (long long)spec->nodes, (long long)spec->topology.group);
    if (spec->topology.group > 0 && spec->topology.preferred == NULL && spec->topology.required == NULL)
        return ash_err_set(err, -EINVAL,
                           "job.topology.group needs job.topology.preferred: the level that groups share");
    return 0;
}

/* Nodes are given and taken back between two steps, by a mesh that is never larger than at the start. */
static int resolve_elastic(struct ash_spec *spec, struct ash_err *err)
{
    struct ash_spec_elastic *elastic = &spec->elastic;

    if (elastic->min == 0 && elastic->max == 0) return 0;
    if (elastic->max == 0) elastic->max = spec->nodes;
    if (spec->nodes == 1) spec->nodes = elastic->max;
    if (elastic->max != spec->nodes)
        return ash_err_set(err, -EINVAL,
                           "job.elastic.max is %lld and job.nodes %lld: a run starts with all nodes that it can have",
                           (long long)elastic->max, (long long)spec->nodes);
    if (elastic->min < 1 || elastic->min > elastic->max || elastic->min < spec->min_nodes)
        return ash_err_set(err, -EINVAL, "job.elastic.min is %lld: it is between %lld (job.min_nodes) and %lld nodes",
                           (long long)elastic->min, (long long)(spec->min_nodes > 0 ? spec->min_nodes : 1),
                           (long long)elastic->max);
    if (spec->spares > 0)
        return ash_err_set(err, -EINVAL, "job.spares keeps nodes idle, and job.elastic gives them away: choose one");
    if (strcmp(spec->command, "serve") == 0)
        return ash_err_set(err, -EINVAL, "job.elastic is for runs: a server has job.min_nodes and an autoscaler");
    return 0;
}

static int resolve_nodes(struct ash_spec *spec, struct ash_err *err)
{
    int rc = resolve_elastic(spec, err);

    return rc == 0 ? check_nodes(spec, err) : rc;
}

static int check_env(const struct ash_opt_list *env, struct ash_err *err)
{
    for (size_t i = 0; i < env->count; i++) {
        size_t name = strcspn(env->items[i], "=");
        bool is_good = name > 0 && env->items[i][name] == '=' && !isdigit((unsigned char)env->items[i][0]);

        for (size_t j = 0; j < name && is_good; j++)
            is_good = isalnum((unsigned char)env->items[i][j]) || env->items[i][j] == '_';
        if (!is_good)
            return ash_err_set(err, -EINVAL, "job.env has '%.100s': variables are written as NAME=VALUE or NAME: VALUE",
                               env->items[i]);
    }
    return 0;
}

int ash_spec_resolve(struct ash_spec *spec, const char *job_file, char buf[ASH_SPEC_NAME_MAX + 1], struct ash_err *err)
{
    int rc;

    if (spec->name == NULL) {
        name_after(job_file, buf);
        spec->name = buf;
    }
    if (spec->queue != NULL && spec->queue[0] == '\0') spec->queue = NULL;
    rc = check_name(spec->name, err);
    if (rc == 0) rc = read_duration("job.time", spec->time, &spec->time_s, err);
    if (rc == 0) rc = read_duration("job.notice", spec->notice, &spec->notice_s, err);
    if (rc == 0) rc = resolve_nodes(spec, err);
    if (rc == 0) rc = check_env(&spec->env, err);
    if (rc < 0) return rc;
    if (spec->time_s > 0 && spec->notice_s >= spec->time_s)
        return ash_err_set(err, -EINVAL, "job.notice (%s) is as long as job.time (%s): nothing is left to compute in",
                           spec->notice, spec->time);
    spec->asked_procs = spec->procs;
    if (spec->procs == 0) spec->procs = spec->gpus > 0 && strcmp(spec->command, "serve") != 0 ? spec->gpus : 1;
    spec->min_ranks = spec->min_nodes * spec->procs;
    if (spec->min_nodes == 0) spec->min_nodes = spec->nodes;
    return 0;
}

size_t ash_spec_all_nodes(const struct ash_spec *spec)
{
    return (size_t)(spec->nodes + spec->spares);
}
