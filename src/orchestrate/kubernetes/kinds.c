/* The kinds of jobs. In all of them a lost pod is replaced alone, exit code 75 (saved and stopped) and disruptions are
 * not counted as failures, and exit code 2 (bad settings) ends the job. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "orchestrate/kubernetes/manifest_priv.h"

#define HOST_BYTES 256

static json_int_t nodes_of(const struct ash_kube_job *job)
{
    return (json_int_t)ash_spec_all_nodes(job->submission->spec);
}

/* Time limit and, under Kueue, suspended until it is admitted. */
static void set_limits(const struct ash_kube_job *job, json_t *spec, const char *deadline)
{
    double time_s = job->submission->spec->time_s;

    if (time_s > 0 && deadline != NULL) json_object_set_new(spec, deadline, json_integer((json_int_t)ceil(time_s)));
    if (job->scheduler == ASH_KUBE_KUEUE) json_object_set_new(spec, "suspend", json_true());
}

static json_t *failure_rules(void)
{
    json_t *disrupted = json_pack("{ss s[{ss ss}]}", "action", "Ignore", "onPodConditions", "type", "DisruptionTarget",
                                  "status", "True");
    json_t *saved = json_pack("{ss s{ss s[i]}}", "action", "Ignore", "onExitCodes", "operator", "In", "values",
                              ASH_KUBE_EXIT_SAVED);
    json_t *bad = json_pack("{ss s{ss s[i]}}", "action", "FailJob", "onExitCodes", "operator", "In", "values",
                            ASH_KUBE_EXIT_BAD_SETTINGS);

    return json_pack("{s[ooo]}", "rules", disrupted, saved, bad);
}

/* ---- Kubernetes' own --------------------------------------------------------------------------------------------- */

/* A rank ends well when the model is written, by any rank. So the job is done when one pod is, even if others failed,
 * the first one included. The others have the notice's time to end. */
static json_t *success_rule(void)
{
    return json_pack("{s[{si}]}", "rules", "succeededCount", 1);
}

static json_t *indexed_job_spec(const struct ash_kube_job *job, json_t *template, json_int_t pods)
{
    json_t *spec = json_pack("{sI sI ss sI sI ss so so so}", "completions", pods, "parallelism", pods, "completionMode",
                             "Indexed", "backoffLimitPerIndex", (json_int_t)job->submission->spec->restarts,
                             "maxFailedIndexes", pods, "podReplacementPolicy", "Failed", "podFailurePolicy",
                             failure_rules(), "successPolicy", success_rule(), "template", template);

    return spec;
}

json_t *ash_kube_plain_job(const struct ash_kube_job *job, struct ash_err *err)
{
    char master[HOST_BYTES];
    struct ash_kube_place place = {.node_rank = "$(JOB_COMPLETION_INDEX)", .master = master};
    const char *name = job->submission->spec->name;
    json_t *template, *spec;

    snprintf(master, sizeof(master), "%s-0.%s:%d", name, name, ASH_KUBE_PORT);
    template = ash_kube_pod_template(job, &place, err);
    if (template == NULL) return NULL;
    spec = indexed_job_spec(job, template, nodes_of(job));
    set_limits(job, spec, "activeDeadlineSeconds");
    return ash_kube_object(job, "batch/v1", "Job", spec);
}

/* ---- JobSet ------------------------------------------------------------------------------------------------------ */

/* One Job of one pod per node: RestartJob then makes one pod again, and leaves the others alone. */
static json_t *node_jobs(const struct ash_kube_job *job, json_t *template)
{
    json_t *spec = json_pack("{si si si so so}", "parallelism", 1, "completions", 1, "backoffLimit", 0,
                             "podFailurePolicy", failure_rules(), "template", template);

    set_limits(job, spec, NULL);
    json_object_del(spec, "suspend"); /* the JobSet has it */
    return json_pack("{ss sI s{so}}", "name", ASH_KUBE_TASK, "replicas", nodes_of(job), "template", "spec", spec);
}

