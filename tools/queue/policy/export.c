/* A policy for other schedulers. Names are adapted to their rules; every setting that a scheduler lacks is listed in a
 * comment at the end of its text. */
#include "queue/policy/export_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define LEVEL_LABEL "topology.ashlar.dev/"
#define FLAVOR "gpu-nodes"
#define HYPERNODES_MAX 20000

void ash_export_add(struct ash_export *writer, const char *fmt, ...)
{
    char line[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (writer->rc == 0) writer->rc = ash_str_adds(writer->text, line);
}

void ash_export_miss(struct ash_export *writer, const char *fmt, ...)
{
    char line[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (writer->rc == 0) writer->rc = ash_str_addf(&writer->missing, "# not expressed: %s\n", line);
}

static bool is_parent(const struct ash_policy_conf *conf, int queue)
{
    for (int i = queue + 1; i < conf->queue_count; i++)
        if (conf->queues[i].parent == queue) return true;
    return false;
}

/* "rack", or "level-2" where the policy names none. */
static const char *level_name(const struct ash_export *writer, int height, char *buf)
{
    ash_assert(height >= 1);
    if (height <= writer->conf->level_count) return ash_export_name(writer->conf->levels[height - 1], buf);
    snprintf(buf, ASH_POLICY_NAME_BYTES, "level-%d", height);
    return buf;
}

/* Layers of domains that are not the whole cluster. */
static int layers_of(const struct ash_export *writer)
{
    int height = writer->topology->nodes[0].height;

    return height > 1 ? height - 1 : 1;
}

/* ---- Kueue ------------------------------------------------------------------------------------------------------- */

static void add_quota(struct ash_export *writer, const struct ash_policy_queue *queue, const char *indent)
{
    static const char *const names[ASH_POLICY_RESOURCES] = {"nvidia.com/gpu", "cpu", "memory"};
    static const double scales[ASH_POLICY_RESOURCES] = {1000, 1000, 1};
    bool is_first = true;

    ash_export_add(writer, "%sresourceGroups:\n%s- coveredResources: [", indent, indent);
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++) {
        if (queue->nominal[r] == ASH_POLICY_UNLIMITED && r != ASH_POLICY_GPU) continue;
        ash_export_add(writer, "%s\"%s\"", is_first ? "" : ", ", names[r]);
        is_first = false;
    }
    ash_export_add(writer, "]\n%s  flavors:\n%s  - name: " FLAVOR "\n%s    resources:\n", indent, indent, indent);
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++) {
        const char *unit = r == ASH_POLICY_MEMORY ? "Mi" : "";

        if (queue->nominal[r] == ASH_POLICY_UNLIMITED && r != ASH_POLICY_GPU) continue;
        ash_export_add(
            writer, "%s    - name: \"%s\"\n%s      nominalQuota: \"%.0f%s\"\n", indent, names[r], indent,
            queue->has_quota && queue->nominal[r] != ASH_POLICY_UNLIMITED ? (double)queue->nominal[r] / scales[r] : 0.0,
            unit);
        if (queue->borrow[r] != ASH_POLICY_UNLIMITED && queue->parent >= 0)
            ash_export_add(writer, "%s      borrowingLimit: \"%.0f%s\"\n", indent, (double)queue->borrow[r] / scales[r],
                           unit);
        if (queue->lend[r] != ASH_POLICY_UNLIMITED && queue->parent >= 0)
            ash_export_add(writer, "%s      lendingLimit: \"%.0f%s\"\n", indent, (double)queue->lend[r] / scales[r],
                           unit);
    }
}

