/* A server whose ranks are on several pods: a group of a LeaderWorkerSet. Each pod has a supervisor; the ranks meet at
 * the leader's name, the first one serves. If a pod is lost all end, and the controller starts the group again. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "orchestrate/kubernetes/manifest_priv.h"

#define WORKER_FIELD "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"

/* A number among the settings of the server: the last one counts. */
static size_t setting_of(const struct ash_kube_job *job, const char *name)
{
    size_t length = strlen(name), value = 1;

    for (size_t i = 0; i < job->submission->setting_count; i++) {
        const char *word = job->submission->settings[i];

        if (strncmp(word, name, length) == 0 && word[length] == '=') sscanf(word + length + 1, "%zu", &value);
    }
    return value;
}

int ash_kube_read_group(const struct ash_kube_job *job, struct ash_kube_group *group_out, struct ash_err *err)
{
    struct ash_kube_group group = {
        .ranks = ash_max(setting_of(job, "tp"), setting_of(job, "ep")) * setting_of(job, "pp"), .pods = 1};
    size_t procs = (size_t)job->submission->spec->asked_procs;

    if (procs > 0 && (procs > group.ranks || group.ranks % procs != 0))
        return ash_err_set(
            err, -EINVAL,
            "job.procs is %zu: a server has serve.tp times serve.pp processes, here %zu, and each pod has "
            "as many of them as the others",
            procs, group.ranks);
    if (procs > 0) group.pods = group.ranks / procs;
    if (group.pods > 1 && job->kind != ASH_KUBE_LWS)
        return ash_err_set(err, -EINVAL,
                           "job.procs is %zu, so each replica has %zu pods: that is --kind leaderworkerset, not %s",
                           procs, group.pods, ash_kube_kind_names[job->kind]);
    if (group.pods > 1 && setting_of(job, "replicas") > 1)
        return ash_err_set(
            err, -EINVAL, "serve.replicas are processes of one pod: with job.procs, job.nodes says how many there are");
    *group_out = group;
    return 0;
}

struct ash_kube_place ash_kube_group_place(bool is_worker)
{
    return (struct ash_kube_place){.node_rank = "$(NODE_RANK)",
                                   .rank_field = WORKER_FIELD,
                                   .master = "$(LWS_LEADER_ADDRESS)",
                                   .is_worker = is_worker};
}

static void add_number(json_t *args, const char *flag, double value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.0f", value);
    json_array_append_new(args, json_string(flag));
    json_array_append_new(args, json_string(text));
}

/* The supervisor never starts a rank again, nor goes on without one: they meet once. */
void ash_kube_add_group_words(const struct ash_kube_job *job, const struct ash_kube_place *place, json_t *args)
{
    struct ash_kube_group group;
    struct ash_err ignored = {0};
    char master[96];

    if (place->node_rank == NULL || ash_kube_read_group(job, &group, &ignored) < 0) return;
    snprintf(master, sizeof(master), "%s:%d", place->master, ASH_KUBE_PORT);
    json_array_append_new(args, json_string("launch"));
    add_number(args, "--procs", (double)group.ranks);
    add_number(args, "--nodes", (double)group.pods);
    json_array_append_new(args, json_string("--node-rank"));
    json_array_append_new(args, json_string(place->node_rank));
    json_array_append_new(args, json_string("--master"));
    json_array_append_new(args, json_string(master));
    add_number(args, "--elastic", 0);
    add_number(args, "--notice", ceil(job->submission->spec->notice_s));
}
