/* A policy for other schedulers. Names become what they allow; every setting that a scheduler lacks is said in a comment
 * at the end of its text. */
#include "orchestrate/policy/export.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LEVEL_LABEL "topology.ashlar.dev/"
#define FLAVOR "gpu-nodes"
#define HYPERNODES_MAX 20000

/* Text that grows; the first error is kept. */
struct writer {
    const struct ash_policy_conf *conf;
    const struct ash_topology *topology;
    struct ash_str *text;
    struct ash_str missing; /* what the scheduler cannot say */
    int rc;
};

static void add(struct writer *writer, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void miss(struct writer *writer, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct writer *writer, const char *fmt, ...)
{
    char line[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (writer->rc == 0) writer->rc = ash_str_adds(writer->text, line);
}

static void miss(struct writer *writer, const char *fmt, ...)
{
    char line[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (writer->rc == 0) writer->rc = ash_str_addf(&writer->missing, "# not expressed: %s\n", line);
}

/* A name of lower-case letters, digits and '-', as Kubernetes wants it; in buf. */
static const char *kube_name(const char *name, char *buf)
{
    size_t length = 0;

    for (; *name != '\0' && length + 2 < ASH_POLICY_NAME_BYTES; name++) {
        char c = (char)tolower((unsigned char)*name);

        if (isalnum((unsigned char)c))
            buf[length++] = c;
        else if (length > 0 && buf[length - 1] != '-')
            buf[length++] = '-';
    }
    while (length > 0 && buf[length - 1] == '-')
        length--;
    if (length == 0) buf[length++] = 'q';
    buf[length] = '\0';
    return buf;
}

static bool is_parent(const struct ash_policy_conf *conf, int queue)
{
    for (int i = queue + 1; i < conf->queue_count; i++)
        if (conf->queues[i].parent == queue) return true;
    return false;
}

static double gpus_of(int64_t milli)
{
    return (double)milli / 1000;
}

/* "rack", or "level-2" where the policy names none. */
static const char *level_name(const struct writer *writer, int height, char *buf)
{
    if (height <= writer->conf->level_count) return kube_name(writer->conf->levels[height - 1], buf);
    snprintf(buf, ASH_POLICY_NAME_BYTES, "level-%d", height);
    return buf;
}

/* Layers of domains that are not the whole cluster. */
static int layers_of(const struct writer *writer)
{
    int height = writer->topology->nodes[0].height;

    return height > 1 ? height - 1 : 1;
}

/* ---- Slurm ------------------------------------------------------------------------------------------------------- */

static void add_slurm_conf(struct writer *writer)
{
    const struct ash_policy_conf *conf = writer->conf;
    bool is_preempting = conf->within != ASH_POLICY_RECLAIM_NEVER || conf->cohort != ASH_POLICY_RECLAIM_NEVER;

    add(writer, "# slurm.conf, for the policy %s\n", conf->name);
    add(writer, "PriorityType=priority/multifactor\nPriorityWeightQOS=%.0f\nPriorityWeightAge=%.0f\n",
        conf->class_weight, conf->age_weight);
    add(writer, "PriorityWeightJobSize=%.0f\nPriorityWeightFairshare=%.0f\n", conf->size_weight, conf->fair_weight);
    add(writer, "PriorityMaxAge=%.0f\nPriorityDecayHalfLife=%.0f\n", conf->age_max_s / 60, conf->half_life_s / 60);
    add(writer, "PriorityFavorSmall=%s\n", conf->favors_small ? "YES" : "NO");
    if (conf->fair == ASH_POLICY_FAIR_MULTIFACTOR) add(writer, "PriorityFlags=NO_FAIR_TREE\n");
    add(writer, "AccountingStorageEnforce=associations,limits,qos\nAccountingStorageTRES=gres/gpu\nGresTypes=gpu\n");
    add(writer, "SchedulerType=%s\n", conf->backfill == ASH_POLICY_BACKFILL_NONE ? "sched/builtin" : "sched/backfill");
    if (conf->backfill != ASH_POLICY_BACKFILL_NONE)
        add(writer, "SchedulerParameters=bf_continue,bf_interval=%.0f,bf_max_job_test=%d%s\n",
            conf->interval_s >= 1 ? conf->interval_s : 1, conf->depth,
            conf->backfill == ASH_POLICY_BACKFILL_EASY ? ",bf_job_part_count_reserve=1" : "");
    if (is_preempting) {
        add(writer, "PreemptType=preempt/qos\nPreemptMode=REQUEUE\nJobRequeue=1\n");
        if (conf->protect_s > 0) add(writer, "PreemptExemptTime=%.0f\n", conf->protect_s / 60);
    }
    add(writer, "SelectType=select/cons_tres\nTopologyPlugin=topology/%s\n", conf->is_topology_blind ? "none" : "tree");
}

static void add_slurm_classes(struct writer *writer)
{
    const struct ash_policy_conf *conf = writer->conf;

    add(writer, "\n# sacctmgr: classes are QOS\n");
    for (int i = 0; i < conf->class_count; i++) {
        const struct ash_policy_class *class = &conf->classes[i];
        const char *separator = "";
        char preempts[ASH_POLICY_CLASSES_MAX * ASH_POLICY_NAME_BYTES] = "", name[ASH_POLICY_NAME_BYTES];
        size_t length = 0;

        for (int k = 0; k < conf->class_count && class->may_preempt; k++) {
            if (!conf->classes[k].is_preemptible || conf->classes[k].priority >= class->priority) continue;
            length += (size_t)snprintf(preempts + length, sizeof(preempts) - length, "%s%s", separator,
                                       kube_name(conf->classes[k].name, name));
            separator = ",";
        }
        add(writer, "sacctmgr -i add qos %s set Priority=%.0f Flags=DenyOnLimit%s%s\n", kube_name(class->name, name),
            class->priority, preempts[0] != '\0' ? " Preempt=" : "", preempts);
    }
}

static void add_slurm_queues(struct writer *writer)
{
    const struct ash_policy_conf *conf = writer->conf;

    add(writer, "\n# sacctmgr: queues are accounts\n");
    for (int i = 0; i < conf->queue_count; i++) {
        const struct ash_policy_queue *queue = &conf->queues[i];
        char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];
        int64_t cap = queue->gpus_max;

        if (queue->has_quota && queue->borrow[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED) {
            int64_t most = queue->nominal[ASH_POLICY_GPU] + queue->borrow[ASH_POLICY_GPU];

            if (most < cap) cap = most;
        }
        add(writer, "sacctmgr -i add account %s parent=%s fairshare=%.0f", kube_name(queue->name, name),
            queue->parent >= 0 ? kube_name(conf->queues[queue->parent].name, parent) : "root",
            queue->shares >= 1 ? queue->shares : 1);
        if (cap != ASH_POLICY_UNLIMITED) add(writer, " GrpTRES=gres/gpu=%.0f", gpus_of(cap));
        if (queue->job_gpus_max != ASH_POLICY_UNLIMITED)
            add(writer, " MaxTRESPerJob=gres/gpu=%.0f", gpus_of(queue->job_gpus_max));
        add(writer, "\n");
        if (queue->user_gpus_max != ASH_POLICY_UNLIMITED)
            add(writer,
                "sacctmgr -i add qos %s-users set MaxTRESPerUser=gres/gpu=%.0f Flags=DenyOnLimit\n"
                "sacctmgr -i modify account %s set qos+=%s-users defaultqos=%s-users\n",
                name, gpus_of(queue->user_gpus_max), name, name, name);
        if (queue->has_quota)
            miss(writer,
                 "the quota of %.63s (%.0f GPUs that others lend and it reclaims): Slurm has caps and fair share, no "
                 "borrowing",
                 queue->name, gpus_of(queue->nominal[ASH_POLICY_GPU]));
    }
}

static void export_slurm(struct writer *writer)
{
    const struct ash_policy_conf *conf = writer->conf;

    add_slurm_conf(writer);
    if (conf->run_max_s > 0)
        add(writer, "PartitionName=main Nodes=ALL Default=YES MaxTime=%.0f\n", conf->run_max_s / 60);
    add_slurm_classes(writer);
    add_slurm_queues(writer);
    if (conf->fair == ASH_POLICY_FAIR_DOMINANT || conf->fair == ASH_POLICY_FAIR_OVER_QUOTA)
        miss(writer, "fair share by quota: the tree of accounts ranks by usage and shares");
    if (conf->backfill == ASH_POLICY_BACKFILL_GREEDY)
        miss(writer, "starting whatever fits: Slurm's backfill always holds nodes for the first jobs");
    if (conf->victims == ASH_POLICY_VICTIMS_CHEAPEST)
        miss(writer, "the cheapest victim: Slurm stops by QOS and time, not by work since the last save");
    if (conf->failures_max > 0) miss(writer, "that a job which failed %d times stops no other", conf->failures_max);
    if (conf->placement != ASH_POLICY_PLACE_PACK)
        miss(writer, "the placement by score: select/cons_tres packs by its own rules");
}

/* ---- Kueue ------------------------------------------------------------------------------------------------------- */

static void add_quota(struct writer *writer, const struct ash_policy_queue *queue, const char *indent)
{
    static const char *const names[ASH_POLICY_RESOURCES] = {"nvidia.com/gpu", "cpu", "memory"};
    static const double scales[ASH_POLICY_RESOURCES] = {1000, 1000, 1};
    bool is_first = true;

    add(writer, "%sresourceGroups:\n%s- coveredResources: [", indent, indent);
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++) {
        if (queue->nominal[r] == ASH_POLICY_UNLIMITED && r != ASH_POLICY_GPU) continue;
        add(writer, "%s\"%s\"", is_first ? "" : ", ", names[r]);
        is_first = false;
    }
    add(writer, "]\n%s  flavors:\n%s  - name: " FLAVOR "\n%s    resources:\n", indent, indent, indent);
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++) {
        const char *unit = r == ASH_POLICY_MEMORY ? "Mi" : "";

        if (queue->nominal[r] == ASH_POLICY_UNLIMITED && r != ASH_POLICY_GPU) continue;
        add(writer, "%s    - name: \"%s\"\n%s      nominalQuota: \"%.0f%s\"\n", indent, names[r], indent,
            queue->has_quota && queue->nominal[r] != ASH_POLICY_UNLIMITED ? (double)queue->nominal[r] / scales[r] : 0.0,
            unit);
        if (queue->borrow[r] != ASH_POLICY_UNLIMITED && queue->parent >= 0)
            add(writer, "%s      borrowingLimit: \"%.0f%s\"\n", indent, (double)queue->borrow[r] / scales[r], unit);
        if (queue->lend[r] != ASH_POLICY_UNLIMITED && queue->parent >= 0)
            add(writer, "%s      lendingLimit: \"%.0f%s\"\n", indent, (double)queue->lend[r] / scales[r], unit);
    }
}

static void add_kueue_topology(struct writer *writer)
{
    char name[ASH_POLICY_NAME_BYTES];

    add(writer, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata:\n  name: cluster\nspec:\n  levels:\n");
    for (int height = layers_of(writer); height >= 1; height--)
        add(writer, "  - nodeLabel: " LEVEL_LABEL "%s\n", level_name(writer, height, name));
    add(writer, "  - nodeLabel: kubernetes.io/hostname\n---\n");
    add(writer, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata:\n  name: " FLAVOR "\nspec:\n"
                "  nodeLabels:\n    nvidia.com/gpu.present: \"true\"\n  topologyName: cluster\n");
}

static void add_kueue_queue(struct writer *writer, int index)
{
    static const char *const within[] = {"Never", "LowerPriority", "LowerOrNewerEqualPriority"};
    static const char *const cohort[] = {"Never", "LowerPriority", "Any"};
    const struct ash_policy_conf *conf = writer->conf;
    const struct ash_policy_queue *queue = &conf->queues[index];
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];

    add(writer, "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata:\n  name: %s\nspec:\n",
        kube_name(queue->name, name));
    if (queue->parent >= 0) add(writer, "  cohortName: %s\n", kube_name(conf->queues[queue->parent].name, parent));
    add(writer, "  namespaceSelector: {}\n  queueingStrategy: %s\n",
        queue->is_strict || conf->backfill == ASH_POLICY_BACKFILL_NONE ? "StrictFIFO" : "BestEffortFIFO");
    add(writer, "  preemption:\n    withinClusterQueue: %s\n    reclaimWithinCohort: %s\n", within[conf->within],
        queue->parent >= 0 ? cohort[conf->cohort] : "Never");
    if (conf->fair == ASH_POLICY_FAIR_DOMINANT) add(writer, "  fairSharing:\n    weight: \"%g\"\n", queue->weight);
    add_quota(writer, queue, "  ");
    add(writer,
        "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata:\n  name: %s\n  namespace: default\nspec:\n"
        "  clusterQueue: %s\n",
        name, name);
    if (!queue->has_quota)
        miss(writer, "queue %.63s without a quota: Kueue needs one, 0 is written: set it", queue->name);
    if (queue->gpus_max != ASH_POLICY_UNLIMITED || queue->user_gpus_max != ASH_POLICY_UNLIMITED ||
        queue->job_gpus_max != ASH_POLICY_UNLIMITED)
        miss(writer, "caps of queue %.63s per queue, user or job: Kueue has quotas of queues alone", queue->name);
}

static void export_kueue(struct writer *writer)
{
    const struct ash_policy_conf *conf = writer->conf;
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];

    add_kueue_topology(writer);
    for (int i = 0; i < conf->class_count; i++)
        add(writer,
            "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata:\n  name: %s\nvalue: %.0f\n",
            kube_name(conf->classes[i].name, name), conf->classes[i].priority);
    for (int i = 0; i < conf->queue_count; i++) {
        const struct ash_policy_queue *queue = &conf->queues[i];

        if (!is_parent(conf, i)) {
            add_kueue_queue(writer, i);
            continue;
        }
        add(writer, "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata:\n  name: %s\n",
            kube_name(queue->name, name));
        add(writer, queue->parent >= 0 || queue->has_quota ? "spec:\n" : "spec: {}\n");
        if (queue->parent >= 0) add(writer, "  parentName: %s\n", kube_name(conf->queues[queue->parent].name, parent));
        if (queue->has_quota) add_quota(writer, queue, "  ");
    }
    if (conf->backfill == ASH_POLICY_BACKFILL_EASY || conf->backfill == ASH_POLICY_BACKFILL_CONSERVATIVE)
        miss(writer, "reservations: Kueue knows no time limits; a large workload can wait behind small ones");
    if (conf->fair == ASH_POLICY_FAIR_MULTIFACTOR || conf->fair == ASH_POLICY_FAIR_TREE)
        miss(writer, "Slurm's fair share: Kueue's admission fair sharing is set in its Configuration, not here");
    if (conf->protect_s > 0) miss(writer, "%.0f s of running before a stop", conf->protect_s);
    if (conf->victims == ASH_POLICY_VICTIMS_CHEAPEST) miss(writer, "the cheapest victim");
    if (conf->run_max_s > 0)
        miss(writer, "the longest run time: kueue.x-k8s.io/max-exec-time-seconds is set per workload");
}

