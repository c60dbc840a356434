/* A policy as lines of slurm.conf and commands of sacctmgr. */
#include "queue/policy/export_priv.h"

#include <errno.h>

#include "queue/policy/slurm_state.h"

static void add_slurm_conf(struct ash_export *writer)
{
    const struct ash_policy_conf *conf = writer->conf;
    bool is_preempting = conf->within != ASH_POLICY_RECLAIM_NEVER || conf->cohort != ASH_POLICY_RECLAIM_NEVER;

    ash_export_add(writer, "# slurm.conf, for the policy %s\n", conf->name);
    ash_export_add(writer, "PriorityType=priority/multifactor\nPriorityWeightQOS=%.0f\nPriorityWeightAge=%.0f\n",
                   conf->class_weight, conf->age_weight);
    ash_export_add(writer, "PriorityWeightJobSize=%.0f\nPriorityWeightFairshare=%.0f\n", conf->size_weight,
                   conf->fair_weight);
    ash_export_add(writer, "PriorityMaxAge=%.0f\nPriorityDecayHalfLife=%.0f\n", conf->age_max_s / 60,
                   conf->half_life_s / 60);
    ash_export_add(writer, "PriorityFavorSmall=%s\n", conf->favors_small ? "YES" : "NO");
    if (conf->fair == ASH_POLICY_FAIR_MULTIFACTOR) ash_export_add(writer, "PriorityFlags=NO_FAIR_TREE\n");
    ash_export_add(writer,
                   "AccountingStorageEnforce=associations,limits,qos\nAccountingStorageTRES=gres/gpu\nGresTypes=gpu\n");
    ash_export_add(writer, "SchedulerType=%s\n",
                   conf->backfill == ASH_POLICY_BACKFILL_NONE ? "sched/builtin" : "sched/backfill");
    if (conf->backfill != ASH_POLICY_BACKFILL_NONE)
        ash_export_add(writer, "SchedulerParameters=bf_continue,bf_interval=%.0f,bf_max_job_test=%d%s\n",
                       conf->interval_s >= 1 ? conf->interval_s : 1, conf->depth,
                       conf->backfill == ASH_POLICY_BACKFILL_EASY ? ",bf_job_part_count_reserve=1" : "");
    if (is_preempting) {
        ash_export_add(writer, "PreemptType=preempt/qos\nPreemptMode=REQUEUE\nJobRequeue=1\n");
        if (conf->protect_s > 0) ash_export_add(writer, "PreemptExemptTime=%.0f\n", conf->protect_s / 60);
    }
    ash_export_add(writer, "SelectType=select/cons_tres\nTopologyPlugin=topology/%s\n",
                   conf->is_topology_blind ? "none" : "tree");
}

/* What makes them in an empty accounting. */
static void add_slurm_state(struct ash_export *writer)
{
    json_t *state = NULL, *commands, *words, *word;
    size_t i, k;
    int rc = ash_slurm_state_of(writer->conf, &state, NULL);

    if (rc == -EINVAL) {
        ash_export_miss(writer, "classes and queues: two have one name in Slurm");
        return;
    }
    commands = rc == 0 ? ash_slurm_state_changes(state, NULL) : NULL;
    if (commands == NULL && writer->rc == 0) writer->rc = -ENOMEM;
    ash_export_add(writer, "\n# sacctmgr: classes and caps of users are QOS, queues are accounts\n");
    json_array_foreach(commands, i, words) {
        ash_export_add(writer, "sacctmgr -i");
        json_array_foreach(words, k, word)
            ash_export_add(writer, " %s", json_string_value(word));
        ash_export_add(writer, "\n");
    }
    json_decref(commands);
    json_decref(state);
    for (int q = 0; q < writer->conf->queue_count; q++) {
        const struct ash_policy_queue *queue = &writer->conf->queues[q];

        if (queue->has_quota)
            ash_export_miss(
                writer,
                "the quota of %.63s (%.0f GPUs that others lend and it reclaims): Slurm has caps and fair share, no "
                "borrowing",
                queue->name, ash_export_gpus(queue->nominal[ASH_POLICY_GPU]));
    }
}

void ash_export_slurm(struct ash_export *writer)
{
    const struct ash_policy_conf *conf = writer->conf;

    add_slurm_conf(writer);
    if (conf->run_max_s > 0)
        ash_export_add(writer, "PartitionName=main Nodes=ALL Default=YES MaxTime=%.0f\n", conf->run_max_s / 60);
    add_slurm_state(writer);
    if (conf->fair == ASH_POLICY_FAIR_DOMINANT || conf->fair == ASH_POLICY_FAIR_OVER_QUOTA)
        ash_export_miss(writer, "fair share by quota: the tree of accounts ranks by usage and shares");
    if (conf->backfill == ASH_POLICY_BACKFILL_GREEDY)
        ash_export_miss(writer, "starting whatever fits: Slurm's backfill always holds nodes for the first jobs");
    if (conf->backfill == ASH_POLICY_BACKFILL_CONSERVATIVE)
        ash_export_miss(writer, "starts that only move forward: Slurm plans again in every pass");
    if (conf->victims == ASH_POLICY_VICTIMS_CHEAPEST)
        ash_export_miss(writer, "the cheapest victim: Slurm stops by QOS and time, not by work since the last save");
    if (conf->failures_max > 0)
        ash_export_miss(writer, "that a job which failed %d times stops no other", conf->failures_max);
    if (conf->placement != ASH_POLICY_PLACE_PACK)
        ash_export_miss(writer, "the placement by score: select/cons_tres packs by its own rules");
}
