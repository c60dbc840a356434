/* The pod of a node: the supervisor with its arguments, resources and mounts. */
#include "orchestrate/kubernetes/manifest_priv.h"

#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "orchestrate/kubernetes/usage.h"

/* ---- resources --------------------------------------------------------------------------------------------------- */

static void set_count(json_t *object, const char *key, int64_t value)
{
    char text[24];

    if (value <= 0) return;
    snprintf(text, sizeof(text), "%lld", (long long)value);
    json_object_set_new(object, key, json_string(text));
}

/* "64G" is gigabytes for Slurm and for Kubernetes. */
static json_t *resources(const struct ash_spec *spec)
{
    json_t *limits = json_object(), *requests;

    set_count(limits, "nvidia.com/gpu", spec->gpus);
    set_count(limits, "vpc.amazonaws.com/efa", spec->efa);
    set_count(limits, "cpu", spec->cpus);
    if (spec->memory != NULL) json_object_set_new(limits, "memory", json_string(spec->memory));
    if (json_object_size(limits) == 0) {
        json_decref(limits);
        return NULL;
    }
    requests = json_deep_copy(limits);
    return json_pack("{so so}", "limits", limits, "requests", requests);
}

/* ---- mounts ------------------------------------------------------------------------------------------------------ */

/* "CLAIM:/path[:ro]" or "/host/path:/path[:ro]". */
static int add_mount(const char *text, size_t index, json_t *volumes, json_t *mounts, struct ash_err *err)
{
    char source[256], path[256], name[32];
    size_t length = strcspn(text, ":");
    const char *rest = text[length] == ':' ? text + length + 1 : "";
    bool is_read_only = strlen(rest) > 3 && strcmp(rest + strlen(rest) - 3, ":ro") == 0;
    size_t path_length = strlen(rest) - (is_read_only ? 3 : 0);
    json_t *mount, *volume;

    if (length == 0 || length >= sizeof(source) || rest[0] != '/' || path_length >= sizeof(path))
        return ash_err_set(err, -EINVAL,
                           "job.mounts has '%.100s': write CLAIM:/path or /host/path:/path, :ro after it "
                           "for reading only",
                           text);
    snprintf(source, sizeof(source), "%.*s", (int)length, text);
    snprintf(path, sizeof(path), "%.*s", (int)path_length, rest);
    snprintf(name, sizeof(name), "mount-%zu", index);
    volume = source[0] == '/' ? json_pack("{ss s{ss}}", "name", name, "hostPath", "path", source)
                              : json_pack("{ss s{ss}}", "name", name, "persistentVolumeClaim", "claimName", source);
    mount = json_pack("{ss ss}", "name", name, "mountPath", path);
    if (is_read_only) json_object_set_new(mount, "readOnly", json_true());
    json_array_append_new(volumes, volume);
    json_array_append_new(mounts, mount);
    return 0;
}

/* The job file, shared memory as large as the ranks need it, and the user's own. */
static int add_volumes(const struct ash_kube_job *job, json_t *volumes, json_t *mounts, struct ash_err *err)
{
    const struct ash_opt_list *list = &job->submission->spec->mounts;
    const char *name = job->submission->spec->name;
    int rc = 0;

    if (!ash_kube_is_server(job->kind)) { /* a server has its settings as words */
        json_array_append_new(volumes, json_pack("{ss s{ss}}", "name", "job", "configMap", "name", name));
        json_array_append_new(mounts,
                              json_pack("{ss ss sb}", "name", "job", "mountPath", "/etc/ashlar", "readOnly", 1));
    }
    json_array_append_new(volumes, json_pack("{ss s{ss}}", "name", "shm", "emptyDir", "medium", "Memory"));
    json_array_append_new(mounts, json_pack("{ss ss}", "name", "shm", "mountPath", "/dev/shm"));
    for (size_t i = 0; i < list->count && rc == 0; i++)
        rc = add_mount(list->items[i], i, volumes, mounts, err);
    return rc;
}

