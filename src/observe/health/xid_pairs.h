/* xid_pairs - the kernel log and NVML report the same XIDs, in any order, and perhaps only one of them does: an event
 * counts once. One owner. */
#ifndef ASH_OBSERVE_HEALTH_XID_PAIRS_H
#define ASH_OBSERVE_HEALTH_XID_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_XID_PAIRS_MAX 256

struct ash_xid_pairs {
    struct {
        char part[64]; /* PCI address */
        int code;
        uint64_t lines, told; /* events from each */
        uint64_t total;       /* NVML's counter, as it was last */
        uint64_t counted;
    } items[ASH_XID_PAIRS_MAX];
    size_t count;
};

/* A line of the kernel log. Returns whether the event is new: NVML has not reported it before. */
bool ash_xid_pairs_line(struct ash_xid_pairs *pairs, int code, const char *part);
/* NVML's counter is at total; one that went back was restarted. Returns the number of new events: without a line in the
 * log. */
uint64_t ash_xid_pairs_told(struct ash_xid_pairs *pairs, int code, const char *part, uint64_t total);

#endif
