/* cluster - nodes compared with each other: facts that differ from most, clocks that are off, disks and links that are
 * slower than most. A node whose links are slow on the whole is named itself, a single slow link by both its ends.
 * Nothing is measured here. */
#ifndef ASH_OBSERVE_CHECK_CLUSTER_H
#define ASH_OBSERVE_CHECK_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "observe/check/check.h"

enum ash_node_fact {
    ASH_FACT_VERSION,
    ASH_FACT_KERNEL,
    ASH_FACT_CORES,
    ASH_FACT_GPUS,
    ASH_FACT_DRIVER,
    ASH_FACT_RDMA,
    ASH_FACT_NETWORK,
    ASH_FACTS
};

/* One node's report. Plain bytes: it is sent between ranks. */
struct ash_node_card {
    char host[64];
    char facts[ASH_FACTS][64]; /* empty: not known */
    uint32_t grade;            /* of its own check: enum ash_check_grade */
    uint32_t unused;
    char worst[256];              /* its worst result; empty: none */
    double clock_s;               /* ahead of the first node's */
    double clock_error_s;         /* half of the round trip that this was seen by */
    double write_rate, read_rate; /* of its disk, bytes per second; 0: not measured */
};

struct ash_cluster_finding {
    size_t node, to; /* to == node: the node itself; else the link to it */
    char text[320];
};

#define ASH_CLUSTER_FINDINGS_MAX 256

struct ash_cluster_report {
    struct ash_cluster_finding findings[ASH_CLUSTER_FINDINGS_MAX];
    size_t count, left_out;
    double rate_median; /* of all links; 0: there is none */
};

/* Fill card from a node's own report; its clock stays as it is. */
void ash_node_card_fill(struct ash_node_card *card, const struct ash_check_report *report);
/* The name of a fact: "kernel". Static. */
const char *ash_node_fact_name(enum ash_node_fact fact);
/* The median of those of count rates that are not 0, without their signs; 0: all are 0. Returns 0 or -ENOMEM. */
int ash_cluster_median(const double *rates, size_t count, double *median_out);
/* Does a node send or receive with less than limit over more than half of its links that are known, two at least? rates
 * as below. */
bool ash_cluster_is_slow_node(const double *rates, size_t count, size_t node, double limit);
/* Compare count nodes. rates[from * count + to]: bytes per second, 0 if unknown. A negative one was disturbed: it
 * counts for the median and is never slow. Rates below slow_share (0 to 1) of the median are slow. Returns 0 or
 * -ENOMEM. */
int ash_cluster_judge(const struct ash_node_card *cards, const double *rates, size_t count, double slow_share,
                      struct ash_cluster_report *report_out);

#endif
