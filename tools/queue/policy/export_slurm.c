/* A policy as lines of slurm.conf and commands of sacctmgr. */
#include "queue/policy/export_priv.h"

#include <stdio.h>

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

static void add_slurm_classes(struct ash_export *writer)
{
    const struct ash_policy_conf *conf = writer->conf;

    ash_export_add(writer, "\n# sacctmgr: classes are QOS\n");
    for (int i = 0; i < conf->class_count; i++) {
        const struct ash_policy_class *class = &conf->classes[i];
        const char *separator = "";
        char preempts[ASH_POLICY_CLASSES_MAX * ASH_POLICY_NAME_BYTES] = "", name[ASH_POLICY_NAME_BYTES];
        size_t length = 0;

        for (int k = 0; k < conf->class_count && class->may_preempt; k++) {
            if (!conf->classes[k].is_preemptible || conf->classes[k].priority >= class->priority) continue;
            length += (size_t)snprintf(preempts + length, sizeof(preempts) - length, "%s%s", separator,
                                       ash_export_name(conf->classes[k].name, name));
            separator = ",";
        }
        ash_export_add(writer, "sacctmgr -i add qos %s set Priority=%.0f Flags=DenyOnLimit%s%s\n",
                       ash_export_name(class->name, name), class->priority, preempts[0] != '\0' ? " Preempt=" : "",
                       preempts);
    }
}

static void add_slurm_queues(struct ash_export *writer)
{
    const struct ash_policy_conf *conf = writer->conf;

    ash_export_add(writer, "\n# sacctmgr: queues are accounts\n");
    for (int i = 0; i < conf->queue_count; i++) {
        const struct ash_policy_queue *queue = &conf->queues[i];
        char name[ASH_POLICY_NAME_BYTES], parent[ASH_POLICY_NAME_BYTES];
        int64_t cap = queue->gpus_max;

        if (queue->has_quota && queue->borrow[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED) {
            int64_t most = queue->nominal[ASH_POLICY_GPU] + queue->borrow[ASH_POLICY_GPU];

            if (most < cap) cap = most;
        }
        ash_export_add(writer, "sacctmgr -i add account %s parent=%s fairshare=%.0f",
                       ash_export_name(queue->name, name),
                       queue->parent >= 0 ? ash_export_name(conf->queues[queue->parent].name, parent) : "root",
                       queue->shares >= 1 ? queue->shares : 1);
        if (cap != ASH_POLICY_UNLIMITED) ash_export_add(writer, " GrpTRES=gres/gpu=%.0f", ash_export_gpus(cap));
        if (queue->job_gpus_max != ASH_POLICY_UNLIMITED)
            ash_export_add(writer, " MaxTRESPerJob=gres/gpu=%.0f", ash_export_gpus(queue->job_gpus_max));
        ash_export_add(writer, "\n");
        if (queue->user_gpus_max != ASH_POLICY_UNLIMITED)
            ash_export_add(writer,
                           "sacctmgr -i add qos %s-users set MaxTRESPerUser=gres/gpu=%.0f Flags=DenyOnLimit\n"
                           "sacctmgr -i modify account %s set qos+=%s-users defaultqos=%s-users\n",
                           name, ash_export_gpus(queue->user_gpus_max), name, name, name);
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
    add_slurm_classes(writer);
    add_slurm_queues(writer);
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