static void add_kueue_topology(struct ash_export *writer)
{
    char name[ASH_POLICY_NAME_BYTES];

    ash_export_add(
        writer, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata:\n  name: cluster\nspec:\n  levels:\n");
    for (int height = layers_of(writer); height >= 1; height--)
        ash_export_add(writer, "  - nodeLabel: " LEVEL_LABEL "%s\n", level_name(writer, height, name));
    ash_export_add(writer, "  - nodeLabel: kubernetes.io/hostname\n---\n");
    ash_export_add(writer,
                   "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata:\n  name: " FLAVOR "\nspec:\n"
                   "  nodeLabels:\n    nvidia.com/gpu.present: \"true\"\n  topologyName: cluster\n");
}

static void add_kueue_queue(struct ash_export *writer, int index)
{
    static const char *const within[] = {"Never", "LowerPriority", "LowerOrNewerEqualPriority"};
    static const char *const cohort[] = {"Never", "LowerPriority", "Any"};
    const struct ash_policy_conf *conf = writer->conf;
    const struct ash_policy_queue *queue = &conf->queues[index];
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];

    ash_export_add(writer,
                   "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata:\n  name: %s\nspec:\n",
                   ash_export_name(queue->name, name));
    if (queue->parent >= 0)
        ash_export_add(writer, "  cohortName: %s\n", ash_export_name(conf->queues[queue->parent].name, parent));
    ash_export_add(writer, "  namespaceSelector: {}\n  queueingStrategy: %s\n",
                   queue->is_strict || conf->backfill == ASH_POLICY_BACKFILL_NONE ? "StrictFIFO" : "BestEffortFIFO");
    ash_export_add(writer, "  preemption:\n    withinClusterQueue: %s\n    reclaimWithinCohort: %s\n",
                   within[conf->within], queue->parent >= 0 ? cohort[conf->cohort] : "Never");
    if (conf->fair == ASH_POLICY_FAIR_DOMINANT)
        ash_export_add(writer, "  fairSharing:\n    weight: \"%g\"\n", queue->weight);
    add_quota(writer, queue, "  ");
    ash_export_add(
        writer,
        "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata:\n  name: %s\n  namespace: default\n"
        "spec:\n"
        "  clusterQueue: %s\n",
        name, name);
    if (!queue->has_quota)
        ash_export_miss(writer, "queue %.63s without a quota: Kueue needs one, 0 is written: set it", queue->name);
    if (queue->gpus_max != ASH_POLICY_UNLIMITED || queue->user_gpus_max != ASH_POLICY_UNLIMITED ||
        queue->job_gpus_max != ASH_POLICY_UNLIMITED)
        ash_export_miss(writer, "caps of queue %.63s per queue, user or job: Kueue has quotas of queues alone",
                        queue->name);
}

static void export_kueue(struct ash_export *writer)
{
    const struct ash_policy_conf *conf = writer->conf;
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];

    add_kueue_topology(writer);
    for (int i = 0; i < conf->class_count; i++)
        ash_export_add(writer,
                       "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata:\n  name: %s\n"
                       "value: %.0f\n",
                       ash_export_name(conf->classes[i].name, name), conf->classes[i].priority);
    for (int i = 0; i < conf->queue_count; i++) {
        const struct ash_policy_queue *queue = &conf->queues[i];

        if (!is_parent(conf, i)) {
            add_kueue_queue(writer, i);
            continue;
        }
        ash_export_add(writer, "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata:\n  name: %s\n",
                       ash_export_name(queue->name, name));
        ash_export_add(writer, queue->parent >= 0 || queue->has_quota ? "spec:\n" : "spec: {}\n");
        if (queue->parent >= 0)
            ash_export_add(writer, "  parentName: %s\n", ash_export_name(conf->queues[queue->parent].name, parent));
        if (queue->has_quota) add_quota(writer, queue, "  ");
    }
    if (conf->backfill >= ASH_POLICY_BACKFILL_EASY)
        ash_export_miss(writer,
                        "reservations: Kueue knows no time limits; a large workload can wait behind small ones");
    if (conf->fair == ASH_POLICY_FAIR_MULTIFACTOR || conf->fair == ASH_POLICY_FAIR_TREE)
        ash_export_miss(writer,
                        "Slurm's fair share: Kueue's admission fair sharing is set in its Configuration, not here");
    if (conf->protect_s > 0) ash_export_miss(writer, "%.0f s of running before a stop", conf->protect_s);
    if (conf->victims == ASH_POLICY_VICTIMS_CHEAPEST) ash_export_miss(writer, "the cheapest victim");
    if (conf->run_max_s > 0)
        ash_export_miss(writer, "the longest run time: kueue.x-k8s.io/max-exec-time-seconds is set per workload");
}

/* ---- Volcano ----------------------------------------------------------------------------------------------------- */

