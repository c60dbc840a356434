/* Fuzz target: policies. An accepted one has a queue and a class, can be exported, and runs a job. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "queue/policy/export.h"
#include "queue/policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One host, one job in every queue. */
static void use(const struct ash_policy_conf *conf, const struct ash_topology *topology)
{
    const struct ash_policy_host host = {.node = topology->nodes[0].is_host ? 0 : topology->count - 1, .gpus = 4};
    struct ash_policy *policy = NULL;

    if (ash_policy_open(conf, topology, &host, 1, &policy, NULL) < 0) abort();
    for (int queue = 0; queue < conf->queue_count && queue < 64; queue++) {
        struct ash_policy_job job = {.queue = queue, .nodes = 1, .gpus = 1, .gpu_milli = 1000, .limit_s = 10};

        ash_policy_submit(policy, &job, queue, NULL);
        if (ash_policy_pass(policy, queue) < 0) abort();
    }
    ash_policy_close(policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char tree[] = "SwitchName=s Nodes=n0\n";
    struct ash_topology *topology = NULL;
    struct ash_policy_conf conf;
    struct ash_str text = {0};

    if (ash_policy_conf_parse((const char *)data, size, "fuzz", &conf, NULL) < 0) return 0;
    if (conf.queue_count < 1 || conf.class_count < 1) abort();
    if (ash_topology_parse(tree, strlen(tree), "tree", &topology, NULL) < 0) abort();
    for (int target = ASH_POLICY_SLURM; target <= ASH_POLICY_KAI; target++)
        if (ash_policy_export(&conf, topology, (enum ash_policy_target)target, &text) < 0) abort();
    use(&conf, topology);
    ash_str_fini(&text);
    ash_topology_close(topology);
    ash_policy_conf_fini(&conf);
    return 0;
}
