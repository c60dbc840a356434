/* Quotas: every queue has its usage and the part of its subtree's quota that is never lent (guaranteed); usage beyond
 * that is also usage of the parent. So a query of the available amount walks up once. */
#include "queue/policy/quota.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"

struct node {
    int64_t subtree[ASH_POLICY_RESOURCES];    /* quota of it and what its children lend */
    int64_t guaranteed[ASH_POLICY_RESOURCES]; /* of it, that is not lent */
    int64_t used[ASH_POLICY_RESOURCES];
};

struct ash_quota {
    const struct ash_policy_conf *conf;
    struct node *nodes; /* by queue */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t above_zero(int64_t a)
{
    return a > 0 ? a : 0;
}

/* a + b, where either may be "no limit". */
static int64_t sum(int64_t a, int64_t b)
{
    return a == ASH_POLICY_UNLIMITED || b == ASH_POLICY_UNLIMITED ? ASH_POLICY_UNLIMITED : a + b;
}

static const struct ash_policy_queue *queue_of(const struct ash_quota *quota, int queue)
{
    ash_assert(queue >= 0 && queue < quota->conf->queue_count);
    return &quota->conf->queues[queue];
}

/* Is this resource of this queue limited by quota? */
static bool is_managed(const struct ash_quota *quota, int queue, int resource)
{
    const struct ash_policy_queue *q = queue_of(quota, queue);

    return q->has_quota && q->nominal[resource] != ASH_POLICY_UNLIMITED;
}

/* Children come after their parents, so one walk from the end adds up lent amounts. */
static void settle(struct ash_quota *quota)
{
    for (int i = quota->conf->queue_count - 1; i >= 0; i--) {
        const struct ash_policy_queue *q = queue_of(quota, i);
        struct node *node = &quota->nodes[i];

        for (int r = 0; r < ASH_POLICY_RESOURCES; r++) {
            if (is_managed(quota, i, r)) node->subtree[r] += q->nominal[r];
            node->guaranteed[r] = q->lend[r] == ASH_POLICY_UNLIMITED ? 0 : above_zero(node->subtree[r] - q->lend[r]);
            ash_assert(q->parent < i); /* parents come first: from the leaves up, each is complete when it is added */
            if (q->parent >= 0) quota->nodes[q->parent].subtree[r] += node->subtree[r] - node->guaranteed[r];
        }
    }
}

int ash_quota_open(const struct ash_policy_conf *conf, struct ash_quota **quota_out)
{
    struct ash_quota *quota = calloc(1, sizeof(*quota));

    if (quota == NULL) return -ENOMEM;
    quota->conf = conf;
    quota->nodes = calloc((size_t)conf->queue_count, sizeof(*quota->nodes));
    if (quota->nodes == NULL) {
        free(quota);
        return -ENOMEM;
    }
    settle(quota);
    *quota_out = quota;
    return 0;
}

void ash_quota_close(struct ash_quota *quota)
{
    if (quota == NULL) return;
    free(quota->nodes);
    free(quota);
}

/* ---- how much ---------------------------------------------------------------------------------------------------- */

static int64_t available_at(const struct ash_quota *quota, int queue, int r)
{
    const struct ash_policy_queue *q = queue_of(quota, queue);
    const struct node *node = &quota->nodes[queue];
    int64_t own = above_zero(node->guaranteed[r] - node->used[r]), above;

    if (q->parent < 0) return node->subtree[r] - node->used[r];
    above = available_at(quota, q->parent, r);
    if (q->borrow[r] != ASH_POLICY_UNLIMITED) {
        int64_t stored = node->subtree[r] - node->guaranteed[r];
        int64_t taken = above_zero(node->used[r] - node->guaranteed[r]);

        above = least(above, stored - taken + q->borrow[r]);
    }
    return own + above;
}

int64_t ash_quota_available(const struct ash_quota *quota, int queue, enum ash_policy_resource resource)
{
    return is_managed(quota, queue, (int)resource) ? available_at(quota, queue, (int)resource) : ASH_POLICY_UNLIMITED;
}

static int64_t potential_at(const struct ash_quota *quota, int queue, int r)
{
    const struct ash_policy_queue *q = queue_of(quota, queue);
    const struct node *node = &quota->nodes[queue];

    if (q->parent < 0) return node->subtree[r];
    return least(sum(node->subtree[r], q->borrow[r]), node->guaranteed[r] + potential_at(quota, q->parent, r));
}

int64_t ash_quota_potential(const struct ash_quota *quota, int queue, enum ash_policy_resource resource)
{
    return is_managed(quota, queue, (int)resource) ? potential_at(quota, queue, (int)resource) : ASH_POLICY_UNLIMITED;
}

bool ash_quota_fits(const struct ash_quota *quota, int queue, const int64_t *amount)
{
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++)
        if (amount[r] > 0 && ash_quota_available(quota, queue, (enum ash_policy_resource)r) < amount[r]) return false;
    return true;
}

/* ---- use --------------------------------------------------------------------------------------------------------- */

static void use_one(struct ash_quota *quota, int queue, int r, int64_t amount)
{
    while (queue >= 0 && amount > 0) {
        struct node *node = &quota->nodes[queue];
        int64_t own = above_zero(node->guaranteed[r] - node->used[r]);

        node->used[r] += amount;
        amount -= own;
        queue = queue_of(quota, queue)->parent;
    }
}

static void release_one(struct ash_quota *quota, int queue, int r, int64_t amount)
{
    while (queue >= 0 && amount > 0) {
        struct node *node = &quota->nodes[queue];
        int64_t above = node->used[r] - node->guaranteed[r];

        ash_assert(node->used[r] >= amount); /* no more is given back than was used */
        node->used[r] -= amount;
        amount = least(amount, above);
        queue = queue_of(quota, queue)->parent;
    }
}

void ash_quota_use(struct ash_quota *quota, int queue, const int64_t *amount)
{
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++)
        use_one(quota, queue, r, amount[r]);
}

void ash_quota_release(struct ash_quota *quota, int queue, const int64_t *amount)
{
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++)
        release_one(quota, queue, r, amount[r]);
}

bool ash_quota_borrows(const struct ash_quota *quota, int queue, const int64_t *amount)
{
    const struct node *node = &quota->nodes[queue];

    for (int r = 0; r < ASH_POLICY_RESOURCES; r++)
        if (is_managed(quota, queue, r) && node->used[r] + (amount != NULL ? amount[r] : 0) > node->subtree[r])
            return true;
    return false;
}

double ash_quota_share(const struct ash_quota *quota, int queue, const int64_t *amount, int sign)
{
    const struct ash_policy_queue *q = queue_of(quota, queue);
    const struct node *node = &quota->nodes[queue];
    double share = 0;

    if (q->parent < 0) return 0;
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++) {
        int64_t used = node->used[r] + (amount != NULL ? sign * amount[r] : 0), borrowed = used - node->subtree[r];
        int64_t lendable = potential_at(quota, q->parent, r);

        if (is_managed(quota, queue, r) && borrowed > 0 && lendable > 0)
            share = fmax(share, (double)borrowed / (double)lendable);
    }
    if (share == 0) return 0;
    return q->weight > 0 ? share / q->weight : INFINITY;
}
