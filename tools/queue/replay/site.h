/* site - the hosts of a cluster and the tree above them, as a simulation needs them: made up, read from a topology, or
 * from a list of nodes. */
#ifndef ASH_QUEUE_SITE_H
#define ASH_QUEUE_SITE_H

#include "queue/policy/policy.h"

#define ASH_SITE_WIDTHS_MAX 8

struct ash_site {
    struct ash_topology *topology;
    struct ash_policy_host *hosts;
    int host_count;
};

/* Equal hosts n0, n1, ...; widths are hosts per lowest domain, per the next, ... ("16,160"); none: one switch. -EINVAL
 * where a width is no multiple of the one before. On 0 the caller finis site_out. */
int ash_site_make(int hosts, int gpus, const char *widths, struct ash_site *site_out, struct ash_err *err);
/* Hosts of a topology, each with as many GPUs; takes the topology over, on errors too. */
int ash_site_take(struct ash_topology *topology, int gpus, struct ash_site *site_out, struct ash_err *err);
/* A table `sn,cpu_milli,memory_mib,gpu,model`, as openb has it, below one switch. name is for messages. */
int ash_site_parse(const char *text, size_t size_bytes, const char *name, struct ash_site *site_out,
                   struct ash_err *err);
/* Free its members. A zeroed site is fine. */
void ash_site_fini(struct ash_site *site);
/* GPUs of all hosts. */
double ash_site_gpus(const struct ash_site *site);

#endif
