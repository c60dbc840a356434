/* Published measurements of expert traffic, as their sources print them, compared with the model. */
#include "plan/train/dispatch.h"

#include <math.h>

#define TOKENS 4096.0
#define HIDDEN 7168.0
#define CHOICES 8.0
#define GROUPS_MAX 4.0 /* domains that DeepEP's own test sends a token to */

enum kind {
    PLAIN_56,      /* nccl-tests all_to_all, bus bandwidth at 56 MiB per rank */
    PLAIN_64,      /* the same at 64 MiB */
    COUNTED,       /* DeepEP's count: a token once per domain it goes to, its own included; bf16 */
    THERE_US,      /* microseconds, fp8 there */
    BACK_US,       /* bf16 back */
    GROUPED_THERE, /* DeepEP's count again, fp8 there; domains are groups of experts, and a token chooses four */
    GROUPED_BACK,  /* bf16 back */
};

static const char aws[] = "awslabs/awsome-distributed-ai, micro-benchmarks/expert-parallelism/ep-backend-comparison";
static const char deepep[] = "deepseek-ai/DeepEP, README.md";
static const char uccl[] = "uccl-project/uccl, ep/README.md";

static const struct {
    const char *machine, *what;
    enum kind kind;
    double ranks, measured;
    const char *source;
} published[] = {
    {"p6-b300.48xlarge", "NCCL all-to-all, 56 MiB", PLAIN_56, 16, 104.9, aws},
    {"p6-b300.48xlarge", "NCCL all-to-all, 56 MiB", PLAIN_56, 32, 94.0, aws},
    {"p6-b300.48xlarge", "NCCL all-to-all, 56 MiB", PLAIN_56, 64, 74.0, aws},
    {"p6-b300.48xlarge", "NCCL all-to-all, 56 MiB", PLAIN_56, 128, 73.8, aws},
    {"p6-b300.48xlarge", "NCCL all-to-all, 56 MiB", PLAIN_56, 256, 54.7, aws},
    {"p5.48xlarge", "NCCL all-to-all, 64 MiB", PLAIN_64, 32, 45.1, aws},
    {"p5.48xlarge", "NCCL all-to-all, 64 MiB", PLAIN_64, 64, 40.4, aws},
    {"p6-b300.48xlarge", "DeepEP NVSHMEM dispatch", COUNTED, 16, 126.6, aws},
    {"p6-b300.48xlarge", "DeepEP NVSHMEM combine", COUNTED, 16, 106.4, aws},
    {"p6-b300.48xlarge", "UCCL dispatch", COUNTED, 16, 91.9, aws},
    {"p6-b300.48xlarge", "DeepEP NVSHMEM dispatch", COUNTED, 32, 97.1, aws},
    {"p6-b300.48xlarge", "DeepEP NVSHMEM combine", COUNTED, 32, 95.4, aws},
    {"p6-b300.48xlarge", "UCCL dispatch", COUNTED, 32, 102.1, aws},
    {"p6-b300.48xlarge", "DeepEP NVSHMEM dispatch", COUNTED, 64, 84.2, aws},
    {"p6-b300.48xlarge", "DeepEP NVSHMEM combine", COUNTED, 64, 73.1, aws},
    {"p6-b300.48xlarge", "UCCL dispatch", COUNTED, 64, 93.9, aws},
    {"p6-b300.48xlarge", "DeepEP NVSHMEM dispatch", COUNTED, 128, 74.7, aws},
    {"p5.48xlarge", "DeepEP NVSHMEM dispatch", COUNTED, 32, 43.7, aws},
    {"p5.48xlarge", "DeepEP NVSHMEM combine", COUNTED, 32, 46.1, aws},
    {"p5.48xlarge", "UCCL dispatch", COUNTED, 32, 38.2, aws},
    {"p5.48xlarge", "DeepEP NVSHMEM dispatch", COUNTED, 64, 39.6, aws},
    {"p5.48xlarge", "DeepEP NVSHMEM combine", COUNTED, 64, 39.2, aws},
    {"p5.48xlarge", "UCCL dispatch", COUNTED, 64, 29.9, aws},
    {"hgx-h800", "DeepEP dispatch, fp8", GROUPED_THERE, 16, 43, deepep},
    {"hgx-h800", "DeepEP dispatch, fp8", GROUPED_THERE, 32, 58, deepep},
    {"hgx-h800", "DeepEP dispatch, fp8", GROUPED_THERE, 64, 51, deepep},
    {"hgx-h800", "DeepEP combine", GROUPED_BACK, 16, 43, deepep},
    {"hgx-h800", "DeepEP combine", GROUPED_BACK, 32, 57, deepep},
    {"hgx-h800", "DeepEP combine", GROUPED_BACK, 64, 50, deepep},
    {"p5en.48xlarge", "UCCL dispatch, fp8", THERE_US, 8, 500, uccl},
    {"p5en.48xlarge", "UCCL dispatch, fp8", THERE_US, 16, 1196, uccl},
    {"p5en.48xlarge", "UCCL dispatch, fp8", THERE_US, 32, 2022, uccl},
    {"p5en.48xlarge", "UCCL combine", BACK_US, 32, 4899, uccl},
    {"p6-b200.48xlarge", "UCCL dispatch, fp8", THERE_US, 8, 571, uccl},
    {"p6-b200.48xlarge", "UCCL dispatch, fp8", THERE_US, 16, 1141, uccl},
    {"p6-b200.48xlarge", "UCCL dispatch, fp8", THERE_US, 32, 2072, uccl},
    {"p6-b200.48xlarge", "UCCL combine", BACK_US, 16, 1965, uccl},
    {"p6-b200.48xlarge", "UCCL combine", BACK_US, 32, 3724, uccl},
};

