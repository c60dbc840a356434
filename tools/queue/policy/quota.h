/* quota - nominal quotas in a tree of queues and cohorts, with borrowing and lending, by Kueue's rules: a queue lends
 * its unused quota, up to its lending limit; it borrows from the parent, up to its borrowing limit. */
#ifndef ASH_QUEUE_POLICY_QUOTA_H
#define ASH_QUEUE_POLICY_QUOTA_H

#include "queue/policy/conf.h"

struct ash_quota;

/* Nothing is used yet. conf is borrowed until close. Returns 0 or -ENOMEM; on 0 the caller owns *quota_out. */
int ash_quota_open(const struct ash_policy_conf *conf, struct ash_quota **quota_out);
/* NULL is a no-op. */
void ash_quota_close(struct ash_quota *quota);

/* More of a resource that a queue may use now; ASH_POLICY_UNLIMITED if it has no quota. May be negative. */
int64_t ash_quota_available(const struct ash_quota *quota, int queue, enum ash_policy_resource resource);
/* Its maximum if no other queue used anything. */
int64_t ash_quota_potential(const struct ash_quota *quota, int queue, enum ash_policy_resource resource);
/* Does amount fit in all resources? */
bool ash_quota_fits(const struct ash_quota *quota, int queue, const int64_t *amount);
/* A queue uses amount more, or (release) less. */
void ash_quota_use(struct ash_quota *quota, int queue, const int64_t *amount);
/* The opposite of use. */
void ash_quota_release(struct ash_quota *quota, int queue, const int64_t *amount);
/* Does it use more than its own quota, with amount (may be NULL) added? */
bool ash_quota_borrows(const struct ash_quota *quota, int queue, const int64_t *amount);
/* Share of what could be lent to it that a queue borrows, of its dominant resource, over its weight, with sign * amount
 * added (amount may be NULL). 0: it borrows nothing. */
double ash_quota_share(const struct ash_quota *quota, int queue, const int64_t *amount, int sign);

#endif
