/* usage - what jobs have used: when they had which nodes, as a back end's accounting tells it. Sums and prices are the
 * caller's. */
#ifndef ASH_ORCHESTRATE_JOB_USAGE_H
#define ASH_ORCHESTRATE_JOB_USAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Nodes that a job had at a stretch: one that was queued again has several, a job on Kubernetes one for each pod. */
struct ash_usage_entry {
    char *id, *name, *user, *team; /* owned; never NULL */
    char *out;                     /* folder of the run; owned; NULL: not known */
    double start_s, end_s;         /* seconds since 1970 */
    double nodes, gpus;            /* of all nodes together */
    double price;                  /* dollars an hour of a node; 0: not known */
};

/* A growing list. Zero-initialise; free with ash_usage_free. */
struct ash_usage_list {
    struct ash_usage_entry *entries;
    size_t count, capacity;
};

/* Append an entry, cut to the time from from_s to to_s; its texts are copied, and NULL is "". One that has nothing in
 * that time is left out. Returns 0 or -ENOMEM. */
int ash_usage_add(struct ash_usage_list *list, const struct ash_usage_entry *entry, double from_s, double to_s);
/* Frees the entries. */
void ash_usage_free(struct ash_usage_list *list);

/* A moment as people write it, in seconds since 1970: "2026-11-19", "2026-11-19T08:30", "2026-11-19 08:30:00" (local
 * time), "now", or a duration before now_s ("7d", "36h"). Returns 0 or -EINVAL. */
int ash_usage_parse_time(const char *text, double now_s, double *moment_out);

#endif