json_t *ash_kube_jobset(const struct ash_kube_job *job, struct ash_err *err)
{
    char master[HOST_BYTES];
    struct ash_kube_place place = {.node_rank = "$(NODE_RANK)",
                                   .rank_field = "metadata.annotations['jobset.sigs.k8s.io/job-index']",
                                   .master = master};
    const char *name = job->submission->spec->name;
    json_t *template, *rules, *spec;

    snprintf(master, sizeof(master), "%s-%s-0-0.%s:%d", name, ASH_KUBE_TASK, name, ASH_KUBE_PORT);
    template = ash_kube_pod_template(job, &place, err);
    if (template == NULL) return NULL;
    rules = json_pack("[{ss ss s[s]} {ss ss}]", "name", "badsettings", "action", "FailJobSet", "onJobFailureReasons",
                      "PodFailurePolicy", "name", "lost", "action", "RestartJob");
    spec = json_pack("{s{ss sb} s{ss s[s]} s{sI so} s[o]}", "network", "subdomain", name, "publishNotReadyAddresses", 1,
                     "successPolicy", "operator", "Any", "targetReplicatedJobs", ASH_KUBE_TASK, "failurePolicy",
                     "maxRestarts", (json_int_t)job->submission->spec->restarts, "rules", rules, "replicatedJobs",
                     node_jobs(job, template));
    set_limits(job, spec, NULL);
    return ash_kube_object(job, "jobset.x-k8s.io/v1alpha2", "JobSet", spec);
}

/* ---- Volcano ----------------------------------------------------------------------------------------------------- */

/* Levels of Volcano's network are numbers: tiers, from the leaves. */
static json_t *network_topology(const struct ash_spec_topology *topology, struct ash_err *err)
{
    const char *level = topology->required != NULL ? topology->required : topology->preferred;
    int tier = 0;

    if (level == NULL) return NULL;
    if (sscanf(level, "%d", &tier) == 1 || sscanf(level, "tier%d", &tier) == 1)
        return json_pack("{ss si}", "mode", topology->required != NULL ? "hard" : "soft", "highestTierAllowed", tier);
    ash_err_set(err, -EINVAL, "job.topology names '%.60s': Volcano counts tiers of HyperNodes: say 1, 2, ...", level);
    return NULL;
}

static json_t *volcano_policies(void)
{
    return json_pack("[{ss ss} {ss ss} {si ss}]", "event", "PodEvicted", "action", "RestartPod", "event", "PodFailed",
                     "action", "RestartPod", "exitCode", ASH_KUBE_EXIT_BAD_SETTINGS, "action", "TerminateJob");
}

json_t *ash_kube_volcano_job(const struct ash_kube_job *job, struct ash_err *err)
{
    char master[HOST_BYTES];
    struct ash_kube_place place = {.node_rank = "$(VC_TASK_INDEX)", .master = master};
    const struct ash_spec *ask = job->submission->spec;
    json_t *template, *topology = network_topology(&ask->topology, err), *task, *spec;

    if (topology == NULL && (ask->topology.required != NULL || ask->topology.preferred != NULL)) return NULL;
    snprintf(master, sizeof(master), "%s-%s-0.%s:%d", ask->name, ASH_KUBE_TASK, ask->name, ASH_KUBE_PORT);
    template = ash_kube_pod_template(job, &place, err);
    if (template == NULL) {
        json_decref(topology);
        return NULL;
    }
    task = json_pack("{ss sI so so}", "name", ASH_KUBE_TASK, "replicas", nodes_of(job), "template", template,
                     "policies", volcano_policies());
    spec = json_pack("{sI si ss sI s{s[] s[]} s[o]}", "minAvailable", (json_int_t)ask->min_nodes, "minSuccess", 1,
                     "schedulerName", "volcano", "maxRetry", (json_int_t)ask->restarts, "plugins", "svc", "env",
                     "tasks", task);
    if (ask->queue != NULL) json_object_set_new(spec, "queue", json_string(ask->queue));
    if (ask->priority != NULL) json_object_set_new(spec, "priorityClassName", json_string(ask->priority));
    if (topology != NULL && ask->topology.group > 0)
        json_object_set_new(task, "partitionPolicy",
                            json_pack("{sI sI so}", "partitionSize", (json_int_t)ask->topology.group, "totalPartitions",
                                      (json_int_t)(ask->nodes / ask->topology.group), "networkTopology", topology));
    else if (topology != NULL)
        json_object_set_new(spec, "networkTopology", topology);
    return ash_kube_object(job, "batch.volcano.sh/v1alpha1", "Job", spec);
}

