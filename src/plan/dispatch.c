/* dispatch: latency + bytes / bandwidth on each of the two levels. Plain all-to-all sends a copy to every chosen expert
 * and loses bandwidth as ranks grow; two-level dispatch sends one copy per domain and keeps it. */
#include "plan/dispatch.h"

#include <math.h>

#define BACK_BYTES 2.0
#define SHARE_MIN 0.3

/* Ranks (or domains) other than its own, of so many, that a token with evenly chosen experts goes to. */
static double others(double count, double choices)
{
    return (count - 1) * (1 - pow(1 - 1 / count, choices));
}

/* One way with so many bytes per element (inner_bytes and outer_bytes still count elements): the slower level decides.
 */
static double way_s(const struct ash_dispatch_time *time, double element_bytes, double inner_rate, double outer_rate,
                    double inner_us, double outer_us)
{
    double inner = time->inner_bytes * element_bytes / inner_rate + inner_us * 1e-6;
    double outer = time->outer_bytes > 0 ? time->outer_bytes * element_bytes / outer_rate + outer_us * 1e-6 : 0;

    return fmax(inner, outer);
}

void ash_dispatch_predict(const struct ash_consts *consts, const struct ash_cluster *cluster,
                          const struct ash_dispatch *dispatch, struct ash_dispatch_time *time_out)
{
    double local = fmin(dispatch->ranks, cluster->domain_gpus), domains = ceil(dispatch->ranks / local);
    double network = cluster->machine.net_bandwidth / cluster->machine.gpus, inner_rate, outer_rate, one;
    double copies = dispatch->choices * dispatch->imbalance, inner_us = consts->dispatch_nvlink_us, outer_us = 0;
    struct ash_dispatch_time time = {.leaving = 1 - local / dispatch->ranks};

    *time_out = time;
    if (dispatch->ranks <= 1) return;
    one = dispatch->tokens * dispatch->hidden; /* elements of one copy of every token */
    inner_rate = cluster->machine.gpu->nvlink_bandwidth * consts->dispatch_nvlink;
    if (inner_rate <= 0) inner_rate = fmax(cluster->machine.gpu->host_bandwidth, 10e9) / 2;
    outer_rate = network * fmax(SHARE_MIN, consts->dispatch_plain - consts->dispatch_decay * log2(domains));
    time.inner_bytes = one * copies * (local - 1) / dispatch->ranks; /* elements until the end */
    time.outer_bytes = one * copies * time.leaving;
    if (domains > 1) outer_us = dispatch->two_level ? consts->dispatch_two_level_us : consts->dispatch_plain_us;
    if (dispatch->two_level) { /* one copy per rank, made inside the domain, and one per domain across */
        outer_rate = network * consts->dispatch_two_level;
        time.outer_bytes = one * dispatch->imbalance * others(domains, dispatch->choices);
        time.inner_bytes = one * dispatch->imbalance *
                           (others(dispatch->ranks, dispatch->choices) - others(domains, dispatch->choices));
    }
    time.there_s = way_s(&time, dispatch->element_bytes, inner_rate, outer_rate, inner_us, outer_us);
    time.back_s = way_s(&time, BACK_BYTES, inner_rate, outer_rate, inner_us, outer_us);
    time.total_s = time.there_s + time.back_s;
    time.inner_s = time.inner_bytes * (dispatch->element_bytes + BACK_BYTES) / inner_rate + 2e-6 * inner_us;
    if (domains > 1)
        time.outer_s = time.outer_bytes * (dispatch->element_bytes + BACK_BYTES) / outer_rate + 2e-6 * outer_us;
    time.inner_bytes *= dispatch->element_bytes;
    time.outer_bytes *= dispatch->element_bytes;
    time.buffer_bytes = one * dispatch->ranks * dispatch->element_bytes;
    *time_out = time;
}

double ash_dispatch_imbalance(const double *counts, size_t experts, size_t ranks)
{
    double total = 0, fullest = 0;

    for (size_t r = 0; r < ranks; r++) {
        double load = 0;

        for (size_t e = r * (experts / ranks); e < (r + 1) * (experts / ranks); e++)
            load += counts[e];
        total += load;
        fullest = fmax(fullest, load);
    }
    return total > 0 ? fullest * (double)ranks / total : 1;
}
