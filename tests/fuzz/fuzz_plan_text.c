/* Fuzz target: the planner's short texts. A layout that is taken must be one that can be predicted; counts of tokens
 * per expert and name=value of constants are read or refused. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plan/audit/audit.h"

#define EXPERTS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int make_job(struct ash_plan_job *job)
{
    static struct ash_catalog *catalog; /* for the life of the process */

    if (ash_catalog_open(NULL, 0, &catalog, NULL) < 0) return -1;
    job->seq_tokens = 4096;
    job->global_batch = 256;
    if (ash_shape_find("mixtral-8x7b", &job->shape, NULL) < 0) return -1;
    return ash_cluster_parse(catalog, "8xp5.48xlarge", &job->cluster, NULL);
}

static void read_layout(const struct ash_plan_job *job, const char *text)
{
    struct ash_layout layout = {.tp = 1, .pp = 1, .cp = 1, .ep = 1, .chunks = 1, .zero = 1, .micro_batch = 1};
    const struct ash_consts consts = ash_consts_default();
    struct ash_plan_step step;
    char written[128];

    if (ash_layout_parse(text, &layout, NULL) < 0) return;
    ash_layout_text(&layout, written, sizeof(written));
    if (ash_layout_check(job, &layout, NULL) < 0) return;
    ash_step_predict(&consts, job, &layout, true, &step);
    if (!isfinite(step.time.total) || !(step.tokens_s > 0) || !isfinite(step.memory.total)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ash_plan_job job;
    struct ash_consts consts = ash_consts_default();
    double counts[EXPERTS];
    char *text;

    if (job.cluster.gpus == 0 && make_job(&job) < 0) abort();
    text = strndup((const char *)data, size);
    if (text == NULL) return 0;
    read_layout(&job, text);
    if (ash_audit_routing(text, "fuzz", EXPERTS, counts, NULL) == 0 && !(ash_dispatch_imbalance(counts, 8, 4) >= 1))
        abort();
    ash_consts_set(&consts, text, NULL);
    free(text);
    return 0;
}