json_t *ash_kube_pod_group(const struct ash_kube_job *job, struct ash_err *err)
{
    const struct ash_spec *ask = job->submission->spec;
    json_t *topology = network_topology(&ask->topology, err), *spec;

    if (topology == NULL && (ask->topology.required != NULL || ask->topology.preferred != NULL)) return NULL;
    spec = json_pack("{sI}", "minMember", (json_int_t)ask->min_nodes);
    if (topology != NULL) json_object_set_new(spec, "networkTopology", topology);
    if (ask->queue != NULL) json_object_set_new(spec, "queue", json_string(ask->queue));
    if (ask->priority != NULL) json_object_set_new(spec, "priorityClassName", json_string(ask->priority));
    return ash_kube_object(job, "scheduling.volcano.sh/v1beta1", "PodGroup", spec);
}

/* ---- Kubeflow ---------------------------------------------------------------------------------------------------- */

json_t *ash_kube_training_runtime(const struct ash_kube_job *job, struct ash_err *err)
{
    char master[HOST_BYTES];
    struct ash_kube_place place = {.node_rank = "$(JOB_COMPLETION_INDEX)", .master = master};
    const char *name = job->submission->spec->name;
    json_t *template, *node, *spec;

    snprintf(master, sizeof(master), "%s-%s-0-0.%s:%d", name, ASH_KUBE_TASK, name, ASH_KUBE_PORT);
    template = ash_kube_pod_template(job, &place, err);
    if (template == NULL) return NULL;
    node = json_pack("{ss s{s{s{ss}} so}}", "name", ASH_KUBE_TASK, "template", "metadata", "labels",
                     "trainer.kubeflow.org/trainjob-ancestor-step", "trainer", "spec",
                     json_pack("{ss sI so so so}", "completionMode", "Indexed", "backoffLimitPerIndex",
                               (json_int_t)job->submission->spec->restarts, "podFailurePolicy", failure_rules(),
                               "successPolicy", success_rule(), "template", template));
    spec = json_pack("{s{sI} s{s{s[o]}}}", "mlPolicy", "numNodes", nodes_of(job), "template", "spec", "replicatedJobs",
                     node);
    if (job->scheduler == ASH_KUBE_BY_VOLCANO) /* the trainer makes the group that the pods name */
        json_object_set_new(spec, "podGroupPolicy", json_pack("{s{}}", "volcano"));
    return ash_kube_object(job, "trainer.kubeflow.org/v1alpha1", "TrainingRuntime", spec);
}

json_t *ash_kube_train_job(const struct ash_kube_job *job, struct ash_err *err)
{
    const char *name = job->submission->spec->name;
    json_t *spec = json_pack("{s{ss ss} s{sI}}", "runtimeRef", "kind", "TrainingRuntime", "name", name, "trainer",
                             "numNodes", nodes_of(job));
    const char *queue = job->submission->spec->queue;
    json_t *object;
    (void)err;

    set_limits(job, spec, "activeDeadlineSeconds");
    object = ash_kube_object(job, "trainer.kubeflow.org/v1alpha1", "TrainJob", spec);
    if (job->scheduler == ASH_KUBE_BY_VOLCANO && queue != NULL) /* the trainer makes the group, and puts it there */
        json_object_set_new(json_object_get(object, "metadata"), "annotations",
                            json_pack("{ss}", "scheduling.volcano.sh/queue-name", queue));
    return object;
}

