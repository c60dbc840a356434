/* Usage: GPU-seconds of every user in every queue, decayed, and the fair-share factors that follow. */
#include "queue/policy/policy_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"

#define CALC_S 300 /* between two settings of all factors: Slurm's PriorityCalcPeriod */
#define DAMPING 1

static size_t slot_of(const struct ash_policy *policy, int queue, int user)
{
    size_t at = (size_t)ash_hash_mix((uint64_t)(uint32_t)queue << 32 | (uint32_t)user) & (policy->usage_slot_count - 1);

    ash_assert(policy->usage_count < (int)policy->usage_slot_count); /* an empty slot ends the search */
    for (;; at = (at + 1) & (policy->usage_slot_count - 1)) {
        const struct ash_policy_usage *usage = &policy->usages[policy->usage_slots[at] - 1];

        if (policy->usage_slots[at] == 0 || (usage->queue == queue && usage->user == user)) return at;
    }
}

/* Room for one user more in all lists. */
static int grow(struct ash_policy *policy)
{
    int capacity = policy->usage_capacity == 0 ? 64 : 2 * policy->usage_capacity;
    struct ash_policy_usage *usages = realloc(policy->usages, (size_t)capacity * sizeof(*usages));
    struct ash_share_node *shares;
    int *slots;

    if (usages == NULL) return -ENOMEM;
    policy->usages = usages;
    shares = realloc(policy->shares, (size_t)(1 + policy->conf->queue_count + capacity) * sizeof(*shares));
    if (shares == NULL) return -ENOMEM;
    policy->shares = shares;
    slots = calloc((size_t)capacity * 2, sizeof(*slots));
    if (slots == NULL) return -ENOMEM;
    free(policy->usage_slots);
    policy->usage_slots = slots;
    policy->usage_slot_count = (size_t)capacity * 2;
    policy->usage_capacity = capacity;
    for (int i = 0; i < policy->usage_count; i++)
        slots[slot_of(policy, usages[i].queue, usages[i].user)] = i + 1;
    return 0;
}

/* The root and the queues. */
static void plant(struct ash_policy *policy)
{
    policy->shares[0] = (struct ash_share_node){.parent = -1, .shares = 1};
    for (int i = 0; i < policy->conf->queue_count; i++)
        policy->shares[1 + i] = (struct ash_share_node){.parent = policy->conf->queues[i].parent + 1,
                                                        .shares = policy->conf->queues[i].shares};
    policy->share_count = 1 + policy->conf->queue_count;
}

int ash_policy_usage_of(struct ash_policy *policy, int queue, int user)
{
    size_t slot;

    if (policy->usage_count == policy->usage_capacity && grow(policy) < 0) return -ENOMEM;
    if (policy->share_count == 0) plant(policy);
    slot = slot_of(policy, queue, user);
    if (policy->usage_slots[slot] > 0) return policy->usage_slots[slot] - 1;
    policy->shares[policy->share_count] =
        (struct ash_share_node){.parent = queue + 1, .shares = 1, .is_user = true, .factor = 1};
    policy->usages[policy->usage_count] = (struct ash_policy_usage){
        .queue = queue, .user = user, .node = policy->share_count++, .marked_s = policy->now_s};
    policy->usage_slots[slot] = ++policy->usage_count;
    return policy->usage_count - 1;
}

static void bring_up(struct ash_policy_usage *usage, double now_s)
{
    usage->pending_s += (double)usage->running_milli / ASH_POLICY_GPU_MILLI * (now_s - usage->marked_s);
    usage->marked_s = now_s;
}

void ash_policy_account(struct ash_policy *policy, int job, int64_t milli, int sign)
{
    const struct ash_policy_entry *entry = &policy->jobs[job];
    struct ash_policy_usage *usage = &policy->usages[entry->usage];

    bring_up(usage, policy->now_s);
    usage->running_milli += sign * milli;
    policy->class_used[entry->job.class] += sign * milli;
    for (int queue = entry->job.queue; queue >= 0; queue = policy->conf->queues[queue].parent)
        policy->queue_used[queue] += sign * milli;
}

int ash_policy_settle_usage(struct ash_policy *policy)
{
    bool is_classic = policy->conf->fair == ASH_POLICY_FAIR_MULTIFACTOR;
    double decay;

    if (!is_classic && policy->conf->fair != ASH_POLICY_FAIR_TREE) return 0;
    if (policy->shared_s >= 0 && policy->now_s - policy->shared_s < CALC_S) return 0;
    decay = policy->shared_s < 0 ? 1 : ash_share_decay(policy->now_s - policy->shared_s, policy->conf->half_life_s);
    for (int i = 0; i < policy->usage_count; i++) {
        struct ash_policy_usage *usage = &policy->usages[i];
        struct ash_share_node *node = &policy->shares[usage->node];

        bring_up(usage, policy->now_s);
        node->usage = node->usage * decay + usage->pending_s;
        usage->pending_s = 0;
    }
    policy->shared_s = policy->now_s;
    if (is_classic) {
        ash_share_multifactor(policy->shares, policy->share_count, DAMPING);
        return 0;
    }
    return ash_share_fair_tree(policy->shares, policy->share_count);
}
