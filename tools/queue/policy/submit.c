/* The check of a new job: whether it could ever start, and possible requests if not. */
#include "queue/policy/policy_priv.h"

#include <errno.h>

/* Hosts of the largest domain of that height that have the GPUs, in the empty cluster. */
static int largest_domain(const struct ash_policy *policy, int height, int gpus)
{
    int count, most = 0;
    const int *domains = ash_room_domains(policy->whole, height, &count);

    for (int i = 0; i < count; i++) {
        int hosts = ash_room_hosts(policy->whole, domains[i], gpus);

        if (hosts > most) most = hosts;
    }
    return most;
}

static const char *level_name(const struct ash_policy_conf *conf, int height)
{
    return height >= 1 && height <= conf->level_count ? conf->levels[height - 1] : "domain";
}

static int check_gpus(const struct ash_policy_job *job, struct ash_err *err)
{
    bool is_one = job->nodes == 1 && job->spares == 0;

    if (job->gpus < 0 || job->gpu_milli < 1 || job->gpu_milli > ASH_POLICY_GPU_MILLI)
        return ash_err_set(err, -EINVAL, "a job has 0 or more GPUs per node, or 1 to 1000 thousandths of one");
    if (job->gpu_milli < ASH_POLICY_GPU_MILLI && (job->gpus != 1 || !is_one))
        return ash_err_set(err, -EINVAL, "a share of a GPU is for jobs of one GPU");
    if (!is_one && (job->cpu_milli > 0 || job->memory_mib > 0 || job->models != 0 || job->gpus == 0))
        return ash_err_set(
            err, -EINVAL,
            "processors, memory and GPU models can be asked for by jobs of one host; others ask for GPUs");
    return 0;
}

static int check_shape(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    if (job->queue < 0 || job->queue >= policy->conf->queue_count || job->class < 0 ||
        job->class >= policy->conf->class_count)
        return ash_err_set(err, -EINVAL, "there is no such queue or class");
    if (job->nodes < 1 || job->spares < 0 || job->min_nodes < 0 || job->min_nodes > job->nodes || !(job->limit_s > 0))
        return ash_err_set(err, -EINVAL,
                           "a job needs nodes, at least its least number of them, and a time limit above 0");
    return check_gpus(job, err);
}

static int check_domains(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    int top = policy->topology->nodes[0].height;

    if (job->group < 0) return ash_err_set(err, -EINVAL, "a group has 1 node or more");
    if (job->group > 0 && job->nodes % job->group != 0)
        return ash_err_set(err, -EINVAL, "%d nodes are no multiple of the group of %d", job->nodes, job->group);
    if (job->required < 0 || job->required > top || job->preferred < 0 || job->preferred > top)
        return ash_err_set(err, -EINVAL, "the topology has %d levels of domains", top);
    return 0;
}

/* Room on the empty cluster, whatever the time. */
static int check_room(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    int wanted = ash_policy_wanted(job), gpus = job->gpus > 0 ? job->gpus : 1, most;
    int group_height = job->preferred > 0 ? job->preferred : 1;
    int groups = job->group > 0 ? ash_room_group_count(policy->whole, 0, group_height, gpus, job->group) : 0;

    if (job->gpus > policy->units_max)
        return ash_err_set(err, -EINVAL, "%d GPUs per node: the largest host has %d", job->gpus, policy->units_max);
    most = job->required > 0 ? largest_domain(policy, job->required, gpus) : ash_room_hosts(policy->whole, 0, gpus);
    if (wanted > most && job->gpus > 0)
        return ash_err_set(err, -EINVAL, "%d nodes of %d GPUs do not fit %s%s: the most that can is %d nodes", wanted,
                           job->gpus, job->required > 0 ? "one " : "the cluster",
                           job->required > 0 ? level_name(policy->conf, job->required) : "", most);
    if (job->group > 0 && largest_domain(policy, group_height, gpus) < job->group)
        return ash_err_set(err, -EINVAL, "groups of %d nodes do not fit one %s: the largest has %d", job->group,
                           level_name(policy->conf, group_height), largest_domain(policy, group_height, gpus));
    if (job->group > 0 && groups < job->nodes / job->group)
        return ash_err_set(err, -EINVAL, "the cluster holds %d groups of %d nodes inside one %s, not %d", groups,
                           job->group, level_name(policy->conf, group_height), job->nodes / job->group);
    return 0;
}

static int check_models(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    if (job->cpu_milli == 0 && job->memory_mib == 0 && job->models == 0) return 0;
    for (int host = 0; host < policy->host_count; host++) {
        const struct ash_policy_host *spec = &policy->hosts[host];

        if (spec->gpus >= job->gpus && spec->cpu_milli >= job->cpu_milli && spec->memory_mib >= job->memory_mib &&
            (job->models == 0 || (job->models >> spec->model & 1) != 0))
            return 0;
    }
    return ash_err_set(err, -EINVAL, "no host has %d GPUs of that kind with %.1f processors and %lld MiB", job->gpus,
                       (double)job->cpu_milli / 1000, (long long)job->memory_mib);
}

/* Caps and quotas that it could never get below. */
static int check_limits(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    const struct ash_policy_conf *conf = policy->conf;
    const struct ash_policy_queue *queue = &conf->queues[job->queue];
    int64_t amount[ASH_POLICY_RESOURCES], potential, cap = queue->job_gpus_max;
    const char *name = queue->name;

    ash_policy_amount(job, ash_policy_wanted(job), amount);
    if (queue->user_gpus_max < cap) cap = queue->user_gpus_max;
    for (int at = job->queue; at >= 0; at = conf->queues[at].parent) {
        if (conf->queues[at].gpus_max >= cap) continue;
        cap = conf->queues[at].gpus_max;
        name = conf->queues[at].name;
    }
    if (amount[ASH_POLICY_GPU] > cap)
        return ash_err_set(err, -EINVAL, "%g GPUs are above the cap of %g of queue %s",
                           (double)amount[ASH_POLICY_GPU] / 1000, (double)cap / 1000, name);
    if (conf->run_max_s > 0 && job->limit_s > conf->run_max_s)
        return ash_err_set(err, -EINVAL, "a time limit of %g h is above the longest, %g h", job->limit_s / 3600,
                           conf->run_max_s / 3600);
    for (int r = 0; r < ASH_POLICY_RESOURCES && conf->fair != ASH_POLICY_FAIR_OVER_QUOTA; r++) {
        potential = ash_quota_potential(policy->quota, job->queue, (enum ash_policy_resource)r);
        if (amount[r] > 0 && potential < amount[r])
            return ash_err_set(err, -EINVAL, "queue %s can have at most %g %s with all that it may borrow, not %g",
                               queue->name, (double)potential / 1000,
                               r == ASH_POLICY_GPU   ? "GPUs"
                               : r == ASH_POLICY_CPU ? "processors"
                                                     : "GiB (of 1000 MiB)",
                               (double)amount[r] / 1000);
    }
    return 0;
}

int ash_policy_check(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    int rc = check_shape(policy, job, err);

    if (rc == 0) rc = check_domains(policy, job, err);
    if (rc == 0) rc = check_limits(policy, job, err);
    if (rc == 0) rc = check_room(policy, job, err);
    return rc == 0 ? check_models(policy, job, err) : rc;
}