/* ---- Volcano ----------------------------------------------------------------------------------------------------- */

static void add_volcano_queue(struct writer *writer, int index)
{
    const struct ash_policy_conf *conf = writer->conf;
    const struct ash_policy_queue *queue = &conf->queues[index];
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];
    double weight = queue->weight >= 1 && queue->weight <= 65535 ? queue->weight : 1;
    int64_t cap = queue->gpus_max;

    if (queue->has_quota && queue->borrow[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED &&
        queue->nominal[ASH_POLICY_GPU] + queue->borrow[ASH_POLICY_GPU] < cap)
        cap = queue->nominal[ASH_POLICY_GPU] + queue->borrow[ASH_POLICY_GPU];
    add(writer, "%sapiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata:\n  name: %s\nspec:\n",
        index > 0 ? "---\n" : "", kube_name(queue->name, name));
    if (queue->parent >= 0) add(writer, "  parent: %s\n", kube_name(conf->queues[queue->parent].name, parent));
    add(writer, "  weight: %.0f\n  reclaimable: %s\n", weight,
        conf->cohort == ASH_POLICY_RECLAIM_NEVER ? "false" : "true");
    add(writer, "  dequeueStrategy: %s\n",
        queue->is_strict || conf->backfill == ASH_POLICY_BACKFILL_NONE ? "fifo" : "traverse");
    if (queue->has_quota && queue->nominal[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED)
        add(writer, "  deserved:\n    nvidia.com/gpu: \"%.0f\"\n", gpus_of(queue->nominal[ASH_POLICY_GPU]));
    if (cap != ASH_POLICY_UNLIMITED) add(writer, "  capability:\n    nvidia.com/gpu: \"%.0f\"\n", gpus_of(cap));
    if (queue->lend[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED && queue->has_quota) {
        double kept = gpus_of(queue->nominal[ASH_POLICY_GPU] - queue->lend[ASH_POLICY_GPU]);

        add(writer, "  guarantee:\n    resource:\n      nvidia.com/gpu: \"%.0f\"\n", kept > 0 ? kept : 0);
    }
    if (queue->user_gpus_max != ASH_POLICY_UNLIMITED || queue->job_gpus_max != ASH_POLICY_UNLIMITED)
        miss(writer, "caps of queue %.63s per user or job", queue->name);
}

static void add_hypernode(struct writer *writer, int domain)
{
    const struct ash_topology *topology = writer->topology;
    char name[ASH_POLICY_NAME_BYTES], member[ASH_POLICY_NAME_BYTES];

    add(writer, "---\napiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata:\n  name: %s-%d\nspec:\n",
        kube_name(topology->nodes[domain].name, name), domain);
    add(writer, "  tier: %d\n  members:\n", topology->nodes[domain].height);
    for (int node = 1; node < topology->count && writer->rc == 0; node++) {
        if (topology->nodes[node].parent != domain) continue;
        if (topology->nodes[node].is_host)
            add(writer, "  - type: Node\n    selector:\n      exactMatch:\n        name: %s\n",
                kube_name(topology->nodes[node].name, member));
        else
            add(writer, "  - type: HyperNode\n    selector:\n      exactMatch:\n        name: %s-%d\n",
                kube_name(topology->nodes[node].name, member), node);
    }
}

static void export_volcano(struct writer *writer)
{
    const struct ash_policy_conf *conf = writer->conf;
    int written = 0;

    for (int i = 0; i < conf->queue_count; i++)
        add_volcano_queue(writer, i);
    for (int node = 1; node < writer->topology->count && written < HYPERNODES_MAX; node++) {
        if (writer->topology->nodes[node].is_host) continue;
        add_hypernode(writer, node);
        written++;
    }
    if (conf->class_count > 1) miss(writer, "classes: they are PriorityClass objects of Kubernetes, named in each job");
    if (conf->backfill == ASH_POLICY_BACKFILL_EASY || conf->backfill == ASH_POLICY_BACKFILL_CONSERVATIVE)
        miss(writer, "reservations by time limit");
    if (conf->fair != ASH_POLICY_FAIR_NONE && conf->fair != ASH_POLICY_FAIR_OVER_QUOTA)
        miss(writer, "fair share by past usage: Volcano's capacity and proportion plug-ins look at the present");
    if (conf->protect_s > 0) miss(writer, "%.0f s of running before a stop", conf->protect_s);
    if (conf->run_max_s > 0) miss(writer, "the longest run time: activeDeadlineSeconds of each job");
}

/* ---- KAI --------------------------------------------------------------------------------------------------------- */

static void add_kai_queue(struct writer *writer, int index)
{
    const struct ash_policy_conf *conf = writer->conf;
    const struct ash_policy_queue *queue = &conf->queues[index];
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];
    double quota = queue->has_quota && queue->nominal[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED
                       ? gpus_of(queue->nominal[ASH_POLICY_GPU])
                       : -1;

    add(writer, "---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata:\n  name: %s\nspec:\n",
        kube_name(queue->name, name));
    if (queue->parent >= 0) add(writer, "  parentQueue: %s\n", kube_name(conf->queues[queue->parent].name, parent));
    if (conf->protect_s > 0)
        add(writer, "  preemptMinRuntime: \"%.0fs\"\n  reclaimMinRuntime: \"%.0fs\"\n", conf->protect_s,
            conf->protect_s);
    add(writer, "  resources:\n    gpu:\n      quota: %g\n      limit: %g\n      overQuotaWeight: %g\n", quota,
        queue->gpus_max != ASH_POLICY_UNLIMITED ? gpus_of(queue->gpus_max) : -1.0, queue->weight);
    add(writer, "    cpu:\n      quota: -1\n      limit: -1\n      overQuotaWeight: 1\n");
    add(writer, "    memory:\n      quota: -1\n      limit: -1\n      overQuotaWeight: 1\n");
    if (queue->user_gpus_max != ASH_POLICY_UNLIMITED || queue->job_gpus_max != ASH_POLICY_UNLIMITED)
        miss(writer, "caps of queue %.63s per user or job", queue->name);
    if (queue->lend[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED)
        miss(writer, "the lending limit of queue %.63s: KAI deals out all that is idle", queue->name);
}

static void export_kai(struct writer *writer)
{
    const struct ash_policy_conf *conf = writer->conf;
    char name[ASH_POLICY_NAME_BYTES];

    add(writer, "apiVersion: kai.scheduler/v1alpha1\nkind: Topology\nmetadata:\n  name: cluster\nspec:\n  levels:\n");
    for (int height = layers_of(writer); height >= 1; height--)
        add(writer, "  - nodeLabel: " LEVEL_LABEL "%s\n", level_name(writer, height, name));
    add(writer, "  - nodeLabel: kubernetes.io/hostname\n");
    for (int i = 0; i < conf->queue_count; i++)
        add_kai_queue(writer, i);
    if (conf->class_count > 1)
        miss(writer, "classes: they are PriorityClass objects of Kubernetes, named in each workload");
    if (conf->backfill == ASH_POLICY_BACKFILL_EASY || conf->backfill == ASH_POLICY_BACKFILL_CONSERVATIVE)
        miss(writer, "reservations by time limit");
    if (conf->fair == ASH_POLICY_FAIR_MULTIFACTOR || conf->fair == ASH_POLICY_FAIR_TREE)
        miss(writer,
             "Slurm's fair share by decayed usage: KAI's time-based fair share is set in its own configuration");
    if (conf->victims == ASH_POLICY_VICTIMS_CHEAPEST) miss(writer, "the cheapest victim");
    if (conf->run_max_s > 0) miss(writer, "the longest run time");
}

int ash_policy_export(const struct ash_policy_conf *conf, const struct ash_topology *topology,
                      enum ash_policy_target target, struct ash_str *text)
{
    struct writer writer = {.conf = conf, .topology = topology, .text = text};

    switch (target) {
    case ASH_POLICY_SLURM:
        export_slurm(&writer);
        break;
    case ASH_POLICY_KUEUE:
        export_kueue(&writer);
        break;
    case ASH_POLICY_VOLCANO:
        export_volcano(&writer);
        break;
    case ASH_POLICY_KAI:
        export_kai(&writer);
        break;
    }
    if (writer.rc == 0 && writer.missing.size_bytes > 0) writer.rc = ash_str_adds(text, "\n");
    if (writer.rc == 0)
        writer.rc =
            ash_str_add(text, writer.missing.data != NULL ? writer.missing.data : "", writer.missing.size_bytes);
    ash_str_fini(&writer.missing);
    return writer.rc;
}
