/* Collectives: latency + size / bandwidth per level. Hierarchical algorithms keep both levels busy at once, so the
 * slower level decides. A ring with wire rate would under-predict what NVLS and rail-aligned trees reach, which is why
 * the shares are calibrated on whole gathers. */
#include "plan/train/comm.h"

#include <math.h>

struct ash_group_place ash_group_place_of(const struct ash_cluster *cluster, double ranks, double stride)
{
    double room = stride >= cluster->domain_gpus ? 1
                  : stride <= 1                  ? cluster->domain_gpus
                                                 : floor(cluster->domain_gpus / stride);
    double domains = room >= ranks ? 1 : ceil(ranks / room);

    return (struct ash_group_place){.ranks = ranks, .local = ranks / domains, .domains = domains};
}

/* Bytes per second of one GPU towards its neighbours in the machine; PCIe if there is no NVLink. */
static double inner_rate(const struct ash_consts *consts, const struct ash_cluster *cluster)
{
    const struct ash_gpu *gpu = cluster->machine.gpu;
    double rate = gpu->nvlink_bandwidth > 0 && cluster->domain_gpus > 1 ? gpu->nvlink_bandwidth
                  : gpu->host_bandwidth > 0                             ? gpu->host_bandwidth / 2
                                                                        : 10e9;

    return rate * consts->nvlink_share;
}

/* Of one GPU's part of the machine's network. Machines without NVLink talk over PCIe inside, which "domains" of one
 * GPU see as network. */
static double outer_rate(const struct ash_consts *consts, const struct ash_cluster *cluster)
{
    double rate = cluster->machine.net_bandwidth / cluster->machine.gpus * consts->net_share;

    if (cluster->machine.gpu->nvlink_bandwidth <= 0 && cluster->machines == 1)
        return inner_rate(consts, cluster); /* one PCIe machine */
    return fmax(rate, 1e8);
}

/* What a placement leaves of it. */
static double left_rate(const struct ash_consts *consts, const struct ash_cluster *cluster, double net_share)
{
    return outer_rate(consts, cluster) * (net_share > 0 ? net_share : 1);
}

static double outer_latency(const struct ash_cluster *cluster)
{
    return cluster->machines > 1 ? cluster->machine.net_latency_s : 5e-6;
}

static struct ash_comm finish(double inner_s, double inner_latency, double outer_s, double outer_latency_s)
{
    struct ash_comm comm = {.nvlink_s = inner_s > 0 ? inner_s + inner_latency : 0,
                            .network_s = outer_s > 0 ? outer_s + outer_latency_s : 0};

    comm.total_s = comm.nvlink_s > comm.network_s ? comm.nvlink_s + (outer_s > 0 ? outer_latency_s : 0)
                                                  : comm.network_s + (inner_s > 0 ? inner_latency : 0);
    return comm;
}

struct ash_comm ash_comm_gather(const struct ash_consts *consts, const struct ash_cluster *cluster,
                                struct ash_group_place place, double bytes)
{
    double inner = 0, outer = 0, sent = 0;
    struct ash_comm comm;

    if (place.ranks <= 1 || bytes <= 0) return (struct ash_comm){0};
    if (place.local > 1) inner = bytes * (place.local - 1) / place.local / inner_rate(consts, cluster);
    if (place.domains > 1) {
        sent = bytes * (place.domains - 1) / place.domains / place.local;
        outer = sent / left_rate(consts, cluster, place.net_share);
    }
    comm = finish(inner, consts->nvlink_latency, outer, outer_latency(cluster) * (place.domains - 1));
    comm.network_bytes = sent;
    return comm;
}

struct ash_comm ash_comm_reduce(const struct ash_consts *consts, const struct ash_cluster *cluster,
                                struct ash_group_place place, double bytes)
{
    struct ash_comm half = ash_comm_gather(consts, cluster, place, bytes);

    return (struct ash_comm){2 * half.nvlink_s, 2 * half.network_s, 2 * half.total_s, 2 * half.network_bytes};
}

struct ash_comm ash_comm_send(const struct ash_consts *consts, const struct ash_cluster *cluster, double stride,
                              double net_share, double bytes)
{
    struct ash_comm comm;

    if (bytes <= 0) return (struct ash_comm){0};
    if (stride < cluster->domain_gpus) return finish(bytes / inner_rate(consts, cluster), consts->nvlink_latency, 0, 0);
    comm = finish(0, 0, bytes / left_rate(consts, cluster, net_share), outer_latency(cluster));
    comm.network_bytes = bytes;
    return comm;
}
