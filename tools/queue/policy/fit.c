/* Finding hosts for a job: one host by best fit or by a score; several inside the smallest domain that holds them,
 * beginning at the preferred height, never above the required one; groups inside their own domains. */
#include "queue/policy/policy_priv.h"

#include "base/assert.h"

int ash_policy_wanted(const struct ash_policy_job *job)
{
    return job->nodes + job->spares;
}

void ash_policy_amount(const struct ash_policy_job *job, int hosts, int64_t amount_out[ASH_POLICY_RESOURCES])
{
    amount_out[ASH_POLICY_GPU] = (int64_t)hosts * job->gpus * job->gpu_milli;
    amount_out[ASH_POLICY_CPU] = hosts * job->cpu_milli;
    amount_out[ASH_POLICY_MEMORY] = hosts * job->memory_mib;
}

/* Must every host be looked at? */
static bool needs_scan(const struct ash_policy *policy, const struct ash_policy_job *job)
{
    return ash_policy_wanted(job) == 1 &&
           (policy->conf->placement != ASH_POLICY_PLACE_PACK || job->gpu_milli < ASH_POLICY_GPU_MILLI ||
            job->cpu_milli > 0 || job->memory_mib > 0 || job->models != 0 || job->gpus == 0);
}

/* A host that has the units some time from now; processors and memory are not looked ahead. */
static int fit_later(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job)
{
    int units = job->gpus > 0 ? job->gpus : 1;

    if (job->models == 0) {
        int node = ash_room_tightest(room, 0, units);

        policy->picked[0] = node >= 0 ? policy->host_of_node[node] : -1;
        return node >= 0;
    }
    for (int host = 0; host < policy->host_count; host++) {
        if ((job->models >> policy->hosts[host].model & 1) == 0) continue;
        if (ash_room_units(room, policy->hosts[host].node) < units) continue;
        policy->picked[0] = host;
        return 1;
    }
    return 0;
}

static int fit_one(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job,
                   bool is_now)
{
    if (!needs_scan(policy, job)) {
        int node = ash_room_tightest(room, 0, job->gpus);

        if (node < 0) return 0;
        policy->picked[0] = policy->host_of_node[node];
        return 1;
    }
    if (!is_now) return fit_later(policy, room, job);
    policy->picked[0] = ash_policy_score_host(policy, room, job, &policy->picked_gpu);
    return policy->picked[0] >= 0;
}

/* Hosts in the order of the list, wherever they are. */
static int fit_blind(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job)
{
    int wanted = ash_policy_wanted(job), found = 0;

    for (int host = 0; host < policy->host_count && found < wanted; host++)
        if (ash_room_units(room, policy->hosts[host].node) >= job->gpus) policy->picked[found++] = host;
    return found == wanted ? found : 0;
}

/* Groups first, then the spares from the rest of the domain. */
static int fill_groups(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job,
                       int domain, int height)
{
    const struct ash_room_groups groups = {height, job->gpus, job->group, job->nodes / job->group};
    int filled = job->nodes, wanted = ash_policy_wanted(job);
    int rc = ash_room_choose_groups(room, domain, &groups, policy->picked);

    for (int host = 0; host < policy->host_count && rc == 0 && filled < wanted; host++) {
        int node = policy->hosts[host].node;
        bool is_taken = false;

        if (ash_room_units(room, node) < job->gpus || !ash_topology_holds(policy->topology, domain, node)) continue;
        for (int i = 0; i < filled && !is_taken; i++)
            is_taken = policy->picked[i] == node;
        if (!is_taken) policy->picked[filled++] = node;
    }
    ash_assert(filled <= wanted);
    return rc;
}

/* The fullest domain of that height that has enough, of groups too; -1: none. */
static int find_domain(const struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job,
                       int height, int group_height)
{
    int wanted = ash_policy_wanted(job), groups = job->group > 0 ? job->nodes / job->group : 0, count, best = -1;
    const int *domains;

    if (job->group == 0) return ash_room_fullest(room, 0, height, job->gpus, wanted);
    domains = ash_room_domains(room, height, &count);
    for (int i = 0; i < count; i++) {
        int hosts = ash_room_hosts(room, domains[i], job->gpus);

        if (hosts < wanted || (best >= 0 && hosts >= ash_room_hosts(room, best, job->gpus))) continue;
        if (ash_room_group_count(room, domains[i], group_height, job->gpus, job->group) < groups) continue;
        best = domains[i];
    }
    (void)policy;
    return best;
}

static int fit_many(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job)
{
    int wanted = ash_policy_wanted(job), top = policy->topology->nodes[0].height, rc;
    int group_height = job->preferred > 0 ? job->preferred : 1;
    int low = job->group > 0 || job->preferred == 0 ? 1 : job->preferred,
        high = job->required > 0 ? job->required : top;

    if (policy->conf->is_topology_blind && job->required == 0 && job->group == 0) return fit_blind(policy, room, job);
    for (int height = low < high ? low : high; height <= high && height <= top; height++) {
        int domain = find_domain(policy, room, job, height, group_height);

        if (domain < 0) continue;
        rc = job->group > 0 ? fill_groups(policy, room, job, domain, group_height)
                            : ash_room_choose(room, domain, job->gpus, wanted, policy->picked);
        if (rc < 0) return rc;
        for (int i = 0; i < wanted; i++)
            policy->picked[i] = policy->host_of_node[policy->picked[i]];
        return wanted;
    }
    return 0;
}

int ash_policy_fit(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job,
                   bool is_now)
{
    policy->picked_gpu = -1;
    if (ash_policy_wanted(job) == 1) return fit_one(policy, room, job, is_now);
    if (ash_room_hosts(room, 0, job->gpus) < ash_policy_wanted(job)) return 0;
    return fit_many(policy, room, job);
}
