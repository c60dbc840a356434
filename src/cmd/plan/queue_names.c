/* Names of queues and classes: those of the trace and those of the policy. */
#include "cmd/plan/queue_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* Priorities of classes that HyperPod's task governance has. */
static double usual_priority(const char *name)
{
    static const struct {
        const char *name;
        double priority;
    } usual[] = {{"inference", 90}, {"experimentation", 80}, {"training", 70}, {"fine-tuning", 50}};

    for (size_t i = 0; i < ASH_COUNT(usual); i++)
        if (strcmp(usual[i].name, name) == 0) return usual[i].priority;
    return 0;
}

int ash_queue_adopt_names(struct ash_policy_conf *conf, const struct ash_trace *trace, struct ash_err *err)
{
    bool has_own = conf->queue_count > 1 || strcmp(conf->queues[0].name, "all") != 0;
    int rc = 0;

    if (!has_own && trace->queue_count > 1) {
        ash_policy_conf_fini(conf);
        for (int i = 0; i < trace->queue_count && rc >= 0; i++)
            rc = ash_policy_conf_add_queue(conf, trace->queues[i], -1, err);
        if (rc < 0) return rc;
    }
    if (conf->class_count > 1 || strcmp(conf->classes[0].name, "normal") != 0) return 0;
    for (int i = 0; i < trace->class_count && i < ASH_POLICY_CLASSES_MAX; i++) {
        conf->classes[i] = conf->classes[0];
        conf->classes[i].priority = usual_priority(trace->classes[i]);
        snprintf(conf->classes[i].name, sizeof(conf->classes[i].name), "%.63s", trace->classes[i]);
        conf->class_count = i + 1;
    }
    return 0;
}

/* Leaves of the policy's tree of queues. */
static int list_leaves(const struct ash_policy_conf *conf, int *leaves)
{
    int count = 0;

    for (int i = 0; i < conf->queue_count; i++) {
        bool is_leaf = true;

        for (int k = i + 1; k < conf->queue_count && is_leaf; k++)
            is_leaf = conf->queues[k].parent != i;
        if (is_leaf) leaves[count++] = i;
    }
    return count;
}

int ash_queue_map_names(struct ash_queue_answer *answer, const struct ash_policy_conf *conf, int **queue_of,
                        int **class_of)
{
    const struct ash_trace *trace = answer->trace;
    int *leaves = calloc((size_t)conf->queue_count, sizeof(int)), leaf_count;

    *queue_of = calloc((size_t)trace->queue_count, sizeof(int));
    *class_of = calloc((size_t)trace->class_count, sizeof(int));
    if (leaves == NULL || *queue_of == NULL || *class_of == NULL) {
        free(leaves);
        return -ENOMEM;
    }
    leaf_count = list_leaves(conf, leaves);
    answer->mapped = 0;
    for (int i = 0; i < trace->queue_count; i++) {
        int found = ash_policy_conf_queue(conf, trace->queues[i]);

        answer->mapped += found < 0;
        (*queue_of)[i] = found >= 0 ? found : leaves[i % leaf_count];
    }
    for (int i = 0; i < trace->class_count; i++) {
        int found = ash_policy_conf_class(conf, trace->classes[i]);

        (*class_of)[i] = found >= 0 ? found : i % conf->class_count;
    }
    free(leaves);
    return 0;
}