/* A `$` of a setting is not Kubernetes' $(VARIABLE). */
static json_t *word(const char *text, bool is_ours)
{
    char buf[8192];
    size_t used = 0;

    for (; *text != '\0' && used + 2 < sizeof(buf); text++) {
        if (*text == '$' && !is_ours) buf[used++] = '$';
        buf[used++] = *text;
    }
    buf[used] = '\0';
    return json_string(buf);
}

static json_t *environment(const struct ash_kube_job *job, const struct ash_kube_place *place)
{
    const struct ash_opt_list *list = &job->submission->spec->env;
    json_t *env = json_array();

    if (place->rank_field != NULL)
        json_array_append_new(env, json_pack("{ss s{s{ss}}}", "name", "NODE_RANK", "valueFrom", "fieldRef", "fieldPath",
                                             place->rank_field));
    for (size_t i = 0; i < list->count; i++) {
        size_t length = strcspn(list->items[i], "=");

        json_array_append_new(env, json_pack("{ss% so}", "name", list->items[i], length, "value",
                                             word(list->items[i] + length + 1, false)));
    }
    return env;
}

/* ---- the container ----------------------------------------------------------------------------------------------- */

static int add_words(const struct ash_kube_job *job, const struct ash_kube_place *place, json_t *container,
                     struct ash_err *err)
{
    struct ash_submission submission = *job->submission;
    struct ash_submission_words words;
    json_t *args = json_array();
    int rc;

    submission.job_file = ASH_KUBE_JOB_FILE;
    rc = ash_submission_list_words(
        &submission, &(struct ash_submission_place){.node_rank = place->node_rank, .master = place->master}, &words,
        err);
    if (rc == 0 && ash_kube_is_server(job->kind)) {
        ash_kube_add_group_words(job, place, args);
        ash_kube_add_server_words(job, args);
        for (size_t i = 0; i < submission.setting_count; i++)
            json_array_append_new(args, word(submission.settings[i], false));
    }
    for (size_t i = 1; i < words.count && rc == 0 && !ash_kube_is_server(job->kind); i++)
        json_array_append_new(
            args, word(words.items[i], words.items[i] == place->node_rank || words.items[i] == place->master));
    json_object_set_new(container, "command", json_pack("[s]", submission.program));
    json_object_set_new(container, "args", args);
    return rc;
}

static json_t *container(const struct ash_kube_job *job, const struct ash_kube_place *place, json_t *mounts,
                         struct ash_err *err)
{
    const struct ash_spec *spec = job->submission->spec;
    /* Kubeflow's operators look for this name */
    const char *name = job->kind == ASH_KUBE_PYTORCHJOB ? "pytorch"
                       : job->kind == ASH_KUBE_TRAINJOB ? ASH_KUBE_TASK
                                                        : "ashlar";
    json_t *object = json_pack("{ss ss}", "name", name, "image", spec->image), *uses = resources(spec);

    if (add_words(job, place, object, err) < 0) {
        json_decref(object);
        json_decref(mounts);
        json_decref(uses);
        return NULL;
    }
    json_object_set_new(object, "env", environment(job, place));
    if (uses != NULL) json_object_set_new(object, "resources", uses);
    json_object_set_new(object, "volumeMounts", mounts);
    if (ash_kube_is_server(job->kind) && !place->is_worker) ash_kube_add_probes(job, object);
    return object;
}

/* Who runs it, who pays, where it is and what a node costs, for ashlar jobs usage. */
static json_t *accounting_notes(const struct ash_kube_job *job)
{
    const struct ash_submission *submission = job->submission;
    const char *team = submission->spec->account != NULL ? submission->spec->account : submission->spec->queue;
    const struct passwd *user = getpwuid(getuid());
    json_t *notes = json_pack("{ss}", ASH_KUBE_NOTE_OUT, submission->out);
    char price[32];

    snprintf(price, sizeof(price), "%.6g", submission->spec->price);
    if (user != NULL) json_object_set_new(notes, ASH_KUBE_NOTE_USER, json_string(user->pw_name));
    if (team != NULL) json_object_set_new(notes, ASH_KUBE_NOTE_TEAM, json_string(team));
    if (submission->spec->price > 0.0) json_object_set_new(notes, ASH_KUBE_NOTE_PRICE, json_string(price));
    return notes;
}