static bool is_plain(enum kind kind)
{
    return kind == PLAIN_56 || kind == PLAIN_64;
}

static bool is_grouped(enum kind kind)
{
    return kind == GROUPED_THERE || kind == GROUPED_BACK;
}

/* The traffic of a row between that many domains: plain ones send each byte once. */
static struct ash_dispatch traffic(enum kind kind, double ranks, double domains)
{
    bool is_fp8 = kind == THERE_US || kind == GROUPED_THERE;
    struct ash_dispatch dispatch = {.ranks = ranks,
                                    .tokens = TOKENS,
                                    .hidden = HIDDEN,
                                    .choices = CHOICES,
                                    .groups = is_grouped(kind) ? domains : 0,
                                    .group_choices = fmin(domains, GROUPS_MAX),
                                    .element_bytes = is_fp8 ? ASH_DISPATCH_FP8_BYTES : 2,
                                    .two_level = true,
                                    .imbalance = 1,
                                    .network_share = 1};

    if (!is_plain(kind)) return dispatch;
    dispatch.tokens = (kind == PLAIN_56 ? 56 : 64) * 1048576.0 / 2;
    dispatch.hidden = dispatch.choices = 1;
    dispatch.two_level = false;
    return dispatch;
}

/* The prediction of a measurement: GB/s as the source counts bytes, or microseconds. */
static double predicted_of(enum kind kind, const struct ash_dispatch *dispatch, double domains,
                           const struct ash_dispatch_time *time)
{
    double reached = is_grouped(kind) ? fmin(domains, GROUPS_MAX) : domains;
    double tokens = TOKENS * HIDDEN * reached * (1 - pow(1 - 1 / reached, CHOICES));

    if (is_plain(kind)) return dispatch->tokens * 2 * (dispatch->ranks - 1) / dispatch->ranks / time->there_s * 1e-9;
    if (kind == THERE_US) return time->there_s * 1e6;
    if (kind == BACK_US) return time->back_s * 1e6;
    if (kind == GROUPED_BACK) return tokens * 2 / time->back_s * 1e-9;
    return tokens * dispatch->element_bytes / time->there_s * 1e-9;
}

bool ash_dispatch_check_at(const struct ash_consts *consts, const struct ash_catalog *catalog, size_t index,
                           struct ash_dispatch_check *check_out)
{
    const struct ash_machine *machine = NULL;
    struct ash_cluster cluster = {0};
    struct ash_dispatch_time time;
    struct ash_dispatch dispatch;
    double domains;

    if (index >= sizeof(published) / sizeof(published[0])) return false;
    if (ash_catalog_machine(catalog, published[index].machine, &machine, NULL) < 0) return false;
    cluster.machine = *machine;
    cluster.machines = (int)ceil(published[index].ranks / machine->gpus);
    cluster.gpus = cluster.machines * machine->gpus;
    cluster.domain_gpus = machine->domain_gpus;
    domains = fmax(1, published[index].ranks / machine->domain_gpus);
    dispatch = traffic(published[index].kind, published[index].ranks, domains);
    ash_dispatch_predict(consts, &cluster, &dispatch, &time);
    *check_out = (struct ash_dispatch_check){
        .machine = published[index].machine,
        .what = published[index].what,
        .source = published[index].source,
        .ranks = published[index].ranks,
        .measured = published[index].measured,
        .us = published[index].kind == THERE_US || published[index].kind == BACK_US,
    };
    check_out->predicted = predicted_of(published[index].kind, &dispatch, domains, &time);
    return true;
}