json_t *ash_kube_pytorch_job(const struct ash_kube_job *job, struct ash_err *err)
{
    struct ash_kube_place place = {.node_rank = "$(RANK)", .master = "$(MASTER_ADDR):$(MASTER_PORT)"};
    const struct ash_spec *ask = job->submission->spec;
    json_t *first = ash_kube_pod_template(job, &place, err), *others, *roles, *policy, *spec;

    if (first == NULL) return NULL;
    json_object_del(json_object_get(first, "spec"), "restartPolicy"); /* the replica's decides */
    others = json_deep_copy(first);
    roles = json_pack("{s{si ss so}}", "Master", "replicas", 1, "restartPolicy", "ExitCode", "template", first);
    if (nodes_of(job) > 1)
        json_object_set_new(
            roles, "Worker",
            json_pack("{sI ss so}", "replicas", nodes_of(job) - 1, "restartPolicy", "ExitCode", "template", others));
    else
        json_decref(others);
    policy = json_pack("{ss sI}", "cleanPodPolicy", "Running", "backoffLimit", (json_int_t)ask->restarts);
    set_limits(job, policy, "activeDeadlineSeconds");
    if (job->scheduler == ASH_KUBE_BY_VOLCANO) {
        json_t *gang = json_pack("{sI}", "minAvailable", (json_int_t)ask->min_nodes);

        if (ask->queue != NULL) json_object_set_new(gang, "queue", json_string(ask->queue));
        json_object_set_new(policy, "schedulingPolicy", gang);
    }
    spec = json_pack("{ss so so}", "nprocPerNode", "1", "pytorchReplicaSpecs", roles, "runPolicy", policy);
    return ash_kube_object(job, "kubeflow.org/v1", "PyTorchJob", spec);
}

/* ---- HyperPod ---------------------------------------------------------------------------------------------------- */

/* Log rules that match our own lines: a step comes soon after the start, and then again and again. */
static json_t *log_rules(void)
{
    return json_pack("[{ss ss si} {ss ss si}]", "name", "start", "logPattern", ".*step +[0-9]+.*",
                     "expectedStartCutOffInSeconds", 600, "name", "hang", "logPattern", ".*step +[0-9]+.*",
                     "expectedRecurringFrequencyInSeconds", 600);
}

json_t *ash_kube_hyperpod_job(const struct ash_kube_job *job, struct ash_err *err)
{
    char master[HOST_BYTES], procs[24];
    struct ash_kube_place place = {.node_rank = "hostname", .master = master};
    const struct ash_spec *ask = job->submission->spec;
    json_t *template, *replica, *policy, *spec;

    snprintf(procs, sizeof(procs), "%lld", (long long)ask->procs);
    snprintf(master, sizeof(master), "%s-%s-0:%d", ask->name, ASH_KUBE_TASK, ASH_KUBE_PORT);
    template = ash_kube_pod_template(job, &place, err);
    if (template == NULL) return NULL;
    replica = json_pack("{ss sI so}", "name", ASH_KUBE_TASK, "replicas", (json_int_t)ask->nodes, "template", template);
    if (ask->spares > 0) json_object_set_new(replica, "spares", json_integer((json_int_t)ask->spares));
    policy =
        json_pack("{ss sI s{si sI si} so}", "cleanPodPolicy", "None", "jobMaxRetryCount", (json_int_t)ask->restarts,
                  "restartPolicy", "evalPeriodSeconds", 3600, "numRestartBeforeFullJobRestart",
                  (json_int_t)ask->restarts, "maxFullJobRestarts", 1, "logMonitoringConfiguration", log_rules());
    set_limits(job, policy, "activeDeadlineSeconds");
    spec = json_pack("{ss s[o] so}", "nprocPerNode", procs, "replicaSpecs", replica, "runPolicy", policy);
    if (ask->min_nodes < ask->nodes)
        json_object_set_new(spec, "elasticPolicy",
                            json_pack("{sI sI si sI}", "minReplicas", (json_int_t)ask->min_nodes, "maxReplicas",
                                      (json_int_t)ask->nodes, "replicaIncrementStep", 1,
                                      "gracefulShutdownTimeoutInSeconds", (json_int_t)ceil(ask->notice_s)));
    return ash_kube_object(job, "sagemaker.amazonaws.com/v1", "HyperPodPyTorchJob", spec);
}
