/* Fair share. Slurm's formulas, so that a factor here is the factor that sshare prints. */
#include "queue/policy/share.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"

double ash_share_decay(double seconds, double half_life_s)
{
    return half_life_s > 0 ? exp2(-seconds / half_life_s) : 1;
}

/* Usage of accounts, and the shares of all siblings in sums (by parent; the root's own is at its index). */
static void add_up(struct ash_share_node *nodes, int count, double *sums)
{
    for (int i = 0; i < count; i++) {
        if (!nodes[i].is_user) nodes[i].usage = 0;
        sums[i] = 0;
    }
    for (int i = count - 1; i > 0; i--) {
        if (nodes[i].parent < 0) continue;
        ash_assert(nodes[i].parent < i); /* parents come first */
        nodes[nodes[i].parent].usage += nodes[i].usage;
        sums[nodes[i].parent] += nodes[i].shares;
    }
}

static double over(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* ---- classic ----------------------------------------------------------------------------------------------------- */

void ash_share_multifactor(struct ash_share_node *nodes, int count, double damping)
{
    double *sums = calloc((size_t)count + 1, sizeof(*sums));

    if (sums == NULL) return; /* factors stay as they were */
    add_up(nodes, count, sums);
    for (int i = 0; i < count; i++) {
        struct ash_share_node *node = &nodes[i];
        const struct ash_share_node *above = node->parent >= 0 ? &nodes[node->parent] : NULL;
        double part = above != NULL ? over(node->shares, sums[node->parent]) : 1;

        node->norm_shares = above != NULL ? above->norm_shares * part : 1;
        node->norm_usage = over(node->usage, nodes[0].usage);
        node->effective_usage = node->norm_usage;
        /* the parent's usage beyond this node counts in part */
        if (above != NULL && node->parent > 0)
            node->effective_usage += (above->effective_usage - node->norm_usage) * part;
        node->factor = node->norm_shares > 0 ? exp2(-node->effective_usage / node->norm_shares / damping) : 0;
    }
    free(sums);
}

/* ---- fair tree --------------------------------------------------------------------------------------------------- */

struct ranking {
    struct ash_share_node *nodes;
    int *first, *next; /* children of each node */
    int users, rank, rank_untied;
};

static int by_level(const void *a, const void *b)
{
    const struct ash_share_node *x = *(const struct ash_share_node *const *)a;
    const struct ash_share_node *y = *(const struct ash_share_node *const *)b;

    if (x->level_fs != y->level_fs) return x->level_fs > y->level_fs ? -1 : 1;
    if (x->is_user != y->is_user) return x->is_user ? -1 : 1; /* users before accounts */
    return x < y ? -1 : x > y;
}

static int rank_siblings(struct ranking *ranking, struct ash_share_node **siblings, int count, bool is_tied);

/* The children of accounts[0..count), which are tied, as one list of siblings. */
static int rank_below(struct ranking *ranking, struct ash_share_node **accounts, int count, bool is_tied)
{
    struct ash_share_node **children;
    int at = 0, rc;

    for (int i = 0; i < count; i++)
        for (int child = ranking->first[accounts[i] - ranking->nodes]; child != 0; child = ranking->next[child])
            at++;
    children = calloc((size_t)at + 1, sizeof(struct ash_share_node *));
    if (children == NULL) return -ENOMEM;
    at = 0;
    for (int i = 0; i < count; i++)
        for (int child = ranking->first[accounts[i] - ranking->nodes]; child != 0; child = ranking->next[child])
            children[at++] = &ranking->nodes[child];
    rc = rank_siblings(ranking, children, at, is_tied);
    free(children);
    return rc;
}

/* As deep as the tree of accounts. */
static int rank_siblings(struct ranking *ranking, struct ash_share_node **siblings, int count, bool is_tied)
{
    qsort(siblings, (size_t)count, sizeof(struct ash_share_node *), by_level);
    for (int i = 0; i < count; i++) {
        struct ash_share_node *node = siblings[i];
        bool tied = i == 0 ? is_tied : siblings[i - 1]->level_fs == node->level_fs;
        int merged = 1, rc;

        if (node->is_user) {
            if (!tied) ranking->rank = ranking->rank_untied;
            node->factor = ranking->users > 0 ? (double)ranking->rank / ranking->users : 0;
            ranking->rank_untied--;
            continue;
        }
        while (i + merged < count && siblings[i + merged]->level_fs == node->level_fs)
            merged++;
        rc = rank_below(ranking, siblings + i, merged, tied);
        if (rc < 0) return rc;
        i += merged - 1;
    }
    return 0;
}

static void set_levels(struct ash_share_node *nodes, int count, const double *sums)
{
    for (int i = 0; i < count; i++) {
        struct ash_share_node *node = &nodes[i];

        node->norm_usage = over(node->usage, nodes[0].usage);
        node->norm_shares = node->parent >= 0 ? over(node->shares, sums[node->parent]) : 1;
        node->effective_usage = node->parent >= 0 ? over(node->usage, nodes[node->parent].usage) : 1;
        node->level_fs = node->shares <= 0            ? 0
                         : node->effective_usage <= 0 ? INFINITY
                                                      : node->norm_shares / node->effective_usage;
    }
}

int ash_share_fair_tree(struct ash_share_node *nodes, int count)
{
    double *sums = calloc((size_t)count + 1, sizeof(*sums));
    int *links = calloc((size_t)count * 2 + 1, sizeof(*links)), rc = -ENOMEM;
    struct ranking ranking = {.nodes = nodes, .first = links, .next = links != NULL ? links + count : NULL};
    struct ash_share_node *root = nodes;

    if (sums != NULL && links != NULL) {
        add_up(nodes, count, sums);
        set_levels(nodes, count, sums);
        for (int i = count - 1; i > 0; i--) {
            ranking.next[i] = ranking.first[nodes[i].parent];
            ranking.first[nodes[i].parent] = i;
            ranking.users += nodes[i].is_user;
        }
        ranking.rank = ranking.rank_untied = ranking.users;
        rc = rank_below(&ranking, &root, 1, false);
    }
    free(sums);
    free(links);
    return rc;
}

/* ---- dividing a cluster ------------------------------------------------------------------------------------------ */

static double wanted(const struct ash_share_claim *claim)
{
    return fmin(claim->asked, claim->limit);
}

void ash_share_divide(struct ash_share_claim *claims, int count, double total)
{
    double left = total;

    for (int i = 0; i < count; i++) {
        claims[i].given = fmin(fmin(claims[i].deserved, wanted(&claims[i])), fmax(left, 0));
        left -= claims[i].given;
    }
    while (left > 1e-9) {
        double weights = 0, given = 0;

        for (int i = 0; i < count; i++)
            if (wanted(&claims[i]) > claims[i].given) weights += claims[i].weight;
        if (weights <= 0) break;
        for (int i = 0; i < count; i++) {
            double part = fmin(left * claims[i].weight / weights, wanted(&claims[i]) - claims[i].given);

            if (part <= 0) continue;
            claims[i].given += part;
            given += part;
        }
        if (given <= 1e-12 * total) break;
        left -= given;
    }
}