/* Kueue places the pods of a set; slices of it are the groups of a job. */
static json_t *annotations(const struct ash_kube_job *job)
{
    const struct ash_spec_topology *topology = &job->submission->spec->topology;
    json_t *notes = accounting_notes(job);

    if (job->scheduler == ASH_KUBE_BY_VOLCANO && !ash_kube_is_server(job->kind) && job->kind != ASH_KUBE_VOLCANO)
        json_object_set_new(notes, "scheduling.k8s.io/group-name", json_string(job->submission->spec->name));
    if (job->scheduler == ASH_KUBE_BY_VOLCANO && ash_kube_is_server(job->kind) && job->submission->spec->queue != NULL)
        json_object_set_new(notes, "scheduling.volcano.sh/queue-name", json_string(job->submission->spec->queue));
    if (job->scheduler != ASH_KUBE_KUEUE) return notes;
    if (topology->required != NULL)
        json_object_set_new(notes, "kueue.x-k8s.io/podset-required-topology", json_string(topology->required));
    else if (topology->preferred != NULL && topology->group == 0)
        json_object_set_new(notes, "kueue.x-k8s.io/podset-preferred-topology", json_string(topology->preferred));
    if (topology->group > 0) {
        char size[24];

        snprintf(size, sizeof(size), "%lld", (long long)topology->group);
        json_object_set_new(notes, "kueue.x-k8s.io/podset-slice-required-topology",
                            json_string(topology->preferred != NULL ? topology->preferred : topology->required));
        json_object_set_new(notes, "kueue.x-k8s.io/podset-slice-size", json_string(size));
    }
    return notes;
}

static const char *scheduler_name(const struct ash_kube_job *job)
{
    if (job->scheduler == ASH_KUBE_BY_VOLCANO) return "volcano";
    return job->scheduler == ASH_KUBE_KAI ? "kai-scheduler" : NULL;
}

json_t *ash_kube_pod_template(const struct ash_kube_job *job, const struct ash_kube_place *place, struct ash_err *err)
{
    const struct ash_spec *spec = job->submission->spec;
    json_t *volumes = json_array(), *mounts = json_array(), *labels = ash_kube_labels(job), *pod, *inner, *affinity;
    bool is_run = !ash_kube_is_server(job->kind);

    if (add_volumes(job, volumes, mounts, err) < 0) {
        json_decref(volumes);
        json_decref(mounts);
        json_decref(labels);
        return NULL;
    }
    if (job->scheduler == ASH_KUBE_KAI) ash_kube_add_queue(job, labels); /* Kueue would take each pod for a job */
    inner = container(job, place, mounts, err);
    if (inner == NULL) {
        json_decref(volumes);
        json_decref(labels);
        return NULL;
    }
    pod = json_pack("{s[o] so sI}", "containers", inner, "volumes", volumes, "terminationGracePeriodSeconds",
                    (json_int_t)ceil(spec->notice_s));
    if (is_run) json_object_set_new(pod, "restartPolicy", json_string("Never"));
    if (is_run && job->kind == ASH_KUBE_JOB) json_object_set_new(pod, "subdomain", json_string(spec->name));
    if (spec->service_account != NULL)
        json_object_set_new(pod, "serviceAccountName", json_string(spec->service_account));
    affinity = ash_kube_affinity(job);
    if (affinity != NULL) json_object_set_new(pod, "affinity", affinity);
    if (scheduler_name(job) != NULL) json_object_set_new(pod, "schedulerName", json_string(scheduler_name(job)));
    if (spec->priority != NULL && job->scheduler != ASH_KUBE_KUEUE)
        json_object_set_new(pod, "priorityClassName", json_string(spec->priority));
    return json_pack("{s{so so} so}", "metadata", "labels", labels, "annotations", annotations(job), "spec", pod);
}
