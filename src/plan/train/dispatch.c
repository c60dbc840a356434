/* dispatch: latency + bytes / bandwidth on each of the two levels. Plain all-to-all sends a copy to every chosen expert
 * and loses bandwidth as ranks grow; two-level dispatch sends one copy per domain and keeps it. */
#include "plan/train/dispatch.h"

#include <math.h>
#include <strings.h>

#include "base/assert.h"

#define BACK_BYTES 2.0
#define SHARE_MIN 0.3
#define PCIE_RATE_MIN 10e9   /* bytes/s between GPUs of which nothing is known */
#define NETWORK_RATE_MIN 1e8 /* of machines without a network worth the name */

/* Of count ranks (or domains) the number that holds experts of the groups which a token may choose from, in the mean. A
 * group is spread over several of them, or they hold several groups each, of which any may be chosen. */
static double in_reach(const struct ash_dispatch *dispatch, double count)
{
    int held = (int)fmax(1, ceil(dispatch->groups / count));
    double missed = 1;

    if (dispatch->groups <= 1 || dispatch->group_choices >= dispatch->groups) return count;
    for (int i = 0; i < held && i < dispatch->groups; i++)
        missed *= fmax(0, 1 - dispatch->group_choices / (dispatch->groups - i));
    return fmax(1, count * (1 - missed));
}

/* Ranks (or domains) other than its own that a token with evenly chosen experts is sent to. */
static double others(const struct ash_dispatch *dispatch, double count)
{
    double reach = in_reach(dispatch, count);

    return reach * (1 - pow(1 - 1 / reach, dispatch->choices)) * (count - 1) / count;
}

/* What the two levels do with one copy of every token and element. */
struct levels {
    double inner_elements, outer_elements, outer_messages; /* that one rank sends */
    double inner_rate, outer_rate;                         /* bytes/s */
    double inner_latency_s, outer_latency_s, message_s;
    double outer_share; /* of the network's rate, of two-level dispatch */
};

static double inner_s(const struct levels *levels, double element_bytes)
{
    return levels->inner_elements * element_bytes / levels->inner_rate + levels->inner_latency_s;
}

static double outer_s(const struct levels *levels, double element_bytes)
{
    double bytes_s = levels->outer_elements * element_bytes / levels->outer_rate;

    if (levels->outer_elements <= 0) return 0;
    return fmax(bytes_s, levels->outer_messages * levels->message_s) + levels->outer_latency_s;
}

/* A copy to every chosen expert, as one message per rank; its bandwidth decays as domains grow. */
static void set_plain(const struct ash_consts *consts, const struct ash_dispatch *dispatch, double local,
                      double network, struct levels *levels)
{
    double copies = dispatch->tokens * dispatch->hidden * dispatch->choices * dispatch->imbalance;
    double domains = ceil(dispatch->ranks / local);

    levels->inner_elements = copies * (local - 1) / dispatch->ranks;
    levels->outer_elements = copies * (1 - local / dispatch->ranks);
    levels->outer_rate = network * fmax(SHARE_MIN, consts->dispatch_plain - consts->dispatch_decay * log2(domains));
    levels->outer_latency_s = consts->dispatch_plain_us * 1e-6;
}

/* One copy per domain across, token by token, and one per rank inside. */
static void set_two_level(const struct ash_consts *consts, const struct ash_dispatch *dispatch, double local,
                          double network, struct levels *levels)
{
    double tokens = dispatch->tokens * dispatch->imbalance;
    double across = others(dispatch, ceil(dispatch->ranks / local));

    levels->inner_elements = tokens * dispatch->hidden * (others(dispatch, dispatch->ranks) - across);
    levels->outer_messages = tokens * across;
    levels->outer_elements = levels->outer_messages * dispatch->hidden;
    levels->outer_rate = network * levels->outer_share;
    levels->outer_latency_s = consts->dispatch_two_level_us * 1e-6;
    levels->message_s = dispatch->message_s;
}

bool ash_dispatch_is_host_sent(const char *network)
{
    return strncasecmp(network, "EFA", 3) == 0;
}

void ash_dispatch_predict(const struct ash_consts *consts, const struct ash_cluster *cluster,
                          const struct ash_dispatch *dispatch, struct ash_dispatch_time *time_out)
{
    const struct ash_gpu *gpu = cluster->machine.gpu;
    double local = fmin(dispatch->ranks, cluster->domain_gpus), sent = dispatch->element_bytes;
    double network = cluster->machine.net_bandwidth / cluster->machine.gpus * dispatch->network_share;
    bool is_host_sent = ash_dispatch_is_host_sent(cluster->machine.network);
    struct levels levels = {.outer_share = is_host_sent ? consts->dispatch_two_level : consts->dispatch_two_level_nic,
                            .inner_latency_s = consts->dispatch_nvlink_us * 1e-6,
                            .inner_rate = gpu->nvlink_bandwidth * consts->dispatch_nvlink};

    *time_out = (struct ash_dispatch_time){.leaving = 1 - local / dispatch->ranks};
    if (dispatch->ranks <= 1) return;
    if (levels.inner_rate <= 0) levels.inner_rate = fmax(gpu->host_bandwidth, PCIE_RATE_MIN) / 2;
    (dispatch->two_level ? set_two_level : set_plain)(consts, dispatch, local, fmax(network, NETWORK_RATE_MIN),
                                                      &levels);
    *time_out = (struct ash_dispatch_time){
        .leaving = 1 - local / dispatch->ranks,
        .inner_bytes = levels.inner_elements * sent,
        .outer_bytes = levels.outer_elements * sent,
        .outer_back_bytes = levels.outer_elements * BACK_BYTES,
        .there_s = fmax(inner_s(&levels, sent), outer_s(&levels, sent)),
        .back_s = fmax(inner_s(&levels, BACK_BYTES), outer_s(&levels, BACK_BYTES)),
        .inner_s = inner_s(&levels, sent) + inner_s(&levels, BACK_BYTES),
        .outer_s = outer_s(&levels, sent) + outer_s(&levels, BACK_BYTES),
        .buffer_bytes = dispatch->tokens * dispatch->hidden * dispatch->ranks * sent,
    };
    time_out->total_s = time_out->there_s + time_out->back_s;
}

double ash_dispatch_imbalance(const double *counts, size_t experts, size_t ranks)
{
    double total = 0, fullest = 0;

    ash_assert(ranks > 0 && experts % ranks == 0);
    for (size_t r = 0; r < ranks; r++) {
        double load = 0;

        for (size_t e = r * (experts / ranks); e < (r + 1) * (experts / ranks); e++)
            load += counts[e];
        total += load;
        fullest = fmax(fullest, load);
    }
    return total > 0 ? fullest * (double)ranks / total : 1;
}