/* A queue's maximum: its cap, or its quota with all it may borrow. */
static int64_t most_gpus(const struct ash_policy_queue *queue)
{
    int64_t most = queue->gpus_max;

    if (queue->has_quota && queue->borrow[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED &&
        queue->nominal[ASH_POLICY_GPU] + queue->borrow[ASH_POLICY_GPU] < most)
        most = queue->nominal[ASH_POLICY_GPU] + queue->borrow[ASH_POLICY_GPU];
    return most;
}

/* The part of its quota that is never lent. */
static void add_guarantee(struct ash_export *writer, const struct ash_policy_queue *queue)
{
    double kept = ash_export_gpus(queue->nominal[ASH_POLICY_GPU] - queue->lend[ASH_POLICY_GPU]);

    ash_export_add(writer, "  guarantee:\n    resource:\n      nvidia.com/gpu: \"%.0f\"\n", kept > 0 ? kept : 0);
}

static void add_volcano_queue(struct ash_export *writer, int index)
{
    const struct ash_policy_conf *conf = writer->conf;
    const struct ash_policy_queue *queue = &conf->queues[index];
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];
    double weight = queue->weight >= 1 && queue->weight <= 65535 ? queue->weight : 1;
    int64_t cap = most_gpus(queue);

    ash_export_add(writer, "%sapiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata:\n  name: %s\nspec:\n",
                   index > 0 ? "---\n" : "", ash_export_name(queue->name, name));
    if (queue->parent >= 0)
        ash_export_add(writer, "  parent: %s\n", ash_export_name(conf->queues[queue->parent].name, parent));
    ash_export_add(writer, "  weight: %.0f\n  reclaimable: %s\n", weight,
                   conf->cohort == ASH_POLICY_RECLAIM_NEVER ? "false" : "true");
    ash_export_add(writer, "  dequeueStrategy: %s\n",
                   queue->is_strict || conf->backfill == ASH_POLICY_BACKFILL_NONE ? "fifo" : "traverse");
    if (queue->has_quota && queue->nominal[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED)
        ash_export_add(writer, "  deserved:\n    nvidia.com/gpu: \"%.0f\"\n",
                       ash_export_gpus(queue->nominal[ASH_POLICY_GPU]));
    if (cap != ASH_POLICY_UNLIMITED)
        ash_export_add(writer, "  capability:\n    nvidia.com/gpu: \"%.0f\"\n", ash_export_gpus(cap));
    if (queue->lend[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED && queue->has_quota) add_guarantee(writer, queue);
    if (queue->user_gpus_max != ASH_POLICY_UNLIMITED || queue->job_gpus_max != ASH_POLICY_UNLIMITED)
        ash_export_miss(writer, "caps of queue %.63s per user or job", queue->name);
}

static void add_hypernode(struct ash_export *writer, int domain)
{
    const struct ash_topology *topology = writer->topology;
    char name[ASH_POLICY_NAME_BYTES], member[ASH_POLICY_NAME_BYTES];

    ash_export_add(writer,
                   "---\napiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata:\n  name: %s-%d\nspec:\n",
                   ash_export_name(topology->nodes[domain].name, name), domain);
    ash_export_add(writer, "  tier: %d\n  members:\n", topology->nodes[domain].height);
    for (int node = 1; node < topology->count && writer->rc == 0; node++) {
        if (topology->nodes[node].parent != domain) continue;
        if (topology->nodes[node].is_host)
            ash_export_add(writer, "  - type: Node\n    selector:\n      exactMatch:\n        name: %s\n",
                           ash_export_name(topology->nodes[node].name, member));
        else
            ash_export_add(writer, "  - type: HyperNode\n    selector:\n      exactMatch:\n        name: %s-%d\n",
                           ash_export_name(topology->nodes[node].name, member), node);
    }
}

static void export_volcano(struct ash_export *writer)
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
    if (conf->class_count > 1)
        ash_export_miss(writer, "classes: they are PriorityClass objects of Kubernetes, named in each job");
    if (conf->backfill >= ASH_POLICY_BACKFILL_EASY) ash_export_miss(writer, "reservations by time limit");
    if (conf->fair != ASH_POLICY_FAIR_NONE && conf->fair != ASH_POLICY_FAIR_OVER_QUOTA)
        ash_export_miss(writer,
                        "fair share by past usage: Volcano's capacity and proportion plug-ins look at the present");
    if (conf->protect_s > 0) ash_export_miss(writer, "%.0f s of running before a stop", conf->protect_s);
    if (conf->run_max_s > 0) ash_export_miss(writer, "the longest run time: activeDeadlineSeconds of each job");
}

/* ---- KAI --------------------------------------------------------------------------------------------------------- */

static void add_kai_queue(struct ash_export *writer, int index)
{
    const struct ash_policy_conf *conf = writer->conf;
    const struct ash_policy_queue *queue = &conf->queues[index];
    char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];
    double quota = queue->has_quota && queue->nominal[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED
                       ? ash_export_gpus(queue->nominal[ASH_POLICY_GPU])
                       : -1;

    ash_export_add(writer, "---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata:\n  name: %s\nspec:\n",
                   ash_export_name(queue->name, name));
    if (queue->parent >= 0)
        ash_export_add(writer, "  parentQueue: %s\n", ash_export_name(conf->queues[queue->parent].name, parent));
    if (conf->protect_s > 0)
        ash_export_add(writer, "  preemptMinRuntime: \"%.0fs\"\n  reclaimMinRuntime: \"%.0fs\"\n", conf->protect_s,
                       conf->protect_s);
    ash_export_add(writer, "  resources:\n    gpu:\n      quota: %g\n      limit: %g\n      overQuotaWeight: %g\n",
                   quota, queue->gpus_max != ASH_POLICY_UNLIMITED ? ash_export_gpus(queue->gpus_max) : -1.0,
                   queue->weight);
    ash_export_add(writer, "    cpu:\n      quota: -1\n      limit: -1\n      overQuotaWeight: 1\n");
    ash_export_add(writer, "    memory:\n      quota: -1\n      limit: -1\n      overQuotaWeight: 1\n");
    if (queue->user_gpus_max != ASH_POLICY_UNLIMITED || queue->job_gpus_max != ASH_POLICY_UNLIMITED)
        ash_export_miss(writer, "caps of queue %.63s per user or job", queue->name);
    if (queue->lend[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED)
        ash_export_miss(writer, "the lending limit of queue %.63s: KAI divides all that is idle", queue->name);
}

static void export_kai(struct ash_export *writer)
{
    const struct ash_policy_conf *conf = writer->conf;
    char name[ASH_POLICY_NAME_BYTES];

    ash_export_add(
        writer, "apiVersion: kai.scheduler/v1alpha1\nkind: Topology\nmetadata:\n  name: cluster\nspec:\n  levels:\n");
    for (int height = layers_of(writer); height >= 1; height--)
        ash_export_add(writer, "  - nodeLabel: " LEVEL_LABEL "%s\n", level_name(writer, height, name));
    ash_export_add(writer, "  - nodeLabel: kubernetes.io/hostname\n");
    for (int i = 0; i < conf->queue_count; i++)
        add_kai_queue(writer, i);
    if (conf->class_count > 1)
        ash_export_miss(writer, "classes: they are PriorityClass objects of Kubernetes, named in each workload");
    if (conf->backfill >= ASH_POLICY_BACKFILL_EASY) ash_export_miss(writer, "reservations by time limit");
    if (conf->fair == ASH_POLICY_FAIR_MULTIFACTOR || conf->fair == ASH_POLICY_FAIR_TREE)
        ash_export_miss(
            writer, "Slurm's fair share by decayed usage: KAI's time-based fair share is set in its own configuration");
    if (conf->victims == ASH_POLICY_VICTIMS_CHEAPEST) ash_export_miss(writer, "the cheapest victim");
    if (conf->run_max_s > 0) ash_export_miss(writer, "the longest run time");
}

int ash_policy_export(const struct ash_policy_conf *conf, const struct ash_topology *topology,
                      enum ash_policy_target target, struct ash_str *text)
{
    struct ash_export writer = {.conf = conf, .topology = topology, .text = text};

    switch (target) {
    case ASH_POLICY_SLURM:
        ash_export_slurm(&writer);
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
